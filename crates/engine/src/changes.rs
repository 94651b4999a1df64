//! What a change of a job is: decided from the job as it was, done by [`crate::register`] and [`crate::bulk`].
//!
//! Promise: a change says what becomes of a slot that is due and not fired, and of the runs that are open; nothing is read or written here.

use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::batch::{self, Batch};
use punctual_domain::job::{Job, JobState, Pause, Spec};
use punctual_domain::ledger::Fate;
use punctual_domain::message;
use punctual_store::{CarryTo, OpenRuns};

use crate::error::Error;
use crate::register::Waiting;

/// A decided change of a job.
pub(crate) struct Change {
    pub(crate) job: Job,
    pub(crate) carry_to: CarryTo,
    pub(crate) open_runs: OpenRuns,
    /// Slots since then are skipped and accounted for.
    pub(crate) skipped_since: Option<Timestamp>,
}

/// People neither make jobs of the system's own types nor change them.
pub(crate) fn check_type(old: Option<&Spec>, new: &Spec) -> Result<(), Error> {
    let is_reserved = |spec: &Spec| message::is_reserved(spec.kind.as_deref());
    match is_reserved(new) || old.is_some_and(is_reserved) {
        true => Err(Error::ReservedType),
        false => Ok(()),
    }
}

/// Another spec, unless it is the same.
pub(crate) fn edit(old: &Job, spec: Spec, waiting: Waiting, now: Timestamp) -> Result<Option<Change>, Error> {
    check_type(Some(&old.spec), &spec)?;
    // What a batch does is not edited: its items are those of all its runs.
    let spec = Spec { batch: old.spec.batch.clone(), ..spec.of(old.tenant) };
    if let Some((member, why)) = batch::conflict(&spec).filter(|_| spec.batch.is_some()) {
        return Err(Error::Edit(format!("`{member}`: {why}")));
    }
    Ok((old.spec != spec).then(|| Change {
        job: Job { spec, ..changed(old, now) },
        carry_to: CarryTo::Due,
        open_runs: match waiting {
            Waiting::Keep => OpenRuns::Keep,
            Waiting::Update => OpenRuns::Update,
        },
        skipped_since: None,
    }))
}

/// A pause, unless it is paused until then already.
pub(crate) fn stop(old: &Job, pause: &Pause, now: Timestamp) -> Result<Option<Change>, Error> {
    // The store counts in milliseconds.
    let until = pause.until.and_then(|until| Timestamp::from_millisecond(until.as_millisecond()).ok());
    match &old.state {
        JobState::Paused(current) if current.until == until => Ok(None),
        // It stays paused, to another time.
        JobState::Paused(current) => Ok(Some(Change {
            job: Job {
                state: JobState::Paused(Pause { since: current.since, until, ..pause.clone() }),
                ..changed(old, now)
            },
            carry_to: CarryTo::Nothing,
            open_runs: OpenRuns::Keep,
            skipped_since: None,
        })),
        JobState::Active => Ok(Some(Change {
            job: Job {
                state: JobState::Paused(Pause { since: now, until, ..pause.clone() }),
                ..changed(old, now)
            },
            carry_to: CarryTo::Ledger(Fate::SkippedPause),
            open_runs: OpenRuns::Keep,
            skipped_since: None,
        })),
        state => Err(Error::WrongState { state: state.as_str(), action: "paused" }),
    }
}

/// The end of a pause, unless it is not paused.
pub(crate) fn resume(old: &Job, now: Timestamp) -> Result<Option<Change>, Error> {
    match &old.state {
        JobState::Active => Ok(None),
        JobState::Paused(pause) => Ok(Some(resumed(old, pause, now))),
        state => Err(Error::WrongState { state: state.as_str(), action: "resumed" }),
    }
}

/// The same job, at another slot.
pub(crate) fn replanned(old: &Job, now: Timestamp) -> Change {
    Change { job: changed(old, now), carry_to: CarryTo::Due, open_runs: OpenRuns::Keep, skipped_since: None }
}

/// The end of a job.
pub(crate) fn delete(old: &Job, now: Timestamp) -> Change {
    Change {
        job: Job { state: JobState::Deleted, ..changed(old, now) },
        carry_to: CarryTo::Nothing,
        open_runs: OpenRuns::CancelPending,
        skipped_since: None,
    }
}

/// Nothing more is done of a batch, unless that is so already.
pub(crate) fn cancel_batch(old: &Job, now: Timestamp) -> Result<Option<Change>, Error> {
    let Some(batch) = old.spec.batch.as_deref().filter(|batch| batch.cancelled_at.is_none()) else {
        return Ok(None);
    };
    let batch = Some(Arc::new(Batch { cancelled_at: Some(now), ..batch.clone() }));
    Ok(Some(Change {
        job: Job { state: JobState::Ended, spec: Spec { batch, ..old.spec.clone() }, ..changed(old, now) },
        carry_to: CarryTo::Ledger(Fate::SkippedCancel),
        open_runs: OpenRuns::CancelPending,
        skipped_since: None,
    }))
}

/// A paused job goes on; its slots in between are skipped.
pub(crate) fn resumed(old: &Job, pause: &Pause, now: Timestamp) -> Change {
    Change {
        job: Job { state: JobState::Active, ..changed(old, now) },
        carry_to: CarryTo::Nothing,
        open_runs: OpenRuns::Keep,
        skipped_since: Some(pause.since),
    }
}

fn changed(old: &Job, now: Timestamp) -> Job {
    Job { version: old.version.next(), updated_at: now, ..old.clone() }
}
