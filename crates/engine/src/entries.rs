//! Where a job's due entry is: it is kept by time, and found by what the job's schedule says.

use jiff::{SignedDuration, Timestamp};
use punctual_domain::job::{Carried, Job};
use punctual_schedule::{Progress, Timetable};
use punctual_store::{Due, DueKey, DueQuery, Shards, Stored};

use crate::engine::Engine;
use crate::error::Error;
use crate::fire::counts_from_completion;
use crate::register::{due, end_of_pause, first_slot, spread};

/// An overdue entry older than this many slots is found by asking for more of them, not by guessing.
const CANDIDATES_MAX: usize = 10_000;

/// By calendars that were changed since, an entry is looked for among so many slots.
const OVERDUE_MAX: usize = 100;

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
        // A slot that was carried over with a spread is due after slots that follow it, which are owed as well while it is.
        let is_owed = |carried: &Carried| oldest.map_or(carried.at > now, |oldest| carried.at >= oldest);
        let owed = job.carried.filter(is_owed).map(|carried| carried.slot);
        let oldest = oldest.into_iter().chain(owed).min();
        let mut slots = overdue(job, &timetable, oldest, now, CANDIDATES_MAX);
        if let Some(Carried { at, slot }) = job.carried {
            let key = DueKey { at, lane: job.spec.lane, tenant: job.tenant, job: job.id };
            slots.push(Due { key, version: job.version, slot });
        }
        slots.sort_unstable_by_key(|due| (due.slot, due.key));
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
        let states = self.timetables.states(job)?;
        Ok(states.iter().flat_map(|timetable| since_completion(old, timetable)).collect())
    }

    /// Where the entry of an active job belongs by its calendars, and where it may be because they were changed since it was planned.
    pub(crate) fn places(
        &self,
        old: &Stored,
        oldest: Option<Timestamp>,
        from: Timestamp,
        now: Timestamp,
    ) -> Result<Places, Error> {
        let job = &*old.job;
        let by = |timetable: &Timetable| -> Vec<Due> {
            if counts_from_completion(job) {
                return since_completion(old, timetable);
            }
            let mut places = overdue(job, timetable, oldest, now, OVERDUE_MAX);
            places.extend(timetable.next_given(from, old.progress).map(|slot| due(job, timetable, slot)));
            places
        };
        let states = self.timetables.states(job)?;
        let mut places = states.iter().map(|timetable| by(timetable));
        let mut belongs = places.next().unwrap_or_default();
        if let Some(Carried { at, slot }) = job.carried {
            let key = DueKey { at, lane: job.spec.lane, tenant: job.tenant, job: job.id };
            belongs.push(Due { key, version: job.version, slot });
        }
        let mut may_be: Vec<Due> = places.flatten().filter(|entry| !belongs.contains(entry)).collect();
        may_be.sort_unstable_by_key(|entry| entry.key);
        may_be.dedup();
        Ok(Places { belongs, may_be })
    }

    /// The entry of a job whose calendars may have been changed since it was planned, if it has one.
    pub(crate) async fn planned_entry(
        &self,
        old: &Stored,
        oldest: Option<Timestamp>,
        from: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Due>, Error> {
        let Places { mut belongs, may_be } = self.places(old, oldest, from, now)?;
        belongs.extend(may_be);
        self.first_due(&mut belongs).await
    }
}

/// Where an entry is looked for.
pub(crate) struct Places {
    /// Where it belongs.
    pub(crate) belongs: Vec<Due>,
    /// Where it may be besides.
    pub(crate) may_be: Vec<Due>,
}

/// The newest slots up to now, from when the oldest entry of the store is due.
fn overdue(
    job: &Job,
    timetable: &Timetable,
    oldest: Option<Timestamp>,
    now: Timestamp,
    most: usize,
) -> Vec<Due> {
    let spread = spread(timetable);
    let mut slots = Vec::new();
    let last = || timetable.previous_before(now + SignedDuration::from_nanos(1));
    let mut slot = oldest.and_then(|_| last());
    while let Some(at) = slot.filter(|at| oldest.is_some_and(|oldest| *at + spread >= oldest)) {
        slots.push(due(job, timetable, at));
        if slots.len() == most {
            break;
        }
        slot = timetable.previous_before(at);
    }
    slots
}

/// A period after the last run of a job, its last change or its registration.
fn since_completion(old: &Stored, timetable: &Timetable) -> Vec<Due> {
    let (job, progress) = (&*old.job, old.progress);
    let since_change =
        Progress { last_completion: progress.last_completion.or(Some(job.updated_at)), ..progress };
    let slots = [
        progress.last_completion.and_then(|completed| timetable.next_given(completed, progress)),
        timetable.next_given(job.updated_at, since_change),
        first_slot(job, timetable, job.created_at).ok(),
    ];
    slots.into_iter().flatten().map(|slot| due(job, timetable, slot)).collect()
}
