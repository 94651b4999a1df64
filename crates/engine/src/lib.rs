//! The steps of a run's life, from a due entry to a recorded outcome.
//!
//! The engine sees time, randomness and storage only through [`Clock`], [`Entropy`] and
//! [`Store`](punctual_store::Store), so that a test or a simulator can move them. One step, one file:
//! [`register`], `horizon`, [`fire`], `claim`, [`complete`], [`lapse`], [`reclaim`], [`history`], `retain`; beside it [`operations`], long
//! work over many jobs or runs, such as a [`backfill`] or a change in [`bulk`]. [`Node::start`] starts their loops.
//! [`warnings`] are what its newest runs say about a job, [`crowd`] what its neighbours in time do; [`forecast`] tells how many slots
//! are planned, from a `census` of the jobs and the `curve` of each schedule;
//! [`why`] and [`ledger`] tell what became of its slots. [`limits`] decides what runs share with others, `breakers` which targets are left alone, by what `under_way` counts.
//! [`links`] triggers jobs when runs of others end, [`batches`] makes a run for each item of a slot.
//! [`pull`] gives runs to workers elsewhere that ask for them, [`stay`] to those that wait for them on a stream. `answer` takes what somebody
//! says about a run of which nobody knows what it did.
//! [`log`] is what attempts wrote, [`queues`] how much waits for whom, `parts` how a slot becomes several runs.
//! `backlog` keeps what waits within its caps. [`audit`] is who asked for what, [`keys`] are who may ask for anything, `keyring` what a node knows of them.
//! [`timetables`] turns schedules into slots once for all jobs that share one; [`wheel`] holds the due entries of
//! the near horizon, in time order; `desk` knows which workers have room; `pass` is the one loop driver.

mod alone;
mod answer;
mod backlog;
mod behind;
mod bodies;
mod breakers;
mod calendar_states;
mod census;
mod changes;
mod claim;
mod clock;
mod create;
mod curve;
mod desk;
mod engine;
mod entries;
mod error;
mod firing;
mod handed;
mod heartbeat;
mod horizon;
mod keyring;
mod look;
mod messages;
mod metrics;
mod node;
mod note;
mod parts;
mod pass;
mod placement;
mod replan;
mod retain;
mod ripe;
mod under_way;
mod wake;

pub mod alarms;
pub mod alerts;
pub mod audit;
pub mod backfill;
pub mod batches;
pub mod bulk;
pub mod calendars;
pub mod complete;
pub mod crowd;
pub mod dead_letters;
pub mod defaults;
pub mod entrust;
pub mod fire;
pub mod forecast;
pub mod history;
pub mod keys;
pub mod lapse;
pub mod ledger;
pub mod limits;
pub mod links;
pub mod log;
pub mod operations;
pub mod pull;
pub mod queues;
pub mod reclaim;
pub mod register;
pub mod stay;
pub mod timetables;
pub mod trigger;
pub mod unwell;
pub mod warnings;
pub mod wheel;
pub mod why;

pub use clock::{Clock, Entropy, ManualClock, Sleep, SystemClock, SystemEntropy};
pub use desk::Seat;
pub use engine::Engine;
pub use error::Error;
pub use metrics::Metrics;
pub use node::{Node, Options};
