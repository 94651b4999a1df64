//! Schedules turned into timetables, once for all jobs that share one.
//!
//! A million jobs may say `0 9 * * *` in the same zone; they share one timetable. `H`, and schedules that
//! count from a job's registration, are a job's own. Calendars change under their names: what is shared is shared by those who have the
//! same states of them. Promise: bounded memory, whatever is registered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use punctual_domain::Job;
use punctual_domain::id::TenantId;
use punctual_domain::job::Spec;
use punctual_schedule::calendar::OnExcluded;
use punctual_schedule::{Binding, Error, Kind, Schedule, Seed, Timetable, Tzdb};

use crate::calendar_states::{Bound, Known, Missing};

/// Timetables by what decides their slots.
#[derive(Debug)]
pub struct Timetables {
    tzdb: Arc<Tzdb>,
    calendars: Known,
    shared: Mutex<HashMap<Key, Arc<Timetable>>>,
}

/// What decides the slots of a schedule that many jobs may share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: Kind,
    timezone: String,
    dst: punctual_schedule::dst::Policy,
    start: Option<jiff::Timestamp>,
    end: Option<jiff::Timestamp>,
    calendars: Vec<u64>,
    on_excluded: u8,
}

/// A timetable takes about a kilobyte; more different ones than this are made anew when asked for.
const SHARED_MAX: usize = 50_000;

/// States of calendars that a due entry may have been planned by.
const STATES_MAX: usize = 32;

impl Timetables {
    /// Timetables over a time zone database.
    pub fn new(tzdb: Arc<Tzdb>) -> Self {
        Timetables { tzdb, calendars: Known::default(), shared: Mutex::default() }
    }

    /// The time zones they are made from.
    pub fn tzdb(&self) -> &Arc<Tzdb> {
        &self.tzdb
    }

    /// The calendars they are made with.
    pub(crate) fn calendars(&self) -> &Known {
        &self.calendars
    }

    /// The timetable of a job. Its calendars must have been read.
    pub fn of(&self, job: &Job) -> Result<Arc<Timetable>, Error> {
        self.by(job, None, Missing::Allows)
    }

    /// The timetable of a job that comes to have its schedule: a calendar that is not there is an error.
    pub(crate) fn of_new(&self, job: &Job) -> Result<Arc<Timetable>, Error> {
        self.by(job, None, Missing::Fails)
    }

    /// The timetable of a job by its calendars as they were at a time.
    pub(crate) fn as_of(&self, job: &Job, at: Timestamp) -> Result<Arc<Timetable>, Error> {
        self.by(job, Some(at), Missing::Allows)
    }

    /// The timetable of a job without its calendars.
    pub(crate) fn bare(&self, job: &Job) -> Result<Arc<Timetable>, Error> {
        if job.spec.schedule.calendars.is_empty() {
            return self.of(job);
        }
        let mut schedule = job.spec.schedule.clone();
        schedule.calendars.clear();
        self.of(&Job { spec: Spec { schedule, ..job.spec.clone() }, ..job.clone() })
    }

    /// By what a job's due entry may have been planned: its timetable, and those of its calendars as they were before, newest first.
    pub(crate) fn states(&self, job: &Job) -> Result<Vec<Arc<Timetable>>, Error> {
        let mut states = vec![self.of(job)?];
        let changes = self.calendars.changes(job.tenant, &job.spec.schedule.calendars);
        for at in changes.into_iter().rev().take(STATES_MAX) {
            // What cannot be bound with the zones of today was not planned by them.
            states.extend(self.as_of(job, at).ok());
        }
        Ok(states)
    }

    fn by(&self, job: &Job, at: Option<Timestamp>, missing: Missing) -> Result<Arc<Timetable>, Error> {
        let schedule = &job.spec.schedule;
        let bound = self.calendars.bind(job.tenant, &schedule.calendars, at, missing);
        if schedule.calendars.len() == bound.serials.len()
            && let Some(key) = key(schedule, &bound)
        {
            return self.shared(key, schedule, bound);
        }
        let binding = Binding {
            seed: Seed::of(&job.id.to_string()),
            registered_at: job.created_at,
            calendars: bound.calendars,
        };
        schedule.timetable(&self.tzdb, &binding).map(Arc::new)
    }

    /// The timetable of a schedule without a job, where nothing depends on one.
    pub(crate) fn bound(&self, tenant: TenantId, schedule: &Schedule) -> Result<Arc<Timetable>, Error> {
        let bound = self.calendars.bind(tenant, &schedule.calendars, None, Missing::Allows);
        match key(schedule, &bound) {
            Some(key) => self.shared(key, schedule, bound),
            None => {
                let binding = Binding { calendars: bound.calendars, ..Binding::default() };
                schedule.timetable(&self.tzdb, &binding).map(Arc::new)
            }
        }
    }

    fn shared(&self, key: Key, schedule: &Schedule, bound: Bound) -> Result<Arc<Timetable>, Error> {
        if let Some(timetable) = self.shared.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(timetable));
        }
        let binding = Binding { calendars: bound.calendars, ..Binding::default() };
        let timetable = Arc::new(schedule.timetable(&self.tzdb, &binding)?);
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.len() >= SHARED_MAX {
            shared.clear(); // What is in use comes back at once; the rest was ballast.
        }
        shared.insert(key, Arc::clone(&timetable));
        Ok(timetable)
    }
}

/// Nothing for schedules whose slots depend on the job itself.
fn key(schedule: &Schedule, bound: &Bound) -> Option<Key> {
    let is_own = match &schedule.kind {
        Kind::Now | Kind::After(_) | Kind::At(_) => true,
        Kind::Every(every) => matches!(every.origin(), punctual_schedule::every::Origin::Completion),
        Kind::Interval(_) => false,
        Kind::Cron(expression) => expression.is_hashed(),
    };
    // Spread is an offset of the job's own; a calendar that is not there has no number.
    let is_missing = bound.serials.contains(&0);
    if is_own || is_missing || schedule.spread.is_some() || schedule.bounds.max_fires.is_some() {
        return None;
    }
    Some(Key {
        kind: schedule.kind.clone(),
        timezone: schedule.timezone.clone(),
        dst: schedule.dst,
        start: schedule.bounds.start,
        end: schedule.bounds.end,
        // The same numbers are the same calendars, whatever they are called.
        calendars: bound.serials.clone(),
        on_excluded: match schedule.on_excluded {
            OnExcluded::Skip => 0,
            OnExcluded::Next => 1,
            OnExcluded::Previous => 2,
        },
    })
}
