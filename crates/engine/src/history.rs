//! Tells what is and what was, and does what people do about it: cancel, redrive, acknowledge.
//!
//! Runs when the API or the console asks. Promise: reads are pages with a cursor and bounded work; another tenant's
//! job or run is not there; what was asked for under an `Idempotency-Key` is remembered for a day. Lists may be some
//! seconds behind, if the store has copies to read them from; whatever is asked for by its id is as it is.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::audit::Deed;
use punctual_domain::id::{JobId, RunId, Sequence, TenantId};
use punctual_domain::job::{Job, JobState};
use punctual_domain::run::{Cause, Run};
use punctual_domain::{Labels, LedgerEntry, Tenant, TenantName};
use punctual_schedule::{DstNote, Kind, Tzdb};
use punctual_store::{Cancellation, Refused};

pub use punctual_store::{JobFilter, Page, PageRequest, RunDetail, RunFilter, Stored, Subject};

use crate::engine::Engine;
use crate::error::Error;
use crate::fire::counts_from_completion;
use crate::register::{Registered, busy, is_out_of_slots, next_slot, spread};
use crate::warnings::Recent;

/// A job and what its row does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The job.
    pub job: Arc<Job>,
    /// When it fires next: its next slot and its spread.
    pub next_fire_at: Option<Timestamp>,
    /// Its schedule has no more slots, and its last run has ended.
    pub is_over: bool,
}

impl Seen {
    /// Whether it fires no more by itself.
    pub fn is_ended(&self) -> bool {
        self.is_over || self.job.state == JobState::Ended
    }
}

/// A slot to come.
#[derive(Clone, Debug, PartialEq)]
pub struct Upcoming {
    /// Its nominal time.
    pub slot: Timestamp,
    /// When it fires: later by the job's spread.
    pub fires_at: Timestamp,
    /// On the clock of the job's zone.
    pub local: String,
    /// What a change of the clock does to it.
    pub note: Option<DstNote>,
}

/// Which jobs are wanted: what the store finds, and what it cannot know. Whether a schedule has come to its end is not in a
/// job's row: the store gives both, and we tell them apart.
pub(crate) struct Wanted {
    pub(crate) filter: JobFilter,
    is_over: Option<bool>,
}

impl Wanted {
    pub(crate) fn of(filter: &JobFilter) -> Self {
        let is_over = match filter.state {
            Some("active") => Some(false),
            Some("ended") => Some(true),
            _ => None,
        };
        let state = if is_over == Some(true) { None } else { filter.state };
        Wanted { filter: JobFilter { state, ..filter.clone() }, is_over }
    }

    /// Whether a job that the store found is one of them.
    pub(crate) fn has(&self, seen: &Seen) -> bool {
        self.is_over.is_none_or(|is_over| seen.is_ended() == is_over)
    }
}

/// Runs that tell about a job: the newest may not have ended yet.
const RECENT: usize = 3;

/// How long an `Idempotency-Key` is remembered.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);

/// A list that leaves jobs out looks at so many pages of the store for one of its own.
const PAGES_MAX: usize = 20;

/// A cancellation that meets a change of its job is tried again this often.
pub(crate) const TRIES: usize = 5;

// Jobs.
impl Engine {
    /// A job of a tenant.
    pub async fn job(&self, tenant: TenantId, id: JobId) -> Result<Seen, Error> {
        let stored = self.find(tenant, id).await?;
        let seen = self.see(&[stored]).await?.into_iter().next();
        seen.ok_or_else(|| Error::JobNotFound(id.to_string()))
    }

    /// The job with a client-chosen key.
    pub async fn job_by_key(&self, tenant: TenantId, key: &str) -> Result<Seen, Error> {
        let id = self.store.job_by_key(tenant, key).await?;
        self.job(tenant, id.ok_or_else(|| Error::JobNotFound(key.into()))?).await
    }

    /// Jobs in the order of their ids. A page may be empty and still have a next one.
    pub async fn list_jobs(
        &self,
        filter: &JobFilter,
        mut page: PageRequest<JobId>,
    ) -> Result<Page<Seen, JobId>, Error> {
        let (limit, wanted) = (page.limit, Wanted::of(filter));
        let mut items = Vec::new();
        for _ in 0..PAGES_MAX {
            page.limit = limit - items.len();
            let found = match self.store.lists() {
                Some(lists) => lists.list_jobs(&wanted.filter, page.clone()).await?,
                None => self.store.list_jobs(&wanted.filter, page.clone()).await?,
            };
            let seen = self.see(&found.items).await?;
            items.extend(seen.into_iter().filter(|seen| wanted.has(seen)));
            page.after = found.next;
            if page.after.is_none() || items.len() >= limit {
                break;
            }
        }
        Ok(Page { items, next: page.after })
    }

    /// A job that was just registered or changed.
    pub fn seen(&self, registered: &Registered) -> Seen {
        let job = Arc::clone(&registered.job);
        let next_fire_at = self.timetables.of(&job).ok().and_then(|timetable| {
            let slot = registered.next_slot?;
            Some(slot + spread(&timetable))
        });
        Seen { next_fire_at, is_over: false, job }
    }

    /// Jobs with what their rows do not say.
    pub(crate) async fn see(&self, jobs: &[Stored]) -> Result<Vec<Seen>, Error> {
        self.learn(self.unread(jobs.iter().map(|stored| &*stored.job))).await?;
        let now = self.clock.now();
        let mut seen: Vec<Seen> = jobs.iter().map(|stored| self.glance(stored, now)).collect();
        let over: Vec<&mut Seen> = seen.iter_mut().filter(|seen| seen.is_over).collect();
        if over.is_empty() {
            return Ok(seen);
        }
        // Its last slot may not be fired yet, or its last run not have ended. In this order: firing turns the one into the other.
        let is_unfired = self.are_unfired(&over, now).await?;
        let ids: Vec<JobId> = over.iter().map(|seen| seen.job.id).collect();
        // A store that takes no writes may not know; then the schedule alone decides.
        let has_open_runs = self.store.have_open_runs(&ids).await.unwrap_or_else(|_| vec![false; ids.len()]);
        for ((seen, is_unfired), has_open_runs) in over.into_iter().zip(is_unfired).zip(has_open_runs) {
            seen.is_over = !is_unfired && !has_open_runs;
        }
        Ok(seen)
    }

    /// Whether a slot of each job has come and is not fired yet.
    async fn are_unfired(&self, jobs: &[&mut Seen], now: Timestamp) -> Result<Vec<bool>, Error> {
        let timetables = jobs.iter().filter_map(|seen| self.timetables.of(&seen.job).ok());
        let longest = timetables.map(|timetable| spread(&timetable)).max().unwrap_or_default();
        let oldest = self.oldest_due(now + longest).await?;
        let mut answers = Vec::with_capacity(jobs.len());
        for seen in jobs {
            let candidates = match counts_from_completion(&seen.job) {
                true => Vec::new(),
                false => self.unfired_candidates(&seen.job, oldest, now)?,
            };
            let is_due =
                if candidates.is_empty() { Vec::new() } else { self.store.is_due(&candidates).await? };
            answers.push(is_due.contains(&true));
        }
        Ok(answers)
    }

    /// A job by its schedule alone.
    fn glance(&self, stored: &Stored, now: Timestamp) -> Seen {
        let job = Arc::clone(&stored.job);
        // A zone that is gone from the database has no slots, and is told by a warning.
        let Ok(timetable) = self.timetables.of(&job) else {
            return Seen { job, next_fire_at: None, is_over: false };
        };
        let slot = next_slot(&job, &timetable, stored.progress, now);
        let is_over = is_out_of_slots(stored, &timetable, now);
        Seen { next_fire_at: slot.map(|slot| slot + spread(&timetable)), is_over, job }
    }

    /// What a job's owner should know.
    pub fn warnings(&self, job: &Job, recent: &Recent) -> Vec<String> {
        let now = self.clock.now();
        // What happens once is judged by when it was asked for: having happened is no reason to warn.
        let from = match job.spec.schedule.kind {
            Kind::Now | Kind::At(_) | Kind::After(_) => job.created_at - SignedDuration::from_millis(1),
            Kind::Every(_) | Kind::Interval(_) | Kind::Cron(_) => now,
        };
        match self.timetables.of(job) {
            Ok(timetable) => {
                let mut warnings = timetable.warnings(from);
                let about_calendars = self.calendar_warnings(job, timetable.next_after(now).is_some());
                if !about_calendars.is_empty() && job.waits_for_calendars(0, now) {
                    // It is not for ever: calendars may change.
                    warnings.retain(|warning| !warning.starts_with("never fires"));
                }
                warnings.extend(about_calendars);
                warnings.extend(recent.warnings(job, &timetable, now));
                warnings
            }
            Err(error) => vec![error.to_string()],
        }
    }

    /// What somebody should know who waits for a worker with these labels: no live node has them all.
    pub async fn unmet(
        &self,
        tenant: TenantId,
        queue: &str,
        required: &Labels,
    ) -> Result<Option<String>, Error> {
        let required = &required.in_company();
        if required.is_empty() {
            return Ok(None);
        }
        if required.are_pulling() {
            let given = required.without_own();
            let who = if given.is_empty() { String::new() } else { format!(" that has {given}") };
            let is_met = self.is_pulled(tenant, queue, required).await?;
            return Ok((!is_met).then(|| format!("no worker{who} asks for runs of the queue `{queue}` now")));
        }
        let nodes = self.placement().await?.nodes;
        let is_met = nodes.iter().any(|(node, _)| node.roles.worker && node.labels.meet(required));
        Ok((!is_met).then(|| {
            format!(
                "no live node has a worker with {required}; start one with `punctual serve --labels {required}`, \
                 or change what the job requires"
            )
        }))
    }

    /// The newest runs of a job.
    pub async fn recent(&self, job: &Job) -> Result<Recent, Error> {
        let filter = RunFilter { job: Some(job.id), ..RunFilter::default() };
        let runs = self.store.runs(&filter, PageRequest::first(RECENT)).await?.items;
        let mut recent = Recent { runs, took: None };
        // Only the attempt itself tells how long its target took.
        let watched = job.spec.policies.timeouts.min_duration.and(recent.success()).map(Run::id);
        if let Some(id) = watched
            && let Some(detail) = self.store.run(id).await?
        {
            let report = detail.attempts.into_iter().next_back().and_then(|attempt| attempt.report);
            recent.took = report.map(|report| report.finished_at.duration_since(report.started_at));
        }
        Ok(recent)
    }

    /// The slots of a job after a time, paused or not.
    pub async fn upcoming(
        &self,
        tenant: TenantId,
        id: JobId,
        after: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<Upcoming>, Error> {
        let stored = self.find(tenant, id).await?;
        let timetable = self.timetables.of(&stored.job)?;
        let after = after.unwrap_or_else(|| self.clock.now());
        let left = stored
            .job
            .max_fires()
            .map_or(u64::MAX, |most| most.get() - stored.progress.fired.min(most.get()));
        let limit = limit.min(usize::try_from(left).unwrap_or(usize::MAX));
        let slots: Vec<Timestamp> = match counts_from_completion(&stored.job) {
            true => timetable.next_given(after, stored.progress).into_iter().take(limit).collect(),
            false => timetable.upcoming(after).take(limit).collect(),
        };
        let upcoming = |slot: Timestamp| {
            let offset = Offset::from_seconds(timetable.zone().offset_at(slot)).unwrap_or(Offset::UTC);
            Upcoming {
                slot,
                fires_at: slot + spread(&timetable),
                local: slot.display_with_offset(offset).to_string(),
                note: timetable.dst_note(slot),
            }
        };
        Ok(slots.into_iter().map(upcoming).collect())
    }

    /// The account of a job's slots that did not simply run, newest first.
    pub async fn ledger(
        &self,
        tenant: TenantId,
        job: JobId,
        page: PageRequest<Timestamp>,
    ) -> Result<Page<LedgerEntry, Timestamp>, Error> {
        self.find_kept(tenant, job).await?;
        Ok(match self.store.lists() {
            Some(lists) => lists.ledger(job, page).await?,
            None => self.store.ledger(job, page).await?,
        })
    }
}

// Runs and dead letters.
impl Engine {
    /// Runs, newest first. A page may be empty and still have a next one. Of a job that limits what is read, the newest; its dead
    /// letters are all there, because somebody has to do something about them.
    pub async fn runs(
        &self,
        filter: &RunFilter,
        page: PageRequest<Sequence>,
    ) -> Result<Page<Run, Sequence>, Error> {
        let is_limited = filter.is_dead != Some(true) && !filter.is_of_open();
        let last = match filter.job.filter(|_| is_limited) {
            Some(job) => self.store.kept_jobs(&[job]).await?.into_iter().next().flatten(),
            None => None,
        };
        let last = last.and_then(|stored| stored.job.spec.policies.retention.last);
        let filter = &RunFilter { last, ..filter.clone() };
        Ok(match self.store.lists() {
            Some(lists) => lists.runs(filter, page).await?,
            None => self.store.runs(filter, page).await?,
        })
    }

    /// A run with its attempts.
    pub async fn run(&self, tenant: TenantId, id: RunId) -> Result<RunDetail, Error> {
        let found = self.store.run(id).await?.filter(|detail| detail.run.tenant == tenant);
        found.ok_or_else(|| Error::RunNotFound(id.to_string()))
    }

    /// When runs were due: their nominal time and their job's spread. Lateness counts from there.
    pub async fn due_times(&self, runs: &[Run]) -> Result<Vec<Timestamp>, Error> {
        let ids: Vec<JobId> = runs.iter().map(|run| run.job).collect::<BTreeSet<_>>().into_iter().collect();
        let jobs = self.store.jobs(&ids).await?;
        self.learn(self.unread(jobs.iter().flatten().map(|stored| &*stored.job))).await?;
        let spread_of = |run: &Run| {
            let stored = jobs.get(ids.binary_search(&run.job).ok()?)?.as_ref()?;
            stored.job.spec.schedule.spread?;
            matches!(run.cause, Cause::Schedule | Cause::Batch).then_some(())?;
            self.timetables.of(&stored.job).ok().map(|timetable| spread(&timetable))
        };
        Ok(runs.iter().map(|run| run.scheduled_for + spread_of(run).unwrap_or_default()).collect())
    }

    /// Ends a waiting run, or asks a running one to stop.
    pub async fn cancel(&self, tenant: TenantId, id: RunId) -> Result<Run, Error> {
        self.audit_runs(tenant, &[id], "cancel", None).await?;
        for _ in 0..TRIES {
            let now = self.clock.now();
            let run = self.run(tenant, id).await?.run;
            let fired_with = self.store.job_versions(&[(run.job, run.version)]).await?;
            let successor = match fired_with.into_iter().next().flatten() {
                Some(stored) => self.successor_of(run.job, &stored.job, now).await?,
                None => None,
            };
            let cancellation = Cancellation { run: id, successor };
            match self.heard(self.store.cancel(vec![cancellation], now)).await?.into_iter().next() {
                Some(Ok(run)) => {
                    self.wakes.offer(successor.and_then(|successor| successor.due));
                    self.wakes.claimable(); // One that waited for it may go on.
                    let ended = self.end_stopped([&run]).await?.pop();
                    return Ok(ended.unwrap_or(run));
                }
                // The job changed since its next slot was computed: compute it anew.
                Some(Err(Refused::WrongVersion { .. } | Refused::NoJob)) => {}
                Some(Err(refused)) => return Err(refused_run(refused, id)),
                None => break,
            }
        }
        Err(busy())
    }

    /// Dead runs go on: the same run, the next attempt. Each stands for itself.
    pub async fn redrive(&self, tenant: TenantId, ids: &[RunId]) -> Result<Vec<Result<Run, Error>>, Error> {
        let now = self.clock.now();
        let mut owned = self.owned(tenant, ids).await?;
        // What has no room among those that wait stays a dead letter.
        let (mut intake, mut full) = (self.intake(), HashMap::new());
        for own in &mut owned {
            if let Some(id) = *own
                && let Err(cap) = intake.one(tenant)
            {
                full.insert(id, cap);
                *own = None;
            }
        }
        let mut refusals = HashMap::new();
        for (id, full) in full {
            refusals.insert(id, self.too_many(tenant, full).await?);
        }
        let known: Vec<RunId> = owned.iter().flatten().copied().collect();
        self.audit_runs(tenant, &known, "redrive", None).await?;
        let mut answers = self.heard(self.store.redrive(&known, now)).await?.into_iter();
        self.wakes.claimable();
        answers.as_slice().iter().flatten().for_each(|run| self.note_limited(run));
        Ok(owned
            .into_iter()
            .zip(ids)
            .map(|(own, id)| match own.and_then(|_| answers.next()) {
                Some(answer) => answer.map_err(|refused| refused_run(refused, *id)),
                None => Err(refusals.remove(id).unwrap_or_else(|| Error::RunNotFound(id.to_string()))),
            })
            .collect())
    }

    /// Dead runs stay as they are and leave the dead letters. Each stands for itself.
    pub async fn acknowledge(
        &self,
        tenant: TenantId,
        ids: &[RunId],
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let owned = self.owned(tenant, ids).await?;
        let known: Vec<RunId> = owned.iter().flatten().copied().collect();
        self.audit_runs(tenant, &known, "acknowledge", None).await?;
        let mut answers = self.store.acknowledge(&known).await?.into_iter();
        Ok(owned
            .into_iter()
            .zip(ids)
            .map(|(own, id)| match own.and_then(|_| answers.next()) {
                Some(answer) => answer.map_err(|refused| refused_run(refused, *id)),
                None => Err(Error::RunNotFound(id.to_string())),
            })
            .collect())
    }

    /// Those of the runs that are the tenant's, in their places.
    async fn owned(&self, tenant: TenantId, ids: &[RunId]) -> Result<Vec<Option<RunId>>, Error> {
        let mut owned = Vec::with_capacity(ids.len());
        for id in ids {
            let found = self.store.run(*id).await?;
            owned.push(found.filter(|detail| detail.run.tenant == tenant).map(|_| *id));
        }
        Ok(owned)
    }
}

pub(crate) fn refused_run(refused: Refused, id: RunId) -> Error {
    match refused {
        Refused::NoRun => Error::RunNotFound(id.to_string()),
        Refused::Lifecycle(refused) => Error::Run(refused),
        // Its job is gone: there is nothing to go on with.
        Refused::NoJob => Error::JobNotFound(format!("of run {id}")),
        Refused::StaleEpoch
        | Refused::Elsewhere
        | Refused::NotDue
        | Refused::WrongVersion { .. }
        | Refused::KeyTaken { .. }
        | Refused::StaleStep
        | Refused::DocumentChanged
        | Refused::CheckpointTooLarge
        | Refused::Overlap { .. }
        | Refused::Repeated => busy(),
    }
}

// Tenants and requests.
impl Engine {
    /// All tenants.
    pub async fn tenants(&self) -> Result<Vec<Tenant>, Error> {
        Ok(self.store.tenants().await?)
    }

    /// Creates a tenant, or finds the one of that name.
    pub async fn put_tenant(&self, name: &TenantName) -> Result<Tenant, Error> {
        if self.act.is_some() && !self.store.tenants().await?.iter().any(|known| known.name == *name) {
            let deed = Deed {
                tenant: TenantId::NOBODY,
                kind: "tenant",
                subject: name.as_str().into(),
                action: "create",
                before: None,
                after: Some(format!(r#"{{"name":"{name}"}}"#).into()),
            };
            self.audit_ahead(vec![deed]).await?;
        }
        Ok(self.store.put_tenant(name, self.clock.now()).await?)
    }

    /// The time zones in use.
    pub fn tzdb(&self) -> &Arc<Tzdb> {
        self.timetables.tzdb()
    }

    /// A request under an `Idempotency-Key`, to be remembered with what comes of it.
    pub fn request(&self, tenant: TenantId, key: String, fingerprint: [u8; 16]) -> Subject {
        Subject { tenant, key, fingerprint, expires_at: self.clock.now() + REMEMBERED, result: String::new() }
    }

    /// What came of a request, if it was made before.
    pub async fn remembered(&self, tenant: TenantId, key: &str) -> Result<Option<Subject>, Error> {
        Ok(self.store.request(tenant, key, self.clock.now()).await?)
    }

    /// Remembers what came of a request that no put or trigger remembers. If another one was quicker, that one's.
    pub async fn remember(&self, request: Subject) -> Result<Subject, Error> {
        let now = self.clock.now();
        match self.store.remember(vec![request.clone()], now).await?.into_iter().next() {
            Some(Ok(())) => Ok(request),
            _ => self.store.request(request.tenant, &request.key, now).await?.ok_or_else(busy),
        }
    }
}
