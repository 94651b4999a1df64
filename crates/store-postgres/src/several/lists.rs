//! Lists over all databases, from them or from their replicas.

use async_trait::async_trait;
use jiff::Timestamp;
use punctual_domain::id::{JobId, OperationId, Sequence, ShardId};
use punctual_domain::{LedgerEntry, Operation, Run};
use punctual_store::{
    Error, JobFilter, Lists, OperationFilter, Page, PageRequest, Planned, RunFilter, Store, Stored,
};

use super::{Several, merge};
use crate::postgres::Postgres;

/// Where a list is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Where it is written.
    Databases,
    /// From replicas, where these can be used.
    Replicas,
}

impl Several {
    /// Asks one database, or a replica of it.
    async fn ask<'s, A, F: Future<Output = Result<A, Error>>>(
        &'s self,
        source: Source,
        database: usize,
        ask: impl Fn(&'s Postgres) -> F,
    ) -> Result<A, Error> {
        // A replica that does not know yet which shards came to its database would leave them out.
        let since = match source {
            Source::Databases => None,
            Source::Replicas => Some(self.moved_at()),
        };
        if let Some(replica) = since.and_then(|since| self.replicas.of(database, since)) {
            match ask(replica.store()).await {
                Ok(answer) => {
                    replica.was_read();
                    return Ok(answer);
                }
                Err(error) => {
                    tracing::debug!(replica = replica.store().address(), %error, "a list is read from the database");
                }
            }
        }
        ask(&self.databases[database]).await
    }

    /// Asks all of them.
    async fn ask_all<'s, A, F: Future<Output = Result<A, Error>>>(
        &'s self,
        source: Source,
        ask: impl Fn(&'s Postgres) -> F,
    ) -> Result<Vec<A>, Error> {
        let asked = (0..self.databases.len()).map(|database| self.ask(source, database, &ask));
        futures_util::future::join_all(asked).await.into_iter().collect()
    }

    /// Of what a database still has, or has already, only what lives there: a shard that moves is in two for a while.
    fn living_only<T, C>(&self, pages: Vec<Page<T, C>>, shard: impl Fn(&T) -> ShardId) -> Vec<Page<T, C>> {
        let homes = Several::homes(self);
        let mut pages = pages;
        if self.only().is_none() {
            for (place, page) in pages.iter_mut().enumerate() {
                page.items.retain(|item| homes.of(shard(item)).is_none_or(|home| home == place));
            }
        }
        pages
    }

    pub(super) async fn list_jobs_from(
        &self,
        source: Source,
        filter: &JobFilter,
        page: PageRequest<JobId>,
    ) -> Result<Page<Stored, JobId>, Error> {
        let pages = self.ask_all(source, |one| Store::list_jobs(one, filter, page.clone())).await?;
        let living = self.living_only(pages, |stored| stored.job.id.shard());
        Ok(merge::ascending(living, |stored| stored.job.id, page.limit))
    }

    pub(super) async fn planned_from(
        &self,
        source: Source,
        page: PageRequest<JobId>,
    ) -> Result<Page<Planned, JobId>, Error> {
        let pages = self.ask_all(source, |one| Store::planned(one, page.clone())).await?;
        let living = self.living_only(pages, |planned| planned.job.shard());
        Ok(merge::ascending(living, |planned| planned.job, page.limit))
    }

    pub(super) async fn runs_from(
        &self,
        source: Source,
        filter: &RunFilter,
        page: PageRequest<Sequence>,
    ) -> Result<Page<Run, Sequence>, Error> {
        let pages = self.ask_all(source, |one| Store::runs(one, filter, page.clone())).await?;
        let living = self.living_only(pages, |run| run.job.shard());
        Ok(merge::descending(living, |run| run.sequence, page.limit))
    }

    pub(super) async fn operations_from(
        &self,
        source: Source,
        filter: &OperationFilter,
        page: PageRequest<OperationId>,
    ) -> Result<Page<Operation, OperationId>, Error> {
        let pages = self.ask_all(source, |one| Store::operations(one, filter, page.clone())).await?;
        let living = self.living_only(pages, |operation| operation.id.shard());
        Ok(merge::descending(living, |operation| operation.id, page.limit))
    }
}

#[async_trait]
impl Lists for Several {
    async fn list_jobs(
        &self,
        filter: &JobFilter,
        page: PageRequest<JobId>,
    ) -> Result<Page<Stored, JobId>, Error> {
        self.list_jobs_from(Source::Replicas, filter, page).await
    }

    async fn planned(&self, page: PageRequest<JobId>) -> Result<Page<Planned, JobId>, Error> {
        self.planned_from(Source::Replicas, page).await
    }

    async fn runs(
        &self,
        filter: &RunFilter,
        page: PageRequest<Sequence>,
    ) -> Result<Page<Run, Sequence>, Error> {
        self.runs_from(Source::Replicas, filter, page).await
    }

    async fn ledger(
        &self,
        job: JobId,
        page: PageRequest<Timestamp>,
    ) -> Result<Page<LedgerEntry, Timestamp>, Error> {
        match Several::homes(self).of(job.shard()) {
            Some(home) => self.ask(Source::Replicas, home, |one| Store::ledger(one, job, page.clone())).await,
            None => Store::ledger(self, job, page).await,
        }
    }

    async fn operations(
        &self,
        filter: &OperationFilter,
        page: PageRequest<OperationId>,
    ) -> Result<Page<Operation, OperationId>, Error> {
        self.operations_from(Source::Replicas, filter, page).await
    }
}
