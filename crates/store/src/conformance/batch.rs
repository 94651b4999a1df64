//! Batches: a job is kept with its items, each of which has one run a slot, and the end of their operation brings one message.

use std::sync::Arc;

use punctual_domain::batch::{self, Batch, Item};
use punctual_domain::id::Version;
use punctual_domain::job::{Job, JobState, Target};
use punctual_domain::lifecycle::Verdict;
use punctual_domain::operation::{BatchSlot, Cursor, Event, Kind, Operation, State};
use punctual_domain::run::{Cause, Run, RunState};
use punctual_domain::{Outcome, message};

use super::world::{World, birth};
use crate::error::Refused;
use crate::page::PageRequest;
use crate::store::Store;
use crate::verbs::{Birth, Effect, Firing, JobFilter, OpenRuns, Put, RunFilter, Step, Stepped};

/// A job with so many items.
fn batch(world: &mut World, items: usize) -> Job {
    let item = |n: usize| Item {
        id: format!("item-{n}").into(),
        payload: n.is_multiple_of(2).then(|| format!("{{\"n\" : {n}.0}}").into()),
    };
    let mut job = world.job("batch");
    job.spec.batch = Some(Arc::new(Batch {
        items: (0..items).map(item).collect(),
        on_complete: Some(Target::Discard),
        fingerprint: [3; 16],
        cancelled_at: None,
    }));
    job
}

fn operation(world: &World, job: &Job) -> Operation {
    let kind = Kind::Batch(BatchSlot { job: job.id, slot: world.now });
    let mut operation = Operation::new(batch::operation_id(job.id, world.now), job.tenant, kind, world.now);
    operation.cursor = Cursor::Item(0);
    operation
}

/// The firing of a slot, which starts the operation that gives birth to its items.
async fn fire(world: &World, job: &Job) -> Operation {
    let operation = operation(world, job);
    let firing = world.firing(job, world.now);
    let firing = Firing { births: Vec::new(), operation: Some(operation.clone()), ..firing };
    assert_eq!(world.try_firing(firing).await.expect("fired"), []);
    operation
}

fn births(world: &World, job: &Job) -> Vec<Birth> {
    let items = job.spec.batch.as_ref().map(|batch| batch.items.iter()).into_iter().flatten();
    let birth = |(place, item): (usize, &Item)| Birth {
        cause: Cause::Batch,
        part: batch::part(place),
        payload: item.payload.clone(),
        ..birth(job, world.now)
    };
    items.enumerate().map(birth).collect()
}

async fn try_step(
    world: &World,
    operation: &mut Operation,
    event: Event,
    effect: Effect,
) -> Result<Stepped, Refused> {
    let mut next = operation.clone();
    next.apply(event, world.now).expect("running");
    let epoch = Some(world.epochs[usize::from(next.id.shard().0)]);
    let step = Step { operation: next, epoch, effect, ledger: Vec::new(), request: None, audit: None };
    let answer = world.store.step(vec![step], world.now).await.expect("step").remove(0);
    if let Ok(stepped) = &answer {
        *operation = stepped.operation.clone();
    }
    answer
}

/// What makes a job a batch is there when it is put, changed or not, and batches are listed.
pub async fn a_batch_is_kept_with_its_items(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    world.register("no batch", world.now).await;
    let mut job = batch(&mut world, 5);
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    let listed = |store: Arc<dyn Store>| async move {
        let filter = JobFilter { is_batch: true, ..JobFilter::default() };
        let page = store.list_jobs(&filter, PageRequest::first(9)).await.expect("listed");
        page.items.into_iter().map(|stored| Job::clone(&stored.job)).collect::<Vec<Job>>()
    };
    assert_eq!(listed(store.clone()).await, [job.clone()]);
    let mut operation = fire(&world, &job).await;
    let cursor = Cursor::Item(5);
    let (version, births) = (job.version, births(&world, &job));
    let effect = Effect::Births { job: job.id, version, births, is_over: false };
    try_step(&world, &mut operation, Event::Stepped { cursor, resume_at: world.now }, effect.clone())
        .await
        .expect("born");
    // Nothing more is done of it: what waits ends, and nothing is born of it that was decided before.
    (job.version, job.state) = (Version(2), JobState::Ended);
    let cancelled =
        Batch { cancelled_at: Some(world.now), ..Batch::clone(job.spec.batch.as_ref().expect("items")) };
    job.spec.batch = Some(Arc::new(cancelled));
    let put = Put { open_runs: OpenRuns::CancelPending, ..world.put(job.clone(), None) };
    world.try_put(put).await.expect("cancelled");
    assert_eq!(listed(store.clone()).await, [job.clone()]);
    let filter = RunFilter { job: Some(job.id), ..RunFilter::default() };
    let runs = store.runs(&filter, PageRequest::first(9)).await.expect("runs").items;
    assert_eq!(runs.len(), 5);
    assert!(runs.iter().all(|run| run.state == RunState::Cancelled));
    let event = Event::Stepped { cursor: Cursor::Item(5), resume_at: world.now };
    let late = try_step(&world, &mut operation, event, effect).await;
    assert_eq!(late.map(|_| ()), Err(Refused::WrongVersion { current: Version(2) }));
}

/// Each item is a run with an identity and a payload of its own, from its birth to its history; a step that is repeated makes none.
pub async fn every_item_of_a_slot_has_one_run(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = batch(&mut world, 4);
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    let mut operation = fire(&world, &job).await;
    assert!(world.try_fire(&job, world.now).await.is_err(), "the slot is fired once");
    let before = operation.clone();
    let births = births(&world, &job);
    let effect = Effect::Births { job: job.id, version: job.version, births, is_over: false };
    let event = Event::Stepped { cursor: Cursor::Item(4), resume_at: world.now };
    let born = try_step(&world, &mut operation, event.clone(), effect.clone()).await.expect("born").runs;
    assert_eq!(try_step(&world, &mut before.clone(), event, effect).await, Err(Refused::StaleStep));
    let batch = job.spec.batch.as_ref().expect("items");
    let items = |runs: &[Run]| -> Vec<String> {
        runs.iter().filter_map(|run| batch.item(run)).map(|item| item.id.to_string()).collect()
    };
    assert_eq!(items(&born), ["item-0", "item-1", "item-2", "item-3"]);
    let worker = world.worker();
    let claimed = world.claim(worker, 10).await;
    assert_eq!(claimed.len(), 4);
    for run in &claimed {
        let item = batch.item(run).expect("an item");
        assert_eq!((run.cause, &run.payload), (Cause::Batch, &item.payload));
        world.conclude(worker, run, Outcome::Succeeded, Verdict::Succeed).await.expect("ended");
    }
    let filter = RunFilter { job: Some(job.id), ..RunFilter::default() };
    let mut ended = store.runs(&filter, PageRequest::first(9)).await.expect("runs").items;
    ended.reverse();
    assert_eq!(items(&ended), ["item-0", "item-1", "item-2", "item-3"]);
    let keys: std::collections::BTreeSet<String> =
        ended.iter().map(|run| run.idempotency_key().to_string()).collect();
    assert_eq!(keys.len(), 4);
}

/// The last step of an operation registers its message with its run; refused, it registers nothing. It counts for nothing.
pub async fn the_end_of_an_operation_brings_its_message(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = batch(&mut world, 1);
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    let mut operation = fire(&world, &job).await;
    let spec = message::spec(batch::MESSAGE, "completion".into(), Target::Discard, r#"{"done":1}"#.into());
    let id = batch::message_id(job.id, world.now, world.now);
    let told = Job { id, spec, ..world.job("message") };
    let born = birth(&told, world.now);
    let put = Put { birth: Some(born), ..world.put(told.clone(), None) };
    let effect = Effect::Message(Box::new(put));
    let mut stale = operation.clone();
    stale.version = Version(7);
    assert_eq!(try_step(&world, &mut stale, Event::Succeeded, effect.clone()).await, Err(Refused::StaleStep));
    assert!(store.jobs(&[id]).await.expect("jobs")[0].is_none());
    let mut before = operation.clone();
    let ended = try_step(&world, &mut operation, Event::Succeeded, effect.clone()).await.expect("ended");
    assert_eq!(
        (ended.operation.state, ended.operation.done, ended.operation.failed),
        (State::Succeeded, 0, 0)
    );
    assert_eq!(ended.operation.left, []);
    let again = try_step(&world, &mut before, Event::Succeeded, effect).await;
    assert_eq!(again, Err(Refused::StaleStep));
    let stored = store.jobs(&[id]).await.expect("jobs").remove(0).expect("registered");
    assert_eq!(*stored.job, told);
    let worker = world.worker();
    let claimed = world.claim(worker, 9).await;
    assert_eq!(claimed.iter().map(|run| run.job).collect::<Vec<_>>(), [id]);
    world.conclude(worker, &claimed[0], Outcome::Succeeded, Verdict::Succeed).await.expect("delivered");
}
