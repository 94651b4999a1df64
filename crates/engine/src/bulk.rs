//! One change of many jobs or runs: plans the steps of such operations, and says beforehand what they would do.
//!
//! Runs when an operation goes on, and when somebody asks for a dry run. Promise: a job is changed by the rules of
//! `register`, at most once, as it is when its turn comes; what changes between the plan of a step and its commit is
//! tried again before the operation goes on; what was registered or born after the start is not touched. Work is bounded
//! by page, whatever the filter.

use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::bulk::{self, CancelRuns, ChangeJobs, Left};
use punctual_domain::id::{JobId, RunId, Sequence, ShardId, TenantId};
use punctual_domain::job::{Job, Pause, Spec};
use punctual_domain::operation::{Cursor, Event, Operation};
use punctual_domain::run::Run;
use punctual_store::{Cancellation, Effect, JobFilter, PageRequest, Put, RunFilter, Stored};

use crate::changes::{Change, delete, edit, resume, stop};
use crate::engine::Engine;
use crate::error::Error;
use crate::history::{Seen, Wanted};
use crate::operations::Plan;
use crate::register::{self, Waiting, next_slot};

/// Applies what somebody wrote to what a job's owner asked for. The engine does not read it.
pub trait Edit: Send + Sync {
    /// The job with the patch applied, or why it would not be valid. Its key stays.
    fn edit(&self, old: &Spec, patch: &str) -> Result<Spec, String>;
}

/// Jobs of one step: a few milliseconds of the store's time, in which nothing fires in their shards.
const CHANGE_MAX: usize = 100;

/// The same where each job's waiting runs change with it, which takes longer.
const CHANGE_WITH_RUNS_MAX: usize = 25;

/// Runs of one step.
const CANCEL_MAX: usize = 250;

/// What changes between plan and commit is tried so often.
pub(crate) const TRIES: u8 = 5;

/// A dry run counts so many pages of so many jobs or runs, and says where to go on.
const PREVIEW_PAGES: usize = 10;
const PREVIEW_PAGE: usize = 1_000;

/// A dry run names so many.
const EXAMPLES: usize = 5;

/// What an operation would do to a part of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview<T, C> {
    /// How many the filter finds.
    pub matched: u64,
    /// How many of them would change.
    pub changes: u64,
    /// How many could not be changed.
    pub failed: u64,
    /// Why the first of those could not.
    pub failure: Option<String>,
    /// The first that would change.
    pub examples: Vec<T>,
    /// Where the rest of the list begins.
    pub next: Option<C>,
}

impl<T, C> Default for Preview<T, C> {
    fn default() -> Self {
        Preview { matched: 0, changes: 0, failed: 0, failure: None, examples: Vec::new(), next: None }
    }
}

impl<T, C> Preview<T, C> {
    fn add(&mut self, one: T) {
        self.changes += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(one);
        }
    }
}

// What people ask for.
impl Engine {
    /// Says who applies edits. Said once, before the first; without it every edit is refused.
    pub fn edit_by(&self, editor: Arc<dyn Edit>) {
        let _ = self.editor.set(editor);
    }

    /// What a change of many jobs would do to those after a job, as they are now.
    pub async fn preview_jobs(
        &self,
        tenant: TenantId,
        asked: &ChangeJobs,
        after: Option<JobId>,
    ) -> Result<Preview<Arc<Job>, JobId>, Error> {
        let now = self.clock.now();
        let wanted = wanted(tenant, asked);
        let mut preview = Preview { next: after, ..Preview::default() };
        for _ in 0..PREVIEW_PAGES {
            let page = PageRequest { after: preview.next, limit: PREVIEW_PAGE };
            let page = self.store.list_jobs(&wanted.filter, page).await?;
            for (stored, seen) in self.matching(page.items, &wanted).await? {
                preview.matched += 1;
                let decided = self.change_of(&seen, &asked.change, now);
                if let Ok(Some(change)) = &decided {
                    self.learn(self.unread([&change.job])).await?;
                }
                match decided.and_then(|change| self.check(&stored, change, now)) {
                    Ok(true) => preview.add(stored.job),
                    Ok(false) => {}
                    Err(error) => {
                        preview.failed += 1;
                        preview.failure.get_or_insert(told(stored.job.id, error)?);
                    }
                }
            }
            preview.next = page.next;
            if preview.next.is_none() {
                break;
            }
        }
        Ok(preview)
    }

    /// Which runs below a run would be cancelled.
    pub async fn preview_cancel(
        &self,
        tenant: TenantId,
        which: &CancelRuns,
        below: Option<Sequence>,
    ) -> Result<Preview<Run, Sequence>, Error> {
        let filter = RunFilter { tenant: Some(tenant), ..RunFilter::from(which) };
        let mut preview = Preview { next: below, ..Preview::default() };
        for _ in 0..PREVIEW_PAGES {
            let page = PageRequest { after: preview.next, limit: PREVIEW_PAGE };
            let page = self.store.runs(&filter, page).await?;
            for run in page.items {
                preview.matched += 1;
                if !run.is_cancel_requested {
                    preview.add(run);
                }
            }
            preview.next = page.next;
            if preview.next.is_none() {
                break;
            }
        }
        Ok(preview)
    }
}

// The steps.
impl Engine {
    /// The next jobs, changed: first those that changed during the last step, then those after the cursor.
    pub(crate) async fn plan_change(
        &self,
        operation: &Operation,
        asked: &ChangeJobs,
        now: Timestamp,
    ) -> Result<Plan, Error> {
        let wanted = wanted(operation.tenant, asked);
        let end = last_of(operation.created_at);
        let round = round(operation);
        let (jobs, cursor) = match (round, operation.cursor) {
            (0, Cursor::Job(after)) if after >= end => return Ok(Plan::of(Event::Succeeded)),
            (0, cursor) => {
                let after = if let Cursor::Job(job) = cursor { Some(job) } else { None };
                let page = PageRequest { after, limit: step_max(&asked.change) };
                let mut page = self.store.list_jobs(&wanted.filter, page).await?;
                page.items.retain(|stored| stored.job.id <= end);
                (page.items, page.next.filter(|next| *next < end).map_or(Cursor::Job(end), Cursor::Job))
            }
            (_, cursor) => (self.jobs_left(operation).await?, cursor),
        };
        let mut plan = Plan { tries: round, ..Plan::of(Event::Stepped { cursor, resume_at: now }) };
        let mut puts = Vec::new();
        for (stored, seen) in self.matching(jobs, &wanted).await? {
            match self.put_of(&stored, &seen, &asked.change, round, now).await {
                Ok(put) => puts.extend(put),
                Err(error) => {
                    plan.failed += 1;
                    plan.example.get_or_insert(told(stored.job.id, error)?);
                }
            }
        }
        if puts.is_empty() && cursor == Cursor::Job(end) {
            plan.event = Event::Succeeded;
        }
        if !puts.is_empty() {
            plan.effect = Effect::Change(puts);
        }
        Ok(plan)
    }

    /// The next open runs, newest first, to be cancelled.
    pub(crate) async fn plan_cancel(
        &self,
        operation: &Operation,
        which: &CancelRuns,
        now: Timestamp,
    ) -> Result<Plan, Error> {
        // The clock's smallest step later, so that what was born with the start is one of them.
        let started = Timestamp::from_millisecond(operation.created_at.as_millisecond() + 1);
        let started = started.unwrap_or(Timestamp::MAX);
        let born_before = Some(which.born_before.map_or(started, |before| before.min(started)));
        let filter = RunFilter { tenant: Some(operation.tenant), born_before, ..RunFilter::from(which) };
        let round = round(operation);
        let (runs, next) = match (round, operation.cursor) {
            (0, cursor) => {
                let after = if let Cursor::Run(sequence) = cursor { Some(sequence) } else { None };
                let page = self.store.runs(&filter, PageRequest { after, limit: CANCEL_MAX }).await?;
                let last = page.items.last().map(|run| run.sequence);
                (page.items, page.next.or(last).map(Cursor::Run))
            }
            (_, cursor) => (self.runs_left(operation).await?, Some(cursor)),
        };
        let is_wanted = |run: &Run| filter.matches(run) && !run.is_cancel_requested;
        let runs: Vec<Run> = runs.into_iter().filter(is_wanted).collect();
        // Without runs and a place to go on there are none left.
        let event = match next {
            Some(cursor) => Event::Stepped { cursor, resume_at: now },
            None => Event::Succeeded,
        };
        let mut plan = Plan { tries: round, ..Plan::of(event) };
        if round >= TRIES {
            plan.failed = runs.len() as u64;
            plan.example = runs.first().map(|run| format!("run {}: {BUSY}", run.id()));
        } else if !runs.is_empty() {
            plan.effect = Effect::Cancel(self.cancellations(&runs, now).await?);
        }
        Ok(plan)
    }

    /// Cancellations of runs, with what the end of each means for a job that counts from completion.
    async fn cancellations(&self, runs: &[Run], now: Timestamp) -> Result<Vec<Cancellation>, Error> {
        let versions: Vec<_> = runs.iter().map(|run| (run.job, run.version)).collect();
        let fired_with = self.store.job_versions(&versions).await?;
        let mut cancellations = Vec::with_capacity(runs.len());
        for (run, fired_with) in runs.iter().zip(fired_with) {
            let successor = match fired_with {
                Some(stored) => self.successor_of(run.job, &stored.job, now).await?,
                None => None,
            };
            cancellations.push(Cancellation { run: run.id(), successor });
        }
        Ok(cancellations)
    }

    /// The change of one job; none if it would stay as it is.
    async fn put_of(
        &self,
        stored: &Stored,
        seen: &Seen,
        change: &bulk::Change,
        round: u8,
        now: Timestamp,
    ) -> Result<Option<Put>, Error> {
        if round >= TRIES {
            return Err(Error::Edit(BUSY.into()));
        }
        let Some(change) = self.change_of(seen, change, now)? else { return Ok(None) };
        // It was fired since it was read; or the clock was set back, and its next slot is not the next by the clock.
        let last_slot = if round > 0 { self.last_slot(stored.job.id).await? } else { None };
        // A job can always be stopped: if its entry is not found in the end, it is left to be dropped as stale.
        let is_strict = round + 1 < TRIES;
        let (put, _) = self.prepare_change(stored, change, last_slot, now, is_strict).await?;
        Ok(Some(put))
    }

    /// What becomes of a job; nothing if it is so already, or has no use for it.
    fn change_of(&self, seen: &Seen, change: &bulk::Change, now: Timestamp) -> Result<Option<Change>, Error> {
        let job = &seen.job;
        match change {
            bulk::Change::Pause { .. } | bulk::Change::Resume if seen.is_ended() => Ok(None),
            // Its time is over before the job is reached.
            bulk::Change::Pause { until: Some(until), .. } if *until <= now => Ok(None),
            bulk::Change::Pause { reason, by, until } => {
                let pause = Pause { reason: reason.clone(), by: by.clone(), since: now, until: *until };
                stop(job, &pause, now)
            }
            bulk::Change::Resume => resume(job, now),
            bulk::Change::Delete => Ok(Some(delete(job, now))),
            bulk::Change::Edit { patch, updates_waiting } => {
                let editor =
                    self.editor.get().ok_or_else(|| Error::Edit("nobody here applies edits".into()))?;
                let spec = editor.edit(&job.spec, patch).map_err(Error::Edit)?;
                let waiting = if *updates_waiting { Waiting::Update } else { Waiting::Keep };
                edit(job, Spec { key: job.spec.key.clone(), ..spec }, waiting, now)
            }
        }
    }

    /// Whether something would change; an error if that cannot be.
    fn check(&self, old: &Stored, change: Option<Change>, now: Timestamp) -> Result<bool, Error> {
        let Some(change) = change else { return Ok(false) };
        if change.job.spec.schedule != old.job.spec.schedule {
            let timetable = self.timetables.of_new(&change.job)?;
            if change.job.is_active() && next_slot(&change.job, &timetable, old.progress, now).is_none() {
                self.must_fire(&change.job, &timetable, now)?;
            }
        }
        Ok(true)
    }

    /// Those of the jobs that are wanted, as they are seen.
    async fn matching(&self, jobs: Vec<Stored>, wanted: &Wanted) -> Result<Vec<(Stored, Seen)>, Error> {
        let seen = self.see(&jobs).await?;
        let is_wanted =
            |(stored, seen): &(Stored, Seen)| wanted.filter.matches(&stored.job) && wanted.has(seen);
        Ok(jobs.into_iter().zip(seen).filter(is_wanted).collect())
    }

    pub(crate) async fn jobs_left(&self, operation: &Operation) -> Result<Vec<Stored>, Error> {
        let job = |left: &Left| if let Left::Job(job) = left { Some(*job) } else { None };
        let ids: Vec<JobId> = operation.left.iter().filter_map(job).collect();
        Ok(self.store.jobs(&ids).await?.into_iter().flatten().collect())
    }

    async fn runs_left(&self, operation: &Operation) -> Result<Vec<Run>, Error> {
        let run = |left: &Left| if let Left::Run(run) = left { Some(*run) } else { None };
        let ids: Vec<RunId> = operation.left.iter().filter_map(run).collect();
        let mut runs = Vec::with_capacity(ids.len());
        for id in ids {
            runs.extend(self.store.run(id).await?.map(|detail| detail.run));
        }
        Ok(runs)
    }
}

/// Due entries that a step makes.
pub(crate) fn dues(effect: &Effect) -> Vec<punctual_store::Due> {
    match effect {
        Effect::Change(puts) => puts.iter().flat_map(register::dues).collect(),
        Effect::Cancel(cancellations) => {
            cancellations.iter().filter_map(|one| one.successor.and_then(|successor| successor.due)).collect()
        }
        Effect::Nothing
        | Effect::Redrive(_)
        | Effect::Acknowledge(_)
        | Effect::Births { .. }
        | Effect::Message(_) => Vec::new(),
    }
}

pub(crate) const BUSY: &str = "it is being changed by others all the time";

fn wanted(tenant: TenantId, asked: &ChangeJobs) -> Wanted {
    Wanted::of(&JobFilter { tenant: Some(tenant), ..JobFilter::from(&asked.which) })
}

/// How often what is left has been tried; 0 if nothing is.
pub(crate) fn round(operation: &Operation) -> u8 {
    if operation.left.is_empty() { 0 } else { operation.tries + 1 }
}

/// Jobs of one step.
fn step_max(change: &bulk::Change) -> usize {
    match change {
        bulk::Change::Delete | bulk::Change::Edit { updates_waiting: true, .. } => CHANGE_WITH_RUNS_MAX,
        bulk::Change::Pause { .. } | bulk::Change::Resume | bulk::Change::Edit { .. } => CHANGE_MAX,
    }
}

/// The last id that can be made at a time.
fn last_of(at: Timestamp) -> JobId {
    JobId::new(at, ShardId(ShardId::COUNT_MAX - 1), u64::MAX)
}

/// What is said about a job that could not be changed. An error that is not about the job is passed on.
pub(crate) fn told(job: JobId, error: Error) -> Result<String, Error> {
    match error {
        Error::Schedule(_) | Error::WrongState { .. } | Error::ReservedType | Error::Edit(_) => {
            Ok(format!("job {job}: {error}").chars().take(EXAMPLE_MAX).collect())
        }
        error => Err(error),
    }
}

/// An example is a line of text.
const EXAMPLE_MAX: usize = 500;
