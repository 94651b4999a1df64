//! A node's row: what is not in columns of its own.

use jiff::SignedDuration;
use punctual_domain::id::{ShardId, WorkerId};
use punctual_domain::placement::{Node, Roles};
use serde::{Deserialize, Serialize};

use super::is_default;
use super::{damaged, millis, timestamp};
use crate::attendance::Attendance;
use crate::error::Error;

#[derive(Serialize, Deserialize)]
struct NodeRecord {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    release: String,
    roles: RolesRecord,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    labels: String,
    started: i64,
    capacity: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    ahead: i64,
    /// Shards and what is due in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    density: Vec<(u16, u32)>,
}

#[derive(Serialize, Deserialize)]
struct RolesRecord {
    #[serde(default, skip_serializing_if = "is_default")]
    api: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    scheduler: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    worker: bool,
}

/// A node's sign of life as text.
pub fn encode_attendance(attendance: &Attendance) -> Result<String, Error> {
    let node = &attendance.node;
    let record = NodeRecord {
        name: node.name.clone(),
        address: node.address.clone(),
        release: node.release.clone(),
        roles: RolesRecord {
            api: node.roles.api,
            scheduler: node.roles.scheduler,
            worker: node.roles.worker,
        },
        labels: node.labels.to_string(),
        started: millis(node.started_at),
        capacity: node.capacity,
        ahead: i64::try_from(node.clock_ahead.as_millis()).unwrap_or_default(),
        density: attendance.densities.iter().map(|(shard, density)| (shard.0, *density)).collect(),
    };
    serde_json::to_string(&record).map_err(|error| damaged(format!("a node cannot be written: {error}")))
}

/// The reverse of [`encode_attendance`].
pub fn decode_attendance(id: WorkerId, text: &str) -> Result<Attendance, Error> {
    let record: NodeRecord =
        serde_json::from_str(text).map_err(|error| damaged(format!("node {id}: {error}")))?;
    let RolesRecord { api, scheduler, worker } = record.roles;
    let node = Node {
        id,
        name: record.name,
        address: record.address,
        release: record.release,
        roles: Roles { api, scheduler, worker },
        labels: record.labels.parse().map_err(|error| damaged(format!("node {id}: {error}")))?,
        started_at: timestamp(record.started)?,
        capacity: record.capacity,
        clock_ahead: SignedDuration::from_millis(record.ahead),
    };
    let densities = record.density.into_iter().map(|(shard, density)| (ShardId(shard), density)).collect();
    Ok(Attendance { node, densities })
}
