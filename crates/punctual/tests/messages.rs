//! Dead letters that are told, end to end: the real binary on both stores, a job that fails and a receiver that hears of it.

use std::path::Path;
use std::time::{Duration, Instant};

use punctual_testing::Postgres;
use serde_json::Value;

use crate::support::hook::{Hook, Received};
use crate::support::server::{Server, command};

#[test]
fn a_receiver_hears_of_every_dead_letter_once() {
    let directory = tempfile::tempdir().unwrap();
    tell(directory.path(), &["--log", "warn"]);
}

#[test]
fn a_receiver_hears_of_every_dead_letter_once_on_postgres() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    tell(directory.path(), &["--log", "warn", "--store", &address]);
}

fn tell(data: &Path, arguments: &[&str]) {
    let hook = Hook::start();
    let server = Server::start_with(data, arguments);
    let says = |arguments: &[&str]| -> String {
        let output = command().args(arguments).args(["--server", &server.url()]).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let (fails, dead) = (format!("{}/fail", hook.url), format!("{}/dead", hook.url));
    let create = [
        "job",
        "create",
        "invoices",
        "--now",
        "--url",
        &fails,
        "--dead-letter-url",
        &dead,
        "--max-attempts",
        "2",
        "--retry-base",
        "100ms",
        "--payload",
        r#"{"customer": "acme"}"#,
        "--key",
        "invoices",
        "-o",
        "json",
    ];
    let job: Value = serde_json::from_str(&says(&create)).unwrap();
    assert_eq!(job["dead_letter_target"]["http"]["url"], dead.as_str());
    assert!(says(&["job", "get", "key:invoices"]).contains(&format!("told to POST {dead}")));
    let heard = |count: usize| -> Vec<Received> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let heard: Vec<Received> =
                hook.received().into_iter().filter(|received| received.path == "/dead").collect();
            if heard.len() >= count {
                return heard;
            }
            assert!(Instant::now() < deadline, "{} of {count} heard: {:?}", heard.len(), hook.received());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let first = heard(1).remove(0);
    let told: Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!((&told["kind"], &told["job"]["key"]), (&"dead_letter".into(), &"invoices".into()));
    assert_eq!((&told["run"]["attempts"], &told["status"]), (&2.into(), &500.into()), "{told}");
    assert_eq!((&told["error"]["code"], &told["output"]["text"]), (&"http_status".into(), &"ok".into()));
    assert_eq!(told["payload"]["customer"], "acme");
    assert!(first.headers.contains_key("webhook-signature"), "signed like any callback: {:?}", first.headers);
    assert_ne!(first.headers["idempotency-key"], told["run"]["idempotency_key"].as_str().unwrap());
    // Redriven, it dies again and is told again, for itself.
    let run = told["run"]["id"].as_str().unwrap();
    says(&["run", "retry", run]);
    let both = heard(2);
    let again: Value = serde_json::from_str(&both[1].body).unwrap();
    assert_eq!(again["run"]["id"], told["run"]["id"]);
    assert!(again["run"]["attempts"].as_u64().unwrap() > 2, "{again}");
    assert_ne!(both[0].headers["idempotency-key"], both[1].headers["idempotency-key"]);
    // Nobody is told any more.
    says(&["job", "update", "key:invoices", "--dead-letter-url", "off"]);
    assert!(says(&["job", "get", "key:invoices"]).contains("told to nobody"));
    let messages = server.get("/v1/runs?type=system.dead-letter");
    let states: Vec<&Value> = messages["items"].as_array().unwrap().iter().map(|run| &run["state"]).collect();
    assert_eq!(states.len(), 2, "{messages}");
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    assert_eq!(heard(2).len(), 2, "each once");
}
