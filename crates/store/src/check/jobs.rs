//! A job, and what must be true of its due entries and of what is to forget it.

use std::collections::HashMap;

use jiff::Timestamp;
use punctual_domain::Job;
use punctual_domain::id::{JobId, TenantId, Version};
use punctual_domain::job::{JobState, Pause};
use punctual_schedule::every::Origin as Counted;
use punctual_schedule::{Binding, Kind, Progress, Seed, Timetable, Tzdb};

use super::Checked;
use crate::error::Error;

/// Timetables that many jobs share; one takes about a kilobyte.
const SHARED_MAX: usize = 10_000;

/// A due entry, not trusted yet.
#[derive(Clone, Copy, Debug)]
pub struct DueRow {
    /// Its job.
    pub job: JobId,
    /// The version of the job it was made for.
    pub version: Version,
    /// The rank of its lane.
    pub lane: i64,
    /// Its tenant.
    pub tenant: TenantId,
    /// When it is fired.
    pub at: i64,
    /// For which slot.
    pub slot: i64,
}

/// A job and everything that belongs to it, not trusted yet.
#[derive(Debug)]
pub struct JobRow<'a> {
    /// Its id.
    pub id: JobId,
    /// Its version.
    pub version: Version,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its state, as the column says.
    pub state: i64,
    /// What firing has counted.
    pub progress: Progress,
    /// The job, if its record can be read.
    pub job: Option<&'a Job>,
    /// Its due entries.
    pub due: &'a [DueRow],
    /// Whether it has runs that have not ended.
    pub has_open_runs: bool,
    /// Whether it is noted to be forgotten, in this version.
    pub is_to_be_forgotten: bool,
    /// Whether its key leads to it.
    pub is_led_to: bool,
}

/// Says what is wrong with jobs.
#[derive(Debug)]
pub struct Judge {
    timetables: Timetables,
    now: Timestamp,
}

impl Judge {
    /// One who judges as of a time.
    pub fn new(now: Timestamp) -> Result<Self, Error> {
        Ok(Judge { timetables: Timetables::new()?, now })
    }

    /// Judges a job.
    pub fn job(&mut self, checked: &mut Checked, row: &JobRow<'_>) {
        let id = row.id;
        if u64::from(id.shard().0) >= checked.shards {
            checked.find("jobs", format!("job {id} is in shard {}, which is not there", id.shard().0));
        }
        let current = self.due(checked, row);
        let Some(job) = row.job else { return };
        if row.is_to_be_forgotten && (current > 0 || matches!(job.state, JobState::Paused(_))) {
            let why = if current > 0 { "due" } else { "paused" };
            checked.find("ended_jobs", format!("job {id} is {why}, and would be forgotten"));
        }
        if current == 0
            && let JobState::Paused(Pause { until: Some(until), .. }) = job.state
        {
            checked.find("due", format!("job {id} is paused until {until}, but no entry ends it"));
        }
        if row.state != i64::from(code(&job.state)) {
            let (word, state) = (job.state.as_str(), row.state);
            checked.find("jobs", format!("job {id} is {word} and has state {state} in its column"));
        }
        if let Some(key) = job.spec.key.as_ref().filter(|_| job.state != JobState::Deleted && !row.is_led_to)
        {
            checked.find("job_keys", format!("key `{key}` does not lead to job {id}, which has it"));
        }
        let is_idle = current == 0 && job.is_active();
        let has_slots = is_idle && self.timetables.has_slots(job, row.progress, row.has_open_runs, self.now);
        if has_slots {
            checked.find("due", format!("job {id} is active and has slots to come, but no entry"));
        }
        // What calendars say is not judged here: without them nobody can tell.
        let is_over = is_idle && !has_slots && !row.has_open_runs && job.spec.schedule.calendars.is_empty();
        if (is_over || job.state == JobState::Deleted) && !row.is_to_be_forgotten {
            checked.find("ended_jobs", format!("job {id} is over, and would never be forgotten"));
        }
    }

    /// Its due entries. Returns how many count.
    fn due(&self, checked: &mut Checked, row: &JobRow<'_>) -> u64 {
        let (id, version) = (row.id, row.version);
        let mut current = 0;
        for entry in row.due {
            if entry.version > version {
                let what =
                    format!("an entry of job {id} has version {}, newer than the job's", entry.version);
                checked.find("due", what);
            } else if entry.version < version
                || row.job.is_some_and(|job| self.timetables.is_superseded(job, entry, row.progress))
            {
                checked.due_stale += 1;
            } else {
                current += 1;
                checked.due += 1;
                check_due(checked, entry, row.job, row.tenant);
            }
        }
        if current > 1 {
            checked.find("due", format!("job {id} has {current} entries of its version {version}"));
        }
        current
    }
}

fn check_due(checked: &mut Checked, entry: &DueRow, job: Option<&Job>, tenant: TenantId) {
    let id = entry.job;
    if entry.tenant != tenant {
        checked.find("due", format!("the entry of job {id} has another tenant than the job"));
    }
    if entry.slot > entry.at || !is_time(entry.at) || !is_time(entry.slot) {
        checked.find("due", format!("the entry of job {id} is at {} for the slot {}", entry.at, entry.slot));
    }
    let Some(job) = job else { return };
    match &job.state {
        JobState::Active => {}
        // The end of its pause.
        JobState::Paused(Pause { until: Some(until), .. })
            if [entry.at, entry.slot] == [until.as_millisecond(); 2] => {}
        state => checked.find("due", format!("job {id} is {} and has an entry", state.as_str())),
    }
    if entry.lane != i64::from(job.spec.lane.rank()) {
        checked.find("due", format!("the entry of job {id} is in another lane than the job"));
    }
}

fn is_time(millis: i64) -> bool {
    Timestamp::from_millisecond(millis).is_ok()
}

fn code(state: &JobState) -> u8 {
    match state {
        JobState::Active => 0,
        JobState::Paused(_) => 1,
        JobState::Ended => 2,
        JobState::Deleted => 3,
    }
}

/// Whether jobs have slots to come.
#[derive(Debug)]
struct Timetables {
    tzdb: Tzdb,
    /// By text, zone and bounds, for schedules that do not depend on the job.
    shared: HashMap<String, bool>,
}

impl Timetables {
    fn new() -> Result<Self, Error> {
        let tzdb = Tzdb::open(None).map_err(|error| Error::Damaged { what: error.to_string() })?;
        Ok(Timetables { tzdb, shared: HashMap::new() })
    }

    fn has_slots(&mut self, job: &Job, progress: Progress, has_open_runs: bool, now: Timestamp) -> bool {
        let schedule = &job.spec.schedule;
        // The end of an open run brings the next slot of a job that counts from completion.
        if has_open_runs && counts_from_completion(job) {
            return false;
        }
        // What calendars say is not judged here: without them nobody can tell.
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
        let slot = Timestamp::from_millisecond(entry.slot).ok();
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
