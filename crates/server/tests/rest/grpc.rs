//! Workers that pull over gRPC: the stream, the calls beside it, who may make them, and what is said when they are refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use jiff::SignedDuration;
use prost::Message as _;
use punctual_engine::{Node, Options};
use punctual_rpc::v1::claim_request::Message as Said;
use punctual_rpc::v1::claim_response::Message as Told;
use punctual_rpc::v1::result_taken::Answer;
use punctual_rpc::v1::workers_client::WorkersClient;
use punctual_rpc::{status, v1};
use punctual_server::{METHODS, Needs, Role};
use serde_json::Value;
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServiceResponse};

use crate::world::{World, request};

/// A world whose loops run.
struct Running {
    world: World,
    node: Node,
}

/// A worker's stream.
struct Stream {
    said: mpsc::UnboundedSender<v1::ClaimRequest>,
    told: Streaming<v1::ClaimResponse>,
    worker: String,
}

fn hello(worker: &str, capacity: u32) -> v1::Hello {
    v1::Hello {
        worker: worker.into(),
        name: "m".into(),
        queues: vec!["emails".into()],
        concurrency: 10,
        capacity,
        ..v1::Hello::default()
    }
}

async fn open(world: &World, hello: v1::Hello) -> Result<Stream, Status> {
    let (said, waiting) = mpsc::unbounded_channel();
    said.send(v1::ClaimRequest { message: Some(Said::Hello(hello)) }).unwrap();
    let outgoing =
        unfold(waiting, |mut waiting| async move { waiting.recv().await.map(|said| (said, waiting)) });
    let told = client(world).claim(outgoing).await?.into_inner();
    let mut stream = Stream { said, told, worker: String::new() };
    match stream.next().await {
        Told::Welcome(welcome) => stream.worker = welcome.worker,
        other => panic!("no welcome: {other:?}"),
    }
    Ok(stream)
}

fn client(world: &World) -> WorkersClient<Router> {
    WorkersClient::with_origin(world.network(), "http://127.0.0.1:8080".parse().unwrap())
}

/// The code of REST and the wrong fields that a status tells of.
fn told(status: &Status) -> (Code, String, Vec<String>) {
    let problem = status::problem(status).unwrap_or_else(|| panic!("no details: {status:?}"));
    assert_eq!(status.message(), problem.detail);
    (status.code(), problem.code, problem.errors.into_iter().map(|error| error.pointer).collect())
}

impl Stream {
    fn say(&self, message: Said) {
        self.said.send(v1::ClaimRequest { message: Some(message) }).unwrap();
    }

    async fn message(&mut self) -> Result<Option<Told>, Status> {
        Ok(self.told.message().await?.and_then(|told| told.message))
    }

    async fn next(&mut self) -> Told {
        self.message().await.unwrap().expect("the stream goes on")
    }

    async fn attempt(&mut self) -> v1::Attempt {
        match self.next().await {
            Told::Attempts(mut given) if given.attempts.len() == 1 => given.attempts.remove(0),
            other => panic!("no attempt: {other:?}"),
        }
    }

    async fn beat(&mut self, number: u64, held: &[&v1::Attempt]) -> Told {
        let held = held.iter().map(|one| v1::HeldAttempt {
            run_id: one.run_id.clone(),
            attempt: one.attempt,
            ..v1::HeldAttempt::default()
        });
        let beat =
            v1::Heartbeat { number, held: held.collect(), concurrency: Some(40), saturation: Some(0.25) };
        self.say(Said::Heartbeat(beat));
        self.next().await
    }

    /// Reports an attempt; how its run stands, or the code of the problem.
    async fn report(&mut self, attempt: &v1::Attempt, outcome: v1::Outcome) -> String {
        self.say(Said::Report(report(attempt, outcome)));
        match self.next().await {
            Told::ReportTaken(taken) => answer(taken),
            other => panic!("no answer: {other:?}"),
        }
    }
}

fn report(attempt: &v1::Attempt, outcome: v1::Outcome) -> v1::Report {
    let result = v1::AttemptResult {
        run_id: attempt.run_id.clone(),
        attempt: attempt.attempt,
        outcome: outcome as i32,
        ..v1::AttemptResult::default()
    };
    v1::Report { number: 9, results: vec![result] }
}

fn answer(mut taken: v1::ReportTaken) -> String {
    assert_eq!((taken.number, taken.results.len()), (9, 1));
    match taken.results.remove(0).answer.unwrap() {
        Answer::State(state) => state,
        Answer::Problem(problem) => problem.code,
    }
}

impl Running {
    async fn start() -> Running {
        let world = World::new().await;
        let engine = Arc::new(world.engine.clone());
        let id = engine.new_worker_id();
        let node = Node::start(engine, id, Options::default()).await.unwrap();
        Running { world, node }
    }

    async fn trigger(&self) -> String {
        let body = r#"{"name":"mail","schedule":{"every":"1h"},"queue":"emails","payload":{"n": 7},"target":{"worker":{"handler":"send"}}}"#;
        let job = self.world.call("POST /v1/jobs", body).await.expect(201);
        let path = format!("POST /v1/jobs/{}/trigger", job["id"].as_str().unwrap());
        let run = self.world.call(&path, "").await.expect(201);
        run["id"].as_str().unwrap().to_string()
    }

    async fn run(&self, id: &str) -> Value {
        self.world.get(&format!("/v1/runs/{id}")).await
    }

    /// What a poll of REST is given, for a worker of its own.
    async fn poll(&self) -> Value {
        let body = r#"{"queues":["emails"],"capacity":10,"wait":"PT1S"}"#;
        self.world.call("POST /v1/claims", body).await.expect(200)["attempts"].clone()
    }

    async fn stop(self) {
        self.node.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_worker_that_stays_is_given_runs_beats_and_reports() {
    let all = Running::start().await;
    let mut stream = open(&all.world, hello("", 1)).await.unwrap();
    let run = all.trigger().await;
    let attempt = stream.attempt().await;
    assert_eq!(
        (attempt.run_id.as_str(), attempt.attempt, attempt.handler.as_str(), attempt.payload.as_deref()),
        (run.as_str(), 1, "send", Some(r#"{"n": 7}"#))
    );
    assert_eq!(attempt.timeout.map(|timeout| timeout.seconds), Some(300));
    let taken = v1::HeartbeatTaken { number: 5, ..v1::HeartbeatTaken::default() };
    assert_eq!(stream.beat(5, &[&attempt]).await, Told::HeartbeatTaken(taken));
    let listed = client(&all.world).list_workers(v1::ListWorkersRequest::default()).await.unwrap();
    let worker = &listed.get_ref().workers[0];
    assert_eq!(
        (&worker.id, worker.held, worker.saturation, worker.concurrency, worker.tenant.as_str()),
        (&stream.worker, 1, Some(0.25), 40, "default")
    );
    let second = all.trigger().await;
    assert_eq!(stream.report(&attempt, v1::Outcome::Succeeded).await, "succeeded");
    assert_eq!(all.run(&run).await["state"], "succeeded");
    assert_eq!(stream.report(&attempt, v1::Outcome::Succeeded).await, "lease_lost", "it has ended");
    assert_eq!(all.run(&second).await["state"], "pending", "there was room for one");
    stream.say(Said::Grant(v1::Grant { capacity: 2 }));
    let next = stream.attempt().await;
    assert_eq!(next.run_id, second);
    assert_eq!(stream.report(&next, v1::Outcome::Released).await, "pending");
    let again = stream.attempt().await;
    assert_eq!((again.run_id, again.attempt), (second, 2), "what is given back comes again at once");
    all.stop().await;
}

#[tokio::test]
async fn calls_beside_the_stream_mean_the_same() {
    let all = Running::start().await;
    let mut stream = open(&all.world, hello("", 10)).await.unwrap();
    let (first, second) = (all.trigger().await, all.trigger().await);
    let (one, two) = (stream.attempt().await, stream.attempt().await);
    assert_eq!((&one.run_id, &two.run_id), (&first, &second));
    let worker = stream.worker.clone();
    let mut calls = client(&all.world);
    let held = v1::HeldAttempt {
        run_id: one.run_id.clone(),
        attempt: 1,
        checkpoint: Some(r#"{"row":8}"#.into()),
        ..Default::default()
    };
    let heartbeat = Some(v1::Heartbeat { number: 3, held: vec![held], ..Default::default() });
    let beat = calls.heartbeat(v1::HeartbeatRequest { worker: worker.clone(), heartbeat }).await.unwrap();
    assert_eq!(beat.get_ref(), &v1::HeartbeatTaken { number: 3, ..Default::default() });
    let report = Some(report(&one, v1::Outcome::Succeeded));
    let taken = calls.report(v1::ReportRequest { worker: worker.clone(), report }).await.unwrap();
    assert_eq!(answer(taken.into_inner()), "succeeded");
    calls.dismiss(v1::DismissRequest { worker: worker.clone() }).await.unwrap();
    assert_eq!(all.poll().await[0]["run_id"], Value::from(second), "what it held goes to others");
    let gone = calls.dismiss(v1::DismissRequest { worker }).await.unwrap_err();
    assert_eq!(told(&gone), (Code::NotFound, "worker_not_found".into(), vec![]));
    all.stop().await;
}

#[tokio::test]
async fn what_is_given_at_once_is_no_more_than_a_client_takes() {
    let running = Running::start().await;
    running.trigger().await;
    let jobs = running.world.get("/v1/jobs").await;
    let path = format!("POST /v1/jobs/{}/trigger", jobs["items"][0]["id"].as_str().unwrap());
    let body = format!(r#"{{"payload":"{}"}}"#, "x".repeat(200_000));
    for _ in 0..30 {
        running.world.call(&path, &body).await.expect(201);
    }
    let mut stream = open(&running.world, v1::Hello { concurrency: 100, ..hello("", 100) }).await.unwrap();
    let mut given = 0;
    while given < 31 {
        match stream.next().await {
            Told::Attempts(attempts) => {
                assert!(attempts.encoded_len() < 4 << 20, "{} bytes", attempts.encoded_len());
                given += attempts.attempts.len();
            }
            other => panic!("no attempts: {other:?}"),
        }
    }
    running.stop().await;
}

#[tokio::test]
async fn a_cancellation_is_pushed_within_a_second() {
    let all = Running::start().await;
    let mut stream = open(&all.world, hello("", 1)).await.unwrap();
    let run = all.trigger().await;
    let attempt = stream.attempt().await;
    all.world.call(&format!("POST /v1/runs/{run}/cancel"), "").await.expect(200);
    all.world.clock.advance(SignedDuration::from_secs(1));
    let named = v1::Held { run_id: run.clone(), attempt: 1 };
    assert_eq!(stream.next().await, Told::Cancelled(v1::Cancelled { attempts: vec![named.clone()] }));
    let beat = stream.beat(1, &[&attempt]).await;
    let taken = v1::HeartbeatTaken { number: 1, cancelled: vec![named], not_held: vec![] };
    assert_eq!(beat, Told::HeartbeatTaken(taken), "it is told until it is reported");
    assert_eq!(stream.report(&attempt, v1::Outcome::Cancelled).await, "cancelled");
    all.stop().await;
}

#[tokio::test]
async fn what_a_lost_stream_could_not_deliver_goes_back() {
    let all = Running::start().await;
    let stream = open(&all.world, hello("", 10)).await.unwrap();
    let run = all.trigger().await;
    assert_eq!(all.run(&run).await["state"], "running", "it was given, and nobody has read it");
    drop(stream);
    let polled = all.poll().await;
    assert_eq!((&polled[0]["run_id"], &polled[0]["attempt"]), (&run.clone().into(), &2.into()));
    let seen = all.run(&run).await;
    assert_eq!(seen["attempts"][0]["outcome"], Value::Null, "it counts against nothing: {seen}");
    all.stop().await;
}

#[tokio::test]
async fn what_was_delivered_stays_with_a_worker_that_comes_again() {
    let all = Running::start().await;
    let mut stream = open(&all.world, hello("", 1)).await.unwrap();
    let run = all.trigger().await;
    let attempt = stream.attempt().await;
    let worker = stream.worker.clone();
    drop(stream);
    let mut again = open(&all.world, hello(&worker, 0)).await.unwrap();
    assert_eq!(again.worker, worker);
    all.world.clock.advance(SignedDuration::from_secs(10));
    let taken = v1::HeartbeatTaken { number: 1, ..v1::HeartbeatTaken::default() };
    assert_eq!(again.beat(1, &[&attempt]).await, Told::HeartbeatTaken(taken));
    assert_eq!(again.report(&attempt, v1::Outcome::Succeeded).await, "succeeded");
    assert_eq!(all.run(&run).await["attempts"].as_array().unwrap().len(), 1);
    all.stop().await;
}

#[tokio::test]
async fn a_worker_that_comes_again_is_given_nothing_on_its_old_stream() {
    let all = Running::start().await;
    let old = open(&all.world, hello("", 10)).await.unwrap();
    let mut new = open(&all.world, hello(&old.worker, 1)).await.unwrap();
    let run = all.trigger().await;
    assert_eq!(new.attempt().await.run_id, run, "though the old one has more room");
    drop(old);
    all.stop().await;
}

#[tokio::test]
async fn a_worker_that_leaves_takes_nothing_more_and_reports_what_it_has() {
    let all = Running::start().await;
    let mut stream = open(&all.world, hello("", 10)).await.unwrap();
    let first = all.trigger().await;
    let attempt = stream.attempt().await;
    stream.say(Said::Leave(v1::Leave {}));
    // Answered after it: what is said is heard in order.
    stream.beat(1, &[&attempt]).await;
    let second = all.trigger().await;
    assert_eq!(all.poll().await[0]["run_id"], Value::from(second));
    assert_eq!(stream.report(&attempt, v1::Outcome::Succeeded).await, "succeeded");
    assert_eq!(all.run(&first).await["state"], "succeeded");
    all.stop().await;
}

#[tokio::test]
async fn a_node_that_stops_says_so_and_takes_what_is_reported() {
    let all = Running::start().await;
    let mut stream = open(&all.world, hello("", 10)).await.unwrap();
    let run = all.trigger().await;
    let attempt = stream.attempt().await;
    let Running { world, mut node } = all;
    node.quiesce().await;
    assert_eq!(stream.next().await, Told::Drain(v1::Drain {}));
    assert_eq!(stream.report(&attempt, v1::Outcome::Succeeded).await, "succeeded");
    assert_eq!(world.get(&format!("/v1/runs/{run}")).await["state"], "succeeded");
    let refused = open(&world, hello("", 1)).await.err().unwrap();
    assert_eq!(told(&refused), (Code::Unavailable, "unavailable".into(), vec![]));
    drop(stream.said);
    assert_eq!(stream.told.message().await.unwrap(), None, "who has no more to say ends it");
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_is_silent_for_a_lease_does_not_stay() {
    let all = Running::start().await;
    let mut stream = open(&all.world, hello("", 1)).await.unwrap();
    let run = all.trigger().await;
    let attempt = stream.attempt().await;
    all.world.clock.advance(SignedDuration::from_secs(10));
    stream.beat(1, &[&attempt]).await;
    all.world.clock.advance(SignedDuration::from_secs(10));
    stream.beat(2, &[&attempt]).await;
    all.world.clock.advance(SignedDuration::from_secs(16));
    let ended = stream.message().await.unwrap_err();
    assert_eq!(told(&ended), (Code::FailedPrecondition, "worker_lost".into(), vec![]));
    let polled = loop {
        let polled = all.poll().await;
        if polled[0].is_object() {
            break polled;
        }
        all.world.clock.advance(SignedDuration::from_secs(1));
    };
    assert_eq!((&polled[0]["run_id"], &polled[0]["attempt"]), (&run.into(), &2.into()));
    let worker = stream.worker.clone();
    let lost = open(&all.world, hello(&worker, 1)).await.err().unwrap();
    assert_eq!(told(&lost), (Code::FailedPrecondition, "worker_lost".into(), vec![]));
    all.stop().await;
}

#[tokio::test]
async fn every_wrong_field_is_named_in_the_details() {
    let all = Running::start().await;
    let wrong = v1::Hello { queues: vec![], worker: "me".into(), capacity: 5_000, ..hello("", 1) };
    let refused = open(&all.world, wrong).await.err().unwrap();
    let fields = vec!["/worker".into(), "/queues".into(), "/capacity".into()];
    assert_eq!(told(&refused), (Code::InvalidArgument, "invalid_request".into(), fields));
    let refused = open(&all.world, v1::Hello { concurrency: 0, ..hello("", 1) }).await.err().unwrap();
    assert_eq!(told(&refused).2, ["/concurrency"]);
    let silent = client(&all.world).claim(futures_util::stream::empty()).await.unwrap_err();
    assert_eq!(told(&silent).2, ["/hello"]);
    let mut stream = open(&all.world, hello("", 1)).await.unwrap();
    let held = vec![
        v1::HeldAttempt { run_id: "x".into(), attempt: 1, ..Default::default() },
        v1::HeldAttempt::default(),
    ];
    stream.say(Said::Heartbeat(v1::Heartbeat { number: 4, held, ..Default::default() }));
    let Told::Refused(refused) = stream.next().await else { panic!("it was taken") };
    let problem = refused.problem.unwrap();
    let fields: Vec<&str> = problem.errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!((refused.number, problem.code.as_str()), (4, "invalid_request"));
    assert_eq!(fields, ["held[0].run_id", "held[1].run_id", "held[1].attempt"]);
    let taken = v1::HeartbeatTaken { number: 5, ..v1::HeartbeatTaken::default() };
    assert_eq!(stream.beat(5, &[]).await, Told::HeartbeatTaken(taken), "the stream goes on");
    stream.say(Said::Grant(v1::Grant { capacity: 11 }));
    let too_much = stream.message().await.unwrap_err();
    assert_eq!(told(&too_much), (Code::InvalidArgument, "invalid_request".into(), vec!["/capacity".into()]));
    all.stop().await;
}

#[tokio::test]
async fn a_worker_of_one_tenant_stays_in_it() {
    let world = World::of_role(Role::Worker, Some("default")).await;
    let mut request = tonic::Request::new(v1::DismissRequest { worker: "x".into() });
    request.metadata_mut().insert("punctual-tenant", "acme".parse().unwrap());
    let refused = client(&world).dismiss(request).await.unwrap_err();
    assert_eq!(told(&refused), (Code::NotFound, "tenant_not_found".into(), vec![]));
    let refused = client(&world).list_workers(v1::ListWorkersRequest::default()).await.unwrap_err();
    assert_eq!(told(&refused), (Code::PermissionDenied, "forbidden".into(), vec![]));
}

/// The number in `grpc-status`, if the answer is nothing but a refusal.
async fn refused_with(world: &World, path: &str) -> Option<String> {
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    let answer = world.head(request(&format!("POST {path}"), &headers, axum::body::Body::empty())).await;
    answer.get("grpc-status").map(|number| number.to_str().unwrap().to_string())
}

#[tokio::test]
async fn every_method_asks_for_its_role() {
    for role in Role::ALL {
        let world = World::of_role(role, None).await;
        for method in METHODS {
            let is_denied = refused_with(&world, method.path).await.as_deref() == Some("7");
            assert_eq!(is_denied, !method.needs.met_by(role), "{role:?} {}", method.path);
        }
        let unknown = refused_with(&world, "/punctual.v1.Workers/Nothing").await;
        assert_eq!(unknown.as_deref(), Some("12"), "what is in no table is not there");
    }
    for method in METHODS {
        let is_for_everybody = method.path.starts_with("/grpc.") || method.path.ends_with("/GetVersion");
        assert_eq!(method.needs == Needs::Nothing, is_for_everybody, "{}", method.path);
    }
}

#[test]
fn the_table_has_every_method_of_the_proto_files() {
    let files = prost_types::FileDescriptorSet::decode(punctual_rpc::FILE_DESCRIPTOR_SET).unwrap();
    let mut described = Vec::new();
    for file in files.file.iter().filter(|file| file.package().starts_with("punctual.")) {
        for service in &file.service {
            let path = |method: &str| format!("/{}.{}/{method}", file.package(), service.name());
            described.extend(service.method.iter().map(|method| path(method.name())));
        }
    }
    let ours = METHODS.iter().map(|method| method.path).filter(|path| path.starts_with("/punctual."));
    let mut ours: Vec<&str> = ours.collect();
    described.sort();
    ours.sort_unstable();
    assert_eq!(described, ours);
    assert!(!described.is_empty());
}

#[tokio::test]
async fn health_says_what_readyz_says() {
    let world = World::new().await;
    let mut health = HealthClient::with_origin(world.network(), "http://127.0.0.1:8080".parse().unwrap());
    let ask = |service: &str| HealthCheckRequest { service: service.into() };
    for service in ["", "punctual.v1.Workers", "punctual.v1.Jobs"] {
        let answer = health.check(ask(service)).await.unwrap();
        assert_eq!(answer.get_ref().status(), ServingStatus::Serving);
    }
    let mut watched = health.watch(ask("")).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    world.health.0.store(true, Ordering::Relaxed);
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert_eq!(health.check(ask("")).await.unwrap().get_ref().status(), ServingStatus::NotServing);
    assert_eq!(health.check(ask("other")).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn reflection_gives_the_proto_files() {
    let world = World::new().await;
    let origin = "http://127.0.0.1:8080".parse().unwrap();
    let mut reflection = ServerReflectionClient::with_origin(world.network(), origin);
    let ask = |request| ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let asked = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol("punctual.v1.Workers".into())),
    ];
    let answers = reflection.server_reflection_info(futures_util::stream::iter(asked)).await.unwrap();
    let answers: Vec<MessageResponse> =
        answers.into_inner().map(|answer| answer.unwrap().message_response.unwrap()).collect().await;
    let MessageResponse::ListServicesResponse(listed) = &answers[0] else { panic!("{answers:?}") };
    let named = |name: &str| ServiceResponse { name: name.into() };
    for service in METHODS.iter().filter_map(|method| method.path.split('/').nth(1)) {
        let is_listed = listed.service.contains(&named(service));
        assert!(is_listed || service.starts_with("grpc.reflection."), "{service} is not in {listed:?}");
    }
    assert!(listed.service.contains(&named("grpc.health.v1.Health")), "{listed:?}");
    assert!(matches!(&answers[1], MessageResponse::FileDescriptorResponse(_)), "{answers:?}");
}
