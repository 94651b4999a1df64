//! The way to the engine: in the same process, or over the network.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::Note;
use punctual_domain::id::WorkerId;
use punctual_domain::run::Run;
use punctual_domain::work::{Finished, Heartbeat, Held, Leased};

/// Opens sessions with an engine.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// A new session: a new identity that holds nothing.
    async fn open(&self) -> Result<Arc<dyn Session>, Unreachable>;
}

/// One life of a worker. When the engine takes it for dead, another one is opened.
#[async_trait]
pub trait Session: Send + Sync + 'static {
    /// Who the worker is in this life.
    fn worker(&self) -> WorkerId;

    /// Has room for so many more attempts.
    fn grant(&self, attempts: usize);

    /// Waits for attempts, never more than there is room for.
    async fn next(&self) -> Vec<Leased>;

    /// Takes no more. What was given before can still be read with [`Session::next`]; nothing, if there is none.
    fn close(&self);

    /// A sign of life, with everything that is held.
    async fn heartbeat(&self, held: Vec<Held>) -> Result<Heartbeat, Unreachable>;

    /// Tells what attempts say while they run. What is about one that is not held any more is not kept.
    async fn note(&self, notes: Vec<Note>) -> Result<(), Unreachable>;

    /// Reports ended attempts. The answers say how each run stands now, or why the report was refused.
    async fn complete(&self, finished: Vec<Finished>) -> Result<Vec<Result<Run, String>>, Unreachable>;
}

/// The engine or its store cannot be reached now; trying again may help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine cannot be reached: {0}")]
pub struct Unreachable(pub String);
