//! The statements that are done for every run or every new job, prepared once for a list of them: looking one up in the cache of
//! statements costs as much as a tenth of a run.

use punctual_domain::Papers;
use punctual_domain::id::Sequence;
use punctual_domain::job::Job;
use punctual_domain::run::RunState;
use punctual_store::{Error, Subject};
use rusqlite::{CachedStatement, Connection, params};

use crate::error::failed;
use crate::row::{self, Entry, millis};
use crate::write::JobCode;

/// Prepared when first used.
#[derive(Default)]
pub(crate) struct Hot<'w> {
    pub(super) insert_due: Slot<'w>,
    pub(super) delete_due: Slot<'w>,
    pub(super) current: Slot<'w>,
    insert_job: Slot<'w>,
    insert_key: Slot<'w>,
    insert_request: Slot<'w>,
    pub(super) insert_audit: Slot<'w>,
    insert_running: Slot<'w>,
    insert_waiting: Slot<'w>,
    delete_running: Slot<'w>,
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
    /// Writes a new job, unless there is one with its id.
    pub(super) fn insert_job(
        &mut self,
        connection: &'w Connection,
        job: &Job,
        record: &[u8],
    ) -> Result<bool, Error> {
        let sql = "insert into jobs values (?1, ?2, ?3, ?4, ?5, 0, null, null) on conflict do nothing";
        let state = JobCode::of(&job.state);
        let values = params![job.id.as_bytes(), job.tenant.0, job.version.0, state.0, record];
        self.insert_job.prepare(connection, sql)?.execute(values).map(is_one).map_err(failed)
    }

    /// Gives a key to a job, unless it is taken.
    pub(super) fn insert_key(
        &mut self,
        connection: &'w Connection,
        job: &Job,
        key: &str,
    ) -> Result<bool, Error> {
        let sql = "insert into job_keys values (?1, ?2, ?3) on conflict do nothing";
        let values = params![job.tenant.0, key, job.id.as_bytes()];
        self.insert_key.prepare(connection, sql)?.execute(values).map(is_one).map_err(failed)
    }

    /// Remembers a request, unless one with its key is there, be it forgotten or not.
    pub(super) fn insert_request(
        &mut self,
        connection: &'w Connection,
        subject: &Subject,
    ) -> Result<bool, Error> {
        let Subject { tenant, key, fingerprint, expires_at, result } = subject;
        let sql = "insert into requests values (?1, ?2, ?3, ?4, ?5) on conflict do nothing";
        let values = params![tenant.0, key, fingerprint, millis(*expires_at), result];
        self.insert_request.prepare(connection, sql)?.execute(values).map(is_one).map_err(failed)
    }

    /// Writes an open run among those that run or those that wait, replacing an older row of it.
    pub(super) fn insert_open(&mut self, connection: &'w Connection, entry: &Entry) -> Result<(), Error> {
        let statement = match entry.run.state {
            RunState::Running(_) => self
                .insert_running
                .prepare(connection, "insert or replace into running_runs values (?1, ?2)")?,
            _ => self
                .insert_waiting
                .prepare(connection, "insert or replace into waiting_runs values (?1, ?2)")?,
        };
        row::write(statement, entry)
    }

    /// Takes a run that has a lease no more out.
    pub(super) fn delete_running(
        &mut self,
        connection: &'w Connection,
        sequence: Sequence,
    ) -> Result<(), Error> {
        let statement = self.delete_running.prepare(connection, "delete from running_runs where seq = ?1")?;
        statement.execute(params![sequence.as_i64()]).map_err(failed)?;
        Ok(())
    }

    /// Writes an ended run, with what it has said.
    pub(super) fn insert_history(
        &mut self,
        connection: &'w Connection,
        partition: i64,
        entry: &Entry,
        papers: &Papers,
    ) -> Result<(), Error> {
        if self.history.0 != partition || self.history.1.0.is_none() {
            self.history = (partition, Slot::default());
            let sql = format!("insert or replace into history_{partition} values (?1, ?2, ?3)");
            self.history.1.prepare(connection, sql)?;
        }
        row::write_ended(self.history.1.prepare(connection, "")?, entry, papers)
    }
}

/// Whether a statement wrote its row.
fn is_one(rows: usize) -> bool {
    rows == 1
}
