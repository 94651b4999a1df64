//! The run's states and the only function that changes them.
//!
//! Stores call [`apply`] when they record an event; nobody assigns a state. Promise: an event that
//! does not fit the state is refused and changes nothing, so a stale result cannot win.

use jiff::Timestamp;

use crate::id::WorkerId;
use crate::policy::unknown::Answer;
use crate::run::{Lease, Limit, NEVER, Run, RunState, StartBy, WaitingFor};

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
    /// Somebody said what became of its last attempt.
    Answered {
        /// What he said.
        answer: Answer,
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
    /// Nobody knows what it did, and somebody is asked.
    Ask {
        /// Until when he may answer, if there is a limit.
        start_by: Option<StartBy>,
    },
    /// It goes on: its receiver has taken it upon itself, and reports it.
    Entrust {
        /// Who holds it from now on.
        receiver: WorkerId,
        /// When the receiver was called.
        started_at: Timestamp,
    },
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
        Event::Answered { answer, at } => answered(run, answer, at),
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
    if !run.is_held(worker, attempt) {
        return Err(Refused::StaleLease { attempt });
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
        Verdict::Ask { start_by } => {
            run.available_at = NEVER;
            run.start_by = start_by;
            run.state = RunState::Pending(WaitingFor::Answer);
            // As one that waits for its next attempt: what it may still be doing counts where retries do.
            run.passed = run.limits.kept(run.passed);
        }
        Verdict::Entrust { receiver, started_at } => {
            run.started_at = run.started_at.or(Some(started_at));
            if let RunState::Running(lease) = &mut run.state {
                lease.worker = receiver;
            }
        }
        Verdict::Retry { available_at, charge, start_by } => {
            match charge {
                Charge::Attempt => run.charged += 1,
                Charge::Lost => run.lose(),
                Charge::Nothing => {}
            }
            run.available_at = available_at;
            run.start_by = start_by;
            run.state = RunState::Pending(match charge {
                Charge::Attempt | Charge::Lost => WaitingFor::Retry,
                Charge::Nothing if available_at > at => WaitingFor::Retry,
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
    run.requires = run.requires.in_company();
    run.finished_at = None;
    run.is_cancel_requested = false;
    Ok(())
}

fn answered(run: &mut Run, answer: Answer, at: Timestamp) -> Result<(), Refused> {
    if !run.is_asking() {
        return Err(Refused::WrongState { state: run.state.as_str(), event: "answered" });
    }
    match answer {
        Answer::Succeeded => end(run, RunState::Succeeded, at),
        Answer::Failed => end(run, RunState::Failed, at),
        // Somebody asked for it: it counts against nothing, and only its deadline bounds it.
        Answer::Retry => {
            run.state = RunState::Pending(WaitingFor::Capacity);
            run.available_at = at;
        }
    }
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
pub(crate) mod tests;
