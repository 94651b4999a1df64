//! Runs that wait in all lanes: the share that each lane has of what is started.

use std::sync::Arc;

use anyhow::{Context, Result};
use jiff::Timestamp;
use punctual_domain::{Lane, TenantId};
use punctual_store::{PageRequest, RunFilter, Store};

use super::Common;
use super::account::{Account, Audit, Owed};
use super::load::register_jobs;
use super::machine::{Usage, rss_bytes};
use super::scenario::{Bench, GRACE, Measured, settle};

/// So many runs in each lane are there before anybody may take one.
pub(super) async fn lanes(runs: u64, common: &Common) -> Result<Account> {
    let bench = Bench::new(common).await?;
    let parts = bench.open().await?;
    let (jobs, registering) =
        register_jobs(&parts.engine, TenantId::DEFAULT, runs * Lane::COUNT as u64, |n| {
            let mut spec = bench.spec(n, "@now")?;
            spec.lane = Lane::ALL[n as usize % Lane::COUNT];
            Ok(spec)
        })
        .await?;
    let before = Usage::now();
    let begin = Timestamp::now();
    let running = bench.start(parts).await?;
    settle(&running, begin).await?;
    let took = Timestamp::now().duration_since(begin).unsigned_abs();
    let rss = rss_bytes();
    let used = Usage::now().since(before);
    let store = Arc::clone(&running.parts.store);
    running.stop(GRACE).await?;
    let registered = jobs.len() as u64;
    // What runs now has its slot when it is registered.
    let owed: Owed = jobs.into_iter().map(|(_, job)| (job.id, vec![job.created_at])).collect();
    let audit = Audit::read(&*store, &owed).await?;
    let starts = starts(&*store).await?;
    let measured = Measured { registered, registering, took, used, rss };
    Ok(Account {
        scenario: format!("lanes, {runs} runs wait in each"),
        lane_shares_percent: Some(shares(&starts)),
        lane_gaps_ms: Some(gaps(&starts, begin)),
        took_s: Some(took.as_secs_f64()),
        // They were there before anybody could take them: how late they are says nothing.
        lateness_ms: None,
        ..measured.account(bench, &audit).await?
    })
}

type Starts = [Vec<Timestamp>; Lane::COUNT];

/// When the runs of each lane were started, up to the last of the lane that was through first: until then runs waited in
/// all.
async fn starts(store: &dyn Store) -> Result<Starts> {
    let mut starts = Starts::default();
    let mut after = None;
    loop {
        let page = PageRequest { after, limit: 5_000 };
        let page = store.runs(&RunFilter::default(), page).await.context("read the history")?;
        for run in &page.items {
            starts[usize::from(run.lane.rank())].extend(run.started_at);
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let until = starts.iter().filter_map(|lane| lane.iter().max().copied()).min();
    for lane in &mut starts {
        lane.retain(|start| Some(*start) <= until);
        lane.sort_unstable();
    }
    Ok(starts)
}

fn shares(starts: &Starts) -> [f64; Lane::COUNT] {
    let all: usize = starts.iter().map(Vec::len).sum();
    starts.each_ref().map(|lane| lane.len() as f64 * 100.0 / all.max(1) as f64)
}

fn gaps(starts: &Starts, begin: Timestamp) -> [i64; Lane::COUNT] {
    let until = starts.iter().filter_map(|lane| lane.last().copied()).max().unwrap_or(begin);
    starts.each_ref().map(|lane| {
        let mut before = begin;
        let gaps = lane.iter().copied().chain([until]).map(|start| {
            let gap = start.duration_since(before).as_millis() as i64;
            before = start;
            gap
        });
        gaps.max().unwrap_or(0)
    })
}
