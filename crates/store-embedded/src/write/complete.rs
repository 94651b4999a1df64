//! Complete: one outcome, under the current lease.

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::lifecycle::{self, Event};
use punctual_store::{Conclusion, Refused};

use super::{Answer, refuse};
use crate::writer::Writer;

impl Writer {
    pub(crate) fn complete(&mut self, conclusion: Conclusion, now: Timestamp) -> Answer<Run> {
        self.check()?;
        let Conclusion { worker, held, report, verdict, successor } = conclusion;
        let stale = Refused::Lifecycle(lifecycle::Refused::StaleLease { attempt: held.attempt });
        let Some(mut entry) = self.memory.running.get(&held.sequence).cloned() else { refuse!(stale) };
        if let Err(refused) = self.check_successor(entry.run.job, successor)? {
            return Ok(Err(refused));
        }
        let started_at = report.as_ref().map(|report| report.started_at);
        let event = Event::Concluded { worker, attempt: held.attempt, started_at, verdict, at: now };
        if let Err(refused) = lifecycle::apply(&mut entry.run, event) {
            refuse!(refused);
        }
        if let Some(attempt) = entry.attempts.last_mut() {
            attempt.report = report;
        }
        let run = entry.run.clone();
        if run.state.is_ended() {
            self.end(&entry)?;
            self.succeed(run.job, successor, now)?;
        } else {
            self.memory.running.remove(&run.sequence);
            self.keep_open(entry, now)?;
        }
        Ok(Ok(run))
    }
}
