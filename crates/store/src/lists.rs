//! Lists that people page through.

use async_trait::async_trait;
use jiff::Timestamp;
use punctual_domain::id::{JobId, OperationId, Sequence};
use punctual_domain::{LedgerEntry, Operation, Run};

use crate::error::Error;
use crate::page::{Page, PageRequest};
use crate::verbs::{JobFilter, OperationFilter, Planned, RunFilter, Stored};

/// Where lists are read from that may be a little behind, see [`Store::lists`](crate::Store::lists). Each verb is as the
/// store's of that name. There are no others: nothing is decided by what may be old.
#[async_trait]
pub trait Lists: Send + Sync {
    /// Jobs in the order of their ids.
    async fn list_jobs(
        &self,
        filter: &JobFilter,
        page: PageRequest<JobId>,
    ) -> Result<Page<Stored, JobId>, Error>;

    /// Active jobs in the order of their ids, with what decides when and where they run.
    async fn planned(&self, page: PageRequest<JobId>) -> Result<Page<Planned, JobId>, Error>;

    /// Runs, newest first.
    async fn runs(
        &self,
        filter: &RunFilter,
        page: PageRequest<Sequence>,
    ) -> Result<Page<Run, Sequence>, Error>;

    /// The account of a job's slots that did not simply run, newest first.
    async fn ledger(
        &self,
        job: JobId,
        page: PageRequest<Timestamp>,
    ) -> Result<Page<LedgerEntry, Timestamp>, Error>;

    /// Operations, newest first.
    async fn operations(
        &self,
        filter: &OperationFilter,
        page: PageRequest<OperationId>,
    ) -> Result<Page<Operation, OperationId>, Error>;
}
