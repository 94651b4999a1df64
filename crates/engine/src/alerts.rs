//! Alerts: what people want to be told of, and what this node notices of it.
//!
//! Notices are taken where runs are fired and end, in memory, and become alarms within a second (see [`crate::alarms`]). Promise: without an
//! alert a notice is one look at a flag; however much happens, what is kept in memory is bounded.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use punctual_domain::Report;
use punctual_domain::alert::{Alarm, Alert, On, Seen, Subject};
use punctual_domain::audit::Entry;
use punctual_domain::document::Kind;
use punctual_domain::id::{JobId, TenantId};
use punctual_domain::job::Job;
use punctual_domain::run::{Cause, Limit, Run, RunState};
use punctual_store::record::{decode_alarm, decode_alert, encode_alert};
use punctual_store::{DocumentChange, Expected};
use tokio::sync::Notify;

use crate::audit::{Done, Thing};
use crate::engine::Engine;
use crate::error::Error;
use crate::register::spread;

/// Alerts of all tenants together that are looked at: each is held against every end of a run.
const ALERTS_MAX: usize = 10_000;

/// Documents that are read at a time.
pub(crate) const PAGE: usize = 1_000;

/// Subjects of an alert that are noticed between two passes, more than are ever told one by one.
const NOTICED_MAX: usize = 10_000;

/// What this node knows of alerts, and what it noticed.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    alerts: Mutex<Arc<[Alert]>>,
    is_any: AtomicBool,
    noticed: Mutex<Noticed>,
    /// Something is to be looked at.
    pub(crate) wakes: Arc<Notify>,
    /// Alerts were changed on this node.
    pub(crate) is_changed: AtomicBool,
    /// Jobs that have an alarm.
    pub(crate) raised: Mutex<HashSet<JobId>>,
}

/// An alert of a tenant, and what is not well.
pub(crate) type About = (TenantId, String, Subject);

/// What was noticed since the last pass.
#[derive(Debug, Default)]
pub(crate) struct Noticed {
    /// What was not well.
    pub(crate) unwell: HashMap<About, Seen>,
    /// Jobs with an alarm of which a run succeeded.
    pub(crate) well: HashSet<JobId>,
}

impl Noticed {
    pub(crate) fn add(&mut self, (tenant, alert, subject): About, seen: Seen) {
        let is_room = self.unwell.len() < NOTICED_MAX;
        let about = (tenant, alert, subject);
        let about = match is_room || self.unwell.contains_key(&about) {
            true => about,
            false => (about.0, about.1, Subject::Rest),
        };
        match self.unwell.get_mut(&about) {
            Some(known) => {
                known.count = known.count.saturating_add(seen.count);
                if seen.last_at >= known.last_at {
                    (known.last_at, known.detail) = (seen.last_at, seen.detail);
                }
            }
            None => drop(self.unwell.insert(about, seen)),
        }
    }
}

impl Watched {
    pub(crate) fn all(&self) -> Arc<[Alert]> {
        Arc::clone(&self.alerts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Those of a tenant.
    fn of(&self, tenant: TenantId, mut each: impl FnMut(&Alert)) {
        let all = self.all();
        let first = all.partition_point(|alert| alert.tenant < tenant);
        all[first..].iter().take_while(|alert| alert.tenant == tenant).for_each(&mut each);
    }

    fn set(&self, mut alerts: Vec<Alert>) {
        alerts.sort_by_key(|alert| alert.tenant);
        self.is_any.store(!alerts.is_empty(), Ordering::Release);
        *self.alerts.lock().unwrap_or_else(PoisonError::into_inner) = alerts.into();
    }

    pub(crate) fn noticed(&self) -> MutexGuard<'_, Noticed> {
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_raised(&self, job: JobId) -> bool {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).contains(&job)
    }
}

// What people ask for.
impl Engine {
    /// All alerts of a tenant, by name.
    pub async fn alerts(&self, tenant: TenantId) -> Result<Vec<Alert>, Error> {
        let documents = self.store.documents(Kind::Alert, Some(tenant), None, PAGE).await?;
        Ok(documents.iter().map(decode_alert).collect::<Result<_, _>>()?)
    }

    /// An alert.
    pub async fn alert(&self, tenant: TenantId, name: &str) -> Result<Alert, Error> {
        let document = self.store.document(Kind::Alert, tenant, name).await?;
        let document = document.ok_or_else(|| Error::AlertNotFound(name.into()))?;
        Ok(decode_alert(&document)?)
    }

    /// Sets an alert. The answer says whether it is new.
    pub async fn put_alert(&self, alert: &Alert) -> Result<bool, Error> {
        let known = self.store.document(Kind::Alert, alert.tenant, &alert.name).await?;
        let of_tenant = self.store.documents(Kind::Alert, Some(alert.tenant), None, PAGE).await?.len();
        if known.is_none() && of_tenant >= PAGE {
            return Err(Error::TooManyAlerts);
        }
        let body = encode_alert(alert)?;
        // The same again changes nothing: what happened since is told.
        if known.as_ref().is_none_or(|known| known.body != body) {
            let old = known.as_ref().map(decode_alert).transpose()?;
            let audit = self.audited_alert(old.as_ref(), Some(alert));
            self.change_document(Kind::Alert, alert.tenant, &alert.name, Some(body), audit).await?;
        }
        self.read_alerts().await?;
        Ok(known.is_none())
    }

    /// Takes an alert away, with its alarms: nobody is told any more. The answer says whether it was there.
    pub async fn delete_alert(&self, tenant: TenantId, name: &str) -> Result<bool, Error> {
        let known = self.store.document(Kind::Alert, tenant, name).await?;
        let was_there = known.is_some();
        if let Some(known) = known {
            let audit = self.audited_alert(Some(&decode_alert(&known)?), None);
            self.change_document(Kind::Alert, tenant, name, None, audit).await?;
            let alarms = self.alarms(tenant, None, usize::MAX).await?;
            for alarm in alarms.iter().filter(|alarm| alarm.alert == name) {
                self.change_document(Kind::Alarm, tenant, &alarm.document(), None, None).await?;
            }
        }
        self.read_alerts().await?;
        Ok(was_there)
    }

    /// What is raised now, by alert and subject; at most so many, after the document of this name.
    pub async fn alarms(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<Alarm>, Error> {
        let mut after = after.map(|name| (tenant, name));
        let mut alarms = Vec::new();
        while alarms.len() < limit {
            let most = PAGE.min(limit - alarms.len());
            let page = self.store.documents(Kind::Alarm, Some(tenant), after, most).await?;
            after = page.last().map(|last| (tenant, last.name.clone()));
            let is_last = page.len() < most;
            alarms.extend(page.iter().map(decode_alarm).collect::<Result<Vec<_>, _>>()?);
            if is_last {
                break;
            }
        }
        Ok(alarms)
    }

    async fn change_document(
        &self,
        kind: Kind,
        tenant: TenantId,
        name: &str,
        body: Option<Box<str>>,
        audit: Option<Box<Entry>>,
    ) -> Result<(), Error> {
        let change = DocumentChange { kind, tenant, name: name.into(), expect: Expected::Any, body, audit };
        // Whatever is there is expected, so nothing is refused.
        self.heard(self.store.put_documents(vec![change], self.clock.now())).await?;
        Ok(())
    }

    fn audited_alert(&self, before: Option<&Alert>, after: Option<&Alert>) -> Option<Box<Entry>> {
        let about = after.or(before)?;
        let done = Done {
            tenant: about.tenant,
            kind: "alert",
            subject: &about.name,
            action: None,
            before: before.map(Thing::Alert),
            after: after.map(Thing::Alert),
        };
        self.audited(&done, self.clock.now())
    }

    /// Reads the alerts of all tenants anew. One that cannot be read is said so, and the others count.
    pub async fn read_alerts(&self) -> Result<(), Error> {
        let (mut alerts, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.documents(Kind::Alert, None, after, PAGE).await?;
            after = page.last().map(|last| (last.tenant, last.name.clone()));
            for document in &page {
                match decode_alert(document) {
                    Ok(alert) => alerts.push(alert),
                    Err(error) => tracing::warn!(alert = document.name, %error, "an alert cannot be read"),
                }
            }
            if page.len() < PAGE || alerts.len() >= ALERTS_MAX {
                break;
            }
        }
        self.alerts.set(alerts);
        self.alerts.is_changed.store(true, Ordering::Release);
        self.alerts.wakes.notify_one();
        Ok(())
    }
}

// What is noticed.
impl Engine {
    /// An attempt ended: `before` is the run as it was claimed.
    pub(crate) fn notice_end(&self, job: &Job, before: &Run, run: &Run, report: Option<&Report>) {
        if !self.alerts.is_any.load(Ordering::Acquire) {
            return;
        }
        let now = self.clock.now();
        if run.state == RunState::Succeeded && self.alerts.is_raised(job.id) {
            self.alerts.noticed().well.insert(job.id);
            self.alerts.wakes.notify_one();
        }
        let is_first = before.started_at.is_none() && run.cause == Cause::Schedule;
        self.notice(
            job,
            |on| match on {
                On::DeadLetter if run.state.is_dead() => Some((1, died(run, report))),
                On::Late { over } if is_first => {
                    let late = self.lateness(job, run).filter(|late| late.unsigned_abs() > over)?;
                    let (slot, late) = (run.scheduled_for, late.as_secs_f64());
                    Some((1, format!("run {} for {slot} started {late:.1} s late", run.id())))
                }
                _ => None,
            },
            now,
        );
    }

    /// A run did not start in time.
    pub(crate) fn notice_lapsed(&self, job: &Job, run: &Run) {
        if !self.alerts.is_any.load(Ordering::Acquire) {
            return;
        }
        let reason = run.reason.map_or("too late", Limit::as_str);
        self.notice(
            job,
            |on| match on {
                On::DeadLetter if run.state.is_dead() => Some((1, died(run, None))),
                On::Missed if run.state == RunState::Missed => Some((
                    1,
                    format!("run {} for {} did not start in time ({reason})", run.id(), run.scheduled_for),
                )),
                _ => None,
            },
            self.clock.now(),
        );
    }

    /// Slots of a job became no runs, because it was too late for them.
    pub(crate) fn notice_missed(&self, job: &Job, slots: u64, now: Timestamp) {
        if slots == 0 || !self.alerts.is_any.load(Ordering::Acquire) {
            return;
        }
        let what = if slots == 1 { "slot was" } else { "slots were" };
        self.notice(
            job,
            |on| match on {
                On::Missed => Some((slots, format!("{slots} {what} missed, as its catch-up policy says"))),
                _ => None,
            },
            now,
        );
    }

    fn notice(&self, job: &Job, what: impl Fn(On) -> Option<(u64, String)>, now: Timestamp) {
        let mut is_noticed = false;
        self.alerts.of(job.tenant, |alert| {
            if !alert.jobs.takes(job) {
                return;
            }
            let Some((count, detail)) = what(alert.on) else { return };
            let seen = Seen { name: job.spec.name.clone(), last_at: now, count, detail };
            let about = (alert.tenant, alert.name.clone(), Subject::Job(job.id));
            self.alerts.noticed().add(about, seen);
            is_noticed = true;
        });
        if is_noticed {
            self.alerts.wakes.notify_one();
        }
    }

    /// How late a run started after it was due.
    pub(crate) fn lateness(&self, job: &Job, run: &Run) -> Option<SignedDuration> {
        // Calendars say nothing about the spread, and this node may not have read them.
        let spread = self.timetables.bare(job).map(|timetable| spread(&timetable)).ok()?;
        run.lateness(run.scheduled_for.checked_add(spread).ok()?)
    }
}

fn died(run: &Run, report: Option<&Report>) -> String {
    let attempts = if run.attempt == 1 { "attempt" } else { "attempts" };
    let error = report.and_then(|report| report.error.as_ref());
    let why = match (error, run.reason) {
        (Some(error), _) => format!(": {}", error.message.chars().take(200).collect::<String>()),
        (None, Some(limit)) => format!(": {}", limit.as_str()),
        (None, None) => String::new(),
    };
    format!("run {} {} after {} {attempts}{why}", run.id(), run.state.as_str(), run.attempt)
}
