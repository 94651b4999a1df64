//! Links with a moved clock: each end of a run triggers the linked job once, through kills, lost answers and redrives.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::between::Between;
use crate::support::world::{TENANT, World, engine, pause, spec};
use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::attempt::{Failure, Output};
use punctual_domain::id::{JobId, TenantId, Version, WorkerId};
use punctual_domain::job::{Job, Spec};
use punctual_domain::link::{self, DEPTH_MAX, Link, On};
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::run::{Cause, Run, RunState};
use punctual_domain::work::Finished;
use punctual_domain::{Outcome, Report};
use punctual_engine::links::Followed;
use punctual_engine::register::{Registered, Waiting};
use punctual_engine::{Clock, Engine, Error};
use punctual_store::{
    Cancellation, Claim, DueWhen, Expect, OpenRuns, PageRequest, Put, RunFilter, Shards, Store,
};
use serde_json::{Value, json};

/// A job that runs when it is triggered, with links.
fn linked(key: &str, links: &[(On, &str)]) -> Spec {
    let mut spec = Spec {
        name: key.into(),
        key: Some(key.into()),
        payload: Some(r#"{"n": 1.50}"#.into()),
        links: links.iter().map(|(on, job)| Link { on: *on, job: (*job).into() }).collect(),
        ..spec("@at 2199-01-01T00:00:00Z")
    };
    spec.policies.retry.max_attempts = 1;
    spec
}

fn register(world: &World, key: &str, links: &[(On, &str)]) -> Arc<Job> {
    world.try_register(linked(key, links)).unwrap().job
}

fn edit(world: &World, job: &Job, links: &[(On, &str)]) -> Result<Registered, Error> {
    let key = job.spec.key.as_deref().unwrap();
    block_on(world.engine.update(TENANT, job.id, None, linked(key, links), Waiting::Keep))
}

fn trigger(world: &World, job: &Job) -> Run {
    block_on(world.engine.trigger(TENANT, job.id, None, None)).unwrap()
}

fn claim(world: &World) -> Vec<Run> {
    let worker = WorkerId::new(world.clock.now(), 5 << 52 | 5);
    let claim =
        Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit: 100 };
    block_on(world.store.claim(claim, world.clock.now())).unwrap()
}

fn finished(world: &World, run: &Run, outcome: Outcome, output: &str) -> Finished {
    let now = world.clock.now();
    let failure = Failure { code: "x".into(), message: "y".into(), is_retryable: false, retry_after: None };
    let report = Report {
        outcome,
        error: (outcome != Outcome::Succeeded).then_some(failure),
        output: Some(Output { bytes: output.as_bytes().to_vec(), is_truncated: false }),
        ..Report::lost(now, now)
    };
    let job = block_on(world.store.kept_jobs(&[run.job])).unwrap().remove(0).unwrap().job;
    Finished { worker: run.lease().unwrap().worker, run: run.clone(), job, report: Some(report) }
}

fn finish(world: &World, run: &Run, outcome: Outcome, output: &str) -> RunState {
    block_on(world.engine.complete(vec![finished(world, run, outcome, output)]))
        .unwrap()
        .remove(0)
        .unwrap()
        .state
}

/// Runs of a type, newest first.
fn runs(world: &World, filter: RunFilter) -> Vec<Run> {
    block_on(world.store.runs(&filter, PageRequest::first(100))).unwrap().items
}

fn messages(world: &World) -> Vec<Run> {
    runs(world, RunFilter { kind: Some(link::MESSAGE.into()), ..RunFilter::default() })
}

fn runs_of(world: &World, job: &Job) -> Vec<Run> {
    runs(world, RunFilter { job: Some(job.id), ..RunFilter::default() })
}

/// Delivers what waits, as a worker does: the messages, each with what came of it.
fn deliver(world: &World) -> Vec<Result<Followed, Error>> {
    let mut told = Vec::new();
    for run in claim(world).into_iter().filter(|run| run.kind.as_deref() == Some(link::MESSAGE)) {
        let answer = block_on(world.engine.follow(run.job));
        let outcome = if answer.is_ok() { Outcome::Succeeded } else { Outcome::Failed };
        finish(world, &run, outcome, "");
        told.push(answer);
    }
    told
}

fn payload(run: &Run) -> Value {
    serde_json::from_str(run.payload.as_deref().unwrap()).unwrap()
}

#[test]
fn an_end_triggers_the_linked_job_with_its_output() {
    let world = World::new();
    let after = register(&world, "after", &[]);
    let other = register(&world, "other", &[]);
    let job =
        register(&world, "load", &[(On::Succeeded, "after"), (On::Failed, "other"), (On::Finished, "after")]);
    let run = trigger(&world, &job);
    world.clock.advance(SignedDuration::from_secs(7));
    let held = claim(&world).remove(0);
    assert_eq!(finish(&world, &held, Outcome::Succeeded, r#"{"rows": 1.50}"#), RunState::Succeeded);
    let ended_at = world.clock.now();
    assert_eq!(messages(&world).len(), 2, "of the two ends that it is");
    assert!(messages(&world).iter().all(|run| run.job.shard() == job.id.shard()));
    world.clock.advance(SignedDuration::from_secs(3));
    assert_eq!(deliver(&world).len(), 2);
    let made = runs_of(&world, &after);
    assert_eq!((made.len(), runs_of(&world, &other).len()), (2, 0));
    assert_ne!(made[0].idempotency_key(), made[1].idempotency_key());
    for one in &made {
        assert_eq!((one.cause, one.scheduled_for), (Cause::Link, ended_at));
        assert_eq!(one.caused_by.map(|by| (by.run, by.depth)), Some((run.id(), 1)));
        assert_eq!(one.correlation_id.as_deref(), Some(&*run.id().to_string()), "it leads back");
        let text = one.payload.as_deref().unwrap();
        assert!(text.contains(r#""output":{"rows": 1.50}"#), "as it was written: {text}");
        assert!(text.ends_with(r#""payload":{"n": 1.50}}"#), "and the job's own: {text}");
        let told = payload(one);
        assert_eq!((&told["kind"], &told["run"]["state"]), (&json!("link"), &json!("succeeded")));
        assert_eq!((&told["job"]["key"], &told["job"]["tenant"]), (&json!("load"), &json!("default")));
        assert_eq!(told["run"]["id"], run.id().to_string());
    }
    let on: Vec<Value> = made.iter().map(|one| payload(one)["on"].clone()).collect();
    assert!(on.contains(&json!("succeeded")) && on.contains(&json!("finished")), "{on:?}");
}

#[test]
fn a_dead_letter_is_followed_each_time_it_ends() {
    let world = World::new();
    let failed = register(&world, "failed", &[]);
    let well = register(&world, "well", &[]);
    let job = register(&world, "job", &[(On::Failed, "failed"), (On::Succeeded, "well")]);
    let run = trigger(&world, &job);
    let held = claim(&world).remove(0);
    assert_eq!(finish(&world, &held, Outcome::Failed, "not JSON"), RunState::Failed);
    deliver(&world);
    assert_eq!((runs_of(&world, &failed).len(), runs_of(&world, &well).len()), (1, 0));
    assert_eq!(payload(&runs_of(&world, &failed)[0])["output"], "not JSON");
    for (outcome, expected) in [(Outcome::Failed, (2, 0)), (Outcome::Succeeded, (2, 1))] {
        block_on(world.engine.redrive(TENANT, &[run.id()])).unwrap().remove(0).unwrap();
        let held = claim(&world).into_iter().find(|one| one.id() == run.id()).unwrap();
        finish(&world, &held, outcome, "");
        deliver(&world);
        assert_eq!((runs_of(&world, &failed).len(), runs_of(&world, &well).len()), expected);
    }
}

#[test]
fn what_is_cancelled_or_missed_has_not_finished() {
    let world = World::new();
    register(&world, "after", &[]);
    let all = [(On::Succeeded, "after"), (On::Failed, "after"), (On::Finished, "after")];
    let job = register(&world, "job", &all);
    let waiting = trigger(&world, &job);
    let cancel = Cancellation { run: waiting.id(), successor: None };
    block_on(world.store.cancel(vec![cancel], world.clock.now())).unwrap().remove(0).unwrap();
    trigger(&world, &job);
    let running = claim(&world).remove(0);
    block_on(world.engine.cancel(TENANT, running.id())).unwrap();
    assert_eq!(finish(&world, &running, Outcome::Cancelled, ""), RunState::Cancelled);
    let mut late = linked("late", &all);
    late.policies.timeouts.start_window = Some(std::time::Duration::from_secs(5));
    let late = world.try_register(late).unwrap().job;
    trigger(&world, &late);
    world.clock.advance(SignedDuration::from_secs(60));
    let lapsed = block_on(world.engine.lapse(&world.epochs)).unwrap().runs;
    assert_eq!(lapsed.iter().map(|run| run.state).collect::<Vec<_>>(), [RunState::Missed]);
    assert_eq!(messages(&world), []);
}

/// A node is killed after every step, and the next one goes on; two nodes deliver the same; answers are lost.
#[test]
fn an_end_is_followed_once_through_kills_and_lost_answers() {
    for killed_after in 0..4 {
        for is_lost in [false, true] {
            let mut world = World::new();
            let after = register(&world, "after", &[]);
            let job = register(&world, "job", &[(On::Finished, "after")]);
            trigger(&world, &job);
            let held = claim(&world).remove(0);
            let between = Arc::new(Between::new(world.store.clone()));
            let unlucky: Engine = engine(between.clone(), world.clock.clone(), 77);
            let mut steps = 0;
            let mut step = |world: World| {
                steps += 1;
                if steps - 1 == killed_after { world.killed_and_started(steps) } else { world }
            };
            world = step(world);
            // The end is recorded, and perhaps nobody hears of it: the report comes again and is refused.
            let report = || finished(&world, &held, Outcome::Succeeded, "1");
            between.loses_answers.store(is_lost, Ordering::SeqCst);
            let first = block_on(unlucky.complete(vec![report()]));
            assert_eq!(first.is_err(), is_lost);
            assert!(block_on(world.engine.complete(vec![report()])).unwrap()[0].is_err());
            world = step(world);
            let message = messages(&world).remove(0).job;
            assert_eq!(messages(&world).len(), 1);
            // The linked run is made, and perhaps nobody hears of it.
            let first = block_on(unlucky.follow(message));
            assert_eq!(first.is_err(), is_lost);
            assert!(first.is_ok() || first.clone().unwrap_err().is_mendable(), "{first:?}");
            world = step(world);
            let twin = world.twin(world.store.clone());
            let again = block_on(world.engine.follow(message)).unwrap();
            assert_eq!(block_on(twin.engine.follow(message)).unwrap(), again);
            world = step(world);
            let made = runs_of(&world, &after);
            assert_eq!(made.len(), 1, "killed after {killed_after}, lost {is_lost}");
            assert_eq!(again, Followed::Run(made[0].id()));
            assert_eq!(payload(&made[0])["output"], 1);
        }
    }
}

#[test]
fn links_to_nothing_and_cycles_are_refused() {
    let world = World::new();
    let missing = world.try_register(linked("a", &[(On::Failed, "nowhere")])).unwrap_err();
    assert_eq!(missing, Error::LinkMissing { place: 0, job: "nowhere".into() });
    let itself = world.try_register(linked("a", &[(On::Failed, "a")])).unwrap_err();
    assert_eq!(itself, Error::LinkCycle { place: 0, path: "a -> a".into() });
    let c = register(&world, "c", &[]);
    let b = register(&world, "b", &[(On::Failed, &c.id.to_string())]);
    let a = register(&world, "a", &[(On::Succeeded, "c"), (On::Succeeded, "b")]);
    let by_id = a.id.to_string();
    for (links, place, path) in [
        (vec![(On::Finished, "b")], 0, "c -> b -> c"),
        (vec![(On::Finished, "a")], 0, "c -> a -> c"),
        (vec![(On::Finished, &*by_id)], 0, &*format!("c -> {by_id} -> c")),
    ] {
        let refused = edit(&world, &c, &links).unwrap_err();
        assert_eq!(refused, Error::LinkCycle { place, path: path.into() });
    }
    let other = register(&world, "other", &[]);
    let refused = edit(&world, &b, &[(On::Failed, "other"), (On::Failed, "a")]).unwrap_err();
    assert_eq!(refused, Error::LinkCycle { place: 1, path: "b -> a -> b".into() });
    edit(&world, &b, &[(On::Failed, "other")]).unwrap();
    // The links as they were: what they lead to may be gone by now.
    block_on(world.engine.delete(TENANT, other.id, None)).unwrap();
    let renamed = Spec { name: "renamed".into(), ..linked("b", &[(On::Failed, "other")]) };
    block_on(world.engine.update(TENANT, b.id, None, renamed, Waiting::Keep)).unwrap();
    // A key that comes back closes a cycle too.
    let refused = world.try_register(linked("other", &[(On::Failed, "b")])).unwrap_err();
    assert_eq!(refused, Error::LinkCycle { place: 0, path: "other -> b -> other".into() });
}

#[test]
fn jobs_of_other_tenants_are_not_there() {
    let world = World::new();
    let job = register(&world, "job", &[]);
    for name in ["job", &job.id.to_string()] {
        let stranger = linked("stranger", &[(On::Failed, name)]);
        let answer = block_on(world.engine.register(TenantId(7), vec![(stranger, None)])).unwrap().remove(0);
        assert_eq!(answer, Err(Error::LinkMissing { place: 0, job: name.into() }));
    }
}

/// Other links of a job, written past the check, as an edit at the same moment would.
fn slip(world: &World, job: &Job, links: &[(On, &str)]) {
    let spec = linked(job.spec.key.as_deref().unwrap(), links);
    let put = Put {
        job: Arc::new(Job { version: Version(job.version.0 + 1), spec, ..job.clone() }),
        expect: Expect::Version(job.version),
        due: None,
        due_when: DueWhen::Always,
        carry: None,
        unfired: Vec::new(),
        birth: None,
        open_runs: OpenRuns::Keep,
        limits: Default::default(),
        lets_overlap: false,
        ledger: Vec::new(),
        request: None,
        audit: None,
    };
    block_on(world.store.put_jobs(vec![put], world.clock.now())).unwrap().remove(0).unwrap();
}

#[test]
fn a_cycle_that_slipped_through_ends_at_a_depth() {
    let world = World::new();
    let a = register(&world, "a", &[]);
    let b = register(&world, "b", &[(On::Succeeded, "a")]);
    slip(&world, &a, &[(On::Succeeded, "b")]);
    trigger(&world, &b);
    let mut last = None;
    for _ in 0..100 {
        for run in claim(&world) {
            if run.kind.as_deref() == Some(link::MESSAGE) {
                last = Some(block_on(world.engine.follow(run.job)));
                let is_ok = last.as_ref().is_some_and(Result::is_ok);
                finish(&world, &run, if is_ok { Outcome::Succeeded } else { Outcome::Failed }, "");
            } else {
                finish(&world, &run, Outcome::Succeeded, "");
            }
        }
        world.clock.advance(SignedDuration::from_millis(1));
    }
    assert!(matches!(&last, Some(Err(Error::Link(why))) if why.contains("longer than 32 runs")), "{last:?}");
    assert!(!last.unwrap().unwrap_err().is_mendable());
    let made = runs_of(&world, &a).len() + runs_of(&world, &b).len();
    assert_eq!(made, usize::from(DEPTH_MAX) + 1, "and the one that began it");
}

/// What cannot be followed is a dead letter that says why, and is followed when it is redriven.
#[test]
fn a_link_to_a_job_that_is_paused_or_gone_says_so() {
    let world = World::new();
    let after = register(&world, "after", &[]);
    let job = register(&world, "job", &[(On::Succeeded, "after")]);
    let end = || {
        trigger(&world, &job);
        let held = claim(&world).into_iter().find(|run| run.job == job.id).unwrap();
        finish(&world, &held, Outcome::Succeeded, "");
    };
    block_on(world.engine.pause(TENANT, after.id, None, pause())).unwrap();
    end();
    assert_eq!(deliver(&world), [Err(Error::Link("job `after` is paused".into()))]);
    let dead = messages(&world).remove(0);
    block_on(world.engine.resume(TENANT, after.id, None)).unwrap();
    block_on(world.engine.redrive(TENANT, &[dead.id()])).unwrap().remove(0).unwrap();
    assert!(matches!(deliver(&world)[..], [Ok(Followed::Run(_))]));
    assert_eq!(runs_of(&world, &after).len(), 1);
    block_on(world.engine.delete(TENANT, after.id, None)).unwrap();
    end();
    assert_eq!(deliver(&world), [Err(Error::Link("job `after` is not there any more".into()))]);
    // Another job with the key is the one that is linked.
    let again = register(&world, "after", &[]);
    let dead = messages(&world).remove(0);
    block_on(world.engine.redrive(TENANT, &[dead.id()])).unwrap().remove(0).unwrap();
    deliver(&world);
    assert_eq!(runs_of(&world, &again).len(), 1);
}

#[test]
fn a_linked_job_that_skips_is_left_alone_while_a_run_is_open() {
    let world = World::new();
    let mut spec = linked("after", &[]);
    spec.policies.overlap = Overlap::Skip;
    let after = world.try_register(spec).unwrap().job;
    let job = register(&world, "job", &[(On::Succeeded, "after")]);
    trigger(&world, &after);
    trigger(&world, &job);
    let held = claim(&world).into_iter().find(|run| run.job == job.id).unwrap();
    finish(&world, &held, Outcome::Succeeded, "");
    assert_eq!(deliver(&world), [Ok(Followed::Skipped)]);
    assert_eq!(runs_of(&world, &after).len(), 1);
}

/// Whoever registers a job that looks like a message triggers nothing with it.
#[test]
fn only_what_the_system_registered_is_followed() {
    let world = World::new();
    let job = register(&world, "job", &[]);
    for id in [job.id, JobId::new(world.clock.now(), job.id.shard(), 99)] {
        let refused = block_on(world.engine.follow(id)).unwrap_err();
        assert!(
            matches!(&refused, Error::Link(why) if why.contains("not the message of a link")),
            "{refused}"
        );
    }
    assert_eq!(runs_of(&world, &job), []);
}
