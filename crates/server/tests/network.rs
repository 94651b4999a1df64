//! The router behind a real socket: who calls is known, and an import is answered while it is sent.
#![allow(clippy::unwrap_used, reason = "what is not there fails the test")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use punctual_api::health::{Check, Version};
use punctual_engine::{Engine, SystemClock, SystemEntropy};
use punctual_schedule::Tzdb;
use punctual_server::{Health, Limits, Loopback, State, router};
use punctual_store::Memory;

struct Well;

impl Health for Well {
    fn ready(&self) -> Vec<Check> {
        Vec::new()
    }
}

/// A server on a free port, for as long as the test runs.
fn serve() -> SocketAddr {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Arc::new(Memory::new(16));
            let (clock, entropy) = (Arc::new(SystemClock::default()), Arc::new(SystemEntropy));
            let state = State {
                engine: Engine::new(store, clock, entropy, Arc::new(Tzdb::bundled())),
                health: Arc::new(Well),
                access: Arc::new(Loopback),
                version: Version::default(),
                metrics: Arc::new(String::new),
                check_target: None,
                has_mail: false,
                limits: Limits::default(),
            };
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            let service = router(state).into_make_service_with_connect_info::<SocketAddr>();
            axum::serve(listener, service).await.unwrap();
        });
    });
    receiver.recv().unwrap()
}

fn exchange(at: SocketAddr, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let head = format!(
        "{head} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The other side may refuse and close before everything is sent.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = reader.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_person_on_this_machine_is_served() {
    let at = serve();
    let body = br#"{"schedule":{"every":"PT5S"},"target":{"discard":{}}}"#;
    let answer = exchange(at, "POST /v1/jobs", body);
    assert!(answer.starts_with("HTTP/1.1 201 Created"), "{answer}");
    assert!(exchange(at, "GET /v1/jobs", b"").contains("\"next_cursor\":null"));
}

/// A client that writes everything before it reads anything is not stuck.
#[test]
fn a_long_import_is_taken_from_a_client_that_does_not_read_yet() {
    let at = serve();
    let good = r#"{"name":"x","schedule":{"every":"PT1H"},"target":{"discard":{}}}"#;
    let lines: String =
        (0..40_000).map(|n| if n % 2 == 0 { format!("{good}\n") } else { "{}\n".into() }).collect();
    let answer = exchange(at, "POST /v1/jobs/import", lines.as_bytes());
    assert!(answer.contains(r#"{"summary":{"lines":40000,"created":20000,"repeated":0,"failed":20000}}"#));
}

#[test]
fn a_body_that_is_too_large_is_answered_and_not_cut_off() {
    let at = serve();
    for _ in 0..5 {
        let answer = exchange(at, "POST /v1/jobs", &vec![b'x'; 10 << 20]);
        assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{answer}");
    }
}
