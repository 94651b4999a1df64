//! The loops of a node, on the reference store, with a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::attempt::Failure;
use punctual_domain::job::{Spec, Target};
use punctual_domain::lifecycle;
use punctual_domain::operation::{DeadLetters, Kind};
use punctual_domain::papers::CHECKPOINT_MAX;
use punctual_domain::policy::catch_up::CatchUp;
use punctual_domain::policy::limit::{Across, Concurrency, Rate, RateLimit};
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::run::{RunState, WaitingFor};
use punctual_domain::work::{Finished, Held, Leased};
use punctual_domain::{Note, Outcome, Report, Run, TenantId};
use punctual_engine::backfill::Asked;
use punctual_engine::{Engine, Entropy, ManualClock, Node, Options, Seat};
use punctual_schedule::{Schedule, Tzdb};
use punctual_store::{Memory, PageRequest, Refused, RunFilter, Store};

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

/// A node on the reference store, and one seat.
struct World {
    engine: Arc<Engine>,
    store: Arc<Memory>,
    clock: Arc<ManualClock>,
    node: Option<Node>,
    seat: Seat,
}

const LEASE: Duration = Duration::from_secs(15);

impl World {
    fn idle() -> Self {
        let store = Arc::new(Memory::new(16));
        let clock = Arc::new(ManualClock::new(at("12:00:00")));
        let engine = Engine::new(
            store.clone(),
            clock.clone(),
            Arc::new(Counter::default()),
            Arc::new(Tzdb::bundled()),
        );
        let engine = Arc::new(engine);
        let seat = engine.seat(engine.new_worker_id(), Vec::new(), Default::default());
        World { engine, store, clock, node: None, seat }
    }

    async fn start(mut self) -> Self {
        let id = self.engine.new_worker_id();
        self.node = Some(
            Node::start(self.engine.clone(), id, Options { lease: LEASE, ..Options::default() })
                .await
                .unwrap(),
        );
        settle().await;
        self
    }

    async fn register(&self, schedule: &str) -> Arc<punctual_domain::Job> {
        let spec = Spec::new("job", Schedule::parse(schedule).unwrap(), Target::Discard);
        let answers = self.engine.register(TenantId::DEFAULT, vec![(spec, None)]).await.unwrap();
        let job = answers.into_iter().next().unwrap().unwrap().job;
        settle().await;
        job
    }

    async fn advance(&self, by: SignedDuration) {
        self.clock.advance(by);
        settle().await;
    }

    async fn runs(&self) -> Vec<Run> {
        self.store.runs(&RunFilter::default(), PageRequest::first(1_000)).await.unwrap().items
    }

    /// What the seat was given, without waiting.
    async fn given(&self) -> Vec<Leased> {
        tokio::select! {
            biased;
            given = self.seat.next() => given,
            () = settle() => Vec::new(),
        }
    }

    async fn finish(&self, leased: Leased, report: Report) -> Run {
        let worker = self.seat.worker();
        let finished = Finished { worker, run: leased.run, job: leased.job, report: Some(report) };
        self.engine.complete(vec![finished]).await.unwrap().remove(0).unwrap()
    }
}

fn at(time: &str) -> Timestamp {
    format!("2026-01-01T{time}Z").parse().unwrap()
}

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn report(outcome: Outcome, at: Timestamp) -> Report {
    let error = Failure { code: "x".into(), message: "x".into(), is_retryable: true, retry_after: None };
    Report { outcome, error: (outcome != Outcome::Succeeded).then_some(error), ..Report::lost(at, at) }
}

/// Lets every task run until all of them wait: there is one thread and nothing else to wait for.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_slot_becomes_a_run_that_is_born_running_where_there_is_room() {
    let world = World::idle().start().await;
    world.seat.grant(10);
    let job = world.register("* * * * *").await;
    assert!(world.given().await.is_empty(), "never early");
    world.advance(seconds(60)).await;
    let given = world.given().await;
    assert_eq!(given.iter().map(|leased| leased.run.scheduled_for).collect::<Vec<_>>(), [at("12:01:00")]);
    assert_eq!((given[0].run.job, given[0].run.attempt, &given[0].job.id), (job.id, 1, &job.id));
    world.advance(seconds(60)).await;
    assert_eq!(world.given().await.len(), 1, "the slot that follows is known without reading");
}

#[tokio::test]
async fn what_is_registered_inside_the_horizon_wakes_the_loop() {
    let world = World::idle().start().await;
    world.seat.grant(10);
    world.register("@at 2026-01-01T12:59:00Z").await;
    world.advance(seconds(1)).await;
    world.register("@at 2026-01-01T12:00:05Z").await;
    world.register("@now").await;
    assert_eq!(world.given().await.len(), 1, "now is now");
    world.advance(seconds(4)).await;
    assert_eq!(world.given().await[0].run.scheduled_for, at("12:00:05"));
    world.advance(seconds(59 * 60)).await;
    assert_eq!(world.given().await[0].run.scheduled_for, at("12:59:00"));
}

#[tokio::test]
async fn a_job_of_the_far_future_fires_on_its_day() {
    let world = World::idle();
    world.register("@at 2026-03-01T00:00:00Z").await;
    let world = world.start().await;
    world.seat.grant(10);
    for _ in 0..58 {
        assert!(world.given().await.is_empty());
        world.advance(seconds(86_400)).await;
    }
    world.advance(seconds(12 * 3_600 - 1)).await;
    assert!(world.given().await.is_empty(), "not a second early");
    world.advance(seconds(1)).await;
    assert_eq!(world.given().await.len(), 1);
}

#[tokio::test]
async fn without_room_a_run_waits_and_is_claimed_when_room_comes() {
    let world = World::idle().start().await;
    world.register("* * * * *").await;
    world.advance(seconds(60)).await;
    let runs = world.runs().await;
    assert_eq!(runs[0].state, RunState::Pending(WaitingFor::Capacity));
    world.seat.grant(1);
    let given = world.given().await;
    assert_eq!(given.len(), 1);
    assert_eq!(given[0].run.sequence, runs[0].sequence);
}

#[tokio::test]
async fn no_more_is_given_than_there_is_room_for() {
    let world = World::idle().start().await;
    world.seat.grant(2);
    for _ in 0..5 {
        world.register("@at 2026-01-01T12:00:05Z").await;
    }
    world.advance(seconds(5)).await;
    let mut given = world.given().await;
    assert_eq!(given.len(), 2);
    assert!(world.given().await.is_empty());
    // The rest waits for room while room comes free, and is fired as waiting when none does.
    let ended = world.finish(given.remove(0), report(Outcome::Succeeded, at("12:00:05"))).await;
    assert_eq!(ended.state, RunState::Succeeded);
    world.seat.grant(1);
    assert_eq!(world.given().await.len(), 1);
}

#[tokio::test]
async fn a_retry_is_claimed_when_its_time_comes() {
    let world = World::idle().start().await;
    world.seat.grant(1);
    world.register("@now").await;
    let leased = world.given().await.remove(0);
    let run = world.finish(leased, report(Outcome::Failed, at("12:00:00"))).await;
    assert_eq!(run.state, RunState::Pending(WaitingFor::Retry));
    world.seat.grant(1);
    assert!(world.given().await.is_empty(), "not before its time");
    world.advance(run.available_at.duration_since(at("12:00:00"))).await;
    let again = world.given().await;
    assert_eq!((again[0].run.sequence, again[0].run.attempt), (run.sequence, 2));
}

#[tokio::test]
async fn the_next_attempt_goes_on_where_the_last_one_was() {
    let world = World::idle().start().await;
    world.seat.grant(1);
    world.register("@now").await;
    let leased = world.given().await.remove(0);
    assert_eq!(leased.checkpoint, None);
    let note = |worker, checkpoint: String| Note {
        worker,
        held: Held::from(&leased.run),
        progress: None,
        checkpoint: Some(checkpoint.into()),
        lines: Vec::new(),
    };
    let large = format!("\"{}\"", "x".repeat(CHECKPOINT_MAX));
    let (worker, other) = (world.seat.worker(), world.engine.new_worker_id());
    let notes = vec![note(worker, "7".into()), note(other, "8".into()), note(worker, large)];
    let answers = world.engine.note(notes).await.unwrap();
    let stale = Refused::Lifecycle(lifecycle::Refused::StaleLease { attempt: 1 });
    assert_eq!(answers, [Ok(()), Err(stale), Err(Refused::CheckpointTooLarge)]);
    let run = world.finish(leased.clone(), report(Outcome::Failed, at("12:00:00"))).await;
    // Beside it a run that begins is handed nothing.
    world.advance(run.available_at.duration_since(at("12:00:00"))).await;
    world.register("@now").await;
    world.seat.grant(2);
    let mut given = world.given().await;
    given.extend(world.given().await);
    let handed: Vec<_> = given.iter().map(|one| (one.run.attempt, one.checkpoint.as_deref())).collect();
    assert_eq!(handed, [(2, Some("7")), (1, None)]);
}

#[tokio::test]
async fn overdue_slots_do_not_make_others_late() {
    let world = World::idle();
    for _ in 0..3_000 {
        world.register("@at 2026-01-01T12:00:10Z").await;
    }
    world.register("@every 1s").await;
    world.clock.advance(seconds(30));
    let world = world.start().await;
    world.seat.grant(100_000);
    world.advance(seconds(1)).await;
    for _ in 0..50 {
        settle().await;
    }
    let runs = world.runs().await;
    let on_time = runs.iter().filter(|run| run.scheduled_for == at("12:00:31")).count();
    assert_eq!(on_time, 1);
    let mut total = 0;
    let mut after = None;
    loop {
        let page =
            world.store.runs(&RunFilter::default(), PageRequest { after, limit: 1_000 }).await.unwrap();
        total += page.items.iter().filter(|run| run.scheduled_for == at("12:00:10")).count();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(total, 3_001, "three thousand, and one of the job that fires every second");
}

#[tokio::test]
async fn a_tenant_with_very_many_due_slots_does_not_make_another_late() {
    let world = World::idle();
    let spec = |time: &str| {
        let schedule = Schedule::parse(&format!("@at 2026-01-01T{time}Z")).unwrap();
        (Spec::new("job", schedule, Target::Discard), None)
    };
    for _ in 0..12 {
        let specs = (0..1_000).map(|_| spec("12:00:05")).collect();
        world.engine.register(TenantId(1), specs).await.unwrap();
    }
    let quiet = vec![spec("12:00:05"), spec("12:00:06")];
    world.engine.register(TenantId(2), quiet).await.unwrap();
    let world = world.start().await;
    let (mut noisy, mut quiet) = (0, Vec::new());
    // Room for a hundred at a time: what was given is done at once.
    for (by, time, rounds) in [(5, "12:00:05", 20), (1, "12:00:06", 2_000)] {
        world.advance(seconds(by)).await;
        for _ in 0..rounds {
            if noisy + quiet.len() == 12_002 {
                break;
            }
            world.seat.grant(100);
            settle().await;
            let given = world.given().await;
            for leased in &given {
                match leased.run.tenant {
                    TenantId(2) => quiet.push(noisy),
                    _ => noisy += 1,
                }
            }
            let (worker, report) = (world.seat.worker(), Some(report(Outcome::Succeeded, at(time))));
            let finished = given.into_iter().map(|leased| Finished {
                worker,
                run: leased.run,
                job: leased.job,
                report: report.clone(),
            });
            world.engine.complete(finished.collect()).await.unwrap();
        }
    }
    assert_eq!((noisy, quiet.len()), (12_000, 2));
    assert!(quiet[0] <= 1_000, "fired after {quiet:?} of the other");
}

#[tokio::test]
async fn a_tenant_whose_runs_wait_does_not_make_another_late() {
    let world = World::idle();
    let spec = |schedule: &str| (Spec::new("job", Schedule::parse(schedule).unwrap(), Target::Discard), None);
    for _ in 0..100 {
        world.engine.register(TenantId(1), (0..1_000).map(|_| spec("@now")).collect()).await.unwrap();
    }
    world.engine.register(TenantId(2), vec![spec("@every 1s")]).await.unwrap();
    let world = world.start().await;
    let (mut noisy, mut lateness) = (0, Vec::new());
    // Room for a hundred a second: what was given is done at once.
    for _ in 0..100 {
        world.seat.grant(10);
        world.advance(SignedDuration::from_millis(100)).await;
        let now = world.engine.now();
        loop {
            let given = world.given().await;
            if given.is_empty() {
                break;
            }
            for leased in &given {
                match leased.run.tenant {
                    TenantId(2) => lateness.push(now.duration_since(leased.run.scheduled_for)),
                    _ => noisy += 1,
                }
            }
            let (worker, report) = (world.seat.worker(), Some(report(Outcome::Succeeded, now)));
            let finished = given.into_iter().map(|leased| Finished {
                worker,
                run: leased.run,
                job: leased.job,
                report: report.clone(),
            });
            world.engine.complete(finished.collect()).await.unwrap();
        }
    }
    assert!(noisy >= 900, "{noisy} of the other");
    assert!(lateness.len() >= 9, "{lateness:?}");
    assert!(lateness.iter().all(|late| *late <= seconds(1)), "{lateness:?}");
}

#[tokio::test]
async fn a_worker_without_a_sign_of_life_loses_its_attempt() {
    let world = World::idle().start().await;
    world.seat.grant(1);
    world.register("@now").await;
    let leased = world.given().await.remove(0);
    let held = vec![Held::from(&leased.run)];
    world.engine.heartbeat(world.seat.worker(), held.clone()).await.unwrap();
    world.advance(seconds(14)).await;
    assert!(world.runs().await[0].state.as_str() == "running", "a lease has not passed");
    world.advance(seconds(6)).await;
    let run = world.runs().await.remove(0);
    assert_eq!((run.lost, run.charged), (1, 0));
    let answer = world.engine.heartbeat(world.seat.worker(), held).await.unwrap();
    assert!(answer.is_refused, "a dead worker's heartbeat is refused");
}

#[tokio::test]
async fn an_operation_is_done_when_it_is_started() {
    let world = World::idle().start().await;
    world.seat.grant(1);
    let mut spec = Spec::new("job", Schedule::parse("@now").unwrap(), Target::Discard);
    spec.policies.retry.max_attempts = 1;
    world.engine.register(TenantId::DEFAULT, vec![(spec, None)]).await.unwrap();
    let leased = world.given().await.remove(0);
    let ended = world.finish(leased, report(Outcome::Failed, at("12:00:00"))).await;
    assert!(ended.state.is_dead());
    world.seat.grant(1);
    let kind = Kind::Redrive(DeadLetters::default());
    let started = world.engine.start_operation(TenantId::DEFAULT, kind, None, |_, _| ()).await.unwrap();
    let again = world.given().await;
    assert_eq!((again[0].run.sequence, again[0].run.attempt), (ended.sequence, 2));
    let operation = world.engine.operation(TenantId::DEFAULT, started.id).await.unwrap();
    assert_eq!((operation.state.as_str(), operation.done), ("succeeded", 1));
}

#[tokio::test]
async fn a_node_catches_up_after_downtime_at_the_rate_of_the_job() {
    let world = World::idle();
    let mut spec = Spec::new("job", Schedule::parse("* * * * *").unwrap(), Target::Discard);
    spec.policies.catch_up = CatchUp::All { window: Duration::from_secs(36_000), max: 100, rate: 2 };
    world.engine.register(TenantId::DEFAULT, vec![(spec, None)]).await.unwrap();
    world.clock.advance(seconds(10 * 60 + 30));
    let world = world.start().await;
    world.seat.grant(100);
    let mut given = Vec::new();
    for _ in 0..10 {
        given.push(world.given().await.len() + world.given().await.len());
        world.advance(SignedDuration::from_millis(500)).await;
    }
    // The slot of 12:10 is young and runs at once, with the first of the nine old ones.
    assert_eq!(given, [2, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
}

#[tokio::test]
async fn after_quiescing_nothing_is_fired() {
    let mut world = World::idle().start().await;
    world.seat.grant(10);
    world.register("* * * * *").await;
    let mut node = world.node.take().unwrap();
    node.quiesce().await;
    world.advance(seconds(600)).await;
    assert!(world.runs().await.is_empty());
    node.stop().await.unwrap();
    // The next node goes on where this one stopped.
    let world = world.start().await;
    settle().await;
    assert!(!world.runs().await.is_empty());
}

#[tokio::test]
async fn a_clock_that_steps_back_fires_nothing_twice() {
    let world = World::idle().start().await;
    world.seat.grant(100);
    world.register("* * * * *").await;
    world.advance(seconds(120)).await;
    assert_eq!(world.runs().await.len(), 2);
    world.advance(seconds(-120)).await;
    world.advance(seconds(120)).await;
    assert_eq!(world.runs().await.len(), 2);
    world.advance(seconds(60)).await;
    assert_eq!(world.runs().await.len(), 3);
}

#[tokio::test]
async fn a_run_waits_for_a_worker_that_has_what_its_job_requires() {
    let world = World::idle().start().await;
    world.seat.grant(10);
    let mut spec = Spec::new("job", Schedule::parse("@every 10s").unwrap(), Target::Discard);
    spec.requires = "gpu=true,zone=eu".parse().unwrap();
    let required = spec.requires.clone();
    let answers = world.engine.register(TenantId::DEFAULT, vec![(spec, None)]).await.unwrap();
    let special = answers.into_iter().next().unwrap().unwrap().job.id;
    let plain = world.register("@every 10s").await.id;
    world.advance(seconds(10)).await;
    let given = world.given().await;
    assert_eq!(given.iter().map(|leased| leased.run.job).collect::<Vec<_>>(), [plain]);
    world.finish(given.into_iter().next().unwrap(), report(Outcome::Succeeded, at("12:00:10"))).await;
    world.advance(seconds(5)).await;
    assert_eq!(world.given().await.len(), 0, "however long it waits");
    let waiting: Vec<Run> = world.runs().await.into_iter().filter(|run| run.job == special).collect();
    assert_eq!(
        waiting.iter().map(|run| run.state).collect::<Vec<_>>(),
        [RunState::Pending(WaitingFor::Capacity)]
    );
    let unmet =
        world.engine.unmet(TenantId::DEFAULT, "default", &waiting[0].requires).await.unwrap().unwrap();
    assert!(unmet.contains("gpu=true,zone=eu"), "{unmet}");
    assert_eq!(world.engine.unmet(TenantId::DEFAULT, "default", &Default::default()).await.unwrap(), None);

    // Somebody comes who has it, and more.
    let labels = "zone=eu,gpu=true,ssd=true".parse().unwrap();
    let able = world.engine.seat(world.engine.new_worker_id(), Vec::new(), labels);
    able.grant(20);
    world.advance(seconds(1)).await;
    let taken = able.next().await;
    assert_eq!(taken.iter().map(|leased| leased.run.id()).collect::<Vec<_>>(), [waiting[0].id()]);
    assert_eq!(taken[0].job.spec.requires, required);
    world.advance(seconds(4)).await;
    let born = able.next().await;
    let born: Vec<_> = born.iter().filter(|leased| leased.run.job == special).collect();
    assert_eq!(born.len(), 1);
    assert_eq!(born[0].run.lease().unwrap().claimed_at, at("12:00:20"), "born running, at its slot");
}

fn overlapping(schedule: &str, overlap: Overlap) -> Spec {
    let mut spec = Spec::new("job", Schedule::parse(schedule).unwrap(), Target::Discard);
    spec.policies.overlap = overlap;
    spec
}

#[tokio::test]
async fn the_end_of_a_run_brings_the_one_that_waits_for_it_at_once() {
    let world = World::idle().start().await;
    world.seat.grant(10);
    // Also where it was fired when overlap was allowed.
    for before in [Overlap::QueueOne, Overlap::Allow] {
        let spec = overlapping("* * * * * *", before);
        let answers = world.engine.register(TenantId::DEFAULT, vec![(spec, None)]).await.unwrap();
        let job = answers.into_iter().next().unwrap().unwrap().job;
        world.advance(seconds(1)).await;
        let first = world.given().await.remove(0);
        let changed = overlapping("* * * * * *", Overlap::QueueOne);
        world.engine.update(TenantId::DEFAULT, job.id, None, changed, Default::default()).await.unwrap();
        world.advance(seconds(1)).await;
        assert!(world.given().await.is_empty(), "there is room, but it waits");
        let now = world.engine.now();
        world.finish(first, report(Outcome::Succeeded, now)).await;
        let second = world.given().await;
        assert_eq!(second.len(), 1, "nobody had to look for it");
        world.engine.delete(TenantId::DEFAULT, job.id, None).await.unwrap();
    }
}

#[tokio::test]
async fn a_backfill_makes_no_slot_of_another_job_late() {
    let world = World::idle().start().await;
    let filled = world.register("* * * * *").await;
    let on_time = world.register("@every 10s").await;
    let (from, to) = (at("00:00:00"), at("12:00:00"));
    let asked = Asked { from, to, rate: 10_000, overlap: None };
    world.engine.backfill(TenantId::DEFAULT, filled.id, asked, None, |_, _| ()).await.unwrap();
    world.advance(seconds(1)).await;
    // There is room for one attempt at a time, and hundreds wait for it. Room keeps coming free.
    let mut worked_off = 0;
    for second in 2..60 {
        world.seat.grant(1);
        let mut given = world.given().await;
        assert_eq!(given.len(), 1, "at {second}");
        worked_off += usize::from(given[0].run.job == filled.id);
        let now = world.engine.now();
        world.finish(given.remove(0), report(Outcome::Succeeded, now)).await;
        world.advance(seconds(1)).await;
        if second % 10 != 0 {
            continue;
        }
        // A slot has come: it is given what comes free next.
        world.seat.grant(1);
        let leased = world.given().await.remove(0);
        let now = world.engine.now();
        assert_eq!((leased.run.job, leased.run.scheduled_for), (on_time.id, now), "it is not late");
        world.finish(leased, report(Outcome::Succeeded, now)).await;
    }
    assert!(worked_off >= 50, "{worked_off}: the backfill goes on meanwhile");
    let runs = world.runs().await;
    assert!(runs.iter().filter(|run| run.state.as_str() == "pending").count() > 500, "they still wait");
}

#[tokio::test]
async fn who_waits_for_a_limit_goes_on_when_its_time_comes_or_a_permit_is_free() {
    let world = World::idle().start().await;
    world.seat.grant(10);
    let register = async |change: fn(&mut Spec)| {
        let mut spec = Spec::new("job", Schedule::parse("@now").unwrap(), Target::Discard);
        change(&mut spec);
        let answers = world.engine.register(TenantId::DEFAULT, vec![(spec, None)]).await.unwrap();
        answers.into_iter().next().unwrap().unwrap();
        settle().await;
    };
    let rated = |spec: &mut Spec| {
        let one = std::num::NonZeroU32::MIN;
        let rate = Rate { limit: one, per: Duration::from_secs(10), burst: one };
        spec.policies.rate = Some(RateLimit { rate, key: None, across: Across::Tenant });
    };
    for _ in 0..3 {
        register(rated).await;
    }
    assert_eq!(world.given().await.len(), 1);
    for _ in 0..2 {
        world.advance(seconds(9)).await;
        assert!(world.given().await.is_empty(), "not before its time");
        world.advance(seconds(1)).await;
        assert_eq!(world.given().await.len(), 1, "nobody asked");
    }
    let single = |spec: &mut Spec| {
        let max = std::num::NonZeroU32::MIN;
        let across = Across::Tenant;
        spec.policies.concurrency = Some(Concurrency { max, key: None, across, holds_retries: true });
    };
    for _ in 0..3 {
        register(single).await;
    }
    for _ in 0..3 {
        let mut given = world.given().await;
        assert_eq!(given.len(), 1, "one after the other");
        let now = given[0].run.lease().unwrap().claimed_at;
        world.finish(given.remove(0), report(Outcome::Succeeded, now)).await;
    }
    assert!(world.given().await.is_empty());
}
