//! Overlap: births that are decided against what is open, and runs that wait for others.

use jiff::Timestamp;
use punctual_domain::id::{JobId, RunId, Sequence};
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::policy::overlap::Open;
use punctual_domain::run::RunState;
use punctual_domain::{Papers, Run};

use super::state::{Entry, State};
use crate::admission::{Admission, is_full, is_ruled};
use crate::verbs::{Birth, Parent, claim_born};

impl State {
    /// Decides births of a job. Nothing is done yet.
    pub(super) fn admit(&self, job: JobId, births: Vec<Birth>, now: Timestamp) -> Admission {
        let is_open = |birth: &Birth| self.gates.are_open(&birth.limits, now);
        match (is_ruled(&births), is_full(&births)) {
            (true, _) => Admission::decide(births, self.open_of(job), is_open),
            (false, true) => Admission::decide(births, Open::default(), is_open),
            (false, false) => Admission::free(births),
        }
    }

    /// Makes the runs, and accounts for those that are not to be.
    pub(super) fn give_births(&mut self, of: Parent, admission: Admission, now: Timestamp) -> Vec<Run> {
        if admission.replaces {
            self.give_way(of.job, now);
        }
        for skipped in &admission.skipped {
            let upto = (of.job, skipped.birth.scheduled_for);
            let known =
                self.ledger.range((of.job, Timestamp::MIN)..=upto).next_back().map(|(_, known)| known);
            if let Some(entry) = skipped.accounted(of, known, now) {
                self.ledger.insert((entry.job, entry.from), entry);
            }
        }
        let born = admission.born.into_iter();
        born.map(|admitted| {
            let worker = admitted.birth.claimed_by;
            let (mut run, mut attempts) = admitted.into_run(of, self.next_sequence(now), now);
            self.enqueue(&mut run, now);
            if let Some(worker) = worker.filter(|_| attempts.is_empty()) {
                let before = run.clone();
                if let Some(attempt) = claim_born(&mut run, worker, now) {
                    self.dequeue(&before);
                    attempts.push(attempt);
                }
            }
            self.open.insert(run.sequence, Entry { run: run.clone(), attempts, papers: Papers::default() });
            run
        })
        .collect()
    }

    fn runs_of(&self, job: JobId) -> impl Iterator<Item = &Run> {
        self.open.values().map(|entry| &entry.run).filter(move |run| run.job == job)
    }

    /// What is open of a job.
    pub(super) fn open_of(&self, job: JobId) -> Open {
        let is_pending = |run: &Run| matches!(run.state, RunState::Pending(_)) && !run.is_behind();
        Open {
            is_running: self.runs_of(job).any(|run| run.lease().is_some()),
            is_pending: self.runs_of(job).any(is_pending),
            behind: self.runs_of(job).filter(|run| run.is_behind()).count() as u32,
        }
    }

    /// Cancels what is pending and asks what runs to stop.
    fn give_way(&mut self, job: JobId, now: Timestamp) {
        let open: Vec<Sequence> = self.runs_of(job).map(|run| run.sequence).collect();
        for sequence in open {
            let Some(mut entry) = self.open.remove(&sequence) else { continue };
            let before = entry.run.clone();
            self.dequeue(&before);
            // An open run can be cancelled.
            let _ = lifecycle::apply(&mut entry.run, Event::Cancelled { at: now });
            match entry.run.state.is_ended() {
                true => {
                    self.gates.give_back(&before, &entry.run);
                    self.end(entry, now);
                }
                false => {
                    self.open.insert(sequence, entry);
                }
            }
        }
    }

    /// After the end of a run: if no other is ahead of those that wait, the one with the oldest slot goes on.
    pub(super) fn release(&mut self, job: JobId, now: Timestamp) -> Option<RunId> {
        if self.runs_of(job).any(|run| !run.is_behind()) {
            return None;
        }
        let next = self.runs_of(job).min_by_key(|run| (run.scheduled_for, run.sequence))?.sequence;
        self.let_go(next, now)
    }

    /// All that wait go on.
    pub(super) fn release_all(&mut self, job: JobId, now: Timestamp) {
        let behind: Vec<Sequence> =
            self.runs_of(job).filter(|run| run.is_behind()).map(|run| run.sequence).collect();
        for sequence in behind {
            self.let_go(sequence, now);
        }
    }

    fn let_go(&mut self, sequence: Sequence, now: Timestamp) -> Option<RunId> {
        let entry = self.open.get_mut(&sequence)?;
        lifecycle::apply(&mut entry.run, Event::Released { at: now }).ok()?;
        let mut run = entry.run.clone();
        self.enqueue(&mut run, now);
        let id = run.id();
        if let Some(entry) = self.open.get_mut(&sequence) {
            entry.run = run;
        }
        Some(id)
    }
}
