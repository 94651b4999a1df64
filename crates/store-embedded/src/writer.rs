//! The one thread that writes.
//!
//! It takes what has arrived, does it in one transaction, commits, and only then answers. Promise: an
//! answer is sent after the fsync of its commit; if anything in a transaction fails, all of it is undone,
//! everybody hears of it with the reason, and what is kept in memory is read anew. After a full disk it goes
//! on with the next write for which there is room, and tries one itself while nobody asks. After a failed fsync it takes no more writes: the system may
//! have dropped the pages it could not write and report the next fsync as a success, so only opening the store
//! anew, which reads and verifies what is on disk, brings it back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_store::{Backlog, Error, Figures, Health};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::births::{self, Recent};
use crate::directory::Directory;
use crate::error::{failed, is_fsync};
use crate::open_runs::Memory;
use crate::schema;
use crate::write::{Ended, Hot};

/// How many writes may wait; more wait at the caller's.
const QUEUE: usize = 1_024;

/// A transaction takes what arrives while it is being done, but answers are not kept longer than this.
const GROUP_FOR: Duration = Duration::from_millis(4);

/// While writes fail, one is tried this often: `/readyz` says so a second after there is room.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// The size of the cache is looked at after so many commits: often enough for a file that grows.
const FIT_EVERY: u64 = 256;

/// The database and what the writer keeps in memory about it.
pub(crate) struct Writer {
    pub(crate) connection: Connection,
    pub(crate) memory: Memory,
    pub(crate) recent: Arc<Recent>,
}

/// What a write works with.
pub(crate) struct Batch<'w> {
    pub(crate) connection: &'w Connection,
    pub(crate) memory: &'w mut Memory,
    pub(crate) recent: &'w Recent,
    pub(crate) hot: Hot<'w>,
    /// Jobs that it has ended.
    pub(crate) ended: Vec<Ended>,
}

impl Writer {
    fn batch(&mut self) -> Batch<'_> {
        let Writer { connection, memory, recent } = self;
        Batch { connection, memory, recent, hot: Hot::default(), ended: Vec::new() }
    }
}

/// Sends the answer, once it is known whether the commit succeeded.
type Acknowledge = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// A write, or the news that there is no writing. Says why it failed, which undoes the whole transaction.
type Work = Box<dyn FnOnce(Result<&mut Writer, Error>) -> (Option<Error>, Acknowledge) + Send>;

/// Where writes are sent to.
#[derive(Debug)]
pub(crate) struct Writers {
    sender: Option<mpsc::Sender<Work>>,
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

/// What the writer and the checkpointer tell each other.
#[derive(Debug, Default)]
struct Shared {
    /// Held by whoever uses the log.
    gate: std::sync::Mutex<()>,
    /// The checkpointer wants the gate; the writer lets it through before its next transaction.
    is_waiting: AtomicBool,
    commits: AtomicU64,
    is_closed: AtomicBool,
    health: std::sync::Mutex<Health>,
    figures: std::sync::Mutex<Figures>,
    /// What waits, as it was last committed.
    backlog: std::sync::Mutex<Backlog>,
    /// The checkpointer could not sync the database; the writer stops as if its own sync had failed.
    has_fsync_failed: AtomicBool,
}

impl Shared {
    fn set_health(&self, health: Health) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }

    /// Counts a transaction that is over, and the commit if there was something to commit.
    fn count(&self, writer: &mut Writer, committed: &Result<Committed, Failure>) {
        let pending = {
            let mut backlog = self.backlog.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(read) = writer.memory.backlog.take() {
                *backlog = read;
            }
            writer.memory.changes.tell(&mut backlog);
            backlog.all()
        };
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        (figures.waiting, figures.pending) = (writer.memory.waiting, pending);
        if let Ok(Committed::Something { took }) = committed {
            figures.commits.observe(*took);
        }
    }
}

impl Writers {
    /// Starts the writer and its checkpointer.
    pub(crate) fn start(mut writer: Writer, directory: Arc<Directory>) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared::default());
        // What waits is known before anything is written.
        shared.count(&mut writer, &Ok(Committed::Nothing));
        let database = directory.database();
        let for_writer = Arc::clone(&shared);
        let recent = Arc::clone(&writer.recent);
        let writing = std::thread::Builder::new()
            .name("punctual-writer".into())
            .spawn(move || close(write(writer, receiver, &for_writer), &directory))?;
        let for_checkpoints = Arc::clone(&shared);
        let checkpointing = std::thread::Builder::new()
            .name("punctual-checkpoint".into())
            .spawn(move || checkpoint(&database, &for_checkpoints))?;
        // It must not keep the writer from ending.
        let weak = sender.downgrade();
        let for_sorting = Arc::clone(&shared);
        let sorting = std::thread::Builder::new()
            .name("punctual-births".into())
            .spawn(move || sort_births(&recent, &weak, &for_sorting))?;
        Ok(Writers { sender: Some(sender), threads: vec![writing, checkpointing, sorting], shared })
    }

    /// Whether writes succeed.
    pub(crate) fn health(&self) -> Health {
        self.shared.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was counted.
    pub(crate) fn figures(&self) -> Figures {
        self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What waits.
    pub(crate) fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.shared.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a write and waits until it is durable.
    pub(crate) async fn submit<T: Send + 'static>(
        &self,
        write: impl FnOnce(&mut Batch<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let closed = || Error::Unavailable { reason: "the store is closed".into() };
        let (reply, answer) = oneshot::channel();
        let work = work(write, reply);
        let sender = self.sender.as_ref().ok_or_else(closed)?;
        sender.send(work).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

/// A write that answers once it is durable.
fn work<T: Send + 'static>(
    write: impl FnOnce(&mut Batch<'_>) -> Result<T, Error> + Send + 'static,
    reply: oneshot::Sender<Result<T, Error>>,
) -> Work {
    Box::new(move |writer| {
        let done = writer.and_then(|writer| {
            let mut batch = writer.batch();
            let value = write(&mut batch)?;
            batch.write_ended()?;
            batch.write_backlog().map(|()| value)
        });
        let failure = done.as_ref().err().cloned();
        let acknowledge: Acknowledge = Box::new(move |committed| {
            // Nobody may be waiting any more; the write stands all the same.
            let _ = reply.send(done.and_then(|value| committed.map(|()| value)));
        });
        (failure, acknowledge)
    })
}

impl Drop for Writers {
    /// Lets the writer finish what was sent, then ends both threads.
    fn drop(&mut self) {
        self.sender.take();
        self.shared.is_closed.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn write(mut writer: Writer, mut receiver: mpsc::Receiver<Work>, shared: &Shared) -> Writer {
    let mut is_writable = true;
    while let Some(first) = next(&mut receiver, is_writable || writer.memory.has_failed.is_some()) {
        while shared.is_waiting.load(Ordering::Acquire) {
            std::thread::park_timeout(Duration::from_micros(200));
        }
        let gate = shared.gate.lock();
        if shared.has_fsync_failed.load(Ordering::Acquire) && writer.memory.has_failed.is_none() {
            writer.memory.has_failed = Some(cannot_be_trusted("of the database"));
        }
        let mut acknowledges = Vec::new();
        let result = transaction(&mut writer, first, &mut receiver, &mut acknowledges);
        if let Err(failure) = &result {
            tracing::error!(error = %failure.error, writes = acknowledges.len(), "a transaction failed and was undone");
            undo(&mut writer, failure);
        }
        drop(gate);
        shared.count(&mut writer, &result);
        match &result {
            // It would have succeeded on a full disk too.
            Ok(Committed::Nothing) => {}
            Ok(Committed::Something { .. }) => {
                if shared.commits.fetch_add(1, Ordering::Relaxed).is_multiple_of(FIT_EVERY)
                    && let Err(error) = schema::fit_cache(&writer.connection)
                {
                    tracing::warn!(%error, "the cache keeps its size");
                }
                if !is_writable {
                    shared.set_health(Health::default());
                }
            }
            // One write that went wrong says nothing about the next.
            Err(failure) if failure.at == Step::Write && writer.memory.has_failed.is_none() => {}
            Err(failure) => {
                let lasting = writer.memory.has_failed.as_ref().unwrap_or(&failure.error);
                shared.set_health(Health::failing(lasting.to_string()));
            }
        }
        is_writable = shared.health.lock().unwrap_or_else(PoisonError::into_inner).writable;
        let result = result.map(|_| ()).map_err(|failure| failure.error);
        for acknowledge in acknowledges {
            acknowledge(result.clone());
        }
    }
    writer
}

/// The next write, as soon as there is one. While writes fail and nobody asks for one, one that tells whether they still
/// do.
fn next(receiver: &mut mpsc::Receiver<Work>, can_wait: bool) -> Option<Work> {
    if can_wait {
        return receiver.blocking_recv();
    }
    let asked = Instant::now();
    while asked.elapsed() < PROBE_EVERY {
        match receiver.try_recv() {
            Ok(work) => return Some(work),
            Err(mpsc::error::TryRecvError::Disconnected) => return None,
            Err(mpsc::error::TryRecvError::Empty) => std::thread::park_timeout(PROBE_EVERY / 50),
        }
    }
    // Nobody waits for the answer: health tells it.
    Some(work(|batch: &mut Batch<'_>| batch.probe(), oneshot::channel().0))
}

/// Brings everything into the database and empties the log. If that fails, the next process does it.
fn close(writer: Writer, directory: &Directory) {
    if writer.memory.has_failed.is_some() {
        return;
    }
    let truncate = "pragma wal_checkpoint(truncate)";
    match writer.connection.query_row(truncate, [], |row| row.get::<_, i64>(0)) {
        Ok(0) => directory.mark_closed(),
        Ok(_) => tracing::info!("the log is still in use; it is read when the store is opened again"),
        Err(error) => {
            tracing::warn!(%error, "cannot empty the log; it is read when the store is opened again");
        }
    }
}

/// What a transaction has changed on disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Committed {
    Nothing,
    Something {
        /// The commit alone, which is the fsync.
        took: Duration,
    },
}

/// Why a transaction was undone.
struct Failure {
    at: Step,
    error: Error,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The store takes no writes.
    Refused,
    Begin,
    Write,
    Commit,
    /// The commit was written but not made durable.
    Fsync,
}

fn transaction(
    writer: &mut Writer,
    first: Work,
    receiver: &mut mpsc::Receiver<Work>,
    acknowledges: &mut Vec<Acknowledge>,
) -> Result<Committed, Failure> {
    let started = Instant::now();
    let changes = writer.connection.total_changes();
    let begun = match writer.memory.has_failed.clone() {
        Some(error) => Err(Failure { at: Step::Refused, error }),
        None => writer
            .connection
            .execute_batch("begin immediate")
            .map_err(|error| Failure { at: Step::Begin, error: failed(error) }),
    };
    if let Err(failure) = begun {
        // Outside a transaction every statement would be a commit of its own.
        acknowledges.push(first(Err(failure.error.clone())).1);
        return Err(failure);
    }
    let mut next = Some(first);
    while let Some(work) = next {
        let (failure, acknowledge) = work(Ok(writer));
        acknowledges.push(acknowledge);
        if let Some(error) = failure {
            return Err(Failure { at: Step::Write, error });
        }
        next = if started.elapsed() < GROUP_FOR { receiver.try_recv().ok() } else { None };
    }
    let committing = Instant::now();
    writer.connection.execute_batch("commit").map_err(|error| match is_fsync(&error) {
        true => Failure { at: Step::Fsync, error: cannot_be_trusted("of the log") },
        false => Failure { at: Step::Commit, error: failed(error) },
    })?;
    // Statements that make or drop tables change rows of ours as well.
    match writer.connection.total_changes() == changes {
        true => Ok(Committed::Nothing),
        false => Ok(Committed::Something { took: committing.elapsed() }),
    }
}

/// Undoes a transaction: on disk, and in memory by reading it anew.
fn undo(writer: &mut Writer, failure: &Failure) {
    if failure.at == Step::Refused {
        return;
    }
    // The transaction may be gone already, which is as good.
    let _ = writer.connection.execute_batch("rollback");
    match writer.memory.reload(&writer.connection, &writer.recent) {
        Ok(memory) => writer.memory = memory,
        Err(error) => {
            // What memory says is not what the disk says: going on would fire or claim wrongly.
            tracing::error!(%error, "cannot read the store after a failed transaction; it takes no more writes");
            writer.memory.has_failed = Some(error);
        }
    }
    if failure.at == Step::Fsync {
        tracing::error!("an fsync failed; the store takes no more writes until it is opened anew");
        writer.memory.has_failed = Some(failure.error.clone());
    }
}

fn cannot_be_trusted(what: &str) -> Error {
    let reason = format!(
        "the fsync {what} failed, and what the system has in memory may not be on disk; \
         no writes until the disk is mended and the store opened again"
    );
    Error::Unavailable { reason }
}

/// Writes complete lists of births as segments, until the store is closed. What it does not get to is found anew when
/// the store is opened.
fn sort_births(recent: &Recent, sender: &mpsc::WeakSender<Work>, shared: &Shared) {
    let closed = || Error::Unavailable { reason: "the store is closed".into() };
    let submit = |piece: births::Piece| {
        let (reply, answer) = oneshot::channel();
        let sender = sender.upgrade().ok_or_else(closed)?;
        let work = work(move |batch: &mut Batch<'_>| piece(batch.connection), reply);
        sender.blocking_send(work).map_err(|_| closed())?;
        drop(sender);
        answer.blocking_recv().map_err(|_| closed())?
    };
    recent.sorted_here();
    while !shared.is_closed.load(Ordering::Acquire) {
        while let Some(births) = recent.complete().filter(|_| !shared.is_closed.load(Ordering::Acquire)) {
            if let Err(error) = births::write(recent, &births, submit) {
                tracing::warn!(%error, partition = births.partition, "births were not sorted; it is tried again");
                break;
            }
        }
        std::thread::park_timeout(EVERY);
    }
}

/// Frames of the log above which the writer is asked to wait while it is emptied: 128 MB.
const LOG_FRAMES_MAX: i64 = 32_768;

/// How often the log is looked at while there are commits.
const EVERY: Duration = Duration::from_millis(500);

/// Moves the log into the database in the background, so that no commit has to.
fn checkpoint(database: &std::path::Path, shared: &Shared) {
    let connection = match schema::open_checkpointer(database) {
        Ok(connection) => connection,
        Err(error) => {
            tracing::error!(%error, "cannot open the database for checkpoints");
            return;
        }
    };
    let mut seen = 0;
    while !shared.is_closed.load(Ordering::Acquire) {
        std::thread::park_timeout(EVERY);
        let commits = shared.commits.load(Ordering::Relaxed);
        if commits == seen {
            continue;
        }
        seen = commits;
        let frames = match run_checkpoint(&connection, "passive") {
            Ok(frames) => frames,
            Err(error) => {
                report(&error, shared);
                continue;
            }
        };
        if frames > LOG_FRAMES_MAX {
            // Twice passively leaves little to do while the writer waits.
            let _ = run_checkpoint(&connection, "passive");
            shared.is_waiting.store(true, Ordering::Release);
            let gate = shared.gate.lock();
            if let Err(error) = run_checkpoint(&connection, "restart") {
                report(&error, shared);
            }
            drop(gate);
            shared.is_waiting.store(false, Ordering::Release);
        }
    }
}

/// The log stays until a checkpoint succeeds, so nothing is lost; but a disk that cannot sync is not to be trusted.
fn report(error: &rusqlite::Error, shared: &Shared) {
    if is_fsync(error) {
        tracing::error!(%error, "a checkpoint could not sync the database; the store takes no more writes");
        shared.set_health(Health::failing(cannot_be_trusted("of the database").to_string()));
        shared.has_fsync_failed.store(true, Ordering::Release);
    } else {
        tracing::warn!(%error, "a checkpoint failed; it is tried again");
    }
}

fn run_checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<i64> {
    connection.query_row(&format!("pragma wal_checkpoint({mode})"), [], |row| row.get(1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_write_does_not_happen_outside_a_transaction() {
        let directory = tempfile::tempdir().unwrap();
        let connection = schema::open_writer(&directory.path().join("punctual.db"), None, 4).unwrap();
        let recent = Arc::new(Recent::new(births::SEGMENT_BIRTHS));
        let memory = Memory::load(&connection, &recent).unwrap();
        let mut writer = Writer { connection, memory, recent };
        // A transaction inside a transaction cannot begin.
        writer.connection.execute_batch("begin immediate").unwrap();
        let (_sender, mut receiver) = mpsc::channel(1);
        let (reply, mut answer) = oneshot::channel();
        let work: Work = Box::new(move |writer| {
            let done = writer.map(|_| ());
            let failure = done.as_ref().err().cloned();
            (failure, Box::new(move |_| reply.send(done).unwrap()))
        });
        let mut acknowledges = Vec::new();
        let failure = transaction(&mut writer, work, &mut receiver, &mut acknowledges).err().unwrap();
        assert!(failure.at == Step::Begin, "{}", failure.error);
        acknowledges.into_iter().for_each(|acknowledge| acknowledge(Err(failure.error.clone())));
        assert_eq!(answer.try_recv().unwrap(), Err(failure.error), "it was told, and not done");
    }
}
