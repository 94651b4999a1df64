//! What happens for one cause: a slot, a trigger, a backfill.
//!
//! A run's identity is (job, cause, slot, part). Its state changes only in [`crate::lifecycle`].

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::id::{JobId, RunId, Sequence, TenantId, Version, WorkerId};
use crate::job::{Job, Lane};
use crate::key::IdempotencyKey;
use crate::labels::Labels;
use crate::policy::limit::{Limited, Limits};
use crate::policy::retention::Retention;
use crate::policy::timeouts;

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its place in the order of births, which its public id carries.
    pub sequence: Sequence,
    /// Whose slot it is.
    pub job: JobId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The version of the job it was fired with.
    pub version: Version,
    /// Why it exists.
    pub cause: Cause,
    /// Its nominal time.
    pub scheduled_for: Timestamp,
    /// Which part of a broadcast or sharded run; 0 for a whole one.
    pub part: u32,
    /// Where it stands.
    pub state: RunState,
    /// When it may be claimed: its slot and spread, or its next retry.
    pub available_at: Timestamp,
    /// Until when its next attempt may start, if there is a limit.
    pub start_by: Option<StartBy>,
    /// The number of the last attempt; 0 before the first.
    pub attempt: u32,
    /// Attempts that count against `max_attempts`.
    pub charged: u32,
    /// Attempts whose worker was lost, which have their own cap.
    pub lost: u32,
    /// The job's type, which groups jobs.
    pub kind: Option<Arc<str>>,
    /// Who executes.
    pub queue: Arc<str>,
    /// What it requires of the worker that executes it.
    pub requires: Labels,
    /// How long its history is kept.
    pub retention: Retention,
    /// How urgent, coarsely.
    pub lane: Lane,
    /// How urgent inside tenant and lane.
    pub priority: i16,
    /// When its first attempt started, by the worker's clock.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// The limit that ended it, if one did.
    pub reason: Option<Limit>,
    /// When somebody last asked for more attempts: its age counts from there.
    pub redriven_at: Option<Timestamp>,
    /// When its turn came, for what somebody asked for long after its slot: a backfill, or a redriven run that waited for
    /// an earlier one. Its age counts from there.
    pub turn_at: Option<Timestamp>,
    /// Somebody asked it to stop while it was running.
    pub is_cancel_requested: bool,
    /// The limits whose gates it passes before it may be claimed.
    pub limits: Limits,
    /// How many of them it has passed: it holds the permits of these.
    pub passed: u8,
    /// Follows it through logs and callbacks.
    pub correlation_id: Option<Arc<str>>,
}

/// Why a run exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A slot of the schedule.
    Schedule,
    /// Somebody asked for it.
    Trigger,
    /// A slot of the past, asked for.
    Backfill,
    /// An item of a batch.
    Batch,
    /// Another job's end.
    Link,
}

impl Cause {
    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Schedule => "schedule",
            Cause::Trigger => "trigger",
            Cause::Backfill => "backfill",
            Cause::Batch => "batch",
            Cause::Link => "link",
        }
    }
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Waiting.
    Pending(WaitingFor),
    /// An attempt holds a lease.
    Running(Lease),
    /// Ended well.
    Succeeded,
    /// Ended badly, after its last attempt.
    Failed,
    /// Ended because it took too long, after its last attempt.
    TimedOut,
    /// Ended because somebody asked.
    Cancelled,
    /// Ended without having started, because it is too late for that.
    Missed,
}

/// Until when the next attempt of a run may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartBy {
    /// At the latest then.
    pub at: Timestamp,
    /// What is over after that.
    pub limit: Limit,
}

/// A limit of time after which a run goes on no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// How late its first attempt may start.
    StartWindow,
    /// How late another attempt may start.
    RetryFor,
    /// How long all of it may take.
    Deadline,
}

impl Limit {
    /// All limits.
    pub const ALL: [Limit; 3] = [Limit::StartWindow, Limit::RetryFor, Limit::Deadline];

    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Limit::StartWindow => "start_window",
            Limit::RetryFor => "retry_for",
            Limit::Deadline => "deadline",
        }
    }
}

/// What a pending run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingFor {
    /// Its time.
    Time,
    /// A worker with room.
    Capacity,
    /// Its next attempt.
    Retry,
    /// An earlier run of its job, with which it must not overlap.
    EarlierRun,
    /// A permit or a token, in the line of one of its limits.
    Limit,
}

/// A worker's time-limited claim on an attempt. Worker and attempt together are the fencing token:
/// a worker's id is new at every start, so no two leases of a run are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub worker: WorkerId,
    /// The attempt it is for.
    pub attempt: u32,
    /// When it was claimed, by the store's clock.
    pub claimed_at: Timestamp,
}

impl RunState {
    /// The word, as in the API.
    pub fn as_str(&self) -> &'static str {
        match self {
            RunState::Pending(_) => "pending",
            RunState::Running(_) => "running",
            RunState::Succeeded => "succeeded",
            RunState::Failed => "failed",
            RunState::TimedOut => "timed_out",
            RunState::Cancelled => "cancelled",
            RunState::Missed => "missed",
        }
    }

    /// Whether nothing more happens by itself.
    pub fn is_ended(&self) -> bool {
        match self {
            RunState::Pending(_) | RunState::Running(_) => false,
            RunState::Succeeded
            | RunState::Failed
            | RunState::TimedOut
            | RunState::Cancelled
            | RunState::Missed => true,
        }
    }

    /// Whether it ended badly for good: a dead letter until redriven or acknowledged.
    pub fn is_dead(&self) -> bool {
        match self {
            RunState::Failed | RunState::TimedOut => true,
            RunState::Pending(_)
            | RunState::Running(_)
            | RunState::Succeeded
            | RunState::Cancelled
            | RunState::Missed => false,
        }
    }
}

impl WaitingFor {
    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            WaitingFor::Time => "time",
            WaitingFor::Capacity => "capacity",
            WaitingFor::Retry => "retry",
            WaitingFor::EarlierRun => "earlier_run",
            WaitingFor::Limit => "limit",
        }
    }
}

impl Run {
    /// Whether it waits for an earlier run of its job.
    pub fn is_behind(&self) -> bool {
        self.state == RunState::Pending(WaitingFor::EarlierRun)
    }

    /// Whether it waits in the line of one of its limits.
    pub fn is_limited(&self) -> bool {
        self.state == RunState::Pending(WaitingFor::Limit)
    }

    /// Whether it has passed the gates of all its limits.
    pub fn has_passed(&self) -> bool {
        usize::from(self.passed) == self.limits.len()
    }

    /// The first limit whose gate it has not passed.
    pub fn next_limit(&self) -> Option<&Limited> {
        self.limits.all().get(usize::from(self.passed))
    }

    /// The limits of which it holds a permit.
    pub fn permits(&self) -> impl Iterator<Item = &Limited> {
        self.limits.permits(self.passed)
    }

    /// Its public id.
    pub fn id(&self) -> RunId {
        RunId::new(self.sequence, self.job.shard())
    }

    /// What receivers recognise repeated deliveries by.
    pub fn idempotency_key(&self) -> IdempotencyKey {
        IdempotencyKey::new(self.job, self.cause, self.scheduled_for, self.part)
    }

    /// The lease of the running attempt.
    pub fn lease(&self) -> Option<Lease> {
        match self.state {
            RunState::Running(lease) => Some(lease),
            _ => None,
        }
    }

    /// When it lapses unless it is claimed before: while it waits, if there is a limit.
    pub fn lapses_after(&self) -> Option<Timestamp> {
        match self.state {
            // Its time begins with its turn.
            RunState::Pending(WaitingFor::EarlierRun | WaitingFor::Limit) if self.turn_at.is_some() => None,
            RunState::Pending(_) => self.start_by.map(|by| by.at),
            _ => None,
        }
    }

    /// Whether it is too late for its next attempt to start.
    pub fn is_too_late(&self, now: Timestamp) -> bool {
        self.start_by.is_some_and(|by| by.at < now)
    }

    /// A waiting run follows an edit of its job, also to where it waits. What waits in the lane `batch`, as backfills do, stays in
    /// it. If its limits are others now, it has passed none of them.
    pub fn update(&mut self, job: &Job, limits: &Limits) {
        let spec = &job.spec;
        self.version = job.version;
        self.kind = spec.kind.as_deref().map(Arc::from);
        self.queue.clone_from(&spec.queue);
        self.requires.clone_from(&spec.requires);
        self.priority = spec.priority;
        if self.lane != Lane::Batch {
            self.lane = spec.lane;
        }
        self.start_by = timeouts::start_by(&job.spec.policies, self);
        if self.limits != *limits {
            self.limits = limits.clone();
            self.passed = 0;
            if self.is_limited() {
                self.state = RunState::Pending(WaitingFor::Capacity);
            }
        }
    }

    /// From when its age counts: its slot, or the last time somebody asked for more attempts, or its turn.
    pub fn counts_from(&self) -> Timestamp {
        self.redriven_at.max(self.turn_at).unwrap_or(self.scheduled_for)
    }

    /// Nobody is ahead of it any more. What somebody asked for has all of its time from here on; a slot has what is left.
    pub(crate) fn take_turn(&mut self, at: Timestamp) {
        if self.turn_at.is_none() && self.redriven_at.is_none() {
            return;
        }
        let turn_at = self.available_at.max(at);
        let waited = turn_at.duration_since(self.counts_from()).max(SignedDuration::ZERO);
        self.start_by =
            self.start_by.map(|by| StartBy { at: by.at.checked_add(waited).unwrap_or(by.at), ..by });
        self.turn_at = Some(turn_at);
    }

    /// How late its first attempt started after it was due, once it has started. Never negative.
    pub fn lateness(&self, due_at: Timestamp) -> Option<jiff::SignedDuration> {
        self.started_at.map(|started| started.duration_since(due_at).max(jiff::SignedDuration::ZERO))
    }
}
