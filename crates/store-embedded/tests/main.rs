//! The embedded store by its public face: the suite, damage, faults, backups, moves. One program of tests, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "what is not there fails the test")]

mod backup;
mod checked;
mod damage;
mod embedded;
mod faults;
mod reopened;
mod support;
mod transfer;
