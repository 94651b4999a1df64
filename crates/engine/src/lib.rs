//! The steps of a run's life, from a due entry to a recorded outcome.
//!
//! The engine sees time, randomness and storage only through [`Clock`], [`Entropy`] and
//! [`Store`](punctual_store::Store), so that a test or a simulator can move them. One step, one file:
//! [`register`], [`fire`], [`complete`], [`reclaim`]. [`timetables`] turns schedules into slots once for all jobs that share one; [`wheel`]
//! holds the due entries of the near horizon, in time order.

mod clock;
mod engine;
mod error;

pub mod complete;
pub mod fire;
pub mod reclaim;
pub mod register;
pub mod timetables;
pub mod wheel;

pub use clock::{Clock, Entropy, ManualClock};
pub use engine::Engine;
pub use error::Error;
