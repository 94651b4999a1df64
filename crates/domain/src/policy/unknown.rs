//! What follows an attempt of which nobody knows whether it did its work.
//!
//! Decided with every report, before the retry policy. An attempt is unknown if its worker is gone, or if something of it may have
//! reached the target and no answer came back. Promise: under `skip` and `ask` such an attempt is not followed by another by itself,
//! so that the target sees a run at most once unless it says itself that it failed.

use jiff::Timestamp;

use super::{Policies, timeouts};
use crate::attempt::{Failure, Outcome, Report};
use crate::lifecycle::Verdict;
use crate::run::{Limit, Run, StartBy};

/// What a job wants when an attempt is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnUnknown {
    /// It is tried again, under the same idempotency key.
    #[default]
    Retry,
    /// It is not tried again: the run fails, and is a dead letter.
    Skip,
    /// Somebody is asked. The run waits for the answer.
    Ask,
}

impl OnUnknown {
    /// All of them.
    pub const ALL: [OnUnknown; 3] = [OnUnknown::Retry, OnUnknown::Skip, OnUnknown::Ask];

    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            OnUnknown::Retry => "retry",
            OnUnknown::Skip => "skip",
            OnUnknown::Ask => "ask",
        }
    }
}

/// What somebody says about a run that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It is to be tried again.
    Retry,
    /// It has done its work.
    Succeeded,
    /// It has not, and shall not be tried again.
    Failed,
}

impl Answer {
    /// All of them.
    pub const ALL: [Answer; 3] = [Answer::Retry, Answer::Succeeded, Answer::Failed];

    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Answer::Retry => "retry",
            Answer::Succeeded => "succeeded",
            Answer::Failed => "failed",
        }
    }
}

/// The code of an attempt that is unknown, where that matters. A worker that does not know what its handler did may report it itself.
pub const UNKNOWN: &str = "unknown";

/// Codes of attempts that may have done anything: a handler that panicked has not said that it failed.
const UNSAID: [&str; 3] = [UNKNOWN, "function_panicked", "handler_panicked"];

/// Whether nobody knows what an attempt did.
pub fn is_unknown(report: &Report) -> bool {
    let says_so = report.error.as_ref().is_some_and(|error| UNSAID.contains(&&*error.code));
    match report.outcome {
        Outcome::Lost => true,
        Outcome::Failed | Outcome::TimedOut => report.is_unknown || says_so,
        Outcome::Succeeded | Outcome::Cancelled => false,
    }
}

/// Says in a report that it is unknown, if that matters to the job. What is said is what is stored: the flag has done its duty.
pub fn judge(on_unknown: OnUnknown, mut report: Report) -> Report {
    let is_unknown = is_unknown(&report);
    report.is_unknown = false;
    if !is_unknown || on_unknown == OnUnknown::Retry {
        return report;
    }
    let why = report.error.as_ref().map_or("it said no more", |error| &error.message);
    let what = match on_unknown {
        OnUnknown::Retry | OnUnknown::Skip => "not tried again",
        OnUnknown::Ask => "somebody is asked",
    };
    let message = format!("nobody knows whether it did its work, {what}: {why}");
    report.error = Some(Failure { code: UNKNOWN.into(), message, is_retryable: false, retry_after: None });
    report
}

/// What follows an attempt whose report was judged, if that is not for the retry policy to decide.
pub(super) fn decide(policies: &Policies, run: &Run, report: &Report, now: Timestamp) -> Option<Verdict> {
    if !is_unknown(report) {
        return None;
    }
    match policies.on_unknown {
        OnUnknown::Retry => None,
        OnUnknown::Skip => Some(Verdict::Fail),
        OnUnknown::Ask => Some(match answer_by(policies, run) {
            // Nobody could answer in time.
            Some(by) if by.at < now => Verdict::GiveUp(by.limit),
            start_by => Verdict::Ask { start_by },
        }),
    }
}

/// Until when a run waits for an answer: its deadline, if it has one. `retry_for` bounds what happens by itself, and this does not.
pub fn answer_by(policies: &Policies, run: &Run) -> Option<StartBy> {
    timeouts::deadline(&policies.timeouts, run).map(|at| StartBy { at, limit: Limit::Deadline })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lifecycle::Charge;
    use crate::lifecycle::tests::{at, running};
    use crate::policy::retry;

    /// Ended so, with this code; `reached`: something may have reached the target.
    fn report(outcome: Outcome, code: &str, reached: bool) -> Report {
        let error = Failure {
            code: code.into(),
            message: "the line went dead".into(),
            is_retryable: true,
            retry_after: None,
        };
        Report { outcome, error: Some(error), is_unknown: reached, ..Report::lost(at(0), at(1)) }
    }

    fn policies(on_unknown: OnUnknown) -> Policies {
        Policies { on_unknown, ..Policies::default() }
    }

    fn decided(policies: &Policies, run: &Run, report: Report, now: i64) -> (Verdict, Option<String>) {
        let judged = judge(policies.on_unknown, retry::judge(&policies.retry, report));
        assert!(!judged.is_unknown, "the flag is not stored");
        let verdict = retry::decide(policies, run, &judged, at(now), 0.0);
        assert_eq!(
            matches!(verdict, Verdict::Retry { .. }),
            matches!(retry::spare(policies, run, &judged, at(now), Duration::ZERO), Verdict::Retry { .. }),
            "one that is spared is no less unknown"
        );
        (verdict, judged.error.map(|error| error.code))
    }

    #[test]
    fn only_what_nobody_knows_is_decided_otherwise() {
        use OnUnknown::{Ask, Retry, Skip};
        let again = |seconds: i64| Verdict::Retry {
            available_at: at(10 + seconds),
            charge: if seconds == 0 { Charge::Lost } else { Charge::Attempt },
            start_by: None,
        };
        let asks = Verdict::Ask { start_by: None };
        for (outcome, code, reached, expected) in [
            (Outcome::Lost, "lost", false, [again(0), Verdict::Fail, asks]),
            (Outcome::Failed, "connection_closed", true, [again(1), Verdict::Fail, asks]),
            (Outcome::TimedOut, "timed_out", true, [again(1), Verdict::Fail, asks]),
            (Outcome::Failed, "unknown", false, [again(1), Verdict::Fail, asks]),
            (Outcome::Failed, "function_panicked", false, [again(1), Verdict::Fail, asks]),
            (Outcome::Failed, "handler_panicked", false, [again(1), Verdict::Fail, asks]),
            (Outcome::Failed, "connect_failed", false, [again(1), again(1), again(1)]),
            (Outcome::Failed, "http_status", false, [again(1), again(1), again(1)]),
            (Outcome::TimedOut, "timed_out", false, [again(1), again(1), again(1)]),
            (Outcome::Succeeded, "-", true, [Verdict::Succeed; 3]),
            (Outcome::Cancelled, "-", true, [Verdict::Cancel; 3]),
        ] {
            for (on_unknown, expected) in [Retry, Skip, Ask].into_iter().zip(expected) {
                let (verdict, said) =
                    decided(&policies(on_unknown), &running(), report(outcome, code, reached), 10);
                assert_eq!(verdict, expected, "{outcome:?} {code} {reached} {on_unknown:?}");
                let is_told = matches!(verdict, Verdict::Fail | Verdict::Ask { .. });
                assert_eq!(said.as_deref(), Some(if is_told { UNKNOWN } else { code }), "{on_unknown:?}");
            }
        }
    }

    #[test]
    fn no_rule_of_the_job_makes_an_unknown_attempt_retryable() {
        let mut policies = policies(OnUnknown::Skip);
        policies.retry.on.outcomes = vec![Outcome::Failed, Outcome::TimedOut];
        policies.retry.on.errors = vec![UNKNOWN.into(), "connection_closed".into()];
        let closed = report(Outcome::Failed, "connection_closed", true);
        assert_eq!(decided(&policies, &running(), closed, 10).0, Verdict::Fail);
    }

    #[test]
    fn a_run_that_was_asked_to_stop_asks_nobody() {
        let stopped = Run { is_cancel_requested: true, ..running() };
        for on_unknown in OnUnknown::ALL {
            let lost = report(Outcome::Lost, "lost", false);
            assert_eq!(decided(&policies(on_unknown), &stopped, lost, 10).0, Verdict::Cancel);
        }
    }

    #[test]
    fn an_answer_is_waited_for_until_the_deadline_and_not_longer() {
        let mut policies = policies(OnUnknown::Ask);
        policies.retry.retry_for = Some(Duration::from_secs(5));
        policies.timeouts.deadline = Some(Duration::from_secs(60));
        let lost = || report(Outcome::Lost, "lost", false);
        let by = StartBy { at: at(60), limit: Limit::Deadline };
        assert_eq!(decided(&policies, &running(), lost(), 60).0, Verdict::Ask { start_by: Some(by) });
        assert_eq!(decided(&policies, &running(), lost(), 61).0, Verdict::GiveUp(Limit::Deadline));
        let cut = report(Outcome::TimedOut, crate::attempt::DEADLINE, true);
        assert_eq!(decided(&policies, &running(), cut, 60).0, Verdict::GiveUp(Limit::Deadline));
    }
}
