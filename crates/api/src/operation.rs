//! Long work over many runs, on the wire.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Long work that goes on after its request was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Its id.
    pub id: String,
    /// What it does: `redrive` or `acknowledge`.
    pub kind: String,
    /// `running`, `succeeded` or `failed`.
    pub state: String,
    /// How many runs it has changed.
    pub done: u64,
    /// How many it could not change, because they had changed meanwhile.
    pub refused: u64,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
