//! Who owns which shard.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::ShardId;

use super::world::World;
use crate::error::Refused;
use crate::store::Store;
use crate::verbs::Shards;

const TTL: Duration = Duration::from_secs(30);

/// A shard that is held is not given to another, until its time is over.
pub async fn shards_are_owned_by_one_at_a_time(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    world.store.release(world.node, world.now).await.expect("release");
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
    world.store.release(world.node, world.now).await.expect("release");
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
    store.release(world.node, world.now).await.expect("release");
    assert_eq!(world.try_fire(&job, world.now).await, Err(Refused::StaleEpoch));
    let other = world.worker();
    let taken = store.acquire(other, Shards::All, TTL, world.now).await.expect("acquire");
    assert_eq!(taken.len(), usize::from(store.shard_count()));
    assert!(taken.iter().zip(&world.epochs).all(|((_, new), old)| new > old));
}
