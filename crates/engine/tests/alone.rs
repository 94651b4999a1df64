//! A run that kills its worker, among others: it alone comes to its cap. On the reference store, with a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use crate::support::between::Between;
use futures_executor::block_on;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::WorkerId;
use punctual_domain::job::{Spec, Target};
use punctual_domain::policy::retry::{LOST_MAX, SUSPECT_FROM};
use punctual_domain::run::RunState;
use punctual_domain::why::Reason;
use punctual_domain::work::{About, Finished, Leased};
use punctual_domain::{Job, Labels, Outcome, Report, Run, RunId, TenantId};
use punctual_engine::pull::{Asking, End, Reported};
use punctual_engine::why::When;
use punctual_engine::{Engine, Entropy, ManualClock, Node, Options, Seat};
use punctual_schedule::{Schedule, Tzdb};
use punctual_store::{Claim, Memory, PageRequest, RunFilter, Shards, Store};

#[derive(Debug)]
struct Counter(std::sync::atomic::AtomicU64);

impl Entropy for Counter {
    fn bits(&self) -> u64 {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn secret(&self) -> std::io::Result<[u8; 32]> {
        Ok([self.bits() as u8; 32])
    }
}

const LEASE: Duration = Duration::from_secs(15);
const TENANT: TenantId = TenantId::DEFAULT;

async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A node.
struct World {
    engine: Arc<Engine>,
    store: Arc<Between>,
    clock: Arc<ManualClock>,
    _node: Node,
}

impl World {
    async fn start() -> World {
        let clock = Arc::new(ManualClock::new("2026-01-01T12:00:00Z".parse::<Timestamp>().unwrap()));
        World::on(Arc::new(Memory::shared(16)), clock, 0).await
    }

    /// A node on a store, whose ids differ from those of others by `number`.
    async fn on(store: Arc<Memory>, clock: Arc<ManualClock>, number: u64) -> World {
        let store = Arc::new(Between::new(store));
        let entropy = Arc::new(Counter((number << 32).into()));
        let engine = Arc::new(Engine::new(store.clone(), clock.clone(), entropy, Arc::new(Tzdb::bundled())));
        let options = Options { lease: LEASE, ..Options::default() };
        let node = Node::start(engine.clone(), engine.new_worker_id(), options).await.unwrap();
        settle().await;
        World { engine, store, clock, _node: node }
    }

    async fn advance(&self, seconds: i64) {
        self.clock.advance(SignedDuration::from_secs(seconds));
        settle().await;
    }

    /// Whoever is silent is taken for dead.
    async fn outlive_a_lease(&self) {
        for _ in 0..5 {
            self.advance(5).await;
        }
    }

    /// Runs of one job, all of which wait.
    async fn triggered(&self, target: Target, count: usize) -> (Arc<Job>, Vec<RunId>) {
        let mut spec = Spec::new("job", Schedule::parse("@every 24h").unwrap(), target);
        spec.queue = "mail".into();
        let answers = self.engine.register(TENANT, vec![(spec, None)]).await.unwrap();
        let job = answers.into_iter().next().unwrap().unwrap().job;
        let mut runs = Vec::new();
        for _ in 0..count {
            runs.push(self.engine.trigger(TENANT, job.id, None, None).await.unwrap().id());
        }
        settle().await;
        (job, runs)
    }

    async fn runs(&self) -> Vec<Run> {
        self.store.runs(&RunFilter::default(), PageRequest::first(1_000)).await.unwrap().items
    }

    /// What a worker that asks is given; nothing, if there is nothing within some seconds.
    async fn pull(&self, worker: WorkerId, capacity: usize) -> Vec<Leased> {
        let about = About {
            tenant: TENANT,
            name: "w".into(),
            queues: vec!["mail".into()],
            labels: Labels::NONE,
            concurrency: 100,
            saturation: None,
            started_at: Timestamp::UNIX_EPOCH,
        };
        let asking = Asking { worker, is_new: false, about, capacity, wait: Duration::from_secs(3) };
        let engine = Arc::clone(&self.engine);
        let asking = tokio::spawn(async move { engine.pull(asking).await });
        settle().await;
        for _ in 0..4 {
            if !asking.is_finished() {
                self.advance(1).await;
            }
        }
        asking.await.unwrap().unwrap()
    }

    async fn succeed(&self, worker: WorkerId, leased: &Leased) {
        let end = End {
            outcome: Outcome::Succeeded,
            error: None,
            output: None,
            lines: Vec::new(),
            started_at: None,
            finished_at: None,
        };
        let reported = Reported { run: leased.run.id(), attempt: leased.run.attempt, end: Some(end) };
        self.engine.report(TENANT, worker, vec![reported]).await.unwrap().remove(0).unwrap();
        settle().await;
    }

    /// The killer is a dead letter, lost as often as may be; all others succeeded, and none was lost more often than makes a suspect.
    async fn assert_only_the_killer_died(&self, killer: RunId) {
        for run in self.runs().await {
            let detail = self.store.run(run.id()).await.unwrap().unwrap();
            if run.id() == killer {
                assert_eq!((run.state, run.attempt), (RunState::Failed, LOST_MAX), "{run:?}");
                let report = detail.attempts.last().unwrap().report.as_ref().unwrap();
                assert_eq!(report.error.as_ref().unwrap().code, "lost");
            } else {
                assert_eq!(run.state, RunState::Succeeded, "{run:?}");
                assert!(run.lost <= SUSPECT_FROM, "{run:?}");
            }
        }
    }
}

fn handler() -> Target {
    Target::Worker { handler: "send".into() }
}

fn suspects(given: &[Leased]) -> usize {
    given.iter().filter(|leased| leased.run.requires.are_alone()).count()
}

#[tokio::test]
async fn a_run_that_kills_those_who_pull_it_dies_without_its_neighbours() {
    let world = World::start().await;
    let (_, runs) = world.triggered(handler(), 21).await;
    let killer = runs[10];
    for round in 0.. {
        assert!(round < 100, "there is no end to it: {:?}", world.runs().await);
        // Two workers at a time, and new ones where they died.
        let workers = [world.engine.new_worker_id(), world.engine.new_worker_id()];
        let mut died = false;
        for worker in workers {
            let given = world.pull(worker, 30).await;
            assert!(suspects(&given) <= 1, "{given:?}");
            let dies = given.iter().any(|leased| leased.run.id() == killer);
            died |= dies;
            for leased in given.iter().filter(|_| !dies) {
                world.succeed(worker, leased).await;
            }
        }
        if died {
            world.outlive_a_lease().await;
        }
        if world.runs().await.iter().all(|run| run.state.is_ended()) {
            break;
        }
    }
    world.assert_only_the_killer_died(killer).await;
}

/// What a seat of this node was given, without waiting for long.
async fn given(world: &World, seat: &Seat) -> Vec<Leased> {
    for _ in 0..4 {
        tokio::select! {
            biased;
            given = seat.next() => return given,
            () = settle() => world.advance(1).await,
        }
    }
    Vec::new()
}

#[tokio::test]
async fn a_run_that_kills_its_node_dies_without_its_neighbours() {
    let mut world = World::start().await;
    let (_, runs) = world.triggered(Target::Discard, 21).await;
    let killer = runs[10];
    for round in 1.. {
        assert!(round < 100, "there is no end to it: {:?}", world.runs().await);
        // Another process, which knows nothing of the one before. Its workers die together, so they count as one.
        let (store, clock) = (Arc::clone(&world.store.store), Arc::clone(&world.clock));
        world = World::on(store, clock, round).await;
        let seat = |_| world.engine.seat(world.engine.new_worker_id(), Vec::new(), Labels::NONE);
        let seats = [0, 1].map(seat);
        seats.iter().for_each(|seat| seat.grant(30));
        let mut died = false;
        while !died {
            let mut held = Vec::new();
            for seat in &seats {
                let given = given(&world, seat).await;
                held.extend(given.into_iter().map(|leased| (seat.worker(), leased)));
            }
            if held.is_empty() {
                break;
            }
            let together: Vec<Leased> = held.iter().map(|(_, leased)| leased.clone()).collect();
            assert!(suspects(&together) <= 1, "{together:?}");
            died = together.iter().any(|leased| leased.run.id() == killer);
            for (worker, Leased { run, job, .. }) in held.into_iter().filter(|_| !died) {
                let now = world.engine.now();
                let report = Report { outcome: Outcome::Succeeded, error: None, ..Report::lost(now, now) };
                let finished = Finished { worker, run, job, report: Some(report) };
                world.engine.complete(vec![finished]).await.unwrap().remove(0).unwrap();
            }
        }
        drop(seats);
        world.outlive_a_lease().await;
        if world.runs().await.iter().all(|run| run.state.is_ended()) {
            break;
        }
    }
    world.assert_only_the_killer_died(killer).await;
}

/// Loses all of these with their worker, so often.
async fn lose(world: &World, count: usize, times: u32) {
    for _ in 0..times {
        let given = world.pull(world.engine.new_worker_id(), 100).await;
        assert_eq!(given.len(), count);
        world.outlive_a_lease().await;
    }
}

#[tokio::test]
async fn what_was_lost_less_often_goes_on_at_once_and_together() {
    let world = World::start().await;
    world.triggered(handler(), 50).await;
    lose(&world, 50, SUSPECT_FROM - 1).await;
    let given = world.pull(world.engine.new_worker_id(), 100).await;
    assert_eq!((given.len(), suspects(&given)), (50, 0));
}

#[tokio::test]
async fn who_has_a_suspect_gets_everything_else_and_the_next_suspect_when_it_is_done() {
    let world = World::start().await;
    let (_, mut runs) = world.triggered(handler(), 2).await;
    let (job, last) = world.triggered(handler(), 1).await;
    runs.extend(last);
    lose(&world, 3, SUSPECT_FROM).await;
    let (one, two) = (world.engine.new_worker_id(), world.engine.new_worker_id());
    let first = world.pull(one, 10).await;
    assert_eq!((first.len(), first[0].run.id(), first[0].run.attempt), (1, runs[0], SUSPECT_FROM + 1));
    assert!(world.pull(one, 10).await.is_empty(), "one at a time");
    let (_, fresh) = world.triggered(handler(), 1).await;
    let beside = world.pull(one, 10).await;
    assert_eq!(beside.iter().map(|leased| leased.run.id()).collect::<Vec<_>>(), fresh);
    assert_eq!(world.pull(two, 10).await[0].run.id(), runs[1]);
    let waiting = world.store.run(runs[2]).await.unwrap().unwrap().run;
    let why = world.engine.why(TENANT, job.id, When::At(waiting.scheduled_for)).await.unwrap();
    assert_eq!(why.reason, Reason::WaitsToBeAlone, "{why:?}");
    world.succeed(one, &first[0]).await;
    assert_eq!(world.pull(one, 10).await[0].run.id(), runs[2]);
}

#[tokio::test]
async fn a_worker_that_asks_two_nodes_is_given_one_suspect() {
    let world = World::start().await;
    world.triggered(handler(), 3).await;
    lose(&world, 3, SUSPECT_FROM).await;
    let other = World::on(Arc::clone(&world.store.store), Arc::clone(&world.clock), 1).await;
    let worker = world.engine.new_worker_id();
    assert_eq!(world.pull(worker, 10).await.len(), 1);
    assert!(other.pull(worker, 10).await.is_empty(), "the other node finds out that it has one");
    // Another node gives it one at the same time, after it was looked: what was claimed second goes back, and is nobody's loss.
    let both = other.engine.new_worker_id();
    let (store, now) = (Arc::clone(&other.store.store), other.engine.now());
    let labels = Labels::NONE.pulling(TENANT).alone();
    *other.store.before_alone.lock().unwrap() = Some(Box::new(move || {
        let claim = Claim { worker: both, queues: Vec::new(), labels, shards: Shards::All, limit: 1 };
        assert_eq!(block_on(store.claim(claim, now)).unwrap().len(), 1);
    }));
    assert!(other.pull(both, 10).await.is_empty());
    let holders = other.store.suspected().await.unwrap();
    assert_eq!(holders.iter().filter(|holder| **holder == both).count(), 1, "{holders:?}");
    let waiting: Vec<Run> = other.runs().await.into_iter().filter(|run| run.lease().is_none()).collect();
    assert_eq!((waiting.len(), waiting[0].lost), (1, SUSPECT_FROM), "{waiting:?}");
}
