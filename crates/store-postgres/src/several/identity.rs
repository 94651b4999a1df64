//! Which databases belong together, and how another joins them.
//!
//! The databases of an installation share a random name and have a number each. Promise: a database belongs to one
//! installation for good; a number is given once, because the sequences of runs carry it.

use std::collections::BTreeMap;

use punctual_domain::id::Sequence;
use tokio_postgres::types::ToSql;

use crate::client::Client;
use crate::connect::Options;
use crate::error::{Failed, OpenError, failed};
use crate::migrate::SEVERAL;
use crate::postgres::Postgres;

/// Any number, the same for all nodes: "Join".
const LOCK: i64 = 0x4a6f_696e;

/// What a database says of itself: its installation and its number in it.
type Identity = Option<(Vec<u8>, u8)>;

const READ: &str = "
select s.value, d.number from settings s cross join databases d where s.name = 'installation' and d.is_this";

/// Nothing was ever registered in it.
const IS_EMPTY: &str = "
select not exists (select from jobs) and not exists (select from open_runs) and not exists (select from history)
    and not exists (select from operations)";

const WRITE: &str = "
insert into databases values ($1, $2, $3, (extract(epoch from now()) * 1000)::bigint)
on conflict (number) do update set address = excluded.address";

/// Nodes that know of one database only must not start on this one any more.
const SHUT_OUT: &str = "update schema_versions set compatible_with = $1 where version = $1";

/// Opens all databases, in the order of their numbers.
pub(super) async fn open(options: &[Options]) -> Result<Vec<Postgres>, OpenError> {
    let mut databases = Vec::with_capacity(options.len());
    let mut known: BTreeMap<u8, Postgres> = BTreeMap::new();
    for one in options {
        databases.push(Postgres::open(one).await?);
    }
    if databases.len() > 1 {
        found(&databases).await?;
    }
    // One that has just joined was set up with another number of shards, perhaps.
    let shards = shard_count(&databases).await.map_err(unreachable)?;
    for mut database in databases {
        database.shard_count = shards;
        let identity = identity(&database).await.map_err(unreachable)?;
        let number = identity.map_or(0, |(_, number)| number);
        database.sequences.database = number;
        if let Some(twice) = known.insert(number, database) {
            return Err(OpenError::Twice { address: twice.address().into() });
        }
    }
    Ok(known.into_values().collect())
}

async fn shard_count(databases: &[Postgres]) -> Result<u16, Failed> {
    let Some(database) = databases.first() else { return Ok(0) };
    let client = database.connection().await?;
    let sql = "select convert_from(value, 'UTF8')::int from settings where name = 'shards'";
    Ok(client.query_one(sql, &[]).await.map_err(failed)?.get::<_, i32>(0) as u16)
}

/// The databases that the installation has had, as one of them knows.
pub(super) async fn known(database: &Postgres) -> Result<Vec<(u8, String)>, Failed> {
    let client = database.connection().await?;
    let rows =
        client.query("select number, address from databases order by number", &[]).await.map_err(failed)?;
    Ok(rows.iter().map(|row| (row.get::<_, i16>(0) as u8, row.get(1))).collect())
}

/// Makes one installation of the databases, or finds that they are.
async fn found(databases: &[Postgres]) -> Result<(), OpenError> {
    let mut identities = Vec::with_capacity(databases.len());
    for database in databases {
        identities.push(identity(database).await.map_err(unreachable)?);
    }
    // The one with the lowest number; if none has one, the first that was given is where the installation begins.
    let first = (0..databases.len())
        .filter(|place| identities[*place].is_some())
        .min_by_key(|place| identities[*place].as_ref().map(|(_, number)| *number))
        .unwrap_or(0);
    for (place, database) in databases.iter().enumerate() {
        if place != first {
            join(&databases[first], database).await?;
        }
    }
    Ok(())
}

async fn identity(database: &Postgres) -> Result<Identity, Failed> {
    let client = database.connection().await?;
    let row = client.query_opt(READ, &[]).await.map_err(failed)?;
    Ok(row.map(|row| (row.get(0), row.get::<_, i16>(1) as u8)))
}

fn unreachable(failed: Failed) -> OpenError {
    failed.into()
}

fn lost(error: tokio_postgres::Error) -> OpenError {
    error.into()
}

/// Makes a database one of the installation, if it is not yet. One node does at a time.
async fn join(first: &Postgres, other: &Postgres) -> Result<(), OpenError> {
    let mut client = first.connection().await.map_err(unreachable)?;
    let transaction = client.transaction().await.map_err(lost)?;
    transaction.execute("select pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(lost)?;
    let mine: Vec<u8> = match transaction.query_opt(READ, &[]).await.map_err(lost)? {
        Some(row) => row.get(0),
        None => {
            let insert = "insert into settings values ('installation', uuid_send(gen_random_uuid())) \
                on conflict (name) do update set value = excluded.value returning value";
            let name = transaction.query_one(insert, &[]).await.map_err(lost)?.get(0);
            write(&transaction, 0, first.address(), true).await?;
            transaction.execute(SHUT_OUT, &[&SEVERAL]).await.map_err(lost)?;
            name
        }
    };
    let number = match identity(other).await.map_err(unreachable)? {
        Some((installation, number)) if installation == mine => number,
        Some(_) => return Err(OpenError::Foreign { address: other.address().into() }),
        None => {
            let next = "select max(number) + 1 from databases";
            let number: i32 = transaction.query_one(next, &[]).await.map_err(lost)?.get(0);
            let number = u8::try_from(number).ok().filter(|number| *number < Sequence::DATABASES);
            let number = number.ok_or_else(|| OpenError::Foreign { address: other.address().into() })?;
            // Noted first: a number that was given to a database which then did not join is not given again.
            write(&transaction, number, other.address(), false).await?;
            let settings = transaction.query("select name, value from settings", &[]).await.map_err(lost)?;
            let tenants =
                transaction.query("select id, name, created_at from tenants", &[]).await.map_err(lost)?;
            transaction.commit().await.map_err(lost)?;
            return welcome(other, number, &settings, &tenants).await;
        }
    };
    write(&transaction, number, other.address(), false).await?;
    transaction.commit().await.map_err(lost)
}

async fn write(client: &Client<'_>, number: u8, address: &str, is_this: bool) -> Result<(), OpenError> {
    let values: [&(dyn ToSql + Sync); 3] = [&i16::from(number), &address, &is_this];
    client.execute(WRITE, &values).await.map_err(lost)?;
    Ok(())
}

/// An empty database becomes one of the installation: it has no shards yet, and all that is not of any shard.
async fn welcome(
    other: &Postgres,
    number: u8,
    settings: &[tokio_postgres::Row],
    tenants: &[tokio_postgres::Row],
) -> Result<(), OpenError> {
    let mut client = other.connection().await.map_err(unreachable)?;
    let transaction = client.transaction().await.map_err(lost)?;
    transaction.execute("select pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(lost)?;
    // Another node was faster, with a number of its own.
    if transaction.query_opt(READ, &[]).await.map_err(lost)?.is_some() {
        return Ok(());
    }
    if !transaction.query_one(IS_EMPTY, &[]).await.map_err(lost)?.get::<_, bool>(0) {
        return Err(OpenError::Foreign { address: other.address().into() });
    }
    transaction.batch_execute("delete from shards").await.map_err(lost)?;
    let put = "insert into settings values ($1, $2) on conflict (name) do update set value = excluded.value";
    for row in settings {
        let values: [&(dyn ToSql + Sync); 2] = [&row.get::<_, String>(0), &row.get::<_, Vec<u8>>(1)];
        transaction.execute(put, &values).await.map_err(lost)?;
    }
    for row in tenants {
        let insert = "insert into tenants values ($1, $2, $3) on conflict do nothing";
        let values: [&(dyn ToSql + Sync); 3] =
            [&row.get::<_, i32>(0), &row.get::<_, String>(1), &row.get::<_, i64>(2)];
        transaction.execute(insert, &values).await.map_err(lost)?;
    }
    write(&transaction, number, other.address(), true).await?;
    transaction.execute(SHUT_OUT, &[&SEVERAL]).await.map_err(lost)?;
    transaction.commit().await.map_err(lost)?;
    tracing::info!(number, address = other.address(), "the database joined the installation");
    Ok(())
}
