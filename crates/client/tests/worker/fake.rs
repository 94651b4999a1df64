//! A small server that keeps to docs/reference/workers.md, reads requests as the real one does, and misbehaves as a test wants.
//!
//! Nothing here ends by time: a worker is taken for dead when a test says so. Tests look at what it saw, and wait for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use punctual_api::read::{self, Unread};
use punctual_api::worker::{Claim, Results, WorkerHeartbeat};
use punctual_client::{Client, Options};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// Until a test that waits gives up; never reached when all is well, and shorter than a client waits for an answer to a call.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of a request, as a server takes them.
const BODY_MAX: usize = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Claim,
    Heartbeat,
    Results,
    Dismiss,
}

/// What the server does instead of answering.
#[derive(Clone, Debug)]
pub(crate) enum Whim {
    /// It refuses, and says why.
    Refuse(u16),
    /// Something in between answers, with a page for people.
    Page(u16),
    /// It never answers.
    Silence,
    /// It answers when told to.
    Late(Arc<Notify>),
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) route: Route,
    pub(crate) worker: String,
    pub(crate) body: Value,
    pub(crate) bytes: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) handler: String,
    pub(crate) state: String,
    pub(crate) attempt: u32,
    pub(crate) holder: String,
    pub(crate) checkpoint: Value,
    pub(crate) log: Vec<String>,
    /// What its last result said.
    pub(crate) result: Value,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) runs: BTreeMap<String, Run>,
    pub(crate) seen: Vec<Seen>,
    /// How many signs of life a minute are wanted; 1,200.
    pub(crate) beats_a_minute: Option<u32>,
    /// Heartbeats that say more than what is held are refused so.
    pub(crate) refuses_notes: Option<u16>,
    /// Requests with a result of such an output are refused.
    pub(crate) unwelcome: Option<String>,
    /// So many results are refused for now, each for itself.
    pub(crate) put_off: usize,
    workers: BTreeSet<String>,
    whims: VecDeque<(Route, Whim)>,
    numbers: u64,
}

impl State {
    fn next(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// What came to a route, in order.
    pub(crate) fn seen(&self, route: Route) -> impl Iterator<Item = &Seen> {
        self.seen.iter().filter(move |seen| seen.route == route)
    }
}

#[derive(Clone)]
pub(crate) struct Fake {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

type Answer = (u16, Value);

impl Fake {
    /// Serves until the test ends.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let fake = Fake { address, state: Arc::default(), changed: Arc::default() };
        let served = fake.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let fake = served.clone();
                let service = service_fn(move |request| {
                    let fake = fake.clone();
                    async move { Ok::<_, Infallible>(fake.serve(request).await) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                // A client that goes away is its own affair.
                tokio::spawn(async move { http.serve_connection(TokioIo::new(socket), service).await.ok() });
            }
        });
        fake
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(format!("http://{}", self.address).parse().unwrap(), &Options::default()).unwrap()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// A run that is due; its id.
    pub(crate) fn add(&self, handler: &str) -> String {
        let mut state = self.state();
        // The form of an id: the mark is what makes it a run's.
        let id = format!("0193{:08x}", state.next());
        let id = format!("{}-{}-7000-8000-02badc0ffee5", &id[..8], &id[8..]);
        let run = Run {
            handler: handler.into(),
            state: "pending".into(),
            attempt: 0,
            holder: String::new(),
            checkpoint: Value::Null,
            log: Vec::new(),
            result: Value::Null,
        };
        state.runs.insert(id.clone(), run);
        drop(state);
        self.changed.notify_waiters();
        id
    }

    /// What comes next to a route is treated so; several, one after the other.
    pub(crate) fn next(&self, route: Route, whim: Whim) {
        self.state().whims.push_back((route, whim));
    }

    /// Takes every worker for dead; what they held is pending again.
    pub(crate) fn lose_workers(&self) {
        let mut state = self.state();
        state.workers.clear();
        for run in state.runs.values_mut().filter(|run| run.state == "running") {
            run.state = "pending".into();
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Waits until something is so.
    pub(crate) async fn wait<T>(&self, what: &str, look: impl Fn(&State) -> Option<T>) -> T {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if let Some(found) = look(&self.state()) {
                    return found;
                }
                changed.await;
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(found) => found,
            Err(_) => {
                let state = self.state();
                let last: Vec<_> =
                    state.seen.iter().rev().take(5).map(|seen| (seen.route, seen.bytes)).collect();
                panic!("never came: {what}; {:?}; the last that came: {last:?}", state.runs);
            }
        }
    }

    /// Waits until a run is in a state, and gives it.
    pub(crate) async fn wait_state(&self, id: &str, state: &str) -> Run {
        self.wait(&format!("{id} {state}"), |now| now.runs.get(id).filter(|run| run.state == state).cloned())
            .await
    }

    async fn serve(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_string();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (route, worker) = match (request.method(), parts.as_slice()) {
            (&Method::POST, ["v1", "claims"]) => (Route::Claim, ""),
            (&Method::POST, ["v1", "workers", worker, "heartbeat"]) => (Route::Heartbeat, *worker),
            (&Method::POST, ["v1", "workers", worker, "results"]) => (Route::Results, *worker),
            (&Method::DELETE, ["v1", "workers", worker]) => (Route::Dismiss, *worker),
            (method, _) => panic!("{method} {path}"),
        };
        let Ok(body) = request.into_body().collect().await else {
            return page(400, "the client has gone".into()); // Nobody reads it.
        };
        let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
        let whim = {
            let mut state = self.state();
            let body = serde_json::from_str(&text).unwrap_or_default();
            state.seen.push(Seen { route, worker: worker.into(), body, bytes: text.len() });
            let at = state.whims.iter().position(|(of, _)| *of == route);
            at.and_then(|at| state.whims.remove(at))
        };
        self.changed.notify_waiters();
        match whim {
            None => {}
            Some((_, Whim::Refuse(status))) => return written(refused(status, "no")),
            Some((_, Whim::Page(status))) => return page(status, "<html>no</html>".into()),
            Some((_, Whim::Silence)) => std::future::pending().await,
            Some((_, Whim::Late(told))) => told.notified().await,
        }
        let answer = match route {
            _ if text.len() > BODY_MAX => refused(413, "body_too_large"),
            Route::Claim => self.claim(&text).await,
            _ if !self.state().workers.contains(worker) => refused(409, "worker_lost"),
            Route::Heartbeat => self.heartbeat(worker, &text),
            Route::Results => self.results(worker, &text),
            Route::Dismiss => (204, Value::Null),
        };
        self.changed.notify_waiters();
        written(answer)
    }

    async fn claim(&self, text: &str) -> Answer {
        let claim = match read::read::<Claim>(text) {
            Ok(claim) => claim,
            Err(unread) => return unreadable(unread),
        };
        let worker = match claim.worker {
            // The first call is answered at once, so that its worker knows who it is.
            None => {
                let mut state = self.state();
                let worker = format!("0193ffff-{:04x}-7000-8000-000000000001", state.next());
                state.workers.insert(worker.clone());
                worker
            }
            Some(worker) => {
                let is_due = |state: &State| state.runs.values().any(|run| run.state == "pending");
                loop {
                    let changed = self.changed.notified();
                    if !self.state().workers.contains(&worker) {
                        return refused(409, "worker_lost");
                    }
                    if is_due(&self.state()) {
                        break;
                    }
                    changed.await;
                }
                worker
            }
        };
        let mut state = self.state();
        let capacity = claim.capacity.unwrap_or(1) as usize;
        let due = state.runs.iter_mut().filter(|(_, run)| run.state == "pending").take(capacity);
        let attempts: Vec<Value> = due
            .map(|(id, run)| {
                (run.state, run.holder, run.attempt) = ("running".into(), worker.clone(), run.attempt + 1);
                json!({
                    "run_id": id, "attempt": run.attempt, "job_id": "job-1", "job_name": "a job", "handler": run.handler,
                    "queue": "default", "scheduled_for": "2026-11-18T09:00:00Z", "idempotency_key": id, "timeout": "PT1H",
                    "checkpoint": run.checkpoint,
                })
            })
            .collect();
        let every = Duration::from_secs(60) / state.beats_a_minute.unwrap_or(1_200);
        let every = punctual_api::Duration(every);
        (200, json!({"worker": worker, "lease": "PT15S", "heartbeat_every": every, "attempts": attempts}))
    }

    fn heartbeat(&self, worker: &str, text: &str) -> Answer {
        let beat = match read::read::<WorkerHeartbeat>(text).and_then(|beat| beat.to_domain()) {
            Ok(beat) => beat,
            Err(unread) => return unreadable(unread),
        };
        let mut state = self.state();
        if let Some(status) = state.refuses_notes.filter(|_| !beat.notes.is_empty()) {
            return refused(status, "no");
        }
        let is_held = |state: &State, id: &str, attempt| {
            state
                .runs
                .get(id)
                .is_some_and(|run| run.state == "running" && run.holder == worker && run.attempt == attempt)
        };
        let lost = beat.held.iter().filter(|(run, attempt)| !is_held(&state, &run.to_string(), *attempt));
        let not_held: Vec<Value> =
            lost.map(|(run, attempt)| json!({"run_id": run.to_string(), "attempt": attempt})).collect();
        for note in beat.notes {
            let id = note.run.to_string();
            if is_held(&state, &id, note.attempt) {
                let run = state.runs.get_mut(&id).unwrap();
                run.log.extend(note.lines);
                if let Some(checkpoint) = note.checkpoint {
                    run.checkpoint = serde_json::from_str(&checkpoint).unwrap();
                }
            }
        }
        (200, json!({"cancelled": [], "not_held": not_held}))
    }

    fn results(&self, worker: &str, text: &str) -> Answer {
        let (results, read) = match read::read::<Results>(text).and_then(|results| {
            let read = results.to_domain()?;
            Ok((results.results.unwrap_or_default(), read))
        }) {
            Ok(read) => read,
            Err(unread) => return unreadable(unread),
        };
        let mut state = self.state();
        if state.unwelcome.is_some() && results.iter().any(|result| result.output == state.unwelcome) {
            return refused(422, "invalid_request");
        }
        let mut answers = Vec::new();
        for (result, read) in results.iter().zip(read) {
            let (id, attempt) = (read.run.to_string(), read.attempt);
            if state.put_off > 0 {
                state.put_off -= 1;
                answers.push(
                    json!({"run_id": id, "attempt": attempt, "problem": refused(503, "unavailable").1}),
                );
                continue;
            }
            let is_held =
                |run: &&mut Run| run.state == "running" && run.holder == worker && run.attempt == attempt;
            let Some(run) = state.runs.get_mut(&id).filter(is_held) else {
                answers
                    .push(json!({"run_id": id, "attempt": attempt, "problem": refused(409, "lease_lost").1}));
                continue;
            };
            run.state = result.outcome.clone().unwrap_or_default();
            run.log.extend(read.lines);
            run.result = serde_json::to_value(result).unwrap();
            answers.push(json!({"run_id": id, "attempt": attempt, "state": run.state}));
        }
        (200, json!({"results": answers}))
    }
}

fn refused(status: u16, code: &str) -> Answer {
    let kind = format!("urn:punctual:problem:{code}");
    (status, json!({"type": kind, "title": code, "status": status, "detail": code, "code": code}))
}

fn unreadable(unread: Unread) -> Answer {
    match unread {
        Unread::Malformed(_) => refused(400, "malformed_json"),
        Unread::Wrong(_) => refused(422, "invalid_request"),
    }
}

fn written((status, value): Answer) -> Response<Full<Bytes>> {
    page(status, if value.is_null() { String::new() } else { value.to_string() })
}

fn page(status: u16, text: String) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::new(text.into())).unwrap()
}
