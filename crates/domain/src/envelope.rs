//! How secrets are sealed: each value with a key of its own, and that key with a master key.
//!
//! Runs when a secret is set, when a call needs it and when master keys change. Pure: random bytes are arguments. Promise: what is sealed
//! opens only with its master key and only for the tenant and the name it was sealed for; a new master key seals the small key anew and
//! leaves the value as it is.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::id::TenantId;
use crate::secret::Value;

/// Bytes of a key.
const KEY_LEN: usize = 32;

/// Master keys that are read: two during a rotation, a few more for whoever forgets to take old ones away.
const KEYS_MAX: usize = 16;

/// What ids are derived for, so that an id says nothing about its key.
const ID_CONTEXT: &str = "punctual 2026 id of a master key";

/// Names a master key. It follows from the key and is no secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MasterKeyId([u8; 8]);

impl fmt::Display for MasterKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for MasterKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// This is no id of a master key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no id of a master key")]
pub struct NoId;

impl FromStr for MasterKeyId {
    type Err = NoId;

    fn from_str(text: &str) -> Result<Self, NoId> {
        unhex(text).and_then(|bytes| bytes.try_into().ok()).map(MasterKeyId).ok_or(NoId)
    }
}

/// A key that seals the keys of secrets.
pub struct MasterKey {
    id: MasterKeyId,
    key: LessSafeKey,
}

impl MasterKey {
    fn new(bytes: &[u8; KEY_LEN]) -> Option<Self> {
        let mut id = [0; 8];
        id.copy_from_slice(&blake3::derive_key(ID_CONTEXT, bytes)[..8]);
        Some(MasterKey { id: MasterKeyId(id), key: aes(bytes)? })
    }

    /// Its id.
    pub fn id(&self) -> MasterKeyId {
        self.id
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.id)
    }
}

/// Why text is no list of master keys. The text itself is never repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoKeys {
    /// Nothing is in it.
    #[error("there is no key in it; `openssl rand -hex 32` makes one")]
    Empty,
    /// A line is something else.
    #[error("line {0} is not a key: 32 bytes as hexadecimal or base64; `openssl rand -hex 32` makes one")]
    Line(usize),
    /// Too many.
    #[error("it has more than {KEYS_MAX} keys; take away those that seal nothing any more")]
    TooMany,
}

/// The master keys that a node has, the newest first.
#[derive(Debug)]
pub struct MasterKeys(Vec<MasterKey>);

impl FromStr for MasterKeys {
    type Err = NoKeys;

    /// One key a line; empty lines and those that begin with `#` say nothing.
    fn from_str(text: &str) -> Result<Self, NoKeys> {
        let mut keys = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bytes = unhex(line).or_else(|| STANDARD.decode(line).ok());
            let bytes: Option<[u8; KEY_LEN]> = bytes.and_then(|bytes| bytes.try_into().ok());
            keys.push(bytes.and_then(|bytes| MasterKey::new(&bytes)).ok_or(NoKeys::Line(n + 1))?);
        }
        match keys.len() {
            0 => Err(NoKeys::Empty),
            1..=KEYS_MAX => Ok(MasterKeys(keys)),
            _ => Err(NoKeys::TooMany),
        }
    }
}

impl MasterKeys {
    /// The one that seals; there always is one.
    pub fn newest(&self) -> &MasterKey {
        &self.0[0]
    }

    /// The one with an id.
    pub fn get(&self, id: MasterKeyId) -> Option<&MasterKey> {
        self.0.iter().find(|key| key.id == id)
    }

    /// Opens what was sealed for this place.
    pub fn open(&self, place: Place<'_>, sealed: &Sealed) -> Result<Value, Unopened> {
        let data = self.data_key(place, sealed)?;
        let value = aes(&data).and_then(|key| open(&key, place, &sealed.value)).ok_or(Unopened::Damaged)?;
        let text = String::from_utf8(value).map_err(|_| Unopened::Damaged)?;
        Value::new(text).map_err(|_| Unopened::Damaged)
    }

    /// The same sealed with the newest key.
    pub fn reseal(
        &self,
        place: Place<'_>,
        sealed: &Sealed,
        nonce: [u8; NONCE_LEN],
    ) -> Result<Sealed, Unopened> {
        let data = self.data_key(place, sealed)?;
        let newest = self.newest();
        let key = seal(&newest.key, place, &data, nonce).ok_or(Unopened::Damaged)?;
        Ok(Sealed { master: newest.id, key, value: sealed.value.clone() })
    }

    fn data_key(&self, place: Place<'_>, sealed: &Sealed) -> Result<[u8; KEY_LEN], Unopened> {
        let master = self.get(sealed.master).ok_or(Unopened::NoKey(sealed.master))?;
        let bytes = open(&master.key, place, &sealed.key).ok_or(Unopened::Damaged)?;
        bytes.try_into().map_err(|_| Unopened::Damaged)
    }
}

/// Whose secret, and which: what is sealed for one does not open for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub name: &'a str,
}

impl Place<'_> {
    fn bytes(self) -> Vec<u8> {
        [b"punctual secret 1 ".as_slice(), &self.tenant.0.to_be_bytes(), self.name.as_bytes()].concat()
    }
}

/// A value that nobody reads without a master key. Nonces stand before what they sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Which master key.
    pub master: MasterKeyId,
    /// The key of the value.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// Random bytes, each used once.
pub struct Fresh {
    /// The key of the value.
    pub key: [u8; KEY_LEN],
    /// For sealing both.
    pub nonces: [[u8; NONCE_LEN]; 2],
}

impl Fresh {
    /// From two times 32 bytes that nobody can guess.
    pub fn new(key: [u8; 32], bytes: [u8; 32]) -> Self {
        let nonce = |from: usize| std::array::from_fn(|n| bytes[from + n]);
        Fresh { key, nonces: [nonce(0), nonce(NONCE_LEN)] }
    }
}

/// Why something does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unopened {
    /// The master key is not here.
    #[error(
        "it is sealed with master key {0}, which this node does not have; put it into the file or the answer of the command, below the newest"
    )]
    NoKey(MasterKeyId),
    /// It was changed, or moved from elsewhere.
    #[error("what is stored of it is damaged, or was sealed for another place; set it again")]
    Damaged,
}

/// Seals a value for a place.
pub fn seal_value(
    master: &MasterKey,
    place: Place<'_>,
    value: &Value,
    fresh: &Fresh,
) -> Result<Sealed, Unopened> {
    let [for_key, for_value] = fresh.nonces;
    let key = seal(&master.key, place, &fresh.key, for_key);
    let value = aes(&fresh.key).and_then(|key| seal(&key, place, value.reveal().as_bytes(), for_value));
    match (key, value) {
        (Some(key), Some(value)) => Ok(Sealed { master: master.id, key, value }),
        _ => Err(Unopened::Damaged),
    }
}

fn aes(bytes: &[u8; KEY_LEN]) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, bytes).ok().map(LessSafeKey::new)
}

fn seal(key: &LessSafeKey, place: Place<'_>, plain: &[u8], nonce: [u8; NONCE_LEN]) -> Option<Vec<u8>> {
    let mut sealed = plain.to_vec();
    let aad = Aad::from(place.bytes());
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).ok()?;
    Some([nonce.as_slice(), &sealed].concat())
}

fn open(key: &LessSafeKey, place: Place<'_>, sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
    let (aad, mut bytes) = (Aad::from(place.bytes()), sealed.to_vec());
    let plain = key.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut bytes).ok()?;
    Some(plain.to_vec())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const PLACE: Place<'static> = Place { tenant: TenantId::DEFAULT, name: "token" };

    fn keys(bytes: &[u8]) -> MasterKeys {
        let line = |byte: &u8| format!("{byte:02x}").repeat(32);
        bytes.iter().map(line).collect::<Vec<_>>().join("\n").parse().unwrap()
    }

    fn sealed(keys: &MasterKeys) -> Sealed {
        let value = Value::new("s3cret").unwrap();
        seal_value(keys.newest(), PLACE, &value, &Fresh::new([7; 32], [8; 32])).unwrap()
    }

    #[test]
    fn what_is_sealed_opens_for_its_place_and_for_no_other() {
        let keys = keys(&[1]);
        let sealed = sealed(&keys);
        assert_eq!(keys.open(PLACE, &sealed).unwrap().reveal(), "s3cret");
        assert!(!sealed.value.windows(6).any(|window| window == b"s3cret"));
        for place in [Place { name: "other", ..PLACE }, Place { tenant: TenantId(77), ..PLACE }] {
            assert_eq!(keys.open(place, &sealed), Err(Unopened::Damaged), "{place:?}");
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let keys = keys(&[1]);
        let good = sealed(&keys);
        for at in 0..good.key.len() {
            let mut bad = good.clone();
            bad.key[at] ^= 1;
            assert_eq!(keys.open(PLACE, &bad), Err(Unopened::Damaged), "byte {at} of the key");
        }
        for at in 0..good.value.len() {
            let mut bad = good.clone();
            bad.value[at] ^= 1;
            assert_eq!(keys.open(PLACE, &bad), Err(Unopened::Damaged), "byte {at} of the value");
        }
        for short in 0..12 {
            let bad = Sealed { value: good.value[..short].to_vec(), ..good.clone() };
            assert_eq!(keys.open(PLACE, &bad), Err(Unopened::Damaged), "{short} bytes");
        }
    }

    #[test]
    fn a_rotation_reads_with_the_old_key_and_seals_with_the_new_one() {
        let old = keys(&[1]);
        let was = sealed(&old);
        let both = keys(&[2, 1]);
        assert_eq!(both.open(PLACE, &was).unwrap().reveal(), "s3cret");
        let is = both.reseal(PLACE, &was, [9; 12]).unwrap();
        assert_eq!((is.master, &is.value), (both.newest().id(), &was.value));
        let new = keys(&[2]);
        assert_eq!(new.open(PLACE, &is).unwrap().reveal(), "s3cret");
        assert_eq!(new.open(PLACE, &was), Err(Unopened::NoKey(old.newest().id())));
        assert_eq!(old.open(PLACE, &is), Err(Unopened::NoKey(new.newest().id())));
    }

    #[test]
    fn keys_are_read_a_line_each_and_never_repeated_in_a_message() {
        let hex = "ab".repeat(32);
        let base64 = STANDARD.encode([0xab; 32]);
        let one: MasterKeys = format!("# ours\n\n  {hex}\n").parse().unwrap();
        let same: MasterKeys = base64.parse().unwrap();
        assert_eq!(one.newest().id(), same.newest().id());
        assert_eq!(one.newest().id().to_string().parse(), Ok(one.newest().id()));
        for (text, wrong) in [
            (String::new(), NoKeys::Empty),
            ("# none\n".into(), NoKeys::Empty),
            (format!("{hex}\nhunter2"), NoKeys::Line(2)),
            (hex[2..].into(), NoKeys::Line(1)),
            (format!("{hex}\n").repeat(KEYS_MAX + 1), NoKeys::TooMany),
        ] {
            assert_eq!(text.parse::<MasterKeys>().unwrap_err(), wrong);
        }
        assert!(!format!("{one:?}").contains("abab"));
    }

    #[test]
    fn an_id_stays_what_it_is() {
        // Stored with every secret: a change would make all of them unreadable.
        assert_eq!(keys(&[0]).newest().id().to_string().len(), 16);
        assert_eq!(keys(&[0]).newest().id(), keys(&[0]).newest().id());
        assert_ne!(keys(&[0]).newest().id(), keys(&[1]).newest().id());
    }
}
