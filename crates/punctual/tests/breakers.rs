//! Breakers with the real binary, on both stores: a target that fails is left alone and comes back, also through a kill; one that
//! never answers leaves room for others.

use crate::support::server;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use punctual_testing::Postgres;
use serde_json::Value;

use crate::support::hook::Hook;
use crate::support::server::{Server, command};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// A target that answers 503 until it is told to be well, and counts who asks.
#[derive(Clone)]
struct Unwell {
    host: String,
    is_well: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl Unwell {
    fn start() -> Unwell {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let unwell = Unwell { host, is_well: Arc::default(), asked: Arc::default() };
        let all = unwell.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = all.clone();
                std::thread::spawn(move || all.serve(stream));
            }
        });
        unwell
    }

    fn serve(&self, stream: TcpStream) {
        let Ok(mut output) = stream.try_clone() else { return };
        let mut input = BufReader::new(stream);
        loop {
            let (mut length, mut line) = (0, String::new());
            while input.read_line(&mut line).is_ok_and(|read| read > 2) {
                let header = line.to_ascii_lowercase();
                if let Some(value) = header.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap_or(0);
                }
                line.clear();
            }
            let mut body = vec![0; length];
            if line.is_empty() || input.read_exact(&mut body).is_err() {
                return;
            }
            self.asked.fetch_add(1, Ordering::SeqCst);
            let status = match self.is_well.load(Ordering::SeqCst) {
                true => "200 OK",
                false => "503 Service Unavailable",
            };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok");
            if output.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn register(server: &Server, schedule: &str, url: &str, policies: &str) -> String {
    let body = format!(
        r#"{{"schedule":{schedule},"target":{{"http":{{"url":"{url}"}}}},"retry":{{"max_attempts":30,"backoff":"fixed","base":"PT0.2S"}}{policies}}}"#
    );
    let answer = server.post("/v1/jobs", &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_string()
}

fn items(value: &Value) -> &[Value] {
    value["items"].as_array().unwrap()
}

fn state(server: &Server) -> String {
    let breakers = server.get("/v1/breakers");
    items(&breakers).first().map_or("closed".into(), |breaker| breaker["state"].as_str().unwrap().to_string())
}

fn punctual(server: &Server, arguments: &[&str]) -> String {
    let output = command().args(arguments).args(["--server", &server.url()]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_target_that_fails_is_left_alone_and_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    opens_and_closes(&|| Server::start(&data));
}

#[test]
fn a_target_that_fails_is_left_alone_and_comes_back_on_postgres() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    opens_and_closes(&|| Server::start_with(directory.path(), &["--store", &address, "--lease", "3"]));
}

fn opens_and_closes(start: &dyn Fn() -> Server) {
    let target = Unwell::start();
    let url = format!("http://{}/hook", target.host);
    let mut server = start();
    let jobs: Vec<String> = (0..3).map(|_| register(&server, r#"{"every":"PT1S"}"#, &url, "")).collect();
    wait_until("it opens", || state(&server) == "open");
    let listed = punctual(&server, &["breaker", "list"]);
    assert!(listed.contains(&format!("http {}", target.host)) && listed.contains("503"), "{listed}");
    // It is left alone: one asks now and then, and runs wait.
    wait_until("runs wait for it", || {
        let waiting = server.get("/v1/runs?waiting_for=limit&limit=1000");
        items(&waiting).iter().filter(|run| run["waiting_for"] == "breaker").count() >= 6
    });
    // The latest slot of a job may be the one that asks.
    let breaker = format!("the breaker of `http {}`", target.host);
    wait_until("a job says why", || {
        jobs.iter().any(|job| punctual(&server, &["job", "why", job]).contains(&breaker))
    });
    let (asked, slots) =
        (target.asked.load(Ordering::SeqCst), items(&server.get("/v1/runs?limit=1000")).len());
    wait_until("more slots", || items(&server.get("/v1/runs?limit=1000")).len() >= slots + 12);
    let since = target.asked.load(Ordering::SeqCst) - asked;
    assert!(since <= 6, "{since} asked while twelve more were to");
    // A kill does not close it.
    server.kill();
    server = start();
    // Somebody may be asking just now.
    let found = state(&server);
    assert!(["open", "half_open"].contains(&found.as_str()), "{found}");
    target.is_well.store(true, Ordering::SeqCst);
    wait_until("it closes", || state(&server) == "closed");
    for job in &jobs {
        assert_eq!(server.post(&format!("/v1/jobs/{job}/pause"), "").status, 200);
    }
    wait_until("everybody went on", || {
        ["pending", "running"]
            .iter()
            .all(|state| items(&server.get(&format!("/v1/runs?state={state}&limit=1000"))).is_empty())
    });
    let dead = server.get("/v1/runs?dead=true");
    assert!(items(&dead).is_empty(), "no retries were burnt: {dead:#}");
    let metrics = server::call(server.address, "GET", "/metrics", &[], "").unwrap().body;
    assert!(metrics.contains("punctual_breakers{state=\"open\"} 0"), "{metrics}");
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    // Step by step: how long each takes depends on how many wait, so the log is looked at, not the state.
    let more = log.find("breaker lets more through").unwrap_or_else(|| panic!("all at once: {log}"));
    assert!(log[more..].contains("breaker closed"), "{log}");
}

#[test]
fn a_target_that_never_answers_leaves_room_for_others() {
    let directory = tempfile::tempdir().unwrap();
    leaves_room(&Server::start_with(&directory.path().join("data"), &["--concurrency", "64"]));
}

#[test]
fn a_target_that_never_answers_leaves_room_for_others_on_postgres() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    leaves_room(&Server::start_with(directory.path(), &["--store", &address, "--concurrency", "64"]));
}

fn leaves_room(server: &Server) {
    let (hole, other) = (Hook::start(), Hook::start());
    for _ in 0..200 {
        register(server, r#"{"now":true}"#, &format!("{}/hang", hole.url), "");
    }
    wait_until("they hang, and it is noticed", || state(server) == "crowded");
    let job = register(server, r#"{"every":"PT1S"}"#, &format!("{}/ok", other.url), "");
    wait_until("the other has its slots", || other.received().len() >= 8);
    wait_until("they are recorded", || {
        let runs = server.get(&format!("/v1/jobs/{job}/runs?limit=1000"));
        items(&runs).iter().filter(|run| run["state"] == "succeeded").count() >= 8
    });
    let running = server.get("/v1/runs?state=running&limit=1000");
    let hanging = items(&running).iter().filter(|run| run["job_id"] != *job).count();
    assert!((1..=48).contains(&hanging), "{hanging} hang");
    let breakers = server.get("/v1/breakers");
    assert_eq!(items(&breakers).len(), 1, "{breakers:#}");
    assert_eq!(items(&breakers)[0]["name"], format!("http {}", hole.url.trim_start_matches("http://")));
    // By hand all of it may go on; and it hangs again.
    let name = items(&breakers)[0]["name"].as_str().unwrap().to_string();
    punctual(server, &["breaker", "reset", &name]);
    wait_until("the other goes on", || other.received().len() >= 11);
}
