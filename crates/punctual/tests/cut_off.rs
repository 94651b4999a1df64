//! Workers that are cut off, with the real binary: frozen by SIGSTOP, or behind a connection that is cut. Shorter than a lease that
//! means nothing; longer, the run is another's, and what comes late is refused.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::program::Program;
use crate::support::proxy::Proxy;
use crate::support::puller::{Puller, wait_until};
use crate::support::server::Server;

/// Where a child finds its server, and where it says what it was given and answered; a test that finds none is not a child.
const SERVER: &str = "PUNCTUAL_CHILD_PULLS";
const FOLDER: &str = "PUNCTUAL_CHILD_FOLDER";

/// Takes a run, lists it until it is told to report, and keeps the answer.
#[test]
fn child_reports_when_it_is_told() {
    let Ok(address) = std::env::var(SERVER) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let mut worker = Puller::at(address.parse().unwrap(), "cut");
    let held = worker.next();
    write(&folder, "held", &held);
    while !folder.join("go").exists() {
        // Whatever the answer is: it does not know better.
        let _ = worker.beat(&[&held], &json!({}));
        std::thread::sleep(Duration::from_millis(200));
    }
    write(&folder, "answer", &worker.report(&held, "succeeded"));
}

/// In one piece.
fn write(folder: &Path, name: &str, value: &Value) {
    std::fs::write(folder.join("new"), value.to_string()).unwrap();
    std::fs::rename(folder.join("new"), folder.join(name)).unwrap();
}

fn read(folder: &Path, name: &str) -> Value {
    wait_until("what a child says", || folder.join(name).exists());
    serde_json::from_str(&std::fs::read_to_string(folder.join(name)).unwrap()).unwrap()
}

fn run_of(server: &Server, handler: &str, payload: &Value) -> String {
    let body = json!({"schedule": {"at": "2190-01-01T00:00:00Z"}, "queue": "cut", "timeout": "PT1H", "payload": payload,
        "target": {"worker": {"handler": handler}}});
    let job = server.post("/v1/jobs", &body.to_string());
    assert_eq!(job.status, 201, "{}", job.body);
    let run = server.post(&format!("/v1/jobs/{}/trigger", job.json()["id"].as_str().unwrap()), "");
    assert_eq!(run.status, 201, "{}", run.body);
    run.json()["id"].as_str().unwrap().to_string()
}

fn run(server: &Server, id: &str) -> Value {
    server.get(&format!("/v1/runs/{id}"))
}

#[test]
fn what_a_frozen_worker_reports_is_refused_when_the_run_has_ended_elsewhere() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start_with(data.path(), &["--lease", "3"]);
    let id = run_of(&server, "quick", &json!(7));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cut_off::child_reports_when_it_is_told", "--nocapture"])
        .env(SERVER, server.address.to_string())
        .env(FOLDER, folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let signal = |name: &str| {
        let status = Command::new("kill").args([name, &child.id().to_string()]).status();
        assert!(status.unwrap().success());
    };
    assert_eq!(read(folder.path(), "held")["attempt"], 1);
    signal("-STOP");
    let _other = Program::start(&server.url(), "cut");
    wait_until("it ends elsewhere", || run(&server, &id)["state"] == "succeeded");
    std::fs::write(folder.path().join("go"), "").unwrap();
    signal("-CONT");
    let answer = read(folder.path(), "answer");
    assert!(child.wait().unwrap().success());
    let problem = &answer["problem"];
    assert_eq!((&problem["code"], &problem["status"]), (&json!("lease_lost"), &json!(409)), "{answer}");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("attempt 1")), "{answer}");
    let ended = run(&server, &id);
    assert_eq!((&ended["state"], &ended["attempt"]), (&json!("succeeded"), &json!(2)), "{ended}");
    assert_eq!(ended["attempts"][0]["error"]["code"], "lost", "{ended}");
    assert_eq!(ended["attempts"][1]["output"]["text"], "did 7", "{ended}");
}

#[test]
fn a_cut_that_is_shorter_than_the_lease_gives_the_run_to_nobody_else() {
    let data = tempfile::tempdir().unwrap();
    // Longer than the cut, however busy the machine is.
    let server = Server::start_with(data.path(), &["--lease", "60"]);
    let proxies = [0, 1].map(|_| Proxy::start(vec![server.address]));
    let runs = [0, 1].map(|_| run_of(&server, "steps", &json!({"steps": 80})));
    let _workers = [Program::start(&proxies[0].url(), "cut"), Program::start_grpc(&proxies[1].url(), "cut")];
    wait_until("both are under way", || runs.iter().all(|id| run(&server, id)["state"] == "running"));
    for _ in 0..2 {
        proxies.iter().for_each(Proxy::cut);
        std::thread::sleep(Duration::from_millis(1_500));
        proxies.iter().for_each(Proxy::mend);
        std::thread::sleep(Duration::from_millis(500));
    }
    for id in &runs {
        wait_until("it has ended", || run(&server, id)["state"] == "succeeded");
        let ended = run(&server, id);
        assert_eq!(
            (&ended["attempt"], &ended["attempts"][0]["output"]["text"]),
            (&json!(1), &json!("0 to 80"))
        );
    }
}

#[test]
fn a_cut_that_is_longer_than_the_lease_gives_the_run_to_another_and_refuses_what_comes_late() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start_with(data.path(), &["--lease", "3"]);
    let proxy = Proxy::start(vec![server.address]);
    let id = run_of(&server, "quick", &json!(1));
    let mut cut_off = Puller::at(proxy.address, "cut");
    let held = cut_off.next();
    proxy.cut();
    let mut other = Puller::new(&server, "cut");
    let again = other.next();
    assert_eq!((&again["run_id"], &again["attempt"]), (&json!(id), &json!(2)));
    assert_eq!(other.report(&again, "succeeded")["state"], "succeeded");
    proxy.mend();
    assert_eq!(cut_off.report(&held, "failed")["problem"]["code"], "lease_lost");
    let (status, lost) = cut_off.beat(&[&held], &json!({}));
    assert_eq!((status, &lost["code"]), (409, &json!("worker_lost")), "{lost}");
    assert_eq!(run(&server, &id)["state"], "succeeded");
}
