//! The policies of a job: each stored with it, each with a visible default, each decided by a
//! function from facts to a decision.

pub mod backlog;
pub mod breaker;
pub mod catch_up;
pub mod completion;
pub mod failures;
pub mod gate;
pub mod limit;
pub mod overlap;
pub mod retention;
pub mod retry;
pub mod template;
pub mod timeouts;
pub mod unknown;

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
    /// What follows an attempt of which nobody knows whether it did its work.
    pub on_unknown: unknown::OnUnknown,
    /// When a call is over.
    pub completion: completion::Completion,
    /// How many runs go on at once; as many as there are, unless said otherwise.
    pub concurrency: Option<limit::Concurrency>,
    /// How fast they start.
    pub rate: Option<limit::RateLimit>,
    /// When the job is left alone because it fails again and again; never, unless said otherwise.
    pub breaker: Option<breaker::OfJob>,
    /// What is kept of its runs, and how long.
    pub retention: retention::Policy,
}
