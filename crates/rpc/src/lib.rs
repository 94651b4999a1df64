//! The API over gRPC as types.
//!
//! [`v1`] is generated from `proto/punctual/v1/*.proto`. Messages have the names of REST, and [`json`] makes its JSON of them and
//! back, [`mask`] its patches; those of workers' streams become the types of `punctual-api` in `worker.rs`. So both ways in are read and refused by the
//! same code; [`status`] is a problem as gRPC tells it. Used by the server and by the client.

pub mod json;
pub mod mask;
pub mod status;
mod time;
mod worker;

pub use time::to_wire as duration;
/// What messages are sent with.
pub use tonic_prost::ProstCodec as Codec;

/// What is generated from the proto files.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("punctual.v1");
}

/// Every proto file, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
