//! Batches: what people ask of them, and the operation that looks after each of their slots.
//!
//! Firing a slot starts its operation in the same commit. That gives birth to the items in steps, looks from time to time whether all of them
//! have ended, and ends with the commit that registers the message about it. Promise: one run an item and slot, and one message a
//! slot, whoever races or crashes, because a step is a compare-and-set; an end of an item writes nothing besides itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::Operation;
use punctual_domain::batch::{self, Batch, Counts, FailedItem, Rest, Tally};
use punctual_domain::id::{JobId, Sequence, TenantId};
use punctual_domain::job::{Job, JobState, Spec};
use punctual_domain::ledger::{Fate, LedgerEntry};
use punctual_domain::operation::{self, BatchSlot, Cursor, Event};
use punctual_domain::policy::timeouts;
use punctual_domain::run::{Cause, Run};
use punctual_store::{Birth, Cancellation, Effect, Page, PageRequest, RunFilter, Stored};
use serde_json::{Map, Value, json};

use crate::backlog::Intake;
use crate::changes::cancel_batch;
use crate::create::{birth, new_job};
use crate::engine::Engine;
use crate::error::Error;
use crate::history::{JobFilter, Seen};
use crate::operations::{CROWDED_FOR, HELD_FOR, Plan, STEP_MAX};
use crate::register::{TRIES, busy, is_out_of_slots};

/// Runs that are read at a time to count items.
const CHUNK: usize = 500;

/// Runs are born after their slot has come; clocks of nodes may differ by this.
const CLOCKS: SignedDuration = SignedDuration::from_secs(600);

/// The newest slot is that of one of so many runs: items of two slots may have been born in turns.
const RECENT: usize = 100;

/// Running items that a cancellation asks to stop at once. The operation asks the others.
const ASKED_AT_ONCE: usize = 1_000;

/// Batches of a page: a job is read with all of its items, a megabyte at most.
pub const PAGE_MAX: usize = 50;

/// A batch and how its newest slot stands.
#[derive(Clone, Debug)]
pub struct BatchSeen {
    /// Its job.
    pub seen: Seen,
    /// Its items.
    pub batch: Arc<Batch>,
    /// Its newest slot, if one was fired.
    pub slot: Option<Timestamp>,
    /// The items of that slot, where they were counted.
    pub counts: Option<Counts>,
    /// Whether they are looked after.
    pub is_running: bool,
    /// When it was found that all of them had ended, as long as that is known.
    pub completed_at: Option<Timestamp>,
}

impl BatchSeen {
    /// Where it stands, as in the API.
    pub fn state(&self) -> &'static str {
        match (&self.seen.job.state, self.slot) {
            _ if self.batch.cancelled_at.is_some() => "cancelled",
            (JobState::Paused(_), _) => "paused",
            (_, None) => "scheduled",
            _ if self.is_running || self.counts.is_some_and(|counts| counts.open() > 0) => "running",
            _ => "completed",
        }
    }
}

// What people ask for.
impl Engine {
    /// Registers a batch, whose key is its id. One that was registered before by the same request is left as it is; the answer says
    /// whether it is new.
    pub async fn register_batch(&self, tenant: TenantId, spec: Spec) -> Result<bool, Error> {
        let fingerprint = spec.batch.as_ref().map(|batch| batch.fingerprint);
        let key = spec.key.clone().unwrap_or_default();
        for _ in 0..TRIES {
            if let Some(id) = self.store.job_by_key(tenant, &key).await? {
                let known = self.store.jobs(&[id]).await?.into_iter().next().flatten();
                match known.map(|stored| stored.job.spec.batch.as_ref().map(|batch| batch.fingerprint)) {
                    None => continue, // Deleted in between.
                    Some(known) if known.is_some() && known == fingerprint => return Ok(false),
                    Some(_) => return Err(Error::BatchTaken(key)),
                }
            }
            match self.register(tenant, vec![(spec.clone(), None)]).await?.into_iter().next() {
                Some(Err(Error::KeyTaken { .. })) => {} // Somebody was quicker, perhaps with the same.
                Some(answer) => return answer.map(|_| true),
                None => break,
            }
        }
        Err(busy())
    }

    /// A batch by its id, and how its newest slot stands.
    pub async fn batch(&self, tenant: TenantId, id: &str) -> Result<BatchSeen, Error> {
        let (seen, _) = self.batch_job(tenant, id).await?;
        let found = self.look_at_batch(seen, true).await?;
        found.ok_or_else(|| Error::BatchNotFound(id.into()))
    }

    /// How the newest slot of a batch stands. Counting its items looks at a run of each.
    async fn look_at_batch(&self, seen: Seen, counts: bool) -> Result<Option<BatchSeen>, Error> {
        let Some(batch) = seen.job.spec.batch.clone() else { return Ok(None) };
        let job = &seen.job;
        let slot = self.newest_slot(job.id).await?;
        let looked_after = match slot {
            Some(slot) => self.store.operation(batch::operation_id(job.id, slot)).await?,
            None => None,
        };
        let rest = match (&looked_after, slot) {
            _ if batch.cancelled_at.is_some() => Rest::Cancelled,
            (_, None) => Rest::ToCome,
            (None, _) => Rest::Forgotten,
            (Some(operation), _) => match operation.state {
                operation::State::Running => Rest::ToCome,
                operation::State::Succeeded => Rest::Forgotten,
                operation::State::Failed | operation::State::Cancelled => Rest::Cancelled,
            },
        };
        let counts = match slot {
            _ if !counts => None,
            Some(slot) => Some(self.tally(job.id, &batch, slot).await?.end(rest).0),
            None => Some(Tally::new(&batch, job.created_at).end(rest).0),
        };
        let is_running = looked_after.as_ref().is_some_and(Operation::is_running);
        let completed_at = looked_after.and_then(|operation| operation.finished_at);
        Ok(Some(BatchSeen { seen, batch, slot, counts, is_running, completed_at }))
    }

    /// The job of a batch.
    pub async fn batch_job(&self, tenant: TenantId, id: &str) -> Result<(Seen, Arc<Batch>), Error> {
        let not_found = || Error::BatchNotFound(id.into());
        let seen = self.job_by_key(tenant, id).await.map_err(|error| match error {
            Error::JobNotFound(_) => not_found(),
            error => error,
        })?;
        let batch = seen.job.spec.batch.clone().ok_or_else(not_found)?;
        Ok((seen, batch))
    }

    /// The ids of the items that runs are for, of those that are.
    pub async fn item_ids(&self, runs: &[Run]) -> Result<Vec<Option<String>>, Error> {
        let of_batches = runs.iter().filter(|run| run.cause == Cause::Batch);
        let ids: Vec<JobId> = of_batches.map(|run| run.job).collect::<BTreeSet<_>>().into_iter().collect();
        if ids.is_empty() {
            return Ok(vec![None; runs.len()]);
        }
        let jobs = self.store.kept_jobs(&ids).await?;
        let item = |run: &Run| {
            let stored = jobs.get(ids.binary_search(&run.job).ok()?)?.as_ref()?;
            Some(stored.job.spec.batch.as_ref()?.item(run)?.id.to_string())
        };
        Ok(runs.iter().map(item).collect())
    }

    /// Batches in the order of their jobs' ids, without counts; at most [`PAGE_MAX`]. A page may be empty and still have a next one.
    pub async fn batches(
        &self,
        tenant: TenantId,
        page: PageRequest<JobId>,
    ) -> Result<Page<BatchSeen, JobId>, Error> {
        let filter = JobFilter { tenant: Some(tenant), is_batch: true, ..JobFilter::default() };
        let page = PageRequest { limit: page.limit.min(PAGE_MAX), ..page };
        let page = self.list_jobs(&filter, page).await?;
        let mut items = Vec::with_capacity(page.items.len());
        for seen in page.items {
            items.extend(self.look_at_batch(seen, false).await?);
        }
        Ok(Page { items, next: page.next })
    }

    /// Nothing more is done of a batch: no slot is fired, no item is begun, those that wait end, and those that run are asked to stop.
    pub async fn cancel_batch(&self, tenant: TenantId, id: &str) -> Result<(), Error> {
        let seen = self.batch(tenant, id).await?;
        if seen.state() == "completed" && seen.seen.next_fire_at.is_none() {
            return Err(Error::WrongState { state: "completed", action: "cancelled" });
        }
        let job = seen.seen.job.id;
        self.change(tenant, job, None, cancel_batch).await?;
        let filter = RunFilter { job: Some(job), is_open: true, ..RunFilter::default() };
        let open = self.store.runs(&filter, PageRequest::first(ASKED_AT_ONCE)).await?.items;
        let asked: Vec<Cancellation> = stopping(open.iter()).collect();
        if !asked.is_empty() {
            // Those that this does not reach are asked by the operation.
            let _ = self.heard(self.store.cancel(asked, self.clock.now())).await?;
        }
        self.wakes.operations.notify_one();
        Ok(())
    }
}

/// Asks runs to stop, if nobody has. A batch counts from no completion.
fn stopping<'r>(runs: impl Iterator<Item = &'r Run>) -> impl Iterator<Item = Cancellation> {
    let asked = |run: &&Run| run.cause == Cause::Batch && !run.is_cancel_requested;
    runs.filter(asked).map(|run| Cancellation { run: run.id(), successor: None })
}

/// The operation that looks after a slot.
pub(crate) fn operation(job: &Job, batch: &Batch, slot: Timestamp, now: Timestamp) -> Operation {
    // In the job's shard: its steps and the job's runs are committed together.
    let id = batch::operation_id(job.id, slot);
    let kind = operation::Kind::Batch(BatchSlot { job: job.id, slot });
    let mut operation = Operation::new(id, job.tenant, kind, now);
    operation.cursor = Cursor::Item(0);
    operation.total = Some(batch.total());
    operation
}

/// The account of a slot of which no item was begun.
pub(crate) fn skipped(operation: &Operation, fate: Fate, now: Timestamp) -> Option<LedgerEntry> {
    let operation::Kind::Batch(BatchSlot { job, slot }) = operation.kind else { return None };
    (operation.done == 0).then_some(LedgerEntry {
        job,
        tenant: operation.tenant,
        from: slot,
        to: slot,
        slots: 1,
        fate,
        decided_at: now,
    })
}

// The steps.
impl Engine {
    /// The next step of the operation of a slot.
    pub(crate) async fn plan_batch(
        &self,
        operation: &Operation,
        which: BatchSlot,
        intake: &mut Intake<'_>,
        now: Timestamp,
    ) -> Result<Plan, Error> {
        let Some(stored) = self.store.jobs(&[which.job]).await?.into_iter().next().flatten() else {
            let event = Event::Cancelled { reason: Some("the batch was deleted".into()) };
            return Ok(Plan::end(operation, event, Fate::SkippedCancel, now));
        };
        let Some(batch) = stored.job.spec.batch.clone() else {
            let event = Event::Failed { error: "the job has no items".into() };
            return Ok(Plan::end(operation, event, Fate::MissedCatchUp, now));
        };
        match operation.cursor {
            Cursor::Item(place) if u64::from(place) < batch.total() && batch.cancelled_at.is_none() => {
                self.plan_items(operation, which, (&stored, &batch), place as usize, intake, now).await
            }
            Cursor::Run(sequence) => {
                self.plan_completion(operation, which, (&stored.job, &batch), Some(sequence), now).await
            }
            Cursor::Item(_) | Cursor::Start | Cursor::Slot(_) | Cursor::Job(_) => {
                self.plan_completion(operation, which, (&stored.job, &batch), None, now).await
            }
        }
    }

    /// The runs of the next items. How many go on at once is decided by the limit of their job.
    async fn plan_items(
        &self,
        operation: &Operation,
        BatchSlot { slot, .. }: BatchSlot,
        (stored, batch): (&Stored, &Batch),
        place: usize,
        intake: &mut Intake<'_>,
        now: Timestamp,
    ) -> Result<Plan, Error> {
        let job = &stored.job;
        if let JobState::Paused(_) = job.state {
            return Ok(Plan::hold(operation, now + HELD_FOR));
        }
        let count = (batch.items.len() - place).min(STEP_MAX);
        // While as many runs wait as may, it waits too, and goes on by itself.
        let room = intake.some(job.tenant, count as u64).unwrap_or_default() as usize;
        if room == 0 {
            return Ok(Plan::hold(operation, now + CROWDED_FOR));
        }
        self.learn(self.unread([&**job])).await?;
        let is_over = is_out_of_slots(stored, &*self.timetables.of(job)?, now);
        let items = batch.items.iter().enumerate().skip(place).take(room);
        let births = items.map(|(place, item)| {
            let payload = item.payload.clone();
            let sent = payload.as_deref().or(job.spec.payload.as_deref());
            Birth {
                available_at: now.max(slot),
                start_by: timeouts::first_start(&job.spec.policies.timeouts, slot, slot),
                limits: self.limits_with(job, sent),
                payload,
                ..birth(job, Cause::Batch, slot, batch::part(place), None)
            }
        });
        let effect = Effect::Births { job: job.id, version: job.version, births: births.collect(), is_over };
        let cursor = Cursor::Item((place + room) as u32);
        Ok(Plan { effect, ..Plan::of(Event::Stepped { cursor, resume_at: now }) })
    }

    /// Looks whether items of the slot are open, from the newest down; if none is, the end. Of each look one page is read, and pages on
    /// which none is are not read again.
    async fn plan_completion(
        &self,
        operation: &Operation,
        BatchSlot { slot, .. }: BatchSlot,
        (job, batch): (&Job, &Batch),
        after: Option<Sequence>,
        now: Timestamp,
    ) -> Result<Plan, Error> {
        let again = now + batch::look_again_in(now.duration_since(operation.created_at));
        let filter = RunFilter { job: Some(job.id), is_open: true, ..RunFilter::default() };
        let page = self.store.runs(&filter, PageRequest { after, limit: STEP_MAX }).await?;
        let is_of_slot = |run: &&Run| run.cause == Cause::Batch && run.scheduled_for == slot;
        if page.items.iter().any(|run| is_of_slot(&run)) {
            let asked: Vec<Cancellation> = match batch.cancelled_at {
                Some(_) => stopping(page.items.iter().filter(is_of_slot)).collect(),
                None => Vec::new(),
            };
            let effect = if asked.is_empty() { Effect::Nothing } else { Effect::Cancel(asked) };
            return Ok(Plan { effect, ..Plan::hold(operation, again) });
        }
        if let Some(next) = page.next {
            return Ok(Plan::of(Event::Stepped { cursor: Cursor::Run(next), resume_at: now }));
        }
        let rest = if batch.cancelled_at.is_some() { Rest::Cancelled } else { Rest::Forgotten };
        let (counts, failed) = self.tally(job.id, batch, slot).await?.end(rest);
        if counts.open() > 0 {
            // One was redriven in between: it is looked from the newest down again.
            let cursor = Cursor::Item(batch.items.len() as u32);
            return Ok(Plan::of(Event::Stepped { cursor, resume_at: again }));
        }
        let tenant = self.tenant_name(job.tenant).await?;
        let told = batch::message(job, || payload((job, &tenant), slot, batch, &counts, &failed));
        let effect = match told {
            Some(spec) => {
                let message = new_job(batch::message_id(job.id, slot, now), job.tenant, spec, now);
                Effect::Message(Box::new(self.message(message, now)))
            }
            None => Effect::Nothing,
        };
        let ledger = skipped(operation, Fate::SkippedCancel, now);
        Ok(Plan { effect, ledger, ..Plan::of(Event::Succeeded) })
    }

    /// Counts the items of a slot: looks at the runs of the job that were born since, newest first, until it has seen all items.
    async fn tally<'b>(&self, job: JobId, batch: &'b Batch, slot: Timestamp) -> Result<Tally<'b>, Error> {
        let born_from = slot.checked_sub(CLOCKS).unwrap_or(slot);
        let filter = RunFilter { job: Some(job), born_from: Some(born_from), ..RunFilter::default() };
        let mut tally = Tally::new(batch, slot);
        let mut after = None;
        loop {
            let page = self.store.runs(&filter, PageRequest { after, limit: CHUNK }).await?;
            page.items.iter().for_each(|run| tally.see(run));
            after = page.next;
            if after.is_none() || tally.is_whole() {
                return Ok(tally);
            }
        }
    }

    /// The newest slot of which an item has a run.
    async fn newest_slot(&self, job: JobId) -> Result<Option<Timestamp>, Error> {
        let filter = RunFilter { job: Some(job), ..RunFilter::default() };
        let runs = self.store.runs(&filter, PageRequest::first(RECENT)).await?.items;
        Ok(runs.iter().filter(|run| run.cause == Cause::Batch).map(|run| run.scheduled_for).max())
    }
}

/// What a receiver is told when all items of a slot have ended. Members may be added, none changes its meaning.
fn payload(
    (job, tenant): (&Job, &str),
    slot: Timestamp,
    batch: &Batch,
    counts: &Counts,
    failed: &[FailedItem],
) -> String {
    let words: Map<String, Value> =
        counts.words().into_iter().map(|(word, count)| (word.into(), count.into())).collect();
    let item =
        |one: &FailedItem| json!({"item": one.item, "run_id": one.run.to_string(), "state": one.state});
    let all = counts.failed + counts.timed_out + counts.missed;
    json!({
        "kind": "batch",
        "batch": {
            "id": job.spec.key,
            "name": job.spec.name,
            "job_id": job.id.to_string(),
            "tenant": tenant,
        },
        "scheduled_for": slot.to_string(),
        "is_cancelled": batch.cancelled_at.is_some(),
        "items": batch.total(),
        "counts": words,
        "failed": failed.iter().map(item).collect::<Vec<_>>(),
        "failed_is_truncated": all > failed.len() as u64,
    })
    .to_string()
}
