//! Who fires what: live nodes, the owners of shards, and how shards should be spread.
//!
//! [`Placement::targets`] is the one rule, computed by every node for itself from the same rows. Promise: shards go to live
//! nodes only, in proportion to what is due in them and to what the nodes can do; a shard stays where it is unless
//! moving it makes the spread clearly better.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::id::{Epoch, ShardId, WorkerId};
use crate::labels::Labels;

/// What a shard counts for by itself, in slots a minute: while little is due, nodes get the same number of shards.
const SHARD_WEIGHT: u64 = 50;

/// Loads that differ by less than this share of the mean are left alone.
const TOLERANCE: f64 = 0.1;

/// A node as the others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Which; new at every start.
    pub id: WorkerId,
    /// What its operator calls it.
    pub name: String,
    /// Where its API listens, if it has one.
    pub address: Option<String>,
    /// The version of the program.
    pub release: String,
    /// What it does.
    pub roles: Roles,
    /// What its worker has, for jobs that require it.
    pub labels: Labels,
    /// Since when.
    pub started_at: Timestamp,
    /// What it can fire, compared to others. A node of capacity 0 gets no shards.
    pub capacity: u32,
    /// How far its clock is ahead of the store's.
    pub clock_ahead: SignedDuration,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Answers requests.
    pub api: bool,
    /// Owns shards and fires their slots.
    pub scheduler: bool,
    /// Executes runs.
    pub worker: bool,
}

impl Roles {
    /// Everything.
    pub const ALL: Roles = Roles { api: true, scheduler: true, worker: true };

    /// Their names.
    pub fn names(self) -> Vec<&'static str> {
        let all = [(self.api, "api"), (self.scheduler, "scheduler"), (self.worker, "worker")];
        all.into_iter().filter(|(has, _)| *has).map(|(_, name)| name).collect()
    }
}

/// A shard and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Which shard.
    pub shard: ShardId,
    /// Who fires it; nobody since it was given back.
    pub owner: Option<WorkerId>,
    /// Counts its owners.
    pub epoch: Epoch,
    /// When another may take it.
    pub expires_at: Timestamp,
    /// Slots of the next minute, as its owner last knew.
    pub density: u32,
}

impl Ownership {
    /// What it counts for when shards are spread.
    pub fn weight(&self) -> u64 {
        SHARD_WEIGHT + u64::from(self.density)
    }
}

/// Live nodes and the owners of all shards, at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// When, by the store's clock.
    pub at: Timestamp,
    /// Live nodes by id, and until when they are if nothing is heard of them.
    pub nodes: Vec<(Node, Timestamp)>,
    /// All shards, in order.
    pub shards: Vec<Ownership>,
}

/// A node's share while targets are computed.
struct Share {
    capacity: f64,
    load: u64,
    shards: Vec<(u64, ShardId)>,
}

impl Share {
    fn relative(&self, more: u64) -> f64 {
        (self.load + more) as f64 / self.capacity
    }

    fn give(&mut self, weight: u64, shard: ShardId) {
        self.load += weight;
        self.shards.push((weight, shard));
    }
}

impl Placement {
    /// A live node.
    pub fn node(&self, id: WorkerId) -> Option<&Node> {
        self.nodes.iter().map(|(node, _)| node).find(|node| node.id == id)
    }

    /// Who should own each shard. None, if there is no node that could.
    pub fn targets(&self) -> BTreeMap<ShardId, WorkerId> {
        let able = self.nodes.iter().map(|(node, _)| node).filter(|node| node.capacity > 0);
        let mut shares: BTreeMap<WorkerId, Share> = able
            .map(|node| (node.id, Share { capacity: f64::from(node.capacity), load: 0, shards: Vec::new() }))
            .collect();
        if shares.is_empty() {
            return BTreeMap::new();
        }
        let mut orphans = Vec::new();
        for shard in &self.shards {
            let weight = shard.weight();
            match shard.owner.and_then(|owner| shares.get_mut(&owner)) {
                Some(share) => share.give(weight, shard.shard),
                None => orphans.push((weight, shard.shard)),
            }
        }
        orphans.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        for (weight, shard) in orphans {
            let best = shares
                .iter_mut()
                .min_by(|a, b| {
                    let (x, y) = (a.1.relative(weight), b.1.relative(weight));
                    x.total_cmp(&y).then_with(|| score(shard, *b.0).cmp(&score(shard, *a.0)))
                })
                .map(|(_, share)| share);
            if let Some(share) = best {
                share.give(weight, shard);
            }
        }
        even_out(&mut shares, self.shards.len());
        let of = |(id, share): (WorkerId, Share)| share.shards.into_iter().map(move |(_, shard)| (shard, id));
        shares.into_iter().flat_map(of).collect()
    }
}

/// Moves shards from the most to the least loaded node while that helps.
fn even_out(shares: &mut BTreeMap<WorkerId, Share>, moves_max: usize) {
    let load: u64 = shares.values().map(|share| share.load).sum();
    let capacity: f64 = shares.values().map(|share| share.capacity).sum();
    let mean = load as f64 / capacity;
    for moves in 0..moves_max {
        let by_load = |a: &(&WorkerId, &Share), b: &(&WorkerId, &Share)| {
            a.1.relative(0).total_cmp(&b.1.relative(0)).then(a.0.cmp(b.0))
        };
        let (Some(low), Some(high)) = (
            shares.iter().min_by(by_load).map(|(id, _)| *id),
            shares.iter().max_by(by_load).map(|(id, _)| *id),
        ) else {
            return;
        };
        let (lowest, highest) = (&shares[&low], &shares[&high]);
        // Once it is worth moving anything, it is worth doing well.
        if moves == 0 && highest.relative(0) - lowest.relative(0) <= TOLERANCE * mean {
            return;
        }
        // The heaviest that does not turn the order around; of equals, the one that the receiver scores best for.
        let helps = |weight: u64| {
            lowest.relative(weight) <= highest.load.saturating_sub(weight) as f64 / highest.capacity
        };
        let best = (0..highest.shards.len())
            .filter(|place| helps(highest.shards[*place].0))
            .max_by_key(|place| (highest.shards[*place].0, score(highest.shards[*place].1, low)));
        let Some(place) = best else { return };
        let Some(from) = shares.get_mut(&high) else { return };
        let (weight, shard) = from.shards.swap_remove(place);
        from.load -= weight;
        if let Some(to) = shares.get_mut(&low) {
            to.give(weight, shard);
        }
    }
}

/// How well a node and a shard suit each other: the same for everybody who asks.
fn score(shard: ShardId, node: WorkerId) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&shard.0.to_be_bytes());
    hasher.update(node.as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: u64, capacity: u32) -> (Node, Timestamp) {
        let node = Node {
            id: WorkerId::new(Timestamp::UNIX_EPOCH, n << 52),
            name: format!("node-{n}"),
            address: None,
            release: "1".into(),
            roles: Roles::ALL,
            labels: Labels::NONE,
            started_at: Timestamp::UNIX_EPOCH,
            capacity,
            clock_ahead: SignedDuration::ZERO,
        };
        (node, Timestamp::MAX)
    }

    fn placement(nodes: Vec<(Node, Timestamp)>, densities: &[u32]) -> Placement {
        let shard = |(index, density): (usize, &u32)| Ownership {
            shard: ShardId(index as u16),
            owner: None,
            epoch: Epoch(0),
            expires_at: Timestamp::MIN,
            density: *density,
        };
        let shards = densities.iter().enumerate().map(shard).collect();
        Placement { at: Timestamp::UNIX_EPOCH, nodes, shards }
    }

    /// Gives every shard to its target; says how many changed hands.
    fn settle(placement: &mut Placement) -> usize {
        let targets = placement.targets();
        let mut moved = 0;
        for shard in &mut placement.shards {
            let target = targets.get(&shard.shard).copied();
            moved += usize::from(shard.owner != target);
            shard.owner = target;
        }
        moved
    }

    fn counts(placement: &Placement) -> Vec<usize> {
        let of = |id| placement.shards.iter().filter(|shard| shard.owner == Some(id)).count();
        placement.nodes.iter().map(|(node, _)| of(node.id)).collect()
    }

    fn loads(placement: &Placement) -> Vec<u32> {
        let of = |id| placement.shards.iter().filter(move |shard| shard.owner == Some(id));
        placement.nodes.iter().map(|(node, _)| of(node.id).map(|shard| shard.density).sum()).collect()
    }

    #[test]
    fn nodes_get_fair_shares_as_they_come_and_go() {
        let mut placement = placement(vec![node(0, 64)], &[0; 256]);
        settle(&mut placement);
        for n in 1..20 {
            placement.nodes.push(node(n, 64));
            let moved = settle(&mut placement);
            let fair = 256 / (n as usize + 1);
            assert!(
                counts(&placement).iter().all(|count| count.abs_diff(fair) <= 2),
                "{:?}",
                counts(&placement)
            );
            assert!(moved <= fair + 1, "{moved} moved to the {n}th");
            assert_eq!(settle(&mut placement), 0, "it comes to rest");
        }
        while placement.nodes.len() > 1 {
            let (gone, _) = placement.nodes.remove(0);
            let lost = placement.shards.iter().filter(|shard| shard.owner == Some(gone.id)).count();
            let moved = settle(&mut placement);
            assert!(moved <= lost + placement.nodes.len(), "{moved} moved for {lost}");
            let fair = 256.0 / placement.nodes.len() as f64;
            assert!(counts(&placement).iter().all(|count| (*count as f64 - fair).abs() <= 0.2 * fair));
        }
        assert_eq!(counts(&placement), [256]);
    }

    #[test]
    fn busy_shards_are_spread() {
        let mut densities = [100; 256];
        densities[..5].fill(46_000);
        let mut placement = placement(vec![node(0, 64), node(1, 64), node(2, 64)], &densities);
        settle(&mut placement);
        let mut busy: Vec<usize> = placement
            .nodes
            .iter()
            .map(|(node, _)| {
                placement.shards[..5].iter().filter(|shard| shard.owner == Some(node.id)).count()
            })
            .collect();
        busy.sort_unstable();
        assert_eq!(busy, [1, 2, 2]);
        assert_eq!(settle(&mut placement), 0);
    }

    #[test]
    fn a_slow_node_gets_less() {
        let mut placement = placement(vec![node(0, 64), node(1, 64), node(2, 64)], &[2_000; 256]);
        settle(&mut placement);
        placement.nodes[0].0.capacity = 16;
        settle(&mut placement);
        let loads = loads(&placement);
        assert!(loads[0] < loads[1] / 3 && loads[1].abs_diff(loads[2]) < 40_000, "{loads:?}");
    }

    #[test]
    fn a_node_without_capacity_gets_nothing() {
        let mut placement = placement(vec![node(0, 64), node(1, 64)], &[0; 16]);
        settle(&mut placement);
        placement.nodes[1].0.capacity = 0;
        settle(&mut placement);
        assert_eq!(counts(&placement), [16, 0]);
        placement.nodes.remove(0);
        assert_eq!(placement.targets(), BTreeMap::new());
    }

    #[test]
    fn small_differences_move_nothing() {
        let mut placement = placement(vec![node(0, 64), node(1, 64)], &[500; 256]);
        settle(&mut placement);
        for (index, shard) in placement.shards.iter_mut().enumerate() {
            shard.density += (index as u32 * 7_919) % 40;
        }
        assert_eq!(settle(&mut placement), 0);
    }
}
