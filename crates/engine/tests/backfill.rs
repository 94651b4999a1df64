//! Backfill with a moved clock, on the reference store: which slots, how fast, once, and never before what is due.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_executor::block_on;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::JobId;
use punctual_domain::operation::{Operation, State};
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::policy::timeouts;
use punctual_domain::run::{Cause, Run, RunState, WaitingFor};
use punctual_engine::backfill::{Asked, Refusal, SLOTS_MAX};
use punctual_engine::{Clock, Error};
use punctual_store::{PageRequest, RunFilter, Store};

use crate::support::between::Between;
use crate::support::world::{TENANT, World, at, pause, spec};

fn asked(from: &str, to: &str) -> Asked {
    Asked { from: at(from), to: at(to), rate: 50, overlap: None }
}

fn start(world: &World, job: JobId, asked: Asked) -> Result<Operation, Error> {
    block_on(world.engine.backfill(TENANT, job, asked, None, |_, _| ()))
}

fn read(world: &World, operation: &Operation) -> Operation {
    block_on(world.engine.operation(TENANT, operation.id)).unwrap()
}

/// The runs that were backfilled, in the order of their births.
fn backfilled(world: &World) -> Vec<Run> {
    let mut all = Vec::new();
    let mut page = PageRequest::first(1_000);
    loop {
        let found = block_on(world.store.runs(&RunFilter::default(), page.clone())).unwrap();
        all.extend(found.items.into_iter().filter(|run| run.cause == Cause::Backfill));
        match found.next {
            Some(next) => page.after = Some(next),
            None => break,
        }
    }
    all.reverse();
    all
}

fn slots(runs: &[Run]) -> Vec<Timestamp> {
    runs.iter().map(|run| run.scheduled_for).collect()
}

fn quarters(from: &str, count: i64) -> Vec<Timestamp> {
    (0..count).map(|n| at(from) + SignedDuration::from_mins(15 * n)).collect()
}

#[test]
fn the_slots_of_the_range_run_oldest_first_with_their_own_cause() {
    let world = World::new();
    let job = world.register("*/15 * * * *").job.id;
    let operation = start(&world, job, asked("06:00:00", "09:00:00")).unwrap();
    assert_eq!((operation.total, operation.id.shard()), (Some(12), job.shard()));
    world.operate();
    let runs = backfilled(&world);
    // At `from`, and not at `to`.
    assert_eq!(slots(&runs), quarters("06:00:00", 12));
    assert_eq!(read(&world, &operation).state, State::Succeeded);
    assert_eq!(read(&world, &operation).done, 12);
    assert!(runs.iter().all(|run| run.available_at >= world.clock.now()));
    let due = world.due();
    assert_eq!((due.len(), due[0].slot), (1, at("12:15:00")), "the schedule goes on as it was");
}

#[test]
fn what_cannot_be_done_is_refused_with_the_way_out() {
    let world = World::new();
    let job = world.register("*/15 * * * *").job.id;
    let refusal = |job, from, to| match start(&world, job, asked(from, to)) {
        Err(Error::Backfill(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(job, "09:00:00", "09:00:00"), Refusal::Reversed);
    assert_eq!(refusal(job, "09:00:00", "06:00:00"), Refusal::Reversed);
    assert_eq!(refusal(job, "11:00:00", "12:00:01"), Refusal::Future { now: at("12:00:00") });
    assert_eq!(refusal(job, "13:00:00", "14:00:00"), Refusal::Future { now: at("12:00:00") });
    assert_eq!(refusal(job, "11:01:00", "11:14:00"), Refusal::Empty);
    let completion = world.register("@every 1m from completion").job.id;
    assert_eq!(refusal(completion, "06:00:00", "09:00:00"), Refusal::FromCompletion);
    // As many as may be, and one too many; the way out is taken.
    let every_second = world.register("* * * * * *").job.id;
    let day = SignedDuration::from_hours(24);
    let to = at("12:00:00");
    let of = |from: Timestamp, to| Asked { from, to, rate: 50, overlap: None };
    let most = SignedDuration::from_secs(SLOTS_MAX as i64);
    let look = |asked: &Asked| block_on(world.engine.backfill_slots(TENANT, every_second, asked));
    assert_eq!(look(&of(to - most, to)).unwrap().count, SLOTS_MAX);
    let from = to - day * 30;
    match look(&of(from, to)) {
        Err(Error::Backfill(Refusal::TooMany { slots, until })) => {
            assert_eq!(slots, 30 * 86_400);
            assert_eq!(look(&of(from, until)).unwrap().count, SLOTS_MAX);
        }
        other => panic!("{other:?}"),
    }
    block_on(world.engine.pause(TENANT, job, None, pause())).unwrap();
    let paused = start(&world, job, asked("06:00:00", "09:00:00"));
    assert_eq!(paused, Err(Error::WrongState { state: "paused", action: "backfilled" }));
    let other = block_on(world.engine.backfill_slots(
        punctual_domain::TenantId(9),
        job,
        &asked("06:00:00", "09:00:00"),
    ));
    assert!(matches!(other, Err(Error::JobNotFound(_))), "{other:?}");
    assert_eq!(backfilled(&world), [], "nothing of it is done");
}

#[test]
fn a_dry_run_says_how_many_and_does_nothing() {
    let world = World::new();
    let job = world.register("*/15 * * * *").job.id;
    let found = block_on(world.engine.backfill_slots(TENANT, job, &asked("05:59:00", "09:01:00"))).unwrap();
    assert_eq!((found.count, found.first, found.last), (13, at("06:00:00"), at("09:00:00")));
    assert_eq!((world.operate(), backfilled(&world)), (0, Vec::new()));
}

#[test]
fn a_crash_after_every_step_makes_each_slot_once_at_the_rate() {
    for rate in [1, 3, 7, 500] {
        let mut world = World::new();
        let job = world.register("* * * * *").job.id;
        let ask = Asked { rate, ..asked("11:00:00", "11:20:00") };
        let operation = start(&world, job, ask).unwrap();
        for node in 1..=40 {
            block_on(world.engine.operate(&world.epochs)).unwrap();
            if !read(&world, &operation).is_running() {
                break;
            }
            world = match node % 2 {
                0 => world.killed_and_started(node),
                _ => {
                    world.clock.advance(SignedDuration::from_secs(1));
                    world
                }
            };
        }
        let runs = backfilled(&world);
        let minutes = (0..20).map(|minute| at("11:00:00") + SignedDuration::from_mins(minute));
        assert_eq!(slots(&runs), minutes.collect::<Vec<_>>(), "rate {rate}");
        let starts: Vec<Timestamp> = runs.iter().map(|run| run.available_at).collect();
        for start in &starts {
            let within = |other: &&Timestamp| {
                **other >= *start && other.duration_since(*start) < SignedDuration::from_secs(1)
            };
            assert!(starts.iter().filter(within).count() <= rate as usize, "rate {rate}: {starts:?}");
        }
    }
}

#[test]
fn a_step_whose_answer_is_lost_makes_no_slot_twice() {
    let world = World::new();
    let job = world.register("* * * * *").job.id;
    let operation = start(&world, job, Asked { rate: 5, ..asked("11:00:00", "11:20:00") }).unwrap();
    let lossy = Arc::new(Between::new(world.store.clone()));
    let node = world.twin(lossy.clone());
    lossy.loses_answers.store(true, Ordering::Relaxed);
    for _ in 0..4 {
        assert!(block_on(node.engine.operate(&node.epochs)).is_err());
        world.clock.advance(SignedDuration::from_secs(1));
    }
    assert_eq!(read(&world, &operation).done, 20);
    let runs = backfilled(&world);
    assert_eq!(slots(&runs).into_iter().collect::<BTreeSet<_>>().len(), 20);
    assert_eq!(runs.len(), 20);
}

#[test]
fn asked_twice_it_is_done_twice_and_no_two_runs_are_the_same() {
    let world = World::new();
    let job = world.register("*/15 * * * *").job.id;
    for _ in 0..2 {
        start(&world, job, asked("06:00:00", "09:00:00")).unwrap();
    }
    world.operate();
    let runs = backfilled(&world);
    let keys: BTreeSet<String> = runs.iter().map(|run| run.idempotency_key().to_string()).collect();
    assert_eq!((runs.len(), keys.len()), (24, 24));
    // Under one key it is the same request.
    let request = || Some(world.engine.request(TENANT, "key".into(), [1; 16]));
    let ask = asked("06:00:00", "09:00:00");
    let answer = |operation: &Operation, subject: &mut punctual_store::Subject| {
        subject.result = operation.id.to_string();
    };
    let first = block_on(world.engine.backfill(TENANT, job, ask, request(), answer)).unwrap();
    let again = block_on(world.engine.backfill(TENANT, job, ask, request(), answer));
    let Err(Error::Repeated(known)) = again else { panic!("{again:?}") };
    assert_eq!(known.result, first.id.to_string());
}

#[test]
fn an_edit_keeps_the_slots_and_takes_the_new_version_a_pause_holds_it_and_a_delete_ends_it() {
    let world = World::new();
    let job = world.register("* * * * *").job.id;
    let operation = start(&world, job, Asked { rate: 5, ..asked("11:00:00", "11:20:00") }).unwrap();
    world.operate();
    assert_eq!(backfilled(&world).len(), 5);
    let mut other = world.job_of_id(job).spec.clone();
    other.schedule = spec("0 0 * * *").schedule;
    block_on(world.engine.update(TENANT, job, None, other, Default::default())).unwrap();
    world.clock.advance(SignedDuration::from_secs(1));
    world.operate();
    let runs = backfilled(&world);
    assert_eq!((runs.len(), runs[9].scheduled_for, runs[9].version.0), (10, at("11:09:00"), 2));
    block_on(world.engine.pause(TENANT, job, None, pause())).unwrap();
    for _ in 0..5 {
        world.clock.advance(SignedDuration::from_secs(10));
        world.operate();
    }
    assert_eq!((backfilled(&world).len(), read(&world, &operation).state), (10, State::Running));
    block_on(world.engine.delete(TENANT, job, None)).unwrap();
    world.clock.advance(SignedDuration::from_secs(10));
    world.operate();
    let ended = read(&world, &operation);
    assert_eq!((ended.state, ended.error.as_deref()), (State::Cancelled, Some("the job was deleted")));
    let ledger = block_on(world.store.ledger(job, PageRequest::first(9))).unwrap().items;
    assert!(
        ledger.iter().all(|entry| entry.from > at("12:00:00")),
        "old slots were accounted for: {ledger:?}"
    );
}

#[test]
fn a_backfill_may_have_another_overlap_policy_than_its_job() {
    let world = World::new();
    let mut skipping = spec("* * * * *");
    skipping.policies.overlap = Overlap::Skip;
    let job = world.try_register(skipping).unwrap().job.id;
    let own = start(&world, job, asked("11:00:00", "11:10:00")).unwrap();
    world.operate();
    let told = read(&world, &own);
    assert_eq!((told.done, told.failed), (1, 9), "the job skips");
    let queued = Some(Overlap::QueueAll { max: 100 });
    let other = start(&world, job, Asked { overlap: queued, ..asked("11:00:00", "11:10:00") }).unwrap();
    let allowed = Some(Overlap::Allow);
    let beside = start(&world, job, Asked { overlap: allowed, ..asked("11:00:00", "11:10:00") }).unwrap();
    world.operate();
    assert_eq!((read(&world, &other).done, read(&world, &beside).done), (10, 10));
    let runs = backfilled(&world);
    let behind = runs.iter().filter(|run| run.state == RunState::Pending(WaitingFor::EarlierRun));
    assert_eq!(behind.count(), 10);
}

#[test]
fn runs_of_a_job_that_is_over_keep_it() {
    let world = World::new();
    let job = world.register("@at 2026-01-01T12:00:05Z").job.id;
    world.advance(SignedDuration::from_secs(10));
    let ask = Asked { from: at("12:00:00"), to: at("12:00:10"), rate: 1, overlap: None };
    start(&world, job, ask).unwrap();
    world.operate();
    assert_eq!(slots(&backfilled(&world)), [at("12:00:05")]);
}

/// The window, the age and the deadline of slots that are hours old count from when each may start.
#[test]
fn limits_of_time_count_from_the_turn_of_a_backfilled_slot() {
    let world = World::new();
    let mut limited = spec("*/15 * * * *");
    limited.policies.overlap = Overlap::QueueAll { max: 100 };
    limited.policies.timeouts.start_window = Some(Duration::from_secs(60));
    limited.policies.timeouts.deadline = Some(Duration::from_secs(600));
    let job = world.try_register(limited).unwrap().job.id;
    let operation = start(&world, job, asked("06:00:00", "07:00:00")).unwrap();
    world.operate();
    assert_eq!(read(&world, &operation).state, State::Succeeded);
    let ledger = block_on(world.store.ledger(job, PageRequest::first(9))).unwrap().items;
    assert_eq!(ledger, [], "none of them is late");
    let runs = backfilled(&world);
    assert_eq!(slots(&runs), quarters("06:00:00", 4));
    let minute = SignedDuration::from_mins(1);
    assert_eq!(runs[0].lapses_after(), Some(runs[0].available_at + minute));
    assert!(runs[1..].iter().all(|run| run.is_behind() && run.lapses_after().is_none()));
    // Nobody claims the first: it is missed, and the second has a minute from then on.
    world.clock.advance(SignedDuration::from_secs(61));
    let lapse = || block_on(world.engine.lapse(&world.epochs)).unwrap().runs;
    assert_eq!(lapse().iter().map(Run::id).collect::<Vec<_>>(), [runs[0].id()]);
    let second = backfilled(&world).remove(1);
    assert_eq!(second.lapses_after(), Some(world.clock.now() + minute));
    assert_eq!(second.counts_from(), world.clock.now());
    let (left, is_cut) =
        timeouts::attempt(&world.job_of(&second).spec.policies.timeouts, &second, world.clock.now());
    assert_eq!((left, is_cut), (Duration::from_secs(300), false), "all of the deadline is left");
}
