//! Pauses that end by themselves, with a moved clock, on the reference store.

use futures_executor::block_on;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, Version};
use punctual_domain::job::{JobState, Pause, Spec};
use punctual_domain::ledger::Fate;
use punctual_engine::Error;
use punctual_engine::register::{Registered, Waiting};
use punctual_store::{PageRequest, Store};

use crate::support::world::{TENANT, World, at, pause, spec};

fn until(time: &str) -> Pause {
    Pause { until: Some(at(time)), ..pause() }
}

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

/// A job every ten minutes, paused at 12:05.
fn paused(world: &World, until: Pause) -> (JobId, Registered) {
    let id = world.register("*/10 * * * *").job.id;
    world.clock.advance(minutes(5));
    (id, block_on(world.engine.pause(TENANT, id, None, until)).unwrap())
}

/// The account of the skipped slots, oldest first.
fn skipped(world: &World, job: JobId) -> Vec<(Timestamp, Timestamp, u64)> {
    let mut ledger = block_on(world.store.ledger(job, PageRequest::first(9))).unwrap().items;
    ledger.reverse();
    assert!(ledger.iter().all(|entry| entry.fate == Fate::SkippedPause));
    ledger.iter().map(|entry| (entry.from, entry.to, entry.slots)).collect()
}

fn state(world: &World, job: JobId) -> &'static str {
    block_on(world.engine.job(TENANT, job)).unwrap().job.state.as_str()
}

/// When something is due, and under which version.
fn dues(world: &World) -> Vec<(Timestamp, u32)> {
    world.due().iter().map(|due| (due.slot, due.version.0)).collect()
}

#[test]
fn a_pause_ends_by_itself_and_its_slots_are_accounted_for() {
    let world = World::new();
    let (id, registered) = paused(&world, until("12:35:00"));
    assert!(matches!(registered.job.state, JobState::Paused(Pause { until: Some(_), .. })));
    assert_eq!((registered.next_slot, dues(&world)), (None, vec![(at("12:35:00"), 2)]));
    assert_eq!(world.advance(minutes(29)).runs, []);
    assert_eq!(state(&world, id), "paused");
    assert_eq!(world.advance(minutes(1)).runs, []);
    assert_eq!(state(&world, id), "active");
    assert_eq!(skipped(&world, id), [(at("12:10:00"), at("12:30:00"), 3)]);
    assert_eq!(dues(&world), [(at("12:40:00"), 3)]);
    assert_eq!(world.advance(minutes(5)).runs.len(), 1);
}

#[test]
fn a_pause_that_ended_while_nobody_looked_ends_when_somebody_does() {
    let world = World::new();
    let (id, _) = paused(&world, until("12:35:00"));
    let fired = world.advance(minutes(60)); // 13:05.
    assert_eq!((fired.runs.len(), state(&world, id)), (0, "active"));
    assert_eq!(skipped(&world, id), [(at("12:10:00"), at("13:00:00"), 6)]);
    assert_eq!(dues(&world), [(at("13:10:00"), 3)]);
}

#[test]
fn whoever_ends_a_pause_sooner_leaves_nothing_of_it() {
    let world = World::new();
    let (id, _) = paused(&world, until("12:35:00"));
    world.clock.advance(minutes(10)); // 12:15.
    block_on(world.engine.resume(TENANT, id, None)).unwrap();
    assert_eq!(dues(&world), [(at("12:20:00"), 3)]);
    assert_eq!(skipped(&world, id), [(at("12:10:00"), at("12:10:00"), 1)]);
    let (deleted, _) = paused(&world, until("12:35:00"));
    block_on(world.engine.delete(TENANT, deleted, None)).unwrap();
    assert_eq!(dues(&world), [(at("12:20:00"), 3)]);
}

#[test]
fn an_edit_keeps_the_pause_and_a_second_pause_moves_its_end() {
    let world = World::new();
    let (id, _) = paused(&world, until("12:35:00"));
    let renamed = Spec { name: "renamed".into(), ..spec("*/10 * * * *") };
    block_on(world.engine.update(TENANT, id, None, renamed, Waiting::Keep)).unwrap();
    assert_eq!((state(&world, id), dues(&world)), ("paused", vec![(at("12:35:00"), 3)]));
    assert!(block_on(world.engine.pause(TENANT, id, None, until("12:35:00"))).unwrap().is_unchanged);
    let longer = block_on(world.engine.pause(TENANT, id, None, until("12:55:00"))).unwrap();
    assert!(matches!(&longer.job.state, JobState::Paused(pause) if pause.since == at("12:05:00")));
    assert_eq!(dues(&world), [(at("12:55:00"), 4)]);
    block_on(world.engine.pause(TENANT, id, None, pause())).unwrap();
    assert_eq!(dues(&world), [], "without an end");
    world.advance(minutes(60));
    assert_eq!((state(&world, id), world.runs().len()), ("paused", 0));
}

#[test]
fn an_entry_of_an_older_pause_is_dropped_and_resumes_nothing() {
    let world = World::new();
    let (id, _) = paused(&world, until("12:35:00"));
    let entry = world.due()[0];
    world.clock.advance(minutes(30));
    let first = block_on(world.engine.fire(vec![entry], &world.epochs, None)).unwrap();
    assert_eq!((first.stale, state(&world, id)), (0, "active"));
    block_on(world.engine.pause(TENANT, id, None, pause())).unwrap();
    let again = block_on(world.engine.fire(vec![entry], &world.epochs, None)).unwrap();
    assert_eq!((again.stale, state(&world, id)), (1, "paused"));
}

#[test]
fn a_paused_job_may_be_over_when_its_pause_ends() {
    let world = World::new();
    let id = world.register("@at 2026-01-01T12:20:00Z").job.id;
    block_on(world.engine.pause(TENANT, id, None, until("12:30:00"))).unwrap();
    world.advance(minutes(40));
    assert_eq!(skipped(&world, id), [(at("12:20:00"), at("12:20:00"), 1)]);
    assert!(block_on(world.engine.job(TENANT, id)).unwrap().is_over);
    let refused = block_on(world.engine.pause(TENANT, id, None, pause()));
    assert_eq!(refused, Err(Error::WrongState { state: "ended", action: "paused" }));
}

#[test]
fn a_period_from_completion_goes_on_after_its_pause() {
    let world = World::new();
    let id = world.register("@every 10m from completion").job.id;
    assert_eq!(dues(&world), [(at("12:00:00"), 1)]);
    block_on(world.engine.pause(TENANT, id, None, until("12:35:00"))).unwrap();
    assert_eq!(dues(&world), [(at("12:35:00"), 2)], "its slot went with the old version");
    world.advance(minutes(40));
    let [(slot, 3)] = dues(&world)[..] else { panic!("{:?}", dues(&world)) };
    assert!(slot > at("12:40:00") && slot <= at("12:50:00"), "{slot}");
    assert_eq!(block_on(world.engine.job(TENANT, id)).unwrap().job.version, Version(3));
}

/// The slot of 12:10 is spread, and due later than slots of the schedule that an edit brings meanwhile: all of them are accounted for.
#[test]
fn slots_after_one_that_was_carried_over_are_accounted_for() {
    let world = World::new();
    let mut spread = spec("*/10 * * * *");
    spread.schedule.spread = Some(std::time::Duration::from_secs(60));
    let id = world.try_register(spread).unwrap().job.id;
    let carried = world.due()[0];
    let apart = carried.key.at.duration_since(at("12:10:00"));
    assert!(carried.slot == at("12:10:00") && apart > SignedDuration::from_secs(4), "{apart}");
    let before = carried.key.at - SignedDuration::from_secs(2);
    world.clock.advance(before.duration_since(at("12:00:00")));
    block_on(world.engine.update(TENANT, id, None, spec("* * * * * *"), Waiting::Keep)).unwrap();
    assert_eq!(world.due()[0].slot, carried.slot, "it is still owed");
    block_on(world.engine.pause(TENANT, id, None, pause())).unwrap();
    world.clock.advance(SignedDuration::from_secs(1));
    block_on(world.engine.resume(TENANT, id, None)).unwrap();
    let told = skipped(&world, id);
    let seconds = apart.as_secs() - 1;
    assert_eq!(told[0].0, carried.slot);
    assert_eq!(told.iter().map(|(_, _, slots)| slots).sum::<u64>(), 1 + seconds as u64, "{told:?}");
}
