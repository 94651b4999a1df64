//! What passes between the engine and a worker, in one process or between two.

use std::sync::Arc;

use jiff::Timestamp;

use crate::attempt::Report;
use crate::id::{Sequence, TenantId, WorkerId};
use crate::job::Job;
use crate::labels::Labels;
use crate::run::Run;

/// A run that is leased to a worker, with the job in the version it was fired with.
#[derive(Clone, Debug, PartialEq)]
pub struct Leased {
    /// The run.
    pub run: Run,
    /// Its job.
    pub job: Arc<Job>,
    /// Where it goes on, as JSON text, if an earlier attempt said.
    pub checkpoint: Option<Box<str>>,
}

impl Leased {
    /// The ids of its batch and of its item, of an item of a batch.
    pub fn item(&self) -> Option<(&str, &str)> {
        let item = self.job.spec.batch.as_ref()?.item(&self.run)?;
        Some((self.job.spec.key.as_deref()?, &item.id))
    }

    /// What is sent, as JSON text: the run's own payload, or its job's.
    pub fn payload(&self) -> Option<&str> {
        self.run.payload.as_deref().or(self.job.spec.payload.as_deref())
    }
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

/// A worker that pulls, as it tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Whose runs it executes.
    pub tenant: TenantId,
    /// What people call it.
    pub name: String,
    /// The queues it serves.
    pub queues: Vec<Arc<str>>,
    /// What it has, for jobs that require it.
    pub labels: Labels,
    /// How many attempts it can execute at a time.
    pub concurrency: u32,
    /// How busy it is, in percent, if it says.
    pub saturation: Option<u8>,
    /// When it first told.
    pub started_at: Timestamp,
}

/// A worker that pulls, as it was last heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presence {
    /// Which.
    pub worker: WorkerId,
    /// What it told of itself.
    pub about: About,
    /// When it gave its last sign of life.
    pub seen_at: Timestamp,
    /// What it held then.
    pub held: Vec<Held>,
}
