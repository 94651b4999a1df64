//! What is not well, as far as it can be told from what is stored.
//!
//! Part of every pass over alarms, by the owner of a job's shard, whatever was noticed when it happened. Promise: what nobody could notice,
//! because its node was killed or knew no alert, is found; a pass looks at so many and goes on where it was.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::alert::{self, ALARMS_MAX, Alert, Facts, On, Seen, Subject, Which};
use punctual_domain::id::{JobId, Sequence, TenantId};
use punctual_domain::job::Job;
use punctual_domain::policy::breaker::{Breaker, Of, Stage};
use punctual_domain::run::{Cause, RunState};
use punctual_store::{JobFilter, Page, PageRequest, RunFilter, Stored};

use crate::alarms::{Alarms, CHECKS, LOOK_EVERY};
use crate::alerts::{Noticed, PAGE};
use crate::engine::Engine;
use crate::error::Error;
use crate::fire::Epochs;
use crate::register::is_out_of_slots;

/// Pages of jobs that a pass goes through for one alert about silence.
const PAGES: usize = 5;

/// So many jobs are known not to be silent yet; about 20 MB.
const QUIET_MAX: usize = 100_000;

/// Dead letters that a pass goes through.
const DEAD: usize = 500;

/// Among so many of its newest runs a job's last success, death and slot on time are looked for.
const RECENT: usize = 20;

/// How far a node has come in looking through what is stored.
#[derive(Debug, Default)]
pub struct Rounds {
    pub(crate) dead_after: Option<Sequence>,
    /// The last job that was looked at of a page of dead letters that has more jobs than a pass looks at.
    pub(crate) dead_job: Option<JobId>,
    /// For each alert about silence: the job after which it goes on.
    pub(crate) silent_after: HashMap<(TenantId, String), JobId>,
    /// Passes so far: each begins with another of the alerts about silence, since one may need all that a pass looks at.
    pub(crate) passes: usize,
    /// Jobs that are not silent before a time, by alert.
    pub(crate) not_before: HashMap<(TenantId, String, JobId), Timestamp>,
    /// When alarms were last looked at.
    pub(crate) checked: HashMap<(TenantId, String), Timestamp>,
}

impl Engine {
    /// Goes through the dead letters, for those that died where nobody could notice.
    pub(crate) async fn see_dead_letters(
        &self,
        epochs: &Epochs,
        rounds: &mut Rounds,
        alerts: &[Alert],
        alarms: &Alarms,
        noticed: &mut Noticed,
        now: Timestamp,
    ) -> Result<(), Error> {
        let alerts: Vec<&Alert> = alerts.iter().filter(|alert| alert.on == On::DeadLetter).collect();
        if alerts.is_empty() {
            return Ok(());
        }
        let filter = RunFilter { is_dead: Some(true), ..RunFilter::default() };
        let from = rounds.dead_after;
        let page = PageRequest { after: from, limit: DEAD };
        let page = self.store.runs(&filter, page).await?;
        rounds.dead_after = page.next;
        let oldest = alerts.iter().map(|alert| alert.since).min();
        let mut jobs: BTreeMap<JobId, (TenantId, Timestamp)> = BTreeMap::new();
        for run in &page.items {
            let Some(ended) = run.finished_at.filter(|ended| Some(*ended) >= oldest) else { continue };
            if epochs.contains(run.job.shard()) {
                let (_, last) = jobs.entry(run.job).or_insert((run.tenant, ended));
                *last = ended.max(*last);
            }
        }
        let mut left = CHECKS;
        let mut last = None;
        let after = rounds.dead_job.take().map_or(Bound::Unbounded, Bound::Excluded);
        for (&id, &(tenant, died)) in jobs.range((after, Bound::Unbounded)) {
            let is_told = |alert: &&Alert| {
                let subject = Subject::Job(id);
                let name = alert::document(&alert.name, &subject);
                alarms.contains_key(&(alert.tenant, name))
                    || noticed.unwell.contains_key(&(alert.tenant, alert.name.clone(), subject))
            };
            let of_tenant = alerts.iter().copied().filter(|alert| alert.tenant == tenant);
            let untold: Vec<&Alert> = of_tenant.filter(|alert| !is_told(alert)).collect();
            if untold.is_empty() {
                continue;
            }
            if left == 0 {
                rounds.dead_after = from; // The next pass goes on with this page, after the last job that this one looked at.
                rounds.dead_job = last;
                break;
            }
            left -= 1;
            last = Some(id);
            let Some((job, mut facts)) = self.facts(id, On::DeadLetter, now).await? else { continue };
            facts.dead_at = facts.dead_at.max(Some(died));
            for alert in untold {
                if alert.jobs.takes(&job) && alert::is_unwell(alert, &facts, now) {
                    let died = facts.dead_at.map(|at| at.to_string()).unwrap_or_default();
                    let detail = format!("a run is a dead letter since {died}");
                    let about = (alert.tenant, alert.name.clone(), Subject::Job(id));
                    noticed.add(about, seen(&job, detail, now));
                }
            }
        }
        Ok(())
    }

    /// Goes through the jobs that may be silent, a few at a time.
    pub(crate) async fn see_silence(
        &self,
        epochs: &Epochs,
        rounds: &mut Rounds,
        alerts: &[Alert],
        alarms: &Alarms,
        noticed: &mut Noticed,
        now: Timestamp,
    ) -> Result<(), Error> {
        let mut left = CHECKS;
        let mut silent: Vec<(&Alert, Duration)> = Vec::new();
        for alert in alerts {
            if let On::Silent { after } = alert.on {
                silent.push((alert, after));
            }
        }
        let first = rounds.passes.checked_rem(silent.len()).unwrap_or_default();
        silent.rotate_left(first);
        rounds.passes = rounds.passes.wrapping_add(1);
        let mut is_full = false;
        for (alert, after) in silent {
            for _ in 0..PAGES {
                let place = (alert.tenant, alert.name.clone());
                let from = rounds.silent_after.get(&place).copied();
                let page = self.named(alert, PageRequest { after: from, limit: PAGE }).await?;
                let mut next = page.next;
                let mut last = from;
                for stored in &page.items {
                    let job = &stored.job;
                    let before = last.replace(job.id);
                    let about = (alert.tenant, alert.name.clone(), Subject::Job(job.id));
                    let name = alert::document(&alert.name, &about.2);
                    let is_known = alarms.contains_key(&(alert.tenant, name));
                    if is_known || !epochs.contains(job.id.shard()) || !alert.jobs.takes(job) {
                        continue;
                    }
                    let memo = (alert.tenant, alert.name.clone(), job.id);
                    if rounds.not_before.get(&memo).is_some_and(|at| now < *at) {
                        continue;
                    }
                    if left == 0 {
                        next = before; // The next pass goes on with this one.
                        is_full = true;
                        break;
                    }
                    left -= 1;
                    let Some((job, facts)) = self.facts(job.id, alert.on, now).await? else { continue };
                    if alert::is_unwell(alert, &facts, now) {
                        let detail = match facts.succeeded_at {
                            Some(at) => format!("no success since {at}"),
                            None => format!("no success yet, registered {}", job.created_at),
                        };
                        noticed.add(about, seen(&job, detail, now));
                        continue;
                    }
                    let quiet = facts.succeeded_at.unwrap_or(job.created_at).max(alert.since);
                    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
                    let not_before = match facts.is_active {
                        true => quiet.checked_add(after).unwrap_or(Timestamp::MAX),
                        false => now + LOOK_EVERY * 12, // It may be resumed.
                    };
                    if rounds.not_before.len() >= QUIET_MAX {
                        rounds.not_before.clear();
                    }
                    rounds.not_before.insert(memo, not_before);
                }
                match next {
                    Some(next) => drop(rounds.silent_after.insert(place, next)),
                    None => drop(rounds.silent_after.remove(&place)),
                }
                if next.is_none() || is_full {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The active jobs that an alert names, in pages.
    async fn named(&self, alert: &Alert, page: PageRequest<JobId>) -> Result<Page<Stored, JobId>, Error> {
        let Which { job, key, kind, queue, labels } = &alert.jobs;
        let one = match (job, key) {
            (Some(id), _) => Some(Some(*id)),
            (None, Some(key)) => Some(self.store.job_by_key(alert.tenant, key).await?),
            (None, None) => None,
        };
        if let Some(id) = one {
            let ids: Vec<JobId> = id.into_iter().collect();
            let found = self.store.jobs(&ids).await?.into_iter().flatten();
            // Whoever knows the id of another tenant's job learns nothing of it.
            let items = found.filter(|stored| stored.job.tenant == alert.tenant).collect();
            return Ok(Page { items, next: None });
        }
        let filter = JobFilter {
            tenant: Some(alert.tenant),
            state: Some("active"),
            kind: kind.clone(),
            queue: queue.as_deref().map(Into::into),
            labels: labels.clone(),
            ..JobFilter::default()
        };
        Ok(self.store.list_jobs(&filter, page).await?)
    }

    /// Breakers that are open. One of a destination concerns all who call it: the tenant `default`, whose the installation is, hears of
    /// it. One of a job is its tenant's.
    pub(crate) async fn see_breakers(
        &self,
        epochs: &Epochs,
        alerts: &[Alert],
        alarms: &Alarms,
        noticed: &mut Noticed,
        now: Timestamp,
    ) -> Result<(), Error> {
        let alerts: Vec<&Alert> = alerts.iter().filter(|alert| alert.on == On::BreakerOpen).collect();
        if alerts.is_empty() {
            return Ok(());
        }
        let is_open = |breaker: &Arc<Breaker>| matches!(breaker.stage, Stage::Open { .. });
        let open: Vec<Arc<Breaker>> =
            self.breakers.all().into_iter().filter(is_open).take(ALARMS_MAX).collect();
        let of_jobs = open.iter().filter_map(|breaker| match breaker.of {
            Of::Job(id) => Some(id),
            Of::Destination(_) => None,
        });
        let of_jobs: Vec<JobId> = of_jobs.collect();
        let jobs: HashMap<JobId, Arc<Job>> = match of_jobs.is_empty() {
            true => HashMap::new(),
            false => {
                let found = self.store.jobs(&of_jobs).await?.into_iter().flatten();
                found.map(|stored| (stored.job.id, stored.job)).collect()
            }
        };
        for breaker in open {
            let name = breaker.of.name();
            let subject = Subject::Breaker(name.clone());
            for alert in &alerts {
                let document = alert::document(&alert.name, &subject);
                let is_ours = epochs.contains(self.shard_of_alarm(alert.tenant, &document));
                if !is_ours || alarms.contains_key(&(alert.tenant, document)) {
                    continue;
                }
                let is_of_alert = match &breaker.of {
                    Of::Destination(_) => alert.tenant == TenantId::DEFAULT && alert.jobs.is_all(),
                    Of::Job(id) => {
                        let takes = |job: &Arc<Job>| job.tenant == alert.tenant && alert.jobs.takes(job);
                        jobs.get(id).is_some_and(takes)
                    }
                };
                if is_of_alert {
                    let cause = breaker.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
                    let detail = format!("the breaker of `{name}` is open since {}{cause}", breaker.since);
                    let seen = Seen { name: name.clone(), last_at: now, count: 1, detail };
                    noticed.add((alert.tenant, alert.name.clone(), subject.clone()), seen);
                }
            }
        }
        Ok(())
    }

    /// Whether a breaker has closed, or never was one that was told of.
    pub(crate) fn is_closed(&self, name: &str) -> bool {
        self.breakers.named(name).is_none_or(|breaker| matches!(breaker.stage, Stage::Crowded { .. }))
    }

    /// What is known of a job, as far as the alert needs it; nothing if it is gone.
    pub(crate) async fn facts(
        &self,
        id: JobId,
        on: On,
        now: Timestamp,
    ) -> Result<Option<(Arc<Job>, Facts)>, Error> {
        let Some(stored) = self.store.jobs(&[id]).await?.into_iter().next().flatten() else {
            return Ok(None);
        };
        let job = Arc::clone(&stored.job);
        let newest = |filter: RunFilter| async move {
            let filter = RunFilter { job: Some(id), ..filter };
            self.store.runs(&filter, PageRequest::first(RECENT)).await
        };
        let days = job.spec.policies.retention.keep.of(RunState::Succeeded).days();
        let kept = Some(Duration::from_secs(u64::from(days) * 24 * 3600));
        let mut facts = Facts { created_at: Some(job.created_at), kept, ..Facts::default() };
        self.learn(self.unread([&*job])).await?;
        let timetable = self.timetables.of(&job);
        let is_out = timetable.is_ok_and(|timetable| is_out_of_slots(&stored, &timetable, now));
        facts.is_active = job.is_active() && !is_out;
        if let On::Missed | On::Late { .. } = on {
            let runs = newest(RunFilter::default()).await?.items;
            let is_on_time = |late: SignedDuration| match on {
                On::Late { over } => late.unsigned_abs() <= over,
                _ => true,
            };
            facts.on_time = runs
                .iter()
                .filter(|run| matches!(run.cause, Cause::Schedule | Cause::Batch))
                .filter(|run| self.lateness(&job, run).is_some_and(is_on_time))
                .map(|run| run.scheduled_for)
                .max();
            return Ok(Some((job, facts)));
        }
        if on == On::DeadLetter {
            let dead = newest(RunFilter { is_dead: Some(true), ..RunFilter::default() }).await?;
            facts.dead_at = dead.items.iter().filter_map(|run| run.finished_at).max();
            // A page ends after so many rows, also without having found anything.
            facts.is_dead_unknown = dead.items.is_empty() && dead.next.is_some();
        }
        let well = newest(RunFilter { state: Some("succeeded"), ..RunFilter::default() }).await?;
        facts.succeeded_at = well.items.iter().filter_map(|run| run.finished_at).max();
        Ok(Some((job, facts)))
    }
}

fn seen(job: &Job, detail: String, now: Timestamp) -> Seen {
    Seen { name: job.spec.name.clone(), last_at: now, count: 1, detail }
}
