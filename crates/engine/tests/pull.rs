//! Workers elsewhere that ask for runs: who gets what, what gets lost on the way, and what comes late. On the reference store, with a
//! clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use crate::support::between::Between;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::WorkerId;
use punctual_domain::job::{Spec, Target};
use punctual_domain::ledger::Fate;
use punctual_domain::parts::Parts;
use punctual_domain::policy::unknown::OnUnknown;
use punctual_domain::run::{RunState, WaitingFor};
use punctual_domain::work::{About, Held, Leased};
use punctual_domain::{Job, Labels, Outcome, Run, TenantId};
use punctual_engine::ledger::Range;
use punctual_engine::pull::{Asking, End, Reported};
use punctual_engine::{Engine, Entropy, Error, ManualClock, Node, Options, Seat};
use punctual_schedule::{Schedule, Tzdb};
use punctual_store::{Memory, PageRequest, RunFilter, Store};
use punctual_store_embedded::Embedded;

#[derive(Debug, Default)]
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

struct World {
    engine: Arc<Engine>,
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    _node: Node,
    /// The node's own worker.
    own: Seat,
}

async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

impl World {
    async fn start() -> World {
        let store = Arc::new(Memory::new(16));
        let clock = Arc::new(ManualClock::new("2026-01-01T12:00:00Z".parse::<Timestamp>().unwrap()));
        World::on(store, clock).await
    }

    /// Another node on the same store, which knows nothing of what the first one handed out.
    async fn on(store: Arc<dyn Store>, clock: Arc<ManualClock>) -> World {
        let entropy = Arc::new(Counter::default());
        entropy
            .0
            .fetch_add(store_runs(&*store).await.len() as u64 * 1_000, std::sync::atomic::Ordering::Relaxed);
        let engine = Arc::new(Engine::new(store.clone(), clock.clone(), entropy, Arc::new(Tzdb::bundled())));
        let own = engine.seat(engine.new_worker_id(), Vec::new(), Labels::NONE);
        let id = engine.new_worker_id();
        let options = Options { lease: LEASE, ..Options::default() };
        let node = Node::start(engine.clone(), id, options).await.unwrap();
        settle().await;
        World { engine, store, clock, _node: node, own }
    }

    async fn register(&self, schedule: &str, queue: &str, target: Target) -> Arc<Job> {
        let mut spec = Spec::new("job", Schedule::parse(schedule).unwrap(), target);
        spec.queue = queue.into();
        let answers = self.engine.register(TenantId::DEFAULT, vec![(spec, None)]).await.unwrap();
        let job = answers.into_iter().next().unwrap().unwrap().job;
        settle().await;
        job
    }

    async fn trigger(&self, job: &Job) -> Run {
        self.engine.trigger(TenantId::DEFAULT, job.id, None, None).await.unwrap()
    }

    fn ask(&self, worker: WorkerId, capacity: usize) -> tokio::task::JoinHandle<Result<Vec<Leased>, Error>> {
        let engine = Arc::clone(&self.engine);
        let asking =
            Asking { worker, is_new: false, about: about("mail"), capacity, wait: Duration::from_secs(20) };
        tokio::spawn(async move { engine.pull(asking).await })
    }

    async fn pull(&self, worker: WorkerId, capacity: usize) -> Vec<Leased> {
        let asking = self.ask(worker, capacity);
        settle().await;
        // What was lost is tried again after a moment.
        if !asking.is_finished() {
            self.advance(4).await;
        }
        assert!(asking.is_finished(), "there is nothing for this worker");
        asking.await.unwrap().unwrap()
    }

    async fn beat(&self, worker: WorkerId, held: &[&Leased]) -> Result<punctual_store::Heartbeat, Error> {
        let held: Vec<_> = held.iter().map(|leased| (leased.run.id(), leased.run.attempt)).collect();
        self.engine.pull_heartbeat(TenantId::DEFAULT, worker, |_| (), &held).await
    }

    async fn report(
        &self,
        worker: WorkerId,
        leased: &Leased,
        outcome: Option<Outcome>,
    ) -> Result<Run, Error> {
        let end = outcome.map(|outcome| End {
            outcome,
            error: None,
            output: None,
            lines: Vec::new(),
            started_at: None,
            finished_at: None,
        });
        let reported = Reported { run: leased.run.id(), attempt: leased.run.attempt, end };
        self.engine.report(TenantId::DEFAULT, worker, vec![reported]).await.unwrap().remove(0)
    }

    async fn advance(&self, seconds: i64) {
        self.clock.advance(SignedDuration::from_secs(seconds));
        settle().await;
    }
}

async fn store_runs(store: &dyn Store) -> Vec<Run> {
    store.runs(&RunFilter::default(), PageRequest::first(1_000)).await.unwrap().items
}

fn about(queue: &str) -> About {
    About {
        tenant: TenantId::DEFAULT,
        name: "w".into(),
        queues: vec![queue.into()],
        labels: Labels::NONE,
        concurrency: 10,
        saturation: None,
        started_at: Timestamp::UNIX_EPOCH,
    }
}

fn handler() -> Target {
    Target::Worker { handler: "send".into() }
}

#[tokio::test]
async fn who_asks_is_given_what_waits_and_what_comes_and_nobody_else_is() {
    let world = World::start().await;
    world.own.grant(100);
    let mail = world.register("@at 2026-01-01T12:00:10Z", "mail", handler()).await;
    let chat = world.register("@every 1h", "chat", handler()).await;
    let called = world.register("@every 1h", "mail", Target::Discard).await;
    for job in [&mail, &chat, &called] {
        world.trigger(job).await;
    }
    settle().await;
    let own = world.own.next().await;
    assert_eq!(own.iter().map(|leased| leased.run.job).collect::<Vec<_>>(), [called.id]);
    let worker = world.engine.new_worker_id();
    let first = world.pull(worker, 10).await;
    assert_eq!(first.iter().map(|leased| leased.run.job).collect::<Vec<_>>(), [mail.id]);
    // Nothing waits any more: who asks is there when a slot comes, and gets its run in the commit that makes it.
    let asking = world.ask(worker, 10);
    settle().await;
    world.advance(10).await;
    let fired = asking.await.unwrap().unwrap();
    assert_eq!(fired.iter().map(|leased| leased.run.job).collect::<Vec<_>>(), [mail.id]);
    assert_eq!(fired[0].run.attempt, 1);
    let asking = world.ask(worker, 10);
    settle().await;
    let run = world.trigger(&mail).await;
    assert!(matches!(run.state, RunState::Running(lease) if lease.worker == worker), "{run:?}");
    assert_eq!(asking.await.unwrap().unwrap()[0].run.sequence, run.sequence);
    assert_eq!(world.trigger(&chat).await.state, RunState::Pending(WaitingFor::Capacity));
    // So does a job of now: when it is registered, its run is leased.
    let asking = world.ask(worker, 10);
    settle().await;
    let mut spec = Spec::new("now", Schedule::parse("@now").unwrap(), handler());
    spec.queue = "mail".into();
    let answers = world.engine.register(TenantId::DEFAULT, vec![(spec, None)]).await.unwrap();
    let now = answers.into_iter().next().unwrap().unwrap().job;
    let born = store_runs(&*world.store).await.into_iter().find(|run| run.job == now.id).unwrap();
    assert!(matches!(born.state, RunState::Running(lease) if lease.worker == worker), "{born:?}");
    assert_eq!(asking.await.unwrap().unwrap()[0].run.sequence, born.sequence);
    // Nobody is asked for more than there is room, and nothing is an answer too.
    let asking = world.ask(worker, 1);
    settle().await;
    world.advance(21).await;
    assert!(asking.await.unwrap().unwrap().is_empty());
}

#[tokio::test]
async fn what_is_given_while_nobody_waits_for_the_answer_goes_back_uncharged() {
    let world = World::start().await;
    let job = world.register("@every 1h", "mail", handler()).await;
    let (one, two) = (world.engine.new_worker_id(), world.engine.new_worker_id());
    let asking = world.ask(one, 10);
    settle().await;
    asking.abort();
    settle().await;
    world.trigger(&job).await;
    settle().await;
    let given = world.pull(two, 10).await;
    let lease = given[0].run.lease().unwrap();
    assert_eq!((lease.worker, given[0].run.lost, given[0].run.charged), (two, 0, 0));
}

#[tokio::test]
async fn an_answer_that_got_lost_is_given_to_another_after_a_lease() {
    let world = World::start().await;
    let job = world.register("@every 1h", "mail", handler()).await;
    let (one, two) = (world.engine.new_worker_id(), world.engine.new_worker_id());
    world.trigger(&job).await;
    let lost = world.pull(one, 10).await;
    // It lives, and does not know of it.
    for _ in 0..4 {
        world.advance(5).await;
        world.beat(one, &[]).await.unwrap();
    }
    let again = world.pull(two, 10).await;
    assert_eq!((again[0].run.sequence, again[0].run.attempt), (lost[0].run.sequence, 2));
    let refused = world.report(one, &lost[0], Some(Outcome::Succeeded)).await;
    assert!(matches!(refused, Err(Error::LeaseLost { attempt: 1, .. })), "{refused:?}");
    let run = world.report(two, &again[0], Some(Outcome::Succeeded)).await.unwrap();
    assert_eq!((run.state, run.lost), (RunState::Succeeded, 1));
}

#[tokio::test]
async fn a_worker_that_was_frozen_loses_what_it_held_and_begins_anew() {
    let world = World::start().await;
    let job = world.register("@every 1h", "mail", handler()).await;
    let one = world.engine.new_worker_id();
    world.trigger(&job).await;
    let held = world.pull(one, 10).await;
    world.beat(one, &[&held[0]]).await.unwrap();
    world.advance(10).await;
    world.beat(one, &[&held[0]]).await.unwrap();
    assert!(store_runs(&*world.store).await[0].lease().is_some(), "shorter than a lease nothing happens");
    for _ in 0..5 {
        world.advance(5).await;
    }
    assert!(store_runs(&*world.store).await[0].lease().is_none());
    assert!(matches!(world.beat(one, &[&held[0]]).await, Err(Error::WorkerLost(_))));
    let refused = world.report(one, &held[0], Some(Outcome::Succeeded)).await;
    assert!(matches!(refused, Err(Error::LeaseLost { .. })), "{refused:?}");
    let asking = world.ask(one, 10).await.unwrap();
    assert!(matches!(asking, Err(Error::WorkerLost(_))), "{asking:?}");
    let two = world.engine.new_worker_id();
    assert_eq!(world.pull(two, 10).await[0].run.attempt, 2);
}

#[tokio::test]
async fn any_node_takes_reports_and_signs_of_life() {
    let world = World::start().await;
    let job = world.register("@every 1h", "mail", handler()).await;
    let worker = world.engine.new_worker_id();
    for _ in 0..3 {
        world.trigger(&job).await;
    }
    let held = world.pull(worker, 10).await;
    assert_eq!(held.len(), 3);
    let other = World::on(world.store.clone(), world.clock.clone()).await;
    let answer = other.beat(worker, &[&held[0], &held[1], &held[2]]).await.unwrap();
    assert_eq!((answer.not_held.len(), answer.is_refused), (0, false));
    let run = other.report(worker, &held[0], Some(Outcome::Succeeded)).await.unwrap();
    assert_eq!(run.state, RunState::Succeeded);
    let run = other.report(worker, &held[1], None).await.unwrap();
    assert_eq!((run.state, run.charged), (RunState::Pending(WaitingFor::Capacity), 0));
    // The first node, which still believes that they are held, hears that they are not.
    let answer = world.beat(worker, &[&held[0], &held[1], &held[2]]).await.unwrap();
    assert_eq!(answer.not_held.len(), 2);
    let stranger = world.engine.new_worker_id();
    let refused = other.report(stranger, &held[2], Some(Outcome::Succeeded)).await;
    assert!(matches!(refused, Err(Error::LeaseLost { .. })), "{refused:?}");
    let reported = Reported { run: held[2].run.id(), attempt: 1, end: None };
    let refused = other.engine.report(TenantId(9), worker, vec![reported]).await.unwrap().remove(0);
    assert!(matches!(refused, Err(Error::LeaseLost { .. })), "another tenant's: {refused:?}");
}

#[tokio::test]
async fn who_goes_gives_back_what_it_held() {
    let world = World::start().await;
    let job = world.register("@every 1h", "mail", handler()).await;
    let (one, two) = (world.engine.new_worker_id(), world.engine.new_worker_id());
    world.trigger(&job).await;
    world.pull(one, 10).await;
    let anothers = world.engine.dismiss(TenantId(9), one).await;
    assert!(matches!(anothers, Err(Error::WorkerNotFound(_))), "{anothers:?}");
    world.engine.dismiss(TenantId::DEFAULT, one).await.unwrap();
    assert!(world.engine.workers(None).await.unwrap().is_empty());
    let given = world.pull(two, 10).await;
    assert_eq!((given[0].run.attempt, given[0].run.lost), (2, 0));
}

#[tokio::test]
async fn a_worker_that_asks_twice_at_a_time_is_answered_twice() {
    let world = World::start().await;
    let worker = world.engine.new_worker_id();
    for _ in 0..2 {
        world.register("@at 2026-01-01T12:00:10Z", "mail", handler()).await;
    }
    let asking = [world.ask(worker, 1), world.ask(worker, 1)];
    settle().await;
    world.advance(10).await;
    let mut given = Vec::new();
    for one in asking {
        assert!(one.is_finished(), "each was answered by its own run");
        given.extend(one.await.unwrap().unwrap());
    }
    assert_eq!(given.len(), 2);
    assert_ne!(given[0].run.sequence, given[1].run.sequence);
}

#[tokio::test]
async fn the_workers_of_nodes_are_no_tenants() {
    let world = World::start().await;
    let own = world.own.worker();
    world.own.grant(1);
    let job = world.register("@every 1h", "mail", Target::Discard).await;
    world.trigger(&job).await;
    settle().await;
    let held = world.own.next().await.remove(0);
    let asking = world.ask(own, 1).await.unwrap();
    assert!(matches!(asking, Err(Error::WorkerLost(_))), "{asking:?}");
    assert!(matches!(world.beat(own, &[]).await, Err(Error::WorkerLost(_))));
    let reported = Reported { run: held.run.id(), attempt: 1, end: None };
    let refused = world.engine.report(TenantId::DEFAULT, own, vec![reported]).await;
    assert!(matches!(refused, Err(Error::WorkerLost(_))), "{refused:?}");
    assert!(world.engine.dismiss(TenantId::DEFAULT, own).await.is_err());
}

#[tokio::test]
async fn who_does_not_know_himself_yet_is_told_in_time_for_his_first_heartbeat() {
    let world = World::start().await;
    let worker = world.engine.new_worker_id();
    let engine = Arc::clone(&world.engine);
    let (about, wait) = (about("mail"), Duration::from_secs(60));
    let asking = Asking { worker, is_new: true, about, capacity: 1, wait };
    let asking = tokio::spawn(async move { engine.pull(asking).await });
    settle().await;
    world.advance(5).await;
    assert!(asking.is_finished());
    world.beat(worker, &[]).await.unwrap();
    // Later he waits for a lease at most, and asking is a sign of life too.
    for _ in 0..4 {
        let asking = world.ask(worker, 1);
        settle().await;
        world.advance(15).await;
        assert!(asking.is_finished());
        assert!(asking.await.unwrap().unwrap().is_empty());
    }
    world.beat(worker, &[]).await.unwrap();
}

#[tokio::test]
async fn where_it_matters_what_a_worker_has_begun_is_unknown() {
    for (on_unknown, expected) in [
        (OnUnknown::Retry, RunState::Pending(WaitingFor::Capacity)),
        (OnUnknown::Skip, RunState::Failed),
        (OnUnknown::Ask, RunState::Pending(WaitingFor::Answer)),
    ] {
        let world = World::start().await;
        let target = Target::Worker { handler: "x".into() };
        let mut spec = Spec::new("job", Schedule::parse("@every 1h").unwrap(), target);
        spec.queue = "mail".into();
        spec.policies.on_unknown = on_unknown;
        let answers = world.engine.register(TenantId::DEFAULT, vec![(spec, None)]).await.unwrap();
        let job = answers.into_iter().next().unwrap().unwrap().job;
        let worker = world.engine.new_worker_id();
        // One that gives it back unfinished may have begun.
        world.trigger(&job).await;
        let given = world.pull(worker, 1).await.remove(0);
        let back = world.report(worker, &given, None).await.unwrap();
        assert_eq!(back.state, expected, "{on_unknown:?}");
        // So may one that is sent away.
        if on_unknown != OnUnknown::Retry {
            world.trigger(&job).await;
        }
        let given = world.pull(worker, 1).await.remove(0);
        world.engine.dismiss(TenantId::DEFAULT, worker).await.unwrap();
        let run = world.engine.run(TenantId::DEFAULT, given.run.id()).await.unwrap().run;
        assert_eq!(run.state, expected, "{on_unknown:?}");
        // One that gave up in the middle has.
        if on_unknown != OnUnknown::Retry {
            let worker = world.engine.new_worker_id();
            world.trigger(&job).await;
            let given = world.pull(worker, 1).await.remove(0);
            let run = world.report(worker, &given, Some(Outcome::TimedOut)).await.unwrap();
            assert_eq!(run.state, expected, "{on_unknown:?}");
        }
    }
}

impl World {
    async fn in_parts(&self, schedule: &str, parts: Parts, requires: &str) -> Arc<Job> {
        let target = Target::Worker { handler: "all".into() };
        let mut spec = Spec::new("job", Schedule::parse(schedule).unwrap(), target);
        (spec.queue, spec.parts, spec.requires) = ("mail".into(), Some(parts), requires.parse().unwrap());
        let answers = self.engine.register(TenantId::DEFAULT, vec![(spec, None)]).await.unwrap();
        let job = answers.into_iter().next().unwrap().unwrap().job;
        settle().await;
        job
    }
}

fn parts(leased: &[Leased]) -> Vec<Option<(u32, u32)>> {
    let mut parts: Vec<_> = leased.iter().map(|leased| leased.run.part_of()).collect();
    parts.sort_unstable();
    parts
}

#[tokio::test]
async fn each_slot_of_a_job_in_parts_becomes_as_many_runs() {
    let world = World::start().await;
    let job = world.in_parts("@every 10s", Parts::Count(3), "").await;
    world.advance(10).await;
    let worker = world.engine.new_worker_id();
    let first = world.pull(worker, 10).await;
    let all = [1, 2, 3].map(|part| Some((part, 3)));
    assert_eq!(parts(&first), all);
    assert!(first.iter().all(|leased| leased.run.scheduled_for == first[0].run.scheduled_for));
    // Somebody asks for it: all parts again, under other keys.
    let told = world.trigger(&job).await;
    assert_eq!(told.part_of(), Some((1, 3)));
    let second = world.pull(worker, 10).await;
    assert_eq!(parts(&second), all);
    let keys: std::collections::BTreeSet<String> =
        first.iter().chain(&second).map(|leased| leased.run.idempotency_key().to_string()).collect();
    assert_eq!(keys.len(), 6);
    // A job that runs now is in parts, too.
    world.in_parts("@now", Parts::Count(2), "").await;
    settle().await;
    assert_eq!(parts(&world.pull(worker, 10).await), [Some((1, 2)), Some((2, 2))]);
    // The account has each slot once.
    let slot = first[0].run.scheduled_for;
    let range = Range { from: Some(slot), to: Some(slot + SignedDuration::from_millis(1)) };
    let page = PageRequest::first(100);
    let rows = world.engine.account(TenantId::DEFAULT, job.id, range, page).await.unwrap().items;
    assert_eq!(rows.iter().filter(|row| row.from == slot).map(|row| row.slots).sum::<u64>(), 1, "{rows:?}");
}

#[tokio::test]
async fn a_broadcast_is_given_to_each_worker_that_lives_and_to_no_other() {
    let world = World::start().await;
    let (one, two) = (world.engine.new_worker_id(), world.engine.new_worker_id());
    let job = world.in_parts("@every 10s", Parts::Broadcast, "").await;
    let asking = [world.ask(one, 5), world.ask(two, 5)];
    settle().await;
    world.advance(10).await;
    let mut given = Vec::new();
    for (worker, asking) in [one, two].into_iter().zip(asking) {
        assert!(asking.is_finished(), "each is given its part");
        let leased = asking.await.unwrap().unwrap();
        assert_eq!(leased.len(), 1);
        assert_eq!(leased[0].run.requires.worker(), Some(worker));
        given.extend(leased);
    }
    assert_eq!(parts(&given), [Some((1, 2)), Some((2, 2))]);
    // Who comes later has no part in it.
    let late = world.ask(world.engine.new_worker_id(), 5);
    settle().await;
    assert!(!late.is_finished());
    // A part that is given back goes to the same worker again.
    assert!(world.report(one, &given[0], None).await.is_ok());
    let again = world.pull(one, 5).await;
    assert_eq!((again[0].run.id(), again[0].run.attempt), (given[0].run.id(), 2));
    assert_eq!(world.engine.trigger(TenantId::DEFAULT, job.id, None, None).await.unwrap().parts, Some(3));
}

#[tokio::test]
async fn a_part_whose_worker_is_gone_ends_and_says_so() {
    let world = World::start().await;
    let (one, two) = (world.engine.new_worker_id(), world.engine.new_worker_id());
    world.in_parts("@at 2026-01-01T12:00:10Z", Parts::Broadcast, "").await;
    let (asking, gone) = (world.ask(one, 5), world.ask(two, 5));
    settle().await;
    gone.abort();
    world.advance(10).await;
    let given = asking.await.unwrap().unwrap();
    assert_eq!(parts(&given), [Some((1, 2))]);
    for _ in 0..10 {
        world.advance(2).await;
        world.beat(one, &[&given[0]]).await.unwrap();
    }
    let part = store_runs(&*world.store).await.into_iter().find(|run| run.part_of() == Some((2, 2))).unwrap();
    assert_eq!(part.state, RunState::Failed);
    let detail = world.store.run(part.id()).await.unwrap().unwrap();
    let error = detail.attempts[0].report.clone().unwrap().error.unwrap();
    assert_eq!(error.code, punctual_domain::attempt::WORKER_GONE);
    assert!(error.message.contains(&two.to_string()), "{}", error.message);
    assert!(world.report(one, &given[0], Some(Outcome::Succeeded)).await.is_ok());
}

#[tokio::test]
async fn a_broadcast_that_nobody_hears_is_accounted_for() {
    let world = World::start().await;
    let job = world.in_parts("@every 10s", Parts::Broadcast, "gpu=true").await;
    let asking = world.ask(world.engine.new_worker_id(), 5); // It has no such label.
    settle().await;
    world.advance(10).await;
    assert!(!asking.is_finished());
    assert_eq!(store_runs(&*world.store).await, []);
    let entries = world.store.ledger(job.id, PageRequest::first(10)).await.unwrap().items;
    assert_eq!(
        entries.iter().map(|entry| (entry.slots, entry.fate)).collect::<Vec<_>>(),
        [(1, Fate::MissedNoWorker)]
    );
    let refused = world.engine.trigger(TenantId::DEFAULT, job.id, None, None).await;
    assert!(matches!(refused, Err(Error::NoWorker(queue)) if queue == "mail"));
}

#[tokio::test]
async fn what_waits_for_others_is_not_touched_when_the_parts_of_one_that_is_gone_end() {
    let world = World::start().await;
    let gone = world.engine.new_worker_id();
    let asking = world.ask(gone, 5);
    settle().await;
    let broadcast = world.in_parts("@at 2030-01-01T00:00:00Z", Parts::Broadcast, "").await;
    asking.abort();
    settle().await;
    let part = world.trigger(&broadcast).await;
    // It waits for whoever asks, in a queue that nobody serves now.
    let plain = world.register("@at 2030-01-01T00:00:00Z", "later", handler()).await;
    let waits = world.trigger(&plain).await;
    for _ in 0..20 {
        world.advance(2).await;
    }
    assert_eq!(world.store.run(part.id()).await.unwrap().unwrap().run.state, RunState::Failed);
    let waits = world.store.run(waits.id()).await.unwrap().unwrap();
    assert_eq!(waits.run.state, RunState::Pending(WaitingFor::Capacity));
    assert_eq!(waits.attempts, []);
}

#[tokio::test]
async fn a_claim_that_fails_takes_nobodys_room() {
    let clock = Arc::new(ManualClock::new("2026-01-01T12:00:00Z".parse::<Timestamp>().unwrap()));
    let between = Arc::new(Between::new(Arc::new(Memory::new(16))));
    let world = World::on(between.clone(), clock).await;
    let workers = [(); 3].map(|()| world.engine.new_worker_id());
    let job = world.in_parts("@at 2030-01-01T00:00:00Z", Parts::Broadcast, "").await;
    let asking = workers.map(|worker| world.ask(worker, 5));
    settle().await;
    *between.fails.lock().unwrap() = Some("claim");
    world.trigger(&job).await;
    settle().await;
    assert!(asking.iter().all(|asking| !asking.is_finished()), "nothing can be claimed");
    *between.fails.lock().unwrap() = None;
    world.advance(2).await;
    for asking in asking {
        assert!(asking.is_finished(), "each has its room, and is given its part");
        assert_eq!(asking.await.unwrap().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_sign_of_life_counts_whatever_fails_beside_it() {
    let clock = Arc::new(ManualClock::new("2026-01-01T12:00:00Z".parse::<Timestamp>().unwrap()));
    let between = Arc::new(Between::new(Arc::new(Memory::new(16))));
    let world = World::on(between.clone(), clock).await;
    let job = world.register("@at 2030-01-01T00:00:00Z", "mail", handler()).await;
    world.trigger(&job).await;
    let worker = world.engine.new_worker_id();
    let given = world.pull(worker, 1).await;
    let held = [(given[0].run.id(), 1)];
    *between.fails.lock().unwrap() = Some("introduce");
    for busy in 1..10 {
        world.advance(5).await;
        let change = |about: &mut About| about.saturation = Some(busy);
        let answer = world.engine.pull_heartbeat(TenantId::DEFAULT, worker, change, &held).await.unwrap();
        assert_eq!(answer, punctual_store::Heartbeat::default());
    }
    *between.fails.lock().unwrap() = None;
    assert!(world.report(worker, &given[0], Some(Outcome::Succeeded)).await.is_ok());
}

#[tokio::test]
async fn a_timeout_is_kept_by_a_node_that_did_not_hand_out_the_attempt() {
    let world = World::start().await;
    let mut spec = Spec::new("job", Schedule::parse("@at 2030-01-01T00:00:00Z").unwrap(), handler());
    spec.queue = "mail".into();
    spec.policies.timeouts.attempt = Duration::from_secs(60);
    let answers = world.engine.register(TenantId::DEFAULT, vec![(spec, None)]).await.unwrap();
    let job = answers.into_iter().next().unwrap().unwrap().job;
    world.trigger(&job).await;
    let worker = world.engine.new_worker_id();
    let given = world.pull(worker, 1).await;
    let after = World::on(world.store.clone(), world.clock.clone()).await;
    for _ in 0..7 {
        after.advance(10).await;
        assert_eq!(after.beat(worker, &[&given[0]]).await.unwrap().not_held, []);
    }
    after.advance(10).await;
    let answer = after.beat(worker, &[&given[0]]).await.unwrap();
    assert_eq!(answer.not_held, [Held::from(&given[0].run)], "it is told at once");
    let detail = after.store.run(given[0].run.id()).await.unwrap().unwrap();
    assert_eq!(detail.attempts[0].report.as_ref().unwrap().outcome, Outcome::TimedOut);
    assert!(world.report(worker, &given[0], Some(Outcome::Succeeded)).await.is_err());
}

/// A server with its own directory, killed and started again.
async fn reopen(directory: &tempfile::TempDir) -> Arc<dyn Store> {
    let options = punctual_store_embedded::Options { directory: directory.path().into(), shards: Some(16) };
    for _ in 0..600 {
        if let Ok(store) = Embedded::open(&options) {
            return Arc::new(store);
        }
        // What the one before had under way is being dropped.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the directory is in use")
}

#[tokio::test]
async fn after_a_restart_a_broadcast_is_for_those_who_were_there() {
    let directory = tempfile::tempdir().unwrap();
    let start: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    let clock = Arc::new(ManualClock::new(start));
    let world = World::on(reopen(&directory).await, clock.clone()).await;
    let [one, gone, busy] = [(); 3].map(|()| world.engine.new_worker_id());
    let job = world.in_parts("@at 2026-01-01T12:00:30Z", Parts::Broadcast, "").await;
    for worker in [one, gone, busy] {
        world.engine.stay(worker, about("mail")).await.unwrap();
    }
    let waiting = world.trigger(&job).await;
    assert_eq!(waiting.parts, Some(3));
    drop(world);
    clock.advance(SignedDuration::from_secs(29));
    let world = World::on(reopen(&directory).await, clock).await;
    // One that executes as much as it can does not ask: what it serves is known all the same.
    world.beat(busy, &[]).await.unwrap();
    let present = world.engine.workers(None).await.unwrap();
    let mut queues: Vec<_> =
        present.iter().map(|present| (present.worker, present.about.queues.clone())).collect();
    queues.sort_unstable();
    let mut all = [one, gone, busy].map(|worker| (worker, vec!["mail".into()])).to_vec();
    all.sort_unstable();
    assert_eq!(queues, all);
    let until = |count: usize| {
        let world = &world;
        async move {
            for _ in 0..600 {
                let runs = store_runs(&*world.store).await;
                if runs.iter().filter(|run| run.state == RunState::Failed).count() == count && runs.len() == 6
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            panic!("{:?}", store_runs(&*world.store).await);
        }
    };
    // A slot comes before they have been heard of: it has a part for each, and those that wait are waiting still.
    world.clock.advance(SignedDuration::from_secs(2));
    until(0).await;
    for worker in [one, busy] {
        let stay = world.engine.stay(worker, about("mail")).await.unwrap();
        stay.grant(5);
        let mut given = 0;
        while given < 2 {
            given += tokio::time::timeout(Duration::from_secs(60), stay.next()).await.unwrap().len();
        }
    }
    // Who does not come back is gone after a lease, and what was for it ends.
    for _ in 0..5 {
        world.clock.advance(SignedDuration::from_secs(5));
        for worker in [one, busy] {
            let runs = store_runs(&*world.store).await;
            let its = runs.iter().filter(|run| run.lease().is_some_and(|lease| lease.worker == worker));
            let held: Vec<_> = its.map(|run| (run.id(), run.attempt)).collect();
            assert_eq!(held.len(), 2);
            world.engine.pull_heartbeat(TenantId::DEFAULT, worker, |_| (), &held).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    until(2).await;
}
