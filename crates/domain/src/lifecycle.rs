//! The run's states and the only function that changes them.
//!
//! Stores call [`apply`] when they record an event; nobody assigns a state. Promise: an event that
//! does not fit the state is refused and changes nothing, so a stale result cannot win.

use jiff::Timestamp;

use crate::id::WorkerId;
use crate::run::{Lease, Run, RunState, WaitingFor};

/// What happened to a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A worker took it.
    Claimed {
        /// Who.
        worker: WorkerId,
        /// When, by the store's clock.
        at: Timestamp,
    },
    /// The attempt under this lease is over; here is what follows.
    Concluded {
        /// Whose attempt.
        worker: WorkerId,
        /// Which attempt.
        attempt: u32,
        /// When it started, if it did.
        started_at: Option<Timestamp>,
        /// What follows.
        verdict: Verdict,
        /// When.
        at: Timestamp,
    },
    /// Somebody asked it to stop.
    Cancelled {
        /// When.
        at: Timestamp,
    },
    /// Somebody asked for more attempts of a run that ended badly.
    Redriven {
        /// When.
        at: Timestamp,
    },
}

/// What follows an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It succeeded.
    Succeed,
    /// It failed for good; a dead letter.
    Fail,
    /// It timed out for good; a dead letter.
    TimeOut,
    /// It was cancelled.
    Cancel,
    /// Another attempt follows.
    Retry {
        /// Not before.
        available_at: Timestamp,
        /// What the attempt counts against.
        charge: Charge,
    },
}

/// What an attempt that is followed by another counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// `max_attempts`.
    Attempt,
    /// The cap of lost attempts.
    Lost,
    /// Nothing: it was given back unfinished.
    Nothing,
}

/// An event that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The lease is no longer this worker's: somebody else has the run, or it has ended.
    #[error("the lease of attempt {attempt} is no longer held by this worker")]
    StaleLease {
        /// The attempt the event was about.
        attempt: u32,
    },
    /// The run is not in a state in which this can happen.
    #[error("a {state} run cannot be {event}")]
    WrongState {
        /// What it is.
        state: &'static str,
        /// What was tried.
        event: &'static str,
    },
}

/// Changes a run by an event, or refuses.
pub fn apply(run: &mut Run, event: Event) -> Result<(), Refused> {
    match event {
        Event::Claimed { worker, at } => claim(run, worker, at),
        Event::Concluded { worker, attempt, started_at, verdict, at } => {
            conclude(run, worker, attempt, started_at, verdict, at)
        }
        Event::Cancelled { at } => cancel(run, at),
        Event::Redriven { at } => redrive(run, at),
    }
}

fn claim(run: &mut Run, worker: WorkerId, at: Timestamp) -> Result<(), Refused> {
    match run.state {
        RunState::Pending(_) if run.available_at <= at => {
            run.attempt += 1;
            run.state = RunState::Running(Lease { worker, attempt: run.attempt, claimed_at: at });
            Ok(())
        }
        _ => Err(Refused::WrongState { state: run.state.as_str(), event: "claimed" }),
    }
}

fn conclude(
    run: &mut Run,
    worker: WorkerId,
    attempt: u32,
    started_at: Option<Timestamp>,
    verdict: Verdict,
    at: Timestamp,
) -> Result<(), Refused> {
    match run.lease() {
        Some(lease) if lease.worker == worker && lease.attempt == attempt => {}
        _ => return Err(Refused::StaleLease { attempt }),
    }
    run.started_at = run.started_at.or(started_at);
    let end = |run: &mut Run, state: RunState| {
        run.state = state;
        run.finished_at = Some(at);
    };
    match verdict {
        Verdict::Succeed => end(run, RunState::Succeeded),
        Verdict::Fail => end(run, RunState::Failed),
        Verdict::TimeOut => end(run, RunState::TimedOut),
        Verdict::Cancel => end(run, RunState::Cancelled),
        Verdict::Retry { available_at, charge } => {
            match charge {
                Charge::Attempt => run.charged += 1,
                Charge::Lost => run.lost += 1,
                Charge::Nothing => {}
            }
            run.available_at = available_at;
            run.state = RunState::Pending(match charge {
                Charge::Attempt | Charge::Lost => WaitingFor::Retry,
                Charge::Nothing => WaitingFor::Capacity,
            });
        }
    }
    Ok(())
}

fn cancel(run: &mut Run, at: Timestamp) -> Result<(), Refused> {
    match run.state {
        RunState::Pending(_) => {
            run.state = RunState::Cancelled;
            run.finished_at = Some(at);
            Ok(())
        }
        RunState::Running(_) => {
            run.is_cancel_requested = true;
            Ok(())
        }
        RunState::Succeeded | RunState::Failed | RunState::TimedOut | RunState::Cancelled => {
            Err(Refused::WrongState { state: run.state.as_str(), event: "cancelled" })
        }
    }
}

fn redrive(run: &mut Run, at: Timestamp) -> Result<(), Refused> {
    if !run.state.is_dead() {
        return Err(Refused::WrongState { state: run.state.as_str(), event: "redriven" });
    }
    // The same run goes on: attempt numbers continue, the counts against its caps start anew.
    run.state = RunState::Pending(WaitingFor::Capacity);
    run.available_at = at;
    run.charged = 0;
    run.lost = 0;
    run.finished_at = None;
    run.is_cancel_requested = false;
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::id::{JobId, Sequence, ShardId, TenantId, Version};
    use crate::invariants;
    use crate::job::Lane;
    use crate::run::Cause;

    pub(crate) fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("in range")
    }

    fn worker(n: u64) -> WorkerId {
        WorkerId::new(at(0), n << 52 | n)
    }

    fn pending() -> Run {
        Run {
            sequence: Sequence::first_at(at(0), 0),
            job: JobId::new(at(0), ShardId(0), 1),
            tenant: TenantId::DEFAULT,
            version: Version::FIRST,
            cause: Cause::Schedule,
            scheduled_for: at(0),
            part: 0,
            state: RunState::Pending(WaitingFor::Capacity),
            available_at: at(0),
            attempt: 0,
            charged: 0,
            lost: 0,
            kind: None,
            queue: "default".into(),
            requires: crate::Labels::NONE,
            retention: Default::default(),
            lane: Lane::Standard,
            priority: 0,
            started_at: None,
            finished_at: None,
            is_cancel_requested: false,
            correlation_id: None,
        }
    }

    pub(crate) fn running() -> Run {
        let mut run = pending();
        apply(&mut run, Event::Claimed { worker: worker(1), at: at(1) }).expect("claimable");
        run
    }

    fn concluded(worker: WorkerId, attempt: u32, verdict: Verdict) -> Event {
        Event::Concluded { worker, attempt, started_at: Some(at(1)), verdict, at: at(2) }
    }

    #[test]
    fn a_result_counts_only_under_the_current_lease() {
        let mut run = running();
        let retry = Verdict::Retry { available_at: at(2), charge: Charge::Lost };
        apply(&mut run, concluded(worker(1), 1, retry)).expect("current");
        apply(&mut run, Event::Claimed { worker: worker(2), at: at(3) }).expect("claimable");
        let before = run.clone();
        for stale in [
            concluded(worker(1), 1, Verdict::Succeed),
            concluded(worker(1), 2, Verdict::Succeed),
            concluded(worker(2), 1, Verdict::Succeed),
        ] {
            assert!(matches!(apply(&mut run, stale), Err(Refused::StaleLease { .. })));
            assert_eq!(run, before, "a refused event changes nothing");
        }
        apply(&mut run, concluded(worker(2), 2, Verdict::Succeed)).expect("current");
        assert_eq!((run.state, run.attempt, run.lost), (RunState::Succeeded, 2, 1));
        assert!(apply(&mut run, concluded(worker(2), 2, Verdict::Fail)).is_err(), "one outcome is recorded");
    }

    #[test]
    fn a_run_is_not_claimed_before_its_time_nor_twice() {
        let mut early = Run { available_at: at(10), ..pending() };
        assert!(apply(&mut early, Event::Claimed { worker: worker(1), at: at(9) }).is_err());
        let mut run = running();
        assert!(apply(&mut run, Event::Claimed { worker: worker(2), at: at(9) }).is_err());
    }

    #[test]
    fn cancelling_ends_a_waiting_run_and_asks_a_running_one() {
        let mut waiting = pending();
        apply(&mut waiting, Event::Cancelled { at: at(5) }).expect("open");
        assert_eq!((waiting.state, waiting.finished_at), (RunState::Cancelled, Some(at(5))));
        assert!(apply(&mut waiting, Event::Cancelled { at: at(6) }).is_err());
        let mut run = running();
        apply(&mut run, Event::Cancelled { at: at(5) }).expect("open");
        assert!(run.is_cancel_requested && run.lease().is_some());
    }

    #[test]
    fn a_redriven_run_goes_on_with_the_next_attempt() {
        let mut run = running();
        assert!(apply(&mut run, Event::Redriven { at: at(5) }).is_err());
        apply(&mut run, concluded(worker(1), 1, Verdict::Fail)).expect("current");
        assert!(run.state.is_dead());
        apply(&mut run, Event::Redriven { at: at(5) }).expect("dead");
        apply(&mut run, Event::Claimed { worker: worker(2), at: at(6) }).expect("claimable");
        assert_eq!((run.attempt, run.charged, run.finished_at), (2, 0, None));
    }

    #[test]
    fn giving_a_run_back_charges_nothing() {
        let mut run = running();
        let back = Verdict::Retry { available_at: at(2), charge: Charge::Nothing };
        apply(&mut run, concluded(worker(1), 1, back)).expect("current");
        assert_eq!((run.charged, run.lost, run.attempt), (0, 0, 1));
    }

    #[test]
    fn no_sequence_of_events_breaks_an_invariant() {
        let mut rng = fastrand::Rng::with_seed(4);
        for _ in 0..20_000 {
            let mut run = pending();
            for step in 0..12 {
                let verdict = match rng.u8(..6) {
                    0 => Verdict::Succeed,
                    1 => Verdict::Fail,
                    2 => Verdict::TimeOut,
                    3 => Verdict::Cancel,
                    _ => Verdict::Retry {
                        available_at: at(step),
                        charge: *rng.choice(&[Charge::Attempt, Charge::Lost, Charge::Nothing]).expect("some"),
                    },
                };
                let event = match rng.u8(..4) {
                    0 => Event::Claimed { worker: worker(rng.u64(1..3)), at: at(step) },
                    1 => Event::Cancelled { at: at(step) },
                    2 => Event::Redriven { at: at(step) },
                    _ => concluded(worker(rng.u64(1..3)), run.attempt, verdict),
                };
                let before = run.clone();
                if apply(&mut run, event).is_err() {
                    assert_eq!(run, before);
                }
                assert_eq!(invariants::check(&run), Ok(()), "{before:?} {event:?}");
                assert!(run.attempt >= before.attempt, "attempt numbers never go back");
            }
        }
    }
}
