//! What is kept of runs and how much of it is read, with a clock that the test moves; and the defaults of a tenant. On the reference store.

use std::num::NonZeroU32;
use std::sync::Arc;

use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::id::{JobId, WorkerId};
use punctual_domain::policy::retention::{Keep, Retention};
use punctual_domain::work::Finished;
use punctual_domain::{Outcome, Report, Run};
use punctual_engine::history::RunFilter;
use punctual_engine::{Clock, Error};
use punctual_store::{Claim, PageRequest, Shards, Store};

use crate::support::world::{TENANT, World, spec};

/// Runs everything that waits to this outcome.
fn run_all(world: &World, outcome: Outcome) -> usize {
    let worker = WorkerId::new(world.clock.now(), 1 << 52 | 1);
    let claim =
        Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit: 100 };
    let runs = block_on(world.store.claim(claim, world.clock.now())).unwrap();
    let report = Report { outcome, error: None, ..Report::lost(world.clock.now(), world.clock.now()) };
    let finished = runs.iter().map(|run| {
        let job = Arc::clone(&world.job_of(run));
        Finished { worker, run: run.clone(), job, report: Some(report.clone()) }
    });
    let answers = block_on(world.engine.complete(finished.collect())).unwrap();
    assert!(answers.iter().all(Result::is_ok));
    answers.len()
}

fn retain(world: &World, hours: i64) {
    world.clock.advance(SignedDuration::from_hours(hours));
    while block_on(world.store.retain(world.clock.now(), 10)).unwrap() > 0 {}
}

fn runs(world: &World, job: JobId, is_dead: Option<bool>) -> Vec<Run> {
    let filter = RunFilter { job: Some(job), is_dead, ..RunFilter::default() };
    block_on(world.engine.runs(&filter, PageRequest::first(100))).unwrap().items
}

#[test]
fn a_job_that_is_over_goes_a_day_after_its_success_and_a_week_after_its_failure() {
    let world = World::new();
    let mut once = spec("@now");
    once.policies.retention.keep = Keep::Failures(Retention::Week);
    once.policies.retry.max_attempts = 1;
    let fails = world.try_register(once.clone()).unwrap().job.id;
    assert_eq!(run_all(&world, Outcome::Failed), 1);
    let succeeds = world.try_register(once).unwrap().job.id;
    assert_eq!(run_all(&world, Outcome::Succeeded), 1);
    let dead = runs(&world, fails, Some(true));
    block_on(world.engine.acknowledge(TENANT, &[dead[0].id()])).unwrap()[0].as_ref().unwrap();
    retain(&world, 20);
    assert_eq!((runs(&world, succeeds, None).len(), runs(&world, fails, None).len()), (1, 1));
    retain(&world, 30);
    assert!(matches!(block_on(world.engine.job(TENANT, succeeds)), Err(Error::JobNotFound(_))));
    assert_eq!(runs(&world, fails, None).len(), 1);
    for _ in 0..9 {
        retain(&world, 24);
    }
    assert!(matches!(block_on(world.engine.job(TENANT, fails)), Err(Error::JobNotFound(_))));
}

#[test]
fn lists_of_a_job_are_limited_and_its_dead_letters_are_not() {
    let world = World::new();
    let mut minutely = spec("* * * * *");
    minutely.policies.retry.max_attempts = 1;
    let other = world.try_register(minutely.clone()).unwrap().job.id;
    minutely.policies.retention.last = NonZeroU32::new(2);
    let limited = world.try_register(minutely).unwrap().job.id;
    for _ in 0..5 {
        world.advance(SignedDuration::from_mins(1));
        assert_eq!(run_all(&world, Outcome::Failed), 2);
        world.clock.advance(SignedDuration::from_secs(1));
    }
    world.advance(SignedDuration::from_mins(1));
    let all = runs(&world, other, None);
    assert!(all.len() > 3);
    let newest = runs(&world, limited, None);
    assert_eq!(newest.len(), 3, "one that waits, and two");
    assert!(!newest[0].state.is_ended());
    assert_eq!(runs(&world, limited, Some(true)).len(), 5);
}

/// Another node changes the defaults; this one follows a second later, and its own changes it knows at once.
#[test]
fn defaults_of_a_tenant_are_followed_within_a_second() {
    let world = World::new();
    let other = world.twin(world.store.clone());
    let known = |world: &World| block_on(world.engine.job_defaults(TENANT)).unwrap();
    let put = |world: &World, body: Option<&str>| {
        block_on(world.engine.put_defaults(TENANT, body.map(Into::into), None)).unwrap()
    };
    assert_eq!((known(&world), known(&other)), (None, None));
    assert_eq!(put(&world, Some(r#"{"timeout":"PT1M"}"#)).unwrap().version, 1);
    assert_eq!(known(&world).as_deref(), Some(r#"{"timeout":"PT1M"}"#));
    world.clock.advance(SignedDuration::from_secs(1));
    assert_eq!(known(&other).as_deref(), Some(r#"{"timeout":"PT1M"}"#));
    let wrong = block_on(world.engine.put_defaults(TENANT, Some("{}".into()), Some(7)));
    assert!(matches!(wrong, Err(Error::Changed { .. })));
    assert_eq!(put(&world, None), None);
    assert_eq!(known(&world), None);
    world.clock.advance(SignedDuration::from_secs(1));
    assert_eq!(known(&other), None);
}
