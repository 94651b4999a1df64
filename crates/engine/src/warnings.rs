//! What the newest runs of a job say about it: that it is done suspiciously quickly, or not as often as it should be.
//!
//! Derived when a job is read, from runs that are read with it; nothing is written for it. Promise: a warning has the figures
//! that it is about.

use jiff::{SignedDuration, Timestamp};
use punctual_domain::job::Job;
use punctual_domain::run::{Cause, Run, RunState};
use punctual_schedule::{Timetable, length};

use crate::fire::counts_from_completion;

/// The newest runs of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recent {
    /// Newest first.
    pub(crate) runs: Vec<Run>,
    /// How long the last attempt of the newest success took.
    pub(crate) took: Option<SignedDuration>,
}

impl Recent {
    /// The newest of all.
    pub fn last(&self) -> Option<&Run> {
        self.runs.first()
    }

    /// The newest that succeeded, if nothing ended otherwise since.
    pub(crate) fn success(&self) -> Option<&Run> {
        let ended = self.runs.iter().find(|run| run.started_at.is_some() && run.state.is_ended());
        ended.filter(|run| run.state == RunState::Succeeded)
    }

    /// What there is to say at a time.
    pub(crate) fn warnings(&self, job: &Job, timetable: &Timetable, now: Timestamp) -> Vec<String> {
        let about_runs = self.too_fast(job).into_iter().chain(self.too_slow(job, timetable, now));
        about_runs.chain(crate::limits::warning(job)).collect()
    }

    fn too_fast(&self, job: &Job) -> Option<String> {
        let least = SignedDuration::try_from(job.spec.policies.timeouts.min_duration?).ok()?;
        let took = self.took.filter(|took| *took < least)?;
        Some(format!(
            "its last run succeeded in {}, and less than {} is suspicious by `min_duration`",
            length(took),
            length(least)
        ))
    }

    /// A run that takes longer than the time to the next slot.
    fn too_slow(&self, job: &Job, timetable: &Timetable, now: Timestamp) -> Option<String> {
        // A period from completion is longer than its length by what each run takes, as it was asked for.
        if counts_from_completion(job) {
            return None;
        }
        let (run, since) = self.runs.iter().find_map(|run| {
            let since = run.started_at.or(run.lease().map(|lease| lease.claimed_at))?;
            (run.cause == Cause::Schedule).then_some((run, since))
        })?;
        let took = run.finished_at.unwrap_or(now).duration_since(since);
        let interval = timetable.next_after(run.scheduled_for)?.duration_since(run.scheduled_for);
        if took <= interval {
            return None;
        }
        let verb = if run.state.is_ended() { "took" } else { "has taken" };
        Some(format!(
            "its last run {verb} {}, and the next slot comes {} after its own: runs overlap, or it runs less often than \
             its schedule says",
            length(took),
            length(interval)
        ))
    }
}
