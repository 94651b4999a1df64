//! The engine: what the steps share.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::id::WorkerId;
use punctual_domain::token::Key;
use punctual_domain::{Labels, Placement};
use punctual_schedule::Tzdb;
use punctual_store::{Home, Store};
use tokio::sync::watch;

use crate::alerts::Watched;
use crate::alone::Suspects;
use crate::audit::Act;
use crate::backlog::Intakes;
use crate::bodies::Bodies;
use crate::breakers::Breakers;
use crate::bulk::Edit;
use crate::census::Censuses;
use crate::clock::{Clock, Entropy};
use crate::crowd::Crowds;
use crate::defaults::Defaults;
use crate::desk::{Desk, Seat};
use crate::error::Error;
use crate::handed::Handed;
use crate::keyring::Keyring;
use crate::limits::Known;
use crate::messages::TenantNames;
use crate::metrics::Metrics;
use crate::parts::Addressed;
use crate::queues::{Latenesses, Plans};
use crate::timetables::Timetables;
use crate::under_way::UnderWay;
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
    pub(crate) tenant_names: Arc<TenantNames>,
    pub(crate) breakers: Arc<Breakers>,
    pub(crate) under_way: Arc<UnderWay>,
    pub(crate) intakes: Arc<Intakes>,
    pub(crate) alerts: Arc<Watched>,
    pub(crate) defaults: Arc<Defaults>,
    pub(crate) handed: Arc<Handed>,
    pub(crate) latenesses: Arc<Latenesses>,
    pub(crate) plans: Arc<Plans>,
    pub(crate) addressed: Arc<Addressed>,
    pub(crate) suspects: Arc<Suspects>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) lease: Arc<OnceLock<Duration>>,
    /// What tokens of receivers are signed with.
    pub(crate) token_key: Arc<OnceLock<Key>>,
    /// The node gives out nothing more.
    pub(crate) draining: Arc<watch::Sender<bool>>,
    /// Counts entries of the audit.
    pub(crate) entries: Arc<AtomicU32>,
    /// For whom it acts; nobody, for what the node does by itself.
    pub(crate) act: Option<Arc<Act>>,
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
            tenant_names: Arc::default(),
            breakers: Arc::default(),
            under_way: Arc::default(),
            intakes: Arc::default(),
            alerts: Arc::default(),
            defaults: Arc::default(),
            handed: Arc::default(),
            latenesses: Arc::default(),
            plans: Arc::default(),
            addressed: Arc::default(),
            suspects: Arc::default(),
            keyring: Arc::default(),
            lease: Arc::default(),
            token_key: Arc::default(),
            draining: Arc::new(watch::Sender::new(false)),
            entries: Arc::default(),
            act: None,
        }
    }

    /// Seats a worker of this process that has these labels and serves these queues; all, if none is named.
    pub fn seat(&self, worker: WorkerId, queues: Vec<Arc<str>>, labels: Labels) -> Seat {
        self.under_way.begin_anew(|worker| self.desk.is_seated(worker), self.clock.now());
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

    /// Passes on what comes of a write. One that failed may have been committed all the same, if only its answer was lost; so may one
    /// whose caller went away while it was written, because whoever calls us over HTTP may hang up.
    ///
    /// What a caller does about an answer before it waits again is done with it.
    pub(crate) async fn heard<T>(
        &self,
        write: impl Future<Output = Result<T, punctual_store::Error>>,
    ) -> Result<T, Error> {
        let mut unheard = Unheard { wakes: &self.wakes, is_sure: false };
        let answer = write.await;
        unheard.is_sure = !matches!(answer, Err(punctual_store::Error::Unavailable { .. }));
        Ok(answer?)
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// A write of which nobody has heard: the loops look for what it may have done, unless it is known when this is dropped.
struct Unheard<'a> {
    wakes: &'a Wakes,
    is_sure: bool,
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        if !self.is_sure {
            self.wakes.unsure();
        }
    }
}
