//! Runs operations: long work over many jobs or runs, in bounded steps.
//!
//! Runs on the node that owns the operation's shard, when one is started and when its next step may be done. Promise: a
//! step is done once, whoever races or crashes, because the store takes it only after the one before and commits it
//! with what it does; operations take turns; cancelling takes effect between two steps; slots that are due go first.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{Epoch, JobId, OperationId, RunId, ShardId, TenantId};
use punctual_domain::job::{Job, JobState, Lane, Spec};
use punctual_domain::ledger::{Fate, LedgerEntry};
use punctual_domain::operation::{
    Backfill, CatchUp, Cursor, DeadLetters, Event, Kind, MoveShards, Operation,
};
use punctual_domain::parts;
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::policy::timeouts;
use punctual_domain::run::{Cause, Run, RunState, StartBy};
use punctual_schedule::Schedule;
use punctual_store::{
    Birth, Due, Effect, MoveState, MoveStep, PageRequest, Refused, RunFilter, Step, Stepped, Subject,
};
use tokio::sync::watch;

pub use punctual_store::{OperationFilter, Page};

use crate::backlog::Intake;
use crate::batches;
use crate::bulk;
use crate::dead_letters::DeadFilter;
use crate::engine::Engine;
use crate::error::Error;
use crate::fire::{Epochs, account, birth, slot_before};
use crate::pass::{Duty, Next};
use crate::register::{busy, is_out_of_slots, spread};

/// Operations that take their turn in one pass.
const TURNS_MAX: usize = 100;

/// Runs of one step: a few milliseconds of the store's time, which others wait for.
pub(crate) const STEP_MAX: usize = 250;

/// Runs of one pass, about: they share a commit.
const PASS_MAX: usize = 500;

/// The operation of a paused job looks this often whether it may go on.
pub(crate) const HELD_FOR: SignedDuration = SignedDuration::from_secs(10);

/// While runs wait and no more may, of a job that lets them wait for each other or of a tenant, an operation looks this often
/// whether there is room.
pub(crate) const CROWDED_FOR: SignedDuration = SignedDuration::from_secs(1);

/// Another node may have started an operation, and its wake-up does not reach this one.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(5);

/// While firing is behind, operations wait so long before they look again.
const YIELD_FOR: SignedDuration = SignedDuration::from_millis(100);

/// They do not wait longer than this, or a busy node would never end one.
const YIELD_MAX: SignedDuration = SignedDuration::from_secs(5);

/// A cancellation that meets a step is tried again this often.
const TRIES: usize = 20;

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operated {
    /// Steps that were done.
    pub steps: usize,
    /// When there is a step to do again, as far as this pass knows.
    pub next_at: Option<Timestamp>,
}

// What people ask for.
impl Engine {
    /// Starts an operation. Its request is remembered in the same commit, as `answer` leaves it.
    pub async fn start_operation(
        &self,
        tenant: TenantId,
        kind: Kind,
        request: Option<Subject>,
        answer: impl FnOnce(&Operation, &mut Subject) + Send,
    ) -> Result<Operation, Error> {
        let now = self.clock.now();
        let shards = self.store.shard_count();
        // The same request goes to the same shard, where it is known to have been made.
        let shard = match &request {
            Some(request) => ShardId::of(tenant, &request.key, shards),
            None => ShardId((self.entropy.bits() % u64::from(shards)) as u16),
        };
        let id = OperationId::new(now, shard, self.entropy.bits());
        self.start(Operation::new(id, tenant, kind, now), request, answer).await
    }

    /// Starts an operation that begins now, where its id says.
    pub(crate) async fn start(
        &self,
        operation: Operation,
        mut request: Option<Subject>,
        answer: impl FnOnce(&Operation, &mut Subject) + Send,
    ) -> Result<Operation, Error> {
        let (now, id, tenant) = (operation.created_at, operation.id, operation.tenant);
        if let Some(request) = &mut request {
            answer(&operation, request);
        }
        let key = request.as_ref().map(|request| request.key.clone());
        // That of a change of a calendar tells of it.
        let audit = match operation.kind {
            Kind::Replan(_) => None,
            _ => self.audited_operation("start", None, &operation, now),
        };
        let step =
            Step { operation, epoch: None, effect: Effect::Nothing, ledger: Vec::new(), request, audit };
        match self.heard(self.store.step(vec![step], now)).await?.into_iter().next() {
            Some(Ok(stepped)) => {
                tracing::info!(operation_id = %id, kind = stepped.operation.kind.as_str(), "operation started");
                self.wakes.operations.notify_one();
                Ok(stepped.operation)
            }
            Some(Err(Refused::Repeated)) => {
                let known = self.store.request(tenant, &key.unwrap_or_default(), now).await?;
                Err(known.map_or_else(busy, |known| Error::Repeated(Box::new(known))))
            }
            _ => Err(busy()),
        }
    }

    /// An operation of a tenant.
    pub async fn operation(&self, tenant: TenantId, id: OperationId) -> Result<Operation, Error> {
        let found = self.store.operation(id).await?.filter(|operation| operation.tenant == tenant);
        found.ok_or_else(|| Error::OperationNotFound(id.to_string()))
    }

    /// Operations, newest first. A page may be empty and still have a next one.
    pub async fn operations(
        &self,
        filter: &OperationFilter,
        page: PageRequest<OperationId>,
    ) -> Result<Page<Operation, OperationId>, Error> {
        Ok(match self.store.lists() {
            Some(lists) => lists.operations(filter, page).await?,
            None => self.store.operations(filter, page).await?,
        })
    }

    /// Ends an operation between two steps. What it did stays done.
    pub async fn cancel_operation(&self, tenant: TenantId, id: OperationId) -> Result<Operation, Error> {
        for _ in 0..TRIES {
            let now = self.clock.now();
            let operation = self.operation(tenant, id).await?;
            let plan = Plan::end(&operation, Event::Cancelled { reason: None }, Fate::SkippedCancel, now);
            let Some(mut step) = plan.into_step(&operation, None, now) else {
                return Err(Error::OperationEnded { state: operation.state.as_str() });
            };
            step.audit = self.audited_operation("cancel", Some(&operation), &step.operation, now);
            match self.heard(self.store.step(vec![step], now)).await?.into_iter().next() {
                Some(Ok(stepped)) => {
                    tell_end(&stepped.operation);
                    return Ok(stepped.operation);
                }
                Some(Err(Refused::StaleStep)) => {} // It went on in between.
                _ => break,
            }
        }
        Err(busy())
    }
}

// The steps.
impl Engine {
    /// Does the next step of each operation that may go on, the longest waiting first.
    pub async fn operate(&self, epochs: &Epochs) -> Result<Operated, Error> {
        let now = self.clock.now();
        let found = self.store.runnable(&epochs.shards(self.store.shard_count()), now, TURNS_MAX).await?;
        let mut operated = Operated { steps: 0, next_at: found.next_at };
        let (mut steps, mut operations) = (Vec::new(), Vec::new());
        let (mut runs, mut intake) = (0, self.intake());
        for operation in found.operations {
            if runs >= PASS_MAX {
                operated.look_at(now);
                break;
            }
            let epoch = epochs.of(operation.id.shard());
            let plan = self.planned(&operation, epoch, STEP_MAX, &mut intake, now).await?;
            runs += plan.effect_runs();
            if let Some(step) = plan.into_step(&operation, Some(epoch), now) {
                operations.push(operation.clone());
                steps.push((operation, step));
            }
        }
        let dues: Vec<Due> = steps.iter().flat_map(|(_, step)| bulk::dues(&step.effect)).collect();
        let answers = self.submit(steps, epochs, now).await?;
        // Being told of one that was refused does no harm.
        self.wakes.offer(dues);
        for (operation, answer) in operations.into_iter().zip(answers) {
            let answer = match answer {
                // Runs of its job wait for each other, and there is not room for so many more.
                Err(Refused::Overlap { room }) => {
                    let epoch = epochs.of(operation.id.shard());
                    let plan = self.planned(&operation, epoch, room, &mut intake, now).await?;
                    let step = plan.into_step(&operation, Some(epoch), now);
                    let steps = step.into_iter().map(|step| (operation.clone(), step)).collect();
                    self.submit(steps, epochs, now).await?.into_iter().next()
                }
                answer => Some(answer),
            };
            match answer {
                Some(Ok(stepped)) => {
                    operated.steps += 1;
                    self.tell(&stepped);
                    self.end_stopped(&stepped.runs).await?;
                    if stepped.operation.is_running() {
                        operated.look_at(stepped.operation.resume_at);
                    }
                }
                // Somebody else went on with it, or has the shard by now.
                Some(Err(Refused::StaleStep | Refused::StaleEpoch)) | None => {}
                // Its job changed in between: the step is planned anew.
                Some(Err(_)) => operated.look_at(now),
            }
        }
        self.metrics.operation_steps.inc_by(operated.steps as u64);
        Ok(operated)
    }

    /// The next step of an operation; the end of one that cannot go on.
    async fn planned(
        &self,
        operation: &Operation,
        epoch: Epoch,
        limit: usize,
        intake: &mut Intake<'_>,
        now: Timestamp,
    ) -> Result<Plan, Error> {
        match self.plan_step(operation, epoch, limit, intake, now).await {
            Err(error) if !error.is_passing() => Ok(Plan::fail(operation, &error, now)),
            plan => plan,
        }
    }

    /// Does all steps in one commit. One that meets something damaged fails its operation, and not the others.
    async fn submit(
        &self,
        steps: Vec<(Operation, Step)>,
        epochs: &Epochs,
        now: Timestamp,
    ) -> Result<Vec<Result<Stepped, Refused>>, Error> {
        if steps.is_empty() {
            return Ok(Vec::new());
        }
        let all = steps.iter().map(|(_, step)| step.clone()).collect();
        match self.heard(self.store.step(all, now)).await {
            Err(error) if !error.is_passing() => {}
            answers => return answers,
        }
        let mut answers = Vec::with_capacity(steps.len());
        for (operation, step) in steps {
            let mut answer = self.heard(self.store.step(vec![step], now)).await;
            if let Err(error) = &answer
                && !error.is_passing()
            {
                let epoch = epochs.of(operation.id.shard());
                let failed = Plan::fail(&operation, error, now).into_step(&operation, Some(epoch), now);
                answer = self.heard(self.store.step(failed.into_iter().collect(), now)).await;
            }
            answers.extend(answer?);
        }
        Ok(answers)
    }

    /// Tells the loops and the log what a step did.
    fn tell(&self, stepped: &Stepped) {
        if stepped.operation.kind.job().is_some() {
            let is_born = |run: &&Run| matches!(run.state, RunState::Pending(_));
            self.metrics.fired.inc_by(stepped.runs.iter().filter(is_born).count() as u64);
        }
        if matches!(stepped.operation.kind, Kind::Batch(_)) && !stepped.operation.is_running() {
            self.told(true);
        }
        // A change of jobs may let waiting runs go to another queue, or lane, or go on.
        if !stepped.runs.is_empty() || matches!(stepped.operation.kind, Kind::ChangeJobs(_)) {
            self.wakes.claimable();
        }
        stepped.runs.iter().for_each(|run| self.note_limited(run));
        tell_end(&stepped.operation);
    }

    /// Decides the next step of an operation. `limit` is how many runs it may make.
    async fn plan_step(
        &self,
        operation: &Operation,
        epoch: Epoch,
        limit: usize,
        intake: &mut Intake<'_>,
        now: Timestamp,
    ) -> Result<Plan, Error> {
        match &operation.kind {
            Kind::Redrive(which) => {
                let Ok(room) = intake.some(operation.tenant, STEP_MAX as u64) else {
                    return Ok(Plan::hold(operation, now + CROWDED_FOR));
                };
                let (runs, event) = self.next_dead_letters(operation, which, room as usize, now).await?;
                Ok(Plan { effect: Effect::Redrive(runs), ..Plan::of(event) })
            }
            Kind::Acknowledge(which) => {
                let (runs, event) = self.next_dead_letters(operation, which, STEP_MAX, now).await?;
                Ok(Plan { effect: Effect::Acknowledge(runs), ..Plan::of(event) })
            }
            Kind::CatchUp(catch_up) => self.plan_slots(operation, catch_up.into(), limit, intake, now).await,
            Kind::Backfill(backfill) => self.plan_slots(operation, backfill.into(), limit, intake, now).await,
            Kind::MoveShards(which) => self.take_move_on(operation, which, epoch, now).await,
            Kind::ChangeJobs(asked) => self.plan_change(operation, asked, now).await,
            Kind::CancelRuns(which) => self.plan_cancel(operation, which, now).await,
            Kind::Replan(which) => self.plan_replan(operation, which, now).await,
            Kind::Batch(which) => self.plan_batch(operation, *which, intake, now).await,
        }
    }

    /// What a move does is done when the step is saved: it cannot be one commit, and may be done twice.
    async fn take_move_on(
        &self,
        operation: &Operation,
        which: &MoveShards,
        epoch: Epoch,
        now: Timestamp,
    ) -> Result<Plan, Error> {
        let step = MoveStep { operation: operation.id, epoch, shards: which.shards.clone(), to: which.to };
        let moved = self.store.move_shards(step).await?;
        let goes_on = |resume_at| Event::Stepped { cursor: Cursor::Start, resume_at };
        let event = match moved.state {
            MoveState::Moving => goes_on(now),
            MoveState::Waiting => goes_on(now + HELD_FOR),
            MoveState::Done => Event::Succeeded,
        };
        Ok(Plan { moved: moved.rows, ..Plan::of(event) })
    }

    /// From the newest down: a run that dies again meanwhile is above the cursor and is not met twice.
    async fn next_dead_letters(
        &self,
        operation: &Operation,
        which: &DeadLetters,
        limit: usize,
        now: Timestamp,
    ) -> Result<(Vec<RunId>, Event), Error> {
        let filter = RunFilter {
            tenant: Some(operation.tenant),
            job: which.job,
            kind: which.kind.clone(),
            queue: which.queue.clone(),
            is_dead: Some(true),
            born_from: which.born_from,
            born_before: which.born_before,
            ..RunFilter::default()
        };
        let after = match operation.cursor {
            Cursor::Run(sequence) => Some(sequence),
            Cursor::Start | Cursor::Slot(_) | Cursor::Job(_) | Cursor::Item(_) => None,
        };
        let narrow = DeadFilter { runs: filter, error: which.error.clone(), label: which.label.clone() };
        let page = self.store.runs(&narrow.runs, PageRequest { after, limit }).await?;
        let event = match page.next {
            Some(next) => Event::Stepped { cursor: Cursor::Run(next), resume_at: now },
            None => Event::Succeeded,
        };
        let runs = self.narrowed(page.items, &narrow).await?;
        Ok((runs.iter().map(Run::id).collect(), event))
    }

    /// The slots of about a second, as runs of the job as it is now. They are in the lane of what can wait: slots that are
    /// due go first.
    async fn plan_slots(
        &self,
        operation: &Operation,
        owed: Owed<'_>,
        limit: usize,
        intake: &mut Intake<'_>,
        now: Timestamp,
    ) -> Result<Plan, Error> {
        let Cursor::Slot(from) = operation.cursor else {
            let error = "it does not know at which slot to begin".into();
            return Ok(Plan::end(operation, Event::Failed { error }, Fate::MissedCatchUp, now));
        };
        let Some(stored) = self.store.jobs(&[owed.job]).await?.into_iter().next().flatten() else {
            let event = Event::Cancelled { reason: Some("the job was deleted".into()) };
            return Ok(Plan::end(operation, event, Fate::SkippedCancel, now));
        };
        let job = &stored.job;
        if let JobState::Paused(_) = job.state {
            return Ok(Plan::hold(operation, now + HELD_FOR));
        }
        let spec = Spec { schedule: owed.schedule.clone(), ..job.spec.clone() };
        let owing = Job { spec, ..Job::clone(job) };
        self.learn(self.unread([&**job, &owing])).await?;
        let is_over = is_out_of_slots(&stored, &*self.timetables.of(job)?, now);
        let timetable = self.timetables.of(&owing)?;
        let spread = spread(&timetable);
        let slots_from = |from| {
            let slots = std::iter::successors(Some(from), |slot| timetable.next_after(*slot));
            slots.take_while(|slot| owed.has(*slot))
        };
        // What has become too late to start since it was decided to catch up needs no pace and no room: it is only told.
        let late = match owed.cause {
            Cause::Backfill => None, // A slot of the past is not late.
            _ => {
                let mut first: Vec<Timestamp> = slots_from(from).take(STEP_MAX).collect();
                timeouts::take_late(&job.spec.policies.timeouts, &mut first, spread, now)
            }
        };
        if let Some((missed, limit)) = late {
            let event = match slots_from(missed.to).nth(1) {
                Some(slot) => Event::Stepped { cursor: Cursor::Slot(slot), resume_at: now },
                None => Event::Succeeded,
            };
            let ledger = Some(account(job, missed, Fate::of(limit), now));
            return Ok(Plan { ledger, failed: missed.slots, ..Plan::of(event) });
        }
        if limit == 0 {
            return Ok(Plan::hold(operation, now + CROWDED_FOR));
        }
        let rate = owed.rate.max(1);
        let parts = parts::of(job.spec.parts, owed.part, &[]);
        // The parts of a slot are born together.
        let each = parts.len().max(1);
        let count = (limit / each).max(1).min(rate as usize);
        // While as many runs wait as may, it waits too, and goes on by itself.
        let room = intake.some(job.tenant, (count * each) as u64).unwrap_or_default();
        let count = room as usize / each;
        if count == 0 {
            return Ok(Plan::hold(operation, now + CROWDED_FOR));
        }
        let mut slots: Vec<Timestamp> = slots_from(from).take(count + 1).collect();
        let rest = slots.split_off(count.min(slots.len()));
        let starts_at = |index: usize| now + apart(rate) * index as i32;
        let event = match rest.first() {
            Some(slot) => Event::Stepped { cursor: Cursor::Slot(*slot), resume_at: starts_at(count) },
            None => Event::Succeeded,
        };
        let overlap = owed.overlap.unwrap_or(job.spec.policies.overlap);
        // A slot that is caught up with has its own time, however late its turn comes; one of a backfill has it from its turn on.
        let start_by = |slot: Timestamp, starts_at: Timestamp| -> Option<StartBy> {
            let (from, due_at) = match owed.cause {
                Cause::Backfill => (starts_at, starts_at),
                _ => (slot, slot.checked_add(spread).unwrap_or(slot)),
            };
            timeouts::first_start(&job.spec.policies.timeouts, from, due_at)
        };
        let limits = self.limits_of(job);
        let of_parts = slots.iter().enumerate().flat_map(|slot| parts.iter().map(move |part| (slot, part)));
        let births = of_parts.map(|((index, slot), part)| Birth {
            cause: owed.cause,
            part: part.part,
            parts: part.of,
            lane: Lane::Batch,
            start_by: start_by(*slot, starts_at(index)),
            overlap,
            previous: slot_before(overlap, &timetable, *slot),
            limits: limits.clone(),
            ..birth(job, *slot, starts_at(index), &mut None, now)
        });
        let effect = Effect::Births { job: job.id, version: job.version, births: births.collect(), is_over };
        Ok(Plan { effect, ..Plan::of(event) })
    }
}

/// Slots that an operation makes runs for, from its cursor on.
struct Owed<'a> {
    job: JobId,
    schedule: &'a Schedule,
    last: Last,
    rate: u32,
    cause: Cause,
    part: u32,
    overlap: Option<Overlap>,
}

/// Where they end.
enum Last {
    With(Timestamp),
    Before(Timestamp),
}

impl Owed<'_> {
    fn has(&self, slot: Timestamp) -> bool {
        match self.last {
            Last::With(last) => slot <= last,
            Last::Before(end) => slot < end,
        }
    }
}

impl<'a> From<&'a Box<CatchUp>> for Owed<'a> {
    fn from(catch_up: &'a Box<CatchUp>) -> Self {
        let CatchUp { job, schedule, to, rate } = &**catch_up;
        let (last, cause) = (Last::With(*to), Cause::Schedule);
        Owed { job: *job, schedule, last, rate: *rate, cause, part: 0, overlap: None }
    }
}

impl<'a> From<&'a Box<Backfill>> for Owed<'a> {
    fn from(backfill: &'a Box<Backfill>) -> Self {
        let Backfill { job, schedule, from: _, to, rate, overlap, part } = &**backfill;
        let (last, cause) = (Last::Before(*to), Cause::Backfill);
        Owed { job: *job, schedule, last, rate: *rate, cause, part: *part, overlap: *overlap }
    }
}

/// How far apart the runs of an operation start. Rounded up, so that there are never more in a second.
fn apart(rate: u32) -> SignedDuration {
    SignedDuration::from_micros(i64::from(1_000_000_u32.div_ceil(rate)))
}

/// A decided step.
pub(crate) struct Plan {
    pub(crate) event: Event,
    pub(crate) effect: Effect,
    pub(crate) ledger: Option<LedgerEntry>,
    /// Rows that were moved.
    pub(crate) moved: u64,
    /// Slots that did not become runs, and jobs that cannot be changed.
    pub(crate) failed: u64,
    /// One of those, and why.
    pub(crate) example: Option<String>,
    /// How often it has been tried, if it is about what the step before left.
    pub(crate) tries: u8,
}

impl Plan {
    /// A step that does nothing besides.
    pub(crate) fn of(event: Event) -> Self {
        Plan { event, effect: Effect::Nothing, ledger: None, moved: 0, failed: 0, example: None, tries: 0 }
    }

    /// Ends an operation before all is done. Slots that it still owes become an entry of the ledger.
    pub(crate) fn end(operation: &Operation, event: Event, fate: Fate, now: Timestamp) -> Self {
        let accounted_for = operation.done + operation.failed;
        let ledger = match (&operation.kind, operation.cursor) {
            (Kind::CatchUp(catch_up), Cursor::Slot(from)) => Some(LedgerEntry {
                job: catch_up.job,
                tenant: operation.tenant,
                from,
                to: catch_up.to,
                slots: operation.total.unwrap_or_default().saturating_sub(accounted_for).max(1),
                fate,
                decided_at: now,
            }),
            (Kind::Batch(_), _) => batches::skipped(operation, fate, now),
            // The slots of a backfill were accounted for when they were due.
            (
                Kind::Redrive(_)
                | Kind::Acknowledge(_)
                | Kind::CatchUp(_)
                | Kind::Backfill(_)
                | Kind::MoveShards(_)
                | Kind::ChangeJobs(_)
                | Kind::CancelRuns(_)
                | Kind::Replan(_),
                _,
            ) => None,
        };
        Plan { ledger, ..Plan::of(event) }
    }

    /// Nothing now.
    pub(crate) fn hold(operation: &Operation, resume_at: Timestamp) -> Self {
        Plan::of(Event::Stepped { cursor: operation.cursor, resume_at })
    }

    fn fail(operation: &Operation, error: &Error, now: Timestamp) -> Self {
        Plan::end(operation, Event::Failed { error: error.to_string() }, Fate::MissedCatchUp, now)
    }

    /// How many jobs or runs it is about.
    fn effect_runs(&self) -> usize {
        match &self.effect {
            Effect::Nothing => 0,
            Effect::Redrive(runs) | Effect::Acknowledge(runs) => runs.len(),
            Effect::Births { births, .. } => births.len(),
            Effect::Change(puts) => puts.len(),
            Effect::Message(_) => 1,
            Effect::Cancel(cancellations) => cancellations.len(),
        }
    }

    /// The step for the store; none if the operation has ended.
    fn into_step(self, operation: &Operation, epoch: Option<Epoch>, now: Timestamp) -> Option<Step> {
        let mut operation = operation.clone();
        operation.apply(self.event, now).ok()?;
        operation.done += self.moved;
        operation.failed += self.failed;
        operation.example = operation.example.or(self.example);
        (operation.left, operation.tries) = (Vec::new(), self.tries);
        let ledger = self.ledger.into_iter().collect();
        Some(Step { operation, epoch, effect: self.effect, ledger, request: None, audit: None })
    }
}

impl Operated {
    fn look_at(&mut self, at: Timestamp) {
        self.next_at = Some(self.next_at.map_or(at, |next| next.min(at)));
    }
}

fn tell_end(operation: &Operation) {
    if operation.is_running() {
        return;
    }
    let (state, kind) = (operation.state.as_str(), operation.kind.as_str());
    tracing::info!(
        operation_id = %operation.id, kind, state, done = operation.done, failed = operation.failed,
        error = operation.error.as_deref(), "operation ended"
    );
}

/// The duty.
pub(crate) struct Operating {
    engine: Arc<Engine>,
    epochs: watch::Receiver<Arc<Epochs>>,
    /// Since when it has been waiting for slots that are due.
    yields_since: Option<Timestamp>,
}

impl Operating {
    pub(crate) fn new(engine: Arc<Engine>, epochs: watch::Receiver<Arc<Epochs>>) -> Self {
        Operating { engine, epochs, yields_since: None }
    }
}

#[async_trait]
impl Duty for Operating {
    const NAME: &'static str = "operations";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        if self.engine.wakes.is_behind.load(Ordering::Relaxed) {
            let since = *self.yields_since.get_or_insert(now);
            if now.duration_since(since) < YIELD_MAX {
                return Ok(Next::At(now + YIELD_FOR));
            }
        }
        self.yields_since = None;
        let epochs = Arc::clone(&self.epochs.borrow());
        let operated = self.engine.operate(&epochs).await?;
        Ok(match operated.next_at {
            Some(at) if at <= now => Next::Now,
            next_at => Next::At(next_at.map_or(now + LOOK_EVERY, |at| at.min(now + LOOK_EVERY))),
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_executor::block_on;
    use punctual_domain::id::WorkerId;
    use punctual_schedule::Tzdb;
    use punctual_store::{Memory, Shards, Store};

    use super::*;
    use crate::clock::{ManualClock, SystemEntropy};

    #[test]
    fn operations_wait_while_firing_is_behind_but_not_for_ever() {
        let store = Arc::new(Memory::new(4));
        let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
        let tzdb = Arc::new(Tzdb::bundled());
        let engine = Arc::new(Engine::new(store.clone(), clock, Arc::new(SystemEntropy), tzdb));
        let (ttl, now) = (std::time::Duration::from_secs(60), engine.now());
        let held = block_on(store.acquire(WorkerId::new(now, 1), Shards::All, ttl, now)).expect("free");
        let (_sender, epochs) = watch::channel(Arc::new(Epochs::new(held)));
        let kind = Kind::Redrive(DeadLetters::default());
        let start = engine.start_operation(TenantId::DEFAULT, kind, None, |_, _| ());
        let id = block_on(start).expect("started").id;
        let mut operating = Operating::new(Arc::clone(&engine), epochs);
        let mut pass = |now| block_on(operating.run_once(now)).expect("a pass");
        engine.wakes.is_behind.store(true, Ordering::Relaxed);
        let state = || block_on(engine.operation(TenantId::DEFAULT, id)).expect("there").is_running();
        assert_eq!(pass(now), Next::At(now + YIELD_FOR));
        let almost = now + YIELD_MAX - YIELD_FOR;
        assert_eq!(pass(almost), Next::At(almost + YIELD_FOR));
        assert!(state(), "slots that are due go first");
        pass(now + YIELD_MAX);
        assert!(!state(), "but it ends at last");
    }
}
