//! Due and fire: the one-run-per-slot guard.

use std::ops::Bound;

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::id::{JobId, TenantId, Version};
use punctual_domain::job::Lane;

use super::state::State;
use crate::error::Refused;
use crate::verbs::{Due, DueKey, DuePage, DueQuery, Firing, Parent};

impl State {
    pub(super) fn due(&self, query: &DueQuery) -> DuePage {
        let from = match query.after {
            None => Bound::Unbounded,
            // Past every version of that entry.
            Some(key) => Bound::Excluded((key, Version(u32::MAX))),
        };
        let mut entries = Vec::new();
        for (&(key, version), &slot) in self.due.range((from, Bound::Unbounded)) {
            if !query.shards.contains(key.job.shard()) {
                continue;
            }
            // A page does not end between two versions of one entry: the cursor does not tell them apart.
            let is_full =
                entries.len() >= query.limit && entries.last().is_none_or(|last: &Due| last.key != key);
            if key.at > query.until || is_full {
                return DuePage { entries, next_at: Some(key.at) };
            }
            entries.push(Due { key, version, slot });
        }
        DuePage { entries, next_at: None }
    }

    pub(super) fn count_due(&self, from: Timestamp, to: Timestamp, limit: usize) -> usize {
        let first = |at| {
            let key =
                DueKey { at, lane: Lane::Critical, tenant: TenantId(0), job: JobId::from_bytes([0; 16]) };
            (key, Version(0))
        };
        // A range from a later to an earlier time is none.
        self.due.range(first(from)..first(to.max(from))).take(limit).count()
    }

    pub(super) fn is_due(&self, entry: &Due) -> bool {
        self.due.get(&(entry.key, entry.version)) == Some(&entry.slot)
    }

    pub(super) fn fire(&mut self, mut firing: Firing, now: Timestamp) -> Result<Vec<Run>, Refused> {
        let due = firing.due;
        let job = due.key.job;
        if !self.is_current(job.shard(), firing.epoch) {
            return Err(Refused::StaleEpoch);
        }
        if !self.is_due(&due) {
            return Err(Refused::NotDue);
        }
        // From here on the entry is gone: it is fired, or it was stale.
        self.due.remove(&(due.key, due.version));
        let current = match self.job(job) {
            Some(stored) if stored.job.version == due.version && stored.job.is_active() => {
                Parent::from(&*stored.job)
            }
            _ => return Err(Refused::NotDue),
        };
        let admission = self.admit(job, std::mem::take(&mut firing.births), now);
        if admission.born.is_empty() && !admission.skipped.is_empty() {
            firing = firing.without_run();
        }
        if let Some(progress) = firing.progress
            && let Some(stored) = self.jobs.get_mut(&job)
        {
            stored.progress = progress;
        }
        for entry in firing.ledger {
            self.ledger.insert((entry.job, entry.from), entry);
        }
        if let Some(next) = firing.next {
            self.insert_due(next);
        }
        if let Some(retention) = firing.over {
            self.end_job(job, due.version, retention, now);
        }
        if let Some(operation) = firing.operation {
            self.operations.insert(operation.id, operation);
        }
        Ok(self.give_births(current, admission, now))
    }
}
