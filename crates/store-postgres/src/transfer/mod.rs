//! A database as one side of a copy: no node uses it, and it is read or filled as a whole.
//!
//! What is copied from is read in one transaction that sees one moment and keeps everybody from writing until it ends.
//! Promise: a page is committed with its note when [`Transfer::import`] returns; of two copies into one database, one
//! is refused; a database whose copy is not finished is refused by [`crate::Postgres::open`].

mod columns;
mod export;
mod import;

use async_trait::async_trait;
use deadpool_postgres::Pool;
use jiff::Timestamp;
use punctual_domain::id::Sequence;
use punctual_store::Error;
use punctual_store::transfer::{Identity, Kind, Note, Piece, Transfer};
use tokio::sync::Mutex;

use crate::client::Client;
use crate::connect::{Options, Time, sessions};
use crate::error::{Failed, OpenError, failed};
use crate::limit;
use crate::migrate::{Schema, migrate};
use crate::row::{millis, timestamp};
use crate::sequences::BLOCKS;

/// The setting that says how far a copy into this database is.
const NOTE: &str = "copy";

const MARK_AHEAD: &str = "
update open_runs set is_followed = true where line < 3 and not is_followed
    and job in (select job from open_runs where line = 3)";

/// One moment, and nobody writes. What is not there yet was never in use.
const HOLD: &str = "
begin isolation level repeatable read;
set local statement_timeout = 0;
set local idle_in_transaction_session_timeout = 0;
set local lock_timeout = '10s';
lock table tenants, shards, jobs, job_versions, due, open_runs, history, dead_letters, ledger, operations, requests,
    ended_jobs, ended_lists, sequences, gates, rules, documents, open_papers, audit in share mode";

/// Whatever a node does to a database shows here: it takes shards, changes jobs, or settles dead letters.
const STATE: &str = "
select (select array_agg(epoch order by shard) from shards)::text, (select block from sequences),
    (select count(*) from jobs), (select coalesce(sum(version), 0) from jobs)::bigint,
    (select count(*) from dead_letters)";

/// A name that stays the same however the address is written.
const NAME: &str = "
select 'the database ' || current_database() || ' (set up ' || min(applied_at) at time zone 'UTC' || ')'
from schema_versions";

/// A database that is copied from or to.
pub struct Side {
    shards: u16,
    inner: Mutex<Inner>,
    /// Its connection is in there.
    _pool: Pool,
}

struct Inner {
    client: Client<'static>,
    /// The note as it was last read or written: if it is another one, so is the copy.
    known: Option<Vec<u8>>,
}

impl Side {
    /// Opens a database that is copied from. It must be up to date, and no node may be live in it.
    pub async fn from(options: &Options, now: Timestamp) -> Result<Self, OpenError> {
        Schema::read(options).await?.check()?;
        let side = Side::open(options, options.shards, now).await?;
        side.inner.lock().await.client.batch_execute(HOLD).await?;
        Ok(side)
    }

    /// Opens a database that is copied to; a new one gets so many shards.
    pub async fn to(options: &Options, shards: u16, now: Timestamp) -> Result<Self, OpenError> {
        let is_new = Schema::read(options).await?.found == 0;
        let side = Side::open(options, is_new.then_some(shards), now).await?;
        let patient = "set statement_timeout = 0";
        side.inner.lock().await.client.batch_execute(patient).await?;
        Ok(side)
    }

    async fn open(options: &Options, shards: Option<u16>, now: Timestamp) -> Result<Self, OpenError> {
        let options = Options { connections: 1, shards, ..options.clone() };
        let pool = sessions(&options)?;
        let client = pool.get().await.map_err(|error| OpenError::from(&error))?;
        let mut client = Client::new(client, None);
        let shards = migrate(&mut client, &options).await?;
        let callers = (options.time == Time::Caller).then(|| millis(now));
        let sql = "select count(*) from nodes where expires_at > punctual_now($1)";
        let nodes: i64 = client.query_one(sql, &[&callers]).await?.get(0);
        if nodes > 0 {
            return Err(OpenError::InUse { nodes });
        }
        let living: i64 = client.query_one("select count(*) from shards", &[]).await?.get(0);
        let elsewhere = i64::from(shards) - living;
        if elsewhere > 0 {
            return Err(OpenError::Partial { elsewhere });
        }
        let known = read_note(&client).await?;
        Ok(Side { shards, inner: Mutex::new(Inner { client, known }), _pool: pool })
    }

    /// What all nodes share under a name.
    pub async fn setting(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let client = &self.inner.lock().await.client;
        let sql = "select value from settings where name = $1";
        Ok(client.query_opt(sql, &[&name]).await.map_err(failed)?.map(|row| row.get(0)))
    }

    /// Sets what all nodes share under a name.
    pub async fn set(&self, name: &str, value: &[u8]) -> Result<(), Error> {
        let client = &self.inner.lock().await.client;
        let sql =
            "insert into settings values ($1, $2) on conflict (name) do update set value = excluded.value";
        client.execute(sql, &[&name, &value]).await.map_err(failed)?;
        Ok(())
    }
}

async fn read_note(client: &Client<'_>) -> Result<Option<Vec<u8>>, tokio_postgres::Error> {
    let row = client.query_opt("select value from settings where name = $1", &[&NOTE]).await?;
    Ok(row.map(|row| row.get(0)))
}

/// Refuses a database whose copy is not finished.
pub(crate) async fn refuse_unfinished(client: &Client<'_>) -> Result<(), OpenError> {
    match read_note(client).await? {
        None => Ok(()),
        Some(text) => {
            let from = Note::decode(&text).map_or("something".into(), |note| note.from.name);
            Err(OpenError::Unfinished { from })
        }
    }
}

fn overtaken() -> Failed {
    let reason = "another copy into this database is under way".into();
    Error::Unavailable { reason }.into()
}

#[async_trait]
impl Transfer for Side {
    fn shard_count(&self) -> u16 {
        self.shards
    }

    async fn identity(&self) -> Result<Identity, Error> {
        let client = &self.inner.lock().await.client;
        let name = client.query_one(NAME, &[]).await.map_err(failed)?.get(0);
        let row = client.query_one(STATE, &[]).await.map_err(failed)?;
        let numbers: Vec<i64> = (1..5).map(|column| row.get(column)).collect();
        Ok(Identity { name, state: format!("{} {numbers:?}", row.get::<_, String>(0)) })
    }

    async fn count(&self, kind: Kind) -> Result<u64, Error> {
        let client = &self.inner.lock().await.client;
        let sql = match kind {
            Kind::EndedJobs => {
                "select (select count(*) from ended_jobs) + (select coalesce(sum(count), 0) from ended_lists)::bigint".into()
            }
            kind => format!("select count(*) from {kind}"),
        };
        let row = client.query_one(sql.as_str(), &[]).await.map_err(failed)?;
        Ok(row.get::<_, i64>(0).unsigned_abs())
    }

    async fn pieces(
        &self,
        kind: Kind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Piece)>, Error> {
        let client = &self.inner.lock().await.client;
        Ok(export::pieces(client, kind, after, limit).await?)
    }

    async fn note(&self) -> Result<Option<Note>, Error> {
        let inner = self.inner.lock().await;
        inner.known.as_ref().map(|text| Note::decode(text)).transpose()
    }

    async fn begin(&self, note: &Note) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        let text = note.encode()?.into_bytes();
        let sql = "insert into settings values ($1, $2) on conflict do nothing";
        match inner.client.execute(sql, &[&NOTE, &text]).await.map_err(failed)? {
            1 => inner.known = Some(text),
            _ => return Err(overtaken().into()),
        }
        Ok(())
    }

    async fn import(&self, pieces: Vec<Piece>, note: &Note) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        let Inner { client, known } = &mut *inner;
        let text = note.encode()?.into_bytes();
        import::page(client, pieces, known.as_deref(), &text, note.begun_at).await?;
        *known = Some(text);
        Ok(())
    }

    async fn seal(&self, _: Timestamp) -> Result<(), Error> {
        let inner = self.inner.lock().await;
        let sql = "select greatest((select max(seq) from open_runs), (select max(seq) from history))";
        let newest: Option<i64> = inner.client.query_one(sql, &[]).await.map_err(failed)?.get(0);
        if let Some(newest) = newest {
            // Above the whole millisecond: in it, the number of another database may stand above ours.
            let after = millis(Sequence::from_i64(newest).born_at()) + 1;
            timestamp(after)?;
            let sql = "update sequences set block = greatest(block, $1)";
            inner.client.execute(sql, &[&(after * BLOCKS)]).await.map_err(failed)?;
        }
        // Which runs others wait for is not in the pieces.
        inner.client.batch_execute(MARK_AHEAD).await.map_err(failed)?;
        // Nor is who holds what at which gate.
        limit::count_gates(&inner.client, self.shards).await?;
        // Whoever starts next needs to know how large the tables are.
        inner.client.batch_execute("analyze").await.map_err(failed)?;
        Ok(())
    }

    async fn finish(&self) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        let sql = "delete from settings where name = $1 and value = $2";
        let known = inner.known.take();
        match inner.client.execute(sql, &[&NOTE, &known]).await.map_err(failed)? {
            1 => Ok(()),
            _ => Err(overtaken().into()),
        }
    }
}
