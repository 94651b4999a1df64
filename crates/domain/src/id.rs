//! Identities. Each kind is a type of its own; a job's id says its shard, a run's id says when it
//! was born, in which database, and its job's shard, so that finding it needs no index.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use crate::receiver::Receiver;
use crate::work::Held;

/// A tenant's number: small, so that every key can carry it. Its name is in [`crate::Tenant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

impl TenantId {
    /// The tenant that always exists.
    pub const DEFAULT: TenantId = TenantId(1);

    /// No tenant: what is kept under it belongs to the installation.
    pub const NOBODY: TenantId = TenantId(0);
}

/// A fixed slice of jobs, owned by one node at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl ShardId {
    /// A job id has twelve bits for its shard.
    pub const COUNT_MAX: u16 = 1 << 12;

    /// The shard of a client-chosen name: the same name always goes to the same shard, so its
    /// uniqueness can be checked there.
    pub fn of(tenant: TenantId, name: &str, shards: u16) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&tenant.0.to_be_bytes());
        hasher.update(name.as_bytes());
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        ShardId((u64::from_be_bytes(bytes) % u64::from(shards)) as u16)
    }
}

/// Counts the owners of a shard; a write under an old one is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Counts the changes of a job or an operation, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

impl Version {
    /// The version of what is new.
    pub const FIRST: Version = Version(1);

    /// The version after a change.
    pub fn next(self) -> Version {
        Version(self.0 + 1)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A job: a UUIDv7 whose twelve bits after the time are its shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Uuid);

impl JobId {
    /// A new id. `entropy` makes ids of the same millisecond and shard different.
    pub fn new(at: Timestamp, shard: ShardId, entropy: u64) -> Self {
        JobId(uuid_v7(millis_48(at), shard.0, entropy))
    }

    /// The shard the job lives in.
    pub fn shard(self) -> ShardId {
        ShardId((self.0.as_u128() >> 64) as u16 & 0x0fff)
    }

    /// When the id was made.
    pub fn created_at(self) -> Timestamp {
        Timestamp::from_millisecond((self.0.as_u128() >> 80) as i64).unwrap_or(Timestamp::MAX)
    }

    /// The sixteen bytes, in an order that follows time.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// From the bytes of [`JobId::as_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        JobId(Uuid::from_bytes(bytes))
    }
}

/// A run's place in the order of births: milliseconds of birth, number of the database, counter.
///
/// Never reused, also after a restore: whoever makes them starts above now and above every one it
/// has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(u64);

impl Sequence {
    const DATABASE_BITS: u32 = 6;
    const COUNTER_BITS: u32 = 14;

    /// Counters per millisecond and database.
    pub const COUNTER_MAX: u16 = (1 << Self::COUNTER_BITS) - 1;

    /// The first sequence of a millisecond in a database (0 to 63).
    pub fn first_at(at: Timestamp, database: u8) -> Self {
        debug_assert!(u32::from(database) < 1 << Self::DATABASE_BITS);
        let time = millis_48(at) << (Self::DATABASE_BITS + Self::COUNTER_BITS);
        Sequence(time | u64::from(database) << Self::COUNTER_BITS)
    }

    /// How many databases can be told apart.
    pub const DATABASES: u8 = 1 << Self::DATABASE_BITS;

    /// The number of the database it was made in.
    pub fn database(self) -> u8 {
        self.parts().1
    }

    /// The one after; when the counter is used up it borrows the next millisecond.
    pub fn next(self) -> Self {
        let counter = self.0 & u64::from(Self::COUNTER_MAX);
        if counter < u64::from(Self::COUNTER_MAX) {
            return Sequence(self.0 + 1);
        }
        let next_millis = 1 << (Self::DATABASE_BITS + Self::COUNTER_BITS);
        Sequence((self.0 & !u64::from(Self::COUNTER_MAX)) + next_millis)
    }

    /// When the run was born.
    pub fn born_at(self) -> Timestamp {
        let millis = self.0 >> (Self::DATABASE_BITS + Self::COUNTER_BITS);
        Timestamp::from_millisecond(millis as i64).unwrap_or(Timestamp::MAX)
    }

    /// As a number that fits a signed column.
    pub fn as_i64(self) -> i64 {
        self.0 as i64
    }

    /// From the number of [`Sequence::as_i64`].
    pub fn from_i64(number: i64) -> Self {
        Sequence(number as u64)
    }

    fn parts(self) -> (u64, u8, u16) {
        let counter = self.0 as u16 & Self::COUNTER_MAX;
        let database = (self.0 >> Self::COUNTER_BITS) as u8 & ((1 << Self::DATABASE_BITS) - 1);
        (self.0 >> (Self::DATABASE_BITS + Self::COUNTER_BITS), database, counter)
    }
}

/// A run: a UUIDv7 that carries its sequence and its job's shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(Uuid);

impl RunId {
    /// Marks our ids among other UUIDv7s: the tail is not random but fixed.
    const MARK: u64 = 0x0000_02ba_dc0f_fee5 & ((1 << 42) - 1);

    /// The id of a sequence in a shard.
    pub fn new(sequence: Sequence, shard: ShardId) -> Self {
        let (millis, database, counter) = sequence.parts();
        // After the time: 12 bits of counter; then 2 more, 6 of database, 12 of shard, 42 of mark.
        let tail = u64::from(counter >> 12) << 60
            | u64::from(database) << 54
            | u64::from(shard.0) << 42
            | Self::MARK;
        RunId(uuid_v7(millis, counter & 0x0fff, tail))
    }

    /// The sequence it was made from.
    pub fn sequence(self) -> Sequence {
        let bits = self.0.as_u128();
        let millis = (bits >> 80) as u64;
        let low = (bits >> 64) as u64 & 0x0fff;
        let tail = bits as u64;
        let counter = (tail >> 60 & 0b11) << 12 | low;
        let database = tail >> 54 & 0b11_1111;
        let time = millis << (Sequence::DATABASE_BITS + Sequence::COUNTER_BITS);
        Sequence(time | database << Sequence::COUNTER_BITS | counter)
    }

    /// Its job's shard.
    pub fn shard(self) -> ShardId {
        ShardId((self.0.as_u128() as u64 >> 42) as u16 & 0x0fff)
    }
}

/// A worker process; new at every start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(Uuid);

impl WorkerId {
    /// A new id.
    pub fn new(at: Timestamp, entropy: u64) -> Self {
        WorkerId(uuid_v7(millis_48(at), (entropy >> 52) as u16, entropy.rotate_left(17)))
    }

    /// Its sixteen bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// From the bytes of [`WorkerId::as_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        WorkerId(Uuid::from_bytes(bytes))
    }
}

/// Receivers that must be heard of, and those that need not, each in the order of their ends. No worker's id begins so: its time is
/// not beyond the year 2248.
const HEARD: u64 = 0xfe;
const UNHEARD: u64 = 0xff;

impl WorkerId {
    /// The receiver of an attempt: a UUIDv8 that carries its terms. Never read from text, so that nobody can say that he is one.
    pub(crate) fn of_receiver(terms: Receiver, held: Held) -> Self {
        let ends_at = millis_48(terms.ends_at);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&held.sequence.as_i64().to_be_bytes());
        hasher.update(&held.attempt.to_be_bytes());
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        let hash = u64::from_be_bytes(bytes);
        let (kind, heartbeat) = match terms.heartbeat {
            Some(heartbeat) => (HEARD, heartbeat.as_secs() & 0x00ff_ffff),
            None => (UNHEARD, 0),
        };
        // 8 bits of kind, 40 of the end, the version, 3 more of the end, 9 of hash; then 24 of heartbeat, 38 of hash.
        let head = kind << 56 | (ends_at >> 3) << 16 | 0x8000 | (ends_at & 7) << 9 | hash >> 55;
        let tail = 1 << 63 | heartbeat << 38 | hash & ((1 << 38) - 1);
        WorkerId(Uuid::from_u64_pair(head, tail))
    }

    /// The terms of a receiver, if it is one.
    pub fn receiver(self) -> Option<Receiver> {
        let (head, tail) = self.0.as_u64_pair();
        let millis = (head >> 16 & ((1 << 40) - 1)) << 3 | head >> 9 & 7;
        let ends_at = Timestamp::from_millisecond(millis as i64).unwrap_or(Timestamp::MAX);
        let heartbeat = Duration::from_secs(tail >> 38 & 0x00ff_ffff);
        match head >> 56 {
            HEARD => Some(Receiver { ends_at, heartbeat: Some(heartbeat) }),
            UNHEARD => Some(Receiver { ends_at, heartbeat: None }),
            _ => None,
        }
    }

    /// Not above any receiver, and above all workers; with a time, not above any that need not be heard of and ends then or later, and
    /// above all others.
    pub fn first_of_receivers(ends_at: Option<Timestamp>) -> Self {
        let head = match ends_at.map(millis_48) {
            Some(ends_at) => UNHEARD << 56 | (ends_at >> 3) << 16 | 0x8000 | (ends_at & 7) << 9,
            None => HEARD << 56,
        };
        WorkerId(Uuid::from_u64_pair(head, 0))
    }
}

/// An operation: a UUIDv7 whose twelve bits after the time are its shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(Uuid);

impl OperationId {
    /// A new id. `entropy` makes ids of the same millisecond and shard different.
    pub fn new(at: Timestamp, shard: ShardId, entropy: u64) -> Self {
        OperationId(uuid_v7(millis_48(at), shard.0, entropy))
    }

    /// The shard whose owner does the steps.
    pub fn shard(self) -> ShardId {
        ShardId((self.0.as_u128() >> 64) as u16 & 0x0fff)
    }

    /// The sixteen bytes, in an order that follows time.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// From the bytes of [`OperationId::as_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        OperationId(Uuid::from_bytes(bytes))
    }
}

fn millis_48(at: Timestamp) -> u64 {
    at.as_millisecond().clamp(0, (1 << 43) - 1) as u64
}

/// Version 7: 48 bits of time, 12 of `head`, 62 of `tail`.
fn uuid_v7(millis: u64, head: u16, tail: u64) -> Uuid {
    let head = 0x7000 | u64::from(head & 0x0fff);
    let tail = 1 << 63 | tail & (u64::MAX >> 2);
    Uuid::from_u64_pair(millis << 16 | head, tail)
}

/// A text that is not an id of this kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {kind} id")]
pub struct NotAnId {
    kind: &'static str,
    text: String,
}

macro_rules! text_form {
    ($id:ident, $kind:literal, $is_valid:expr) => {
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl FromStr for $id {
            type Err = NotAnId;

            fn from_str(text: &str) -> Result<Self, NotAnId> {
                let is_valid: fn(Uuid) -> bool = $is_valid;
                let hyphenated = text.len() == 36; // Only the form we print.
                match Uuid::try_parse(text) {
                    Ok(uuid) if hyphenated && uuid.get_version_num() == 7 && is_valid(uuid) => Ok($id(uuid)),
                    _ => Err(NotAnId { kind: $kind, text: text.chars().take(40).collect() }),
                }
            }
        }
    };
}

text_form!(JobId, "job", |_| true);
text_form!(WorkerId, "worker", |_| true);
text_form!(OperationId, "operation", |_| true);
text_form!(RunId, "run", |uuid| uuid.as_u128() as u64 & ((1 << 42) - 1) == RunId::MARK);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).expect("in range")
    }

    #[test]
    fn a_job_id_tells_its_shard_and_its_time_and_follows_time() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut last = None;
        for millis in [0, 1, 1_800_000_000_000, 7_258_118_399_999] {
            let shard = ShardId(rng.u16(..4096));
            let id = JobId::new(at(millis), shard, rng.u64(..));
            assert_eq!((id.shard(), id.created_at()), (shard, at(millis)));
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(JobId::from_bytes(*id.as_bytes()), id);
            assert!(last < Some(id));
            last = Some(id);
        }
    }

    #[test]
    fn a_run_id_carries_its_whole_sequence() {
        let mut rng = fastrand::Rng::with_seed(2);
        for _ in 0..10_000 {
            let mut sequence = Sequence::first_at(at(rng.i64(0..7_258_118_399_999)), rng.u8(..64));
            for _ in 0..rng.u16(..5) {
                sequence = sequence.next();
            }
            let shard = ShardId(rng.u16(..4096));
            let id = RunId::new(sequence, shard);
            assert_eq!((id.sequence(), id.shard()), (sequence, shard));
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(Sequence::from_i64(sequence.as_i64()), sequence);
        }
        assert!(JobId::new(at(5), ShardId(3), 77).to_string().parse::<RunId>().is_err());
        assert!("nonsense".parse::<RunId>().is_err());
    }

    #[test]
    fn sequences_grow_also_over_a_full_counter_and_stay_positive() {
        let mut sequence = Sequence::first_at(at(1_800_000_000_000), 63);
        let born = sequence.born_at();
        for _ in 0..=Sequence::COUNTER_MAX {
            let next = sequence.next();
            assert!(next > sequence && next.as_i64() > 0);
            assert_eq!(next.parts().1, 63, "the database stays");
            sequence = next;
        }
        assert_eq!(sequence.born_at().as_millisecond(), born.as_millisecond() + 1);
        assert!(Sequence::first_at(at(7_258_118_400_000), 63).as_i64() > 0);
    }

    #[test]
    fn names_spread_over_shards_and_keep_their_shard() {
        let mut shards = std::collections::BTreeMap::new();
        for n in 0..10_000 {
            let shard = ShardId::of(TenantId(7), &format!("job-{n}"), 256);
            assert_eq!(shard, ShardId::of(TenantId(7), &format!("job-{n}"), 256));
            *shards.entry(shard).or_insert(0) += 1;
        }
        assert_eq!(shards.len(), 256);
        assert!(shards.values().all(|n| (10..=80).contains(n)));
    }
}
