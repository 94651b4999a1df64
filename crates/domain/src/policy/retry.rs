//! When a failed attempt is followed by another.
//!
//! Decided once, for a worker's report and for a lost worker alike. Promise: bounded; the delay is never shorter than
//! the target asked for, and no attempt is planned behind a limit of time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::failures::{self, Failures};
use super::{Policies, timeouts, unknown};
use crate::attempt::{DEADLINE, Outcome, Report};
use crate::lifecycle::{Charge, Verdict};
use crate::run::{Limit, Run};

/// How a job is retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How many attempts count, the first one included.
    pub max_attempts: u32,
    /// How long to wait before each.
    pub backoff: Backoff,
    /// How long after its slot an attempt may start.
    pub retry_for: Option<Duration>,
    /// Failures that are retried though the target says otherwise.
    pub on: Failures,
    /// Failures that are not retried though the target says otherwise.
    pub not_on: Failures,
}

/// How long to wait after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// The first delay doubles with each failure, up to a cap; a little more at random.
    Exponential {
        /// After the first failure.
        base: Duration,
        /// The longest delay, before the spread.
        cap: Duration,
    },
    /// The first delay is added with each failure, up to a cap; a little more at random.
    Linear {
        /// After the first failure.
        base: Duration,
        /// The longest delay, before the spread.
        cap: Duration,
    },
    /// Always the same.
    Fixed {
        /// After every failure.
        delay: Duration,
    },
    /// One after the other; the last repeats.
    List {
        /// After the first failure, the second and so on.
        delays: Vec<Duration>,
    },
}

impl Default for Retry {
    fn default() -> Self {
        Retry {
            max_attempts: 3,
            backoff: Backoff::default(),
            retry_for: None,
            on: Failures::default(),
            not_on: Failures::default(),
        }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff::Exponential { base: Duration::from_secs(1), cap: Duration::from_secs(300) }
    }
}

/// Attempts that may be lost with their worker before the run is taken for the cause.
pub const LOST_MAX: u32 = 5;

/// A run that was lost with its worker so often is a suspect, and tried alone. Once or twice is not enough: a crash or an outage loses
/// thousands that have nothing to do with it, two of them may follow each other, and all of them go on at once.
pub const SUSPECT_FROM: u32 = 3;

// Otherwise who was lost beside the cause ends with it.
const _: () = assert!(SUSPECT_FROM < LOST_MAX);

/// Delays that grow are longer by up to this share, so that what failed together does not return together.
const SPREAD: f64 = 0.3;

/// A target's wish to wait is honoured up to here.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// Says in a report whether the job lets another attempt follow, which the target has judged by its own rules.
pub fn judge(retry: &Retry, mut report: Report) -> Report {
    let is_retryable = failures::is_retryable(&retry.on, &retry.not_on, &report);
    if let Some(error) = &mut report.error {
        error.is_retryable = is_retryable;
    }
    report
}

/// What follows an attempt whose report was judged. `random` is in `0.0..1.0`.
pub fn decide(policies: &Policies, run: &Run, report: &Report, now: Timestamp, random: f64) -> Verdict {
    follow(policies, run, report, now, How::Charged { random })
}

/// What follows an attempt that failed while a breaker had its job or its target left alone: if another may follow at all, it costs
/// nothing and stands back for so long, unless that would be its end; limits of time hold. A job that is tried once is tried once.
pub fn spare(
    policies: &Policies,
    run: &Run,
    report: &Report,
    now: Timestamp,
    stands_back: Duration,
) -> Verdict {
    follow(policies, run, report, now, How::Spared { stands_back })
}

/// How a failure counts.
#[derive(Clone, Copy)]
enum How {
    /// As the policy says, with a delay of its own.
    Charged { random: f64 },
    /// Not at all; others go first.
    Spared { stands_back: Duration },
}

fn follow(policies: &Policies, run: &Run, report: &Report, now: Timestamp, how: How) -> Verdict {
    let retry = &policies.retry;
    match report.outcome {
        Outcome::Succeeded => return Verdict::Succeed,
        Outcome::Cancelled => return Verdict::Cancel,
        Outcome::Failed | Outcome::TimedOut | Outcome::Lost if run.is_cancel_requested => {
            return Verdict::Cancel;
        }
        Outcome::TimedOut if is_cut_off(policies, run, report, now) => {
            return Verdict::GiveUp(Limit::Deadline);
        }
        Outcome::Failed | Outcome::TimedOut | Outcome::Lost => {}
    }
    if let Some(verdict) = unknown::decide(policies, run, report, now) {
        return verdict;
    }
    let (delay, charge) = match report.outcome {
        Outcome::Lost if run.lost + 1 >= LOST_MAX => return Verdict::Fail,
        Outcome::Lost => (Duration::ZERO, Charge::Lost),
        Outcome::Succeeded | Outcome::Cancelled | Outcome::Failed | Outcome::TimedOut => {
            let is_retryable = report.error.as_ref().is_none_or(|error| error.is_retryable);
            let charged = run.charged + 1;
            let is_last = match how {
                How::Charged { .. } => charged >= retry.max_attempts,
                How::Spared { .. } => retry.max_attempts <= 1,
            };
            if !is_retryable || is_last {
                return match report.outcome {
                    Outcome::TimedOut => Verdict::TimeOut,
                    _ => Verdict::Fail,
                };
            }
            let wish = report.error.as_ref().and_then(|error| error.retry_after).unwrap_or_default();
            let wish = wish.min(RETRY_AFTER_MAX);
            match how {
                How::Charged { random } => (retry.backoff.delay(charged, random).max(wish), Charge::Attempt),
                How::Spared { .. } => (wish, Charge::Nothing),
            }
        }
    };
    let after = |delay: Duration| {
        let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
        now.checked_add(delay).unwrap_or(Timestamp::MAX)
    };
    let start_by = timeouts::next_start(policies, run);
    let is_in_time = |at: Timestamp| start_by.is_none_or(|by| at <= by.at);
    let available_at = match how {
        // The target may be well before its time is over: it is not ended for having stood back.
        How::Spared { stands_back }
            if charge == Charge::Nothing && is_in_time(after(delay.max(stands_back))) =>
        {
            after(delay.max(stands_back))
        }
        How::Charged { .. } | How::Spared { .. } => after(delay),
    };
    match start_by {
        Some(by) if by.at < available_at => Verdict::GiveUp(by.limit),
        start_by => Verdict::Retry { available_at, charge, start_by },
    }
}

/// Whether an attempt timed out because the deadline of its run was over, by our clock or by its worker's.
fn is_cut_off(policies: &Policies, run: &Run, report: &Report, now: Timestamp) -> bool {
    let says_so = report.error.as_ref().is_some_and(|error| error.code == DEADLINE);
    says_so || timeouts::is_over(&policies.timeouts, run, now)
}

impl Backoff {
    /// The word, as in the API.
    pub fn as_str(&self) -> &'static str {
        match self {
            Backoff::Exponential { .. } => "exponential",
            Backoff::Linear { .. } => "linear",
            Backoff::Fixed { .. } => "fixed",
            Backoff::List { .. } => "list",
        }
    }

    /// The shortest delay after the first failure.
    pub fn first(&self) -> Duration {
        self.delay(1, 0.0)
    }

    /// The delay after so many failures.
    fn delay(&self, failures: u32, random: f64) -> Duration {
        let spread = |delay: Duration| delay.mul_f64(1.0 + SPREAD * random.clamp(0.0, 1.0));
        let delay = match self {
            Backoff::Exponential { base, cap } => {
                spread(base.saturating_mul(1 << (failures - 1).min(30)).min(*cap))
            }
            Backoff::Linear { base, cap } => spread(base.saturating_mul(failures).min(*cap)),
            Backoff::Fixed { delay } => *delay,
            Backoff::List { delays } => {
                let at = (failures as usize).min(delays.len());
                at.checked_sub(1).and_then(|at| delays.get(at)).copied().unwrap_or_default()
            }
        };
        Duration::from_millis(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)) // Stores keep milliseconds.
    }
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

    fn policies(max_attempts: u32) -> Policies {
        Policies { retry: Retry { max_attempts, ..Retry::default() }, ..Policies::default() }
    }

    fn with(backoff: Backoff) -> Policies {
        let mut policies = policies(100);
        policies.retry.backoff = backoff;
        policies
    }

    #[test]
    fn delays_grow_to_the_cap_and_spread_by_a_third_at_most() {
        let (base, cap) = (Duration::from_secs(1), Duration::from_secs(300));
        let failed = report(Outcome::Failed, true, None);
        let doubled = [(0, 1_000), (1, 2_000), (4, 16_000), (8, 256_000), (9, 300_000), (60, 300_000)];
        let added = [(0, 1_000), (1, 2_000), (4, 5_000), (98, 99_000)];
        let (exponential, linear) = (Backoff::Exponential { base, cap }, Backoff::Linear { base, cap });
        for (backoff, cases) in [(exponential, &doubled[..]), (linear, &added)] {
            let policies = with(backoff);
            for &(charged, least) in cases {
                let run = Run { charged, ..running() };
                assert_eq!(after(decide(&policies, &run, &failed, at(10), 0.0)), least);
                let most = after(decide(&policies, &run, &failed, at(10), 0.999_999));
                assert!(most > least * 129 / 100 && most <= least * 130 / 100, "{most}");
            }
        }
        let short = Backoff::Linear { base, cap: Duration::from_secs(4) };
        assert_eq!(short.delay(1_000_000, 0.0), Duration::from_secs(4));
    }

    #[test]
    fn delays_that_are_given_are_taken_at_their_word() {
        let seconds = |list: &[u64]| list.iter().copied().map(Duration::from_secs).collect::<Vec<_>>();
        let failed = report(Outcome::Failed, true, None);
        for (backoff, expected) in [
            (Backoff::Fixed { delay: Duration::from_secs(30) }, [30, 30, 30, 30]),
            (Backoff::List { delays: seconds(&[10, 60, 5]) }, [10, 60, 5, 5]),
            (Backoff::List { delays: seconds(&[7]) }, [7, 7, 7, 7]),
        ] {
            let policies = with(backoff);
            for (charged, expected) in (0..).zip(expected) {
                let run = Run { charged, ..running() };
                let verdict = decide(&policies, &run, &failed, at(10), 0.9);
                assert_eq!(after(verdict), expected * 1_000, "without a spread");
            }
        }
        let wish = report(Outcome::Failed, true, Some(Duration::from_secs(40)));
        let policies = with(Backoff::Fixed { delay: Duration::from_secs(30) });
        assert_eq!(
            after(decide(&policies, &running(), &wish, at(10), 0.0)),
            40_000,
            "but the target is heard"
        );
    }

    #[test]
    fn no_attempt_is_planned_behind_a_limit() {
        let mut policies = with(Backoff::Fixed { delay: Duration::from_secs(30) });
        policies.retry.retry_for = Some(Duration::from_secs(60));
        let failed = report(Outcome::Failed, true, None);
        let decided =
            |policies: &Policies, report: &Report, now| decide(policies, &running(), report, at(now), 0.5);
        let retried = |verdict| match verdict {
            Verdict::Retry { available_at, start_by, .. } => {
                (available_at, start_by.map(|by| (by.at, by.limit)))
            }
            other => panic!("{other:?}"),
        };
        let limit = Some((at(60), Limit::RetryFor));
        assert_eq!(retried(decided(&policies, &failed, 10)), (at(40), limit));
        assert_eq!(retried(decided(&policies, &failed, 30)), (at(60), limit), "at the limit it may start");
        assert_eq!(decided(&policies, &failed, 31), Verdict::GiveUp(Limit::RetryFor));
        let late = report(Outcome::TimedOut, true, None);
        assert_eq!(decided(&policies, &late, 31), Verdict::GiveUp(Limit::RetryFor));
        let wish = report(Outcome::Failed, true, Some(Duration::from_secs(59)));
        assert_eq!(decided(&policies, &wish, 10), Verdict::GiveUp(Limit::RetryFor), "the target wants more");
        let lost = Report::lost(at(0), at(61));
        assert_eq!(
            decided(&policies, &lost, 60),
            Verdict::Retry {
                available_at: at(60),
                charge: Charge::Lost,
                start_by: timeouts::next_start(&policies, &running()),
            }
        );
        assert_eq!(decided(&policies, &lost, 61), Verdict::GiveUp(Limit::RetryFor));
        policies.timeouts.deadline = Some(Duration::from_secs(45));
        assert_eq!(
            decided(&policies, &failed, 10),
            Verdict::Retry {
                available_at: at(40),
                charge: Charge::Attempt,
                start_by: timeouts::next_start(&policies, &running()),
            }
        );
        assert_eq!(decided(&policies, &failed, 16), Verdict::GiveUp(Limit::Deadline));
        assert_eq!(decided(&policies, &report(Outcome::Failed, false, None), 99), Verdict::Fail, "it failed");
    }

    #[test]
    fn an_attempt_that_the_deadline_cut_off_is_the_last_whoever_noticed() {
        let mut policies = policies(1);
        policies.timeouts.deadline = Some(Duration::from_secs(45));
        let mut late = report(Outcome::TimedOut, true, None);
        let decided = |late: &Report, now| decide(&policies, &running(), late, at(now), 0.5);
        assert_eq!(decided(&late, 44), Verdict::TimeOut, "by its own timeout");
        assert_eq!(decided(&late, 45), Verdict::GiveUp(Limit::Deadline));
        if let Some(error) = &mut late.error {
            error.code = DEADLINE.into();
        }
        assert_eq!(decided(&late, 44), Verdict::GiveUp(Limit::Deadline), "its worker's clock is ahead");
    }

    #[test]
    fn a_job_may_say_otherwise_than_its_target() {
        let mut policies = policies(3);
        policies.retry.not_on.outcomes = vec![Outcome::Failed];
        policies.retry.on.outcomes = vec![Outcome::TimedOut];
        let decided = |outcome, by_target| {
            let judged = judge(&policies.retry, report(outcome, by_target, None));
            decide(&policies, &running(), &judged, at(10), 0.5)
        };
        assert_eq!(decided(Outcome::Failed, true), Verdict::Fail);
        assert!(matches!(decided(Outcome::TimedOut, false), Verdict::Retry { .. }));
        let lost = judge(&policies.retry, Report::lost(at(0), at(1)));
        assert!(matches!(decide(&policies, &running(), &lost, at(10), 0.5), Verdict::Retry { .. }));
    }

    #[test]
    fn attempts_that_count_are_bounded_and_the_last_failure_is_final() {
        let retry = policies(3);
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
        let retry = policies(3);
        let wait = |seconds| {
            let wish = report(Outcome::Failed, true, Some(Duration::from_secs(seconds)));
            after(decide(&retry, &running(), &wish, at(10), 0.0))
        };
        assert_eq!(wait(0), 1_000);
        assert_eq!(wait(7), 7_000);
        assert_eq!(wait(10_000_000), 24 * 3_600_000);
    }

    #[test]
    fn an_attempt_that_is_spared_costs_nothing_and_limits_of_time_hold() {
        let failed = report(Outcome::Failed, true, None);
        let spent = Run { charged: 2, ..running() };
        let spare = |policies: &Policies, run: &Run, report: &Report, now: Timestamp| {
            spare(policies, run, report, now, Duration::from_secs(4))
        };
        assert_eq!(after(spare(&policies(3), &spent, &failed, at(10))), 4_000, "others go first");
        assert!(matches!(
            spare(&policies(3), &spent, &failed, at(10)),
            Verdict::Retry { charge: Charge::Nothing, .. }
        ));
        let mut soon = policies(3);
        soon.retry.retry_for = Some(Duration::from_secs(12));
        assert_eq!(after(spare(&soon, &spent, &failed, at(10))), 0, "it is not ended for having stood back");
        let wish = report(Outcome::Failed, true, Some(Duration::from_secs(7)));
        assert_eq!(after(spare(&policies(3), &spent, &wish, at(10))), 7_000);
        assert_eq!(spare(&policies(3), &spent, &report(Outcome::Failed, false, None), at(10)), Verdict::Fail);
        assert_eq!(spare(&policies(1), &running(), &failed, at(10)), Verdict::Fail, "once is once");
        let mut short = policies(3);
        short.retry.retry_for = Some(Duration::from_secs(5));
        assert_eq!(spare(&short, &spent, &failed, at(10)), Verdict::GiveUp(Limit::RetryFor));
        let stopped = Run { is_cancel_requested: true, ..running() };
        assert_eq!(spare(&policies(3), &stopped, &failed, at(10)), Verdict::Cancel);
    }

    #[test]
    fn lost_attempts_do_not_count_but_have_their_own_cap() {
        let retry = policies(1);
        let lost = Report::lost(at(0), at(10));
        for lost_before in 0..LOST_MAX - 1 {
            let run = Run { lost: lost_before, ..running() };
            let verdict = decide(&retry, &run, &lost, at(10), 0.5);
            let again = Verdict::Retry { available_at: at(10), charge: Charge::Lost, start_by: None };
            assert_eq!(verdict, again);
        }
        let run = Run { lost: LOST_MAX - 1, ..running() };
        assert_eq!(decide(&retry, &run, &lost, at(10), 0.5), Verdict::Fail);
    }

    #[test]
    fn a_cancelled_run_is_not_retried_but_a_success_stands() {
        let run = Run { is_cancel_requested: true, ..running() };
        let verdict = |outcome| decide(&policies(3), &run, &report(outcome, true, None), at(10), 0.5);
        assert_eq!(verdict(Outcome::Failed), Verdict::Cancel);
        assert_eq!(verdict(Outcome::Lost), Verdict::Cancel);
        assert_eq!(verdict(Outcome::Succeeded), Verdict::Succeed);
    }
}
