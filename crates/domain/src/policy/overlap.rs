//! What happens when a run is to be born while others of its job are open.
//!
//! Decided in the commit that gives birth, by whatever makes runs: a slot, a trigger, a catch-up, a backfill. A run is
//! open until it has ended, also while it waits for its next attempt. Promise: under every policy but `allow` no two runs
//! of a job run at the same time, unless somebody asked for a backfill that allows it; what is not run is told.

/// The overlap policy of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// Runs do not care about each other.
    #[default]
    Allow,
    /// While a run is open, no other is born.
    Skip,
    /// One run waits for the open one; no more are born.
    QueueOne,
    /// Runs wait for each other, oldest slot first.
    QueueAll {
        /// How many wait at most; beyond that none is born.
        max: u32,
    },
    /// A new run takes the place of those that are open.
    CancelRunning,
}

/// How many runs wait under `queue_all`, unless said otherwise.
pub const QUEUE_MAX: u32 = 100;

impl Overlap {
    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Overlap::Allow => "allow",
            Overlap::Skip => "skip",
            Overlap::QueueOne => "queue_one",
            Overlap::QueueAll { .. } => "queue_all",
            Overlap::CancelRunning => "cancel_running",
        }
    }

    /// How many runs may wait for an earlier one. None for policies that let none wait, or replace what waits.
    pub fn queue_max(self) -> Option<u32> {
        match self {
            Overlap::QueueOne => Some(1),
            Overlap::QueueAll { max } => Some(max),
            Overlap::Allow | Overlap::Skip | Overlap::CancelRunning => None,
        }
    }

    /// Whether a dead run that is to go on waits for its turn. Somebody asked for this very run, so that no bound and no
    /// `skip` keeps it from it; but it does not run beside another, and replaces none.
    pub fn holds_redriven(self, open: Open) -> bool {
        self != Overlap::Allow && open.is_any()
    }
}

/// The open runs of a job, as far as they matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// One holds a lease.
    pub is_running: bool,
    /// One is pending, and not for an earlier run.
    pub is_pending: bool,
    /// How many wait for an earlier run. May be cut off at [`Overlap::queue_max`].
    pub behind: u32,
}

impl Open {
    /// Whether there is any.
    pub fn is_any(self) -> bool {
        self.is_running || self.is_pending || self.behind > 0
    }
}

/// What becomes of a birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is born as if it were alone.
    Start,
    /// It is born, and waits until no run is ahead of it.
    Wait,
    /// There is no run.
    Skip,
    /// What is pending is cancelled and what runs is asked to stop; then it is born.
    Replace {
        /// It waits for the lease of what ran.
        waits: bool,
    },
}

/// Decides so many births of one commit, in their order.
pub fn decide(policy: Overlap, mut open: Open, births: usize) -> Vec<Decision> {
    let mut decisions = Vec::with_capacity(births);
    for left in (0..births).rev() {
        let decision = match policy {
            Overlap::Allow => Decision::Start,
            // Of those that come together the last takes the place of all: they would be cancelled as they are born.
            Overlap::CancelRunning if left > 0 => Decision::Skip,
            _ if !open.is_any() => Decision::Start,
            Overlap::Skip => Decision::Skip,
            Overlap::CancelRunning => Decision::Replace { waits: open.is_running },
            Overlap::QueueOne | Overlap::QueueAll { .. } => {
                match policy.queue_max().is_some_and(|max| open.behind < max) {
                    true => Decision::Wait,
                    false => Decision::Skip,
                }
            }
        };
        match decision {
            Decision::Start => open.is_pending = true,
            Decision::Wait => open.behind += 1,
            Decision::Skip | Decision::Replace { .. } => {}
        }
        decisions.push(decision);
    }
    decisions
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Open = Open { is_running: false, is_pending: false, behind: 0 };
    const RUNNING: Open = Open { is_running: true, ..NONE };
    const PENDING: Open = Open { is_pending: true, ..NONE };

    fn behind(behind: u32) -> Open {
        Open { behind, ..RUNNING }
    }

    #[test]
    fn one_birth_meets_what_is_open() {
        use Decision::{Replace, Skip, Start, Wait};
        let all = Overlap::QueueAll { max: 3 };
        let cases = [
            (Overlap::Allow, [Start, Start, Start, Start, Start]),
            (Overlap::Skip, [Start, Skip, Skip, Skip, Skip]),
            (Overlap::QueueOne, [Start, Wait, Wait, Skip, Skip]),
            (all, [Start, Wait, Wait, Wait, Skip]),
            (
                Overlap::CancelRunning,
                [
                    Start,
                    Replace { waits: true },
                    Replace { waits: false },
                    Replace { waits: true },
                    Replace { waits: true },
                ],
            ),
        ];
        for (policy, expected) in cases {
            let open = [NONE, RUNNING, PENDING, behind(1), behind(3)];
            for (open, expected) in open.into_iter().zip(expected) {
                assert_eq!(decide(policy, open, 1), [expected], "{policy:?} {open:?}");
            }
        }
    }

    #[test]
    fn births_of_one_commit_see_each_other() {
        use Decision::{Replace, Skip, Start, Wait};
        assert_eq!(decide(Overlap::Skip, NONE, 3), [Start, Skip, Skip]);
        assert_eq!(decide(Overlap::QueueOne, NONE, 3), [Start, Wait, Skip]);
        assert_eq!(decide(Overlap::QueueAll { max: 2 }, behind(1), 3), [Wait, Skip, Skip]);
        assert_eq!(decide(Overlap::CancelRunning, NONE, 2), [Skip, Start]);
        assert_eq!(decide(Overlap::CancelRunning, RUNNING, 2), [Skip, Replace { waits: true }]);
        assert_eq!(decide(Overlap::Allow, RUNNING, 2), [Start, Start]);
    }

    #[test]
    fn no_policy_but_allow_starts_a_run_beside_another() {
        let mut rng = fastrand::Rng::with_seed(11);
        let policies = [
            Overlap::Skip,
            Overlap::QueueOne,
            Overlap::QueueAll { max: 1 },
            Overlap::QueueAll { max: 7 },
            Overlap::CancelRunning,
        ];
        for _ in 0..10_000 {
            let policy = policies[rng.usize(..policies.len())];
            let open = Open { is_running: rng.bool(), is_pending: rng.bool(), behind: rng.u32(..9) };
            let decisions = decide(policy, open, rng.usize(..12));
            let starts = decisions.iter().filter(|one| **one == Decision::Start).count();
            assert!(starts <= usize::from(!open.is_any()), "{policy:?} {open:?} {decisions:?}");
            let waiting = decisions.iter().filter(|one| **one == Decision::Wait).count() as u32;
            let max = policy.queue_max().unwrap_or(0);
            assert!(waiting <= max.saturating_sub(open.behind), "{policy:?} {open:?} {decisions:?}");
        }
    }

    #[test]
    fn a_redriven_run_waits_for_its_turn_whatever_the_bound() {
        for (open, expected) in [(NONE, false), (RUNNING, true), (PENDING, true), (behind(9), true)] {
            assert!(!Overlap::Allow.holds_redriven(open));
            for policy in [Overlap::Skip, Overlap::QueueOne, Overlap::CancelRunning] {
                assert_eq!(policy.holds_redriven(open), expected);
            }
        }
    }
}
