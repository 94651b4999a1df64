//! The engine: what the steps share.

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use punctual_domain::id::WorkerId;
use punctual_domain::{Labels, Placement};
use punctual_schedule::Tzdb;
use punctual_store::{Home, Store};

use crate::bodies::Bodies;
use crate::bulk::Edit;
use crate::census::Censuses;
use crate::clock::{Clock, Entropy};
use crate::crowd::Crowds;
use crate::desk::{Desk, Seat};
use crate::error::Error;
use crate::limits::Known;
use crate::metrics::Metrics;
use crate::timetables::Timetables;
use crate::wake::Wakes;

/// The scheduler of one node.
#[derive(Clone)]
pub struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) timetables: Arc<Timetables>,
    pub(crate) bodies: Arc<Bodies>,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) censuses: Arc<tokio::sync::Mutex<Censuses>>,
    pub(crate) crowds: Arc<Crowds>,
    pub(crate) editor: Arc<OnceLock<Arc<dyn Edit>>>,
    pub(crate) limits: Arc<Known>,
}

impl Engine {
    /// An engine over a store.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        tzdb: Arc<Tzdb>,
    ) -> Self {
        let metrics = Arc::new(Metrics::of(Arc::clone(&store)));
        Engine {
            store,
            clock,
            entropy,
            timetables: Arc::new(Timetables::new(tzdb)),
            bodies: Arc::default(),
            wakes: Arc::default(),
            desk: Arc::default(),
            metrics,
            censuses: Arc::default(),
            crowds: Arc::default(),
            editor: Arc::default(),
            limits: Arc::default(),
        }
    }

    /// Seats a worker of this process that has these labels and serves these queues; all, if none is named.
    pub fn seat(&self, worker: WorkerId, queues: Vec<Arc<str>>, labels: Labels) -> Seat {
        Desk::seat(&self.desk, worker, queues, labels)
    }

    /// An identity for a node or a worker, never used before.
    pub fn new_worker_id(&self) -> WorkerId {
        WorkerId::new(self.clock.now(), self.entropy.bits())
    }

    /// Live nodes, and the owners of all shards.
    pub async fn placement(&self) -> Result<Placement, Error> {
        Ok(self.store.placement(self.clock.now()).await?)
    }

    /// How many shards there are.
    pub fn shard_count(&self) -> u16 {
        self.store.shard_count()
    }

    /// The databases of the store, if it may have several, and which shards live there.
    pub fn homes(&self) -> Vec<Home> {
        self.store.homes()
    }

    /// Why this node fires nothing, if it does not trust its clock.
    pub fn doubt(&self) -> Option<String> {
        self.clock.doubt().or_else(|| self.wakes.wrong_clock())
    }

    /// The figures of this node.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Passes on what came of a write. One that failed may have been committed all the same, if only its answer was lost.
    pub(crate) fn heard<T>(&self, answer: Result<T, punctual_store::Error>) -> Result<T, Error> {
        if matches!(answer, Err(punctual_store::Error::Unavailable { .. })) {
            self.wakes.unsure();
        }
        Ok(answer?)
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
