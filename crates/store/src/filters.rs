//! Which jobs, runs and operations a list is about.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::bulk;
use punctual_domain::id::{JobId, TenantId};
use punctual_domain::job::{Job, JobState};
use punctual_domain::operation::{self, Operation};
use punctual_domain::run::{Run, RunState, WaitingFor};

/// Which jobs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// In this state.
    pub state: Option<&'static str>,
    /// With this text in their names.
    pub name: Option<String>,
    /// With keys that begin like this.
    pub key_prefix: Option<String>,
    /// With all of these labels.
    pub labels: BTreeMap<String, String>,
    /// In this queue.
    pub queue: Option<Arc<str>>,
    /// Of this type.
    pub kind: Option<String>,
    /// Batches alone.
    pub is_batch: bool,
}

impl JobFilter {
    /// Whether a job is one of them. Deleted ones never are.
    pub fn matches(&self, job: &Job) -> bool {
        job.state != JobState::Deleted
            && self.tenant.is_none_or(|tenant| job.tenant == tenant)
            && self.state.is_none_or(|state| job.state.as_str() == state)
            && self.queue.as_ref().is_none_or(|queue| job.spec.queue == *queue)
            && (self.kind.is_none() || job.spec.kind == self.kind)
            && !(self.is_batch && job.spec.batch.is_none())
            && self.name.as_ref().is_none_or(|text| job.spec.name.contains(text))
            && self
                .key_prefix
                .as_ref()
                .is_none_or(|prefix| job.spec.key.as_ref().is_some_and(|key| key.starts_with(prefix)))
            && self.labels.iter().all(|(name, value)| job.spec.labels.get(name) == Some(value))
    }

    /// Whether nothing narrows but the tenant, which an index may serve.
    pub fn is_plain(&self) -> bool {
        *self == JobFilter { tenant: self.tenant, ..JobFilter::default() }
    }
}

impl From<&bulk::Jobs> for JobFilter {
    fn from(which: &bulk::Jobs) -> Self {
        JobFilter {
            tenant: None,
            state: which.state,
            name: which.name.clone(),
            key_prefix: which.key_prefix.clone(),
            labels: which.labels.clone(),
            queue: which.queue.clone(),
            kind: which.kind.clone(),
            is_batch: false,
        }
    }
}

/// Which runs to list, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// Of this job.
    pub job: Option<JobId>,
    /// Of this type of job.
    pub kind: Option<Arc<str>>,
    /// In this queue.
    pub queue: Option<Arc<str>>,
    /// In this state.
    pub state: Option<&'static str>,
    /// Not ended.
    pub is_open: bool,
    /// Pending, and waiting for this.
    pub waiting_for: Option<WaitingFor>,
    /// Ended badly, and neither redriven nor acknowledged.
    pub is_dead: Option<bool>,
    /// Born at or after.
    pub born_from: Option<Timestamp>,
    /// Born before.
    pub born_before: Option<Timestamp>,
    /// Of a job, those that have ended only if they are among its newest so many. If more than a page can look past are open,
    /// all of them.
    pub last: Option<NonZeroU32>,
}

impl RunFilter {
    /// Whether a run is one of them. Dead letters and the newest are known to the store alone: it judges `is_dead` and `last`.
    pub fn matches(&self, run: &Run) -> bool {
        let born_at = run.sequence.born_at();
        self.tenant.is_none_or(|tenant| run.tenant == tenant)
            && self.job.is_none_or(|job| run.job == job)
            && (self.kind.is_none() || run.kind == self.kind)
            && self.queue.as_ref().is_none_or(|queue| run.queue == *queue)
            && self.state.is_none_or(|state| run.state.as_str() == state)
            && !(self.is_open && run.state.is_ended())
            && self.waiting_for.is_none_or(|waiting| run.state == RunState::Pending(waiting))
            && self.born_from.is_none_or(|from| born_at >= from)
            && self.born_before.is_none_or(|before| born_at < before)
    }

    /// Whether none of them has ended.
    pub fn is_of_open(&self) -> bool {
        self.is_open || self.waiting_for.is_some() || matches!(self.state, Some("pending" | "running"))
    }
}

impl From<&bulk::CancelRuns> for RunFilter {
    fn from(which: &bulk::CancelRuns) -> Self {
        RunFilter {
            job: which.job,
            kind: which.kind.clone(),
            queue: which.queue.clone(),
            state: which.state,
            is_open: true,
            born_from: which.born_from,
            born_before: which.born_before,
            ..RunFilter::default()
        }
    }
}

/// Which operations to list, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationFilter {
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// In this state.
    pub state: Option<operation::State>,
}

impl OperationFilter {
    /// Whether an operation is one of them.
    pub fn matches(&self, operation: &Operation) -> bool {
        self.tenant.is_none_or(|tenant| operation.tenant == tenant)
            && self.state.is_none_or(|state| operation.state == state)
    }
}
