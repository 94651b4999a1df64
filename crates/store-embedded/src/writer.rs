//! The one thread that writes.
//!
//! It takes what has arrived, does it in one transaction, commits, and only then answers. Promise: an
//! answer is sent after the fsync of its commit; if anything in a transaction fails, all of it is undone,
//! everybody hears of it, and what is kept in memory is read anew.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_store::Error;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::births::{self, Recent};
use crate::error::failed;
use crate::open_runs::Memory;
use crate::schema;
use crate::write::Hot;

/// How many writes may wait; more wait at the caller's.
const QUEUE: usize = 1_024;

/// A transaction takes what arrives while it is being done, but answers are not kept longer than this.
const GROUP_FOR: Duration = Duration::from_millis(4);

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
}

impl Writer {
    fn batch(&mut self) -> Batch<'_> {
        let Writer { connection, memory, recent } = self;
        Batch { connection, memory, recent, hot: Hot::default() }
    }
}

/// Sends the answer, once it is known whether the commit succeeded.
type Acknowledge = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// A write. Says whether it failed, which undoes the whole transaction.
type Work = Box<dyn FnOnce(&mut Writer) -> (bool, Acknowledge) + Send>;

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
}

impl Writers {
    /// Starts the writer and its checkpointer.
    pub(crate) fn start(writer: Writer, database: PathBuf) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared::default());
        let for_writer = Arc::clone(&shared);
        let recent = Arc::clone(&writer.recent);
        let writing = std::thread::Builder::new()
            .name("punctual-writer".into())
            .spawn(move || write(writer, receiver, &for_writer))?;
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
        let done = write(&mut writer.batch());
        let has_failed = done.is_err();
        let acknowledge: Acknowledge = Box::new(move |committed| {
            // Nobody may be waiting any more; the write stands all the same.
            let _ = reply.send(done.and_then(|value| committed.map(|()| value)));
        });
        (has_failed, acknowledge)
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

fn write(mut writer: Writer, mut receiver: mpsc::Receiver<Work>, shared: &Shared) {
    while let Some(first) = receiver.blocking_recv() {
        while shared.is_waiting.load(Ordering::Acquire) {
            std::thread::park_timeout(Duration::from_micros(200));
        }
        let gate = shared.gate.lock();
        let mut acknowledges = Vec::new();
        let result = transaction(&mut writer, first, &mut receiver, &mut acknowledges);
        if let Err(error) = &result {
            tracing::error!(%error, writes = acknowledges.len(), "a transaction failed and was undone");
            undo(&mut writer);
        }
        drop(gate);
        shared.commits.fetch_add(1, Ordering::Relaxed);
        for acknowledge in acknowledges {
            acknowledge(result.clone());
        }
    }
}

fn transaction(
    writer: &mut Writer,
    first: Work,
    receiver: &mut mpsc::Receiver<Work>,
    acknowledges: &mut Vec<Acknowledge>,
) -> Result<(), Error> {
    let started = Instant::now();
    let begun = writer.connection.execute_batch("begin immediate");
    let mut next = Some(first);
    while let Some(work) = next {
        let (has_failed, acknowledge) = work(writer);
        acknowledges.push(acknowledge);
        if has_failed {
            return Err(Error::Unavailable { reason: "another write of the same commit failed".into() });
        }
        next = if started.elapsed() < GROUP_FOR { receiver.try_recv().ok() } else { None };
    }
    begun.map_err(failed)?;
    writer.connection.execute_batch("commit").map_err(failed)
}

/// Undoes a transaction: on disk, and in memory by reading it anew.
fn undo(writer: &mut Writer) {
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
                tracing::warn!(%error, "a checkpoint failed; it is tried again");
                continue;
            }
        };
        if frames > LOG_FRAMES_MAX {
            // Twice passively leaves little to do while the writer waits.
            let _ = run_checkpoint(&connection, "passive");
            shared.is_waiting.store(true, Ordering::Release);
            let gate = shared.gate.lock();
            if let Err(error) = run_checkpoint(&connection, "restart") {
                tracing::warn!(%error, "a checkpoint failed; it is tried again");
            }
            drop(gate);
            shared.is_waiting.store(false, Ordering::Release);
        }
    }
}

fn run_checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<i64> {
    connection.query_row(&format!("pragma wal_checkpoint({mode})"), [], |row| row.get(1))
}
