//! Complete: one outcome, under the current lease.

use jiff::Timestamp;
use punctual_domain::lifecycle::{self, Event};
use punctual_store::{Concluded, Conclusion, Refused};

use super::{Answer, refuse};
use crate::writer::Batch;

impl Batch<'_> {
    pub(crate) fn complete(&mut self, conclusion: Conclusion, now: Timestamp) -> Answer<Concluded> {
        self.check()?;
        let Conclusion { worker, held, report, verdict, successor } = conclusion;
        let stale = Refused::Lifecycle(lifecycle::Refused::StaleLease { attempt: held.attempt });
        let Some(job) = self.memory.running.get(&held.sequence).map(|entry| entry.run.job) else {
            refuse!(stale)
        };
        if let Err(refused) = self.check_successor(job, successor)? {
            return Ok(Err(refused));
        }
        let Some(mut entry) = self.memory.running.remove(&held.sequence) else { refuse!(stale) };
        let limited = (!entry.run.limits.is_empty()).then(|| entry.run.clone());
        let started_at = report.as_ref().map(|report| report.started_at);
        let event = Event::Concluded { worker, attempt: held.attempt, started_at, verdict, at: now };
        if let Err(refused) = lifecycle::apply(&mut entry.run, event) {
            self.memory.running.insert(held.sequence, entry);
            refuse!(refused);
        }
        if let Some(attempt) = entry.attempts.last_mut() {
            attempt.report = report;
        }
        if let Some(before) = limited {
            self.memory.gates.give_back(&before, &entry.run);
        }
        if entry.run.state.is_ended() {
            self.end(&entry)?;
            self.succeed(job, successor, now)?;
            let released = self.release(job, now)?;
            self.go_on(now)?;
            return Ok(Ok(Concluded { run: entry.run, released }));
        }
        self.arrive(&mut entry.run, now)?;
        let run = entry.run.clone();
        self.keep_open(entry, now)?;
        self.go_on(now)?;
        Ok(Ok(run.into()))
    }
}
