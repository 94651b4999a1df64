//! Requests about dead letters: runs by id, or all that a filter finds.

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
    }
}

impl From<&DeadLetters> for Filter {
    fn from(which: &DeadLetters) -> Self {
        Filter {
            job: which.job.map(|job| job.to_string()),
            r#type: which.kind.as_deref().map(Into::into),
            queue: which.queue.as_deref().map(Into::into),
            from: which.born_from.map(Time::from),
            to: which.born_before.map(Time::from),
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
