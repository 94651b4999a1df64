//! Jobs with their due entries, their open runs and what is to forget them, walked side by side in the order of job ids.

use deadpool_postgres::Transaction;
use jiff::Timestamp;
use punctual_domain::Job;
use punctual_domain::id::{JobId, TenantId, Version};
use punctual_schedule::Progress;
use punctual_store::check::{Checked, DueRow, JobRow, Judge};
use punctual_store::record::decode_job;
use tokio_postgres::Row;
use uuid::Uuid;

use super::walk::Rows;
use crate::error::Failed;
use crate::row::{job_id, job_uuid, shard, timestamp};

const JOBS: &str = "
select j.id, j.version, j.tenant, j.record, j.state, j.fired, j.completed_at, t.id is null,
    exists (select from job_keys k where k.job = j.id and k.tenant = j.tenant and k.key = j.record::json ->> 'key'),
    exists (select from open_runs o where o.job = j.id)
from jobs j left join tenants t on t.id = j.tenant order by j.id";

const DUE: &str = "select job, version, lane, tenant, at, slot, shard from due order by job";

const ENDED: &str = "
select job, version from ended_jobs union all select unnest(jobs), unnest(versions) from ended_lists order by job";

pub(super) async fn check(
    checked: &mut Checked,
    transaction: &Transaction<'_>,
    now: Timestamp,
) -> Result<(), Failed> {
    let mut judge = Judge::new(now)?;
    let mut jobs = Rows::of(transaction, JOBS).await?;
    let mut due = Rows::of(transaction, DUE).await?;
    let mut ended = Rows::of(transaction, ENDED).await?;
    while let Some(row) = jobs.next().await? {
        checked.jobs += 1;
        let (id, version, tenant) = head(&row);
        let job = decode(&row, "jobs", checked);
        if row.get(7) {
            checked.find("jobs", format!("job {id} has tenant {}, which is not there", tenant.0));
        }
        let mut entries = Vec::new();
        while let Some(entry) = up_to(&mut due, id).await? {
            let entry = read_due(checked, &entry);
            match entry.job == id {
                true => entries.push(entry),
                false => checked.find("due", format!("an entry of job {}, which is not there", entry.job)),
            }
        }
        let mut is_to_be_forgotten = false;
        while let Some(note) = up_to(&mut ended, id).await? {
            let (job, noted) = (job_id(note.get(0)), Version(note.get::<_, i32>(1) as u32));
            // One of a job that is gone is stale, like one of an older version.
            if job == id && noted > version {
                let what = format!("an entry of job {id} has version {noted}, newer than the job's");
                checked.find("ended_jobs", what);
            }
            is_to_be_forgotten |= job == id && noted == version;
        }
        let completed: Option<i64> = row.get(6);
        let row = JobRow {
            id,
            version,
            tenant,
            state: row.get::<_, i16>(4).into(),
            progress: Progress {
                fired: row.get::<_, i64>(5).unsigned_abs(),
                last_completion: completed.and_then(|at| timestamp(at).ok()),
            },
            job: job.as_ref(),
            due: &entries,
            has_open_runs: row.get(9),
            is_to_be_forgotten,
            is_led_to: row.get(8),
        };
        judge.job(checked, &row);
    }
    while let Some(entry) = due.next().await? {
        let job = job_id(entry.get(0));
        checked.find("due", format!("an entry of job {job}, which is not there"));
    }
    Ok(())
}

/// The next row, if it is of this job or of one before it, which is not there.
async fn up_to(rows: &mut Rows<'_>, job: JobId) -> Result<Option<Row>, Failed> {
    let is_up_to = |row: &Row| row.get::<_, Uuid>(0) <= job_uuid(job);
    match rows.peek().await?.is_some_and(is_up_to) {
        true => rows.next().await,
        false => Ok(None),
    }
}

fn head(row: &Row) -> (JobId, Version, TenantId) {
    let (version, tenant): (i32, i32) = (row.get(1), row.get(2));
    (job_id(row.get(0)), Version(version as u32), TenantId(tenant as u32))
}

/// Reads (id, version, tenant, record). A record that does not decode is a finding.
pub(super) fn decode(row: &Row, place: &str, checked: &mut Checked) -> Option<Job> {
    let (id, version, tenant) = head(row);
    let record: &str = row.get(3);
    let job = decode_job(id, tenant, version, record.as_bytes());
    job.map_err(|error| {
        checked.find(place, format!("the record of job {id} version {version}: {error}"));
    })
    .ok()
}

fn read_due(checked: &mut Checked, row: &Row) -> DueRow {
    let (job, lane, tenant): (Uuid, i16, i32) = (row.get(0), row.get(2), row.get(3));
    let job = job_id(job);
    if row.get::<_, i16>(6) != shard(job) {
        checked.find("due", format!("the entry of job {job} is in another shard than the job"));
    }
    DueRow {
        job,
        version: Version(row.get::<_, i32>(1) as u32),
        lane: lane.into(),
        tenant: TenantId(tenant as u32),
        at: row.get(4),
        slot: row.get(5),
    }
}
