//! The verbs that only read, on connections of their own.

mod audit;
mod documents;
mod jobs;
mod operations;
mod queues;
mod runs;
mod search;

pub(crate) use audit::{COLUMNS as AUDIT, audit, read_audit};
pub(crate) use documents::{COLUMNS as DOCUMENT, document, documents, read_document};
pub(crate) use jobs::{
    count_due, due, is_due, job_by_key, job_versions, jobs, kept_jobs, list_jobs, next_available_at, planned,
    read_job, request, rules, tenants,
};
pub(crate) use operations::{decode, operation, operations, runnable};
pub(crate) use queues::{addressed, queues};
pub(crate) use runs::{lapsed, ledger, run};
pub(crate) use search::{ended_run, runs};
