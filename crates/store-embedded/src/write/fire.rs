//! Fire: the one-run-per-slot guard.
//!
//! Deleting exactly this entry is the compare-and-set: whoever deletes it fires the slot.

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_store::{Firing, Parent, Refused};
use rusqlite::params;

use super::{Answer, JobCode, refuse};
use crate::row::millis;
use crate::writer::Batch;

impl Batch<'_> {
    pub(crate) fn fire(&mut self, mut firing: Firing, now: Timestamp) -> Answer<Vec<Run>> {
        self.check()?;
        let key = firing.due.key;
        let shard = self.memory.shards.get(usize::from(key.job.shard().0));
        if !shard.is_some_and(|shard| shard.owner.is_some() && shard.epoch == firing.epoch) {
            refuse!(Refused::StaleEpoch);
        }
        if !self.delete_due(&firing.due)? {
            refuse!(Refused::NotDue);
        }
        // From here on the entry is gone: it is fired, or it was stale.
        match self.current(key.job)? {
            Some((version, JobCode::ACTIVE)) if version == firing.due.version => {}
            _ => refuse!(Refused::NotDue),
        }
        let admission = self.admit(key.job, std::mem::take(&mut firing.births), now)?;
        if admission.born.is_empty() && !admission.skipped.is_empty() {
            firing = firing.without_run();
        }
        if let Some(progress) = firing.progress {
            self.line(
                "update jobs set fired = ?2, completed_at = ?3 where id = ?1",
                params![key.job.as_bytes(), progress.fired as i64, progress.last_completion.map(millis)],
            )?;
        }
        for entry in &firing.ledger {
            self.insert_ledger(entry)?;
        }
        if let Some(next) = &firing.next {
            self.insert_due(next)?;
        }
        if let Some(operation) = &firing.operation {
            self.write_operation(operation)?;
        }
        let parent = Parent { job: key.job, tenant: key.tenant, version: firing.due.version };
        let runs = self.give_births(parent, admission, now)?;
        if let Some(retention) = firing.over {
            self.end_job(key.job, firing.due.version, retention, now);
        }
        Ok(Ok(runs))
    }
}
