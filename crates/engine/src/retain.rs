//! Forgets what is older than its retention.
//!
//! Runs every minute. Promise: bounded work per pass; history goes by whole partitions.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use crate::engine::Engine;
use crate::error::Error;
use crate::pass::{Duty, Next};

/// Rows or partitions of one pass.
const BATCH: usize = 1_000;

/// Retention is counted in days; a minute more or less is nothing.
const EVERY: SignedDuration = SignedDuration::from_mins(1);

/// The duty.
pub(crate) struct Retaining(pub(crate) Arc<Engine>);

#[async_trait]
impl Duty for Retaining {
    const NAME: &'static str = "retain";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        let forgotten = self.0.store.retain(now, BATCH).await?;
        if forgotten > 0 {
            tracing::debug!(forgotten, "retained");
            return Ok(Next::Now);
        }
        Ok(Next::At(now + EVERY))
    }
}
