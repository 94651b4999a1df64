//! The suite once more, with an index of births that is written after every third, and the store closed and opened again before every verb: nothing that counts
//! lives in memory only. (Signs of life do; from the first heartbeat or renewal on the store stays open.)

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
use punctual_store::conformance::{Case, SHARDS};
use punctual_store::{
    Advanced, Answering, Attendance, Cancellation, Claim, Concluded, Conclusion, DocumentChange, Due,
    DuePage, DueQuery, Error, Figures, Firing, Heartbeat, Held, JobFilter, Lapse, Lapsed, OperationFilter,
    Page, PageRequest, Planned, Put, Queue, Refused, RuleChange, RunDetail, RunFilter, Runnable, Shards,
    Step, Stepped, Store, Stored, Subject, Trigger,
};
use punctual_store_embedded::{Embedded, Opening, Options};
use tokio::sync::Mutex;

struct Reopened {
    options: Options,
    store: Mutex<Option<Embedded>>,
    has_signs: AtomicBool,
    owners: Mutex<HashSet<WorkerId>>,
}

/// Opens the store anew and asks it.
macro_rules! anew {
    ($self:ident, $verb:ident($($argument:expr),*)) => {{
        let mut store = $self.store.lock().await;
        if store.is_none() || !$self.has_signs.load(Ordering::Relaxed) {
            drop(store.take());
            *store = Some(Embedded::open_as(&$self.options, Opening { segment_births: 3, is_same_process: true }).unwrap());
        }
        store.as_ref().unwrap().$verb($($argument),*).await
    }};
}

#[async_trait]
impl Store for Reopened {
    fn shard_count(&self) -> u16 {
        SHARDS
    }

    fn figures(&self) -> Figures {
        self.store.blocking_lock().as_ref().map(Store::figures).unwrap_or_default()
    }

    fn pending(&self, tenant: TenantId) -> Pending {
        let store = self.store.blocking_lock();
        store.as_ref().map(|store| store.pending(tenant)).unwrap_or_default()
    }

    async fn count_pending(&self) -> Result<Pending, Error> {
        anew!(self, count_pending())
    }

    async fn acquire(
        &self,
        owner: WorkerId,
        shards: Shards,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Vec<(ShardId, Epoch)>, Error> {
        if !self.owners.lock().await.insert(owner) {
            self.has_signs.store(true, Ordering::Relaxed);
        }
        anew!(self, acquire(owner, shards, ttl, now))
    }

    async fn attend(&self, attendance: Attendance, ttl: Duration, now: Timestamp) -> Result<(), Error> {
        // Who is live is not kept.
        self.has_signs.store(true, Ordering::Relaxed);
        anew!(self, attend(attendance, ttl, now))
    }

    async fn placement(&self, now: Timestamp) -> Result<Placement, Error> {
        anew!(self, placement(now))
    }

    async fn hand_over(
        &self,
        owner: WorkerId,
        shards: Vec<(ShardId, WorkerId)>,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<(), Error> {
        anew!(self, hand_over(owner, shards, ttl, now))
    }

    async fn leave(&self, node: WorkerId, now: Timestamp) -> Result<(), Error> {
        anew!(self, leave(node, now))
    }

    async fn put_born(
        &self,
        puts: Vec<Put>,
        now: Timestamp,
    ) -> Result<Vec<Result<Option<Run>, Refused>>, Error> {
        anew!(self, put_born(puts, now))
    }

    async fn jobs(&self, ids: &[JobId]) -> Result<Vec<Option<Stored>>, Error> {
        anew!(self, jobs(ids))
    }

    async fn kept_jobs(&self, ids: &[JobId]) -> Result<Vec<Option<Stored>>, Error> {
        anew!(self, kept_jobs(ids))
    }

    async fn job_versions(&self, versions: &[(JobId, Version)]) -> Result<Vec<Option<Stored>>, Error> {
        anew!(self, job_versions(versions))
    }

    async fn job_by_key(&self, tenant: TenantId, key: &str) -> Result<Option<JobId>, Error> {
        anew!(self, job_by_key(tenant, key))
    }

    async fn list_jobs(
        &self,
        filter: &JobFilter,
        page: PageRequest<JobId>,
    ) -> Result<Page<Stored, JobId>, Error> {
        anew!(self, list_jobs(filter, page))
    }

    async fn planned(&self, page: PageRequest<JobId>) -> Result<Page<Planned, JobId>, Error> {
        anew!(self, planned(page))
    }

    async fn have_open_runs(&self, jobs: &[JobId]) -> Result<Vec<bool>, Error> {
        anew!(self, have_open_runs(jobs))
    }

    async fn request(&self, tenant: TenantId, key: &str, now: Timestamp) -> Result<Option<Subject>, Error> {
        anew!(self, request(tenant, key, now))
    }

    async fn remember(
        &self,
        requests: Vec<Subject>,
        now: Timestamp,
    ) -> Result<Vec<Result<(), Refused>>, Error> {
        anew!(self, remember(requests, now))
    }

    async fn trigger(
        &self,
        triggers: Vec<Trigger>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        anew!(self, trigger(triggers, now))
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, Error> {
        anew!(self, due(query))
    }

    async fn count_due(&self, from: Timestamp, to: Timestamp, limit: usize) -> Result<usize, Error> {
        anew!(self, count_due(from, to, limit))
    }

    async fn is_due(&self, entries: &[Due]) -> Result<Vec<bool>, Error> {
        anew!(self, is_due(entries))
    }

    async fn fire(
        &self,
        firings: Vec<Firing>,
        now: Timestamp,
    ) -> Result<Vec<Result<Vec<Run>, Refused>>, Error> {
        anew!(self, fire(firings, now))
    }

    async fn claim(&self, claim: Claim, now: Timestamp) -> Result<Vec<Run>, Error> {
        anew!(self, claim(claim, now))
    }

    async fn next_available_at(&self, shards: &Shards) -> Result<Option<Timestamp>, Error> {
        anew!(self, next_available_at(shards))
    }

    async fn heartbeat(&self, worker: WorkerId, held: Vec<Held>, now: Timestamp) -> Result<Heartbeat, Error> {
        let reply = anew!(self, heartbeat(worker, held, now));
        self.has_signs.store(true, Ordering::Relaxed);
        reply
    }

    async fn asked_to_stop(&self, worker: WorkerId, held: &[Held]) -> Result<Vec<Held>, Error> {
        anew!(self, asked_to_stop(worker, held))
    }

    async fn note(&self, notes: Vec<Note>, now: Timestamp) -> Result<Vec<Result<(), Refused>>, Error> {
        anew!(self, note(notes, now))
    }

    async fn checkpoints(&self, runs: &[RunId]) -> Result<Vec<Option<Box<str>>>, Error> {
        anew!(self, checkpoints(runs))
    }

    async fn introduce(&self, worker: WorkerId, about: About, now: Timestamp) -> Result<bool, Error> {
        self.has_signs.store(true, Ordering::Relaxed);
        anew!(self, introduce(worker, about, now))
    }

    async fn workers(&self, tenant: Option<TenantId>) -> Result<Vec<Presence>, Error> {
        anew!(self, workers(tenant))
    }

    async fn addressed(&self) -> Result<Vec<Labels>, Error> {
        anew!(self, addressed())
    }

    async fn suspected(&self) -> Result<Vec<WorkerId>, Error> {
        anew!(self, suspected())
    }

    async fn queues(&self, tenant: Option<TenantId>) -> Result<Vec<Queue>, Error> {
        anew!(self, queues(tenant))
    }

    async fn dismiss(&self, worker: WorkerId, now: Timestamp) -> Result<(), Error> {
        self.has_signs.store(true, Ordering::Relaxed);
        anew!(self, dismiss(worker, now))
    }

    async fn complete(
        &self,
        conclusions: Vec<Conclusion>,
        now: Timestamp,
    ) -> Result<Vec<Result<Concluded, Refused>>, Error> {
        anew!(self, complete(conclusions, now))
    }

    async fn expired(&self, lease: Duration, now: Timestamp, limit: usize) -> Result<Vec<Run>, Error> {
        anew!(self, expired(lease, now, limit))
    }

    async fn cancel(
        &self,
        cancellations: Vec<Cancellation>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        anew!(self, cancel(cancellations, now))
    }

    async fn lapsed(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Lapsed, Error> {
        anew!(self, lapsed(shards, now, limit))
    }

    async fn lapse(&self, lapses: Vec<Lapse>, now: Timestamp) -> Result<Vec<Result<Run, Refused>>, Error> {
        anew!(self, lapse(lapses, now))
    }

    async fn answer(
        &self,
        answers: Vec<Answering>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        anew!(self, answer(answers, now))
    }

    async fn put_rules(&self, changes: Vec<RuleChange>, now: Timestamp) -> Result<(), Error> {
        anew!(self, put_rules(changes, now))
    }

    async fn rules(&self) -> Result<Vec<Rule>, Error> {
        anew!(self, rules())
    }

    async fn put_documents(
        &self,
        changes: Vec<DocumentChange>,
        now: Timestamp,
    ) -> Result<Vec<Result<Option<Document>, Refused>>, Error> {
        anew!(self, put_documents(changes, now))
    }

    async fn document(
        &self,
        kind: document::Kind,
        tenant: TenantId,
        name: &str,
    ) -> Result<Option<Document>, Error> {
        anew!(self, document(kind, tenant, name))
    }

    async fn documents(
        &self,
        kind: document::Kind,
        tenant: Option<TenantId>,
        after: Option<(TenantId, String)>,
        limit: usize,
    ) -> Result<Vec<Document>, Error> {
        anew!(self, documents(kind, tenant, after, limit))
    }

    async fn advance(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Advanced, Error> {
        anew!(self, advance(shards, now, limit))
    }

    async fn run(&self, id: RunId) -> Result<Option<RunDetail>, Error> {
        anew!(self, run(id))
    }

    async fn runs(
        &self,
        filter: &RunFilter,
        page: PageRequest<Sequence>,
    ) -> Result<Page<Run, Sequence>, Error> {
        anew!(self, runs(filter, page))
    }

    async fn ledger(
        &self,
        job: JobId,
        page: PageRequest<Timestamp>,
    ) -> Result<Page<LedgerEntry, Timestamp>, Error> {
        anew!(self, ledger(job, page))
    }

    async fn redrive(&self, runs: &[RunId], now: Timestamp) -> Result<Vec<Result<Run, Refused>>, Error> {
        anew!(self, redrive(runs, now))
    }

    async fn acknowledge(&self, runs: &[RunId]) -> Result<Vec<Result<(), Refused>>, Error> {
        anew!(self, acknowledge(runs))
    }

    async fn retain(&self, now: Timestamp, limit: usize) -> Result<u64, Error> {
        anew!(self, retain(now, limit))
    }

    async fn step(&self, steps: Vec<Step>, now: Timestamp) -> Result<Vec<Result<Stepped, Refused>>, Error> {
        anew!(self, step(steps, now))
    }

    async fn runnable(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Runnable, Error> {
        anew!(self, runnable(shards, now, limit))
    }

    async fn operation(&self, id: OperationId) -> Result<Option<Operation>, Error> {
        anew!(self, operation(id))
    }

    async fn operations(
        &self,
        filter: &OperationFilter,
        page: PageRequest<OperationId>,
    ) -> Result<Page<Operation, OperationId>, Error> {
        anew!(self, operations(filter, page))
    }

    async fn append_audit(&self, entries: Vec<AuditEntry>) -> Result<(), Error> {
        anew!(self, append_audit(entries))
    }

    async fn audit(
        &self,
        filter: &AuditFilter,
        page: PageRequest<EntryId>,
    ) -> Result<Page<AuditEntry, EntryId>, Error> {
        anew!(self, audit(filter, page))
    }

    async fn put_tenant(&self, name: &TenantName, now: Timestamp) -> Result<Tenant, Error> {
        anew!(self, put_tenant(name, now))
    }

    async fn tenants(&self) -> Result<Vec<Tenant>, Error> {
        anew!(self, tenants())
    }
}

fn run(case: Case) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { directory: directory.path().join("data"), shards: Some(SHARDS) };
    let store = Reopened {
        options,
        store: Mutex::new(None),
        has_signs: AtomicBool::new(false),
        owners: Mutex::default(),
    };
    futures_executor::block_on(case(Arc::new(store)));
}

punctual_store::conformance!(run);
