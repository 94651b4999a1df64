//! A server without a network: requests go to the router, runs are fired and ended by hand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{HeaderMap, Request, StatusCode};
use jiff::{SignedDuration, Timestamp};
use punctual_api::health::{Check, Version};
use punctual_api::read::CheckTarget;
use punctual_domain::Note;
use punctual_domain::attempt::{Failure, Outcome, Output, Report};
use punctual_domain::id::WorkerId;
use punctual_domain::key::Seal;
use punctual_domain::papers::{Line, Progress};
use punctual_domain::run::Run;
use punctual_domain::work::Finished;
use punctual_engine::fire::Epochs;
use punctual_engine::{Clock, Engine, Entropy, ManualClock};
use punctual_schedule::Tzdb;
use punctual_server::{Access, Caller, Editor, Health, Keys, Limits, Loopback, Role, State, router};
use punctual_store::{Claim, DueQuery, Memory, Shards, Store};
use serde_json::Value;
use tower::ServiceExt;

#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Entropy for Counter {
    fn bits(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn secret(&self) -> std::io::Result<[u8; 32]> {
        Ok([self.bits() as u8; 32])
    }
}

#[derive(Debug, Default)]
pub(crate) struct Draining(pub(crate) AtomicBool);

impl Health for Draining {
    fn ready(&self) -> Vec<Check> {
        let is_ok = !self.0.load(Ordering::Relaxed);
        let store = Check { name: "store".into(), is_ok: true, detail: None };
        vec![store, Check { name: "draining".into(), is_ok, detail: Some("told to stop".into()) }]
    }
}

/// Whoever calls has this role.
struct Fixed(Caller);

impl Access for Fixed {
    fn caller(&self, _: Option<SocketAddr>, _: &HeaderMap) -> Result<Caller, punctual_server::Denied> {
        Ok(self.0.clone())
    }
}

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) health: Arc<Draining>,
    store: Arc<Memory>,
    epochs: Epochs,
    router: Router,
    worker: WorkerId,
}

/// An answer, read whole.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The status and the code of a problem.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
        let json = self.json();
        assert_eq!(json["status"], self.status.as_u16(), "{json}");
        assert!(json["type"].as_str().unwrap().starts_with("urn:punctual:problem:"), "{json}");
        (self.status.as_u16(), json["code"].as_str().unwrap().to_string())
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        if self.text.is_empty() { Value::Null } else { self.json() }
    }
}

pub(crate) fn at(time: &str) -> Timestamp {
    format!("2026-01-01T{time}Z").parse().unwrap()
}

impl World {
    pub(crate) async fn new() -> Self {
        World::with(|_| Arc::new(Loopback)).await
    }

    /// A world in which every caller has this role.
    pub(crate) async fn of_role(role: Role, tenant: Option<&str>) -> Self {
        let tenant = tenant.map(|name| name.parse().unwrap());
        World::with(|_| Arc::new(Fixed(Caller::new(role, tenant)))).await
    }

    /// A world in which keys count, as soon as there is one.
    pub(crate) async fn of_keys() -> Self {
        let world = World::with(|engine| Arc::new(Keys(engine.clone()))).await;
        world.engine.read_keys().await.unwrap();
        world
    }

    /// A world in which a caller may make so many requests a second.
    pub(crate) async fn of_rate(requests_per_second: u32) -> Self {
        let limits = Limits { requests_per_second, ..Limits::default() };
        World::with_limits(|_| Arc::new(Loopback), limits).await
    }

    async fn with(access: impl FnOnce(&Engine) -> Arc<dyn Access>) -> Self {
        World::with_limits(access, Limits::default()).await
    }

    async fn with_limits(access: impl FnOnce(&Engine) -> Arc<dyn Access>, limits: Limits) -> Self {
        let store = Arc::new(Memory::new(16));
        let clock = Arc::new(ManualClock::new(at("12:00:00")));
        let entropy = Arc::new(Counter::default());
        let engine = Engine::new(store.clone(), clock.clone(), entropy, Arc::new(Tzdb::bundled()));
        let check_target: Arc<CheckTarget> = Arc::new(|target| match target {
            punctual_domain::Target::Http(http) if http.url.contains("169.254.") => {
                Err("this address is not called; use a public one".into())
            }
            _ => Ok(()),
        });
        let editor = Editor { tzdb: Arc::new(Tzdb::bundled()), check_target: Some(check_target.clone()) };
        engine.edit_by(Arc::new(editor));
        engine.set_seal(Seal::new([5; 32]));
        let worker = engine.new_worker_id();
        let ttl = Duration::from_secs(1_000_000_000);
        let acquired = store.acquire(worker, Shards::All, ttl, clock.now()).await.unwrap();
        let health = Arc::new(Draining::default());
        let state = State {
            engine: engine.clone(),
            health: health.clone(),
            access: access(&engine),
            version: Version { version: "1.2.3".into(), commit: None, tzdata: None },
            metrics: Arc::new(|| "punctual_up 1\n".into()),
            check_target: Some(check_target),
            has_mail: true,
            limits,
        };
        let epochs = Epochs::new(acquired);
        World { engine, clock, health, epochs, router: router(state), store, worker }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        Reply {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    /// The headers of an answer, whose body may have no end.
    pub(crate) async fn head(&self, request: Request<Body>) -> HeaderMap {
        self.router.clone().oneshot(request).await.unwrap().headers().clone()
    }

    /// The router as a network to a server, for a caller on this machine.
    pub(crate) fn network(&self) -> Router {
        let peer: SocketAddr = "127.0.0.1:50000".parse().unwrap();
        self.router.clone().layer(axum::Extension(ConnectInfo(peer)))
    }

    pub(crate) async fn call(&self, line: &str, body: &str) -> Reply {
        self.call_with(line, &[], body).await
    }

    /// `POST /v1/jobs` and headers as a person on this machine sends them.
    pub(crate) async fn call_with(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.send(request(line, headers, Body::from(body.to_string()))).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.call(&format!("GET {path}"), "").await.expect(200)
    }

    /// Registers a job that is discarded; its id.
    pub(crate) async fn register(&self, schedule: &str) -> String {
        let body = format!(r#"{{"name":"job","schedule":{schedule},"target":{{"discard":{{}}}}}}"#);
        let job = self.call("POST /v1/jobs", &body).await.expect(201);
        job["id"].as_str().unwrap().to_string()
    }

    /// Moves the clock and fires everything that is due, as the loop does.
    pub(crate) async fn advance(&self, seconds: i64) {
        self.clock.advance(SignedDuration::from_secs(seconds));
        loop {
            let query = DueQuery { shards: Shards::All, after: None, until: self.clock.now(), limit: 100 };
            let entries = self.store.due(query).await.unwrap().entries;
            if entries.is_empty() {
                return;
            }
            self.engine.fire(entries, &self.epochs, None).await.unwrap();
        }
    }

    /// Raises, tells and ends alarms, as the loop does.
    pub(crate) async fn look_after_alarms(&self, rounds: &mut punctual_engine::unwell::Rounds) {
        self.engine.look_after_alarms(&self.epochs, rounds).await.unwrap();
    }

    /// Ends what may not start any more, as the loop does.
    pub(crate) async fn lapse(&self) -> usize {
        self.engine.lapse(&self.epochs).await.unwrap().runs.len()
    }

    /// Does the steps of operations that may be done now, as the loop does.
    pub(crate) async fn operate(&self) {
        while self.engine.operate(&self.epochs).await.unwrap().steps > 0 {}
    }

    /// Claims everything that waits and ends it in this way.
    pub(crate) async fn work(&self, outcome: Outcome) -> usize {
        let claimed = self.claim().await;
        self.finish(claimed, outcome, Duration::from_millis(25)).await
    }

    /// Claims everything that waits and lets it succeed after so many seconds.
    pub(crate) async fn work_for(&self, seconds: u64) -> usize {
        let claimed = self.claim().await;
        self.clock.advance(SignedDuration::from_secs(seconds as i64));
        self.finish(claimed, Outcome::Succeeded, Duration::from_secs(seconds)).await
    }

    /// Claims everything that waits.
    pub(crate) async fn claim(&self) -> Vec<Run> {
        let claim = Claim {
            worker: self.worker,
            queues: Vec::new(),
            labels: Default::default(),
            shards: Shards::All,
            limit: 100,
        };
        self.store.claim(claim, self.clock.now()).await.unwrap()
    }

    /// What the worker says about an attempt that it holds.
    pub(crate) async fn note(&self, run: &Run, percent: u8, checkpoint: &str, lines: &[&str]) {
        let line = |text: &&str| Line { at: self.clock.now(), text: (*text).into() };
        let note = Note {
            worker: self.worker,
            held: run.into(),
            progress: Some(Progress { percent: Some(percent), message: Some("on".into()) }),
            checkpoint: Some(checkpoint.into()),
            lines: lines.iter().map(line).collect(),
        };
        self.engine.note(vec![note]).await.unwrap().remove(0).unwrap();
    }

    /// Ends what was claimed when it began.
    pub(crate) async fn finish(&self, claimed: Vec<Run>, outcome: Outcome, took: Duration) -> usize {
        let mut finished = Vec::new();
        for run in claimed {
            let job =
                self.store.job_versions(&[(run.job, run.version)]).await.unwrap().remove(0).unwrap().job;
            let error = (outcome != Outcome::Succeeded).then(|| Failure {
                code: "http_status".into(),
                message: "the target answered 500".into(),
                is_retryable: false,
                retry_after: None,
            });
            let started_at = run.lease().unwrap().claimed_at;
            let report = Report {
                outcome,
                started_at,
                finished_at: started_at + took,
                error,
                output: Some(Output { bytes: b"hello".to_vec(), is_truncated: false }),
                status: Some(500),
                phases: vec![("connect".into(), Duration::from_micros(1500))],
                lines: Vec::new(),
                is_unknown: false,
            };
            finished.push(Finished { worker: self.worker, run, job, report: Some(report) });
        }
        let count = finished.len();
        self.engine.complete(finished).await.unwrap();
        count
    }
}

pub(crate) fn request(line: &str, headers: &[(&str, &str)], body: Body) -> Request<Body> {
    let (method, path) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "127.0.0.1:8080");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(body).unwrap();
    let peer: SocketAddr = "127.0.0.1:50000".parse().unwrap();
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}
