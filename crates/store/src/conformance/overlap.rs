//! Overlap: births are decided against what is open, and who waits goes on when nobody is ahead.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::id::{OperationId, RunId, TenantId, Version, WorkerId};
use punctual_domain::job::{Job, JobState, Pause};
use punctual_domain::ledger::{Fate, LedgerEntry};
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::operation::{DeadLetters, Kind, Operation};
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::policy::retention::Retention;
use punctual_domain::run::{Cause, Limit, Run, RunState, WaitingFor};
use punctual_domain::{Outcome, Report};
use punctual_schedule::Progress;

use super::world::{LEASE, World, at_once, birth, conclusion, due};
use crate::error::Refused;
use crate::page::PageRequest;
use crate::store::Store;
use crate::verbs::{
    Birth, Cancellation, Concluded, Effect, OpenRuns, Otherwise, Put, RunFilter, Shards, Step, Stepped,
    Subject, Trigger,
};

const BEHIND: RunState = RunState::Pending(WaitingFor::EarlierRun);
const READY: RunState = RunState::Pending(WaitingFor::Capacity);

/// A job that is due now.
async fn ruled(world: &mut World, overlap: Overlap) -> Job {
    let mut job = world.job("ruled");
    job.spec.policies.overlap = overlap;
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    job
}

/// Fires the slot that is due, and goes on to the next.
async fn fire(world: &mut World, job: &Job) -> Option<Run> {
    let fired = world.try_fire(job, world.now).await.expect("fired");
    world.advance(Duration::from_secs(60));
    assert!(fired.len() <= 1);
    fired.into_iter().next()
}

/// Fires with room for the run to be born running.
async fn fire_and_claim(world: &mut World, job: &Job, worker: WorkerId) -> Option<Run> {
    let mut firing = world.firing(job, world.now);
    firing.births[0].claimed_by = Some(worker);
    let fired = world.try_firing(firing).await.expect("fired");
    world.advance(Duration::from_secs(60));
    fired.into_iter().next()
}

async fn end(world: &World, worker: WorkerId, run: &Run, verdict: Verdict) -> Concluded {
    let outcome = if verdict == Verdict::Succeed { Outcome::Succeeded } else { Outcome::Failed };
    let report: Report = world.report(outcome);
    world.try_conclude(conclusion(worker, run, Some(report), verdict)).await.expect("recorded")
}

async fn succeed(world: &World, worker: WorkerId, run: &Run) -> Option<RunId> {
    end(world, worker, run, Verdict::Succeed).await.released
}

/// Claims one run, which is the only one that can be.
async fn claim_only(world: &World, worker: WorkerId, expected: RunId) -> Run {
    let mut claimed = world.claim(worker, 9).await;
    assert_eq!(claimed.iter().map(Run::id).collect::<Vec<_>>(), [expected]);
    claimed.remove(0)
}

async fn state(world: &World, run: &Run) -> RunState {
    world.detail(run.id()).await.run.state
}

async fn ledger(world: &World, job: &Job) -> Vec<(Timestamp, Timestamp, u64)> {
    let entries = world.store.ledger(job.id, PageRequest::first(100)).await.expect("ledger").items;
    assert!(entries.iter().all(|entry| entry.fate == Fate::SkippedOverlap));
    entries.iter().map(|entry| (entry.from, entry.to, entry.slots)).collect()
}

async fn trigger(world: &World, job: &Job, part: u32) -> Result<Run, Refused> {
    let birth = Birth { cause: Cause::Trigger, part, previous: None, ..birth(job, world.now) };
    let (job, version) = (job.id, job.version);
    let trigger = Trigger { job, version, birth, is_over: false, request: None, audit: None };
    world.store.trigger(vec![trigger], world.now).await.expect("trigger").remove(0)
}

async fn cancel(world: &World, run: &Run) -> Run {
    let cancellation = Cancellation { run: run.id(), successor: None };
    let mut answers = world.store.cancel(vec![cancellation], world.now).await.expect("cancel");
    answers.remove(0).expect("cancelled")
}

/// Changes a job; what waits is kept, unless said otherwise.
async fn change(world: &World, job: &mut Job, change: impl FnOnce(&mut Job, &mut Put)) {
    job.version = job.version.next();
    let mut put = world.put(job.clone(), None);
    change(job, &mut put);
    put.job = Arc::new(job.clone());
    world.try_put(Put { due: Some(due(job, world.now)), ..put }).await.expect("changed");
}

/// Nothing waits for ever: everything that is open can be claimed and ended, one after the other. Returns what ran.
async fn drain(world: &mut World, job: &Job) -> Vec<RunId> {
    let worker = world.worker();
    let mut ran = Vec::new();
    while let [run] = world.claim(worker, 9).await.as_slice() {
        ran.push(run.id());
        succeed(world, worker, run).await;
    }
    let open = world.store.have_open_runs(&[job.id]).await.expect("have_open_runs");
    assert_eq!(open, [false], "nobody is left behind");
    ran
}

/// The default: runs do not care about each other.
pub async fn under_allow_runs_run_beside_each_other(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = ruled(&mut world, Overlap::Allow).await;
    let worker = world.worker();
    for _ in 0..3 {
        let run = fire_and_claim(&mut world, &job, worker).await.expect("born");
        assert!(run.lease().is_some(), "{run:?}");
    }
    assert_eq!(fire(&mut world, &job).await.expect("born").state, READY);
    assert_eq!(ledger(&world, &job).await, []);
}

/// While a run is open, pending, running or between attempts, slots get none and are accounted for; those that follow
/// each other in one entry.
pub async fn under_skip_slots_get_no_run_while_one_is_open(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = ruled(&mut world, Overlap::Skip).await;
    let worker = world.worker();
    let first = fire(&mut world, &job).await.expect("born");
    let skipped_from = world.now;
    assert_eq!(fire(&mut world, &job).await, None, "one is pending");
    let held = claim_only(&world, worker, first.id()).await;
    assert_eq!(fire_and_claim(&mut world, &job, worker).await, None, "one is running");
    let later = Verdict::Retry { available_at: world.after(60), charge: Charge::Attempt, start_by: None };
    end(&world, worker, &held, later).await;
    let skipped_to = world.now;
    assert_eq!(fire(&mut world, &job).await, None, "one waits for its next attempt");
    let held = claim_only(&world, worker, first.id()).await;
    assert_eq!(end(&world, worker, &held, Verdict::Fail).await.released, None);
    assert_eq!(ledger(&world, &job).await, [(skipped_from, skipped_to, 3)]);
    // Open again, and another entry.
    let second = fire_and_claim(&mut world, &job, worker).await.expect("born");
    assert!(second.lease().is_some());
    let skipped = world.now;
    assert_eq!(fire(&mut world, &job).await, None);
    succeed(&world, worker, &second).await;
    let expected = [(skipped, skipped, 1), (skipped_from, skipped_to, 3)];
    assert_eq!(ledger(&world, &job).await, expected);
    assert!(fire(&mut world, &job).await.is_some());
}

/// One run waits, though there is room for it; the next are skipped. It goes on in the commit that ends the one before.
pub async fn under_queue_one_a_single_run_waits(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = ruled(&mut world, Overlap::QueueOne).await;
    let worker = world.worker();
    let first = fire_and_claim(&mut world, &job, worker).await.expect("born");
    assert!(first.lease().is_some(), "alone, it is born running");
    let second = fire_and_claim(&mut world, &job, worker).await.expect("born");
    assert_eq!((second.state, second.attempt), (BEHIND, 0), "one that waits is not born running");
    let skipped = world.now;
    assert_eq!(fire(&mut world, &job).await, None);
    assert_eq!(ledger(&world, &job).await, [(skipped, skipped, 1)]);
    assert_eq!(world.claim(worker, 9).await, []);
    assert_eq!(store.next_available_at(&Shards::All).await.expect("next"), None);
    let waits = RunFilter { waiting_for: Some(WaitingFor::EarlierRun), ..RunFilter::default() };
    let listed = store.runs(&waits, PageRequest::first(9)).await.expect("runs").items;
    assert_eq!(listed, std::slice::from_ref(&second));
    assert_eq!(succeed(&world, worker, &first).await, Some(second.id()));
    assert_eq!(state(&world, &second).await, READY);
    // The one that went on is open, so the next waits for it.
    let third = fire(&mut world, &job).await.expect("born");
    assert_eq!(third.state, BEHIND);
    let held = claim_only(&world, worker, second.id()).await;
    assert_eq!(succeed(&world, worker, &held).await, Some(third.id()));
    let held = claim_only(&world, worker, third.id()).await;
    assert_eq!(succeed(&world, worker, &held).await, None);
    assert!(fire_and_claim(&mut world, &job, worker).await.expect("born").lease().is_some());
}

/// As many wait as may; they go on one by one, oldest slot first, whenever they were born.
pub async fn under_queue_all_runs_wait_oldest_slot_first(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = ruled(&mut world, Overlap::QueueAll { max: 3 }).await;
    let worker = world.worker();
    let first = fire_and_claim(&mut world, &job, worker).await.expect("born");
    let mut behind = Vec::new();
    for _ in 0..2 {
        behind.push(fire(&mut world, &job).await.expect("born"));
    }
    let old = Birth { cause: Cause::Backfill, part: 7, ..birth(&job, world.after(-86_400)) };
    let (births, version) = (vec![old], job.version);
    let effect = Effect::Births { job: job.id, version, births, is_over: false };
    let made = try_step(&world, &job, effect).await.expect("done").runs;
    assert_eq!(made[0].state, BEHIND);
    behind.insert(0, made[0].clone());
    assert_eq!(fire(&mut world, &job).await, None, "the line is full");
    let mut released = succeed(&world, worker, &first).await;
    for (place, run) in behind.iter().enumerate() {
        assert_eq!(released, Some(run.id()), "at {place}");
        let held = claim_only(&world, worker, run.id()).await;
        assert_eq!(held.attempt, 1);
        released = succeed(&world, worker, &held).await;
    }
    assert_eq!(released, None);
}

/// What is pending is cancelled, what runs is asked to stop, and the new run starts when the lease of the old one is over.
pub async fn under_cancel_running_the_new_run_takes_the_place_of_others(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = ruled(&mut world, Overlap::CancelRunning).await;
    let worker = world.worker();
    let pending = fire(&mut world, &job).await.expect("born");
    let running = fire_and_claim(&mut world, &job, worker).await.expect("born");
    assert_eq!(state(&world, &pending).await, RunState::Cancelled);
    assert!(running.lease().is_some(), "nothing ran, so it need not wait");
    let waiting = fire_and_claim(&mut world, &job, worker).await.expect("born");
    assert_eq!(waiting.state, BEHIND);
    let held = punctual_domain::Held::from(&running);
    let told = store.heartbeat(worker, vec![held], world.now).await.expect("heartbeat");
    assert_eq!(told.cancelled, [held]);
    let newest = fire(&mut world, &job).await.expect("born");
    assert_eq!((state(&world, &waiting).await, newest.state), (RunState::Cancelled, BEHIND));
    assert_eq!(world.claim(worker, 9).await, []);
    // It was asked to stop: it is not tried again and is no dead letter, whatever its worker says.
    let retry = Verdict::Retry { available_at: world.now, charge: Charge::Attempt, start_by: None };
    for verdict in [retry, Verdict::Fail, Verdict::GiveUp(Limit::Deadline)] {
        let late = conclusion(worker, &running, Some(world.report(Outcome::Failed)), verdict);
        let refused = punctual_domain::lifecycle::Refused::AskedToStop;
        assert_eq!(world.try_conclude(late).await, Err(Refused::Lifecycle(refused)));
    }
    assert_eq!(end(&world, worker, &running, Verdict::Cancel).await.released, Some(newest.id()));
    claim_only(&world, worker, newest.id()).await;
    assert_eq!(ledger(&world, &job).await, []);
}

/// A run that waits for its next attempt is ahead of those behind it until it has ended for good.
pub async fn a_retry_lets_nobody_pass(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = ruled(&mut world, Overlap::QueueOne).await;
    let worker = world.worker();
    let first = fire_and_claim(&mut world, &job, worker).await.expect("born");
    let second = fire(&mut world, &job).await.expect("born");
    let later = Verdict::Retry { available_at: world.after(60), charge: Charge::Attempt, start_by: None };
    assert_eq!(end(&world, worker, &first, later).await.released, None);
    assert_eq!(world.claim(worker, 9).await, []);
    world.advance(Duration::from_secs(60));
    let again = claim_only(&world, worker, first.id()).await;
    assert_eq!(end(&world, worker, &again, Verdict::Fail).await.released, Some(second.id()));
    assert_eq!(drain(&mut world, &job).await, [second.id()]);
}

/// Cancelling the run ahead lets the next go on; cancelling one that waits lets nobody go on.
pub async fn a_cancelled_run_lets_the_next_go_on(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = ruled(&mut world, Overlap::QueueAll { max: 9 }).await;
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(fire(&mut world, &job).await.expect("born"));
    }
    assert_eq!(cancel(&world, &runs[1]).await.state, RunState::Cancelled);
    assert_eq!(state(&world, &runs[2]).await, BEHIND);
    assert_eq!(cancel(&world, &runs[0]).await.state, RunState::Cancelled);
    assert_eq!((state(&world, &runs[2]).await, state(&world, &runs[3]).await), (READY, BEHIND));
    assert_eq!(drain(&mut world, &job).await, [runs[2].id(), runs[3].id()]);
}

/// A worker that dies holds its run, and those behind it, no longer than its lease.
pub async fn a_lost_run_holds_the_next_until_it_is_reclaimed(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = ruled(&mut world, Overlap::QueueOne).await;
    let (dead, worker) = (world.worker(), world.worker());
    let first = fire_and_claim(&mut world, &job, dead).await.expect("born");
    store.heartbeat(dead, vec![(&first).into()], world.now).await.expect("heartbeat");
    let second = fire(&mut world, &job).await.expect("born");
    world.advance(LEASE);
    let expired = store.expired(LEASE, world.now, 9).await.expect("expired");
    assert_eq!(expired.iter().map(Run::id).collect::<Vec<_>>(), [first.id()]);
    let again = Verdict::Retry { available_at: world.now, charge: Charge::Lost, start_by: None };
    assert_eq!(end(&world, dead, &first, again).await.released, None, "the same run goes on");
    let held = claim_only(&world, worker, first.id()).await;
    assert_eq!(succeed(&world, worker, &held).await, Some(second.id()));
}

/// A dead run that goes on is open again: it waits for its turn if another is open, in the order of slots, and others wait
/// for it. No bound keeps it from it, and it replaces nobody.
pub async fn a_redriven_run_waits_for_its_turn(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    for overlap in [Overlap::Skip, Overlap::QueueOne, Overlap::CancelRunning] {
        let job = ruled(&mut world, overlap).await;
        let mut dead = Vec::new();
        for _ in 0..2 {
            let run = fire_and_claim(&mut world, &job, worker).await.expect("born");
            end(&world, worker, &run, Verdict::Fail).await;
            dead.push(run.id());
        }
        let running = fire_and_claim(&mut world, &job, worker).await.expect("born");
        let redriven = store.redrive(&dead, world.now).await.expect("redrive");
        let states: Vec<_> = redriven.iter().flatten().map(|run| run.state).collect();
        assert_eq!(states, [BEHIND, BEHIND], "{overlap:?}");
        assert_eq!(world.claim(worker, 9).await, []);
        assert_eq!(succeed(&world, worker, &running).await, Some(dead[0]), "{overlap:?}");
        assert_eq!(drain(&mut world, &job).await, dead, "{overlap:?}");
        // Alone, it waits for nobody; the next slot is decided against it.
        let run = fire_and_claim(&mut world, &job, worker).await.expect("born");
        end(&world, worker, &run, Verdict::Fail).await;
        let alone = store.redrive(&[run.id()], world.now).await.expect("redrive").remove(0).expect("dead");
        assert_eq!(alone.state, READY);
        let next = fire(&mut world, &job).await;
        let expected = match overlap {
            Overlap::Skip => None,
            Overlap::CancelRunning => Some(READY),
            _ => Some(BEHIND),
        };
        assert_eq!(next.map(|run| run.state), expected, "{overlap:?}");
        drain(&mut world, &job).await;
    }
}

/// An edit to `allow` lets all that wait go on. Other edits keep them waiting, in the old version or the new one.
pub async fn an_edit_of_the_policy_keeps_or_releases_what_waits(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let mut job = ruled(&mut world, Overlap::QueueAll { max: 9 }).await;
    let worker = world.worker();
    let first = fire_and_claim(&mut world, &job, worker).await.expect("born");
    let mut behind = Vec::new();
    for _ in 0..3 {
        behind.push(fire(&mut world, &job).await.expect("born"));
    }
    change(&world, &mut job, |job, put| {
        job.spec.policies.overlap = Overlap::Skip;
        put.open_runs = OpenRuns::Update;
    })
    .await;
    for run in &behind {
        let found = world.detail(run.id()).await.run;
        assert_eq!((found.state, found.version), (BEHIND, Version(2)));
    }
    assert_eq!(fire(&mut world, &job).await, None);
    assert_eq!(succeed(&world, worker, &first).await, Some(behind[0].id()));
    change(&world, &mut job, |job, put| {
        job.spec.policies.overlap = Overlap::Allow;
        put.lets_overlap = true;
    })
    .await;
    let ids: Vec<RunId> = behind.iter().map(Run::id).collect();
    let claimed = world.claim(worker, 9).await;
    assert_eq!(claimed.iter().map(Run::id).collect::<Vec<_>>(), ids);
    for run in &claimed {
        assert_eq!(succeed(&world, worker, run).await, None);
    }
}

/// A run that was fired when overlap was allowed is open for one that is fired later, and lets it go on when it ends.
pub async fn an_edit_finds_the_runs_that_are_open(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let mut job = ruled(&mut world, Overlap::Allow).await;
    let worker = world.worker();
    let mut ahead = Vec::new();
    for _ in 0..2 {
        ahead.push(fire_and_claim(&mut world, &job, worker).await.expect("born"));
    }
    change(&world, &mut job, |job, _| job.spec.policies.overlap = Overlap::QueueOne).await;
    let next = fire(&mut world, &job).await.expect("born");
    assert_eq!(next.state, BEHIND);
    assert_eq!(succeed(&world, worker, &ahead[1]).await, None, "another is ahead");
    assert_eq!(succeed(&world, worker, &ahead[0]).await, Some(next.id()));
    // A run that does not care about others is ahead all the same.
    let held = claim_only(&world, worker, next.id()).await;
    let last = fire(&mut world, &job).await.expect("born");
    let beside = Birth { overlap: Overlap::Allow, part: 1, cause: Cause::Backfill, ..birth(&job, world.now) };
    let (births, version) = (vec![beside], job.version);
    let effect = Effect::Births { job: job.id, version, births, is_over: false };
    let beside = try_step(&world, &job, effect).await.expect("done").runs.remove(0);
    assert_eq!(beside.state, READY);
    assert_eq!(succeed(&world, worker, &held).await, None);
    let held = claim_only(&world, worker, beside.id()).await;
    assert_eq!(succeed(&world, worker, &held).await, Some(last.id()));
}

/// Deleting a job cancels what waits for an earlier run too; the one that runs ends, and lets nobody go on.
pub async fn deleting_a_job_cancels_what_waits_for_an_earlier_run(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let mut job = ruled(&mut world, Overlap::QueueAll { max: 9 }).await;
    let worker = world.worker();
    let first = fire_and_claim(&mut world, &job, worker).await.expect("born");
    let behind = [fire(&mut world, &job).await, fire(&mut world, &job).await].map(|run| run.expect("born"));
    job.version = Version(2);
    job.state = JobState::Deleted;
    let mut put = world.put(job, None);
    put.open_runs = OpenRuns::CancelPending;
    world.try_put(put).await.expect("deleted");
    for run in &behind {
        assert_eq!(state(&world, run).await, RunState::Cancelled);
    }
    assert_eq!(succeed(&world, worker, &first).await, None);
    assert_eq!(world.claim(worker, 9).await, []);
}

/// A pause makes no runs, and leaves alone those that are there.
pub async fn a_pause_keeps_what_waits(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let mut job = ruled(&mut world, Overlap::QueueOne).await;
    let worker = world.worker();
    let first = fire_and_claim(&mut world, &job, worker).await.expect("born");
    let second = fire(&mut world, &job).await.expect("born");
    job.version = Version(2);
    job.state = JobState::Paused(Pause { reason: None, by: None, since: world.now, until: None });
    world.try_put(world.put(job.clone(), None)).await.expect("paused");
    assert_eq!(succeed(&world, worker, &first).await, Some(second.id()));
    assert_eq!(drain(&mut world, &job).await, [second.id()]);
}

/// Triggers count like slots; one that there is no place for is refused, and nothing of it is remembered.
pub async fn a_trigger_is_refused_where_there_is_no_place(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = ruled(&mut world, Overlap::Skip).await;
    let first = trigger(&world, &job, 1).await.expect("nothing is open");
    assert_eq!(trigger(&world, &job, 2).await, Err(Refused::Overlap { room: 0 }));
    assert_eq!(fire(&mut world, &job).await, None);
    let request = Subject {
        tenant: TenantId::DEFAULT,
        key: "asked".into(),
        fingerprint: [7; 16],
        expires_at: world.after(600),
        result: String::new(),
    };
    let asking = Trigger {
        job: job.id,
        version: job.version,
        birth: Birth { cause: Cause::Trigger, part: 3, ..birth(&job, world.now) },
        is_over: false,
        request: Some(request),
        audit: None,
    };
    let refused = store.trigger(vec![asking.clone()], world.now).await.expect("trigger");
    assert_eq!(refused, [Err(Refused::Overlap { room: 0 })]);
    assert_eq!(store.request(TenantId::DEFAULT, "asked", world.now).await.expect("request"), None);
    assert_eq!(drain(&mut world, &job).await, [first.id()]);
    assert!(store.trigger(vec![asking], world.now).await.expect("trigger")[0].is_ok());
    // In one list they are decided one after the other.
    let job = ruled(&mut world, Overlap::QueueOne).await;
    let many = (0..3).map(|part| Trigger {
        job: job.id,
        version: job.version,
        birth: Birth { cause: Cause::Trigger, part, ..birth(&job, world.now) },
        is_over: false,
        request: None,
        audit: None,
    });
    let answers = store.trigger(many.collect(), world.now).await.expect("trigger");
    let states: Vec<_> = answers.into_iter().map(|answer| answer.map(|run| run.state)).collect();
    assert_eq!(states, [Ok(READY), Ok(BEHIND), Err(Refused::Overlap { room: 0 })]);
}

async fn try_step(world: &World, job: &Job, effect: Effect) -> Result<Stepped, Refused> {
    let entropy = world.now.as_millisecond() as u64;
    let id = OperationId::new(world.now, job.id.shard(), entropy);
    let kind = Kind::Redrive(DeadLetters::default());
    let operation = Operation::new(id, TenantId::DEFAULT, kind, world.now);
    let step = Step { operation, epoch: None, effect, ledger: Vec::new(), request: None, audit: None };
    world.store.step(vec![step], world.now).await.expect("step").remove(0)
}

/// A step counts the slots that it does not run. Where runs wait in a line, it is refused instead, whole, and told how
/// many there is room for.
pub async fn a_step_waits_for_room_or_counts_what_it_skips(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let births = |world: &World, job: &Job, count: i64| {
        let slot = |n: i64| Birth { cause: Cause::Backfill, ..birth(job, world.after(60 * (n - 100))) };
        let births = (0..count).map(slot).collect();
        Effect::Births { job: job.id, version: job.version, births, is_over: false }
    };
    let job = ruled(&mut world, Overlap::QueueAll { max: 2 }).await;
    let refused = try_step(&world, &job, births(&world, &job, 5)).await;
    assert_eq!(refused, Err(Refused::Overlap { room: 3 }));
    let stepped = try_step(&world, &job, births(&world, &job, 3)).await.expect("there is room");
    assert_eq!((stepped.operation.done, stepped.operation.failed), (3, 0));
    let states: Vec<_> = stepped.runs.iter().map(|run| run.state).collect();
    assert_eq!(states, [READY, BEHIND, BEHIND]);
    world.advance(Duration::from_secs(60));
    assert_eq!(
        try_step(&world, &job, births(&world, &job, 1)).await,
        Err(Refused::Overlap { room: 0 }),
        "nothing of it is done"
    );
    let ran = drain(&mut world, &job).await;
    assert_eq!(ran, stepped.runs.iter().map(Run::id).collect::<Vec<_>>());
    assert_eq!(ledger(&world, &job).await, []);
    for (overlap, place) in [(Overlap::Skip, 0), (Overlap::CancelRunning, 3)] {
        let job = ruled(&mut world, overlap).await;
        let stepped = try_step(&world, &job, births(&world, &job, 4)).await.expect("done");
        assert_eq!((stepped.operation.done, stepped.operation.failed), (1, 3), "{overlap:?}");
        assert_eq!(stepped.runs[0].scheduled_for, world.after(60 * (place - 100)));
        let (from, to) = if place == 0 { (1, 3) } else { (0, 2) };
        let expected = (world.after(60 * (from - 100)), world.after(60 * (to - 100)), 3);
        assert_eq!(ledger(&world, &job).await, [expected], "{overlap:?}");
        world.advance(Duration::from_secs(1));
        drain(&mut world, &job).await;
    }
}

/// A slot that the ledger has already stays as it was accounted for when it was due.
pub async fn a_slot_is_accounted_for_once(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = ruled(&mut world, Overlap::Skip).await;
    let missed = LedgerEntry {
        job: job.id,
        tenant: job.tenant,
        from: world.after(-600),
        to: world.after(-300),
        slots: 6,
        fate: Fate::MissedCatchUp,
        decided_at: world.now,
    };
    let firing = world.firing(&job, world.now);
    let firing = crate::verbs::Firing { ledger: vec![missed.clone()], ..firing };
    world.try_firing(firing).await.expect("fired");
    let slots = [-600, -420, -300, -240];
    let births = slots.map(|at| Birth { cause: Cause::Backfill, ..birth(&job, world.after(at)) }).to_vec();
    let effect = Effect::Births { job: job.id, version: job.version, births, is_over: false };
    assert_eq!(try_step(&world, &job, effect).await.expect("done").operation.failed, 4);
    let entries = store.ledger(job.id, PageRequest::first(9)).await.expect("ledger").items;
    assert_eq!(entries.len(), 2);
    assert_eq!((entries[0].from, entries[0].fate), (world.after(-240), Fate::SkippedOverlap));
    assert_eq!(entries[1], missed);
}

/// A slot that gets no run is not counted as a fire: what follows is as if it had not been the last.
pub async fn a_slot_without_a_run_is_no_fire(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = ruled(&mut world, Overlap::Skip).await;
    let worker = world.worker();
    let first = fire_and_claim(&mut world, &job, worker).await.expect("born");
    let counted = |world: &World| {
        let mut firing = world.firing(&job, world.now);
        let over = Some(Retention::Day);
        firing.otherwise = Some(Otherwise { next: firing.next.take(), over: None });
        (firing.over, firing.progress) = (over, Some(Progress { fired: 2, last_completion: None }));
        firing
    };
    assert_eq!(world.try_firing(counted(&world)).await.expect("fired"), []);
    let fired =
        async |_: &World| store.jobs(&[job.id]).await.expect("jobs").remove(0).expect("there").progress.fired;
    assert_eq!(fired(&world).await, 0);
    world.advance(Duration::from_secs(60));
    succeed(&world, worker, &first).await;
    assert_eq!(world.due_until(world.now).await.len(), 1, "the next slot is due");
    assert_eq!(world.try_firing(counted(&world)).await.expect("fired").len(), 1);
    assert_eq!(fired(&world).await, 2);
    assert_eq!(world.due_until(world.after(600)).await, []);
}

/// Runs that end in one list let one go on, once.
pub async fn runs_that_end_together_let_one_go_on(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = ruled(&mut world, Overlap::Allow).await;
    let worker = world.worker();
    let mut ahead = Vec::new();
    for _ in 0..3 {
        ahead.push(fire_and_claim(&mut world, &job, worker).await.expect("born"));
    }
    change(&world, &mut job, |job, _| job.spec.policies.overlap = Overlap::QueueAll { max: 9 }).await;
    let behind = [fire(&mut world, &job).await, fire(&mut world, &job).await].map(|run| run.expect("born"));
    let report = world.report(Outcome::Succeeded);
    let ends = ahead.iter().map(|run| conclusion(worker, run, Some(report.clone()), Verdict::Succeed));
    let answers = store.complete(ends.collect(), world.now).await.expect("complete");
    let released: Vec<RunId> =
        answers.into_iter().filter_map(|answer| answer.expect("ended").released).collect();
    assert_eq!(released, [behind[0].id()]);
    assert_eq!(drain(&mut world, &job).await, behind.map(|run| run.id()));
}

/// However many ask at once: one run is born under `skip`, and under a queue all of them run one after the other, also
/// while others end.
pub async fn births_and_ends_at_once_leave_nobody_behind(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let job = ruled(&mut world, Overlap::Skip).await;
    let asked = at_once((0..8).map(|part| trigger(&world, &job, part))).await;
    assert_eq!(asked.iter().filter(|answer| answer.is_ok()).count(), 1, "{asked:?}");
    drain(&mut world, &job).await;
    let job = ruled(&mut world, Overlap::QueueAll { max: 1_000 }).await;
    let mut part = 0;
    let mut running = vec![trigger(&world, &job, u32::MAX).await.expect("born")];
    let mut ended = 0;
    for round in 0..12 {
        running.clear();
        running.extend(world.claim(worker, 9).await);
        assert_eq!(running.len(), 1, "in round {round}");
        let ending = async {
            succeed(&world, worker, &running[0]).await;
            true
        };
        let asking = (part..part + 3).map(async |part| trigger(&world, &job, part).await.is_ok());
        part += 3;
        let asking: Vec<Ask<'_>> = asking.map(|ask| Box::pin(ask) as Ask<'_>).collect();
        let all = [Box::pin(ending) as Ask<'_>].into_iter().chain(asking);
        assert!(at_once(all).await.into_iter().all(|is_done| is_done));
        ended += 1;
    }
    assert_eq!(ended + drain(&mut world, &job).await.len() as u32, part + 1);
}

type Ask<'a> = std::pin::Pin<Box<dyn Future<Output = bool> + Send + 'a>>;
