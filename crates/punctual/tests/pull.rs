//! Workers that pull, beside the real binary, on both stores: what they hold survives restarts and kills of every server, and goes to
//! others when they are silent; each run ends once.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual_client::worker::Failed;
use punctual_client::{Client, Options, Worker};
use punctual_testing::Postgres;
use serde_json::json;

use crate::support::puller::{PATIENCE, Puller, wait_until};
use crate::support::server::{Server, command};

fn register(server: &Server, queue: &str, more: &str) -> String {
    let body = format!(
        r#"{{"name":"long","schedule":{{"at": "2190-01-01T00:00:00Z"}},"queue":"{queue}","target":{{"worker":{{"handler":"x"}}}},"timeout":"PT1H"{more}}}"#
    );
    let answer = server.post("/v1/jobs", &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_string()
}

fn trigger(server: &Server, job: &str) -> String {
    let answer = server.post(&format!("/v1/jobs/{job}/trigger"), "");
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_string()
}

fn state(server: &Server, run: &str) -> String {
    server.get(&format!("/v1/runs/{run}"))["state"].as_str().unwrap().to_string()
}

/// A job that lasts many leases goes on through restarts of the server, and through the death of its worker where it was.
fn goes_on_through_restarts(data: &Path, arguments: &[&str]) {
    let leases: Vec<&str> = [arguments, &["--lease", "6"]].concat();
    let mut server = Server::start_with(data, &leases);
    let job = register(&server, "slow", "");
    let run = trigger(&server, &job);
    let mut one = Puller::new(&server, "slow");
    let held = one.next();
    assert_eq!(held["run_id"], json!(run));
    // More than fifty leases would take long; what counts is that each restart is longer than none.
    for turn in 0..4 {
        for beat in 0..6 {
            let checkpoint = json!({"checkpoint": {"turn": turn, "beat": beat}});
            let (status, answer) = one.beat(&[&held], &checkpoint);
            assert_eq!((status, &answer["not_held"]), (200, &json!([])), "{answer}");
            std::thread::sleep(Duration::from_millis(300));
        }
        match turn % 2 {
            0 => drop(server.kill()),
            _ => drop(server.stop()),
        }
        server = Server::start_with(data, &leases);
        one.address = server.address;
    }
    assert_eq!(state(&server, &run), "running");
    assert_eq!(server.get(&format!("/v1/runs/{run}"))["attempt"], 1, "the same attempt");
    // Its worker dies; another goes on where it was.
    let mut two = Puller::new(&server, "slow");
    let again = two.next();
    assert_eq!((&again["run_id"], &again["attempt"]), (&json!(run), &json!(2)));
    assert_eq!(again["checkpoint"], json!({"turn": 3, "beat": 5}));
    assert_eq!(one.beat(&[&held], &json!({})).0, 409, "it was taken for dead");
    let late = one.report(&held, "succeeded");
    assert_eq!(late["problem"]["code"], "lease_lost", "{late}");
    assert_eq!(two.report(&again, "succeeded")["state"], "succeeded");
    assert_eq!(state(&server, &run), "succeeded");
    server.stop();
}

#[test]
fn a_long_run_goes_on_through_restarts_and_the_death_of_its_worker() {
    let data = tempfile::tempdir().unwrap();
    goes_on_through_restarts(data.path(), &[]);
}

#[test]
fn a_long_run_goes_on_through_restarts_and_the_death_of_its_worker_on_postgres() {
    let (address, data) = (Postgres::shared().database(), tempfile::tempdir().unwrap());
    goes_on_through_restarts(data.path(), &["--store", &address]);
}

/// Several workers, one of which takes runs and says no more: every run ends once, and none that the others held is taken from them.
#[test]
fn every_run_ends_once_though_a_worker_is_silent() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start_with(data.path(), &["--lease", "6"]);
    let job = register(&server, "many", "");
    let runs: Vec<String> = (0..60).map(|_| trigger(&server, &job)).collect();
    let mut silent = Puller::new(&server, "many");
    let taken = silent.claim(10);
    assert_eq!(taken.len(), 10);
    let mut workers = [Puller::new(&server, "many"), Puller::new(&server, "many")];
    let mut ended: BTreeMap<String, u32> = BTreeMap::new();
    let begun = Instant::now();
    while ended.len() < runs.len() {
        assert!(begun.elapsed() < PATIENCE, "{} of {} ended", ended.len(), runs.len());
        for worker in &mut workers {
            let given = worker.claim(7);
            let (status, _) = worker.beat(&given.iter().collect::<Vec<_>>(), &json!({}));
            assert_eq!(status, 200);
            for attempt in given {
                if worker.report(&attempt, "succeeded")["state"] == "succeeded" {
                    *ended.entry(attempt["run_id"].as_str().unwrap().to_string()).or_default() += 1;
                }
            }
        }
    }
    assert!(ended.values().all(|times| *times == 1) && runs.iter().all(|run| ended.contains_key(run)));
    for attempt in &taken {
        assert_eq!(silent.report(attempt, "succeeded")["problem"]["code"], "lease_lost");
    }
    server.stop();
}

/// A job that requires a label is given to workers that have it; those are seen on the command line.
#[test]
fn labels_say_which_worker_gets_a_run() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start_with(data.path(), &[]);
    let job = register(&server, "labelled", r#","requires":{"gpu":"true"}"#);
    let run = trigger(&server, &job);
    let mut plain = Puller::new(&server, "labelled");
    assert!(plain.claim(5).is_empty());
    let waiting = server.get(&format!("/v1/runs/{run}"));
    let warning = "no worker that has gpu=true asks for runs of the queue `labelled` now";
    assert_eq!(waiting["warnings"], json!([warning]), "{waiting}");
    let queue = &server.get("/v1/queues")["items"][0];
    let counted =
        [&queue["queue"], &queue["waiting"], &queue["running"], &queue["workers"], &queue["concurrency"]];
    assert_eq!(counted, [&json!("labelled"), &json!(1), &json!(0), &json!(1), &json!(50)], "{queue}");
    let listed = command().args(["queue", "list", "--server", &server.url()]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("labelled") && listed.contains("NEXT 15 MIN"), "{listed}");
    let mut gpu = Puller { labels: json!({"gpu": "true"}), ..Puller::new(&server, "labelled") };
    assert_eq!(gpu.next()["run_id"], json!(run));
    let listed = command().args(["worker", "list", "--server", &server.url()]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.contains("gpu=true") && listed.contains("labelled") && listed.contains("test"),
        "{listed}"
    );
    server.stop();
}

/// Each slot becomes as many runs as the job has parts; each is told which it is, and all of them end.
fn in_parts(data: &Path, arguments: &[&str]) {
    let server = Server::start_with(data, arguments);
    let job = register(&server, "parts", r#","parts":{"count":3}"#);
    assert_eq!(server.get(&format!("/v1/jobs/{job}"))["parts"], json!({"count": 3}));
    let first = trigger(&server, &job);
    let mut one = Puller::new(&server, "parts");
    let mut two = Puller::new(&server, "parts");
    let mut seen: BTreeMap<u64, String> = BTreeMap::new();
    for turn in 0..3 {
        let worker = if turn % 2 == 0 { &mut one } else { &mut two };
        let attempt = worker.next();
        assert_eq!(attempt["parts"], 3, "{attempt}");
        let key = attempt["idempotency_key"].as_str().unwrap().to_string();
        assert_eq!(seen.insert(attempt["part"].as_u64().unwrap(), key), None);
        assert_eq!(worker.report(&attempt, "succeeded")["state"], "succeeded");
    }
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    let told = server.get(&format!("/v1/runs/{first}"));
    assert_eq!((&told["part"], &told["parts"], &told["state"]), (&json!(1), &json!(3), &json!("succeeded")));
    let runs = server.get(&format!("/v1/jobs/{job}/runs"));
    assert_eq!(runs["items"].as_array().unwrap().len(), 3);
    server.stop();
}

#[test]
fn a_job_in_parts_is_shared_by_workers() {
    let data = tempfile::tempdir().unwrap();
    in_parts(data.path(), &[]);
}

#[test]
fn a_job_in_parts_is_shared_by_workers_on_postgres() {
    let (address, data) = (Postgres::shared().database(), tempfile::tempdir().unwrap());
    in_parts(data.path(), &["--store", &address]);
}

/// A broadcast reaches every worker that lives, each once; the part of one that dies before it took it ends and says why.
fn for_all(data: &Path, arguments: &[&str]) {
    let arguments: Vec<&str> = [arguments, &["--lease", "15"]].concat();
    let server = Server::start_with(data, &arguments);
    let job = register(&server, "all", r#","parts":"broadcast""#);
    let nobody = server.post(&format!("/v1/jobs/{job}/trigger"), "");
    assert_eq!((nobody.status, &nobody.json()["code"]), (409, &json!("no_worker")), "{}", nobody.body);
    let mut workers = [Puller::new(&server, "all"), Puller::new(&server, "all")];
    let mut silent = Puller::new(&server, "all");
    let mut elsewhere = Puller::new(&server, "elsewhere");
    for worker in workers.iter_mut().chain([&mut silent, &mut elsewhere]) {
        assert_eq!(worker.claim(5).len(), 0);
    }
    let live = |workers: &[Puller]| {
        workers.iter().for_each(|worker| assert_eq!(worker.beat(&[], &json!({})).0, 200));
    };
    live(&workers);
    assert_eq!(silent.beat(&[], &json!({})).0, 200);
    trigger(&server, &job);
    for turn in 0..workers.len() {
        live(&workers);
        let worker = &mut workers[turn];
        let attempt = worker.next();
        assert_eq!(attempt["parts"], 3, "{attempt}");
        let run = server.get(&format!("/v1/runs/{}", attempt["run_id"].as_str().unwrap()));
        assert_eq!(run["for_worker"].as_str(), worker.id.as_deref());
        assert_eq!(worker.report(&attempt, "succeeded")["state"], "succeeded");
        assert_eq!(worker.claim(5).len(), 0, "each has one part");
    }
    assert_eq!(elsewhere.claim(5).len(), 0);
    let states = || -> Vec<String> {
        let runs = server.get(&format!("/v1/jobs/{job}/runs"));
        let states = runs["items"].as_array().unwrap().iter().map(|run| run["state"].as_str().unwrap());
        states.map(str::to_string).collect()
    };
    wait_until("the part of the one that is gone", || {
        live(&workers);
        states().iter().all(|state| state != "pending")
    });
    let dead = server.get("/v1/dead-letters");
    let run = server.get(&format!("/v1/runs/{}", dead["items"][0]["id"].as_str().unwrap()));
    assert_eq!(run["attempts"][0]["error"]["code"], "worker_gone", "{run}");
    assert_eq!(run["for_worker"].as_str(), silent.id.as_deref());
    server.stop();
}

#[test]
fn a_broadcast_reaches_every_worker_that_lives() {
    let data = tempfile::tempdir().unwrap();
    for_all(data.path(), &[]);
}

#[test]
fn a_broadcast_reaches_every_worker_that_lives_on_postgres() {
    let (address, data) = (Postgres::shared().database(), tempfile::tempdir().unwrap());
    for_all(data.path(), &["--store", &address]);
}

fn worker(server: &Server) -> Worker {
    let client = Client::new(server.url().parse().unwrap(), &Options::default()).unwrap();
    Worker::new(client, ["rust"]).concurrency(5)
}

fn registered(server: &Server, handler: &str) -> String {
    let body = format!(
        r#"{{"schedule":{{"at": "2190-01-01T00:00:00Z"}},"queue":"rust","target":{{"worker":{{"handler":"{handler}"}}}},
            "retry":{{"backoff":"fixed","base":"PT0.1S"}}}}"#
    );
    let answer = server.post("/v1/jobs", &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_string()
}

/// A worker of the Rust client: it goes on where an attempt was, stops what is cancelled, and gives back what does not end in time.
#[test]
fn the_rust_worker_resumes_cancels_and_drains() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start_with(data.path(), &["--lease", "15"]);
    let runs =
        ["resume", "endless", "endless", "unknown"].map(|name| trigger(&server, &registered(&server, name)));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = worker(&server)
        .grace(Duration::from_millis(100))
        .handler("resume", |task| async move {
            task.log(format!("attempt {}", task.attempt().attempt));
            if task.last_checkpoint().is_null() {
                task.checkpoint(&json!({"row": 7}))?;
                return Err(Failed::new("not yet").code("not_yet"));
            }
            Ok(Some(format!("went on at {}", task.last_checkpoint()["row"])))
        })
        .handler("endless", |task| async move {
            task.progress(1, "begun");
            std::future::pending::<()>().await;
            Ok(None)
        });
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(worker.run_until(async {
            // Whoever stops it drops it at the latest.
            let _ = stopped.await;
        }))
    });
    wait_until("the run that goes on", || state(&server, &runs[0]) == "succeeded");
    let resumed = server.get(&format!("/v1/runs/{}", runs[0]));
    assert_eq!(resumed["attempts"][0]["error"]["code"], "not_yet");
    assert_eq!(resumed["attempts"][1]["output"]["text"], "went on at 7");
    assert_eq!(resumed["attempts"][1]["log"][0]["text"], "attempt 2");
    for more in [&["--follow"][..], &["--attempt", "2"]] {
        let log =
            command().args(["run", "log", &runs[0], "--server", &server.url()]).args(more).output().unwrap();
        let log = String::from_utf8(log.stdout).unwrap();
        let lines: Vec<(&str, &str)> =
            log.lines().map(|line| (&line[..1], line.split_once(" attempt ").unwrap().1)).collect();
        let expected = [("1", "1"), ("2", "2")];
        assert_eq!(lines, if more.len() == 1 { &expected[..] } else { &expected[1..] }, "{log}");
    }
    wait_until("the run that nobody knows", || state(&server, &runs[3]) == "failed");
    let unknown = server.get(&format!("/v1/runs/{}", runs[3]));
    assert_eq!(unknown["attempts"][0]["error"]["code"], "handler_unknown");
    wait_until("both that have no end", || {
        runs[1..3].iter().all(|run| server.get(&format!("/v1/runs/{run}"))["progress"]["percent"] == 1)
    });
    assert_eq!(server.post(&format!("/v1/runs/{}/cancel", runs[1]), "").status, 200);
    wait_until("the cancelled run", || state(&server, &runs[1]) == "cancelled");
    stop.send(()).unwrap();
    thread.join().unwrap().unwrap();
    let released = server.get(&format!("/v1/runs/{}", runs[2]));
    assert_eq!((&released["state"], &released["attempt"]), (&json!("pending"), &json!(1)), "{released}");
    assert_eq!(server.get("/v1/workers")["items"], json!([]), "it said that it goes");
    server.stop();
}

/// The ten lines of the documents, as a program.
#[test]
fn a_worker_in_ten_lines() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start_with(data.path(), &[]);
    let body = r#"{"schedule":{"at": "2190-01-01T00:00:00Z"},"queue":"emails","target":{"worker":{"handler":"welcome"}},"payload":{"n":7}}"#;
    let job = server.post("/v1/jobs", body).json()["id"].as_str().unwrap().to_string();
    let run = trigger(&server, &job);
    // Built with all tests; by itself: cargo test -p punctual --examples --test pull
    let example = Path::new(env!("CARGO_BIN_EXE_punctual")).parent().unwrap().join("examples/worker");
    let mut program = std::process::Command::new(&example)
        .env("PUNCTUAL_SERVER", server.url())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", example.display()));
    wait_until("the run", || state(&server, &run) == "succeeded");
    let ended = server.get(&format!("/v1/runs/{run}"));
    assert_eq!(ended["attempts"][0]["output"]["text"], "sent 7");
    let killed = std::process::Command::new("kill").arg(program.id().to_string()).status().unwrap();
    assert!(killed.success() && program.wait().unwrap().success(), "it ends well");
    server.stop();
}
