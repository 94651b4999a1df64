//! History as it is read: newest page and any time of any job, with many runs stored.
//!
//! `cargo bench -p punctual-store-embedded --bench history -- [runs]`, 300,000 unless told; in a directory under `TMPDIR`.
//! A tenth of the jobs have most of the runs, and one run in a thousand is of a rare tenant. Prints how long reads take,
//! disk bytes per run, and memory.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_executor::block_on;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, Sequence, ShardId, TenantId, Version, WorkerId};
use punctual_domain::job::{Job, JobState, Lane, Spec, Target};
use punctual_domain::lifecycle::Verdict;
use punctual_domain::policy::limit::Limits;
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::run::{Cause, Run};
use punctual_domain::{Outcome, Report};
use punctual_schedule::Schedule;
use punctual_store::{
    Birth, Conclusion, DueWhen, Expect, Held, OpenRuns, PageRequest, Put, RunFilter, Shards, Store, Trigger,
};
use punctual_store_embedded::{Embedded, Options};

const SHARDS: u16 = 256;
const JOBS: usize = 50_000;
const BATCH: usize = 2_000;
const READS: usize = 1_000;
const RARE: TenantId = TenantId(7);

fn main() {
    let runs: usize = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(300_000);
    let directory = tempfile::tempdir().unwrap();
    let options = Options { directory: directory.path().into(), shards: Some(SHARDS) };
    let store = Embedded::open(&options).unwrap();
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let worker = WorkerId::new(now, 1);
    block_on(store.acquire(worker, Shards::All, Duration::from_secs(1_000_000), now)).unwrap();
    let jobs: Vec<Job> = (0..JOBS as u64).map(|n| job(n, now)).collect();
    for batch in jobs.chunks(BATCH) {
        block_on(store.put_jobs(batch.iter().map(put).collect(), now)).unwrap();
    }
    drop(store); // With its log.
    let before = bytes_on_disk(directory.path());
    let store = Embedded::open(&options).unwrap();

    let mut random = Random(7);
    let start = Instant::now();
    let last = fill(&store, &jobs, runs, worker, now, &mut random);
    let took = start.elapsed();
    println!(
        "filled     {runs} runs of {JOBS} jobs in {took:.1?}: {:.0} /s",
        runs as f64 / took.as_secs_f64()
    );
    println!("memory     {} MB after filling", resident_mb());
    drop(store);
    println!(
        "disk       {:.0} bytes per run",
        (bytes_on_disk(directory.path()) - before) as f64 / runs as f64
    );
    let start = Instant::now();
    let store = Embedded::open(&options).unwrap();
    println!("open       {:.1?}", start.elapsed());
    // What is in no segment yet is sorted in the background; reads do not wait for it.
    let span = last.born_at().duration_since(now).as_millis() as u64;

    let any = |random: &mut Random| jobs[random.below(JOBS as u64) as usize].id;
    let of_job = |job: JobId| RunFilter { job: Some(job), ..RunFilter::default() };
    measure(&store, "newest page of a job", || of_job(any(&mut random)));
    let mut random = Random(8);
    measure(&store, "a job, seek to a time", || {
        let at = now + SignedDuration::from_millis(random.below(span) as i64);
        RunFilter { born_before: Some(at), ..of_job(any(&mut random)) }
    });
    let mut random = Random(9);
    measure(&store, "a job without runs", || of_job(job(1_000_000 + random.below(1_000), now).id));
    let mut random = Random(10);
    measure(&store, "failed runs of a job", || RunFilter {
        state: Some("failed"),
        ..of_job(any(&mut random))
    });
    measure(&store, "newest page of all", RunFilter::default);
    let of_tenant = |tenant| RunFilter { tenant: Some(tenant), ..RunFilter::default() };
    measure(&store, "the usual tenant", || of_tenant(TenantId::DEFAULT));
    measure(&store, "a rare tenant", || of_tenant(RARE));
    measure(&store, "a tenant without runs", || of_tenant(TenantId(99)));
    measure(&store, "all failures", || RunFilter { state: Some("failed"), ..RunFilter::default() });
    println!("memory     {} MB after reading", resident_mb());
}

fn fill(
    store: &Embedded,
    jobs: &[Job],
    runs: usize,
    worker: WorkerId,
    now: Timestamp,
    random: &mut Random,
) -> Sequence {
    let mut at = now;
    let mut last = None;
    let mut done = 0;
    while done < runs {
        // 4,000 runs a second.
        at += SignedDuration::from_millis(500);
        let triggers = (0..BATCH.min(runs - done)).map(|_| {
            let within = if random.below(10) == 0 { JOBS } else { JOBS / 10 };
            trigger(&jobs[random.below(within as u64) as usize], worker, at)
        });
        let born: Vec<Run> = block_on(store.trigger(triggers.collect(), at))
            .unwrap()
            .into_iter()
            .map(Result::unwrap)
            .collect();
        let ends = born.iter().map(|run| conclusion(run, worker, at, random.below(1_000) == 0)).collect();
        assert!(block_on(store.complete(ends, at)).unwrap().iter().all(Result::is_ok));
        last = born.last().map(|run| run.sequence);
        done += born.len();
    }
    last.unwrap()
}

fn measure(store: &Embedded, what: &str, mut filter: impl FnMut() -> RunFilter) {
    let mut times = Vec::new();
    let mut found = 0;
    for _ in 0..READS {
        let filter = filter();
        let start = Instant::now();
        found += block_on(store.runs(&filter, PageRequest::first(50))).unwrap().items.len();
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let (median, p99, worst) = (times[READS / 2], times[READS * 99 / 100], times[READS - 1]);
    println!(
        "{what:<24} {median:>9.1?} median {p99:>9.1?} p99 {worst:>9.1?} worst   {:.1} runs a page",
        found as f64 / READS as f64
    );
}

/// Numbers that are the same every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (bits ^ bits >> 31) % bound
    }
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1_024
}

fn bytes_on_disk(directory: &Path) -> u64 {
    std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

fn job(n: u64, now: Timestamp) -> Job {
    let at = now + SignedDuration::from_millis((n / 64) as i64);
    let entropy = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Job {
        id: JobId::new(at, ShardId((entropy % u64::from(SHARDS)) as u16), entropy),
        tenant: if n % 1_000 == 999 { RARE } else { TenantId::DEFAULT },
        version: Version::FIRST,
        state: JobState::Active,
        spec: Spec::new("bench", Schedule::parse("@at 2027-01-15T08:00:01Z").unwrap(), Target::Discard),
        created_at: now,
        updated_at: now,
        carried: None,
        changes: Vec::new(),
    }
}

fn put(job: &Job) -> Put {
    Put {
        job: Arc::new(job.clone()),
        expect: Expect::Absent,
        due: None,
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

fn trigger(job: &Job, worker: WorkerId, at: Timestamp) -> Trigger {
    let birth = Birth {
        cause: Cause::Trigger,
        scheduled_for: at,
        part: 0,
        available_at: at,
        start_by: None,
        kind: None,
        queue: Arc::clone(&job.spec.queue),
        requires: Default::default(),
        lane: Lane::Standard,
        priority: 0,
        retention: Default::default(),
        correlation_id: None,
        payload: None,
        caused_by: None,
        claimed_by: Some(worker),
        overlap: Overlap::Allow,
        previous: None,
        limits: Limits::NONE,
        full: None,
        parts: None,
    };
    Trigger { job: job.id, version: job.version, birth, is_over: false, request: None, audit: None }
}

fn conclusion(run: &Run, worker: WorkerId, now: Timestamp, is_failed: bool) -> Conclusion {
    let mut report = Report::lost(now, now);
    let verdict = if is_failed { Verdict::Fail } else { Verdict::Succeed };
    report.outcome = if is_failed { Outcome::Failed } else { Outcome::Succeeded };
    report.error = report.error.filter(|_| is_failed);
    let held = Held { sequence: run.sequence, attempt: run.attempt };
    Conclusion {
        worker,
        held,
        report: Some(report),
        verdict,
        successor: None,
        messages: Vec::new(),
        limits: None,
    }
}
