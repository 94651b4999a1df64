//! What can go wrong in a store, apart by who must act.
//!
//! An [`Error`] fails a whole call. A [`Refused`] is about one item of a
//! list: an expected answer, such as a slot that was already fired.

use punctual_domain::lifecycle;
use punctual_domain::{JobId, Version};

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Storage cannot take writes or answer now; the same call may work later. Nothing was done, unless the store is on
    /// another machine and only its answer was lost.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// Why, for people.
        reason: String,
    },
    /// What was read contradicts itself.
    #[error("the store is damaged: {what}")]
    Damaged {
        /// What is wrong and where.
        what: String,
    },
}

/// Why one item of a list was not done. Nothing of that item was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The shard has another owner by now.
    #[error("the shard has another owner")]
    StaleEpoch,
    /// The shard lives in another database by now.
    #[error("the shard lives in another database")]
    Elsewhere,
    /// The due entry is not there: the slot was fired already, or the job was changed.
    #[error("the slot is not due any more")]
    NotDue,
    /// The job has another version than expected.
    #[error("the job is at version {current}")]
    WrongVersion {
        /// Its version now.
        current: Version,
    },
    /// There is no such job.
    #[error("there is no such job")]
    NoJob,
    /// Another job of the tenant has this key.
    #[error("the key is taken by job {by}")]
    KeyTaken {
        /// Which.
        by: JobId,
    },
    /// The request was made before, under the same `Idempotency-Key`.
    #[error("the request was made before")]
    Repeated,
    /// There is no such run.
    #[error("there is no such run")]
    NoRun,
    /// The operation has gone on or ended meanwhile, or is not there.
    #[error("the operation is at another step")]
    StaleStep,
    /// The document is not as expected: somebody else changed it, or it is there, or it is not.
    #[error("the document was changed")]
    DocumentChanged,
    /// The checkpoint has more bytes than are kept; the rest of the note is not kept either.
    #[error("a checkpoint has at most {} bytes", punctual_domain::papers::CHECKPOINT_MAX)]
    CheckpointTooLarge,
    /// Other runs of the job are open, and its overlap policy makes no more than so many beside them.
    #[error("other runs of the job are open, and {room} more may be")]
    Overlap {
        /// How many of those that were asked for could be born.
        room: usize,
    },
    /// The run cannot take this event.
    #[error(transparent)]
    Lifecycle(#[from] lifecycle::Refused),
}
