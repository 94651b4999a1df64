//! Workers that pull drain runs that were all due before they came, through a real listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use punctual_domain::TenantId;
use punctual_domain::job::Target as JobTarget;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Common;
use super::account::{Account, Audit, Owed};
use super::load::register;
use super::machine::{Usage, rss_bytes};
use super::network::{Served, Transport};
use super::scenario::{Bench, GRACE, Measured, after_registering, sleep_until};

const QUEUE: &str = "pulled";

/// Runs `runs` no-op handlers in `workers` workers, whose concurrency together is that of the scenario.
pub(super) async fn pull(
    runs: u64,
    workers: usize,
    transport: Transport,
    common: &Common,
) -> Result<Account> {
    ensure!(runs > 0 && workers > 0, "at least one run and one worker are needed");
    let bench = Bench::new(common).await?;
    let parts = bench.open().await?;
    let due = after_registering(runs)?;
    let (ids, registering) = register(&parts.engine, TenantId::DEFAULT, runs, |n| {
        let mut spec = bench.spec(n, &format!("@at {due}"))?;
        spec.target = JobTarget::Worker { handler: "nothing".into() };
        spec.queue = QUEUE.into();
        Ok(spec)
    })
    .await?;
    sleep_until(due + SignedDuration::from_secs(2)).await;
    let mut options = bench.options()?;
    options.node.roles.worker = false;
    let before = Usage::now();
    let begun = Instant::now();
    let running = punctual::wire::Running::start_on(parts, options).await?;
    let served = Served::start(&running).await?;
    let (executed, all) = (Arc::new(AtomicU64::new(0)), watch::Sender::new(false));
    let mut working = JoinSet::new();
    for _ in 0..workers {
        let (executed, all) = (Arc::clone(&executed), all.clone());
        let mut done = all.subscribe();
        let worker = transport
            .worker(served.client()?, QUEUE)
            .concurrency(common.concurrency.div_ceil(workers))
            .handler("nothing", move |_| {
                if executed.fetch_add(1, Ordering::Relaxed) + 1 == runs {
                    all.send_replace(true);
                }
                std::future::ready(Ok(None))
            });
        working.spawn(worker.run_until(async move {
            // The sender is in the handlers.
            let _ = done.wait_for(|is_done| *is_done).await;
        }));
    }
    // A worker that has ended has delivered its results.
    while let Some(ended) = working.join_next().await {
        ended.context("a worker broke off")??;
    }
    let took = begun.elapsed();
    let rss = rss_bytes();
    let used = Usage::now().since(before);
    let store = Arc::clone(&running.parts.store);
    served.stop().await;
    running.stop(GRACE).await?;
    let owed: Owed = ids.into_iter().map(|(_, id)| (id, vec![due])).collect();
    let audit = Audit::read(&*store, &owed).await?;
    ensure!(audit.completed == runs, "{} of {runs} runs succeeded", audit.completed);
    let measured = Measured { registered: runs, registering, took, used, rss };
    Ok(Account {
        scenario: format!("pull over {}, {workers} workers, all due before the start", transport.as_str()),
        took_s: Some(took.as_secs_f64()),
        // Its slots were due before anybody asked for them: how late they are says nothing.
        lateness_ms: None,
        ..measured.account(bench, &audit).await?
    })
}
