//! The run's states and the only function that changes them.
//!
//! Stores call [`apply`] when they record an event; nobody assigns a state. Promise: an event that
//! does not fit the state is refused and changes nothing, so a stale result cannot win.

use jiff::Timestamp;

use crate::id::WorkerId;
use crate::run::{Lease, Limit, Run, RunState, StartBy, WaitingFor};

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
    /// Its next attempt did not start in time.
    Lapsed {
        /// When.
        at: Timestamp,
    },
    /// Somebody asked for more attempts of a run that ended badly.
    Redriven {
        /// When.
        at: Timestamp,
        /// Other runs of its job are open, with which it must not overlap.
        is_behind: bool,
    },
    /// No run is ahead of it any more.
    Released {
        /// When.
        at: Timestamp,
    },
    /// It has come as far as the gates of its limits let it.
    Passed {
        /// So many of them it has passed.
        gates: u8,
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
    /// A limit does not allow another attempt; a dead letter.
    GiveUp(Limit),
    /// Another attempt follows.
    Retry {
        /// Not before.
        available_at: Timestamp,
        /// What the attempt counts against.
        charge: Charge,
        /// Not after, if there is a limit.
        start_by: Option<StartBy>,
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
    /// Somebody asked the run to stop: it is not tried again, and is no dead letter.
    #[error("the run was asked to stop, and ends as cancelled unless it succeeded")]
    AskedToStop,
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
        Event::Lapsed { at } => lapse(run, at),
        Event::Redriven { at, is_behind } => redrive(run, at, is_behind),
        Event::Released { at } => release(run, at),
        Event::Passed { gates, at } => pass(run, gates, at),
    }
}

fn claim(run: &mut Run, worker: WorkerId, at: Timestamp) -> Result<(), Refused> {
    match run.state {
        RunState::Pending(_)
            if run.available_at <= at && !run.is_behind() && run.has_passed() && !run.is_too_late(at) =>
        {
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
    // Whoever decided did not know yet; it is decided anew.
    if run.is_cancel_requested && !matches!(verdict, Verdict::Succeed | Verdict::Cancel) {
        return Err(Refused::AskedToStop);
    }
    run.started_at = run.started_at.or(started_at);
    match verdict {
        Verdict::Succeed => end(run, RunState::Succeeded, at),
        Verdict::Fail => end(run, RunState::Failed, at),
        Verdict::TimeOut => end(run, RunState::TimedOut, at),
        Verdict::Cancel => end(run, RunState::Cancelled, at),
        Verdict::GiveUp(limit) => give_up(run, limit, at),
        Verdict::Retry { available_at, charge, start_by } => {
            match charge {
                Charge::Attempt => run.charged += 1,
                Charge::Lost => run.lost += 1,
                Charge::Nothing => {}
            }
            run.available_at = available_at;
            run.start_by = start_by;
            run.state = RunState::Pending(match charge {
                Charge::Attempt | Charge::Lost => WaitingFor::Retry,
                Charge::Nothing => WaitingFor::Capacity,
            });
            // One that was given back unfinished goes on as if it had not been taken.
            if charge != Charge::Nothing {
                run.passed = run.limits.kept(run.passed);
            }
        }
    }
    Ok(())
}

/// It ends, and holds no permit any more.
fn end(run: &mut Run, state: RunState, at: Timestamp) {
    run.state = state;
    run.finished_at = Some(at);
    run.passed = 0;
}

fn cancel(run: &mut Run, at: Timestamp) -> Result<(), Refused> {
    match run.state {
        RunState::Pending(_) => {
            end(run, RunState::Cancelled, at);
            Ok(())
        }
        RunState::Running(_) => {
            run.is_cancel_requested = true;
            Ok(())
        }
        RunState::Succeeded
        | RunState::Failed
        | RunState::TimedOut
        | RunState::Cancelled
        | RunState::Missed => Err(Refused::WrongState { state: run.state.as_str(), event: "cancelled" }),
    }
}

fn lapse(run: &mut Run, at: Timestamp) -> Result<(), Refused> {
    match (run.lapses_after(), run.start_by) {
        (Some(last), Some(by)) if last < at => {
            give_up(run, by.limit, at);
            Ok(())
        }
        _ => Err(Refused::WrongState { state: run.state.as_str(), event: "missed" }),
    }
}

/// A limit ends a run: one that never started is missed, whatever the limit.
fn give_up(run: &mut Run, limit: Limit, at: Timestamp) {
    let state = match (run.started_at, limit) {
        (None, _) => RunState::Missed,
        (Some(_), Limit::Deadline) => RunState::TimedOut,
        (Some(_), Limit::StartWindow | Limit::RetryFor) => RunState::Failed,
    };
    end(run, state, at);
    run.reason = Some(limit);
}

fn redrive(run: &mut Run, at: Timestamp, is_behind: bool) -> Result<(), Refused> {
    if !run.state.is_dead() {
        return Err(Refused::WrongState { state: run.state.as_str(), event: "redriven" });
    }
    // The same run goes on: attempt numbers continue, the counts against its caps start anew.
    run.state = RunState::Pending(if is_behind { WaitingFor::EarlierRun } else { WaitingFor::Capacity });
    run.available_at = at;
    run.start_by = None;
    run.reason = None;
    run.redriven_at = Some(at);
    run.charged = 0;
    run.lost = 0;
    run.finished_at = None;
    run.is_cancel_requested = false;
    Ok(())
}

fn release(run: &mut Run, at: Timestamp) -> Result<(), Refused> {
    if !run.is_behind() {
        return Err(Refused::WrongState { state: run.state.as_str(), event: "released" });
    }
    run.state = RunState::Pending(match run.available_at > at {
        true => WaitingFor::Time,
        false => WaitingFor::Capacity,
    });
    run.take_turn(at);
    Ok(())
}

fn pass(run: &mut Run, gates: u8, at: Timestamp) -> Result<(), Refused> {
    let refused = Refused::WrongState { state: run.state.as_str(), event: "let through" };
    let is_on = gates >= run.passed && usize::from(gates) <= run.limits.len();
    match run.state {
        RunState::Pending(_) if is_on && !run.is_behind() && run.available_at <= at => {}
        _ => return Err(refused),
    }
    let waited = run.is_limited();
    run.passed = gates;
    match run.has_passed() {
        false => run.state = RunState::Pending(WaitingFor::Limit),
        true if waited => {
            run.state = RunState::Pending(WaitingFor::Capacity);
            run.take_turn(at);
        }
        true => {}
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::id::{JobId, Sequence, ShardId, TenantId, Version};
    use crate::invariants;
    use crate::job::Lane;
    use crate::policy::limit::{Allowance, Allowed, Key, Limited, Limits};
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
            start_by: None,
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
            reason: None,
            redriven_at: None,
            turn_at: None,
            is_cancel_requested: false,
            limits: Limits::NONE,
            passed: 0,
            correlation_id: None,
        }
    }

    /// With so many limits, of which the first half holds retries.
    fn limited(count: u8) -> Run {
        let limited = |n: u8| Limited {
            key: Key(n.into()),
            breadth: n,
            holds_retries: n < count / 2,
            allowed: Allowed::Own(Allowance::default()),
        };
        Run { limits: Limits::new((0..count).map(limited).collect()), ..pending() }
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
        let retry = Verdict::Retry { available_at: at(2), charge: Charge::Lost, start_by: None };
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
        let redriven = Event::Redriven { at: at(5), is_behind: false };
        assert!(apply(&mut run, redriven).is_err());
        apply(&mut run, concluded(worker(1), 1, Verdict::Fail)).expect("current");
        assert!(run.state.is_dead());
        apply(&mut run, redriven).expect("dead");
        apply(&mut run, Event::Claimed { worker: worker(2), at: at(6) }).expect("claimable");
        assert_eq!((run.attempt, run.charged, run.finished_at), (2, 0, None));
        assert_eq!(run.counts_from(), at(5), "its age counts anew");
    }

    fn by(second: i64, limit: Limit) -> Option<StartBy> {
        Some(StartBy { at: at(second), limit })
    }

    #[test]
    fn a_run_that_waits_too_long_is_missed_and_never_starts() {
        for limit in Limit::ALL {
            let mut run = Run { start_by: by(5, limit), ..pending() };
            let early = apply(&mut run, Event::Lapsed { at: at(5) });
            assert!(early.is_err(), "at the limit it may still start");
            assert!(apply(&mut run.clone(), Event::Claimed { worker: worker(1), at: at(5) }).is_ok());
            assert!(apply(&mut run.clone(), Event::Claimed { worker: worker(1), at: at(6) }).is_err());
            apply(&mut run, Event::Lapsed { at: at(6) }).expect("late");
            assert_eq!((run.state, run.reason), (RunState::Missed, Some(limit)));
            assert_eq!((run.finished_at, run.attempt), (Some(at(6)), 0));
            assert!(apply(&mut run, Event::Lapsed { at: at(7) }).is_err());
            let redriven = Event::Redriven { at: at(7), is_behind: false };
            assert!(apply(&mut run, redriven).is_err(), "it is no dead letter");
        }
        assert!(apply(&mut pending(), Event::Lapsed { at: at(1_000_000) }).is_err(), "there is no limit");
    }

    #[test]
    fn a_run_that_was_given_back_unstarted_is_still_in_its_window() {
        let mut run = Run { start_by: by(5, Limit::StartWindow), ..pending() };
        apply(&mut run, Event::Claimed { worker: worker(1), at: at(1) }).expect("claimable");
        assert!(apply(&mut run, Event::Lapsed { at: at(9) }).is_err(), "it has a lease");
        let start_by = run.start_by;
        let verdict = Verdict::Retry { available_at: at(2), charge: Charge::Nothing, start_by };
        let back = Event::Concluded { worker: worker(1), attempt: 1, started_at: None, verdict, at: at(2) };
        apply(&mut run, back).expect("current");
        apply(&mut run, Event::Lapsed { at: at(6) }).expect("late");
        assert_eq!((run.state, run.attempt), (RunState::Missed, 1));
    }

    #[test]
    fn a_retry_that_cannot_start_in_time_ends_as_its_limit_says() {
        for (limit, state) in [(Limit::RetryFor, RunState::Failed), (Limit::Deadline, RunState::TimedOut)] {
            let mut run = running();
            let start_by = by(5, limit);
            let retry = Verdict::Retry { available_at: at(3), charge: Charge::Attempt, start_by };
            apply(&mut run, concluded(worker(1), 1, retry)).expect("current");
            let mut waiting = run.clone();
            apply(&mut waiting, Event::Lapsed { at: at(6) }).expect("late");
            assert_eq!((waiting.state, waiting.reason, waiting.charged), (state, Some(limit), 1));
            apply(&mut waiting, Event::Redriven { at: at(9), is_behind: false }).expect("dead");
            assert_eq!((waiting.start_by, waiting.reason), (None, None), "more attempts were asked for");
            apply(&mut run, Event::Claimed { worker: worker(2), at: at(5) }).expect("in time");
            apply(&mut run, concluded(worker(2), 2, Verdict::GiveUp(limit))).expect("current");
            assert_eq!((run.state, run.reason), (state, Some(limit)));
        }
    }

    #[test]
    fn a_run_behind_others_is_not_claimed_until_it_is_released() {
        let mut run = Run { state: RunState::Pending(WaitingFor::EarlierRun), ..pending() };
        let claimed = Event::Claimed { worker: worker(1), at: at(9) };
        assert!(apply(&mut run, claimed).is_err());
        let mut early = Run { available_at: at(20), ..run.clone() };
        apply(&mut early, Event::Released { at: at(9) }).expect("behind");
        assert_eq!(early.state, RunState::Pending(WaitingFor::Time));
        apply(&mut run, Event::Released { at: at(9) }).expect("behind");
        assert!(apply(&mut run, Event::Released { at: at(9) }).is_err(), "once");
        apply(&mut run, claimed).expect("claimable");
    }

    #[test]
    fn a_run_that_was_asked_to_stop_is_not_tried_again() {
        let mut run = running();
        apply(&mut run, Event::Cancelled { at: at(2) }).expect("open");
        for charge in [Charge::Attempt, Charge::Lost, Charge::Nothing] {
            let retry = Verdict::Retry { available_at: at(2), charge, start_by: None };
            assert_eq!(apply(&mut run, concluded(worker(1), 1, retry)), Err(Refused::AskedToStop));
        }
        for verdict in [Verdict::Fail, Verdict::TimeOut, Verdict::GiveUp(Limit::Deadline)] {
            assert_eq!(apply(&mut run, concluded(worker(1), 1, verdict)), Err(Refused::AskedToStop));
        }
        apply(&mut run.clone(), concluded(worker(1), 1, Verdict::Succeed)).expect("it was done all the same");
        apply(&mut run, concluded(worker(1), 1, Verdict::Cancel)).expect("current");
        assert_eq!(run.state, RunState::Cancelled);
    }

    #[test]
    fn what_was_asked_for_has_its_time_from_its_turn_on() {
        let behind = Run {
            state: RunState::Pending(WaitingFor::EarlierRun),
            start_by: by(5, Limit::StartWindow),
            ..pending()
        };
        assert_eq!(behind.lapses_after(), Some(at(5)), "a slot has its own time, whoever is ahead");
        let mut slot = behind.clone();
        apply(&mut slot, Event::Released { at: at(3) }).expect("behind");
        assert_eq!((slot.start_by, slot.turn_at), (behind.start_by, None));
        let mut old = Run { cause: Cause::Backfill, turn_at: Some(at(0)), ..behind };
        assert_eq!(old.lapses_after(), None);
        assert!(apply(&mut old, Event::Lapsed { at: at(1_000) }).is_err(), "its time has not begun");
        apply(&mut old, Event::Released { at: at(1_000) }).expect("behind");
        assert_eq!((old.lapses_after(), old.counts_from()), (Some(at(1_005)), at(1_000)));
        apply(&mut old, Event::Lapsed { at: at(1_006) }).expect("late");
        let mut dead = running();
        apply(&mut dead, concluded(worker(1), 1, Verdict::Fail)).expect("current");
        apply(&mut dead, Event::Redriven { at: at(50), is_behind: true }).expect("dead");
        assert_eq!(dead.counts_from(), at(50));
        apply(&mut dead, Event::Released { at: at(90) }).expect("behind");
        assert_eq!((dead.counts_from(), dead.redriven_at, dead.start_by), (at(90), Some(at(50)), None));
    }

    #[test]
    fn a_run_is_claimed_when_it_has_passed_all_its_gates() {
        let mut run = limited(2);
        let claimed = Event::Claimed { worker: worker(1), at: at(9) };
        let passed = |gates| Event::Passed { gates, at: at(5) };
        assert!(apply(&mut run, claimed).is_err());
        apply(&mut run, passed(1)).expect("pending");
        assert!(run.is_limited() && apply(&mut run, claimed).is_err());
        assert!(apply(&mut run, passed(0)).is_err() && apply(&mut run, passed(3)).is_err());
        apply(&mut run, passed(2)).expect("pending");
        assert_eq!(run.state, RunState::Pending(WaitingFor::Capacity));
        apply(&mut run, claimed).expect("claimable");
        assert!(apply(&mut run, passed(2)).is_err(), "it is running");
        let retry = Verdict::Retry { available_at: at(9), charge: Charge::Attempt, start_by: None };
        let mut again = run.clone();
        apply(&mut again, concluded(worker(1), 1, retry)).expect("current");
        assert_eq!((again.passed, again.state), (1, RunState::Pending(WaitingFor::Retry)));
        let back = Verdict::Retry { available_at: at(9), charge: Charge::Nothing, start_by: None };
        let mut kept = run.clone();
        apply(&mut kept, concluded(worker(1), 1, back)).expect("current");
        assert_eq!(kept.passed, 2, "it was not begun");
        apply(&mut run, concluded(worker(1), 1, Verdict::Fail)).expect("current");
        assert_eq!(run.passed, 0);
    }

    #[test]
    fn what_was_asked_for_has_its_time_from_the_gate_on() {
        let slot = Run { start_by: by(5, Limit::StartWindow), ..limited(1) };
        let mut old = Run { cause: Cause::Backfill, turn_at: Some(at(0)), ..slot.clone() };
        let mut slot = slot;
        for run in [&mut slot, &mut old] {
            apply(run, Event::Passed { gates: 0, at: at(1) }).expect("pending");
        }
        assert_eq!((slot.lapses_after(), old.lapses_after()), (Some(at(5)), None));
        apply(&mut old, Event::Passed { gates: 1, at: at(100) }).expect("pending");
        assert_eq!(old.lapses_after(), Some(at(105)));
    }

    #[test]
    fn giving_a_run_back_charges_nothing() {
        let mut run = running();
        let back = Verdict::Retry { available_at: at(2), charge: Charge::Nothing, start_by: None };
        apply(&mut run, concluded(worker(1), 1, back)).expect("current");
        assert_eq!((run.charged, run.lost, run.attempt), (0, 0, 1));
    }

    fn any_limit(rng: &mut fastrand::Rng) -> Option<StartBy> {
        let limit = *rng.choice(&Limit::ALL)?;
        rng.bool().then(|| StartBy { at: at(rng.i64(0..14)), limit })
    }

    #[test]
    fn no_sequence_of_events_breaks_an_invariant() {
        let mut rng = fastrand::Rng::with_seed(4);
        for _ in 0..20_000 {
            let mut run = limited(rng.u8(..4));
            run.start_by = any_limit(&mut rng);
            for step in 0..12 {
                let verdict = match rng.u8(..7) {
                    0 => Verdict::Succeed,
                    1 => Verdict::Fail,
                    2 => Verdict::TimeOut,
                    3 => Verdict::Cancel,
                    4 => Verdict::GiveUp(*rng.choice(&Limit::ALL).expect("some")),
                    _ => Verdict::Retry {
                        available_at: at(step),
                        charge: *rng.choice(&[Charge::Attempt, Charge::Lost, Charge::Nothing]).expect("some"),
                        start_by: any_limit(&mut rng),
                    },
                };
                let event = match rng.u8(..8) {
                    0 => Event::Claimed { worker: worker(rng.u64(1..3)), at: at(step) },
                    1 => Event::Cancelled { at: at(step) },
                    2 => Event::Redriven { at: at(step), is_behind: rng.bool() },
                    3 => Event::Lapsed { at: at(step) },
                    4 => Event::Released { at: at(step) },
                    5 | 6 => Event::Passed { gates: rng.u8(..4), at: at(step) },
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
