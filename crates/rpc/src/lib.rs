//! The API over gRPC as types.
//!
//! [`v1`] is generated from `proto/punctual/v1/*.proto`; `worker.rs` turns its messages into the types of `punctual-api` and
//! back, so that both ways in are read and refused by the same code; [`status`] is a problem as gRPC tells it. Used by the
//! server and by the client.

pub mod status;
mod time;
mod worker;

pub use time::to_wire as duration;

/// What is generated from the proto files.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("punctual.v1");
}

/// Every proto file, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
