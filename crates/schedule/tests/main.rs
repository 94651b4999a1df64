//! Schedules by tables, properties, oracles and garbage: one program of tests, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "what is not there fails the test")]

mod bounds;
mod calendar_limits;
mod calendar_table;
mod calendar_walk;
mod calendars;
mod clock_changes;
mod closed;
mod croner;
mod describe;
mod ends;
mod evened;
mod extremes;
mod fuzz;
mod interval_walk;
mod intervals;
mod limits;
mod moved;
mod oracle;
mod properties;
mod refused;
mod sieved;
mod table;
mod tzdata;
mod worst;
mod zones;

mod support {
    pub(crate) mod generate;
    pub(crate) mod interpreter;
    pub(crate) mod oracle;
    pub(crate) mod plan;
    pub(crate) mod zones;
}
