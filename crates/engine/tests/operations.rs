//! Operations with a moved clock: steps that are done once, through crashes, races, cancellations and edits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::between::Between;
use crate::support::world::{TENANT, World, at, pause, spec};
use futures_executor::block_on;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, OperationId, TenantId, WorkerId};
use punctual_domain::job::Spec;
use punctual_domain::ledger::{Fate, LedgerEntry};
use punctual_domain::lifecycle::Verdict;
use punctual_domain::operation::{DeadLetters, Kind, Operation, State};
use punctual_domain::policy::catch_up::CatchUp;
use punctual_domain::run::{Run, RunState};
use punctual_domain::{Outcome, Report, RunId};
use punctual_engine::operations::OperationFilter;
use punctual_engine::register::Waiting;
use punctual_engine::{Clock, Error};
use punctual_store::{Claim, Conclusion, Held, PageRequest, RunFilter, Shards, Store};

/// More than two steps' worth.
const MANY: usize = 600;

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

/// Lets every waiting run fail for good.
fn fail_all(world: &World) -> Vec<RunId> {
    let now = world.clock.now();
    let worker = WorkerId::new(now, now.as_millisecond() as u64 + 1);
    let claim =
        Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit: 10_000 };
    let runs = block_on(world.store.claim(claim, now)).unwrap();
    let report = Report { outcome: Outcome::Failed, ..Report::lost(now, now) };
    let conclusions = runs.iter().map(|run| Conclusion {
        worker,
        held: Held::from(run),
        report: Some(report.clone()),
        verdict: Verdict::Fail,
        successor: None,
        messages: Vec::new(),
        limits: None,
    });
    block_on(world.store.complete(conclusions.collect(), now)).unwrap();
    runs.iter().map(Run::id).collect()
}

/// So many dead letters of a job.
fn with_dead(count: usize) -> (World, JobId) {
    let world = World::new();
    let job = world.register("@every 1h").job.id;
    for _ in 0..count {
        block_on(world.engine.trigger(TENANT, job, None, None)).unwrap();
    }
    assert_eq!(fail_all(&world).len(), count);
    (world, job)
}

/// All runs, newest first.
fn runs(world: &World, filter: &RunFilter) -> Vec<Run> {
    let mut page = PageRequest::first(1_000);
    let mut all = Vec::new();
    loop {
        let found = block_on(world.store.runs(filter, page.clone())).unwrap();
        all.extend(found.items);
        match found.next {
            Some(next) => page.after = Some(next),
            None => return all,
        }
    }
}

fn dead(world: &World) -> Vec<RunId> {
    runs(world, &RunFilter { is_dead: Some(true), ..RunFilter::default() }).iter().map(Run::id).collect()
}

fn start(world: &World, kind: Kind) -> OperationId {
    block_on(world.engine.start_operation(TENANT, kind, None, |_, _| ())).unwrap().id
}

fn redrive(world: &World) -> OperationId {
    start(world, Kind::Redrive(DeadLetters::default()))
}

fn read(world: &World, id: OperationId) -> Operation {
    block_on(world.engine.operation(TENANT, id)).unwrap()
}

fn one_pass(world: &World) -> usize {
    block_on(world.engine.operate(&world.epochs)).unwrap().steps
}

#[test]
fn dead_letters_of_a_filter_are_redriven() {
    let (world, job) = with_dead(3);
    let other = world.register("@now").job.id;
    fail_all(&world);
    let id = start(&world, Kind::Redrive(DeadLetters { job: Some(job), ..DeadLetters::default() }));
    assert_eq!(read(&world, id).state, State::Running);
    assert_eq!(world.operate(), 1);
    let operation = read(&world, id);
    assert_eq!((operation.state, operation.done, operation.failed), (State::Succeeded, 3, 0));
    assert_eq!(operation.finished_at, Some(world.clock.now()));
    let left = runs(&world, &RunFilter { is_dead: Some(true), ..RunFilter::default() });
    assert_eq!(left.iter().map(|run| run.job).collect::<Vec<_>>(), [other]);
    assert_eq!(world.operate(), 0, "an ended operation does nothing more");
}

#[test]
fn dead_letters_of_a_filter_are_acknowledged() {
    let (world, _) = with_dead(MANY);
    let id = start(&world, Kind::Acknowledge(DeadLetters::default()));
    assert_eq!(world.operate(), 3);
    assert_eq!((read(&world, id).state, read(&world, id).done), (State::Succeeded, MANY as u64));
    assert_eq!(dead(&world), []);
    assert!(runs(&world, &RunFilter::default()).iter().all(|run| run.state == RunState::Failed));
}

#[test]
fn a_restart_in_the_middle_goes_on_where_it_was_and_redrives_each_run_once() {
    let (mut world, _) = with_dead(MANY);
    let id = redrive(&world);
    let mut died_again = Vec::new();
    for node in 1..=10 {
        let steps = one_pass(&world);
        if !read(&world, id).is_running() {
            break;
        }
        assert!(steps > 0, "it goes on after restart {node}");
        // Whoever was redriven dies again at once; a second redrive would bring it back.
        died_again.extend(fail_all(&world));
        world = world.killed_and_started(node);
    }
    assert!(died_again.len() >= 500, "{}", died_again.len());
    let operation = read(&world, id);
    assert_eq!((operation.state, operation.done, operation.failed), (State::Succeeded, MANY as u64, 0));
    died_again.sort();
    let mut still_dead = dead(&world);
    still_dead.sort();
    assert_eq!(still_dead, died_again, "redriven once, and not again");
}

#[test]
fn a_step_whose_answer_is_lost_is_not_done_again() {
    let (world, _) = with_dead(MANY);
    let lossy = Arc::new(Between::new(world.store.clone()));
    let node = world.twin(lossy.clone());
    let id = redrive(&world);
    lossy.loses_answers.store(true, Ordering::Relaxed);
    let mut died_again = Vec::new();
    for _ in 0..3 {
        assert!(read(&world, id).is_running());
        let failed = block_on(node.engine.operate(&node.epochs));
        assert!(matches!(failed, Err(Error::Store(_))), "{failed:?}");
        died_again.extend(fail_all(&world));
    }
    assert_eq!((read(&world, id).done, died_again.len()), (MANY as u64, MANY));
    assert_eq!(dead(&world).len(), MANY, "each was redriven once and died again");
}

#[test]
fn two_engines_on_one_store_never_do_a_step_twice() {
    let (world, _) = with_dead(MANY);
    let between = Arc::new(Between::new(world.store.clone()));
    let (slow, quick) = (world.twin(between.clone()), world.twin(world.store.clone()));
    let id = redrive(&world);
    // The slow one has planned its step; before it is committed, the quick one does that step, and its runs die again.
    let rival = slow.twin(world.store.clone());
    *between.before_step.lock().unwrap() = Some(Box::new(move || {
        assert_eq!(one_pass(&rival), 1);
        assert_eq!(fail_all(&rival).len(), 250);
    }));
    assert_eq!(one_pass(&slow), 0, "nothing of its step is done");
    assert_eq!(dead(&world).len(), MANY, "what died again stays dead");
    assert_eq!(read(&world, id).done, 250);
    for _ in 0..2 {
        one_pass(&slow);
        one_pass(&quick);
    }
    assert_eq!((read(&world, id).done, read(&world, id).failed), (MANY as u64, 0));
    assert_eq!(dead(&world).len(), 250);
}

#[test]
fn a_node_that_lost_its_shards_does_no_step() {
    let (world, _) = with_dead(3);
    let id = redrive(&world);
    let stale = world.twin(world.store.clone());
    let world = world.killed_and_started(1);
    assert_eq!(one_pass(&stale), 0);
    assert_eq!((dead(&world).len(), read(&world, id).is_running()), (3, true));
    assert_eq!(world.operate(), 1);
}

#[test]
fn cancelling_takes_effect_between_two_steps() {
    let (world, _) = with_dead(MANY);
    let id = redrive(&world);
    assert_eq!(one_pass(&world), 1);
    let cancelled = block_on(world.engine.cancel_operation(TENANT, id)).unwrap();
    assert_eq!((cancelled.state, cancelled.done), (State::Cancelled, 250), "what it did stays done");
    assert_eq!((world.operate(), dead(&world).len()), (0, MANY - 250));
    let again = block_on(world.engine.cancel_operation(TENANT, id));
    assert_eq!(again, Err(Error::OperationEnded { state: "cancelled" }));
}

#[test]
fn a_cancellation_that_meets_a_step_is_tried_again() {
    let (world, _) = with_dead(MANY);
    let between = Arc::new(Between::new(world.store.clone()));
    let asked = world.twin(between.clone());
    let id = redrive(&world);
    let node = world.twin(world.store.clone());
    *between.before_step.lock().unwrap() = Some(Box::new(move || assert_eq!(one_pass(&node), 1)));
    let cancelled = block_on(asked.engine.cancel_operation(TENANT, id)).unwrap();
    assert_eq!((cancelled.state, cancelled.done), (State::Cancelled, 250), "the step in between counts");
}

#[test]
fn operations_take_turns() {
    let (world, _) = with_dead(MANY);
    let many = start(&world, Kind::Acknowledge(DeadLetters::default()));
    let nothing = DeadLetters { queue: Some("empty".into()), ..DeadLetters::default() };
    let few = start(&world, Kind::Redrive(nothing));
    one_pass(&world);
    assert_eq!((read(&world, many).state, read(&world, few).state), (State::Running, State::Succeeded));
}

#[test]
fn operations_are_a_tenants_own_and_listed_newest_first() {
    let world = World::new();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.insert(0, redrive(&world));
        world.clock.advance(seconds(1));
    }
    let other = TenantId(9);
    assert!(matches!(block_on(world.engine.operation(other, ids[0])), Err(Error::OperationNotFound(_))));
    let cancelled = block_on(world.engine.cancel_operation(other, ids[0]));
    assert!(matches!(cancelled, Err(Error::OperationNotFound(_))));
    for (tenant, expected) in [(TENANT, ids.clone()), (other, Vec::new())] {
        let filter = OperationFilter { tenant: Some(tenant), ..OperationFilter::default() };
        let page = block_on(world.engine.operations(&filter, PageRequest::first(10))).unwrap();
        assert_eq!(page.items.iter().map(|operation| operation.id).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn an_operation_is_started_once_per_request() {
    let world = World::new();
    let request = || Some(world.engine.request(TENANT, "key".into(), [1; 16]));
    let kind = || Kind::Redrive(DeadLetters::default());
    let answer = |operation: &Operation, subject: &mut punctual_store::Subject| {
        subject.result = format!("started {}", operation.id);
    };
    let first = block_on(world.engine.start_operation(TENANT, kind(), request(), answer)).unwrap();
    let again = block_on(world.engine.start_operation(TENANT, kind(), request(), answer));
    let Err(Error::Repeated(known)) = again else { panic!("{again:?}") };
    assert_eq!(known.result, format!("started {}", first.id));
}

// Catch-up.

/// A job of every minute that catches up with everything, down from 12:00 to 12:21:30: the slots from 12:01 to 12:20
/// are old, the one of 12:21 simply runs.
fn behind(rate: u32) -> (World, JobId, OperationId) {
    let world = World::new();
    let mut minutely = spec("* * * * *");
    minutely.policies.catch_up = CatchUp::All { window: Duration::from_secs(36_000), max: 1_000, rate };
    let job = world.try_register(minutely).unwrap().job.id;
    let fired = world.advance(seconds(21 * 60 + 30));
    assert_eq!((fired.runs.len(), fired.operations), (1, 1));
    let id = only_operation(&world).id;
    (world, job, id)
}

fn only_operation(world: &World) -> Operation {
    let page = block_on(world.engine.operations(&OperationFilter::default(), PageRequest::first(10)));
    let mut items = page.unwrap().items;
    assert_eq!(items.len(), 1);
    items.remove(0)
}

fn old_slots(from: i64, to: i64) -> Vec<Timestamp> {
    (from..=to).map(|minute| at("12:00:00") + SignedDuration::from_mins(minute)).collect()
}

/// The runs of old slots, in the order of their births.
fn caught_up(world: &World) -> Vec<Run> {
    let mut runs = runs(world, &RunFilter::default());
    runs.retain(|run| run.scheduled_for <= at("12:20:00"));
    runs.reverse();
    runs
}

fn ledger(world: &World, job: JobId) -> Vec<LedgerEntry> {
    block_on(world.store.ledger(job, PageRequest::first(10))).unwrap().items
}

#[test]
fn catching_up_survives_a_crash_after_every_step_each_slot_once_oldest_first_at_its_rate() {
    for rate in [1, 3, 7, 500] {
        let (mut world, job, id) = behind(rate);
        assert_eq!(read(&world, id).total, Some(20));
        for node in 1..=40 {
            one_pass(&world);
            if !read(&world, id).is_running() {
                break;
            }
            assert_eq!(one_pass(&world), 0, "not before its time");
            // Killed; its successor comes late, or in time.
            world = match node % 2 {
                0 => world.killed_and_started(node),
                _ => {
                    world.clock.advance(seconds(1));
                    world
                }
            };
        }
        let runs = caught_up(&world);
        let slots: Vec<Timestamp> = runs.iter().map(|run| run.scheduled_for).collect();
        assert_eq!(slots, old_slots(1, 20), "rate {rate}");
        assert!(runs.windows(2).all(|pair| pair[0].available_at < pair[1].available_at), "oldest first");
        for run in &runs {
            let second = run.available_at..run.available_at + seconds(1);
            let started = runs.iter().filter(|other| second.contains(&other.available_at)).count();
            assert!(started <= rate as usize, "{started} start in a second at rate {rate}");
        }
        let operation = read(&world, id);
        assert_eq!((operation.state, operation.done, operation.failed), (State::Succeeded, 20, 0));
        assert_eq!(ledger(&world, job), []);
    }
}

#[test]
fn catching_up_survives_answers_that_are_lost() {
    let world = World::new();
    let lossy = Arc::new(Between::new(world.store.clone()));
    let node = world.twin(lossy.clone());
    let mut minutely = spec("* * * * *");
    minutely.policies.catch_up = CatchUp::All { window: Duration::from_secs(36_000), max: 1_000, rate: 4 };
    world.try_register(minutely).unwrap();
    world.clock.advance(seconds(21 * 60 + 30));
    lossy.loses_answers.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        // The entry is gone with the first commit; firing it again does nothing.
        let entries = world.due();
        assert!(block_on(node.engine.fire(entries, &node.epochs, None)).is_err());
    }
    let id = only_operation(&world).id;
    for _ in 0..5 {
        assert!(block_on(node.engine.operate(&node.epochs)).is_err());
        world.clock.advance(seconds(1));
    }
    assert_eq!(read(&world, id).state, State::Succeeded);
    let slots: Vec<Timestamp> = caught_up(&world).iter().map(|run| run.scheduled_for).collect();
    assert_eq!(slots, old_slots(1, 20));
}

#[test]
fn two_engines_catch_up_with_each_slot_once() {
    let (world, _, id) = behind(4);
    let between = Arc::new(Between::new(world.store.clone()));
    let (slow, rival) = (world.twin(between.clone()), world.twin(world.store.clone()));
    *between.before_step.lock().unwrap() = Some(Box::new(move || assert_eq!(one_pass(&rival), 1)));
    assert_eq!(one_pass(&slow), 0);
    for _ in 0..20 {
        world.clock.advance(seconds(1));
        one_pass(&slow);
        one_pass(&world);
    }
    assert_eq!(read(&world, id).state, State::Succeeded);
    let slots: Vec<Timestamp> = caught_up(&world).iter().map(|run| run.scheduled_for).collect();
    assert_eq!(slots, old_slots(1, 20));
}

#[test]
fn what_a_cancelled_catch_up_owes_is_in_the_ledger() {
    let (world, job, id) = behind(5);
    one_pass(&world);
    block_on(world.engine.cancel_operation(TENANT, id)).unwrap();
    world.clock.advance(seconds(60));
    assert_eq!(world.operate(), 0);
    let ledger = ledger(&world, job);
    assert_eq!(ledger.len(), 1);
    assert_eq!((ledger[0].from, ledger[0].to, ledger[0].slots), (at("12:06:00"), at("12:20:00"), 15));
    assert_eq!(ledger[0].fate, Fate::SkippedCancel);
    assert_eq!(caught_up(&world).len(), 5);
}

#[test]
fn deleting_the_job_cancels_its_catch_up() {
    let (world, job, id) = behind(5);
    one_pass(&world);
    block_on(world.engine.delete(TENANT, job, None)).unwrap();
    world.clock.advance(seconds(1));
    one_pass(&world);
    let operation = read(&world, id);
    assert_eq!((operation.state, operation.done), (State::Cancelled, 5));
    assert_eq!(operation.error.as_deref(), Some("the job was deleted"));
    let owed = block_on(world.store.ledger(job, PageRequest::first(10))).unwrap().items;
    assert_eq!((owed[0].slots, owed[0].fate), (15, Fate::SkippedCancel));
    let states: BTreeMap<&str, usize> = caught_up(&world).iter().fold(BTreeMap::new(), |mut states, run| {
        *states.entry(run.state.as_str()).or_default() += 1;
        states
    });
    assert_eq!(states, BTreeMap::from([("cancelled", 5)]), "like everything that waits");
}

#[test]
fn pausing_the_job_holds_its_catch_up_until_it_is_resumed() {
    let (world, job, id) = behind(5);
    one_pass(&world);
    block_on(world.engine.pause(TENANT, job, None, pause())).unwrap();
    for _ in 0..60 {
        world.clock.advance(seconds(1));
        world.operate();
    }
    assert_eq!((read(&world, id).state, caught_up(&world).len()), (State::Running, 5));
    block_on(world.engine.resume(TENANT, job, None)).unwrap();
    for _ in 0..20 {
        world.clock.advance(seconds(1));
        world.operate();
    }
    assert_eq!(read(&world, id).state, State::Succeeded);
    let slots: Vec<Timestamp> = caught_up(&world).iter().map(|run| run.scheduled_for).collect();
    assert_eq!(slots, old_slots(1, 20), "nothing that was owed is lost");
}

#[test]
fn an_edited_job_catches_up_with_its_old_slots_in_its_new_version() {
    let (world, job, id) = behind(5);
    one_pass(&world);
    let hourly = Spec { name: "hourly".into(), queue: "other".into(), ..spec("0 * * * *") };
    let edited = block_on(world.engine.update(TENANT, job, None, hourly, Waiting::Keep)).unwrap();
    for _ in 0..20 {
        world.clock.advance(seconds(1));
        world.operate();
    }
    assert_eq!(read(&world, id).state, State::Succeeded);
    let runs = caught_up(&world);
    let slots: Vec<Timestamp> = runs.iter().map(|run| run.scheduled_for).collect();
    assert_eq!(slots, old_slots(1, 20), "the slots that were missed, not those of the new schedule");
    assert!(runs[5..].iter().all(|run| run.version == edited.job.version && &*run.queue == "other"));
}

#[test]
fn an_edit_between_planning_and_committing_a_step_loses_and_doubles_nothing() {
    let (world, job, id) = behind(5);
    let between = Arc::new(Between::new(world.store.clone()));
    let (node, editor) = (world.twin(between.clone()), world.twin(world.store.clone()));
    *between.before_step.lock().unwrap() = Some(Box::new(move || {
        block_on(editor.engine.update(TENANT, job, None, spec("0 * * * *"), Waiting::Keep)).unwrap();
    }));
    let operated = block_on(node.engine.operate(&node.epochs)).unwrap();
    assert_eq!((operated.steps, operated.next_at), (0, Some(world.clock.now())), "planned anew at once");
    for _ in 0..20 {
        one_pass(&node);
        world.clock.advance(seconds(1));
    }
    assert_eq!(read(&world, id).state, State::Succeeded);
    let slots: Vec<Timestamp> = caught_up(&world).iter().map(|run| run.scheduled_for).collect();
    assert_eq!(slots, old_slots(1, 20));
}

#[test]
fn new_slots_are_on_time_while_old_ones_are_caught_up_with() {
    let (world, _, id) = behind(1);
    one_pass(&world);
    let fired = world.advance(seconds(30));
    assert_eq!(fired.runs.iter().map(|(run, _)| run.scheduled_for).collect::<Vec<_>>(), [at("12:22:00")]);
    assert!(read(&world, id).is_running());
}

#[test]
fn an_operation_that_meets_damage_fails_alone_and_accounts_for_what_it_owes() {
    let (world, job, id) = behind(5);
    let between = Arc::new(Between::new(world.store.clone()));
    let node = world.twin(between.clone());
    let other = redrive(&world);
    *between.damages.lock().unwrap() = Some(id);
    assert_eq!(one_pass(&node), 2);
    assert_eq!(read(&world, other).state, State::Succeeded);
    let operation = read(&world, id);
    assert_eq!((operation.state, operation.done), (State::Failed, 0));
    assert_eq!(operation.error.as_deref(), Some("the store is damaged: a run cannot be read"));
    let ledger = ledger(&world, job);
    assert_eq!((ledger[0].from, ledger[0].to, ledger[0].slots), (at("12:01:00"), at("12:20:00"), 20));
    assert_eq!(ledger[0].fate, Fate::MissedCatchUp);
}
