//! Schedules turned into timetables, once for all jobs that share one.
//!
//! A million jobs may say `0 9 * * *` in the same zone; they share one timetable. `H`, and schedules that
//! count from a job's registration, are a job's own. Promise: bounded memory, whatever is registered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use punctual_domain::Job;
use punctual_schedule::{Binding, Error, Kind, Schedule, Seed, Timetable, Tzdb};

/// Timetables by what decides their slots.
#[derive(Debug)]
pub struct Timetables {
    tzdb: Arc<Tzdb>,
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
}

/// A timetable takes about a kilobyte; more different ones than this are made anew when asked for.
const SHARED_MAX: usize = 50_000;

impl Timetables {
    /// Timetables over a time zone database.
    pub fn new(tzdb: Arc<Tzdb>) -> Self {
        Timetables { tzdb, shared: Mutex::default() }
    }

    /// The time zones they are made from.
    pub fn tzdb(&self) -> &Arc<Tzdb> {
        &self.tzdb
    }

    /// The timetable of a job.
    pub fn of(&self, job: &Job) -> Result<Arc<Timetable>, Error> {
        let Some(key) = key(&job.spec.schedule) else {
            let binding = Binding {
                seed: Seed::of(&job.id.to_string()),
                registered_at: job.created_at,
                ..Binding::default()
            };
            return job.spec.schedule.timetable(&self.tzdb, &binding).map(Arc::new);
        };
        self.shared(key, &job.spec.schedule)
    }

    /// The timetable of a schedule without a job, where nothing depends on one.
    pub(crate) fn bound(&self, schedule: &Schedule) -> Result<Arc<Timetable>, Error> {
        match key(schedule) {
            Some(key) => self.shared(key, schedule),
            None => schedule.timetable(&self.tzdb, &Binding::default()).map(Arc::new),
        }
    }

    fn shared(&self, key: Key, schedule: &Schedule) -> Result<Arc<Timetable>, Error> {
        if let Some(timetable) = self.shared.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(timetable));
        }
        let timetable = Arc::new(schedule.timetable(&self.tzdb, &Binding::default())?);
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.len() >= SHARED_MAX {
            shared.clear(); // What is in use comes back at once; the rest was ballast.
        }
        shared.insert(key, Arc::clone(&timetable));
        Ok(timetable)
    }
}

/// Nothing for schedules whose slots depend on the job itself.
fn key(schedule: &Schedule) -> Option<Key> {
    let is_own = match &schedule.kind {
        Kind::Now | Kind::After(_) | Kind::At(_) => true,
        Kind::Every(every) => matches!(every.origin(), punctual_schedule::every::Origin::Completion),
        Kind::Interval(_) => false,
        Kind::Cron(expression) => expression.is_hashed(),
    };
    // Spread is an offset of the job's own, and calendars change under their name.
    if is_own
        || schedule.spread.is_some()
        || !schedule.calendars.is_empty()
        || schedule.bounds.max_fires.is_some()
    {
        return None;
    }
    Some(Key {
        kind: schedule.kind.clone(),
        timezone: schedule.timezone.clone(),
        dst: schedule.dst,
        start: schedule.bounds.start,
        end: schedule.bounds.end,
    })
}
