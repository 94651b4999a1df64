//! Heartbeats and reclaim: who is alive, and what the dead held.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::{Outcome, RunId};

use super::world::{LEASE, World};
use crate::store::Store;
use crate::verbs::Held;

const SECOND: Duration = Duration::from_secs(1);

async fn expired(world: &World) -> Vec<RunId> {
    let mut lost = world.store.expired(LEASE, world.now, 100).await.expect("expired");
    lost.sort_unstable_by_key(|run| run.sequence);
    lost.iter().map(punctual_domain::Run::id).collect()
}

/// A worker that shows no sign of life for a lease is dead, and what it held goes on elsewhere.
pub async fn a_silent_worker_loses_its_runs_after_the_lease(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = world.running("held", worker).await;
    let held = Held { sequence: run.sequence, attempt: 1 };
    store.heartbeat(worker, vec![held], world.now).await.expect("heartbeat");
    world.advance(LEASE);
    assert_eq!(expired(&world).await, [], "not before the lease is over");
    world.advance(SECOND);
    assert_eq!(expired(&world).await, [run.id()]);
    let lost = Verdict::Retry { available_at: world.now, charge: Charge::Lost, start_by: None };
    world.conclude(worker, &run, Outcome::Lost, lost).await.expect("reclaimed");
    assert_eq!(expired(&world).await, []);
    let other = world.worker();
    let again = world.claim(other, 1).await.remove(0);
    assert_eq!((again.id(), again.attempt, again.lost, again.charged), (run.id(), 2, 1, 0));
}

/// A claim whose reply was lost: the worker lives but does not know of it.
pub async fn an_attempt_that_is_not_listed_is_released(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = world.running("unknown to its worker", worker).await;
    store.heartbeat(worker, Vec::new(), world.now).await.expect("heartbeat");
    assert_eq!(expired(&world).await, [], "the reply may still be on its way");
    world.advance(LEASE + SECOND);
    store.heartbeat(worker, Vec::new(), world.now).await.expect("heartbeat");
    assert_eq!(expired(&world).await, [run.id()]);
    let other = world.running("listed", worker).await;
    let held = Held { sequence: other.sequence, attempt: 1 };
    assert!(!store.heartbeat(worker, vec![held], world.now).await.expect("heartbeat").is_refused, "it lives");
}

/// A worker that was taken for dead cannot come back under the same name.
pub async fn a_dead_worker_stays_dead(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = world.running("held", worker).await;
    let held = Held { sequence: run.sequence, attempt: 1 };
    store.heartbeat(worker, vec![held], world.now).await.expect("heartbeat");
    world.advance(LEASE + SECOND);
    assert_eq!(expired(&world).await, [run.id()]);
    let reply = store.heartbeat(worker, vec![held], world.now).await.expect("heartbeat");
    assert!(reply.is_refused);
    world.fired("new").await;
    assert_eq!(world.claim(worker, 9).await, []);
    // Its late result is still taken as long as nobody reclaimed the run.
    world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("its lease is current");
}

/// A worker that claims has its attempt for a lease, though it gave no sign of life for a while before and none after.
pub async fn an_attempt_is_nobody_elses_for_a_lease(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let old = world.running("old", worker).await;
    store
        .heartbeat(worker, vec![Held { sequence: old.sequence, attempt: 1 }], world.now)
        .await
        .expect("heartbeat");
    world.advance(LEASE - SECOND);
    let new = world.running("new", worker).await;
    world.advance(2 * SECOND);
    assert_eq!(expired(&world).await, [old.id()], "it is dead, and may be at work on what it claimed last");
    world.advance(LEASE - 2 * SECOND);
    assert_eq!(expired(&world).await, [old.id()]);
    world.advance(SECOND);
    assert_eq!(expired(&world).await, [old.id(), new.id()]);
}

/// A run may take hours.
pub async fn a_worker_that_lists_its_attempts_keeps_them(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = world.running("long", worker).await;
    let held = Held { sequence: run.sequence, attempt: 1 };
    for _ in 0..20 {
        store.heartbeat(worker, vec![held], world.now).await.expect("heartbeat");
        world.advance(LEASE / 2);
        assert_eq!(expired(&world).await, []);
    }
    let gone = Held { sequence: run.sequence, attempt: 7 };
    let reply = store.heartbeat(worker, vec![held, gone], world.now).await.expect("heartbeat");
    assert_eq!(reply.not_held, [gone]);
}
