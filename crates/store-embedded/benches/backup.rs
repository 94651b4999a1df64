//! What a backup costs those who write meanwhile: `cargo bench -p punctual-store-embedded --bench backup`.
//!
//! One caller registers jobs in small commits, first alone, then while a backup is made. Prints how long its commits
//! took, how long the backup took, and then the check and the restore of it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_executor::block_on;
use jiff::Timestamp;
use punctual_domain::id::{JobId, ShardId, TenantId, Version};
use punctual_domain::job::{Job, JobState, Spec, Target};
use punctual_domain::policy::limit::Limits;
use punctual_schedule::Schedule;
use punctual_store::{Due, DueKey, DueWhen, Expect, OpenRuns, Put, Store};
use punctual_store_embedded::{Embedded, Options, check, restore};

const BATCH: usize = 5_000;

fn main() {
    let jobs: u64 = std::env::var("PUNCTUAL_BENCH_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(500_000);
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = Embedded::open(&Options { directory: at("data"), shards: Some(256) }).unwrap();
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let numbers: Vec<u64> = (0..jobs).collect();
    for batch in numbers.chunks(BATCH) {
        block_on(store.put_jobs(batch.iter().map(|n| put(*n, now)).collect(), now)).unwrap();
    }
    println!("{jobs} jobs");
    let started = Instant::now();
    print_commits("alone", writing(&store, jobs, now, || started.elapsed() > Duration::from_secs(5)));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, is_over) = (&store, &is_over);
        let writer = scope.spawn(move || writing(store, 2 * jobs, now, || is_over.load(Ordering::Relaxed)));
        let started = Instant::now();
        let made = store.backup(&at("backup"), now, |_| {}).unwrap();
        println!("backup   {:>8.1?} for {} MB", started.elapsed(), made.bytes >> 20);
        is_over.store(true, Ordering::Relaxed);
        print_commits("meanwhile", writer.join().unwrap());
    });
    let started = Instant::now();
    let checked = check(&at("backup"), now).unwrap();
    println!("check    {:>8.1?}, {} findings", started.elapsed(), checked.wrong);
    let started = Instant::now();
    restore(&at("backup"), &at("restored"), now, |_| {}).unwrap();
    println!("restore  {:>8.1?}", started.elapsed());
}

/// Commits of 20 jobs until it is over; how long each took.
fn writing(store: &Embedded, from: u64, now: Timestamp, is_over: impl Fn() -> bool) -> Vec<Duration> {
    let mut took = Vec::new();
    let mut next = from;
    while !is_over() {
        let puts = (next..next + 20).map(|n| put(n, now)).collect();
        next += 20;
        let started = Instant::now();
        block_on(store.put_jobs(puts, now)).unwrap();
        took.push(started.elapsed());
    }
    took
}

fn print_commits(when: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!(
        "{when:<10} {} commits: p50 {:.1?}, p99 {:.1?}, p99.9 {:.1?}, max {:.1?}",
        took.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

fn put(number: u64, now: Timestamp) -> Put {
    let job = Job {
        id: JobId::new(now, ShardId((number % 256) as u16), number),
        tenant: TenantId::DEFAULT,
        version: Version::FIRST,
        state: JobState::Active,
        spec: Spec::new(format!("job {number}"), Schedule::parse("0 * * * *").unwrap(), Target::Discard),
        created_at: now,
        updated_at: now,
        carried: None,
        changes: Vec::new(),
    };
    let key = DueKey { at: now, lane: job.spec.lane, tenant: job.tenant, job: job.id };
    Put {
        due: Some(Due { key, version: job.version, slot: now }),
        job: Arc::new(job),
        expect: Expect::Absent,
        due_when: DueWhen::Always,
        carry: None,
        unfired: Vec::new(),
        birth: None,
        open_runs: OpenRuns::Keep,
        limits: Limits::NONE,
        lets_overlap: false,
        ledger: Vec::new(),
        request: None,
        audit: None,
    }
}
