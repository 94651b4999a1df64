//! Says why a job did or did not run at a time: gathers the facts, which [`punctual_domain::why`] judges.
//!
//! Runs when somebody asks. Promise: a bounded number of reads, whatever the history of the job; a deleted job
//! is explained as long as its history is kept.

use std::sync::Arc;

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, TenantId};
use punctual_domain::job::{Before, Job, JobState, Spec};
use punctual_domain::ledger::Fate;
use punctual_domain::run::{Cause, Run, RunState, WaitingFor};
use punctual_domain::why::{Answer, Facts, explain, slot_at};
use punctual_domain::{LedgerEntry, Placement};
use punctual_schedule::{Schedule, Timetable, Zone};
use punctual_store::{PageRequest, RunDetail, RunFilter, Stored};

use crate::engine::Engine;
use crate::error::Error;
use crate::fire::counts_from_completion;
use crate::register::spread;

/// Which time is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The latest slot that should have run, or why there is none.
    Latest,
    /// An instant.
    At(Timestamp),
    /// A time on the clock of the job's zone.
    Local(DateTime),
}

impl When {
    /// Reads RFC 3339, epoch seconds, or a time without an offset; none outside the years that schedules know.
    pub fn parse(text: &str) -> Option<When> {
        let seconds = text.parse::<i64>().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
        if let Some(at) = seconds.or_else(|| text.parse().ok()) {
            return (FIRST..LAST).contains(&at).then_some(When::At(at));
        }
        let wall: DateTime = text.parse().ok()?;
        (1970..2200).contains(&wall.year()).then_some(When::Local(wall))
    }
}

/// Schedules have slots from 1970 on.
pub(crate) const FIRST: Timestamp = Timestamp::constant(0, 0);

/// And up to the end of 2199.
pub(crate) const LAST: Timestamp = Timestamp::constant(7_258_118_400, 0);

/// How long after its slot the run of it was born, at most, tried in this order: on time, after a short outage,
/// after longer ones.
pub(crate) const BORN_WITHIN: [SignedDuration; 5] = [
    SignedDuration::from_mins(2),
    SignedDuration::from_hours(1),
    SignedDuration::from_hours(24),
    SignedDuration::from_hours(7 * 24),
    SignedDuration::from_hours(31 * 24),
];

/// Runs that are looked at in each of these times.
pub(crate) const LOOKED_AT: usize = 1_000;

/// Entries of the ledger that may cover a slot.
const ENTRIES: usize = 3;

/// The schedule that a job had at a time.
#[derive(Clone, Debug)]
pub(crate) struct Then {
    pub(crate) timetable: Option<Arc<Timetable>>,
    pub(crate) bare: Option<Arc<Timetable>>,
    pub(crate) replaced_at: Option<Timestamp>,
}

impl Engine {
    /// A job of a tenant, deleted or not.
    pub(crate) async fn find_kept(&self, tenant: TenantId, id: JobId) -> Result<Stored, Error> {
        let found = self.store.kept_jobs(&[id]).await?.into_iter().next().flatten();
        let found = found.filter(|stored| stored.job.tenant == tenant);
        let stored = found.ok_or_else(|| Error::JobNotFound(id.to_string()))?;
        self.learn(self.unread([&*stored.job])).await?;
        Ok(stored)
    }

    /// A job of a tenant, deleted or not, as long as its history is kept.
    pub async fn kept_job(&self, tenant: TenantId, id: JobId) -> Result<Arc<Job>, Error> {
        Ok(self.find_kept(tenant, id).await?.job)
    }

    /// Why a job did or did not run.
    pub async fn why(&self, tenant: TenantId, id: JobId, when: When) -> Result<Answer, Error> {
        let now = self.clock.now();
        let stored = self.find_kept(tenant, id).await?;
        let job = &stored.job;
        let current = self.timetables.of(job).ok();
        let (at, left_out) = match (when, &current) {
            (When::Latest, _) => (None, None),
            (When::At(at), _) => (Some(at), None),
            (When::Local(wall), Some(timetable)) => resolve(timetable.zone(), wall),
            (When::Local(wall), None) => {
                (wall.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|at| at.timestamp()), None)
            }
        };
        let then = match at {
            Some(at) => self.then(job, at),
            None => self.lately(job, now),
        };
        let (slot, found) = self.slot_and_run(&stored, &then, at, now).await?;
        // What a calendar excluded is no slot, though it was planned as one.
        let planned = at.filter(|_| !job.spec.schedule.calendars.is_empty());
        let entry = match slot.or(planned) {
            Some(time) if found.is_none() => {
                let entry = self.entry_of(id, time).await?;
                entry.filter(|entry| slot.is_some() || entry.fate == Fate::SkippedCalendar)
            }
            _ => None,
        };
        let found = match (found, slot, &entry) {
            (None, Some(slot), None) if slot <= now => self.late_run(job, slot, now).await?,
            (found, ..) => found,
        };
        let seen = match job.state {
            JobState::Deleted => None,
            _ => self.see(std::slice::from_ref(&stored)).await?.into_iter().next(),
        };
        let ahead = self.ahead(job, found.as_ref(), entry.as_ref()).await?;
        let placement = self.placement().await?;
        let run = found.as_ref().map(|found| &found.run);
        let breaker = run.and_then(Run::waits_for_breaker).and_then(|name| self.breakers.named(name));
        // A slot that was reached is judged by the calendars of when that was decided.
        let judged =
            entry.as_ref().map(|entry| (entry.from, Some(entry.decided_at))).or(at.map(|at| (at, None)));
        let excluded_by = judged.map(|(at, by)| self.excluded_by(job, at, by)).unwrap_or_default();
        let facts = Facts {
            now,
            job,
            at,
            left_out: left_out.as_deref(),
            timetable: then.timetable.as_deref(),
            replaced_at: then.replaced_at,
            current: current.as_deref(),
            bare: then.bare.as_deref(),
            excluded_by: &excluded_by,
            slot,
            next: seen.as_ref().and_then(|seen| seen.next_fire_at),
            is_over: seen.as_ref().is_some_and(super::history::Seen::is_ended),
            fired: stored.progress.fired,
            run: found.as_ref().map(|found| (&found.run, &found.attempts[..])),
            is_dead_letter: match run {
                Some(run) if run.state.is_dead() => self.is_dead_letter(run).await?,
                _ => false,
            },
            entry: entry.as_ref(),
            ahead: ahead.as_ref(),
            is_met: match run {
                Some(run) if run.requires.are_pulling() => {
                    self.is_pulled(run.tenant, &run.queue, &run.requires.in_company()).await?
                }
                Some(run) => is_met(&placement, run),
                None => true,
            },
            breaker: breaker.as_deref(),
            is_served: match run.is_some_and(|run| run.requires.are_pulling() || self.desk.serves(&run.queue))
            {
                true => Some(true),
                // The workers of other nodes do not say what they serve.
                false => (!self.store.is_shared()).then_some(false),
            },
            owner: owner(&placement, id),
        };
        Ok(explain(&facts))
    }

    /// The slots of a job by the schedule that it had at a time.
    pub(crate) fn then(&self, job: &Job, at: Timestamp) -> Then {
        match job.schedule_at(at) {
            Some((schedule, replaced_at)) => self.by(job, schedule, replaced_at, Some(at)),
            None => Then { timetable: None, bare: None, replaced_at: None },
        }
    }

    /// The slots of a schedule, by its calendars as they are or as they were at a time.
    pub(crate) fn by(
        &self,
        job: &Job,
        schedule: &Schedule,
        replaced_at: Option<Timestamp>,
        at: Option<Timestamp>,
    ) -> Then {
        let with = |schedule: Schedule| {
            let job = Job { spec: Spec { schedule, ..job.spec.clone() }, ..job.clone() };
            match at {
                Some(at) => self.timetables.as_of(&job, at).ok(),
                None => self.timetables.of(&job).ok(),
            }
        };
        let mut bare = schedule.clone();
        bare.calendars.clear();
        let bare = if schedule.calendars.is_empty() { None } else { with(bare) };
        Then { timetable: with(schedule.clone()), bare, replaced_at }
    }

    /// The schedule that named the latest slot: the one before, if the current one has named none since it was set.
    fn lately(&self, job: &Job, now: Timestamp) -> Then {
        let current = self.by(job, &job.spec.schedule, None, None);
        let slot = current.timetable.as_ref().and_then(|timetable| latest(timetable, now));
        let replaced = job.changes.iter().rev().find_map(|change| match &change.until {
            Before::Schedule(schedule) => Some((change.at, schedule)),
            Before::Pause(_) => None,
        });
        match replaced {
            Some((at, schedule)) if slot.is_none_or(|slot| slot <= at) => {
                self.by(job, schedule, Some(at), Some(at))
            }
            _ => current,
        }
    }

    /// The slot that is asked about, and its run if that was born in time.
    async fn slot_and_run(
        &self,
        stored: &Stored,
        then: &Then,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(Option<Timestamp>, Option<RunDetail>), Error> {
        let job = &stored.job;
        let timetable = then.timetable.as_deref();
        if counts_from_completion(job) || timetable.is_none() {
            // Only its runs tell what its slots were.
            let run = match at {
                Some(at) => self.run_of(job.id, at, (at, at + BORN_WITHIN[0])).await?,
                None => self.newest(job.id).await?,
            };
            return Ok((run.as_ref().map(|run| run.run.scheduled_for), run));
        }
        let offset = timetable.map(spread).unwrap_or_default();
        let slot = timetable.and_then(|timetable| match at {
            Some(at) => slot_at(timetable, at).or_else(|| slot_at(timetable, at - offset)),
            None => {
                latest(timetable, then.replaced_at.unwrap_or(now)).filter(|slot| *slot >= job.owns_from())
            }
        });
        let Some(time) = slot.or(at).filter(|time| *time <= now) else { return Ok((slot, None)) };
        let run = self.run_of(job.id, time, (time, time + offset + BORN_WITHIN[0])).await?;
        // What somebody asked for at a time that is no slot is told too.
        Ok((slot, run))
    }

    /// The run of a slot that was born long after it.
    async fn late_run(&self, job: &Job, slot: Timestamp, now: Timestamp) -> Result<Option<RunDetail>, Error> {
        for pair in BORN_WITHIN.windows(2) {
            let (from, before) = (slot + pair[0], slot + pair[1]);
            if from > now {
                break;
            }
            if let Some(run) = self.run_of(job.id, slot, (from, before)).await? {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// The run of a slot among those that were born in a time; the schedule's own before others.
    async fn run_of(
        &self,
        job: JobId,
        slot: Timestamp,
        (from, before): (Timestamp, Timestamp),
    ) -> Result<Option<RunDetail>, Error> {
        let second = |at: Timestamp| at.as_second();
        // A clock may have been set back a little in between.
        let born_from = from.checked_sub(SignedDuration::from_secs(1)).unwrap_or(from);
        let filter = RunFilter {
            job: Some(job),
            born_from: Some(born_from),
            born_before: Some(before),
            ..RunFilter::default()
        };
        let runs = self.store.runs(&filter, PageRequest::first(LOOKED_AT)).await?.items;
        let of_slot = || runs.iter().filter(|run| second(run.scheduled_for) == second(slot));
        // Of a slot in parts or items, the one that somebody has to do something about.
        let weight = |run: &&Run| match run.state {
            RunState::Failed | RunState::TimedOut => 0,
            RunState::Pending(_) | RunState::Running(_) => 1,
            RunState::Cancelled | RunState::Missed => 2,
            RunState::Succeeded => 3,
        };
        let is_of_schedule = |run: &&Run| matches!(run.cause, Cause::Schedule | Cause::Batch);
        let of_schedule = of_slot().filter(is_of_schedule).min_by_key(weight);
        let run = of_schedule.or_else(|| of_slot().next());
        match run {
            Some(run) => Ok(self.store.run(run.id()).await?),
            None => Ok(None),
        }
    }

    async fn newest(&self, job: JobId) -> Result<Option<RunDetail>, Error> {
        let filter = RunFilter { job: Some(job), ..RunFilter::default() };
        match self.store.runs(&filter, PageRequest::first(1)).await?.items.first() {
            Some(run) => Ok(self.store.run(run.id()).await?),
            None => Ok(None),
        }
    }

    async fn entry_of(&self, job: JobId, slot: Timestamp) -> Result<Option<LedgerEntry>, Error> {
        let after = slot.checked_add(SignedDuration::from_millis(1)).ok();
        let entries = self.store.ledger(job, PageRequest { after, limit: ENTRIES }).await?.items;
        Ok(entries.into_iter().find(|entry| entry.from <= slot && slot <= entry.to))
    }

    /// The open run that another waits for, or that was in its way.
    async fn ahead(
        &self,
        job: &Job,
        found: Option<&RunDetail>,
        entry: Option<&LedgerEntry>,
    ) -> Result<Option<Run>, Error> {
        let is_behind = found.is_some_and(|found| found.run.is_behind());
        if !is_behind && entry.is_none_or(|entry| entry.fate != Fate::SkippedOverlap) {
            return Ok(None);
        }
        let running = RunFilter { job: Some(job.id), state: Some("running"), ..RunFilter::default() };
        let waiting = [WaitingFor::Answer, WaitingFor::Retry, WaitingFor::Capacity, WaitingFor::Time];
        let waiting = waiting.map(|waiting| RunFilter {
            job: Some(job.id),
            waiting_for: Some(waiting),
            ..RunFilter::default()
        });
        for filter in std::iter::once(running).chain(waiting) {
            let runs = self.store.runs(&filter, PageRequest::first(1)).await?.items;
            if let Some(run) = runs.into_iter().next() {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    async fn is_dead_letter(&self, run: &Run) -> Result<bool, Error> {
        let born_at = run.sequence.born_at();
        let filter = RunFilter {
            job: Some(run.job),
            is_dead: Some(true),
            born_from: Some(born_at),
            born_before: Some(born_at + SignedDuration::from_millis(1)),
            ..RunFilter::default()
        };
        let runs = self.store.runs(&filter, PageRequest::first(LOOKED_AT)).await?.items;
        Ok(runs.iter().any(|other| other.sequence == run.sequence))
    }
}

/// The latest slot that was to be fired by a time.
fn latest(timetable: &Timetable, by: Timestamp) -> Option<Timestamp> {
    timetable.previous_before(by - spread(timetable) + SignedDuration::from_nanos(1))
}

fn is_met(placement: &Placement, run: &Run) -> bool {
    placement.nodes.iter().any(|(node, _)| node.roles.worker && node.labels.meet(&run.requires.in_company()))
}

fn owner(placement: &Placement, job: JobId) -> Option<&str> {
    let owner = placement.shards.iter().find(|shard| shard.shard == job.shard())?.owner?;
    placement.node(owner).map(|node| node.name.as_str())
}

/// The instant of a time on a clock, the first if it comes twice; and the time of day, if the clock leaves it out.
fn resolve(zone: &Zone, wall: DateTime) -> (Option<Timestamp>, Option<String>) {
    let Ok(utc) = wall.to_zoned(jiff::tz::TimeZone::UTC) else { return (None, None) };
    let wall_second = utc.timestamp();
    let day = SignedDuration::from_hours(24);
    let offset = |at: Timestamp| SignedDuration::from_secs(i64::from(zone.offset_at(at)));
    let offsets = [wall_second - day, wall_second + day].map(offset);
    let instants = offsets.map(|offset| wall_second - offset);
    let is_there = |(at, of): &(Timestamp, SignedDuration)| offset(*at) == *of;
    let found = instants.into_iter().zip(offsets).filter(is_there).map(|(at, _)| at).min();
    match found {
        Some(at) => (Some(at), None),
        None => (instants.into_iter().max(), Some(wall.strftime("%H:%M").to_string())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use punctual_schedule::{Binding, Tzdb};

    #[test]
    fn a_local_time_is_found_on_the_clock_of_the_job() {
        let mut schedule = Schedule::parse("0 9 * * *").unwrap();
        schedule.timezone = "Europe/Paris".into();
        let timetable = schedule.timetable(&Tzdb::bundled(), &Binding::default()).unwrap();
        let resolved = |text: &str| {
            let (at, left_out) = resolve(timetable.zone(), text.parse().unwrap());
            (at.unwrap().to_string(), left_out)
        };
        assert_eq!(resolved("2026-01-01T09:00"), ("2026-01-01T08:00:00Z".into(), None));
        assert_eq!(resolved("2026-10-25T02:30"), ("2026-10-25T00:30:00Z".into(), None), "the first pass");
        assert_eq!(resolved("2026-03-29T02:30"), ("2026-03-29T01:30:00Z".into(), Some("02:30".into())));
        assert_eq!(When::parse("1767225600"), Some(When::At("2026-01-01T00:00:00Z".parse().unwrap())));
        assert!(matches!(When::parse("2026-01-01T09:00"), Some(When::Local(_))));
        for wrong in ["yesterday", "", "9999-01-01T00:00:00Z", "0001-01-01T00:00", "99999999999"] {
            assert_eq!(When::parse(wrong), None, "{wrong}");
        }
    }
}
