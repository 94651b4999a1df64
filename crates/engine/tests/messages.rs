//! Dead letters that are told, with a moved clock: through retries, lapses, lost workers and lost answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::between::Between;
use crate::support::world::{TENANT, World, at, engine, spec};
use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::attempt::{Failure, Output};
use punctual_domain::id::WorkerId;
use punctual_domain::job::{Http, Job, Method, Spec, Target};
use punctual_domain::policy::retry::LOST_MAX;
use punctual_domain::run::{Limit, Run, RunState};
use punctual_domain::work::Finished;
use punctual_domain::{Outcome, Report, message};
use punctual_engine::register::Waiting;
use punctual_engine::{Clock, Engine, Error};
use punctual_store::{Claim, Memory, PageRequest, RunFilter, Shards, Store};
use serde_json::{Value, json};

const LEASE: Duration = Duration::from_secs(10);

fn hook() -> Target {
    let url = "http://127.0.0.1:9/dead".into();
    Target::Http(Http { url, method: Method::Post, headers: Vec::new(), tls: None })
}

/// A job that tells of its dead letters after so many attempts.
fn telling(schedule: &str, max_attempts: u32) -> Spec {
    let mut spec = Spec {
        name: "invoices".into(),
        key: Some("billing/invoices".into()),
        payload: Some(r#"{"n": 1.50}"#.into()),
        dead_letter_target: Some(hook()),
        queue: "billing".into(),
        ..spec(schedule)
    };
    spec.policies.retry.max_attempts = max_attempts;
    spec
}

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn worker(world: &World, n: u64) -> WorkerId {
    WorkerId::new(world.clock.now(), n << 52 | n)
}

fn claim(world: &World, worker: WorkerId) -> Vec<Run> {
    let claim =
        Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit: 100 };
    let mut claimed = block_on(world.store.claim(claim.clone(), world.clock.now())).unwrap();
    // And one that is tried alone.
    let alone = Claim { labels: claim.labels.alone(), limit: 1, ..claim };
    claimed.extend(block_on(world.store.claim(alone, world.clock.now())).unwrap());
    claimed
}

fn finished(world: &World, run: &Run, outcome: Outcome) -> Finished {
    let now = world.clock.now();
    let failure = Failure {
        code: "http_status".into(),
        message: "the target answered 503".into(),
        is_retryable: true,
        retry_after: None,
    };
    let report = Report {
        outcome,
        error: (outcome != Outcome::Succeeded).then_some(failure),
        output: Some(Output { bytes: b"not today".to_vec(), is_truncated: false }),
        status: Some(503),
        ..Report::lost(now, now)
    };
    let worker = run.lease().unwrap().worker;
    Finished { worker, run: run.clone(), job: world.job_of(run), report: Some(report) }
}

/// Ends attempts that are held.
fn finish(world: &World, runs: &[Run], outcome: Outcome) -> Vec<RunState> {
    let all = runs.iter().map(|run| finished(world, run, outcome)).collect();
    block_on(world.engine.complete(all)).unwrap().into_iter().map(|run| run.unwrap().state).collect()
}

/// Claims what waits and ends it; the states.
fn work(world: &World, outcome: Outcome) -> Vec<RunState> {
    let claimed = claim(world, worker(world, 5));
    finish(world, &claimed, outcome)
}

/// Runs of messages, newest first.
fn messages(store: &Memory) -> Vec<Run> {
    let filter = RunFilter { kind: Some(message::DEAD_LETTER.into()), ..RunFilter::default() };
    block_on(store.runs(&filter, PageRequest::first(100))).unwrap().items
}

fn job_of(world: &World, run: &Run) -> Arc<Job> {
    block_on(world.store.kept_jobs(&[run.job])).unwrap().remove(0).unwrap().job
}

fn payload(world: &World, message: &Run) -> Value {
    serde_json::from_str(job_of(world, message).spec.payload.as_deref().unwrap()).unwrap()
}

#[test]
fn a_run_that_fails_for_good_is_told_once() {
    let world = World::new();
    let job = world.try_register(telling("*/10 * * * *", 2)).unwrap().job;
    world.advance(seconds(600));
    let run = world.runs().remove(0);
    assert!(matches!(work(&world, Outcome::Failed)[..], [RunState::Pending(_)]));
    assert_eq!(messages(&world.store), [], "another attempt follows");
    world.clock.advance(seconds(30));
    assert_eq!(work(&world, Outcome::Failed), [RunState::Failed]);
    let told = messages(&world.store);
    assert_eq!(told.len(), 1);
    let sent = job_of(&world, &told[0]);
    assert_eq!((&sent.spec.target, &*sent.spec.queue), (&hook(), "billing"), "by whoever executes the job");
    assert_eq!(sent.id.shard(), job.id.shard());
    assert!(
        sent.spec.payload.as_deref().unwrap().ends_with(r#""payload":{"n": 1.50}}"#),
        "as it was written"
    );
    let mut payload = payload(&world, &told[0]);
    assert_eq!(payload["payload"], json!({ "n": 1.5 }));
    payload.as_object_mut().unwrap().remove("payload");
    let expected = json!({
        "kind": "dead_letter",
        "run": {
            "id": run.id().to_string(), "state": "failed", "reason": null, "cause": "schedule",
            "scheduled_for": "2026-01-01T12:10:00Z", "finished_at": "2026-01-01T12:10:30Z", "attempts": 2,
            "idempotency_key": run.idempotency_key().to_string(), "correlation_id": null,
        },
        "job": {
            "id": job.id.to_string(), "name": "invoices", "key": "billing/invoices", "type": null, "labels": {},
            "tenant": "default", "version": 1,
        },
        "outcome": "failed",
        "status": 503,
        "error": { "code": "http_status", "message": "the target answered 503" },
        "output": { "text": "not today", "is_truncated": false },
    });
    assert_eq!(payload, expected);
    assert_eq!(work(&world, Outcome::Succeeded), [RunState::Succeeded], "it is delivered like any run");
    assert_eq!(messages(&world.store).len(), 1);
}

#[test]
fn what_ends_otherwise_tells_nobody() {
    let world = World::new();
    world.try_register(telling("*/10 * * * *", 1)).unwrap();
    world.advance(seconds(600));
    assert_eq!(work(&world, Outcome::Succeeded), [RunState::Succeeded]);
    world.advance(seconds(600));
    let held = claim(&world, worker(&world, 5));
    block_on(world.engine.cancel(TENANT, held[0].id())).unwrap();
    assert_eq!(finish(&world, &held, Outcome::Failed), [RunState::Cancelled], "it was asked to stop");
    world.register("*/10 * * * *");
    world.advance(seconds(600));
    let both = work(&world, Outcome::Failed);
    assert!(both.contains(&RunState::Failed), "{both:?}");
    assert_eq!(messages(&world.store).len(), 1, "the other job says nothing of dead letters");
}

#[test]
fn a_run_that_dies_again_after_it_was_redriven_is_told_again() {
    let world = World::new();
    world.try_register(telling("*/10 * * * *", 1)).unwrap();
    world.advance(seconds(600));
    let run = world.runs().remove(0);
    work(&world, Outcome::Failed);
    assert_eq!(work(&world, Outcome::Succeeded), [RunState::Succeeded]);
    block_on(world.engine.redrive(TENANT, &[run.id()])).unwrap().remove(0).unwrap();
    assert_eq!(work(&world, Outcome::TimedOut), [RunState::TimedOut]);
    let told = messages(&world.store);
    assert_eq!(told.len(), 2);
    let (newest, first) = (payload(&world, &told[0]), payload(&world, &told[1]));
    assert_eq!((&newest["run"]["id"], &newest["run"]["attempts"]), (&first["run"]["id"], &2.into()));
    assert_eq!((&newest["outcome"], &first["outcome"]), (&"timed_out".into(), &"failed".into()));
}

#[test]
fn a_retry_that_lapses_is_told_with_its_last_error_and_a_missed_run_is_not() {
    let world = World::new();
    let mut spec = telling("*/10 * * * *", 9);
    spec.policies.retry.retry_for = Some(Duration::from_secs(60));
    spec.policies.timeouts.start_window = Some(Duration::from_secs(50));
    world.try_register(spec).unwrap();
    world.advance(seconds(600));
    assert!(matches!(work(&world, Outcome::Failed)[..], [RunState::Pending(_)]));
    world.clock.advance(seconds(61));
    let lapsed = block_on(world.engine.lapse(&world.epochs)).unwrap().runs;
    assert_eq!((lapsed[0].state, lapsed[0].reason), (RunState::Failed, Some(Limit::RetryFor)));
    let told = messages(&world.store);
    let payload = payload(&world, &told[0]);
    assert_eq!((&payload["run"]["reason"], &payload["status"]), (&"retry_for".into(), &503.into()));
    assert_eq!(payload["error"]["code"], "http_status", "of the last attempt");
    work(&world, Outcome::Succeeded);
    world.advance(seconds(539));
    world.clock.advance(seconds(51));
    let missed = block_on(world.engine.lapse(&world.epochs)).unwrap().runs;
    assert_eq!(missed.iter().map(|run| run.state).collect::<Vec<_>>(), [RunState::Missed]);
    assert_eq!(messages(&world.store).len(), 1);
}

#[test]
fn a_run_whose_workers_are_lost_is_told_when_it_is_given_up() {
    let world = World::new();
    world.try_register(telling("0 13 * * *", 1)).unwrap();
    world.advance(seconds(3_600));
    for lost in 1..=LOST_MAX {
        assert_eq!(messages(&world.store), []);
        assert_eq!(claim(&world, worker(&world, lost.into())).len(), 1);
        world.clock.advance(seconds(60));
        block_on(world.store.expired(LEASE, world.clock.now(), 9)).unwrap();
        block_on(world.engine.reclaim(LEASE)).unwrap();
    }
    let told = messages(&world.store);
    let payload = payload(&world, &told[0]);
    assert_eq!((&payload["outcome"], &payload["error"]["code"]), (&"lost".into(), &"lost".into()));
    assert_eq!(payload["run"]["attempts"], LOST_MAX);
}

#[test]
fn the_end_of_a_run_tells_and_brings_the_next_slot() {
    let world = World::new();
    let job = world.try_register(telling("@every 5m from completion", 1)).unwrap();
    world.fire(None);
    assert_eq!(work(&world, Outcome::Failed), [RunState::Failed]);
    assert_eq!(messages(&world.store).len(), 1);
    assert_eq!(world.slots(&job, 1), [at("12:05:00")]);
}

#[test]
fn a_message_that_cannot_be_delivered_makes_no_other() {
    let world = World::new();
    world.try_register(telling("0 13 * * *", 1)).unwrap();
    world.advance(seconds(3_600));
    work(&world, Outcome::Failed);
    for attempt in 1..=message::MAX_ATTEMPTS {
        let states = work(&world, Outcome::Failed);
        let is_last = attempt == message::MAX_ATTEMPTS;
        assert_eq!(states.len(), 1);
        assert_eq!(states[0] == RunState::Failed, is_last, "attempt {attempt}: {states:?}");
        world.clock.advance(seconds(3_600));
    }
    assert_eq!((messages(&world.store).len(), work(&world, Outcome::Failed).len()), (1, 0));
    let dead = RunFilter { is_dead: Some(true), ..RunFilter::default() };
    assert_eq!(block_on(world.store.runs(&dead, PageRequest::first(9))).unwrap().items.len(), 2);
}

/// The commit was done and its answer lost: the report is repeated, by the same node or by another one.
#[test]
fn a_report_whose_answer_was_lost_is_told_once() {
    let world = World::new();
    world.try_register(telling("*/10 * * * *", 1)).unwrap();
    world.advance(seconds(600));
    let between = Arc::new(Between::new(world.store.clone()));
    let unlucky: Engine = engine(between.clone(), world.clock.clone(), 77);
    let held = claim(&world, worker(&world, 5)).remove(0);
    between.loses_answers.store(true, Ordering::SeqCst);
    block_on(unlucky.complete(vec![finished(&world, &held, Outcome::Failed)])).unwrap_err();
    let again = Finished { job: job_of(&world, &held), ..finished_late(&world, &held) };
    let repeated = block_on(world.engine.complete(vec![again])).unwrap().remove(0);
    assert!(repeated.is_err(), "the first was recorded: {repeated:?}");
    assert_eq!(messages(&world.store).len(), 1);
}

/// The same report, when the run is not open any more.
fn finished_late(world: &World, run: &Run) -> Finished {
    let now = world.clock.now();
    let worker = run.lease().unwrap().worker;
    let report = Some(Report { outcome: Outcome::Failed, ..Report::lost(now, now) });
    Finished { worker, run: run.clone(), job: job_of(world, run), report }
}

#[test]
fn the_systems_own_types_are_nobody_elses() {
    let world = World::new();
    let own = Spec { kind: Some(message::DEAD_LETTER.into()), ..spec("0 13 * * *") };
    assert!(matches!(world.try_register(own.clone()), Err(Error::ReservedType)));
    let job = world.try_register(telling("0 13 * * *", 1)).unwrap().job;
    let edited = block_on(world.engine.update(TENANT, job.id, None, own, Waiting::Keep));
    assert!(matches!(edited, Err(Error::ReservedType)), "{edited:?}");
    world.advance(seconds(3_600));
    work(&world, Outcome::Failed);
    let told = messages(&world.store).remove(0);
    let edited = block_on(world.engine.update(TENANT, told.job, None, spec("0 14 * * *"), Waiting::Keep));
    assert!(matches!(edited, Err(Error::ReservedType)), "{edited:?}");
    block_on(world.engine.delete(TENANT, told.job, None)).unwrap();
    assert_eq!(messages(&world.store)[0].state, RunState::Cancelled, "what nobody wants to hear is deleted");
}
