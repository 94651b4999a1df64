//! The reference store: everything in ordered maps behind one lock.
//!
//! For reading, for the simulator and for tests. Promise: it does what [`Store`] says in the
//! plainest way; it forgets everything when it is dropped.

mod audit;
mod complete;
mod documents;
mod due;
mod history;
mod limit;
mod operation;
mod overlap;
mod register;
mod state;
mod transfer;

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use punctual_domain::audit::{Entry as AuditEntry, EntryId, Filter as AuditFilter};
use punctual_domain::document;
use punctual_domain::id::{Epoch, JobId, OperationId, RunId, Sequence, ShardId, TenantId, Version, WorkerId};
use punctual_domain::policy::backlog::Pending;
use punctual_domain::policy::limit::Rule;
use punctual_domain::work::{About, Presence};
use punctual_domain::{Document, Labels, LedgerEntry, Note, Operation, Placement, Run, Tenant, TenantName};

use crate::attendance::Attendance;
use crate::detail::RunDetail;
use crate::error::{Error, Refused};
use crate::figures::Figures;
use crate::line::is_addressed;
use crate::liveness::suspected;
use crate::page::{Page, PageRequest};
use crate::queues::{Queue, Queues};
use crate::store::Store;
use crate::verbs::{
    Advanced, Answering, Cancellation, Claim, Concluded, Conclusion, DocumentChange, Due, DuePage, DueQuery,
    Firing, Heartbeat, Held, JobFilter, Lapse, Lapsed, OperationFilter, Planned, Put, RuleChange, RunFilter,
    Runnable, Shards, Step, Stepped, Stored, Subject, Trigger, together,
};
use state::State;

/// A store in memory.
#[derive(Debug)]
pub struct Memory {
    shards: u16,
    is_shared: bool,
    state: Mutex<State>,
}

impl Memory {
    /// An empty store.
    pub fn new(shards: u16) -> Self {
        assert!((1..=ShardId::COUNT_MAX).contains(&shards), "1 to {} shards", ShardId::COUNT_MAX);
        Memory { shards, is_shared: false, state: Mutex::new(State::new(shards)) }
    }

    /// An empty store that several nodes of this process use.
    pub fn shared(shards: u16) -> Self {
        Memory { is_shared: true, ..Memory::new(shards) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic inside a verb is a bug of ours; the tests that poison the lock have failed already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Memory {
    fn shard_count(&self) -> u16 {
        self.shards
    }

    fn figures(&self) -> Figures {
        let state = self.state();
        let mut figures = Figures { pending: state.pending_runs().count() as u64, ..Figures::default() };
        state.ready.iter().for_each(|(lane, ..)| figures.waiting.add(*lane, 1));
        figures
    }

    fn pending(&self, tenant: TenantId) -> Pending {
        let state = self.state();
        let mut pending = Pending::default();
        for run in state.pending_runs() {
            pending = pending.plus(Pending { tenant: u64::from(run.tenant == tenant), all: 1 });
        }
        pending
    }

    async fn count_pending(&self) -> Result<Pending, Error> {
        Ok(self.state().backlog().most())
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    async fn attend(&self, attendance: Attendance, ttl: Duration, now: Timestamp) -> Result<(), Error> {
        self.state().attendances.attend(attendance, ttl, now);
        Ok(())
    }

    async fn placement(&self, now: Timestamp) -> Result<Placement, Error> {
        Ok(self.state().placement(now))
    }

    async fn acquire(
        &self,
        owner: WorkerId,
        shards: Shards,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Vec<(ShardId, Epoch)>, Error> {
        Ok(self.state().acquire(owner, &shards, ttl, now))
    }

    async fn hand_over(
        &self,
        owner: WorkerId,
        shards: Vec<(ShardId, WorkerId)>,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.state().hand_over(owner, shards, ttl, now);
        Ok(())
    }

    async fn leave(&self, node: WorkerId, now: Timestamp) -> Result<(), Error> {
        self.state().leave(node, now);
        Ok(())
    }

    async fn news(&self, owner: WorkerId, _: Timestamp) -> Result<Option<Timestamp>, Error> {
        Ok(self.state().news(owner))
    }

    async fn put_born(
        &self,
        puts: Vec<Put>,
        now: Timestamp,
    ) -> Result<Vec<Result<Option<Run>, Refused>>, Error> {
        let mut state = self.state();
        let answers = puts.into_iter().map(|put| state.put_job(put, now)).collect();
        state.go_on(now);
        Ok(answers)
    }

    async fn jobs(&self, ids: &[JobId]) -> Result<Vec<Option<Stored>>, Error> {
        let state = self.state();
        Ok(ids.iter().map(|id| state.job(*id).cloned()).collect())
    }

    async fn kept_jobs(&self, ids: &[JobId]) -> Result<Vec<Option<Stored>>, Error> {
        let state = self.state();
        Ok(ids.iter().map(|id| state.jobs.get(id).cloned()).collect())
    }

    async fn job_versions(&self, versions: &[(JobId, Version)]) -> Result<Vec<Option<Stored>>, Error> {
        let state = self.state();
        Ok(versions.iter().map(|(id, version)| state.job_version(*id, *version).cloned()).collect())
    }

    async fn job_by_key(&self, tenant: TenantId, key: &str) -> Result<Option<JobId>, Error> {
        Ok(self.state().job_by_key(tenant, key))
    }

    async fn list_jobs(
        &self,
        filter: &JobFilter,
        page: PageRequest<JobId>,
    ) -> Result<Page<Stored, JobId>, Error> {
        Ok(self.state().list_jobs(filter, &page))
    }

    async fn planned(&self, page: PageRequest<JobId>) -> Result<Page<Planned, JobId>, Error> {
        Ok(self.state().planned(&page))
    }

    async fn have_open_runs(&self, jobs: &[JobId]) -> Result<Vec<bool>, Error> {
        let state = self.state();
        Ok(jobs.iter().map(|job| state.has_open_runs(*job)).collect())
    }

    async fn request(&self, tenant: TenantId, key: &str, now: Timestamp) -> Result<Option<Subject>, Error> {
        Ok(self.state().request(tenant, key, now).cloned())
    }

    async fn remember(
        &self,
        requests: Vec<Subject>,
        now: Timestamp,
    ) -> Result<Vec<Result<(), Refused>>, Error> {
        let mut state = self.state();
        Ok(requests.into_iter().map(|request| state.remember(Some(request), now)).collect())
    }

    async fn trigger(
        &self,
        triggers: Vec<Trigger>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        let mut state = self.state();
        let answers = together(triggers, |trigger| Ok(state.trigger(trigger, now)));
        state.go_on(now);
        answers
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, Error> {
        Ok(self.state().due(&query))
    }

    async fn count_due(&self, from: Timestamp, to: Timestamp, limit: usize) -> Result<usize, Error> {
        Ok(self.state().count_due(from, to, limit))
    }

    async fn is_due(&self, entries: &[Due]) -> Result<Vec<bool>, Error> {
        let state = self.state();
        Ok(entries.iter().map(|entry| state.is_due(entry)).collect())
    }

    async fn fire(
        &self,
        firings: Vec<Firing>,
        now: Timestamp,
    ) -> Result<Vec<Result<Vec<Run>, Refused>>, Error> {
        let mut state = self.state();
        let answers = firings.into_iter().map(|firing| state.fire(firing, now)).collect();
        state.go_on(now);
        Ok(answers)
    }

    async fn claim(&self, claim: Claim, now: Timestamp) -> Result<Vec<Run>, Error> {
        Ok(self.state().claim(&claim, now))
    }

    async fn next_available_at(&self, shards: &Shards) -> Result<Option<Timestamp>, Error> {
        Ok(self.state().next_available_at(shards))
    }

    async fn heartbeat(&self, worker: WorkerId, held: Vec<Held>, now: Timestamp) -> Result<Heartbeat, Error> {
        Ok(self.state().heartbeat(worker, held, now))
    }

    async fn asked_to_stop(&self, worker: WorkerId, held: &[Held]) -> Result<Vec<Held>, Error> {
        Ok(self.state().asked_to_stop(worker, held))
    }

    async fn note(&self, notes: Vec<Note>, _: Timestamp) -> Result<Vec<Result<(), Refused>>, Error> {
        let mut state = self.state();
        Ok(notes.into_iter().map(|note| state.note(note)).collect())
    }

    async fn checkpoints(&self, runs: &[RunId]) -> Result<Vec<Option<Box<str>>>, Error> {
        let state = self.state();
        Ok(runs.iter().map(|run| state.checkpoint(*run)).collect())
    }

    async fn introduce(&self, worker: WorkerId, about: About, now: Timestamp) -> Result<bool, Error> {
        Ok(self.state().liveness.introduce(worker, about, now))
    }

    async fn workers(&self, tenant: Option<TenantId>) -> Result<Vec<Presence>, Error> {
        Ok(self.state().liveness.seen(tenant))
    }

    async fn queues(&self, tenant: Option<TenantId>) -> Result<Vec<Queue>, Error> {
        let state = self.state();
        let mut queues = Queues::default();
        let is_wanted = |run: &Run| tenant.is_none_or(|tenant| tenant == run.tenant);
        for run in state.open.values().map(|entry| &entry.run).filter(|run| is_wanted(run)) {
            if run.lease().is_some() {
                queues.run(run.tenant, &run.queue, 1);
            } else if state.is_ready(run) {
                queues.wait(run.tenant, &run.queue, 1, Some(run.available_at));
            }
        }
        Ok(queues.into_vec())
    }

    async fn addressed(&self) -> Result<Vec<Labels>, Error> {
        let state = self.state();
        let ready = state.open.values().map(|entry| &entry.run).filter(|run| state.is_ready(run));
        let addressed = ready.filter(|run| is_addressed(&run.requires)).map(|run| run.requires.clone());
        Ok(addressed.collect::<BTreeSet<_>>().into_iter().collect())
    }

    async fn suspected(&self) -> Result<Vec<WorkerId>, Error> {
        Ok(suspected(self.state().open.values().map(|entry| &entry.run)))
    }

    async fn dismiss(&self, worker: WorkerId, _: Timestamp) -> Result<(), Error> {
        self.state().liveness.bury(worker);
        Ok(())
    }

    async fn complete(
        &self,
        conclusions: Vec<Conclusion>,
        now: Timestamp,
    ) -> Result<Vec<Result<Concluded, Refused>>, Error> {
        let mut state = self.state();
        let answers = conclusions.into_iter().map(|conclusion| state.complete(conclusion, now)).collect();
        state.go_on(now);
        Ok(answers)
    }

    async fn expired(&self, lease: Duration, now: Timestamp, limit: usize) -> Result<Vec<Run>, Error> {
        Ok(self.state().expired(lease, now, limit))
    }

    async fn cancel(
        &self,
        cancellations: Vec<Cancellation>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        let mut state = self.state();
        let answers = cancellations.into_iter().map(|cancellation| state.cancel(cancellation, now)).collect();
        state.go_on(now);
        Ok(answers)
    }

    async fn lapsed(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Lapsed, Error> {
        Ok(self.state().lapsed(shards, now, limit))
    }

    async fn lapse(&self, lapses: Vec<Lapse>, now: Timestamp) -> Result<Vec<Result<Run, Refused>>, Error> {
        let mut state = self.state();
        let answers = lapses.into_iter().map(|lapse| state.lapse(lapse, now)).collect();
        state.go_on(now);
        Ok(answers)
    }

    async fn answer(
        &self,
        answers: Vec<Answering>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        let mut state = self.state();
        let answers = answers.into_iter().map(|one| state.answer(one, now)).collect();
        state.go_on(now);
        Ok(answers)
    }

    async fn put_rules(&self, changes: Vec<RuleChange>, now: Timestamp) -> Result<(), Error> {
        let mut state = self.state();
        changes.into_iter().for_each(|change| state.gates.change_rule(change, now));
        Ok(())
    }

    async fn rules(&self) -> Result<Vec<Rule>, Error> {
        Ok(self.state().gates.rules().cloned().collect())
    }

    async fn advance(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Advanced, Error> {
        Ok(self.state().advance(shards, now, limit))
    }

    async fn run(&self, id: RunId) -> Result<Option<RunDetail>, Error> {
        Ok(self.state().run(id))
    }

    async fn runs(
        &self,
        filter: &RunFilter,
        page: PageRequest<Sequence>,
    ) -> Result<Page<Run, Sequence>, Error> {
        Ok(self.state().runs(filter, &page))
    }

    async fn ledger(
        &self,
        job: JobId,
        page: PageRequest<Timestamp>,
    ) -> Result<Page<LedgerEntry, Timestamp>, Error> {
        Ok(self.state().ledger(job, &page))
    }

    async fn redrive(&self, runs: &[RunId], now: Timestamp) -> Result<Vec<Result<Run, Refused>>, Error> {
        let mut state = self.state();
        Ok(runs.iter().map(|run| state.redrive(*run, now)).collect())
    }

    async fn acknowledge(&self, runs: &[RunId]) -> Result<Vec<Result<(), Refused>>, Error> {
        let mut state = self.state();
        Ok(runs.iter().map(|run| state.acknowledge(*run)).collect())
    }

    async fn retain(&self, now: Timestamp, limit: usize) -> Result<u64, Error> {
        Ok(self.state().retain(now, limit))
    }

    async fn step(&self, steps: Vec<Step>, now: Timestamp) -> Result<Vec<Result<Stepped, Refused>>, Error> {
        let mut state = self.state();
        let answers = steps.into_iter().map(|step| state.step(step, now)).collect();
        state.go_on(now);
        Ok(answers)
    }

    async fn runnable(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Runnable, Error> {
        Ok(self.state().runnable(shards, now, limit))
    }

    async fn operation(&self, id: OperationId) -> Result<Option<Operation>, Error> {
        Ok(self.state().operations.get(&id).cloned())
    }

    async fn operations(
        &self,
        filter: &OperationFilter,
        page: PageRequest<OperationId>,
    ) -> Result<Page<Operation, OperationId>, Error> {
        Ok(self.state().list_operations(filter, &page))
    }

    async fn put_documents(
        &self,
        changes: Vec<DocumentChange>,
        now: Timestamp,
    ) -> Result<Vec<Result<Option<Document>, Refused>>, Error> {
        let mut state = self.state();
        Ok(changes.into_iter().map(|change| state.put_document(change, now)).collect())
    }

    async fn document(
        &self,
        kind: document::Kind,
        tenant: TenantId,
        name: &str,
    ) -> Result<Option<Document>, Error> {
        Ok(self.state().documents.get(&(kind, tenant, name.to_string())).cloned())
    }

    async fn documents(
        &self,
        kind: document::Kind,
        tenant: Option<TenantId>,
        after: Option<(TenantId, String)>,
        limit: usize,
    ) -> Result<Vec<Document>, Error> {
        Ok(self.state().list_documents(kind, tenant, after, limit))
    }

    async fn append_audit(&self, entries: Vec<AuditEntry>) -> Result<(), Error> {
        self.state().audit.extend(entries.into_iter().map(|entry| (entry.id, entry)));
        Ok(())
    }

    async fn audit(
        &self,
        filter: &AuditFilter,
        page: PageRequest<EntryId>,
    ) -> Result<Page<AuditEntry, EntryId>, Error> {
        Ok(self.state().list_audit(filter, &page))
    }

    async fn put_tenant(&self, name: &TenantName, now: Timestamp) -> Result<Tenant, Error> {
        Ok(self.state().put_tenant(name, now))
    }

    async fn tenants(&self) -> Result<Vec<Tenant>, Error> {
        Ok(self.state().tenants.clone())
    }
}
