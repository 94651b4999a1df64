//! The verbs that only read, on connections of their own.

mod jobs;
mod operations;
mod runs;
mod search;

pub(crate) use jobs::{
    due, is_due, job_by_key, job_versions, jobs, list_jobs, next_available_at, request, tenants,
};
pub(crate) use operations::{decode, operation, operations, runnable};
pub(crate) use runs::{ledger, run};
pub(crate) use search::{ended_run, runs};

use punctual_domain::ledger::Fate;

const FATES: [Fate; 4] =
    [Fate::MissedCatchUp, Fate::MissedStartWindow, Fate::SkippedPause, Fate::SkippedCancel];

pub(crate) fn fate_code(fate: Fate) -> i64 {
    FATES.iter().position(|one| *one == fate).unwrap_or(0) as i64
}

pub(crate) fn fate_of(code: i64) -> Option<Fate> {
    FATES.get(usize::try_from(code).ok()?).copied()
}
