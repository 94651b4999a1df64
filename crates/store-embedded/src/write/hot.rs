//! The statements that are done for every run, prepared once for a list of them: looking one up in the cache of
//! statements costs as much as a tenth of a run.

use punctual_domain::id::Sequence;
use punctual_store::Error;
use rusqlite::{CachedStatement, Connection, params};

use crate::error::failed;
use crate::row::{self, Entry};

/// Prepared when first used.
#[derive(Default)]
pub(crate) struct Hot<'w> {
    pub(super) insert_due: Slot<'w>,
    pub(super) delete_due: Slot<'w>,
    pub(super) current: Slot<'w>,
    insert_open: Slot<'w>,
    delete_open: Slot<'w>,
    /// Of the partition that was last written to.
    history: (i64, Slot<'w>),
}

/// A statement, once it is prepared.
#[derive(Default)]
pub(super) struct Slot<'w>(Option<CachedStatement<'w>>);

impl<'w> Slot<'w> {
    pub(super) fn prepare(
        &mut self,
        connection: &'w Connection,
        sql: impl AsRef<str>,
    ) -> Result<&mut CachedStatement<'w>, Error> {
        match &mut self.0 {
            Some(statement) => Ok(statement),
            empty => Ok(empty.insert(connection.prepare_cached(sql.as_ref()).map_err(failed)?)),
        }
    }
}

impl<'w> Hot<'w> {
    /// Writes an open run, replacing an older row of it.
    pub(super) fn insert_open(&mut self, connection: &'w Connection, entry: &Entry) -> Result<(), Error> {
        let statement =
            self.insert_open.prepare(connection, "insert or replace into open_runs values (?1, ?2)")?;
        row::write(statement, entry)
    }

    /// Takes an open run out.
    pub(super) fn delete_open(
        &mut self,
        connection: &'w Connection,
        sequence: Sequence,
    ) -> Result<(), Error> {
        let statement = self.delete_open.prepare(connection, "delete from open_runs where seq = ?1")?;
        statement.execute(params![sequence.as_i64()]).map_err(failed)?;
        Ok(())
    }

    /// Writes an ended run.
    pub(super) fn insert_history(
        &mut self,
        connection: &'w Connection,
        partition: i64,
        entry: &Entry,
    ) -> Result<(), Error> {
        if self.history.0 != partition || self.history.1.0.is_none() {
            self.history = (partition, Slot::default());
            let sql = format!("insert or replace into history_{partition} values (?1, ?2)");
            self.history.1.prepare(connection, sql)?;
        }
        row::write(self.history.1.prepare(connection, "")?, entry)
    }
}
