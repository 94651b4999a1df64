//! Who owns which shard, and until when, by the clock of the database.

use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::id::{Epoch, ShardId, WorkerId};
use punctual_store::Shards;

use crate::error::{Failed, failed};
use crate::postgres::Postgres;
use crate::row::{numbers, worker_uuid};

/// Renewing keeps the epoch; taking over starts a new one, which fences the old owner. Rows are locked in the order of
/// their numbers, as everywhere.
const ACQUIRE: &str = "
with held as (
    select shard from shards
    where ($2::smallint[] is null or shard = any($2))
        and (owner is null or owner = $1 or expires_at < punctual_now($4))
    order by shard for update
)
update shards s
set epoch = case when s.owner = $1 then s.epoch else s.epoch + 1 end, owner = $1, expires_at = punctual_now($4) + $3
from held where s.shard = held.shard and (s.owner is null or s.owner = $1 or s.expires_at < punctual_now($4))
returning s.shard, s.epoch";

impl Postgres {
    pub(crate) async fn acquire(
        &self,
        owner: WorkerId,
        shards: &Shards,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Vec<(ShardId, Epoch)>, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(ACQUIRE).await.map_err(failed)?;
        let ttl = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX / 4);
        let (owner, shards) = (worker_uuid(owner), numbers(shards));
        let rows =
            client.query(&statement, &[&owner, &shards, &ttl, &self.callers(now)]).await.map_err(failed)?;
        let taken =
            rows.iter().map(|row| (ShardId(row.get::<_, i16>(0) as u16), Epoch(row.get::<_, i64>(1) as u64)));
        let mut taken: Vec<_> = taken.collect();
        taken.sort_unstable();
        Ok(taken)
    }

    pub(crate) async fn release(&self, owner: WorkerId, now: Timestamp) -> Result<(), Failed> {
        let client = self.connection().await?;
        let sql = "update shards set owner = null, expires_at = punctual_now($2) where owner = $1";
        let statement = client.prepare_cached(sql).await.map_err(failed)?;
        client.execute(&statement, &[&worker_uuid(owner), &self.callers(now)]).await.map_err(failed)?;
        Ok(())
    }
}
