//! Long work over many jobs or runs: what it does, how far it is, and how it ends.
//!
//! An operation is done in steps, and each step is saved together with the cursor behind it: whoever goes on, after a
//! crash or on another node, begins where the last step ended. Promise: only [`Operation::apply`] changes an operation,
//! every change counts its version up, and one that has ended changes no more.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use punctual_schedule::Schedule;

use crate::bulk::{CancelRuns, ChangeJobs, Left};
use crate::id::{JobId, OperationId, Sequence, ShardId, TenantId, Version};
use crate::policy::overlap::Overlap;

/// How long an ended operation can be read.
pub const KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Long work over many jobs or runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Its id, which also says the shard whose owner does the steps.
    pub id: OperationId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Counts its changes.
    pub version: Version,
    /// What it does.
    pub kind: Kind,
    /// Where it stands.
    pub state: State,
    /// Where the next step begins.
    pub cursor: Cursor,
    /// How many jobs or runs it has changed or made, or rows it has moved.
    pub done: u64,
    /// How many it could not change, because they had changed meanwhile or would not be valid; and slots that it did not
    /// run, because it was too late by then or because of overlap.
    pub failed: u64,
    /// The first that it could not change, and why, where that is told.
    pub example: Option<String>,
    /// What changed between the plan of the last step and its commit: it is tried again before the operation goes on.
    pub left: Vec<Left>,
    /// How often that was tried.
    pub tries: u8,
    /// How many there are to do, if that is known.
    pub total: Option<u64>,
    /// Why it failed, or was cancelled without being asked to.
    pub error: Option<String>,
    /// When the next step may be done.
    pub resume_at: Timestamp,
    /// When it was started.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// What an operation does, with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Lets dead runs go on.
    Redrive(DeadLetters),
    /// Takes runs out of the dead letters.
    Acknowledge(DeadLetters),
    /// Makes runs for the missed slots of a job.
    CatchUp(Box<CatchUp>),
    /// Makes runs for slots of the past that somebody asked for.
    Backfill(Box<Backfill>),
    /// Moves shards to another database.
    MoveShards(MoveShards),
    /// Changes all jobs of a filter.
    ChangeJobs(Box<ChangeJobs>),
    /// Ends waiting runs of a filter, and asks running ones to stop.
    CancelRuns(CancelRuns),
    /// Plans the jobs anew that use a calendar which was changed.
    Replan(Replan),
    /// Makes a run for each item of a slot of a batch, and tells when all of them have ended.
    Batch(BatchSlot),
}

impl Kind {
    /// The job whose slots it runs.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Kind::CatchUp(catch_up) => Some(catch_up.job),
            Kind::Backfill(backfill) => Some(backfill.job),
            Kind::Batch(slot) => Some(slot.job),
            Kind::Redrive(_)
            | Kind::Acknowledge(_)
            | Kind::MoveShards(_)
            | Kind::ChangeJobs(_)
            | Kind::CancelRuns(_)
            | Kind::Replan(_) => None,
        }
    }

    /// The word, as in the API.
    pub fn as_str(&self) -> &'static str {
        match self {
            Kind::Redrive(_) => "redrive",
            Kind::Acknowledge(_) => "acknowledge",
            Kind::CatchUp(_) => "catch_up",
            Kind::Backfill(_) => "backfill",
            Kind::MoveShards(_) => "move_shards",
            Kind::ChangeJobs(change) => change.change.as_str(),
            Kind::CancelRuns(_) => "cancel_runs",
            Kind::Replan(_) => "replan_jobs",
            Kind::Batch(_) => "batch",
        }
    }
}

/// Which dead letters of the tenant; what is not given does not narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetters {
    /// Of this job.
    pub job: Option<JobId>,
    /// Of this type of job.
    pub kind: Option<Arc<str>>,
    /// In this queue.
    pub queue: Option<Arc<str>>,
    /// Born at or after.
    pub born_from: Option<Timestamp>,
    /// Born before.
    pub born_before: Option<Timestamp>,
    /// The error of their last attempt has this code.
    pub error: Option<Arc<str>>,
    /// Their job has this label.
    pub label: Option<(String, String)>,
}

/// Which slots are caught up with: from the cursor on, as the schedule was when they were missed. An edit changes the
/// slots to come, not those that are owed.
#[derive(Clone, Debug, PartialEq)]
pub struct CatchUp {
    /// Of this job.
    pub job: JobId,
    /// Its schedule then.
    pub schedule: Schedule,
    /// The last slot.
    pub to: Timestamp,
    /// At most so many a second.
    pub rate: u32,
}

/// Which slots are run again, or for the first time: from the cursor on, as the schedule was when somebody asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Backfill {
    /// Of this job.
    pub job: JobId,
    /// Its schedule then.
    pub schedule: Schedule,
    /// Slots at or after.
    pub from: Timestamp,
    /// Slots before.
    pub to: Timestamp,
    /// At most so many a second.
    pub rate: u32,
    /// Instead of the job's own policy.
    pub overlap: Option<Overlap>,
    /// The part of all its runs: it tells them from those of other backfills of the same slots.
    pub part: u32,
}

/// Which shards go where; those that are there already stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveShards {
    /// The shards, ordered.
    pub shards: Vec<ShardId>,
    /// The number of the database.
    pub to: u8,
}

/// Which jobs of the tenant are planned anew: those that use a calendar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replan {
    /// Its name.
    pub calendar: String,
    /// Its version by which they are planned.
    pub version: u64,
}

/// Which slot of which batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSlot {
    /// The batch.
    pub job: JobId,
    /// The slot.
    pub slot: Timestamp,
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There are steps to do.
    Running,
    /// All is done.
    Succeeded,
    /// It cannot go on.
    Failed,
    /// Somebody asked it to stop, or what it worked on is gone.
    Cancelled,
}

impl State {
    /// All states, in the order of a life.
    pub const ALL: [State; 4] = [State::Running, State::Succeeded, State::Failed, State::Cancelled];

    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Succeeded => "succeeded",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
        }
    }
}

/// Where the next step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// At the beginning.
    Start,
    /// Below this run; runs are taken newest first.
    Run(Sequence),
    /// At this slot; slots are taken oldest first.
    Slot(Timestamp),
    /// After this job; jobs are taken oldest first.
    Job(JobId),
    /// At this item, by its place from 0; items are taken in their order.
    Item(u32),
}

/// What happens to an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A step was done, and there is more.
    Stepped {
        /// Where the next one begins.
        cursor: Cursor,
        /// When it may be done.
        resume_at: Timestamp,
    },
    /// The last step was done.
    Succeeded,
    /// It cannot go on.
    Failed {
        /// Why.
        error: String,
    },
    /// It goes on no more.
    Cancelled {
        /// Why, if nobody asked.
        reason: Option<String>,
    },
}

/// An operation that has ended takes no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operation has {}", state.as_str())]
pub struct HasEnded {
    /// How.
    pub state: State,
}

impl Operation {
    /// An operation that begins at once.
    pub fn new(id: OperationId, tenant: TenantId, kind: Kind, now: Timestamp) -> Self {
        Operation {
            id,
            tenant,
            version: Version::FIRST,
            kind,
            state: State::Running,
            cursor: Cursor::Start,
            done: 0,
            failed: 0,
            example: None,
            left: Vec::new(),
            tries: 0,
            total: None,
            error: None,
            resume_at: now,
            created_at: now,
            updated_at: now,
            finished_at: None,
        }
    }

    /// Whether there are steps to do.
    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    /// Changes it by an event, or refuses and changes nothing.
    pub fn apply(&mut self, event: Event, now: Timestamp) -> Result<(), HasEnded> {
        if !self.is_running() {
            return Err(HasEnded { state: self.state });
        }
        match event {
            Event::Stepped { cursor, resume_at } => {
                self.cursor = cursor;
                self.resume_at = resume_at;
            }
            Event::Succeeded => self.state = State::Succeeded,
            Event::Failed { error } => {
                self.state = State::Failed;
                self.error = Some(error);
            }
            Event::Cancelled { reason } => {
                self.state = State::Cancelled;
                self.error = reason;
            }
        }
        self.version = self.version.next();
        self.updated_at = now;
        self.finished_at = (!self.is_running()).then_some(now);
        Ok(())
    }

    /// Whether it may be forgotten.
    pub fn is_old(&self, now: Timestamp) -> bool {
        self.finished_at.is_some_and(|at| now.duration_since(at) > KEPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ShardId;
    use crate::lifecycle::tests::at;

    fn redrive() -> Operation {
        let id = OperationId::new(at(0), ShardId(3), 7);
        Operation::new(id, TenantId::DEFAULT, Kind::Redrive(DeadLetters::default()), at(0))
    }

    fn events() -> [Event; 4] {
        [
            Event::Stepped { cursor: Cursor::Slot(at(5)), resume_at: at(9) },
            Event::Succeeded,
            Event::Failed { error: "why".into() },
            Event::Cancelled { reason: None },
        ]
    }

    #[test]
    fn a_running_operation_goes_on_or_ends() {
        for (event, state) in events().into_iter().zip(State::ALL) {
            let mut operation = redrive();
            operation.apply(event, at(1)).expect("running");
            assert_eq!((operation.state, operation.version), (state, Version(2)));
            assert_eq!(operation.finished_at, (state != State::Running).then_some(at(1)));
            assert_eq!(operation.error.is_some(), state == State::Failed);
        }
        let mut operation = redrive();
        operation.apply(events()[0].clone(), at(1)).expect("running");
        assert_eq!((operation.cursor, operation.resume_at), (Cursor::Slot(at(5)), at(9)));
    }

    #[test]
    fn an_ended_operation_changes_no_more() {
        for end in &events()[1..] {
            let mut operation = redrive();
            operation.apply(end.clone(), at(1)).expect("running");
            let before = operation.clone();
            for event in events() {
                assert_eq!(operation.apply(event, at(2)), Err(HasEnded { state: before.state }));
                assert_eq!(operation, before);
            }
        }
    }

    #[test]
    fn only_ended_operations_become_old() {
        let mut operation = redrive();
        let later = at(0) + KEPT + SignedDuration::from_secs(2);
        assert!(!operation.is_old(later));
        operation.apply(Event::Succeeded, at(1)).expect("running");
        assert!(!operation.is_old(at(1) + KEPT));
        assert!(operation.is_old(later));
    }
}
