//! Queues on the wire: what waits, what runs, and who is there to take it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A queue of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// Whose runs.
    pub tenant: String,
    /// Its name.
    pub queue: String,
    /// How many runs wait for a worker, and their time has come.
    pub waiting: u64,
    /// There are more than `waiting`: it was counted up to a bound.
    pub is_more: bool,
    /// Since when the run waits that waits longest, of those that were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_at: Option<Timestamp>,
    /// How long that is, in milliseconds; 0 if none waits.
    pub oldest_wait_ms: i64,
    /// How late the run started that started latest, in milliseconds, of those that ended on this node within the last two minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ms: Option<i64>,
    /// How many run.
    pub running: u64,
    /// Workers that pull from it.
    pub workers: u64,
    /// How many attempts they can execute at a time.
    pub concurrency: u64,
    /// How busy they are, 0 to 1, each by its concurrency; nothing without a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<f64>,
    /// Slots of the next 15 minutes.
    pub planned: u64,
    /// Whether `planned` is exact.
    pub is_planned_exact: bool,
}
