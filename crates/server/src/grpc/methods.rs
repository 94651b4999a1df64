//! The table of the methods of gRPC, beside that of routes: who may call each.

use crate::access::Needs;
use crate::routes::{Endpoint, on};

/// The methods of gRPC, as routes: the same gate, the same roles.
pub static METHODS: &[Endpoint] = &[
    on(
        "POST",
        "/punctual.v1.Workers/Claim",
        Needs::Worker,
        "Gives runs to a worker for as long as its stream lives",
    ),
    on(
        "POST",
        "/punctual.v1.Workers/Heartbeat",
        Needs::Worker,
        "A worker's sign of life, with everything it holds",
    ),
    on("POST", "/punctual.v1.Workers/Report", Needs::Worker, "Reports up to 1000 attempts that are over"),
    on("POST", "/punctual.v1.Workers/Dismiss", Needs::Worker, "A worker goes: what it still holds goes back"),
    on("POST", "/punctual.v1.Workers/ListWorkers", Needs::Viewer, "Lists workers that pull and live"),
    on("POST", "/grpc.health.v1.Health/Check", Needs::Nothing, "Says whether the process can work"),
    on("POST", "/grpc.health.v1.Health/Watch", Needs::Nothing, "Says it again when it changes"),
    on(
        "POST",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        Needs::Nothing,
        "Gives the proto files",
    ),
    on(
        "POST",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        Needs::Nothing,
        "Gives the proto files, as older tools ask for them",
    ),
];
