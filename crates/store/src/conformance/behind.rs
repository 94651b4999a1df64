//! Runs that wait for an earlier one and may not start after a time: whatever ends the one ahead, the next goes on.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::Outcome;
use punctual_domain::id::{OperationId, RunId};
use punctual_domain::job::{Job, JobState, Pause};
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::operation::{DeadLetters, Kind, Operation};
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::run::{Cause, Limit, Run, RunState, StartBy, WaitingFor};

use super::world::{World, birth, conclusion, due};
use crate::error::Refused;
use crate::page::PageRequest;
use crate::store::Store;
use crate::verbs::{Birth, Effect, Lapse, OpenRuns, Put, Shards, Step};

const BEHIND: RunState = RunState::Pending(WaitingFor::EarlierRun);
const READY: RunState = RunState::Pending(WaitingFor::Capacity);

async fn ruled(world: &mut World, overlap: Overlap) -> Job {
    let mut job = world.job("ruled");
    job.spec.policies.overlap = overlap;
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    job
}

/// Fires the slot that is due, whose run may start until so many seconds later, and goes on to the next.
async fn fire(world: &mut World, job: &Job, window: i64) -> Option<Run> {
    let mut firing = world.firing(job, world.now);
    firing.births[0].start_by = Some(StartBy { at: world.after(window), limit: Limit::StartWindow });
    let fired = world.try_firing(firing).await.expect("fired");
    world.advance(Duration::from_secs(60));
    fired.into_iter().next()
}

async fn lapsed(world: &World) -> (Vec<RunId>, Option<Timestamp>) {
    let lapsed = world.store.lapsed(&Shards::All, world.now, 100).await.expect("lapsed");
    (lapsed.runs.iter().map(Run::id).collect(), lapsed.next_at)
}

async fn lapse(world: &World, runs: &[RunId]) -> Vec<Result<Run, Refused>> {
    let lapses = runs.iter().map(|run| Lapse { run: *run, successor: None, messages: Vec::new() }).collect();
    world.store.lapse(lapses, world.now).await.expect("lapse")
}

async fn state(world: &World, run: &Run) -> RunState {
    world.detail(run.id()).await.run.state
}

async fn states<const N: usize>(world: &World, runs: [&Run; N]) -> [RunState; N] {
    let mut states = [READY; N];
    for (place, run) in runs.into_iter().enumerate() {
        states[place] = state(world, run).await;
    }
    states
}

/// Ends the run that a worker holds, and tells who goes on.
async fn end(world: &World, run: &Run, outcome: Outcome, verdict: Verdict) -> Option<RunId> {
    let worker = run.lease().expect("held").worker;
    let conclusion = conclusion(worker, run, Some(world.report(outcome)), verdict);
    world.try_conclude(conclusion).await.expect("recorded").released
}

async fn claim_only(world: &mut World, expected: &Run) -> Run {
    let worker = world.worker();
    let mut claimed = world.claim(worker, 9).await;
    assert_eq!(claimed.iter().map(Run::id).collect::<Vec<_>>(), [expected.id()]);
    assert!(claimed[0].lease().is_some(), "{claimed:?}");
    claimed.remove(0)
}

async fn change(world: &World, job: &mut Job, change: impl FnOnce(&mut Job, &mut Put)) {
    job.version = job.version.next();
    let mut put = world.put(job.clone(), None);
    change(job, &mut put);
    put.job = Arc::new(job.clone());
    let is_active = job.is_active();
    world.try_put(Put { due: is_active.then(|| due(job, world.now)), ..put }).await.expect("changed");
}

/// Its time goes on while another is ahead: it is missed without ever having been in a line, and those behind it keep
/// their turn.
pub async fn a_run_lapses_while_it_waits_for_an_earlier_one(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = ruled(&mut world, Overlap::QueueAll { max: 9 }).await;
    let first = fire(&mut world, &job, 1_000).await.expect("born");
    let held = claim_only(&mut world, &first).await;
    let second = fire(&mut world, &job, 100).await.expect("born");
    let third = fire(&mut world, &job, 1_000).await.expect("born");
    let limits = [second.lapses_after(), third.lapses_after()];
    assert_eq!(lapsed(&world).await, (vec![second.id()], limits[1]), "two minutes after its slot");
    let missed = lapse(&world, &[second.id()]).await.remove(0).expect("late");
    assert_eq!((missed.state, missed.reason), (RunState::Missed, Some(Limit::StartWindow)));
    assert_eq!(lapsed(&world).await, (vec![], limits[1]));
    assert_eq!(state(&world, &third).await, BEHIND, "the first one is still running");
    assert_eq!(end(&world, &held, Outcome::Succeeded, Verdict::Succeed).await, Some(third.id()));
    assert_eq!(lapsed(&world).await, (vec![], limits[1]), "its turn does not give a slot more time");
    claim_only(&mut world, &third).await;
}

/// The end of the run ahead is the end of it, whatever ended it: in the same commit the next goes on.
pub async fn a_lapse_lets_the_next_go_on(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    for overlap in [Overlap::QueueOne, Overlap::QueueAll { max: 9 }] {
        let job = ruled(&mut world, overlap).await;
        let first = fire(&mut world, &job, 30).await.expect("born");
        let second = fire(&mut world, &job, 1_000).await.expect("born");
        assert_eq!(states(&world, [&first, &second]).await, [READY, BEHIND]);
        lapse(&world, &[first.id()]).await.remove(0).expect("late");
        assert_eq!(states(&world, [&first, &second]).await, [RunState::Missed, READY]);
        let held = claim_only(&mut world, &second).await;
        assert_eq!(end(&world, &held, Outcome::Succeeded, Verdict::Succeed).await, None);
        assert_eq!(store.have_open_runs(&[job.id]).await.expect("have_open_runs"), [false]);
    }
}

/// A whole line that lapses in one list lets one go on, whatever their order in it.
pub async fn runs_that_lapse_together_let_one_go_on(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    for is_reversed in [false, true] {
        let job = ruled(&mut world, Overlap::QueueAll { max: 9 }).await;
        let mut late = Vec::new();
        for _ in 0..3 {
            late.push(fire(&mut world, &job, 30).await.expect("born").id());
        }
        let next = fire(&mut world, &job, 1_000).await.expect("born");
        let last = fire(&mut world, &job, 1_000).await.expect("born");
        assert_eq!(lapsed(&world).await.0, late);
        if is_reversed {
            late.reverse();
        }
        assert!(lapse(&world, &late).await.into_iter().all(|answer| answer.is_ok()));
        assert_eq!(states(&world, [&next, &last]).await, [READY, BEHIND]);
        let held = claim_only(&mut world, &next).await;
        assert_eq!(end(&world, &held, Outcome::Succeeded, Verdict::Succeed).await, Some(last.id()));
        let held = claim_only(&mut world, &last).await;
        assert_eq!(end(&world, &held, Outcome::Succeeded, Verdict::Succeed).await, None);
    }
}

/// Under `skip` a slot gets its run as soon as the one before it was missed, and none before.
pub async fn what_was_missed_is_over_for_the_next_slot(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = ruled(&mut world, Overlap::Skip).await;
    let first = fire(&mut world, &job, 30).await.expect("born");
    assert_eq!(fire(&mut world, &job, 30).await, None, "it has not ended yet");
    lapse(&world, &[first.id()]).await.remove(0).expect("late");
    let third = fire(&mut world, &job, 1_000).await.expect("born");
    assert_eq!(third.state, READY);
    let ledger = store.ledger(job.id, PageRequest::first(9)).await.expect("ledger").items;
    assert_eq!(ledger.iter().map(|entry| entry.slots).collect::<Vec<_>>(), [1]);
}

/// A retry that does not start in time ends its run for good: whoever waited for it goes on.
pub async fn a_retry_that_lapses_lets_the_next_go_on(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = ruled(&mut world, Overlap::QueueOne).await;
    let first = fire(&mut world, &job, 1_000).await.expect("born");
    let held = claim_only(&mut world, &first).await;
    let second = fire(&mut world, &job, 1_000).await.expect("born");
    let start_by = Some(StartBy { at: world.after(30), limit: Limit::RetryFor });
    let retry = Verdict::Retry { available_at: world.after(10), charge: Charge::Attempt, start_by };
    assert_eq!(end(&world, &held, Outcome::Failed, retry).await, None);
    world.advance(Duration::from_secs(31));
    let ended = lapse(&world, &[first.id()]).await.remove(0).expect("late");
    assert_eq!(ended.state, RunState::Failed);
    assert_eq!(state(&world, &second).await, READY);
    claim_only(&mut world, &second).await;
}

/// Under `cancel_running` a run that waits for its next attempt is cancelled, and has no time any more.
pub async fn a_retry_that_waits_makes_way_for_a_newer_run(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = ruled(&mut world, Overlap::CancelRunning).await;
    let first = fire(&mut world, &job, 1_000).await.expect("born");
    let held = claim_only(&mut world, &first).await;
    let start_by = Some(StartBy { at: world.after(30), limit: Limit::Deadline });
    let retry = Verdict::Retry { available_at: world.after(10), charge: Charge::Attempt, start_by };
    end(&world, &held, Outcome::Failed, retry).await;
    let second = fire(&mut world, &job, 1_000).await.expect("born");
    assert_eq!(states(&world, [&first, &second]).await, [RunState::Cancelled, READY]);
    assert_eq!(lapsed(&world).await, (vec![], second.lapses_after()));
    assert!(lapse(&world, &[first.id()]).await[0].is_err());
    claim_only(&mut world, &second).await;
}

/// A pause makes no runs, and leaves those that are there to their time.
pub async fn a_lapse_goes_on_while_the_job_is_paused(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let mut job = ruled(&mut world, Overlap::QueueAll { max: 9 }).await;
    let first = fire(&mut world, &job, 30).await.expect("born");
    let second = fire(&mut world, &job, 100).await.expect("born");
    let third = fire(&mut world, &job, 1_000).await.expect("born");
    let paused_at = world.now;
    change(&world, &mut job, |job, _| {
        job.state = JobState::Paused(Pause { reason: None, by: None, since: paused_at, until: None });
    })
    .await;
    assert_eq!(lapsed(&world).await, (vec![first.id(), second.id()], third.lapses_after()));
    lapse(&world, &[first.id()]).await.remove(0).expect("late");
    assert_eq!(states(&world, [&second, &third]).await, [READY, BEHIND]);
    assert_eq!(lapsed(&world).await.0, [second.id()]);
    lapse(&world, &[second.id()]).await.remove(0).expect("late");
    claim_only(&mut world, &third).await;
}

/// A slot of the past is not late: it waits for its turn as long as that takes, and has its window from then on.
pub async fn the_time_of_a_backfill_begins_with_its_turn(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = ruled(&mut world, Overlap::QueueAll { max: 9 }).await;
    let old = |world: &World, day: i64| Birth {
        cause: Cause::Backfill,
        available_at: world.now,
        start_by: Some(StartBy { at: world.after(30), limit: Limit::StartWindow }),
        ..birth(&job, world.after(-86_400 * day))
    };
    let births = vec![old(&world, 3), old(&world, 2), old(&world, 1)];
    let effect = Effect::Births { job: job.id, version: job.version, births, is_over: false };
    let id = OperationId::new(world.now, job.id.shard(), 1);
    let operation = Operation::new(id, job.tenant, Kind::Redrive(DeadLetters::default()), world.now);
    let epoch = Some(world.epochs[usize::from(job.id.shard().0)]);
    let step = Step { operation, epoch, effect, ledger: Vec::new(), request: None, audit: None };
    let stepped = store.step(vec![step], world.now).await.expect("step").remove(0).expect("done");
    let [first, second, third] = &stepped.runs[..] else { panic!("{stepped:?}") };
    assert_eq!(states(&world, [first, second, third]).await, [READY, BEHIND, BEHIND]);
    assert_eq!(first.counts_from(), world.now);
    assert_eq!(lapsed(&world).await, (vec![], Some(world.after(30))), "only who has its turn");
    let held = claim_only(&mut world, first).await;
    world.advance(Duration::from_secs(3_600));
    assert_eq!(lapsed(&world).await, (vec![], None), "who waits has all of its time");
    assert_eq!(end(&world, &held, Outcome::Succeeded, Verdict::Succeed).await, Some(second.id()));
    let went_on = world.detail(second.id()).await.run;
    assert_eq!((went_on.counts_from(), went_on.lapses_after()), (world.now, Some(world.after(30))));
    assert_eq!(lapsed(&world).await, (vec![], Some(world.after(30))));
    world.advance(Duration::from_secs(31));
    assert_eq!(lapsed(&world).await, (vec![second.id()], None));
    let missed = lapse(&world, &[second.id()]).await.remove(0).expect("late");
    assert_eq!(missed.state, RunState::Missed);
    assert_eq!(lapsed(&world).await, (vec![], Some(world.after(30))), "and the next has its own");
    claim_only(&mut world, third).await;
}

/// Somebody asked for more attempts: their time does not pass while another run is ahead.
pub async fn the_time_of_a_redriven_run_begins_with_its_turn(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = ruled(&mut world, Overlap::QueueOne).await;
    let first = fire(&mut world, &job, 1_000).await.expect("born");
    let held = claim_only(&mut world, &first).await;
    end(&world, &held, Outcome::Failed, Verdict::GiveUp(Limit::Deadline)).await;
    let second = fire(&mut world, &job, 1_000).await.expect("born");
    let held = claim_only(&mut world, &second).await;
    let again = store.redrive(&[first.id()], world.now).await.expect("redrive").remove(0).expect("dead");
    assert_eq!((again.state, again.lapses_after()), (BEHIND, None));
    let asked_at = world.now;
    world.advance(Duration::from_secs(7_200));
    assert_eq!(end(&world, &held, Outcome::Succeeded, Verdict::Succeed).await, Some(first.id()));
    let went_on = world.detail(first.id()).await.run;
    assert_eq!((went_on.redriven_at, went_on.counts_from()), (Some(asked_at), world.now));
    claim_only(&mut world, &first).await;
}

/// Runs that wait for an earlier one follow an edit like all that wait.
pub async fn an_edit_gives_limits_to_runs_that_wait(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let mut job = ruled(&mut world, Overlap::QueueAll { max: 9 }).await;
    let first = fire(&mut world, &job, 1_000).await.expect("born");
    claim_only(&mut world, &first).await;
    let second = fire(&mut world, &job, 1_000).await.expect("born");
    for window in [Some(90), None, Some(50)] {
        let before = world.detail(second.id()).await.run;
        change(&world, &mut job, |job, put| {
            job.spec.policies.timeouts.start_window = window.map(Duration::from_secs);
            put.open_runs = OpenRuns::Update;
        })
        .await;
        let at = window.map(|seconds| second.available_at + Duration::from_secs(seconds));
        let updated = world.detail(second.id()).await.run;
        assert_eq!((updated.state, updated.lapses_after()), (BEHIND, at), "{before:?}");
    }
    assert_eq!(lapsed(&world).await, (vec![second.id()], None));
    lapse(&world, &[second.id()]).await.remove(0).expect("late");
    assert_eq!(lapsed(&world).await, (vec![], None));
}
