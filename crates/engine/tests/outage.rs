//! A node whose store is out of reach for a while, or loses answers: with a clock that the test moves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::between::Between;
use crate::support::world::{Counter, TENANT, at, spec};
use jiff::{SignedDuration, Timestamp};
use punctual_domain::job::{Lane, Spec};
use punctual_domain::run::{Run, RunState};
use punctual_domain::work::{Finished, Held, Leased};
use punctual_domain::{Outcome, Report};
use punctual_engine::{Clock, Engine, ManualClock, Node, Options, Seat};
use punctual_schedule::Tzdb;
use punctual_store::{Memory, PageRequest, RunFilter, Store};

const LEASE: Duration = Duration::from_secs(15);

/// A node on a store that fails when told to, and one seat.
struct World {
    store: Arc<Between>,
    clock: Arc<ManualClock>,
    engine: Arc<Engine>,
    seat: Seat,
    node: Node,
}

impl World {
    async fn start(room: usize) -> World {
        let store = Arc::new(Between::new(Arc::new(Memory::new(16))));
        let clock = Arc::new(ManualClock::new(at("12:00:00")));
        let engine = Engine::new(
            store.clone(),
            clock.clone(),
            Arc::new(Counter::default()),
            Arc::new(Tzdb::bundled()),
        );
        let engine = Arc::new(engine);
        let seat = engine.seat(engine.new_worker_id(), Vec::new(), Default::default());
        // Room that comes free is waited for, by a clock that the test does not move.
        if room > 0 {
            seat.grant(room);
        }
        let node = Node::start(
            engine.clone(),
            engine.new_worker_id(),
            Options { lease: LEASE, ..Options::default() },
        )
        .await;
        settle().await;
        World { store, clock, engine, seat, node: node.unwrap() }
    }

    async fn register(&self, spec: Spec) -> bool {
        let answer = self.engine.register(TENANT, vec![(spec, None)]).await;
        settle().await;
        answer.is_ok()
    }

    /// Lets time pass as it does: in small steps.
    async fn wait(&self, seconds: i64) {
        for _ in 0..seconds * 4 {
            self.clock.advance(SignedDuration::from_millis(250));
            settle().await;
        }
    }

    fn set_down(&self, is_down: bool) {
        self.store.is_down.store(is_down, Ordering::Relaxed);
    }

    fn lose_answers(&self, loses: bool) {
        self.store.loses_answers.store(loses, Ordering::Relaxed);
    }

    /// All runs, oldest first.
    async fn runs(&self) -> Vec<Run> {
        let page = PageRequest::first(1_000);
        let mut runs = self.store.store.runs(&RunFilter::default(), page).await.unwrap().items;
        runs.reverse();
        runs
    }

    async fn slots(&self) -> Vec<Timestamp> {
        let mut slots: Vec<Timestamp> = self.runs().await.iter().map(|run| run.scheduled_for).collect();
        slots.sort();
        slots
    }

    /// What the seat was given, without waiting.
    async fn given(&self) -> Vec<Leased> {
        let mut all = Vec::new();
        loop {
            let given = tokio::select! {
                biased;
                given = self.seat.next() => given,
                () = settle() => return all,
            };
            all.extend(given);
        }
    }
}

/// Lets every task run until all of them wait: there is one thread and nothing else to wait for.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_job_whose_registration_was_not_answered_fires_if_it_is_there() {
    let world = World::start(10).await;
    // The horizon covers an hour, and knows of one job far ahead.
    assert!(world.register(spec("@at 2026-01-01T12:05:00Z")).await);
    world.lose_answers(true);
    assert!(!world.register(spec("@at 2026-01-01T12:00:05Z")).await, "nobody knows");
    assert!(!world.register(spec("@now")).await);
    world.lose_answers(false);
    world.wait(6).await;
    assert_eq!(world.slots().await, [at("12:00:00"), at("12:00:05")]);
    assert_eq!(world.given().await.len(), 2, "both are executed");
    world.node.stop().await.unwrap();
}

#[tokio::test]
async fn what_a_caller_wrote_who_hung_up_is_found() {
    let world = World::start(10).await;
    // The horizon covers all there is, so nothing is read by itself.
    assert!(world.register(spec("@at 2026-01-01T12:05:00Z")).await);
    for schedule in ["@at 2026-01-01T12:00:05Z", "@now"] {
        world.store.hangs.store(true, Ordering::Relaxed);
        tokio::select! {
            biased;
            _ = world.register(spec(schedule)) => panic!("nobody answers"),
            () = settle() => {}
        }
    }
    world.wait(6).await;
    assert_eq!(world.slots().await, [at("12:00:00"), at("12:00:05")]);
    assert_eq!(world.given().await.len(), 2, "both are executed");
    world.node.stop().await.unwrap();
}

#[tokio::test]
async fn a_fire_whose_answer_was_lost_neither_repeats_nor_ends_its_job() {
    let world = World::start(10).await;
    assert!(world.register(spec("@every 10s")).await);
    world.wait(9).await;
    world.lose_answers(true);
    world.wait(2).await;
    world.lose_answers(false);
    world.wait(20).await;
    assert_eq!(world.slots().await, [at("12:00:10"), at("12:00:20"), at("12:00:30")]);
    // The worker never heard of the first one; nobody lists it, so it is given out again.
    let given = world.given().await;
    let attempts =
        |slot| given.iter().filter(move |one| one.run.scheduled_for == slot).map(|one| one.run.attempt);
    assert_eq!(attempts(at("12:00:20")).collect::<Vec<_>>(), [1]);
    assert_eq!(attempts(at("12:00:10")).collect::<Vec<_>>(), [2], "after one lease");
    world.node.stop().await.unwrap();
}

#[tokio::test]
async fn an_end_that_was_not_answered_still_brings_the_next_slot() {
    let world = World::start(10).await;
    assert!(world.register(spec("@every 10s from completion")).await);
    world.wait(11).await;
    let leased = world.given().await.remove(0);
    let now = world.clock.now();
    let report = Report { outcome: Outcome::Succeeded, error: None, ..Report::lost(now, now) };
    let worker = world.seat.worker();
    let finished =
        Finished { worker, run: leased.run.clone(), job: leased.job.clone(), report: Some(report) };
    world.lose_answers(true);
    world.engine.complete(vec![finished.clone()]).await.unwrap_err();
    world.lose_answers(false);
    world.wait(11).await;
    let given = world.given().await;
    assert_eq!(given.len(), 1, "the slot that follows the end");
    assert_ne!(given[0].run.id(), leased.run.id());
    let answer = world.engine.complete(vec![finished]).await.unwrap().remove(0);
    assert!(answer.is_err(), "it is recorded once");
    world.node.stop().await.unwrap();
}

#[tokio::test]
async fn slots_of_an_outage_are_caught_up_behind_those_that_can_be_on_time() {
    // There is room for nobody, so that runs are born in the order of firing.
    let world = World::start(0).await;
    let mut critical = spec("@at 2026-01-01T12:00:20Z");
    critical.lane = Lane::Critical;
    for _ in 0..300 {
        assert!(world.register(spec("@at 2026-01-01T12:00:10Z")).await);
    }
    assert!(world.register(critical).await);
    assert!(world.register(spec("@at 2026-01-01T12:00:40Z")).await);
    world.set_down(true);
    world.wait(40).await;
    world.set_down(false);
    assert!(world.slots().await.is_empty());
    world.wait(10).await;
    let runs = world.runs().await;
    assert_eq!(runs.len(), 302, "each once");
    let slots: Vec<Timestamp> = runs.iter().map(|run| run.scheduled_for).collect();
    assert_eq!(slots[0], at("12:00:40"), "what can be on time does not wait for what is late");
    assert_eq!(slots[1], at("12:00:20"), "the critical one is the first of the late ones");
    let on_time = &runs[0];
    assert!(on_time.sequence.born_at() <= at("12:00:41"), "{on_time:?}");
    world.node.stop().await.unwrap();
}

#[tokio::test]
async fn a_short_page_is_not_the_end_of_what_is_overdue() {
    let world = World::start(0).await;
    world.store.page_max.store(2, Ordering::Relaxed);
    for _ in 0..7 {
        assert!(world.register(spec("@at 2026-01-01T12:00:10Z")).await);
    }
    world.set_down(true);
    world.wait(20).await;
    world.set_down(false);
    world.wait(10).await;
    assert_eq!(world.runs().await.len(), 7, "each once");
    world.node.stop().await.unwrap();
}

#[tokio::test]
async fn a_store_that_is_down_is_not_asked_all_the_time() {
    let world = World::start(1_000).await;
    assert!(world.register(spec("@every 1s")).await);
    world.set_down(true);
    world.wait(1).await;
    let before = world.store.calls.load(Ordering::Relaxed);
    world.wait(50).await;
    let calls = world.store.calls.load(Ordering::Relaxed) - before;
    // Two a second to read ahead, two to read what is overdue, a few for the slower duties.
    assert!(calls < 50 * 8, "{calls} calls in 50 seconds");
    world.set_down(false);
    world.wait(30).await;
    let slots = world.slots().await;
    let owed = (1..=81).map(|second| at("12:00:00") + SignedDuration::from_secs(second));
    assert_eq!(slots, owed.collect::<Vec<_>>(), "every slot has one run");
    world.node.stop().await.unwrap();
}

#[tokio::test]
async fn nobody_is_taken_for_dead_until_a_lease_after_the_outage() {
    let world = World::start(10).await;
    assert!(world.register(spec("@now")).await);
    let leased = world.given().await.remove(0);
    let worker = world.seat.worker();
    let held = vec![Held::from(&leased.run)];
    world.engine.heartbeat(worker, held.clone()).await.unwrap();
    world.set_down(true);
    world.wait(60).await;
    world.set_down(false);
    world.wait(i64::try_from(LEASE.as_secs()).unwrap() - 6).await;
    let answer = world.engine.heartbeat(worker, held).await.unwrap();
    assert!(!answer.is_refused && answer.not_held.is_empty(), "{answer:?}");
    // Without a sign of life it is lost after all.
    world.wait(60).await;
    assert!(world.engine.heartbeat(worker, Vec::new()).await.unwrap().is_refused);
    assert!(matches!(world.runs().await[0].state, RunState::Pending(_)), "{:?}", world.runs().await);
    world.node.stop().await.unwrap();
}

#[tokio::test]
async fn a_retry_is_claimed_though_the_store_failed_when_it_was_asked_for_the_next() {
    let world = World::start(10).await;
    let mut failing = spec("@now");
    failing.policies.retry.max_attempts = 3;
    assert!(world.register(failing).await);
    let leased = world.given().await.remove(0);
    let now = world.clock.now();
    let error = punctual_domain::attempt::Failure {
        code: "x".into(),
        message: "x".into(),
        is_retryable: true,
        retry_after: None,
    };
    let report = Report { outcome: Outcome::Failed, error: Some(error), ..Report::lost(now, now) };
    let worker = world.seat.worker();
    let finished = Finished { worker, run: leased.run, job: leased.job, report: Some(report) };
    world.store.loses_sight.store(true, Ordering::Relaxed);
    world.engine.complete(vec![finished]).await.unwrap();
    world.wait(20).await;
    assert!(!world.store.loses_sight.load(Ordering::Relaxed), "it was asked");
    assert_eq!(world.given().await.remove(0).run.attempt, 2);
    world.node.stop().await.unwrap();
}
