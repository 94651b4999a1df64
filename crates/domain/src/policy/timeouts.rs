//! How long things may take, and until when an attempt may start.
//!
//! Decided when a run is born, when a retry is planned and when an attempt begins. Promise: a run has one time after which
//! its next attempt does not start, the earliest of all limits, and knows which of them it is.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::catch_up::Missed;
use super::{Policies, unknown};
use crate::run::{Limit, Run, StartBy};

/// The time limits of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// How long after a slot and its spread the first attempt may start.
    pub start_window: Option<Duration>,
    /// Each attempt.
    pub attempt: Duration,
    /// All attempts together, from the slot on.
    pub deadline: Option<Duration>,
    /// A success that took less than this is suspicious.
    pub min_duration: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts { start_window: None, attempt: Duration::from_secs(300), deadline: None, min_duration: None }
    }
}

/// Until when the first attempt for a slot may start. `due_at` is the slot and its spread.
pub fn first_start(timeouts: &Timeouts, slot: Timestamp, due_at: Timestamp) -> Option<StartBy> {
    earliest([
        (Limit::StartWindow, due_at, timeouts.start_window),
        (Limit::Deadline, slot, timeouts.deadline),
    ])
}

/// Takes slots, oldest first, that are reached too late to start, and says which limit is over. Each is due `spread` later.
pub fn take_late(
    timeouts: &Timeouts,
    slots: &mut Vec<Timestamp>,
    spread: SignedDuration,
    now: Timestamp,
) -> Option<(Missed, Limit)> {
    let limit_of = |slot: Timestamp| first_start(timeouts, slot, slot.checked_add(spread).unwrap_or(slot));
    let is_late = |slot: &Timestamp| limit_of(*slot).is_some_and(|by| by.at < now);
    let count = slots.iter().take_while(|slot| is_late(slot)).count();
    let late: Vec<Timestamp> = slots.drain(..count).collect();
    let (from, to) = (*late.first()?, *late.last()?);
    let limit = limit_of(to)?.limit;
    Some((Missed { from, to, slots: count as u64 }, limit))
}

/// Until when another attempt of a run may start.
pub fn next_start(policies: &Policies, run: &Run) -> Option<StartBy> {
    let from = run.counts_from();
    earliest([
        (Limit::RetryFor, from, policies.retry.retry_for),
        (Limit::Deadline, from, policies.timeouts.deadline),
    ])
}

/// Until when a waiting run may start under other policies than it was born with.
pub fn start_by(policies: &Policies, run: &Run) -> Option<StartBy> {
    if run.is_asking() {
        return unknown::answer_by(policies, run);
    }
    match (run.started_at, run.redriven_at) {
        // When it became available is the nearest to its slot and spread that it still knows.
        (None, None) => {
            let due_at = run.turn_at.unwrap_or(run.available_at);
            first_start(&policies.timeouts, run.counts_from(), due_at)
        }
        // What somebody asked for is not too late before it was tried.
        (_, Some(_)) if run.charged + run.lost == 0 => None,
        _ => next_start(policies, run),
    }
}

/// How long an attempt that begins now may take, and whether that is all that is left of the deadline.
pub fn attempt(timeouts: &Timeouts, run: &Run, now: Timestamp) -> (Duration, bool) {
    let left =
        deadline(timeouts, run).map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
    match left {
        Some(left) if left < timeouts.attempt => (left, true),
        _ => (timeouts.attempt, false),
    }
}

/// Until when a run must have ended, if there is a limit.
pub fn deadline(timeouts: &Timeouts, run: &Run) -> Option<Timestamp> {
    timeouts.deadline.map(|deadline| after(run.counts_from(), deadline))
}

/// Whether the deadline of a run is over.
pub fn is_over(timeouts: &Timeouts, run: &Run, now: Timestamp) -> bool {
    deadline(timeouts, run).is_some_and(|at| now >= at)
}

fn earliest(limits: [(Limit, Timestamp, Option<Duration>); 2]) -> Option<StartBy> {
    let limits = limits
        .into_iter()
        .filter_map(|(limit, from, length)| length.map(|length| StartBy { at: after(from, length), limit }));
    limits.min_by_key(|by| by.at)
}

fn after(from: Timestamp, length: Duration) -> Timestamp {
    let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
    from.checked_add(length).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::tests::{at, running};

    fn policies(start_window: u64, retry_for: u64, deadline: u64) -> Policies {
        let limit = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
        let mut policies = Policies::default();
        policies.timeouts.start_window = limit(start_window);
        policies.timeouts.deadline = limit(deadline);
        policies.retry.retry_for = limit(retry_for);
        policies
    }

    fn told(by: Option<StartBy>) -> Option<(i64, Limit)> {
        by.map(|by| (by.at.duration_since(at(0)).as_secs(), by.limit))
    }

    #[test]
    fn the_earliest_limit_counts() {
        for (window, deadline, expected) in [
            (0, 0, None),
            (60, 0, Some((70, Limit::StartWindow))),
            (0, 60, Some((60, Limit::Deadline))),
            (60, 3_600, Some((70, Limit::StartWindow))),
            (60, 65, Some((65, Limit::Deadline))),
        ] {
            let timeouts = policies(window, 0, deadline).timeouts;
            assert_eq!(told(first_start(&timeouts, at(0), at(10))), expected, "{window} {deadline}");
        }
        for (retry_for, deadline, expected) in [
            (0, 0, None),
            (60, 0, Some((60, Limit::RetryFor))),
            (60, 30, Some((30, Limit::Deadline))),
            (30, 60, Some((30, Limit::RetryFor))),
        ] {
            assert_eq!(told(next_start(&policies(5, retry_for, deadline), &running())), expected);
        }
    }

    #[test]
    fn slots_that_are_reached_too_late_are_accounted_for() {
        let seconds = |list: &[i64]| list.iter().map(|second| at(*second)).collect::<Vec<_>>();
        let spread = SignedDuration::from_secs(5);
        for (window, deadline, left, missed) in [
            (0, 0, &[0, 10, 20, 30][..], None),
            (100, 0, &[0, 10, 20, 30], None),
            (10, 0, &[20, 30], Some((0, 10, 2, Limit::StartWindow))),
            (0, 20, &[10, 20, 30], Some((0, 0, 1, Limit::Deadline))),
            (1, 0, &[30], Some((0, 20, 3, Limit::StartWindow))),
            (1, 1, &[30], Some((0, 20, 3, Limit::Deadline))),
        ] {
            let mut slots = seconds(&[0, 10, 20, 30]);
            let timeouts = policies(window, 0, deadline).timeouts;
            let taken = take_late(&timeouts, &mut slots, spread, at(30));
            let missed =
                missed.map(|(from, to, slots, limit)| (Missed { from: at(from), to: at(to), slots }, limit));
            assert_eq!((slots, taken), (seconds(left), missed), "{window} {deadline}");
        }
    }

    #[test]
    fn a_redriven_run_has_all_its_time_again() {
        let policies = policies(5, 60, 90);
        let run = Run { redriven_at: Some(at(1_000)), started_at: Some(at(1)), ..running() };
        assert_eq!(told(next_start(&policies, &run)), Some((1_060, Limit::RetryFor)));
        assert_eq!(start_by(&policies, &run), None, "it is tried at least once");
        let tried = Run { charged: 1, ..run };
        assert_eq!(told(start_by(&policies, &tried)), Some((1_060, Limit::RetryFor)));
        let timeouts = &policies.timeouts;
        assert_eq!(attempt(timeouts, &tried, at(1_080)), (Duration::from_secs(10), true));
    }

    #[test]
    fn an_attempt_is_cut_to_what_is_left_of_the_deadline() {
        let timeouts = policies(0, 0, 600).timeouts;
        for (now, left, is_cut) in [(0, 300, false), (300, 300, false), (301, 299, true), (900, 0, true)] {
            let expected = (Duration::from_secs(left), is_cut);
            assert_eq!(attempt(&timeouts, &running(), at(now)), expected, "{now}");
            assert_eq!(is_over(&timeouts, &running(), at(now)), now >= 600);
        }
        let without = Timeouts::default();
        assert_eq!(attempt(&without, &running(), at(1_000_000)), (Duration::from_secs(300), false));
    }

    #[test]
    fn limits_beyond_the_end_of_time_are_no_surprise() {
        let mut timeouts = Timeouts { start_window: Some(Duration::MAX), ..Timeouts::default() };
        assert_eq!(first_start(&timeouts, at(0), at(0)).map(|by| by.at), Some(Timestamp::MAX));
        timeouts.deadline = Some(Duration::MAX);
        assert!(!attempt(&timeouts, &running(), at(0)).1);
    }
}
