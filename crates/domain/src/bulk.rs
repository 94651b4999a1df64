//! One change of many jobs or runs: which of them, and what becomes of each.
//!
//! A filter is judged when the operation reaches a job or a run, not when it is started. What was registered or born after
//! the start is not touched.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::id::{JobId, RunId};

/// A change of all jobs of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeJobs {
    /// Which.
    pub which: Jobs,
    /// What becomes of each.
    pub change: Change,
}

/// Which jobs of the tenant; what is not given does not narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// In this state: one of [`Jobs::STATES`].
    pub state: Option<&'static str>,
    /// With this text in their names.
    pub name: Option<String>,
    /// With keys that begin like this.
    pub key_prefix: Option<String>,
    /// Of this type.
    pub kind: Option<String>,
    /// In this queue.
    pub queue: Option<Arc<str>>,
    /// With all of these labels.
    pub labels: BTreeMap<String, String>,
}

impl Jobs {
    /// The states that a job can be found in.
    pub const STATES: [&'static str; 3] = ["active", "paused", "ended"];
}

/// What becomes of each job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It does not fire until resumed, or until a time.
    Pause {
        /// Why.
        reason: Option<String>,
        /// Who.
        by: Option<String>,
        /// When it resumes by itself.
        until: Option<Timestamp>,
    },
    /// It fires again.
    Resume,
    /// It goes.
    Delete,
    /// Some of what its owner asked for is replaced.
    Edit {
        /// What, in the words of whoever asked: a JSON merge patch.
        patch: Box<str>,
        /// Its waiting runs take the new version.
        updates_waiting: bool,
    },
}

impl Change {
    /// The word for the operation, as in the API.
    pub fn as_str(&self) -> &'static str {
        match self {
            Change::Pause { .. } => "pause_jobs",
            Change::Resume => "resume_jobs",
            Change::Delete => "delete_jobs",
            Change::Edit { .. } => "edit_jobs",
        }
    }
}

/// Which open runs of the tenant are cancelled; what is not given does not narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CancelRuns {
    /// Of this job.
    pub job: Option<JobId>,
    /// Of this type of job.
    pub kind: Option<Arc<str>>,
    /// In this queue.
    pub queue: Option<Arc<str>>,
    /// In this state: one of [`CancelRuns::STATES`].
    pub state: Option<&'static str>,
    /// Born at or after.
    pub born_from: Option<Timestamp>,
    /// Born before.
    pub born_before: Option<Timestamp>,
}

impl CancelRuns {
    /// The states of open runs.
    pub const STATES: [&'static str; 2] = ["pending", "running"];
}

/// What a step did not change, because it had changed since the step was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// A job.
    Job(JobId),
    /// A run.
    Run(RunId),
}
