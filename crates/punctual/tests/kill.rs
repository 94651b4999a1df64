//! kill -9 at random moments under load: nothing that was acknowledged is lost, no slot is fired twice or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use punctual_testing::Postgres;
use serde_json::Value;

use crate::support::hook::Hook;
use crate::support::server::{Server, call};

const KILLS: usize = 50;

/// Each takes as long as a lease.
const KILLS_ON_POSTGRES: usize = 8;

/// A job that was acknowledged.
#[derive(Clone, Debug)]
struct Job {
    id: String,
    kind: Kind,
    created_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Now,
    Soon,
    EverySecond,
}

/// Where the server is now, if it runs.
type Address = Arc<Mutex<Option<SocketAddr>>>;

/// Jobs that are edited all the time.
type Edited = Arc<Mutex<Vec<String>>>;

/// Edits jobs as fast as the server takes it: an edit neither fires a slot again nor loses one.
fn edit(address: &Address, edited: &Edited, seed: u64, stop: &AtomicBool) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut edits = 0;
    while !stop.load(Ordering::Acquire) {
        let to = *address.lock().unwrap();
        let job = random.choice(edited.lock().unwrap().iter()).cloned();
        let (Some(to), Some(job)) = (to, job) else {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        let body = format!("{{\"name\":\"edit {edits}\"}}");
        let answer = call(to, "PATCH", &format!("/v1/jobs/{job}"), &[], &body);
        edits += usize::from(answer.is_ok_and(|answer| answer.status == 200));
    }
    edits
}

/// Registers jobs as fast as the server takes them; only what it acknowledged counts.
fn register(address: &Address, url: &str, edited: &Edited, seed: u64, stop: &AtomicBool) -> Vec<Job> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut jobs = Vec::new();
    let mut repeating = 0;
    while !stop.load(Ordering::Acquire) {
        let Some(to) = *address.lock().unwrap() else {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        let kind = match random.u8(..20) {
            0 if repeating < 20 => Kind::EverySecond,
            1..=9 => Kind::Now,
            _ => Kind::Soon,
        };
        let schedule = match kind {
            Kind::Now => "{\"now\":true}".to_owned(),
            Kind::Soon => format!("{{\"after\":\"PT{}.{}S\"}}", random.u8(..3), random.u8(1..10)),
            Kind::EverySecond => "{\"every\":\"PT1S\"}".to_owned(),
        };
        let body = format!(
            "{{\"name\":\"k\",\"schedule\":{schedule},\"target\":{{\"http\":{{\"url\":\"{url}/ok\"}}}}}}"
        );
        let Ok(answer) = call(to, "POST", "/v1/jobs", &[], &body) else { continue };
        if answer.status != 201 {
            continue; // It is stopping, or its store is.
        }
        let job = answer.json();
        let id = job["id"].as_str().unwrap().to_owned();
        if kind == Kind::EverySecond {
            repeating += 1;
            edited.lock().unwrap().push(id.clone());
        }
        jobs.push(Job { id, kind, created_at: job["created_at"].as_str().unwrap().parse().unwrap() });
    }
    jobs
}

/// All items of a list.
fn pages(server: &Server, path: &str) -> Vec<Value> {
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let mark = if path.contains('?') { '&' } else { '?' };
        let page = server.get(&format!("{path}{mark}limit=1000{cursor}"));
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return items,
        }
    }
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

#[test]
fn fifty_kills_lose_nothing_and_repeat_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let told = kill_and_account(KILLS, &|| Server::start(&data));
    let checked = punctual_store_embedded::check(&data, Timestamp::now()).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
    println!("kills: {told}");
}

/// The same on PostgreSQL, where a node takes the shards of the one that was killed when their lease is over.
#[test]
fn kills_on_postgres_lose_nothing_and_repeat_nothing() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    let start = || Server::start_with(directory.path(), &["--store", &address, "--lease", "3"]);
    let told = kill_and_account(KILLS_ON_POSTGRES, &start);
    println!("kills on postgres: {told}");
}

/// Kills servers at random moments under load, and compares what was acknowledged with what came of it.
fn kill_and_account(kills: usize, start: &dyn Fn() -> Server) -> String {
    let hook = Hook::start();
    let address: Address = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let edited = Edited::default();
    let clients: Vec<_> = (0..3)
        .map(|seed| {
            let (address, url, stop) = (Arc::clone(&address), hook.url.clone(), Arc::clone(&stop));
            let edited = Arc::clone(&edited);
            std::thread::spawn(move || register(&address, &url, &edited, seed, &stop))
        })
        .collect();
    let editors: Vec<_> = (10..12)
        .map(|seed| {
            let (address, edited, stop) = (Arc::clone(&address), Arc::clone(&edited), Arc::clone(&stop));
            std::thread::spawn(move || edit(&address, &edited, seed, &stop))
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..kills {
        let server = start();
        *address.lock().unwrap() = Some(server.address);
        // The moment is the point: anything may be under way.
        std::thread::sleep(Duration::from_millis(random.u64(20..400)));
        *address.lock().unwrap() = None;
        server.kill();
    }
    stop.store(true, Ordering::Release);
    let jobs: Vec<Job> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    let edits: usize = editors.into_iter().map(|editor| editor.join().unwrap()).sum();
    let server = start();
    settle(&server, &jobs);
    let runs = pages(&server, "/v1/runs");
    let mut slots: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
    let delivered: BTreeSet<String> = hook
        .received()
        .into_iter()
        .filter_map(|received| received.headers.get("idempotency-key").cloned())
        .collect();
    let until = Timestamp::now() - SignedDuration::from_secs(2);
    for run in &runs {
        slots.entry(run["job_id"].as_str().unwrap()).or_default().push(time(&run["scheduled_for"]));
        if run["state"] == "succeeded" {
            assert!(delivered.contains(run["idempotency_key"].as_str().unwrap()), "{run} was not delivered");
        }
    }
    for job in &jobs {
        let seen = server.get(&format!("/v1/jobs/{}", job.id));
        assert_eq!(seen["id"], job.id);
        let mut fired = slots.remove(job.id.as_str()).unwrap_or_default();
        fired.sort();
        let mut once = fired.clone();
        once.dedup();
        assert_eq!(fired, once, "{job:?} has a slot with two runs");
        match job.kind {
            Kind::Now | Kind::Soon => assert_eq!(fired.len(), 1, "{job:?}"),
            Kind::EverySecond => {
                let fired: BTreeSet<i64> = fired.into_iter().map(Timestamp::as_second).collect();
                let owed = job.created_at.as_second() + 1..until.as_second();
                let missed: Vec<i64> = owed.filter(|slot| !fired.contains(slot)).collect();
                assert_eq!(missed, [0; 0], "{job:?} has slots without a run");
            }
        }
    }
    let kinds = |kind| jobs.iter().filter(|job| job.kind == kind).count();
    assert!(
        kinds(Kind::Now) > 100 && kinds(Kind::Soon) > 100 && kinds(Kind::EverySecond) > 3,
        "too little load"
    );
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    format!(
        "{kills} times, {} jobs and {edits} edits acknowledged, {} runs, each slot once",
        jobs.len(),
        runs.len()
    )
}

/// Waits until every one-shot job has ended its run.
fn settle(server: &Server, jobs: &[Job]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let once: BTreeSet<&str> =
        jobs.iter().filter(|job| job.kind != Kind::EverySecond).map(|job| job.id.as_str()).collect();
    loop {
        let open = |state: &str| pages(server, &format!("/v1/runs?state={state}"));
        let waiting = [open("pending"), open("running")].concat();
        let is_of_once = |run: &&Value| once.contains(run["job_id"].as_str().unwrap());
        let left = waiting.iter().filter(is_of_once).count();
        let youngest = jobs.iter().map(|job| job.created_at).max().unwrap_or_default();
        let is_over = Timestamp::now().duration_since(youngest) > SignedDuration::from_secs(5);
        // What is due in the shards of a node that was killed is fired when their lease is over.
        let has_run = |runs: &[Value]| {
            let ran: BTreeSet<&str> = runs.iter().filter_map(|run| run["job_id"].as_str()).collect();
            once.iter().all(|job| ran.contains(job))
        };
        if left == 0 && is_over && has_run(&pages(server, "/v1/runs")) {
            return;
        }
        if Instant::now() >= deadline {
            // Which it was is told by who looks at the runs.
            assert_eq!(left, 0, "runs have not ended");
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
