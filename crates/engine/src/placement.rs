//! Keeps this node's shards.
//!
//! Runs three times in the life of a lease. Promise: the node fires only under epochs it holds; what it could not
//! renew in time is lost to it, and the store refuses what it fires.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::WorkerId;
use punctual_store::Shards;
use tokio::sync::watch;

use crate::engine::Engine;
use crate::error::Error;
use crate::fire::Epochs;
use crate::pass::{Duty, Next};

/// The duty.
pub(crate) struct Placing {
    pub(crate) engine: Arc<Engine>,
    pub(crate) owner: WorkerId,
    pub(crate) lease: Duration,
    pub(crate) epochs: watch::Sender<Arc<Epochs>>,
}

#[async_trait]
impl Duty for Placing {
    const NAME: &'static str = "placement";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        let held = self.engine.store.acquire(self.owner, Shards::All, self.lease, now).await?;
        let epochs = Epochs::new(held);
        self.epochs.send_if_modified(|current| {
            let has_changed = **current != epochs;
            if has_changed {
                *current = Arc::new(epochs);
            }
            has_changed
        });
        let third = SignedDuration::try_from(self.lease / 3).unwrap_or(SignedDuration::from_secs(1));
        Ok(Next::At(now + third))
    }
}
