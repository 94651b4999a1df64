//! Register with a moved clock, on the reference store.

use std::time::Duration;

use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::Spec;
use punctual_domain::id::{JobId, TenantId, Version, WorkerId};
use punctual_domain::job::JobState;
use punctual_domain::ledger::Fate;
use punctual_domain::policy::catch_up::CatchUp;
use punctual_domain::run::{Cause, RunState};
use punctual_engine::register::Waiting;
use punctual_engine::{Clock, Error};
use punctual_schedule::Code;
use punctual_store::{Claim, PageRequest, RunFilter, Shards, Store, Subject};

use crate::support::world::{TENANT, World, at, pause, spec};

#[test]
fn every_kind_of_schedule_gets_its_first_slot() {
    let world = World::new();
    for (schedule, slot) in [
        ("*/5 * * * *", "12:05:00"),
        ("30 12 * * *", "12:30:00"),
        ("@every 7m", "12:01:00"),
        ("@every 5m from completion", "12:00:00"),
        ("@at 2026-01-01T18:00:00Z", "18:00:00"),
        ("@at 2026-01-01T11:30:00Z", "11:30:00"),
        ("@after 90s", "12:01:30"),
        ("R3/2026-01-01T13:00:00Z/PT1H", "13:00:00"),
    ] {
        let registered = world.register(schedule);
        assert_eq!(registered.next_slot, Some(at(slot)), "{schedule}");
        assert_eq!(world.slots(&registered, 1), [at(slot)], "{schedule}");
    }
}

#[test]
fn a_now_job_has_a_run_and_no_due_entry() {
    let world = World::new();
    let registered = world.register("@now");
    assert_eq!((registered.next_slot, world.due().len()), (Some(at("12:00:00")), 0));
    let runs = block_on(world.store.runs(&RunFilter::default(), PageRequest::first(9))).unwrap().items;
    assert_eq!(runs.len(), 1);
    assert_eq!(
        (runs[0].job, runs[0].cause, runs[0].scheduled_for),
        (registered.job.id, Cause::Schedule, at("12:00:00"))
    );
}

#[test]
fn what_never_fires_is_refused_and_the_others_are_not() {
    let world = World::new();
    let mut strict = spec("@at 2026-01-01T11:59:00Z");
    strict.policies.catch_up = CatchUp::None;
    let specs = vec![
        (spec("0 0 30 2 *"), None),
        (spec("@at 2020-01-01T00:00:00Z"), None),
        (strict, None),
        (spec("0 9 * * *"), None),
    ];
    let answers = block_on(world.engine.register(TENANT, specs)).unwrap();
    for answer in &answers[..3] {
        let Err(Error::Schedule(error)) = answer else { panic!("{answer:?}") };
        assert_eq!(error.code(), Code::NeverFires);
    }
    assert!(answers[3].is_ok());
    assert_eq!(world.due().len(), 1);
}

#[test]
fn a_key_goes_to_its_shard_and_is_taken_once() {
    let world = World::new();
    let keyed = || Spec { key: Some("nightly".into()), ..spec("0 2 * * *") };
    let first = world.try_register(keyed()).unwrap();
    let second = world.try_register(keyed()).unwrap_err();
    assert_eq!(second, Error::KeyTaken { key: "nightly".into(), by: first.job.id });
}

#[test]
fn a_repeated_request_tells_what_the_first_one_did() {
    let world = World::new();
    let subject = Subject {
        tenant: TENANT,
        key: "req-1".into(),
        fingerprint: [1; 16],
        expires_at: at("23:00:00"),
        result: "first".into(),
    };
    let ask = || {
        block_on(world.engine.register(TENANT, vec![(spec("0 9 * * *"), Some(subject.clone()))]))
            .unwrap()
            .remove(0)
    };
    assert!(ask().is_ok());
    assert_eq!(ask(), Err(Error::Repeated(Box::new(subject.clone()))));
    assert_eq!(world.due().len(), 1);
}

#[test]
fn applying_the_same_body_again_writes_and_fires_nothing() {
    let world = World::new();
    let registered = world.register("0 * * * *");
    world.clock.advance(SignedDuration::from_mins(10));
    let again =
        block_on(world.engine.update(TENANT, registered.job.id, None, spec("0 * * * *"), Waiting::Keep))
            .unwrap();
    assert!(again.is_unchanged);
    assert_eq!((again.job.version, again.next_slot), (Version(1), Some(at("13:00:00"))));
}

#[test]
fn an_edit_needs_the_version_it_saw_and_moves_the_slot() {
    let world = World::new();
    let registered = world.register("0 13 * * *");
    let id = registered.job.id;
    let update =
        |expected, text: &str| block_on(world.engine.update(TENANT, id, expected, spec(text), Waiting::Keep));
    let edited = update(Some(Version(1)), "30 12 * * *").unwrap();
    assert_eq!((edited.job.version, edited.next_slot), (Version(2), Some(at("12:30:00"))));
    assert_eq!(world.slots(&registered, 2), [at("12:30:00")]);
    let conflict = update(Some(Version(1)), "45 12 * * *").unwrap_err();
    assert_eq!(conflict, Error::VersionConflict { expected: Version(1), current: Version(2) });
    assert!(matches!(update(None, "0 0 30 2 *"), Err(Error::Schedule(_))));
    assert_eq!(world.slots(&registered, 2), [at("12:30:00")], "a refused edit changes nothing");
    let other = block_on(world.engine.update(TenantId(9), id, None, spec("45 12 * * *"), Waiting::Keep));
    assert_eq!(other, Err(Error::JobNotFound(id.to_string())), "another tenant's job is not there");
}

#[test]
fn an_edit_just_after_a_slot_neither_loses_nor_doubles_it() {
    let world = World::new();
    let registered = world.register("0 13 * * *");
    world.clock.advance(SignedDuration::new(3600, 5_000_000)); // 13:00:00.005, and nobody has fired yet.
    let renamed = Spec { name: "renamed".into(), ..spec("0 13 * * *") };
    block_on(world.engine.update(TENANT, registered.job.id, None, renamed, Waiting::Keep)).unwrap();
    assert_eq!(world.slots(&registered, 2), [at("13:00:00")], "the slot is still due, under the new version");
    assert_eq!(world.slots(&registered, 1), [], "and not under the old one");
}

/// What is done to a job after the clock stepped back from 12:35 to 12:05, and its next slot then. It has been fired, or
/// has been accounted for, up to 12:30.
type Edit = (&'static str, &'static str, fn(&World, JobId));

const EDITS: [Edit; 4] = [
    ("renamed", "12:40:00", |world, id| {
        let renamed = Spec { name: "renamed".into(), ..spec("*/10 * * * *") };
        block_on(world.engine.update(TENANT, id, None, renamed, Waiting::Keep)).unwrap();
    }),
    ("another schedule", "12:45:00", |world, id| {
        block_on(world.engine.update(TENANT, id, None, spec("*/15 * * * *"), Waiting::Keep)).unwrap();
    }),
    ("paused and resumed", "12:40:00", |world, id| {
        block_on(world.engine.pause(TENANT, id, None, pause())).unwrap();
        block_on(world.engine.resume(TENANT, id, None)).unwrap();
    }),
    ("triggered and renamed", "12:40:00", |world, id| {
        block_on(world.engine.trigger(TENANT, id, None, None)).unwrap();
        let renamed = Spec { name: "renamed".into(), ..spec("*/10 * * * *") };
        block_on(world.engine.update(TENANT, id, None, renamed, Waiting::Keep)).unwrap();
    }),
];

#[test]
fn an_edit_after_the_clock_stepped_back_neither_waits_nor_fires_twice() {
    for is_accounted_for in [false, true] {
        for (what, expected, edit) in EDITS {
            let world = World::new();
            let mut job = spec("*/10 * * * *");
            job.policies.catch_up = CatchUp::None;
            let registered = world.try_register(job).unwrap();
            match is_accounted_for {
                true => drop(world.advance(SignedDuration::from_mins(35))),
                false => (0..3).for_each(|_| drop(world.advance(SignedDuration::from_mins(10)))),
            }
            world.clock.advance(at("12:05:00").duration_since(world.clock.now()));
            edit(&world, registered.job.id);
            let version = world.job_of_id(registered.job.id).version;
            assert_eq!(world.slots(&registered, version.0), [at(expected)], "{what}, {is_accounted_for}");
            let before = world.runs().len();
            assert_eq!(
                world.advance(SignedDuration::from_mins(30)).runs.len(),
                0,
                "{what}: it is 12:35 again"
            );
            assert_eq!(world.runs().len(), before, "{what}");
        }
    }
}

#[test]
fn a_single_slot_that_was_fired_stays_fired_when_the_clock_steps_back() {
    let world = World::new();
    let registered = world.register("@at 2026-01-01T13:00:00Z");
    assert_eq!(world.advance(SignedDuration::from_mins(60)).runs.len(), 1);
    world.clock.advance(SignedDuration::from_mins(-30));
    let renamed = Spec { name: "renamed".into(), ..spec("@at 2026-01-01T13:00:00Z") };
    block_on(world.engine.update(TENANT, registered.job.id, None, renamed, Waiting::Keep)).unwrap();
    assert_eq!(world.due(), []);
}

#[test]
fn pausing_and_resuming_accounts_for_every_slot_in_between() {
    let world = World::new();
    let registered = world.register("*/10 * * * *");
    let id = registered.job.id;
    world.clock.advance(SignedDuration::from_mins(25)); // 12:10 and 12:20 are due and not fired.
    let paused = block_on(world.engine.pause(TENANT, id, None, pause())).unwrap();
    assert!(matches!(&paused.job.state, JobState::Paused(p) if p.since == at("12:25:00")));
    assert_eq!((paused.next_slot, world.slots(&registered, 2).len()), (None, 0));
    assert!(block_on(world.engine.pause(TENANT, id, None, pause())).unwrap().is_unchanged);
    world.clock.advance(SignedDuration::from_mins(35));
    let resumed = block_on(world.engine.resume(TENANT, id, None)).unwrap();
    assert_eq!((resumed.next_slot, resumed.job.version), (Some(at("13:10:00")), Version(3)));
    let ledger = block_on(world.store.ledger(id, PageRequest::first(9))).unwrap().items;
    let accounts: Vec<_> = ledger.iter().map(|e| (e.from, e.to, e.slots, e.fate)).collect();
    assert_eq!(
        accounts,
        [
            (at("12:30:00"), at("13:00:00"), 4, Fate::SkippedPause),
            (at("12:10:00"), at("12:20:00"), 2, Fate::SkippedPause)
        ]
    );
}

#[test]
fn deleting_a_job_ends_it_everywhere() {
    let world = World::new();
    let registered = world.register("*/10 * * * *");
    let id = registered.job.id;
    block_on(world.engine.trigger(TENANT, id, None, None)).unwrap();
    block_on(world.engine.delete(TENANT, id, None)).unwrap();
    assert!(matches!(block_on(world.engine.resume(TENANT, id, None)), Err(Error::JobNotFound(_))));
    assert!(matches!(block_on(world.engine.trigger(TENANT, id, None, None)), Err(Error::JobNotFound(_))));
    let runs = block_on(world.store.runs(&RunFilter::default(), PageRequest::first(9))).unwrap().items;
    assert_eq!(runs[0].state, RunState::Cancelled);
}

#[test]
fn triggers_of_the_same_millisecond_are_different_runs() {
    let world = World::new();
    let registered = world.register("0 2 * * *");
    let run = || block_on(world.engine.trigger(TENANT, registered.job.id, Some("why".into()), None)).unwrap();
    let (first, second) = (run(), run());
    assert_ne!(first.id(), second.id());
    assert_ne!(first.idempotency_key(), second.idempotency_key());
    assert_eq!((first.cause, first.correlation_id.as_deref()), (Cause::Trigger, Some("why")));
    let worker = WorkerId::new(world.clock.now(), 1);
    let claim =
        Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit: 9 };
    assert_eq!(block_on(world.store.claim(claim, world.clock.now())).unwrap().len(), 2);
}

#[test]
fn an_edit_between_a_slot_and_its_spread_neither_loses_nor_doubles_it() {
    let world = World::new();
    let mut spread = spec("0 13 * * *");
    spread.schedule.spread = Some(Duration::from_secs(600));
    let registered = world.try_register(spread.clone()).unwrap();
    world.clock.advance(SignedDuration::new(3600, 5_000_000)); // 13:00:00.005.
    let renamed = Spec { name: "renamed".into(), ..spread };
    block_on(world.engine.update(TENANT, registered.job.id, None, renamed, Waiting::Keep)).unwrap();
    assert_eq!(world.slots(&registered, 2), [at("13:00:00")]);
    assert_eq!(world.due().len(), 1, "the old entry is gone");
}

#[test]
fn a_slot_that_is_due_survives_two_changes() {
    let world = World::new();
    let registered = world.register("0 13 * * *");
    let id = registered.job.id;
    world.clock.advance(SignedDuration::new(3600, 5_000_000)); // 13:00:00.005.
    // Neither of the new schedules has the slot that was due.
    for (version, schedule) in [(2, "30 15 * * *"), (3, "45 16 * * *")] {
        block_on(world.engine.update(TENANT, id, None, spec(schedule), Waiting::Keep)).unwrap();
        assert_eq!(world.slots(&registered, version), [at("13:00:00")], "version {version}");
    }
    assert_eq!(world.due().len(), 1);
    assert_eq!(world.fire(None).runs.len(), 1);
    assert_eq!(world.slots(&registered, 3), [at("16:45:00")]);
    // What it owed is fired: the next change does not bring it back.
    block_on(world.engine.update(TENANT, id, None, spec("50 17 * * *"), Waiting::Keep)).unwrap();
    assert_eq!(world.slots(&registered, 4), [at("17:50:00")]);
}

#[test]
fn a_pause_accounts_for_a_slot_that_a_change_carried() {
    let world = World::new();
    let registered = world.register("0 13 * * *");
    let id = registered.job.id;
    world.clock.advance(SignedDuration::new(3600, 5_000_000));
    block_on(world.engine.update(TENANT, id, None, spec("30 15 * * *"), Waiting::Keep)).unwrap();
    block_on(world.engine.pause(TENANT, id, None, pause())).unwrap();
    assert_eq!(world.due(), []);
    let ledger = block_on(world.store.ledger(id, PageRequest::first(9))).unwrap().items;
    assert_eq!(
        ledger.iter().map(|entry| (entry.from, entry.slots)).collect::<Vec<_>>(),
        [(at("13:00:00"), 1)]
    );
}

#[test]
fn a_change_takes_the_old_entry_away() {
    let world = World::new();
    let registered = world.register("0 13 * * *");
    let id = registered.job.id;
    block_on(world.engine.update(TENANT, id, None, spec("30 12 * * *"), Waiting::Keep)).unwrap();
    assert_eq!(world.due().len(), 1);
    block_on(world.engine.pause(TENANT, id, None, pause())).unwrap();
    assert_eq!(world.due(), []);
    block_on(world.engine.resume(TENANT, id, None)).unwrap();
    assert_eq!(world.due().len(), 1);
    block_on(world.engine.delete(TENANT, id, None)).unwrap();
    assert_eq!(world.due(), []);
}

#[test]
fn spread_delays_the_firing_and_not_the_slot() {
    let world = World::new();
    let mut spread = spec("0 13 * * *");
    spread.schedule.spread = Some(Duration::from_secs(600));
    let registered = world.try_register(spread).unwrap();
    let entry = world.due().remove(0);
    assert_eq!((entry.slot, registered.next_slot), (at("13:00:00"), Some(at("13:00:00"))));
    assert!(entry.key.at > entry.slot && entry.key.at < at("13:10:00"), "{}", entry.key.at);
}
