//! The API as types: what goes over the wire, how it is read, and what is wrong with it.
//!
//! Used by the server, the client and the CLI alike, so everything here goes both ways. Read in this order: [`job`]
//! is what a user sends and gets back, [`read`] turns text into it and names every wrong field at once, [`problem`]
//! is how a refusal looks. Wire, row and domain are three types; the conversions are written out beside each noun.
//! No I/O and no async here.

#[macro_use]
mod object;

pub mod alert;
pub mod audit;
pub mod backfill;
pub mod batch;
pub mod breaker;
pub mod bulk;
pub mod calendar;
pub mod dead_letter;
pub mod defaults;
pub mod duration;
pub mod forecast;
pub mod health;
pub mod import;
pub mod job;
pub mod key;
pub mod ledger;
pub mod limit;
pub mod limits;
pub mod link;
pub mod merge;
pub mod node;
pub mod operation;
pub mod page;
pub mod parts;
pub mod payload;
pub mod policies;
pub mod problem;
pub mod queue;
pub mod read;
pub mod report;
pub mod retry;
pub mod run;
pub mod schedule;
pub mod target;
pub mod tenant;
pub mod time;
pub mod worker;

pub use duration::Duration;
pub use job::{Job, JobSpec};
pub use page::Page;
pub use payload::Payload;
pub use problem::{Code, FieldError, Problem};
pub use read::Rules;
pub use run::{Attempt, Run, RunSummary};
pub use schedule::Schedule;
pub use target::Target;
pub use time::Time;
