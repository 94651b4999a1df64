//! Which nodes are live, for stores that are one process: everything is in memory, and anew after a restart.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{ShardId, WorkerId};
use punctual_domain::placement::Node;

/// A node's sign of life.
#[derive(Clone, Debug)]
pub struct Attendance {
    /// The node as it is now.
    pub node: Node,
    /// Slots of the next minute in shards that it owns.
    pub densities: Vec<(ShardId, u32)>,
}

/// The book of live nodes.
#[derive(Debug, Default)]
pub struct Attendances {
    nodes: BTreeMap<WorkerId, (Node, Timestamp)>,
    densities: HashMap<ShardId, u32>,
}

impl Attendances {
    /// A node is live until `ttl` from now.
    pub fn attend(&mut self, attendance: Attendance, ttl: Duration, now: Timestamp) {
        let until = now.checked_add(SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX));
        self.nodes.insert(attendance.node.id, (attendance.node, until.unwrap_or(Timestamp::MAX)));
        self.densities.extend(attendance.densities);
    }

    /// A node is gone.
    pub fn leave(&mut self, node: WorkerId) {
        self.nodes.remove(&node);
    }

    /// Live nodes, and until when they are. Those that were silent for too long are forgotten.
    pub fn live(&mut self, now: Timestamp) -> Vec<(Node, Timestamp)> {
        self.nodes.retain(|_, (_, until)| *until >= now);
        self.nodes.values().cloned().collect()
    }

    /// Until when a node is live if nothing more is heard of it.
    pub fn until(&self, node: WorkerId) -> Option<Timestamp> {
        self.nodes.get(&node).map(|(_, until)| *until)
    }

    /// Slots of the next minute in a shard, as its owner last knew.
    pub fn density(&self, shard: ShardId) -> u32 {
        self.densities.get(&shard).copied().unwrap_or_default()
    }
}
