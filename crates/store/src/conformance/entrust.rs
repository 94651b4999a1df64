//! Attempts that were answered and are reported later: who holds them, and until when.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::WorkerId;
use punctual_domain::lifecycle::{self, Verdict};
use punctual_domain::run::RunState;
use punctual_domain::{Outcome, Receiver, Run};

use super::world::{LEASE, World};
use crate::error::Refused;
use crate::store::Store;
use crate::verbs::{Cancellation, Conclusion, Heartbeat, Held};

fn terms(ends_at: Timestamp, heartbeat: Option<u64>) -> Receiver {
    Receiver { ends_at, heartbeat: heartbeat.map(Duration::from_secs) }
}

/// Leaves an attempt to its receiver.
async fn entrust(
    world: &World,
    worker: WorkerId,
    run: &Run,
    terms: Receiver,
) -> Result<(Run, WorkerId), Refused> {
    let (held, receiver) = (Held::from(run), terms.id(Held::from(run)));
    let verdict = Verdict::Entrust { receiver, started_at: world.now };
    let (successor, messages, limits) = (None, Vec::new(), None);
    let conclusion = Conclusion { worker, held, report: None, verdict, successor, messages, limits };
    let answers = world.store.complete(vec![conclusion], world.now).await.expect("complete");
    answers.into_iter().next().expect("an answer").map(|concluded| (concluded.run, receiver))
}

async fn beat(world: &World, receiver: WorkerId, run: &Run) -> Heartbeat {
    world.store.heartbeat(receiver, vec![Held::from(run)], world.now).await.expect("heartbeat")
}

async fn cancel(world: &World, run: &Run) {
    let cancellation = Cancellation { run: run.id(), successor: None };
    let answers = world.store.cancel(vec![cancellation], world.now).await.expect("cancel");
    assert!(answers[0].as_ref().is_ok_and(|run| run.is_cancel_requested), "{answers:?}");
}

async fn expired(world: &World) -> Vec<Run> {
    world.store.expired(LEASE, world.now, 100).await.expect("expired")
}

/// An attempt goes on with its receiver, and nobody else ends it.
pub async fn an_entrusted_attempt_is_its_receivers(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = world.running("by-token", worker).await;
    let end = world.now + SignedDuration::from_hours(1);
    let (entrusted, receiver) = entrust(&world, worker, &run, terms(end, None)).await.expect("held");
    assert!(entrusted.is_held(receiver, 1), "{entrusted:?}");
    assert_eq!(entrusted.started_at, Some(world.now));
    let read = world.detail(run.id()).await;
    assert_eq!((&read.run, read.attempts.len()), (&entrusted, 1), "as it was answered");
    assert_eq!(read.attempts[0].report, None, "it is not over");
    let stale = Err(Refused::Lifecycle(lifecycle::Refused::StaleLease { attempt: 1 }));
    let refused = world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await;
    assert_eq!(refused.map(drop), stale, "the worker let go of it");
    assert_eq!(beat(&world, receiver, &run).await, Heartbeat::default());
    let listed = world.store.heartbeat(worker, vec![Held::from(&run)], world.now).await.expect("heartbeat");
    assert_eq!(listed.not_held, [Held::from(&run)]);
    let ended = world.conclude(receiver, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("held");
    assert_eq!(ended.state, RunState::Succeeded);
    let again = world.conclude(receiver, &run, Outcome::Failed, Verdict::Fail).await;
    assert_eq!(again.map(drop), stale, "one outcome is recorded");
    assert_eq!(beat(&world, receiver, &run).await.not_held, [Held::from(&run)]);
}

/// However long no worker and no receiver is heard of: the end counts.
pub async fn who_need_not_be_heard_of_has_until_the_end(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = world.running("quiet", worker).await;
    let end = world.now + SignedDuration::from_hours(1);
    let (entrusted, _) = entrust(&world, worker, &run, terms(end, None)).await.expect("held");
    for _ in 0..3 {
        assert_eq!(expired(&world).await, []);
        world.advance(Duration::from_secs(19 * 60));
    }
    world.now = end;
    assert_eq!(expired(&world).await, []);
    world.advance(Duration::from_secs(1));
    assert_eq!(expired(&world).await, std::slice::from_ref(&entrusted));
    let receiver = entrusted.lease().expect("a lease").worker;
    let late = world.conclude(receiver, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("held");
    assert_eq!(late.state, RunState::Succeeded, "a late report is taken while nobody has ended the attempt");
    assert_eq!(expired(&world).await, []);
}

/// One that must be heard of keeps its attempt while it is, and not beyond the end.
pub async fn who_must_be_heard_of_keeps_its_attempt_while_it_is(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = world.running("heard", worker).await;
    let end = world.now + SignedDuration::from_mins(10);
    let (entrusted, receiver) = entrust(&world, worker, &run, terms(end, Some(120))).await.expect("held");
    for _ in 0..4 {
        assert_eq!(beat(&world, receiver, &run).await, Heartbeat::default());
        world.advance(Duration::from_secs(110));
        assert_eq!(expired(&world).await, []);
    }
    world.now = end + SignedDuration::from_secs(1);
    assert_eq!(expired(&world).await, [entrusted], "the end counts, whatever was heard");
}

/// One that must be heard of and is not loses its attempt; a sign of life comes too late then, and a report that is first does not.
pub async fn who_is_silent_for_too_long_loses_its_attempt(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let end = world.now + SignedDuration::from_hours(1);
    let (run, other) = (world.running("silent", worker).await, world.running("unknown", worker).await);
    let (entrusted, receiver) = entrust(&world, worker, &run, terms(end, Some(60))).await.expect("held");
    let (unknown, _) = entrust(&world, worker, &other, terms(end, Some(60))).await.expect("held");
    beat(&world, receiver, &run).await;
    world.advance(Duration::from_secs(60));
    assert_eq!(expired(&world).await, [], "of one that nobody knows the time begins now");
    world.advance(Duration::from_secs(1));
    assert_eq!(expired(&world).await, std::slice::from_ref(&entrusted));
    assert!(beat(&world, receiver, &run).await.is_refused, "it was taken for dead");
    assert_eq!(expired(&world).await, [entrusted], "until somebody ends it");
    let late = world.conclude(receiver, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("held");
    assert_eq!(late.state, RunState::Succeeded);
    world.advance(Duration::from_secs(60));
    assert_eq!(expired(&world).await, [unknown]);
}

/// What is said before and after an attempt is entrusted is kept to its end.
pub async fn what_an_entrusted_attempt_says_is_kept(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = world.running("speaks", worker).await;
    super::papers::speak(&world, worker, &run).await;
    let end = world.now + SignedDuration::from_hours(1);
    let (_, receiver) = entrust(&world, worker, &run, terms(end, None)).await.expect("held");
    let said = world.detail(run.id()).await.papers;
    assert!(!said.is_empty());
    super::papers::speak(&world, receiver, &run).await;
    world.conclude(receiver, &run, Outcome::Failed, Verdict::Fail).await.expect("held");
    assert!(world.detail(run.id()).await.log(1).is_some_and(|log| !log.lines.is_empty()));
}

/// Somebody asks it to stop: its receiver is told, and nobody is given an attempt that was asked to stop.
pub async fn a_receiver_hears_that_its_run_is_to_stop(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = world.running("stops", worker).await;
    let end = world.now + SignedDuration::from_hours(1);
    let (_, receiver) = entrust(&world, worker, &run, terms(end, Some(60))).await.expect("held");
    cancel(&world, &run).await;
    assert_eq!(beat(&world, receiver, &run).await.cancelled, [Held::from(&run)]);
    let ended = world.conclude(receiver, &run, Outcome::Cancelled, Verdict::Cancel).await.expect("held");
    assert_eq!(ended.state, RunState::Cancelled);
    let other = world.running("stopped-before", worker).await;
    cancel(&world, &other).await;
    let refused = entrust(&world, worker, &other, terms(end, None)).await;
    assert_eq!(refused.map(drop), Err(Refused::Lifecycle(lifecycle::Refused::AskedToStop)));
}
