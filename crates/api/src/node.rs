//! Nodes and shards on the wire.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use punctual_domain::operation as domain;
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
    /// What its worker has, for jobs that require it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
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
    /// The number of the database where it lives, if there may be several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<u8>,
}

/// A database of the installation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Database {
    /// Its number.
    pub database: u8,
    /// Where it is, without a password.
    pub address: String,
    /// The shards that live there, as `0-3 7 9-11`.
    pub shards: String,
    /// How many those are.
    pub shard_count: usize,
}

object! {
    /// Moves shards to another database.
    pub struct MoveShards {
        /// Which: numbers and ranges, as `0-127 200`. Those that are there already stay.
        pub shards: String,
        /// The number of the database.
        pub to: u32,
    }
}

impl From<&domain::MoveShards> for MoveShards {
    fn from(which: &domain::MoveShards) -> Self {
        let numbers: Vec<u16> = which.shards.iter().map(|shard| shard.0).collect();
        MoveShards { shards: Some(ranges(&numbers)), to: Some(which.to.into()) }
    }
}

/// Ordered numbers as `0-3 7 9-11`.
pub fn ranges(numbers: &[u16]) -> String {
    let mut parts: Vec<(u16, u16)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let part = |(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(" ")
}

/// The numbers of [`ranges`], each once, in order; separated by blanks or commas. None if it is something else.
pub fn numbers(text: &str) -> Option<Vec<u16>> {
    let mut numbers = BTreeSet::new();
    for part in text.split([' ', ',']).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        numbers.extend((first <= last).then_some(first..=last)?);
    }
    Some(numbers.into_iter().collect())
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
                labels: node.labels.to_map(),
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
                database: None,
            }
        };
        placement.shards.iter().map(shard).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_a_range_and_read_back() {
        assert_eq!(ranges(&[0, 1, 2, 3, 7, 9, 10]), "0-3 7 9-10");
        assert_eq!(ranges(&[]), "");
        assert_eq!(numbers("9-10,7 0-3 2"), Some(vec![0, 1, 2, 3, 7, 9, 10]));
        assert_eq!(numbers(" "), Some(Vec::new()));
        for wrong in ["x", "3-1", "1-", "-4", "1--2", "70000"] {
            assert_eq!(numbers(wrong), None, "{wrong}");
        }
    }
}
