//! The API as its users meet it, REST and gRPC: the router over the reference store, with a clock that the test moves. One test per
//! story.
#![allow(clippy::unwrap_used, reason = "what is not there fails the test")]

mod access;
mod alerts;
mod backlog;
mod batches;
mod breakers;
mod calendars;
mod console;
mod dead_letters;
mod forecast;
mod grpc;
mod history;
mod idempotency;
mod import;
mod jobs;
mod keys;
mod limits;
mod links;
mod log;
mod many;
mod messages;
mod openapi;
mod operations;
mod refused;
mod reports;
mod retention;
mod sharing;
mod unknown;
mod walk;
mod why;
mod workers;
mod world;
