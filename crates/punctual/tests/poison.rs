//! A run that kills its worker, among many others, with the real binary on both stores: the worker is a process that dies by SIGKILL
//! whenever it handles that run. Only that run ends as a dead letter.

use std::path::Path;

use punctual_testing::Postgres;
use serde_json::{Value, json};

use crate::support::program::{Program, wait_until};
use crate::support::server::{Server, command};

const NEIGHBOURS: usize = 30;

fn job(server: &Server, payload: &str) -> String {
    let body = json!({"schedule": {"at": "2190-01-01T00:00:00Z"}, "queue": "mail", "payload": payload,
        "target": {"worker": {"handler": "poison"}}});
    let answer = server.post("/v1/jobs", &body.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_string()
}

fn trigger(server: &Server, job: &str) -> String {
    let answer = server.post(&format!("/v1/jobs/{job}/trigger"), "");
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_string()
}

fn only_the_poison_dies(data: &Path, arguments: &[&str], start: fn(&str, &str) -> Program) {
    let arguments: Vec<&str> = [arguments, &["--lease", "3"]].concat();
    let server = Server::start_with(data, &arguments);
    let (plain, poison) = (job(&server, "plain"), job(&server, "poison"));
    let mut neighbours: Vec<String> = (0..NEIGHBOURS / 2).map(|_| trigger(&server, &plain)).collect();
    let poisonous = trigger(&server, &poison);
    neighbours.extend((0..NEIGHBOURS / 2).map(|_| trigger(&server, &plain)));
    let run = |id: &str| -> Value { server.get(&format!("/v1/runs/{id}")) };
    let mut worker = start(&server.url(), "mail");
    let (mut deaths, mut was_alone) = (0, false);
    wait_until("the poison is a dead letter", || {
        if worker.ended().is_some() {
            deaths += 1;
            worker = start(&server.url(), "mail");
        }
        let seen = run(&poisonous);
        was_alone |= seen["is_tried_alone"] == true;
        seen["state"] == "failed"
    });
    wait_until("all others have ended", || neighbours.iter().all(|id| run(id)["state"] == "succeeded"));
    let dead = run(&poisonous);
    let codes: Vec<&Value> =
        dead["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["error"]["code"]).collect();
    assert_eq!(codes, vec!["lost"; 5], "{dead}");
    assert!(was_alone && deaths == 5, "it died {deaths} times: {dead}");
    let letters = server.get("/v1/dead-letters");
    let ids: Vec<&Value> = letters["items"].as_array().unwrap().iter().map(|letter| &letter["id"]).collect();
    assert_eq!(ids, [&json!(poisonous)]);
    for id in &neighbours {
        let lost = run(id)["attempts"].as_array().unwrap().len() - 1;
        assert!(lost <= 3, "a neighbour was lost {lost} times");
    }
    let shown = command().args(["run", "get", &poisonous, "--server", &server.url()]).output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains("lost"));
    server.stop();
}

#[test]
fn a_run_that_kills_its_worker_dies_alone() {
    let data = tempfile::tempdir().unwrap();
    only_the_poison_dies(data.path(), &[], Program::start);
}

#[test]
fn a_run_that_kills_its_worker_dies_alone_over_grpc_on_postgres() {
    let (address, data) = (Postgres::shared().database(), tempfile::tempdir().unwrap());
    only_the_poison_dies(data.path(), &["--store", &address], Program::start_grpc);
}
