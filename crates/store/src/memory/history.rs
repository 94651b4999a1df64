//! History, ledger, dead letters, retention.

use std::ops::Bound;

use jiff::Timestamp;
use punctual_domain::id::{JobId, RunId, Sequence, Version};
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::policy::retention::Retention;
use punctual_domain::{LedgerEntry, Run};

use super::state::{Entry, State};
use crate::detail::RunDetail;
use crate::error::Refused;
use crate::page::{Page, PageRequest};
use crate::verbs::RunFilter;

impl State {
    pub(super) fn run(&self, id: RunId) -> Option<RunDetail> {
        let entry = self.entry(id.sequence()).filter(|entry| entry.run.id() == id)?;
        Some(entry.detail())
    }

    fn entry(&self, sequence: Sequence) -> Option<&Entry> {
        self.open.get(&sequence).or_else(|| self.history.get(&sequence).map(|ended| &ended.entry))
    }

    pub(super) fn runs(&self, filter: &RunFilter, page: &PageRequest<Sequence>) -> Page<Run, Sequence> {
        let below = page.after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (Bound::Unbounded, below);
        let floor = self.floor(filter);
        let is_shown = |run: &Run| !run.state.is_ended() || floor.is_none_or(|floor| run.sequence >= floor);
        // Two ordered lists, merged from the newest down.
        let mut open = self.open.range(range).rev().map(|(_, entry)| (&entry.run, false)).peekable();
        let mut ended =
            self.history.range(range).rev().map(|(_, e)| (&e.entry.run, e.is_dead_letter)).peekable();
        let merged = std::iter::from_fn(|| {
            let newest_is_open = match (open.peek(), ended.peek()) {
                (Some((a, _)), Some((b, _))) => a.sequence > b.sequence,
                (first, _) => first.is_some(),
            };
            if newest_is_open { open.next() } else { ended.next() }
        });
        page.fill(merged.map(|(run, is_dead)| {
            (run.sequence, (matches(filter, run, is_dead) && is_shown(run)).then_some(run))
        }))
    }

    /// The oldest of the newest runs of a job that have ended, if so many have.
    fn floor(&self, filter: &RunFilter) -> Option<Sequence> {
        let (job, last) = filter.job.zip(filter.last)?;
        let ended = self.history.values().rev().filter(|ended| ended.entry.run.job == job);
        ended.map(|ended| ended.entry.run.sequence).nth(last.get() as usize - 1)
    }

    pub(super) fn ledger(&self, job: JobId, page: &PageRequest<Timestamp>) -> Page<LedgerEntry, Timestamp> {
        let below =
            page.after.map_or(Bound::Included((job, Timestamp::MAX)), |at| Bound::Excluded((job, at)));
        let range = (Bound::Included((job, Timestamp::MIN)), below);
        let mut found = self.ledger.range(range).rev().map(|(_, entry)| entry);
        let items: Vec<LedgerEntry> = found.by_ref().take(page.limit).cloned().collect();
        let next = items.last().map(|entry| entry.from).filter(|_| found.next().is_some());
        Page { items, next }
    }

    pub(super) fn redrive(&mut self, id: RunId, now: Timestamp) -> Result<Run, Refused> {
        let sequence = id.sequence();
        if let Some(entry) = self.open.get(&sequence).filter(|entry| entry.run.id() == id) {
            let state = entry.run.state.as_str();
            return Err(lifecycle::Refused::WrongState { state, event: "redriven" }.into());
        }
        let ended = self.history.get(&sequence).filter(|ended| ended.entry.run.id() == id);
        let mut entry = ended.ok_or(Refused::NoRun)?.entry.clone();
        let policy = self.job(entry.run.job).map(|stored| stored.job.spec.policies.overlap);
        let is_behind = policy.is_some_and(|policy| policy.holds_redriven(self.open_of(entry.run.job)));
        lifecycle::apply(&mut entry.run, Event::Redriven { at: now, is_behind })?;
        // Its own version of the job may be gone by now; it goes on with the current one.
        let (job, version) = (entry.run.job, entry.run.version);
        if self.job_version(job, version).is_none() {
            entry.run.version = self.job(job).ok_or(Refused::NoJob)?.job.version;
        }
        self.history.remove(&sequence);
        self.enqueue(&mut entry.run, now);
        let run = entry.run.clone();
        self.open.insert(sequence, entry);
        Ok(run)
    }

    pub(super) fn acknowledge(&mut self, id: RunId) -> Result<(), Refused> {
        let ended = self.history.get_mut(&id.sequence()).filter(|ended| ended.entry.run.id() == id);
        let ended = ended.ok_or(Refused::NoRun)?;
        if !ended.is_dead_letter {
            let state = ended.entry.run.state.as_str();
            return Err(lifecycle::Refused::WrongState { state, event: "acknowledged" }.into());
        }
        ended.is_dead_letter = false;
        Ok(())
    }

    pub(super) fn retain(&mut self, now: Timestamp, limit: usize) -> u64 {
        let old: Vec<Sequence> = self
            .history
            .iter()
            .filter(|(_, ended)| ended.keep_until < now && !ended.is_dead_letter)
            .map(|(sequence, _)| *sequence)
            .take(limit)
            .collect();
        for sequence in &old {
            self.history.remove(sequence);
        }
        self.gates.forget_idle(now);
        let before = self.requests.len() + self.operations.len() + self.forget_audit(now, limit);
        self.requests.retain(|_, subject| subject.expires_at > now);
        self.operations.retain(|_, operation| !operation.is_old(now));
        let forgotten = before - self.requests.len() - self.operations.len() + self.forget_jobs(now, limit);
        (old.len() + forgotten) as u64
    }

    /// Jobs that are over go with the last of their history. Returns how many were looked at.
    fn forget_jobs(&mut self, now: Timestamp, limit: usize) -> usize {
        let is_old = |(at, _, _): &&(Timestamp, JobId, Version)| *at < now;
        let ended: Vec<_> = self.ended_jobs.iter().take_while(is_old).take(limit).copied().collect();
        for entry in &ended {
            self.ended_jobs.remove(entry);
            let (_, job, version) = *entry;
            if self.jobs.get(&job).is_none_or(|stored| stored.job.version != version) {
                continue; // It was changed since: whether it is over was decided then.
            }
            let has_history = self.history.values().any(|ended| ended.entry.run.job == job);
            match has_history || self.has_open_runs(job) {
                true => self.end_job(job, version, Retention::Day, now), // It is looked at again a day later.
                false => self.forget_job(job),
            }
        }
        ended.len()
    }

    fn forget_job(&mut self, job: JobId) {
        self.jobs.remove(&job);
        self.keys.retain(|_, holder| *holder != job);
        self.old_versions.retain(|(id, _), _| *id != job);
        self.ledger.retain(|(id, _), _| *id != job);
        self.due.retain(|(key, _), _| key.job != job);
    }
}

fn matches(filter: &RunFilter, run: &Run, is_dead: bool) -> bool {
    filter.matches(run) && filter.is_dead.is_none_or(|dead| is_dead == dead)
}
