//! What waits in queues and runs from them.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::id::TenantId;
use punctual_domain::run::Run;
use punctual_domain::{TenantName, job::Target};

use super::World;
use crate::queues::Queue;
use crate::store::Store;
use crate::verbs::{Claim, Shards};

async fn fired(world: &mut World, tenant: TenantId, queue: &str, pulls: bool) -> Run {
    let mut job = world.job("queued");
    job.tenant = tenant;
    job.spec.queue = queue.into();
    if pulls {
        job.spec.target = Target::Worker { handler: "h".into() };
        job.spec.requires = job.spec.requires.pulling(tenant);
    }
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    world.try_fire(&job, world.now).await.expect("fired").remove(0)
}

fn told(queues: Vec<Queue>) -> Vec<(u32, String, u64, u64)> {
    queues.into_iter().map(|of| (of.tenant.0, of.queue.to_string(), of.waiting, of.running)).collect()
}

/// Whoever waits for a worker is counted in his queue, whatever he requires, and whoever runs too.
pub async fn what_waits_and_runs_is_counted_by_queue(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    assert_eq!(store.queues(None).await.expect("queues"), []);
    let acme: TenantName = "acme".parse().expect("valid");
    let (one, acme) = (TenantId::DEFAULT, store.put_tenant(&acme, world.now).await.expect("tenant").id);
    let oldest = world.now;
    fired(&mut world, one, "mail", false).await;
    world.advance(Duration::from_secs(5));
    fired(&mut world, one, "mail", true).await;
    fired(&mut world, acme, "mail", true).await;
    for _ in 0..3 {
        fired(&mut world, one, "slow", false).await;
    }
    let worker = world.worker();
    let queues = vec!["slow".into()];
    let claim = Claim { worker, queues, labels: Default::default(), shards: Shards::All, limit: 2 };
    assert_eq!(store.claim(claim, world.now).await.expect("claim").len(), 2);
    let mine = [(one.0, "mail".to_string(), 2, 0), (one.0, "slow".to_string(), 1, 2)];
    let theirs = [(acme.0, "mail".to_string(), 1, 0)];
    let seen = store.queues(Some(one)).await.expect("queues");
    assert_eq!((seen[0].oldest_at, seen[0].is_more), (Some(oldest), false));
    assert_eq!(seen[1].oldest_at, Some(world.now));
    assert_eq!(told(seen), mine);
    assert_eq!(told(store.queues(Some(acme)).await.expect("queues")), theirs);
    assert_eq!(told(store.queues(None).await.expect("queues")), [&mine[..], &theirs].concat());
    assert_eq!(store.queues(Some(TenantId(77))).await.expect("queues"), []);
}

/// A run that waits for its time does not wait for a worker.
pub async fn what_waits_for_its_time_is_in_no_queue_yet(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("later", world.now).await;
    let mut firing = world.firing(&job, world.now);
    firing.births[0].available_at = world.after(10);
    world.try_firing(firing).await.expect("fired");
    assert_eq!(store.queues(None).await.expect("queues"), []);
    world.advance(Duration::from_secs(10));
    let worker = world.worker();
    assert_eq!(world.claim(worker, 1).await.len(), 1);
    let queue = store.queues(None).await.expect("queues").remove(0);
    assert_eq!((queue.waiting, queue.running, queue.oldest_at), (0, 1, None));
}
