//! The start of a server whose database is not there yet: it waits for it, alive and not ready.
//!
//! Runs from when the address is bound until the node works. Promise: an outage is waited out, however long it is, and said
//! every few seconds; what nobody can wait out (a wrong password, an unknown database, a newer schema) ends the server at
//! once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use punctual_api::health::Check;
use punctual_store_postgres::OpenError;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::certificates::Certificates;
use super::listening;

/// How long after a failed try the next one is made: a database that has come is found soon, and not hammered by many nodes.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// How often it is said that the database is still away.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Why the node did not start.
pub(super) enum Unstarted {
    /// The database is away: the same may succeed later.
    Away(String),
    /// Somebody must do something.
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Unstarted {
    fn from(error: E) -> Self {
        let error = error.into();
        match error.downcast_ref() {
            Some(punctual::Error::Database(away @ OpenError::Unreachable { .. })) => {
                Unstarted::Away(away.to_string())
            }
            _ => Unstarted::Failed(error),
        }
    }
}

/// The probes of a server that does not work yet.
pub(super) struct Waiting {
    reason: Arc<Reason>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

/// What is waited for.
struct Reason(Mutex<String>);

impl punctual_server::Health for Reason {
    fn ready(&self) -> Vec<Check> {
        let detail = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        vec![Check { name: "store".into(), is_ok: false, detail: Some(detail) }]
    }
}

impl Waiting {
    /// Answers on the address until the node does; the listener is given back for that.
    pub(super) fn start(
        listener: TcpListener,
        certificates: Option<Arc<Certificates>>,
    ) -> Result<(Waiting, TcpListener)> {
        let listener = listener.into_std().context("the address of the server")?;
        let again = listener.try_clone().context("the address of the server")?;
        let again = TcpListener::from_std(again).context("the address of the server")?;
        let listener = TcpListener::from_std(listener).context("the address of the server")?;
        let reason = Arc::new(Reason(Mutex::new("the store is being opened".into())));
        let router = punctual_server::waiting(Arc::clone(&reason) as Arc<dyn punctual_server::Health>);
        let (stop, stopping) = watch::channel(false);
        let serving = tokio::spawn(listening::serve(again, router, certificates, stopping));
        Ok((Waiting { reason, stop, serving }, listener))
    }

    /// Tries until it succeeds, or fails for good.
    pub(super) async fn until<T>(&self, mut start: impl AsyncFnMut() -> Result<T, Unstarted>) -> Result<T> {
        let (began, mut said_at) = (Instant::now(), None::<Instant>);
        loop {
            let reason = match start().await {
                Ok(started) => {
                    if said_at.is_some() {
                        tracing::info!(waited_s = began.elapsed().as_secs(), "the database is there");
                    }
                    return Ok(started);
                }
                Err(Unstarted::Away(reason)) => reason,
                Err(Unstarted::Failed(error)) => return Err(error),
            };
            if said_at.is_none_or(|at| at.elapsed() >= SAY_EVERY) {
                said_at = Some(Instant::now());
                let waited_s = began.elapsed().as_secs();
                tracing::warn!(reason, waited_s, "the database is away; the server starts when it is there");
            }
            *self.reason.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
            tokio::time::sleep(TRY_EVERY).await;
        }
    }

    /// Answers nobody any more; the node does.
    pub(super) async fn end(mut self) {
        self.stop.send_replace(true);
        // A caller that does not read its answer must not keep the server from its work.
        if tokio::time::timeout(Duration::from_secs(1), &mut self.serving).await.is_err() {
            self.serving.abort();
        }
    }
}
