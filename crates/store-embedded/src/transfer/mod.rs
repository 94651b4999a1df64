//! A data directory as one side of a copy: nobody else has it open, and it is read or filled as a whole.
//!
//! Filled by one connection, without what the writer keeps in memory about open runs and births: the index of births is
//! made at the end, a partition at a time. So memory does not grow with what is copied. Promise: a page is on stable
//! storage when [`Transfer::import`] returns; a directory whose copy is not finished is refused by [`crate::Embedded::open`].

mod cells;
mod export;
mod import;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use punctual_store::Error;
use punctual_store::transfer::{Identity, Kind, Note, Piece, Transfer};
use rusqlite::{Connection, OptionalExtension, params};

use self::cells::Cells;
use crate::births::{self, Recent, SEGMENT_BIRTHS};
use crate::directory::Directory;
use crate::error::{OpenError, failed};
use crate::open_runs::{last_sequence, load_shards};
use crate::origin::Origin;
use crate::partition::Partitions;
use crate::schema;

/// The row of `meta` that says how far a copy into this directory is.
const NOTE: &str = "copy";

/// Frames of the log after which it is moved into the database: 32 MB.
const LOG_FRAMES: i64 = 8_192;

/// A data directory that is copied from or to.
#[derive(Debug)]
pub struct Side {
    path: PathBuf,
    shards: u16,
    inner: Mutex<Inner>,
    directory: Directory,
    is_written: bool,
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    cells: Cells,
}

impl Side {
    /// Opens a directory that is copied from. It must be there, and nobody may have it open.
    pub fn from(path: &Path) -> Result<Self, OpenError> {
        let directory = Directory::take_existing(path)?;
        if !directory.verify()? {
            let reason = "there is no punctual.db in it".into();
            return Err(OpenError::Unusable { path: path.into(), reason });
        }
        let database = directory.database();
        let connection = schema::open_reader(&database).map_err(|error| damaged(&database, &error))?;
        schema::verify(&connection, &database)?;
        Side::of(path, directory, connection, false)
    }

    /// Opens a directory that is copied to; a new one gets so many shards.
    pub fn to(path: &Path, shards: u16) -> Result<Self, OpenError> {
        let directory = Directory::take(path)?;
        directory.verify()?;
        let database = directory.database();
        let connection = schema::open_writer(&database, None, shards)?;
        connection
            .pragma_update(None, "wal_autocheckpoint", LOG_FRAMES)
            .map_err(|error| damaged(&database, &error))?;
        directory.mark_open()?;
        Side::of(path, directory, connection, true)
    }

    fn of(
        path: &Path,
        directory: Directory,
        connection: Connection,
        is_written: bool,
    ) -> Result<Self, OpenError> {
        let database = directory.database();
        let unreadable =
            |error: Error| OpenError::Damaged { path: database.clone(), reason: error.to_string() };
        let shards = load_shards(&connection).map_err(unreadable)?.len() as u16;
        let cells = match is_written {
            true => Cells::load(&connection).map_err(unreadable)?,
            false => Cells::default(),
        };
        let path = path.canonicalize().unwrap_or_else(|_| path.into());
        Ok(Side { path, shards, inner: Mutex::new(Inner { connection, cells }), directory, is_written })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Whoever panicked has left a transaction, which is undone when the connection is closed.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn damaged(path: &Path, error: &rusqlite::Error) -> OpenError {
    OpenError::Damaged { path: path.into(), reason: error.to_string() }
}

/// The note of a copy into a database that is not finished.
pub(crate) fn note(connection: &Connection) -> Result<Option<Note>, Error> {
    let sql = "select value from meta where name = ?1";
    let text: Option<String> =
        connection.query_row(sql, [NOTE], |row| row.get(0)).optional().map_err(failed)?;
    text.map(|text| Note::decode(text.as_bytes())).transpose()
}

fn save(connection: &Connection, note: &Note) -> Result<(), Error> {
    let sql = "insert or replace into meta values (?1, ?2)";
    connection.execute(sql, params![NOTE, note.encode()?]).map_err(failed)?;
    Ok(())
}

/// Does something in a transaction of its own.
fn transact<T>(connection: &Connection, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let transaction = connection.unchecked_transaction().map_err(failed)?;
    let value = work()?;
    transaction.commit().map_err(failed)?;
    Ok(value)
}

#[async_trait]
impl Transfer for Side {
    fn shard_count(&self) -> u16 {
        self.shards
    }

    async fn identity(&self) -> Result<Identity, Error> {
        // Whoever opens the directory to serve takes its shards, under a new epoch each.
        let epochs: Vec<u64> =
            load_shards(&self.inner().connection)?.iter().map(|shard| shard.epoch.0).collect();
        Ok(Identity { name: self.path.display().to_string(), state: format!("{epochs:?}") })
    }

    async fn count(&self, kind: Kind) -> Result<u64, Error> {
        export::count(&self.inner().connection, kind)
    }

    async fn pieces(
        &self,
        kind: Kind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Piece)>, Error> {
        export::pieces(&self.inner().connection, kind, after, limit)
    }

    async fn note(&self) -> Result<Option<Note>, Error> {
        note(&self.inner().connection)
    }

    async fn begin(&self, note: &Note) -> Result<(), Error> {
        save(&self.inner().connection, note)
    }

    async fn import(&self, pieces: Vec<Piece>, note: &Note) -> Result<(), Error> {
        let inner = &mut *self.inner();
        let connection = &inner.connection;
        let done = transact(connection, || {
            import::import(connection, &mut inner.cells, pieces, note.begun_at)?;
            save(connection, note)
        });
        if done.is_err() {
            inner.cells = Cells::load(connection)?; // What it knows may have been undone.
        }
        done
    }

    async fn seal(&self, now: Timestamp) -> Result<(), Error> {
        let inner = self.inner();
        let connection = &inner.connection;
        transact(connection, || {
            cells::open_last(connection, now)?;
            let newest = last_sequence(connection)?;
            let origin = Origin { database: newest.database(), ..Origin::load(connection)? };
            // As after a restore: whoever goes on with FROM all the same gives out other numbers.
            origin.after_restore(newest, now, now).save(connection).map_err(failed)
        })?;
        let nobody = Recent::new(SEGMENT_BIRTHS);
        for partition in Partitions::load(connection)?.iter() {
            let (complete, rest) = births::unwritten(connection, partition, SEGMENT_BIRTHS)?;
            let rest = Some(rest).filter(|rest| partition.to.is_some() && rest.last().is_some());
            for births in complete.into_iter().chain(rest.map(std::sync::Arc::new)) {
                births::write(&nobody, &births, |piece| transact(connection, || piece(connection)))?;
            }
        }
        Ok(())
    }

    async fn finish(&self) -> Result<(), Error> {
        self.inner().connection.execute("delete from meta where name = ?1", [NOTE]).map_err(failed)?;
        Ok(())
    }
}

impl Drop for Side {
    /// Brings everything into the database and empties the log. If that fails, whoever opens it next does it.
    fn drop(&mut self) {
        if !self.is_written {
            return;
        }
        let truncate = "pragma wal_checkpoint(truncate)";
        let emptied = self.inner().connection.query_row(truncate, [], |row| row.get::<_, i64>(0));
        if matches!(emptied, Ok(0)) {
            self.directory.mark_closed();
        }
    }
}
