//! The idempotency key of a run: what a receiver sees to recognise a repeated delivery.
//!
//! Promise: it depends on the run's identity alone (job, cause, slot, part), so it is the same
//! across attempts, failover and a restored backup. A test pins the hash; it must never change.

use std::fmt;

use jiff::Timestamp;

use crate::id::JobId;
use crate::run::Cause;

/// The key, printed as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey([u8; 16]);

impl IdempotencyKey {
    /// The key of a run's identity.
    pub fn new(job: JobId, cause: Cause, slot: Timestamp, part: u32) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"punctual run v1");
        hasher.update(job.as_bytes());
        hasher.update(cause.as_str().as_bytes());
        hasher.update(&slot.as_millisecond().to_be_bytes());
        hasher.update(&part.to_be_bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        IdempotencyKey(key)
    }
}

impl IdempotencyKey {
    /// Its sixteen bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ShardId;

    #[test]
    fn the_key_is_pinned_and_every_part_of_the_identity_changes_it() {
        let job = JobId::new(Timestamp::UNIX_EPOCH, ShardId(1), 1);
        let slot = Timestamp::from_millisecond(1_800_000_000_000).expect("in range");
        let key = IdempotencyKey::new(job, Cause::Schedule, slot, 0);
        assert_eq!(key.to_string(), "a6afb76d6b33946f3cb5ab146b776b7b");
        let later = slot + jiff::SignedDuration::from_millis(1);
        let other = JobId::new(Timestamp::UNIX_EPOCH, ShardId(1), 2);
        let keys = [
            key,
            IdempotencyKey::new(other, Cause::Schedule, slot, 0),
            IdempotencyKey::new(job, Cause::Trigger, slot, 0),
            IdempotencyKey::new(job, Cause::Schedule, later, 0),
            IdempotencyKey::new(job, Cause::Schedule, slot, 1),
        ];
        let different: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
    }
}
