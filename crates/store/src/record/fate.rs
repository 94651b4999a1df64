//! The fate of slots, as a number.

use punctual_domain::ledger::Fate;
use punctual_domain::policy::backlog::Cap;

/// A new one goes to the end.
const FATES: [Fate; 11] = [
    Fate::MissedCatchUp,
    Fate::MissedStartWindow,
    Fate::SkippedPause,
    Fate::SkippedCancel,
    Fate::MissedDeadline,
    Fate::SkippedOverlap,
    Fate::SkippedCalendar,
    Fate::Throttled(Cap::Tenant),
    Fate::Throttled(Cap::All),
    Fate::MissedNoWorker,
    Fate::Throttled(Cap::Suspended),
];

/// The number of a fate.
pub fn fate_code(fate: Fate) -> u8 {
    FATES.iter().position(|one| *one == fate).unwrap_or(0) as u8
}

/// The fate of a number, if it has one.
pub fn fate_of(code: i64) -> Option<Fate> {
    FATES.get(usize::try_from(code).ok()?).copied()
}
