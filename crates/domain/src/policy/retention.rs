//! What is kept of the runs of a job, and how long.
//!
//! History is dropped by whole partitions, so there are a few classes and no arbitrary numbers. A run carries its [`Keep`]
//! from its birth on: an edit of its job changes what is born later.

use std::num::NonZeroU32;

use crate::run::RunState;

/// A class of retention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retention {
    /// One day.
    Day,
    /// Seven days.
    #[default]
    Week,
    /// Thirty days.
    Month,
    /// Four hundred days.
    Year,
}

impl Retention {
    /// All classes, shortest first.
    pub const ALL: [Retention; 4] = [Retention::Day, Retention::Week, Retention::Month, Retention::Year];

    /// How many days.
    pub fn days(self) -> u16 {
        match self {
            Retention::Day => 1,
            Retention::Week => 7,
            Retention::Month => 30,
            Retention::Year => 400,
        }
    }

    /// The class of exactly so many days.
    pub fn of_days(days: u64) -> Option<Self> {
        Retention::ALL.into_iter().find(|class| u64::from(class.days()) == days)
    }
}

/// How long a run is kept, from its end on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keep {
    /// For this class, however it ends.
    All(Retention),
    /// For this class, unless it succeeds: then for a day.
    Failures(Retention),
}

impl Keep {
    /// The class of a run that ends in this state.
    pub fn of(self, state: RunState) -> Retention {
        match (self, state) {
            (Keep::Failures(_), RunState::Succeeded) => Retention::Day,
            (Keep::All(class) | Keep::Failures(class), _) => class,
        }
    }

    /// The class that a run is born into: that of a success, as which most runs end. A job that is over is looked at when
    /// this has passed: what of its runs is kept longer, keeps it.
    pub fn at_birth(self) -> Retention {
        self.of(RunState::Succeeded)
    }

    /// The longest that a run may be kept.
    pub fn class(self) -> Retention {
        match self {
            Keep::All(class) | Keep::Failures(class) => class,
        }
    }
}

impl Default for Keep {
    fn default() -> Self {
        Keep::All(Retention::default())
    }
}

impl From<Retention> for Keep {
    fn from(class: Retention) -> Self {
        Keep::All(class)
    }
}

/// What is kept of an attempt's output, unless its job says otherwise.
pub const OUTPUT_BYTES: u32 = 64 * 1024;

/// What is kept of the runs of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long.
    pub keep: Keep,
    /// Lists of the job's runs show the newest so many that have ended; all that are kept, unless said otherwise.
    pub last: Option<NonZeroU32>,
    /// How many bytes of an attempt's output.
    pub output_max: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Policy { keep: Keep::default(), last: None, output_max: OUTPUT_BYTES }
    }
}

impl From<Retention> for Policy {
    fn from(class: Retention) -> Self {
        Policy { keep: class.into(), ..Policy::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_success_of_a_job_that_keeps_failures_is_kept_for_a_day() {
        let ended = [RunState::Failed, RunState::TimedOut, RunState::Cancelled, RunState::Missed];
        for class in Retention::ALL {
            assert_eq!(
                (Keep::All(class).of(RunState::Succeeded), Keep::All(class).at_birth()),
                (class, class)
            );
            assert_eq!(Keep::Failures(class).of(RunState::Succeeded), Retention::Day);
            assert_eq!(Keep::Failures(class).at_birth(), Retention::Day);
            for state in ended {
                assert_eq!((Keep::All(class).of(state), Keep::Failures(class).of(state)), (class, class));
            }
        }
    }
}
