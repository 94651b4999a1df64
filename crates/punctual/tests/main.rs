//! The real binary, from outside: one program of tests, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "what is not there fails the test")]

mod alerts;
mod apply;
mod audit;
mod backlog;
mod batches;
mod bench;
mod breakers;
mod bulk;
mod calendars;
mod cli;
mod cluster;
mod comfort;
mod contexts;
mod copy;
mod cut_off;
mod disk;
mod documents;
mod downtime;
mod explain;
mod fairness;
mod forecast;
mod grpc;
mod import;
mod inside;
mod keys;
mod kill;
mod links;
mod long;
mod messages;
mod metrics;
mod migrate;
mod outage;
mod overlap;
mod poison;
mod pull;
mod redrive;
mod serve;
mod several;
mod sharing;
mod stopping;
mod token;
mod unknown;
mod why;

mod support {
    pub(crate) mod asked;
    pub(crate) mod hook;
    pub(crate) mod program;
    pub(crate) mod proxy;
    pub(crate) mod puller;
    pub(crate) mod server;
}
