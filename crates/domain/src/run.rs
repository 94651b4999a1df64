//! What happens for one cause: a slot, a trigger, a backfill.
//!
//! A run's identity is (job, cause, slot, part). Its state changes only in [`crate::lifecycle`].

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::id::{JobId, RunId, Sequence, TenantId, Version, WorkerId};
use crate::idempotency::IdempotencyKey;
use crate::job::{Job, Lane};
use crate::labels::Labels;
use crate::parts;
use crate::policy::limit::{Limited, Limits};
use crate::policy::retention::{Keep, Retention};
use crate::policy::retry::SUSPECT_FROM;
use crate::policy::timeouts;
use crate::receiver::Receiver;

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
    /// Keeps it apart from others of the same cause and time: which part of a job in parts it is, what was asked for in the same
    /// moment; 0 for a slot's only run.
    pub part: u32,
    /// How many parts there are, of a job in parts.
    pub parts: Option<u32>,
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
    pub retention: Keep,
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
    /// What is sent instead of the job's payload, as JSON text; never parsed again.
    pub payload: Option<Arc<str>>,
    /// The end of another run that it was made for.
    pub caused_by: Option<CausedBy>,
}

/// The end of another run for which a run was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CausedBy {
    /// Which run ended.
    pub run: RunId,
    /// How many runs there are before it in the chain of links.
    pub depth: u16,
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
    /// Somebody to say what became of its last attempt.
    Answer,
}

/// When a run may be claimed that waits for an answer: so it stands where those stand whose time has not come, and nobody claims it.
/// A whole second, because stores keep milliseconds.
pub const NEVER: Timestamp = Timestamp::constant(253_402_207_200, 0);

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
            WaitingFor::Answer => "answer",
        }
    }
}

impl Run {
    /// An attempt was lost with its worker. It may be what its workers died of: then no worker has it together with another such run.
    pub(crate) fn lose(&mut self) {
        self.lost += 1;
        if self.lost >= SUSPECT_FROM {
            self.requires = self.requires.alone();
        }
    }

    /// Whether it waits for an earlier run of its job.
    pub fn is_behind(&self) -> bool {
        self.state == RunState::Pending(WaitingFor::EarlierRun)
    }

    /// Whether it waits in the line of one of its limits.
    pub fn is_limited(&self) -> bool {
        self.state == RunState::Pending(WaitingFor::Limit)
    }

    /// Whether it waits for somebody to say what became of its last attempt.
    pub fn is_asking(&self) -> bool {
        self.state == RunState::Pending(WaitingFor::Answer)
    }

    /// The name of the breaker in whose line it waits, if it does.
    pub fn waits_for_breaker(&self) -> Option<&str> {
        self.next_limit().filter(|_| self.is_limited())?.breaker()
    }

    /// It has these limits from now on, and comes to their gates anew when its time comes: it has passed none of them.
    pub fn limit_anew(&mut self, limits: &Limits) {
        self.limits = limits.clone();
        self.passed = 0;
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

    /// Which part it is, from 1, and of how many; nothing for a whole run.
    pub fn part_of(&self) -> Option<(u32, u32)> {
        self.parts.map(|of| (parts::number(self.part), of))
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

    /// Whether this worker holds this attempt of it.
    pub fn is_held(&self, worker: WorkerId, attempt: u32) -> bool {
        self.lease().is_some_and(|lease| (lease.worker, lease.attempt) == (worker, attempt))
    }

    /// Who reports its attempt, if that was answered and goes on.
    pub fn receiver(&self) -> Option<Receiver> {
        self.lease().and_then(|lease| lease.worker.receiver())
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

    /// The class of its history: while it is open, the one of its birth.
    pub fn class(&self) -> Retention {
        match self.state.is_ended() {
            true => self.retention.of(self.state),
            false => self.retention.at_birth(),
        }
    }

    /// A waiting run follows an edit of its job, also to where it waits. What waits in the lane `batch`, as backfills do, stays in
    /// it. If its limits are others now, it has passed none of them.
    pub fn update(&mut self, job: &Job, limits: &Limits) {
        let spec = &job.spec;
        self.version = job.version;
        self.kind = spec.kind.as_deref().map(Arc::from);
        self.queue.clone_from(&spec.queue);
        self.requires = match self.requires.worker() {
            Some(worker) => spec.requires.of_worker(worker),
            None => spec.requires.clone(),
        };
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
