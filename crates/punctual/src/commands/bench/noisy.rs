//! A noisy neighbour: one tenant has very many slots at one time, another has one a second.

use std::sync::Arc;

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use punctual_domain::{Job, TenantId};

use super::Common;
use super::account::{Account, Audit, Owed};
use super::load::{register, register_jobs};
use super::machine::{Usage, rss_bytes};
use super::scenario::{Bench, GRACE, Measured, after_registering, settle, sleep_until};

const QUIET: TenantId = TenantId(2);

/// How late the slots of the quiet one are, from the moment on at which all of the other's are due. If the other's wait, their
/// runs are there before anybody may take one.
pub(super) async fn noisy(jobs: u64, seconds: u64, waiting: bool, common: &Common) -> Result<Account> {
    let bench = Bench::new(common).await?;
    let parts = bench.open().await?;
    let begin = after_registering(jobs)?;
    let schedule = if waiting { "@now".into() } else { format!("@at {begin}") };
    let (noisy, registering) =
        register_jobs(&parts.engine, TenantId::DEFAULT, jobs, |n| bench.spec(n, &schedule)).await?;
    let slot = |n: u64| begin + SignedDuration::from_secs(n as i64);
    let (quiet, _) =
        register(&parts.engine, QUIET, seconds, |n| bench.spec(n, &format!("@at {}", slot(n)))).await?;
    let running = bench.start(parts).await?;
    ensure!(Timestamp::now() < begin, "registering took too long; take fewer jobs");
    sleep_until(begin).await;
    let before = Usage::now();
    let end = slot(seconds);
    sleep_until(end).await;
    settle(&running, end).await?;
    let took = Timestamp::now().duration_since(begin).unsigned_abs();
    let rss = rss_bytes();
    let used = Usage::now().since(before);
    let store = Arc::clone(&running.parts.store);
    running.stop(GRACE).await?;
    let quiet: Owed = quiet.into_iter().map(|(number, id)| (id, vec![slot(number)])).collect();
    let of_quiet = Audit::read(&*store, &quiet).await?;
    // What runs now has its slot when it is registered.
    let slot_of = |job: &Job| if waiting { job.created_at } else { begin };
    let all: Owed = noisy.into_iter().map(|(_, job)| (job.id, vec![slot_of(&job)])).chain(quiet).collect();
    let audit = Audit::read(&*store, &all).await?;
    let measured = Measured { registered: jobs + seconds, registering, took, used, rss };
    Ok(Account {
        scenario: match waiting {
            false => {
                format!("noisy neighbour, {jobs} slots of one tenant at one time, one a second of another")
            }
            true => format!("noisy neighbour, {jobs} runs of one tenant wait, one slot a second of another"),
        },
        quiet_lateness_ms: of_quiet.lateness,
        ..measured.account(bench, &audit).await?
    })
}
