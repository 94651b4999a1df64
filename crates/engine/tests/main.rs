//! The engine by its public face, with clocks that tests move: one program of tests, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "what is not there fails the test")]

mod alerts;
mod alone;
mod audit;
mod backfill;
mod backlog;
mod batches;
mod breakers;
mod bulk;
mod calendars;
mod cluster;
mod ended;
mod entrust;
mod forecast;
mod history;
mod keys;
mod life;
mod limits;
mod links;
mod messages;
mod node;
mod operations;
mod outage;
mod overlap;
mod pause;
mod pull;
mod register;
mod replica;
mod restart;
mod retention;
mod sharing;
mod unknown;
mod why;

mod support {
    pub(crate) mod between;
    pub(crate) mod world;
}
