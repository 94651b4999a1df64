//! Nodes and shards on the wire.

use std::collections::HashMap;

use jiff::Timestamp;
use punctual_domain::placement::Placement;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A server process of the cluster that is live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its id; new at every start.
    pub id: String,
    /// What its operator calls it.
    pub name: String,
    /// Where its API listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The version of the program.
    pub version: String,
    /// What it does: `api`, `scheduler`, `worker`.
    pub roles: Vec<String>,
    /// Since when it runs.
    pub started_at: Timestamp,
    /// Until when it is live if nothing more is heard of it.
    pub live_until: Timestamp,
    /// How many shards it owns.
    pub shards: usize,
    /// Slots of the next minute in its shards, as it last knew.
    pub slots_per_minute: u64,
    /// What it can fire compared to a node that keeps up, in percent.
    pub capacity_percent: u32,
    /// How far its clock is ahead of the database's.
    pub clock_ahead_ms: i64,
}

/// A shard and its owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Shard {
    /// Its number.
    pub shard: u16,
    /// The id of the node that fires its slots; nobody, since it was given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The owner's name, while it is live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_name: Option<String>,
    /// Counts its owners.
    pub epoch: u64,
    /// When another node may take it.
    pub expires_at: Timestamp,
    /// Slots of the next minute, as its owner last knew.
    pub slots_per_minute: u32,
}

/// A node that keeps up has this capacity.
const CAPACITY: u32 = 64;

impl Node {
    /// The live nodes of a placement.
    pub fn all(placement: &Placement) -> Vec<Node> {
        let mut owned: HashMap<_, (usize, u64)> = HashMap::new();
        for shard in &placement.shards {
            if let Some(owner) = shard.owner {
                let (shards, slots) = owned.entry(owner).or_default();
                *shards += 1;
                *slots += u64::from(shard.density);
            }
        }
        let node = |(node, live_until): &(punctual_domain::Node, Timestamp)| {
            let (shards, slots_per_minute) = owned.get(&node.id).copied().unwrap_or_default();
            Node {
                id: node.id.to_string(),
                name: node.name.clone(),
                address: node.address.clone(),
                version: node.release.clone(),
                roles: node.roles.names().into_iter().map(String::from).collect(),
                started_at: node.started_at,
                live_until: *live_until,
                shards,
                slots_per_minute,
                capacity_percent: node.capacity * 100 / CAPACITY,
                clock_ahead_ms: i64::try_from(node.clock_ahead.as_millis()).unwrap_or_default(),
            }
        };
        let mut nodes: Vec<Node> = placement.nodes.iter().map(node).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name).then(a.id.cmp(&b.id)));
        nodes
    }
}

impl Shard {
    /// All shards of a placement.
    pub fn all(placement: &Placement) -> Vec<Shard> {
        let shard = |shard: &punctual_domain::Ownership| {
            let owner = shard.owner.and_then(|owner| placement.node(owner));
            Shard {
                shard: shard.shard.0,
                owner: shard.owner.map(|owner| owner.to_string()),
                owner_name: owner.map(|node| node.name.clone()),
                epoch: shard.epoch.0,
                expires_at: shard.expires_at,
                slots_per_minute: shard.density,
            }
        };
        placement.shards.iter().map(shard).collect()
    }
}
