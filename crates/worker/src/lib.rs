//! Executes attempts.
//!
//! [`targets`] holds one module per kind of target; each turns an attempt into an answer with the
//! same shape: what came back, or why nothing did, and how long each phase took.

pub mod targets;

mod error;

pub use error::Error;
