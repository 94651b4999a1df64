//! Retain: what is old goes, whole partitions at a time; what comes gets its partitions ahead.

use jiff::Timestamp;
use punctual_domain::id::{Sequence, WorkerId};
use punctual_domain::operation::KEPT;

use crate::error::{Failed, failed};
use crate::partition::{LATE, Partition, days};
use crate::postgres::Postgres;
use crate::row::{millis, worker_uuid};

/// Dead letters outlive their partition.
const SAVE: &str = "
insert into history (class, state, tenant, seq, job, keep_until, record, papers)
select 4, h.state, h.tenant, h.seq, h.job, h.keep_until, h.record, h.papers
from history h join dead_letters d on d.seq = h.seq
where h.class = $1 and h.seq >= $2 and h.seq < $3";

/// Rows that outlived their partition, and then their time.
const FORGET_LATE: &str = "
delete from history where class = $3 and seq in (
    select seq from history_4 where keep_until < $1 and seq not in (select seq from dead_letters) limit $2)";

const FORGET_REQUESTS: &str = "
delete from requests where (tenant, key) in (
    select tenant, key from requests where expires_at <= $1 order by expires_at limit $2)";

const FORGET_OPERATIONS: &str = "
delete from operations where id in (select id from operations where finished_at < $1 limit $2)";

/// Old versions that no open run keeps.
const FORGET_VERSIONS: &str = "
delete from job_versions v where not exists (select from open_runs o where o.job = v.id)";

/// Dead workers that hold nothing and have been silent for a day.
const FORGET_WORKERS: &str = "
delete from workers w where w.is_dead and w.seen_at < $1 - 86400000::bigint
    and not exists (select from open_runs o where o.line = 2 and o.worker = w.id)";

/// Receivers of attempts that are over.
const FORGET_RECEIVERS: &str = "
delete from workers w where w.id >= $1 and w.seen_at < $2 - 60000::bigint
    and not exists (select from open_runs o where o.seq = any(w.held_seq) and o.worker = w.id)";

impl Postgres {
    pub(crate) async fn retain(&self, now: Timestamp, limit: usize) -> Result<u64, Failed> {
        let operations_until = millis(now - KEPT);
        self.look_ahead(now).await?;
        let mut done = 0;
        let client = self.connection().await?;
        let sql = "select class, from_seq from partitions order by class, from_seq";
        let old: Vec<Partition> = client
            .query(sql, &[])
            .await
            .map_err(failed)?
            .iter()
            .map(|row| Partition::at(row.get(0), millis(Sequence::from_i64(row.get(1)).born_at())))
            .filter(|partition| partition.to + days(partition.class) < millis(now))
            .take(limit)
            .collect();
        drop(client);
        let has_more = old.len() == limit;
        for partition in old {
            done += u64::from(self.drop_partition(&partition).await?);
        }
        let client = self.connection().await?;
        let at = now;
        let (now, limit) = (millis(now), limit as i64);
        done += client.execute(FORGET_LATE, &[&now, &limit, &LATE]).await.map_err(failed)?;
        done += client.execute(FORGET_REQUESTS, &[&now, &limit]).await.map_err(failed)?;
        done += client.execute(FORGET_OPERATIONS, &[&operations_until, &limit]).await.map_err(failed)?;
        done += self.forget_audit(at, limit).await?;
        // Jobs go after their history; the rest of that comes first.
        if !has_more {
            done += self.forget_jobs(now, limit).await?;
        }
        done += self.release_left_behind(at, limit).await? + self.settle_papers(limit).await?;
        self.forget_gates(at, limit).await?;
        client.execute(FORGET_VERSIONS, &[]).await.map_err(failed)?;
        client.execute(FORGET_WORKERS, &[&now]).await.map_err(failed)?;
        let receivers = worker_uuid(WorkerId::first_of_receivers(None));
        client.execute(FORGET_RECEIVERS, &[&receivers, &now]).await.map_err(failed)?;
        Ok(done)
    }

    /// Drops a partition, except for its dead letters. Who is writing to the class is not kept waiting: if the lock is
    /// not to be had quickly, it is tried again later.
    async fn drop_partition(&self, partition: &Partition) -> Result<bool, Failed> {
        let (from, to) = partition.sequences()?;
        let mut client = self.connection().await?;
        let transaction = client.transaction().await.map_err(failed)?;
        transaction.batch_execute("set local lock_timeout = '200ms'").await.map_err(failed)?;
        let sql = "delete from partitions where class = $1 and from_seq = $2";
        if transaction.execute(sql, &[&partition.class, &from]).await.map_err(failed)? == 0 {
            return Ok(false); // Another node was quicker.
        }
        transaction.execute(SAVE, &[&partition.class, &from, &to]).await.map_err(failed)?;
        transaction.batch_execute(&format!("drop table {}", partition.name())).await.map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        self.partitions.forget();
        Ok(true)
    }
}
