//! The worker: takes leased attempts, executes them, reports what came of them.
//!
//! One per process, any number per installation. Promise: never more attempts at a time than its concurrency; every
//! attempt it took is reported, given back or left to its lease; what it cannot report at once it keeps and
//! reports later.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use punctual_domain::work::{Finished, Heartbeat, Held, Leased};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::execute::{Targets, broken, cancelled};
use crate::transport::{Session, Transport, Unreachable};

/// How a worker behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many attempts at a time.
    pub concurrency: usize,
    /// A third of the lease, so that two may be missed.
    pub heartbeat_every: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { concurrency: 4_096, heartbeat_every: Duration::from_secs(5) }
    }
}

/// Reports of one write.
const BATCH: usize = 1_000;

/// Writes of reports under way.
const BATCHES_MAX: usize = 3;

/// Reports that follow each other faster than this are gathered for as long: a commit for each costs more than it tells.
const GATHER: Duration = Duration::from_millis(4);

/// After a report could not be delivered; it doubles.
const PAUSE: Duration = Duration::from_millis(200);

/// The longest pause between two tries: so long after an outage, what was kept is reported.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A running worker.
pub struct Worker {
    shared: Arc<Shared>,
    stop: watch::Sender<Stop>,
    tasks: JoinSet<()>,
}

/// How far the worker has been told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    No,
    /// Takes nothing more.
    Taking,
    /// Ends.
    Everything,
}

/// What became of the attempts of a worker that was stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Given back unfinished; others will execute them.
    pub released: usize,
    /// Could not be reported nor given back; their lease will end.
    pub left: usize,
}

struct Shared {
    targets: Targets,
    options: Options,
    /// Reports on their way, with the session they belong to. Bounded by the concurrency.
    finished: mpsc::UnboundedSender<(Arc<dyn Session>, Finished)>,
    held: Mutex<HashMap<Held, Attempt>>,
    /// Something is not held any more.
    let_go: Notify,
}

/// An attempt that is held.
struct Attempt {
    leased: Arc<Leased>,
    session: Arc<dyn Session>,
    /// None when it is being reported.
    executing: Option<AbortHandle>,
}

impl Worker {
    /// Starts a worker.
    pub fn start(transport: Arc<dyn Transport>, targets: Targets, options: Options) -> Worker {
        let (finished, reports) = mpsc::unbounded_channel();
        let shared =
            Arc::new(Shared { targets, options, finished, held: Mutex::default(), let_go: Notify::new() });
        let (stop, stopped) = watch::channel(Stop::No);
        let mut tasks = JoinSet::new();
        tasks.spawn(report(Arc::clone(&shared), reports, stopped.clone()));
        tasks.spawn(live(Arc::clone(&shared), transport, stopped));
        Worker { shared, stop, tasks }
    }

    /// How many attempts it holds.
    pub fn held(&self) -> usize {
        self.shared.held().len()
    }

    /// How many attempts it holds, and how many it can: to be asked at any time, also after it has stopped.
    pub fn load(&self) -> impl Fn() -> (usize, usize) + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || (shared.held().len(), shared.options.concurrency)
    }

    /// Takes nothing more, waits up to `grace` for what is being executed, and gives the rest back.
    pub async fn stop(mut self, grace: Duration) -> Stopped {
        self.stop.send_replace(Stop::Taking);
        // A timeout is an answer like another: what is left is given back.
        let _ = tokio::time::timeout(grace, self.shared.emptied()).await;
        let released = self.shared.release_all();
        let _ = tokio::time::timeout(Duration::from_secs(10), self.shared.emptied()).await;
        let left = self.held();
        self.stop.send_replace(Stop::Everything);
        while self.tasks.join_next().await.is_some() {}
        Stopped { released, left }
    }
}

impl Shared {
    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<Held, Attempt>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn emptied(&self) {
        loop {
            let let_go = self.let_go.notified();
            if self.held().is_empty() {
                return;
            }
            let_go.await;
        }
    }

    /// Begins to execute.
    fn take(self: &Arc<Self>, session: &Arc<dyn Session>, given: Vec<Leased>) {
        let mut held = self.held();
        for leased in given {
            let key = Held::from(&leased.run);
            let leased = Arc::new(leased);
            let task = {
                let (shared, leased) = (Arc::clone(self), Arc::clone(&leased));
                tokio::spawn(async move {
                    let unwinding = Unwinding { shared: &shared, key };
                    let report = shared.targets.execute(&leased).await;
                    shared.finish(key, Some(report));
                    drop(unwinding);
                })
            };
            let executing = Some(task.abort_handle());
            held.insert(key, Attempt { leased, session: Arc::clone(session), executing });
        }
    }

    /// Sends the report of an attempt, unless somebody else has. Without a report, it is given back.
    fn finish(&self, key: Held, report: Option<punctual_domain::Report>) -> bool {
        let mut held = self.held();
        let Some(attempt) = held.get_mut(&key) else { return false };
        let Some(executing) = attempt.executing.take() else { return false };
        let finished = Finished {
            worker: attempt.session.worker(),
            run: attempt.leased.run.clone(),
            job: Arc::clone(&attempt.leased.job),
            report,
        };
        let session = Arc::clone(&attempt.session);
        drop(held);
        // The receiver lives as long as the worker.
        let _ = self.finished.send((session, finished));
        // Last, because it may be the task that runs this.
        executing.abort();
        true
    }

    fn release_all(&self) -> usize {
        let keys: Vec<Held> = self.held().keys().copied().collect();
        keys.into_iter().filter(|key| self.finish(*key, None)).count()
    }

    /// Does what the engine's answer to a heartbeat asks for.
    fn obey(&self, answer: &Heartbeat) {
        for key in &answer.not_held {
            let gone = self.held().remove(key);
            if let Some(gone) = gone {
                tracing::warn!(run_id = %gone.leased.run.id(), attempt = key.attempt, "an attempt was taken away");
                if let Some(executing) = gone.executing {
                    executing.abort();
                }
                gone.session.grant(1);
                self.let_go.notify_waiters();
            }
        }
        for key in &answer.cancelled {
            self.finish(*key, Some(cancelled((self.targets.now)())));
        }
    }

    /// Forgets a life that is over.
    fn forget(&self, session: &Arc<dyn Session>) {
        let worker = session.worker();
        self.held().retain(|_, attempt| {
            let is_of_it = attempt.session.worker() == worker;
            if is_of_it && let Some(executing) = &attempt.executing {
                executing.abort();
            }
            !is_of_it
        });
        self.let_go.notify_waiters();
    }
}

/// Reports an attempt whose execution panicked: a mistake of ours must not hold its run forever.
struct Unwinding<'a> {
    shared: &'a Shared,
    key: Held,
}

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.finish(self.key, Some(broken((self.shared.targets.now)())));
        }
    }
}

/// One life after the other.
async fn live(shared: Arc<Shared>, transport: Arc<dyn Transport>, mut stop: watch::Receiver<Stop>) {
    while *stop.borrow() == Stop::No {
        let session = match transport.open().await {
            Ok(session) => session,
            Err(error) => {
                tracing::warn!(%error, "the worker cannot begin; it is tried again");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let used = shared.held().len();
        session.grant(shared.options.concurrency.saturating_sub(used));
        let beats = tokio::spawn(beat(Arc::clone(&shared), Arc::clone(&session), stop.clone()));
        tokio::pin!(beats);
        loop {
            tokio::select! {
                given = session.next() => shared.take(&session, given),
                // Taken for dead: nothing is held any more.
                _ = &mut beats => {
                    session.close();
                    if *stop.borrow() < Stop::Everything {
                        shared.forget(&session);
                    }
                    break;
                }
                _ = stop.changed() => {
                    session.close();
                    // What was given and not begun goes back at once.
                    loop {
                        let given = session.next().await;
                        if given.is_empty() {
                            break;
                        }
                        let keys: Vec<Held> = given.iter().map(|leased| Held::from(&leased.run)).collect();
                        shared.take(&session, given);
                        for key in keys {
                            shared.finish(key, None);
                        }
                    }
                    // Heartbeats go on until everything is over.
                    let _ = beats.await;
                    return;
                }
            }
        }
    }
}

/// Signs of life, until the engine refuses one or the worker ends.
async fn beat(shared: Arc<Shared>, session: Arc<dyn Session>, mut stop: watch::Receiver<Stop>) {
    loop {
        let held: Vec<Held> = shared.held().keys().copied().collect();
        match session.heartbeat(held).await {
            Ok(answer) if answer.is_refused => {
                tracing::warn!(worker = %session.worker(), "the worker was taken for dead; it begins anew");
                return;
            }
            Ok(answer) => shared.obey(&answer),
            Err(error) => tracing::warn!(%error, "a heartbeat was not delivered"),
        }
        let pause = tokio::time::sleep(shared.options.heartbeat_every);
        tokio::select! {
            () = pause => {}
            _ = stop.wait_for(|stop| *stop == Stop::Everything) => return,
        }
    }
}

/// Reports in batches, a few at a time, each until it is delivered.
async fn report(
    shared: Arc<Shared>,
    mut reports: mpsc::UnboundedReceiver<(Arc<dyn Session>, Finished)>,
    mut stop: watch::Receiver<Stop>,
) {
    let mut deliveries = JoinSet::new();
    let mut is_busy = false;
    let mut last: Option<Instant> = None;
    loop {
        // While batches are small, one at a time: what ends meanwhile shares the next write.
        while deliveries.len() >= if is_busy { BATCHES_MAX } else { 1 } {
            deliveries.join_next().await;
        }
        let mut batch = Vec::new();
        tokio::select! {
            _ = reports.recv_many(&mut batch, BATCH) => {}
            _ = stop.wait_for(|stop| *stop == Stop::Everything) => return,
        }
        // A single report goes at once; those that come one after the other share a write.
        if batch.len() < BATCH && last.is_some_and(|last| last.elapsed() < GATHER) {
            tokio::time::sleep(GATHER).await;
            while batch.len() < BATCH
                && let Ok(report) = reports.try_recv()
            {
                batch.push(report);
            }
        }
        last = Some(Instant::now());
        is_busy = batch.len() >= BATCH;
        let (shared, stop) = (Arc::clone(&shared), stop.clone());
        deliveries.spawn(async move { deliver(&shared, batch, stop).await });
    }
}

async fn deliver(shared: &Shared, batch: Vec<(Arc<dyn Session>, Finished)>, stop: watch::Receiver<Stop>) {
    // Reports of two lives in one batch happen once in a worker's life.
    let mut lives: Vec<(Arc<dyn Session>, Vec<Finished>)> = Vec::new();
    for (session, finished) in batch {
        match lives.iter_mut().find(|(other, _)| other.worker() == session.worker()) {
            Some((_, batch)) => batch.push(finished),
            None => lives.push((session, vec![finished])),
        }
    }
    for (session, batch) in lives {
        let keys: Vec<Held> = batch.iter().map(|finished| Held::from(&finished.run)).collect();
        let mut answers = session.complete(batch.clone()).await;
        let mut pause = PAUSE;
        while let Err(Unreachable(reason)) = &answers {
            if *stop.borrow() == Stop::Everything {
                return;
            }
            tracing::warn!(
                reports = keys.len(),
                reason,
                "reports were not delivered; they are kept and tried again"
            );
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            answers = session.complete(batch.clone()).await;
        }
        let mut held = shared.held();
        let freed = keys.iter().filter(|key| held.remove(*key).is_some()).count();
        drop(held);
        session.grant(freed);
        shared.let_go.notify_waiters();
    }
}
