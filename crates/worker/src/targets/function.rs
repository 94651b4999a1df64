//! The in-process target: a handler registered by the program that uses Punctual as a library.
//!
//! Each call has a thread of its own while it runs. Promise: a handler that panics or blocks fails or holds up only
//! its own run; nothing else in the process waits for it. What it says while it runs is stored, and its last checkpoint is
//! handed to the next attempt. A handler that is to stop hears of it; one that does not listen is stopped where it waits next.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::IdempotencyKey;
use punctual_domain::attempt::Failure;
use punctual_domain::id::{JobId, RunId};
use punctual_domain::work::Leased;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

pub use crate::voice::CheckpointTooLarge;
use crate::voice::Voice;

/// What a handler is called with, and speaks through while it runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Call {
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub job_name: String,
    /// The run.
    pub run_id: RunId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Which part of its slot, from 1, and of how many, of a job in parts.
    pub part: Option<(u32, u32)>,
    /// The ids of its batch and of its item, of an item of a batch.
    pub item: Option<(String, String)>,
    /// The nominal time.
    pub scheduled_for: Timestamp,
    /// The same for every attempt of the run.
    pub idempotency_key: IdempotencyKey,
    /// The payload as it was given.
    pub payload: Option<Box<str>>,
    /// Ties together what one cause led to.
    pub correlation_id: Option<Arc<str>>,
    checkpoint: Option<Box<str>>,
    voice: Arc<Voice>,
}

impl Call {
    /// Where an earlier attempt said to go on; null, if none did.
    pub fn last_checkpoint(&self) -> serde_json::Value {
        self.checkpoint.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Says where the next attempt goes on, up to 64 KiB of JSON. Stored within about a second, and before the attempt ends.
    pub fn checkpoint(&self, checkpoint: &serde_json::Value) -> Result<(), CheckpointTooLarge> {
        self.voice.checkpoint(checkpoint.to_string())
    }

    /// Says how far it is. Stored within about a second, and before the attempt ends.
    pub fn progress(&self, percent: u8, message: impl Into<String>) {
        self.voice.progress(percent, message.into());
    }

    /// Adds a line to the log of the attempt. The newest 1,000 and 64 KiB of them are kept.
    pub fn log(&self, line: impl Into<String>) {
        self.voice.log(line.into());
    }

    /// Waits until the attempt is to stop: somebody cancelled it, it takes longer than it may, it was taken away, or the program
    /// stops. Who has asked, by this or by [`Call::is_cancelled`], has ten seconds to end then; who has not is stopped where it
    /// waits next.
    pub async fn cancelled(&self) {
        self.voice.stopped().await;
    }

    /// Whether the attempt is to stop: for handlers that wait nowhere. See [`Call::cancelled`].
    pub fn is_cancelled(&self) -> bool {
        self.voice.is_stopped()
    }
}

/// A handler's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    message: String,
    is_retryable: bool,
    retry_after: Option<Duration>,
}

impl Failed {
    /// A failure that another attempt may mend.
    pub fn new(message: impl Into<String>) -> Self {
        Failed { message: message.into(), is_retryable: true, retry_after: None }
    }

    /// A failure that no attempt can mend.
    pub fn for_good(message: impl Into<String>) -> Self {
        Failed { is_retryable: false, ..Failed::new(message) }
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
type Handler = Arc<dyn Fn(Call) -> Answering + Send + Sync>;

/// Threads for handlers; more calls than this wait for one.
const THREADS_MAX: usize = 256;

/// Handlers by name.
#[derive(Clone)]
pub struct Functions {
    handlers: BTreeMap<String, Handler>,
    threads: Arc<Semaphore>,
}

impl Default for Functions {
    fn default() -> Self {
        Functions { handlers: BTreeMap::new(), threads: Arc::new(Semaphore::new(THREADS_MAX)) }
    }
}

impl Functions {
    /// Adds a handler; one of the same name is replaced.
    pub fn insert<F, A>(&mut self, name: impl Into<String>, handler: F)
    where
        F: Fn(Call) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        self.handlers.insert(name.into(), Arc::new(move |call| Box::pin(handler(call))));
    }

    /// The names of all handlers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.handlers.keys().map(String::as_str)
    }

    /// Calls a handler. Nothing comes back from one that was stopped before it answered.
    pub(crate) async fn call(
        &self,
        name: &str,
        leased: &Leased,
        voice: &Arc<Voice>,
    ) -> Option<Result<Option<String>, Failure>> {
        // However this ends, and if nobody waits for it any more, the handler hears of it.
        let _stopping = Stopping(voice);
        let Some(handler) = self.handlers.get(name).cloned() else {
            let known: Vec<&str> = self.names().collect();
            let message = format!("no function `{name}` is registered in this process; known: {known:?}");
            return Some(Err(failure("function_unknown", message, false)));
        };
        let thread = tokio::select! {
            // Closed only with the process.
            thread = Arc::clone(&self.threads).acquire_owned() => thread.ok()?,
            () = voice.over() => return None,
        };
        let call = call(leased, Arc::clone(voice));
        let (runtime, heard) = (Handle::current(), Arc::clone(voice));
        let answered = tokio::task::spawn_blocking(move || {
            let _thread = thread; // Given back when the handler returns, however long after its timeout.
            runtime.block_on(async {
                tokio::select! {
                    // A handler that has answered has answered.
                    biased;
                    answer = handler(call) => Some(answer),
                    () = heard.over() => None,
                }
            })
        });
        let answered = tokio::select! {
            biased;
            answered = answered => answered,
            // Of a handler that blocks its thread, and does not stop.
            () = voice.over() => return None,
        };
        match answered {
            Ok(None) => None,
            Ok(Some(Ok(output))) => Some(Ok(output)),
            Ok(Some(Err(failed))) => Some(Err(Failure {
                code: "function_failed".into(),
                message: failed.message,
                is_retryable: failed.is_retryable,
                retry_after: failed.retry_after,
            })),
            Err(error) => Some(Err(failure("function_panicked", panic_text(error), true))),
        }
    }
}

/// Tells a handler to stop when nobody waits for its answer any more.
struct Stopping<'a>(&'a Voice);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn call(leased: &Leased, voice: Arc<Voice>) -> Call {
    let Leased { run, job, checkpoint } = leased;
    Call {
        job_id: job.id,
        job_name: job.spec.name.clone(),
        run_id: run.id(),
        attempt: run.attempt,
        part: run.part_of(),
        item: leased.item().map(|(batch, item)| (batch.into(), item.into())),
        scheduled_for: run.scheduled_for,
        idempotency_key: run.idempotency_key(),
        payload: leased.payload().map(Into::into),
        correlation_id: run.correlation_id.clone(),
        checkpoint: checkpoint.clone(),
        voice,
    }
}

fn failure(code: &str, message: String, is_retryable: bool) -> Failure {
    Failure { code: code.into(), message, is_retryable, retry_after: None }
}

/// What a panic said.
fn panic_text(error: tokio::task::JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "the handler was cancelled".into() };
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (None, Some(text)) => text.clone(),
        (None, None) => "without a message".into(),
    };
    format!("the handler panicked: {text}")
}
