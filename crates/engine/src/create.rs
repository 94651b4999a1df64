//! A new job as the store takes it: the job, its put, its run.

use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::id::{JobId, TenantId, Version};
use punctual_domain::job::{Job, JobState, Spec};
use punctual_domain::policy::limit::Limits;
use punctual_domain::policy::timeouts;
use punctual_domain::run::Cause;
use punctual_store::{Birth, DueWhen, Expect, OpenRuns, Put, Subject};

/// A new job.
pub(crate) fn new_job(id: JobId, tenant: TenantId, spec: Spec, now: Timestamp) -> Job {
    Job {
        id,
        tenant,
        version: Version::FIRST,
        state: JobState::Active,
        spec,
        created_at: now,
        updated_at: now,
        carried: None,
        changes: Vec::new(),
    }
}

/// The put of a new job of which nothing is due yet.
pub(crate) fn new_put(job: Arc<Job>, request: Option<Subject>) -> Put {
    Put {
        expect: Expect::Absent,
        due: None,
        due_when: DueWhen::Always,
        carry: None,
        unfired: Vec::new(),
        birth: None,
        open_runs: OpenRuns::Keep,
        limits: Limits::NONE,
        lets_overlap: false,
        ledger: Vec::new(),
        request,
        job,
        audit: None,
    }
}

/// A run of a job outside of its due entries, claimable at once.
pub(crate) fn birth(
    job: &Job,
    cause: Cause,
    at: Timestamp,
    part: u32,
    correlation_id: Option<Arc<str>>,
) -> Birth {
    Birth {
        cause,
        scheduled_for: at,
        part,
        parts: None,
        available_at: at,
        start_by: timeouts::first_start(&job.spec.policies.timeouts, at, at),
        kind: job.spec.kind.as_deref().map(Arc::from),
        queue: Arc::clone(&job.spec.queue),
        requires: job.spec.requires.clone(),
        lane: job.spec.lane,
        priority: job.spec.priority,
        retention: job.spec.policies.retention.keep,
        correlation_id: correlation_id.or_else(|| job.spec.correlation_id.clone()),
        payload: None,
        caused_by: None,
        claimed_by: None,
        overlap: job.spec.policies.overlap,
        previous: None,
        limits: Limits::NONE,
        full: None,
    }
}
