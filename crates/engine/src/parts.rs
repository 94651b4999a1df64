//! Jobs in parts: who a broadcast is for, and that its parts reach them.
//!
//! Who lives is looked up when a slot of such a job is fired or asked for; once a second a node looks for which workers parts wait. Promise: a part
//! is given to the worker that it is for and to no other; one whose worker is gone before it took it, or before it was done, ends as
//! failed and says so.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use punctual_domain::attempt::{Failure, Report, WORKER_GONE};
use punctual_domain::id::{TenantId, WorkerId};
use punctual_domain::job::Job;
use punctual_domain::ledger::Fate;
use punctual_domain::parts::Parts;
use punctual_domain::policy::catch_up::Missed;
use punctual_domain::work::{Finished, Leased, Presence};
use punctual_domain::{Labels, LedgerEntry, Outcome};
use punctual_store::{Birth, Claim, Shards};

use crate::engine::Engine;
use crate::error::Error;
use crate::fire::account;

/// How often it is looked for which workers parts wait.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// Parts of workers that are gone, of one pass.
const BATCH: usize = 100;

/// Workers for whom parts wait.
#[derive(Debug, Default)]
pub(crate) struct Addressed(Mutex<HashSet<WorkerId>>);

impl Addressed {
    fn workers(&self) -> std::sync::MutexGuard<'_, HashSet<WorkerId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parts were born for these.
    pub(crate) fn add(&self, workers: impl IntoIterator<Item = WorkerId>) {
        self.workers().extend(workers);
    }

    /// Nothing waits for it any more.
    pub(crate) fn remove(&self, worker: WorkerId) {
        self.workers().remove(&worker);
    }

    pub(crate) fn contains(&self, worker: WorkerId) -> bool {
        self.workers().contains(&worker)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.workers().is_empty()
    }
}

/// Those who pull and live, of tenants that have something for all of them.
#[derive(Debug, Default)]
pub(crate) struct Audience(HashMap<TenantId, Vec<Presence>>);

impl Audience {
    /// Workers that may execute a job, by their ids.
    pub(crate) fn of(&self, job: &Job) -> Vec<WorkerId> {
        let is_for = |present: &&Presence| {
            let about = &present.about;
            about.queues.contains(&job.spec.queue)
                && about.labels.pulling(job.tenant).meet(&job.spec.requires)
        };
        let present = self.0.get(&job.tenant).map_or(&[][..], Vec::as_slice);
        present.iter().filter(is_for).map(|present| present.worker).collect()
    }
}

impl Engine {
    /// Those who pull and live, for the jobs among these that are for all of them.
    pub(crate) async fn audience<'a>(&self, jobs: impl Iterator<Item = &'a Job>) -> Result<Audience, Error> {
        let is_for_all = |job: &&Job| job.spec.parts == Some(Parts::Broadcast);
        let tenants: HashSet<TenantId> = jobs.filter(is_for_all).map(|job| job.tenant).collect();
        let mut audience = HashMap::new();
        for tenant in tenants {
            audience.insert(tenant, self.store.workers(Some(tenant)).await?);
        }
        Ok(Audience(audience))
    }

    /// Claims what is for one worker alone, for those who wait here for something to do.
    pub(crate) async fn claim_addressed(&self) -> Result<(), Error> {
        if self.addressed.is_empty() {
            return Ok(());
        }
        for taken in self.desk.take_addressed(|worker| self.addressed.contains(worker)) {
            let room = &taken.room;
            let claim = Claim {
                worker: room.worker,
                queues: room.queues.to_vec(),
                labels: room.labels.of_worker(room.worker),
                shards: Shards::All,
                limit: room.attempts,
            };
            let (leased, late) = self.claim_with(claim).await?;
            if leased.len() + late.len() < room.attempts {
                self.addressed.remove(room.worker);
            }
            self.metrics.claimed.inc_by(leased.len() as u64);
            taken.give(leased);
            self.end_late(late).await?;
        }
        Ok(())
    }

    /// Finds out for which workers parts wait and what is to be tried alone, and ends the parts of workers that are gone, once it is known
    /// who lives. Says when it is to be done again.
    pub(crate) async fn look_for_addressed(
        &self,
        now: Timestamp,
        is_known: bool,
    ) -> Result<Timestamp, Error> {
        let waited_for = self.store.addressed().await?;
        self.note_suspects(&waited_for).await?;
        if waited_for.is_empty() {
            return Ok(now + LOOK_EVERY);
        }
        let present = self.store.workers(None).await?;
        for required in waited_for {
            let Some(worker) = required.worker() else { continue };
            if !is_known || present.iter().any(|present| present.worker == worker) {
                self.addressed.add([worker]);
            } else {
                self.addressed.remove(worker);
                self.end_parts_of(worker, required).await?;
            }
        }
        Ok(now + LOOK_EVERY)
    }

    /// Ends the parts of a worker that is gone: they are claimed in its stead, and reported as what they are.
    async fn end_parts_of(&self, gone: WorkerId, labels: Labels) -> Result<(), Error> {
        let worker = self.new_worker_id();
        let claim = Claim { worker, queues: Vec::new(), labels, shards: Shards::All, limit: BATCH };
        let (leased, late) = self.claim_with(claim).await?;
        self.end_late(late).await?;
        let now = self.clock.now();
        let finished = leased.into_iter().map(|Leased { run, job, .. }| {
            let report = gone_report(gone, now);
            Finished { worker, run, job, report: Some(report) }
        });
        let finished: Vec<Finished> = finished.collect();
        if !finished.is_empty() {
            self.complete(finished).await?;
        }
        Ok(())
    }
}

fn gone_report(gone: WorkerId, now: Timestamp) -> Report {
    let error = Failure {
        code: WORKER_GONE.into(),
        message: format!("this part is for the worker {gone} alone, and it is gone"),
        is_retryable: false,
        retry_after: None,
    };
    Report {
        outcome: Outcome::Failed,
        started_at: now,
        finished_at: now,
        error: Some(error),
        output: None,
        status: None,
        phases: Vec::new(),
        lines: Vec::new(),
        is_unknown: false,
    }
}

/// The parts of a slot are born together: where one may not wait, the slot is accounted for, and has none.
pub(crate) fn together(job: &Job, births: &mut Vec<Birth>, now: Timestamp) -> Vec<LedgerEntry> {
    if job.spec.parts.is_none() {
        return Vec::new();
    }
    let mut full: Vec<LedgerEntry> = Vec::new();
    for birth in births.iter() {
        let slot = birth.scheduled_for;
        if let (Some(cap), false) = (birth.full, full.iter().any(|entry| entry.from == slot)) {
            let missed = Missed { from: slot, to: slot, slots: 1 };
            full.push(account(job, missed, Fate::Throttled(cap), now));
        }
    }
    births.retain(|birth| full.iter().all(|entry| entry.from != birth.scheduled_for));
    full
}

/// Slots of a broadcast that nobody hears.
pub(crate) fn unheard(job: &Job, slots: &mut Vec<Timestamp>, now: Timestamp) -> Option<LedgerEntry> {
    let (from, to) = (*slots.first()?, *slots.last()?);
    let missed = Missed { from, to, slots: slots.len() as u64 };
    slots.clear();
    Some(account(job, missed, Fate::MissedNoWorker, now))
}
