//! Every method of gRPC, asked with messages that are made up from its descriptor, and with such messages broken.
//!
//! The counterpart of `clients/schemathesis` for REST. Nothing that a caller sends may be told as a fault of the server, and what is refused
//! is refused with a status that the documents name.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use fastrand::Rng;
use http_body_util::BodyExt as _;
use prost::Message as _;
use prost::encoding::encode_varint;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};
use punctual_engine::{Node, Options};
use punctual_server::METHODS;
use tonic::{Code, Status};
use tower::ServiceExt as _;

use crate::world::{World, request};

/// Requests to each method.
const REQUESTS: usize = 1_500;

/// Messages inside messages.
const DEPTH_MAX: usize = 5;

/// Never reached when all is well.
const PATIENCE: Duration = Duration::from_secs(30);

/// What `docs/reference/workers.md` says a method may answer with.
const DOCUMENTED: [Code; 9] = [
    Code::Ok,
    Code::InvalidArgument,
    Code::NotFound,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::ResourceExhausted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::DeadlineExceeded,
];

/// What there is to make messages from.
struct Descriptors {
    messages: HashMap<String, DescriptorProto>,
    /// What a method takes, by its path.
    takes: BTreeMap<String, String>,
}

impl Descriptors {
    fn new() -> Self {
        let (mut messages, mut takes) = (HashMap::new(), BTreeMap::new());
        for set in [
            punctual_rpc::FILE_DESCRIPTOR_SET,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ] {
            for file in FileDescriptorSet::decode(set).unwrap().file {
                let package = file.package().to_string();
                for message in file.message_type {
                    collect(&format!(".{package}"), message, &mut messages);
                }
                for service in file.service {
                    for method in &service.method {
                        let path = format!("/{package}.{}/{}", service.name(), method.name());
                        takes.insert(path, method.input_type().to_string());
                    }
                }
            }
        }
        Descriptors { messages, takes }
    }

    /// A message of a type, as it goes over the wire.
    fn message(&self, name: &str, known: &[String], depth: usize, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Types of others, such as timestamps, are not in the set of every file.
        let Some(message) = self.messages.get(name) else { return bytes };
        for field in &message.field {
            let times = match field.label() {
                Label::Repeated => rng.usize(..3),
                _ => usize::from(rng.u8(..4) > 0),
            };
            for _ in 0..times {
                let number = (field.number() as u64) << 3;
                match field.r#type() {
                    Type::Message | Type::Group if depth < DEPTH_MAX => {
                        let inner = self.message(field.type_name(), known, depth + 1, rng);
                        put_bytes(number, &inner, &mut bytes);
                    }
                    Type::Message | Type::Group => put_bytes(number, &[], &mut bytes),
                    Type::String => put_bytes(number, text(known, rng).as_bytes(), &mut bytes),
                    Type::Bytes => put_bytes(number, text(known, rng).as_bytes(), &mut bytes),
                    Type::Double | Type::Fixed64 | Type::Sfixed64 => {
                        encode_varint(number | 1, &mut bytes);
                        bytes.extend(double(rng).to_le_bytes());
                    }
                    Type::Float | Type::Fixed32 | Type::Sfixed32 => {
                        encode_varint(number | 5, &mut bytes);
                        bytes.extend((double(rng) as f32).to_le_bytes());
                    }
                    _ => {
                        encode_varint(number, &mut bytes);
                        encode_varint(whole(rng), &mut bytes);
                    }
                }
            }
        }
        bytes
    }
}

fn collect(place: &str, message: DescriptorProto, messages: &mut HashMap<String, DescriptorProto>) {
    let name = format!("{place}.{}", message.name());
    for inner in message.nested_type.clone() {
        collect(&name, inner, messages);
    }
    messages.insert(name, message);
}

fn put_bytes(number: u64, inner: &[u8], bytes: &mut Vec<u8>) {
    encode_varint(number | 2, bytes);
    encode_varint(inner.len() as u64, bytes);
    bytes.extend(inner);
}

fn text(known: &[String], rng: &mut Rng) -> String {
    match rng.u8(..10) {
        0 => String::new(),
        1 => "x".repeat(rng.usize(..5_000)),
        2 => (0..rng.usize(..20)).map(|_| rng.char(..)).collect(),
        3 => ["emails", "default", "succeeded", "failed", "*", "{}", "[1,", "null"][rng.usize(..8)].into(),
        _ => known[rng.usize(..known.len())].clone(),
    }
}

fn whole(rng: &mut Rng) -> u64 {
    [0, 1, 2, 7, 100, u64::from(u32::MAX), i64::MAX as u64, u64::MAX, rng.u64(..)][rng.usize(..9)]
}

fn double(rng: &mut Rng) -> f64 {
    [0.0, 0.5, 1.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, rng.f64()][rng.usize(..8)]
}

/// A message in its frame, as it is or broken somewhere.
fn framed(mut message: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    let kind = rng.u8(..12);
    if kind == 0 && !message.is_empty() {
        let place = rng.usize(..message.len());
        message[place] ^= 1 << rng.u8(..8);
    }
    if kind == 1 {
        message.truncate(rng.usize(..=message.len()));
    }
    if kind == 2 {
        message.extend((0..rng.usize(1..40)).map(|_| rng.u8(..)));
    }
    let mut frame = vec![if kind == 3 { rng.u8(..) } else { 0 }];
    let length = if kind == 4 { rng.u32(..) } else { message.len() as u32 };
    frame.extend(length.to_be_bytes());
    frame.extend(message);
    if kind == 5 {
        frame.truncate(rng.usize(..=frame.len()));
    }
    frame
}

/// The status of an answer: of its headers, of its trailers, or, of a stream that goes on, that it was begun.
async fn status(response: Response) -> Status {
    if let Some(status) = Status::from_header_map(response.headers()) {
        return status;
    }
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.unwrap();
        if let Some(trailers) = frame.trailers_ref() {
            return Status::from_header_map(trailers).unwrap();
        }
        if frame.data_ref().is_some_and(|data| !data.is_empty()) {
            return Status::ok("");
        }
    }
    Status::ok("")
}

#[tokio::test]
async fn no_message_makes_a_method_of_grpc_say_that_the_server_is_at_fault() {
    let world = World::new().await;
    let engine = std::sync::Arc::new(world.engine.clone());
    let node = Node::start(engine.clone(), engine.new_worker_id(), Options::default()).await.unwrap();
    let job = r#"{"schedule":{"every":"1h"},"queue":"emails","target":{"worker":{"handler":"h"}}}"#;
    let job = world.call("POST /v1/jobs", job).await.expect(201)["id"].as_str().unwrap().to_string();
    let run = world.call(&format!("POST /v1/jobs/{job}/trigger"), "").await.expect(201);
    let claim = r#"{"name":"m","queues":["emails"],"capacity":1}"#;
    let worker =
        world.call("POST /v1/claims", claim).await.expect(200)["worker"].as_str().unwrap().to_string();
    let known = vec![
        job,
        run["id"].as_str().unwrap().to_string(),
        worker,
        "emails".into(),
        "punctual.v1.Workers".into(),
    ];
    let (descriptors, mut rng) = (Descriptors::new(), Rng::with_seed(7));
    let mut answers: BTreeMap<i32, usize> = BTreeMap::new();
    for method in METHODS {
        let takes = &descriptors.takes[method.path];
        for number in 0..REQUESTS {
            let message = descriptors.message(takes, &known, 0, &mut rng);
            let frame = framed(message, &mut rng);
            let headers = [("content-type", "application/grpc"), ("te", "trailers")];
            let line = format!("POST {}", method.path);
            let asked = world.network().oneshot(request(&line, &headers, Body::from(frame.clone())));
            let answer = async { status(asked.await.unwrap()).await };
            let status = tokio::time::timeout(PATIENCE, answer)
                .await
                .unwrap_or_else(|_| panic!("{line} hangs: {frame:?}"));
            assert!(DOCUMENTED.contains(&status.code()), "{line}, {number}: {status:?} for {frame:?}");
            *answers.entry(status.code() as i32).or_default() += 1;
        }
    }
    node.stop().await.unwrap();
    let asked: usize = answers.values().sum();
    println!("grpc: {asked} messages to {} methods, 0 faults; by status {answers:?}", METHODS.len());
    assert!(answers.len() > 2, "all of them were answered alike: {answers:?}");
}
