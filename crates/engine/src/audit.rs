//! The audit: what is written of a change that somebody asks for.
//!
//! An engine that acts for somebody ([`Engine::acting`]) makes an entry wherever it decides a change. Promise: what is carried by a put, a
//! document, a trigger or a step is in its commit; the rest is durable before the change begins. What nodes do by themselves has no entry:
//! it follows from what somebody asked for before.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use punctual_domain::audit::{Deed, Entry, EntryId, Filter, Who, bounded};
use punctual_domain::id::{JobId, RunId, TenantId, Version};
use punctual_domain::job::{Job, JobState};
use punctual_domain::key::{Key, KeyId};
use punctual_domain::operation::Operation;
use punctual_domain::policy::breaker::Breaker;
use punctual_domain::policy::limit::Rule;
use punctual_domain::{Document, alert};
use punctual_schedule::calendar::Calendar;
use punctual_store::{Page, PageRequest};

use crate::engine::Engine;
use crate::error::Error;

/// Something that is shown as it is before a change and after it.
#[derive(Clone, Copy, Debug)]
pub enum Thing<'a> {
    /// A job.
    Job(&'a Job),
    /// A calendar.
    Calendar(&'a Calendar),
    /// An alert.
    Alert(&'a alert::Alert),
    /// What holds for jobs that do not say.
    Defaults(&'a str),
    /// A key, of which nobody sees what proves it.
    Key(&'a Key),
    /// A limit of administrators.
    Limit(&'a Rule),
    /// A breaker.
    Breaker(&'a Breaker),
    /// An operation.
    Operation(&'a Operation),
}

/// Shows things as whoever is asked later will see them: as JSON, with secrets covered.
pub trait Show: Send + Sync {
    /// The text; nothing if it cannot be shown.
    fn show(&self, thing: Thing<'_>) -> Option<Box<str>>;
}

/// For whom an engine acts.
#[derive(Clone)]
pub struct Act {
    /// Who.
    pub who: Who,
    /// From which address.
    pub from: Option<Box<str>>,
    /// Under which request id.
    pub request_id: Option<Box<str>>,
    /// How things are shown.
    pub show: Arc<dyn Show>,
}

impl Act {
    fn shown(&self, thing: Thing<'_>) -> Option<Box<str>> {
        self.show.show(thing).map(bounded)
    }

    fn entry(&self, deed: Deed, id: EntryId) -> Entry {
        Entry {
            id,
            tenant: deed.tenant,
            kind: deed.kind.into(),
            subject: deed.subject,
            action: deed.action.into(),
            who: self.who.clone(),
            from: self.from.clone(),
            request_id: self.request_id.clone(),
            before: deed.before,
            after: deed.after,
        }
    }
}

/// What was done to a thing that was there, is there, or both.
pub(crate) struct Done<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) kind: &'static str,
    pub(crate) subject: &'a str,
    /// None: it follows from what was there.
    pub(crate) action: Option<&'static str>,
    pub(crate) before: Option<Thing<'a>>,
    pub(crate) after: Option<Thing<'a>>,
}

/// A version of a job, as the audit tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobVersion {
    /// The entry that brought it; none if no entry did, or it is forgotten.
    pub entry: Option<Entry>,
    /// The job as it was shown.
    pub job: Option<Box<str>>,
}

// What people ask for.
impl Engine {
    /// The same engine, acting for somebody: what it changes is in the audit under that name.
    #[must_use]
    pub fn acting(&self, act: Act) -> Engine {
        Engine { act: Some(Arc::new(act)), ..self.clone() }
    }

    /// Entries of the audit, newest first. A page may be empty and still have a next one.
    pub async fn audit(
        &self,
        filter: &Filter,
        page: PageRequest<EntryId>,
    ) -> Result<Page<Entry, EntryId>, Error> {
        Ok(self.store.audit(filter, page).await?)
    }

    /// Entries about a job of a tenant, newest first. Of a deleted job they are there as long as they are kept.
    pub async fn job_audit(
        &self,
        tenant: TenantId,
        job: JobId,
        page: PageRequest<EntryId>,
    ) -> Result<Page<Entry, EntryId>, Error> {
        let (kind, subject) = (Some("job".into()), Some(job.to_string().into()));
        self.audit(&Filter { tenant: Some(tenant), kind, subject, ..Filter::default() }, page).await
    }

    /// Writes an entry about something that is done to many things at once.
    pub async fn note_deed(&self, deed: Deed) -> Result<(), Error> {
        self.audit_ahead(vec![deed]).await
    }

    /// What a key is called that was good.
    pub fn key_name(&self, id: KeyId) -> Option<String> {
        self.keyring.known().keys.get(&id).map(|entry| entry.key.name.clone())
    }
}

// What the steps ask for.
impl Engine {
    /// The entry of a change, to be carried by it; none if the engine acts for nobody.
    pub(crate) fn audited(&self, done: &Done<'_>, now: Timestamp) -> Option<Box<Entry>> {
        let act = self.act.as_ref()?;
        let action = done.action.unwrap_or(match (done.before, done.after) {
            (None, _) => "create",
            (Some(_), Some(_)) => "edit",
            (Some(_), None) => "delete",
        });
        let deed = Deed {
            tenant: done.tenant,
            kind: done.kind,
            subject: done.subject.into(),
            action,
            before: done.before.and_then(|thing| act.shown(thing)),
            after: done.after.and_then(|thing| act.shown(thing)),
        };
        Some(Box::new(act.entry(deed, self.entry_id(now))))
    }

    /// A new id. Those of one node are in the order in which they are made.
    fn entry_id(&self, now: Timestamp) -> EntryId {
        EntryId::new(now, self.entries.fetch_add(1, Ordering::Relaxed), self.entropy.bits())
    }

    /// The entry of a change of a job.
    pub(crate) fn audited_job(
        &self,
        before: Option<&Job>,
        after: &Job,
        now: Timestamp,
    ) -> Option<Box<Entry>> {
        self.act.as_ref()?;
        let is_deleted = after.state == JobState::Deleted;
        self.audited(
            &Done {
                tenant: after.tenant,
                kind: "job",
                subject: &after.id.to_string(),
                action: Some(action(before, after)),
                before: before.map(Thing::Job),
                after: (!is_deleted).then_some(Thing::Job(after)),
            },
            now,
        )
    }

    /// The entry of an operation that is started or cancelled.
    pub(crate) fn audited_operation(
        &self,
        action: &'static str,
        before: Option<&Operation>,
        after: &Operation,
        now: Timestamp,
    ) -> Option<Box<Entry>> {
        let done = Done {
            tenant: after.tenant,
            kind: "operation",
            subject: &after.id.to_string(),
            action: Some(action),
            before: before.map(Thing::Operation),
            after: Some(Thing::Operation(after)),
        };
        self.audited(&done, now)
    }

    /// Writes entries before what they tell of is done.
    pub(crate) async fn audit_ahead(&self, deeds: Vec<Deed>) -> Result<(), Error> {
        let Some(act) = &self.act else { return Ok(()) };
        let now = self.clock.now();
        let entry = |deed| act.entry(deed, self.entry_id(now));
        let entries: Vec<Entry> = deeds.into_iter().map(entry).collect();
        match entries.is_empty() {
            true => Ok(()),
            false => self.heard(self.store.append_audit(entries)).await,
        }
    }

    /// The same for something that is shown.
    pub(crate) async fn audit_thing(&self, done: Done<'_>) -> Result<(), Error> {
        match self.audited(&done, self.clock.now()) {
            Some(entry) => self.heard(self.store.append_audit(vec![*entry])).await,
            None => Ok(()),
        }
    }

    /// The same for runs of a tenant: those that are there, with the state that they are in.
    pub(crate) async fn audit_runs(
        &self,
        tenant: TenantId,
        runs: &[RunId],
        action: &'static str,
        after: Option<&str>,
    ) -> Result<(), Error> {
        if self.act.is_none() {
            return Ok(());
        }
        let mut deeds = Vec::with_capacity(runs.len());
        for id in runs {
            let Some(found) = self.store.run(*id).await? else { continue };
            if found.run.tenant == tenant {
                let before = format!(r#"{{"state":"{}"}}"#, found.run.state.as_str());
                deeds.push(Deed {
                    tenant,
                    kind: "run",
                    subject: id.to_string().into(),
                    action,
                    before: Some(before.into()),
                    after: after.map(Into::into),
                });
            }
        }
        self.audit_ahead(deeds).await
    }

    /// The entry of a document that is changed from one body to another.
    pub(crate) fn audited_defaults(
        &self,
        tenant: TenantId,
        old: Option<&Document>,
        body: Option<&str>,
        now: Timestamp,
    ) -> Option<Box<Entry>> {
        let before = old.map(|old| Thing::Defaults(&old.body));
        let after = body.map(Thing::Defaults);
        self.audited(&Done { tenant, kind: "defaults", subject: "job", action: None, before, after }, now)
    }
}

/// What a change of a job is called.
fn action(before: Option<&Job>, after: &Job) -> &'static str {
    let Some(before) = before else { return "create" };
    let is_cancelled = |job: &Job| job.spec.batch.as_ref().is_some_and(|batch| batch.cancelled_at.is_some());
    match (&before.state, &after.state) {
        (_, JobState::Deleted) => "delete",
        (JobState::Paused(_), JobState::Active) => "resume",
        (old, JobState::Paused(_)) if *old != after.state => "pause",
        _ if is_cancelled(after) && !is_cancelled(before) => "cancel",
        _ => "edit",
    }
}

/// The versions of a job that entries tell of, newest first, with those in between that none of them brought.
///
/// `newest` is the job as it is, if the first of these entries is the newest; `is_whole` says that there are no older entries. `version`
/// reads the version of a job that is shown.
pub fn versions(
    entries: Vec<Entry>,
    newest: Option<(Version, Box<str>)>,
    is_whole: bool,
    version: impl Fn(&str) -> Option<u32>,
) -> Vec<JobVersion> {
    let mut told = Vec::with_capacity(entries.len() + 1);
    // What the version above was made from, if nobody has told it yet.
    let mut before = newest.map(|(_, job)| job);
    for mut entry in entries {
        let (found, below) = (entry.after.take(), entry.before.take());
        let is_gap = match (&before, &found) {
            (Some(above), Some(found)) => match (version(above), version(found)) {
                (Some(above), Some(found)) => above != found,
                _ => false, // One of them was too large to be kept.
            },
            (Some(_), None) => true,
            (None, _) => false,
        };
        if is_gap {
            told.push(JobVersion { entry: None, job: before.take() });
        }
        told.push(JobVersion { entry: Some(entry), job: found });
        before = below;
    }
    if is_whole && before.is_some() {
        told.push(JobVersion { entry: None, job: before });
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(before: Option<u32>, after: Option<u32>) -> Entry {
        let text = |version: Option<u32>| version.map(|version| version.to_string().into_boxed_str());
        Entry {
            id: EntryId { at: 1, number: 1 },
            tenant: TenantId::DEFAULT,
            kind: "job".into(),
            subject: "a".into(),
            action: "edit".into(),
            who: Who::loopback(),
            from: None,
            request_id: None,
            before: text(before),
            after: text(after),
        }
    }

    /// Versions as they are told; in brackets those that no entry brought.
    fn told(newest: Option<u32>, entries: &[(Option<u32>, Option<u32>)], is_whole: bool) -> String {
        let entries = entries.iter().map(|(before, after)| entry(*before, *after)).collect();
        let newest = newest.map(|version| (Version(version), version.to_string().into_boxed_str()));
        let told = versions(entries, newest, is_whole, |text| text.parse().ok());
        let one = |version: JobVersion| {
            let text = version.job.as_deref().unwrap_or("gone").to_string();
            if version.entry.is_some() { text } else { format!("({text})") }
        };
        told.into_iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn versions_are_told_with_those_that_no_entry_brought() {
        let created = (None, Some(1));
        let edited = (Some(1), Some(2));
        assert_eq!(told(Some(1), &[created], true), "1");
        assert_eq!(told(Some(2), &[edited, created], true), "2 1");
        assert_eq!(told(Some(1), &[], true), "(1)", "it was imported");
        assert_eq!(told(Some(2), &[edited], true), "2 (1)", "it was imported, and edited");
        assert_eq!(
            told(Some(4), &[(Some(2), Some(3)), edited, created], true),
            "(4) 3 2 1",
            "its pause ended"
        );
        assert_eq!(told(Some(4), &[(Some(3), Some(4)), edited, created], true), "4 (3) 2 1");
        assert_eq!(told(None, &[(Some(2), None), edited, created], true), "gone 2 1", "it was deleted");
        assert_eq!(told(Some(3), &[(Some(2), Some(3))], false), "3", "the next page tells of the second");
    }
}
