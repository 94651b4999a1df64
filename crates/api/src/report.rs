//! What a receiver says of its attempt under its token: that it goes on, and what became of it.

use jiff::Timestamp;
use punctual_domain::id::RunId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::payload::Payload;
use crate::read::{At, Errors, Unread};
use crate::time::Time;
use crate::worker::{AttemptProgress, AttemptResult, HeldAttempt, ReadNote, ReadResult, ResultError};

/// The header in which a receiver is given its token, and in which it may send it back. `Authorization: Bearer` is the other way.
pub const TOKEN_HEADER: &str = "punctual-completion-token";

object! {
    /// A sign of life of an attempt whose receiver reports by its token.
    pub struct AttemptHeartbeat {
        /// How far it is.
        pub progress: AttemptProgress,
        /// Where the next attempt goes on: any JSON up to 64 KiB. The last one counts.
        pub checkpoint: Payload,
        /// What happened since the last heartbeat; of each line 4 KiB are kept.
        pub log: Vec<String>,
    }

    /// What became of an attempt whose receiver reports by its token.
    pub struct AttemptEnd {
        /// `succeeded`, `failed`, `timed_out` or `cancelled`.
        #[schema(required = true, example = "succeeded")]
        pub outcome: String,
        /// What it says, kept up to the job's `output_max`.
        pub output: String,
        /// Why it failed, with `failed` and `timed_out`.
        pub error: ResultError,
        /// The last lines of its log.
        pub log: Vec<String>,
        /// When it began, by the receiver's clock.
        pub started_at: Time,
        /// When it ended, by the receiver's clock.
        pub finished_at: Time,
    }
}

/// What a sign of life of a receiver is answered with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptHeard {
    /// Somebody asked the run to stop, and it has ended: stop, and report nothing.
    pub cancelled: bool,
    /// The attempt is the receiver's until then, unless it is heard of again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_by: Option<Timestamp>,
}

impl AttemptHeartbeat {
    /// What the attempt says of itself, if anything, or everything that is wrong.
    pub fn to_domain(&self, run: RunId) -> Result<Option<ReadNote>, Unread> {
        let mut errors = Errors::default();
        let held = HeldAttempt {
            progress: self.progress.clone(),
            checkpoint: self.checkpoint.clone(),
            log: self.log.clone(),
            ..HeldAttempt::default()
        };
        let note = held.note(run, 0, &At::ROOT, &mut errors);
        match errors.is_empty() {
            true => Ok(note),
            false => Err(Unread::Wrong(errors.into_vec())),
        }
    }
}

impl AttemptEnd {
    /// As it can be taken, or everything that is wrong.
    pub fn to_domain(&self, run: RunId) -> Result<ReadResult, Unread> {
        let (at, mut errors) = (At::ROOT, Errors::default());
        let result = AttemptResult {
            run_id: Some(run.to_string()),
            attempt: Some(0),
            outcome: self.outcome.clone(),
            output: self.output.clone(),
            error: self.error.clone(),
            log: self.log.clone(),
            started_at: self.started_at.clone(),
            finished_at: self.finished_at.clone(),
        };
        let read = result.to_domain(&at, &mut errors);
        if read.as_ref().is_some_and(|read| read.outcome.is_none()) {
            let detail = "a receiver says what came of its attempt; one that failed is tried again as the job's `retry` says";
            errors.add(&at.member("outcome"), "unknown_value", detail);
        }
        match read {
            Some(read) if errors.is_empty() => Ok(read),
            _ => Err(Unread::Wrong(errors.into_vec())),
        }
    }
}
