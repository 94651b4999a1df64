//! Signs of life from workers.
//!
//! Runs when a worker says what it holds. Promise: a worker that was taken for dead is told so, and holds nothing.

use punctual_domain::id::WorkerId;
use punctual_domain::work::{Heartbeat, Held};

use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// Takes a worker's sign of life; the answer says what it does not hold any more and what it is to stop.
    pub async fn heartbeat(&self, worker: WorkerId, held: Vec<Held>) -> Result<Heartbeat, Error> {
        let now = self.clock.now();
        self.under_way.keep(worker, &held, now);
        Ok(self.store.heartbeat(worker, held, now).await?)
    }
}
