//! Messages: a dead letter and the job that tells of it are one commit.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::id::Version;
use punctual_domain::job::{Job, JobState, Target};
use punctual_domain::lifecycle::{self, Charge, Verdict};
use punctual_domain::link::On;
use punctual_domain::run::{Limit, Run, RunState, StartBy};
use punctual_domain::{Outcome, message};

use super::world::{World, birth, conclusion};
use crate::error::Refused;
use crate::store::Store;
use crate::verbs::{Cancellation, Conclusion, Lapse, Message, Put, Shards, Successor};

/// The message about the death of a run that is running.
fn telling(world: &mut World, run: &Run) -> (Job, Message) {
    let spec = message::spec(message::DEAD_LETTER, "dead letter".into(), Target::Discard, "{}".into());
    let job = Job { id: message::id(run.id(), run.attempt, world.now), spec, ..world.job("message") };
    let born = birth(&job, world.now);
    let put = Box::new(Put { birth: Some(born), ..world.put(job.clone(), None) });
    (job, Message { on: On::Failed, put })
}

async fn is_there(world: &World, job: &Job) -> bool {
    world.store.jobs(&[job.id]).await.expect("jobs")[0].is_some()
}

/// A run that a worker holds, its end with this verdict, and the message that comes with it if it dies.
async fn ending(world: &mut World, outcome: Outcome, verdict: Verdict) -> (Run, Conclusion, Job) {
    let worker = world.worker();
    let run = world.running("job", worker).await;
    let (job, message) = telling(world, &run);
    let end = conclusion(worker, &run, Some(world.report(outcome)), verdict);
    (run, Conclusion { messages: vec![message], ..end }, job)
}

/// Whatever makes a dead letter of a run registers its message, whose run waits to be claimed; it is a job like any other.
pub async fn a_dead_letter_brings_its_message(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    for (outcome, verdict, state) in [
        (Outcome::Failed, Verdict::Fail, RunState::Failed),
        (Outcome::TimedOut, Verdict::TimeOut, RunState::TimedOut),
        (Outcome::TimedOut, Verdict::GiveUp(Limit::Deadline), RunState::TimedOut),
        (Outcome::Lost, Verdict::Fail, RunState::Failed),
    ] {
        let (run, end, job) = ending(&mut world, outcome, verdict).await;
        assert_eq!(world.try_complete(end).await.expect("recorded").state, state);
        assert_eq!(job.id.shard(), run.job.shard());
        let stored = store.jobs(&[job.id]).await.expect("jobs").remove(0).expect("registered");
        assert_eq!((&*stored.job, world.due_until(world.now).await), (&job, vec![]));
        let worker = world.worker();
        let claimed = world.claim(worker, 9).await;
        assert_eq!(claimed.iter().map(|run| run.job).collect::<Vec<_>>(), [job.id]);
        assert_eq!(claimed[0].kind.as_deref(), Some(message::DEAD_LETTER));
        world.conclude(worker, &claimed[0], Outcome::Succeeded, Verdict::Succeed).await.expect("delivered");
    }
}

/// What does not make a dead letter registers nothing, though it had something to tell.
pub async fn what_does_not_die_brings_no_message(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let retry = Verdict::Retry { available_at: world.after(60), charge: Charge::Attempt, start_by: None };
    for (outcome, verdict) in [
        (Outcome::Succeeded, Verdict::Succeed),
        (Outcome::Cancelled, Verdict::Cancel),
        (Outcome::Failed, retry),
    ] {
        let (_, end, job) = ending(&mut world, outcome, verdict).await;
        world.try_complete(end).await.expect("recorded");
        assert!(!is_there(&world, &job).await, "{verdict:?}");
        let worker = world.worker();
        assert_eq!(world.claim(worker, 9).await, [], "{verdict:?}");
    }
}

/// A conclusion that is refused has done nothing at all.
pub async fn a_refused_conclusion_brings_no_message(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (run, end, job) = ending(&mut world, Outcome::Failed, Verdict::Fail).await;
    let successor = Some(Successor { version: Version(7), due: None, over: None });
    let refused = world.try_complete(Conclusion { successor, ..end.clone() }).await;
    assert_eq!(refused, Err(Refused::WrongVersion { current: Version(1) }));
    assert!(!is_there(&world, &job).await, "decided for another version of the job");
    let stranger = world.worker();
    let refused = world.try_complete(Conclusion { worker: stranger, ..end.clone() }).await;
    assert!(matches!(refused, Err(Refused::Lifecycle(lifecycle::Refused::StaleLease { .. }))));
    assert!(!is_there(&world, &job).await, "reported by a stranger");
    let cancel = Cancellation { run: run.id(), successor: None };
    store.cancel(vec![cancel], world.now).await.expect("cancel").remove(0).expect("asked to stop");
    let refused = world.try_complete(end.clone()).await;
    assert!(matches!(refused, Err(Refused::Lifecycle(lifecycle::Refused::AskedToStop))), "{refused:?}");
    assert!(!is_there(&world, &job).await, "it was asked to stop");
    let end = Conclusion { verdict: Verdict::Cancel, ..end };
    assert_eq!(world.try_complete(end.clone()).await.expect("recorded").state, RunState::Cancelled);
    assert!(world.try_complete(end).await.is_err(), "an outcome is recorded once");
    assert!(!is_there(&world, &job).await);
}

/// A run that dies again after it was redriven is told again; one message is registered once.
pub async fn every_death_has_one_message(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (run, end, first) = ending(&mut world, Outcome::Failed, Verdict::Fail).await;
    let messages = end.messages.clone();
    world.try_complete(end).await.expect("recorded");
    let worker = world.worker();
    let told = world.claim(worker, 9).await.remove(0);
    world.conclude(worker, &told, Outcome::Succeeded, Verdict::Succeed).await.expect("delivered");
    for is_new in [true, false] {
        store.redrive(&[run.id()], world.now).await.expect("redrive").remove(0).expect("goes on");
        let again = world.claim(worker, 9).await.remove(0);
        let (second, next) = telling(&mut world, &again);
        let end = conclusion(worker, &again, Some(world.report(Outcome::Failed)), Verdict::Fail);
        let messages = if is_new { vec![next] } else { messages.clone() };
        world.try_complete(Conclusion { messages, ..end }).await.expect("recorded");
        assert_eq!((is_there(&world, &first).await, is_there(&world, &second).await), (true, is_new));
        assert_eq!(world.claim(worker, 9).await.len(), usize::from(is_new), "what is there is left as it is");
        assert_eq!(world.detail(run.id()).await.run.state, RunState::Failed);
    }
}

/// Runs that die in one call are told one by one, beside others that do not.
pub async fn runs_that_die_together_have_a_message_each(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (_, one, first) = ending(&mut world, Outcome::Failed, Verdict::Fail).await;
    let (_, well, none) = ending(&mut world, Outcome::Succeeded, Verdict::Succeed).await;
    let (_, other, second) = ending(&mut world, Outcome::TimedOut, Verdict::TimeOut).await;
    let worker = world.worker();
    let plain = world.running("plain", worker).await;
    let plain = conclusion(worker, &plain, Some(world.report(Outcome::Failed)), Verdict::Fail);
    let answers = store.complete(vec![one, well, plain, other], world.now).await.expect("complete");
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let mut told: Vec<_> = world.claim(worker, 9).await.into_iter().map(|run| run.job).collect();
    told.sort_unstable();
    let mut expected = [first.id, second.id];
    expected.sort_unstable();
    assert_eq!((told, is_there(&world, &none).await), (expected.to_vec(), false));
}

/// A retry that did not start in time is a dead letter; a run that never started is missed, which tells nobody.
pub async fn a_lapse_that_makes_a_dead_letter_brings_its_message(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let started = world.running("started", worker).await;
    let start_by = Some(StartBy { at: world.after(20), limit: Limit::RetryFor });
    let retry = Verdict::Retry { available_at: world.after(10), charge: Charge::Attempt, start_by };
    let waiting = world.conclude(worker, &started, Outcome::Failed, retry).await.expect("recorded");
    let job = world.register("never started", world.now).await;
    let mut firing = world.firing(&job, world.now);
    firing.births[0].start_by = Some(StartBy { at: world.after(20), limit: Limit::StartWindow });
    let unstarted = world.try_firing(firing).await.expect("fired").remove(0);
    let ((told, message), (untold, other)) = (telling(&mut world, &waiting), telling(&mut world, &unstarted));
    let lapses = || {
        let lapse = |run: &Run, message: &Message| Lapse {
            run: run.id(),
            successor: None,
            messages: vec![message.clone()],
        };
        vec![lapse(&waiting, &message), lapse(&unstarted, &other)]
    };
    let early = store.lapse(lapses(), world.now).await.expect("lapse");
    assert!(early.iter().all(Result::is_err) && !is_there(&world, &told).await, "it may still start");
    world.advance(Duration::from_secs(21));
    assert_eq!(store.lapsed(&Shards::All, world.now, 9).await.expect("lapsed").runs.len(), 2);
    let ended = store.lapse(lapses(), world.now).await.expect("lapse");
    let states: Vec<RunState> = ended.into_iter().map(|run| run.expect("late").state).collect();
    assert_eq!(states, [RunState::Failed, RunState::Missed]);
    assert_eq!((is_there(&world, &told).await, is_there(&world, &untold).await), (true, false));
    assert_eq!(world.claim(worker, 9).await.iter().map(|run| run.job).collect::<Vec<_>>(), [told.id]);
    assert!(store.lapse(lapses(), world.now).await.expect("lapse").iter().all(Result::is_err));
}

/// A message is about its run, whatever becomes of the job meanwhile.
pub async fn the_message_of_a_deleted_job_is_delivered(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (run, end, told) = ending(&mut world, Outcome::Failed, Verdict::Fail).await;
    let old = store.jobs(&[run.job]).await.expect("jobs").remove(0).expect("there").job;
    let gone = Job { version: old.version.next(), state: JobState::Deleted, ..(*old).clone() };
    world.try_put(world.put(gone, None)).await.expect("deleted");
    world.try_complete(end).await.expect("recorded");
    let worker = world.worker();
    assert_eq!(world.claim(worker, 9).await.iter().map(|run| run.job).collect::<Vec<_>>(), [told.id]);
}
