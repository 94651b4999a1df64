//! Reclaims what dead workers held.
//!
//! Runs every so often, and once a lease after the store was out of reach. Promise: an attempt whose worker is gone
//! is over after one lease, is decided by the same code as a report, and does not count as a failure of the job. One whose receiver has
//! not reported in time has timed out ([`crate::entrust`]).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::Report;
use punctual_domain::run::Run;
use punctual_domain::work::{Finished, Held};
use punctual_store::Shards;

use crate::engine::Engine;
use crate::error::Error;
use crate::pass::{Duty, Next};

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
                self.handed.take(held.worker, Held::from(&run));
                let job = stored?.job;
                let report = Some(match run.receiver() {
                    Some(terms) => terms.overdue(&job.spec.policies, &run, now),
                    None => Report::lost(held.claimed_at, now),
                });
                Some(Finished { worker: held.worker, job, report, run })
            })
            .collect();
        // A report that came in between wins: its run is not ours to end any more.
        let runs: Vec<Run> = self.conclude(finished).await?.into_iter().flatten().collect();
        self.metrics.reclaimed.inc_by(runs.len() as u64);
        Ok(runs)
    }
}

/// The duty.
pub(crate) struct Reclaiming {
    engine: Arc<Engine>,
    lease: Duration,
    /// Workers could not give a sign of life before: nobody is taken for dead until then.
    not_before: Timestamp,
    /// The store was out of reach when it was last asked.
    is_cut_off: bool,
}

impl Reclaiming {
    /// Workers that this process does not know get one lease to be heard of.
    pub(crate) fn new(engine: Arc<Engine>, lease: Duration) -> Self {
        let not_before = engine.clock.now();
        Reclaiming { engine, lease, not_before, is_cut_off: false }
    }

    fn lease(&self) -> SignedDuration {
        SignedDuration::try_from(self.lease).unwrap_or(SignedDuration::MAX)
    }
}

#[async_trait]
impl Duty for Reclaiming {
    const NAME: &'static str = "reclaim";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        if self.is_cut_off {
            // Any answer says that it is there again.
            self.engine.store.next_available_at(&Shards::All).await?;
            self.is_cut_off = false;
            self.not_before = self.engine.clock.now() + self.lease();
        }
        // Signs of life come three times in a lease; whoever comes back is asked for in the store.
        self.engine.handed.forget_silent(now.saturating_sub(self.lease() * 2).unwrap_or(now));
        if now < self.not_before {
            return Ok(Next::At(self.not_before));
        }
        match self.engine.reclaim(self.lease).await {
            Ok(runs) if runs.len() >= BATCH => Ok(Next::Now),
            Ok(runs) => {
                if !runs.is_empty() {
                    tracing::warn!(
                        runs = runs.len(),
                        "reclaimed from workers and receivers that were not heard of in time"
                    );
                }
                Ok(Next::At(now + self.lease() / 3))
            }
            Err(error) => {
                // Heartbeats cannot arrive either.
                self.is_cut_off = true;
                Err(error)
            }
        }
    }
}
