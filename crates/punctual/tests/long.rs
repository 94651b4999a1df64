//! Runs that last many leases, on three nodes and PostgreSQL: they go on through restarts of every node, one after the other and all at
//! once, and through the death of their worker where they were.

use std::path::Path;

use punctual_testing::Postgres;
use serde_json::{Value, json};

use crate::support::program::{Program, wait_until};
use crate::support::proxy::Proxy;
use crate::support::server::{Server, call};

/// The shortest lease there is, in seconds.
const LEASE: u64 = 3;

/// Of a tenth of a second each: more than fifty leases.
const STEPS: u64 = 51 * LEASE * 10;

/// Three nodes of one database.
struct Cluster {
    nodes: Vec<Server>,
    arguments: Vec<String>,
    _data: tempfile::TempDir,
}

impl Cluster {
    fn start(lease: u64) -> Cluster {
        let data = tempfile::tempdir().unwrap();
        let arguments =
            ["--store", &Postgres::shared().database(), "--lease", &lease.to_string()].map(String::from);
        let start = |_| Server::start_with(data.path(), &arguments.each_ref().map(String::as_str));
        Cluster { nodes: (0..3).map(start).collect(), arguments: arguments.into(), _data: data }
    }

    fn proxy(&self) -> Proxy {
        Proxy::start(self.nodes.iter().map(|node| node.address).collect())
    }

    /// A node again, on the port that it had.
    fn launch(&self, port: u16) -> Server {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        Server::launch(port, Path::new(self._data.path()), &arguments)
    }

    fn wait_until_ready(&self) {
        for node in &self.nodes {
            wait_until("a node is back", || {
                call(node.address, "GET", "/readyz", &[], "").is_ok_and(|answer| answer.status == 200)
            });
        }
    }
}

/// A run of so many steps.
fn run_of(server: &Server, steps: u64) -> String {
    let body = json!({"schedule": {"at": "2190-01-01T00:00:00Z"}, "queue": "long", "timeout": "PT1H",
        "payload": {"steps": steps}, "target": {"worker": {"handler": "steps"}}});
    let job = server.post("/v1/jobs", &body.to_string());
    assert_eq!(job.status, 201, "{}", job.body);
    let run = server.post(&format!("/v1/jobs/{}/trigger", job.json()["id"].as_str().unwrap()), "");
    assert_eq!(run.status, 201, "{}", run.body);
    run.json()["id"].as_str().unwrap().to_string()
}

fn run(server: &Server, id: &str) -> Value {
    server.get(&format!("/v1/runs/{id}"))
}

fn percent(server: &Server, id: &str) -> u64 {
    run(server, id)["progress"]["percent"].as_u64().unwrap_or(0)
}

/// The step that it began with, and the last one.
fn steps(ended: &Value) -> (u64, u64) {
    let attempts = ended["attempts"].as_array().unwrap();
    let text = attempts.last().unwrap()["output"]["text"].as_str().unwrap();
    let (from, to) = text.split_once(" to ").unwrap();
    (from.parse().unwrap(), to.parse().unwrap())
}

#[test]
fn a_run_of_fifty_leases_goes_on_through_a_restart_of_every_node_and_the_death_of_its_worker() {
    let mut cluster = Cluster::start(LEASE);
    let proxy = cluster.proxy();
    let id = run_of(&cluster.nodes[0], STEPS);
    let worker = Program::start(&proxy.url(), "long");
    for turn in 0..3 {
        let known = (10 + 10 * turn as u64).max(percent(&cluster.nodes[0], &id));
        let node = cluster.nodes.remove(0);
        let port = node.address.port();
        let (status, log) = node.stop();
        assert!(status.success(), "{log}");
        let again = cluster.launch(port);
        cluster.nodes.push(again);
        cluster.wait_until_ready();
        wait_until("it goes on", || percent(&cluster.nodes[0], &id) > known);
    }
    let seen = run(&cluster.nodes[0], &id);
    assert_eq!(seen["state"], "running", "{seen}");
    let attempt = seen["attempt"].as_u64().unwrap();
    let known = percent(&cluster.nodes[0], &id);
    worker.kill();
    let _other = Program::start(&proxy.url(), "long");
    wait_until("another worker goes on", || run(&cluster.nodes[0], &id)["attempt"].as_u64() > Some(attempt));
    wait_until("it has ended", || run(&cluster.nodes[0], &id)["state"] != "running");
    let ended = run(&cluster.nodes[0], &id);
    assert_eq!(ended["state"], "succeeded", "{ended}");
    let (from, to) = steps(&ended);
    assert!(to == STEPS && from * 100 / STEPS + 5 >= known, "it went on at {from}, after {known} %: {ended}");
}

#[test]
fn the_same_attempts_end_though_all_nodes_are_restarted_at_once() {
    // Longer than a restart of all of them takes on a busy machine.
    let mut cluster = Cluster::start(60);
    let proxy = cluster.proxy();
    let runs: Vec<String> = (0..6).map(|_| run_of(&cluster.nodes[0], 300)).collect();
    let _workers = [Program::start(&proxy.url(), "long"), Program::start_grpc(&proxy.url(), "long")];
    wait_until("all of them are under way", || {
        runs.iter().all(|id| run(&cluster.nodes[0], id)["state"] == "running")
    });
    let ports: Vec<u16> = cluster.nodes.iter().map(|node| node.address.port()).collect();
    cluster.nodes.iter().for_each(|node| node.signal("TERM"));
    for node in std::mem::take(&mut cluster.nodes) {
        let (status, log) = node.wait();
        assert!(status.success(), "{log}");
    }
    cluster.nodes = ports.into_iter().map(|port| cluster.launch(port)).collect();
    cluster.wait_until_ready();
    for id in &runs {
        wait_until("it has ended", || run(&cluster.nodes[0], id)["state"] == "succeeded");
        let ended = run(&cluster.nodes[0], id);
        assert_eq!((&ended["attempt"], steps(&ended)), (&json!(1), (0, 300)), "{ended}");
    }
}
