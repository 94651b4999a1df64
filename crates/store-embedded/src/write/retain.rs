//! Retain: what is old goes. History by whole partitions; jobs that are over one by one, after their history.

use jiff::Timestamp;
use punctual_domain::id::{JobId, Version};
use punctual_domain::operation::KEPT;
use punctual_domain::policy::retention::Retention;
use punctual_store::Error;
use rusqlite::{OptionalExtension, params};

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

    /// Jobs that are over go when the history of their time is gone. Returns how many were looked at.
    fn forget_jobs(&mut self, now: Timestamp, limit: usize) -> Result<u64, Error> {
        let mut left = limit;
        for retention in Retention::ALL {
            for (sequence, job, version) in self.ended_jobs(retention, now, left)? {
                self.line(
                    "delete from ended_jobs where retention = ?1 and seq = ?2 and job = ?3 and version = ?4",
                    params![retention.days(), sequence, job.as_bytes(), version.0],
                )?;
                self.forget_job(job, version, now)?;
                left -= 1;
            }
        }
        Ok((limit - left) as u64)
    }

    /// Jobs that were over before the oldest history of their class.
    fn ended_jobs(
        &self,
        retention: Retention,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(i64, JobId, Version)>, Error> {
        let before = self.memory.partitions.forgotten_before(retention, now);
        let sql = "select seq, job, version from ended_jobs where retention = ?1 and seq < ?2 order by seq limit ?3";
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        let rows = statement
            .query_map(params![retention.days(), before.as_i64(), limit as i64], |row| {
                Ok((row.get(0)?, JobId::from_bytes(row.get(1)?), Version(row.get(2)?)))
            })
            .map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    fn forget_job(&mut self, job: JobId, version: Version, now: Timestamp) -> Result<(), Error> {
        let kept_by: Option<Option<i64>> = self
            .connection
            .prepare_cached("select kept_by from jobs where id = ?1 and version = ?2")
            .and_then(|mut statement| {
                statement.query_row(params![job.as_bytes(), version.0], |row| row.get(0)).optional()
            })
            .map_err(failed)?;
        // It was changed since: whether it is over was decided then.
        let Some(kept_by) = kept_by else { return Ok(()) };
        if self.is_kept(job, kept_by)? {
            return self.end_job(job, version, Retention::Day, now); // It is looked at again a day later.
        }
        for sql in [
            "delete from job_keys where job = ?1 \
             and (tenant, key) = (select tenant, record ->> 'key' from jobs where id = ?1)",
            "delete from job_versions where id = ?1",
            "delete from ledger where job = ?1",
            "delete from jobs where id = ?1",
        ] {
            self.line(sql, params![job.as_bytes()])?;
        }
        Ok(())
    }

    /// Whether a run of the job is left: an open one, one that outlived its partition, one that was asked for later.
    fn is_kept(&self, job: JobId, kept_by: Option<i64>) -> Result<bool, Error> {
        let is_there = |id: i64| self.memory.partitions.iter().any(|partition| partition.id == id);
        if self.memory.by_job.contains_key(&job) || kept_by.is_some_and(is_there) {
            return Ok(true);
        }
        self.connection
            .prepare_cached("select 1 from strays where job = ?1")
            .and_then(|mut statement| statement.exists([job.as_bytes()]))
            .map_err(failed)
    }
}
