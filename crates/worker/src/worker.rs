//! The worker: takes leased attempts, executes them, reports what came of them.
//!
//! One per process, any number per installation. Promise: never more attempts at a time than its concurrency; every
//! attempt it took is reported, given back or left to its lease; what it cannot report at once it keeps and
//! reports later; what an attempt said is told before its end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use punctual_domain::Note;
use punctual_domain::policy::unknown::OnUnknown;
use punctual_domain::work::{Finished, Heartbeat, Held, Leased};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::execute::{Targets, broken, broken_off, cancelled};
use crate::transport::{Session, Transport, Unreachable};
use crate::voice::Voice;

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

/// What attempts say is told so often: whoever follows a log sees it within a second, and it is one write for all of them.
const TELL_EVERY: Duration = Duration::from_secs(1);

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
    finished: mpsc::UnboundedSender<Ended>,
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
    /// Set by whoever is first: its task, which begins it, or who gives it back unbegun.
    is_begun: Arc<AtomicBool>,
    /// How it speaks while it runs, if it can.
    voice: Option<Arc<Voice>>,
}

/// An attempt that is over, on its way to the engine.
struct Ended {
    session: Arc<dyn Session>,
    finished: Finished,
    voice: Option<Arc<Voice>>,
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
        tasks.spawn(tell(Arc::clone(&shared), stopped.clone()));
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
            let voice = self.targets.voice(&leased);
            let leased = Arc::new(leased);
            let is_begun = Arc::new(AtomicBool::new(false));
            let task = {
                let (shared, leased, voice) = (Arc::clone(self), Arc::clone(&leased), voice.clone());
                let is_begun = Arc::clone(&is_begun);
                tokio::spawn(async move {
                    if is_begun.swap(true, Ordering::Relaxed) {
                        return;
                    }
                    let unwinding = Unwinding { shared: &shared, key };
                    let report = shared.targets.execute(&leased, voice).await;
                    shared.finish(key, Some(report));
                    drop(unwinding);
                })
            };
            let executing = Some(task.abort_handle());
            held.insert(key, Attempt { leased, session: Arc::clone(session), executing, is_begun, voice });
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
        let (session, voice) = (Arc::clone(&attempt.session), attempt.voice.clone());
        drop(held);
        // The receiver lives as long as the worker.
        let _ = self.finished.send(Ended { session, finished, voice });
        // Last, because it may be the task that runs this.
        executing.abort();
        true
    }

    fn release_all(&self) -> usize {
        let keys: Vec<Held> = self.held().keys().copied().collect();
        keys.into_iter().filter(|key| self.release(*key)).count()
    }

    /// Gives an attempt back, and says whether it did. One that has begun is reported instead if its job does not want it to happen twice.
    fn release(&self, key: Held) -> bool {
        let report = self.held().get(&key).and_then(|attempt| {
            let wants_once = attempt.leased.job.spec.policies.on_unknown != OnUnknown::Retry;
            let was_begun = attempt.is_begun.swap(true, Ordering::Relaxed);
            (was_begun && wants_once).then(|| broken_off((self.targets.now)()))
        });
        let is_given_back = report.is_none();
        self.finish(key, report) && is_given_back
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
            let voice = self.held().get(key).and_then(|attempt| attempt.voice.clone());
            match voice {
                // It hears of it, and is reported when it has stopped.
                Some(voice) => voice.stop(),
                None => {
                    self.finish(*key, Some(cancelled((self.targets.now)())));
                }
            }
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
                            shared.release(key);
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

/// Tells what attempts say while they run.
async fn tell(shared: Arc<Shared>, mut stop: watch::Receiver<Stop>) {
    let every = TELL_EVERY.min(shared.options.heartbeat_every);
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            _ = stop.wait_for(|stop| *stop == Stop::Everything) => return,
        }
        tell_once(&shared).await;
    }
}

async fn tell_once(shared: &Shared) {
    let mut lives: Vec<(Arc<dyn Session>, Vec<Note>, Vec<_>)> = Vec::new();
    for (key, attempt) in shared.held().iter() {
        // What one that is being reported said last is told with its report.
        let Some(voice) = attempt.voice.as_ref().filter(|_| attempt.executing.is_some()) else { continue };
        let Some((said, telling)) = voice.take() else { continue };
        let worker = attempt.session.worker();
        let place = lives.iter().position(|(session, ..)| session.worker() == worker).unwrap_or(lives.len());
        if place == lives.len() {
            lives.push((Arc::clone(&attempt.session), Vec::new(), Vec::new()));
        }
        lives[place].1.push(said.note(worker, *key));
        lives[place].2.push((Arc::clone(voice), said, telling));
    }
    for (session, notes, told) in lives {
        if let Err(error) = session.note(notes).await {
            tracing::warn!(%error, "what attempts say was not delivered; it is kept and told again");
            told.into_iter().for_each(|(voice, said, _)| voice.put_back(said));
        }
    }
}

/// Reports in batches, a few at a time, each until it is delivered.
async fn report(
    shared: Arc<Shared>,
    mut reports: mpsc::UnboundedReceiver<Ended>,
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

/// What is delivered of one life of the worker: the ends of attempts, and what they said last.
type Life = (Arc<dyn Session>, Vec<Finished>, Vec<Note>);

async fn deliver(shared: &Shared, batch: Vec<Ended>, stop: watch::Receiver<Stop>) {
    // Reports of two lives in one batch happen once in a worker's life.
    let mut lives: Vec<Life> = Vec::new();
    for Ended { session, mut finished, voice } in batch {
        let note = match voice {
            Some(voice) => last_words(&voice, &mut finished).await,
            None => None,
        };
        let known = lives.iter_mut().find(|(other, ..)| other.worker() == session.worker());
        match known {
            Some((_, batch, notes)) => {
                batch.push(finished);
                notes.extend(note);
            }
            None => lives.push((session, vec![finished], Vec::from_iter(note))),
        }
    }
    for (session, batch, notes) in lives {
        let keys: Vec<Held> = batch.iter().map(|finished| Held::from(&finished.run)).collect();
        // Where the next attempt goes on must be known before there is one.
        if !notes.is_empty() && insist(&stop, keys.len(), || session.note(notes.clone())).await.is_none() {
            return;
        }
        if insist(&stop, keys.len(), || session.complete(batch.clone())).await.is_none() {
            return;
        }
        let mut held = shared.held();
        let freed = keys.iter().filter(|key| held.remove(*key).is_some()).count();
        drop(held);
        session.grant(freed);
        shared.let_go.notify_waiters();
    }
}

/// What an attempt said and was not told yet: lines go with its report if they are all there is.
async fn last_words(voice: &Voice, finished: &mut Finished) -> Option<Note> {
    let mut said = voice.take_last().await?;
    let lines = finished.report.as_ref().and_then(|_| said.only_lines());
    match (&mut finished.report, lines) {
        (Some(report), Some(lines)) => {
            report.lines.extend(lines);
            None
        }
        _ => Some(said.note(finished.worker, Held::from(&finished.run))),
    }
}

/// Sends until it is delivered. Nothing, if the worker ends before.
async fn insist<T, A>(stop: &watch::Receiver<Stop>, reports: usize, send: impl Fn() -> A) -> Option<T>
where
    A: Future<Output = Result<T, Unreachable>>,
{
    let mut pause = PAUSE;
    loop {
        let Unreachable(reason) = match send().await {
            Ok(answer) => return Some(answer),
            Err(unreachable) => unreachable,
        };
        if *stop.borrow() == Stop::Everything {
            return None;
        }
        tracing::warn!(reports, reason, "reports were not delivered; they are kept and tried again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
