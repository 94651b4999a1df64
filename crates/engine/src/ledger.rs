//! Gives the account of a job's slots over a range, newest first, in pages.
//!
//! Runs when the API or the console asks. Promise: bounded work per page, however long the range and however
//! many slots; a row is on one page.

use jiff::{SignedDuration, Timestamp};
use punctual_domain::LedgerEntry;
use punctual_domain::account::{Row, Slots, Stretch, account, place};
use punctual_domain::id::{JobId, Sequence, TenantId};
use punctual_domain::job::{Before, Job, JobState};
use punctual_domain::run::Run;
use punctual_store::{Page, PageRequest, RunFilter};

use crate::engine::Engine;
use crate::error::Error;
use crate::fire::counts_from_completion;
use crate::register::spread;
use crate::why::{BORN_WITHIN, FIRST, LAST, LOOKED_AT};

/// A range of time: `from` is in it, `to` is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The registration of the job, unless said otherwise.
    pub from: Option<Timestamp>,
    /// Now, unless said otherwise.
    pub to: Option<Timestamp>,
}

/// Runs are born within this time after their slot and spread, or are looked for.
const PROMPT: SignedDuration = BORN_WITHIN[0];

/// Runs that belong elsewhere, such as those of a backfill, are read over in so many pages; then the account
/// goes on with another.
const PAGES_MAX: usize = 10;

/// So many moments at which slots were caught up with are looked into.
const CATCH_UPS: usize = 20;

impl Engine {
    /// A page of the account of a job's slots, newest first; `after` is where the page before ended.
    pub async fn account(
        &self,
        tenant: TenantId,
        id: JobId,
        range: Range,
        page: PageRequest<Timestamp>,
    ) -> Result<Page<Row, Timestamp>, Error> {
        let now = self.clock.now();
        let stored = self.find_kept(tenant, id).await?;
        let job = &stored.job;
        let from = range.from.unwrap_or(job.created_at).clamp(FIRST, LAST);
        let to = page.after.or(range.to).unwrap_or(now).clamp(FIRST, LAST);
        if from >= to {
            return Ok(Page { items: Vec::new(), next: None });
        }
        let is_over = match job.state {
            JobState::Deleted => false,
            _ => self
                .see(std::slice::from_ref(&stored))
                .await?
                .first()
                .is_some_and(super::history::Seen::is_ended),
        };
        let mut read = self.read(job, (from, to), page.limit).await?;
        let calendars_changed = self.calendars_changed(job);
        let bound = self.bound(job, &calendars_changed);
        let slots = |at: Timestamp| {
            let (_, until) = job.schedule_at(at)?;
            let changed = calendars_changed.iter().find(|changed| at <= **changed).copied();
            bound.iter().find(|(known, _)| *known == (until, changed)).map(|(_, slots)| slots.clone())
        };
        let stretch = |read: &Read| -> (Vec<Row>, u64) {
            let Read { from: start, runs, entries } = read;
            let (runs, entries, is_first) = (&runs[..], &entries[..], *start == from);
            let stretch = Stretch {
                now,
                from: *start,
                to,
                is_first,
                job,
                is_over,
                runs,
                entries,
                calendars_changed: &calendars_changed,
                slots: &slots,
            };
            (account(&stretch), stretch.unrecorded())
        };
        let (mut rows, mut unrecorded) = stretch(&read);
        for (born_from, born_before) in later(&read, to, now) {
            if unrecorded == 0 {
                break;
            }
            if read.add(self.born(id, born_from, born_before).await?, to) {
                (rows, unrecorded) = stretch(&read);
            }
        }
        let mut next = (read.from > from).then_some(read.from);
        if rows.len() > page.limit {
            let last = rows[page.limit - 1].from;
            // Rows of one time stay together, for the cursor is a time.
            let end = rows.iter().rposition(|row| row.from >= last).map_or(rows.len(), |at| at + 1);
            if end < rows.len() {
                rows.truncate(end);
                next = Some(last);
            }
        }
        Ok(Page { items: rows, next })
    }

    /// Reads back from the end of a range, as far as fits on a page.
    async fn read(&self, job: &Job, (from, to): (Timestamp, Timestamp), limit: usize) -> Result<Read, Error> {
        let offset = self.timetables.of(job).map(|timetable| spread(&timetable)).unwrap_or_default();
        let filter = RunFilter {
            job: Some(job.id),
            // A clock may have been set back a little in between.
            born_from: from.checked_sub(SignedDuration::from_secs(1)).ok(),
            born_before: to.checked_add(offset + PROMPT).ok(),
            ..RunFilter::default()
        };
        let mut read = Read { from, runs: Vec::new(), entries: Vec::new() };
        let (mut after, mut pages): (Option<Sequence>, usize) = (None, 0);
        let at_once = limit.clamp(LOOKED_AT / 10, LOOKED_AT);
        loop {
            let found = self.store.runs(&filter, PageRequest { after, limit: at_once }).await?;
            (after, pages) = (found.next, pages + 1);
            read.add(found.items, to);
            let Some(oldest) = after.map(Sequence::born_at) else { break };
            let is_enough = read.runs.len() >= limit || pages >= PAGES_MAX;
            if is_enough && oldest < to {
                // All that were born after then are there, so are those of all slots after then.
                let start = oldest + SignedDuration::from_millis(1);
                read.from = if start < to { start.max(from) } else { oldest.max(from) };
                break;
            }
        }
        read.entries =
            self.store.ledger(job.id, PageRequest { after: Some(to), limit: limit + 1 }).await?.items;
        if read.entries.len() > limit {
            read.from = read.from.max(read.entries[limit].from);
        }
        let start = read.from;
        read.entries.retain(|entry| entry.to >= start);
        read.runs.retain(|run| place(run) >= start);
        Ok(read)
    }

    async fn born(&self, job: JobId, from: Timestamp, before: Timestamp) -> Result<Vec<Run>, Error> {
        let filter = RunFilter {
            job: Some(job),
            born_from: Some(from),
            born_before: Some(before),
            ..RunFilter::default()
        };
        Ok(self.store.runs(&filter, PageRequest::first(LOOKED_AT)).await?.items)
    }

    /// When calendars were changed that the schedules of a job name or named, oldest first.
    fn calendars_changed(&self, job: &Job) -> Vec<Timestamp> {
        let past = job.changes.iter().filter_map(|change| match &change.until {
            Before::Schedule(schedule) => Some(&**schedule),
            Before::Pause(_) => None,
        });
        let known = self.timetables.calendars();
        let schedules = past.chain([&job.spec.schedule]);
        let mut changed: Vec<Timestamp> =
            schedules.flat_map(|schedule| known.changes(job.tenant, &schedule.calendars)).collect();
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// The slots of the schedules that a job has had, each with when it ended, by the calendars of each time. Only its runs tell what
    /// they were where they count from completion.
    fn bound(&self, job: &Job, changed: &[Timestamp]) -> Vec<(Until, Slots)> {
        if counts_from_completion(job) {
            return Vec::new();
        }
        let past = job.changes.iter().filter_map(|change| match &change.until {
            Before::Schedule(schedule) => Some((Some(change.at), &**schedule)),
            Before::Pause(_) => None,
        });
        let all = past.chain([(None, &job.spec.schedule)]);
        let mut bound = Vec::new();
        for (until, schedule) in all {
            for changed in changed.iter().copied().map(Some).chain([None]) {
                let then = self.by(job, schedule, until, changed);
                if let Some(timetable) = then.timetable {
                    bound.push(((until, changed), Slots { timetable, bare: then.bare }));
                }
            }
        }
        bound
    }
}

/// When a schedule was replaced, and when its calendars were; none if they were not.
type Until = (Option<Timestamp>, Option<Timestamp>);

/// When runs of slots of a stretch may have been born later: when others were missed, or after an outage.
fn later(read: &Read, to: Timestamp, now: Timestamp) -> Vec<(Timestamp, Timestamp)> {
    let second = SignedDuration::from_secs(1);
    let decided = read.entries.iter().take(CATCH_UPS).map(|entry| entry.decided_at);
    let times = decided.map(|at| (at - second, at + second + second));
    let windows = BORN_WITHIN.windows(2);
    let windows =
        windows.filter_map(|pair| Some((to.checked_add(pair[0]).ok()?, to.checked_add(pair[1]).ok()?)));
    times.chain(windows).filter(|(from, _)| *from <= now).collect()
}

/// What was read of a stretch: all runs and entries of its slots from a time on.
struct Read {
    from: Timestamp,
    runs: Vec<Run>,
    entries: Vec<LedgerEntry>,
}

impl Read {
    /// Adds runs that stand before a time and are not there yet; whether there were any.
    fn add(&mut self, runs: Vec<Run>, to: Timestamp) -> bool {
        let before = self.runs.len();
        for run in runs {
            let is_known = self.runs.iter().any(|known| known.sequence == run.sequence);
            if place(&run) >= self.from && place(&run) < to && !is_known {
                self.runs.push(run);
            }
        }
        self.runs.len() > before
    }
}
