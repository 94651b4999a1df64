//! Register: jobs, keys, requests, triggers.

use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::id::{JobId, TenantId, Version};
use punctual_domain::job::{Job, JobState};
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::run::RunState;
use punctual_schedule::Progress;

use super::state::State;
use crate::admission::Admission;
use crate::audit::of_run;
use crate::error::Refused;
use crate::page::{Page, PageRequest};
use crate::verbs::{
    Carry, CarryTo, Due, DueWhen, Expect, JobFilter, OpenRuns, Planned, Put, Stored, Subject, Trigger,
    ledger_entry,
};

impl State {
    pub(super) fn put_job(&mut self, mut put: Put, now: Timestamp) -> Result<Option<Run>, Refused> {
        let (id, tenant) = (put.job.id, put.job.tenant);
        let old = self.jobs.get(&id).cloned();
        match (put.expect, &old) {
            (Expect::Absent, None) => {}
            (Expect::Absent, Some(stored)) => {
                return Err(Refused::WrongVersion { current: stored.job.version });
            }
            (Expect::Version(_), None) => return Err(Refused::NoJob),
            (Expect::Version(version), Some(stored)) if stored.job.version != version => {
                return Err(Refused::WrongVersion { current: stored.job.version });
            }
            (Expect::Version(_), Some(_)) => {}
        }
        if !put.unfired.is_empty() && !put.unfired.iter().any(|entry| self.is_due(entry)) {
            return Err(Refused::NotDue);
        }
        if let Some(key) = &put.job.spec.key
            && let Some(other) = self.keys.get(&(tenant, key.clone()))
            && *other != id
        {
            return Err(Refused::KeyTaken { by: *other });
        }
        self.remember(put.request.take(), now)?;
        self.append(put.audit.take());

        let progress = old.as_ref().map_or(Progress::default(), |stored| stored.progress);
        if let Some(stored) = old {
            if let Some(key) = &stored.job.spec.key {
                self.keys.remove(&(tenant, key.clone()));
            }
            self.old_versions.insert((id, stored.job.version), stored);
        }
        let stored = Stored { job: Arc::clone(&put.job), progress };
        if let Some(key) = stored.job.spec.key.clone().filter(|_| stored.job.state != JobState::Deleted) {
            self.keys.insert((tenant, key), id);
        }
        self.jobs.insert(id, stored.clone());
        self.change_open_runs(&stored, &put, now);
        if put.lets_overlap {
            self.release_all(id, now);
        }
        for entry in &put.ledger {
            self.ledger.insert((entry.job, entry.from), entry.clone());
        }
        let carried = put.carry.as_ref().and_then(|carry| self.carry(&stored.job, carry, now));
        for entry in &put.unfired {
            self.due.remove(&(entry.key, entry.version));
        }
        let has_open_runs = put.due_when == DueWhen::Idle && self.has_open_runs(id);
        let taken = carried.or(put.due.filter(|_| put.is_wanted(has_open_runs)));
        if let Some(due) = taken {
            self.announce_due(due, now);
        }
        if put.is_over(taken, has_open_runs) {
            self.end_job(id, stored.job.version, stored.job.spec.policies.retention.keep.at_birth(), now);
        }
        let born = match put.birth {
            Some(birth) => self.give_births((&*stored.job).into(), Admission::free(vec![birth]), now),
            None => Vec::new(),
        };
        self.forget_old_versions(id);
        Ok(born.into_iter().next())
    }

    /// Takes the old version's entry away, if it is still there, and returns what is due instead.
    fn carry(&mut self, job: &Job, carry: &Carry, now: Timestamp) -> Option<Due> {
        let at = carry.candidates.iter().position(|candidate| self.is_due(candidate))?;
        let unfired = &carry.candidates[at..];
        self.due.remove(&(unfired[0].key, unfired[0].version));
        match carry.to {
            CarryTo::Due => Some(unfired[0].of(job)),
            CarryTo::Ledger(fate) => {
                let entry = ledger_entry(job, unfired, fate, now);
                self.ledger.insert((entry.job, entry.from), entry);
                None
            }
            CarryTo::Nothing => None,
        }
    }

    fn change_open_runs(&mut self, stored: &Stored, put: &Put, now: Timestamp) {
        let change = put.open_runs;
        if change == OpenRuns::Keep {
            return;
        }
        let waiting: Vec<_> = self
            .open
            .values()
            .filter(|entry| entry.run.job == stored.job.id && matches!(entry.run.state, RunState::Pending(_)))
            .map(|entry| entry.run.sequence)
            .collect();
        for sequence in waiting {
            match change {
                OpenRuns::Keep => {}
                OpenRuns::Update => {
                    let Some(mut entry) = self.open.get(&sequence).cloned() else { continue };
                    let before = entry.run.clone();
                    self.dequeue(&before);
                    entry.run.update(&stored.job, &put.limits);
                    self.gates.give_back(&before, &entry.run);
                    self.enqueue(&mut entry.run, now);
                    self.open.insert(sequence, entry);
                }
                OpenRuns::CancelPending => {
                    let Some(mut entry) = self.open.remove(&sequence) else { continue };
                    let before = entry.run.clone();
                    self.dequeue(&before);
                    if lifecycle::apply(&mut entry.run, Event::Cancelled { at: now }).is_ok() {
                        self.gates.give_back(&before, &entry.run);
                        self.end(entry, now);
                    }
                }
            }
        }
    }

    pub(super) fn job(&self, id: JobId) -> Option<&Stored> {
        self.jobs.get(&id).filter(|stored| stored.job.state != JobState::Deleted)
    }

    pub(super) fn job_version(&self, id: JobId, version: Version) -> Option<&Stored> {
        let current = self.jobs.get(&id).filter(|stored| stored.job.version == version);
        current.or_else(|| self.old_versions.get(&(id, version)))
    }

    pub(super) fn job_by_key(&self, tenant: TenantId, key: &str) -> Option<JobId> {
        self.keys.get(&(tenant, key.to_string())).copied()
    }

    pub(super) fn list_jobs(&self, filter: &JobFilter, page: &PageRequest<JobId>) -> Page<Stored, JobId> {
        let after = page.after.map_or(Bound::Unbounded, Bound::Excluded);
        let jobs = self.jobs.range((after, Bound::Unbounded));
        page.fill(jobs.map(|(id, stored)| (*id, filter.matches(&stored.job).then_some(stored))))
    }

    pub(super) fn planned(&self, page: &PageRequest<JobId>) -> Page<Planned, JobId> {
        let filter = JobFilter { state: Some("active"), ..JobFilter::default() };
        let Page { items, next } = self.list_jobs(&filter, page);
        let plan = |Stored { job, progress }: &Stored| Planned {
            job: job.id,
            tenant: job.tenant,
            kind: job.spec.kind.as_deref().map(Arc::from),
            destination: job.spec.target.destination().into(),
            queue: Arc::clone(&job.spec.queue),
            schedule: Arc::new(job.spec.schedule.clone()),
            registered_at: job.created_at,
            fired: progress.fired,
        };
        Page { items: items.iter().map(plan).collect(), next }
    }

    pub(super) fn has_open_runs(&self, job: JobId) -> bool {
        self.open.values().any(|entry| entry.run.job == job)
    }

    pub(super) fn request(&self, tenant: TenantId, key: &str, now: Timestamp) -> Option<&Subject> {
        self.requests.get(&(tenant, key.to_string())).filter(|subject| subject.expires_at > now)
    }

    pub(super) fn trigger(&mut self, trigger: Trigger, now: Timestamp) -> Result<Run, Refused> {
        let stored = self.job(trigger.job).cloned().ok_or(Refused::NoJob)?;
        if stored.job.version != trigger.version {
            return Err(Refused::WrongVersion { current: stored.job.version });
        }
        let admission = self.admit(trigger.job, vec![trigger.birth], now).wholly()?;
        let request = trigger.request.as_ref().map(|subject| (subject.tenant, subject.key.clone()));
        self.remember(trigger.request, now)?;
        let run = self.give_births((&*stored.job).into(), admission, now).remove(0);
        self.append(trigger.audit.map(|entry| of_run(entry, &run)));
        if let Some(subject) = request.and_then(|request| self.requests.get_mut(&request))
            && subject.result.is_empty()
        {
            subject.result = run.id().to_string();
        }
        Ok(run)
    }
}
