//! Step: an operation goes on, together with what the step does.
//!
//! The version is the compare-and-set: whoever writes the next one does the step.

use jiff::Timestamp;
use punctual_domain::Operation;
use punctual_domain::id::Version;
use punctual_store::record::{encode_job, encode_operation};
use punctual_store::{Admission, Effect, Error, Parent, Refused, Step, Stepped};
use rusqlite::{OptionalExtension, params};

use super::{Answer, JobCode, refuse};
use crate::error::failed;
use crate::row::millis;
use crate::writer::Batch;

impl Batch<'_> {
    pub(crate) fn step(&mut self, step: Step, now: Timestamp) -> Answer<Stepped> {
        self.check()?;
        let Step { mut operation, epoch, effect, ledger, request, audit } = step;
        if let Some(epoch) = epoch {
            let shard = self.memory.shards.get(usize::from(operation.id.shard().0));
            if !shard.is_some_and(|shard| shard.owner.is_some() && shard.epoch == epoch) {
                refuse!(Refused::StaleEpoch);
            }
        }
        if !self.is_next(&operation)? {
            refuse!(Refused::StaleStep);
        }
        if let Effect::Births { job, version, .. } = &effect {
            match self.current(*job)? {
                None | Some((_, JobCode::DELETED)) => refuse!(Refused::NoJob),
                Some((current, _)) if current != *version => refuse!(Refused::WrongVersion { current }),
                Some(_) => {}
            }
        }
        let admission = match &effect {
            Effect::Births { job, births, .. } => match self.admit(*job, births.clone(), now)?.patiently() {
                Ok(admission) => admission,
                Err(refused) => refuse!(refused),
            },
            Effect::Nothing
            | Effect::Redrive(_)
            | Effect::Acknowledge(_)
            | Effect::Change(_)
            | Effect::Message(_)
            | Effect::Cancel(_) => Admission::default(),
        };
        if let Err(refused) = self.remember(request.as_ref(), now)? {
            return Ok(Err(refused));
        }
        // From here on it is done.
        self.append_audit(audit.as_deref())?;
        let mut runs = Vec::new();
        let (mut done, mut failed) = (0, 0);
        match effect {
            Effect::Nothing => {}
            Effect::Redrive(ids) => {
                for id in ids {
                    match self.redrive(id, now)? {
                        Ok(run) => runs.push(run),
                        Err(_) => failed += 1,
                    }
                }
                done = runs.len() as u64;
            }
            Effect::Acknowledge(ids) => {
                for id in ids {
                    match self.acknowledge(id)? {
                        Ok(()) => done += 1,
                        Err(_) => failed += 1,
                    }
                }
            }
            Effect::Births { job, version, is_over, .. } => {
                let parent = Parent { job, tenant: operation.tenant, version };
                failed = admission.skipped.len() as u64;
                runs = self.give_births(parent, admission, now)?;
                done = runs.len() as u64;
                if let Some(newest) = runs.last().filter(|_| is_over) {
                    self.keep_job(newest, now)?;
                }
            }
            Effect::Change(puts) => {
                for put in puts {
                    let answer = self.put_job(&put, &encode_job(&put.job)?, now)?;
                    Effect::count_changes(&mut operation, [(put.job.id, &answer)]);
                }
            }
            Effect::Message(put) => {
                let _ = self.put_job(&put, &encode_job(&put.job)?, now)?; // Refused if it is there already.
            }
            Effect::Cancel(cancellations) => {
                for one in cancellations {
                    let answer = self.cancel(&one, now)?;
                    runs.extend(Effect::count_cancelled(&mut operation, [(one.run, answer)]));
                }
            }
        }
        for entry in &ledger {
            self.insert_ledger(entry)?;
        }
        operation.done += done;
        operation.failed += failed;
        self.write_operation(&operation)?;
        Ok(Ok(Stepped { operation, runs }))
    }

    /// Whether an operation is the one after what is stored.
    fn is_next(&self, operation: &Operation) -> Result<bool, Error> {
        let known: Option<(u32, bool)> = self
            .connection
            .prepare_cached("select version, finished_at is null from operations where id = ?1")
            .and_then(|mut statement| {
                let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
                statement.query_row([operation.id.as_bytes()], read).optional()
            })
            .map_err(failed)?;
        Ok(match known {
            Some((version, is_running)) => is_running && Version(version).next() == operation.version,
            None => operation.version == Version::FIRST,
        })
    }

    pub(super) fn write_operation(&self, operation: &Operation) -> Result<(), Error> {
        self.line(
            "insert or replace into operations values (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                operation.id.as_bytes(),
                operation.tenant.0,
                operation.version.0,
                encode_operation(operation)?,
                operation.is_running().then(|| millis(operation.resume_at)),
                operation.finished_at.map(millis)
            ],
        )
    }
}
