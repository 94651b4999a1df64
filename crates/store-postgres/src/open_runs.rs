//! Open runs as rows.

use jiff::Timestamp;
use punctual_store::line_of;
use uuid::Uuid;

use crate::depth::Moves;
use crate::row::{Entry, job_uuid, millis, shard, urgency};

/// Open runs as columns.
#[derive(Debug, Default)]
pub(crate) struct OpenColumns {
    pub(crate) seq: Vec<i64>,
    pub(crate) shard: Vec<i16>,
    pub(crate) line: Vec<i16>,
    pub(crate) lane: Vec<i16>,
    pub(crate) urgency: Vec<i32>,
    pub(crate) available_at: Vec<i64>,
    pub(crate) claimed_at: Vec<Option<i64>>,
    pub(crate) revision: Vec<i32>,
    pub(crate) tenant: Vec<i32>,
    pub(crate) job: Vec<Uuid>,
    pub(crate) worker: Vec<Option<Uuid>>,
    pub(crate) queue: Vec<String>,
    pub(crate) record: Vec<Vec<u8>>,
    pub(crate) start_by: Vec<Option<i64>>,
    pub(crate) behind: Vec<Option<i64>>,
    pub(crate) waits_on: Vec<Option<i64>>,
    /// Those that have limits.
    pub(crate) limited: Vec<(Entry, Timestamp)>,
    /// What that means for those who wait.
    pub(crate) moves: Moves,
}

impl OpenColumns {
    pub(crate) fn push(&mut self, entry: &Entry, now: Timestamp) {
        let run = &entry.run;
        let (worker, claimed_at) = entry.held();
        self.seq.push(run.sequence.as_i64());
        self.shard.push(shard(run.job));
        self.line.push(entry.line(now));
        self.moves.push(run, entry.stands, Some(entry.line(now)));
        self.lane.push(run.lane.rank().into());
        self.urgency.push(urgency(run));
        self.available_at.push(millis(run.available_at));
        self.claimed_at.push(claimed_at);
        self.revision.push(entry.revision);
        self.tenant.push(run.tenant.0 as i32);
        self.job.push(job_uuid(run.job));
        self.worker.push(worker);
        self.queue.push(line_of(run).into_owned());
        self.record.push(entry.record());
        self.start_by.push(run.lapses_after().map(millis));
        let is_ordered = run.is_behind() || run.is_limited();
        self.behind.push(is_ordered.then(|| millis(run.scheduled_for)));
        let waits_on = run.next_limit().filter(|_| run.is_limited());
        self.waits_on.push(waits_on.map(|limited| limited.key.0 as i64));
        if !run.limits.is_empty() || entry.had.is_some() {
            self.limited.push((entry.clone(), now));
        }
    }
}

/// The parameters $1 to $16 of a statement.
macro_rules! open_params {
    ($columns:expr) => {
        [
            &$columns.seq as &(dyn ToSql + Sync),
            &$columns.shard,
            &$columns.line,
            &$columns.lane,
            &$columns.urgency,
            &$columns.available_at,
            &$columns.claimed_at,
            &$columns.revision,
            &$columns.tenant,
            &$columns.job,
            &$columns.worker,
            &$columns.queue,
            &$columns.record,
            &$columns.start_by,
            &$columns.behind,
            &$columns.waits_on,
        ]
    };
}
pub(crate) use open_params;

/// Writes open runs, new or changed. Whether others wait for one is not told by the run, and stays.
pub(crate) const WRITE_OPEN: &str = "
insert into open_runs (seq, shard, line, lane, urgency, available_at, claimed_at, revision, tenant, job, worker, queue,
    record, start_by, behind, waits_on)
select * from unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::smallint[], $5::int[], $6::bigint[],
    $7::bigint[], $8::int[], $9::int[], $10::uuid[], $11::uuid[], $12::text[], $13::bytea[], $14::bigint[],
    $15::bigint[], $16::bigint[])
on conflict (seq) do update set line = excluded.line, lane = excluded.lane, urgency = excluded.urgency, queue = excluded.queue, behind = excluded.behind, waits_on = excluded.waits_on, available_at = excluded.available_at,
    claimed_at = case when excluded.worker is null then null else open_runs.claimed_at end, revision = excluded.revision, worker = excluded.worker,
    record = excluded.record, start_by = excluded.start_by";
