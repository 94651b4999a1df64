//! Requests about dead letters: runs by id, or all that a filter finds.

use jiff::Timestamp;
use punctual_domain::operation::DeadLetters;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::Problem;
use crate::run::RunSummary;
use crate::time::Time;

object! {
    /// Which dead letters: exactly one of `runs` and `filter`.
    pub struct Selection {
        /// By id, at most 1,000; answered at once.
        pub runs: Vec<String>,
        /// All that match, as an operation; `{}` is all of the tenant.
        pub filter: Filter,
    }

    /// Every member narrows.
    pub struct Filter {
        /// Of this job.
        pub job: String,
        /// Of this type.
        pub r#type: String,
        /// In this queue.
        pub queue: String,
        /// Born at or after.
        pub from: Time,
        /// Born before.
        pub to: Time,
        /// The error of their last attempt has this code, such as `connect_failed`.
        pub error: String,
        /// Their job has this label: `name=value`.
        pub label: String,
    }
}

/// Dead letters that failed alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterGroup {
    /// The code of their errors.
    pub error: String,
    /// The target's own code, such as an HTTP status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// Their message; what differs from one to the other is `#`.
    pub message: String,
    /// How many were met.
    pub count: u64,
    /// Of how many jobs.
    pub jobs: u64,
    /// When the first of them ended.
    pub first_at: Timestamp,
    /// When the last of them ended.
    pub last_at: Timestamp,
    /// The newest of them.
    pub example_run_id: String,
}

/// Dead letters by what went wrong, the largest group first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterGroups {
    /// The groups.
    pub items: Vec<DeadLetterGroup>,
    /// How many dead letters were looked at, the newest first. Counts are of these.
    pub examined: u64,
    /// These were all.
    pub is_complete: bool,
    /// Where to go on, if they were not.
    pub next_cursor: Option<String>,
}

impl From<&DeadLetters> for Filter {
    fn from(which: &DeadLetters) -> Self {
        Filter {
            job: which.job.map(|job| job.to_string()),
            r#type: which.kind.as_deref().map(Into::into),
            queue: which.queue.as_deref().map(Into::into),
            from: which.born_from.map(Time::from),
            to: which.born_before.map(Time::from),
            error: which.error.as_deref().map(Into::into),
            label: which.label.as_ref().map(|(name, value)| format!("{name}={value}")),
        }
    }
}

/// What became of the runs, in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SelectionResult {
    /// One for each.
    pub items: Vec<SelectionItem>,
    /// How many were changed.
    pub done: u64,
    /// How many were not.
    pub failed: u64,
}

/// What became of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SelectionItem {
    /// Its id, as it was sent.
    pub id: String,
    /// The run as it is now, if it was redriven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunSummary>,
    /// Why it was not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}
