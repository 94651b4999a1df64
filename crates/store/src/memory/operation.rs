//! Operations: steps that are done once, and saved with what they do.

use std::ops::Bound;

use jiff::Timestamp;
use punctual_domain::Operation;
use punctual_domain::id::{OperationId, Version};

use super::state::State;
use crate::error::Refused;
use crate::page::{Page, PageRequest};
use crate::verbs::{Effect, OperationFilter, Parent, Put, Runnable, Shards, Step, Stepped};

impl State {
    pub(super) fn step(&mut self, step: Step, now: Timestamp) -> Result<Stepped, Refused> {
        let Step { mut operation, epoch, effect, ledger, request, audit } = step;
        if epoch.is_some_and(|epoch| !self.is_current(operation.id.shard(), epoch)) {
            return Err(Refused::StaleEpoch);
        }
        let is_next = match self.operations.get(&operation.id) {
            Some(known) => known.is_running() && known.version.next() == operation.version,
            None => operation.version == Version::FIRST,
        };
        if !is_next {
            return Err(Refused::StaleStep);
        }
        if let Effect::Births { job, version, .. } = &effect {
            let current = self.job(*job).ok_or(Refused::NoJob)?.job.version;
            if current != *version {
                return Err(Refused::WrongVersion { current });
            }
        }
        let admission = match &effect {
            Effect::Births { job, births, .. } => Some(self.admit(*job, births.clone(), now).patiently()?),
            Effect::Nothing
            | Effect::Redrive(_)
            | Effect::Acknowledge(_)
            | Effect::Change(_)
            | Effect::Message(_)
            | Effect::Cancel(_) => None,
        };
        self.remember(request, now)?;
        // From here on it is done.
        self.append(audit);
        let mut runs = Vec::new();
        let (mut done, mut failed) = (0, 0);
        match effect {
            Effect::Nothing => {}
            Effect::Redrive(ids) => {
                for id in ids {
                    match self.redrive(id, now) {
                        Ok(run) => runs.push(run),
                        Err(_) => failed += 1,
                    }
                }
                done = runs.len() as u64;
            }
            Effect::Acknowledge(ids) => {
                for id in ids {
                    match self.acknowledge(id) {
                        Ok(()) => done += 1,
                        Err(_) => failed += 1,
                    }
                }
            }
            Effect::Births { job, version, .. } => {
                let of = Parent { job, tenant: operation.tenant, version };
                let admission = admission.unwrap_or_default();
                failed = admission.skipped.len() as u64;
                runs = self.give_births(of, admission, now);
                done = runs.len() as u64;
            }
            Effect::Change(puts) => {
                let put = |put: Put| (put.job.id, self.put_job(put, now));
                let answers: Vec<_> = puts.into_iter().map(put).collect();
                Effect::count_changes(&mut operation, answers.iter().map(|(job, answer)| (*job, answer)));
            }
            Effect::Message(put) => {
                let _ = self.put_job(*put, now); // Refused if it is there already.
            }
            Effect::Cancel(cancellations) => {
                let answers = cancellations.into_iter().map(|one| (one.run, self.cancel(one, now)));
                runs = Effect::count_cancelled(&mut operation, answers);
            }
        }
        for entry in ledger {
            self.ledger.insert((entry.job, entry.from), entry);
        }
        operation.done += done;
        operation.failed += failed;
        self.operations.insert(operation.id, operation.clone());
        Ok(Stepped { operation, runs })
    }

    pub(super) fn runnable(&self, shards: &Shards, now: Timestamp, limit: usize) -> Runnable {
        let wanted = |operation: &&Operation| operation.is_running() && shards.contains(operation.id.shard());
        let mut waiting: Vec<&Operation> = self.operations.values().filter(wanted).collect();
        waiting.sort_by_key(|operation| (operation.resume_at, operation.id));
        let count = waiting.iter().take(limit).take_while(|operation| operation.resume_at <= now).count();
        Runnable {
            operations: waiting[..count].iter().map(|operation| (*operation).clone()).collect(),
            next_at: waiting.get(count).map(|operation| operation.resume_at),
        }
    }

    pub(super) fn list_operations(
        &self,
        filter: &OperationFilter,
        page: &PageRequest<OperationId>,
    ) -> Page<Operation, OperationId> {
        let below = page.after.map_or(Bound::Unbounded, Bound::Excluded);
        let operations = self.operations.range((Bound::Unbounded, below)).rev();
        page.fill(operations.map(|(id, operation)| (*id, filter.matches(operation).then_some(operation))))
    }
}
