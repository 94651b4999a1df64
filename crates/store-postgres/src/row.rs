//! What rows are made of.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::Papers;
use punctual_domain::attempt::Attempt;
use punctual_domain::id::{JobId, Sequence, ShardId, TenantId, Version, WorkerId};
use punctual_domain::job::{Job, JobState, Lane};
use punctual_domain::ledger::Fate;
use punctual_domain::policy::backlog::Cap;
use punctual_domain::run::{Run, RunState};
use punctual_schedule::Progress;
use punctual_store::record::{decode_job, decode_run, encode_run, fate_code, fate_of};
use punctual_store::{Error, Shards, Stored};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::damaged;

/// A run and its attempts so far, and how often it was changed.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) run: Run,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) revision: i32,
    /// Where its row stands; nothing if it has none yet.
    pub(crate) stands: Option<i16>,
    /// As it was read, if it has limits: what it held then is given back by whoever changes it.
    pub(crate) had: Option<Box<Run>>,
    /// Whom it is born for, if it has limits to pass before.
    pub(crate) wish: Option<WorkerId>,
    /// What it has said that is to be written with it.
    pub(crate) said: Papers,
}

impl Entry {
    /// A run that is born.
    pub(crate) fn born((run, attempts): (Run, Vec<Attempt>)) -> Self {
        Entry { run, attempts, revision: 0, stands: None, had: None, wish: None, said: Papers::default() }
    }

    /// From a row of sequence, revision, record and line.
    pub(crate) fn read(row: &Row) -> Result<Self, Error> {
        let (run, attempts) = decode_run(Sequence::from_i64(row.get(0)), row.get::<_, &[u8]>(2))?;
        let had = (!run.limits.is_empty()).then(|| Box::new(run.clone()));
        let (revision, stands) = (row.get(1), Some(row.get(3)));
        Ok(Entry { run, attempts, revision, stands, had, wish: None, said: Papers::default() })
    }

    pub(crate) fn record(&self) -> Vec<u8> {
        encode_run(&self.run, &self.attempts)
    }

    /// The worker that holds it, and since when.
    pub(crate) fn held(&self) -> (Option<Uuid>, Option<i64>) {
        let lease = self.run.lease();
        (lease.map(|lease| worker_uuid(lease.worker)), lease.map(|lease| millis(lease.claimed_at)))
    }

    /// Where it stands.
    pub(crate) fn line(&self, now: Timestamp) -> i16 {
        match self.run.state {
            RunState::Running(_) => RUNNING,
            _ if self.run.is_behind() => BEHIND,
            _ if self.run.is_limited() => LIMITED,
            _ if !self.run.has_passed() => COMING,
            _ if self.run.available_at > now => DELAYED,
            _ if !self.run.requires.is_empty() => REQUIRING,
            _ => READY,
        }
    }
}

/// Its time has not come.
pub(crate) const DELAYED: i16 = 0;
/// It may be claimed.
pub(crate) const READY: i16 = 1;
/// A worker holds it.
pub(crate) const RUNNING: i16 = 2;
/// It waits for an earlier run of its job.
pub(crate) const BEHIND: i16 = 3;
/// It may be claimed by workers that have what it requires.
pub(crate) const REQUIRING: i16 = -1;

/// It waits for one of its limits.
pub(crate) const LIMITED: i16 = -2;
/// It has not come to the gates of its limits.
pub(crate) const COMING: i16 = -3;

/// The states of jobs, as a column.
pub(crate) const ACTIVE: i16 = 0;
pub(crate) const DELETED: i16 = 3;

pub(crate) fn job_state(state: &JobState) -> i16 {
    match state {
        JobState::Active => ACTIVE,
        JobState::Paused(_) => 1,
        JobState::Ended => 2,
        JobState::Deleted => DELETED,
    }
}

/// The columns of [`read_job`].
pub(crate) const JOB: &str = "id, tenant, version, record, fired, completed_at";

/// A job from a row of [`JOB`].
pub(crate) fn read_job(row: &Row) -> Result<Stored, Error> {
    let (id, record): (Uuid, &str) = (row.get(0), row.get(3));
    let (tenant, version): (i32, i32) = (row.get(1), row.get(2));
    let job: Job =
        decode_job(job_id(id), TenantId(tenant as u32), Version(version as u32), record.as_bytes())?;
    Ok(Stored {
        job: Arc::new(job),
        progress: Progress {
            fired: row.get::<_, i64>(4) as u64,
            last_completion: row.get::<_, Option<i64>>(5).map(timestamp).transpose()?,
        },
    })
}

/// The text of a job's record.
pub(crate) fn job_record(job: &Job) -> Result<String, Error> {
    let record = punctual_store::record::encode_job(job)?;
    String::from_utf8(record).map_err(|_| damaged("a job whose record is not text"))
}

pub(crate) fn job_uuid(job: JobId) -> Uuid {
    Uuid::from_bytes(*job.as_bytes())
}

pub(crate) fn job_id(uuid: Uuid) -> JobId {
    JobId::from_bytes(*uuid.as_bytes())
}

pub(crate) fn worker_uuid(worker: WorkerId) -> Uuid {
    Uuid::from_bytes(*worker.as_bytes())
}

pub(crate) fn worker_id(worker: Uuid) -> WorkerId {
    WorkerId::from_bytes(*worker.as_bytes())
}

pub(crate) fn shard(job: JobId) -> i16 {
    job.shard().0 as i16
}

/// The shards of jobs, each once, in the order in which they are locked.
pub(crate) fn shards(jobs: impl IntoIterator<Item = JobId>) -> Vec<i16> {
    let shards: BTreeSet<i16> = jobs.into_iter().map(shard).collect();
    shards.into_iter().collect()
}

/// Whether a shard lives here, whose row would be among those that are held.
pub(crate) fn is_held(held: &[Row], shard: ShardId) -> bool {
    held.iter().any(|row| row.get::<_, i16>(0) == shard.0 as i16)
}

pub(crate) fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

pub(crate) fn timestamp(millis: i64) -> Result<Timestamp, Error> {
    Timestamp::from_millisecond(millis).map_err(|_| damaged(format!("{millis} is not a time")))
}

pub(crate) fn lane(rank: i16) -> Result<Lane, Error> {
    let found = Lane::ALL.into_iter().find(|lane| i16::from(lane.rank()) == rank);
    found.ok_or_else(|| damaged(format!("{rank} is not a lane")))
}

/// Higher priorities come first.
pub(crate) fn urgency(run: &Run) -> i32 {
    -i32::from(run.priority)
}

/// A fate as two columns. Nodes of older schemas do not know what a cap did, and read that it was missed.
pub(crate) fn fate_columns(fate: Fate) -> (i16, Option<i16>) {
    match fate {
        Fate::Throttled(cap) => {
            let place = Cap::ALL.iter().position(|one| *one == cap).unwrap_or_default();
            (fate_code(Fate::MissedCatchUp).into(), Some(place as i16 + 1))
        }
        fate => (fate_code(fate).into(), None),
    }
}

pub(crate) fn fate(code: i16, cap: Option<i16>) -> Result<Fate, Error> {
    let unknown = || damaged(format!("{code} is not a fate"));
    let fate = fate_of(code.into()).ok_or_else(unknown)?;
    match cap {
        // A node of an older schema may have written over it.
        Some(cap) if fate == Fate::MissedCatchUp => {
            let cap = usize::try_from(cap - 1).ok().and_then(|place| Cap::ALL.get(place));
            cap.map(|cap| Fate::Throttled(*cap)).ok_or_else(unknown)
        }
        _ => Ok(fate),
    }
}

/// The numbers of some shards; nothing for all.
pub(crate) fn numbers(shards: &Shards) -> Option<Vec<i16>> {
    match shards {
        Shards::All => None,
        Shards::Some(shards) => Some(shards.iter().map(|shard| shard.0 as i16).collect()),
    }
}
