//! Due entries: as rows, and in the order of firing.

use jiff::Timestamp;
use punctual_domain::id::{TenantId, Version};
use punctual_store::{Due, DueKey, DuePage, DueQuery, Error};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::error::{Failed, failed};
use crate::postgres::Postgres;
use crate::row::{job_id, job_uuid, lane, millis, numbers, shard, timestamp};

/// Due entries as columns.
#[derive(Debug, Default)]
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
    pub(crate) fn push(&mut self, due: &Due) {
        self.shard.push(shard(due.key.job));
        self.at.push(millis(due.key.at));
        self.lane.push(due.key.lane.rank().into());
        self.tenant.push(due.key.tenant.0 as i32);
        self.job.push(job_uuid(due.key.job));
        self.version.push(due.version.0 as i32);
        self.slot.push(millis(due.slot));
    }
}

impl<'a> FromIterator<&'a Due> for DueColumns {
    fn from_iter<T: IntoIterator<Item = &'a Due>>(entries: T) -> Self {
        let mut columns = DueColumns::default();
        entries.into_iter().for_each(|due| columns.push(due));
        columns
    }
}

/// The parameters $1 to $7 of a statement.
macro_rules! due_params {
    ($columns:expr) => {
        [
            &$columns.shard as &(dyn ToSql + Sync),
            &$columns.at,
            &$columns.lane,
            &$columns.tenant,
            &$columns.job,
            &$columns.version,
            &$columns.slot,
        ]
    };
}
pub(crate) use due_params;

/// Entries $1 to $7; one that is there already is for the same slot, or stale.
pub(crate) const INSERT_DUE: &str = "
insert into due
select * from unnest($1::smallint[], $2::bigint[], $3::smallint[], $4::int[], $5::uuid[], $6::int[], $7::bigint[])
on conflict (shard, at, lane, tenant, job, version) do update set slot = excluded.slot";

/// Takes entries $1 to $7 away, and tells which of them were there.
pub(crate) const DELETE_DUE: &str = "
delete from due d
using unnest($1::smallint[], $2::bigint[], $3::smallint[], $4::int[], $5::uuid[], $6::int[], $7::bigint[])
    with ordinality a (shard, at, lane, tenant, job, version, slot, n)
where d.shard = any(array[a.shard]) and d.at = a.at and d.lane = a.lane and d.tenant = a.tenant and d.job = a.job
    and d.version = a.version and d.slot = a.slot
returning a.n";

/// Which of entries $1 to $7 are there.
pub(crate) const FIND_DUE: &str = "
select a.n
from unnest($1::smallint[], $2::bigint[], $3::smallint[], $4::int[], $5::uuid[], $6::int[], $7::bigint[])
    with ordinality a (shard, at, lane, tenant, job, version, slot, n)
join due d on d.shard = any(array[a.shard]) and d.at = a.at and d.lane = a.lane and d.tenant = a.tenant and d.job = a.job
    and d.version = a.version and d.slot = a.slot";

/// The first entries of every shard.
const FIRST_OF_SHARDS: &str = "
select e.shard, e.at, e.lane, e.tenant, e.job, e.version, e.slot
from shards s cross join lateral (
    select * from due d where d.shard = s.shard order by d.at, d.lane, d.tenant, d.job, d.version limit $2
) e
where $1::smallint[] is null or s.shard = any($1)";

/// The first entries of every shard after one.
const NEXT_OF_SHARDS: &str = "
select e.shard, e.at, e.lane, e.tenant, e.job, e.version, e.slot
from shards s cross join lateral (
    select * from due d
    where d.shard = s.shard and (d.at, d.lane, d.tenant, d.job) > ($3, $4, $5, $6)
    order by d.at, d.lane, d.tenant, d.job, d.version limit $2
) e
where $1::smallint[] is null or s.shard = any($1)";

/// Reads an entry from a row of its shard and all its columns.
pub(crate) fn read(row: &Row) -> Result<Due, Error> {
    let key = DueKey {
        at: timestamp(row.get(1))?,
        lane: lane(row.get(2))?,
        tenant: TenantId(row.get::<_, i32>(3) as u32),
        job: job_id(row.get(4)),
    };
    Ok(Due { key, version: Version(row.get::<_, i32>(5) as u32), slot: timestamp(row.get(6))? })
}

impl Postgres {
    pub(crate) async fn due(&self, query: &DueQuery) -> Result<DuePage, Failed> {
        let shards = numbers(&query.shards);
        let count = shards.as_ref().map_or(usize::from(self.shard_count), Vec::len).max(1);
        // As many of every shard as are likely among the first of all, where entries are spread by chance.
        let mean = query.limit.div_ceil(count);
        let mut per_shard = mean + 4 * mean.isqrt() + 8;
        loop {
            let mut entries = self.first_of_shards(&shards, query.after, per_shard).await?;
            let complete_until = self.complete_until(&entries, per_shard);
            entries.sort_unstable_by_key(|due| (due.key, due.version));
            let page = page(entries, complete_until, query.until, query.limit);
            // All that was read are versions of one entry: a job that was changed often.
            if page.entries.is_empty() && complete_until.is_some_and(|key| key.at <= query.until) {
                per_shard *= 8;
                continue;
            }
            return Ok(page);
        }
    }

    async fn first_of_shards(
        &self,
        shards: &Option<Vec<i16>>,
        after: Option<DueKey>,
        per_shard: usize,
    ) -> Result<Vec<Due>, Failed> {
        let client = self.connection().await?;
        let per_shard = per_shard as i64;
        let rows = match after {
            None => {
                let statement = client.prepare_cached(FIRST_OF_SHARDS).await.map_err(failed)?;
                client.query(&statement, &[shards, &per_shard]).await.map_err(failed)?
            }
            Some(after) => {
                let statement = client.prepare_cached(NEXT_OF_SHARDS).await.map_err(failed)?;
                let (at, lane) = (millis(after.at), i16::from(after.lane.rank()));
                let (tenant, job) = (after.tenant.0 as i32, job_uuid(after.job));
                let values: [&(dyn ToSql + Sync); 6] = [shards, &per_shard, &at, &lane, &tenant, &job];
                client.query(&statement, &values).await.map_err(failed)?
            }
        };
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    /// The smallest key that may have others before it that were not read: the last of a shard of which not everything
    /// was read.
    fn complete_until(&self, entries: &[Due], per_shard: usize) -> Option<DueKey> {
        let mut counts = vec![0; usize::from(self.shard_count)];
        let mut last: Option<DueKey> = None;
        for due in entries {
            let count = &mut counts[usize::from(due.key.job.shard().0)];
            *count += 1;
            if *count == per_shard && last.is_none_or(|key| due.key < key) {
                last = Some(due.key);
            }
        }
        last
    }

    pub(crate) async fn is_due(&self, entries: &[Due]) -> Result<Vec<bool>, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(FIND_DUE).await.map_err(failed)?;
        let columns: DueColumns = entries.iter().collect();
        let rows = client.query(&statement, &due_params!(columns)).await.map_err(failed)?;
        let mut found = vec![false; entries.len()];
        for row in &rows {
            found[row.get::<_, i64>(0) as usize - 1] = true;
        }
        Ok(found)
    }
}

/// Cuts what was read to a page. Entries at or after `complete_until` may have others before them that were not read.
fn page(entries: Vec<Due>, complete_until: Option<DueKey>, until: Timestamp, limit: usize) -> DuePage {
    let mut page = DuePage { entries: Vec::with_capacity(entries.len().min(limit)), next_at: None };
    for due in entries {
        let is_full =
            page.entries.len() >= limit && page.entries.last().is_none_or(|last| last.key != due.key);
        if due.key.at > until || is_full || complete_until.is_some_and(|key| due.key >= key) {
            page.next_at = Some(due.key.at);
            break;
        }
        page.entries.push(due);
    }
    page
}
