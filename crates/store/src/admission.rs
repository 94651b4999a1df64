//! What becomes of births whose job has an overlap policy, or that may not wait.
//!
//! Used by every store in the commit that gives birth: it gathers what is open of the job, this says what is born, what
//! waits and what is skipped, and the store does that. Births under `allow` that may wait need none of it.

use jiff::Timestamp;
use punctual_domain::id::Sequence;
use punctual_domain::ledger::Fate;
use punctual_domain::policy::overlap::{self, Decision, Open, Overlap};
use punctual_domain::run::{Run, RunState, WaitingFor};
use punctual_domain::{Attempt, LedgerEntry};

use crate::error::Refused;
use crate::verbs::{Birth, Parent};

/// Decided births of one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admission {
    /// Those that become runs, in their order.
    pub born: Vec<Admitted>,
    /// Those that do not, in their order.
    pub skipped: Vec<Skipped>,
    /// What is open gives way first: pending runs are cancelled, running ones asked to stop.
    pub replaces: bool,
}

/// A birth that becomes a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Admitted {
    /// The birth.
    pub birth: Birth,
    /// The run waits for an earlier one.
    pub is_behind: bool,
}

/// A birth that becomes none, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Skipped {
    /// The birth.
    pub birth: Birth,
    /// What becomes of its slot.
    pub fate: Fate,
}

/// Whether births need to be decided against what is open: they have all the same policy.
pub fn is_ruled(births: &[Birth]) -> bool {
    births.first().is_some_and(|birth| birth.overlap != Overlap::Allow)
}

/// Whether one of them is born running or not at all.
pub fn is_full(births: &[Birth]) -> bool {
    births.iter().any(|birth| birth.full.is_some())
}

impl Admission {
    /// Births that nothing stands in the way of.
    pub fn free(births: Vec<Birth>) -> Self {
        let born = births.into_iter().map(|birth| Admitted { birth, is_behind: false }).collect();
        Admission { born, ..Admission::default() }
    }

    /// Decides births against what is open of their job. `is_open` says whether the gates of a birth's limits are open
    /// now, and is asked about those that may not wait.
    pub fn decide(births: Vec<Birth>, open: Open, mut is_open: impl FnMut(&Birth) -> bool) -> Self {
        let policy = births.first().map(|birth| birth.overlap).unwrap_or_default();
        let decisions = overlap::decide(policy, open, births.len());
        let mut admission = Admission::default();
        for (birth, decision) in births.into_iter().zip(decisions) {
            let (is_behind, replaces) = match decision {
                Decision::Skip => {
                    admission.skipped.push(Skipped { birth, fate: Fate::SkippedOverlap });
                    continue;
                }
                Decision::Start => (false, false),
                Decision::Wait => (true, false),
                Decision::Replace { waits } => (waits, true),
            };
            if let Some(cap) = birth.full {
                let starts = !is_behind && birth.claimed_by.is_some();
                if !starts || !(birth.limits.is_empty() || is_open(&birth)) {
                    admission.skipped.push(Skipped { birth, fate: Fate::Throttled(cap) });
                    continue;
                }
            }
            admission.replaces |= replaces;
            admission.born.push(Admitted { birth, is_behind });
        }
        admission
    }

    /// Whether one of them waits for an earlier run.
    pub fn has_behind(&self) -> bool {
        self.born.iter().any(|admitted| admitted.is_behind)
    }

    /// For whoever asks for a run: refused if there is none.
    pub fn wholly(self) -> Result<Self, Refused> {
        match self.skipped.is_empty() {
            true => Ok(self),
            false => Err(Refused::Overlap { room: self.born.len() }),
        }
    }

    /// For whoever can wait until there is room: refused where a queue is full.
    pub fn patiently(self) -> Result<Self, Refused> {
        let is_queue = self.skipped.first().is_some_and(|one| one.birth.overlap.queue_max().is_some());
        if is_queue { self.wholly() } else { Ok(self) }
    }
}

impl Admitted {
    /// The run that is born, and its first attempt if it is born running. One that waits is not.
    pub fn into_run(self, of: Parent, sequence: Sequence, now: Timestamp) -> (Run, Vec<Attempt>) {
        if !self.is_behind {
            return self.birth.into_run(of, sequence, now);
        }
        let birth = Birth { claimed_by: None, ..self.birth };
        let (mut run, attempts) = birth.into_run(of, sequence, now);
        run.state = RunState::Pending(WaitingFor::EarlierRun);
        (run, attempts)
    }
}

impl Skipped {
    /// The account of the slot, given the last entry that begins at or before it.
    pub fn accounted(&self, of: Parent, known: Option<&LedgerEntry>, now: Timestamp) -> Option<LedgerEntry> {
        let (slot, fate) = (self.birth.scheduled_for, self.fate);
        let (job, tenant) = (of.job, of.tenant);
        let entry = LedgerEntry { job, tenant, from: slot, to: slot, slots: 1, fate, decided_at: now };
        entry.brought_into(known, self.birth.previous)
    }
}
