//! Tenants with the real binary, on a data directory and on two nodes: quotas hold, a suspended one does nothing on any node and every slot of
//! it is accounted for, a deleted one loses its jobs in the background.

use std::time::{Duration, Instant};

use punctual_testing::Postgres;
use serde_json::{Value, json};

use crate::support::server::{Answer, Server, call, command};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(120);

const ACME: [(&str, &str); 1] = [("punctual-tenant", "acme")];

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_tenant_is_bounded_suspended_and_deleted_in_a_data_directory() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    story(&server, &server);
    assert!(server.stop().0.success());
}

#[test]
fn a_tenant_is_bounded_suspended_and_deleted_on_two_nodes() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    let start = |name: &str| Server::start_with(&directory.path().join(name), &["--store", &address]);
    let (one, other) = (start("one"), start("other"));
    story(&one, &other);
    assert!(one.stop().0.success() && other.stop().0.success());
}

/// Asked of one node, seen at the other.
fn story(one: &Server, other: &Server) {
    punctual(one, &["tenant", "create", "acme"], 0);
    punctual(one, &["tenant", "quotas", "acme", "--jobs", "1", "--concurrency", "5"], 0);
    let shown = punctual(other, &["tenant", "quotas", "acme"], 0);
    assert!(shown.contains("concurrency") && shown.contains('5'), "{shown}");
    let job = json!({"schedule": {"cron": "* * * * * *"}, "target": {"discard": {}}}).to_string();
    let made = of_acme(one, "POST", "/v1/jobs", &job);
    assert_eq!(made.status, 201, "{}", made.body);
    let path = format!("/v1/jobs/{}", made.json()["id"].as_str().unwrap());
    let refused = of_acme(one, "POST", "/v1/jobs", &job);
    assert_eq!(
        (refused.status, refused.json()["code"].as_str()),
        (403, Some("quota_exceeded")),
        "{}",
        refused.body
    );
    wait_until("a slot runs", || !items(other, &format!("{path}/runs?state=succeeded")).is_empty());

    punctual(one, &["tenant", "suspend", "acme", "--reason", "unpaid"], 0);
    wait_until("the other node refuses, too", || {
        let answer = of_acme(other, "POST", &format!("{path}/trigger"), "");
        answer.status == 403 && answer.body.contains("unpaid")
    });
    wait_until("slots are accounted for", || throttled(other, &path) >= 2);
    let runs = items(other, &format!("{path}/runs?limit=1000")).len();
    let slots = throttled(other, &path);
    wait_until("more of them", || throttled(other, &path) >= slots + 2);
    assert_eq!(items(other, &format!("{path}/runs?limit=1000")).len(), runs, "no run was born");
    let said = punctual(other, &["tenant", "get", "acme"], 0);
    assert!(said.contains("suspended") && said.contains("unpaid"), "{said}");

    punctual(other, &["tenant", "resume", "acme"], 0);
    wait_until("the slots to come run", || items(one, &format!("{path}/runs?limit=1000")).len() > runs);
    let used = punctual(other, &["tenant", "usage", "acme", "-o", "json"], 0);
    let used: Value = serde_json::from_str(&used).unwrap();
    assert_eq!((&used["jobs"], &used["quotas"]["jobs"]), (&1.into(), &1.into()), "{used}");

    let asked = punctual(one, &["tenant", "delete", "acme"], 2);
    assert!(asked.contains("--yes"), "{asked}");
    punctual(one, &["tenant", "delete", "acme", "--yes"], 0);
    wait_until("its jobs are gone", || items(other, "/v1/jobs").is_empty());
    let again = punctual(one, &["tenant", "create", "acme"], 4);
    assert!(again.contains("was deleted"), "{again}");
    assert!(!punctual(other, &["tenant", "list"], 0).contains("acme"));
}

fn of_acme(server: &Server, method: &str, path: &str, body: &str) -> Answer {
    call(server.address, method, path, &ACME, body).unwrap()
}

fn items(server: &Server, path: &str) -> Vec<Value> {
    let answer = of_acme(server, "GET", path, "");
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()["items"].as_array().unwrap().clone()
}

/// Slots that were throttled because the tenant was suspended.
fn throttled(server: &Server, path: &str) -> u64 {
    let entries = items(server, &format!("{path}/ledger"));
    let suspended = entries.iter().filter(|entry| entry["reason"] == "tenant_suspended");
    suspended.map(|entry| entry["slots"].as_u64().unwrap()).sum()
}

/// What a command says that ends like this.
fn punctual(server: &Server, arguments: &[&str], code: i32) -> String {
    let output = command().args(arguments).args(["--server", &server.url()]).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said
}
