//! An hour of downtime under every catch-up policy, with the real binary: each slot of it ran or is in the ledger, once, and those ran
//! that the policy says. The hour passes on the clocks of the server and of PostgreSQL.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_testing::{Clock, Postgres};
use serde_json::Value;

use crate::support::server::Server;

const HOUR: i64 = 3_600;

/// A slot every two minutes.
const PERIOD: i64 = 120;

/// Slots younger than this when they are reached are late and simply run.
const GRACE: i64 = 60;

/// So long after the start everything is reached; what is missed is decided by the time when it is.
const REACHED_WITHIN: i64 = 60;

/// What is registered: how old a slot may be to be run after all, and how many of them are.
struct Policy {
    body: &'static str,
    window: i64,
    most: usize,
}

const POLICIES: [Policy; 6] = [
    Policy { body: r#"{"policy":"latest"}"#, window: HOUR, most: 1 },
    Policy { body: r#"{"policy":"latest","window":"PT61S"}"#, window: 61, most: 1 },
    Policy { body: r#"{"policy":"none"}"#, window: 0, most: 0 },
    Policy {
        body: r#"{"policy":"all","window":"PT2H","max":1000,"rate":100}"#,
        window: 2 * HOUR,
        most: 1_000,
    },
    Policy { body: r#"{"policy":"all","window":"PT2H","max":5,"rate":100}"#, window: 2 * HOUR, most: 5 },
    Policy {
        body: r#"{"policy":"all","window":"PT21M","max":1000,"rate":100}"#,
        window: 21 * 60,
        most: 1_000,
    },
];

#[test]
fn an_hour_of_downtime_under_every_policy() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let clock = Clock::off_by(-HOUR, directory.path());
    let jobs = register(Server::start_by(&clock, &data, &[]));
    account(Server::start(&data), &jobs);
    let checked = punctual_store_embedded::check(&data, Timestamp::now()).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
}

#[test]
fn an_hour_of_downtime_under_every_policy_on_postgres() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::off_by(-HOUR, directory.path());
    // Others read it too.
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let postgres = Postgres::start_with_clock(&clock);
    let address = postgres.database();
    let jobs = register(Server::start_by(&clock, directory.path(), &["--store", &address]));
    postgres.crash();
    clock.set(0);
    postgres.start_again();
    account(Server::start_with(directory.path(), &["--store", &address]), &jobs);
}

/// Registers a job for every policy, and ends without a word.
fn register(server: Server) -> Vec<Value> {
    let register = |policy: &Policy| {
        let body = format!(
            r#"{{"schedule":{{"cron":"*/2 * * * *"}},"catch_up":{},"target":{{"discard":{{}}}}}}"#,
            policy.body
        );
        let answer = server.post("/v1/jobs", &body);
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()
    };
    let jobs = POLICIES.iter().map(register).collect();
    server.kill();
    jobs
}

fn account(server: Server, jobs: &[Value]) {
    let started = Timestamp::now();
    for (job, policy) in jobs.iter().zip(&POLICIES) {
        let created = time(&job["created_at"]).as_second();
        assert!(started.as_second() - created >= HOUR, "an hour passed: {job}");
        let slots: Vec<i64> =
            (created / PERIOD + 1..=started.as_second() / PERIOD).map(|slot| slot * PERIOD).collect();
        let ran = wait_until_accounted(&server, job, &slots);
        // Which slots are old and which are merely late is decided when they are reached.
        let is_right =
            (0..=REACHED_WITHIN).any(|after| ran == expected(policy, &slots, started.as_second() + after));
        assert!(is_right, "{}: {ran:?} of {slots:?} ran, started at {started}", policy.body);
    }
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
}

/// The slots that run if they are reached at a time.
fn expected(policy: &Policy, slots: &[i64], now: i64) -> Vec<i64> {
    let (old, young): (Vec<i64>, Vec<i64>) = slots.iter().partition(|slot| **slot < now - GRACE);
    let mut ran: Vec<i64> =
        old.into_iter().rev().take(policy.most).filter(|slot| now - slot <= policy.window).collect();
    ran.reverse();
    ran.extend(young);
    ran
}

/// Waits until each of the slots is a run that has ended or in an entry of the ledger, and in one alone. Returns those that ran.
fn wait_until_accounted(server: &Server, job: &Value, slots: &[i64]) -> Vec<i64> {
    let id = job["id"].as_str().unwrap();
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let runs = server.get(&format!("/v1/jobs/{id}/runs?limit=1000"));
        let ledger = server.get(&format!("/v1/jobs/{id}/ledger?limit=1000"));
        let ended = items(&runs).iter().filter(|run| run["state"] == "succeeded");
        let mut ran: Vec<i64> = ended.map(|run| time(&run["scheduled_for"]).as_second()).collect();
        ran.retain(|slot| slots.contains(slot));
        ran.sort_unstable();
        let is_in = |entry: &Value, slot: i64| {
            let range = time(&entry["from"]).as_second()..=time(&entry["to"]).as_second();
            assert_eq!(entry["state"], "missed", "{entry}");
            range.contains(&slot)
        };
        let times = |slot: i64| {
            let left_out = items(&ledger).iter().filter(|entry| is_in(entry, slot)).count();
            ran.iter().filter(|one| **one == slot).count() + left_out
        };
        if slots.iter().all(|slot| times(*slot) == 1) {
            return ran;
        }
        assert!(slots.iter().all(|slot| times(*slot) <= 1), "twice: {runs} {ledger}");
        assert!(Instant::now() < deadline, "not accounted for: {runs} {ledger}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn items(page: &Value) -> &[Value] {
    page["items"].as_array().unwrap()
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}
