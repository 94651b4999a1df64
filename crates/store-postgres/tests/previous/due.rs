//! Due entries as the previous version reads and writes them.

use punctual_domain::id::JobId;
use punctual_store::Due;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

pub(crate) fn uuid(job: JobId) -> Uuid {
    Uuid::from_bytes(*job.as_bytes())
}

pub(crate) fn shard(job: JobId) -> i16 {
    job.shard().0 as i16
}

/// A due entry as that version reads it.
#[derive(Clone, Debug)]
pub(crate) struct DueRow {
    pub(crate) at: i64,
    pub(crate) lane: i16,
    pub(crate) tenant: i32,
    pub(crate) job: JobId,
    pub(crate) version: i32,
    pub(crate) slot: i64,
}

impl From<&Due> for DueRow {
    fn from(due: &Due) -> Self {
        DueRow {
            at: due.key.at.as_millisecond(),
            lane: due.key.lane.rank().into(),
            tenant: due.key.tenant.0 as i32,
            job: due.key.job,
            version: due.version.0 as i32,
            slot: due.slot.as_millisecond(),
        }
    }
}

/// Due entries as columns.
#[derive(Default)]
pub(crate) struct DueColumns {
    pub(crate) shard: Vec<i16>,
    pub(crate) at: Vec<i64>,
    pub(crate) lane: Vec<i16>,
    pub(crate) tenant: Vec<i32>,
    pub(crate) job: Vec<Uuid>,
    pub(crate) version: Vec<i32>,
    pub(crate) slot: Vec<i64>,
}

impl DueColumns {
    pub(crate) fn of<'d>(entries: impl Iterator<Item = &'d Due>) -> Self {
        let mut columns = DueColumns::default();
        entries.for_each(|due| columns.push(&due.into()));
        columns
    }

    pub(crate) fn push(&mut self, entry: &DueRow) {
        self.shard.push(shard(entry.job));
        self.at.push(entry.at);
        self.lane.push(entry.lane);
        self.tenant.push(entry.tenant);
        self.job.push(uuid(entry.job));
        self.version.push(entry.version);
        self.slot.push(entry.slot);
    }

    pub(crate) fn values(&self) -> [&(dyn ToSql + Sync); 7] {
        [&self.shard, &self.at, &self.lane, &self.tenant, &self.job, &self.version, &self.slot]
    }
}
