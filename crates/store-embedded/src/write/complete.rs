//! Complete: one outcome, under the current lease.

use jiff::Timestamp;
use punctual_domain::papers::Said;
use punctual_domain::{Papers, Run, lifecycle};
use punctual_store::record::encode_job;
use punctual_store::{Concluded, Conclusion, Error, Message, Refused};

use super::{Answer, refuse};
use crate::papers;
use crate::writer::Batch;

impl Batch<'_> {
    pub(crate) fn complete(&mut self, mut conclusion: Conclusion, now: Timestamp) -> Answer<Concluded> {
        self.check()?;
        let (held, successor) = (conclusion.held, conclusion.successor);
        let stale = Refused::Lifecycle(lifecycle::Refused::StaleLease { attempt: held.attempt });
        let Some(job) = self.memory.running.get(&held.sequence).map(|entry| entry.run.job) else {
            refuse!(stale)
        };
        if let Err(refused) = self.check_successor(job, successor)? {
            return Ok(Err(refused));
        }
        let Some(mut entry) = self.memory.running.remove(&held.sequence) else { refuse!(stale) };
        let limited = (!entry.run.limits.is_empty()).then(|| entry.run.clone());
        if let Err(refused) = conclusion.apply(&mut entry.run, now) {
            self.memory.running.insert(held.sequence, entry);
            refuse!(refused);
        }
        let said = Said::take(held.attempt, conclusion.report.as_mut());
        let is_noted = self.memory.noted.remove(&held.sequence);
        if let Some(attempt) = entry.attempts.last_mut() {
            attempt.report = conclusion.report;
            attempt.goes_on_with(&entry.run);
        }
        if let Some(before) = limited {
            self.memory.gates.give_back(&before, &entry.run);
        }
        if entry.run.state.is_ended() {
            // Of a first attempt it is known whether it has said something.
            let mut papers = match is_noted || held.attempt > 1 {
                true => papers::take(self.connection, held.sequence)?,
                false => Papers::default(),
            };
            papers.add(said);
            self.end(&entry, papers)?;
            self.succeed(job, successor, now)?;
            let released = self.release(job, now)?;
            self.tell(&entry.run, &conclusion.messages, now)?;
            self.go_on(now)?;
            return Ok(Ok(Concluded { run: entry.run, released }));
        }
        if entry.run.lease().is_some() {
            // Somebody else goes on with the same attempt, and what it said stays what it said.
            if is_noted {
                self.memory.noted.insert(held.sequence);
            }
            let run = entry.run.clone();
            self.memory.stop(&run);
            self.keep_open(entry, now)?;
            return Ok(Ok(run.into()));
        }
        self.memory.stop(&entry.run);
        self.hot.delete_running(self.connection, held.sequence)?;
        if let Some(said) = said {
            let said = Papers { checkpoint: None, said: vec![said] };
            papers::add(self.connection, held.sequence, said)?;
        }
        self.arrive(&mut entry.run, now)?;
        let run = entry.run.clone();
        self.keep_open(entry, now)?;
        self.go_on(now)?;
        Ok(Ok(run.into()))
    }

    /// Registers the messages that tell of the end of a run.
    pub(super) fn tell(&mut self, run: &Run, messages: &[Message], now: Timestamp) -> Result<(), Error> {
        for put in Message::due(messages, run.state) {
            let _ = self.put_job(put, &encode_job(&put.job)?, now)?; // Refused if it is there already.
        }
        Ok(())
    }
}
