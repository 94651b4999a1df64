//! Caps on what waits with the real binary: a queue that nobody serves fills up, requests are refused, slots are accounted
//! for, and after a bulk cancel everything goes on.

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_testing::Postgres;
use serde_json::{Value, json};

use crate::support::server::{Answer, Server, call, command};

/// Runs of a tenant that may wait.
const CAP: u64 = 20;

/// A server that does not get anywhere in this time does not get anywhere.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_backlog_is_full_and_empties_in_a_data_directory() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    story(&data, &[]);
    let checked = punctual_store_embedded::check(&data, Timestamp::now()).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
}

#[test]
fn a_backlog_is_full_and_empties_on_postgres() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    story(directory.path(), &["--store", &address, "--lease", "3", "--shard-lease", "3"]);
}

fn story(data: &Path, where_to: &[&str]) {
    let caps = ["--queues", "default", "--tenant-pending-max", "20", "--pending-max", "30"];
    let start = || Server::start_with(data, &[&caps[..], where_to].concat());
    let server = start();
    flood(&server);
    // Another tenant has its own cap, until all together have too many.
    let other = call(server.address, "POST", "/v1/tenants", &[], r#"{"name":"acme"}"#).unwrap();
    assert_eq!(other.status, 201);
    let ask =
        || call(server.address, "POST", "/v1/jobs", &[("punctual-tenant", "acme")], &now("nobody")).unwrap();
    let refused =
        until("no tenant may add one", || Some(ask()).filter(|answer| is_full(&server, answer, "*", 30)));
    must_be_full(&refused, "pending_max", "at most 30");

    // A slot of the first is throttled, and its schedule goes on; what runs at once is not counted, and not refused.
    let every = json!({"queue": "nobody", "schedule": {"cron": "* * * * * *"}, "target": {"discard": {}}});
    let id = create(&server, &every.to_string());
    let served = json!({"schedule": {"cron": "* * * * * *"}, "target": {"discard": {}}});
    let served = create(&server, &served.to_string());
    until("two slots are throttled", || {
        let ledger = server.get(&format!("/v1/jobs/{id}/ledger"));
        let entry = ledger["items"].as_array()?.iter().find(|entry| entry["state"] == "throttled")?.clone();
        assert_eq!(entry["reason"], "tenant_pending_max", "{entry}");
        (entry["slots"].as_u64()? >= 2).then_some(())
    });
    until("a slot with a worker runs", || {
        let runs = server.get(&format!("/v1/jobs/{served}/runs?state=succeeded"));
        (!runs["items"].as_array()?.is_empty()).then_some(())
    });
    let slot = server.get(&format!("/v1/jobs/{id}/ledger"))["items"][0]["from"].as_str().unwrap().to_string();
    let told = run(&server, &["job", "why", &id, "--at", &slot], 0);
    assert!(told.contains("was throttled"), "{told}");
    assert!(told.contains("as many runs of its tenant waited as may (tenant_pending_max"), "{told}");
    for figure in ["punctual_pending_runs 30", "punctual_pending_runs_of_a_tenant"] {
        until(figure, || {
            let figures = call(server.address, "GET", "/metrics", &[], "").unwrap().body;
            figures.contains(figure).then_some(())
        });
    }

    until("the list of tenants says so", || {
        let list = run(&server, &["tenant", "list"], 0);
        let words: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
        (words == ["default", "active", "20", "20"]).then_some(())
    });
    let refused = run(&server, &["job", "trigger", &served], 4);
    assert!(refused.contains("20 runs of tenant `default` wait, and at most 20 may"), "{refused}");

    // A restart forgets nothing of it.
    server.kill();
    let server = start();
    wait_for(&server, CAP);
    must_be_full(&server.post("/v1/jobs", &now("nobody")), "tenant_pending_max", "at most 20");

    // The schedule is taken away and what waits is cancelled: there is room again.
    let delete = call(server.address, "DELETE", &format!("/v1/jobs/{id}"), &[], "").unwrap();
    assert!((200..300).contains(&delete.status), "{}", delete.body);
    run(&server, &["run", "bulk", "cancel", "--queue", "nobody"], 0);
    wait_for(&server, 0);
    create(&server, &now("nobody"));
    assert!(server.stop().0.success());
}

/// Asks for runs of a queue that nobody serves until one is refused and as many wait as may.
fn flood(server: &Server) {
    let refused = until("the backlog is full", || {
        let answer = server.post("/v1/jobs", &now("nobody"));
        Some(answer).filter(|answer| is_full(server, answer, "default", CAP))
    });
    must_be_full(&refused, "tenant_pending_max", "20 runs of tenant `default` wait");
    assert_eq!(pending(server, "default"), CAP, "not one more");
    let jobs = server.get("/v1/jobs?limit=1000");
    assert_eq!(jobs["items"].as_array().unwrap().len() as u64, CAP, "nothing is left of what was refused");
}

/// Whether a request was refused because as many runs wait as may. A run that is born while all are counted is counted twice until they
/// are counted again (decision 23): then one is refused too early, or told too many, and asks again.
fn is_full(server: &Server, answer: &Answer, tenant: &str, cap: u64) -> bool {
    answer.status != 201 && pending(server, tenant) >= cap && answer.body.contains(&format!("{cap} runs"))
}

/// How many runs wait, as lists tell it.
fn pending(server: &Server, tenant: &str) -> u64 {
    let runs = server.get(&format!("/v1/runs?limit=1000&state=pending&tenant={tenant}"));
    runs["items"].as_array().unwrap().len() as u64
}

fn must_be_full(answer: &Answer, cap: &str, words: &str) {
    assert_eq!((answer.status, answer.header("retry-after")), (429, "10"), "{}", answer.body);
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let problem: Value = answer.json();
    assert_eq!(problem["code"], "too_many_pending");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(cap) && detail.contains(words), "{detail}");
}

/// How many runs of the default tenant wait, as the server knows it.
fn waiting(server: &Server) -> u64 {
    server.get("/v1/tenants")["items"][0]["pending_runs"].as_u64().unwrap()
}

fn wait_for(server: &Server, runs: u64) {
    until("so many wait", || (waiting(server) == runs).then_some(()));
}

fn now(queue: &str) -> String {
    json!({"queue": queue, "schedule": {"now": true}, "target": {"discard": {}}}).to_string()
}

fn create(server: &Server, body: &str) -> String {
    let answer = server.post("/v1/jobs", body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_string()
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < PATIENCE, "not seen: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a command prints: results, or why not.
fn run(server: &Server, arguments: &[&str], code: i32) -> String {
    let output = command().args(arguments).args(["--server", &server.url()]).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{out}{err}");
    if code == 0 { out } else { err }
}
