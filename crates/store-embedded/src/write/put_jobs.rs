//! Register: jobs and triggers.

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::id::{JobId, Sequence};
use punctual_domain::job::{Job, JobState};
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::run::RunState;
use punctual_store::record::encode_job;
use punctual_store::{
    Carry, CarryTo, Due, Error, Expect, OpenRuns, Parent, Put, Refused, Trigger, ledger_entry,
};
use rusqlite::{OptionalExtension, params};

use super::{Answer, JobCode, refuse};
use crate::error::failed;
use crate::row::millis;
use crate::writer::Batch;

impl Batch<'_> {
    pub(crate) fn put_job(&mut self, put: Put, now: Timestamp) -> Answer<()> {
        self.check()?;
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
        self.write_job(job, is_new)?;
        self.change_open_runs(job, put.open_runs, now)?;
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
        let has_open_runs = self.memory.by_job.contains_key(&job.id);
        let taken = carried.or(put.due.filter(|_| put.is_wanted(has_open_runs)));
        if let Some(due) = &taken {
            self.insert_due(due)?;
        }
        let over = put.is_over(taken, has_open_runs).then_some(job.spec.policies.retention);
        if let Some(birth) = put.birth {
            self.give_birth((&put.job).into(), birth, now)?;
        }
        if let Some(retention) = over {
            self.end_job(put.job.id, put.job.version, retention, now);
        }
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
        if self.memory.by_job.contains_key(&job) {
            self.memory.versioned.insert(job);
            self.line(
                "insert or replace into job_versions select id, version, tenant, record from jobs where id = ?1",
                params![job.as_bytes()],
            )?;
        }
        // The key is in the record; asking the index by job would need another index.
        let old: Option<(i64, Option<String>)> = self
            .connection
            .prepare_cached("select tenant, record ->> 'key' from jobs where id = ?1")
            .and_then(|mut statement| {
                statement.query_row([job.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?))).optional()
            })
            .map_err(failed)?;
        match old {
            Some((tenant, Some(key))) => {
                self.line("delete from job_keys where tenant = ?1 and key = ?2", params![tenant, key])
            }
            _ => Ok(()),
        }
    }

    fn write_job(&self, job: &Job, is_new: bool) -> Result<(), Error> {
        let record = encode_job(job)?;
        let sql = match is_new {
            true => "insert into jobs values (?1, ?2, ?3, ?4, ?5, 0, null, null)",
            false => "update jobs set tenant = ?2, version = ?3, state = ?4, record = ?5 where id = ?1",
        };
        let state = JobCode::of(&job.state);
        self.line(sql, params![job.id.as_bytes(), job.tenant.0, job.version.0, state.0, record])?;
        match job.spec.key.as_ref().filter(|_| job.state != JobState::Deleted) {
            Some(key) => self.line(
                "insert or replace into job_keys values (?1, ?2, ?3)",
                params![job.tenant.0, key, job.id.as_bytes()],
            ),
            None => Ok(()),
        }
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

    fn change_open_runs(&mut self, job: &Job, change: OpenRuns, now: Timestamp) -> Result<(), Error> {
        if change == OpenRuns::Keep {
            return Ok(());
        }
        let open: Vec<Sequence> = self.memory.by_job.get(&job.id).cloned().unwrap_or_default();
        for sequence in open {
            let Some(mut entry) = self.open_run(sequence)? else { continue };
            if !matches!(entry.run.state, RunState::Pending(_)) {
                continue;
            }
            match change {
                OpenRuns::Keep => {}
                OpenRuns::Update => {
                    entry.run.version = job.version;
                    self.hot.insert_open(self.connection, &entry)?;
                }
                OpenRuns::CancelPending => {
                    self.dequeue(&entry.run)?;
                    if lifecycle::apply(&mut entry.run, Event::Cancelled { at: now }).is_ok() {
                        self.end(&entry)?;
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
                crate::read::fate_code(entry.fate),
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
        let run = self.give_birth(parent, trigger.birth, now)?;
        if trigger.is_over {
            let next = self.memory.last_sequence().next();
            let partition = self.memory.partitions.of(self.connection, &run, next)?.partition;
            // Once for all runs of a partition.
            self.line(
                "update jobs set kept_by = ?2 where id = ?1 and kept_by is not ?2",
                params![run.job.as_bytes(), partition],
            )?;
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
