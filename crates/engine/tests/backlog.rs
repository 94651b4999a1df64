//! Caps on what waits: requests that are refused, slots that are accounted for, operations that wait.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::support::world::{TENANT, World, at, spec};
use futures_executor::block_on;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, RunId, WorkerId};
use punctual_domain::job::Spec;
use punctual_domain::ledger::Fate;
use punctual_domain::lifecycle::Verdict;
use punctual_domain::operation::{DeadLetters, Kind};
use punctual_domain::policy::backlog::{Cap, Caps, Full, Pending};
use punctual_domain::policy::catch_up::CatchUp;
use punctual_domain::run::{Run, RunState};
use punctual_domain::why::Reason;
use punctual_domain::{Labels, Outcome, Report};
use punctual_engine::Error;
use punctual_engine::backfill::Asked;
use punctual_engine::fire::Room;
use punctual_engine::why::When;
use punctual_store::{Claim, Conclusion, Held, PageRequest, Shards, Store, Subject};

const MINUTE: SignedDuration = SignedDuration::from_secs(60);

fn world(tenant: u64, all: u64) -> World {
    let world = World::new();
    world.engine.set_caps(Caps { tenant, all });
    world
}

fn pending(world: &World) -> u64 {
    world.engine.pending(TENANT).all
}

/// Fills the backlog with runs that somebody asked for.
fn fill(world: &World, runs: u64) {
    for _ in 0..runs {
        world.register("now");
    }
}

fn full(error: &Error) -> Full {
    match error {
        Error::TooManyPending { full, .. } => *full,
        other => panic!("{other}"),
    }
}

fn ledger(world: &World, job: JobId) -> Vec<(Timestamp, Timestamp, u64, Fate)> {
    let entries = block_on(world.store.ledger(job, PageRequest::first(100))).unwrap().items;
    entries.iter().map(|entry| (entry.from, entry.to, entry.slots, entry.fate)).collect()
}

fn runs_of(world: &World, job: JobId) -> Vec<Run> {
    world.runs().into_iter().filter(|run| run.job == job).collect()
}

/// A worker takes everything that waits, and there is room again.
fn drain(world: &World) {
    let worker = WorkerId::new(world.clock_now(), 99);
    let claim = Claim { worker, queues: Vec::new(), labels: Labels::NONE, shards: Shards::All, limit: 1_000 };
    block_on(world.store.claim(claim, world.clock_now())).unwrap();
    assert_eq!(pending(world), 0);
}

trait Now {
    fn clock_now(&self) -> Timestamp;
}

impl Now for World {
    fn clock_now(&self) -> Timestamp {
        self.engine.now()
    }
}

fn room(attempts: usize) -> Option<Room> {
    let worker = WorkerId::new(at("00:00:00"), 98);
    Some(Room { worker, queues: Arc::new([]), labels: Labels::NONE, attempts })
}

#[test]
fn what_is_asked_for_over_a_cap_is_refused_and_leaves_nothing_behind() {
    let world = world(3, 100);
    let job = world.register("0 3 * * *").job;
    fill(&world, 3);
    let refused = world.try_register(spec("now")).unwrap_err();
    assert_eq!(full(&refused), Full { cap: Cap::Tenant, most: 3, pending: 3 });
    let text = refused.to_string();
    assert_eq!(text, "3 runs of tenant `default` wait, and at most 3 may (tenant_pending_max of the server)");
    let trigger = block_on(world.engine.trigger(TENANT, job.id, None, None)).unwrap_err();
    assert_eq!(full(&trigger).cap, Cap::Tenant);
    assert_eq!((pending(&world), world.runs().len()), (3, 3));
    // Jobs of a batch stand for themselves: what is for later is registered.
    let specs = vec![(spec("now"), None), (spec("@every 1h"), None)];
    let answers = block_on(world.engine.register(TENANT, specs)).unwrap();
    assert!(answers[0].is_err() && answers[1].is_ok());
    drain(&world);
    block_on(world.engine.trigger(TENANT, job.id, None, None)).unwrap();
    fill(&world, 2);
    assert!(world.try_register(spec("now")).is_err(), "a trigger counts like any other");
}

#[test]
fn a_batch_fills_what_is_left_and_no_more() {
    let world = world(10, 4);
    let specs = (0..6).map(|_| (spec("now"), None)).collect();
    let answers = block_on(world.engine.register(TENANT, specs)).unwrap();
    let made: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(made, [true, true, true, true, false, false]);
    assert_eq!(full(answers[5].as_ref().unwrap_err()), Full { cap: Cap::All, most: 4, pending: 4 });
    let text = answers[5].as_ref().unwrap_err().to_string();
    assert!(text.contains("of all tenants") && text.contains("pending_max"), "{text}");
}

#[test]
fn a_request_that_was_done_before_is_told_over_a_cap_too() {
    let world = world(1, 100);
    let request = || Subject {
        tenant: TENANT,
        key: "once".into(),
        fingerprint: [7; 16],
        expires_at: at("23:00:00"),
        result: "done".into(),
    };
    let ask =
        || block_on(world.engine.register(TENANT, vec![(spec("now"), Some(request()))])).unwrap().remove(0);
    ask().unwrap();
    match ask().unwrap_err() {
        Error::Repeated(known) => assert_eq!(known.result, "done"),
        other => panic!("{other}"),
    }
}

#[test]
fn slots_over_a_cap_are_in_the_ledger_and_the_schedule_goes_on() {
    let world = world(2, 100);
    let job = world.register("* * * * *").job.id;
    fill(&world, 2);
    for _ in 0..3 {
        let fired = world.advance(MINUTE);
        assert_eq!((fired.runs.len(), fired.throttled), (0, 1));
    }
    let throttled = (at("12:01:00"), at("12:03:00"), 3, Fate::Throttled(Cap::Tenant));
    assert_eq!(ledger(&world, job), [throttled], "slots that follow each other are one entry");
    let why = block_on(world.engine.why(TENANT, job, When::At(at("12:02:00")))).unwrap();
    assert_eq!(why.reason, Reason::Throttled);
    assert!(why.text.contains("as many runs of its tenant waited as may"), "{}", why.text);
    // A worker with room takes it although no more may wait.
    world.clock.advance(MINUTE);
    let fired = world.fire(room(5));
    assert_eq!(fired.runs.len(), 1);
    assert!(matches!(fired.runs[0].0.state, RunState::Running(_)));
    assert_eq!(pending(&world), 2);
    drain(&world);
    assert_eq!(world.advance(MINUTE).runs.len(), 1, "there is room again");
    assert_eq!(ledger(&world, job), [throttled]);
    assert_eq!(runs_of(&world, job).len(), 2);
}

#[test]
fn a_batch_of_slots_fills_what_is_left_in_its_order() {
    let world = world(3, 100);
    let jobs: Vec<JobId> = (0..5).map(|_| world.register("* * * * *").job.id).collect();
    let fired = world.advance(MINUTE);
    assert_eq!((fired.runs.len(), fired.throttled, pending(&world)), (3, 2, 3));
    let accounted = jobs.iter().filter(|job| !ledger(&world, **job).is_empty()).count();
    assert_eq!(accounted, 2, "every slot is a run or an entry");
    assert_eq!(world.engine.pending(TENANT), Pending { tenant: 3, all: 3 });
}

#[test]
fn a_throttled_slot_is_no_fire_of_a_job_that_counts_them() {
    let world = world(1, 100);
    let mut twice = spec("* * * * *");
    twice.schedule.bounds.max_fires = NonZeroU64::new(2);
    let counted = world.try_register(twice).unwrap().job.id;
    fill(&world, 1);
    for _ in 0..3 {
        assert_eq!(world.advance(MINUTE).throttled, 1);
    }
    for _ in 0..3 {
        drain(&world);
        world.advance(MINUTE);
    }
    assert_eq!(runs_of(&world, counted).len(), 2, "none of its fires was lost, and it has ended");
    assert_eq!(world.due(), []);
}

#[test]
fn a_job_that_counts_from_completion_goes_on_as_if_one_had_ended() {
    let world = world(1, 100);
    let job = world.register("@every 5m from completion").job.id;
    fill(&world, 1);
    assert_eq!(world.fire(None).throttled, 1);
    assert_eq!(world.due().iter().map(|due| due.slot).collect::<Vec<_>>(), [at("12:05:00")]);
    drain(&world);
    assert_eq!(world.advance(MINUTE * 5).runs.len(), 1);
    assert_eq!(ledger(&world, job).len(), 1);
}

#[test]
fn a_backfill_waits_while_no_more_may_wait_and_goes_on_by_itself() {
    let world = world(4, 100);
    let job = world.register("* * * * *").job.id;
    fill(&world, 3);
    let asked = Asked { from: at("11:00:00"), to: at("11:10:00"), rate: 50, overlap: None };
    let id = block_on(world.engine.backfill(TENANT, job, asked, None, |_, _| ())).unwrap().id;
    world.operate();
    let operation = || block_on(world.engine.operation(TENANT, id)).unwrap();
    assert_eq!((operation().done, pending(&world)), (1, 4), "one had room");
    for _ in 0..3 {
        world.clock.advance(SignedDuration::from_secs(2));
        world.operate();
    }
    assert_eq!((operation().done, operation().is_running(), pending(&world)), (1, true, 4));
    while operation().is_running() {
        world.clock.advance(SignedDuration::from_secs(2));
        drain(&world);
        world.operate();
        assert!(pending(&world) <= 4);
    }
    assert_eq!((operation().done, operation().failed), (10, 0));
    assert_eq!(runs_of(&world, job).len(), 10, "each slot once");
}

#[test]
fn a_catch_up_waits_and_loses_no_slot() {
    let world = world(4, 100);
    let mut policy: Spec = spec("* * * * *");
    policy.policies.catch_up =
        CatchUp::All { window: std::time::Duration::from_secs(7_200), max: 100, rate: 50 };
    let job = world.try_register(policy).unwrap().job.id;
    fill(&world, 4);
    assert_eq!(world.advance(MINUTE * 10).operations, 1);
    world.operate();
    // The last two were fired when they were due, or nearly; the others are owed.
    let throttled = [(at("12:09:00"), at("12:10:00"), 2, Fate::Throttled(Cap::Tenant))];
    assert_eq!((pending(&world), ledger(&world, job)), (4, throttled.to_vec()));
    for _ in 0..8 {
        world.clock.advance(SignedDuration::from_secs(2));
        drain(&world);
        world.operate();
    }
    assert_eq!(runs_of(&world, job).len(), 8);
    assert_eq!(ledger(&world, job), throttled, "nothing else became of any");
}

/// Runs that failed for good.
fn dead(world: &World, count: u64) -> Vec<RunId> {
    fill(world, count);
    let (worker, now) = (WorkerId::new(world.clock_now(), 97), world.clock_now());
    let claim = Claim { worker, queues: Vec::new(), labels: Labels::NONE, shards: Shards::All, limit: 100 };
    let claimed = block_on(world.store.claim(claim, now)).unwrap();
    let failed = claimed.iter().map(|run| Conclusion {
        worker,
        held: Held { sequence: run.sequence, attempt: run.attempt },
        report: Some(Report { outcome: Outcome::Failed, ..Report::lost(now, now) }),
        verdict: Verdict::Fail,
        successor: None,
        messages: Vec::new(),
        limits: None,
    });
    block_on(world.store.complete(failed.collect(), now)).unwrap();
    claimed.iter().map(Run::id).collect()
}

#[test]
fn dead_runs_that_are_to_go_on_need_room_too() {
    let world = world(3, 100);
    let letters = dead(&world, 3);
    fill(&world, 2);
    let redriven = block_on(world.engine.redrive(TENANT, &letters[..2])).unwrap();
    assert!(redriven[0].is_ok());
    assert_eq!(full(redriven[1].as_ref().unwrap_err()).cap, Cap::Tenant, "it stays a dead letter");
    let all = Kind::Redrive(DeadLetters::default());
    let id = block_on(world.engine.start_operation(TENANT, all, None, |_, _| ())).unwrap().id;
    let operation = || block_on(world.engine.operation(TENANT, id)).unwrap();
    world.operate();
    assert_eq!((operation().done, operation().is_running(), pending(&world)), (0, true, 3));
    drain(&world);
    world.clock.advance(SignedDuration::from_secs(2));
    world.operate();
    assert_eq!((operation().done, operation().failed, operation().is_running()), (2, 0, false));
    assert_eq!(pending(&world), 2);
}

#[test]
fn caps_of_a_tenant_are_its_own() {
    let world = world(2, 3);
    let other = block_on(world.store.put_tenant(&"acme".parse().unwrap(), world.clock_now())).unwrap().id;
    fill(&world, 2);
    let ask = || block_on(world.engine.register(other, vec![(spec("now"), None)])).unwrap().remove(0);
    ask().unwrap();
    assert_eq!(full(&ask().unwrap_err()), Full { cap: Cap::All, most: 3, pending: 3 });
    assert_eq!(world.engine.pending(other), Pending { tenant: 1, all: 3 });
}
