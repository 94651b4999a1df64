//! How fast the store alone registers, fires, completes and forgets: `cargo bench -p punctual-store-embedded`.
//!
//! One caller, batches as the engine makes them, an fsync per commit, in a directory under `TMPDIR`. Prints rates,
//! CPU and bytes written per run. No engine and no worker: this is the ceiling under them.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_executor::block_on;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{Epoch, JobId, ShardId, TenantId, Version, WorkerId};
use punctual_domain::job::{Job, JobState, Spec, Target};
use punctual_domain::lifecycle::Verdict;
use punctual_domain::policy::limit::Limits;
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::policy::retention::Retention;
use punctual_domain::run::{Cause, Run};
use punctual_domain::{Outcome, Report};
use punctual_schedule::Schedule;
use punctual_store::{
    Birth, Conclusion, Due, DueKey, DueQuery, DueWhen, Expect, Firing, Held, JobFilter, OpenRuns,
    PageRequest, Put, Shards, Store,
};
use punctual_store_embedded::{Embedded, Options};

const SHARDS: u16 = 256;
const REGISTER: usize = 5_000;
const FIRE: usize = 2_000;
const COMPLETE: usize = 1_000;
const RETAIN: usize = 1_000;

fn main() {
    let jobs: usize =
        std::env::var("PUNCTUAL_BENCH_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    let directory = tempfile::tempdir().unwrap();
    let options = Options { directory: directory.path().into(), shards: Some(SHARDS) };
    let store = Embedded::open(&options).unwrap();
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let worker = WorkerId::new(now, 1);
    let owned = block_on(store.acquire(worker, Shards::All, Duration::from_secs(1_000_000), now)).unwrap();
    let epochs: Vec<Epoch> = owned.into_iter().map(|(_, epoch)| epoch).collect();

    let all: Vec<Job> = (0..jobs as u64).map(|n| job(n, now)).collect();
    let start = Measure::start();
    for batch in all.chunks(REGISTER) {
        let puts = batch.iter().map(|job| put(job, now)).collect();
        let answers = block_on(store.put_jobs(puts, now)).unwrap();
        assert!(answers.iter().all(Result::is_ok));
    }
    start.print("register", jobs);

    let later = now + SignedDuration::from_secs(1);
    let start = Measure::start();
    let mut open: Vec<Run> = Vec::new();
    let (mut fired, mut completed) = (0, 0);
    let mut after = None;
    while completed < jobs {
        let query = DueQuery { shards: Shards::All, after, until: later, limit: FIRE };
        let entries = block_on(store.due(query)).unwrap().entries;
        if let Some(last) = entries.last() {
            after = Some(last.key);
            let firings = entries.iter().map(|due| firing(*due, worker, &epochs)).collect();
            for answer in block_on(store.fire(firings, later)).unwrap() {
                open.extend(answer.unwrap());
            }
            fired += entries.len();
        }
        while open.len() >= COMPLETE || (fired == jobs && !open.is_empty()) {
            let batch: Vec<Run> = open.drain(..open.len().min(COMPLETE)).collect();
            let ends = batch.iter().map(|run| conclusion(run, worker, later)).collect();
            let answers = block_on(store.complete(ends, later)).unwrap();
            assert!(answers.iter().all(Result::is_ok));
            completed += batch.len();
        }
    }
    start.print("fire + complete", jobs);

    let later = later + SignedDuration::from_hours(24 * 9);
    let start = Measure::start();
    let mut longest = Duration::ZERO;
    loop {
        let pass = Instant::now();
        let forgotten = block_on(store.retain(later, RETAIN)).unwrap();
        longest = longest.max(pass.elapsed());
        if forgotten == 0 {
            break;
        }
    }
    start.print("forget", jobs);
    println!("longest pass          {longest:>10.1?}");
    let page = PageRequest::first(1);
    assert_eq!(block_on(store.list_jobs(&JobFilter::default(), page)).unwrap().items, []);
    drop(store);
    let start = Instant::now();
    drop(Embedded::open(&options).unwrap());
    println!("open again            {:>10.1?}", start.elapsed());
}

struct Measure {
    wall: Instant,
    cpu: f64,
    written: u64,
}

impl Measure {
    fn start() -> Self {
        Measure { wall: Instant::now(), cpu: cpu_seconds(), written: bytes_written() }
    }

    fn print(&self, what: &str, count: usize) {
        let seconds = self.wall.elapsed().as_secs_f64();
        let count = count as f64;
        println!(
            "{what:<20} {:>10.0} /s   {:>6.1} us of CPU   {:>6.0} bytes written   (each, over {seconds:.1} s)",
            count / seconds,
            (cpu_seconds() - self.cpu) * 1e6 / count,
            (bytes_written() - self.written) as f64 / count,
        );
    }
}

/// User and system time of this process, in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

fn bytes_written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
    line.parse().unwrap()
}

fn job(n: u64, now: Timestamp) -> Job {
    let at = now + SignedDuration::from_millis((n / 64) as i64);
    let entropy = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Job {
        id: JobId::new(at, ShardId((entropy % u64::from(SHARDS)) as u16), entropy),
        tenant: TenantId::DEFAULT,
        version: Version::FIRST,
        state: JobState::Active,
        spec: Spec::new(
            format!("bench-{n}"),
            Schedule::parse("@at 2027-01-15T08:00:01Z").unwrap(),
            Target::Discard,
        ),
        created_at: now,
        updated_at: now,
        carried: None,
        changes: Vec::new(),
    }
}

fn put(job: &Job, now: Timestamp) -> Put {
    let key = DueKey { at: now, lane: job.spec.lane, tenant: job.tenant, job: job.id };
    Put {
        job: Arc::new(job.clone()),
        expect: Expect::Absent,
        due: Some(Due { key, version: job.version, slot: now }),
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

fn firing(due: Due, worker: WorkerId, epochs: &[Epoch]) -> Firing {
    let retention = Retention::default();
    let birth = Birth {
        cause: Cause::Schedule,
        scheduled_for: due.slot,
        part: 0,
        available_at: due.slot,
        start_by: None,
        kind: None,
        queue: Arc::from("default"),
        requires: Default::default(),
        lane: due.key.lane,
        priority: 0,
        retention: retention.into(),
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
    let epoch = epochs[usize::from(due.key.job.shard().0)];
    Firing {
        due,
        epoch,
        births: vec![birth],
        ledger: Vec::new(),
        next: None,
        over: Some(retention),
        progress: None,
        operation: None,
        otherwise: None,
    }
}

fn conclusion(run: &Run, worker: WorkerId, now: Timestamp) -> Conclusion {
    let mut report = Report::lost(now, now);
    report.outcome = Outcome::Succeeded;
    report.error = None;
    Conclusion {
        worker,
        held: Held { sequence: run.sequence, attempt: run.attempt },
        report: Some(report),
        verdict: Verdict::Succeed,
        successor: None,
        messages: Vec::new(),
        limits: None,
    }
}
