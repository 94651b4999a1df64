//! What a check of a store says: the same things in the same words, whatever the store.
//!
//! Each store reads its rows; [`Judge`] says what must be true of a job and everything that belongs to it.

mod jobs;

use std::fmt;

use crate::error::Error;
pub use jobs::{DueRow, JobRow, Judge};

/// Findings that are told one by one; of more only the number is.
pub const FINDINGS_MAX: usize = 100;

/// What a check has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The format of the database, or the number of its schema.
    pub format: i64,
    /// Shards.
    pub shards: u64,
    /// Tenants.
    pub tenants: u64,
    /// Jobs, deleted ones too.
    pub jobs: u64,
    /// Due entries that count.
    pub due: u64,
    /// Due entries of older versions of their jobs, which are dropped when their time comes.
    pub due_stale: u64,
    /// Runs that have not ended.
    pub open_runs: u64,
    /// Of these, runs that an attempt holds a lease on.
    pub running: u64,
    /// Runs that have ended.
    pub history: u64,
    /// Partitions of history.
    pub partitions: u64,
    /// Runs that ended badly and wait for somebody.
    pub dead_letters: u64,
    /// Entries of the ledger.
    pub ledger: u64,
    /// Operations, ended ones too.
    pub operations: u64,
    /// What is wrong, as far as it is told one by one.
    pub findings: Vec<Finding>,
    /// How many things are wrong.
    pub wrong: u64,
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The table or the file.
    pub place: String,
    /// Which row, and what is wrong with it.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl Checked {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.wrong == 0
    }

    /// Notes that something is wrong.
    pub fn find(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.wrong += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { place: place.into(), what: what.into() });
        }
    }

    /// A part of the check that cannot go on is a finding; the other parts go on.
    pub fn attempt(&mut self, place: &str, part: impl FnOnce(&mut Self) -> Result<(), Error>) {
        if let Err(error) = part(self) {
            self.find(place, error.to_string());
        }
    }
}
