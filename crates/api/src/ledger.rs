//! The ledger on the wire: slots that did not simply run, and why not.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Slots of one job that share a fate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LedgerEntry {
    /// Whose slots.
    pub job_id: String,
    /// The first slot.
    pub from: Timestamp,
    /// The last slot.
    pub to: Timestamp,
    /// How many slots.
    pub slots: u64,
    /// `missed` or `skipped`.
    pub state: String,
    /// Why: `catch_up`, `start_window`, `deadline`, `pause`, `cancel` or `overlap`.
    pub reason: String,
    /// When it was decided.
    pub decided_at: Timestamp,
}

impl From<&punctual_domain::LedgerEntry> for LedgerEntry {
    fn from(entry: &punctual_domain::LedgerEntry) -> Self {
        let (state, reason) = entry.fate.as_str();
        LedgerEntry {
            job_id: entry.job.to_string(),
            from: entry.from,
            to: entry.to,
            slots: entry.slots,
            state: state.into(),
            reason: reason.into(),
            decided_at: entry.decided_at,
        }
    }
}
