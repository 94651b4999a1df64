//! The API as its users meet it: the router over the reference store, with a clock that the test moves. One test per
//! story.
#![allow(clippy::unwrap_used, reason = "what is not there fails the test")]

mod access;
mod dead_letters;
mod forecast;
mod history;
mod idempotency;
mod import;
mod jobs;
mod limits;
mod many;
mod openapi;
mod operations;
mod refused;
mod sharing;
mod why;
mod world;
