//! The verbs that only read, on connections of their own.

mod jobs;
mod operations;
mod runs;
mod search;

pub(crate) use jobs::{
    count_due, due, is_due, job_by_key, job_versions, jobs, kept_jobs, list_jobs, next_available_at, planned,
    read_job, request, rules, tenants,
};
pub(crate) use operations::{decode, operation, operations, runnable};
pub(crate) use runs::{lapsed, ledger, run};
pub(crate) use search::{ended_run, runs};
