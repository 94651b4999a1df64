//! Cancel, lapse, answer, redrive, acknowledge: what happens to runs outside of an attempt.

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::id::{JobId, RunId};
use punctual_domain::lifecycle::{self, Event};
use punctual_store::{Answering, Cancellation, Error, Lapse, Refused, Successor};
use rusqlite::{OptionalExtension, params};

use super::{Answer, JobCode, refuse};
use crate::error::failed;
use crate::papers;
use crate::read::ended_run;
use crate::row::Entry;
use crate::writer::Batch;

impl Batch<'_> {
    pub(crate) fn cancel(&mut self, cancellation: &Cancellation, now: Timestamp) -> Answer<Run> {
        self.end_waiting(cancellation.run, Event::Cancelled { at: now }, cancellation.successor, now)
    }

    pub(crate) fn lapse(&mut self, lapse: &Lapse, now: Timestamp) -> Answer<Run> {
        let answer = self.end_waiting(lapse.run, Event::Lapsed { at: now }, lapse.successor, now)?;
        if let Ok(run) = &answer {
            self.tell(run, &lapse.messages, now)?;
        }
        Ok(answer)
    }

    pub(crate) fn answer(&mut self, answering: &Answering, now: Timestamp) -> Answer<Run> {
        let event = Event::Answered { answer: answering.answer, at: now };
        let answer = self.end_waiting(answering.run, event, answering.successor, now)?;
        if let Ok(run) = &answer {
            self.tell(run, &answering.messages, now)?;
        }
        Ok(answer)
    }

    /// Something happens to an open run that ends it if it waits, or lets it go on.
    fn end_waiting(
        &mut self,
        id: RunId,
        event: Event,
        successor: Option<Successor>,
        now: Timestamp,
    ) -> Answer<Run> {
        self.check()?;
        let open = self.open_run(id.sequence())?.filter(|entry| entry.run.id() == id);
        let Some(mut entry) = open else {
            let Some((mut entry, _)) = self.ended(id)? else { refuse!(Refused::NoRun) };
            let refused = lifecycle::apply(&mut entry.run, event).err();
            return Ok(Err(refused.map_or(Refused::NoRun, Refused::from)));
        };
        let before = entry.run.clone();
        if let Err(refused) = lifecycle::apply(&mut entry.run, event) {
            refuse!(refused);
        }
        let mut run = entry.run.clone();
        if run.state.is_ended() {
            if let Err(refused) = self.check_successor(run.job, successor)? {
                return Ok(Err(refused));
            }
            self.dequeue(&before)?;
            self.memory.gates.give_back(&before, &run);
            self.end_waited(&entry)?;
            self.succeed(run.job, successor, now)?;
            self.release(run.job, now)?;
            self.go_on(now)?;
        } else {
            if before.is_asking() {
                self.dequeue(&before)?;
                self.arrive(&mut entry.run, now)?;
                run.clone_from(&entry.run);
            }
            self.keep_open(entry, now)?;
        }
        Ok(Ok(run))
    }

    pub(crate) fn redrive(&mut self, id: RunId, now: Timestamp) -> Answer<Run> {
        self.check()?;
        if let Some(entry) = self.open_run(id.sequence())?.filter(|entry| entry.run.id() == id) {
            let state = entry.run.state.as_str();
            refuse!(lifecycle::Refused::WrongState { state, event: "redriven" });
        }
        let Some((mut entry, table)) = self.ended(id)? else { refuse!(Refused::NoRun) };
        let is_behind = self.has_open_runs(entry.run.job)? && self.is_ruled(entry.run.job)?;
        if let Err(refused) = lifecycle::apply(&mut entry.run, Event::Redriven { at: now, is_behind }) {
            refuse!(refused);
        }
        // Its own version of the job may be gone by now; it goes on with the current one.
        match self.current(entry.run.job)? {
            None | Some((_, JobCode::DELETED)) => refuse!(Refused::NoJob),
            Some((version, _)) => {
                if !self.has_version(&entry)? {
                    entry.run.version = version;
                }
            }
        }
        let sequence = entry.run.sequence.as_i64();
        let said = papers::of_ended(self.connection, &table, entry.run.sequence)?;
        papers::add(self.connection, entry.run.sequence, said)?;
        self.line(&format!("delete from {table} where seq = ?1"), params![sequence])?;
        self.line("delete from dead_letters where seq = ?1", params![sequence])?;
        self.line("delete from failures where seq = ?1", params![sequence])?;
        self.arrive(&mut entry.run, now)?;
        let run = entry.run.clone();
        self.keep_open(entry, now)?;
        Ok(Ok(run))
    }

    pub(crate) fn acknowledge(&mut self, id: RunId) -> Answer<()> {
        self.check()?;
        let Some((entry, _)) = self.ended(id)? else { refuse!(Refused::NoRun) };
        let removed = self
            .connection
            .prepare_cached("delete from dead_letters where seq = ?1")
            .and_then(|mut statement| statement.execute([id.sequence().as_i64()]))
            .map_err(failed)?;
        if removed == 0 {
            let state = entry.run.state.as_str();
            refuse!(lifecycle::Refused::WrongState { state, event: "acknowledged" });
        }
        Ok(Ok(()))
    }

    /// An ended run and the table it is in.
    fn ended(&self, id: RunId) -> Result<Option<(Entry, String)>, Error> {
        ended_run(self.connection, &self.memory.partitions, id)
    }

    /// Whether a job has another overlap policy than `allow`.
    fn is_ruled(&self, job: JobId) -> Result<bool, Error> {
        let sql = "select record ->> '$.policies.overlap' is not null from jobs where id = ?1";
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row([job.as_bytes()], |row| row.get(0)).optional())
            .map(|found| found.unwrap_or(false))
            .map_err(failed)
    }

    fn has_version(&self, entry: &Entry) -> Result<bool, Error> {
        self.connection
            .prepare_cached(
                "select 1 from jobs where id = ?1 and version = ?2 \
                 union all select 1 from job_versions where id = ?1 and version = ?2",
            )
            .and_then(|mut statement| {
                let values = params![entry.run.job.as_bytes(), entry.run.version.0];
                statement.query_row(values, |_| Ok(())).optional()
            })
            .map(|found| found.is_some())
            .map_err(failed)
    }
}
