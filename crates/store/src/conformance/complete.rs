//! Complete and cancel: one outcome, under the current lease.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::Version;
use punctual_domain::job::JobState;
use punctual_domain::lifecycle::{self, Charge, Verdict};
use punctual_domain::run::{Cause, RunState, WaitingFor};
use punctual_domain::{Outcome, Run};

use super::world::{World, birth, conclusion, due};
use crate::error::Refused;
use crate::store::Store;
use crate::verbs::{
    Birth, Cancellation, Conclusion, DueWhen, Firing, Held, OpenRuns, Put, Successor, Trigger,
};

fn is_stale(answer: &Result<Run, Refused>) -> bool {
    matches!(answer, Err(Refused::Lifecycle(lifecycle::Refused::StaleLease { .. })))
}

/// The run ends, with the worker's report as its attempt.
pub async fn a_success_ends_the_run(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let run = world.running("job", worker).await;
    world.advance(Duration::from_secs(2));
    let report = world.report(Outcome::Succeeded);
    let ended = world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    assert_eq!((ended.state, ended.finished_at), (RunState::Succeeded, Some(world.now)));
    assert_eq!(ended.started_at, Some(report.started_at));
    let detail = world.detail(run.id()).await;
    assert_eq!(detail.run, ended);
    assert_eq!(detail.attempts.len(), 1);
    assert_eq!(detail.attempts[0].report.as_ref(), Some(&report));
    assert_eq!(world.claim(worker, 9).await, []);
}

/// Another attempt follows at its time, with the next number and the first one's report kept.
pub async fn a_retry_waits_and_continues_the_attempts(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let run = world.running("job", worker).await;
    let retry = Verdict::Retry { available_at: world.after(5), charge: Charge::Attempt, start_by: None };
    let waiting = world.conclude(worker, &run, Outcome::Failed, retry).await.expect("recorded");
    assert_eq!((waiting.state, waiting.charged), (RunState::Pending(WaitingFor::Retry), 1));
    assert_eq!(world.claim(worker, 9).await, []);
    world.advance(Duration::from_secs(5));
    let again = world.claim(worker, 9).await.remove(0);
    assert_eq!((again.id(), again.attempt), (run.id(), 2));
    world.conclude(worker, &again, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    let detail = world.detail(run.id()).await;
    let outcomes: Vec<_> =
        detail.attempts.iter().map(|a| (a.number, a.report.as_ref().map(|r| r.outcome))).collect();
    assert_eq!(outcomes, [(1, Some(Outcome::Failed)), (2, Some(Outcome::Succeeded))]);
}

/// A worker that lost its lease changes nothing, whether or not somebody else has the run.
pub async fn a_stale_result_is_refused(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let (slow, quick) = (world.worker(), world.worker());
    let run = world.running("job", slow).await;
    let lost = Verdict::Retry { available_at: world.now, charge: Charge::Lost, start_by: None };
    world.conclude(slow, &run, Outcome::Lost, lost).await.expect("recorded");
    assert!(is_stale(&world.conclude(slow, &run, Outcome::Succeeded, Verdict::Succeed).await));
    let again = world.claim(quick, 1).await.remove(0);
    assert!(is_stale(&world.conclude(slow, &run, Outcome::Succeeded, Verdict::Succeed).await));
    assert!(is_stale(&world.conclude(slow, &again, Outcome::Succeeded, Verdict::Succeed).await));
    let mut wrong = conclusion(quick, &again, None, Verdict::Succeed);
    wrong.held = Held { attempt: 1, ..wrong.held };
    assert!(is_stale(&world.try_complete(wrong).await));
    assert_eq!(world.detail(run.id()).await.run, again);
}

/// After the end nothing is recorded any more.
pub async fn an_outcome_is_recorded_once(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let run = world.running("job", worker).await;
    let ended = world.conclude(worker, &run, Outcome::Failed, Verdict::Fail).await.expect("recorded");
    assert!(is_stale(&world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await));
    assert_eq!(world.detail(run.id()).await.run, ended);
}

/// An attempt given back unfinished has a number but no report, and counts for nothing.
pub async fn giving_back_charges_nothing(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let run = world.running("job", worker).await;
    let back = Verdict::Retry { available_at: world.now, charge: Charge::Nothing, start_by: None };
    let waiting = world.try_complete(conclusion(worker, &run, None, back)).await.expect("recorded");
    assert_eq!((waiting.charged, waiting.lost, waiting.started_at), (0, 0, None));
    let again = world.claim(worker, 1).await.remove(0);
    assert_eq!(again.attempt, 2);
    assert_eq!(world.detail(run.id()).await.attempts[0].report, None);
}

/// Periods from completion: the end of a run and the next due entry are one commit, and the entry is
/// only taken for the job as it was known.
pub async fn a_completion_may_bring_the_next_slot(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.register("after completion", world.now).await;
    let mut firing = world.firing(&job, world.now);
    firing.next = None;
    let run = world.try_firing(firing).await.expect("fired").remove(0);
    assert_eq!(world.due_until(world.after(1_000)).await, []);
    let worker = world.worker();
    let run = world.claim(worker, 1).await.into_iter().find(|one| one.id() == run.id()).expect("claimed");
    let stale = due(&job, world.after(300));
    job.version = Version(2);
    let put = Put { due_when: DueWhen::Idle, ..world.put(job.clone(), None) };
    world.try_put(put).await.expect("changed");
    let mut end = conclusion(worker, &run, Some(world.report(Outcome::Succeeded)), Verdict::Succeed);
    end.successor = Some(Successor { version: Version(1), due: Some(stale), over: None });
    let refused = world.try_complete(end.clone()).await;
    assert_eq!(refused, Err(Refused::WrongVersion { current: Version(2) }));
    assert!(world.detail(run.id()).await.run.lease().is_some(), "nothing of it was done");
    end.successor =
        Some(Successor { version: Version(2), due: Some(due(&job, world.after(300))), over: None });
    world.try_complete(end).await.expect("recorded");
    let stored = store.jobs(&[job.id]).await.expect("jobs").remove(0).expect("there");
    assert_eq!(stored.progress.last_completion, Some(world.now));
    assert_eq!(world.due_until(world.after(1_000)).await, [due(&job, world.after(300))]);
}

/// Two runs of a job that counts from completion may end together, and bring the same slot.
pub async fn runs_that_end_together_bring_one_slot(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("after completion", world.now).await;
    world.try_firing(Firing { next: None, ..world.firing(&job, world.now) }).await.expect("fired");
    let trigger = Trigger {
        job: job.id,
        version: job.version,
        birth: Birth { cause: Cause::Trigger, part: 1, ..birth(&job, world.now) },
        is_over: false,
        request: None,
        audit: None,
    };
    store.trigger(vec![trigger], world.now).await.expect("trigger");
    let worker = world.worker();
    let claimed = world.claim(worker, 9).await;
    let next = due(&job, world.after(300));
    let end = |run: &Run| Conclusion {
        successor: Some(Successor { version: job.version, due: Some(next), over: None }),
        limits: None,
        ..conclusion(worker, run, Some(world.report(Outcome::Succeeded)), Verdict::Succeed)
    };
    let answers = store.complete(claimed.iter().map(end).collect(), world.now).await.expect("complete");
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 2, "{answers:?}");
    assert_eq!(world.due_until(world.after(1_000)).await, [next]);
}

/// A changed job that counts from completion is due at once only if no run of it is open.
pub async fn a_due_entry_may_wait_for_the_open_run(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.register("after completion", world.now).await;
    let mut firing = world.firing(&job, world.now);
    firing.next = None;
    let run = world.try_firing(firing).await.expect("fired").remove(0);
    for is_open in [true, false] {
        job.version = job.version.next();
        let mut put = world.put(job.clone(), Some(world.after(60)));
        put.due_when = DueWhen::Idle;
        world.try_put(put).await.expect("changed");
        let entries = world.due_until(world.after(60)).await;
        let counting = entries.iter().filter(|entry| entry.version == job.version).count();
        assert_eq!(counting, usize::from(!is_open), "open: {is_open}");
        if is_open {
            let cancel = Cancellation { run: run.id(), successor: None };
            assert!(store.cancel(vec![cancel], world.now).await.expect("cancel")[0].is_ok());
        }
    }
}

/// Cancelling a waiting run ends it and may bring the next slot.
pub async fn a_cancelled_waiting_run_ends(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let run = world.fired("waiting").await;
    let cancel = |run| Cancellation { run, successor: None };
    let mut answers = store.cancel(vec![cancel(run.id())], world.now).await.expect("cancel");
    assert_eq!(answers.remove(0).expect("cancelled").state, RunState::Cancelled);
    let worker = world.worker();
    assert_eq!(world.claim(worker, 9).await, []);
    let again = store.cancel(vec![cancel(run.id())], world.now).await.expect("cancel");
    assert!(matches!(again[0], Err(Refused::Lifecycle(lifecycle::Refused::WrongState { .. }))));
    let unknown = punctual_domain::RunId::new(run.sequence.next(), run.job.shard());
    assert_eq!(store.cancel(vec![cancel(unknown)], world.now).await.expect("cancel"), [Err(Refused::NoRun)]);
}

/// A running run learns of it by its worker's heartbeat, and a success still stands.
pub async fn a_running_run_is_asked_to_stop(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = world.running("running", worker).await;
    let held = Held { sequence: run.sequence, attempt: 1 };
    let reply = store.heartbeat(worker, vec![held], world.now).await.expect("heartbeat");
    assert_eq!(reply, Default::default());
    let cancel = Cancellation { run: run.id(), successor: None };
    let asked = store.cancel(vec![cancel], world.now).await.expect("cancel").remove(0).expect("asked");
    assert!(asked.is_cancel_requested && asked.lease().is_some());
    let reply = store.heartbeat(worker, vec![held], world.now).await.expect("heartbeat");
    assert_eq!(reply.cancelled, [held]);
    let (other, next) = (world.worker(), Held { attempt: 2, ..held });
    for (who, what, asked) in [(worker, held, vec![held]), (worker, next, vec![]), (other, held, vec![])] {
        assert_eq!(store.asked_to_stop(who, &[what]).await.expect("asked"), asked);
    }
    let ended = world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    assert_eq!(ended.state, RunState::Succeeded);
    assert_eq!(store.asked_to_stop(worker, &[held]).await.expect("asked"), []);
}

/// Whether somebody asked is no sign of life: who only asks is silent.
pub async fn whoever_asks_whether_to_stop_gives_no_sign_of_life(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = world.running("running", worker).await;
    let held = Held { sequence: run.sequence, attempt: 1 };
    store.heartbeat(worker, vec![held], world.now).await.expect("heartbeat");
    let lease = Duration::from_secs(15);
    for _ in 0..2 {
        world.advance(Duration::from_secs(10));
        assert_eq!(store.asked_to_stop(worker, &[held]).await.expect("asked"), []);
    }
    let lost = store.expired(lease, world.now, 9).await.expect("expired");
    assert_eq!(lost.iter().map(|run| run.sequence).collect::<Vec<_>>(), [run.sequence]);
}

/// Deleting a job cancels its waiting runs, lets running ones end and keeps the history.
pub async fn deleting_a_job_cancels_what_waits(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.register("deleted", world.now).await;
    let running = world.try_fire(&job, world.now).await.expect("fired").remove(0);
    let worker = world.worker();
    let held = world.claim(worker, 1).await.remove(0);
    world.advance(Duration::from_secs(60));
    let waiting = world.try_fire(&job, world.now).await.expect("fired").remove(0);
    job.version = Version(2);
    job.state = JobState::Deleted;
    let mut put = world.put(job, None);
    put.open_runs = OpenRuns::CancelPending;
    world.try_put(put).await.expect("deleted");
    assert_eq!(world.detail(waiting.id()).await.run.state, RunState::Cancelled);
    assert!(world.detail(running.id()).await.run.lease().is_some());
    world.conclude(worker, &held, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    assert_eq!(world.detail(running.id()).await.run.state, RunState::Succeeded);
    assert_eq!(world.claim(worker, 9).await, []);
}
