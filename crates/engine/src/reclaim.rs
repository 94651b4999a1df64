//! Reclaims what dead workers held.
//!
//! Runs every so often, and once a lease after the store was out of reach. Promise: an attempt whose worker is gone
//! is over after one lease, is decided by the same code as a report, and does not count as a failure of the job.

use std::time::Duration;

use punctual_domain::Report;
use punctual_domain::run::Run;

use crate::complete::Finished;
use crate::engine::Engine;
use crate::error::Error;

/// One pass takes at most so many, so that a crash of a large worker does not block other writes.
const BATCH: usize = 1_000;

impl Engine {
    /// Ends the attempts of dead workers; returns the runs as they are now. Call again while it returns any.
    pub async fn reclaim(&self, lease: Duration) -> Result<Vec<Run>, Error> {
        let now = self.clock.now();
        let lost = self.store.expired(lease, now, BATCH).await?;
        let versions: Vec<_> = lost.iter().map(|run| (run.job, run.version)).collect();
        let jobs = self.store.job_versions(&versions).await?;
        let finished = lost
            .into_iter()
            .zip(jobs)
            .filter_map(|(run, stored)| {
                let held = run.lease()?;
                let report = Some(Report::lost(held.claimed_at, now));
                Some(Finished { worker: held.worker, job: stored?.job, report, run })
            })
            .collect();
        // A report that came in between wins: its run is not ours to end any more.
        Ok(self.complete(finished).await?.into_iter().flatten().collect())
    }
}
