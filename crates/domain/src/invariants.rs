//! What must hold for every run, whatever happened: checked after tests, by `punctual check` and
//! where a store reads back what it wrote.

use crate::run::{Cause, NEVER, Run, RunState, WaitingFor};

/// A broken invariant, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

/// Checks one run.
pub fn check(run: &Run) -> Result<(), Broken> {
    let counted = run.charged.saturating_add(run.lost);
    let rules = [
        ("attempts that count are attempts", counted <= run.attempt),
        ("an ended run has an end", run.state.is_ended() == run.finished_at.is_some()),
        ("a lease is for the last attempt", run.lease().is_none_or(|lease| lease.attempt == run.attempt)),
        ("a run with a lease was attempted", run.lease().is_none() || run.attempt > 0),
        ("only a run that was attempted has started", run.started_at.is_none() || run.attempt > 0),
        (
            "only a success or a failure was attempted",
            match run.state {
                RunState::Succeeded | RunState::Failed | RunState::TimedOut => run.attempt > 0,
                RunState::Pending(_) | RunState::Running(_) | RunState::Cancelled | RunState::Missed => true,
            },
        ),
        ("a missed run never started", run.state != RunState::Missed || run.started_at.is_none()),
        ("a missed run says why", run.state != RunState::Missed || run.reason.is_some()),
        (
            "only what was asked for has a turn of its own",
            run.turn_at.is_none() || run.redriven_at.is_some() || run.cause == Cause::Backfill,
        ),
        ("a run has passed no gates but its own", usize::from(run.passed) <= run.limits.len()),
        ("an ended run holds no permit", !run.state.is_ended() || run.passed == 0),
        ("a run behind another holds no permit", !run.is_behind() || run.passed == 0),
        ("a run with a lease has passed its gates", run.lease().is_none() || run.has_passed()),
        (
            "a run that waits for a limit has not passed it",
            run.state != RunState::Pending(WaitingFor::Limit) || !run.has_passed(),
        ),
        ("nobody can claim a run that waits for an answer", !run.is_asking() || run.available_at == NEVER),
        ("a run that waits for an answer was attempted", !run.is_asking() || run.attempt > 0),
        (
            "only a run that ended badly has a reason",
            run.reason.is_none() || run.state.is_dead() || run.state == RunState::Missed,
        ),
    ];
    match rules.iter().find(|(_, holds)| !holds) {
        Some((rule, _)) => Err(Broken(rule)),
        None => Ok(()),
    }
}
