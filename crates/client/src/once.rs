//! Runs a handler once for each idempotency key, and gives the recorded answer when a run is delivered again.
//!
//! ```no_run
//! # async fn example() -> Result<(), punctual_client::Error> {
//! use punctual_client::once::{Memory, once};
//! use punctual_client::{Client, Options, Worker};
//!
//! let client = Client::new("http://127.0.0.1:7171".parse()?, &Options::default())?;
//! let charge = once(Memory::default(), |task, transaction| async move {
//!     Ok((transaction, Some(format!("charged {}", task.payload()["amount"]))))
//! });
//! Worker::new(client, ["payments"]).handler("charge", charge).run().await
//! # }
//! ```
//!
//! What it promises depends on where the effect is. An effect in the same database as the record, through the transaction that the
//! handler is given, happens exactly once: both are committed together or not at all. Any other effect (a mail, a call to another
//! service) happens at least once: a crash between the effect and the record repeats it. Pass the idempotency key on to such a
//! service, if it takes one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::worker::{Answer, Failed, Task};

/// Where answers are recorded. [`Memory`] is one; your own database is another: see `examples/once.rs` of the crate `punctual`.
pub trait Store: Send + Sync + 'static {
    /// A key that nobody else has meanwhile.
    type Transaction: Transaction;

    /// Takes a key, waiting for whoever has it.
    fn begin(&self, key: &str) -> impl Future<Output = Result<Self::Transaction, Failed>> + Send;
}

/// A key that was taken, and what the handler makes its effect through. Dropping it undoes everything and gives the key back.
pub trait Transaction: Send + Sized + 'static {
    /// The record of the key, as it was committed, if it has one.
    fn recorded(&self) -> Option<String>;

    /// Records, and commits it with the effect.
    fn commit(self, record: String) -> impl Future<Output = Result<(), Failed>> + Send;
}

type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Makes a handler take effect once for each idempotency key. The handler gives the transaction back with its answer; where it fails
/// instead, nothing is recorded, and the next attempt does it anew.
pub fn once<S, F, A>(store: S, handler: F) -> impl Fn(Task) -> Answering + Send + Sync + 'static
where
    S: Store,
    F: Fn(Task, S::Transaction) -> A + Send + Sync + 'static,
    A: Future<Output = Result<(S::Transaction, Option<String>), Failed>> + Send + 'static,
{
    let both = Arc::new((store, handler));
    move |task| {
        let both = Arc::clone(&both);
        Box::pin(async move {
            let (store, handler) = &*both;
            let transaction = store.begin(&task.attempt().idempotency_key.clone()).await?;
            if let Some(record) = transaction.recorded() {
                // An answer may be nothing, which is recorded too.
                return Ok(serde_json::from_str(&record)?);
            }
            let (transaction, answer) = handler(task, transaction).await?;
            transaction.commit(serde_json::to_string(&answer)?).await?;
            Ok(answer)
        })
    }
}

/// Records in this process: forgotten when it ends, so it is for tests and for effects inside the process.
#[derive(Clone, Debug)]
pub struct Memory {
    shared: Arc<Shared>,
    keys_max: usize,
}

#[derive(Debug, Default)]
struct Shared {
    known: Mutex<Known>,
    /// A key was given back.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    records: HashMap<String, String>,
    /// Keys with a record, oldest first.
    order: VecDeque<String>,
    taken: HashSet<String>,
}

/// Keys that are remembered, unless said otherwise.
const KEYS_MAX: usize = 10_000;

impl Default for Memory {
    fn default() -> Self {
        Memory::new(KEYS_MAX)
    }
}

impl Memory {
    /// Of more keys than this the oldest are forgotten.
    pub fn new(keys_max: usize) -> Self {
        Memory { shared: Arc::default(), keys_max }
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Memory {
    type Transaction = InMemory;

    async fn begin(&self, key: &str) -> Result<InMemory, Failed> {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            // Whoever gives it back between the look and the wait is heard.
            changed.as_mut().enable();
            {
                let mut known = self.shared.known();
                if known.taken.insert(key.into()) {
                    let recorded = known.records.get(key).cloned();
                    let (shared, keys_max) = (Arc::clone(&self.shared), self.keys_max);
                    return Ok(InMemory { shared, keys_max, key: key.into(), recorded });
                }
            }
            changed.await;
        }
    }
}

/// A key of [`Memory`].
#[derive(Debug)]
pub struct InMemory {
    shared: Arc<Shared>,
    keys_max: usize,
    key: String,
    recorded: Option<String>,
}

impl Transaction for InMemory {
    fn recorded(&self) -> Option<String> {
        self.recorded.clone()
    }

    async fn commit(self, record: String) -> Result<(), Failed> {
        let mut known = self.shared.known();
        known.records.insert(self.key.clone(), record);
        known.order.push_back(self.key.clone());
        while known.order.len() > self.keys_max {
            if let Some(oldest) = known.order.pop_front() {
                known.records.remove(&oldest);
            }
        }
        Ok(())
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        self.shared.known().taken.remove(&self.key);
        self.shared.changed.notify_waiters();
    }
}
