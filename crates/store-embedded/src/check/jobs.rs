//! Jobs with their due entries, their open runs and what is to forget them, walked side by side in the order of job ids.

use std::collections::HashMap;

use jiff::Timestamp;
use punctual_domain::Job;
use punctual_domain::id::{JobId, TenantId, Version};
use punctual_domain::job::{JobState, Pause};
use punctual_domain::policy::retention::Retention;
use punctual_schedule::every::Origin as Counted;
use punctual_schedule::{Binding, Kind, Progress, Seed, Timetable, Tzdb};
use punctual_store::Error;
use punctual_store::record::decode_job;
use rusqlite::{Connection, Row, Rows, params};

use super::Checked;
use super::tables::each;
use crate::error::failed;
use crate::row::{damaged, millis, timestamp};
use crate::write::{LISTED, listed};

/// Timetables that many jobs share; one takes about a kilobyte.
const SHARED_MAX: usize = 10_000;

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
    let mut timetables = Timetables::new()?;
    let mut rows = jobs.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        checked.jobs += 1;
        let (id, version, job) = decode(row, "jobs", checked)?;
        let tenant = TenantId(row.get(2).map_err(failed)?);
        if row.get::<_, bool>(7).map_err(failed)? {
            checked.find("jobs", format!("job {id} has tenant {}, which is not there", tenant.0));
        }
        if u64::from(id.shard().0) >= checked.shards {
            checked.find("jobs", format!("job {id} is in shard {}, which is not there", id.shard().0));
        }
        let completed: Option<i64> = row.get(6).map_err(failed)?;
        let progress = Progress {
            fired: row.get::<_, i64>(5).map_err(failed)?.unsigned_abs(),
            last_completion: completed.map(timestamp).transpose()?,
        };
        let mut current = 0;
        while let Some(entry) = due.take_up_to(id)? {
            if entry.job != id {
                checked.find("due", format!("an entry of job {}, which is not there", entry.job));
            } else if entry.version > version {
                let what =
                    format!("an entry of job {id} has version {}, newer than the job's", entry.version);
                checked.find("due", what);
            } else if entry.version < version
                || job.as_ref().is_some_and(|job| timetables.is_superseded(job, &entry, progress))
            {
                checked.due_stale += 1;
            } else {
                current += 1;
                checked.due += 1;
                check_due(checked, &entry, job.as_ref(), tenant);
            }
        }
        if current > 1 {
            checked.find("due", format!("job {id} has {current} entries of its version {version}"));
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
        let Some(job) = job else { continue };
        if is_to_be_forgotten && (current > 0 || matches!(job.state, JobState::Paused(_))) {
            let why = if current > 0 { "due" } else { "paused" };
            checked.find("ended_jobs", format!("job {id} is {why}, and would be forgotten"));
        }
        if current == 0
            && let JobState::Paused(Pause { until: Some(until), .. }) = job.state
        {
            checked.find("due", format!("job {id} is paused until {until}, but no entry ends it"));
        }
        let state: i64 = row.get(4).map_err(failed)?;
        if state != i64::from(code(&job.state)) {
            let what = format!("job {id} is {} and has state {state} in its column", job.state.as_str());
            checked.find("jobs", what);
        }
        if let Some(key) = job.spec.key.as_ref().filter(|_| job.state != JobState::Deleted)
            && !keys.exists(params![tenant.0, key, id.as_bytes()]).map_err(failed)?
        {
            checked.find("job_keys", format!("key `{key}` does not lead to job {id}, which has it"));
        }
        let is_idle = current == 0 && job.is_active();
        let has_slots = is_idle && timetables.has_slots(&job, progress, has_open_runs, now);
        if has_slots {
            checked.find("due", format!("job {id} is active and has slots to come, but no entry"));
        }
        // Calendars are not kept in the store yet; without them nobody can tell.
        let is_over = is_idle && !has_slots && !has_open_runs && job.spec.schedule.calendars.is_empty();
        if (is_over || job.state == JobState::Deleted) && !is_to_be_forgotten {
            checked.find("ended_jobs", format!("job {id} is over, and would never be forgotten"));
        }
    }
    while let Some(entry) = due.advance()? {
        checked.find("due", format!("an entry of job {}, which is not there", entry.job));
    }
    while let Some(run) = open.advance()? {
        checked.find("open_runs", format!("a run of job {}, which is not there", run.job));
    }
    Ok(())
}

fn check_due(checked: &mut Checked, entry: &DueRow, job: Option<&Job>, tenant: TenantId) {
    let id = entry.job;
    if entry.tenant != tenant {
        checked.find("due", format!("the entry of job {id} has another tenant than the job"));
    }
    if entry.slot > entry.at || timestamp(entry.at).is_err() || timestamp(entry.slot).is_err() {
        checked.find("due", format!("the entry of job {id} is at {} for the slot {}", entry.at, entry.slot));
    }
    let Some(job) = job else { return };
    match &job.state {
        JobState::Active => {}
        // The end of its pause.
        JobState::Paused(Pause { until: Some(until), .. })
            if [entry.at, entry.slot] == [millis(*until); 2] => {}
        state => checked.find("due", format!("job {id} is {} and has an entry", state.as_str())),
    }
    if entry.lane != i64::from(job.spec.lane.rank()) {
        checked.find("due", format!("the entry of job {id} is in another lane than the job"));
    }
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

fn code(state: &JobState) -> u8 {
    match state {
        JobState::Active => 0,
        JobState::Paused(_) => 1,
        JobState::Ended => 2,
        JobState::Deleted => 3,
    }
}

/// A due entry, not trusted yet.
struct DueRow {
    job: JobId,
    version: Version,
    lane: i64,
    tenant: TenantId,
    at: i64,
    slot: i64,
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

/// Whether jobs have slots to come.
struct Timetables {
    tzdb: Tzdb,
    /// By text, zone and bounds, for schedules that do not depend on the job.
    shared: HashMap<String, bool>,
}

impl Timetables {
    fn new() -> Result<Self, Error> {
        let tzdb = Tzdb::open(None).map_err(|error| damaged(error.to_string()))?;
        Ok(Timetables { tzdb, shared: HashMap::new() })
    }

    fn has_slots(&mut self, job: &Job, progress: Progress, has_open_runs: bool, now: Timestamp) -> bool {
        let schedule = &job.spec.schedule;
        // The end of an open run brings the next slot of a job that counts from completion.
        if has_open_runs && counts_from_completion(job) {
            return false;
        }
        // Calendars are not kept in the store yet; without them nobody can tell.
        if !schedule.calendars.is_empty() {
            return false;
        }
        let is_shared = match &schedule.kind {
            Kind::Cron(expression) => !expression.is_hashed() && schedule.spread.is_none(),
            _ => false,
        };
        if !is_shared || schedule.bounds.max_fires.is_some() {
            return self.next(job, progress, now);
        }
        let key = format!("{schedule} {} {:?} {:?}", schedule.timezone, schedule.dst, schedule.bounds);
        if let Some(known) = self.shared.get(&key) {
            return *known;
        }
        let answer = self.next(job, progress, now);
        if self.shared.len() >= SHARED_MAX {
            self.shared.clear();
        }
        self.shared.insert(key, answer);
        answer
    }

    fn next(&self, job: &Job, progress: Progress, now: Timestamp) -> bool {
        let timetable = self.timetable(job);
        timetable.is_some_and(|timetable| timetable.next_given(now, progress).is_some())
    }

    /// Whether an entry was brought by an earlier completion than the job's last: firing it does nothing.
    fn is_superseded(&self, job: &Job, entry: &DueRow, progress: Progress) -> bool {
        let timetable = counts_from_completion(job).then(|| self.timetable(job)).flatten();
        let slot = timestamp(entry.slot).ok();
        timetable.zip(slot).is_some_and(|(timetable, slot)| timetable.is_superseded(slot, progress))
    }

    fn timetable(&self, job: &Job) -> Option<Timetable> {
        let binding = Binding {
            seed: Seed::of(&job.id.to_string()),
            registered_at: job.created_at,
            ..Binding::default()
        };
        job.spec.schedule.timetable(&self.tzdb, &binding).ok()
    }
}

fn counts_from_completion(job: &Job) -> bool {
    matches!(&job.spec.schedule.kind, Kind::Every(every) if matches!(every.origin(), Counted::Completion))
}
