//! What the verbs take and give.

use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::audit;
use punctual_domain::bulk;
use punctual_domain::id::{Epoch, JobId, RunId, Sequence, ShardId, TenantId, Version, WorkerId};
use punctual_domain::job::{Job, JobState, Lane};
use punctual_domain::ledger::Fate;
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::operation::Operation;
use punctual_domain::parts;
use punctual_domain::policy::backlog::Cap;
use punctual_domain::policy::limit::{Limits, Rule};
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::policy::retention::{Keep, Retention};
use punctual_domain::run::{Cause, CausedBy, Run, RunState, StartBy, WaitingFor};
pub use punctual_domain::work::{Heartbeat, Held};
use punctual_domain::{Attempt, Labels, LedgerEntry};
use punctual_schedule::{Progress, Schedule};

pub use crate::documents::{DocumentChange, Expected};
pub use crate::ends::{Answering, Cancellation, Concluded, Conclusion, Lapse, Lapsed, Message, Successor};
use crate::error::{Error, Refused};
pub use crate::filters::{JobFilter, OperationFilter, RunFilter};
pub use crate::moves::{Home, MoveState, MoveStep, Moved};

/// A set of shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shards {
    /// Every shard.
    All,
    /// These, ordered.
    Some(Vec<ShardId>),
}

impl Shards {
    /// Whether a shard is among them.
    pub fn contains(&self, shard: ShardId) -> bool {
        match self {
            Shards::All => true,
            Shards::Some(shards) => shards.binary_search(&shard).is_ok(),
        }
    }
}

/// The due entry of a job: when its next slot is to be fired. A job has at most one that counts:
/// the one with its current version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Where it stands in the order of firing.
    pub key: DueKey,
    /// The version of the job it was made for; under another one it is stale.
    pub version: Version,
    /// The nominal time; `key.at` is later by the job's spread.
    pub slot: Timestamp,
}

impl Due {
    /// The same slot for the current version of its job.
    pub fn of(&self, job: &Job) -> Due {
        Due { key: DueKey { lane: job.spec.lane, ..self.key }, version: job.version, slot: self.slot }
    }
}

/// The account of slots that were due but not fired when their job changed.
pub fn ledger_entry(job: &Job, unfired: &[Due], fate: Fate, now: Timestamp) -> LedgerEntry {
    let (first, last) =
        (unfired.first().map_or(now, |due| due.slot), unfired.last().map_or(now, |due| due.slot));
    LedgerEntry {
        job: job.id,
        tenant: job.tenant,
        from: first,
        to: last,
        slots: unfired.len() as u64,
        fate,
        decided_at: now,
    }
}

/// The order of firing: time, then lane, then tenant, then job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DueKey {
    /// When to fire.
    pub at: Timestamp,
    /// Urgent ones first.
    pub lane: Lane,
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub job: JobId,
}

/// Which due entries to read.
#[derive(Clone, Debug)]
pub struct DueQuery {
    /// Of these shards.
    pub shards: Shards,
    /// After this one.
    pub after: Option<DueKey>,
    /// At or before this time.
    pub until: Timestamp,
    /// At most so many.
    pub limit: usize,
}

/// Due entries in order. Stale ones may be among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuePage {
    /// The entries.
    pub entries: Vec<Due>,
    /// When the first entry after these is due, whenever that is.
    pub next_at: Option<Timestamp>,
}

/// A new or changed job.
#[derive(Clone, Debug, PartialEq)]
pub struct Put {
    /// The job as it shall be, with its new version.
    pub job: Arc<Job>,
    /// What must be there now.
    pub expect: Expect,
    /// Its due entry: a slot, or the end of its pause. None if nothing is due.
    pub due: Option<Due>,
    /// When the due entry is taken.
    pub due_when: DueWhen,
    /// What happens to a slot of the old version that is due but not fired yet. Without it, that slot
    /// would be lost with the old entry.
    pub carry: Option<Carry>,
    /// Where the old version's entry is if no slot was fired since the change was decided: one of these must be
    /// there, or the new entry might be for a slot that has been fired meanwhile. It is taken away. None if that
    /// cannot be.
    pub unfired: Vec<Due>,
    /// A run in the same commit: `now` jobs.
    pub birth: Option<Birth>,
    /// What happens to its open runs.
    pub open_runs: OpenRuns,
    /// What limits its runs from now on, for those that take the new version.
    pub limits: Limits,
    /// Its runs may overlap from now on: those that wait for an earlier one go on.
    pub lets_overlap: bool,
    /// Slots that this change skips.
    pub ledger: Vec<LedgerEntry>,
    /// The `Idempotency-Key` of the request, remembered in the same commit.
    pub request: Option<Subject>,
    /// Who asked for it, for the audit: appended in the same commit.
    pub audit: Option<Box<audit::Entry>>,
}

impl Put {
    /// Whether its due entry is taken.
    pub fn is_wanted(&self, has_open_runs: bool) -> bool {
        match self.due_when {
            DueWhen::Always => true,
            DueWhen::Idle => !has_open_runs,
        }
    }

    /// Whether the job fires no more by itself, given the entry that was taken: it is deleted, or active and has none. What
    /// waits for a completion is over when that says so.
    pub fn is_over(&self, taken: Option<Due>, has_open_runs: bool) -> bool {
        match self.job.state {
            JobState::Deleted => true,
            // Its calendars may come to allow slots: then it is planned anew.
            JobState::Active if self.job.waits_for_calendars(0, self.job.updated_at) => false,
            JobState::Active | JobState::Ended => taken.is_none() && self.is_wanted(has_open_runs),
            JobState::Paused(_) => false,
        }
    }
}

/// When a put's due entry is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DueWhen {
    /// Always.
    #[default]
    Always,
    /// Only if the job has no open run: for periods from completion, whose next slot the end of a run brings.
    Idle,
}

/// A due slot must survive the change of its job: it is either fired before, or carried over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carry {
    /// Where the old version's entry may be: its slots up to now, oldest first. The first that is there
    /// is taken away; all from it on have not been fired.
    pub candidates: Vec<Due>,
    /// What becomes of them.
    pub to: CarryTo,
}

/// What becomes of slots that were due but not fired when their job changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarryTo {
    /// They are due under the new version, instead of the put's own due entry.
    Due,
    /// They are accounted for, and the put's own due entry stands.
    Ledger(Fate),
    /// Nothing: the job is deleted, or the entry was no slot but the end of a pause.
    Nothing,
}

/// What must be in the store for a put to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No such job, and its key is free.
    Absent,
    /// The job at this version.
    Version(Version),
}

/// What a change of a job does to its open runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenRuns {
    /// They keep the version they were fired with.
    Keep,
    /// Waiting ones are cancelled; running ones end by themselves.
    CancelPending,
    /// Waiting ones take the new version.
    Update,
}

/// A job as stored, with what firing has counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The job.
    pub job: Arc<Job>,
    /// Counted only for jobs that need it: a maximum of fires, or periods from completion.
    pub progress: Progress,
}

/// An active job with no more than what decides when and where it runs, for who looks at all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Which.
    pub job: JobId,
    /// Whose.
    pub tenant: TenantId,
    /// Its type.
    pub kind: Option<Arc<str>>,
    /// Where its runs go: see [`punctual_domain::Target::destination`].
    pub destination: Arc<str>,
    /// Who executes them.
    pub queue: Arc<str>,
    /// When. Jobs of one page that say the same share it.
    pub schedule: Arc<Schedule>,
    /// When it was first registered.
    pub registered_at: Timestamp,
    /// How many slots have fired; counted only where the schedule has a maximum.
    pub fired: u64,
}

/// A remembered request: the client's `Idempotency-Key` and what it was for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Whose key.
    pub tenant: TenantId,
    /// The key.
    pub key: String,
    /// A hash of the route and the body: the same key with another is an error.
    pub fingerprint: [u8; 16],
    /// Forgotten after this.
    pub expires_at: Timestamp,
    /// What came of it, in the words of whoever asked for it to be remembered.
    pub result: String,
}

/// The birth of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Birth {
    /// Why.
    pub cause: Cause,
    /// Its nominal time.
    pub scheduled_for: Timestamp,
    /// Which part.
    pub part: u32,
    /// Of how many, of a job in parts.
    pub parts: Option<u32>,
    /// When it may be claimed.
    pub available_at: Timestamp,
    /// Until when it may start, if the job says.
    pub start_by: Option<StartBy>,
    /// The job's type.
    pub kind: Option<Arc<str>>,
    /// Who executes, as the job says.
    pub queue: Arc<str>,
    /// What it requires of the worker, as the job says.
    pub requires: Labels,
    /// How urgent, as the job says.
    pub lane: Lane,
    /// How urgent inside tenant and lane, as the job says.
    pub priority: i16,
    /// How long its history is kept, as the job says.
    pub retention: Keep,
    /// Its own correlation id, or the job's.
    pub correlation_id: Option<Arc<str>>,
    /// What is sent instead of the job's payload, as JSON text.
    pub payload: Option<Arc<str>>,
    /// The end of another run that it is made for.
    pub caused_by: Option<CausedBy>,
    /// Born running, leased to this worker: fire and claim in one write.
    pub claimed_by: Option<WorkerId>,
    /// What happens if other runs of the job are open.
    pub overlap: Overlap,
    /// The slot before it, with which it shares an entry of the ledger if both get no run.
    pub previous: Option<Timestamp>,
    /// What limits it.
    pub limits: Limits,
    /// By this cap no more runs may wait: it is born running, or not at all.
    pub full: Option<Cap>,
}

impl Birth {
    /// The run that is born, and its first attempt if it is born running; it has not passed its limits yet.
    pub fn into_run(self, of: Parent, sequence: Sequence, now: Timestamp) -> (Run, Vec<Attempt>) {
        let mut run = Run {
            sequence,
            job: of.job,
            tenant: of.tenant,
            version: of.version,
            cause: self.cause,
            scheduled_for: self.scheduled_for,
            part: self.part,
            parts: self.parts,
            state: RunState::Pending(match self.available_at > now {
                true => WaitingFor::Time,
                false => WaitingFor::Capacity,
            }),
            available_at: self.available_at,
            start_by: self.start_by,
            attempt: 0,
            charged: 0,
            lost: 0,
            kind: self.kind,
            queue: self.queue,
            requires: self.requires,
            retention: self.retention,
            lane: self.lane,
            priority: self.priority,
            started_at: None,
            finished_at: None,
            reason: None,
            redriven_at: None,
            // A slot of the past is not late: its time begins when it may run.
            turn_at: (self.cause == Cause::Backfill).then_some(self.available_at.max(now)),
            is_cancel_requested: false,
            limits: self.limits,
            passed: 0,
            correlation_id: self.correlation_id,
            payload: self.payload,
            caused_by: self.caused_by,
        };
        let mut attempts = Vec::new();
        // One that has limits is claimed when it has passed them.
        if let Some(worker) = self.claimed_by {
            attempts.extend(claim_born(&mut run, worker, now));
        }
        (run, attempts)
    }
}

/// Leases a run to a worker in the commit that gives birth to it, if it may be claimed.
pub fn claim_born(run: &mut Run, worker: WorkerId, now: Timestamp) -> Option<Attempt> {
    lifecycle::apply(run, Event::Claimed { worker, at: now }).ok()?;
    Some(Attempt { number: run.attempt, worker, claimed_at: now, report: None })
}

/// Whose run it is, in which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The job.
    pub job: JobId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its version.
    pub version: Version,
}

impl From<&Job> for Parent {
    fn from(job: &Job) -> Self {
        Parent { job: job.id, tenant: job.tenant, version: job.version }
    }
}

/// Fires a due entry: births and ledger entries come to be and the entry moves on, or nothing.
#[derive(Clone, Debug)]
pub struct Firing {
    /// The entry, exactly as it was read.
    pub due: Due,
    /// The epoch under which the shard is owned.
    pub epoch: Epoch,
    /// The runs; none if the slot is only accounted for.
    pub births: Vec<Birth>,
    /// Slots that do not run.
    pub ledger: Vec<LedgerEntry>,
    /// The entry that follows; none if the schedule ends here or waits for a completion.
    pub next: Option<Due>,
    /// If the schedule ends here: how long the job is kept.
    pub over: Option<Retention>,
    /// What has been counted now, for jobs that need it.
    pub progress: Option<Progress>,
    /// A new operation that makes runs for slots which this firing passes over.
    pub operation: Option<Operation>,
    /// What follows if overlap or a cap leaves the slot without a run, where that is something else.
    pub otherwise: Option<Otherwise>,
}

/// What follows a slot that gets no run, for jobs that count their fires: it is not one of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Otherwise {
    /// As [`Firing::next`].
    pub next: Option<Due>,
    /// As [`Firing::over`].
    pub over: Option<Retention>,
}

impl Firing {
    /// Whose runs are born.
    pub fn parent(&self) -> Parent {
        Parent { job: self.due.key.job, tenant: self.due.key.tenant, version: self.due.version }
    }

    /// The same if its slot is left without a run.
    pub fn without_run(self) -> Firing {
        match self.otherwise {
            Some(Otherwise { next, over }) => Firing { next, over, progress: None, ..self },
            None => self,
        }
    }
}

/// Asks for a run outside the schedule.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// Of this job.
    pub job: JobId,
    /// In this version.
    pub version: Version,
    /// The run.
    pub birth: Birth,
    /// The job is over: it is kept as long as this run.
    pub is_over: bool,
    /// The `Idempotency-Key` of the request.
    pub request: Option<Subject>,
    /// Who asked for it, for the audit: appended in the same commit.
    pub audit: Option<Box<audit::Entry>>,
}

impl Trigger {
    /// Whether it is another part of what that one asks for: if that one is refused, so is this.
    pub fn goes_with(&self, other: &Trigger) -> bool {
        let (one, two) = (&self.birth, &other.birth);
        self.job == other.job
            && one.parts.is_some()
            && one.parts == two.parts
            && one.scheduled_for == two.scheduled_for
            && parts::are_together(one.part, two.part)
    }
}

/// Does each of these; where one is refused, those that go with it are refused for the same reason.
pub fn together(
    triggers: Vec<Trigger>,
    mut give: impl FnMut(Trigger) -> Result<Result<Run, Refused>, Error>,
) -> Result<Vec<Result<Run, Refused>>, Error> {
    let mut answers = Vec::with_capacity(triggers.len());
    let mut refused: Option<(Trigger, Refused)> = None;
    for trigger in triggers {
        if let Some((first, why)) = &refused
            && trigger.goes_with(first)
        {
            answers.push(Err(why.clone()));
            continue;
        }
        let answer = give(trigger.clone())?;
        refused = answer.as_ref().err().map(|why| (trigger, why.clone()));
        answers.push(answer);
    }
    Ok(answers)
}

/// A worker with room.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Who.
    pub worker: WorkerId,
    /// Queues it serves; empty for all.
    pub queues: Vec<Arc<str>>,
    /// What it has, for runs that require it.
    pub labels: Labels,
    /// Shards to look in.
    pub shards: Shards,
    /// At most so many runs.
    pub limit: usize,
}

impl Claim {
    /// Whether it may take a run.
    pub fn takes(&self, run: &Run) -> bool {
        self.shards.contains(run.job.shard()) && self.serves(&run.queue) && self.labels.meet(&run.requires)
    }

    /// Whether it takes nothing that anybody may take: it is for those who pull, or for what is tried alone.
    pub fn is_apart(&self) -> bool {
        self.labels.are_pulling() || self.labels.are_alone()
    }

    /// Whether it serves a queue.
    pub fn serves(&self, queue: &str) -> bool {
        self.queues.is_empty() || self.queues.iter().any(|served| **served == *queue)
    }
}

/// A rule of an administrator is set, or taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleChange {
    /// Its name.
    pub name: Arc<str>,
    /// As it shall be; none to take it away.
    pub rule: Option<Rule>,
}

/// Runs that went on through the gates of their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advanced {
    /// How many.
    pub runs: u64,
    /// When the first of the lines goes on that wait for a time.
    pub next_at: Option<Timestamp>,
}

/// A step of an operation: saved with what it does, or nothing.
///
/// Refused with `StaleStep` unless the operation is running at the version before, or is not there for a first
/// version; with `StaleEpoch` if an epoch is given that is not its shard's.
#[derive(Clone, Debug)]
pub struct Step {
    /// The operation as it shall be, with its new version. What the effect does is added to its counts and to what is left.
    pub operation: Operation,
    /// The epoch under which its shard is owned; none for starting and cancelling, which anybody may.
    pub epoch: Option<Epoch>,
    /// What is done.
    pub effect: Effect,
    /// Slots that do not run.
    pub ledger: Vec<LedgerEntry>,
    /// The `Idempotency-Key` of the request that starts it.
    pub request: Option<Subject>,
    /// Who asked for it, for the audit: appended in the same commit.
    pub audit: Option<Box<audit::Entry>>,
}

/// What a step does besides being saved.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// What [`crate::Store::redrive`] does, each run for itself.
    Redrive(Vec<RunId>),
    /// What [`crate::Store::acknowledge`] does, each run for itself.
    Acknowledge(Vec<RunId>),
    /// Runs of a job. Refused with `NoJob` or `WrongVersion` unless the job is there at this version, in whatever state;
    /// with `Overlap` if the line in which they would wait has not room for all of them.
    Births {
        /// The job.
        job: JobId,
        /// Its version.
        version: Version,
        /// The runs.
        births: Vec<Birth>,
        /// The job is over: it is kept as long as these runs.
        is_over: bool,
    },
    /// What [`crate::Store::put_jobs`] does, each job for itself. Those that were changed or fired since are added to what
    /// the operation has [`left`](Operation::left); those that are gone by now are passed over.
    Change(Vec<Put>),
    /// A new job that tells what the operation has done, with its run. It is in the operation's shard; one that is there already
    /// is left as it is. It is none of what the operation counts.
    Message(Box<Put>),
    /// What [`crate::Store::cancel`] does, each run for itself. Those whose jobs were changed since are added to what the
    /// operation has [`left`](Operation::left).
    Cancel(Vec<Cancellation>),
}

impl Effect {
    /// Adds what came of a change of jobs to the operation's counts.
    pub fn count_changes<'a, T: 'a>(
        operation: &mut Operation,
        changes: impl IntoIterator<Item = (JobId, &'a Result<T, Refused>)>,
    ) {
        for (job, answer) in changes {
            match answer {
                Ok(_) => operation.done += 1,
                Err(Refused::NoJob) => {}
                Err(_) => operation.left.push(bulk::Left::Job(job)),
            }
        }
    }

    /// Adds what came of cancellations to the operation's counts. Returns the runs.
    pub fn count_cancelled(
        operation: &mut Operation,
        cancelled: impl IntoIterator<Item = (RunId, Result<Run, Refused>)>,
    ) -> Vec<Run> {
        let mut runs = Vec::new();
        for (id, answer) in cancelled {
            match answer {
                Ok(run) => {
                    operation.done += 1;
                    runs.push(run);
                }
                Err(Refused::WrongVersion { .. } | Refused::NoJob | Refused::Elsewhere) => {
                    operation.left.push(bulk::Left::Run(id));
                }
                Err(_) => operation.failed += 1, // It had ended.
            }
        }
        runs
    }
}

/// What a step did.
#[derive(Clone, Debug, PartialEq)]
pub struct Stepped {
    /// The operation as saved.
    pub operation: Operation,
    /// The runs that go on, were made or were cancelled.
    pub runs: Vec<Run>,
}

/// Operations to go on with.
#[derive(Clone, Debug, PartialEq)]
pub struct Runnable {
    /// The operations.
    pub operations: Vec<Operation>,
    /// When the first of the others may go on, whenever that is.
    pub next_at: Option<Timestamp>,
}
