//! A typed client of the REST API.
//!
//! [`Client`] knows where the server is and has a method for every route, in the file of its noun; [`list`] walks
//! lists page by page, [`import`] sends jobs in a stream and reads how far it is. Every answer keeps the text it came
//! as, beside the value read from it. A refusal keeps everything the server said about it.
//!
//! [`worker`] executes runs that this program asks for, by handlers of its own; [`once`] lets each of them take effect once.
//!
//! Unlike callbacks, requests are not judged by a guard: the address is the user's own choice.

mod alerts;
mod answer;
mod audit;
mod batches;
mod breakers;
mod calendars;
mod client;
mod connector;
mod dead_letters;
mod error;
mod forecast;
pub mod import;
mod jobs;
mod keys;
mod limits;
pub mod list;
mod many;
mod meta;
mod nodes;
pub mod once;
mod operations;
mod runs;
mod server;
mod tenants;
pub mod worker;
mod workers;

pub use answer::Answer;
pub use audit::AuditFilter;
pub use client::{Client, Options};
pub use dead_letters::Done;
pub use error::Error;
pub use forecast::ForecastQuery;
pub use jobs::{JobFilter, JobRef};
pub use keys::Key;
pub use list::List;
pub use many::Many;
pub use runs::RunFilter;
pub use server::Server;
pub use worker::Worker;
