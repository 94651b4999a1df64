//! The store: writes go to the writer, reads to a few reading threads.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
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
use punctual_store::record::encode_job;
use punctual_store::{
    Advanced, Answering, Attendance, Attendances, Cancellation, Claim, Concluded, Conclusion, DocumentChange,
    Due, DuePage, DueQuery, Error, Figures, Firing, Health, Heartbeat, Held, JobFilter, Lapse, Lapsed,
    OperationFilter, Page, PageRequest, Planned, Put, Queue, Queues, Refused, RuleChange, RunDetail,
    RunFilter, Runnable, Shards, Step, Stepped, Store, Stored, Subject, Trigger, together,
};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::births::{Recent, SEGMENT_BIRTHS};
use crate::directory::Directory;
use crate::error::{OpenError, failed};
use crate::open_runs::Memory;
use crate::writer::{Writer, Writers};
use crate::{papers, read, schema, transfer};

/// How a data directory is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory; created if it is not there.
    pub directory: PathBuf,
    /// How many shards a new directory gets; none takes what the directory has.
    pub shards: Option<u16>,
}

/// Shards of a new directory without a wish: enough for a large cluster to share, if the data ever moves to one.
pub const SHARDS: u16 = 64;

/// What tests change about opening.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The index of births is written after so many; tests have few.
    pub segment_births: usize,
    /// Whoever lived before lives on: the store is closed and opened between two verbs.
    pub is_same_process: bool,
}

/// A store in a data directory, for one process.
#[derive(Debug)]
pub struct Embedded {
    shards: u16,
    recent: Arc<Recent>,
    attendances: Mutex<Attendances>,
    // In the order of closing: readers, then the writer, then the directory's lock.
    readers: Readers,
    writers: Writers,
    directory: Arc<Directory>,
}

impl Embedded {
    /// Opens a data directory, or says why not.
    pub fn open(options: &Options) -> Result<Self, OpenError> {
        Self::open_as(options, Opening { segment_births: SEGMENT_BIRTHS, is_same_process: false })
    }

    /// Opens a data directory in a way that only tests need.
    #[doc(hidden)]
    pub fn open_as(options: &Options, opening: Opening) -> Result<Self, OpenError> {
        let directory = Arc::new(Directory::take(&options.directory)?);
        directory.verify()?;
        let database = directory.database();
        let connection = schema::open_writer(&database, options.shards, SHARDS)?;
        let damaged = |error: Error| OpenError::Damaged { path: database.clone(), reason: error.to_string() };
        if let Some(note) = transfer::note(&connection).map_err(damaged)? {
            return Err(OpenError::Unfinished { path: options.directory.clone(), from: note.from.name });
        }
        let recent = Arc::new(Recent::new(opening.segment_births));
        let mut memory = Memory::load(&connection, &recent).map_err(damaged)?;
        if !opening.is_same_process {
            memory.succeed_process(&connection);
        }
        let unusable = |error: std::io::Error| OpenError::Unusable {
            path: options.directory.clone(),
            reason: error.to_string(),
        };
        let shards = memory.shards.len() as u16;
        let writer = Writer { connection, memory, recent: Arc::clone(&recent) };
        let readers = Readers::start(&database).map_err(damaged)?;
        directory.mark_open()?;
        let writers = Writers::start(writer, Arc::clone(&directory)).map_err(unusable)?;
        let attendances = Mutex::default();
        Ok(Embedded { shards, recent, attendances, readers, writers, directory })
    }

    fn attendances(&self) -> MutexGuard<'_, Attendances> {
        self.attendances.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database file.
    pub(crate) fn database(&self) -> PathBuf {
        self.directory.database()
    }
}

/// Threads that read.
#[derive(Debug)]
struct Readers {
    sender: Option<mpsc::Sender<Question>>,
    threads: Vec<JoinHandle<()>>,
}

type Question = Box<dyn FnOnce(&Connection) + Send>;

/// Two cores are what we plan for.
const READERS: usize = 2;

/// How many reads may wait; more wait at the caller's.
const QUEUE: usize = 1_024;

impl Readers {
    fn start(database: &Path) -> Result<Self, Error> {
        let (sender, receiver) = mpsc::channel::<Question>(QUEUE);
        let receiver = Arc::new(Mutex::new(receiver));
        let mut threads = Vec::new();
        for number in 0..READERS {
            let connection = schema::open_reader(database).map_err(failed)?;
            let receiver = Arc::clone(&receiver);
            let thread =
                std::thread::Builder::new().name(format!("punctual-reader-{number}")).spawn(move || {
                    loop {
                        let question =
                            receiver.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
                        match question {
                            Some(question) => question(&connection),
                            None => return,
                        }
                    }
                });
            threads.push(thread.map_err(|error| Error::Unavailable { reason: error.to_string() })?);
        }
        Ok(Readers { sender: Some(sender), threads })
    }

    async fn ask<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let closed = || Error::Unavailable { reason: "the store is closed".into() };
        let (reply, answer) = oneshot::channel();
        let question: Question = Box::new(move |connection| {
            // Nobody may be waiting any more.
            let _ = reply.send(read(connection));
        });
        let sender = self.sender.as_ref().ok_or_else(closed)?;
        sender.send(question).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.sender.take();
        for thread in self.threads.drain(..) {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

#[async_trait]
impl Store for Embedded {
    fn shard_count(&self) -> u16 {
        self.shards
    }

    fn health(&self) -> Health {
        self.writers.health()
    }

    fn figures(&self) -> Figures {
        self.writers.figures()
    }

    fn pending(&self, tenant: TenantId) -> Pending {
        self.writers.backlog().of(tenant)
    }

    async fn count_pending(&self) -> Result<Pending, Error> {
        Ok(self.writers.backlog().most())
    }

    async fn attend(&self, attendance: Attendance, ttl: Duration, now: Timestamp) -> Result<(), Error> {
        self.attendances().attend(attendance, ttl, now);
        Ok(())
    }

    async fn placement(&self, now: Timestamp) -> Result<Placement, Error> {
        let mut shards = self.writers.submit(|writer| Ok(writer.ownerships())).await?;
        let mut attendances = self.attendances();
        shards.iter_mut().for_each(|shard| shard.density = attendances.density(shard.shard));
        Ok(Placement { at: now, nodes: attendances.live(now), shards })
    }

    async fn acquire(
        &self,
        owner: WorkerId,
        shards: Shards,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Vec<(ShardId, Epoch)>, Error> {
        self.writers.submit(move |writer| writer.acquire(owner, &shards, ttl, now)).await
    }

    async fn hand_over(
        &self,
        owner: WorkerId,
        shards: Vec<(ShardId, WorkerId)>,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<(), Error> {
        let ttl = SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX);
        let at_last = now.checked_add(ttl).unwrap_or(Timestamp::MAX);
        let given = {
            let attendances = self.attendances();
            let until = |heir| attendances.until(heir).unwrap_or(at_last);
            shards.into_iter().map(|(shard, heir)| (shard, heir, until(heir))).collect::<Vec<_>>()
        };
        self.writers.submit(move |writer| writer.hand_over(owner, &given)).await
    }

    async fn leave(&self, node: WorkerId, now: Timestamp) -> Result<(), Error> {
        self.attendances().leave(node);
        self.writers.submit(move |writer| writer.leave(node, now)).await
    }

    async fn put_born(
        &self,
        puts: Vec<Put>,
        now: Timestamp,
    ) -> Result<Vec<Result<Option<Run>, Refused>>, Error> {
        // What the writer need not do is done here: writing the jobs out, and freeing them.
        let records = puts.iter().map(|put| encode_job(&put.job)).collect::<Result<Vec<_>, _>>()?;
        let (answers, _sent) = self
            .writers
            .submit(move |writer| {
                let answers = puts.iter().zip(&records).map(|(put, record)| writer.put_job(put, record, now));
                Ok((answers.collect::<Result<_, _>>()?, (puts, records)))
            })
            .await?;
        Ok(answers)
    }

    async fn jobs(&self, ids: &[JobId]) -> Result<Vec<Option<Stored>>, Error> {
        let ids = ids.to_vec();
        self.readers.ask(move |connection| read::jobs(connection, &ids)).await
    }

    async fn kept_jobs(&self, ids: &[JobId]) -> Result<Vec<Option<Stored>>, Error> {
        let ids = ids.to_vec();
        self.readers.ask(move |connection| read::kept_jobs(connection, &ids)).await
    }

    async fn job_versions(&self, versions: &[(JobId, Version)]) -> Result<Vec<Option<Stored>>, Error> {
        let versions = versions.to_vec();
        self.readers.ask(move |connection| read::job_versions(connection, &versions)).await
    }

    async fn job_by_key(&self, tenant: TenantId, key: &str) -> Result<Option<JobId>, Error> {
        let key = key.to_string();
        self.readers.ask(move |connection| read::job_by_key(connection, tenant, &key)).await
    }

    async fn list_jobs(
        &self,
        filter: &JobFilter,
        page: PageRequest<JobId>,
    ) -> Result<Page<Stored, JobId>, Error> {
        let filter = filter.clone();
        self.readers.ask(move |connection| read::list_jobs(connection, &filter, &page)).await
    }

    async fn planned(&self, page: PageRequest<JobId>) -> Result<Page<Planned, JobId>, Error> {
        self.readers.ask(move |connection| read::planned(connection, &page)).await
    }

    async fn have_open_runs(&self, jobs: &[JobId]) -> Result<Vec<bool>, Error> {
        // The writer alone knows which run.
        let jobs = jobs.to_vec();
        self.writers.submit(move |writer| jobs.iter().map(|job| writer.has_open_runs(*job)).collect()).await
    }

    async fn request(&self, tenant: TenantId, key: &str, now: Timestamp) -> Result<Option<Subject>, Error> {
        let key = key.to_string();
        self.readers.ask(move |connection| read::request(connection, tenant, &key, now)).await
    }

    async fn remember(
        &self,
        requests: Vec<Subject>,
        now: Timestamp,
    ) -> Result<Vec<Result<(), Refused>>, Error> {
        self.writers
            .submit(move |writer| {
                requests.iter().map(|request| writer.remember(Some(request), now)).collect()
            })
            .await
    }

    async fn trigger(
        &self,
        triggers: Vec<Trigger>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        self.writers.submit(move |writer| together(triggers, |trigger| writer.trigger(trigger, now))).await
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, Error> {
        self.readers.ask(move |connection| read::due(connection, &query)).await
    }

    async fn count_due(&self, from: Timestamp, to: Timestamp, limit: usize) -> Result<usize, Error> {
        self.readers.ask(move |connection| read::count_due(connection, from, to, limit)).await
    }

    async fn is_due(&self, entries: &[Due]) -> Result<Vec<bool>, Error> {
        let entries = entries.to_vec();
        self.readers.ask(move |connection| read::is_due(connection, &entries)).await
    }

    async fn fire(
        &self,
        firings: Vec<Firing>,
        now: Timestamp,
    ) -> Result<Vec<Result<Vec<Run>, Refused>>, Error> {
        self.writers
            .submit(move |writer| firings.into_iter().map(|firing| writer.fire(firing, now)).collect())
            .await
    }

    async fn claim(&self, claim: Claim, now: Timestamp) -> Result<Vec<Run>, Error> {
        self.writers.submit(move |writer| writer.claim(&claim, now)).await
    }

    async fn next_available_at(&self, shards: &Shards) -> Result<Option<Timestamp>, Error> {
        let shards = shards.clone();
        self.readers.ask(move |connection| read::next_available_at(connection, &shards)).await
    }

    async fn heartbeat(&self, worker: WorkerId, held: Vec<Held>, now: Timestamp) -> Result<Heartbeat, Error> {
        self.writers.submit(move |writer| Ok(writer.heartbeat(worker, held, now))).await
    }

    async fn asked_to_stop(&self, worker: WorkerId, held: &[Held]) -> Result<Vec<Held>, Error> {
        let held = held.to_vec();
        self.writers.submit(move |writer| Ok(writer.asked_to_stop(worker, &held))).await
    }

    async fn note(&self, notes: Vec<Note>, _: Timestamp) -> Result<Vec<Result<(), Refused>>, Error> {
        self.writers.submit(move |writer| notes.into_iter().map(|note| writer.note(note)).collect()).await
    }

    async fn checkpoints(&self, runs: &[RunId]) -> Result<Vec<Option<Box<str>>>, Error> {
        let runs = runs.to_vec();
        self.readers.ask(move |connection| papers::checkpoints(connection, &runs)).await
    }

    async fn introduce(&self, worker: WorkerId, about: About, now: Timestamp) -> Result<bool, Error> {
        self.writers.submit(move |writer| writer.introduce(worker, about, now)).await
    }

    async fn workers(&self, tenant: Option<TenantId>) -> Result<Vec<Presence>, Error> {
        self.writers.submit(move |writer| Ok(writer.workers(tenant))).await
    }

    async fn queues(&self, tenant: Option<TenantId>) -> Result<Vec<Queue>, Error> {
        let waiting = self.readers.ask(move |connection| read::queues(connection, tenant)).await?;
        let running = self.writers.submit(move |writer| Ok(writer.running_queues(tenant))).await?;
        let mut queues = Queues::default();
        queues.join(waiting.into_iter().chain(running));
        Ok(queues.into_vec())
    }

    async fn addressed(&self) -> Result<Vec<Labels>, Error> {
        self.readers.ask(read::addressed).await
    }

    async fn suspected(&self) -> Result<Vec<WorkerId>, Error> {
        self.writers.submit(|writer| Ok(writer.suspected())).await
    }

    async fn dismiss(&self, worker: WorkerId, _: Timestamp) -> Result<(), Error> {
        self.writers.submit(move |writer| writer.dismiss(worker)).await
    }

    async fn complete(
        &self,
        conclusions: Vec<Conclusion>,
        now: Timestamp,
    ) -> Result<Vec<Result<Concluded, Refused>>, Error> {
        self.writers
            .submit(move |writer| conclusions.into_iter().map(|one| writer.complete(one, now)).collect())
            .await
    }

    async fn expired(&self, lease: Duration, now: Timestamp, limit: usize) -> Result<Vec<Run>, Error> {
        self.writers.submit(move |writer| writer.expired(lease, now, limit)).await
    }

    async fn cancel(
        &self,
        cancellations: Vec<Cancellation>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        self.writers
            .submit(move |writer| cancellations.iter().map(|one| writer.cancel(one, now)).collect())
            .await
    }

    async fn lapsed(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Lapsed, Error> {
        let shards = shards.clone();
        self.readers.ask(move |connection| read::lapsed(connection, &shards, now, limit)).await
    }

    async fn lapse(&self, lapses: Vec<Lapse>, now: Timestamp) -> Result<Vec<Result<Run, Refused>>, Error> {
        self.writers.submit(move |writer| lapses.iter().map(|one| writer.lapse(one, now)).collect()).await
    }

    async fn answer(
        &self,
        answers: Vec<Answering>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        self.writers.submit(move |writer| answers.iter().map(|one| writer.answer(one, now)).collect()).await
    }

    async fn put_rules(&self, changes: Vec<RuleChange>, now: Timestamp) -> Result<(), Error> {
        self.writers
            .submit(move |writer| changes.into_iter().try_for_each(|change| writer.put_rule(change, now)))
            .await
    }

    async fn rules(&self) -> Result<Vec<Rule>, Error> {
        self.readers.ask(read::rules).await
    }

    async fn advance(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Advanced, Error> {
        let shards = shards.clone();
        self.writers.submit(move |writer| writer.advance(&shards, now, limit)).await
    }

    async fn run(&self, id: RunId) -> Result<Option<RunDetail>, Error> {
        self.readers.ask(move |connection| read::run(connection, id)).await
    }

    async fn runs(
        &self,
        filter: &RunFilter,
        page: PageRequest<Sequence>,
    ) -> Result<Page<Run, Sequence>, Error> {
        let (filter, recent) = (filter.clone(), Arc::clone(&self.recent));
        self.readers.ask(move |connection| read::runs(connection, &recent, &filter, &page)).await
    }

    async fn ledger(
        &self,
        job: JobId,
        page: PageRequest<Timestamp>,
    ) -> Result<Page<LedgerEntry, Timestamp>, Error> {
        self.readers.ask(move |connection| read::ledger(connection, job, &page)).await
    }

    async fn redrive(&self, runs: &[RunId], now: Timestamp) -> Result<Vec<Result<Run, Refused>>, Error> {
        let runs = runs.to_vec();
        self.writers.submit(move |writer| runs.iter().map(|run| writer.redrive(*run, now)).collect()).await
    }

    async fn acknowledge(&self, runs: &[RunId]) -> Result<Vec<Result<(), Refused>>, Error> {
        let runs = runs.to_vec();
        self.writers.submit(move |writer| runs.iter().map(|run| writer.acknowledge(*run)).collect()).await
    }

    async fn retain(&self, now: Timestamp, limit: usize) -> Result<u64, Error> {
        self.writers.submit(move |writer| writer.retain(now, limit)).await
    }

    async fn step(&self, steps: Vec<Step>, now: Timestamp) -> Result<Vec<Result<Stepped, Refused>>, Error> {
        self.writers
            .submit(move |writer| steps.into_iter().map(|step| writer.step(step, now)).collect())
            .await
    }

    async fn runnable(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Runnable, Error> {
        let shards = shards.clone();
        self.readers.ask(move |connection| read::runnable(connection, &shards, now, limit)).await
    }

    async fn operation(&self, id: OperationId) -> Result<Option<Operation>, Error> {
        self.readers.ask(move |connection| read::operation(connection, id)).await
    }

    async fn operations(
        &self,
        filter: &OperationFilter,
        page: PageRequest<OperationId>,
    ) -> Result<Page<Operation, OperationId>, Error> {
        let filter = filter.clone();
        self.readers.ask(move |connection| read::operations(connection, &filter, &page)).await
    }

    async fn put_documents(
        &self,
        changes: Vec<DocumentChange>,
        now: Timestamp,
    ) -> Result<Vec<Result<Option<Document>, Refused>>, Error> {
        self.writers
            .submit(move |writer| {
                changes.into_iter().map(|change| writer.put_document(change, now)).collect()
            })
            .await
    }

    async fn document(
        &self,
        kind: document::Kind,
        tenant: TenantId,
        name: &str,
    ) -> Result<Option<Document>, Error> {
        let name = name.to_string();
        self.readers.ask(move |connection| read::document(connection, kind, tenant, &name)).await
    }

    async fn documents(
        &self,
        kind: document::Kind,
        tenant: Option<TenantId>,
        after: Option<(TenantId, String)>,
        limit: usize,
    ) -> Result<Vec<Document>, Error> {
        self.readers.ask(move |connection| read::documents(connection, kind, tenant, after, limit)).await
    }

    async fn append_audit(&self, entries: Vec<AuditEntry>) -> Result<(), Error> {
        self.writers
            .submit(move |writer| {
                writer.check()?;
                entries.iter().try_for_each(|entry| writer.append_audit(Some(entry)))
            })
            .await
    }

    async fn audit(
        &self,
        filter: &AuditFilter,
        page: PageRequest<EntryId>,
    ) -> Result<Page<AuditEntry, EntryId>, Error> {
        let filter = filter.clone();
        self.readers.ask(move |connection| read::audit(connection, &filter, &page)).await
    }

    async fn put_tenant(&self, name: &TenantName, now: Timestamp) -> Result<Tenant, Error> {
        let name = name.clone();
        self.writers.submit(move |writer| writer.put_tenant(&name, now)).await
    }

    async fn tenants(&self) -> Result<Vec<Tenant>, Error> {
        self.readers.ask(read::tenants).await
    }
}
