//! A node: the loops of the engine, started in the order of a run's life.
//!
//! Promise: when [`Node::start`] returns, the shards are held and slots are fired; after [`Node::quiesce`] nothing is
//! fired or claimed any more, no operation goes on, and what was leased has been handed to its worker; [`Node::stop`] gives the shards back.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::id::WorkerId;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::claim::Claiming;
use crate::engine::Engine;
use crate::error::Error;
use crate::fire::Epochs;
use crate::firing::Firing;
use crate::operations::Operating;
use crate::pass::{Duty, drive};
use crate::placement::Placing;
use crate::reclaim::Reclaiming;
use crate::retain::Retaining;

/// How a node behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long shards and attempts stay with a node or worker that gives no sign of life.
    pub lease: Duration,
}

impl Default for Options {
    fn default() -> Self {
        // Three heartbeats fit in, and a pause of the process of ten seconds is survived.
        Options { lease: Duration::from_secs(15) }
    }
}

/// A running node.
pub struct Node {
    engine: Arc<Engine>,
    id: WorkerId,
    /// Ends firing, claiming and operations.
    quiesce: watch::Sender<bool>,
    /// Ends everything else.
    stop: watch::Sender<bool>,
    firing: JoinSet<()>,
    others: JoinSet<()>,
}

impl Node {
    /// Takes the shards and starts the loops. The id must be new at every start of the process.
    pub async fn start(engine: Arc<Engine>, id: WorkerId, options: Options) -> Result<Node, Error> {
        let (epochs, epochs_now) = watch::channel(Arc::new(Epochs::default()));
        let mut placing = Placing { engine: Arc::clone(&engine), owner: id, lease: options.lease, epochs };
        placing.run_once(engine.clock.now()).await?;
        let (quiesce, quiesced) = watch::channel(false);
        let (stop, stopped) = watch::channel(false);
        let (mut firing, mut others) = (JoinSet::new(), JoinSet::new());
        let clock = || Arc::clone(&engine.clock);
        others.spawn(drive(placing, clock(), Vec::new(), stopped.clone()));
        let operating = Operating::new(Arc::clone(&engine), epochs_now.clone());
        firing.spawn(Firing::new(Arc::clone(&engine), epochs_now).run(quiesced.clone()));
        let claiming = Claiming::new(Arc::clone(&engine));
        let wakes = vec![Arc::clone(&engine.wakes.claimable), Arc::clone(&engine.desk.room_for_claim)];
        firing.spawn(drive(claiming, clock(), wakes, quiesced.clone()));
        let wakes = vec![Arc::clone(&engine.wakes.operations)];
        firing.spawn(drive(operating, clock(), wakes, quiesced));
        let reclaiming = Reclaiming::new(Arc::clone(&engine), options.lease);
        others.spawn(drive(reclaiming, clock(), Vec::new(), stopped.clone()));
        others.spawn(drive(Retaining(Arc::clone(&engine)), clock(), Vec::new(), stopped));
        Ok(Node { engine, id, quiesce, stop, firing, others })
    }

    /// Its id.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Stops firing, claiming and operations, and waits until what was under way is done.
    pub async fn quiesce(&mut self) {
        self.quiesce.send_replace(true);
        while self.firing.join_next().await.is_some() {}
    }

    /// Stops everything and gives the shards back.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.quiesce().await;
        self.stop.send_replace(true);
        while self.others.join_next().await.is_some() {}
        Ok(self.engine.store.release(self.id, self.engine.clock.now()).await?)
    }
}
