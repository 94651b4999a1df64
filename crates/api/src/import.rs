//! Many jobs at once: `bulk` answers per item, `import` in a stream of lines.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::Problem;

/// What became of the items of a bulk request, in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BulkResult {
    /// One for each item.
    pub items: Vec<BulkItem>,
    /// How many were registered.
    pub created: u64,
    /// How many were refused.
    pub failed: u64,
}

/// What became of one item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BulkItem {
    /// The HTTP status it would have had alone.
    pub status: u16,
    /// The job's id, if it was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// A line of the answer to an import. The last one is the summary; without it the import did not end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImportLine {
    /// A refused line.
    Refused(RefusedLine),
    /// How far it is; everything counted here is durable.
    Progress(ImportCount),
    /// The end, with all counts.
    Summary(ImportCount),
    /// The import stopped: what was not counted before is not registered.
    Stopped(Problem),
}

/// A line that was not registered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RefusedLine {
    /// Which, from 1.
    pub line: u64,
    /// Why.
    pub problem: Problem,
}

/// Counts of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportCount {
    /// Lines read, empty ones left out.
    pub lines: u64,
    /// Jobs registered.
    pub created: u64,
    /// Lines that an earlier import under the same `Idempotency-Key` had registered.
    pub repeated: u64,
    /// Lines refused.
    pub failed: u64,
}
