//! A message: a job that the system registers because something happened.
//!
//! It runs once, at once, and is delivered like any run: attempts, history, a dead letter of its own at last. Promise: a
//! message is about what people registered, never about another message, so that one that cannot be delivered makes no more.

use std::time::Duration;

use jiff::Timestamp;
use punctual_schedule::Schedule;

use crate::id::{JobId, RunId};
use crate::job::{Job, Spec, Target};
use crate::policy::Policies;
use crate::policy::retry::{Backoff, Retry};

/// Types that begin like this are the system's own.
pub const RESERVED: &str = "system.";

/// The type of a message about a dead letter.
pub const DEAD_LETTER: &str = "system.dead-letter";

/// Attempts of a message. With the delays between them a receiver may be away for the better part of an hour.
pub const MAX_ATTEMPTS: u32 = 10;

/// The delay after the first failure, which doubles up to an hour.
const BASE: Duration = Duration::from_secs(5);

/// Whether a type is the system's own.
pub fn is_reserved(kind: Option<&str>) -> bool {
    kind.is_some_and(|kind| kind.starts_with(RESERVED))
}

/// A message of a type, delivered to a target.
pub fn spec(kind: &str, name: String, target: Target, payload: String) -> Spec {
    let retry = Retry {
        max_attempts: MAX_ATTEMPTS,
        backoff: Backoff::Exponential { base: BASE, cap: Duration::from_secs(3600) },
        ..Retry::default()
    };
    Spec {
        kind: Some(kind.into()),
        payload: Some(payload.into()),
        policies: Policies { retry, ..Policies::default() },
        ..Spec::new(name, now(), target)
    }
}

/// The message about a dead letter of a job, if the job says where to. Whoever executes the job delivers it.
pub fn of_dead_letter(job: &Job, payload: impl FnOnce() -> String) -> Option<Spec> {
    let target = job.spec.dead_letter_target.clone()?;
    let of = if job.spec.name.is_empty() { job.id.to_string() } else { job.spec.name.clone() };
    Some(
        Spec {
            queue: job.spec.queue.clone(),
            requires: job.spec.requires.clone(),
            ..spec(DEAD_LETTER, format!("dead letter of {of}"), target, payload())
        }
        .of(job.tenant),
    )
}

/// The id of the message about the death of a run after so many attempts, in the run's own shard: what dies again after it
/// was redriven is told again.
pub fn id(run: RunId, attempt: u32, at: Timestamp) -> JobId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"punctual message v1");
    hasher.update(&run.sequence().as_i64().to_be_bytes());
    hasher.update(&attempt.to_be_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    JobId::new(at, run.shard(), u64::from_be_bytes(bytes))
}

fn now() -> Schedule {
    Schedule::parse("@now").unwrap_or_else(|_| unreachable!("a valid schedule"))
}

#[cfg(test)]
mod tests {
    use punctual_schedule::Kind;

    use super::*;
    use crate::id::{Sequence, ShardId};
    use crate::lifecycle::tests::at;

    #[test]
    fn types_of_the_system_are_told_by_how_they_begin() {
        for (kind, expected) in [
            (None, false),
            (Some("system"), false),
            (Some("systems.x"), false),
            (Some("System.x"), false),
            (Some("system."), true),
            (Some(DEAD_LETTER), true),
        ] {
            assert_eq!(is_reserved(kind), expected, "{kind:?}");
        }
    }

    #[test]
    fn a_message_outlasts_an_absent_receiver_and_makes_no_other() {
        let message = spec(DEAD_LETTER, "a".into(), Target::Discard, "{}".into());
        assert_eq!(message.schedule.kind, Kind::Now);
        assert_eq!(message.dead_letter_target, None);
        let retry = &message.policies.retry;
        assert_eq!((retry.max_attempts, retry.backoff.first()), (10, BASE));
    }

    #[test]
    fn a_death_has_one_id_in_the_shard_of_its_run() {
        let run = RunId::new(Sequence::first_at(at(5), 3), ShardId(9));
        let first = id(run, 3, at(7));
        assert_eq!((first, first.shard()), (id(run, 3, at(7)), ShardId(9)));
        let other = RunId::new(Sequence::first_at(at(5), 3).next(), ShardId(9));
        assert!(first != id(run, 4, at(7)) && first != id(other, 3, at(7)));
    }
}
