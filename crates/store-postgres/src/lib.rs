//! The store of a cluster: PostgreSQL.
//!
//! Any number of nodes share one database; each verb is a few statements over arrays, in one transaction. Promise: a
//! verb that returned is committed; a fire needs the epoch under which its shard is owned, and shares the shard's row
//! with other fires but not with a change of a job; the end of a run needs the revision of the run that was last seen.

mod answer;
mod audit;
mod backlog;
mod calls;
mod change;
mod check;
mod claim;
mod client;
mod complete;
mod connect;
mod depth;
mod documents;
mod due;
mod ended;
mod error;
mod fire;
mod history;
mod jobs;
mod lapse;
mod leases;
mod limit;
mod migrate;
mod open_runs;
mod operations;
mod overlap;
mod papers;
mod partition;
mod people;
mod placement;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod plans;
mod postgres;
mod put_jobs;
mod queues;
mod requests;
mod retain;
mod row;
mod sequences;
mod servers;
mod several;
mod straight;
mod tls;
mod transfer;
mod turns;
mod wakeups;
mod work;
mod workers;

pub use check::check;
pub use connect::{Options, Role, Time};
pub use error::OpenError;
pub use migrate::{Schema, SchemaStep};
pub use postgres::Postgres;
pub use several::Several;
pub use transfer::Side;
pub use wakeups::Hints;
