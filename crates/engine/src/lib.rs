//! The steps of a run's life, from a due entry to a recorded outcome.
//!
//! The engine sees time, randomness and storage only through [`Clock`], [`Entropy`] and
//! [`Store`](punctual_store::Store), so that a test or a simulator can move them. One step, one file:
//! [`register`], `horizon`, [`fire`], `claim`, [`complete`], [`lapse`], [`reclaim`], [`history`], `retain`; beside it [`operations`], long
//! work over many jobs or runs, such as a [`backfill`] or a change in [`bulk`]. [`Node::start`] starts their loops.
//! [`warnings`] are what its newest runs say about a job, [`crowd`] what its neighbours in time do; [`forecast`] tells how many slots
//! are planned, from a `census` of the jobs and the `curve` of each schedule;
//! [`why`] and [`ledger`] tell what became of its slots. [`limits`] decides what runs share with others.
//! [`timetables`] turns schedules into slots once for all jobs that share one; [`wheel`] holds the due entries of
//! the near horizon, in time order; `desk` knows which workers have room; `pass` is the one loop driver.

mod behind;
mod bodies;
mod census;
mod claim;
mod clock;
mod curve;
mod desk;
mod engine;
mod entries;
mod error;
mod firing;
mod heartbeat;
mod horizon;
mod look;
mod metrics;
mod node;
mod pass;
mod placement;
mod retain;
mod ripe;
mod wake;

pub mod backfill;
pub mod bulk;
pub mod complete;
pub mod crowd;
pub mod dead_letters;
pub mod fire;
pub mod forecast;
pub mod history;
pub mod lapse;
pub mod ledger;
pub mod limits;
pub mod operations;
pub mod reclaim;
pub mod register;
pub mod timetables;
pub mod warnings;
pub mod wheel;
pub mod why;

pub use clock::{Clock, Entropy, ManualClock, Sleep, SystemClock, SystemEntropy};
pub use desk::Seat;
pub use engine::Engine;
pub use error::Error;
pub use metrics::Metrics;
pub use node::{Node, Options};
