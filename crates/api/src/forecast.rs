//! Forecasts on the wire: how many slots are planned.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::duration::Duration;

/// How many slots are planned, by time and by group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    /// Where the first bucket begins.
    pub from: Timestamp,
    /// Where the last bucket ends.
    pub to: Timestamp,
    /// The length of a bucket.
    pub resolution: Duration,
    /// When the jobs were counted. Those registered since are counted too; changes and deletions since are not.
    pub as_of: Timestamp,
    /// Whether all jobs were counted; if not, ask again.
    pub is_complete: bool,
    /// Whether the numbers are exact, as of then.
    pub is_exact: bool,
    /// Why they are not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub estimated: Vec<String>,
    /// How many active jobs were counted, of all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u64>,
    /// All slots.
    pub slots: u64,
    /// The fullest bucket, if there is a slot at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<Bucket>,
    /// All slots, bucket by bucket.
    pub buckets: Vec<Bucket>,
    /// Groups, those with the most slots first. More than were asked for are one, at the end.
    pub groups: Vec<ForecastGroup>,
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bucket {
    /// Where it begins.
    pub at: Timestamp,
    /// How many slots are planned in it.
    pub slots: u64,
}

/// The slots of jobs that have something in common. What it was not asked for by, or what its jobs have not, is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ForecastGroup {
    /// Whose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Of which type.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Where the runs go: `http HOST`, `function NAME` or `discard`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Several groups that are not told apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_rest: bool,
    /// Its slots.
    pub slots: u64,
    /// Its slots, bucket by bucket.
    pub buckets: Vec<u64>,
}
