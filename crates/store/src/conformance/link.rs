//! Links: what follows the end of a run is registered in its commit, and a linked run has a payload of its own.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::id::{TenantId, Version};
use punctual_domain::job::Job;
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::link::{self, End, Link, On};
use punctual_domain::run::{Cause, CausedBy, Run, RunState};
use punctual_domain::{Outcome, message};

use super::world::{World, at_once, birth, conclusion};
use crate::error::Refused;
use crate::store::Store;
use crate::verbs::{
    Birth, Cancellation, Claim, Conclusion, Message, OpenRuns, Put, Shards, Subject, Trigger,
};

/// A message for each kind of end of a run that is running, by its place.
fn following(world: &mut World, run: &Run) -> Vec<(Job, Message)> {
    let kinds = On::WORDS.iter().enumerate();
    let message = |(place, (word, on)): (usize, &(&str, On))| {
        let of = world.job("of");
        let spec = link::message(&of, &Link { on: *on, job: (*word).into() }, "{}".into());
        let id = End::of(run, place).message_id(world.now);
        let job = Job { id, spec, ..world.job("link") };
        let born = birth(&job, world.now);
        let put = Box::new(Put { birth: Some(born), ..world.put(job.clone(), None) });
        (job, Message { on: *on, put })
    };
    kinds.map(message).collect()
}

/// The words of the links that are registered, of those that might be.
async fn registered(world: &World, jobs: &[Job]) -> Vec<&'static str> {
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    let stored = world.store.jobs(&ids).await.expect("jobs");
    On::WORDS.iter().zip(stored).filter_map(|((word, _), job)| job.map(|_| *word)).collect()
}

/// The messages of an end are registered with it, those of other ends are not, and one is registered once.
pub async fn an_end_brings_what_follows_it(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let retry = Verdict::Retry { available_at: world.after(60), charge: Charge::Attempt, start_by: None };
    for (outcome, verdict, expected) in [
        (Outcome::Succeeded, Verdict::Succeed, vec!["succeeded", "finished"]),
        (Outcome::Failed, Verdict::Fail, vec!["failed", "finished"]),
        (Outcome::TimedOut, Verdict::TimeOut, vec!["failed", "finished"]),
        (Outcome::Cancelled, Verdict::Cancel, vec![]),
        (Outcome::Failed, retry, vec![]),
    ] {
        let worker = world.worker();
        let run = world.running("job", worker).await;
        let (jobs, messages): (Vec<Job>, Vec<Message>) = following(&mut world, &run).into_iter().unzip();
        let end = conclusion(worker, &run, Some(world.report(outcome)), verdict);
        let end = Conclusion { messages, ..end };
        let stranger = Conclusion { worker: world.worker(), ..end.clone() };
        world.try_complete(stranger).await.expect_err("not its own");
        assert_eq!(registered(&world, &jobs).await, Vec::<&str>::new(), "reported by a stranger");
        world.try_complete(end.clone()).await.expect("recorded");
        assert_eq!(registered(&world, &jobs).await, expected, "{verdict:?}");
        world.try_complete(end).await.expect_err("an outcome is recorded once");
        let claimed = world.claim(worker, 9).await;
        assert_eq!(claimed.len(), expected.len(), "{verdict:?}");
        for run in claimed {
            assert_eq!(run.kind.as_deref(), Some(link::MESSAGE));
            world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("delivered");
        }
    }
}

/// A node that serves other queues takes what follows too, because it names that queue; and nobody is held up who does not.
pub async fn what_follows_waits_in_its_own_queue(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = world.running("job", worker).await;
    let messages = following(&mut world, &run).into_iter().map(|(_, message)| message).collect();
    let end = conclusion(worker, &run, Some(world.report(Outcome::Succeeded)), Verdict::Succeed);
    world.try_complete(Conclusion { messages, ..end }).await.expect("recorded");
    let claim = |queues: &[&str]| Claim {
        worker,
        queues: queues.iter().map(|queue| Arc::from(*queue)).collect(),
        labels: Default::default(),
        shards: Shards::All,
        limit: 9,
    };
    assert_eq!(store.claim(claim(&["default"]), world.now).await.expect("claim"), []);
    assert_eq!(store.claim(claim(&["slow", link::QUEUE]), world.now).await.expect("claim").len(), 2);
}

/// The run that a trigger makes of a job for the end of another.
fn linked(world: &World, job: &Job, cause: &Run, payload: &str) -> Birth {
    Birth {
        cause: Cause::Link,
        part: End::of(cause, 0).part(),
        payload: Some(payload.into()),
        caused_by: Some(CausedBy { run: cause.id(), depth: 3 }),
        ..birth(job, world.now)
    }
}

fn trigger(job: &Job, birth: Birth, request: Option<Subject>) -> Trigger {
    Trigger { job: job.id, version: job.version, birth, is_over: false, request, audit: None }
}

/// A run's payload and its cause stay with it: through claims, retries, edits, death and redrive, to history.
pub async fn a_run_keeps_its_own_payload_to_its_end(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let cause = world.running("cause", worker).await;
    let mut job = world.register("linked", world.after(600)).await;
    let text = format!(r#"{{"n": 1.50, "text": "{}"}}"#, "gr\u{fc}n ".repeat(2_000));
    let birth = linked(&world, &job, &cause, &text);
    let born = store.trigger(vec![trigger(&job, birth, None)], world.now).await.expect("trigger");
    let born = born.into_iter().next().expect("one").expect("triggered");
    let check = |run: &Run, when: &str| {
        assert_eq!(run.payload.as_deref(), Some(&*text), "{when}");
        assert_eq!(run.caused_by, Some(CausedBy { run: cause.id(), depth: 3 }), "{when}");
        assert_eq!((run.cause, run.idempotency_key()), (Cause::Link, born.idempotency_key()), "{when}");
    };
    check(&born, "born");
    job = Job { version: Version(2), ..job };
    let edit = Put { open_runs: OpenRuns::Update, ..world.put(job.clone(), Some(world.after(600))) };
    world.try_put(edit).await.expect("edited");
    check(&world.detail(born.id()).await.run, "edited");
    let claimed = world.claim(worker, 1).await.remove(0);
    check(&claimed, "claimed");
    let retry = Verdict::Retry { available_at: world.after(5), charge: Charge::Attempt, start_by: None };
    check(
        &world.conclude(worker, &claimed, Outcome::Failed, retry).await.expect("recorded"),
        "to be retried",
    );
    world.advance(Duration::from_secs(5));
    let again = world.claim(worker, 1).await.remove(0);
    check(&again, "claimed again");
    world.conclude(worker, &again, Outcome::Failed, Verdict::Fail).await.expect("recorded");
    check(&world.detail(born.id()).await.run, "dead");
    store.redrive(&[born.id()], world.now).await.expect("redrive").remove(0).expect("goes on");
    let last = world.claim(worker, 1).await.remove(0);
    check(&last, "redriven");
    world.conclude(worker, &last, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    let ended = world.detail(born.id()).await.run;
    assert_eq!((ended.state, ended.attempt), (RunState::Succeeded, 3));
    check(&ended, "ended");
    let filter = crate::verbs::RunFilter { job: Some(job.id), ..Default::default() };
    let listed = store.runs(&filter, crate::PageRequest::first(9)).await.expect("runs").items;
    check(&listed[0], "listed");
}

/// However a run is born, it is born with its payload; one that has none is sent its job's.
pub async fn a_payload_is_born_with_its_run(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let own = |birth: Birth| Birth { payload: Some(r#"{"own":true}"#.into()), ..birth };
    let job = world.job("now");
    let born = own(birth(&job, world.now));
    world.try_put(Put { birth: Some(born), ..world.put(job, None) }).await.expect("registered");
    let job = world.register("fired", world.now).await;
    let mut firing = world.firing(&job, world.now);
    firing.births = vec![own(birth(&job, world.now))];
    world.try_firing(firing).await.expect("fired");
    let job = world.register("born running", world.now).await;
    let mut firing = world.firing(&job, world.now);
    firing.births = vec![Birth { claimed_by: Some(worker), ..own(birth(&job, world.now)) }];
    let running = world.try_firing(firing).await.expect("fired");
    let cancelled = world.fired("cancelled").await;
    assert_eq!(cancelled.payload, None);
    let cancel = Cancellation { run: cancelled.id(), successor: None };
    store.cancel(vec![cancel], world.now).await.expect("cancel").remove(0).expect("cancelled");
    let mut claimed = world.claim(worker, 9).await;
    claimed.extend(running);
    assert_eq!(claimed.len(), 3);
    for run in claimed {
        assert_eq!(run.payload.as_deref(), Some(r#"{"own":true}"#), "{run:?}");
        world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
        assert_eq!(world.detail(run.id()).await.run.payload, run.payload);
    }
}

/// The request of a link lets one run be born, however many deliver it at once.
pub async fn a_link_is_followed_once(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let cause = world.running("cause", worker).await;
    let job = world.register("linked", world.after(600)).await;
    let end = End::of(&cause, 0);
    let request = Subject {
        tenant: TenantId::DEFAULT,
        key: end.request_key(),
        fingerprint: end.fingerprint(),
        expires_at: world.after(3600),
        result: String::new(),
    };
    let deliver = || {
        let triggers = vec![trigger(&job, linked(&world, &job, &cause, "{}"), Some(request.clone()))];
        store.trigger(triggers, world.now)
    };
    let answers = at_once((0..4).map(|_| deliver())).await;
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("trigger").remove(0)).collect();
    let born: Vec<&Run> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    assert_eq!(born.len(), 1, "{answers:?}");
    assert!(answers.iter().all(|answer| answer.is_ok() || *answer == Err(Refused::Repeated)), "{answers:?}");
    let known = store.request(TenantId::DEFAULT, &request.key, world.now).await.expect("request");
    assert_eq!(known.map(|known| known.result), Some(born[0].id().to_string()));
    assert!(message::is_reserved(Some(link::MESSAGE)));
}
