//! A hundred thousand dead letters redriven through a kill -9, with the real binary: each goes on once, and all of them end well.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_testing::Postgres;
use serde_json::Value;

use crate::support::server::Server;

const LETTERS: u64 = 100_000;

/// Lines of one import.
const LINES: u64 = 20_000;

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(1_800);

#[test]
fn a_hundred_thousand_dead_letters_through_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    redrive(&|| Server::start(&data));
    let checked = punctual_store_embedded::check(&data, Timestamp::now()).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
}

#[test]
fn a_hundred_thousand_dead_letters_through_a_kill_on_postgres() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    redrive(&|| Server::start_with(directory.path(), &["--store", &address, "--lease", "3"]));
}

fn redrive(start: &dyn Fn() -> Server) {
    let target = Target::start();
    let server = start();
    for _ in 0..LETTERS / LINES {
        let line = format!(
            r#"{{"schedule":{{"now":true}},"retry":{{"max_attempts":1}},"target":{{"http":{{"url":"http://{}/"}}}}}}"#,
            target.host
        );
        let answer = server.post("/v1/jobs/import", &format!("{line}\n").repeat(LINES as usize));
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    wait_until("all have failed", || is_idle(&server) && count(&server, "failed") == LETTERS);
    target.is_well.store(true, Ordering::SeqCst);
    let answer = server.post("/v1/dead-letters/redrive", r#"{"filter":{}}"#);
    assert_eq!(answer.status, 202, "{}", answer.body);
    let path = format!("/v1/operations/{}", answer.json()["id"].as_str().unwrap());
    wait_until("some have gone on", || server.get(&path)["done"].as_u64().unwrap() > LETTERS / 20);
    let done = server.get(&path)["done"].as_u64().unwrap();
    server.kill();
    assert!(done < LETTERS, "it was killed in the middle");
    let server = start();
    wait_until("it goes on where it was", || server.get(&path)["state"] != "running");
    let operation = server.get(&path);
    assert_eq!(
        (&operation["state"], &operation["done"], &operation["failed"]),
        (&Value::from("succeeded"), &Value::from(LETTERS), &Value::from(0)),
        "each of them once: {operation}"
    );
    wait_until("all have ended", || is_idle(&server));
    assert_eq!(count(&server, "succeeded"), LETTERS);
    assert_eq!(server.get("/v1/dead-letters?limit=1")["items"], Value::Array(Vec::new()));
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
}

/// Whether nothing waits or runs; looked at first, because it costs little.
fn is_idle(server: &Server) -> bool {
    let is_none =
        |state| server.get(&format!("/v1/runs?state={state}&limit=1"))["items"] == Value::Array(Vec::new());
    is_none("pending") && is_none("running")
}

/// How many runs are in a state.
fn count(server: &Server, state: &str) -> u64 {
    let (mut count, mut cursor) = (0, String::new());
    loop {
        let page = server.get(&format!("/v1/runs?state={state}&limit=1000{cursor}"));
        count += page["items"].as_array().unwrap().len() as u64;
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return count,
        }
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A target that answers 500 until it is told to be well.
struct Target {
    host: String,
    is_well: Arc<AtomicBool>,
}

impl Target {
    fn start() -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let is_well = Arc::new(AtomicBool::new(false));
        let target = Target { host, is_well: Arc::clone(&is_well) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let is_well = Arc::clone(&is_well);
                std::thread::spawn(move || serve(stream, &is_well));
            }
        });
        target
    }
}

fn serve(stream: TcpStream, is_well: &AtomicBool) {
    let Ok(mut output) = stream.try_clone() else { return };
    let mut input = BufReader::new(stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        while input.read_line(&mut line).is_ok_and(|read| read > 2) {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        if line.is_empty() || input.read_exact(&mut vec![0; length]).is_err() {
            return;
        }
        let status = if is_well.load(Ordering::SeqCst) { "200 OK" } else { "500 Internal Server Error" };
        if write!(output, "HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}
