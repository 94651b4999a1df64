//! The worker and its HTTP client against receivers that misbehave: one program of tests, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "what is not there fails the test")]

mod fuzz;
mod http_faults;
mod http_guard;
mod http_pool;
mod http_tls;
mod support;
mod worker;
