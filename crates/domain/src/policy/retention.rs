//! How long the history of a job is kept.
//!
//! History is dropped by whole partitions, so there are a few classes and no arbitrary numbers.

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
