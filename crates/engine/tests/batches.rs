//! Batches with a moved clock: one run an item and slot, one message a slot, through kills, lost answers, races, redrives and cancels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::between::Between;
use crate::support::world::{TENANT, World, at, engine, pause, spec};
use futures_executor::block_on;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::attempt::Failure;
use punctual_domain::batch::{self, Batch, Counts, Item};
use punctual_domain::id::{JobId, WorkerId};
use punctual_domain::job::{Job, Spec, Target};
use punctual_domain::ledger::Fate;
use punctual_domain::operation::{Operation, State};
use punctual_domain::policy::backlog::Caps;
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::run::{Cause, Run, RunState};
use punctual_domain::work::Finished;
use punctual_domain::{Outcome, Report};
use punctual_engine::batches::BatchSeen;
use punctual_engine::register::Waiting;
use punctual_engine::{Clock, Error};
use punctual_store::{Claim, PageRequest, RunFilter, Shards, Store};
use serde_json::Value;

/// More than two steps' worth.
const MANY: usize = 600;

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn of(id: &str, schedule: &str, items: usize) -> Spec {
    let item = |n: usize| Item { id: format!("i{n}").into(), payload: Some(format!("{{\"n\":{n}}}").into()) };
    let mut spec = Spec {
        key: Some(id.into()),
        batch: Some(Arc::new(Batch {
            items: (0..items).map(item).collect(),
            on_complete: Some(Target::Discard),
            fingerprint: [items as u8; 16],
            cancelled_at: None,
        })),
        ..spec(schedule)
    };
    spec.policies.retry.max_attempts = 1;
    spec
}

/// Registers a batch, and fires what is due.
fn begin(world: &World, spec: Spec) -> JobId {
    let id = spec.key.clone().unwrap();
    assert!(block_on(world.engine.register_batch(TENANT, spec)).unwrap());
    world.fire(None);
    see(world, &id).seen.job.id
}

fn see(world: &World, id: &str) -> BatchSeen {
    block_on(world.engine.batch(TENANT, id)).unwrap()
}

fn counts(world: &World, id: &str) -> Counts {
    see(world, id).counts.unwrap()
}

fn all(world: &World, filter: RunFilter) -> Vec<Run> {
    let mut page = PageRequest::first(1_000);
    let mut all = Vec::new();
    loop {
        let found = block_on(world.store.runs(&filter, page.clone())).unwrap();
        all.extend(found.items);
        match found.next {
            Some(next) => page.after = Some(next),
            None => return all,
        }
    }
}

fn items(world: &World, job: JobId) -> Vec<Run> {
    all(world, RunFilter { job: Some(job), ..RunFilter::default() })
}

/// What tells of completions, newest first.
fn messages(world: &World) -> Vec<Value> {
    let runs = all(world, RunFilter { kind: Some(batch::MESSAGE.into()), ..RunFilter::default() });
    let told = |run: &Run| -> Arc<Job> { world.job_of(run) };
    runs.iter().map(|run| serde_json::from_str(told(run).spec.payload.as_deref().unwrap()).unwrap()).collect()
}

fn operation(world: &World, job: JobId, slot: Timestamp) -> Operation {
    block_on(world.engine.operation(TENANT, batch::operation_id(job, slot))).unwrap()
}

fn claim(world: &World, limit: usize) -> Vec<Run> {
    let now = world.clock.now();
    let worker = WorkerId::new(now, 5 << 52 | 5);
    let claim = Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit };
    block_on(world.store.claim(claim, now)).unwrap()
}

fn finish(world: &World, runs: &[Run], outcome: impl Fn(&Run) -> Outcome) {
    let now = world.clock.now();
    let failure = Failure { code: "x".into(), message: "y".into(), is_retryable: false, retry_after: None };
    let finished = runs.iter().map(|run| {
        let outcome = outcome(run);
        let error = (outcome != Outcome::Succeeded).then(|| failure.clone());
        let report = Report { outcome, error, ..Report::lost(now, now) };
        let job = world.job_of(run);
        Finished { worker: run.lease().unwrap().worker, run: run.clone(), job, report: Some(report) }
    });
    for answer in block_on(world.engine.complete(finished.collect())).unwrap() {
        answer.unwrap();
    }
}

/// Does everything that waits, and looks until there is nothing more to do.
fn work_off(world: &World, outcome: impl Fn(&Run) -> Outcome) {
    for _ in 0..100 {
        world.operate();
        let claimed = claim(world, 1_000);
        finish(world, &claimed, &outcome);
        if claimed.is_empty()
            && block_on(world.store.runnable(&Shards::All, Timestamp::MAX, 1)).unwrap().operations.is_empty()
        {
            return;
        }
        world.clock.advance(seconds(10));
    }
    panic!("there is no end to it");
}

fn redrive(world: &World, run: &Run) {
    block_on(world.engine.redrive(TENANT, &[run.id()])).unwrap().remove(0).unwrap();
}

fn well(_: &Run) -> Outcome {
    Outcome::Succeeded
}

/// How often each item has a run in each slot.
fn places(runs: &[Run]) -> BTreeMap<(Timestamp, u32), usize> {
    let mut places = BTreeMap::new();
    for run in runs.iter().filter(|run| run.cause == Cause::Batch) {
        *places.entry((run.scheduled_for, run.part)).or_default() += 1;
    }
    places
}

fn assert_each_once(world: &World, job: JobId, items_of_a_slot: usize, slots: usize) {
    let places = places(&items(world, job));
    assert_eq!(places.len(), items_of_a_slot * slots);
    assert!(places.values().all(|count| *count == 1));
}

#[test]
fn every_item_has_a_run_with_its_payload_and_the_end_is_told_once() {
    let world = World::new();
    let job = begin(&world, of("b", "@now", MANY));
    assert_eq!((see(&world, "b").state(), counts(&world, "b").pending), ("scheduled", MANY as u64));
    world.operate();
    assert_each_once(&world, job, MANY, 1);
    let runs = items(&world, job);
    let job_as_stored = world.job_of_id(job);
    for run in &runs {
        let item = job_as_stored.spec.batch.as_ref().unwrap().item(run).unwrap();
        assert_eq!(run.payload.as_deref(), item.payload.as_deref());
    }
    assert_eq!((see(&world, "b").state(), counts(&world, "b").pending), ("running", MANY as u64));
    work_off(&world, |run| if run.part % 200 == 7 { Outcome::Failed } else { Outcome::Succeeded });
    let seen = see(&world, "b");
    assert_eq!((seen.state(), seen.slot), ("completed", Some(at("12:00:00"))));
    assert_eq!(
        (seen.counts.unwrap().succeeded, seen.counts.unwrap().failed, seen.counts.unwrap().total()),
        (597, 3, 600)
    );
    let told = messages(&world);
    assert_eq!(told.len(), 1);
    assert_eq!((&told[0]["kind"], &told[0]["batch"]["id"]), (&"batch".into(), &"b".into()));
    assert_eq!((&told[0]["items"], &told[0]["counts"]["succeeded"]), (&600.into(), &597.into()));
    let mut failed: Vec<&str> =
        told[0]["failed"].as_array().unwrap().iter().map(|one| one["item"].as_str().unwrap()).collect();
    failed.sort_unstable();
    assert_eq!(failed, ["i206", "i406", "i6"]);
    let operation = operation(&world, job, at("12:00:00"));
    assert_eq!((operation.state, operation.done, operation.total), (State::Succeeded, 600, Some(600)));
    assert_eq!(world.operate(), 0, "an ended batch does nothing more");
}

#[test]
fn the_same_request_makes_one_batch_and_another_is_refused() {
    let world = World::new();
    begin(&world, of("b", "@now", 3));
    world.clock.advance(seconds(60));
    assert!(!block_on(world.engine.register_batch(TENANT, of("b", "@now", 3))).unwrap());
    let other = block_on(world.engine.register_batch(TENANT, of("b", "@now", 4)));
    assert_eq!(other, Err(Error::BatchTaken("b".into())));
    world.try_register(Spec { key: Some("plain".into()), ..spec("@every 1h") }).unwrap();
    let taken = block_on(world.engine.register_batch(TENANT, of("plain", "@now", 3)));
    assert_eq!(taken, Err(Error::BatchTaken("plain".into())), "the key of a job is taken");
    let no_batch = block_on(world.engine.batch(TENANT, "plain"));
    assert!(matches!(no_batch, Err(Error::BatchNotFound(_))), "{:?}", no_batch.map(|_| ()));
    work_off(&world, well);
    assert_eq!(messages(&world).len(), 1);
}

#[test]
fn a_kill_after_every_step_makes_each_item_once_and_tells_once() {
    let mut world = World::new();
    let job = begin(&world, of("b", "@now", MANY));
    for node in 10..100 {
        block_on(world.engine.operate(&world.epochs)).unwrap();
        let claimed = claim(&world, 173);
        finish(&world, &claimed, well);
        world = world.killed_and_started(node);
        if !operation(&world, job, at("12:00:00")).is_running() {
            break;
        }
    }
    work_off(&world, well);
    assert_each_once(&world, job, MANY, 1);
    assert_eq!(messages(&world).len(), 1);
    assert_eq!(counts(&world, "b").succeeded, MANY as u64);
}

#[test]
fn steps_whose_answers_are_lost_and_nodes_that_race_do_nothing_twice() {
    let world = World::new();
    let job = begin(&world, of("b", "@now", MANY));
    let between = Arc::new(Between::new(world.store.clone()));
    let losing = world.twin(between.clone());
    between.loses_answers.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        assert!(block_on(losing.engine.operate(&losing.epochs)).is_err(), "the answer is lost");
    }
    between.loses_answers.store(false, Ordering::Relaxed);
    // Another node does the same step just before.
    let racing = engine(world.store.clone(), world.clock.clone(), 9);
    let epochs = world.epochs.clone();
    *between.before_step.lock().unwrap() = Some(Box::new(move || {
        block_on(racing.operate(&epochs)).unwrap();
    }));
    losing.operate();
    assert_each_once(&world, job, MANY, 1);
    let claimed = claim(&world, 1_000);
    finish(&world, &claimed, well);
    world.clock.advance(seconds(10));
    between.loses_answers.store(true, Ordering::Relaxed);
    assert!(block_on(losing.engine.operate(&losing.epochs)).is_err());
    assert_eq!(messages(&world).len(), 1, "the message is in the commit whose answer is lost");
    between.loses_answers.store(false, Ordering::Relaxed);
    losing.operate();
    work_off(&world, well);
    assert_eq!(messages(&world).len(), 1);
}

#[test]
fn slots_that_overlap_are_told_each_for_itself() {
    let world = World::new();
    let job = begin(&world, of("b", "*/10 * * * *", 300));
    world.advance(seconds(600));
    world.operate();
    // The second slot comes while the first goes on.
    world.advance(seconds(600));
    world.operate();
    assert_each_once(&world, job, 300, 2);
    assert_eq!(see(&world, "b").slot, Some(at("12:20:00")));
    let first: Vec<Run> = claim(&world, 300);
    assert!(first.iter().all(|run| run.scheduled_for == at("12:10:00")), "the older slot goes first");
    finish(&world, &first, well);
    world.clock.advance(seconds(60));
    world.operate();
    let told = messages(&world);
    assert_eq!(told.len(), 1, "the second goes on");
    assert_eq!(told[0]["scheduled_for"], "2026-01-01T12:10:00Z");
    let rest = claim(&world, 300);
    finish(&world, &rest, well);
    world.clock.advance(seconds(60));
    world.operate();
    let told = messages(&world);
    assert_eq!((told.len(), &told[0]["scheduled_for"]), (2, &"2026-01-01T12:20:00Z".into()));
    assert_eq!(told[0]["counts"]["succeeded"], 300);
    assert!(!operation(&world, job, at("12:10:00")).is_running());
}

#[test]
fn a_redriven_item_counts_again_and_is_not_told_again() {
    let world = World::new();
    let job = begin(&world, of("b", "@now", 3));
    world.operate();
    let claimed = claim(&world, 9);
    // One dies and is redriven while the others go on: the batch is not complete.
    finish(&world, &claimed[..1], |_| Outcome::Failed);
    redrive(&world, &claimed[0]);
    finish(&world, &claimed[1..], |_| Outcome::Failed);
    world.clock.advance(seconds(60));
    world.operate();
    assert_eq!((messages(&world).len(), see(&world, "b").state()), (0, "running"));
    work_off(&world, |run| if run.kind.is_some() { Outcome::Succeeded } else { Outcome::Failed });
    assert_eq!(messages(&world)[0]["counts"]["failed"], 3);
    // Redriven afterwards, it counts as it stands, and the callback is not repeated.
    let dead = all(&world, RunFilter { is_dead: Some(true), job: Some(job), ..RunFilter::default() });
    redrive(&world, &dead[0]);
    assert_eq!((see(&world, "b").state(), counts(&world, "b").pending), ("running", 1));
    work_off(&world, well);
    let seen = see(&world, "b");
    assert_eq!(
        (seen.state(), seen.counts.unwrap().succeeded, seen.counts.unwrap().failed),
        ("completed", 1, 2)
    );
    assert_eq!(messages(&world).len(), 1);
}

#[test]
fn cancelling_ends_what_waits_asks_what_runs_and_begins_nothing() {
    let mut world = World::new();
    let job = begin(&world, of("b", "@now", MANY));
    // A step has given birth to some of them.
    block_on(world.engine.operate(&world.epochs)).unwrap();
    let born = items(&world, job).len();
    assert!(born > 10 && born < MANY, "{born}");
    let running = claim(&world, 4);
    finish(&world, &running[..1], well);
    block_on(world.engine.cancel_batch(TENANT, "b")).unwrap();
    block_on(world.engine.cancel_batch(TENANT, "b")).unwrap();
    let seen = see(&world, "b");
    assert_eq!(
        (seen.state(), seen.counts.unwrap().running, seen.counts.unwrap().succeeded),
        ("cancelled", 3, 1)
    );
    assert_eq!(seen.counts.unwrap().cancelled, MANY as u64 - 4);
    world = world.killed_and_started(77);
    world.operate();
    assert_eq!(items(&world, job).len(), born, "no item is begun any more");
    assert_eq!(messages(&world).len(), 0, "those that run are waited for");
    let asked: Vec<Run> = items(&world, job).into_iter().filter(|run| !run.state.is_ended()).collect();
    assert!(asked.len() == 3 && asked.iter().all(|run| run.is_cancel_requested));
    finish(&world, &asked, |_| Outcome::Cancelled);
    work_off(&world, well);
    let told = messages(&world);
    assert_eq!((told.len(), &told[0]["is_cancelled"]), (1, &true.into()));
    assert_eq!((&told[0]["counts"]["cancelled"], &told[0]["counts"]["succeeded"]), (&599.into(), &1.into()));
}

#[test]
fn the_operation_asks_those_that_the_cancellation_did_not_reach() {
    let world = World::new();
    let job = begin(&world, of("b", "@now", 2));
    world.operate();
    let running = claim(&world, 9);
    // The node dies after the commit of the cancellation: nobody was asked.
    let mut cancelled = Job::clone(&world.job_of_id(job));
    let batch = Batch::clone(cancelled.spec.batch.as_ref().unwrap());
    cancelled.spec.batch = Some(Arc::new(Batch { cancelled_at: Some(world.clock.now()), ..batch }));
    cancelled.version = cancelled.version.next();
    block_on(world.store.put_jobs(vec![changed(cancelled)], world.clock.now())).unwrap().remove(0).unwrap();
    world.clock.advance(seconds(10));
    world.operate();
    let runs = items(&world, job);
    assert!(runs.iter().all(|run| run.is_cancel_requested), "{runs:?}");
    finish(&world, &running, |_| Outcome::Cancelled);
    work_off(&world, well);
    assert_eq!(messages(&world)[0]["counts"]["cancelled"], 2);
}

fn changed(job: Job) -> punctual_store::Put {
    punctual_store::Put {
        expect: punctual_store::Expect::Version(punctual_domain::Version(job.version.0 - 1)),
        due: None,
        due_when: punctual_store::DueWhen::Always,
        carry: None,
        unfired: Vec::new(),
        birth: None,
        open_runs: punctual_store::OpenRuns::Keep,
        limits: punctual_domain::policy::limit::Limits::NONE,
        lets_overlap: false,
        ledger: Vec::new(),
        request: None,
        job: Arc::new(job),
        audit: None,
    }
}

#[test]
fn a_slot_of_which_no_item_was_begun_is_accounted_for() {
    let world = World::new();
    let job = begin(&world, of("b", "@now", 3));
    block_on(world.engine.cancel_batch(TENANT, "b")).unwrap();
    work_off(&world, well);
    assert_eq!(items(&world, job), []);
    let ledger = block_on(world.store.ledger(job, PageRequest::first(9))).unwrap().items;
    assert_eq!((ledger.len(), ledger[0].fate, ledger[0].from), (1, Fate::SkippedCancel, at("12:00:00")));
    assert_eq!(messages(&world)[0]["counts"]["cancelled"], 3);
    // Before its time comes, nothing has begun and nothing is told.
    begin(&world, of("later", "@at 2026-01-01T13:00:00Z", 3));
    block_on(world.engine.cancel_batch(TENANT, "later")).unwrap();
    world.advance(seconds(3_700));
    work_off(&world, well);
    assert_eq!((messages(&world).len(), see(&world, "later").state()), (1, "cancelled"));
    assert_eq!(world.due(), [], "no slot comes any more");
}

#[test]
fn a_completed_batch_is_not_cancelled_and_a_deleted_one_is_not_told() {
    let world = World::new();
    begin(&world, of("b", "@now", 2));
    work_off(&world, well);
    let refused = block_on(world.engine.cancel_batch(TENANT, "b"));
    assert_eq!(refused, Err(Error::WrongState { state: "completed", action: "cancelled" }));
    let job = begin(&world, of("gone", "@now", MANY));
    block_on(world.engine.operate(&world.epochs)).unwrap();
    block_on(world.engine.delete(TENANT, job, None)).unwrap();
    work_off(&world, well);
    assert!(items(&world, job).iter().all(|run| run.state == RunState::Cancelled));
    assert_eq!(messages(&world).len(), 1, "of the first alone");
    begin(&world, of("gone", "@now", 2));
}

#[test]
fn a_pause_and_a_full_backlog_hold_what_is_not_begun() {
    let world = World::new();
    let job = begin(&world, of("b", "@now", MANY));
    block_on(world.engine.operate(&world.epochs)).unwrap();
    let born = items(&world, job).len();
    block_on(world.engine.pause(TENANT, job, None, pause())).unwrap();
    world.operate();
    assert_eq!((items(&world, job).len(), see(&world, "b").state()), (born, "paused"));
    block_on(world.engine.resume(TENANT, job, None)).unwrap();
    world.engine.set_caps(Caps { tenant: born as u64 + 50, ..Caps::default() });
    world.clock.advance(seconds(10));
    world.operate();
    assert_eq!(items(&world, job).len(), born + 50);
    work_off(&world, well);
    assert_each_once(&world, job, MANY, 1);
    assert_eq!(messages(&world).len(), 1);
}

#[test]
fn an_edit_keeps_the_items_and_what_cannot_be_had_together_is_refused() {
    let world = World::new();
    let job = begin(&world, of("b", "0 13 * * *", 3));
    let edited = Spec { key: Some("b".into()), priority: 7, ..spec("0 14 * * *") };
    let edited = block_on(world.engine.update(TENANT, job, None, edited, Waiting::Keep)).unwrap();
    assert_eq!(edited.job.spec.batch.as_ref().unwrap().items.len(), 3);
    let mut skipping = Spec { key: Some("b".into()), ..spec("0 14 * * *") };
    skipping.policies.overlap = Overlap::Skip;
    let refused = block_on(world.engine.update(TENANT, job, None, skipping, Waiting::Keep));
    assert!(matches!(refused, Err(Error::Edit(_))), "{refused:?}");
    let triggered = block_on(world.engine.trigger(TENANT, job, None, None));
    assert_eq!(triggered.map(|_| ()), Err(Error::WrongState { state: "batch", action: "triggered" }));
    world.advance(seconds(7_200));
    work_off(&world, well);
    assert_each_once(&world, job, 3, 1);
    assert!(items(&world, job).iter().all(|run| run.priority == 7));
}
