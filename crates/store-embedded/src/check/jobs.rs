//! Jobs with their due entries, their open runs and what is to forget them, walked side by side in the order of job ids.

use jiff::Timestamp;
use punctual_domain::Job;
use punctual_domain::id::{JobId, TenantId, Version};
use punctual_domain::policy::retention::Retention;
use punctual_schedule::Progress;
use punctual_store::Error;
use punctual_store::check::{DueRow, JobRow, Judge};
use punctual_store::record::decode_job;
use rusqlite::{Connection, Row, Rows, params};

use super::Checked;
use super::tables::each;
use crate::error::failed;
use crate::row::timestamp;
use crate::write::{LISTED, listed};

pub(super) fn check(checked: &mut Checked, connection: &Connection, now: Timestamp) {
    checked.attempt("ended_jobs", |checked| unpack(checked, connection));
    checked.attempt("jobs", |checked| walk(checked, connection, now));
}

fn walk(checked: &mut Checked, connection: &Connection, now: Timestamp) -> Result<(), Error> {
    let prepare = |sql: &str| connection.prepare(sql).map_err(failed);
    let mut jobs = prepare(
        "select j.id, j.version, j.tenant, j.record, j.state, j.fired, j.completed_at, t.id is null \
         from jobs j left join tenants t on t.id = j.tenant order by j.id",
    )?;
    // Sorted in a file, not in memory: due entries are kept by time, open runs by birth.
    let mut due = prepare("select job, version, lane, tenant, at, slot from due order by job")?;
    let mut open = prepare("select job, version, tenant, seq from temp.heads order by job")?;
    let mut ended = prepare("select job, version from temp.ended order by job")?;
    let mut due = Side::new(due.query([]).map_err(failed)?, read_due)?;
    let mut open = Side::new(open.query([]).map_err(failed)?, read_open)?;
    let mut ended = Side::new(ended.query([]).map_err(failed)?, read_ended)?;
    let mut versions = prepare("select 1 from job_versions where id = ?1 and version = ?2")?;
    let mut keys = prepare("select 1 from job_keys where tenant = ?1 and key = ?2 and job = ?3")?;
    let mut judge = Judge::new(now)?;
    let mut rows = jobs.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        checked.jobs += 1;
        let (id, version, job) = decode(row, "jobs", checked)?;
        let tenant = TenantId(row.get(2).map_err(failed)?);
        if row.get::<_, bool>(7).map_err(failed)? {
            checked.find("jobs", format!("job {id} has tenant {}, which is not there", tenant.0));
        }
        let completed: Option<i64> = row.get(6).map_err(failed)?;
        let progress = Progress {
            fired: row.get::<_, i64>(5).map_err(failed)?.unsigned_abs(),
            last_completion: completed.map(timestamp).transpose()?,
        };
        let mut entries = Vec::new();
        while let Some(entry) = due.take_up_to(id)? {
            match entry.job == id {
                true => entries.push(entry),
                false => checked.find("due", format!("an entry of job {}, which is not there", entry.job)),
            }
        }
        let mut has_open_runs = false;
        while let Some(run) = open.take_up_to(id)? {
            if run.job != id {
                checked.find("open_runs", format!("a run of job {}, which is not there", run.job));
                continue;
            }
            has_open_runs = true;
            if run.tenant != tenant {
                checked.find("open_runs", format!("run {} has another tenant than job {id}", run.sequence));
            }
            let kept = params![id.as_bytes(), run.version.0];
            if run.version != version && !versions.exists(kept).map_err(failed)? {
                let what = format!(
                    "run {} has version {} of job {id}, which is not there",
                    run.sequence, run.version
                );
                checked.find("open_runs", what);
            }
        }
        let mut is_to_be_forgotten = false;
        while let Some(entry) = ended.take_up_to(id)? {
            // One of a job that is gone is stale, like one of an older version.
            if entry.job == id && entry.version > version {
                let what =
                    format!("an entry of job {id} has version {}, newer than the job's", entry.version);
                checked.find("ended_jobs", what);
            }
            is_to_be_forgotten |= entry.job == id && entry.version == version;
        }
        let key = job.as_ref().and_then(|job| job.spec.key.as_deref());
        let is_led_to = match key {
            Some(key) => keys.exists(params![tenant.0, key, id.as_bytes()]).map_err(failed)?,
            None => true,
        };
        let row = JobRow {
            id,
            version,
            tenant,
            state: row.get(4).map_err(failed)?,
            progress,
            job: job.as_ref(),
            due: &entries,
            has_open_runs,
            is_to_be_forgotten,
            is_led_to,
        };
        judge.job(checked, &row);
    }
    while let Some(entry) = due.advance()? {
        checked.find("due", format!("an entry of job {}, which is not there", entry.job));
    }
    while let Some(run) = open.advance()? {
        checked.find("open_runs", format!("a run of job {}, which is not there", run.job));
    }
    Ok(())
}

/// Fills `temp.ended` from the lists of jobs that are over or deleted.
fn unpack(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    connection
        .execute_batch("create temp table ended (job blob not null, version integer not null)")
        .map_err(failed)?;
    let transaction = connection.unchecked_transaction().map_err(failed)?;
    let mut insert = transaction.prepare("insert into temp.ended values (?1, ?2)").map_err(failed)?;
    each(connection, "select retention, seq, jobs from ended_jobs", |row| {
        let (days, sequence): (i64, i64) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
        let list: Vec<u8> = row.get(2).map_err(failed)?;
        if Retention::of_days(days.unsigned_abs()).is_none() {
            checked.find("ended_jobs", format!("a list is of {days} days, which is no class"));
        }
        if !list.len().is_multiple_of(LISTED) {
            checked.find(
                "ended_jobs",
                format!("the list of {days} days at {sequence} has {} bytes", list.len()),
            );
        }
        for (job, version) in list.chunks_exact(LISTED).filter_map(listed) {
            insert.execute(params![job.as_bytes(), version.0]).map_err(failed)?;
        }
        Ok(())
    })?;
    drop(insert);
    transaction.commit().map_err(failed)
}

/// Reads (id, version, tenant, record). A record that does not decode is a finding.
pub(super) fn decode(
    row: &Row<'_>,
    place: &str,
    checked: &mut Checked,
) -> Result<(JobId, Version, Option<Job>), Error> {
    let id = JobId::from_bytes(row.get(0).map_err(failed)?);
    let version = Version(row.get(1).map_err(failed)?);
    let tenant = TenantId(row.get(2).map_err(failed)?);
    let record = row.get_ref(3).map_err(failed)?;
    let job = match record.as_bytes() {
        Ok(record) => decode_job(id, tenant, version, record).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match job {
        Ok(job) => Ok((id, version, Some(job))),
        Err(error) => {
            checked.find(place, format!("the record of job {id} version {version}: {error}"));
            Ok((id, version, None))
        }
    }
}

fn read_due(row: &Row<'_>) -> rusqlite::Result<DueRow> {
    let (job, version, lane, tenant) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    Ok(DueRow {
        job: JobId::from_bytes(job),
        version: Version(version),
        lane,
        tenant: TenantId(tenant),
        at: row.get(4)?,
        slot: row.get(5)?,
    })
}

/// What an open run says about its job.
struct OpenRow {
    job: JobId,
    version: Version,
    tenant: TenantId,
    sequence: i64,
}

fn read_open(row: &Row<'_>) -> rusqlite::Result<OpenRow> {
    let (job, version, tenant) = (row.get(0)?, row.get(1)?, row.get(2)?);
    Ok(OpenRow {
        job: JobId::from_bytes(job),
        version: Version(version),
        tenant: TenantId(tenant),
        sequence: row.get(3)?,
    })
}

/// An entry of a job that is over or deleted.
struct EndedRow {
    job: JobId,
    version: Version,
}

fn read_ended(row: &Row<'_>) -> rusqlite::Result<EndedRow> {
    Ok(EndedRow { job: JobId::from_bytes(row.get(0)?), version: Version(row.get(1)?) })
}

/// A row that belongs to a job.
trait OfJob {
    fn job(&self) -> JobId;
}

impl OfJob for DueRow {
    fn job(&self) -> JobId {
        self.job
    }
}

impl OfJob for EndedRow {
    fn job(&self) -> JobId {
        self.job
    }
}

impl OfJob for OpenRow {
    fn job(&self) -> JobId {
        self.job
    }
}

/// Rows of another table in the order of job ids, walked along with the jobs.
struct Side<'a, T> {
    rows: Rows<'a>,
    read: fn(&Row<'_>) -> rusqlite::Result<T>,
    next: Option<T>,
}

impl<'a, T: OfJob> Side<'a, T> {
    fn new(rows: Rows<'a>, read: fn(&Row<'_>) -> rusqlite::Result<T>) -> Result<Self, Error> {
        let mut side = Side { rows, read, next: None };
        side.advance()?;
        Ok(side)
    }

    /// The next row.
    fn advance(&mut self) -> Result<Option<T>, Error> {
        let next = self.rows.next().and_then(|row| row.map(self.read).transpose()).map_err(failed)?;
        Ok(std::mem::replace(&mut self.next, next))
    }

    /// The next row, if it is of this job or of one before it, which is not there.
    fn take_up_to(&mut self, job: JobId) -> Result<Option<T>, Error> {
        match self.next.as_ref().is_some_and(|row| row.job() <= job) {
            true => self.advance(),
            false => Ok(None),
        }
    }
}
