//! The server as a user meets it: the real binary, its API and the callbacks it makes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::hook::{Hook, Received};
use crate::support::server::{Server, call};

/// Waits for something to become true; how long it takes is not the point.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn create(server: &Server, job: &Value) -> Value {
    let answer = server.post("/v1/jobs", &job.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()
}

fn job(schedule: Value, url: String) -> Value {
    json!({"name": "a job", "schedule": schedule, "target": {"http": {"url": url}}})
}

fn runs_of(server: &Server, job: &Value) -> Vec<Value> {
    let page = server.get(&format!("/v1/jobs/{}/runs", job["id"].as_str().unwrap()));
    page["items"].as_array().unwrap().clone()
}

#[test]
fn a_callback_says_what_it_is_and_is_signed() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (server, hook) = (Server::start(&data), Hook::start());
    let mut body = job(json!({"now": true}), format!("{}/ok", hook.url));
    body["correlation_id"] = json!("order-7");
    body["target"]["http"]["headers"] = json!({"X-Team": "billing"});
    // Written as the user wrote it: numbers, spaces and order stay.
    let text = body.to_string().replace("\"name\"", "\"payload\": { \"n\":7.0,  \"a\":1e2 }, \"name\"");
    let answer = server.post("/v1/jobs", &text);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let created = answer.json();
    assert_eq!(created["warnings"].as_array().map_or(0, Vec::len), 0, "{created}");
    let received: Received = eventually("the callback", || hook.received().into_iter().next());
    assert_eq!(received.body, "{ \"n\":7.0,  \"a\":1e2 }");
    let run = eventually("the end of the run", || {
        runs_of(&server, &created).into_iter().find(|run| run["state"] == "succeeded")
    });
    let header = |name: &str| received.headers.get(name).cloned().unwrap_or_default();
    assert_eq!(header("punctual-run-id"), run["id"].as_str().unwrap());
    assert_eq!(header("punctual-job-id"), created["id"].as_str().unwrap());
    assert_eq!(header("punctual-scheduled-for"), run["scheduled_for"].as_str().unwrap());
    assert_eq!(header("punctual-attempt"), "1");
    assert_eq!(header("punctual-correlation-id"), "order-7");
    assert_eq!(header("idempotency-key"), run["idempotency_key"].as_str().unwrap());
    assert_eq!(header("x-team"), "billing");
    let secret = std::fs::read_to_string(data.join("signing-secret")).unwrap();
    let secret = punctual_worker::targets::http::Secret::parse(secret.trim()).unwrap();
    let at = header("webhook-timestamp").parse().unwrap();
    let expected =
        punctual_worker::targets::http::sign(&[secret], &header("webhook-id"), at, received.body.as_bytes());
    assert_eq!(header("webhook-signature"), expected);
}

#[test]
fn a_run_that_fails_for_good_is_a_dead_letter_and_goes_on_when_redriven() {
    let directory = tempfile::tempdir().unwrap();
    let (server, hook) = (Server::start(&directory.path().join("data")), Hook::start());
    let mut body = job(json!({"now": true}), format!("{}/fail", hook.url));
    body["retry"] = json!({"max_attempts": 2, "base": "PT0.01S"});
    let created = create(&server, &body);
    let dead = eventually("the dead letter", || {
        server.get("/v1/dead-letters")["items"].as_array().unwrap().first().cloned()
    });
    assert_eq!(dead["job_id"], created["id"]);
    let id = dead["id"].as_str().unwrap();
    let run = server.get(&format!("/v1/runs/{id}"));
    assert_eq!((&run["state"], &run["attempt"]), (&json!("failed"), &json!(2)));
    let attempts = run["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2);
    assert!(attempts.iter().all(|attempt| attempt["status"] == 500), "{attempts:?}");
    let answer = server.post("/v1/dead-letters/redrive", &json!({"runs": [id]}).to_string());
    assert!(answer.status < 300, "{}", answer.body);
    eventually("another attempt", || (hook.received().len() > 2).then_some(()));
    let keys: std::collections::BTreeSet<String> =
        hook.received().into_iter().map(|one| one.headers["idempotency-key"].clone()).collect();
    assert_eq!(keys.len(), 1, "one key for all attempts");
}

#[test]
fn a_redrive_that_meets_kill_9_goes_on_and_redrives_each_run_once() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (mut server, hook) = (Server::start(&data), Hook::start());
    let mut body = job(json!({"now": true}), format!("{}/fail", hook.url));
    body["retry"] = json!({"max_attempts": 1});
    let answer = server.post("/v1/jobs/bulk", &json!(vec![body; 600]).to_string());
    assert_eq!(answer.json()["created"], 600, "{}", answer.body);
    let dead = |server: &Server| {
        let page = server.get("/v1/dead-letters?limit=1000");
        let runs = page["items"].as_array().unwrap().clone();
        (runs.len() == 600).then_some(runs)
    };
    eventually("the dead letters", || dead(&server));
    let started = server.post("/v1/dead-letters/redrive", &json!({"filter": {}}).to_string());
    assert_eq!(started.status, 202, "{}", started.body);
    let operation = format!("/v1/operations/{}", started.json()["id"].as_str().unwrap());
    for _ in 0..3 {
        server.kill();
        server = Server::start(&data);
    }
    let ended = eventually("the end", || {
        Some(server.get(&operation)).filter(|operation| operation["state"] != "running")
    });
    assert_eq!(
        (&ended["state"], &ended["done"], &ended["failed"]),
        (&json!("succeeded"), &json!(600), &json!(0))
    );
    for run in eventually("the same dead letters", || dead(&server)) {
        let run = server.get(&format!("/v1/runs/{}", run["id"].as_str().unwrap()));
        let attempts = run["attempts"].as_array().unwrap();
        let failed = attempts.iter().filter(|attempt| attempt["outcome"] == "failed").count();
        assert_eq!(failed, 2, "once, and once redriven: {run}");
    }
}

#[test]
fn sigterm_gives_back_what_hangs_and_charges_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let hook = Hook::start();
    let server = Server::start_with(&data, &["--grace", "1"]);
    let created = create(&server, &job(json!({"now": true}), format!("{}/hang", hook.url)));
    eventually("the call", || (!hook.received().is_empty()).then_some(()));
    let (status, log) = server.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("\"released\":1") && log.contains("\"left\":0"), "{log}");
    let server = Server::start(&data);
    let run = runs_of(&server, &created).remove(0);
    assert!(run["state"] == "pending" || run["state"] == "running", "{run}");
    // It is tried again at once, as another attempt that counts like the first.
    eventually("the call again", || (hook.received().len() > 1).then_some(()));
    let detail = server.get(&format!("/v1/runs/{}", run["id"].as_str().unwrap()));
    let first = &detail["attempts"][0];
    assert!(first["outcome"].is_null() || first["outcome"] == "released", "{first}");
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let first = Server::start(&data);
    let log = Server::try_start(&data, &[]).err().unwrap();
    assert!(log.contains("in use") && log.contains(&first.pid().to_string()), "{log}");
}

#[test]
fn targets_that_are_not_ours_to_call_are_refused_when_registered() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_with(&directory.path().join("data"), &["--allow-loopback", "false"]);
    for url in
        ["http://127.0.0.1:8080/x", "http://169.254.169.254/latest", "http://[::1]/", "file:///etc/passwd"]
    {
        let answer = server.post("/v1/jobs", &job(json!({"now": true}), url.into()).to_string());
        assert_eq!(answer.status, 422, "{url}: {}", answer.body);
        let pointer = answer.json()["errors"][0]["pointer"].as_str().unwrap().to_owned();
        assert!(pointer.starts_with("/target/http"), "{}", answer.body);
    }
}

#[test]
fn the_same_request_twice_makes_one_job() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let body = job(json!({"at": "2099-01-01T00:00:00Z"}), "http://127.0.0.1:9000/x".into()).to_string();
    let send =
        |body: &str| call(server.address, "POST", "/v1/jobs", &[("idempotency-key", "k-1")], body).unwrap();
    let (first, second) = (send(&body), send(&body));
    assert_eq!((first.status, second.status), (201, 201));
    assert_eq!(first.json()["id"], second.json()["id"]);
    assert_eq!(send(&body.replace("a job", "another")).status, 422);
    assert_eq!(server.get("/v1/jobs")["items"].as_array().unwrap().len(), 1);
}

#[test]
fn settings_are_printed_as_a_file_that_sets_them() {
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_punctual"))
            .args(["serve", "--print-config"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("punctual.toml");
    std::fs::write(&file, run(&["--grace", "7", "--data", "elsewhere"])).unwrap();
    let again = run(&["--config", file.to_str().unwrap()]);
    assert!(again.contains("grace = 7") && again.contains("data = \"elsewhere\""), "{again}");
}
