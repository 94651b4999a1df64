//! Due entries: as rows, and in the order of firing.

use std::collections::HashMap;

use jiff::Timestamp;
use punctual_domain::id::{ShardId, TenantId, Version};
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

/// The entries that follow one of a shard each, which may have other versions of its job after it.
pub(crate) const MORE_OF_SHARDS: &str = "
select e.shard, e.at, e.lane, e.tenant, e.job, e.version, e.slot
from unnest($1::smallint[], $2::bigint[], $3::smallint[], $4::int[], $5::uuid[], $6::int[])
    a (shard, at, lane, tenant, job, version)
cross join lateral (
    select * from due d
    where d.shard = a.shard and (d.at, d.lane, d.tenant, d.job, d.version) > (a.at, a.lane, a.tenant, a.job, a.version)
    order by d.at, d.lane, d.tenant, d.job, d.version limit $7
) e";

/// How many entries lie in $1 to $2, up to $3, by shard of those that live here.
pub(crate) const COUNT_DUE: &str = "
select coalesce(sum(e.entries), 0)::bigint
from shards s cross join lateral (
    select count(*) entries from (
        select from due d where d.shard = s.shard and d.at >= $1 and d.at < $2 limit $3
    ) few
) e";

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
        let per_shard = mean + 4 * mean.isqrt() + 8;
        let first = self.first_of_shards(&shards, query.after, per_shard).await?;
        let mut read = Read::new(first, per_shard);
        loop {
            let page = read.page(query.until, query.limit);
            let ends = read.unread(query);
            if page.entries.len() * 2 >= query.limit || ends.is_empty() {
                return Ok(page);
            }
            // Few shards have most of what is due: more of those.
            let per_shard = query.limit.div_ceil(ends.len());
            read.extend(self.more_of_shards(&ends, per_shard).await?, &ends, per_shard);
        }
    }

    async fn more_of_shards(&self, after: &[Due], per_shard: usize) -> Result<Vec<Due>, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(MORE_OF_SHARDS).await.map_err(failed)?;
        let (columns, per_shard): (DueColumns, _) = (after.iter().collect(), per_shard as i64);
        let values: [&(dyn ToSql + Sync); 7] = [
            &columns.shard,
            &columns.at,
            &columns.lane,
            &columns.tenant,
            &columns.job,
            &columns.version,
            &per_shard,
        ];
        let rows = client.query(&statement, &values).await.map_err(failed)?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
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

    pub(crate) async fn count_due(
        &self,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<usize, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(COUNT_DUE).await.map_err(failed)?;
        let values: [&(dyn ToSql + Sync); 3] = [&millis(from), &millis(to), &(limit as i64)];
        let row = client.query_one(&statement, &values).await.map_err(failed)?;
        Ok((row.get::<_, i64>(0) as usize).min(limit))
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

/// What was read of every shard, in the order of firing.
struct Read {
    entries: Vec<Due>,
    /// The last entry that was read of each shard that may have more.
    ends: HashMap<ShardId, Due>,
}

impl Read {
    /// The first entries of shards, of each at most so many.
    fn new(entries: Vec<Due>, per_shard: usize) -> Self {
        let mut read = Read { entries: Vec::new(), ends: HashMap::new() };
        read.extend(entries, &[], per_shard);
        read
    }

    /// More of the shards of which these were the ends.
    fn extend(&mut self, entries: Vec<Due>, ends: &[Due], per_shard: usize) {
        for end in ends {
            self.ends.remove(&end.key.job.shard());
        }
        let mut counts: HashMap<ShardId, usize> = HashMap::new();
        for due in &entries {
            let shard = due.key.job.shard();
            let count = counts.entry(shard).or_default();
            *count += 1;
            if *count == per_shard {
                self.ends.insert(shard, *due);
            }
        }
        self.entries.extend(entries);
        self.entries.sort_unstable_by_key(|due| (due.key, due.version));
    }

    /// Cut to a page. Entries at or after the end of a shard may have others before them that were not read.
    fn page(&self, until: Timestamp, limit: usize) -> DuePage {
        let complete_until = self.ends.values().map(|due| due.key).min();
        let mut page = DuePage { entries: Vec::with_capacity(self.entries.len().min(limit)), next_at: None };
        for due in &self.entries {
            let is_full =
                page.entries.len() >= limit && page.entries.last().is_none_or(|last| last.key != due.key);
            if due.key.at > until || is_full || complete_until.is_some_and(|key| due.key >= key) {
                page.next_at = Some(due.key.at);
                break;
            }
            page.entries.push(*due);
        }
        page
    }

    /// The ends that keep a page from being full.
    fn unread(&self, query: &DueQuery) -> Vec<Due> {
        let last = self.entries.get(query.limit).map(|due| due.key);
        let matters = |end: &&Due| end.key.at <= query.until && last.is_none_or(|last| end.key <= last);
        self.ends.values().filter(matters).copied().collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use punctual_store::conformance::World;
    use punctual_store::{Put, Shards, Store};
    use punctual_testing::Postgres as Server;

    use super::*;
    use crate::connect::{Options, Time};

    const JOBS: usize = 3_000;

    /// In a database of 256 shards, one of which has everything that is due.
    #[tokio::test]
    async fn a_page_is_not_short_because_one_shard_has_all_that_is_due() {
        let options = Options { time: Time::Caller, ..Options::new(Server::shared().database()) };
        let store = Arc::new(Postgres::open(&options).await.unwrap());
        let mut world = World::new(store.clone()).await;
        let puts: Vec<Put> = (0..JOBS)
            .map(|number| {
                let mut job = world.job("crowded");
                job.id = punctual_domain::JobId::new(world.now, ShardId(7), number as u64);
                world.put(job, Some(world.now))
            })
            .collect();
        for answer in store.put_jobs(puts, world.now).await.unwrap() {
            answer.unwrap();
        }
        let (mut seen, mut after) = (Vec::new(), None);
        while seen.len() < JOBS {
            let query = DueQuery { shards: Shards::All, after, until: world.now, limit: 1_000 };
            let page = Store::due(&*store, query).await.unwrap();
            assert!(page.entries.len() >= 500, "a page has {} of 1000", page.entries.len());
            after = page.entries.last().map(|due| due.key);
            seen.extend(page.entries);
        }
        assert!(seen.len() == JOBS && seen.is_sorted_by(|one, next| one.key < next.key));
    }
}
