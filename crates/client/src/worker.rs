//! A worker that pulls: asks for runs of its queues, executes them by handlers of this program, and reports.
//!
//! ```no_run
//! # async fn example() -> Result<(), punctual_client::Error> {
//! use punctual_client::{Client, Options, Worker};
//!
//! let client = Client::new("http://127.0.0.1:7171".parse()?, &Options::default())?;
//! Worker::new(client, ["emails"])
//!     .handler("welcome", |task| async move { Ok(Some(format!("sent {}", task.payload()["n"]))) })
//!     .run()
//!     .await
//! # }
//! ```
//!
//! Over REST it polls; with [`Worker::grpc`] it keeps a stream, over which runs come as soon as they are due.
//!
//! Promise: never more attempts at a time than its concurrency; everything it holds is listed in its heartbeats until its result is
//! delivered, however long the server is away; what the server takes away is stopped and not reported.

mod beat;
mod line;
mod link;
mod notes;
mod report;
mod stream;

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_api::limits::{OUTPUT_MAX, WORD_MAX};
use punctual_api::payload::Payload;
use punctual_api::worker::{AttemptResult, Claim, ClaimedAttempt, ResultError};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use self::beat::beat;
use self::line::Line;
use self::link::{Link, Rest};
use self::notes::{Notes, shortened};
use self::report::report;
use crate::client::Client;
use crate::error::Error;

/// After something could not be delivered; it doubles.
const PAUSE: Duration = Duration::from_millis(200);

/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long a worker that ends tries to deliver what is left.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Bytes of an output: a character more than any server keeps, so that it says that there was more.
const OUTPUT_BYTES: usize = OUTPUT_MAX as usize + 4;

/// Bytes of a failure's message: enough for people.
const MESSAGE_MAX: usize = 4 << 10;

/// The shortest delay that can be written.
const DELAY_MIN: Duration = Duration::from_millis(1);

/// The most attempts that one claim may give.
const CLAIM_MAX: usize = 1_000;

/// Why a handler failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    message: String,
    code: Option<String>,
    is_retryable: bool,
    retry_after: Option<Duration>,
}

impl Failed {
    /// A failure that another attempt may mend.
    pub fn new(message: impl Into<String>) -> Self {
        Failed { message: message.into(), code: None, is_retryable: true, retry_after: None }
    }

    /// A failure that no attempt can mend.
    pub fn for_good(message: impl Into<String>) -> Self {
        Failed { is_retryable: false, ..Failed::new(message) }
    }

    /// A word for programs.
    #[must_use]
    pub fn code(self, code: impl Into<String>) -> Self {
        Failed { code: Some(code.into()), ..self }
    }

    /// Not before so long.
    #[must_use]
    pub fn retry_after(self, delay: Duration) -> Self {
        Failed { retry_after: Some(delay), ..self }
    }
}

impl<E: std::error::Error> From<E> for Failed {
    fn from(error: E) -> Self {
        Failed::new(error.to_string())
    }
}

/// What a handler answers: text that is kept as the attempt's output.
pub type Answer = Result<Option<String>, Failed>;

type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;
type Handler = Arc<dyn Fn(Task) -> Answering + Send + Sync>;

/// What a handler is called with.
#[derive(Clone, Debug)]
pub struct Task {
    attempt: Arc<ClaimedAttempt>,
    notes: Arc<Mutex<Notes>>,
}

impl Task {
    /// An attempt as handlers are given it, for those who test theirs. What it says goes nowhere.
    pub fn new(attempt: ClaimedAttempt) -> Self {
        Task { attempt: Arc::new(attempt), notes: Arc::default() }
    }

    /// The attempt as the server gave it: its run, its job, its idempotency key.
    pub fn attempt(&self) -> &ClaimedAttempt {
        &self.attempt
    }

    /// The payload; null, if there is none.
    pub fn payload(&self) -> serde_json::Value {
        value(self.attempt.payload.as_ref())
    }

    /// Where an earlier attempt said to go on; null, if none did.
    pub fn last_checkpoint(&self) -> serde_json::Value {
        value(self.attempt.checkpoint.as_ref())
    }

    /// Says how far it is. Told with the next heartbeat.
    pub fn progress(&self, percent: u8, message: impl Into<String>) {
        lock(&self.notes).progress(percent, message.into());
    }

    /// Says where the next attempt goes on, up to 64 KiB of JSON. Told with the next heartbeat. Fails if it is larger.
    pub fn checkpoint(&self, checkpoint: &serde_json::Value) -> Result<(), Error> {
        lock(&self.notes).checkpoint(checkpoint.to_string())
    }

    /// Adds a line to the log of the attempt. The newest 1,000 and 64 KiB of them are kept.
    pub fn log(&self, line: impl Into<String>) {
        lock(&self.notes).log(line.into());
    }
}

fn value(payload: Option<&Payload>) -> serde_json::Value {
    payload.and_then(|payload| serde_json::from_str(payload.as_str()).ok()).unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A worker that is not running yet.
pub struct Worker {
    client: Client,
    handlers: BTreeMap<String, Handler>,
    name: String,
    queues: Vec<String>,
    labels: BTreeMap<String, String>,
    concurrency: usize,
    grace: Duration,
    is_grpc: bool,
}

impl Worker {
    /// A worker of these queues.
    pub fn new(client: Client, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Worker {
            client,
            handlers: BTreeMap::new(),
            name: format!("rust {}", std::process::id()),
            queues: queues.into_iter().map(Into::into).collect(),
            labels: BTreeMap::new(),
            concurrency: 10,
            grace: Duration::from_secs(30),
            is_grpc: false,
        }
    }

    /// Over a gRPC stream instead of polls of REST, at the same address.
    #[must_use]
    pub fn grpc(self) -> Self {
        Worker { is_grpc: true, ..self }
    }

    /// Adds a handler; one of the same name is replaced.
    #[must_use]
    pub fn handler<F, A>(mut self, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Task) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        self.handlers.insert(name.into(), Arc::new(move |task| Box::pin(handler(task))));
        self
    }

    /// What lists show.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Worker { name: name.into(), ..self }
    }

    /// What it has, for jobs that require it.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// How many attempts at a time; 10.
    #[must_use]
    pub fn concurrency(self, attempts: usize) -> Self {
        Worker { concurrency: attempts.max(1), ..self }
    }

    /// How long what runs may go on when it is told to stop; half a minute.
    #[must_use]
    pub fn grace(self, grace: Duration) -> Self {
        Worker { grace, ..self }
    }

    /// Works until SIGTERM or SIGINT, and stops well.
    pub async fn run(self) -> Result<(), Error> {
        self.run_until(signal()).await
    }

    /// Works until told to stop: then it claims nothing more, lets what runs end, gives the rest back and says that it goes. Fails
    /// only if the server refuses its first claim.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let (results, reports) = mpsc::unbounded_channel();
        let (stopping, stopped) = watch::channel(Stop::No);
        let grace = self.grace;
        let link = match self.is_grpc {
            true => Link::Grpc(Arc::new(Line::new(self.client.clone())?)),
            false => Link::Rest(Box::new(Rest { client: self.client.clone(), signs: self.client.apart() })),
        };
        let shared = Arc::new(Shared {
            worker: self,
            link,
            held: Mutex::default(),
            changed: Notify::new(),
            beat_now: Notify::new(),
            beating: tokio::sync::Mutex::default(),
            results,
            identity: Mutex::default(),
        });
        let mut loops = JoinSet::new();
        loops.spawn(report(Arc::clone(&shared), reports, stopped.clone()));
        loops.spawn(beat(Arc::clone(&shared), stopped.clone()));
        let claims = match &shared.link {
            Link::Rest(rest) => tokio::spawn(claim(Arc::clone(&shared), rest.client.clone(), stopped)),
            Link::Grpc(line) => {
                let (refuse, refused) = oneshot::channel();
                // The stream is for results too, and lasts as long as there are any.
                loops.spawn(stream::work(Arc::clone(&shared), Arc::clone(line), stopped.clone(), refuse));
                tokio::spawn(refused_or_stopped(refused, stopped))
            }
        };
        tokio::pin!(claims, stop);
        let refused = tokio::select! {
            ended = &mut claims => ended.unwrap_or(Ok(())).err(),
            () = &mut stop => {
                stopping.send_replace(Stop::Claiming);
                claims.await.unwrap_or(Ok(())).err()
            }
        };
        // A timeout is an answer like another: what is left is given back.
        let _ = tokio::time::timeout(grace, shared.emptied()).await;
        shared.release_all();
        let _ = tokio::time::timeout(LAST_WORDS, shared.emptied()).await;
        stopping.send_replace(Stop::Everything);
        while loops.join_next().await.is_some() {}
        if let Some(worker) = shared.worker_now() {
            // Who does not say it is missed after a lease.
            let _ = shared.link.dismiss(&worker).await;
        }
        refused.map_or(Ok(()), Err)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    No,
    Claiming,
    Everything,
}

/// An attempt by its name.
type Key = (String, u32);

struct Shared {
    worker: Worker,
    link: Link,
    held: Mutex<HashMap<Key, Holding>>,
    /// What is held has changed.
    changed: Notify,
    /// A sign of life is wanted before its time.
    beat_now: Notify,
    /// One at a time, so that what attempts said is either waiting or with the server.
    beating: tokio::sync::Mutex<()>,
    /// Bounded by the concurrency.
    results: mpsc::UnboundedSender<(String, AttemptResult)>,
    identity: Mutex<Option<Identity>>,
}

/// Who the worker is in this life.
#[derive(Clone)]
struct Identity {
    worker: String,
    heartbeat_every: Duration,
}

struct Holding {
    notes: Arc<Mutex<Notes>>,
    /// None once its result is on its way.
    executing: Option<AbortHandle>,
}

impl Shared {
    fn free(&self) -> usize {
        self.worker.concurrency.saturating_sub(lock(&self.held).len())
    }

    async fn emptied(&self) {
        self.until(|| lock(&self.held).is_empty()).await;
    }

    /// Waits until the worker is not any more who it was.
    async fn is_another(&self, asked_as: Option<&str>) {
        self.until(|| self.worker_now().as_deref() != asked_as).await;
    }

    async fn until(&self, is_true: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_true() {
                return;
            }
            changed.await;
        }
    }

    fn worker_now(&self) -> Option<String> {
        lock(&self.identity).as_ref().map(|identity| identity.worker.clone())
    }

    /// The server has answered who the worker is, and what it is given. Said to who this worker was before, it counts for nothing:
    /// what was given is listed by nobody, and goes to somebody else.
    fn accept(self: &Arc<Self>, asked_as: Option<&str>, told: Identity, given: Vec<ClaimedAttempt>) -> bool {
        let mut identity = lock(&self.identity);
        if identity.as_ref().map(|identity| identity.worker.as_str()) != asked_as {
            return false;
        }
        let is_new = asked_as != Some(told.worker.as_str());
        let worker = told.worker.clone();
        *identity = Some(told);
        drop(identity);
        if is_new {
            // The pause that goes on now may be longer than this server wants.
            self.beat_now.notify_one();
        }
        self.take(&worker, given);
        true
    }

    /// Begins to execute what the worker was given in this life.
    fn take(self: &Arc<Self>, worker: &str, attempts: Vec<ClaimedAttempt>) {
        // Kept until all are listed, so that none outlives the identity it was given to.
        let identity = lock(&self.identity);
        if identity.as_ref().is_none_or(|identity| identity.worker != worker) {
            return;
        }
        for attempt in attempts {
            let key = (attempt.run_id.clone(), attempt.attempt);
            let notes = Arc::new(Mutex::new(Notes::default()));
            let task = Task { attempt: Arc::new(attempt), notes: Arc::clone(&notes) };
            let (shared, worker, of) = (Arc::clone(self), worker.to_string(), key.clone());
            let mut held = lock(&self.held);
            let executing = tokio::spawn(async move {
                let result = shared.execute(task).await;
                shared.finish(&worker, &of, result);
            });
            held.insert(key, Holding { notes, executing: Some(executing.abort_handle()) });
        }
    }

    async fn execute(&self, task: Task) -> AttemptResult {
        let (name, timeout) = (task.attempt.handler.clone(), task.attempt.timeout.0);
        let Some(handler) = self.worker.handlers.get(&name) else {
            let known: Vec<&String> = self.worker.handlers.keys().collect();
            let message = format!("this worker has no handler `{name}`; known: {known:?}");
            return failed("failed", Failed::new(message).code("handler_unknown"));
        };
        // A task of its own, so that a panic is an answer; it ends with this one.
        let mut inner = JoinSet::new();
        inner.spawn(handler(task));
        match tokio::time::timeout(timeout, inner.join_next()).await {
            Ok(Some(Ok(Ok(output)))) => {
                let output = output.map(|output| shortened(output, OUTPUT_BYTES));
                AttemptResult { outcome: Some("succeeded".into()), output, ..AttemptResult::default() }
            }
            Ok(Some(Ok(Err(why)))) => failed("failed", why),
            Ok(Some(Err(_)) | None) => {
                failed("failed", Failed::new("the handler panicked").code("handler_panicked"))
            }
            Err(_) => {
                let message = format!("the attempt took longer than its timeout of {timeout:?}");
                failed("timed_out", Failed::new(message).code("timed_out"))
            }
        }
    }

    /// Sends the result of an attempt, unless somebody else has.
    fn finish(&self, worker: &str, key: &Key, result: AttemptResult) {
        let mut held = lock(&self.held);
        let Some(holding) = held.get_mut(key) else { return };
        let Some(executing) = holding.executing.take() else { return };
        let lines = lock(&holding.notes).take_lines();
        drop(held);
        let result =
            AttemptResult { run_id: Some(key.0.clone()), attempt: Some(key.1), log: lines, ..result };
        // The receiver lives as long as the worker.
        let _ = self.results.send((worker.into(), result));
        // Last, because it may be the task that runs this.
        executing.abort();
    }

    /// Somebody asked for it to stop.
    fn cancel(&self, worker: &str, key: &Key) {
        let cancelled = AttemptResult { outcome: Some("cancelled".into()), ..AttemptResult::default() };
        self.finish(worker, key, cancelled);
    }

    fn release_all(&self) {
        let Some(identity) = lock(&self.identity).clone() else { return };
        let keys: Vec<Key> = lock(&self.held).keys().cloned().collect();
        for key in keys {
            let released = AttemptResult { outcome: Some("released".into()), ..AttemptResult::default() };
            self.finish(&identity.worker, &key, released);
        }
    }

    /// The server does not hear this worker any more: it holds nothing, and begins anew. Only once: an answer to who it was before
    /// may come late, and says nothing about who it is now.
    fn begin_anew(&self, lost: &str) {
        let mut identity = lock(&self.identity);
        if identity.as_ref().is_none_or(|identity| identity.worker != lost) {
            return;
        }
        *identity = None;
        for (_, holding) in lock(&self.held).drain() {
            holding.executing.iter().for_each(AbortHandle::abort);
        }
        self.changed.notify_waiters();
    }

    fn let_go(&self, key: &Key) {
        let holding = lock(&self.held).remove(key);
        if let Some(executing) = holding.and_then(|holding| holding.executing) {
            executing.abort();
        }
        self.changed.notify_waiters();
    }
}

/// A failure as servers take it.
fn failed(outcome: &str, why: Failed) -> AttemptResult {
    let error = ResultError {
        message: Some(shortened(why.message, MESSAGE_MAX)),
        code: why.code.map(|code| word(&code)),
        is_retryable: Some(why.is_retryable),
        retry_after: why.retry_after.map(|delay| punctual_api::Duration(delay.max(DELAY_MIN))),
    };
    AttemptResult { outcome: Some(outcome.into()), error: Some(error), ..AttemptResult::default() }
}

/// A code as servers take it: printable ASCII without spaces.
fn word(code: &str) -> String {
    let as_taken = |c: char| if ('!'..='~').contains(&c) { c } else { '_' };
    let word: String = code.chars().map(as_taken).take(WORD_MAX).collect();
    if word.is_empty() { "worker_failed".into() } else { word }
}

fn is_lost(error: &Error) -> bool {
    error.problem().is_some_and(|problem| problem.code == "worker_lost")
}

/// Whether it is what was said that is refused, and not who says it or when.
fn is_refusal(error: &Error) -> bool {
    matches!(error.status(), Some(400 | 413 | 422))
}

/// Waits until the first hello is refused, or the worker is told to stop.
async fn refused_or_stopped(
    refused: oneshot::Receiver<Error>,
    mut stop: watch::Receiver<Stop>,
) -> Result<(), Error> {
    let never_refused = async {
        match refused.await {
            Ok(error) => error,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        error = never_refused => Err(error),
        _ = stop.wait_for(|stop| *stop > Stop::No) => Ok(()),
    }
}

/// Asks for runs while there is room.
async fn claim(shared: Arc<Shared>, client: Client, mut stop: watch::Receiver<Stop>) -> Result<(), Error> {
    let (mut pause, mut is_known) = (PAUSE, false);
    loop {
        let changed = shared.changed.notified();
        let free = shared.free().min(CLAIM_MAX);
        if free == 0 {
            tokio::select! {
                () = changed => continue,
                _ = stop.wait_for(|stop| *stop > Stop::No) => return Ok(()),
            }
        }
        let (worker, asked_as) = (&shared.worker, shared.worker_now());
        let claim = Claim {
            worker: asked_as.clone(),
            name: Some(worker.name.clone()),
            queues: Some(worker.queues.clone()),
            labels: Some(worker.labels.clone()).filter(|labels| !labels.is_empty()),
            capacity: Some(free as u32),
            concurrency: Some(worker.concurrency as u32),
            wait: None,
        };
        // A claim that is dropped is given back by the server.
        let claimed = tokio::select! {
            claimed = client.claim(&claim) => claimed,
            // Nobody waits for what is given to who this worker was before.
            () = shared.is_another(asked_as.as_deref()) => continue,
            _ = stop.wait_for(|stop| *stop > Stop::No) => return Ok(()),
        };
        match (claimed, &asked_as) {
            (Ok(claimed), _) => {
                (pause, is_known) = (PAUSE, true);
                let claimed = claimed.value;
                let told = Identity { worker: claimed.worker, heartbeat_every: claimed.heartbeat_every.0 };
                shared.accept(asked_as.as_deref(), told, claimed.attempts);
            }
            (Err(error), Some(asked_as)) if is_lost(&error) => shared.begin_anew(asked_as),
            (Err(error), _) if !is_known && error.problem().is_some_and(|problem| problem.status < 500) => {
                return Err(error);
            }
            (Err(_), _) => {
                tokio::select! {
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
                    _ = stop.wait_for(|stop| *stop > Stop::No) => return Ok(()),
                }
            }
        }
    }
}

/// SIGTERM or SIGINT; never, where there are none.
async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut term), Ok(mut int)) =
            (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            return;
        }
    }
    std::future::pending::<()>().await;
}
