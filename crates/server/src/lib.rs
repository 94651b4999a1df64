//! The API over the engine, REST and gRPC.
//!
//! [`router`] is everything: one table in `routes.rs` says for every route which role may call it, what it takes and
//! what it gives, and is also the source of the OpenAPI document. A request passes `front.rs` (its id, its headers),
//! the gate (`access.rs`), and a handler in the file of its noun; every refusal leaves through `error.rs`, where status
//! codes are chosen. `console/` has the pages for people, and `grpc/` has the methods of gRPC, which are routes in a table of their own. The server knows no store: it asks the engine.

mod access;
mod alerts;
mod answer;
mod batches;
mod breakers;
mod bulk;
mod calendars;
mod call;
mod console;
mod cursor;
mod dead_letters;
mod editor;
mod error;
mod forecast;
mod front;
mod grpc;
mod import;
mod jobs;
mod keys;
mod limits;
mod many;
mod meta;
mod nodes;
mod once;
mod openapi;
mod operations;
mod query;
mod queues;
mod reports;
mod routes;
mod runs;
mod state;
mod tenants;
mod waiting;
mod workers;

pub use access::{Access, Caller, Denied, Keys, Loopback, Needs, Role};
pub use console::PAGES;
pub use editor::Editor;
pub use openapi::document;
pub use routes::{Endpoint, METHODS, TABLE, probes, router};
pub use state::{Health, Limits, State};
pub use waiting::waiting;
