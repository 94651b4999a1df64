//! The policies of a job: each stored with it, each with a visible default, each decided by a
//! function from facts to a decision.

pub mod catch_up;
pub mod failures;
pub mod gate;
pub mod limit;
pub mod overlap;
pub mod retention;
pub mod retry;
pub mod template;
pub mod timeouts;

/// All policies of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// What happens to slots reached too late.
    pub catch_up: catch_up::CatchUp,
    /// What happens when a run is to be born while others are open.
    pub overlap: overlap::Overlap,
    /// When a failed attempt is followed by another.
    pub retry: retry::Retry,
    /// How long things may take.
    pub timeouts: timeouts::Timeouts,
    /// How many runs go on at once; as many as there are, unless said otherwise.
    pub concurrency: Option<limit::Concurrency>,
    /// How fast they start.
    pub rate: Option<limit::RateLimit>,
    /// How long history is kept.
    pub retention: retention::Retention,
}
