//! Requests under an `Idempotency-Key`, and what came of them.

use std::collections::HashSet;

use jiff::Timestamp;
use punctual_domain::id::{ShardId, TenantId};
use punctual_store::{Refused, Subject};
use tokio_postgres::types::ToSql;

use crate::client::Client;
use crate::error::{Failed, damaged, failed};
use crate::postgres::{Postgres, transact};
use crate::row::{millis, timestamp};

/// Remembers requests, unless they are remembered already; tells which were not.
const REMEMBER: &str = "
insert into requests (tenant, key, fingerprint, expires_at, result, shard)
select * from unnest($1::int[], $2::text[], $3::bytea[], $4::bigint[], $5::text[], $7::smallint[])
on conflict (tenant, key) do update set fingerprint = excluded.fingerprint, expires_at = excluded.expires_at,
    result = excluded.result, shard = excluded.shard
where requests.expires_at <= $6
returning tenant, key";

/// Remembers requests, each with the shard of what it made; each that was not known is true. The first of two with one
/// key counts.
pub(crate) async fn remember(
    client: &Client<'_>,
    requests: &[(&Subject, ShardId)],
    now: Timestamp,
) -> Result<Vec<bool>, Failed> {
    let mut seen = HashSet::new();
    let first: Vec<bool> =
        requests.iter().map(|(one, _)| seen.insert((one.tenant, one.key.as_str()))).collect();
    let (chosen, shards): (Vec<&Subject>, Vec<i16>) = requests
        .iter()
        .zip(&first)
        .filter(|(_, is_first)| **is_first)
        .map(|((one, shard), _)| (*one, shard.0 as i16))
        .unzip();
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let tenants: Vec<i32> = chosen.iter().map(|one| one.tenant.0 as i32).collect();
    let keys: Vec<&str> = chosen.iter().map(|one| one.key.as_str()).collect();
    let prints: Vec<&[u8]> = chosen.iter().map(|one| one.fingerprint.as_slice()).collect();
    let expires: Vec<i64> = chosen.iter().map(|one| millis(one.expires_at)).collect();
    let results: Vec<&str> = chosen.iter().map(|one| one.result.as_str()).collect();
    let statement = client.prepare_cached(REMEMBER).await?;
    let values: [&(dyn ToSql + Sync); 7] =
        [&tenants, &keys, &prints, &expires, &results, &millis(now), &shards];
    let rows = client.query(&statement, &values).await?;
    let new: HashSet<(u32, String)> =
        rows.iter().map(|row| (row.get::<_, i32>(0) as u32, row.get(1))).collect();
    let is_new = |one: &Subject| new.contains(&(one.tenant.0, one.key.clone()));
    Ok(requests.iter().zip(first).map(|((one, _), is_first)| is_first && is_new(one)).collect())
}

impl Postgres {
    pub(crate) async fn request(
        &self,
        tenant: TenantId,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<Subject>, Failed> {
        let client = self.connection().await?;
        let sql = "
            select fingerprint, expires_at, result from requests
            where tenant = $1 and key = $2 and expires_at > $3";
        let statement = client.prepare_cached(sql).await.map_err(failed)?;
        let values: [&(dyn ToSql + Sync); 3] = [&(tenant.0 as i32), &key, &millis(now)];
        let Some(row) = client.query_opt(&statement, &values).await.map_err(failed)? else { return Ok(None) };
        let fingerprint =
            row.get::<_, &[u8]>(0).try_into().map_err(|_| damaged("a fingerprint of another size"))?;
        let expires_at = timestamp(row.get(1))?;
        Ok(Some(Subject { tenant, key: key.into(), fingerprint, expires_at, result: row.get(2) }))
    }

    pub(crate) async fn remember(
        &self,
        requests: &[Subject],
        now: Timestamp,
    ) -> Result<Vec<Result<(), Refused>>, Failed> {
        let home = |one: &Subject| ShardId::of(one.tenant, &one.key, self.shard_count);
        let requests: Vec<(&Subject, ShardId)> = requests.iter().map(|one| (one, home(one))).collect();
        let new: Vec<bool> = transact!(self, |client| remember(&client, &requests, now).await)?;
        Ok(new.into_iter().map(|is_new| if is_new { Ok(()) } else { Err(Refused::Repeated) }).collect())
    }
}
