//! One change of many jobs with the real binary: counted, started, killed in the middle again and again, and done once to each.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_testing::Postgres;
use serde_json::{Value, json};

use crate::support::server::{Server, command};

/// Jobs in one request.
const BATCH: usize = 1_000;

/// A server that does not get anywhere in this time does not get anywhere.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn many_jobs_are_changed_once_each_through_kills() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    story(10_000, 6, &|| Server::start_with(&data, &["--queues", "default"]));
    let checked = punctual_store_embedded::check(&data, Timestamp::now()).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
}

#[test]
fn many_jobs_are_changed_once_each_through_kills_on_postgres() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    story(3_000, 3, &|| {
        let timing = ["--lease", "3", "--shard-lease", "3"];
        let what = ["--store", &address, "--queues", "default"];
        Server::start_with(directory.path(), &[&what[..], &timing[..]].concat())
    });
}

fn story(count: usize, kills: usize, start: &dyn Fn() -> Server) {
    let mut server = start();
    register(&server, count);
    let edit = ["job", "bulk", "edit", "--key-prefix", "eu/", "--patch", r#"{"timeout":"PT1M"}"#];
    let told = run(&server, &[&edit[..], &["--dry-run"]].concat(), 0);
    assert!(told.starts_with(&format!("{count} jobs match: {count} would be changed\n")), "{told}");
    let told = run(&server, &[&edit[..], &["--dry-run", "-o", "json"]].concat(), 0);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["matched"], &told["changes"]), (&json!(count), &json!(count)));
    assert_eq!((told["examples"].as_array().unwrap().len(), &told["next_cursor"]), (5, &Value::Null));

    let started = run(&server, &[&edit[..], &["--no-wait", "-o", "json"]].concat(), 0);
    let id = serde_json::from_str::<Value>(&started).unwrap()["id"].as_str().unwrap().to_string();
    let mut reached = 0;
    for _ in 0..kills {
        reached = further(&server, &id, reached);
        server.kill();
        server = start();
    }
    // What is registered meanwhile is not one of them.
    register_one(&server, "eu/late", "slow");
    let ended = ended(&server, &id);
    assert_eq!(
        (&ended["state"], &ended["done"], &ended["failed"]),
        (&json!("succeeded"), &json!(count), &json!(0))
    );
    let mut changed = 0;
    for job in jobs(&server) {
        let key = job["key"].as_str().unwrap();
        let expected = if key == "eu/late" || !key.starts_with("eu/") { (1, "PT5M") } else { (2, "PT1M") };
        assert_eq!((&job["version"], &job["timeout"]), (&json!(expected.0), &json!(expected.1)), "{key}");
        changed += usize::from(expected.0 == 2);
    }
    assert_eq!(changed, count);
    change_the_rest(&server, count);
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
}

/// The other commands, in the words that people read.
fn change_the_rest(server: &Server, count: usize) {
    let refused = run(server, &["job", "bulk", "pause"], 2);
    assert!(refused.contains("or write --all"), "{refused}");
    let paused = run(server, &["job", "bulk", "pause", "-l", "team=b", "--reason", "moving"], 0);
    assert_eq!(paused, "1 paused, 0 had changed meanwhile\n");
    let page = server.get("/v1/jobs?state=paused");
    assert_eq!(
        (&page["items"][0]["key"], &page["items"][0]["paused"]["reason"]),
        (&json!("us/1"), &json!("moving"))
    );
    assert_eq!(
        run(server, &["job", "bulk", "resume", "--state", "paused"], 0),
        "1 resumed, 0 had changed meanwhile\n"
    );
    let id = page["items"][0]["id"].as_str().unwrap();
    // Nobody serves the queue, so the run waits, and goes where its job goes.
    run(server, &["job", "trigger", id], 0);
    let moved = run(server, &["job", "bulk", "move", "--queue", "nobody", "--to", "nobody-else"], 0);
    assert_eq!(moved, "1 moved, 0 had changed meanwhile\n");
    let waiting = server.get("/v1/runs?queue=nobody-else&state=pending");
    assert_eq!(waiting["items"].as_array().unwrap().len(), 1, "{waiting}");
    let dry = run(server, &["run", "bulk", "cancel", "--queue", "nobody-else", "--dry-run"], 0);
    assert!(dry.starts_with("1 runs match: 1 would be cancelled\n RUN"), "{dry}");
    let cancelled =
        run(server, &["run", "bulk", "cancel", "--queue", "nobody-else", "--state", "pending"], 0);
    assert_eq!(cancelled, "1 cancelled, 0 had changed meanwhile\n");
    let failing = run(
        server,
        &["job", "bulk", "edit", "--key-prefix", "us/", "--patch", r#"{"schedule":{"cron":"61 * * * *"}}"#],
        0,
    );
    assert!(failing.starts_with("0 changed, 1 could not be, such as job "), "{failing}");
    let asked = run(server, &["job", "bulk", "delete", "--key-prefix", "eu/"], 2);
    assert!(asked.contains("--yes"), "nobody can answer: {asked}");
    let deleted = run(server, &["job", "bulk", "delete", "--key-prefix", "eu/", "--yes"], 0);
    assert_eq!(deleted, format!("{} deleted, 0 had changed meanwhile\n", count + 1));
    assert_eq!(jobs(server).len(), 1);
    let list = run(server, &["operation", "list", "-o", "json"], 0);
    let list: Value = serde_json::from_str(&list).unwrap();
    let kinds: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
    let expected =
        ["delete_jobs", "edit_jobs", "cancel_runs", "edit_jobs", "resume_jobs", "pause_jobs", "edit_jobs"];
    assert_eq!(kinds, expected);
}

fn register(server: &Server, count: usize) {
    for first in (0..count).step_by(BATCH) {
        let jobs: Vec<Value> =
            (first..count.min(first + BATCH)).map(|n| job(&format!("eu/{n}"), "slow")).collect();
        let answer = server.post("/v1/jobs/bulk", &json!(jobs).to_string());
        assert_eq!((answer.status, &answer.json()["failed"]), (200, &json!(0)), "{}", answer.body);
    }
    register_one(server, "us/1", "nobody");
}

fn register_one(server: &Server, key: &str, queue: &str) {
    assert_eq!(server.post("/v1/jobs", &job(key, queue).to_string()).status, 201);
}

fn job(key: &str, queue: &str) -> Value {
    let team = if key.starts_with("eu/") { "a" } else { "b" };
    json!({
        "key": key, "queue": queue, "labels": {"team": team}, "schedule": {"every": "PT1000H"},
        "target": {"discard": {}}, "requires": {"nobody": "has"}
    })
}

/// All jobs.
fn jobs(server: &Server) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/v1/jobs?limit=1000&cursor={cursor}"));
        all.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = next.to_string(),
            None => return all,
        }
    }
}

/// Waits until the operation has done more than before, or has ended.
fn further(server: &Server, id: &str, before: u64) -> u64 {
    let begun = Instant::now();
    loop {
        let operation = server.get(&format!("/v1/operations/{id}"));
        let done = operation["done"].as_u64().unwrap();
        if done > before || operation["state"] != "running" {
            return done;
        }
        assert!(begun.elapsed() < PATIENCE, "{operation}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ended(server: &Server, id: &str) -> Value {
    let begun = Instant::now();
    loop {
        let operation = server.get(&format!("/v1/operations/{id}"));
        if operation["state"] != "running" {
            return operation;
        }
        assert!(begun.elapsed() < PATIENCE, "{operation}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What a command prints: results, or why not.
fn run(server: &Server, arguments: &[&str], code: i32) -> String {
    let output = command().args(arguments).args(["--server", &server.url()]).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{out}{err}");
    if code == 0 { out } else { err }
}
