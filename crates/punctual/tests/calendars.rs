//! Named calendars with the real binary, on both stores: a calendar that closes and opens while jobs use it, through a kill.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use punctual_testing::Postgres;
use serde_json::Value;

use crate::support::server::{Server, command};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(90);

#[test]
fn jobs_follow_their_calendar_in_a_data_directory() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = follow(Server::start(&data), None, &|| Server::start(&data));
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    let checked = punctual_store_embedded::check(&data, Timestamp::now()).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
}

#[test]
fn jobs_follow_their_calendar_on_postgres_whatever_node_is_told() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    let start = |name: &str| {
        let data = directory.path().join(name);
        Server::start_with(&data, &["--store", &address, "--lease", "3", "--name", name])
    };
    let other = start("other");
    follow(start("one"), Some(&other), &|| start("again"));
}

/// Changes are told to one node and looked for on the other, if there is one.
fn follow(server: Server, other: Option<&Server>, restart: &dyn Fn() -> Server) -> Server {
    run(&server, &["calendar", "put", "gate"]);
    let create = ["job", "create", "tick", "--every", "1s", "--calendar", "gate", "--discard", "-o", "json"];
    let job: Value = serde_json::from_str(&run(&server, &create)).unwrap();
    let job = job["id"].as_str().unwrap();
    let is_planned = |server: &Server, year: &str| {
        let next = server.get(&format!("/v1/jobs/{job}"))["next_fire_at"].as_str().unwrap_or("").to_string();
        next.starts_with(year)
    };
    let count = |server: &Server| {
        let runs = server.get(&format!("/v1/jobs/{job}/runs?limit=1000"));
        runs["items"].as_array().unwrap().len()
    };
    until("it runs", || count(other.unwrap_or(&server)) > 1);

    let closed: Value = serde_json::from_str(&run(
        &server,
        &["calendar", "put", "gate", "--include-date", "2190-01-02", "-o", "json"],
    ))
    .unwrap();
    let operation = format!("/v1/operations/{}", closed["operation_id"].as_str().unwrap());
    until("it is planned anew", || server.get(&operation)["state"] == "succeeded");
    let ended: Timestamp = server.get(&operation)["finished_at"].as_str().unwrap().parse().unwrap();
    assert!(is_planned(other.unwrap_or(&server), "2190-01-02"));

    // It stays so after a kill.
    server.kill();
    let server = restart();
    let from = ended + SignedDuration::from_secs(1);
    let to = from + SignedDuration::from_secs(3);
    until("some slots have passed", || Timestamp::now() > to);
    let rows = server.get(&format!("/v1/jobs/{job}/ledger?from={from}&to={to}"))["items"].clone();
    let rows = rows.as_array().unwrap();
    assert!(rows.iter().all(|row| row["reason"] == "calendar" && row["calendars"][0] == "gate"), "{rows:#?}");
    assert_eq!(rows.iter().map(|row| row["slots"].as_u64().unwrap()).sum::<u64>(), 3, "{rows:#?}");
    let why = run(&server, &["job", "why", job, "--at", &from.as_second().to_string()]);
    assert!(why.contains("a calendar excludes it (gate)"), "{why}");
    let page = run(&server, &["job", "get", job]);
    assert!(page.contains("calendars") && page.contains("2190-01-02"), "{page}");

    // And it runs again when the calendar opens.
    let before = count(&server);
    run(
        &server,
        &["calendar", "put", "gate", "--exclude-date", "12-25,2190-01-02", "--exclude-weekdays", "SUN"],
    );
    run(&server, &["calendar", "put", "gate"]);
    until("it runs again", || count(&server) > before);

    // The rest of the command line.
    let refused = output(&server, &["calendar", "delete", "gate"]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && error.contains(job), "{error}");
    run(&server, &["calendar", "put", "hours", "--tz", "Europe/Paris", "--include-window", "09:00-17:30"]);
    run(&server, &["calendar", "put", "hours", "--add", "--exclude-date", "12-25"]);
    let shown = run(&server, &["calendar", "get", "hours"]);
    assert!(shown.contains("09:00-17:30") && shown.contains("12-25"), "{shown}");
    let list = run(&server, &["calendar", "list"]);
    assert!(list.contains("gate") && list.contains("in Europe/Paris"), "{list}");
    let explain =
        ["explain", "0 12 24-26 12 *", "--tz", "Europe/Paris", "--from", "2026-12-01", "--count", "3"];
    let explain = [&explain[..], &["--calendar", "hours", "--on-excluded", "skip", "-o", "json"]].concat();
    let explained: Value = serde_json::from_str(&run(&server, &explain)).unwrap();
    let slots: Vec<&str> =
        explained["slots"].as_array().unwrap().iter().map(|slot| &slot.as_str().unwrap()[..10]).collect();
    assert_eq!(slots, ["2026-12-24", "2026-12-26", "2027-12-24"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hours.json");
    std::fs::write(&file, run(&server, &["calendar", "get", "hours", "-o", "json"])).unwrap();
    run(&server, &["calendar", "put", "copy", "--file", file.to_str().unwrap()]);
    run(&server, &["calendar", "delete", "copy"]);
    run(&server, &["job", "delete", job]);
    run(&server, &["calendar", "delete", "gate"]);
    server
}

fn run(server: &Server, arguments: &[&str]) -> String {
    let output = output(server, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn output(server: &Server, arguments: &[&str]) -> std::process::Output {
    command().args(arguments).args(["--server", &server.url()]).output().unwrap()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
