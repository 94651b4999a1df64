//! Limits through a hundred kills, with the real binary: never more run at once than are allowed, and in the end nobody holds a
//! permit and nobody waits for one.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_store_postgres::{Options, check};
use punctual_testing::Postgres;
use serde_json::Value;

use crate::support::hook::Hook;
use crate::support::server::Server;

const KILLS: usize = 100;

/// Each takes as long as a lease.
const KILLS_ON_POSTGRES: usize = 6;

/// Two customers with two jobs each, one run of each customer at once, three of all.
const JOBS: [(&str, &str); 4] = [("acme", "/slow"), ("acme", "/fail"), ("other", "/slow"), ("other", "/ok")];

#[test]
fn permits_are_as_many_as_their_holders_after_a_hundred_kills() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    kill_and_count(KILLS, 40..160, &|| Server::start(&data));
    let checked = punctual_store_embedded::check(&data, Timestamp::now()).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
}

#[test]
fn permits_are_as_many_as_their_holders_after_kills_on_postgres() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    kill_and_count(KILLS_ON_POSTGRES, 300..2_000, &|| {
        Server::start_with(directory.path(), &["--store", &address, "--lease", "3"])
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let checked = runtime.block_on(check(&Options::new(address), Timestamp::now())).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
}

fn kill_and_count(kills: usize, alive_ms: std::ops::Range<u64>, start: &dyn Fn() -> Server) {
    let hook = Hook::start();
    let mut server = start();
    let jobs: Vec<Value> = JOBS
        .iter()
        .map(|(customer, path)| register(&server, customer, &format!("{}{path}", hook.url)))
        .collect();
    let mut random = fastrand::Rng::with_seed(19);
    for _ in 0..kills {
        // The moment is the point: anything may be under way.
        std::thread::sleep(Duration::from_millis(random.u64(alive_ms.clone())));
        let running = server.get("/v1/runs?state=running");
        assert!(running["items"].as_array().unwrap().len() <= 2, "one of each customer: {running}");
        server.kill();
        server = start();
    }
    for job in &jobs {
        assert_eq!(server.post(&format!("/v1/jobs/{}/pause", job["id"].as_str().unwrap()), "").status, 200);
    }
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        let open = |state: &str| server.get(&format!("/v1/runs?limit=1000&state={state}"))["items"].clone();
        let (pending, running) = (open("pending"), open("running"));
        let count = |list: &Value| list.as_array().unwrap().len();
        if count(&pending) + count(&running) == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{} wait: {pending:#}", count(&pending));
        std::thread::sleep(Duration::from_millis(200));
    }
    // What was given back can be taken again.
    let again = server.post(&format!("/v1/jobs/{}/trigger", jobs[3]["id"].as_str().unwrap()), "");
    assert_eq!(again.status, 201, "{}", again.body);
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
}

fn register(server: &Server, customer: &str, url: &str) -> Value {
    let body = format!(
        r#"{{"schedule":{{"every":"PT1S"}},"target":{{"http":{{"url":"{url}"}}}},"payload":{{"customer":"{customer}"}},
            "retry":{{"max_attempts":2,"backoff":"fixed","base":"PT0.2S"}},"start_window":"PT10S",
            "concurrency":{{"max":1,"key":"{{payload.customer}}","across":"tenant"}}}}"#
    );
    let answer = server.post("/v1/jobs", &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()
}
