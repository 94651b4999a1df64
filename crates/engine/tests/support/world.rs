//! A world for engine tests: the reference store, a clock that the test moves, counted randomness.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_executor::block_on;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{TenantId, Version, WorkerId};
use punctual_domain::job::{Pause, Spec, Target};
use punctual_engine::fire::{Epochs, Fired, Room};
use punctual_engine::register::Registered;
use punctual_engine::{Clock, Engine, Entropy, Error, ManualClock};
use punctual_schedule::{Schedule, Tzdb};
use punctual_store::{Due, DueQuery, Memory, PageRequest, RunFilter, Shards, Store};

pub(crate) const TENANT: TenantId = TenantId::DEFAULT;

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Entropy for Counter {
    fn bits(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn secret(&self) -> std::io::Result<[u8; 32]> {
        Ok([self.bits() as u8; 32])
    }
}

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<Memory>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) epochs: Epochs,
}

impl World {
    pub(crate) fn new() -> Self {
        let store = Arc::new(Memory::new(16));
        let clock = Arc::new(ManualClock::new(at("12:00:00")));
        let engine = engine(store.clone(), clock.clone(), 0);
        let epochs = Epochs::default();
        World { engine, store, clock, epochs }.owning(7)
    }

    /// The same with all shards owned by another node.
    fn owning(mut self, node: u64) -> Self {
        let node = WorkerId::new(at("00:00:00"), node);
        let ttl = Duration::from_secs(3);
        let acquired = block_on(self.store.acquire(node, Shards::All, ttl, self.clock.now())).unwrap();
        assert_eq!(acquired.len(), 16);
        self.epochs = Epochs::new(acquired);
        self
    }

    /// A new process on the same store, after the old one was killed. Its leases have run out.
    pub(crate) fn killed_and_started(self, node: u64) -> Self {
        self.clock.advance(SignedDuration::from_secs(4));
        let (store, clock) = (self.store, self.clock);
        World { engine: engine(store.clone(), clock.clone(), node), store, clock, epochs: self.epochs }
            .owning(node)
    }

    /// Another process on the same store at the same time, which believes to own the same shards.
    pub(crate) fn twin(&self, store: Arc<dyn Store>) -> World {
        World {
            engine: engine(store, self.clock.clone(), 1_000),
            store: self.store.clone(),
            clock: self.clock.clone(),
            epochs: self.epochs.clone(),
        }
    }

    /// Does steps of operations until none may be done now; says how many.
    pub(crate) fn operate(&self) -> usize {
        let mut steps = 0;
        for _ in 0..100 {
            let operated = block_on(self.engine.operate(&self.epochs)).unwrap();
            steps += operated.steps;
            if operated.next_at.is_none_or(|at| at > self.clock.now()) {
                return steps;
            }
        }
        panic!("there is no end to the steps");
    }

    /// Moves the clock and fires everything that is due, as the loop does.
    pub(crate) fn advance(&self, by: SignedDuration) -> Fired {
        self.clock.advance(by);
        self.fire(None)
    }

    /// Fires everything that is due now, again until nothing is.
    pub(crate) fn fire(&self, room: Option<Room>) -> Fired {
        let mut all = Fired::default();
        loop {
            let query = DueQuery { shards: Shards::All, after: None, until: self.clock.now(), limit: 100 };
            let entries = block_on(self.store.due(query)).unwrap().entries;
            if entries.is_empty() {
                return all;
            }
            let fired = block_on(self.engine.fire(entries, &self.epochs, room.clone())).unwrap();
            all.runs.extend(fired.runs);
            all.missed += fired.missed;
            all.throttled += fired.throttled;
            all.stale += fired.stale;
            all.operations += fired.operations;
            all.next = fired.next;
        }
    }

    /// A run's job, in the version it was fired with.
    pub(crate) fn job_of(&self, run: &punctual_domain::Run) -> Arc<punctual_domain::Job> {
        block_on(self.store.job_versions(&[(run.job, run.version)])).unwrap().remove(0).unwrap().job
    }

    /// A job as it is now.
    pub(crate) fn job_of_id(&self, id: punctual_domain::JobId) -> Arc<punctual_domain::Job> {
        block_on(self.store.jobs(&[id])).unwrap().remove(0).unwrap().job
    }

    /// All runs, newest first.
    pub(crate) fn runs(&self) -> Vec<punctual_domain::Run> {
        block_on(self.store.runs(&RunFilter::default(), PageRequest::first(1_000))).unwrap().items
    }

    pub(crate) fn try_register(&self, spec: Spec) -> Result<Registered, Error> {
        block_on(self.engine.register(TENANT, vec![(spec, None)])).unwrap().remove(0)
    }

    pub(crate) fn register(&self, schedule: &str) -> Registered {
        self.try_register(spec(schedule)).unwrap()
    }

    pub(crate) fn due(&self) -> Vec<Due> {
        let query = DueQuery { shards: Shards::All, after: None, until: Timestamp::MAX, limit: 100 };
        block_on(self.store.due(query)).unwrap().entries
    }

    /// The slots of due entries that count.
    pub(crate) fn slots(&self, job: &Registered, version: u32) -> Vec<Timestamp> {
        let counts = |due: &&Due| due.key.job == job.job.id && due.version == Version(version);
        self.due().iter().filter(counts).map(|due| due.slot).collect()
    }
}

/// An engine whose ids differ from those of others by `node`.
pub(crate) fn engine(store: Arc<dyn Store>, clock: Arc<ManualClock>, node: u64) -> Engine {
    let entropy = Arc::new(Counter(AtomicU64::new(node << 32)));
    Engine::new(store, clock, entropy, Arc::new(Tzdb::bundled()))
}

pub(crate) fn at(time: &str) -> Timestamp {
    format!("2026-01-01T{time}Z").parse().unwrap()
}

pub(crate) fn spec(schedule: &str) -> Spec {
    Spec::new("job", Schedule::parse(schedule).unwrap(), Target::Discard)
}

pub(crate) fn pause() -> Pause {
    Pause { reason: Some("maintenance".into()), by: None, since: at("00:00:00"), until: None }
}
