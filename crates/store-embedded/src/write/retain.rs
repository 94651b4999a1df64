//! Retain: what is old goes. History by whole partitions; jobs that are over one by one, after their history.

use jiff::Timestamp;
use punctual_domain::audit;
use punctual_domain::operation::KEPT;
use punctual_store::Error;
use rusqlite::params;

use crate::error::failed;
use crate::partition::forget_kept;
use crate::row::millis;
use crate::writer::Batch;

const FORGET_REQUESTS: &str = "delete from requests where (tenant, key) in \
     (select tenant, key from requests where expires_at <= ?1 limit ?2)";

const FORGET_OPERATIONS: &str = "delete from operations where id in \
     (select id from operations where finished_at < ?1 limit ?2)";

impl Batch<'_> {
    pub(crate) fn retain(&mut self, now: Timestamp, limit: usize) -> Result<u64, Error> {
        self.check()?;
        let next = self.memory.last_sequence().next();
        let dropped = self.memory.partitions.retain(self.connection, self.recent, next, now, limit)?;
        let settled = forget_kept(self.connection, limit)?;
        let forget = |sql, before: Timestamp| {
            self.connection.execute(sql, params![millis(before), limit as i64]).map_err(failed)
        };
        let forgotten = forget(FORGET_REQUESTS, now)? + forget(FORGET_OPERATIONS, now - KEPT)?;
        let forgotten = forgotten + self.forget_audit(millis(now - audit::KEPT), limit)?;
        let jobs = self.forget_jobs(now, limit)?;
        self.forget_gates(now)?;
        Ok(dropped + settled + jobs + forgotten as u64)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::schema;

    /// It runs every minute, also while nothing else does.
    #[test]
    fn looking_for_what_is_old_reads_no_table_through() {
        let directory = tempfile::tempdir().unwrap();
        let connection = schema::open_writer(&directory.path().join("punctual.db"), None, 4).unwrap();
        for sql in [FORGET_REQUESTS, FORGET_OPERATIONS] {
            let mut statement = connection.prepare(&format!("explain query plan {sql}")).unwrap();
            let steps = statement.query_map(params![0, 1], |row| row.get::<_, String>(3)).unwrap();
            let steps: Vec<String> = steps.map(Result::unwrap).collect();
            assert!(steps.iter().any(|step| step.contains("SEARCH")), "{steps:?}");
            let is_read_through =
                |step: &String| step.contains("SCAN requests") || step.contains("SCAN operations");
            assert!(!steps.iter().any(is_read_through), "{steps:?}");
        }
    }
}
