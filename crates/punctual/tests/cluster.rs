//! Real nodes on a real database: they share the shards, take over from each other, and fire each slot once.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use punctual_testing::{PgBouncer, Postgres};

use crate::support::server::{Server, command};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node of the cluster; what is in its folder is not used.
fn join(store: &str, folder: &Path, name: &str, more: &[&str]) -> Server {
    let mut arguments = vec!["--store", store, "--name", name];
    arguments.extend(more);
    Server::start_with(folder, &arguments)
}

/// Shards by the name of their owner, as a node tells.
fn shares(of: &Server) -> BTreeMap<String, u64> {
    let nodes = of.get("/v1/nodes");
    let share = |node: &serde_json::Value| {
        (node["name"].as_str().unwrap().to_owned(), node["shards"].as_u64().unwrap())
    };
    nodes["items"].as_array().unwrap().iter().map(share).collect()
}

/// Waits until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_fair(shares: &BTreeMap<String, u64>, names: &[&str]) -> bool {
    let fair = 256 / names.len() as u64;
    shares.len() == names.len()
        && shares.values().sum::<u64>() == 256
        && names.iter().all(|name| shares.get(*name).is_some_and(|share| share.abs_diff(fair) <= fair / 5))
}

/// Jobs that fire every second until a time, spread over the nodes.
fn register(nodes: &[&Server], count: usize, end: Timestamp) -> Vec<String> {
    let body = format!(
        "{{\"name\":\"job\",\"schedule\":{{\"every\":\"PT1S\",\"end\":\"{end}\"}},\"target\":{{\"discard\":{{}}}}}}"
    );
    let mut ids = Vec::new();
    for n in 0..count {
        let answer = nodes[n % nodes.len()].post("/v1/jobs", &body);
        assert_eq!(answer.status, 201, "{}", answer.body);
        ids.push(answer.json()["id"].as_str().unwrap().to_owned());
    }
    ids
}

/// The slots of a job that ran, each once.
fn slots(of: &Server, job: &str) -> Vec<Timestamp> {
    let runs = of.get(&format!("/v1/jobs/{job}/runs?limit=1000"));
    let slot = |run: &serde_json::Value| run["scheduled_for"].as_str().unwrap().parse().unwrap();
    let mut slots: Vec<Timestamp> = runs["items"].as_array().unwrap().iter().map(slot).collect();
    let all = slots.len();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), all, "job {job} has a slot that ran twice");
    slots
}

#[test]
fn nodes_share_the_work_and_take_over_from_each_other() {
    let store = Postgres::shared().database();
    let folder = tempfile::tempdir().unwrap();
    let [one, two, three] = ["one", "two", "three"].map(|name| join(&store, folder.path(), name, &[]));
    until("three nodes have a third each", || is_fair(&shares(&two), &["one", "two", "three"]));
    let end = Timestamp::now() + SignedDuration::from_secs(20);
    let jobs = register(&[&one, &two, &three], 90, end);
    until("jobs of every node run", || jobs.iter().all(|job| !slots(&one, job).is_empty()));

    two.kill();
    until("the others have a half each", || is_fair(&shares(&one), &["one", "three"]));
    let (status, log) = three.stop();
    assert!(status.success(), "{log}");
    assert_eq!(shares(&one).get("one"), Some(&256), "it handed everything over before it ended");
    let four = join(&store, folder.path(), "four", &["--wakeups", "poll"]);
    until("a new node has a half", || is_fair(&shares(&four), &["one", "four"]));
    let late = register(&[&one, &four], 20, end + SignedDuration::from_secs(5));
    until("jobs of the new node run", || late.iter().all(|job| !slots(&one, job).is_empty()));

    ran_to_the_end(&one, &jobs, end);
    ran_to_the_end(&one, &late, end + SignedDuration::from_secs(5));
    let nodes = command().args(["nodes", "--server", &four.url()]).output().unwrap();
    let nodes = String::from_utf8(nodes.stdout).unwrap();
    assert!(
        nodes.contains("one") && nodes.contains("four") && nodes.contains("api,scheduler,worker"),
        "{nodes}"
    );
    let shards = command().args(["shards", "--server", &one.url()]).output().unwrap();
    let shards = String::from_utf8(shards.stdout).unwrap();
    assert!(shards.lines().count() == 3 && shards.contains("OWNER"), "{shards}");
}

/// Every job ran each of its slots once, up to its end.
fn ran_to_the_end(of: &Server, jobs: &[String], end: Timestamp) {
    for job in jobs {
        until("the last slot of a job ran", || {
            slots(of, job).last().is_some_and(|last| *last + SignedDuration::from_secs(1) > end)
        });
        let slots = slots(of, job);
        let gaps =
            slots.windows(2).filter(|pair| pair[1].duration_since(pair[0]) != SignedDuration::from_secs(1));
        assert_eq!(gaps.count(), 0, "job {job} lost slots: {slots:?}");
    }
}

#[test]
fn nodes_behind_pgbouncer_share_the_work_and_take_over_from_each_other() {
    let server = Postgres::shared();
    let bouncer = PgBouncer::start(server, 4);
    let store = bouncer.through(&server.database());
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| join(&store, folder.path(), name, &["--wakeups", "poll"]));
    until("two nodes have a half each", || is_fair(&shares(&one), &["one", "two"]));
    let end = Timestamp::now() + SignedDuration::from_secs(15);
    let jobs = register(&[&one, &two], 60, end);
    until("jobs of both nodes run", || jobs.iter().all(|job| !slots(&one, job).is_empty()));
    two.kill();
    until("the other has everything", || shares(&one).get("one") == Some(&256));
    ran_to_the_end(&one, &jobs, end);
    let migrate = command().args(["migrate", "status", "--store", &store]).output().unwrap();
    assert!(migrate.status.success(), "{migrate:?}");
    let (status, log) = one.stop();
    assert!(status.success() && !log.contains("ERROR"), "{log}");
}

#[test]
fn roles_are_shared_out() {
    let store = Postgres::shared().database();
    let folder = tempfile::tempdir().unwrap();
    let api = join(&store, folder.path(), "api", &["--roles", "api"]);
    let now = "{\"name\":\"job\",\"schedule\":{\"now\":true},\"target\":{\"discard\":{}}}";
    let answer = api.post("/v1/jobs", now);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let job = answer.json()["id"].as_str().unwrap().to_owned();
    let soon = "{\"name\":\"job\",\"schedule\":{\"after\":\"PT1S\"},\"target\":{\"discard\":{}}}";
    let answer = api.post("/v1/jobs", soon);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let later = answer.json()["id"].as_str().unwrap().to_owned();
    let state = |job: &str| {
        let runs = api.get(&format!("/v1/jobs/{job}/runs"));
        runs["items"][0]["state"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(state(&job), "pending", "nobody executes");
    let scheduler = join(&store, folder.path(), "scheduler", &["--roles", "scheduler"]);
    until("the scheduler fires", || state(&later) == "pending");
    assert_eq!(shares(&api), BTreeMap::from([("api".into(), 0), ("scheduler".into(), 256)]));
    let answer = scheduler.post("/v1/jobs", soon);
    assert_eq!(answer.status, 404, "it has no API: {}", answer.body);
    let _worker = join(&store, folder.path(), "worker", &["--roles", "worker", "--queues", "other"]);
    let _other = join(&store, folder.path(), "default", &["--roles", "worker", "--queues", "default"]);
    until("the worker of the queue executes", || state(&job) == "succeeded" && state(&later) == "succeeded");
}

#[test]
fn a_run_is_executed_where_its_worker_has_what_it_requires() {
    let store = Postgres::shared().database();
    let folder = tempfile::tempdir().unwrap();
    let plain = join(&store, folder.path(), "plain", &[]);
    let body = "{\"name\":\"job\",\"schedule\":{\"now\":true},\"target\":{\"discard\":{}},\
        \"requires\":{\"zone\":\"eu\",\"gpu\":\"true\"}}";
    let answer = plain.post("/v1/jobs", body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let warning = |of: &serde_json::Value| of["warnings"].to_string();
    assert!(warning(&answer.json()).contains("gpu=true,zone=eu"), "{}", answer.body);
    let job = answer.json()["id"].as_str().unwrap().to_owned();
    let run = plain.get(&format!("/v1/jobs/{job}/runs"))["items"][0].clone();
    let run = format!("/v1/runs/{}", run["id"].as_str().unwrap());
    let url = plain.url();
    let show = |words: &[&str]| {
        let output = command().args(words).args(["--server", &url]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let id = run.rsplit('/').next().unwrap().to_owned();
    let page = show(&["run", "get", &id]);
    assert!(
        page.contains("waits for a worker with gpu=true, zone=eu") && page.contains("warning: "),
        "{page}"
    );
    let page = show(&["job", "get", &job]);
    assert!(page.contains("a worker with gpu=true, zone=eu") && page.contains("warning: "), "{page}");

    let _near = join(&store, folder.path(), "near", &["--labels", "zone=eu"]);
    let able = join(&store, folder.path(), "able", &["--labels", "zone=eu,gpu=true"]);
    until("it is executed", || plain.get(&run)["state"] == "succeeded");
    assert_eq!(warning(&plain.get(&format!("/v1/jobs/{job}"))), "null");
    let nodes = plain.get("/v1/nodes");
    let labels = |name: &str| {
        let nodes = nodes["items"].as_array().unwrap();
        nodes.iter().find(|node| node["name"] == name).unwrap()["labels"].clone()
    };
    assert_eq!(labels("able"), serde_json::json!({"zone": "eu", "gpu": "true"}));
    assert_eq!(
        (labels("near"), labels("plain")),
        (serde_json::json!({"zone": "eu"}), serde_json::Value::Null)
    );

    // Slots that any node fires are executed there too.
    let every = body.replace("{\"now\":true}", "{\"every\":\"PT1S\"}");
    let job = plain.post("/v1/jobs", &every).json()["id"].as_str().unwrap().to_owned();
    let ended = || {
        let runs = plain.get(&format!("/v1/jobs/{job}/runs"));
        runs["items"].as_array().unwrap().iter().filter(|run| run["state"] == "succeeded").count()
    };
    until("slots are executed", || ended() >= 3);
    drop(able);
    until("it is not live any more", || warning(&plain.get(&format!("/v1/jobs/{job}"))) != "null");
    let before = ended();
    until("slots wait", || {
        let runs = plain.get(&format!("/v1/jobs/{job}/runs?state=pending"));
        runs["items"].as_array().unwrap().len() >= 3
    });
    assert_eq!(ended(), before, "nobody else takes them");
    let _again = join(&store, folder.path(), "again", &["--labels", "gpu=true,zone=eu,ssd=true"]);
    until("those that waited are executed", || ended() >= before + 3);
}
