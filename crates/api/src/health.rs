//! What the server says about itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether the server can work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether every check is well.
    pub is_ready: bool,
    /// The checks.
    pub checks: Vec<Check>,
}

/// One thing that must be well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Check {
    /// What: `store`, `clock`, `draining`.
    pub name: String,
    /// Whether it is well.
    pub is_ok: bool,
    /// What is wrong, or how it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What is running.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// The version of the server.
    pub version: String,
    /// The commit it was built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The version of the time zone data in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tzdata: Option<String>,
}
