//! `/metrics` of the real binary: every figure that is promised is there, and moves.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use punctual_testing::Postgres;
use serde_json::{Value, json};

use crate::support::hook::Hook;
use crate::support::server::{Server, call};

/// The figures as Prometheus reads them.
struct Figures(String);

impl Figures {
    fn of(server: &Server) -> Figures {
        let answer = call(server.address, "GET", "/metrics", &[], "").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        Figures(answer.body)
    }

    /// The samples of a name: their labels and their values.
    fn samples(&self, name: &str) -> Vec<(&str, f64)> {
        let samples = self.0.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (sample, value) = line.rsplit_once(' ')?;
            let (found, labels) = sample.split_once('{').unwrap_or((sample, ""));
            (found == name).then(|| (labels.trim_end_matches('}'), value.parse().unwrap()))
        });
        samples.collect()
    }

    /// All samples of a name together, of those with these labels.
    fn sum(&self, name: &str, labels: &str) -> f64 {
        self.samples(name).iter().filter(|(found, _)| found.contains(labels)).map(|(_, value)| value).sum()
    }
}

/// What is promised, and what moves when the server has done a little of everything.
const MOVES: [(&str, &str); 24] = [
    ("jobs created", "punctual_register_jobs_total"),
    ("runs fired", "punctual_fire_runs_total"),
    ("attempts by outcome and type", "punctual_complete_attempts_total"),
    ("lateness of firing", "punctual_fire_lateness_seconds_count"),
    ("time to start", "punctual_start_lateness_seconds_count"),
    ("execution time", "punctual_execute_duration_seconds_count"),
    ("retries", "punctual_complete_retries_total"),
    ("dead letters", "punctual_complete_dead_letters_total"),
    ("queue depth by lane", "punctual_claim_waiting_runs"),
    ("queue depth by queue", "punctual_queue_waiting_runs"),
    ("running by queue", "punctual_queue_running_runs"),
    ("planned slots by queue", "punctual_queue_planned_slots"),
    ("runs that wait", "punctual_pending_runs"),
    ("runs claimed", "punctual_claim_runs_total"),
    ("attempts being executed", "punctual_worker_held_attempts"),
    ("room of the worker", "punctual_worker_concurrency"),
    ("size of the wheel", "punctual_horizon_entries"),
    ("bodies found in memory", "punctual_horizon_body_hits_total"),
    ("bodies read", "punctual_horizon_body_misses_total"),
    ("size of batches", "punctual_fire_batch_entries_count"),
    ("time to fire", "punctual_fire_duration_seconds_count"),
    ("time to record", "punctual_complete_duration_seconds_count"),
    ("time to commit", "punctual_store_commit_duration_seconds_count"),
    ("time to commit, in all", "punctual_store_commit_duration_seconds_sum"),
];

/// What is there, and does not move in a server that is well.
const STILL: [&str; 14] = [
    "punctual_breakers",
    "punctual_breaker_changes_total",
    "punctual_fire_overdue_jobs",
    "punctual_fire_overdue_seconds",
    "punctual_fire_missed_slots_total",
    "punctual_fire_throttled_slots_total",
    "punctual_pending_refused_requests_total",
    "punctual_pending_runs_of_a_tenant",
    "punctual_fire_stale_entries_total",
    "punctual_reclaim_attempts_total",
    "punctual_queue_oldest_wait_seconds",
    "punctual_queue_lateness_seconds",
    "punctual_queue_workers",
    "punctual_queue_concurrency",
];

/// More types than are counted apart.
const TYPES: usize = 130;

#[test]
fn every_figure_that_is_promised_is_there_and_moves() {
    let directory = tempfile::tempdir().unwrap();
    let (server, hook) =
        (Server::start_with(&directory.path().join("data"), &["--concurrency", "1"]), Hook::start());
    let create = |job: Value| {
        let answer = server.post("/v1/jobs", &job.to_string());
        assert_eq!(answer.status, 201, "{}", answer.body);
    };
    let job = |kind: &str, schedule: Value, target: Value| json!({"name": "a", "type": kind, "schedule": schedule, "target": target});
    let http = |path: &str| json!({"http": {"url": format!("{}/{path}", hook.url)}});
    create(job("tick", json!({"every": "PT1S"}), json!({"discard": {}})));
    let mut failing = job("failing", json!({"now": true}), http("fail"));
    failing["retry"] = json!({"max_attempts": 2, "base": "PT0.01S"});
    create(failing);
    for n in 0..TYPES {
        create(job(&format!("type-{n}"), json!({"now": true}), json!({"discard": {}})));
    }
    until(&server, "everything that is due is done", |figures| {
        figures.sum("punctual_complete_attempts_total", "") >= TYPES as f64 + 3.0
            && figures.sum("punctual_complete_dead_letters_total", "") >= 1.0
            && figures.sum("punctual_fire_runs_total", "") >= 1.0
    });
    // The one place is taken; what comes now waits.
    create(job("hanging", json!({"now": true}), http("hang")));
    until(&server, "the worker being busy", |_| hook.received().iter().any(|one| one.path == "/hang"));
    let mut waiting = job("batch", json!({"now": true}), json!({"discard": {}}));
    waiting["lane"] = json!("batch");
    create(waiting);
    let figures = until(&server, "a run waiting", |figures| {
        figures.sum("punctual_claim_waiting_runs", "lane=\"batch\"") == 1.0
            && figures.sum("punctual_queue_waiting_runs", "") >= 1.0
            && figures.sum("punctual_queue_planned_slots", "") >= 1.0
    });
    for (what, name) in MOVES {
        assert!(figures.sum(name, "") > 0.0, "{what}: {name} does not move\n{}", figures.0);
    }
    for name in STILL {
        assert!(!figures.samples(name).is_empty(), "{name} is not there\n{}", figures.0);
    }
    let attempts = |labels: &str| figures.sum("punctual_complete_attempts_total", labels);
    assert_eq!(attempts("outcome=\"failed\",type=\"failing\""), 2.0, "{}", figures.0);
    assert!(attempts("outcome=\"succeeded\",type=\"other\"") > 0.0, "{}", figures.0);
    assert_eq!(figures.sum("punctual_complete_retries_total", ""), 1.0);
    assert_eq!(figures.sum("punctual_complete_dead_letters_total", ""), 1.0);
    assert_eq!(figures.sum("punctual_worker_held_attempts", ""), 1.0);
    assert_eq!(figures.sum("punctual_worker_concurrency", ""), 1.0);
    assert_eq!(figures.samples("punctual_claim_waiting_runs").len(), 3, "one for each lane");
    // What users call their types does not make it grow without end.
    let types: BTreeSet<&str> = figures
        .samples("punctual_complete_attempts_total")
        .iter()
        .filter_map(|(labels, _)| labels.split("type=").nth(1))
        .collect();
    assert!(types.len() <= 102, "{} types", types.len());
    // A histogram adds up: the bucket without a bound has all of them.
    let endless = figures.sum("punctual_store_commit_duration_seconds_bucket", "le=\"+Inf\"");
    assert_eq!(endless, figures.sum("punctual_store_commit_duration_seconds_count", ""));
}

/// What moves on PostgreSQL besides.
const MOVES_ON_POSTGRES: [(&str, &str, &str); 7] = [
    ("time to register", "punctual_store_statement_duration_seconds_count", "verb=\"put_jobs\""),
    ("time to fire", "punctual_store_statement_duration_seconds_count", "verb=\"fire\""),
    ("time to record", "punctual_store_statement_duration_seconds_count", "verb=\"complete\""),
    ("time of a heartbeat", "punctual_store_statement_duration_seconds_sum", "verb=\"heartbeat\""),
    ("waits for a connection", "punctual_store_pool_wait_seconds_count", ""),
    ("time to commit", "punctual_store_commit_duration_seconds_count", ""),
    ("calls that failed", "punctual_store_failures_total", "kind=\"unreachable\""),
];

#[test]
fn every_figure_about_a_database_is_there_and_moves() {
    let (database, directory) = (Postgres::shared(), tempfile::tempdir().unwrap());
    let address = database.database();
    let name = address.rsplit('/').next().unwrap();
    let server = Server::start_with(directory.path(), &["--store", &address]);
    let job = json!({"name": "a", "schedule": {"every": "PT1S"}, "target": {"discard": {}}});
    assert_eq!(server.post("/v1/jobs", &job.to_string()).status, 201);
    until(&server, "a slot is fired", |figures| figures.sum("punctual_complete_attempts_total", "") >= 1.0);
    // Nobody gets in for a while.
    let allow = |is_allowed: bool| {
        database.psql("postgres", &format!("alter database {name} with allow_connections {is_allowed}"));
        let end = format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'");
        database.psql("postgres", &end);
    };
    allow(false);
    let moves =
        |figures: &Figures| MOVES_ON_POSTGRES.iter().all(|(_, name, labels)| figures.sum(name, labels) > 0.0);
    let figures = until(&server, "everything moves", moves);
    allow(true);
    for kind in ["deadlock", "serialization", "terminated", "pool", "unreachable", "stalled"] {
        let labels = format!("kind=\"{kind}\"");
        for name in ["punctual_store_failures_total", "punctual_store_retries_total"] {
            let there = figures.samples(name);
            assert!(there.iter().any(|(found, _)| *found == labels), "{name} {kind}\n{}", figures.0);
        }
    }
}

/// Reads the figures until they are as they should be; how long it takes is not the point.
fn until(server: &Server, what: &str, is_so: impl Fn(&Figures) -> bool) -> Figures {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let figures = Figures::of(server);
        if is_so(&figures) {
            return figures;
        }
        assert!(Instant::now() < deadline, "{what} did not happen:\n{}", figures.0);
        std::thread::sleep(Duration::from_millis(20));
    }
}
