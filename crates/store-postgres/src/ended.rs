//! Jobs that are over or deleted: they go when nothing is left of their history.
//!
//! Noted in lists when their last due entries are fired, in an order that follows time; looked at when their class of retention has
//! passed. Promise: a job that was changed since stays, and so does one of which a run is left.

use jiff::Timestamp;
use punctual_domain::id::{JobId, Version};
use punctual_domain::policy::retention::Retention;
use uuid::Uuid;

use crate::change::TAKE_SHARDS;
use crate::error::Failed;
use crate::partition::{Partition, class, days};
use crate::postgres::{Postgres, transact};
use crate::row::{job_id, job_uuid, millis, shards};
use crate::work::Work;

/// All that is noted at once and looked at at the same time is one row.
const END: &str = "
insert into ended_lists (forget_at, count, jobs, versions)
select forget_at, count(*), array_agg(job), array_agg(version)
from unnest($1::bigint[], $2::uuid[], $3::int[]) x (forget_at, job, version) group by forget_at";

/// Jobs whose time has come, as nodes of the first schemas noted them.
const LOOK_AT_JOBS: &str = "
delete from ended_jobs where (forget_at, job, version) in (
    select forget_at, job, version from ended_jobs where forget_at < $1 order by forget_at limit $2
    for update skip locked)
returning job, version";

/// Jobs whose time has come: of the first lists so many that they have $2 jobs, and one at least.
pub(crate) const LOOK_AT_LISTS: &str = "
delete from ended_lists e using (
    select forget_at, id, sum(count) over (order by forget_at, id) - count as before
    from (select forget_at, id, count from ended_lists where forget_at < $1 order by forget_at, id limit $2) l
) l where e.forget_at = any(array[l.forget_at]) and e.id = l.id and l.before < $2
returning e.jobs, e.versions";

pub(crate) const HOLD: &str = "
select j.id, j.version,
    exists (select from open_runs o where o.job = j.id) or exists (select from history h where h.job = j.id)
from unnest($1::uuid[], $2::int[]) x (id, version)
join jobs j on j.id = any(array[x.id]) and j.version = x.version
order by x.id for update of j";

const FORGET: [&str; 4] = [
    "delete from job_keys k using jobs j
     where j.id = any($1) and k.tenant = j.tenant and k.key = j.record::json ->> 'key' and k.job = j.id",
    "delete from job_versions where id = any($1)",
    "delete from ledger where job = any($1)",
    "delete from jobs where id = any($1)",
];

/// When a job that is over now is looked at: when the runs that are born now are dropped.
pub(crate) fn forget_at(retention: Retention, now: Timestamp) -> i64 {
    Partition::at(class(retention), millis(now)).to + days(class(retention))
}

/// Notes jobs that are over.
pub(crate) async fn end_jobs(
    transaction: &Work<'_>,
    jobs: impl IntoIterator<Item = (JobId, Version, Retention)>,
    now: Timestamp,
) -> Result<(), Failed> {
    let (mut times, mut ids, mut versions) = (Vec::new(), Vec::new(), Vec::new());
    for (job, version, retention) in jobs {
        times.push(forget_at(retention, now));
        ids.push(job_uuid(job));
        versions.push(version.0 as i32);
    }
    if ids.is_empty() {
        return Ok(());
    }
    let statement = transaction.prepare_cached(END).await?;
    transaction.execute(&statement, &[&times, &ids, &versions]).await?;
    Ok(())
}

impl Postgres {
    /// Looks at jobs whose time has come. Returns how many that were.
    pub(crate) async fn forget_jobs(&self, now: i64, limit: i64) -> Result<u64, Failed> {
        transact!(self, |client| {
            let transaction = Work::begin(&mut client).await?;
            let look_at = transaction.prepare_cached(LOOK_AT_JOBS).await?;
            let rows = transaction.query(&look_at, &[&now, &limit]).await?;
            let mut jobs: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
            let mut versions: Vec<i32> = rows.iter().map(|row| row.get(1)).collect();
            let look_at = transaction.prepare_cached(LOOK_AT_LISTS).await?;
            for row in transaction.query(&look_at, &[&now, &limit]).await? {
                jobs.extend(row.get::<_, Vec<Uuid>>(0));
                versions.extend(row.get::<_, Vec<i32>>(1));
            }
            if !jobs.is_empty() {
                forget(&transaction, &jobs, &versions, now).await?;
            }
            transaction.commit(self).await?;
            Ok(jobs.len() as u64)
        })
    }
}

async fn forget(transaction: &Work<'_>, jobs: &[Uuid], versions: &[i32], now: i64) -> Result<(), Failed> {
    let shards = shards(jobs.iter().map(|job| job_id(*job)));
    // As for every change of a job: nothing is born of them meanwhile.
    let take = transaction.prepare_cached(TAKE_SHARDS).await?;
    transaction.query(&take, &[&shards]).await?;
    let hold = transaction.prepare_cached(HOLD).await?;
    let rows = transaction.query(&hold, &[&jobs, &versions]).await?;
    let (kept, gone): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.get::<_, bool>(2));
    let gone: Vec<Uuid> = gone.iter().map(|row| row.get(0)).collect();
    for sql in FORGET {
        let statement = transaction.prepare_cached(sql).await?;
        transaction.execute(&statement, &[&gone]).await?;
    }
    // They are looked at again a day later.
    let tomorrow = vec![now + days(class(Retention::Day)); kept.len()];
    let ids: Vec<Uuid> = kept.iter().map(|row| row.get(0)).collect();
    let versions: Vec<i32> = kept.iter().map(|row| row.get(1)).collect();
    let again = transaction.prepare_cached(END).await?;
    transaction.execute(&again, &[&tomorrow, &ids, &versions]).await?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use punctual_domain::policy::retention::Retention;
    use punctual_store::Store;
    use punctual_store::conformance::World;

    use crate::connect::Options;
    use crate::postgres::Postgres;

    /// As nodes of the first schemas note it.
    const AS_BEFORE: &str = "
    insert into ended_jobs select forget_at, unnest(jobs), unnest(versions) from ended_lists;
    delete from ended_lists";

    #[tokio::test]
    async fn what_an_older_node_noted_is_forgotten_too() {
        let store = Arc::new(Postgres::open(&Options::of_a_case()).await.unwrap());
        let mut world = World::new(store.clone()).await;
        let mut job = world.job("over");
        job.spec.policies.retention = Retention::Day.into();
        world.try_put(world.put(job.clone(), None)).await.unwrap();
        store.connection().await.unwrap().batch_execute(AS_BEFORE).await.unwrap();
        world.advance(Duration::from_secs(3 * 86_400));
        while Store::retain(&*store, world.now, 2).await.unwrap() > 0 {}
        let left = Store::job_versions(&*store, &[(job.id, job.version)]).await.unwrap();
        assert_eq!(left, [None]);
    }
}
