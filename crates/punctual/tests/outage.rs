//! The database goes away under the real binary, and comes back: nothing is lost, doubled or left to people.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use punctual_testing::Postgres;
use punctual_testing::postgres::free_port;
use serde_json::{Value, json};

use crate::support::hook::Hook;
use crate::support::server::{Answer, Server, call};

/// Seconds; the least there is.
const LEASE: &str = "3";

/// Long enough that a worker which is not heard of would be taken for dead, were it the worker's fault.
const OUTAGE: Duration = Duration::from_secs(8);

fn get(server: &Server, path: &str) -> Answer {
    call(server.address, "GET", path, &[], "").unwrap()
}

fn create(server: &Server, schedule: Value, url: &str) -> Answer {
    let job = json!({"name": "a", "schedule": schedule, "target": {"http": {"url": url}}});
    server.post("/v1/jobs", &job.to_string())
}

fn id(answer: &Answer) -> String {
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// Waits until something is so; how long it takes is not the point.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The runs of a job.
fn runs(server: &Server, job: &str) -> Vec<Value> {
    server.get(&format!("/v1/runs?job={job}&limit=1000"))["items"].as_array().unwrap().clone()
}

/// One figure of `/metrics`.
fn figure(server: &Server, sample: &str) -> f64 {
    let text = get(server, "/metrics").body;
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in\n{text}")).parse().unwrap()
}

/// Every slot of jobs that fire every second has one run, and every run was delivered once.
fn account(server: &Server, hook: &Hook, jobs: &[(String, Timestamp)]) -> usize {
    // Two more than are due now: it goes on.
    let last = Timestamp::now() + SignedDuration::from_secs(2);
    let mut keys = BTreeSet::new();
    let mut total = 0;
    for (job, created_at) in jobs {
        let owed: BTreeSet<i64> = (created_at.as_second() + 1..=last.as_second()).collect();
        let mut found = Vec::new();
        until("every slot has a run that ended", || {
            found = runs(server, job);
            let ended = found.iter().filter(|run| run["state"] == "succeeded");
            let slots: BTreeSet<i64> = ended.map(slot).collect();
            owed.is_subset(&slots)
        });
        let slots: Vec<i64> = found.iter().map(slot).collect();
        assert_eq!(slots.len(), slots.iter().collect::<BTreeSet<_>>().len(), "a slot has two runs");
        let owed = found.iter().filter(|run| owed.contains(&slot(run)));
        keys.extend(owed.map(|run| run["idempotency_key"].as_str().unwrap().to_owned()));
        total += found.len();
    }
    let mut delivered: BTreeMap<String, usize> = BTreeMap::new();
    for received in hook.received() {
        *delivered.entry(received.headers["idempotency-key"].clone()).or_default() += 1;
    }
    for key in keys {
        assert_eq!(delivered.get(&key), Some(&1), "deliveries of {key}");
    }
    total
}

fn slot(run: &Value) -> i64 {
    run["scheduled_for"].as_str().unwrap().parse::<Timestamp>().unwrap().as_second()
}

#[test]
fn a_database_that_crashes_and_comes_back_loses_and_doubles_nothing() {
    let (database, hook) = (Postgres::start(&["fsync=off", "max_connections=50"]), Hook::start());
    let directory = tempfile::tempdir().unwrap();
    let address = database.database();
    let server = Server::start_with(directory.path(), &["--store", &address, "--lease", LEASE]);
    let ticking: Vec<(String, Timestamp)> = (0..5)
        .map(|_| {
            let answer = create(&server, json!({"every": "PT1S"}), &format!("{}/ok", hook.url));
            (id(&answer), answer.json()["created_at"].as_str().unwrap().parse().unwrap())
        })
        .collect();
    let held = id(&create(&server, json!({"now": true}), &format!("{}/hold", hook.url)));
    until("slots are fired", || hook.received().iter().filter(|one| one.path == "/ok").count() >= 10);
    until("an attempt is held", || hook.received().iter().any(|one| one.path == "/hold"));

    database.crash();
    let began = Instant::now();
    until("the server says that it is not ready", || get(&server, "/readyz").status == 503);
    let ready = get(&server, "/readyz").json();
    let store = ready["checks"].as_array().unwrap().iter().find(|check| check["name"] == "store").unwrap();
    assert_eq!(store["is_ok"], false);
    assert!(store["detail"].as_str().unwrap().to_lowercase().contains("connect"), "{store}");
    let refused = create(&server, json!({"now": true}), &format!("{}/ok", hook.url));
    assert_eq!((refused.status, refused.json()["code"].as_str()), (503, Some("unavailable")));
    assert!(
        refused.json()["detail"].as_str().unwrap().to_lowercase().contains("connect"),
        "{}",
        refused.body
    );
    assert!(refused.header("retry-after").parse::<u32>().unwrap() >= 1);
    assert_eq!(get(&server, "/v1/runs").status, 503);
    assert_eq!(get(&server, "/livez").status, 200, "it is alive");
    // This attempt ends during the outage.
    hook.release();
    while began.elapsed() < OUTAGE {
        assert_eq!(get(&server, "/livez").status, 200);
        std::thread::sleep(Duration::from_millis(100));
    }
    database.start_again();

    until("the server is ready by itself", || get(&server, "/readyz").status == 200);
    id(&create(&server, json!({"now": true}), &format!("{}/ok", hook.url)));
    until("the result that was held is recorded", || runs(&server, &held)[0]["state"] == "succeeded");
    let run = server.get(&format!("/v1/runs/{}", runs(&server, &held)[0]["id"].as_str().unwrap()));
    assert_eq!(run["attempts"].as_array().unwrap().len(), 1, "{run}");
    assert_eq!(hook.received().iter().filter(|one| one.path == "/hold").count(), 1);
    let slots = account(&server, &hook, &ticking);
    assert!(figure(&server, "punctual_store_failures_total{kind=\"unreachable\"}") > 0.0);
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    assert!(!log.contains("taken for dead") && !log.contains("gave no sign of life"), "{log}");
    println!("outage of the database: {slots} slots of {} jobs, each one run, delivered once", ticking.len());
}

#[test]
fn connections_that_are_ended_again_and_again_lose_and_double_nothing() {
    let (database, hook) = (Postgres::start(&["fsync=off", "max_connections=50"]), Hook::start());
    let directory = tempfile::tempdir().unwrap();
    let address = database.database();
    let server = Server::start_with(directory.path(), &["--store", &address, "--lease", LEASE]);
    let mut ticking = Vec::new();
    let sql =
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'punctual'";
    let mut ended = 0;
    for _ in 0..40 {
        let answer = create(&server, json!({"every": "PT1S"}), &format!("{}/ok", hook.url));
        match answer.status {
            201 => {
                ticking.push((id(&answer), answer.json()["created_at"].as_str().unwrap().parse().unwrap()));
            }
            status => assert_eq!(status, 503, "{}", answer.body),
        }
        ended += database.psql("postgres", sql).parse::<usize>().unwrap();
    }
    assert!(ticking.len() > 10 && ended > 40, "{} jobs, {ended} connections ended", ticking.len());
    let slots = account(&server, &hook, &ticking);
    println!(
        "ended connections: {ended}, {} of 40 creates accepted, {slots} slots, each one run, delivered once",
        ticking.len()
    );
}

#[test]
fn nodes_follow_a_standby_that_is_promoted() {
    let (primary, hook) = (Postgres::start(&["fsync=off", "max_connections=50"]), Hook::start());
    let name = primary.database().rsplit('/').next().unwrap().to_owned();
    let standby = primary.standby();
    let directory = tempfile::tempdir().unwrap();
    let address =
        format!("postgres://punctual@127.0.0.1:{},127.0.0.1:{}/{name}", primary.port(), standby.port());
    let server = Server::start_with(directory.path(), &["--store", &address, "--lease", LEASE]);
    let ticking: Vec<(String, Timestamp)> = (0..5)
        .map(|_| {
            let answer = create(&server, json!({"every": "PT1S"}), &format!("{}/ok", hook.url));
            (id(&answer), answer.json()["created_at"].as_str().unwrap().parse().unwrap())
        })
        .collect();
    until("slots are fired", || hook.received().len() >= 10);
    primary.crash();
    until("the server says that it is not ready", || get(&server, "/readyz").status == 503);
    // A standby takes no writes, and is not taken for the primary.
    assert_eq!(create(&server, json!({"now": true}), &format!("{}/ok", hook.url)).status, 503);
    standby.promote();
    until("the server is ready by itself", || get(&server, "/readyz").status == 200);
    id(&create(&server, json!({"now": true}), &format!("{}/ok", hook.url)));
    let slots = account(&server, &hook, &ticking);
    println!("promoted standby: {slots} slots of {} jobs, each one run, delivered once", ticking.len());
}

#[test]
fn a_replica_that_stops_shows_old_lists_for_a_moment_and_nothing_goes_by_them() {
    let (primary, hook) = (Postgres::start(&["fsync=off", "max_connections=50"]), Hook::start());
    let follower = primary.follower();
    let address = primary.database();
    let replica = follower.url(address.rsplit('/').next().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let server =
        Server::start_with(directory.path(), &["--store", &address, "--replica", &replica, "--lease", LEASE]);
    let figure = |name: &str| figure(&server, &format!("{name}{{replica=\"{replica}\"}}"));
    let ticking: Vec<(String, Timestamp)> = (0..5)
        .map(|_| {
            let answer = create(&server, json!({"every": "PT1S"}), &format!("{}/ok", hook.url));
            (id(&answer), answer.json()["created_at"].as_str().unwrap().parse().unwrap())
        })
        .collect();
    until("the replica is used", || figure("punctual_replica_used") == 1.0);
    until("runs are listed", || !runs(&server, &ticking[0].0).is_empty());
    until("they are read from it", || figure("punctual_replica_reads_total") > 0.0);

    follower.pause_replay(true);
    // Old lists and new edits, until it is seen to be too far behind; and some more.
    let mut edits = 0;
    let mut edit = || {
        for (job, _) in &ticking {
            runs(&server, job);
            edits += 1;
            let body = json!({"name": format!("edit {edits}")}).to_string();
            let answer = call(server.address, "PATCH", &format!("/v1/jobs/{job}"), &[], &body).unwrap();
            assert_eq!(answer.status, 200, "{}", answer.body);
            assert_eq!(server.get(&format!("/v1/jobs/{job}"))["name"], format!("edit {edits}"));
        }
    };
    until("it is not used any more", || {
        edit();
        figure("punctual_replica_used") == 0.0
    });
    assert!(figure("punctual_replica_lag_seconds") > 5.0);
    (0..5).for_each(|_| edit());
    let slots = account(&server, &hook, &ticking);
    follower.pause_replay(false);
    until("it is used again", || figure("punctual_replica_used") == 1.0);
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    // When it was first looked at, it may not have heard of the database's schema yet.
    let is_behind = |line: &&str| line.contains("the replica is not used") && line.contains(" s behind");
    assert_eq!(log.lines().filter(is_behind).count(), 1, "{log}");
    println!("replica that stopped: {edits} edits, {slots} slots, each one run, delivered once");
}

#[test]
fn a_server_that_is_there_before_its_database_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let (port, hook) = (free_port(), Hook::start());
    let store = format!("postgres://punctual@127.0.0.1:{port}/postgres");
    let start = || Server::launch(free_port(), directory.path(), &["--store", &store, "--lease", LEASE]);
    let is_alive =
        |server: &Server| call(server.address, "GET", "/livez", &[], "").is_ok_and(|one| one.status == 200);

    // One that is told to stop meanwhile does.
    let impatient = start();
    until("it is alive", || is_alive(&impatient));
    let (status, log) = impatient.stop();
    assert!(status.success(), "{log}");

    let server = start();
    let began = Instant::now();
    until("it is alive", || is_alive(&server));
    until("it says what it waits for", || get(&server, "/readyz").body.to_lowercase().contains("connect"));
    let ready = get(&server, "/readyz");
    assert_eq!((ready.status, &ready.json()["is_ready"]), (503, &Value::Bool(false)));
    assert_eq!(ready.json()["checks"][0]["name"], "store");
    let refused = create(&server, json!({"now": true}), &format!("{}/ok", hook.url));
    assert_eq!((refused.status, refused.json()["code"].as_str()), (503, Some("unavailable")));
    assert!(refused.header("retry-after").parse::<u32>().unwrap() >= 1);
    assert!(
        refused.json()["detail"].as_str().unwrap().contains("cannot reach the database"),
        "{}",
        refused.body
    );

    let database = Postgres::start_on(port, &["fsync=off", "max_connections=50"]);
    until("the server is ready by itself", || get(&server, "/readyz").status == 200);
    let waited = began.elapsed();
    id(&create(&server, json!({"now": true}), &format!("{}/ok", hook.url)));
    until("it works", || hook.received().len() == 1);
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    let said = log.matches("the database is away").count() as u64;
    assert!((1..=1 + waited.as_secs() / 10).contains(&said), "{said} times in {waited:?}\n{log}");
    assert_eq!(log.matches("the database is there\"").count(), 1, "{log}");
    drop(database);
}

#[test]
fn what_no_waiting_mends_ends_the_server_at_once() {
    let database = Postgres::start(&["fsync=off"]);
    let (address, newer) = (database.database(), database.database());
    let directory = tempfile::tempdir().unwrap();
    drop(Server::start_with(directory.path(), &["--store", &newer]));
    let newer_name = newer.rsplit('/').next().unwrap();
    database.psql(newer_name, "insert into schema_versions values (999, now(), 999)");
    // One role needs its password.
    let rules = "select unnest(array['host all locked 127.0.0.1/32 scram-sha-256', \
        'host all all 127.0.0.1/32 trust', 'local all all trust'])";
    let file = database.psql("postgres", "show hba_file");
    database.psql("postgres", "create role locked login password 'right'");
    database.psql("postgres", &format!("copy ({rules}) to '{file}'"));
    database.psql("postgres", "select pg_reload_conf()");
    for (store, part) in [
        (address.replace("punctual@", "locked:wrong@"), "password authentication failed"),
        (address.replace("punctual@", "locked@"), "password"),
        (address.replace("punctual@", "nobody@"), "nobody"),
        (format!("{address}_not"), "does not exist"),
        (newer, "use a newer version of Punctual"),
        (format!("{address}?sslmode=require"), "TLS"),
        (format!("{address}?sslmode=perhaps"), "verify-full"),
    ] {
        match Server::try_start(directory.path(), &["--store", &store]) {
            Ok(_) => panic!("{store} is used"),
            Err(log) => {
                assert!(log.contains(part) && !log.contains("the database is away"), "{store}: {log}");
            }
        }
    }
}
