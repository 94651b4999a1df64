//! Looks for what other nodes did, in a store that is shared.
//!
//! Runs a few times a second, and when another node gives a hint. Promise: what others make due in this node's shards
//! reaches its horizon, whether hints arrive or not.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::WorkerId;
use punctual_store::Hint;
use tokio::sync::watch;

use crate::engine::Engine;
use crate::error::Error;
use crate::pass::{Duty, Next};

/// How late an entry may be seen that no hint told of.
const EVERY: SignedDuration = SignedDuration::from_millis(250);

/// Hints that come faster than this are one.
const GATHER: Duration = Duration::from_millis(20);

/// The duty.
pub(crate) struct Looking {
    pub(crate) engine: Arc<Engine>,
    pub(crate) node: WorkerId,
}

#[async_trait]
impl Duty for Looking {
    const NAME: &'static str = "look";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        // News that were told to nobody are gone: then everything is looked at anew.
        let news =
            self.engine.store.news(self.node, now).await.inspect_err(|_| self.engine.wakes.unsure())?;
        if let Some(at) = news {
            self.engine.wakes.tell_news(at);
        }
        Ok(Next::At(now + EVERY))
    }
}

/// Passes hints of other nodes on, until told to stop.
pub(crate) async fn hear(engine: Arc<Engine>, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        tokio::select! {
            hint = engine.store.hint() => match hint {
                Hint::Due => engine.wakes.news.notify_one(),
                Hint::Placement => engine.wakes.placement.notify_one(),
            },
            _ = stop.changed() => return,
        }
        tokio::time::sleep(GATHER).await;
    }
}
