//! Jobs that are over: when they are shown as ended, what brings them back, when they go. On the reference store.

use std::num::NonZeroU64;
use std::sync::Arc;

use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::id::{JobId, WorkerId};
use punctual_domain::job::Spec;
use punctual_domain::policy::catch_up::CatchUp;
use punctual_domain::policy::retention::Retention;
use punctual_domain::work::Finished;
use punctual_domain::{Outcome, Report};
use punctual_engine::history::JobFilter;
use punctual_engine::register::Waiting;
use punctual_engine::{Clock, Error};
use punctual_store::{Claim, PageRequest, Shards, Store};

use crate::support::world::{TENANT, World, at, spec};

/// Runs everything that waits, with success.
fn run_all(world: &World) -> usize {
    let worker = WorkerId::new(world.clock.now(), 1 << 52 | 1);
    let claim =
        Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit: 100 };
    let runs = block_on(world.store.claim(claim, world.clock.now())).unwrap();
    let report = Report {
        outcome: Outcome::Succeeded,
        error: None,
        ..Report::lost(world.clock.now(), world.clock.now())
    };
    let finished = runs.iter().map(|run| {
        let job = Arc::clone(&world.job_of(run));
        Finished { worker, run: run.clone(), job, report: Some(report.clone()) }
    });
    let answers = block_on(world.engine.complete(finished.collect())).unwrap();
    assert!(answers.iter().all(Result::is_ok));
    answers.len()
}

/// What a job is shown as, alone and in lists, which must agree.
fn shown(world: &World, job: JobId) -> &'static str {
    let seen = block_on(world.engine.job(TENANT, job)).unwrap();
    let state = if seen.is_ended() { "ended" } else { seen.job.state.as_str() };
    for one in ["active", "paused", "ended"] {
        let filter = JobFilter { state: Some(one), ..JobFilter::default() };
        let page = block_on(world.engine.list_jobs(&filter, PageRequest::first(100))).unwrap();
        assert_eq!(
            page.items.iter().any(|seen| seen.job.id == job),
            one == state,
            "in the list of the {one}"
        );
    }
    state
}

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn retain(world: &World, days: i64) {
    world.clock.advance(SignedDuration::from_hours(24 * days));
    while block_on(world.store.retain(world.clock.now(), 10)).unwrap() > 0 {}
}

#[test]
fn a_job_is_ended_when_its_last_run_is() {
    let world = World::new();
    let mut twice = spec("@every 10s");
    twice.schedule.bounds.max_fires = NonZeroU64::new(1);
    let mut bounded = spec("@every 10s");
    bounded.schedule.bounds.end = Some(at("12:00:15"));
    let mut spread = spec("@at 2026-01-01T12:00:05Z");
    spread.schedule.spread = Some(std::time::Duration::from_secs(4));
    let mut from_completion = spec("@every 60s from completion");
    from_completion.schedule.bounds.max_fires = NonZeroU64::new(1);
    let specs = [
        spec("@now"),
        spec("@at 2026-01-01T12:00:10Z"),
        spec("@after 10s"),
        twice,
        bounded,
        spread,
        from_completion,
    ];
    let jobs: Vec<JobId> = specs.into_iter().map(|spec| world.try_register(spec).unwrap().job.id).collect();
    for seconds_on in [6, 5] {
        world.clock.advance(seconds(seconds_on));
        // Its slot has come, perhaps, and nobody has fired it.
        assert_eq!(jobs.iter().map(|job| shown(&world, *job)).collect::<Vec<_>>(), ["active"; 7]);
    }
    world.clock.advance(seconds(20));
    world.fire(None);
    assert_eq!(jobs.iter().map(|job| shown(&world, *job)).collect::<Vec<_>>(), ["active"; 7], "open runs");
    assert_eq!(run_all(&world), 7);
    assert_eq!(jobs.iter().map(|job| shown(&world, *job)).collect::<Vec<_>>(), ["ended"; 7]);
    let others = [world.register("@every 60s from completion").job.id, world.register("0 * * * *").job.id];
    world.fire(None);
    run_all(&world);
    assert_eq!(others.map(|job| shown(&world, job)), ["active"; 2]);
    retain(&world, 9);
    for job in jobs {
        assert_eq!(block_on(world.engine.job(TENANT, job)), Err(Error::JobNotFound(job.to_string())));
    }
    assert_eq!(others.map(|job| shown(&world, job)), ["active"; 2], "they have slots to come");
}

#[test]
fn a_slot_that_is_missed_ends_its_job_too() {
    let world = World::new();
    let mut strict = spec("@at 2026-01-01T12:10:00Z");
    strict.policies.catch_up = CatchUp::None;
    let job = world.try_register(strict).unwrap().job.id;
    assert_eq!(world.advance(SignedDuration::from_mins(30)).missed, 1);
    assert_eq!(shown(&world, job), "ended");
    retain(&world, 9);
    assert!(block_on(world.engine.job(TENANT, job)).is_err());
}

#[test]
fn a_period_from_completion_survives_a_slot_that_is_missed() {
    let world = World::new();
    let job = world.register("@every 10m from completion").job.id;
    let fired = world.advance(SignedDuration::from_hours(5));
    assert_eq!((fired.missed, fired.runs.len(), shown(&world, job)), (1, 0, "active"));
    assert_eq!(world.advance(SignedDuration::from_mins(10)).runs.len(), 1);
}

#[test]
fn the_key_of_an_ended_job_is_its_own_until_it_goes() {
    let world = World::new();
    let once = |time: &str| Spec { key: Some("once".into()), ..spec(&format!("@at 2026-01-01T{time}Z")) };
    let id = world.try_register(once("12:10:00")).unwrap().job.id;
    world.advance(SignedDuration::from_mins(10));
    run_all(&world);
    assert_eq!(shown(&world, id), "ended");
    let taken = world.try_register(once("12:30:00")).unwrap_err();
    assert_eq!(taken, Error::KeyTaken { key: "once".into(), by: id });
    // The same body again changes nothing and fires nothing; another one brings it back.
    let (same, is_new) = block_on(world.engine.upsert(TENANT, "once", None, once("12:10:00"))).unwrap();
    assert!(same.is_unchanged && !is_new);
    assert_eq!((world.due().len(), shown(&world, id)), (0, "ended"));
    let (again, is_new) = block_on(world.engine.upsert(TENANT, "once", None, once("12:30:00"))).unwrap();
    assert_eq!((again.job.id, again.next_slot, is_new), (id, Some(at("12:30:00")), false));
    assert_eq!(shown(&world, id), "active");
    assert_eq!(world.advance(SignedDuration::from_mins(20)).runs.len(), 1);
    run_all(&world);
    retain(&world, 9);
    let (fresh, is_new) = block_on(world.engine.upsert(TENANT, "once", None, spec("0 * * * *"))).unwrap();
    assert!(is_new && fresh.job.id != id);
}

#[test]
fn a_job_that_was_brought_back_is_not_forgotten() {
    let world = World::new();
    let mut short = spec("@at 2026-01-01T12:10:00Z");
    short.policies.retention = Retention::Day.into();
    let id = world.try_register(short.clone()).unwrap().job.id;
    world.advance(SignedDuration::from_mins(10));
    run_all(&world);
    let later = Spec { schedule: spec("@at 2026-02-01T12:00:00Z").schedule, ..short };
    block_on(world.engine.update(TENANT, id, None, later, Waiting::Keep)).unwrap();
    retain(&world, 9);
    assert_eq!(shown(&world, id), "active");
    block_on(world.engine.delete(TENANT, id, None)).unwrap();
    assert_eq!(world.due(), [], "its entry went with it");
}

#[test]
fn a_run_that_is_asked_for_keeps_an_ended_job() {
    let world = World::new();
    let mut short = spec("@now");
    short.policies.retention = Retention::Day.into();
    let id = world.try_register(short).unwrap().job.id;
    run_all(&world);
    world.clock.advance(SignedDuration::from_hours(20));
    block_on(world.engine.trigger(TENANT, id, None, None)).unwrap();
    assert_eq!(shown(&world, id), "active");
    run_all(&world);
    world.clock.advance(SignedDuration::from_hours(6));
    retain(&world, 0);
    assert_eq!(shown(&world, id), "ended");
    retain(&world, 3);
    assert!(block_on(world.engine.job(TENANT, id)).is_err());
}
