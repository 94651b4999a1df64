//! What is told to stop, with the real binary: a request under way is broken off when its run is cancelled; a worker process, and a node,
//! that get SIGTERM lose nothing.

use std::io::Read as _;
use std::net::TcpListener;
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::support::hook::Hook;
use crate::support::program::{PATIENCE, Program, wait_until};
use crate::support::server::Server;

fn job(server: &Server, body: &Value) -> String {
    let answer = server.post("/v1/jobs", &body.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_string()
}

fn trigger(server: &Server, job: &str) -> String {
    let answer = server.post(&format!("/v1/jobs/{job}/trigger"), "");
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_string()
}

fn run(server: &Server, id: &str) -> Value {
    server.get(&format!("/v1/runs/{id}"))
}

#[test]
fn a_cancelled_run_breaks_its_request_off() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/never", listener.local_addr().unwrap());
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        while !text.windows(4).any(|four| four == b"\r\n\r\n") {
            let count = stream.read(&mut buffer).unwrap();
            text.extend_from_slice(&buffer[..count]);
        }
        tell.send("begun").unwrap();
        // Nobody answers: it ends when the caller goes.
        while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
        tell.send("broken off").unwrap();
    });
    let target = json!({"http": {"url": url}});
    let job = job(
        &server,
        &json!({"schedule": {"at": "2190-01-01T00:00:00Z"}, "target": target, "timeout": "PT1H"}),
    );
    let id = trigger(&server, &job);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "begun");
    assert_eq!(server.post(&format!("/v1/runs/{id}/cancel"), "").status, 200);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "broken off");
    wait_until("it is cancelled", || run(&server, &id)["state"] == "cancelled");
    assert_eq!(run(&server, &id)["attempt"], 1);
}

#[test]
fn a_cancelled_run_is_stopped_in_a_worker_process() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    for start in [Program::start, Program::start_grpc] {
        let worker = start(&server.url(), "stop");
        let target = json!({"worker": {"handler": "endless"}});
        let job = job(
            &server,
            &json!({"schedule": {"at": "2190-01-01T00:00:00Z"}, "queue": "stop", "target": target}),
        );
        let id = trigger(&server, &job);
        wait_until("it has begun", || run(&server, &id)["progress"]["percent"] == 1);
        assert_eq!(server.post(&format!("/v1/runs/{id}/cancel"), "").status, 200);
        wait_until("it is cancelled", || run(&server, &id)["state"] == "cancelled");
        worker.signal("TERM");
        assert!(worker.wait().success());
    }
}

#[test]
fn a_worker_process_that_gets_sigterm_ends_what_it_has_and_takes_nothing_more() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    for start in [Program::start, Program::start_grpc] {
        let target = json!({"worker": {"handler": "steps"}});
        let job = job(
            &server,
            &json!({"schedule": {"at": "2190-01-01T00:00:00Z"}, "queue": "drain", "target": target, "payload": {"steps": 20}}),
        );
        let first: Vec<String> = (0..5).map(|_| trigger(&server, &job)).collect();
        let worker = start(&server.url(), "drain");
        wait_until("all of them have begun", || {
            first.iter().all(|id| run(&server, id)["state"] != "pending")
        });
        worker.signal("TERM");
        assert!(worker.wait().success());
        for id in &first {
            let ended = run(&server, id);
            assert_eq!((&ended["state"], &ended["attempt"]), (&json!("succeeded"), &json!(1)), "{ended}");
        }
        assert_eq!(server.get("/v1/workers")["items"], json!([]), "it said that it goes");
        let later = trigger(&server, &job);
        assert_eq!(run(&server, &later)["state"], "pending");
        assert_eq!(server.post(&format!("/v1/runs/{later}/cancel"), "").status, 200);
    }
}

#[test]
fn a_node_that_gets_sigterm_under_load_loses_nothing_and_does_nothing_twice() {
    let data = tempfile::tempdir().unwrap();
    let hook = Hook::start();
    let mut server = Server::start_with(data.path(), &["--grace", "30"]);
    let target = json!({"http": {"url": format!("{}/slow", hook.url)}});
    let job = job(&server, &json!({"schedule": {"at": "2190-01-01T00:00:00Z"}, "target": target}));
    let mut runs = Vec::new();
    for _ in 0..2 {
        let before = hook.received().len();
        runs.extend((0..30).map(|_| trigger(&server, &job)));
        wait_until("some are under way", || hook.received().len() > before);
        let (status, log) = server.stop();
        assert!(status.success() && log.contains("\"left\":0"), "{log}");
        server = Server::start(data.path());
    }
    for id in &runs {
        wait_until("it has ended", || run(&server, id)["state"] == "succeeded");
    }
    let keys: std::collections::BTreeSet<String> =
        hook.received().iter().map(|one| one.headers["idempotency-key"].clone()).collect();
    assert_eq!((keys.len(), hook.received().len()), (runs.len(), runs.len()));
}
