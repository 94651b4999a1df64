//! Several nodes on one store, with a clock that the test moves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::between::Between;
use crate::support::world::{self, at};
use jiff::SignedDuration;
use punctual_domain::job::{Spec, Target};
use punctual_domain::{JobId, Run, TenantId};
use punctual_engine::{Engine, ManualClock, Node, Options};
use punctual_schedule::Schedule;
use punctual_store::{DueQuery, Memory, PageRequest, RunFilter, Shards, Store};

const SHARDS: u16 = 16;
const LEASE: Duration = Duration::from_secs(5);

/// A store and its clock.
struct World {
    store: Arc<Memory>,
    between: Arc<Between>,
    clock: Arc<ManualClock>,
}

struct Member {
    engine: Arc<Engine>,
    node: Node,
}

impl World {
    fn new() -> Self {
        let store = Arc::new(Memory::shared(SHARDS));
        let between = Arc::new(Between::new(store.clone()));
        World { store, between, clock: Arc::new(ManualClock::new(at("12:00:00"))) }
    }

    async fn join(&self, number: u64) -> Member {
        self.join_on(self.store.clone(), number).await
    }

    async fn join_on(&self, store: Arc<dyn Store>, number: u64) -> Member {
        let engine = Arc::new(world::engine(store, self.clock.clone(), number));
        let options = Options { shard_lease: LEASE, name: format!("n{number}"), ..Options::default() };
        let node = Node::start(engine.clone(), engine.new_worker_id(), options).await.unwrap();
        self.settle().await;
        Member { engine, node }
    }

    /// Seconds pass one by one, as they do.
    async fn pass(&self, seconds: i64) {
        for _ in 0..seconds {
            self.clock.advance(SignedDuration::from_secs(1));
            self.settle().await;
        }
    }

    /// Lets every task run until nothing is due, or nobody fires it.
    async fn settle(&self) {
        for _ in 0..60 {
            for _ in 0..300 {
                tokio::task::yield_now().await;
            }
            let now = self.clock_now();
            let query = DueQuery { shards: Shards::All, after: None, until: now, limit: 1 };
            if self.store.due(query).await.unwrap().entries.is_empty() {
                return;
            }
            // Small batches of a busy node are fired a few milliseconds apart, by the clock of the machine.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Seconds pass until every job ran so often, and never more often.
    async fn until_each_ran(&self, jobs: &[JobId], times: usize) {
        for _ in 0..50 {
            let slots = self.slots().await;
            if jobs.iter().all(|job| slots.get(job) == Some(&times)) {
                return self.pass(3).await;
            }
            self.pass(1).await;
        }
        panic!("not every job ran {times} times: {:?}", self.slots().await);
    }

    /// How many shards each node has.
    async fn counts(&self, members: &[&Member]) -> Vec<usize> {
        let placement = self.store.placement(self.clock_now()).await.unwrap();
        let of = |member: &&Member| {
            placement.shards.iter().filter(|shard| shard.owner == Some(member.node.id())).count()
        };
        members.iter().map(of).collect()
    }

    fn clock_now(&self) -> jiff::Timestamp {
        punctual_engine::Clock::now(&*self.clock)
    }

    async fn runs(&self) -> Vec<Run> {
        self.store.runs(&RunFilter::default(), PageRequest::first(10_000)).await.unwrap().items
    }

    /// How often each job ran, and that no slot ran twice.
    async fn slots(&self) -> BTreeMap<JobId, usize> {
        let mut slots: BTreeMap<JobId, Vec<jiff::Timestamp>> = BTreeMap::new();
        for run in self.runs().await {
            slots.entry(run.job).or_default().push(run.scheduled_for);
        }
        let count = |(job, mut times): (JobId, Vec<jiff::Timestamp>)| {
            let all = times.len();
            times.sort_unstable();
            times.dedup();
            assert_eq!(times.len(), all, "a slot ran twice");
            (job, all)
        };
        slots.into_iter().map(count).collect()
    }
}

/// Registers jobs that end after so many seconds.
async fn register(member: &Member, schedule: &str, count: usize, seconds: i64) -> Vec<JobId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let mut spec = Spec::new("job", Schedule::parse(schedule).unwrap(), Target::Discard);
        spec.schedule.bounds.end = Some(member.engine.now() + SignedDuration::from_secs(seconds));
        let mut answers = member.engine.register(TenantId::DEFAULT, vec![(spec, None)]).await.unwrap();
        ids.push(answers.remove(0).unwrap().job.id);
    }
    ids
}

#[tokio::test]
async fn nodes_share_the_shards_and_fire_each_slot_once() {
    let world = World::new();
    let first = world.join(1).await;
    assert_eq!(world.counts(&[&first]).await, [16], "alone it has all");
    let second = world.join(2).await;
    world.pass(2).await;
    assert_eq!(world.counts(&[&first, &second]).await, [8, 8]);
    // Most of them are registered with a node that does not fire them.
    let jobs = register(&first, "@every 1s", 40, 20).await;
    world.pass(10).await;
    let third = world.join(3).await;
    world.pass(5).await;
    let counts = world.counts(&[&first, &second, &third]).await;
    assert!(counts.iter().sum::<usize>() == 16 && counts.iter().all(|count| *count > 0), "{counts:?}");
    world.until_each_ran(&jobs, 20).await;
}

#[tokio::test]
async fn a_dead_nodes_shards_are_taken_after_the_lease() {
    let world = World::new();
    let (first, second) = (world.join(1).await, world.join(2).await);
    world.pass(2).await;
    let jobs = register(&first, "@every 1s", 40, 15).await;
    world.pass(3).await;
    let dead = second.node.id();
    drop(second);
    world.pass(4).await;
    let placement = world.store.placement(world.clock_now()).await.unwrap();
    assert!(placement.shards.iter().any(|shard| shard.owner == Some(dead)), "its lease is not over");
    world.pass(3).await;
    assert_eq!(world.counts(&[&first]).await, [16]);
    world.until_each_ran(&jobs, 15).await;
}

#[tokio::test]
async fn a_node_that_stops_hands_its_shards_over_at_once() {
    let world = World::new();
    let (first, mut second) = (world.join(1).await, world.join(2).await);
    world.pass(2).await;
    let jobs = register(&first, "@every 1s", 40, 10).await;
    world.pass(3).await;
    second.node.quiesce().await;
    assert_eq!(world.counts(&[&first, &second]).await, [16, 0]);
    world.until_each_ran(&jobs, 10).await;
    second.node.stop().await.unwrap();
    assert_eq!(world.store.placement(world.clock_now()).await.unwrap().nodes.len(), 1);
}

#[tokio::test]
async fn what_another_node_changes_is_fired_as_changed() {
    let world = World::new();
    let (first, second) = (world.join(1).await, world.join(2).await);
    world.pass(2).await;
    let jobs = register(&first, "0 0 1 1 *", 20, 90 * 365 * 86_400).await;
    for job in &jobs {
        let mut spec = Spec::new("job", Schedule::parse("@every 5s").unwrap(), Target::Discard);
        spec.schedule.bounds.end = Some(world.clock_now() + SignedDuration::from_secs(10));
        let waiting = punctual_engine::register::Waiting::Keep;
        second.engine.update(TenantId::DEFAULT, *job, None, spec, waiting).await.unwrap();
    }
    world.until_each_ran(&jobs, 2).await;
}

#[tokio::test]
async fn a_far_slot_that_another_node_registered_is_fired() {
    let world = World::new();
    let (first, _second) = (world.join(1).await, world.join(2).await);
    world.pass(2).await;
    let jobs = register(&first, "@after 3h", 20, 90_000).await;
    for _ in 0..13 {
        world.clock.advance(SignedDuration::from_mins(14));
        world.settle().await;
        world.pass(1).await;
    }
    world.until_each_ran(&jobs, 1).await;
}

#[tokio::test]
async fn a_node_with_a_wrong_clock_fires_nothing_and_gives_its_shards_away() {
    let world = World::new();
    let first = world.join(1).await;
    let second = world.join_on(world.between.clone(), 2).await;
    world.pass(2).await;
    assert_eq!(world.counts(&[&first, &second]).await, [8, 8]);
    assert_eq!(second.engine.doubt(), None);
    *world.between.stores_clock_ahead.lock().unwrap() = SignedDuration::from_secs(-3);
    world.pass(3).await;
    assert_eq!(world.counts(&[&first, &second]).await, [16, 0]);
    let doubt = second.engine.doubt().unwrap();
    assert!(doubt.contains("3.00") && doubt.contains("s ahead of the database's"), "{doubt}");
    *world.between.stores_clock_ahead.lock().unwrap() = SignedDuration::ZERO;
    world.pass(4).await;
    assert_eq!(world.counts(&[&first, &second]).await, [8, 8]);
    assert_eq!(second.engine.doubt(), None);
}
