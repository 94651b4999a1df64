//! Who owns which shard.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use punctual_domain::id::{Epoch, WorkerId};
use punctual_domain::{Node, Roles, ShardId};

use super::world::World;
use crate::attendance::Attendance;
use crate::error::Refused;
use crate::store::{LOOK_AHEAD, Store};
use crate::verbs::Shards;

const TTL: Duration = Duration::from_secs(30);

/// A shard that is held is not given to another, until its time is over.
pub async fn shards_are_owned_by_one_at_a_time(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    world.store.leave(world.node, world.now).await.expect("leave");
    let (first, second) = (world.worker(), world.worker());
    let two = Shards::Some(vec![ShardId(3), ShardId(5)]);
    let taken = store.acquire(first, two, TTL, world.now).await.expect("acquire");
    assert_eq!(taken.iter().map(|(shard, _)| shard.0).collect::<Vec<_>>(), [3, 5]);
    let rest = store.acquire(second, Shards::All, TTL, world.now).await.expect("acquire");
    assert_eq!(rest.len(), usize::from(store.shard_count()) - 2);
    assert!(rest.iter().all(|(shard, _)| shard.0 != 3 && shard.0 != 5));
    world.advance(TTL + Duration::from_secs(1));
    let all = store.acquire(second, Shards::All, TTL, world.now).await.expect("acquire");
    assert_eq!(all.len(), usize::from(store.shard_count()));
}

/// An owner that renews in time keeps its shards, under the same epochs.
pub async fn a_renewed_shard_stays_with_its_owner(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    world.store.leave(world.node, world.now).await.expect("leave");
    let (first, second) = (world.worker(), world.worker());
    let taken = store.acquire(first, Shards::All, TTL, world.now).await.expect("acquire");
    for _ in 0..3 {
        world.advance(TTL - Duration::from_secs(1));
        let renewed = store.acquire(first, Shards::All, TTL, world.now).await.expect("acquire");
        assert_eq!(renewed, taken);
        assert_eq!(store.acquire(second, Shards::All, TTL, world.now).await.expect("acquire"), []);
    }
}

/// Taking over starts a new epoch, and the old owner's writes are refused; renewing keeps it.
pub async fn a_new_owner_fences_the_old_one(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("guarded", world.now).await;
    let again = store.acquire(world.node, Shards::All, TTL, world.now).await.expect("acquire");
    assert_eq!(
        again.iter().map(|(_, epoch)| *epoch).collect::<Vec<_>>(),
        world.epochs,
        "renewing keeps epochs"
    );
    world.advance(TTL + Duration::from_secs(1));
    let other = world.worker();
    let taken = store.acquire(other, Shards::All, TTL, world.now).await.expect("acquire");
    let slot = job.created_at;
    assert_eq!(world.try_fire(&job, slot).await, Err(Refused::StaleEpoch));
    world.epochs = taken.into_iter().map(|(_, epoch)| epoch).collect();
    assert_eq!(world.try_fire(&job, slot).await.expect("fired").len(), 1);
}

/// A node that leaves makes room at once, and is fenced as well.
pub async fn a_released_shard_is_free_at_once(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("guarded", world.now).await;
    store.leave(world.node, world.now).await.expect("leave");
    assert_eq!(world.try_fire(&job, world.now).await, Err(Refused::StaleEpoch));
    let other = world.worker();
    let taken = store.acquire(other, Shards::All, TTL, world.now).await.expect("acquire");
    assert_eq!(taken.len(), usize::from(store.shard_count()));
    assert!(taken.iter().zip(&world.epochs).all(|((_, new), old)| new > old));
}

/// A shard that is handed over has a new owner and a new epoch at once.
pub async fn a_shard_is_handed_over(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("guarded", world.now).await;
    let (shard, heir) = (job.id.shard(), world.worker());
    store.hand_over(world.node, vec![(shard, heir)], TTL, world.now).await.expect("handed over");
    assert_eq!(world.try_fire(&job, world.now).await, Err(Refused::StaleEpoch));
    let held = store.acquire(heir, Shards::Some(Vec::new()), TTL, world.now).await.expect("acquire");
    let old = world.epochs[usize::from(shard.0)];
    assert_eq!(held, [(shard, Epoch(old.0 + 1))], "asking for nothing tells what was given");
    let rest = store.acquire(world.node, Shards::All, TTL, world.now).await.expect("acquire");
    assert_eq!(rest.len(), usize::from(store.shard_count()) - 1);
    world.epochs[usize::from(shard.0)] = held[0].1;
    assert_eq!(world.try_fire(&job, world.now).await.expect("fired").len(), 1);
    // What is not one's own cannot be given away.
    let thief = world.worker();
    store.hand_over(thief, vec![(shard, thief)], TTL, world.now).await.expect("answered");
    assert_eq!(owner(&*store, &world, shard).await, Some(heir));
}

/// A shard that was given to a node of which nothing is heard is free when that node is not live any more.
pub async fn a_shard_that_a_dead_node_was_given_is_free_with_it(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (shard, heir) = (ShardId(3), world.worker());
    store.attend(attendance(heir, &world), TTL, world.now).await.expect("attend");
    world.advance(TTL - Duration::from_secs(1));
    store.acquire(world.node, Shards::All, TTL, world.now).await.expect("renewed");
    store.hand_over(world.node, vec![(shard, heir)], TTL, world.now).await.expect("handed over");
    world.advance(Duration::from_secs(2));
    let held = store.acquire(world.node, Shards::Some(vec![shard]), TTL, world.now).await.expect("acquire");
    assert_eq!(held.len(), usize::from(store.shard_count()));
}

async fn owner(store: &dyn Store, world: &World, shard: ShardId) -> Option<WorkerId> {
    store.placement(world.now).await.expect("placement").shards[usize::from(shard.0)].owner
}

fn attendance(id: WorkerId, world: &World) -> Attendance {
    let node = Node {
        id,
        name: "node".into(),
        address: Some("127.0.0.1:7171".into()),
        release: "1.2.3".into(),
        roles: Roles { worker: false, ..Roles::ALL },
        labels: "zone=eu".parse().expect("labels"),
        started_at: world.now,
        capacity: 64,
        clock_ahead: SignedDuration::from_millis(-12),
    };
    Attendance { node, densities: Vec::new() }
}

/// Nodes are live while they are heard of, and all see the same.
pub async fn nodes_that_attend_are_live(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (first, second) = (world.worker(), world.node);
    store.attend(attendance(first, &world), TTL, world.now).await.expect("attend");
    world.advance(TTL / 2);
    let mut slow = attendance(second, &world);
    slow.node.capacity = 8;
    slow.densities = vec![(ShardId(3), 70), (ShardId(4), 90)];
    store.attend(slow.clone(), TTL, world.now).await.expect("attend");
    let placement = store.placement(world.now).await.expect("placement");
    assert_eq!(placement.at, world.now);
    let mut ids: Vec<WorkerId> = placement.nodes.iter().map(|(node, _)| node.id).collect();
    ids.sort_unstable();
    let mut expected = vec![first, second];
    expected.sort_unstable();
    assert_eq!(ids, expected);
    assert_eq!(placement.node(second), Some(&slow.node), "as it was told");
    assert_eq!(placement.shards.len(), usize::from(store.shard_count()));
    assert!(placement.shards.iter().all(|shard| shard.owner == Some(second)));
    assert!(placement.shards.iter().zip(&world.epochs).all(|(shard, epoch)| shard.epoch == *epoch));
    assert_eq!(placement.shards[3..6].iter().map(|shard| shard.density).collect::<Vec<_>>(), [70, 90, 0]);
    store.hand_over(second, vec![(ShardId(3), first)], TTL, world.now).await.expect("hand over");
    let given = store.placement(world.now).await.expect("placement").shards[3];
    assert_eq!((given.owner, given.density), (Some(first), 70), "known before its new owner has counted");
    world.advance(TTL / 2 + Duration::from_secs(1));
    let live = |placement: &punctual_domain::Placement| placement.nodes.len();
    assert_eq!(live(&store.placement(world.now).await.expect("placement")), 1, "the first was silent");
    store.leave(second, world.now).await.expect("leave");
    assert_eq!(live(&store.placement(world.now).await.expect("placement")), 0);
}

/// The owner of a shard is told once what others made due in it soon.
pub async fn an_owner_hears_what_others_make_due(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    if !store.is_shared() {
        return; // There are no others.
    }
    let far = world.now + LOOK_AHEAD + LOOK_AHEAD;
    world.register("far", far).await;
    assert_eq!(store.news(world.node, world.now).await.expect("news"), None);
    world.register("later", world.after(20)).await;
    world.register("soon", world.after(10)).await;
    let other = world.worker();
    assert_eq!(store.news(other, world.now).await.expect("news"), None, "it owns nothing");
    assert_eq!(store.news(world.node, world.now).await.expect("news"), Some(world.after(10)));
    assert_eq!(store.news(world.node, world.now).await.expect("news"), None);
    // A change counts as well.
    let mut job = world.register("changed", far).await;
    job.version = job.version.next();
    world.try_put(world.put(job, Some(world.after(5)))).await.expect("changed");
    assert_eq!(store.news(world.node, world.now).await.expect("news"), Some(world.after(5)));
}
