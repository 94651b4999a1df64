//! How many jobs a second go through an import: the reading and the engine, with the reference store behind.
//!
//! `cargo bench -p punctual-server --bench import`
#![allow(clippy::unwrap_used, reason = "what is not there fails the benchmark")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::Request;
use http_body_util::channel::Channel;
use punctual_api::Rules;
use punctual_api::health::{Check, Version};
use punctual_api::job::{Purpose, read_job};
use punctual_engine::{Engine, SystemClock, SystemEntropy};
use punctual_schedule::Tzdb;
use punctual_server::{Health, Limits, Loopback, State, router};
use punctual_store::Memory;
use tower::ServiceExt;

struct Well;

impl Health for Well {
    fn ready(&self) -> Vec<Check> {
        Vec::new()
    }
}

const JOBS: usize = 200_000;

fn main() {
    let lines: Vec<String> = (0..JOBS).map(line).collect();
    let tzdb = Tzdb::bundled();
    let rules = Rules::new(&tzdb);
    let started = Instant::now();
    let read = lines.iter().filter(|line| read_job(line, Purpose::Create, &rules).is_ok()).count();
    report("read", read, started);

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (clock, entropy) = (Arc::new(SystemClock::default()), Arc::new(SystemEntropy));
        let state = State {
            engine: Engine::new(Arc::new(Memory::new(256)), clock, entropy, Arc::new(Tzdb::bundled())),
            health: Arc::new(Well),
            access: Arc::new(Loopback),
            version: Version::default(),
            metrics: Arc::new(String::new),
            check_target: None,
            has_mail: false,
            limits: Limits::default(),
        };
        let text = Bytes::from(lines.join("\n"));
        let (mut sender, channel) = Channel::<Bytes, std::convert::Infallible>::new(4);
        tokio::spawn(async move {
            for at in (0..text.len()).step_by(64 << 10) {
                sender.send_data(text.slice(at..text.len().min(at + (64 << 10)))).await.unwrap();
            }
        });
        let mut request =
            Request::post("/v1/jobs/import").header("host", "localhost").body(Body::new(channel)).unwrap();
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 1))));
        let started = Instant::now();
        let response = router(state).oneshot(request).await.unwrap();
        let answer = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let summary = String::from_utf8_lossy(&answer).lines().last().unwrap_or_default().to_string();
        assert!(summary.contains(&format!("\"created\":{JOBS}")), "{summary}");
        report("import", JOBS, started);
    });
}

fn line(n: usize) -> String {
    format!(
        r#"{{"name":"job {n}","key":"job-{n}","type":"report","schedule":{{"cron":"{} {} * * *","timezone":"Europe/Paris"}},"target":{{"http":{{"url":"http://127.0.0.1:9000/hook"}}}},"payload":{{"n":{n}}},"retry":{{"max_attempts":5}}}}"#,
        n % 60,
        n / 60 % 24
    )
}

fn report(what: &str, jobs: usize, started: Instant) {
    let seconds = started.elapsed().as_secs_f64();
    println!("{what:>8}: {:>9.0} jobs/s ({:.2} us each)", jobs as f64 / seconds, seconds * 1e6 / jobs as f64);
}
