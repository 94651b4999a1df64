//! What passes between the engine and a worker, in one process or between two.

use std::sync::Arc;

use crate::attempt::Report;
use crate::id::{Sequence, WorkerId};
use crate::job::Job;
use crate::run::Run;

/// A run that is leased to a worker, with the job in the version it was fired with.
#[derive(Clone, Debug, PartialEq)]
pub struct Leased {
    /// The run.
    pub run: Run,
    /// Its job.
    pub job: Arc<Job>,
}

/// An attempt that a worker says it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The run.
    pub sequence: Sequence,
    /// The attempt.
    pub attempt: u32,
}

impl From<&Run> for Held {
    fn from(run: &Run) -> Self {
        Held { sequence: run.sequence, attempt: run.attempt }
    }
}

/// The answer to a worker's heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// The worker was taken for dead: it holds nothing any more and must start anew.
    pub is_refused: bool,
    /// Attempts it lists but does not hold any more.
    pub not_held: Vec<Held>,
    /// Attempts somebody asked to stop.
    pub cancelled: Vec<Held>,
}

/// An attempt that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Who held it.
    pub worker: WorkerId,
    /// The run as it was claimed.
    pub run: Run,
    /// The job in the version the run was fired with.
    pub job: Arc<Job>,
    /// What came of it; nothing if it is given back unfinished.
    pub report: Option<Report>,
}
