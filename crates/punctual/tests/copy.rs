//! `punctual copy` with the real binary: an installation moves, also after a kill -9, and goes on where it was.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual_testing::Postgres;
use serde_json::{Value, json};

use crate::support::server::{Server, call, command};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a command: its exit code and what it printed.
fn run(words: &[&str]) -> (i32, String, String) {
    let output = command().args(words).env_remove("PUNCTUAL_STORE").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Waits until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn post(server: &Server, path: &str, body: &Value) -> Value {
    let answer = server.post(path, &body.to_string());
    assert!((200..300).contains(&answer.status), "{path}: {}", answer.body);
    if answer.body.is_empty() { Value::Null } else { answer.json() }
}

fn register(server: &Server, body: Value) -> String {
    post(server, "/v1/jobs", &body)["id"].as_str().unwrap().to_owned()
}

fn discard(name: &str, schedule: Value) -> Value {
    json!({"name": name, "schedule": schedule, "target": {"discard": {}}})
}

/// All items of a list, whatever happens to it meanwhile.
fn all(server: &Server, path: &str) -> Vec<Value> {
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("{path}?limit=1000{cursor}"));
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return items,
        }
    }
}

fn ids(items: &[Value]) -> BTreeSet<String> {
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

/// The slots of a job that have a run, each once.
fn slots(server: &Server, job: &str) -> BTreeSet<String> {
    let runs = all(server, &format!("/v1/jobs/{job}/runs"));
    let slots: BTreeSet<String> =
        runs.iter().map(|run| run["scheduled_for"].as_str().unwrap().to_owned()).collect();
    assert_eq!(slots.len(), runs.len(), "a slot of job {job} has two runs");
    slots
}

/// What is in an installation, as its API tells it.
struct Seen {
    jobs: Vec<Value>,
    ended: Vec<Value>,
    dead: BTreeSet<String>,
    ticking: String,
    held: String,
}

/// Jobs of all kinds, history, a dead letter, and a run that is being tried when the server is killed.
fn fill(server: &Server, receiver: &TcpListener) -> Seen {
    let ticking = register(server, discard("ticking", json!({"every": "PT1S"})));
    let bulk: Vec<Value> =
        (0..400).map(|n| discard(&format!("daily {n}"), json!({"cron": "H H * * *"}))).collect();
    post(server, "/v1/jobs/bulk", &Value::Array(bulk));
    let key = discard("keyed", json!({"cron": "0 3 * * *", "timezone": "Europe/Zurich"}));
    let answer = call(server.address, "PUT", "/v1/jobs/key/the-key", &[], &key.to_string()).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.body);
    let paused = register(server, discard("paused", json!({"at": "2190-01-01T00:00:00Z"})));
    post(server, &format!("/v1/jobs/{paused}/pause"), &json!({"reason": "moving"}));
    let deleted = register(server, discard("deleted", json!({"at": "2190-01-01T00:00:00Z"})));
    let answer = call(server.address, "DELETE", &format!("/v1/jobs/{deleted}"), &[], "").unwrap();
    assert!((200..300).contains(&answer.status), "{}", answer.body);
    for n in 0..20 {
        register(server, discard(&format!("once {n}"), json!({"now": true})));
    }
    // Below those that the system gives to clients, so that nobody gets it meanwhile.
    let nobody = format!("http://127.0.0.1:{}/", punctual_testing::postgres::free_port());
    let mut failing =
        json!({"name": "failing", "schedule": {"now": true}, "target": {"http": {"url": nobody}}});
    failing["retry"] = json!({"max_attempts": 1});
    register(server, failing);
    let silent = format!("http://{}/", receiver.local_addr().unwrap());
    let held = json!({"name": "held", "schedule": {"now": true}, "target": {"http": {"url": silent}}});
    let held = register(server, held);
    until("a dead letter", || !all(server, "/v1/dead-letters").is_empty());
    until("a run is held", || all(server, &format!("/v1/jobs/{held}/runs"))[0]["state"] == "running");
    until("slots have run", || slots(server, &ticking).len() >= 2);
    let is_ended = |run: &Value| run["state"] != "running" && run["state"] != "pending";
    until("what runs now has run", || {
        all(server, "/v1/runs").iter().filter(|run| is_ended(run)).count() > 22
    });
    Seen {
        jobs: all(server, "/v1/jobs"),
        ended: all(server, "/v1/runs").into_iter().filter(is_ended).collect(),
        dead: ids(&all(server, "/v1/dead-letters")),
        ticking,
        held,
    }
}

/// Everything is as it was, and goes on.
fn assert_moved(server: &Server, seen: &Seen) {
    assert_eq!(ids(&all(server, "/v1/jobs")), ids(&seen.jobs));
    let job = server.get("/v1/jobs/key/the-key");
    let before = seen.jobs.iter().find(|job| job["key"] == "the-key").unwrap();
    assert_eq!((&job["id"], &job["version"]), (&before["id"], &before["version"]));
    for run in &seen.ended {
        let id = run["id"].as_str().unwrap();
        let now = server.get(&format!("/v1/runs/{id}"));
        assert_eq!((&now["state"], &now["finished_at"]), (&run["state"], &run["finished_at"]), "run {id}");
    }
    assert_eq!(ids(&all(server, "/v1/dead-letters")), seen.dead);
    let before = slots(server, &seen.ticking);
    until("slots fire again", || slots(server, &seen.ticking).len() > before.len() + 1);
    assert!(before.is_subset(&slots(server, &seen.ticking)), "what ran stays");
    let held = || all(server, &format!("/v1/jobs/{}/runs", seen.held)).remove(0);
    let id = held()["id"].as_str().unwrap().to_owned();
    until("the run that was held is tried again", || {
        let attempts = server.get(&format!("/v1/runs/{id}"))["attempts"].as_array().unwrap().len();
        attempts >= 2 && held()["id"] == id.as_str()
    });
}

fn secret(data: &Path) -> String {
    std::fs::read_to_string(data.join("signing-secret")).unwrap().trim().to_owned()
}

/// What a copy says when it is done.
fn assert_copied(from: &str, to: &str) -> Value {
    let (code, text, errors) = run(&["copy", from, to, "-o", "json"]);
    assert_eq!(code, 0, "{errors}");
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["is_verified"], true);
    let count = |kind: &Value| (kind["copied"].as_u64().unwrap(), kind["verified"].as_u64().unwrap());
    let kinds = report["kinds"].as_array().unwrap();
    assert!(kinds.len() == 12 && kinds.iter().map(count).all(|(one, other)| one == other), "{report}");
    report
}

#[test]
fn an_installation_moves_to_postgresql_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let (data, back) = (folder.path().join("data"), folder.path().join("back"));
    let [from, home] = [&data, &back].map(|path| path.to_str().unwrap());
    let server = Server::start_with(&data, &["--lease", "3"]);
    let seen = fill(&server, &receiver);
    let (code, _, errors) = run(&["copy", from, home]);
    assert!(code == 4 && errors.contains("in use"), "{code}: {errors}");
    server.kill();

    let database = Postgres::shared();
    let address = database.database();
    let name = address.rsplit_once('/').unwrap().1;
    let mut copying = command().args(["copy", from, &address, "--page", "1"]).spawn().unwrap();
    let note = || {
        let is_there = database.psql(name, "select count(*) from pg_tables where tablename = 'settings'");
        let sql = "select convert_from(value, 'UTF8')::json -> 'cursor' ->> 'kind' from settings where name = 'copy'";
        if is_there == "1" { database.psql(name, sql) } else { String::new() }
    };
    until("the copy is in the middle", || note() == "jobs" || note() == "due");
    copying.kill().unwrap();
    copying.wait().unwrap();
    assert!(!note().is_empty(), "it was done before it was killed");
    let store = ["--store", address.as_str(), "--lease", "3"];
    let Err(log) = Server::try_start(folder.path(), &store) else { panic!("it serves half a copy") };
    assert!(log.contains("unfinished copy"), "{log}");

    let report = assert_copied(from, &address);
    assert!(report["kinds"][1]["copied"].as_u64().unwrap() > 420, "{report}");
    assert_eq!(database.psql(name, "select count(*) from settings where name = 'copy'"), "0");
    let sql = "select convert_from(value, 'UTF8') from settings where name = 'signing-secret'";
    assert_eq!(database.psql(name, sql), secret(&data));
    let (code, _, errors) = run(&["copy", from, &address]);
    assert!(code == 2 && errors.contains("not empty"), "{code}: {errors}");
    let server = Server::start_with(folder.path(), &store);
    assert_moved(&server, &seen);
    let (code, _, errors) = run(&["copy", &address, home]);
    assert!(code == 4 && errors.contains("nodes use the database"), "{code}: {errors}");
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");

    assert_copied(&address, home);
    let (code, text, errors) = run(&["check", home]);
    assert_eq!(code, 0, "{text}{errors}");
    assert_eq!(secret(&back), secret(&data));
    assert_moved(&Server::start_with(&back, &["--lease", "3"]), &seen);
}

#[test]
fn what_cannot_be_copied_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (one, other, missing) = (path("one"), path("other"), path("missing"));
    let (code, _, errors) = run(&["copy", &one, &one]);
    assert!(code == 2 && errors.contains("the same"), "{code}: {errors}");
    let (code, _, errors) = run(&["copy", &missing, &other]);
    assert!(code == 1 && errors.contains("no such directory"), "{code}: {errors}");
    let server = Server::start(Path::new(&one));
    register(&server, discard("job", json!({"at": "2190-01-01T00:00:00Z"})));
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    let database = Postgres::shared().database();
    assert_eq!(run(&["migrate", "up", "--store", &database]).0, 0);
    let (code, _, errors) = run(&["copy", &one, &database]);
    assert!(code == 2 && errors.contains("64 shards") && errors.contains("256"), "{code}: {errors}");
    let (code, table, errors) = run(&["copy", &one, &other]);
    assert!(code == 0 && table.contains("VERIFIED") && table.contains("punctual serve"), "{table}{errors}");
    assert_eq!(run(&["check", &other]).0, 0);
}
