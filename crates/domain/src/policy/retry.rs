//! When a failed attempt is followed by another.
//!
//! Decided once, for a worker's report and for a lost worker alike. Promise: bounded; the delay
//! grows to a cap and is never shorter than the target asked for.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::attempt::{Outcome, Report};
use crate::lifecycle::{Charge, Verdict};
use crate::run::Run;

/// How a job is retried: exponential backoff with a little spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How many attempts count, the first one included.
    pub max_attempts: u32,
    /// The delay after the first failure; it doubles with each.
    pub base: Duration,
    /// The longest delay, before the spread.
    pub cap: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { max_attempts: 3, base: Duration::from_secs(1), cap: Duration::from_secs(300) }
    }
}

/// Attempts that may be lost with their worker before the run is taken for the cause.
pub const LOST_MAX: u32 = 5;

/// Delays are longer by up to this share, so that what failed together does not return together.
const SPREAD: f64 = 0.3;

/// A target's wish to wait is honoured up to here.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// What follows an attempt. `random` is in `0.0..1.0`.
pub fn decide(retry: &Retry, run: &Run, report: &Report, now: Timestamp, random: f64) -> Verdict {
    match report.outcome {
        Outcome::Succeeded => Verdict::Succeed,
        Outcome::Cancelled => Verdict::Cancel,
        Outcome::Failed | Outcome::TimedOut | Outcome::Lost if run.is_cancel_requested => Verdict::Cancel,
        Outcome::Lost if run.lost + 1 >= LOST_MAX => Verdict::Fail,
        Outcome::Lost => Verdict::Retry { available_at: now, charge: Charge::Lost },
        Outcome::Failed | Outcome::TimedOut => {
            let is_retryable = report.error.as_ref().is_none_or(|error| error.is_retryable);
            let charged = run.charged + 1;
            if is_retryable && charged < retry.max_attempts {
                let wish = report.error.as_ref().and_then(|error| error.retry_after).unwrap_or_default();
                let delay = delay(retry, charged, random).max(wish.min(RETRY_AFTER_MAX));
                let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
                let available_at = now.checked_add(delay).unwrap_or(Timestamp::MAX);
                Verdict::Retry { available_at, charge: Charge::Attempt }
            } else if report.outcome == Outcome::TimedOut {
                Verdict::TimeOut
            } else {
                Verdict::Fail
            }
        }
    }
}

/// The delay after so many failures.
fn delay(retry: &Retry, failures: u32, random: f64) -> Duration {
    let doubled = retry.base.saturating_mul(1 << (failures - 1).min(30));
    let delay = doubled.min(retry.cap).mul_f64(1.0 + SPREAD * random.clamp(0.0, 1.0));
    Duration::from_millis(delay.as_millis() as u64) // Stores keep milliseconds.
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Failure;
    use crate::lifecycle::tests::{at, running};

    fn report(outcome: Outcome, is_retryable: bool, retry_after: Option<Duration>) -> Report {
        let error = Failure { code: "x".into(), message: "x".into(), is_retryable, retry_after };
        let error = (outcome != Outcome::Succeeded).then_some(error);
        Report { outcome, error, ..Report::lost(at(0), at(1)) }
    }

    fn after(verdict: Verdict) -> i64 {
        match verdict {
            Verdict::Retry { available_at, .. } => available_at.as_millisecond() - at(10).as_millisecond(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn delays_double_to_the_cap_and_spread_by_a_third_at_most() {
        let retry = Retry { max_attempts: 100, ..Retry::default() };
        let failed = report(Outcome::Failed, true, None);
        for (charged, least) in
            [(0, 1_000), (1, 2_000), (4, 16_000), (8, 256_000), (9, 300_000), (60, 300_000)]
        {
            let run = Run { charged, ..running() };
            assert_eq!(after(decide(&retry, &run, &failed, at(10), 0.0)), least);
            let most = after(decide(&retry, &run, &failed, at(10), 0.999_999));
            assert!(most > least * 129 / 100 && most <= least * 130 / 100, "{most}");
        }
    }

    #[test]
    fn attempts_that_count_are_bounded_and_the_last_failure_is_final() {
        let retry = Retry::default();
        for (outcome, last) in [(Outcome::Failed, Verdict::Fail), (Outcome::TimedOut, Verdict::TimeOut)] {
            let verdict = |charged| {
                decide(&retry, &Run { charged, ..running() }, &report(outcome, true, None), at(10), 0.5)
            };
            assert!(matches!(verdict(0), Verdict::Retry { charge: Charge::Attempt, .. }));
            assert!(matches!(verdict(1), Verdict::Retry { charge: Charge::Attempt, .. }));
            assert_eq!(verdict(2), last);
            assert_eq!(decide(&retry, &running(), &report(outcome, false, None), at(10), 0.5), last);
        }
    }

    #[test]
    fn a_targets_wish_to_wait_is_a_lower_bound_with_a_cap() {
        let retry = Retry::default();
        let wait = |seconds| {
            let wish = report(Outcome::Failed, true, Some(Duration::from_secs(seconds)));
            after(decide(&retry, &running(), &wish, at(10), 0.0))
        };
        assert_eq!(wait(0), 1_000);
        assert_eq!(wait(7), 7_000);
        assert_eq!(wait(10_000_000), 24 * 3_600_000);
    }

    #[test]
    fn lost_attempts_do_not_count_but_have_their_own_cap() {
        let retry = Retry { max_attempts: 1, ..Retry::default() };
        let lost = Report::lost(at(0), at(10));
        for lost_before in 0..LOST_MAX - 1 {
            let run = Run { lost: lost_before, ..running() };
            let verdict = decide(&retry, &run, &lost, at(10), 0.5);
            assert_eq!(verdict, Verdict::Retry { available_at: at(10), charge: Charge::Lost });
        }
        let run = Run { lost: LOST_MAX - 1, ..running() };
        assert_eq!(decide(&retry, &run, &lost, at(10), 0.5), Verdict::Fail);
    }

    #[test]
    fn a_cancelled_run_is_not_retried_but_a_success_stands() {
        let run = Run { is_cancel_requested: true, ..running() };
        let verdict = |outcome| decide(&Retry::default(), &run, &report(outcome, true, None), at(10), 0.5);
        assert_eq!(verdict(Outcome::Failed), Verdict::Cancel);
        assert_eq!(verdict(Outcome::Lost), Verdict::Cancel);
        assert_eq!(verdict(Outcome::Succeeded), Verdict::Succeed);
    }
}
