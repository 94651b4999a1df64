//! Overlap with a moved clock: what each policy makes of slots, triggers, catch-ups and edits, on the reference store.

use crate::support::world;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use futures_executor::block_on;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::attempt::Failure;
use punctual_domain::id::WorkerId;
use punctual_domain::job::{Lane, Spec};
use punctual_domain::ledger::{Fate, LedgerEntry};
use punctual_domain::operation::State;
use punctual_domain::policy::catch_up::CatchUp;
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::run::{Run, RunState, WaitingFor};
use punctual_domain::work::Finished;
use punctual_domain::{JobId, Outcome, Report};
use punctual_engine::fire::Room;
use punctual_engine::operations::OperationFilter;
use punctual_engine::register::Waiting;
use punctual_engine::{Clock, Error};
use punctual_store::{Claim, PageRequest, Shards, Store};

use crate::support::world::{TENANT, World, at, spec};

const BEHIND: RunState = RunState::Pending(WaitingFor::EarlierRun);

fn minute() -> SignedDuration {
    SignedDuration::from_mins(1)
}

fn ruled(schedule: &str, overlap: Overlap) -> Spec {
    let mut spec = spec(schedule);
    spec.policies.overlap = overlap;
    spec
}

fn register(world: &World, spec: Spec) -> JobId {
    world.try_register(spec).unwrap().job.id
}

fn worker(world: &World) -> WorkerId {
    WorkerId::new(world.clock.now(), 5 << 52 | 5)
}

/// Fires the next minute, with room for what can be born running.
fn tick(world: &World, worker: WorkerId) -> Vec<Run> {
    world.clock.advance(minute());
    let room = Room { worker, queues: Arc::new([]), labels: Default::default(), attempts: 10 };
    world.fire(Some(room)).runs.into_iter().map(|(run, _)| run).collect()
}

fn claim(world: &World, worker: WorkerId) -> Vec<Run> {
    let claim =
        Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit: 100 };
    block_on(world.store.claim(claim, world.clock.now())).unwrap()
}

fn finish(world: &World, run: &Run, outcome: Option<Outcome>) -> Run {
    let now = world.clock.now();
    let report = outcome.map(|outcome| {
        let failure =
            Failure { code: "x".into(), message: "x".into(), is_retryable: true, retry_after: None };
        let error = (outcome != Outcome::Succeeded).then_some(failure);
        Report { outcome, error, ..Report::lost(now, now) }
    });
    let worker = run.lease().unwrap().worker;
    let finished = Finished { worker, run: run.clone(), job: world.job_of(run), report };
    block_on(world.engine.complete(vec![finished])).unwrap().remove(0).unwrap()
}

fn succeed(world: &World, run: &Run) {
    assert_eq!(finish(world, run, Some(Outcome::Succeeded)).state, RunState::Succeeded);
}

fn state(world: &World, run: &Run) -> RunState {
    block_on(world.engine.run(TENANT, run.id())).unwrap().run.state
}

fn ledger(world: &World, job: JobId) -> Vec<LedgerEntry> {
    block_on(world.store.ledger(job, PageRequest::first(100))).unwrap().items
}

fn change(world: &World, job: JobId, change: impl FnOnce(&mut Spec)) {
    let mut spec = world.job_of_id(job).spec.clone();
    change(&mut spec);
    block_on(world.engine.update(TENANT, job, None, spec, Waiting::Keep)).unwrap();
}

#[test]
fn every_slot_of_an_hour_runs_or_is_in_the_ledger() {
    for overlap in [Overlap::Skip, Overlap::QueueOne, Overlap::QueueAll { max: 3 }, Overlap::CancelRunning] {
        let world = World::new();
        let job = register(&world, ruled("* * * * *", overlap));
        let holder = worker(&world);
        let mut running: Option<(Run, i64)> = None;
        for now in 1..=60 {
            let born = tick(&world, holder);
            assert!(born.len() <= 1);
            if let Some((run, until)) = &running
                && (*until <= now
                    || world.runs().iter().any(|one| one.id() == run.id() && one.is_cancel_requested))
            {
                let outcome = if *until <= now { Outcome::Succeeded } else { Outcome::Cancelled };
                finish(&world, run, Some(outcome));
                running = None;
            }
            let held: Vec<Run> = match running {
                Some(_) => claim(&world, holder),
                None => born
                    .into_iter()
                    .filter(|run| run.lease().is_some())
                    .chain(claim(&world, holder))
                    .collect(),
            };
            assert!(held.len() + usize::from(running.is_some()) <= 1, "{overlap:?}: two at the same time");
            // Runs take between half a minute and six minutes.
            running = held.into_iter().next().map(|run| (run, now + 1 + now % 6)).or(running);
        }
        let runs = world.runs();
        let skipped: u64 = ledger(&world, job).iter().map(|entry| entry.slots).sum();
        assert_eq!(runs.len() as u64 + skipped, 60, "{overlap:?}");
        assert!(ledger(&world, job).iter().all(|entry| entry.fate == Fate::SkippedOverlap));
        let behind = runs.iter().filter(|run| run.state == BEHIND).count();
        assert!(behind <= overlap.queue_max().unwrap_or(1) as usize, "{overlap:?}");
        let cancelled = runs.iter().filter(|run| run.state == RunState::Cancelled).count();
        assert_eq!(cancelled > 0, overlap == Overlap::CancelRunning, "{overlap:?}");
        assert!(runs.iter().filter(|run| run.state == RunState::Succeeded).count() >= 5, "{overlap:?}");
    }
}

#[test]
fn a_skipped_slot_is_counted_as_one_that_did_not_run() {
    let world = World::new();
    register(&world, ruled("* * * * *", Overlap::Skip));
    assert_eq!(world.advance(minute()).missed, 0);
    let fired = world.advance(minute());
    assert_eq!((fired.runs.len(), fired.missed), (0, 1));
}

#[test]
fn a_maximum_of_fires_counts_runs_and_not_skipped_slots() {
    let world = World::new();
    let mut twice = ruled("* * * * *", Overlap::Skip);
    twice.schedule.bounds.max_fires = NonZeroU64::new(2);
    let job = register(&world, twice);
    let holder = worker(&world);
    let first = tick(&world, holder).remove(0);
    for _ in 0..3 {
        assert_eq!(tick(&world, holder), []);
    }
    succeed(&world, &first);
    let second = tick(&world, holder).remove(0);
    succeed(&world, &second);
    assert_eq!(tick(&world, holder), [], "two were asked for");
    assert!(block_on(world.engine.job(TENANT, job)).unwrap().is_ended());
    let entries = ledger(&world, job);
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].from, entries[0].to, entries[0].slots), (at("12:02:00"), at("12:04:00"), 3));
}

#[test]
fn a_period_from_completion_goes_on_after_a_slot_that_was_skipped() {
    let world = World::new();
    let job = register(&world, ruled("@every 10m from completion", Overlap::Skip));
    let holder = worker(&world);
    let first = tick(&world, holder).remove(0);
    succeed(&world, &first);
    // Somebody runs it by hand, and that is not over when the next slot comes.
    let asked = block_on(world.engine.trigger(TENANT, job, None, None)).unwrap();
    let held = claim(&world, holder).remove(0);
    assert_eq!(held.id(), asked.id());
    world.clock.advance(SignedDuration::from_mins(10));
    assert_eq!(tick(&world, holder), []);
    assert_eq!(world.due(), [], "the end of the open run brings the next");
    succeed(&world, &held);
    world.clock.advance(SignedDuration::from_mins(9));
    assert_eq!(tick(&world, holder).len(), 1);
}

#[test]
fn a_trigger_that_there_is_no_place_for_is_refused() {
    let world = World::new();
    let trigger = |job| block_on(world.engine.trigger(TENANT, job, None, None));
    let skip = register(&world, ruled("@every 1h", Overlap::Skip));
    trigger(skip).unwrap();
    assert_eq!(trigger(skip), Err(Error::Overlap { policy: "skip" }));
    let queue = register(&world, ruled("@every 1h", Overlap::QueueOne));
    let states = [trigger(queue), trigger(queue)].map(|run| run.unwrap().state);
    assert_eq!(states, [RunState::Pending(WaitingFor::Capacity), BEHIND]);
    assert_eq!(trigger(queue), Err(Error::Overlap { policy: "queue_one" }));
    assert_eq!(ledger(&world, skip), [], "whoever asked was told");
}

#[test]
fn a_run_that_is_replaced_ends_whatever_its_worker_reports() {
    for (schedule, outcome) in [
        ("* * * * *", Some(Outcome::Failed)),
        ("* * * * *", Some(Outcome::TimedOut)),
        ("* * * * *", None),
        ("@every 1m from completion", Some(Outcome::Failed)),
    ] {
        let world = World::new();
        let job = register(&world, ruled(schedule, Overlap::CancelRunning));
        let holder = worker(&world);
        let first = tick(&world, holder).remove(0);
        let next = block_on(world.engine.trigger(TENANT, job, None, None)).unwrap();
        assert_eq!(next.state, BEHIND);
        // As it was claimed, it knows nothing of it; it would be tried again.
        assert!(!first.is_cancel_requested);
        assert_eq!(finish(&world, &first, outcome).state, RunState::Cancelled, "{schedule} {outcome:?}");
        let held = claim(&world, holder);
        assert_eq!(held.iter().map(Run::id).collect::<Vec<_>>(), [next.id()]);
        succeed(&world, &held[0]);
        assert_eq!(tick(&world, holder).len(), 1, "{schedule}: the next slot comes");
    }
}

#[test]
fn a_reclaimed_run_that_was_asked_to_stop_lets_its_successor_go_on() {
    let world = World::new();
    register(&world, ruled("* * * * *", Overlap::CancelRunning));
    let holder = worker(&world);
    let lease = Duration::from_secs(10);
    let first = tick(&world, holder).remove(0);
    block_on(world.engine.heartbeat(holder, vec![(&first).into()])).unwrap();
    let next = tick(&world, holder).remove(0);
    assert_eq!(next.state, BEHIND);
    let reclaimed = block_on(world.engine.reclaim(lease)).unwrap();
    assert_eq!(reclaimed[0].state, RunState::Cancelled, "nobody tries it again");
    let other = WorkerId::new(world.clock.now(), 9 << 52 | 9);
    assert_eq!(claim(&world, other).iter().map(Run::id).collect::<Vec<_>>(), [next.id()]);
}

#[test]
fn an_edit_to_allow_lets_all_go_on_and_others_keep_them_waiting() {
    let world = World::new();
    let job = register(&world, ruled("* * * * *", Overlap::QueueAll { max: 9 }));
    let holder = worker(&world);
    let first = tick(&world, holder).remove(0);
    let behind: Vec<Run> = (0..3).map(|_| tick(&world, holder).remove(0)).collect();
    change(&world, job, |spec| spec.policies.overlap = Overlap::QueueOne);
    assert!(behind.iter().all(|run| state(&world, run) == BEHIND));
    assert_eq!(tick(&world, holder), [], "the line is full by now");
    change(&world, job, |spec| spec.name = "other".into());
    assert!(behind.iter().all(|run| state(&world, run) == BEHIND));
    change(&world, job, |spec| spec.policies.overlap = Overlap::Allow);
    assert_eq!(claim(&world, holder).len(), 3);
    succeed(&world, &first);
}

#[test]
fn a_run_that_was_fired_under_allow_is_waited_for_after_an_edit() {
    let world = World::new();
    let job = register(&world, ruled("* * * * *", Overlap::Allow));
    let holder = worker(&world);
    let first = tick(&world, holder).remove(0);
    change(&world, job, |spec| spec.policies.overlap = Overlap::QueueOne);
    let second = tick(&world, holder).remove(0);
    assert_eq!(second.state, BEHIND);
    succeed(&world, &first);
    assert_eq!(claim(&world, holder).iter().map(Run::id).collect::<Vec<_>>(), [second.id()]);
}

// Catch-up.

/// A job of every minute, down from 12:00 to 12:21:30: the slots from 12:01 to 12:20 are old, that of 12:21 simply runs.
fn down(overlap: Overlap) -> (World, JobId) {
    let world = World::new();
    let mut minutely = ruled("* * * * *", overlap);
    minutely.policies.catch_up = CatchUp::All { window: Duration::from_secs(36_000), max: 1_000, rate: 100 };
    let job = register(&world, minutely);
    world.advance(SignedDuration::from_secs(21 * 60 + 30));
    (world, job)
}

/// Operates and works, one run at a time, until nothing is left to do. Returns the slots in the order they ran.
fn work_off(world: &World) -> Vec<Timestamp> {
    let holder = worker(world);
    let mut ran = Vec::new();
    for _ in 0..200 {
        world.operate();
        let held = claim(world, holder);
        assert!(held.len() <= 1, "two at the same time");
        for run in held {
            ran.push(run.scheduled_for);
            succeed(world, &run);
        }
        world.clock.advance(SignedDuration::from_millis(250));
    }
    ran
}

fn only_operation(world: &World) -> punctual_domain::Operation {
    let page = block_on(world.engine.operations(&OperationFilter::default(), PageRequest::first(10)));
    page.unwrap().items.remove(0)
}

#[test]
fn a_catch_up_waits_for_room_in_the_line_and_runs_every_slot() {
    for overlap in [Overlap::QueueOne, Overlap::QueueAll { max: 4 }] {
        let (world, job) = down(overlap);
        let mut ran = work_off(&world);
        let operation = only_operation(&world);
        assert_eq!(
            (operation.state, operation.done, operation.failed),
            (State::Succeeded, 20, 0),
            "{overlap:?}"
        );
        assert_eq!(ledger(&world, job), []);
        // The young slot was there first.
        assert_eq!(ran.remove(0), at("12:21:00"));
        let minutes = (1..=20).map(|minute| at("12:00:00") + SignedDuration::from_mins(minute));
        assert_eq!(ran, minutes.collect::<Vec<_>>(), "{overlap:?}");
    }
}

#[test]
fn a_catch_up_of_a_job_that_skips_accounts_for_what_it_does_not_run() {
    let (world, job) = down(Overlap::Skip);
    assert_eq!(world.runs().len(), 1, "the young slot runs");
    world.operate();
    let operation = only_operation(&world);
    assert_eq!((operation.state, operation.done, operation.failed), (State::Succeeded, 0, 20));
    let entries = ledger(&world, job);
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].from, entries[0].to, entries[0].slots), (at("12:01:00"), at("12:20:00"), 20));
}

#[test]
fn a_cancelled_catch_up_accounts_for_what_it_neither_ran_nor_skipped() {
    let (world, job) = down(Overlap::QueueOne);
    world.operate();
    let operation = only_operation(&world);
    assert!(operation.is_running() && operation.done < 20, "{operation:?}");
    block_on(world.engine.cancel_operation(TENANT, operation.id)).unwrap();
    let entries = ledger(&world, job);
    assert_eq!((entries[0].slots, entries[0].fate), (20 - operation.done, Fate::SkippedCancel));
}

#[test]
fn the_runs_of_a_catch_up_are_behind_what_is_due() {
    let (world, _) = down(Overlap::Allow);
    world.operate();
    let lanes: Vec<(bool, Lane)> =
        world.runs().iter().map(|run| (run.scheduled_for == at("12:21:00"), run.lane)).collect();
    assert_eq!(lanes.len(), 21);
    assert!(lanes.iter().all(|(is_young, lane)| (*lane == Lane::Standard) == *is_young), "{lanes:?}");
}

/// Ends what may not start any more, as the loop does.
fn lapse(world: &World) -> Vec<Run> {
    block_on(world.engine.lapse(&world.epochs)).unwrap().runs
}

#[test]
fn a_slot_that_waits_too_long_is_missed_and_the_next_goes_on() {
    let world = World::new();
    let mut spec = ruled("* * * * *", Overlap::QueueAll { max: 9 });
    spec.policies.timeouts.start_window = Some(Duration::from_secs(90));
    register(&world, spec);
    let holder = worker(&world);
    let first = tick(&world, holder).remove(0);
    let second = tick(&world, holder).remove(0);
    let third = tick(&world, holder).remove(0);
    assert_eq!((state(&world, &second), state(&world, &third)), (BEHIND, BEHIND));
    assert_eq!(lapse(&world), []);
    world.clock.advance(SignedDuration::from_secs(31));
    assert_eq!(lapse(&world).iter().map(Run::id).collect::<Vec<_>>(), [second.id()]);
    assert_eq!((state(&world, &second), state(&world, &third)), (RunState::Missed, BEHIND));
    succeed(&world, &first);
    assert_eq!(claim(&world, holder).iter().map(Run::id).collect::<Vec<_>>(), [third.id()]);
}

#[test]
fn a_run_that_is_missed_lets_the_next_go_on_also_in_a_paused_job() {
    let world = World::new();
    let mut spec = ruled("* * * * *", Overlap::QueueOne);
    spec.policies.timeouts.start_window = Some(Duration::from_secs(90));
    let job = register(&world, spec);
    let first = world.advance(minute()).runs.remove(0).0;
    let second = world.advance(minute()).runs.remove(0).0;
    block_on(world.engine.pause(TENANT, job, None, world::pause())).unwrap();
    world.clock.advance(SignedDuration::from_secs(31));
    assert_eq!(lapse(&world).iter().map(Run::id).collect::<Vec<_>>(), [first.id()]);
    assert_eq!(state(&world, &second), RunState::Pending(WaitingFor::Capacity));
    assert_eq!(claim(&world, worker(&world)).iter().map(Run::id).collect::<Vec<_>>(), [second.id()]);
}

#[test]
fn a_run_that_waits_for_its_retry_makes_way_for_the_next_slot() {
    let world = World::new();
    let mut spec = ruled("* * * * *", Overlap::CancelRunning);
    spec.policies.retry.retry_for = Some(Duration::from_secs(3_600));
    register(&world, spec);
    let holder = worker(&world);
    let first = tick(&world, holder).remove(0);
    let retried = finish(&world, &first, Some(Outcome::Failed));
    assert_eq!(retried.state, RunState::Pending(WaitingFor::Retry));
    let second = tick(&world, holder).remove(0);
    assert!(second.lease().is_some(), "nothing ran");
    assert_eq!(state(&world, &first), RunState::Cancelled);
    world.clock.advance(SignedDuration::from_hours(2));
    assert_eq!(lapse(&world), []);
}

/// What ends a run at its deadline does not make a dead letter of one that was asked to stop.
#[test]
fn a_run_that_was_asked_to_stop_is_cancelled_at_its_deadline() {
    let world = World::new();
    let mut spec = ruled("* * * * *", Overlap::CancelRunning);
    spec.policies.timeouts.deadline = Some(Duration::from_secs(90));
    register(&world, spec);
    let holder = worker(&world);
    let first = tick(&world, holder).remove(0);
    let second = tick(&world, holder).remove(0);
    assert_eq!(state(&world, &second), BEHIND);
    world.clock.advance(SignedDuration::from_secs(40));
    // Its worker was not told yet, and neither was the engine.
    assert_eq!(finish(&world, &first, Some(Outcome::TimedOut)).state, RunState::Cancelled);
    assert_eq!(claim(&world, holder).iter().map(Run::id).collect::<Vec<_>>(), [second.id()]);
}
