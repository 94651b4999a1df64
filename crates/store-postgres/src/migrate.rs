//! The schema: made and brought up to date, forward only.
//!
//! Each migration is applied once, in order, in a transaction of its own, under a lock, so that of many nodes that
//! start at once one migrates and the others wait. Promise: a database of a newer schema is not touched.

use deadpool_postgres::Object;
use punctual_store::Error;

use crate::connect::Options;
use crate::error::{OpenError, failed, reason};

/// All migrations. The number is the place in the list, from 1.
const MIGRATIONS: [&str; 2] =
    [include_str!("../migrations/0001_start.sql"), include_str!("../migrations/0002_nodes.sql")];

/// What a database without a wish gets.
const SHARDS: u16 = 256;

/// Any number, the same for all nodes: "Punctual".
const LOCK: i64 = 0x5075_6e63_7475_616c;

/// Brings the schema up to date and returns the number of shards.
pub(crate) async fn migrate(client: &mut Object, options: &Options) -> Result<u16, OpenError> {
    let unreachable = |error: tokio_postgres::Error| OpenError::Unreachable { reason: reason(&error) };
    let known = MIGRATIONS.len() as i32;
    loop {
        let transaction = client.transaction().await.map_err(unreachable)?;
        transaction.execute("select pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(unreachable)?;
        transaction
            .batch_execute(
                "create table if not exists schema_versions (version int primary key, applied_at timestamptz not null)",
            )
            .await
            .map_err(unreachable)?;
        let found: i32 = transaction
            .query_one("select coalesce(max(version), 0) from schema_versions", &[])
            .await
            .map_err(unreachable)?
            .get(0);
        if found > known {
            return Err(OpenError::NewerSchema { found, known });
        }
        if found == known {
            transaction.commit().await.map_err(unreachable)?;
            break;
        }
        transaction.batch_execute(MIGRATIONS[found as usize]).await.map_err(unreachable)?;
        if found == 0 {
            let shards = i32::from(options.shards.unwrap_or(SHARDS));
            let fill = "insert into shards select n, null, 0, 0 from generate_series(0, $1 - 1) n";
            transaction.execute(fill, &[&shards]).await.map_err(unreachable)?;
        }
        let note = "insert into schema_versions values ($1, now())";
        transaction.execute(note, &[&(found + 1)]).await.map_err(unreachable)?;
        transaction.commit().await.map_err(unreachable)?;
        tracing::info!(version = found + 1, "the schema of the database was brought up to date");
    }
    let found = shards(client).await.map_err(|error| OpenError::Unreachable { reason: error.to_string() })?;
    match options.shards {
        Some(wanted) if wanted != found => Err(OpenError::Shards { found, wanted }),
        _ => Ok(found),
    }
}

async fn shards(client: &Object) -> Result<u16, Error> {
    let row = client.query_one("select max(shard) from shards", &[]).await.map_err(failed)?;
    Ok(row.get::<_, i16>(0) as u16 + 1)
}
