//! One change of many jobs or runs, with a moved clock: each once, through crashes, lost answers, races and cancellations;
//! as they are when their turn comes; without making a slot late.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::between::Between;
use crate::support::world::{TENANT, World, at, engine, pause, spec};
use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::bulk::{CancelRuns, Change, ChangeJobs, Jobs};
use punctual_domain::id::{JobId, OperationId, WorkerId};
use punctual_domain::job::{Job, JobState, Spec};
use punctual_domain::operation::{Kind, Operation, State};
use punctual_domain::run::{Run, RunState};
use punctual_engine::bulk::Edit;
use punctual_engine::register::Waiting;
use punctual_engine::{Clock, Engine, Error, Node, Options};
use punctual_schedule::Schedule;
use punctual_store::{Claim, JobFilter, Memory, PageRequest, RunFilter, Shards, Store};

/// More than three steps' worth.
const MANY: usize = 350;

/// Knows one patch, `queue=NAME` or `schedule=TEXT`, and jobs that must not be touched.
struct Editor;

impl Edit for Editor {
    fn edit(&self, old: &Spec, patch: &str) -> Result<Spec, String> {
        match patch.split_once('=') {
            _ if old.name == "fragile" => Err("it would break".into()),
            Some(("queue", name)) => Ok(Spec { queue: name.into(), ..old.clone() }),
            Some(("schedule", text)) => Ok(Spec { schedule: Schedule::parse(text).unwrap(), ..old.clone() }),
            _ => Err("this is no patch".into()),
        }
    }
}

fn world() -> World {
    let world = World::new();
    world.engine.edit_by(Arc::new(Editor));
    world
}

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

/// So many jobs in a queue, registered a moment ago.
fn with_jobs(count: usize, queue: &str) -> World {
    let world = world();
    add(&world, count, queue);
    world
}

fn add(world: &World, count: usize, queue: &str) -> Vec<JobId> {
    let specs = (0..count).map(|_| (Spec { queue: queue.into(), ..spec("@every 1h") }, None)).collect();
    let registered = block_on(world.engine.register(TENANT, specs)).unwrap();
    world.clock.advance(SignedDuration::from_millis(2));
    registered.into_iter().map(|one| one.unwrap().job.id).collect()
}

/// All jobs, oldest first.
fn jobs(world: &World) -> Vec<Arc<Job>> {
    let mut page = PageRequest::first(1_000);
    let mut all = Vec::new();
    loop {
        let found = block_on(world.store.list_jobs(&JobFilter::default(), page.clone())).unwrap();
        all.extend(found.items.into_iter().map(|stored| stored.job));
        match found.next {
            Some(next) => page.after = Some(next),
            None => return all,
        }
    }
}

fn job(world: &World, id: JobId) -> Arc<Job> {
    block_on(world.engine.job(TENANT, id)).unwrap().job
}

fn versions(world: &World) -> Vec<u32> {
    let mut versions: Vec<u32> = jobs(world).iter().map(|job| job.version.0).collect();
    versions.dedup();
    versions
}

fn in_queue(name: &str) -> Jobs {
    Jobs { queue: Some(name.into()), ..Jobs::default() }
}

fn edit(patch: &str) -> Change {
    Change::Edit { patch: patch.into(), updates_waiting: false }
}

fn stop() -> Change {
    Change::Pause { reason: Some("maintenance".into()), by: Some("ops".into()), until: None }
}

fn start(world: &World, which: Jobs, change: Change) -> OperationId {
    let kind = Kind::ChangeJobs(Box::new(ChangeJobs { which, change }));
    block_on(world.engine.start_operation(TENANT, kind, None, |_, _| ())).unwrap().id
}

fn read(world: &World, id: OperationId) -> Operation {
    block_on(world.engine.operation(TENANT, id)).unwrap()
}

fn counts(world: &World, id: OperationId) -> (State, u64, u64) {
    let operation = read(world, id);
    (operation.state, operation.done, operation.failed)
}

fn one_pass(world: &World) -> usize {
    block_on(world.engine.operate(&world.epochs)).unwrap().steps
}

fn runs(world: &World, filter: &RunFilter) -> Vec<Run> {
    block_on(world.store.runs(filter, PageRequest::first(10_000))).unwrap().items
}

#[test]
fn jobs_of_a_filter_are_paused_resumed_edited_and_deleted() {
    let world = with_jobs(MANY, "slow");
    let others = add(&world, 20, "fast");
    let paused = start(&world, in_queue("slow"), stop());
    world.operate();
    assert_eq!(counts(&world, paused), (State::Succeeded, MANY as u64, 0));
    for job in jobs(&world) {
        match &job.state {
            JobState::Paused(pause) => {
                assert_eq!((&*job.spec.queue, job.version.0), ("slow", 2));
                assert_eq!(
                    (pause.reason.as_deref(), pause.by.as_deref()),
                    (Some("maintenance"), Some("ops"))
                );
            }
            _ => assert_eq!((&*job.spec.queue, job.version.0), ("fast", 1)),
        }
    }
    assert!(world.due().iter().all(|due| others.contains(&due.key.job)), "what is paused is not due");
    let again = start(&world, in_queue("slow"), stop());
    world.operate();
    assert_eq!(counts(&world, again), (State::Succeeded, 0, 0), "they are paused already");
    let resumed = start(&world, Jobs { state: Some("paused"), ..Jobs::default() }, Change::Resume);
    world.operate();
    assert_eq!(counts(&world, resumed), (State::Succeeded, MANY as u64, 0));
    assert!(jobs(&world).iter().all(|job| job.is_active()));
    let edited = start(&world, in_queue("slow"), edit("queue=other"));
    world.operate();
    assert_eq!(counts(&world, edited), (State::Succeeded, MANY as u64, 0));
    let deleted = start(&world, in_queue("other"), Change::Delete);
    world.operate();
    assert_eq!(counts(&world, deleted), (State::Succeeded, MANY as u64, 0));
    let left: BTreeSet<JobId> = jobs(&world).iter().map(|job| job.id).collect();
    assert_eq!(left, others.into_iter().collect());
    assert_eq!(versions(&world), [1]);
}

#[test]
fn a_restart_after_every_step_goes_on_where_it_was_and_changes_each_job_once() {
    for change in [edit("queue=fast"), stop(), Change::Delete] {
        let mut world = with_jobs(MANY, "slow");
        let id = start(&world, Jobs::default(), change.clone());
        for node in 1..=20 {
            let before = read(&world, id).done;
            one_pass(&world);
            if !read(&world, id).is_running() {
                break;
            }
            assert!(read(&world, id).done > before || node > 3, "it goes on after restart {node}");
            world = world.killed_and_started(node);
            world.engine.edit_by(Arc::new(Editor));
        }
        assert_eq!(counts(&world, id), (State::Succeeded, MANY as u64, 0), "{change:?}");
        match change {
            Change::Delete => assert_eq!(jobs(&world).len(), 0),
            _ => assert_eq!((jobs(&world).len(), versions(&world)), (MANY, vec![2])),
        }
    }
}

#[test]
fn a_step_whose_answer_is_lost_is_not_done_again() {
    let world = with_jobs(MANY, "slow");
    let lossy = Arc::new(Between::new(world.store.clone()));
    let node = world.twin(lossy.clone());
    node.engine.edit_by(Arc::new(Editor));
    let id = start(&world, Jobs::default(), edit("queue=fast"));
    lossy.loses_answers.store(true, Ordering::Relaxed);
    for _ in 0..10 {
        if !read(&world, id).is_running() {
            break;
        }
        assert!(matches!(block_on(node.engine.operate(&node.epochs)), Err(Error::Store(_))));
    }
    assert_eq!(counts(&world, id), (State::Succeeded, MANY as u64, 0));
    assert_eq!(versions(&world), [2]);
}

#[test]
fn two_engines_on_one_store_never_change_a_job_twice() {
    let world = with_jobs(MANY, "slow");
    let between = Arc::new(Between::new(world.store.clone()));
    let slow = world.twin(between.clone());
    slow.engine.edit_by(Arc::new(Editor));
    let id = start(&world, Jobs::default(), edit("queue=fast"));
    let rival = world.twin(world.store.clone());
    rival.engine.edit_by(Arc::new(Editor));
    *between.before_step.lock().unwrap() = Some(Box::new(move || assert_eq!(one_pass(&rival), 1)));
    assert_eq!(one_pass(&slow), 0, "nothing of its step is done");
    while read(&world, id).is_running() {
        one_pass(&slow);
        one_pass(&world);
    }
    assert_eq!(counts(&world, id), (State::Succeeded, MANY as u64, 0));
    assert_eq!(versions(&world), [2]);
}

#[test]
fn cancelling_takes_effect_between_two_steps() {
    let world = with_jobs(MANY, "slow");
    let id = start(&world, Jobs::default(), edit("queue=fast"));
    assert_eq!(one_pass(&world), 1);
    let cancelled = block_on(world.engine.cancel_operation(TENANT, id)).unwrap();
    assert_eq!((cancelled.state, cancelled.done), (State::Cancelled, 100), "what it did stays done");
    assert_eq!(world.operate(), 0);
    assert_eq!(jobs(&world).iter().filter(|job| &*job.spec.queue == "fast").count(), 100);
}

#[test]
fn a_job_is_changed_as_it_is_when_its_turn_comes_and_a_new_one_is_not() {
    let world = with_jobs(100, "slow");
    let later = add(&world, 4, "slow");
    let id = start(&world, in_queue("slow"), stop());
    assert_eq!(one_pass(&world), 1, "the first hundred");
    // Before their turn: one moves away, one is deleted, one is edited and still matches.
    let spec = |queue: &str| Spec { queue: queue.into(), ..spec("@every 2h") };
    for (job, queue) in [(later[0], "away"), (later[1], "slow")] {
        block_on(world.engine.update(TENANT, job, None, spec(queue), Waiting::Keep)).unwrap();
    }
    block_on(world.engine.delete(TENANT, later[2], None)).unwrap();
    world.clock.advance(seconds(1));
    let new = add(&world, 3, "slow");
    world.operate();
    assert_eq!(counts(&world, id), (State::Succeeded, 102, 0));
    assert!(job(&world, later[0]).is_active(), "it is not one of them any more");
    let edited = job(&world, later[1]);
    assert_eq!((edited.version.0, edited.is_active()), (3, false));
    assert_eq!(edited.spec.schedule, spec("slow").schedule, "its owner's edit stays");
    assert!(new.iter().all(|id| job(&world, *id).is_active()), "registered after the start");
}

#[test]
fn what_changes_between_plan_and_commit_is_tried_again() {
    let world = world();
    let ids = add(&world, 3, "slow");
    let every_minute = Spec { queue: "slow".into(), ..spec("* * * * *") };
    let due = world.try_register(every_minute).unwrap().job.id;
    world.clock.advance(seconds(59));
    let between = Arc::new(Between::new(world.store.clone()));
    let node = world.twin(between.clone());
    let id = start(&world, in_queue("slow"), stop());
    // After the step was planned a slot is fired, and a job is edited.
    let rival = world.twin(world.store.clone());
    let edited = ids[1];
    *between.before_step.lock().unwrap() = Some(Box::new(move || {
        assert_eq!(rival.advance(seconds(10)).runs.len(), 1);
        let spec = Spec { queue: "slow".into(), ..spec("@every 3h") };
        block_on(rival.engine.update(TENANT, edited, None, spec, Waiting::Keep)).unwrap();
    }));
    assert_eq!(one_pass(&node), 1);
    let operation = read(&world, id);
    assert_eq!((operation.done, operation.failed, operation.left.len()), (2, 0, 2), "{operation:?}");
    node.operate();
    assert_eq!(counts(&world, id), (State::Succeeded, 4, 0));
    assert_eq!((job(&world, edited).version.0, job(&world, due).version.0), (3, 2));
    assert!(jobs(&world).iter().all(|job| !job.is_active()));
    assert_eq!(runs(&world, &RunFilter::default()).len(), 1, "the slot became a run, once");
    assert!(world.due().iter().all(|entry| entry.version.0 == 1), "what is left is stale");
}

#[test]
fn what_is_changed_by_others_all_the_time_is_counted_as_failed() {
    let world = world();
    let ids = add(&world, 2, "slow");
    let between = Arc::new(Between::new(world.store.clone()));
    let node = world.twin(between.clone());
    let id = start(&world, in_queue("slow"), stop());
    for round in 0..8 {
        let rival = world.twin(world.store.clone());
        let busy = ids[0];
        *between.before_step.lock().unwrap() = Some(Box::new(move || {
            let spec = Spec { queue: "slow".into(), priority: round, ..spec("@every 3h") };
            block_on(rival.engine.update(TENANT, busy, None, spec, Waiting::Keep)).unwrap();
        }));
        one_pass(&node);
    }
    assert_eq!(counts(&world, id), (State::Succeeded, 1, 1));
    let example = read(&world, id).example.unwrap();
    assert!(example.contains(&ids[0].to_string()) && example.contains("by others"), "{example}");
}

#[test]
fn jobs_that_would_not_be_valid_are_counted_with_an_example() {
    let world = with_jobs(5, "slow");
    let fragile = Spec { name: "fragile".into(), queue: "slow".into(), ..spec("@every 1h") };
    let fragile = world.try_register(fragile).unwrap().job.id;
    let id = start(&world, in_queue("slow"), edit("queue=fast"));
    world.operate();
    assert_eq!(counts(&world, id), (State::Succeeded, 5, 1));
    let example = read(&world, id).example.unwrap();
    assert_eq!(example, format!("job {fragile}: it would break"));
    assert_eq!(job(&world, fragile).version.0, 1);
    // A schedule without a slot to come is refused job by job, too.
    let id = start(&world, in_queue("fast"), edit("schedule=@at 2020-01-01T00:00:00Z"));
    world.operate();
    assert_eq!(counts(&world, id), (State::Succeeded, 0, 5));
}

#[test]
fn ended_jobs_are_deleted_by_their_state_and_have_no_use_for_a_pause() {
    let world = with_jobs(2, "slow");
    for _ in 0..3 {
        world.register("@now");
    }
    let claim = Claim {
        worker: WorkerId::new(world.clock.now(), 1),
        queues: Vec::new(),
        labels: Default::default(),
        shards: Shards::All,
        limit: 10,
    };
    for run in block_on(world.store.claim(claim, world.clock.now())).unwrap() {
        block_on(world.engine.cancel(TENANT, run.id())).unwrap();
    }
    let open = runs(&world, &RunFilter { is_open: true, ..RunFilter::default() });
    assert_eq!(open.len(), 3, "asked to stop, and running");
    let ended = || Jobs { state: Some("ended"), ..Jobs::default() };
    let id = start(&world, ended(), Change::Delete);
    world.operate();
    assert_eq!(counts(&world, id), (State::Succeeded, 0, 0), "a run of them is open");
    let worker = WorkerId::new(world.clock.now(), 1);
    for run in open {
        let held = punctual_store::Held::from(&run);
        let verdict = punctual_domain::lifecycle::Verdict::Cancel;
        let conclusion = punctual_store::Conclusion {
            worker,
            held,
            report: None,
            verdict,
            successor: None,
            messages: Vec::new(),
            limits: None,
        };
        block_on(world.store.complete(vec![conclusion], world.clock.now())).unwrap().remove(0).unwrap();
    }
    let id = start(&world, Jobs::default(), stop());
    world.operate();
    assert_eq!(counts(&world, id), (State::Succeeded, 2, 0));
    let id = start(&world, ended(), Change::Delete);
    world.operate();
    assert_eq!((counts(&world, id), jobs(&world).len()), ((State::Succeeded, 3, 0), 2));
}

#[test]
fn open_runs_of_a_filter_are_cancelled_once() {
    let mut world = world();
    let slow = world.try_register(Spec { queue: "slow".into(), ..spec("@every 1h") }).unwrap().job.id;
    let other = world.register("@every 1h").job.id;
    let now = world.clock.now();
    for _ in 0..MANY {
        block_on(world.engine.trigger(TENANT, slow, None, None)).unwrap();
    }
    block_on(world.engine.trigger(TENANT, other, None, None)).unwrap();
    let worker = WorkerId::new(now, 1);
    let queues = vec!["slow".into()];
    let claim = Claim { worker, queues, labels: Default::default(), shards: Shards::All, limit: 10 };
    assert_eq!(block_on(world.store.claim(claim, now)).unwrap().len(), 10);
    world.clock.advance(SignedDuration::from_millis(2));
    let which = CancelRuns { queue: Some("slow".into()), ..CancelRuns::default() };
    let preview = block_on(world.engine.preview_cancel(TENANT, &which, None)).unwrap();
    assert_eq!((preview.matched, preview.changes, preview.examples.len()), (MANY as u64, MANY as u64, 5));
    let start = |world: &World, which: CancelRuns| {
        let kind = Kind::CancelRuns(which);
        block_on(world.engine.start_operation(TENANT, kind, None, |_, _| ())).unwrap().id
    };
    let id = start(&world, which.clone());
    for node in 1..10 {
        one_pass(&world);
        if !read(&world, id).is_running() {
            break;
        }
        // What is born after the start stays.
        block_on(world.engine.trigger(TENANT, slow, None, None)).unwrap();
        world = world.killed_and_started(node);
    }
    assert_eq!(counts(&world, id), (State::Succeeded, MANY as u64, 0));
    let cancelled = runs(&world, &RunFilter { state: Some("cancelled"), ..RunFilter::default() });
    assert_eq!(cancelled.len(), MANY - 10);
    let open = runs(&world, &RunFilter { is_open: true, ..RunFilter::default() });
    let asked = open.iter().filter(|run| run.is_cancel_requested && run.lease().is_some()).count();
    assert_eq!(asked, 10, "running ones are asked to stop");
    assert_eq!(open.iter().filter(|run| run.job == other).count(), 1);
    assert!(open.iter().filter(|run| !run.is_cancel_requested).count() > 1, "born later");
    let pending = CancelRuns { state: Some("pending"), ..which };
    let id = start(&world, pending);
    world.operate();
    let (state, done, failed) = counts(&world, id);
    assert!((state, failed) == (State::Succeeded, 0) && done > 0, "{done}");
    assert!(
        runs(&world, &RunFilter { state: Some("pending"), ..RunFilter::default() })
            .iter()
            .all(|run| run.job == other)
    );
}

#[test]
fn cancelling_the_run_of_a_period_from_completion_brings_the_next_slot() {
    let world = world();
    let job = world.register("@every 10m from completion").job.id;
    assert_eq!(world.advance(seconds(1)).runs.len(), 1);
    assert_eq!(world.due().len(), 0, "an open run brings the next slot");
    let between = Arc::new(Between::new(world.store.clone()));
    let node = world.twin(between.clone());
    let kind = Kind::CancelRuns(CancelRuns::default());
    let id = block_on(world.engine.start_operation(TENANT, kind, None, |_, _| ())).unwrap().id;
    // The job is edited when the step was planned already: the next slot is found anew.
    let rival = world.twin(world.store.clone());
    *between.before_step.lock().unwrap() = Some(Box::new(move || {
        let spec = spec("@every 20m from completion");
        block_on(rival.engine.update(TENANT, job, None, spec, Waiting::Keep)).unwrap();
    }));
    assert_eq!(one_pass(&node), 1);
    assert_eq!((read(&world, id).done, read(&world, id).left.len()), (0, 1));
    node.operate();
    assert_eq!(counts(&world, id), (State::Succeeded, 1, 0));
    let due = world.due();
    assert_eq!(due.iter().map(|due| due.slot).collect::<Vec<_>>(), [world.clock.now() + seconds(1_200)]);
}

#[test]
fn a_dry_run_says_what_the_operation_then_does_and_changes_nothing() {
    let world = with_jobs(120, "slow");
    let fragile = Spec { name: "fragile".into(), queue: "slow".into(), ..spec("@every 1h") };
    world.try_register(fragile).unwrap();
    block_on(world.engine.pause(TENANT, jobs(&world)[0].id, None, pause())).unwrap();
    world.clock.advance(seconds(1));
    for (change, expected) in [
        (stop(), (121, 120, 0)),
        (Change::Resume, (121, 120 + 1, 0)),
        (edit("queue=slow"), (121, 0, 1)),
        (edit("queue=fast"), (121, 120, 1)),
    ] {
        let before = jobs(&world);
        let asked = ChangeJobs { which: in_queue("slow"), change: change.clone() };
        let preview = block_on(world.engine.preview_jobs(TENANT, &asked, None)).unwrap();
        let told = (preview.matched, preview.changes, preview.failed);
        assert_eq!(told, expected, "{change:?}");
        assert_eq!(preview.failure.is_some(), preview.failed > 0);
        assert_eq!((preview.examples.len() as u64, preview.next), (preview.changes.min(5), None));
        assert_eq!(jobs(&world), before, "nothing has changed");
        let id = start(&world, in_queue("slow"), change);
        world.operate();
        let operation = read(&world, id);
        assert_eq!((operation.done, operation.failed), (preview.changes, preview.failed));
    }
}

#[test]
fn a_long_dry_run_is_counted_in_parts() {
    let world = with_jobs(10_500, "slow");
    let asked = ChangeJobs { which: in_queue("slow"), change: stop() };
    let first = block_on(world.engine.preview_jobs(TENANT, &asked, None)).unwrap();
    assert_eq!(first.matched, 10_000);
    let second = block_on(world.engine.preview_jobs(TENANT, &asked, first.next)).unwrap();
    assert_eq!((second.matched, second.next), (500, None));
}

/// Lets every task run until all of them wait: there is one thread and nothing else to wait for.
async fn settle() {
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
}

/// Each step takes time, as it does in a database that is busy with it.
#[tokio::test]
async fn an_edit_of_many_jobs_makes_no_slot_late() {
    let store = Arc::new(Memory::new(16));
    let clock = Arc::new(punctual_engine::ManualClock::new(at("12:00:00")));
    let between = Arc::new(Between::new(store.clone()));
    let step = SignedDuration::from_millis(200);
    let slow_clock = clock.clone();
    *between.each_step.lock().unwrap() = Some(Box::new(move || slow_clock.advance(step)));
    let engine: Arc<Engine> = Arc::new(engine(between.clone(), clock.clone(), 1));
    engine.edit_by(Arc::new(Editor));
    let jobs = (0..3_000).map(|_| (Spec { queue: "slow".into(), ..spec("@every 1h") }, None)).collect();
    engine.register(TENANT, jobs).await.unwrap();
    let ticks = (0..5).map(|_| (Spec { queue: "ticks".into(), ..spec("@every 1s") }, None)).collect();
    engine.register(TENANT, ticks).await.unwrap();
    clock.advance(SignedDuration::from_millis(2));
    let node = Node::start(engine.clone(), engine.new_worker_id(), Options::default()).await.unwrap();
    settle().await;
    let kind = Kind::ChangeJobs(Box::new(ChangeJobs { which: Jobs::default(), change: edit("queue=fast") }));
    let id = engine.start_operation(TENANT, kind, None, |_, _| ()).await.unwrap().id;
    for _ in 0..100 {
        settle().await;
        if !engine.operation(TENANT, id).await.unwrap().is_running() {
            break;
        }
        clock.advance(SignedDuration::from_millis(50));
    }
    let operation = engine.operation(TENANT, id).await.unwrap();
    assert_eq!((operation.state, operation.done, operation.failed), (State::Succeeded, 3_005, 0));
    let fired = store.runs(&RunFilter::default(), PageRequest::first(1_000)).await.unwrap().items;
    let took = clock.now().duration_since(at("12:00:00"));
    assert!(took > seconds(5), "it took a while: {took}");
    let slots = fired.iter().filter(|run| &*run.queue == "ticks" || &*run.queue == "fast");
    assert!(slots.count() as i64 >= 5 * (took.as_secs() - 1), "{} in {took}", fired.len());
    for run in &fired {
        let late = run.sequence.born_at().duration_since(run.scheduled_for);
        assert!(late <= step * 2, "{late} late, which is more than the step it may have met");
        assert!(matches!(run.state, RunState::Pending(_) | RunState::Running(_)));
    }
    drop(node);
}
