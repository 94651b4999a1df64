//! The store: its parts, and the verbs one by one.

use std::sync::Mutex;
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
use punctual_store::{
    Advanced, Answering, Attendance, Cancellation, Claim, Concluded, Conclusion, DocumentChange, Due,
    DuePage, DueQuery, Error, Figures, Firing, Health, Heartbeat, Held, Hint, JobFilter, Kinds, Lapse,
    Lapsed, OperationFilter, Page, PageRequest, Planned, Put, Queue, Refused, RuleChange, RunDetail,
    RunFilter, Runnable, Shards, Step, Stepped, Store, Stored, Subject, Trigger,
};

use crate::backlog::Counted;
use crate::calls::Calls;
use crate::connect::{Connections, Options, Time, check_sessions, without_password};
use crate::depth::{Depth, Moves};
use crate::error::{OpenError, failed};
use crate::leases::Leases;
use crate::migrate::migrate;
use crate::partition::Partitions;
use crate::row::millis;
use crate::sequences::Sequences;
use crate::straight::Lines;
use crate::transfer::refuse_unfinished;
use crate::wakeups::{Hints, Wakeups};

/// A database that many nodes share.
#[derive(Debug)]
pub struct Postgres {
    address: String,
    pub(crate) connections: Connections,
    pub(crate) shard_count: u16,
    pub(crate) time: Time,
    pub(crate) sequences: Sequences,
    pub(crate) leases: Leases,
    pub(crate) lines: Lines,
    /// Whose turn it is, as this node gives them.
    pub(crate) kinds: Mutex<Kinds>,
    pub(crate) partitions: Partitions,
    pub(crate) depth: Depth,
    pub(crate) backlog: Counted,
    pub(crate) wakeups: Wakeups,
    pub(crate) calls: Calls,
    /// How long a call waits before it looks whether the server is still the one.
    pub(crate) doubt: Duration,
    /// How long a call waits for the database in all.
    pub(crate) patience: Duration,
}

/// Does a transaction, again if another was in its way or its connection was gone.
macro_rules! transact {
    ($store:expr, |$client:ident| $work:expr) => {{
        let mut tries = 0;
        loop {
            #[allow(unused_mut)]
            let mut $client = $store.connection().await?;
            let result: Result<_, crate::error::Failed> = async { $work }.await;
            drop($client);
            match $store.settle(result, &mut tries) {
                Ok(Some(value)) => break Ok(value),
                Ok(None) => {}
                Err(failed) => break Err(failed),
            }
        }
    }};
}
pub(crate) use transact;

impl Postgres {
    /// Connects, and brings the schema up to date.
    pub async fn open(options: &Options) -> Result<Self, OpenError> {
        check_sessions(options).await?;
        let connections = Connections::new(options)?;
        let mut client = connections.get().await.map_err(|error| OpenError::from(&error))?;
        let shard_count = migrate(&mut client, options).await?;
        refuse_unfinished(&client).await?;
        let depth = Depth::default();
        depth.load(&client).await?;
        drop(client);
        let wakeups = Wakeups::start(options.hints, connections.servers());
        Ok(Postgres {
            address: without_password(&options.address),
            connections,
            shard_count,
            time: options.time,
            sequences: Sequences::new(options.time),
            leases: Leases::default(),
            lines: Lines::default(),
            kinds: Mutex::default(),
            partitions: Partitions::default(),
            depth,
            backlog: Counted::default(),
            wakeups,
            calls: Calls::default(),
            doubt: options.doubt,
            patience: options.patience,
        })
    }

    /// A standby to read from. It need not be within reach.
    pub(crate) fn replica(options: &Options) -> Result<Self, OpenError> {
        let connections = Connections::new(options)?;
        Ok(Postgres {
            address: without_password(&options.address),
            // Nothing of the kind is told to others.
            wakeups: Wakeups::start(Hints::Off, connections.servers()),
            connections,
            // Nothing is written, so nothing is put into a shard.
            shard_count: 0,
            time: options.time,
            sequences: Sequences::new(options.time),
            leases: Leases::default(),
            lines: Lines::default(),
            kinds: Mutex::default(),
            partitions: Partitions::default(),
            depth: Depth::default(),
            backlog: Counted::default(),
            calls: Calls::of_replica(),
            doubt: options.patience,
            patience: options.patience,
        })
    }

    /// Where it is, without a password.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What all nodes share under a name: what is there, or else what is proposed.
    pub async fn setting(&self, name: &str, proposed: &[u8]) -> Result<Vec<u8>, Error> {
        let client = self.connection().await?;
        let insert = "insert into settings values ($1, $2) on conflict do nothing";
        client.execute(insert, &[&name, &proposed]).await.map_err(failed)?;
        let row = client.query_one("select value from settings where name = $1", &[&name]).await;
        Ok(row.map_err(failed)?.get(0))
    }

    /// What a transaction moved was committed.
    pub(crate) fn moved(&self, moves: &Moves) {
        self.depth.apply(moves);
        self.backlog.apply(moves.tenants());
    }

    /// The caller's time, where it counts; otherwise the database has its own.
    pub(crate) fn callers(&self, now: Timestamp) -> Option<i64> {
        (self.time == Time::Caller).then(|| millis(now))
    }
}

#[async_trait]
impl Store for Postgres {
    fn shard_count(&self) -> u16 {
        self.shard_count
    }

    fn figures(&self) -> Figures {
        let (waiting, pending) = (self.depth.now(), self.backlog.all());
        self.calls.add_to(Figures { waiting, pending, ..Figures::default() })
    }

    fn pending(&self, tenant: TenantId) -> Pending {
        self.backlog.of(tenant)
    }

    async fn count_pending(&self) -> Result<Pending, Error> {
        self.read("count_pending", || self.count_pending()).await
    }

    fn health(&self) -> Health {
        self.calls.health()
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn attend(&self, attendance: Attendance, ttl: Duration, now: Timestamp) -> Result<(), Error> {
        self.read("attend", || self.attend(&attendance, ttl, now)).await
    }

    async fn placement(&self, now: Timestamp) -> Result<Placement, Error> {
        self.read("placement", || self.placement(now)).await
    }

    async fn acquire(
        &self,
        owner: WorkerId,
        shards: Shards,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Vec<(ShardId, Epoch)>, Error> {
        self.read("acquire", || self.acquire(owner, &shards, ttl, now)).await
    }

    async fn hand_over(
        &self,
        owner: WorkerId,
        shards: Vec<(ShardId, WorkerId)>,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.read("hand_over", || self.hand_over(owner, &shards, ttl, now)).await
    }

    async fn leave(&self, node: WorkerId, now: Timestamp) -> Result<(), Error> {
        self.read("leave", || self.leave(node, now)).await
    }

    async fn news(&self, owner: WorkerId, _: Timestamp) -> Result<Option<Timestamp>, Error> {
        self.write("news", self.news(owner)).await
    }

    async fn hint(&self) -> Hint {
        self.wakeups.hear().await
    }

    async fn put_born(
        &self,
        puts: Vec<Put>,
        now: Timestamp,
    ) -> Result<Vec<Result<Option<Run>, Refused>>, Error> {
        self.write("put_jobs", self.put_jobs(puts, now)).await
    }

    async fn jobs(&self, ids: &[JobId]) -> Result<Vec<Option<Stored>>, Error> {
        self.read("jobs", || self.jobs(ids, false)).await
    }

    async fn kept_jobs(&self, ids: &[JobId]) -> Result<Vec<Option<Stored>>, Error> {
        self.read("kept_jobs", || self.jobs(ids, true)).await
    }

    async fn job_versions(&self, versions: &[(JobId, Version)]) -> Result<Vec<Option<Stored>>, Error> {
        self.read("job_versions", || self.job_versions(versions)).await
    }

    async fn have_open_runs(&self, jobs: &[JobId]) -> Result<Vec<bool>, Error> {
        self.read("have_open_runs", || self.have_open_runs(jobs)).await
    }

    async fn job_by_key(&self, tenant: TenantId, key: &str) -> Result<Option<JobId>, Error> {
        self.read("job_by_key", || self.job_by_key(tenant, key)).await
    }

    async fn list_jobs(
        &self,
        filter: &JobFilter,
        page: PageRequest<JobId>,
    ) -> Result<Page<Stored, JobId>, Error> {
        self.read("list_jobs", || self.list_jobs(filter, &page)).await
    }

    async fn planned(&self, page: PageRequest<JobId>) -> Result<Page<Planned, JobId>, Error> {
        self.read("planned", || self.planned(&page)).await
    }

    async fn request(&self, tenant: TenantId, key: &str, now: Timestamp) -> Result<Option<Subject>, Error> {
        self.read("request", || self.request(tenant, key, now)).await
    }

    async fn remember(
        &self,
        requests: Vec<Subject>,
        now: Timestamp,
    ) -> Result<Vec<Result<(), Refused>>, Error> {
        self.write("remember", self.remember(&requests, now)).await
    }

    async fn trigger(
        &self,
        triggers: Vec<Trigger>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        self.write("trigger", self.trigger(triggers, now)).await
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, Error> {
        self.read("due", || self.due(&query)).await
    }

    async fn count_due(&self, from: Timestamp, to: Timestamp, limit: usize) -> Result<usize, Error> {
        self.read("count_due", || self.count_due(from, to, limit)).await
    }

    async fn is_due(&self, entries: &[Due]) -> Result<Vec<bool>, Error> {
        self.read("is_due", || self.is_due(entries)).await
    }

    async fn fire(
        &self,
        firings: Vec<Firing>,
        now: Timestamp,
    ) -> Result<Vec<Result<Vec<Run>, Refused>>, Error> {
        self.write("fire", self.fire(firings, now)).await
    }

    async fn claim(&self, claim: Claim, now: Timestamp) -> Result<Vec<Run>, Error> {
        self.write("claim", self.claim(&claim, now)).await
    }

    async fn next_available_at(&self, shards: &Shards) -> Result<Option<Timestamp>, Error> {
        self.read("next_available_at", || self.next_available_at(shards)).await
    }

    async fn heartbeat(&self, worker: WorkerId, held: Vec<Held>, now: Timestamp) -> Result<Heartbeat, Error> {
        self.read("heartbeat", || self.heartbeat(worker, held.clone(), now)).await
    }

    async fn asked_to_stop(&self, worker: WorkerId, held: &[Held]) -> Result<Vec<Held>, Error> {
        self.read("asked_to_stop", || self.asked_to_stop(worker, held)).await
    }

    async fn note(&self, notes: Vec<Note>, _: Timestamp) -> Result<Vec<Result<(), Refused>>, Error> {
        self.write("note", self.note(&notes)).await
    }

    async fn checkpoints(&self, runs: &[RunId]) -> Result<Vec<Option<Box<str>>>, Error> {
        self.read("checkpoints", || self.checkpoints(runs)).await
    }

    async fn introduce(&self, worker: WorkerId, about: About, now: Timestamp) -> Result<bool, Error> {
        self.read("introduce", || self.introduce(worker, &about, now)).await
    }

    async fn workers(&self, tenant: Option<TenantId>) -> Result<Vec<Presence>, Error> {
        self.read("workers", || self.workers(tenant)).await
    }

    async fn queues(&self, tenant: Option<TenantId>) -> Result<Vec<Queue>, Error> {
        self.read("queues", || self.queues(tenant)).await
    }

    async fn addressed(&self) -> Result<Vec<Labels>, Error> {
        self.read("addressed", || self.addressed()).await
    }

    async fn suspected(&self) -> Result<Vec<WorkerId>, Error> {
        self.read("suspected", || self.suspected()).await
    }

    async fn dismiss(&self, worker: WorkerId, now: Timestamp) -> Result<(), Error> {
        self.read("dismiss", || self.dismiss(worker, now)).await
    }

    async fn complete(
        &self,
        conclusions: Vec<Conclusion>,
        now: Timestamp,
    ) -> Result<Vec<Result<Concluded, Refused>>, Error> {
        self.write("complete", self.complete(conclusions, now)).await
    }

    async fn expired(&self, lease: Duration, now: Timestamp, limit: usize) -> Result<Vec<Run>, Error> {
        self.read("expired", || self.expired(lease, now, limit)).await
    }

    async fn cancel(
        &self,
        cancellations: Vec<Cancellation>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        self.write("cancel", self.cancel(&cancellations, now)).await
    }

    async fn lapsed(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Lapsed, Error> {
        self.read("lapsed", || self.lapsed(shards, now, limit)).await
    }

    async fn lapse(&self, lapses: Vec<Lapse>, now: Timestamp) -> Result<Vec<Result<Run, Refused>>, Error> {
        self.write("lapse", self.lapse(&lapses, now)).await
    }

    async fn answer(
        &self,
        answers: Vec<Answering>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        self.write("answer", self.answer(&answers, now)).await
    }

    async fn put_rules(&self, changes: Vec<RuleChange>, now: Timestamp) -> Result<(), Error> {
        self.write("put_rules", self.put_rules(&changes, now)).await
    }

    async fn rules(&self) -> Result<Vec<Rule>, Error> {
        self.read("rules", || self.rules()).await
    }

    async fn advance(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Advanced, Error> {
        self.write("advance", self.advance(shards, now, limit)).await
    }

    async fn run(&self, id: RunId) -> Result<Option<RunDetail>, Error> {
        self.read("run", || self.run(id)).await
    }

    async fn runs(
        &self,
        filter: &RunFilter,
        page: PageRequest<Sequence>,
    ) -> Result<Page<Run, Sequence>, Error> {
        self.read("runs", || self.runs(filter, &page)).await
    }

    async fn ledger(
        &self,
        job: JobId,
        page: PageRequest<Timestamp>,
    ) -> Result<Page<LedgerEntry, Timestamp>, Error> {
        self.read("ledger", || self.ledger(job, &page)).await
    }

    async fn redrive(&self, runs: &[RunId], now: Timestamp) -> Result<Vec<Result<Run, Refused>>, Error> {
        self.write("redrive", self.redrive(runs, now)).await
    }

    async fn acknowledge(&self, runs: &[RunId]) -> Result<Vec<Result<(), Refused>>, Error> {
        self.write("acknowledge", self.acknowledge(runs)).await
    }

    async fn retain(&self, now: Timestamp, limit: usize) -> Result<u64, Error> {
        self.read("retain", || self.retain(now, limit)).await
    }

    async fn step(&self, steps: Vec<Step>, now: Timestamp) -> Result<Vec<Result<Stepped, Refused>>, Error> {
        self.write("step", self.step(steps, now)).await
    }

    async fn runnable(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Runnable, Error> {
        self.read("runnable", || self.runnable(shards, now, limit)).await
    }

    async fn operation(&self, id: OperationId) -> Result<Option<Operation>, Error> {
        self.read("operation", || self.operation(id)).await
    }

    async fn operations(
        &self,
        filter: &OperationFilter,
        page: PageRequest<OperationId>,
    ) -> Result<Page<Operation, OperationId>, Error> {
        self.read("operations", || self.operations(filter, &page)).await
    }

    async fn put_documents(
        &self,
        changes: Vec<DocumentChange>,
        now: Timestamp,
    ) -> Result<Vec<Result<Option<Document>, Refused>>, Error> {
        self.write("put_documents", self.put_documents(&changes, now)).await
    }

    async fn document(
        &self,
        kind: document::Kind,
        tenant: TenantId,
        name: &str,
    ) -> Result<Option<Document>, Error> {
        self.read("document", || self.document(kind, tenant, name)).await
    }

    async fn documents(
        &self,
        kind: document::Kind,
        tenant: Option<TenantId>,
        after: Option<(TenantId, String)>,
        limit: usize,
    ) -> Result<Vec<Document>, Error> {
        self.read("documents", || self.documents(kind, tenant, after.as_ref(), limit)).await
    }

    async fn append_audit(&self, entries: Vec<AuditEntry>) -> Result<(), Error> {
        self.write("append_audit", self.append_audit(&entries)).await
    }

    async fn audit(
        &self,
        filter: &AuditFilter,
        page: PageRequest<EntryId>,
    ) -> Result<Page<AuditEntry, EntryId>, Error> {
        self.read("audit", || self.audit(filter, &page)).await
    }

    async fn put_tenant(&self, name: &TenantName, now: Timestamp) -> Result<Tenant, Error> {
        self.read("put_tenant", || self.put_tenant(name, now)).await
    }

    async fn tenants(&self) -> Result<Vec<Tenant>, Error> {
        self.read("tenants", || self.tenants()).await
    }
}
