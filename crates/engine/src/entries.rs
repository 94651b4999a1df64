//! Where a job's due entry is: it is kept by time, and found by what the job's schedule says.

use jiff::{SignedDuration, Timestamp};
use punctual_domain::job::{Carried, Job};
use punctual_schedule::Progress;
use punctual_store::{Due, DueKey, DueQuery, Shards, Stored};

use crate::engine::Engine;
use crate::error::Error;
use crate::register::{due, end_of_pause, first_slot, spread};

/// An overdue entry older than this many slots is found by asking for more of them, not by guessing.
const CANDIDATES_MAX: usize = 10_000;

impl Engine {
    /// Where the job's due entry may be if its slot has come but was not fired yet: its slots up to now, from when
    /// the oldest entry of the store is due, and the one that it owes from before its last change.
    pub(crate) fn unfired_candidates(
        &self,
        job: &Job,
        oldest: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Vec<Due>, Error> {
        let timetable = self.timetables.of(job)?;
        let spread = spread(&timetable);
        let mut slots = Vec::new();
        let last = || timetable.previous_before(now + SignedDuration::from_nanos(1));
        let mut slot = oldest.and_then(|_| last());
        while let Some(at) = slot.filter(|at| oldest.is_some_and(|oldest| *at + spread >= oldest)) {
            slots.push(due(job, &timetable, at));
            if slots.len() == CANDIDATES_MAX {
                break;
            }
            slot = timetable.previous_before(at);
        }
        if let Some(Carried { at, slot }) = job.carried {
            let key = DueKey { at, lane: job.spec.lane, tenant: job.tenant, job: job.id };
            slots.push(Due { key, version: job.version, slot });
        }
        slots.sort_unstable_by_key(|due| due.key);
        slots.dedup();
        Ok(slots)
    }

    /// The first of some entries that is there; those before it are dropped.
    pub(crate) async fn first_due(&self, candidates: &mut Vec<Due>) -> Result<Option<Due>, Error> {
        if candidates.is_empty() {
            return Ok(None);
        }
        let is_due = self.store.is_due(candidates).await?;
        let Some(first) = is_due.into_iter().position(|is_due| is_due) else { return Ok(None) };
        candidates.drain(..first);
        Ok(candidates.first().copied())
    }

    /// When the oldest entry of the store is due, if that is not after `until`.
    pub(crate) async fn oldest_due(&self, until: Timestamp) -> Result<Option<Timestamp>, Error> {
        let query = DueQuery { shards: Shards::All, after: None, until, limit: 1 };
        Ok(self.store.due(query).await?.entries.first().map(|entry| entry.key.at))
    }

    /// Where the entry of a job may be that is not at a slot of its schedule's own: at the end of its pause, or a period after
    /// its last run, its last change or its registration.
    pub(crate) fn other_candidates(&self, old: &Stored) -> Result<Vec<Due>, Error> {
        let job = &*old.job;
        if !job.is_active() {
            return Ok(end_of_pause(job).into_iter().collect());
        }
        let timetable = self.timetables.of(job)?;
        let progress = old.progress;
        let since_change =
            Progress { last_completion: progress.last_completion.or(Some(job.updated_at)), ..progress };
        let slots = [
            progress.last_completion.and_then(|completed| timetable.next_given(completed, progress)),
            timetable.next_given(job.updated_at, since_change),
            first_slot(job, &timetable, job.created_at).ok(),
        ];
        Ok(slots.into_iter().flatten().map(|slot| due(job, &timetable, slot)).collect())
    }
}
