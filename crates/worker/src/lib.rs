//! Executes attempts.
//!
//! [`Worker`] takes leased attempts through a [`Transport`], [`Targets`] executes each by its target, and the reports
//! go back the same way. [`targets`] holds one module per kind of target; each turns an attempt into an answer with
//! the same shape: what came back, or why nothing did, and how long each phase took.

pub mod targets;
pub mod transport;

mod error;
mod execute;
mod filling;
mod networks;
mod voice;
mod worker;

pub use error::Error;
pub use execute::{Reports, Targets};
pub use filling::Secrets;
pub use networks::Networks;
pub use transport::{Session, Transport};
pub use worker::{Options, Stopped, Worker};
