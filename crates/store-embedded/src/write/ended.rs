//! Jobs that are over or deleted: listed when they are, forgotten after their history.
//!
//! What one verb lists is one row, written at its end: a row for every job would make a one-shot's run a fifth more
//! expensive.

use jiff::Timestamp;
use punctual_domain::id::{JobId, Sequence, Version};
use punctual_domain::policy::retention::Retention;
use punctual_store::Error;
use rusqlite::{OptionalExtension, params};

use crate::error::failed;
use crate::row::damaged;
use crate::writer::Batch;

/// The bytes of a job in a list: its id and its version.
pub(crate) const LISTED: usize = 20;

/// A job that is over or deleted, and the newest sequence at that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    retention: Retention,
    newest: Sequence,
    job: JobId,
    version: Version,
}

/// Reads a job of a list.
pub(crate) fn listed(bytes: &[u8]) -> Option<(JobId, Version)> {
    let (id, version) = bytes.split_first_chunk::<16>()?;
    Some((JobId::from_bytes(*id), Version(u32::from_be_bytes(version.try_into().ok()?))))
}

impl Batch<'_> {
    /// A job is over or deleted: it is kept as long as history of its class that is as old as what is newest now.
    pub(super) fn end_job(&mut self, job: JobId, version: Version, retention: Retention, now: Timestamp) {
        let newest = self.memory.newest_sequence(now);
        self.ended.push(Ended { retention, newest, job, version });
    }

    /// Lists the jobs that this write has ended.
    pub(crate) fn write_ended(&mut self) -> Result<(), Error> {
        let ended = std::mem::take(&mut self.ended);
        for retention in Retention::ALL {
            let of_class = ended.iter().filter(|one| one.retention == retention);
            let Some(newest) = of_class.clone().map(|one| one.newest).max() else { continue };
            let list: Vec<u8> = of_class
                .flat_map(|one| [&one.job.as_bytes()[..], &one.version.0.to_be_bytes()].concat())
                .collect();
            self.line(
                "insert into ended_jobs values (?1, ?2, ?3) \
                 on conflict do update set jobs = cast(jobs || excluded.jobs as blob)",
                params![retention.days(), newest.as_i64(), list],
            )?;
        }
        Ok(())
    }

    /// Jobs that are over go when the history of their time is gone. Returns how many were looked at.
    pub(super) fn forget_jobs(&mut self, now: Timestamp, limit: usize) -> Result<u64, Error> {
        let mut left = limit;
        for retention in Retention::ALL {
            while left > 0 {
                let Some((sequence, mut list)) = self.oldest_ended(retention, now)? else { break };
                let rest = list.split_off(list.len().min(left * LISTED));
                for bytes in list.chunks(LISTED) {
                    let (job, version) = listed(bytes).ok_or_else(|| damaged("a list of ended jobs"))?;
                    self.forget_job(job, version, now)?;
                    left -= 1;
                }
                match rest.is_empty() {
                    true => self.line(
                        "delete from ended_jobs where retention = ?1 and seq = ?2",
                        params![retention.days(), sequence],
                    )?,
                    false => self.line(
                        "update ended_jobs set jobs = ?3 where retention = ?1 and seq = ?2",
                        params![retention.days(), sequence, rest],
                    )?,
                }
            }
        }
        Ok((limit - left) as u64)
    }

    /// The oldest list of a class, if all in it were over before the oldest history of their class.
    fn oldest_ended(&self, retention: Retention, now: Timestamp) -> Result<Option<(i64, Vec<u8>)>, Error> {
        let before = self.memory.partitions.forgotten_before(retention, now);
        self.connection
            .prepare_cached(
                "select seq, jobs from ended_jobs where retention = ?1 and seq < ?2 order by seq limit 1",
            )
            .and_then(|mut statement| {
                let values = params![retention.days(), before.as_i64()];
                statement.query_row(values, |row| Ok((row.get(0)?, row.get(1)?))).optional()
            })
            .map_err(failed)
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
            self.end_job(job, version, Retention::Day, now); // It is looked at again a day later.
            return Ok(());
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
        if kept_by.is_some_and(is_there) || self.has_open_runs(job)? {
            return Ok(true);
        }
        self.connection
            .prepare_cached("select 1 from strays where job = ?1")
            .and_then(|mut statement| statement.exists([job.as_bytes()]))
            .map_err(failed)
    }
}
