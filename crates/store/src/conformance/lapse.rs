//! Lapse: a run whose next attempt does not start in time never starts, whoever looks first.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::id::{RunId, Version};
use punctual_domain::job::JobState;
use punctual_domain::lifecycle::{self, Charge, Verdict};
use punctual_domain::run::{Limit, Run, RunState, StartBy};
use punctual_domain::{Lane, Outcome};

use super::world::{World, birth, conclusion, due};
use crate::error::Refused;
use crate::page::PageRequest;
use crate::store::Store;
use crate::verbs::{Cancellation, DueWhen, Lapse, OpenRuns, Put, RunFilter, Shards, Successor};

fn by(world: &World, seconds: i64, limit: Limit) -> Option<StartBy> {
    Some(StartBy { at: world.after(seconds), limit })
}

/// A waiting run that may start until some seconds from now.
async fn limited(world: &mut World, name: &str, seconds: i64) -> Run {
    let job = world.register(name, world.now).await;
    let mut firing = world.firing(&job, world.now);
    firing.births[0].start_by = by(world, seconds, Limit::StartWindow);
    world.try_firing(firing).await.expect("fired").remove(0)
}

/// The runs that lapse now, and when the next one does.
async fn lapsed(world: &World) -> (Vec<RunId>, Option<Timestamp>) {
    let lapsed = world.store.lapsed(&Shards::All, world.now, 100).await.expect("lapsed");
    (lapsed.runs.iter().map(Run::id).collect(), lapsed.next_at)
}

async fn try_lapse(world: &World, run: RunId) -> Result<Run, Refused> {
    let lapse = Lapse { run, successor: None, messages: Vec::new() };
    world.store.lapse(vec![lapse], world.now).await.expect("lapse").remove(0)
}

fn is_wrong_state(answer: &Result<Run, Refused>) -> bool {
    matches!(answer, Err(Refused::Lifecycle(lifecycle::Refused::WrongState { .. })))
}

/// It is found when its time is over, is not leased any more, and ends as missed.
pub async fn a_run_that_waits_too_long_is_missed(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let run = limited(&mut world, "late", 30).await;
    let limit = run.start_by.expect("limited").at;
    assert_eq!(lapsed(&world).await, (vec![], Some(limit)));
    world.advance(Duration::from_secs(30));
    assert_eq!(lapsed(&world).await, (vec![], Some(limit)), "at the limit it may still start");
    assert!(is_wrong_state(&try_lapse(&world, run.id()).await));
    world.advance(Duration::from_millis(1));
    assert_eq!(lapsed(&world).await, (vec![run.id()], None));
    let worker = world.worker();
    assert_eq!(world.claim(worker, 9).await, std::slice::from_ref(&run), "told, and not leased");
    assert_eq!(world.detail(run.id()).await.attempts, []);
    let missed = try_lapse(&world, run.id()).await.expect("late");
    assert_eq!((missed.state, missed.reason), (RunState::Missed, Some(Limit::StartWindow)));
    assert_eq!((missed.finished_at, missed.started_at), (Some(world.now), None));
    assert_eq!(world.detail(run.id()).await.run, missed);
    assert_eq!((lapsed(&world).await, world.claim(worker, 9).await), ((vec![], None), vec![]));
    assert!(is_wrong_state(&try_lapse(&world, run.id()).await), "it ended once");
    let unknown = RunId::new(run.sequence.next(), run.job.shard());
    assert_eq!(try_lapse(&world, unknown).await, Err(Refused::NoRun));
    for (state, is_dead, found) in [
        (Some("missed"), None, 1),
        (Some("failed"), None, 0),
        (Some("cancelled"), None, 0),
        (None, Some(true), 0),
        (Some("missed"), Some(false), 1),
    ] {
        let filter = RunFilter { state, is_dead, ..RunFilter::default() };
        let page = store.runs(&filter, PageRequest::first(9)).await.expect("runs");
        assert_eq!(page.items.len(), found, "{state:?} {is_dead:?}");
    }
    let redriven = store.redrive(&[run.id()], world.now).await.expect("redrive").remove(0);
    assert!(is_wrong_state(&redriven), "it is no dead letter");
}

/// What is too late takes its turn and makes way: others are claimed behind it, and it is counted as waiting until it ended.
pub async fn a_late_run_makes_way_for_the_others(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let late = limited(&mut world, "late", 5).await;
    // Births of one moment have no order where there are several databases.
    world.advance(Duration::from_millis(1));
    let late = [late, limited(&mut world, "later", 6).await];
    world.advance(Duration::from_secs(10));
    let fresh = limited(&mut world, "in time", 5).await;
    let worker = world.worker();
    let waiting = || store.figures().waiting.of(Lane::Standard);
    let first = world.claim(worker, 2).await;
    assert_eq!(first.iter().map(Run::id).collect::<Vec<_>>(), late.each_ref().map(Run::id));
    assert!(first.iter().all(|run| run.lease().is_none()) && waiting() == 3);
    let lapses: Vec<Lapse> =
        first.iter().map(|run| Lapse { run: run.id(), successor: None, messages: Vec::new() }).collect();
    let ended = store.lapse(lapses, world.now).await.expect("lapse");
    assert!(ended.iter().all(Result::is_ok) && waiting() == 1);
    let next = world.claim(worker, 2).await;
    assert_eq!(next.iter().map(Run::id).collect::<Vec<_>>(), [fresh.id()]);
    assert!(next[0].lease().is_some() && waiting() == 0);
}

/// A run that has a lease does not lapse; given back without having started it is in its window as before.
pub async fn a_run_with_a_lease_does_not_lapse(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let run = limited(&mut world, "claimed", 30).await;
    let worker = world.worker();
    let held = world.claim(worker, 1).await.remove(0);
    assert_eq!(held.start_by, run.start_by);
    assert_eq!(lapsed(&world).await, (vec![], None));
    world.advance(Duration::from_secs(60));
    assert_eq!(lapsed(&world).await, (vec![], None));
    assert!(is_wrong_state(&try_lapse(&world, run.id()).await));
    let back = Verdict::Retry { available_at: world.now, charge: Charge::Nothing, start_by: held.start_by };
    world.try_complete(conclusion(worker, &held, None, back)).await.expect("recorded");
    assert_eq!(lapsed(&world).await, (vec![run.id()], None));
    assert_eq!(try_lapse(&world, run.id()).await.expect("late").state, RunState::Missed);
    let born = world.register("born running", world.now).await;
    let mut firing = world.firing(&born, world.now);
    firing.births[0].start_by = by(&world, 1, Limit::StartWindow);
    firing.births[0].claimed_by = Some(worker);
    let run = world.try_firing(firing).await.expect("fired").remove(0);
    world.advance(Duration::from_secs(2));
    assert_eq!(lapsed(&world).await, (vec![], None));
    world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
}

/// A retry that waits behind its limit ends the run as a dead letter, which may be redriven without the limit.
pub async fn a_retry_that_waits_too_long_ends_the_run(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    for (limit, state) in [(Limit::RetryFor, RunState::Failed), (Limit::Deadline, RunState::TimedOut)] {
        let worker = world.worker();
        let run = world.running(limit.as_str(), worker).await;
        let retry = Verdict::Retry {
            available_at: world.after(5),
            charge: Charge::Attempt,
            start_by: by(&world, 20, limit),
        };
        let waiting = world.conclude(worker, &run, Outcome::Failed, retry).await.expect("recorded");
        assert_eq!(lapsed(&world).await, (vec![], Some(world.after(20))));
        world.advance(Duration::from_secs(21));
        assert_eq!(lapsed(&world).await, (vec![run.id()], None));
        assert_eq!(world.claim(worker, 9).await, [waiting]);
        let ended = try_lapse(&world, run.id()).await.expect("late");
        assert_eq!((ended.state, ended.reason, ended.attempt), (state, Some(limit), 1));
        let filter = RunFilter { is_dead: Some(true), job: Some(run.job), ..RunFilter::default() };
        assert_eq!(store.runs(&filter, PageRequest::first(9)).await.expect("runs").items, [ended]);
        let again = store.redrive(&[run.id()], world.now).await.expect("redrive").remove(0).expect("dead");
        assert_eq!((again.start_by, again.redriven_at), (None, Some(world.now)));
        world.advance(Duration::from_secs(1_000));
        assert_eq!(lapsed(&world).await, (vec![], None), "more attempts were asked for");
        assert_eq!(world.detail(run.id()).await.run, again);
        let held = world.claim(worker, 9).await.remove(0);
        let given_up = world.conclude(worker, &held, Outcome::Failed, Verdict::GiveUp(limit)).await;
        assert_eq!(given_up.expect("recorded").state, state);
        assert_eq!(world.detail(run.id()).await.run.reason, Some(limit));
    }
}

/// Of other shards than those that are asked for nothing is told, and never more than is wanted.
pub async fn runs_lapse_in_the_order_of_their_limits(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut runs = Vec::new();
    for seconds in [40, 10, 30, 20] {
        runs.push((seconds, limited(&mut world, "job", seconds).await));
    }
    runs.sort_by_key(|(seconds, _)| *seconds);
    let limits: Vec<Timestamp> = runs.iter().map(|(seconds, _)| world.after(*seconds)).collect();
    world.advance(Duration::from_secs(35));
    let found = store.lapsed(&Shards::All, world.now, 2).await.expect("lapsed");
    let told = |found: &[Run]| found.iter().map(Run::id).collect::<Vec<_>>();
    assert_eq!(told(&found.runs), [runs[0].1.id(), runs[1].1.id()]);
    assert_eq!(found.next_at, Some(limits[2]), "there are more");
    let found = store.lapsed(&Shards::All, world.now, 9).await.expect("lapsed");
    assert_eq!((told(&found.runs).len(), found.next_at), (3, Some(limits[3])));
    let shard = Shards::Some(vec![runs[1].1.job.shard()]);
    let found = store.lapsed(&shard, world.now, 9).await.expect("lapsed");
    assert_eq!((told(&found.runs), found.next_at), (vec![runs[1].1.id()], None));
}

/// The end of a run that was missed brings the next slot of a job that counts from completion, as any other end does.
pub async fn a_lapse_may_bring_the_next_slot(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.register("after completion", world.now).await;
    let mut firing = world.firing(&job, world.now);
    firing.next = None;
    firing.births[0].start_by = by(&world, 30, Limit::StartWindow);
    let run = world.try_firing(firing).await.expect("fired").remove(0);
    job.version = Version(2);
    let put = Put { due_when: DueWhen::Idle, ..world.put(job.clone(), None) };
    world.try_put(put).await.expect("changed");
    world.advance(Duration::from_secs(31));
    let next = due(&job, world.after(300));
    let successor = |version| Some(Successor { version, due: Some(next), over: None });
    let stale = Lapse { run: run.id(), successor: successor(Version(1)), messages: Vec::new() };
    let refused = store.lapse(vec![stale], world.now).await.expect("lapse").remove(0);
    assert_eq!(refused, Err(Refused::WrongVersion { current: Version(2) }));
    assert_eq!(lapsed(&world).await, (vec![run.id()], None), "nothing of it was done");
    let lapse = Lapse { run: run.id(), successor: successor(Version(2)), messages: Vec::new() };
    store.lapse(vec![lapse], world.now).await.expect("lapse").remove(0).expect("late");
    let stored = store.jobs(&[job.id]).await.expect("jobs").remove(0).expect("there");
    assert_eq!(stored.progress.last_completion, Some(world.now));
    assert_eq!(world.due_until(world.after(1_000)).await, [next]);
}

/// A run that was cancelled, or whose job was deleted, does not lapse any more.
pub async fn what_has_ended_does_not_lapse(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let run = limited(&mut world, "cancelled", 30).await;
    let cancel = Cancellation { run: run.id(), successor: None };
    store.cancel(vec![cancel], world.now).await.expect("cancel").remove(0).expect("cancelled");
    let mut job = world.register("deleted", world.now).await;
    let mut firing = world.firing(&job, world.now);
    firing.births[0].start_by = by(&world, 30, Limit::StartWindow);
    world.try_firing(firing).await.expect("fired");
    job.version = Version(2);
    job.state = JobState::Deleted;
    let mut put = world.put(job, None);
    put.open_runs = OpenRuns::CancelPending;
    world.try_put(put).await.expect("deleted");
    assert_eq!(lapsed(&world).await, (vec![], None));
    world.advance(Duration::from_secs(60));
    assert_eq!(lapsed(&world).await, (vec![], None));
}

/// Runs that follow an edit have the limits of the edited job.
pub async fn an_edit_may_change_when_waiting_runs_lapse(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.register("edited", world.now).await;
    let run = world.try_fire(&job, world.now).await.expect("fired").remove(0);
    for (version, window) in [(2, Some(30)), (3, Some(90)), (4, None)] {
        job.version = Version(version);
        job.spec.policies.timeouts.start_window = window.map(Duration::from_secs);
        let mut put = world.put(job.clone(), None);
        put.open_runs = OpenRuns::Update;
        world.try_put(put).await.expect("changed");
        let at = window.map(|seconds| run.available_at + Duration::from_secs(seconds));
        assert_eq!(lapsed(&world).await, (vec![], at));
        let updated = world.detail(run.id()).await.run;
        assert_eq!((updated.version, updated.start_by.map(|by| by.at)), (Version(version), at));
    }
    let worker = world.worker();
    world.advance(Duration::from_secs(1_000));
    assert!(world.claim(worker, 1).await[0].lease().is_some(), "it has no limit any more");
    let other = world.register("delayed", world.now).await;
    let mut firing = world.firing(&other, world.now);
    firing.births = vec![birth(&other, world.now)];
    firing.births[0].available_at = world.after(60);
    firing.births[0].start_by = by(&world, 30, Limit::Deadline);
    let delayed = world.try_firing(firing).await.expect("fired").remove(0);
    world.advance(Duration::from_secs(31));
    assert_eq!(lapsed(&world).await, (vec![delayed.id()], None), "its time need not have come");
    assert_eq!(try_lapse(&world, delayed.id()).await.expect("late").reason, Some(Limit::Deadline));
}
