//! Registers jobs for a bench, as an import would: in batches, a few at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use punctual_domain::{Job, JobId, Spec, TenantId};
use punctual_engine::Engine;
use tokio::task::JoinSet;

/// Jobs of one call.
const BATCH: u64 = 2_000;

/// Calls under way.
const CALLS: usize = 3;

/// Registers jobs 0 to `count`; the ids come in no order, each with its number.
pub(super) async fn register(
    engine: &Arc<Engine>,
    tenant: TenantId,
    count: u64,
    spec: impl Fn(u64) -> Result<Spec>,
) -> Result<(Vec<(u64, JobId)>, Duration)> {
    let (jobs, took) = register_jobs(engine, tenant, count, spec).await?;
    Ok((jobs.into_iter().map(|(number, job)| (number, job.id)).collect(), took))
}

/// The same; returns the jobs.
pub(super) async fn register_jobs(
    engine: &Arc<Engine>,
    tenant: TenantId,
    count: u64,
    spec: impl Fn(u64) -> Result<Spec>,
) -> Result<(Vec<(u64, Arc<Job>)>, Duration)> {
    let bar = ProgressBar::new(count).with_message("registering");
    let begun = Instant::now();
    let mut calls = JoinSet::<Result<Vec<_>>>::new();
    let mut jobs = Vec::with_capacity(count as usize);
    let mut next = 0;
    while next < count || !calls.is_empty() {
        while next < count && calls.len() < CALLS {
            let numbers: Vec<u64> = (next..count.min(next + BATCH)).collect();
            next += numbers.len() as u64;
            let specs = numbers.iter().map(|n| Ok((spec(*n)?, None))).collect::<Result<Vec<_>>>()?;
            let engine = Arc::clone(engine);
            calls.spawn(async move {
                let answers = engine.register(tenant, specs).await?;
                let jobs = answers.into_iter().map(|answer| Ok(answer?.job)).collect::<Result<Vec<_>>>()?;
                Ok(numbers.into_iter().zip(jobs).collect())
            });
        }
        let Some(done) = calls.join_next().await else { break };
        let done = done.context("a registration broke off")??;
        bar.inc(done.len() as u64);
        jobs.extend(done);
    }
    bar.finish_and_clear();
    if jobs.len() as u64 != count {
        bail!("{} of {count} jobs were registered", jobs.len());
    }
    Ok((jobs, begun.elapsed()))
}
