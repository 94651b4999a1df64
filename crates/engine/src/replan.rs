//! Plans jobs anew whose calendar was changed: the steps of the operation.
//!
//! Runs when the operation goes on that a change of a calendar started. A job's due entry was put where the calendar was when it was
//! planned; it is looked for there, and put where the calendar has it now. Promise: the next slot of every job that uses the calendar is
//! strictly after now and after what was fired; a job whose next slot stays is not touched; a slot whose time has come is left to
//! firing, which goes by the calendar as it is; bounded work per step.

use std::cmp::Ordering;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, ShardId};
use punctual_domain::operation::{Cursor, Event, Operation, Replan};
use punctual_store::{Effect, JobFilter, PageRequest, Put, Stored};

use crate::bulk::{BUSY, TRIES, round, told};
use crate::calendar_states::BELIEVED;
use crate::calendars::uses;
use crate::changes::replanned;
use crate::engine::Engine;
use crate::entries::Places;
use crate::error::Error;
use crate::fire::counts_from_completion;
use crate::operations::Plan;
use crate::register::next_slot;

/// Jobs of one step that are looked at closely.
const REPLAN_MAX: usize = 100;

/// Jobs of one step are looked for in so many pages of so many.
const PAGES: usize = 10;
const PAGE: usize = 1_000;

/// How long the operation waits for the change that started it. It is written next, or never.
const WAITS_FOR_CHANGE: SignedDuration = SignedDuration::from_mins(2);

/// It looks this often meanwhile.
const LOOKS_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// After this long every node goes by the change, also one whose clock differs a little.
const SETTLES: SignedDuration = SignedDuration::from_millis(2 * BELIEVED.as_secs() * 1_000);

impl Engine {
    /// The next jobs that use a calendar, planned anew where that makes a difference.
    pub(crate) async fn plan_replan(
        &self,
        operation: &Operation,
        which: &Replan,
        now: Timestamp,
    ) -> Result<Plan, Error> {
        let found = self.read_calendar(operation.tenant, &which.calendar).await?;
        let hold = |cursor, resume_at| Ok(Plan::of(Event::Stepped { cursor, resume_at }));
        let ends = |reason: &str| Ok(Plan::of(Event::Cancelled { reason: Some(reason.into()) }));
        match found.map(|found| found.version.cmp(&which.version)) {
            None => return ends("the calendar was deleted"),
            Some(Ordering::Less) if now.duration_since(operation.created_at) < WAITS_FOR_CHANGE => {
                return hold(Cursor::Start, now + LOOKS_EVERY);
            }
            Some(Ordering::Less) => return ends("the change of the calendar was not made"),
            Some(Ordering::Greater) => {
                return ends("the calendar was changed again; another operation plans the jobs by that");
            }
            Some(Ordering::Equal) => {}
        }
        // What was fired meanwhile may have been planned by what its node knew before.
        if operation.cursor == Cursor::Start {
            return hold(Cursor::Job(before_all()), now + SETTLES);
        }
        let round = round(operation);
        let (jobs, next) = match round {
            0 => self.next_users(operation, &which.calendar).await?,
            _ => (self.jobs_left(operation).await?, Some(operation.cursor)),
        };
        let event = match next {
            Some(cursor) => Event::Stepped { cursor, resume_at: now },
            None => Event::Succeeded,
        };
        let mut plan = Plan { tries: round, ..Plan::of(event) };
        let mut puts = Vec::new();
        for stored in self.misplaced(jobs, &which.calendar, now).await? {
            match self.replan(&stored, round, now).await {
                Ok(put) => puts.push(put),
                Err(error) => {
                    plan.failed += 1;
                    plan.example.get_or_insert(told(stored.job.id, error)?);
                }
            }
        }
        if !puts.is_empty() {
            plan.effect = Effect::Change(puts);
        }
        Ok(plan)
    }

    /// The next active jobs that use a calendar, and where to go on; nowhere if there is nothing left.
    async fn next_users(
        &self,
        operation: &Operation,
        calendar: &str,
    ) -> Result<(Vec<Stored>, Option<Cursor>), Error> {
        let filter = JobFilter { tenant: Some(operation.tenant), ..JobFilter::default() };
        let mut after = if let Cursor::Job(job) = operation.cursor { Some(job) } else { None };
        let mut users: Vec<Stored> = Vec::new();
        for _ in 0..PAGES {
            let page = self.store.list_jobs(&filter, PageRequest { after, limit: PAGE }).await?;
            let last = page.items.last().map(|stored| stored.job.id);
            for stored in page.items {
                let id = stored.job.id;
                if stored.job.is_active() && uses(&stored.job, calendar) {
                    users.push(stored);
                }
                if users.len() >= REPLAN_MAX {
                    return Ok((users, Some(Cursor::Job(id))));
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                // Those of the last page may be tried again; then there is nothing after them.
                None if users.is_empty() => return Ok((users, None)),
                None => return Ok((users, last.or(after).map(Cursor::Job))),
            }
        }
        Ok((users, after.map(Cursor::Job)))
    }

    /// Those of the jobs whose due entry is not where it belongs.
    async fn misplaced(
        &self,
        jobs: Vec<Stored>,
        calendar: &str,
        now: Timestamp,
    ) -> Result<Vec<Stored>, Error> {
        self.learn(self.unread(jobs.iter().map(|stored| &*stored.job))).await?;
        let oldest = self.oldest_due(now).await?;
        let (mut wanted, mut candidates) = (Vec::new(), Vec::new());
        for stored in jobs {
            // It may have been changed since it was left.
            if !stored.job.is_active() || !uses(&stored.job, calendar) {
                continue;
            }
            let Places { belongs, may_be } = self.places(&stored, oldest, now, now)?;
            let first = candidates.len();
            let middle = first + belongs.len();
            candidates.extend(belongs);
            candidates.extend(may_be);
            wanted.push((stored, first..middle, middle..candidates.len()));
        }
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let is_due = match candidates.is_empty() {
            true => Vec::new(),
            false => self.store.is_due(&candidates).await?,
        };
        let mut misplaced = Vec::new();
        for (stored, belongs, may_be) in wanted {
            if is_due[belongs].contains(&true) {
                continue;
            }
            let there = candidates[may_be.clone()].iter().zip(&is_due[may_be]).find(|(_, is_due)| **is_due);
            let is_misplaced = match there {
                // If its time has come, firing looks at the calendar.
                Some((entry, _)) => entry.key.at > now,
                None => self.is_idle(&stored, now).await?,
            };
            if is_misplaced {
                misplaced.push(stored);
            }
        }
        Ok(misplaced)
    }

    /// Whether a job without an entry has a slot by now, and no run brings it.
    async fn is_idle(&self, stored: &Stored, now: Timestamp) -> Result<bool, Error> {
        let timetable = self.timetables.of(&stored.job)?;
        if next_slot(&stored.job, &timetable, stored.progress, now).is_none() {
            return Ok(false);
        }
        match counts_from_completion(&stored.job) {
            true => Ok(!self.store.have_open_runs(&[stored.job.id]).await?.contains(&true)),
            false => Ok(true),
        }
    }

    async fn replan(&self, stored: &Stored, round: u8, now: Timestamp) -> Result<Put, Error> {
        if round >= TRIES {
            return Err(Error::Edit(BUSY.into()));
        }
        // It was fired since it was read; or the clock was set back, and its next slot is not the next by the clock.
        let last_slot = if round > 0 { self.last_slot(stored.job.id).await? } else { None };
        let (put, _) = self.prepare_change(stored, replanned(&stored.job, now), last_slot, now, true).await?;
        Ok(put)
    }
}

/// An id that no job has: they are all made later.
fn before_all() -> JobId {
    JobId::new(Timestamp::UNIX_EPOCH, ShardId(0), 0)
}
