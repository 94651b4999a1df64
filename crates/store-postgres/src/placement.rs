//! Which nodes are live, and who owns which shard, and until when; by the clock of the database.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::id::{Epoch, ShardId, WorkerId};
use punctual_domain::placement::{Ownership, Placement};
use punctual_store::record::{decode_attendance, encode_attendance};
use punctual_store::{Attendance, Shards};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::error::{Failed, failed};
use crate::postgres::Postgres;
use crate::row::{numbers, timestamp, worker_id, worker_uuid};

const ATTEND: &str = "
insert into nodes values ($1, punctual_now($4) + $2, $3)
on conflict (id) do update set expires_at = excluded.expires_at, record = excluded.record";

/// Nodes that were silent for so long are forgotten; until then their rows tell who was there.
const FORGET: &str = "delete from nodes where expires_at < punctual_now($1) - 60000";

const NODES: &str = "
select id, expires_at, record, punctual_now($1) from nodes where expires_at >= punctual_now($1) order by id";

/// Renewing keeps the epoch, so fires go on meanwhile. Rows are locked in the order of their numbers, as everywhere.
pub(crate) const RENEW: &str = "
with held as (select shard from shards where owner = $1 order by shard for no key update)
update shards s set expires_at = punctual_now($3) + $2
from held where s.shard = any(array[held.shard]) and s.owner = $1
returning s.shard, s.epoch";

/// Taking over starts a new epoch, which fences the old owner; what he is firing comes to its end first.
pub(crate) const TAKE_OVER: &str = "
with held as (
    select shard from shards
    where owner is distinct from $1 and ($2::smallint[] is null or shard = any($2))
        and (owner is null or expires_at < punctual_now($4))
    order by shard for update
)
update shards s set epoch = s.epoch + 1, owner = $1, expires_at = punctual_now($4) + $3
from held where s.shard = any(array[held.shard]) and (s.owner is null or s.expires_at < punctual_now($4))";

const OWNED: &str = "select shard, epoch from shards where owner = $1";

/// An heir that is dead already does not keep the shard longer than it seems to live.
const HAND_OVER: &str = "
with given as (
    select s.shard, x.heir from unnest($2::smallint[], $3::uuid[]) x (shard, heir)
    join shards s on s.shard = x.shard where s.owner = $1 order by s.shard for update of s
)
update shards s set epoch = s.epoch + 1, owner = given.heir, expires_at =
    coalesce((select n.expires_at from nodes n where n.id = given.heir), punctual_now($5) + $4)
from given where s.shard = given.shard and s.owner = $1";

const LEAVE: &str = "
with gone as (delete from nodes where id = $1)
update shards set owner = null, expires_at = punctual_now($2) where owner = $1";

/// What is told is taken away in one statement: nothing that is committed later is lost.
const NEWS: &str = "
with told as (delete from news where shard in (select shard from shards where owner = $1) returning at)
select min(at) from told";

fn milliseconds(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX / 4)
}

impl Postgres {
    pub(crate) async fn attend(
        &self,
        attendance: &Attendance,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<(), Failed> {
        let id = attendance.node.id;
        self.wakeups.node_is(id);
        let record = encode_attendance(attendance)?;
        let client = self.connection().await?;
        let statement = client.prepare_cached(ATTEND).await.map_err(failed)?;
        let values: [&(dyn ToSql + Sync); 4] =
            [&worker_uuid(id), &milliseconds(ttl), &record, &self.callers(now)];
        client.execute(&statement, &values).await.map_err(failed)?;
        let forget = client.prepare_cached(FORGET).await.map_err(failed)?;
        client.execute(&forget, &[&self.callers(now)]).await.map_err(failed)?;
        Ok(())
    }

    pub(crate) async fn placement(&self, now: Timestamp) -> Result<Placement, Failed> {
        let client = self.connection().await?;
        let find_nodes = client.prepare_cached(NODES).await.map_err(failed)?;
        let find_shards = client
            .prepare_cached(
                "select shard, owner, epoch, expires_at, punctual_now($1) from shards order by shard",
            )
            .await
            .map_err(failed)?;
        let rows = client.query(&find_nodes, &[&self.callers(now)]).await.map_err(failed)?;
        let mut densities: HashMap<(WorkerId, ShardId), u32> = HashMap::new();
        let mut nodes = Vec::with_capacity(rows.len());
        for row in &rows {
            let id = worker_id(row.get::<_, Uuid>(0));
            let attendance = decode_attendance(id, row.get(2))?;
            densities.extend(attendance.densities.iter().map(|(shard, density)| ((id, *shard), *density)));
            nodes.push((attendance.node, timestamp(row.get(1))?));
        }
        let mut placement = Placement { at: now, nodes, shards: Vec::new() };
        for row in client.query(&find_shards, &[&self.callers(now)]).await.map_err(failed)? {
            let shard = ShardId(row.get::<_, i16>(0) as u16);
            let owner = row.get::<_, Option<Uuid>>(1).map(worker_id);
            placement.at = timestamp(row.get(4))?;
            placement.shards.push(Ownership {
                shard,
                owner,
                epoch: Epoch(row.get::<_, i64>(2) as u64),
                expires_at: timestamp(row.get(3))?,
                density: owner.and_then(|owner| densities.get(&(owner, shard)).copied()).unwrap_or_default(),
            });
        }
        Ok(placement)
    }

    pub(crate) async fn acquire(
        &self,
        owner: WorkerId,
        shards: &Shards,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Vec<(ShardId, Epoch)>, Failed> {
        let client = self.connection().await?;
        let renew = client.prepare_cached(RENEW).await.map_err(failed)?;
        let (owner, shards) = (worker_uuid(owner), numbers(shards));
        let (ttl, callers) = (milliseconds(ttl), self.callers(now));
        let mut rows = client.query(&renew, &[&owner, &ttl, &callers]).await.map_err(failed)?;
        // Apart, so that each locks in the order of numbers.
        if shards.as_ref().is_none_or(|shards| !shards.is_empty()) {
            let take_over = client.prepare_cached(TAKE_OVER).await.map_err(failed)?;
            let values: [&(dyn ToSql + Sync); 4] = [&owner, &shards, &ttl, &callers];
            client.execute(&take_over, &values).await.map_err(failed)?;
            // A call of this owner whose answer was lost may have taken them while this one waited.
            let owned = client.prepare_cached(OWNED).await.map_err(failed)?;
            rows = client.query(&owned, &[&owner]).await.map_err(failed)?;
        }
        let held =
            rows.iter().map(|row| (ShardId(row.get::<_, i16>(0) as u16), Epoch(row.get::<_, i64>(1) as u64)));
        let mut held: Vec<_> = held.collect();
        held.sort_unstable();
        Ok(held)
    }

    pub(crate) async fn hand_over(
        &self,
        owner: WorkerId,
        shards: &[(ShardId, WorkerId)],
        ttl: Duration,
        now: Timestamp,
    ) -> Result<(), Failed> {
        let client = self.connection().await?;
        let numbers: Vec<i16> = shards.iter().map(|(shard, _)| shard.0 as i16).collect();
        let heirs: Vec<Uuid> = shards.iter().map(|(_, heir)| worker_uuid(*heir)).collect();
        let statement = client.prepare_cached(HAND_OVER).await.map_err(failed)?;
        let values: [&(dyn ToSql + Sync); 5] =
            [&worker_uuid(owner), &numbers, &heirs, &milliseconds(ttl), &self.callers(now)];
        client.execute(&statement, &values).await.map_err(failed)?;
        self.wakeups.hint_placement(&client).await
    }

    pub(crate) async fn leave(&self, node: WorkerId, now: Timestamp) -> Result<(), Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(LEAVE).await.map_err(failed)?;
        client.execute(&statement, &[&worker_uuid(node), &self.callers(now)]).await.map_err(failed)?;
        self.wakeups.hint_placement(&client).await
    }

    pub(crate) async fn news(&self, owner: WorkerId) -> Result<Option<Timestamp>, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(NEWS).await.map_err(failed)?;
        let row = client.query_one(&statement, &[&worker_uuid(owner)]).await.map_err(failed)?;
        Ok(row.get::<_, Option<i64>>(0).map(timestamp).transpose()?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use jiff::SignedDuration;
    use punctual_store::{Error, Store};
    use punctual_testing::Postgres as Server;

    use super::*;
    use crate::connect::{Options, Time};
    use crate::fire::SHARE_SHARDS;

    #[tokio::test]
    async fn a_shard_that_fires_is_renewed_meanwhile_and_taken_over_afterwards() {
        let options = Options {
            shards: Some(16),
            time: Time::Caller,
            statement_timeout: Duration::from_millis(300),
            ..Options::new(Server::shared().database())
        };
        let store = Postgres::open(&options).await.unwrap();
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let later = now + SignedDuration::from_secs(60);
        let [one, two] = [1, 2].map(|number| WorkerId::new(now, number));
        let acquire = |owner, now| Store::acquire(&store, owner, Shards::All, Duration::from_secs(10), now);
        let first = acquire(one, now).await.unwrap();
        assert_eq!(first.len(), 16);
        let mut client = store.connection().await.unwrap();
        let fire = client.transaction().await.unwrap();
        fire.query(SHARE_SHARDS, &[&vec![9_i16]]).await.unwrap();
        assert_eq!(acquire(one, now).await.unwrap(), first, "the same epochs");
        assert!(matches!(acquire(two, later).await, Err(Error::Unavailable { .. })), "it waits");
        fire.commit().await.unwrap();
        let epochs: Vec<_> =
            first.into_iter().map(|(shard, Epoch(epoch))| (shard, Epoch(epoch + 1))).collect();
        assert_eq!(acquire(two, later).await.unwrap(), epochs);
    }
}
