//! The reference store with something that happens around a commit: another node's work before it, or an answer that
//! never arrives after it; or that is out of reach.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::audit::{Entry as AuditEntry, EntryId, Filter as AuditFilter};
use punctual_domain::document;
use punctual_domain::id::{Epoch, JobId, OperationId, RunId, Sequence, ShardId, TenantId, Version, WorkerId};
use punctual_domain::policy::backlog::Pending;
use punctual_domain::policy::limit::Rule;
use punctual_domain::work::{About, Presence};
use punctual_domain::{Document, Labels, LedgerEntry, Note, Operation, Placement, Run, Tenant, TenantName};
use punctual_store::{
    Advanced, Answering, Attendance, Cancellation, Claim, Concluded, Conclusion, DocumentChange, Due,
    DuePage, DueQuery, Effect, Error, Firing, Heartbeat, Held, JobFilter, Lapse, Lapsed, Lists, Memory,
    OperationFilter, Page, PageRequest, Planned, Put, Queue, Refused, RuleChange, RunDetail, RunFilter,
    Runnable, Shards, Step, Stepped, Store, Stored, Subject, Trigger,
};

type Hook = Box<dyn FnOnce() + Send>;

pub(crate) struct Between {
    pub(crate) store: Arc<Memory>,
    /// Done once, before the next step is committed.
    pub(crate) before_step: Mutex<Option<Hook>>,
    /// Done whenever a step is committed.
    pub(crate) each_step: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// What is written is committed, and the caller hears of a failure.
    pub(crate) loses_answers: AtomicBool,
    /// The next write is committed, and its caller waits for an answer that does not come.
    pub(crate) hangs: AtomicBool,
    /// What is written is committed, and the caller hears of a failure, for documents alone.
    pub(crate) loses_documents: AtomicBool,
    /// Asked once when the next run may be claimed, it fails.
    pub(crate) loses_sight: AtomicBool,
    /// Nobody is told which runs may not start any more.
    pub(crate) hides_lapsed: AtomicBool,
    /// Nothing is done or answered.
    pub(crate) is_down: AtomicBool,
    /// This alone is not done or answered.
    pub(crate) fails: Mutex<Option<&'static str>>,
    /// How often it was asked.
    pub(crate) calls: AtomicUsize,
    /// Whatever this operation does meets something damaged.
    pub(crate) damages: Mutex<Option<OperationId>>,
    /// A page of due entries, or of planned jobs, has no more than this.
    pub(crate) page_max: AtomicUsize,
    /// How many pages of planned jobs were read.
    pub(crate) planned: AtomicUsize,
    /// How far the store's own clock is ahead of the caller's.
    pub(crate) stores_clock_ahead: Mutex<SignedDuration>,
    /// Done once, before the next claim of what is tried alone.
    pub(crate) before_alone: Mutex<Option<Hook>>,
    /// What lists are read from, if not from the store.
    pub(crate) copy: Option<Old>,
}

/// A copy of a store, as it was.
pub(crate) struct Old(pub(crate) Memory);

#[async_trait]
impl Lists for Old {
    async fn list_jobs(
        &self,
        filter: &JobFilter,
        page: PageRequest<JobId>,
    ) -> Result<Page<Stored, JobId>, Error> {
        self.0.list_jobs(filter, page).await
    }

    async fn planned(&self, page: PageRequest<JobId>) -> Result<Page<Planned, JobId>, Error> {
        self.0.planned(page).await
    }

    async fn runs(
        &self,
        filter: &RunFilter,
        page: PageRequest<Sequence>,
    ) -> Result<Page<Run, Sequence>, Error> {
        self.0.runs(filter, page).await
    }

    async fn ledger(
        &self,
        job: JobId,
        page: PageRequest<Timestamp>,
    ) -> Result<Page<LedgerEntry, Timestamp>, Error> {
        self.0.ledger(job, page).await
    }

    async fn operations(
        &self,
        filter: &OperationFilter,
        page: PageRequest<OperationId>,
    ) -> Result<Page<Operation, OperationId>, Error> {
        self.0.operations(filter, page).await
    }
}

impl Between {
    pub(crate) fn new(store: Arc<Memory>) -> Self {
        Between {
            store,
            before_step: Mutex::default(),
            each_step: Mutex::default(),
            loses_answers: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            loses_documents: AtomicBool::new(false),
            loses_sight: AtomicBool::new(false),
            hides_lapsed: AtomicBool::new(false),
            is_down: AtomicBool::new(false),
            fails: Mutex::default(),
            calls: AtomicUsize::new(0),
            damages: Mutex::default(),
            page_max: AtomicUsize::new(usize::MAX),
            planned: AtomicUsize::new(0),
            stores_clock_ahead: Mutex::default(),
            before_alone: Mutex::default(),
            copy: None,
        }
    }

    fn reach(&self) -> Result<(), Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match self.is_down.load(Ordering::Relaxed) {
            true => Err(Error::Unavailable { reason: "it is down".into() }),
            false => Ok(()),
        }
    }

    fn fail(&self, verb: &str) -> Result<(), Error> {
        match *self.fails.lock().unwrap() == Some(verb) {
            true => Err(Error::Unavailable { reason: "it is down".into() }),
            false => Ok(()),
        }
    }

    fn answer<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        match self.loses_answers.load(Ordering::Relaxed) {
            true => Err(Error::Unavailable { reason: "the connection broke off".into() }),
            false => answer,
        }
    }
}

macro_rules! between {
    (
        writes { $(fn $write:ident($($written:ident: $given:ty),*) -> $told:ty;)+ }
        $(fn $verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)+
    ) => {
        #[async_trait]
        impl Store for Between {
            fn shard_count(&self) -> u16 {
                self.store.shard_count()
            }

            fn is_shared(&self) -> bool {
                self.store.is_shared()
            }

            fn pending(&self, tenant: TenantId) -> Pending {
                self.store.pending(tenant)
            }

            async fn count_pending(&self) -> Result<Pending, Error> {
                self.reach()?;
                self.store.count_pending().await
            }

            fn lists(&self) -> Option<&dyn Lists> {
                self.copy.as_ref().map(|copy| copy as &dyn Lists)
            }

            async fn placement(&self, now: Timestamp) -> Result<Placement, Error> {
                self.reach()?;
                let placement = self.store.placement(now).await?;
                let ahead = *self.stores_clock_ahead.lock().unwrap();
                Ok(Placement { at: placement.at + ahead, ..placement })
            }

            async fn due(&self, query: DueQuery) -> Result<DuePage, Error> {
                self.reach()?;
                let mut page = self.store.due(query).await?;
                let max = self.page_max.load(Ordering::Relaxed);
                if let Some(next) = page.entries.get(max) {
                    page.next_at = Some(next.key.at);
                    page.entries.truncate(max);
                }
                Ok(page)
            }

            async fn planned(&self, mut page: PageRequest<JobId>) -> Result<Page<Planned, JobId>, Error> {
                self.reach()?;
                self.planned.fetch_add(1, Ordering::Relaxed);
                page.limit = page.limit.min(self.page_max.load(Ordering::Relaxed));
                self.store.planned(page).await
            }

            async fn next_available_at(&self, shards: &Shards) -> Result<Option<Timestamp>, Error> {
                self.reach()?;
                match self.loses_sight.swap(false, Ordering::Relaxed) {
                    true => Err(Error::Unavailable { reason: "the connection broke off".into() }),
                    false => self.store.next_available_at(shards).await,
                }
            }

            async fn claim(&self, claim: Claim, now: Timestamp) -> Result<Vec<Run>, Error> {
                self.reach()?;
                self.fail("claim")?;
                if claim.labels.are_alone() && let Some(before) = self.before_alone.lock().unwrap().take() {
                    before();
                }
                self.store.claim(claim, now).await
            }

            async fn lapsed(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Lapsed, Error> {
                self.reach()?;
                match self.hides_lapsed.load(Ordering::Relaxed) {
                    true => Ok(Lapsed::default()),
                    false => self.store.lapsed(shards, now, limit).await,
                }
            }

            async fn put_documents(
                &self,
                changes: Vec<DocumentChange>,
                now: Timestamp,
            ) -> Result<Vec<Result<Option<Document>, Refused>>, Error> {
                self.reach()?;
                let answer = self.store.put_documents(changes, now).await;
                match self.loses_documents.load(Ordering::Relaxed) {
                    true => Err(Error::Unavailable { reason: "the connection broke off".into() }),
                    false => self.answer(answer),
                }
            }

            async fn step(
                &self,
                steps: Vec<Step>,
                now: Timestamp,
            ) -> Result<Vec<Result<Stepped, Refused>>, Error> {
                self.reach()?;
                let hook = self.before_step.lock().unwrap().take();
                // On a thread of its own, like another process: it blocks on futures.
                hook.into_iter().for_each(|hook| std::thread::spawn(hook).join().unwrap());
                self.each_step.lock().unwrap().iter().for_each(|hook| hook());
                let damaged = *self.damages.lock().unwrap();
                let does = |step: &Step| step.effect != Effect::Nothing;
                if steps.iter().any(|step| Some(step.operation.id) == damaged && does(step)) {
                    return Err(Error::Damaged { what: "a run cannot be read".into() });
                }
                self.answer(self.store.step(steps, now).await)
            }

            $(async fn $write(&self, $($written: $given),*) -> Result<$told, Error> {
                self.reach()?;
                let answer = self.store.$write($($written),*).await;
                if self.hangs.swap(false, Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                self.answer(answer)
            })+

            $(async fn $verb(&self, $($name: $type),*) -> Result<$answer, Error> {
                self.reach()?;
                self.fail(stringify!($verb))?;
                self.store.$verb($($name),*).await
            })+
        }
    };
}

between! {
    writes {
        fn put_born(puts: Vec<Put>, now: Timestamp) -> Vec<Result<Option<Run>, Refused>>;
        fn trigger(triggers: Vec<Trigger>, now: Timestamp) -> Vec<Result<Run, Refused>>;
        fn fire(firings: Vec<Firing>, now: Timestamp) -> Vec<Result<Vec<Run>, Refused>>;
        fn note(notes: Vec<Note>, now: Timestamp) -> Vec<Result<(), Refused>>;
        fn complete(conclusions: Vec<Conclusion>, now: Timestamp) -> Vec<Result<Concluded, Refused>>;
        fn cancel(cancellations: Vec<Cancellation>, now: Timestamp) -> Vec<Result<Run, Refused>>;
        fn lapse(lapses: Vec<Lapse>, now: Timestamp) -> Vec<Result<Run, Refused>>;
        fn answer(answers: Vec<Answering>, now: Timestamp) -> Vec<Result<Run, Refused>>;
        fn redrive(runs: &[RunId], now: Timestamp) -> Vec<Result<Run, Refused>>;
        fn put_rules(changes: Vec<RuleChange>, now: Timestamp) -> ();
        fn append_audit(entries: Vec<AuditEntry>) -> ();
    }
    fn introduce(worker: WorkerId, about: About, now: Timestamp) -> bool;
    fn workers(tenant: Option<TenantId>) -> Vec<Presence>;
    fn addressed() -> Vec<Labels>;
    fn suspected() -> Vec<WorkerId>;
    fn queues(tenant: Option<TenantId>) -> Vec<Queue>;
    fn dismiss(worker: WorkerId, now: Timestamp) -> ();
    fn acquire(owner: WorkerId, shards: Shards, ttl: Duration, now: Timestamp) -> Vec<(ShardId, Epoch)>;
    fn attend(attendance: Attendance, ttl: Duration, now: Timestamp) -> ();
    fn hand_over(owner: WorkerId, shards: Vec<(ShardId, WorkerId)>, ttl: Duration, now: Timestamp) -> ();
    fn leave(node: WorkerId, now: Timestamp) -> ();
    fn news(owner: WorkerId, now: Timestamp) -> Option<Timestamp>;
    fn jobs(ids: &[JobId]) -> Vec<Option<Stored>>;
    fn kept_jobs(ids: &[JobId]) -> Vec<Option<Stored>>;
    fn job_versions(versions: &[(JobId, Version)]) -> Vec<Option<Stored>>;
    fn have_open_runs(jobs: &[JobId]) -> Vec<bool>;
    fn job_by_key(tenant: TenantId, key: &str) -> Option<JobId>;
    fn list_jobs(filter: &JobFilter, page: PageRequest<JobId>) -> Page<Stored, JobId>;
    fn request(tenant: TenantId, key: &str, now: Timestamp) -> Option<Subject>;
    fn remember(requests: Vec<Subject>, now: Timestamp) -> Vec<Result<(), Refused>>;
    fn count_due(from: Timestamp, to: Timestamp, limit: usize) -> usize;
    fn is_due(entries: &[Due]) -> Vec<bool>;
    fn checkpoints(runs: &[RunId]) -> Vec<Option<Box<str>>>;
    fn heartbeat(worker: WorkerId, held: Vec<Held>, now: Timestamp) -> Heartbeat;
    fn asked_to_stop(worker: WorkerId, held: &[Held]) -> Vec<Held>;
    fn expired(lease: Duration, now: Timestamp, limit: usize) -> Vec<Run>;
    fn rules() -> Vec<Rule>;
    fn advance(shards: &Shards, now: Timestamp, limit: usize) -> Advanced;
    fn run(id: RunId) -> Option<RunDetail>;
    fn runs(filter: &RunFilter, page: PageRequest<Sequence>) -> Page<Run, Sequence>;
    fn ledger(job: JobId, page: PageRequest<Timestamp>) -> Page<LedgerEntry, Timestamp>;
    fn acknowledge(runs: &[RunId]) -> Vec<Result<(), Refused>>;
    fn retain(now: Timestamp, limit: usize) -> u64;
    fn runnable(shards: &Shards, now: Timestamp, limit: usize) -> Runnable;
    fn operation(id: OperationId) -> Option<Operation>;
    fn operations(filter: &OperationFilter, page: PageRequest<OperationId>) -> Page<Operation, OperationId>;
    fn document(kind: document::Kind, tenant: TenantId, name: &str) -> Option<Document>;
    fn documents(kind: document::Kind, tenant: Option<TenantId>, after: Option<(TenantId, String)>, limit: usize) -> Vec<Document>;
    fn audit(filter: &AuditFilter, page: PageRequest<EntryId>) -> Page<AuditEntry, EntryId>;
    fn put_tenant(name: &TenantName, now: Timestamp) -> Tenant;
    fn tenants() -> Vec<Tenant>;
}
