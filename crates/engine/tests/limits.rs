//! Limits of time with a moved clock: windows, deadlines and ages, through the loops of a node and through crashes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::between::Between;
use crate::support::world::{Counter, TENANT, World, at, spec};
use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::attempt::Failure;
use punctual_domain::id::JobId;
use punctual_domain::job::Spec;
use punctual_domain::ledger::{Fate, LedgerEntry};
use punctual_domain::policy::catch_up::CatchUp;
use punctual_domain::policy::failures::{Failures, Status};
use punctual_domain::policy::retry::Backoff;
use punctual_domain::run::{Limit, Run, RunState, WaitingFor};
use punctual_domain::work::{Finished, Leased};
use punctual_domain::{Outcome, Report};
use punctual_engine::register::Waiting;
use punctual_engine::{Clock, Engine, ManualClock, Node, Options, Seat};
use punctual_schedule::Tzdb;
use punctual_store::{Memory, PageRequest, RunFilter, Store};

/// A node and one seat, without room until some is granted.
struct Running {
    store: Arc<Between>,
    clock: Arc<ManualClock>,
    engine: Arc<Engine>,
    seat: Seat,
    node: Node,
}

impl Running {
    async fn start() -> Self {
        let store = Arc::new(Between::new(Arc::new(Memory::new(16))));
        let clock = Arc::new(ManualClock::new(at("12:00:00")));
        let (entropy, tzdb) = (Arc::new(Counter::default()), Arc::new(Tzdb::bundled()));
        let engine = Arc::new(Engine::new(store.clone(), clock.clone(), entropy, tzdb));
        let seat = engine.seat(engine.new_worker_id(), Vec::new(), Default::default());
        let id = engine.new_worker_id();
        let node = Node::start(engine.clone(), id, Options::default()).await.unwrap();
        settle().await;
        Running { store, clock, engine, seat, node }
    }

    async fn register(&self, spec: Spec) -> JobId {
        let answers = self.engine.register(TENANT, vec![(spec, None)]).await.unwrap();
        settle().await;
        answers.into_iter().next().unwrap().unwrap().job.id
    }

    /// Lets time pass as it does: in small steps.
    async fn wait(&self, seconds: i64) {
        for _ in 0..seconds * 2 {
            self.clock.advance(SignedDuration::from_millis(500));
            settle().await;
        }
    }

    /// The newest run.
    async fn run(&self) -> Run {
        let page = self.store.store.runs(&RunFilter::default(), PageRequest::first(1)).await.unwrap();
        page.items.into_iter().next().unwrap()
    }

    async fn given(&self) -> Vec<Leased> {
        tokio::select! {
            biased;
            given = self.seat.next() => given,
            () = settle() => Vec::new(),
        }
    }

    async fn finish(&self, leased: Leased, report: Option<Report>) -> Run {
        let worker = self.seat.worker();
        let finished = Finished { worker, run: leased.run, job: leased.job, report };
        let run = self.engine.complete(vec![finished]).await.unwrap().remove(0).unwrap();
        settle().await;
        run
    }

    fn failed(&self, status: i32, is_retryable: bool) -> Option<Report> {
        let now = self.clock.now();
        let error = Failure {
            code: "http_status".into(),
            message: status.to_string(),
            is_retryable,
            retry_after: None,
        };
        let report = Report::lost(now, now);
        Some(Report { outcome: Outcome::Failed, error: Some(error), status: Some(status), ..report })
    }
}

async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A job with a start window of so many seconds.
fn windowed(schedule: &str, seconds: u64) -> Spec {
    let mut spec = spec(schedule);
    spec.policies.timeouts.start_window = Some(Duration::from_secs(seconds));
    spec
}

fn ledger(world: &World, job: JobId) -> Vec<LedgerEntry> {
    block_on(world.store.ledger(job, PageRequest::first(10))).unwrap().items
}

#[tokio::test]
async fn a_run_that_nobody_claims_is_missed_when_its_window_is_over() {
    let running = Running::start().await;
    running.register(windowed("@at 2026-01-01T12:01:00Z", 10)).await;
    running.wait(60).await;
    let run = running.run().await;
    assert_eq!(run.state, RunState::Pending(WaitingFor::Capacity));
    assert_eq!(run.start_by.unwrap().at, at("12:01:10"));
    running.wait(10).await;
    assert_eq!(running.run().await.state, run.state, "at the limit it may still start");
    running.wait(1).await;
    let missed = running.run().await;
    assert_eq!((missed.state, missed.reason), (RunState::Missed, Some(Limit::StartWindow)));
    assert!(running.engine.metrics().text().contains("punctual_lapse_runs_total{reason=\"start_window\"} 1"));
    running.seat.grant(1);
    assert!(running.given().await.is_empty(), "and never starts");
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn a_claim_that_meets_a_late_run_ends_it_and_takes_the_next() {
    let running = Running::start().await;
    running.store.hides_lapsed.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        running.register(windowed("@now", 10)).await;
    }
    running.wait(20).await;
    running.register(windowed("@now", 10)).await;
    running.seat.grant(1);
    settle().await;
    let given = running.given().await;
    assert_eq!(given.iter().map(|one| one.run.scheduled_for).collect::<Vec<_>>(), [at("12:00:20")]);
    let filter = RunFilter { state: Some("missed"), ..RunFilter::default() };
    let missed = running.store.runs(&filter, PageRequest::first(9)).await.unwrap().items;
    assert_eq!(missed.len(), 3, "though nobody looked for them");
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn a_run_that_was_given_back_unstarted_is_still_in_its_window() {
    let running = Running::start().await;
    running.seat.grant(1);
    running.register(windowed("@now", 10)).await;
    let leased = running.given().await.remove(0);
    running.wait(5).await;
    let back = running.finish(leased, None).await;
    assert_eq!((back.started_at, back.start_by.unwrap().at), (None, at("12:00:10")));
    running.wait(6).await;
    assert_eq!(running.run().await.state, RunState::Missed);
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn the_end_of_a_missed_run_brings_the_next_slot_of_a_period_from_completion() {
    let running = Running::start().await;
    running.register(windowed("@every 60s from completion", 10)).await;
    running.wait(12).await;
    let missed = running.run().await;
    assert_eq!((missed.state, missed.scheduled_for), (RunState::Missed, at("12:00:00")));
    running.seat.grant(1);
    running.wait(60).await;
    let next = running.given().await.remove(0).run.scheduled_for;
    assert_eq!(next, missed.finished_at.unwrap() + SignedDuration::from_secs(60));
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn retries_follow_their_list_until_the_run_is_too_old() {
    let running = Running::start().await;
    let mut spec = spec("@now");
    let seconds = |list: &[u64]| list.iter().copied().map(Duration::from_secs).collect();
    spec.policies.retry.max_attempts = 9;
    spec.policies.retry.backoff = Backoff::List { delays: seconds(&[5, 20]) };
    spec.policies.retry.retry_for = Some(Duration::from_secs(40));
    running.register(spec).await;
    let mut started = Vec::new();
    let mut run = running.run().await;
    while !run.state.is_ended() {
        running.seat.grant(1);
        settle().await;
        let leased = running.given().await.remove(0);
        started.push(leased.run.lease().unwrap().claimed_at);
        run = running.finish(leased, running.failed(503, true)).await;
        if let RunState::Pending(_) = run.state {
            running.wait(run.available_at.duration_since(running.clock.now()).as_secs()).await;
        }
    }
    assert_eq!(started, [at("12:00:00"), at("12:00:05"), at("12:00:25")]);
    assert_eq!((run.state, run.reason, run.attempt), (RunState::Failed, Some(Limit::RetryFor), 3));
    assert_eq!(running.run().await, run);
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn a_retry_that_finds_no_room_in_time_does_not_start() {
    let running = Running::start().await;
    let mut spec = spec("@now");
    spec.policies.retry.backoff = Backoff::Fixed { delay: Duration::from_secs(10) };
    spec.policies.retry.retry_for = Some(Duration::from_secs(20));
    running.register(spec).await;
    running.seat.grant(1);
    let leased = running.given().await.remove(0);
    let waiting = running.finish(leased, running.failed(503, true)).await;
    assert_eq!((waiting.available_at, waiting.start_by.unwrap().at), (at("12:00:10"), at("12:00:20")));
    running.wait(21).await;
    let dead = running.run().await;
    assert_eq!((dead.state, dead.reason, dead.attempt), (RunState::Failed, Some(Limit::RetryFor), 1));
    let redriven = running.engine.redrive(TENANT, &[dead.id()]).await.unwrap().remove(0).unwrap();
    assert_eq!(redriven.redriven_at, Some(at("12:00:21")));
    running.wait(100).await;
    running.seat.grant(1);
    let again = running.given().await.remove(0);
    assert_eq!(again.run.attempt, 2, "who asks for more attempts gets one, however late");
    let waiting = running.finish(again, running.failed(503, true)).await;
    assert_eq!(waiting.reason, Some(Limit::RetryFor), "and its age counts from there");
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn no_retry_is_planned_behind_the_deadline_and_the_run_is_timed_out() {
    let running = Running::start().await;
    let mut spec = spec("@now");
    spec.policies.timeouts.deadline = Some(Duration::from_secs(30));
    spec.policies.retry.backoff = Backoff::Fixed { delay: Duration::from_secs(20) };
    spec.policies.retry.max_attempts = 5;
    running.register(spec).await;
    running.seat.grant(1);
    let first = running.given().await.remove(0);
    let waiting = running.finish(first, running.failed(503, true)).await;
    assert_eq!(waiting.start_by.unwrap().limit, Limit::Deadline);
    running.wait(20).await;
    running.seat.grant(1);
    let second = running.given().await.remove(0);
    let ended = running.finish(second, running.failed(503, true)).await;
    assert_eq!((ended.state, ended.reason), (RunState::TimedOut, Some(Limit::Deadline)));
    assert!(ended.state.is_dead());
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_retried_is_as_the_job_says_and_the_attempt_tells() {
    let running = Running::start().await;
    let mut spec = spec("@now");
    spec.policies.retry.on = Failures { statuses: vec![Status::One(409)], ..Failures::default() };
    spec.policies.retry.not_on = Failures { statuses: vec![Status::Class(5)], ..Failures::default() };
    running.register(spec).await;
    running.seat.grant(1);
    let first = running.given().await.remove(0);
    let waiting = running.finish(first, running.failed(409, false)).await;
    assert_eq!(waiting.state, RunState::Pending(WaitingFor::Retry));
    running.wait(2).await;
    running.seat.grant(1);
    let second = running.given().await.remove(0);
    let ended = running.finish(second, running.failed(503, true)).await;
    assert_eq!((ended.state, ended.reason), (RunState::Failed, None));
    let attempts = running.store.run(ended.id()).await.unwrap().unwrap().attempts;
    let told: Vec<bool> =
        attempts.into_iter().map(|attempt| attempt.report.unwrap().error.unwrap().is_retryable).collect();
    assert_eq!(told, [true, false]);
    running.node.stop().await.unwrap();
}

#[test]
fn slots_that_are_reached_after_their_window_are_in_the_ledger() {
    for (limit, fate) in
        [(Limit::StartWindow, Fate::MissedStartWindow), (Limit::Deadline, Fate::MissedDeadline)]
    {
        let world = World::new();
        let mut spec = spec("* * * * *");
        match limit {
            Limit::Deadline => spec.policies.timeouts.deadline = Some(Duration::from_secs(90)),
            _ => spec.policies.timeouts.start_window = Some(Duration::from_secs(90)),
        }
        spec.policies.catch_up = CatchUp::All { window: Duration::from_secs(240), max: 100, rate: 1 };
        let job = world.try_register(spec).unwrap().job.id;
        // Due are 12:01 to 12:10; 12:01 to 12:05 are too old for the catch-up, and up to 12:08 for the window.
        let fired = world.advance(SignedDuration::from_secs(10 * 60));
        let slots: Vec<_> = fired.runs.iter().map(|(run, _)| run.scheduled_for).collect();
        assert_eq!(slots, [at("12:09:00"), at("12:10:00")]);
        assert!(slots.iter().all(|slot| *slot > at("12:08:30")) && fired.operations == 0);
        let told: Vec<_> = ledger(&world, job).iter().map(|e| (e.from, e.to, e.slots, e.fate)).collect();
        let too_old = (at("12:01:00"), at("12:05:00"), 5, Fate::MissedCatchUp);
        assert_eq!(told, [(at("12:06:00"), at("12:08:00"), 3, fate), too_old]);
    }
}

#[test]
fn a_slot_that_is_a_little_late_is_missed_too_if_its_window_is_shorter() {
    let world = World::new();
    let job = world.try_register(windowed("@at 2026-01-01T12:01:00Z", 5)).unwrap().job.id;
    let fired = world.advance(SignedDuration::from_secs(66));
    assert_eq!((fired.runs.len(), fired.missed), (0, 1));
    assert_eq!(ledger(&world, job)[0].fate, Fate::MissedStartWindow);
    let seen = block_on(world.engine.job(TENANT, job)).unwrap();
    assert!(seen.is_over, "nothing follows");
    let world = World::new();
    let mut spread = windowed("@at 2026-01-01T12:01:00Z", 5);
    spread.schedule.spread = Some(Duration::from_secs(600));
    world.try_register(spread).unwrap();
    let due = world.due()[0];
    let late_by = due.key.at.duration_since(world.clock.now()) + SignedDuration::from_secs(5);
    assert_eq!(world.advance(late_by).runs.len(), 1, "the window begins when the spread is over");
}

#[test]
fn what_becomes_too_late_while_it_is_caught_up_with_is_in_the_ledger() {
    let world = World::new();
    let mut spec = windowed("* * * * *", 20 * 60);
    spec.policies.catch_up = CatchUp::All { window: Duration::from_secs(7_200), max: 100, rate: 1 };
    let job = world.try_register(spec).unwrap().job.id;
    let fired = world.advance(SignedDuration::from_secs(15 * 60 + 30));
    assert_eq!(fired.operations, 1, "12:01 to 12:14 are owed");
    world.operate();
    assert_eq!(world.runs().len(), 2, "12:15 is young, and one is made a second");
    // The operation stands still for a while, as if its node was down; six more slots go out of their windows.
    world.clock.advance(SignedDuration::from_secs(12 * 60));
    world.operate();
    let entries = ledger(&world, job);
    let told: Vec<_> = entries.iter().map(|e| (e.from, e.to, e.slots, e.fate)).collect();
    assert_eq!(told, [(at("12:02:00"), at("12:07:00"), 6, Fate::MissedStartWindow)]);
    for _ in 0..20 {
        world.clock.advance(SignedDuration::from_secs(1));
        world.operate();
    }
    let operations = block_on(world.engine.operations(&Default::default(), PageRequest::first(1))).unwrap();
    let operation = &operations.items[0];
    assert_eq!((operation.state.as_str(), operation.done, operation.failed), ("succeeded", 8, 6));
    let owed: Vec<_> = world.runs().iter().map(|run| run.start_by.unwrap().at - run.scheduled_for).collect();
    assert!(owed.iter().all(|window| window.get_seconds() == 20 * 60), "each has the window of its slot");
}

#[test]
fn an_edit_may_give_waiting_runs_another_window() {
    let world = World::new();
    let job = world.try_register(windowed("@now", 10)).unwrap().job.id;
    let longer = windowed("@now", 600);
    block_on(world.engine.update(TENANT, job, None, longer, Waiting::Update)).unwrap();
    world.clock.advance(SignedDuration::from_secs(11));
    let lapsed = block_on(world.engine.lapse(&world.epochs)).unwrap();
    assert_eq!((lapsed.runs.len(), lapsed.next_at), (0, Some(at("12:10:00"))));
}

#[test]
fn a_kill_between_fire_and_lapse_leaves_the_run_to_the_next_process() {
    let world = World::new();
    world.try_register(windowed("@at 2026-01-01T12:01:00Z", 10)).unwrap();
    assert_eq!(world.advance(SignedDuration::from_secs(60)).runs.len(), 1);
    world.clock.advance(SignedDuration::from_secs(60));
    let world = world.killed_and_started(2);
    let lapsed = block_on(world.engine.lapse(&world.epochs)).unwrap();
    assert_eq!(lapsed.runs.iter().map(|run| run.state).collect::<Vec<_>>(), [RunState::Missed]);
    assert_eq!(block_on(world.engine.lapse(&world.epochs)).unwrap().runs, []);
}
