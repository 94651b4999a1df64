//! Why the engine did not do what it was asked.

use punctual_domain::{JobId, Version};
use punctual_store::Subject;

/// A refused or failed request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such job, or it is another tenant's.
    #[error("job `{0}` not found")]
    JobNotFound(String),
    /// There is no such run, or it is another tenant's.
    #[error("run `{0}` not found")]
    RunNotFound(String),
    /// There is no such operation, or it is another tenant's.
    #[error("operation `{0}` not found")]
    OperationNotFound(String),
    /// There is no such tenant.
    #[error("tenant `{0}` not found")]
    TenantNotFound(String),
    /// Another job has the key.
    #[error("the key `{key}` is taken by job {by}")]
    KeyTaken {
        /// The key.
        key: String,
        /// Who has it.
        by: JobId,
    },
    /// The job changed since it was read.
    #[error("the job is at version {current}, not {expected}")]
    VersionConflict {
        /// What the caller had seen.
        expected: Version,
        /// What it is.
        current: Version,
    },
    /// The same `Idempotency-Key` was used before; this is what came of it.
    #[error("the request was made before")]
    Repeated(Box<Subject>),
    /// The schedule cannot be used.
    #[error("schedule: {0}")]
    Schedule(#[from] punctual_schedule::Error),
    /// The job is not in a state for this.
    #[error("a {state} job cannot be {action}")]
    WrongState {
        /// What it is.
        state: &'static str,
        /// What was tried.
        action: &'static str,
    },
    /// Runs of the job are open, and its overlap policy has no place for another.
    #[error("a run of the job is open, and its overlap policy is `{policy}`")]
    Overlap {
        /// The policy.
        policy: &'static str,
    },
    /// Too many limits would be for one run.
    #[error("at most {} limits may be for the same run", punctual_domain::policy::limit::RULES_MAX)]
    TooManyLimits,
    /// Slots of the past cannot be run.
    #[error(transparent)]
    Backfill(#[from] crate::backfill::Refusal),
    /// An edit would leave a job that is not valid.
    #[error("{0}")]
    Edit(String),
    /// The operation has ended.
    #[error("a {state} operation cannot be cancelled")]
    OperationEnded {
        /// How.
        state: &'static str,
    },
    /// The run is not in a state for this.
    #[error(transparent)]
    Run(#[from] punctual_domain::lifecycle::Refused),
    /// The store cannot do it.
    #[error(transparent)]
    Store(#[from] punctual_store::Error),
}

impl Error {
    /// Whether the same may work later.
    pub fn is_passing(&self) -> bool {
        matches!(self, Error::Store(punctual_store::Error::Unavailable { .. }))
    }

    /// Whether what was read contradicts itself: trying again does not help.
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Store(punctual_store::Error::Damaged { .. }))
    }
}
