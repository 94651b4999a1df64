//! The account of slots that did not simply run: which, how many, and why not.
//!
//! A slot with a run needs no entry; its run is the account. A long range is one entry, so a month
//! of downtime costs a line and not a million; slots that are skipped one after the other are brought together.

use jiff::Timestamp;

use crate::id::{JobId, TenantId};
use crate::policy::backlog::Cap;
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
    /// Other runs of the job were open, and its overlap policy runs none beside them.
    SkippedOverlap,
    /// A calendar excluded it when it was reached: it was planned before the calendar said so.
    SkippedCalendar,
    /// As many runs waited as may.
    Throttled(Cap),
    /// It was for every worker that lives, and none did.
    MissedNoWorker,
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
            Fate::SkippedOverlap => ("skipped", "overlap"),
            Fate::SkippedCalendar => ("skipped", "calendar"),
            Fate::Throttled(cap) => ("throttled", cap.as_str()),
            Fate::MissedNoWorker => ("missed", "no_worker"),
        }
    }
}

impl LedgerEntry {
    /// Brings a slot into the account, given the last entry that begins at or before it: what is to be written, if
    /// anything is. `previous` is the slot before it.
    pub fn brought_into(
        self,
        known: Option<&LedgerEntry>,
        previous: Option<Timestamp>,
    ) -> Option<LedgerEntry> {
        // Stores keep milliseconds.
        let (from, previous) = (self.from.as_millisecond(), previous.map(Timestamp::as_millisecond));
        match known {
            Some(known) if known.to.as_millisecond() >= from => None, // It was accounted for when it was due.
            Some(known) if known.fate == self.fate && Some(known.to.as_millisecond()) == previous => {
                Some(LedgerEntry { from: known.from, slots: known.slots + self.slots, ..self })
            }
            _ => Some(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ShardId;
    use crate::lifecycle::tests::at;

    fn entry(from: i64, to: i64, slots: u64, fate: Fate) -> LedgerEntry {
        let job = JobId::new(at(0), ShardId(1), 1);
        let tenant = TenantId::DEFAULT;
        LedgerEntry { job, tenant, from: at(from), to: at(to), slots, fate, decided_at: at(to) }
    }

    #[test]
    fn slots_that_follow_each_other_share_an_entry() {
        let overlap = Fate::SkippedOverlap;
        let slot = || entry(60, 60, 1, overlap);
        let bring = |known: Option<LedgerEntry>, previous| slot().brought_into(known.as_ref(), previous);
        assert_eq!(bring(None, Some(at(0))), Some(slot()));
        let whole = Some(entry(-60, 60, 3, overlap));
        assert_eq!(bring(Some(entry(-60, 0, 2, overlap)), Some(at(0))), whole);
        assert_eq!(bring(Some(entry(-60, -1, 2, overlap)), Some(at(0))), Some(slot()), "one ran in between");
        assert_eq!(bring(Some(entry(-60, 0, 2, overlap)), None), Some(slot()));
        assert_eq!(bring(Some(entry(-60, 0, 2, Fate::SkippedPause)), Some(at(0))), Some(slot()));
        for known in [entry(60, 60, 1, overlap), entry(0, 90, 9, Fate::MissedCatchUp)] {
            assert_eq!(bring(Some(known), Some(at(0))), None, "it is accounted for");
        }
    }
}
