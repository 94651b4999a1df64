//! Keys of the API: who may ask for what, and whether a key that somebody shows is good.
//!
//! Made when an administrator asks for one; judged at every request, from what a node has in memory. Promise: what is kept of a key opens
//! nothing, because it is a hash under a secret of the installation; whether a key is good depends on the key and the time alone; nobody
//! gives away more than they have.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};

use crate::id::TenantId;
use crate::token::unhex;

/// Tells ours from others, for people and for scanners of secrets.
const PREFIX: &str = "pk_";

/// What is hashed begins so, so that no other use of the seal can be taken for it.
const CONTEXT: &[u8] = b"punctual api key 1";

/// Tells signatures of sessions from hashes of keys.
const SESSION: &[u8] = b"punctual console session 1";

/// Secrets of one key that are remembered: the newest, and those before it whose time may not be over.
pub const SECRETS_MAX: usize = 4;

/// What a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Everything.
    Admin,
    /// Registers and changes jobs, and handles runs.
    Operator,
    /// Reads.
    Viewer,
    /// Takes and reports runs.
    Worker,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 4] = [Role::Admin, Role::Operator, Role::Viewer, Role::Worker];

    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Operator => "operator",
            Role::Viewer => "viewer",
            Role::Worker => "worker",
        }
    }

    /// The role of a word.
    pub fn of(word: &str) -> Option<Self> {
        Role::ALL.into_iter().find(|role| role.as_str() == word)
    }

    /// Whether it may do all that the other may.
    pub fn covers(self, other: Role) -> bool {
        match self {
            Role::Admin => true,
            Role::Operator => !matches!(other, Role::Admin),
            Role::Viewer | Role::Worker => self == other,
        }
    }
}

/// What a key is called; no secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; 8]);

impl KeyId {
    /// Of random bits, which the caller brings.
    pub fn new(bits: u64) -> Self {
        KeyId(bits.to_be_bytes())
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for KeyId {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        unhex(text).map(KeyId).ok_or(Malformed)
    }
}

/// A text that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is `pk_`, 16 and, after `_`, 64 hexadecimal digits in lower case")]
pub struct Malformed;

/// A key as somebody shows it: its id, and the secret that proves it.
#[derive(Clone, PartialEq, Eq)]
pub struct Shown {
    /// Which key it is said to be.
    pub id: KeyId,
    secret: [u8; 32],
}

impl Shown {
    /// Of random bytes, which the caller brings.
    pub fn new(id: KeyId, secret: [u8; 32]) -> Self {
        Shown { id, secret }
    }

    /// The text, for the one time it is given out.
    pub fn reveal(&self) -> String {
        let secret: String = self.secret.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{PREFIX}{}_{secret}", self.id)
    }
}

impl FromStr for Shown {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let (id, secret) =
            text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).ok_or(Malformed)?;
        Ok(Shown { id: id.parse()?, secret: unhex(secret).ok_or(Malformed)? })
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_…", self.id)
    }
}

/// What hashes secrets of keys; the same on all nodes of an installation, and known to nobody else.
#[derive(Clone)]
pub struct Seal([u8; 32]);

impl Seal {
    /// Of bytes that nobody else knows, which the caller brings.
    pub fn new(bytes: [u8; 32]) -> Self {
        Seal(bytes)
    }

    /// Of a secret text.
    pub fn of_secret(text: &str) -> Self {
        Seal(blake3::derive_key("punctual api keys, key of the installation, 1", text.as_bytes()))
    }

    /// What is kept of a key.
    pub fn hash(&self, shown: &Shown) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(CONTEXT);
        hasher.update(&shown.id.0);
        hasher.update(&shown.secret);
        Hash(hasher.finalize())
    }

    /// What proves that somebody showed a key, so that they need not show it again until `until`: nobody makes it without the seal, and
    /// it is another one for every secret of the key.
    pub fn session(&self, id: KeyId, kept: &Hash, until: Timestamp) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(SESSION);
        hasher.update(&id.0);
        hasher.update(kept.0.as_bytes());
        hasher.update(&until.as_second().to_be_bytes());
        Hash(hasher.finalize())
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(…)")
    }
}

/// What is kept of a secret. Comparing two takes the same time wherever they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(blake3::Hash);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_hex())
    }
}

impl FromStr for Hash {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        blake3::Hash::from_hex(text).map(Hash).map_err(|_| Malformed)
    }
}

/// A secret of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secret {
    /// What is kept of it.
    pub hash: Hash,
    /// Since when.
    pub since: Timestamp,
    /// Replaced: good until then.
    pub until: Option<Timestamp>,
}

/// A key, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// What it is called by programs.
    pub id: KeyId,
    /// What it is called by people.
    pub name: String,
    /// What it may do, and where.
    pub right: Right,
    /// The newest first; at most [`SECRETS_MAX`].
    pub secrets: Vec<Secret>,
    /// When it was made.
    pub created_at: Timestamp,
    /// By whom: `key` and an id, or where it came from.
    pub created_by: String,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// What somebody may do: what a key gives, and what is needed to give it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// What.
    pub role: Role,
    /// For whom: one tenant, or all of them.
    pub tenant: Option<TenantId>,
    /// Until when, if not for good.
    pub expires_at: Option<Timestamp>,
}

impl Right {
    /// What whoever holds the machine may do.
    pub const ALL: Right = Right { role: Role::Admin, tenant: None, expires_at: None };

    /// Whether somebody with this right may give that one away.
    pub fn may_give(&self, asked: &Right) -> Result<(), Beyond> {
        if self.tenant.is_some() && self.tenant != asked.tenant {
            return Err(Beyond::Tenant);
        }
        if !self.role.covers(asked.role) {
            return Err(Beyond::Role { own: self.role.as_str(), asked: asked.role.as_str() });
        }
        match (self.expires_at, asked.expires_at) {
            (None, _) => Ok(()),
            (Some(own), Some(asked)) if asked <= own => Ok(()),
            (Some(own), _) => Err(Beyond::Time(own)),
        }
    }
}

/// Why a right is not given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Beyond {
    /// It is for others.
    #[error("a key of one tenant gives out keys of that tenant alone")]
    Tenant,
    /// It may more.
    #[error("a key with the role {own} gives out none with the role {asked}")]
    Role {
        /// What the giver may.
        own: &'static str,
        /// What was asked for.
        asked: &'static str,
    },
    /// It is good for longer.
    #[error("a key that expires gives out none that is good after {0}, when it ends itself")]
    Time(Timestamp),
}

/// Why a key that somebody shows is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is none with this id and secret.
    #[error("no such key is known")]
    Unknown,
    /// Somebody took it back.
    #[error("the key was revoked at {0}")]
    Revoked(Timestamp),
    /// Its time is over, or that of this secret.
    #[error("the key expired at {0}")]
    Expired(Timestamp),
}

/// How a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is good.
    Active,
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked,
}

impl State {
    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Active => "active",
            State::Expired => "expired",
            State::Revoked => "revoked",
        }
    }
}

impl Key {
    /// Whether what somebody shows is good now.
    ///
    /// Only who has the right secret hears that a key was revoked or has expired; to everybody else it is unknown.
    pub fn judge(&self, hash: &Hash, now: Timestamp) -> Result<(), Refused> {
        let secret = self.secrets.iter().find(|secret| secret.hash == *hash).ok_or(Refused::Unknown)?;
        if let Some(at) = self.revoked_at {
            return Err(Refused::Revoked(at));
        }
        match self.ends_at(secret) {
            Some(at) if at <= now => Err(Refused::Expired(at)),
            _ => Ok(()),
        }
    }

    /// When what was shown is not good any more, if nobody does anything.
    pub fn good_until(&self, hash: &Hash) -> Option<Timestamp> {
        self.secrets.iter().find(|secret| secret.hash == *hash).and_then(|secret| self.ends_at(secret))
    }

    fn ends_at(&self, secret: &Secret) -> Option<Timestamp> {
        self.right.expires_at.into_iter().chain(secret.until).min()
    }

    /// How it stands.
    pub fn state(&self, now: Timestamp) -> State {
        match (self.revoked_at, self.right.expires_at) {
            (Some(_), _) => State::Revoked,
            (None, Some(at)) if at <= now => State::Expired,
            (None, _) => State::Active,
        }
    }

    /// When it was over, if it is.
    pub fn over_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.revoked_at.or(self.right.expires_at.filter(|at| *at <= now))
    }

    /// Gives it a new secret. The one before is good for the overlap, and so is any before that whose time is not over by then.
    pub fn rotate(&mut self, hash: Hash, overlap: SignedDuration, now: Timestamp) {
        let end = now.checked_add(overlap).unwrap_or(Timestamp::MAX);
        for secret in &mut self.secrets {
            secret.until = Some(secret.until.map_or(end, |until| until.min(end)));
        }
        self.secrets.insert(0, Secret { hash, since: now, until: None });
        self.secrets.truncate(SECRETS_MAX);
    }

    /// Until when the secret before the newest is good, if it still is.
    pub fn old_until(&self, now: Timestamp) -> Option<Timestamp> {
        let until = self.secrets.iter().skip(1).filter_map(|secret| secret.until).max();
        until.filter(|until| *until > now && self.state(now) == State::Active)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::tests::at;

    fn shown(n: u8) -> Shown {
        Shown::new(KeyId::new(7), [n; 32])
    }

    fn seal() -> Seal {
        Seal::new([9; 32])
    }

    fn key() -> Key {
        Key {
            id: KeyId::new(7),
            name: "ci".into(),
            right: Right { role: Role::Operator, tenant: None, expires_at: None },
            secrets: vec![Secret { hash: seal().hash(&shown(1)), since: at(0), until: None }],
            created_at: at(0),
            created_by: "test".into(),
            revoked_at: None,
        }
    }

    fn judged(key: &Key, n: u8, second: i64) -> Result<(), Refused> {
        key.judge(&seal().hash(&shown(n)), at(second))
    }

    #[test]
    fn a_key_reads_back_as_it_was_given_out() {
        let text = shown(0xab).reveal();
        assert_eq!(text, format!("pk_0000000000000007_{}", "ab".repeat(32)));
        assert_eq!(text.parse(), Ok(shown(0xab)));
        assert_eq!("0000000000000007".parse(), Ok(KeyId::new(7)));
        let (hash, id) = (seal().hash(&shown(1)), KeyId::new(7));
        assert_eq!((hash.to_string().parse(), id.to_string().parse()), (Ok(hash), Ok(id)));
    }

    #[test]
    fn a_session_is_another_one_for_every_key_secret_end_and_installation() {
        let kept = seal().hash(&shown(1));
        let session = seal().session(KeyId::new(7), &kept, at(60));
        assert_eq!(session, seal().session(KeyId::new(7), &kept, at(60)));
        let others = [
            seal().session(KeyId::new(8), &kept, at(60)),
            seal().session(KeyId::new(7), &seal().hash(&shown(2)), at(60)),
            seal().session(KeyId::new(7), &kept, at(61)),
            Seal::new([8; 32]).session(KeyId::new(7), &kept, at(60)),
            kept,
        ];
        assert!(others.iter().all(|other| *other != session));
    }

    #[test]
    fn no_other_text_is_a_key() {
        let good = shown(1).reveal();
        for text in [
            "",
            "pk_",
            "pk__",
            "secret",
            "pk_0000000000000007",
            "pk_0000000000000007_",
            &good.to_uppercase(),
            &good.replace("pk_", "prt_"),
            &format!("{good}0"),
            &format!(" {good}"),
            &good[..good.len() - 1],
            &good.replacen("_0", "_g", 1),
            &good.replace("01", "ü"),
        ] {
            assert_eq!(text.parse::<Shown>(), Err(Malformed), "{text}");
        }
    }

    #[test]
    fn a_key_is_good_for_who_has_its_secret_and_while_it_is() {
        let change = |change: fn(&mut Key)| {
            let mut key = key();
            change(&mut key);
            key
        };
        let expires = change(|key| key.right.expires_at = Some(at(60)));
        let revoked = change(|key| key.revoked_at = Some(at(50)));
        let both = change(|key| (key.right.expires_at, key.revoked_at) = (Some(at(40)), Some(at(50))));
        for (what, key, n, second, expected) in [
            ("as it is", key(), 1, 100, Ok(())),
            ("another secret", key(), 2, 0, Err(Refused::Unknown)),
            ("before its end", expires.clone(), 1, 59, Ok(())),
            ("at its end", expires.clone(), 1, 60, Err(Refused::Expired(at(60)))),
            ("another secret of one that has expired", expires, 2, 61, Err(Refused::Unknown)),
            ("revoked", revoked.clone(), 1, 51, Err(Refused::Revoked(at(50)))),
            ("revoked, by a clock that is behind", revoked.clone(), 1, 49, Err(Refused::Revoked(at(50)))),
            ("another secret of one that was revoked", revoked, 2, 51, Err(Refused::Unknown)),
            ("revoked after its end", both, 1, 70, Err(Refused::Revoked(at(50)))),
        ] {
            assert_eq!(judged(&key, n, second), expected, "{what}");
        }
    }

    #[test]
    fn what_is_kept_of_a_key_depends_on_all_of_it_and_on_the_installation() {
        let hash = seal().hash(&shown(1));
        assert_ne!(hash, Seal::new([8; 32]).hash(&shown(1)));
        assert_ne!(hash, seal().hash(&shown(2)));
        assert_ne!(hash, seal().hash(&Shown::new(KeyId::new(8), [1; 32])));
    }

    #[test]
    fn a_rotated_key_has_two_good_secrets_for_the_overlap() {
        let mut key = key();
        key.rotate(seal().hash(&shown(2)), SignedDuration::from_secs(30), at(10));
        assert_eq!((judged(&key, 1, 39), judged(&key, 2, 39)), (Ok(()), Ok(())));
        assert_eq!(key.old_until(at(39)), Some(at(40)));
        assert_eq!((judged(&key, 1, 40), judged(&key, 2, 40)), (Err(Refused::Expired(at(40))), Ok(())));
        assert_eq!(key.old_until(at(40)), None);
    }

    #[test]
    fn a_second_rotation_makes_no_secret_good_for_longer_and_one_without_overlap_ends_all() {
        let mut key = key();
        key.rotate(seal().hash(&shown(2)), SignedDuration::from_secs(30), at(0));
        key.rotate(seal().hash(&shown(3)), SignedDuration::from_secs(300), at(0));
        assert_eq!(
            (judged(&key, 1, 29), judged(&key, 2, 299), judged(&key, 3, 299)),
            (Ok(()), Ok(()), Ok(()))
        );
        assert_eq!(judged(&key, 1, 30), Err(Refused::Expired(at(30))));
        key.rotate(seal().hash(&shown(4)), SignedDuration::ZERO, at(5));
        for n in 1..=3 {
            assert_eq!(judged(&key, n, 5), Err(Refused::Expired(at(5))), "secret {n}");
        }
        assert_eq!(judged(&key, 4, 5), Ok(()));
        key.rotate(seal().hash(&shown(5)), SignedDuration::ZERO, at(6));
        assert_eq!((key.secrets.len(), judged(&key, 1, 6)), (SECRETS_MAX, Err(Refused::Unknown)));
    }

    #[test]
    fn nobody_gives_away_more_than_they_have() {
        let right = |role, tenant: Option<u32>, until: Option<i64>| Right {
            role,
            tenant: tenant.map(TenantId),
            expires_at: until.map(at),
        };
        use Role::{Admin, Operator, Viewer, Worker};
        for (own, asked, expected) in [
            (right(Admin, None, None), right(Admin, None, None), Ok(())),
            (right(Admin, None, None), right(Worker, Some(3), Some(9)), Ok(())),
            (right(Admin, Some(3), None), right(Admin, Some(3), None), Ok(())),
            (right(Admin, Some(3), None), right(Viewer, Some(4), None), Err(Beyond::Tenant)),
            (right(Admin, Some(3), None), right(Viewer, None, None), Err(Beyond::Tenant)),
            (right(Operator, None, None), right(Worker, None, None), Ok(())),
            (
                right(Operator, None, None),
                right(Admin, None, None),
                Err(Beyond::Role { own: "operator", asked: "admin" }),
            ),
            (
                right(Worker, None, None),
                right(Viewer, None, None),
                Err(Beyond::Role { own: "worker", asked: "viewer" }),
            ),
            (right(Admin, None, Some(9)), right(Viewer, None, Some(9)), Ok(())),
            (right(Admin, None, Some(9)), right(Viewer, None, Some(10)), Err(Beyond::Time(at(9)))),
            (right(Admin, None, Some(9)), right(Viewer, None, None), Err(Beyond::Time(at(9)))),
        ] {
            assert_eq!(own.may_give(&asked), expected, "{own:?} gives {asked:?}");
        }
        for role in Role::ALL {
            assert_eq!(Role::of(role.as_str()), Some(role));
            assert!(Admin.covers(role) && role.covers(role));
        }
        assert_eq!(Role::of("owner"), None);
    }

    #[test]
    fn a_secret_is_not_printed_by_accident() {
        assert_eq!(format!("{:?} {:?}", shown(1), seal()), "pk_0000000000000007_… Seal(…)");
    }
}
