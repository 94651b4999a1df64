//! Forgets what is older than its retention.
//!
//! Runs every minute. Promise: bounded work per pass; history goes by whole partitions.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::ShardId;
use tokio::sync::watch;

use crate::engine::Engine;
use crate::error::Error;
use crate::fire::Epochs;
use crate::pass::{Duty, Next};

/// Rows or partitions of one pass.
const BATCH: usize = 1_000;

/// Retention is counted in days; a minute more or less is nothing.
const EVERY: SignedDuration = SignedDuration::from_mins(1);

/// The duty. Of all nodes, the owner of the first shard does it.
pub(crate) struct Retaining {
    pub(crate) engine: Arc<Engine>,
    pub(crate) epochs: watch::Receiver<Arc<Epochs>>,
}

#[async_trait]
impl Duty for Retaining {
    const NAME: &'static str = "retain";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        if !self.epochs.borrow().contains(ShardId(0)) {
            return Ok(Next::At(now + EVERY));
        }
        let forgotten = self.engine.store.retain(now, BATCH).await?;
        if forgotten > 0 {
            tracing::debug!(forgotten, "retained");
            return Ok(Next::Now);
        }
        Ok(Next::At(now + EVERY))
    }
}
