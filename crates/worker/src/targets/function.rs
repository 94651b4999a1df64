//! The in-process target: a handler registered by the program that uses Punctual as a library.
//!
//! Each call has a thread of its own while it runs. Promise: a handler that panics or blocks fails or holds up only
//! its own run; nothing else in the process waits for it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::attempt::Failure;
use punctual_domain::id::{JobId, RunId};
use punctual_domain::key::IdempotencyKey;
use punctual_domain::work::Leased;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// What a handler is called with.
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
    /// The nominal time.
    pub scheduled_for: Timestamp,
    /// The same for every attempt of the run.
    pub idempotency_key: IdempotencyKey,
    /// The payload as it was given.
    pub payload: Option<Box<str>>,
    /// Ties together what one cause led to.
    pub correlation_id: Option<Arc<str>>,
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

    pub(crate) async fn call(&self, name: &str, leased: &Leased) -> Result<Option<String>, Failure> {
        let Some(handler) = self.handlers.get(name).cloned() else {
            let known: Vec<&str> = self.names().collect();
            let message = format!("no function `{name}` is registered in this process; known: {known:?}");
            return Err(failure("function_unknown", message, false));
        };
        // Closed only with the process.
        let Ok(thread) = Arc::clone(&self.threads).acquire_owned().await else { return Ok(None) };
        let call = call(leased);
        let runtime = Handle::current();
        let answered = tokio::task::spawn_blocking(move || {
            let _thread = thread; // Given back when the handler returns, however long after its timeout.
            runtime.block_on(handler(call))
        });
        match answered.await {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(failed)) => Err(Failure {
                code: "function_failed".into(),
                message: failed.message,
                is_retryable: failed.is_retryable,
                retry_after: failed.retry_after,
            }),
            Err(error) => Err(failure("function_panicked", panic_text(error), true)),
        }
    }
}

fn call(leased: &Leased) -> Call {
    let Leased { run, job } = leased;
    Call {
        job_id: job.id,
        job_name: job.spec.name.clone(),
        run_id: run.id(),
        attempt: run.attempt,
        scheduled_for: run.scheduled_for,
        idempotency_key: run.idempotency_key(),
        payload: job.spec.payload.clone(),
        correlation_id: run.correlation_id.clone(),
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
