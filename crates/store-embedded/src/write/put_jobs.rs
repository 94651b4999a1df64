//! Register: jobs and triggers.

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::id::{JobId, TenantId};
use punctual_domain::job::{Job, JobState};
use punctual_domain::lifecycle::{self, Event};
use punctual_store::audit::of_run;
use punctual_store::record::fate_code;
use punctual_store::{
    Admission, Carry, CarryTo, Due, DueWhen, Error, Expect, OpenRuns, Parent, Put, Refused, Subject, Trigger,
    ledger_entry,
};
use rusqlite::{OptionalExtension, params};

use super::{Answer, JobCode, refuse};
use crate::error::failed;
use crate::row::millis;
use crate::waits;
use crate::writer::Batch;

impl Batch<'_> {
    /// Writes a job; `record` is how it is stored.
    pub(crate) fn put_job(&mut self, put: &Put, record: &[u8], now: Timestamp) -> Answer<Option<Run>> {
        self.check()?;
        let is_new = put.expect == Expect::Absent && put.unfired.is_empty();
        let is_written = is_new && self.insert_new(put, record)?;
        if !is_written && let Err(refused) = self.replace(put, record, now)? {
            return Ok(Err(refused));
        }
        self.append_audit(put.audit.as_deref())?;
        let job = &put.job;
        self.change_open_runs(put, now)?;
        if put.lets_overlap {
            self.release_all(job.id, now)?;
        }
        for entry in &put.ledger {
            self.insert_ledger(entry)?;
        }
        let carried = match &put.carry {
            Some(carry) => self.carry(job, carry, now)?,
            None => None,
        };
        for entry in &put.unfired {
            self.delete_due(entry)?;
        }
        let has_open_runs = put.due_when == DueWhen::Idle && self.has_open_runs(job.id)?;
        let taken = carried.or(put.due.filter(|_| put.is_wanted(has_open_runs)));
        if let Some(due) = &taken {
            self.insert_due(due)?;
        }
        let over = put.is_over(taken, has_open_runs).then_some(job.spec.policies.retention.keep.at_birth());
        let born = match &put.birth {
            Some(birth) => self.give_births((&**job).into(), Admission::free(vec![birth.clone()]), now)?,
            None => Vec::new(),
        };
        if let Some(retention) = over {
            self.end_job(job.id, job.version, retention, now);
        }
        self.go_on(now)?;
        Ok(Ok(born.into_iter().next()))
    }

    /// Writes a new job with its request and its key, unless a row is in the way: then nothing is written, and
    /// [`Batch::replace`] says why. Asking for the rows before would search every table twice.
    fn insert_new(&mut self, put: &Put, record: &[u8]) -> Result<bool, Error> {
        let job = &put.job;
        let request = put.request.as_ref();
        if let Some(subject) = request
            && !self.hot.insert_request(self.connection, subject)?
        {
            return Ok(false);
        }
        let key = key_of(job);
        let is_free = match key {
            Some(key) => self.hot.insert_key(self.connection, job, key)?,
            None => true,
        };
        if is_free && self.hot.insert_job(self.connection, job, record)? {
            return Ok(true);
        }
        if let Some(key) = key.filter(|_| is_free) {
            self.free_key(job.tenant, key)?;
        }
        if let Some(Subject { tenant, key, .. }) = request {
            self.line("delete from requests where tenant = ?1 and key = ?2", params![tenant.0, key])?;
        }
        Ok(false)
    }

    /// Writes a job where rows may be in the way: over them, or not at all.
    fn replace(&mut self, put: &Put, record: &[u8], now: Timestamp) -> Answer<()> {
        let job = &put.job;
        let current = self.current(job.id)?;
        match (put.expect, current) {
            (Expect::Absent, None) => {}
            (Expect::Absent, Some((current, _))) => refuse!(Refused::WrongVersion { current }),
            (Expect::Version(_), None) => refuse!(Refused::NoJob),
            (Expect::Version(version), Some((current, _))) if version != current => {
                refuse!(Refused::WrongVersion { current })
            }
            (Expect::Version(_), Some(_)) => {}
        }
        if !put.unfired.is_empty() && !crate::read::is_due(self.connection, &put.unfired)?.contains(&true) {
            refuse!(Refused::NotDue);
        }
        if let Some(by) = self.holder_of_key(job)? {
            refuse!(Refused::KeyTaken { by });
        }
        if let Err(refused) = self.remember(put.request.as_ref(), now)? {
            return Ok(Err(refused));
        }
        let is_new = current.is_none();
        if !is_new {
            self.keep_version(job.id)?;
        }
        self.write_job(job, record, is_new)?;
        Ok(Ok(()))
    }

    fn holder_of_key(&self, job: &Job) -> Result<Option<JobId>, Error> {
        let Some(key) = &job.spec.key else { return Ok(None) };
        let holder: Option<[u8; 16]> = self
            .connection
            .prepare_cached("select job from job_keys where tenant = ?1 and key = ?2")
            .and_then(|mut statement| {
                statement.query_row(params![job.tenant.0, key], |row| row.get(0)).optional()
            })
            .map_err(failed)?;
        Ok(holder.map(JobId::from_bytes).filter(|holder| *holder != job.id))
    }

    /// Keeps the old version if an open run was fired with it, and frees its key.
    fn keep_version(&mut self, job: JobId) -> Result<(), Error> {
        if self.has_open_runs(job)? {
            self.memory.versioned.insert(job);
            self.line(
                "insert or replace into job_versions select id, version, tenant, record from jobs where id = ?1",
                params![job.as_bytes()],
            )?;
        }
        // The key is in the record; asking the index by job would need another index.
        let old: Option<(u32, Option<String>)> = self
            .connection
            .prepare_cached("select tenant, record ->> 'key' from jobs where id = ?1")
            .and_then(|mut statement| {
                statement.query_row([job.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?))).optional()
            })
            .map_err(failed)?;
        match old {
            Some((tenant, Some(key))) => self.free_key(TenantId(tenant), &key),
            _ => Ok(()),
        }
    }

    fn write_job(&mut self, job: &Job, record: &[u8], is_new: bool) -> Result<(), Error> {
        match is_new {
            true => {
                self.hot.insert_job(self.connection, job, record)?;
            }
            false => self.line(
                "update jobs set tenant = ?2, version = ?3, state = ?4, record = ?5 where id = ?1",
                params![job.id.as_bytes(), job.tenant.0, job.version.0, JobCode::of(&job.state).0, record],
            )?,
        }
        match key_of(job) {
            Some(key) => self.line(
                "insert or replace into job_keys values (?1, ?2, ?3)",
                params![job.tenant.0, key, job.id.as_bytes()],
            ),
            None => Ok(()),
        }
    }

    fn free_key(&self, tenant: TenantId, key: &str) -> Result<(), Error> {
        self.line("delete from job_keys where tenant = ?1 and key = ?2", params![tenant.0, key])
    }

    /// Takes the old version's entry away, if it is still there, and returns what is due instead.
    fn carry(&mut self, job: &Job, carry: &Carry, now: Timestamp) -> Result<Option<Due>, Error> {
        for (at, candidate) in carry.candidates.iter().enumerate() {
            if !self.delete_due(candidate)? {
                continue;
            }
            return match carry.to {
                CarryTo::Due => Ok(Some(candidate.of(job))),
                CarryTo::Ledger(fate) => {
                    self.insert_ledger(&ledger_entry(job, &carry.candidates[at..], fate, now))?;
                    Ok(None)
                }
                CarryTo::Nothing => Ok(None),
            };
        }
        Ok(None)
    }

    fn change_open_runs(&mut self, put: &Put, now: Timestamp) -> Result<(), Error> {
        let (job, change) = (&put.job, put.open_runs);
        if change == OpenRuns::Keep {
            return Ok(());
        }
        for sequence in waits::of_job(self.connection, job.id)? {
            let Some(mut entry) = self.open_run(sequence)? else { continue };
            match change {
                OpenRuns::Keep => {}
                OpenRuns::Update => {
                    let before = entry.run.clone();
                    self.dequeue(&before)?;
                    entry.run.update(job, &put.limits);
                    self.memory.gates.give_back(&before, &entry.run);
                    self.arrive(&mut entry.run, now)?;
                    self.keep_open(entry, now)?;
                }
                OpenRuns::CancelPending => {
                    let before = entry.run.clone();
                    self.dequeue(&before)?;
                    if lifecycle::apply(&mut entry.run, Event::Cancelled { at: now }).is_ok() {
                        self.memory.gates.give_back(&before, &entry.run);
                        self.end_waited(&entry)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn insert_ledger(&self, entry: &punctual_domain::LedgerEntry) -> Result<(), Error> {
        self.line(
            "insert or replace into ledger values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                entry.job.as_bytes(),
                millis(entry.from),
                millis(entry.to),
                entry.slots as i64,
                fate_code(entry.fate),
                entry.tenant.0,
                millis(entry.decided_at)
            ],
        )
    }

    pub(crate) fn trigger(&mut self, trigger: Trigger, now: Timestamp) -> Answer<Run> {
        self.check()?;
        match self.current(trigger.job)? {
            None | Some((_, JobCode::DELETED)) => refuse!(Refused::NoJob),
            Some((current, _)) if current != trigger.version => refuse!(Refused::WrongVersion { current }),
            Some(_) => {}
        }
        let admission = match self.admit(trigger.job, vec![trigger.birth], now)?.wholly() {
            Ok(admission) => admission,
            Err(refused) => refuse!(refused),
        };
        if let Err(refused) = self.remember(trigger.request.as_ref(), now)? {
            return Ok(Err(refused));
        }
        let tenant: u32 = self
            .connection
            .prepare_cached("select tenant from jobs where id = ?1")
            .and_then(|mut statement| statement.query_row([trigger.job.as_bytes()], |row| row.get(0)))
            .map_err(failed)?;
        let tenant = punctual_domain::TenantId(tenant);
        let parent = Parent { job: trigger.job, tenant, version: trigger.version };
        let run = self.give_births(parent, admission, now)?.remove(0);
        if let Some(entry) = trigger.audit {
            self.append_audit(Some(&of_run(entry, &run)))?;
        }
        if trigger.is_over {
            self.keep_job(&run, now)?;
        }
        if let Some(subject) = trigger.request.filter(|subject| subject.result.is_empty()) {
            self.line(
                "update requests set result = ?3 where tenant = ?1 and key = ?2",
                params![subject.tenant.0, subject.key, run.id().to_string()],
            )?;
        }
        Ok(Ok(run))
    }
}

impl Batch<'_> {
    /// A job that is over is kept as long as this run.
    pub(super) fn keep_job(&mut self, run: &Run, now: Timestamp) -> Result<(), Error> {
        let next = self.memory.unborn(now);
        let partition = self.memory.partitions.of(self.connection, self.recent, run, next)?.partition;
        // Once for all runs of a partition.
        self.line(
            "update jobs set kept_by = ?2 where id = ?1 and kept_by is not ?2",
            params![run.job.as_bytes(), partition],
        )
    }
}

/// The key that a job holds: a deleted one holds none.
fn key_of(job: &Job) -> Option<&str> {
    job.spec.key.as_deref().filter(|_| job.state != JobState::Deleted)
}
