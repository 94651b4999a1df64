//! A node: the loops of the engine, started in the order of a run's life.
//!
//! Promise: when [`Node::start`] returns, shards that were free are held and their slots are fired; after [`Node::quiesce`]
//! nothing is fired or claimed any more, no operation goes on, what was leased has been handed to its worker, and other
//! nodes have the shards; [`Node::stop`] gives back what is left.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use punctual_domain::Labels;
use punctual_domain::id::WorkerId;
use punctual_domain::placement::{self as domain, Roles};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::alarms::Alarming;
use crate::backlog::Tallying;
use crate::breakers::Watching;
use crate::census::Counting;
use crate::claim::Claiming;
use crate::engine::Engine;
use crate::error::Error;
use crate::fire::Epochs;
use crate::firing::Firing;
use crate::keys::Keeping;
use crate::lapse::Lapsing;
use crate::limits::Advancing;
use crate::look::{Looking, hear};
use crate::operations::Operating;
use crate::pass::{Duty, chain, drive};
use crate::placement::{CAPACITY, Keeper};
use crate::reclaim::Reclaiming;
use crate::retain::Retaining;
use crate::tenancy::Standings;

/// How long attempts stay with a worker that gives no sign of life, unless said otherwise.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// How a node behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long attempts stay with a worker that gives no sign of life.
    pub lease: Duration,
    /// How long shards stay with a node that gives no sign of life.
    pub shard_lease: Duration,
    /// What its operator calls it.
    pub name: String,
    /// Where its API listens.
    pub address: Option<String>,
    /// What it does.
    pub roles: Roles,
    /// What its worker has, for jobs that require it.
    pub labels: Labels,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            // Three heartbeats fit in, and a pause of the process of ten seconds is survived.
            lease: LEASE,
            // A dead node's slots start this late, and a second more.
            shard_lease: Duration::from_secs(5),
            name: "node".into(),
            address: None,
            roles: Roles::ALL,
            labels: Labels::NONE,
        }
    }
}

/// A running node.
pub struct Node {
    engine: Arc<Engine>,
    id: WorkerId,
    keeper: Keeper,
    /// Ends firing, claiming and operations.
    quiesce: watch::Sender<bool>,
    /// Ends everything else.
    stop: watch::Sender<bool>,
    firing: JoinSet<()>,
    others: JoinSet<()>,
}

impl Node {
    /// Takes its shards and starts the loops. The id must be new at every start of the process.
    pub async fn start(engine: Arc<Engine>, id: WorkerId, options: Options) -> Result<Node, Error> {
        // Set once: an engine has one node.
        let _ = engine.lease.set(options.lease);
        let (epochs, epochs_now) = watch::channel(Arc::new(Epochs::default()));
        let me = domain::Node {
            id,
            name: options.name,
            address: options.address,
            release: env!("CARGO_PKG_VERSION").into(),
            roles: options.roles,
            labels: options.labels,
            started_at: engine.clock.now(),
            capacity: CAPACITY,
            clock_ahead: SignedDuration::ZERO,
        };
        let mut keeper = Keeper::new(Arc::clone(&engine), me, options.shard_lease, epochs);
        keeper.run_once(engine.clock.now()).await?;
        let (quiesce, quiesced) = watch::channel(false);
        let (stop, stopped) = watch::channel(false);
        let (mut firing, mut others) = (JoinSet::new(), JoinSet::new());
        let clock = || Arc::clone(&engine.clock);
        let wakes = vec![Arc::clone(&engine.wakes.placement)];
        others.spawn(drive(keeper.clone(), clock(), wakes, stopped.clone()));
        let operating = Operating::new(Arc::clone(&engine), epochs_now.clone());
        let retaining = Retaining { engine: Arc::clone(&engine), epochs: epochs_now.clone() };
        let lapsing = Lapsing { engine: Arc::clone(&engine), epochs: epochs_now.clone() };
        let advancing = Advancing::new(Arc::clone(&engine), epochs_now.clone());
        let alarming = Alarming::new(Arc::clone(&engine), epochs_now.clone());
        // What is born from here on has the limits that are set, and what ends is held against the alerts that are.
        engine.read_rules().await?;
        engine.read_alerts().await?;
        engine.read_tenancies().await?;
        // Whoever calls from here on is held against the keys that there are.
        engine.read_keys().await?;
        firing.spawn(Firing::new(Arc::clone(&engine), epochs_now).run(quiesced.clone()));
        let claiming = Claiming::new(Arc::clone(&engine));
        let wakes = vec![Arc::clone(&engine.wakes.claimable), Arc::clone(&engine.desk.room_for_claim)];
        firing.spawn(drive(claiming, clock(), wakes, quiesced.clone()));
        firing.spawn(drive(lapsing, clock(), Vec::new(), quiesced.clone()));
        let wakes = vec![Arc::clone(&engine.limits.waits)];
        firing.spawn(drive(advancing, clock(), wakes, quiesced.clone()));
        let watching = Watching::new(Arc::clone(&engine));
        firing.spawn(drive(watching, clock(), Vec::new(), quiesced.clone()));
        let wakes = vec![Arc::clone(&engine.wakes.operations)];
        firing.spawn(drive(operating, clock(), wakes, quiesced.clone()));
        let wakes = vec![Arc::clone(&engine.alerts.wakes)];
        firing.spawn(drive(alarming, clock(), wakes, quiesced));
        if engine.store.is_shared() {
            let wakes = vec![Arc::clone(&engine.wakes.news)];
            let looking = Looking { engine: Arc::clone(&engine), node: id };
            others.spawn(drive(looking, clock(), wakes, stopped.clone()));
            others.spawn(hear(Arc::clone(&engine), stopped.clone()));
        }
        let reclaiming = Reclaiming::new(Arc::clone(&engine), options.lease);
        others.spawn(drive(reclaiming, clock(), Vec::new(), stopped.clone()));
        let wakes = vec![Arc::clone(&engine.wakes.census)];
        others.spawn(drive(Counting { engine: Arc::clone(&engine) }, clock(), wakes, stopped.clone()));
        let tallying = Tallying { engine: Arc::clone(&engine) };
        others.spawn(drive(tallying, clock(), Vec::new(), stopped.clone()));
        let wakes = vec![Arc::clone(&engine.keyring.wakes)];
        others.spawn(drive(Keeping::new(Arc::clone(&engine)), clock(), wakes, stopped.clone()));
        let standings = Standings { engine: Arc::clone(&engine) };
        others.spawn(drive(standings, clock(), Vec::new(), stopped.clone()));
        others.spawn(drive(retaining, clock(), Vec::new(), stopped));
        Ok(Node { engine, id, keeper, quiesce, stop, firing, others })
    }

    /// Its id.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Stops firing, claiming and operations, waits until what was under way is done, and gives the shards to other
    /// nodes.
    pub async fn quiesce(&mut self) {
        self.quiesce.send_replace(true);
        // Who waits for runs asks another node.
        self.engine.draining.send_replace(true);
        while self.firing.join_next().await.is_some() {}
        if let Err(error) = self.keeper.hand_over_all().await {
            tracing::warn!(error = %chain(&error), "cannot hand the shards over; others take them when the lease is over");
        }
    }

    /// Stops everything and gives the shards back.
    pub async fn stop(mut self) -> Result<(), Error> {
        if !self.firing.is_empty() {
            self.quiesce().await;
        }
        self.stop.send_replace(true);
        while self.others.join_next().await.is_some() {}
        Ok(self.engine.store.leave(self.id, self.engine.clock.now()).await?)
    }
}
