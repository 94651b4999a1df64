//! Every overlap policy through kill -9, with the real binary: every slot runs once or is in the ledger, and runs of a job
//! that must not overlap do not; a backfill under way goes on where it was.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use punctual_testing::Postgres;
use serde_json::Value;

use crate::support::hook::Hook;
use crate::support::server::Server;

const KILLS: usize = 8;

/// Each takes as long as a lease.
const KILLS_ON_POSTGRES: usize = 4;

/// There are so many slots in any case, each in a second of its own.
const SLOTS: i64 = 12;

/// Every second a slot, and every run takes longer.
const POLICIES: [&str; 5] = [
    r#"{"policy":"allow"}"#,
    r#"{"policy":"skip"}"#,
    r#"{"policy":"queue_one"}"#,
    r#"{"policy":"queue_all","max":3}"#,
    r#"{"policy":"cancel_running"}"#,
];

const BACKFILLED: i64 = 40;

#[test]
fn every_overlap_policy_through_kills() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    kill_and_account(KILLS, &|| Server::start(&data));
    let checked = punctual_store_embedded::check(&data, Timestamp::now()).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
}

#[test]
fn every_overlap_policy_through_kills_on_postgres() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    kill_and_account(KILLS_ON_POSTGRES, &|| {
        Server::start_with(directory.path(), &["--store", &address, "--lease", "3"])
    });
}

fn kill_and_account(kills: usize, start: &dyn Fn() -> Server) {
    let hook = Hook::start();
    let mut server = start();
    let jobs: Vec<Value> = POLICIES.iter().map(|policy| register(&server, &hook, policy)).collect();
    let operation = backfill(&server, id(&jobs[0]));
    let mut random = fastrand::Rng::with_seed(11);
    let has_slots =
        || Timestamp::now().as_second() > time(&jobs[jobs.len() - 1]["created_at"]).as_second() + SLOTS;
    for kill in 0.. {
        if kill >= kills && has_slots() {
            break;
        }
        // The moment is the point: anything may be under way.
        std::thread::sleep(Duration::from_millis(random.u64(400..2_500)));
        server.kill();
        server = start();
    }
    wait_for_overlaps(&server, &jobs);
    // No slot becomes a run any more; what was is worked off.
    let until = Timestamp::now();
    for job in &jobs {
        assert_eq!(server.post(&format!("/v1/jobs/{}/pause", id(job)), "").status, 200);
    }
    // A pause holds a backfill, so it goes on.
    assert_eq!(server.post(&format!("/v1/jobs/{}/resume", id(&jobs[0])), "").status, 200);
    settle(&server, &operation);
    assert_eq!(server.post(&format!("/v1/jobs/{}/pause", id(&jobs[0])), "").status, 200);
    for (job, policy) in jobs.iter().zip(POLICIES) {
        account(&server, job, policy, until);
    }
    account_for_backfill(&server, &jobs[0], &operation);
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
}

fn id(job: &Value) -> &str {
    job["id"].as_str().unwrap()
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

fn register(server: &Server, hook: &Hook, policy: &str) -> Value {
    let url = format!("{}/slow", hook.url);
    let body = format!(
        r#"{{"schedule":{{"every":"PT1S"}},"overlap":{policy},"target":{{"http":{{"url":"{url}"}}}}}}"#
    );
    let answer = server.post("/v1/jobs", &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()
}

fn backfill(server: &Server, job: &str) -> String {
    let to = Timestamp::now().as_second() - 60;
    let body = format!(r#"{{"from":{},"to":{to},"rate":3,"overlap":{{"policy":"allow"}}}}"#, to - BACKFILLED);
    let answer = server.post(&format!("/v1/jobs/{job}/backfill"), &body);
    assert_eq!(answer.status, 202, "{}", answer.body);
    assert_eq!(answer.json()["total"], BACKFILLED);
    answer.json()["id"].as_str().unwrap().to_owned()
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

/// Waits until every policy had something to decide. On PostgreSQL a node that was killed has its shards for a lease, in which
/// nothing fires; so it may all happen after the last kill.
fn wait_for_overlaps(server: &Server, jobs: &[Value]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let has_decided = |job: &Value, policy: &str| match policy {
        policy if policy.contains("allow") => true,
        policy if policy.contains("cancel") => {
            !pages(server, &format!("/v1/jobs/{}/runs?state=cancelled", id(job))).is_empty()
        }
        _ => !pages(server, &format!("/v1/jobs/{}/ledger", id(job))).is_empty(),
    };
    while !jobs.iter().zip(POLICIES).all(|(job, policy)| has_decided(job, policy)) {
        assert!(Instant::now() < deadline, "slots do not meet runs that are open");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until the backfill is over and nothing is open but what the job that fires on makes.
fn settle(server: &Server, operation: &str) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let state = server.get(&format!("/v1/operations/{operation}"))["state"].clone();
        let open = |state: &str| pages(server, &format!("/v1/runs?state={state}"));
        let open = [open("pending"), open("running")].concat();
        let old = |run: &&Value| {
            Timestamp::now().duration_since(time(&run["scheduled_for"])) > SignedDuration::from_secs(8)
        };
        let left = open.iter().filter(old).count();
        if state == "succeeded" && left == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "the backfill is {state}, and runs wait: {open:#?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Every slot has one run or one account of why not, and runs that must not overlap did not.
fn account(server: &Server, job: &Value, policy: &str, until: Timestamp) {
    let runs: Vec<Value> = pages(server, &format!("/v1/jobs/{}/runs", id(job)))
        .into_iter()
        .filter(|run| run["cause"] == "schedule")
        .collect();
    let mut fates: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for run in &runs {
        let fate = fates.entry(time(&run["scheduled_for"]).as_second()).or_default();
        fate.push(format!("run {}", run["state"]));
    }
    for entry in pages(server, &format!("/v1/jobs/{}/ledger", id(job))) {
        let (from, to) = (time(&entry["from"]).as_second(), time(&entry["to"]).as_second());
        assert_eq!(entry["slots"], to - from + 1, "{policy}: {entry}");
        for slot in from..=to {
            fates.entry(slot).or_default().push(format!("{} {}", entry["state"], entry["reason"]));
        }
    }
    let owed = time(&job["created_at"]).as_second() + 1..until.as_second();
    assert!(owed.end - owed.start >= SLOTS, "{policy}: too few slots to tell");
    for slot in owed {
        let fate = fates.get(&slot).map(Vec::as_slice).unwrap_or_default();
        assert_eq!(fate.len(), 1, "{policy}: slot {slot} has {fate:?}");
    }
    let overlaps = overlaps(server, &runs);
    let has = |what: &str| fates.values().flatten().any(|fate| fate.contains(what));
    match policy {
        policy if policy.contains("allow") => assert!(overlaps > 0, "runs that may overlap do"),
        policy => {
            assert_eq!(overlaps, 0, "{policy}: two runs at the same time");
            let is_cancelling = policy.contains("cancel");
            assert_eq!(has("overlap"), !is_cancelling, "{policy}: {fates:?}");
            assert_eq!(has("cancelled"), is_cancelling, "{policy}: {fates:?}");
            assert!(is_cancelling || has("succeeded"), "{policy}: {fates:?}");
        }
    }
}

/// How many runs were claimed before the one before them had ended.
fn overlaps(server: &Server, runs: &[Value]) -> usize {
    let mut spans = Vec::new();
    for run in runs {
        let run = server.get(&format!("/v1/runs/{}", run["id"].as_str().unwrap()));
        // One that was never claimed, or is still at it, is not told of.
        if let (Some(first), false) = (run["attempts"].get(0), run["finished_at"].is_null()) {
            spans.push((time(&first["claimed_at"]), time(&run["finished_at"])));
        }
    }
    spans.sort();
    spans.windows(2).filter(|pair| pair[1].0 < pair[0].1).count()
}

fn account_for_backfill(server: &Server, job: &Value, operation: &str) {
    let told = server.get(&format!("/v1/operations/{operation}"));
    assert_eq!((&told["done"], &told["failed"]), (&BACKFILLED.into(), &0.into()), "{told}");
    let runs = pages(server, &format!("/v1/jobs/{}/runs", id(job)));
    let slots: Vec<Timestamp> =
        runs.iter().filter(|run| run["cause"] == "backfill").map(|run| time(&run["scheduled_for"])).collect();
    let once: BTreeSet<Timestamp> = slots.iter().copied().collect();
    assert_eq!((slots.len(), once.len()), (BACKFILLED as usize, BACKFILLED as usize));
    let first = once.first().unwrap().as_second();
    let last = once.last().unwrap().as_second();
    assert_eq!(last - first + 1, BACKFILLED);
}
