//! The account of slots that did not simply run: which, how many, and why not.
//!
//! A slot with a run needs no entry; its run is the account. A long range is one entry, so a month
//! of downtime costs a line and not a million.

use jiff::Timestamp;

use crate::id::{JobId, TenantId};
use crate::run::Limit;

/// Slots of one job that share a fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Whose slots.
    pub job: JobId,
    /// Whose job.
    pub tenant: TenantId,
    /// The first slot.
    pub from: Timestamp,
    /// The last slot.
    pub to: Timestamp,
    /// How many slots.
    pub slots: u64,
    /// What became of them.
    pub fate: Fate,
    /// When it was decided.
    pub decided_at: Timestamp,
}

/// Why a slot did not become a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Reached too late, and the catch-up policy runs none or only later ones.
    MissedCatchUp,
    /// Reached later than its start window allows.
    MissedStartWindow,
    /// The job was paused.
    SkippedPause,
    /// Reached after its deadline.
    MissedDeadline,
    /// It was to be caught up with, and the operation was cancelled before its turn came.
    SkippedCancel,
}

impl Fate {
    /// The fate of slots that were reached after a limit of their job.
    pub fn of(limit: Limit) -> Self {
        match limit {
            Limit::StartWindow | Limit::RetryFor => Fate::MissedStartWindow,
            Limit::Deadline => Fate::MissedDeadline,
        }
    }

    /// The state and reason, as in the API.
    pub fn as_str(self) -> (&'static str, &'static str) {
        match self {
            Fate::MissedCatchUp => ("missed", "catch_up"),
            Fate::MissedStartWindow => ("missed", "start_window"),
            Fate::MissedDeadline => ("missed", "deadline"),
            Fate::SkippedPause => ("skipped", "pause"),
            Fate::SkippedCancel => ("skipped", "cancel"),
        }
    }
}
