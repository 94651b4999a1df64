//! The receiver of a call that answers first and reports later: it holds its attempt under terms of its own.
//!
//! Made when a call is sent, for its token, and again when it was answered, for its lease. Promise: both are the same, because the terms
//! follow from the run and from when the attempt began; and they are in the identity that holds the lease, so that they need no place of
//! their own, survive every restart and are the same for whoever looks.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::attempt::{DEADLINE, Failure, Outcome, Report};
use crate::id::WorkerId;
use crate::policy::completion::Completion;
use crate::policy::{Policies, timeouts};
use crate::run::Run;
use crate::work::Held;

/// Whoever answered an attempt and has not reported it yet: its terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// The attempt is over then, whatever is heard of it: its timeout, or the deadline of its run.
    pub ends_at: Timestamp,
    /// It must be heard of so often, in whole seconds.
    pub heartbeat: Option<Duration>,
}

/// The longest time between two signs of life: an identity has 24 bits for it.
pub const HEARTBEAT_MAX: Duration = Duration::from_secs((1 << 24) - 1);

impl Receiver {
    /// The terms of an attempt that began then, if its job lets receivers report.
    pub fn of(policies: &Policies, run: &Run, started_at: Timestamp) -> Option<Receiver> {
        let Completion::Token { heartbeat } = policies.completion else { return None };
        let (timeout, _) = timeouts::attempt(&policies.timeouts, run, started_at);
        let ends_at = started_at.checked_add(signed(timeout)).unwrap_or(Timestamp::MAX);
        Some(Receiver { ends_at, heartbeat }.rounded())
    }

    /// As an identity has it: the end in milliseconds, signs of life in whole seconds.
    pub(crate) fn rounded(self) -> Receiver {
        let ends_at = Timestamp::from_millisecond(self.ends_at.as_millisecond().clamp(0, (1 << 43) - 1));
        let whole = |heartbeat: Duration| {
            Duration::from_secs(heartbeat.as_secs() + u64::from(heartbeat.subsec_nanos() > 0))
        };
        Receiver {
            ends_at: ends_at.unwrap_or(Timestamp::MAX),
            heartbeat: self.heartbeat.map(|heartbeat| whole(heartbeat).min(HEARTBEAT_MAX)),
        }
    }

    /// Who holds an attempt under these terms.
    pub fn id(self, held: Held) -> WorkerId {
        WorkerId::of_receiver(self.rounded(), held)
    }

    /// Until when it keeps its attempt, if it was last heard of then.
    pub fn until(self, heard_at: Timestamp) -> Timestamp {
        let silent = self.heartbeat.and_then(|heartbeat| heard_at.checked_add(signed(heartbeat)).ok());
        silent.map_or(self.ends_at, |silent| silent.min(self.ends_at))
    }

    /// What is recorded of an attempt whose receiver has not reported in time. It counts as one of the job's attempts, unlike one that
    /// was lost: the receiver is there, it answered. What it did, nobody knows.
    pub fn overdue(self, policies: &Policies, run: &Run, now: Timestamp) -> Report {
        let claimed_at = run.lease().map_or(now, |lease| lease.claimed_at);
        let is_cut = timeouts::is_over(&policies.timeouts, run, now);
        let message = match self.heartbeat {
            _ if is_cut => "the deadline of the run was reached: its receiver has not reported".into(),
            Some(heartbeat) if now <= self.ends_at => {
                format!("the receiver answered and was not heard of for {heartbeat:?}")
            }
            _ => {
                let timeout = policies.timeouts.attempt;
                format!("the receiver answered and did not report within the timeout of {timeout:?}")
            }
        };
        let code = if is_cut { DEADLINE } else { "timed_out" };
        let error = Failure { code: code.into(), message, is_retryable: !is_cut, retry_after: None };
        Report {
            outcome: Outcome::TimedOut,
            error: Some(error),
            is_unknown: true,
            ..Report::lost(claimed_at, now)
        }
    }
}

fn signed(length: Duration) -> SignedDuration {
    SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Sequence, WorkerId};
    use crate::lifecycle::tests::{at, running};
    use crate::lifecycle::{Event, Refused, Verdict, apply};
    use crate::run::RunState;

    fn held(n: u32) -> Held {
        Held { sequence: Sequence::first_at(at(0), 0), attempt: n }
    }

    #[test]
    fn the_terms_are_read_from_the_identity_that_holds_the_lease() {
        let mut rng = fastrand::Rng::with_seed(8);
        for _ in 0..10_000 {
            let ends_at = Timestamp::from_millisecond(rng.i64(0..1 << 43)).expect("in range");
            let heartbeat = rng.bool().then(|| Duration::from_secs(rng.u64(0..1 << 24)));
            let terms = Receiver { ends_at, heartbeat };
            let id = terms.id(held(rng.u32(1..9)));
            assert_eq!(id.receiver(), Some(terms));
            assert_eq!(WorkerId::from_bytes(*id.as_bytes()), id);
            assert!(id.to_string().parse::<WorkerId>().is_err(), "nobody can say that he is one");
        }
        assert_eq!(WorkerId::new(at(0), u64::MAX).receiver(), None, "no worker is a receiver");
    }

    #[test]
    fn an_attempt_that_is_entrusted_goes_on_and_only_its_receiver_ends_it() {
        let mut run = running();
        let worker = run.lease().expect("a lease").worker;
        let receiver = Receiver { ends_at: at(60), heartbeat: None }.id(Held::from(&run));
        let concluded = |worker, verdict| {
            let started_at = Some(at(1));
            Event::Concluded { worker, attempt: 1, started_at, verdict, at: at(2) }
        };
        let entrust = Verdict::Entrust { receiver, started_at: at(1) };
        assert!(apply(&mut run, concluded(receiver, entrust)).is_err(), "only its worker gives it away");
        let mut stopped = run.clone();
        apply(&mut run, concluded(worker, entrust)).expect("current");
        assert!(run.is_held(receiver, 1) && run.receiver().is_some(), "{run:?}");
        assert_eq!((run.attempt, run.started_at, run.finished_at), (1, Some(at(1)), None));
        let before = run.clone();
        assert!(apply(&mut run, concluded(worker, Verdict::Succeed)).is_err(), "the worker let go of it");
        assert!(apply(&mut run, concluded(worker, entrust)).is_err());
        assert_eq!(run, before);
        apply(&mut run, concluded(receiver, Verdict::Succeed)).expect("current");
        assert_eq!(run.state, RunState::Succeeded);
        apply(&mut stopped, Event::Cancelled { at: at(2) }).expect("open");
        let refused = apply(&mut stopped, concluded(worker, entrust));
        assert_eq!(refused, Err(Refused::AskedToStop), "what was asked to stop is not given away");
    }

    #[test]
    fn attempts_are_told_apart_and_stand_in_the_order_of_their_ends() {
        let terms = |second: i64| Receiver { ends_at: at(second), heartbeat: None };
        assert_ne!(terms(9).id(held(1)), terms(9).id(held(2)));
        assert_eq!(terms(9).id(held(1)), terms(9).id(held(1)));
        for (earlier, later) in [(1, 2), (0, 1_000_000), (999, 1_000)] {
            assert!(terms(earlier).id(held(2)) < terms(later).id(held(1)));
            assert!(terms(earlier).id(held(2)) < WorkerId::first_of_receivers(Some(at(later))));
            assert!(terms(later).id(held(2)) > WorkerId::first_of_receivers(Some(at(later))));
        }
        let beats = Receiver { ends_at: at(9), heartbeat: Some(Duration::ZERO) }.id(held(1));
        assert!(WorkerId::new(at(0), u64::MAX) < WorkerId::first_of_receivers(None));
        assert!(WorkerId::first_of_receivers(None) < beats);
        assert!(beats < WorkerId::first_of_receivers(Some(at(0))), "who is heard of stands apart");
    }

    #[test]
    fn a_receiver_keeps_its_attempt_while_it_is_heard_of_and_not_beyond_the_end() {
        let mut policies = Policies::default();
        assert_eq!(Receiver::of(&policies, &running(), at(5)), None);
        policies.timeouts.attempt = Duration::from_secs(100);
        policies.completion = Completion::Token { heartbeat: None };
        let terms = Receiver::of(&policies, &running(), at(5)).expect("by token");
        assert_eq!((terms.ends_at, terms.until(at(5))), (at(105), at(105)));
        policies.completion = Completion::Token { heartbeat: Some(Duration::from_millis(29_001)) };
        let terms = Receiver::of(&policies, &running(), at(5)).expect("by token");
        assert_eq!(terms.heartbeat, Some(Duration::from_secs(30)), "never less than was said");
        assert_eq!((terms.until(at(5)), terms.until(at(90))), (at(35), at(105)));
        policies.timeouts.deadline = Some(Duration::from_secs(20));
        let terms = Receiver::of(&policies, &running(), at(5)).expect("by token");
        assert_eq!(terms.until(at(5)), at(20), "a run has no time beyond its deadline");
    }

    #[test]
    fn what_is_said_of_an_overdue_attempt_names_the_limit_that_was_over() {
        let mut policies = Policies::default();
        policies.timeouts.deadline = Some(Duration::from_secs(600));
        let terms = Receiver { ends_at: at(300), heartbeat: Some(Duration::from_secs(30)) };
        for (now, code, part, is_retryable) in [
            (40, "timed_out", "not heard of for 30s", true),
            (301, "timed_out", "within the timeout of 300s", true),
            (601, DEADLINE, "the deadline of the run", false),
        ] {
            let report = terms.overdue(&policies, &running(), at(now));
            let error = report.error.expect("an error");
            assert_eq!((report.outcome, report.is_unknown), (Outcome::TimedOut, true));
            assert_eq!((&*error.code, error.is_retryable), (code, is_retryable));
            assert!(error.message.contains(part), "{}", error.message);
        }
    }
}
