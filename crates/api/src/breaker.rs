//! Breakers on the wire: when a job's own opens, and those that are set.

use std::num::NonZeroU32;

use jiff::Timestamp;
use punctual_domain::policy::breaker::{Breaker as DomainBreaker, OfJob, Stage};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::duration::Duration;
use crate::limits::BREAKER_FAILURES_MAX;
use crate::policies::check_range;
use crate::read::{At, Errors};

object! {
    /// When a job is left alone because it fails again and again: its runs wait, and one at a time finds out whether it is well.
    pub struct JobBreaker {
        /// After so many failed attempts one after the other, 1 to 1000.
        #[schema(required = true, example = 5)]
        pub failures: u32,
    }
}

/// A breaker that is set: its target, or its job, is left alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Breaker {
    /// Whose: `http api.example.com`, or `job` and its id.
    #[schema(example = "http api.example.com")]
    pub name: String,
    /// `open`: one attempt at a time finds out whether it is well. `half_open`: one did, and `max` go on at once, more with each
    /// step. `crowded`: it does not answer as fast as it is asked, and `max` go on at once.
    pub state: String,
    /// Since when.
    pub since: Timestamp,
    /// When its state or what it allows last changed.
    pub changed_at: Timestamp,
    /// While it is open: how long from one probe to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
    /// While it is open: at the latest then the next probe starts, if a run waits and no probe is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_by: Option<Timestamp>,
    /// How many may go on at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// What was seen last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

impl JobBreaker {
    pub(crate) fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> Option<OfJob> {
        let here = at.member("failures");
        let Some(failures) = self.failures else {
            errors.add(&here, "missing_field", "`failures` is missing: after how many it opens");
            return None;
        };
        check_range(failures, BREAKER_FAILURES_MAX, &here, errors);
        NonZeroU32::new(failures).map(|failures| OfJob { failures })
    }
}

impl From<OfJob> for JobBreaker {
    fn from(of_job: OfJob) -> Self {
        JobBreaker { failures: Some(of_job.failures.get()) }
    }
}

impl From<&DomainBreaker> for Breaker {
    fn from(breaker: &DomainBreaker) -> Self {
        let interval = match breaker.stage {
            Stage::Open { interval, .. } => Some(Duration(interval)),
            Stage::Widening { .. } | Stage::Crowded { .. } => None,
        };
        Breaker {
            name: breaker.of.name(),
            state: breaker.stage.as_str().into(),
            since: breaker.since,
            changed_at: breaker.changed_at,
            interval,
            probe_by: breaker.asks_by(),
            max: breaker.stage.allowance().max.map(NonZeroU32::get),
            cause: breaker.cause.clone(),
        }
    }
}
