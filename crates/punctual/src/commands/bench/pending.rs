//! Runs that wait and are never claimed: what they cost in memory, on disk, and when the store is opened again.
//!
//! Promise: memory is read when so many runs wait, and nothing but the store and the engine is in it.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use punctual::wire::{Parts, Storage};
use punctual_domain::TenantId;
use punctual_store::{PageRequest, RunFilter};
use serde::Serialize;

use super::Common;
use super::load::register;
use super::machine::{rss_bytes, size_of};
use super::scenario::Bench;

/// Nobody serves it.
const QUEUE: &str = "nobody";

/// Runs that are made before their ids are forgotten.
const PART: u64 = 100_000;

/// Runs of the page that is read.
const PAGE: usize = 100;

/// What was measured.
#[derive(Debug, Serialize)]
pub(super) struct Pending {
    runs: u64,
    /// With nothing in it.
    rss_mb_at_start: u64,
    /// When a tenth, a half and all of them wait.
    rss_mb: Vec<(u64, u64)>,
    registered_per_second: u64,
    disk_mb: Option<u64>,
    /// Of the store that is opened again; none for one in memory.
    open_ms: Option<u64>,
    rss_mb_when_opened: Option<u64>,
    /// From asking to counting, where it is not known.
    count_ms: u64,
    first_page_ms: u64,
}

impl Pending {
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<28}{value:>14}");
        };
        line("runs that wait", self.runs.to_string());
        line("memory at the start", format!("{} MB", self.rss_mb_at_start));
        for (runs, megabytes) in &self.rss_mb {
            line(&format!("memory at {runs}"), format!("{megabytes} MB"));
        }
        line("registered", format!("{}/s", self.registered_per_second));
        if let Some(megabytes) = self.disk_mb {
            line("on disk", format!("{megabytes} MB"));
        }
        if let Some(millis) = self.open_ms {
            line("opened again in", format!("{millis} ms"));
        }
        if let Some(megabytes) = self.rss_mb_when_opened {
            line("memory when opened", format!("{megabytes} MB"));
        }
        line("counted in", format!("{} ms", self.count_ms));
        line("first page of runs in", format!("{} ms", self.first_page_ms));
        text.trim_end().to_string()
    }
}

/// Makes so many runs that wait, and measures.
pub(super) async fn pending(runs: u64, common: &Common) -> Result<Pending> {
    ensure!(runs >= 10, "at least 10 runs are needed");
    let bench = Bench::new(common).await?;
    let parts = bench.open().await?;
    let rss_mb_at_start = megabytes(rss_bytes());
    let (mut rss_mb, mut made, mut took) = (Vec::new(), 0, Duration::ZERO);
    for point in [runs / 10, runs / 2, runs] {
        while made < point {
            let part = (point - made).min(PART);
            let spec = |n: u64| {
                let mut spec = bench.spec(made + n, "@now")?;
                spec.queue = QUEUE.into();
                Ok(spec)
            };
            took += register(&parts.engine, TenantId::DEFAULT, part, spec).await?.1;
            made += part;
        }
        rss_mb.push((made, megabytes(rss_bytes())));
    }
    ensure!(parts.store.count_pending().await?.all == runs, "not as many wait as were made");
    let (parts, opened) = open_again(&bench, parts).await?;
    let begun = Instant::now();
    let counted = parts.store.count_pending().await?;
    let count_ms = millis(begun);
    ensure!(counted.all == runs, "{} wait when the store is opened again", counted.all);
    let begun = Instant::now();
    let filter = RunFilter { tenant: Some(TenantId::DEFAULT), ..RunFilter::default() };
    let page = parts.store.runs(&filter, PageRequest::first(PAGE)).await?;
    let first_page_ms = millis(begun);
    ensure!(page.items.len() == PAGE.min(runs as usize), "the page has {} runs", page.items.len());
    let disk_mb = match &bench.storage {
        Storage::Embedded(directory) => Some(megabytes(size_of(directory)?)),
        Storage::Memory | Storage::Postgres(_) => None,
    };
    Ok(Pending {
        runs,
        rss_mb_at_start,
        rss_mb,
        registered_per_second: (runs as f64 / took.as_secs_f64().max(0.001)) as u64,
        disk_mb,
        open_ms: opened,
        rss_mb_when_opened: opened.map(|_| megabytes(rss_bytes())),
        count_ms,
        first_page_ms,
    })
}

/// Closes the store and opens it again, if that is not its end. Says how long opening took.
async fn open_again(bench: &Bench, parts: Parts) -> Result<(Parts, Option<u64>)> {
    if matches!(bench.storage, Storage::Memory) {
        return Ok((parts, None));
    }
    drop(parts);
    let begun = Instant::now();
    let parts = bench.open().await?;
    Ok((parts, Some(millis(begun))))
}

fn megabytes(bytes: u64) -> u64 {
    bytes / 1_000_000
}

fn millis(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}
