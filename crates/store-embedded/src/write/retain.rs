//! Retain: what is old goes. History by whole partitions; jobs that are over one by one, after their history.

use jiff::Timestamp;
use punctual_domain::operation::KEPT;
use punctual_store::Error;
use rusqlite::params;

use crate::error::failed;
use crate::partition::forget_kept;
use crate::row::millis;
use crate::writer::Batch;

impl Batch<'_> {
    pub(crate) fn retain(&mut self, now: Timestamp, limit: usize) -> Result<u64, Error> {
        self.check()?;
        let next = self.memory.last_sequence().next();
        let dropped = self.memory.partitions.retain(self.connection, self.recent, next, now, limit)?;
        let settled = forget_kept(self.connection, limit)?;
        let forgotten = self
            .connection
            .execute(
                "delete from requests where (tenant, key) in \
                 (select tenant, key from requests where expires_at <= ?1 limit ?2)",
                params![millis(now), limit as i64],
            )
            .map_err(failed)?;
        let ended = self
            .connection
            .execute(
                "delete from operations where id in \
                 (select id from operations where finished_at < ?1 limit ?2)",
                params![millis(now - KEPT), limit as i64],
            )
            .map_err(failed)?;
        let jobs = self.forget_jobs(now, limit)?;
        Ok(dropped + settled + jobs + (forgotten + ended) as u64)
    }
}
