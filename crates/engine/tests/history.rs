//! What the API asks of the engine: jobs as they are, runs, dead letters, requests made twice.

use crate::support::world::{TENANT, World, at, pause, spec};
use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::id::TenantId;
use punctual_domain::job::Spec;
use punctual_domain::run::RunState;
use punctual_engine::Error;
use punctual_engine::history::{JobFilter, PageRequest};
use punctual_store::Store;

#[test]
fn a_job_shows_when_it_fires_next_and_whether_it_is_over() {
    let world = World::new();
    let every = world.register("@every 10s").job.id;
    let once = world.register("@after 5s").job.id;
    let seen = |id| block_on(world.engine.job(TENANT, id)).unwrap();
    assert_eq!((seen(every).next_fire_at, seen(every).is_over), (Some(at("12:00:10")), false));
    assert_eq!((seen(once).next_fire_at, seen(once).is_over), (Some(at("12:00:05")), false));
    let fired = world.advance(SignedDuration::from_secs(6));
    assert_eq!((seen(once).next_fire_at, seen(once).is_over), (None, false), "its run is open");
    block_on(world.engine.cancel(TENANT, fired.runs[0].0.id())).unwrap();
    assert_eq!((seen(once).next_fire_at, seen(once).is_over), (None, true));
    block_on(world.engine.pause(TENANT, every, None, pause())).unwrap();
    assert_eq!((seen(every).next_fire_at, seen(every).is_over), (None, false));
    let page = block_on(world.engine.list_jobs(&JobFilter::default(), PageRequest::first(10))).unwrap();
    assert_eq!(page.items.len(), 2);
    for (state, id) in [("paused", every), ("ended", once)] {
        let filter = JobFilter { state: Some(state), ..JobFilter::default() };
        let page = block_on(world.engine.list_jobs(&filter, PageRequest::first(1))).unwrap();
        assert_eq!(page.items.iter().map(|seen| seen.job.id).collect::<Vec<_>>(), [id], "{state}");
    }
    let filter = JobFilter { state: Some("active"), ..JobFilter::default() };
    let active = block_on(world.engine.list_jobs(&filter, PageRequest::first(10))).unwrap();
    assert_eq!((active.items.len(), active.next), (0, None));
}

#[test]
fn another_tenants_job_and_run_are_not_there() {
    let world = World::new();
    let job = world.register("@now").job.id;
    let run = world.runs()[0].id();
    let other = TenantId(9);
    assert!(matches!(block_on(world.engine.job(other, job)), Err(Error::JobNotFound(_))));
    assert!(matches!(block_on(world.engine.upcoming(other, job, None, 3)), Err(Error::JobNotFound(_))));
    assert!(matches!(block_on(world.engine.run(other, run)), Err(Error::RunNotFound(_))));
    assert!(matches!(block_on(world.engine.cancel(other, run)), Err(Error::RunNotFound(_))));
    let redriven = block_on(world.engine.redrive(other, &[run])).unwrap();
    assert!(matches!(redriven[..], [Err(Error::RunNotFound(_))]));
}

#[test]
fn cancelling_the_run_of_a_period_from_completion_brings_the_next_slot() {
    let world = World::new();
    let job = world.register("@every 10s from completion");
    world.advance(SignedDuration::from_secs(1));
    let run = world.runs()[0].id();
    let cancelled = block_on(world.engine.cancel(TENANT, run)).unwrap();
    assert_eq!(cancelled.state, RunState::Cancelled);
    assert_eq!(world.slots(&job, 1), [at("12:00:11")]);
    assert!(matches!(block_on(world.engine.cancel(TENANT, run)), Err(Error::Run(_))));
}

#[test]
fn runs_of_a_list_stand_for_themselves() {
    let world = World::new();
    world.register("@now");
    let run = world.runs()[0].id();
    let unknown = "01890000-0000-7000-8000-02badc0ffee5".parse().unwrap();
    let answers = block_on(world.engine.redrive(TENANT, &[unknown, run])).unwrap();
    assert!(matches!(answers[..], [Err(Error::RunNotFound(_)), Err(Error::Run(_))]), "{answers:?}");
}

#[test]
fn upserting_by_key_creates_changes_and_leaves_alone() {
    let world = World::new();
    let upsert =
        |text: &str, expected| block_on(world.engine.upsert(TENANT, "nightly", expected, spec(text)));
    let (first, is_new) = upsert("@every 10s", None).unwrap();
    assert!(is_new && first.job.spec.key.as_deref() == Some("nightly"));
    let (same, is_new) = upsert("@every 10s", None).unwrap();
    assert!(!is_new && same.is_unchanged && same.job.version == first.job.version);
    let (changed, is_new) = upsert("@every 20s", Some(first.job.version)).unwrap();
    assert!(!is_new && changed.job.id == first.job.id && changed.job.version > first.job.version);
    assert!(matches!(upsert("@every 30s", Some(first.job.version)), Err(Error::VersionConflict { .. })));
}

#[test]
fn a_request_is_remembered_for_a_day() {
    let world = World::new();
    let request = || world.engine.request(TENANT, "key".into(), [1; 16]);
    let answer = |registered: &punctual_engine::register::Registered,
                  request: &mut punctual_store::Subject| {
        request.result = format!("registered {}", registered.job.id);
    };
    let register = |spec: Spec| {
        let specs = vec![(spec, Some(request()))];
        block_on(world.engine.register_answering(TENANT, specs, answer)).unwrap().remove(0)
    };
    let first = register(spec("@every 10s")).unwrap();
    let Err(Error::Repeated(subject)) = register(spec("@every 10s")) else { panic!("made before") };
    assert_eq!(subject.result, format!("registered {}", first.job.id));
    world.clock.advance(SignedDuration::from_hours(25));
    assert_eq!(block_on(world.engine.remembered(TENANT, "key")).unwrap(), None);
    assert_ne!(register(spec("@every 10s")).unwrap().job.id, first.job.id);
    assert_eq!(block_on(world.store.tenants()).unwrap().len(), 1);
}
