//! The audit: what changes carry, and what is written ahead of them.

use punctual_domain::audit::Entry;
use punctual_store::Error;
use rusqlite::params;

use crate::error::failed;
use crate::writer::Batch;

/// As [`crate::read::AUDIT`] lists its columns.
pub(crate) const WRITE_AUDIT: &str =
    "insert or replace into audit values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

/// The values of [`WRITE_AUDIT`].
macro_rules! audit_values {
    ($entry:expr) => {
        rusqlite::params![
            $entry.id.at,
            $entry.id.number,
            $entry.tenant.0,
            $entry.kind,
            $entry.subject,
            $entry.action,
            $entry.who.key,
            $entry.who.name,
            $entry.from,
            $entry.request_id,
            $entry.before,
            $entry.after
        ]
    };
}
pub(crate) use audit_values;

const FORGET: &str = "delete from audit where (at, number) in (select at, number from audit where at < ?1 order by at, number limit ?2)";

impl Batch<'_> {
    /// Appends an entry, if there is one.
    pub(crate) fn append_audit(&mut self, entry: Option<&Entry>) -> Result<(), Error> {
        let Some(entry) = entry else { return Ok(()) };
        let statement = self.hot.insert_audit.prepare(self.connection, WRITE_AUDIT)?;
        statement.execute(audit_values!(entry)).map_err(failed)?;
        Ok(())
    }

    /// Forgets the oldest that were made before a time. Returns how many.
    pub(super) fn forget_audit(&self, before: i64, limit: usize) -> Result<usize, Error> {
        self.connection
            .prepare_cached(FORGET)
            .and_then(|mut statement| statement.execute(params![before, limit as i64]))
            .map_err(failed)
    }
}
