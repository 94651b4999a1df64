//! The verbs that write, one file each, inside the writer's transaction.

mod audit;
mod cancel;
mod claim;
mod complete;
mod documents;
mod ended;
mod fire;
mod hot;
mod limit;
mod note;
mod overlap;
mod put_jobs;
mod retain;
mod shards;
mod step;
mod workers;

pub(crate) use audit::{WRITE_AUDIT, audit_values};
pub(crate) use documents::WRITE_DOCUMENT;
pub(crate) use ended::{Ended, LISTED, listed};
pub(crate) use hot::Hot;
use jiff::Timestamp;
use punctual_domain::Papers;
use punctual_domain::id::{JobId, Sequence, Version, WorkerId};
use punctual_domain::run::{Run, RunState};
use punctual_store::{Admitted, Due, Error, Parent, Refused, Subject, Successor, claim_born, line_of};
use rusqlite::{OptionalExtension, params};
pub(crate) use workers::load as load_workers;

use crate::error::failed;
use crate::papers;
use crate::partition;
use crate::row::{self, Entry, millis, place};
use crate::waits;
use crate::writer::Batch;

/// An answer about one item: refused, or done. Only an [`Error`] undoes the transaction.
type Answer<T> = Result<Result<T, Refused>, Error>;

/// Returns early with a refusal.
macro_rules! refuse {
    ($refused:expr) => {
        return Ok(Err($refused.into()))
    };
}
use refuse;

impl Batch<'_> {
    /// Refuses everything once memory and disk may differ.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.memory.has_failed.clone().map_or(Ok(()), Err)
    }

    /// Writes something that means nothing.
    pub(crate) fn probe(&mut self) -> Result<(), Error> {
        self.line(
            "insert into meta values ('probes', 1) on conflict (name) do update set value = value + 1",
            params![],
        )
    }

    fn insert_due(&mut self, due: &Due) -> Result<(), Error> {
        let key = &due.key;
        let sql = "insert or replace into due values (?1, ?2, ?3, ?4, ?5, ?6)";
        let statement = self.hot.insert_due.prepare(self.connection, sql)?;
        statement
            .execute(params![
                millis(key.at),
                key.lane.rank(),
                key.tenant.0,
                key.job.as_bytes(),
                due.version.0,
                millis(due.slot)
            ])
            .map_err(failed)?;
        Ok(())
    }

    /// Deletes exactly this entry. Whoever deletes it decides what becomes of its slot.
    fn delete_due(&mut self, due: &Due) -> Result<bool, Error> {
        let key = &due.key;
        let sql = "delete from due where at = ?1 and lane = ?2 and tenant = ?3 and job = ?4 and version = ?5 and slot = ?6";
        let statement = self.hot.delete_due.prepare(self.connection, sql)?;
        let deleted = statement
            .execute(params![
                millis(key.at),
                key.lane.rank(),
                key.tenant.0,
                key.job.as_bytes(),
                due.version.0,
                millis(due.slot)
            ])
            .map_err(failed)?;
        Ok(deleted == 1)
    }

    /// The version and state of a job, without reading its record.
    fn current(&mut self, job: JobId) -> Result<Option<(Version, JobCode)>, Error> {
        let statement =
            self.hot.current.prepare(self.connection, "select version, state from jobs where id = ?1")?;
        statement
            .query_row([job.as_bytes()], |row| Ok((Version(row.get(0)?), JobCode(row.get(1)?))))
            .optional()
            .map_err(failed)
    }

    /// Makes a run, running if it is born claimed.
    fn give_birth(&mut self, of: Parent, admitted: Admitted, now: Timestamp) -> Result<Run, Error> {
        // Who pulls lives elsewhere.
        if let Some(worker) = admitted.birth.claimed_by
            && !admitted.birth.requires.are_pulling()
        {
            self.note_local(worker)?;
        }
        let sequence = self.memory.next_sequence(now);
        let worker = admitted.birth.claimed_by;
        let (mut run, mut attempts) = admitted.into_run(of, sequence, now);
        if !run.limits.is_empty() {
            self.arrive(&mut run, now)?;
            attempts.extend(worker.and_then(|worker| claim_born(&mut run, worker, now)));
        }
        self.memory.partitions.born(self.connection, self.recent, &run)?;
        self.keep_open(Entry { run: run.clone(), attempts }, now)?;
        Ok(run)
    }

    /// Notes a worker of this process.
    fn note_local(&mut self, worker: WorkerId) -> Result<(), Error> {
        if !self.memory.locals.insert(worker) {
            return Ok(());
        }
        self.line("insert or ignore into local_workers values (?1)", params![worker.as_bytes()])
    }

    /// Writes an open run and puts it where it belongs: in a line, among the running, or behind others of its job.
    fn keep_open(&mut self, entry: Entry, now: Timestamp) -> Result<(), Error> {
        self.hot.insert_open(self.connection, &entry)?;
        let run = &entry.run;
        if let Some(at) = run.lapses_after() {
            self.line(
                "insert or replace into lapses values (?1, ?2, ?3)",
                params![millis(at), run.sequence.as_i64(), run.job.shard().0],
            )?;
        }
        match run.state {
            RunState::Running(_) => {
                self.memory.start(entry);
                return Ok(());
            }
            _ if run.is_behind() => self.memory.stand_behind(run),
            _ if run.is_limited() => self.stand(run)?,
            _ if run.available_at > now => self.line(
                "insert or replace into delayed values (?1, ?2, ?3)",
                params![millis(run.available_at), run.sequence.as_i64(), run.job.shard().0],
            )?,
            _ => {
                self.memory.waiting.add(run.lane, 1);
                self.memory.changes.get_ready(run, 1);
                self.line(
                    "insert or replace into ready values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                    params![
                        place(run),
                        run.tenant.0,
                        urgency(run),
                        millis(run.available_at),
                        run.sequence.as_i64(),
                        run.job.shard().0,
                        &*line_of(run)
                    ],
                )?;
            }
        }
        waits::begin(self.connection, &mut self.memory.changes, run)
    }

    /// A run waits no more.
    fn stop_waiting(&mut self, run: &Run) -> Result<(), Error> {
        waits::end(self.connection, &mut self.memory.changes, run)
    }

    /// Whether a job has runs that have not ended.
    pub(crate) fn has_open_runs(&self, job: JobId) -> Result<bool, Error> {
        Ok(self.memory.running_of.contains_key(&job) || waits::are_there(self.connection, job)?)
    }

    /// The runs of a job that have not ended.
    fn open_runs_of(&self, job: JobId) -> Result<Vec<Sequence>, Error> {
        let mut open = waits::of_job(self.connection, job)?;
        open.extend(self.memory.running_of.get(&job).into_iter().flatten());
        open.sort_unstable();
        Ok(open)
    }

    /// Writes the counts of what waits.
    pub(crate) fn write_backlog(&mut self) -> Result<(), Error> {
        self.memory.changes.write(self.connection)
    }

    /// Takes a waiting run out of its line, whichever it is.
    fn dequeue(&mut self, run: &Run) -> Result<(), Error> {
        self.stop_waiting(run)?;
        self.leave_limited(run)?;
        self.leave_delayed(run)?;
        self.leave_ready(run)?;
        self.leave_lapses(run.sequence, run.lapses_after())
    }

    /// A run that waits no more does not lapse.
    fn leave_lapses(&self, run: Sequence, lapses_after: Option<Timestamp>) -> Result<(), Error> {
        match lapses_after {
            Some(at) => self.line(
                "delete from lapses where start_by = ?1 and seq = ?2",
                params![millis(at), run.as_i64()],
            ),
            None => Ok(()),
        }
    }

    fn leave_delayed(&self, run: &Run) -> Result<(), Error> {
        self.line(
            "delete from delayed where available_at = ?1 and seq = ?2",
            params![millis(run.available_at), run.sequence.as_i64()],
        )
    }

    fn leave_ready(&mut self, run: &Run) -> Result<(), Error> {
        let sql = "delete from ready \
                   where lane = ?1 and tenant = ?2 and urgency = ?3 and available_at = ?4 and seq = ?5";
        let (at, sequence) = (millis(run.available_at), run.sequence.as_i64());
        let turn = params![place(run), run.tenant.0, urgency(run), at, sequence];
        let left = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(turn))
            .map_err(failed)?;
        self.memory.waiting.remove(run.lane, left as u64);
        self.memory.changes.get_ready(run, -(left as i64));
        Ok(())
    }

    fn line(&self, sql: &str, values: &[&dyn rusqlite::ToSql]) -> Result<(), Error> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(values))
            .map_err(failed)?;
        Ok(())
    }

    /// Moves an ended run from the open ones to history, with what it has said.
    fn end(&mut self, entry: &Entry, papers: Papers) -> Result<(), Error> {
        let run = &entry.run;
        self.hot.delete_running(self.connection, run.sequence)?;
        let next = self.memory.unborn(run.finished_at.unwrap_or(run.available_at));
        let ending = self.memory.partitions.of(self.connection, self.recent, run, next)?;
        let papers = papers.ended(run.state);
        self.hot.insert_history(self.connection, ending.partition, entry, &papers)?;
        if ending.is_stray {
            partition::stray(self.connection, run.sequence.as_i64(), run.job, ending.partition)?;
        } else if run.redriven_at.is_some() {
            // It may have failed before, in another class.
            partition::unstray(self.connection, run.sequence.as_i64())?;
        }
        if run.state.is_dead() {
            self.line("insert or replace into dead_letters values (?1)", params![run.sequence.as_i64()])?;
            self.line("insert or replace into failures values (?1)", params![run.sequence.as_i64()])?;
        }
        self.memory.forget(run);
        self.forget_version(run.job, run.version)
    }

    /// The same for one that waited: only one that was tried has said something.
    fn end_waited(&mut self, entry: &Entry) -> Result<(), Error> {
        let papers = match entry.run.attempt {
            0 => Papers::default(),
            _ => papers::take(self.connection, entry.run.sequence)?,
        };
        self.end(entry, papers)
    }

    /// An old version of a job lives as long as an open run keeps it.
    fn forget_version(&mut self, job: JobId, version: Version) -> Result<(), Error> {
        if !self.memory.versioned.contains(&job) || self.has_open_runs(job)? {
            return Ok(());
        }
        self.memory.versioned.remove(&job);
        self.line(
            "delete from job_versions where id = ?1 and version <= ?2",
            params![job.as_bytes(), version.0],
        )
    }

    /// An open run, from memory or from its row.
    fn open_run(&self, sequence: Sequence) -> Result<Option<Entry>, Error> {
        if let Some(entry) = self.memory.running.get(&sequence) {
            return Ok(Some(entry.clone()));
        }
        let sql = format!("select {} from waiting_runs where seq = ?1", row::COLUMNS);
        let mut statement = self.connection.prepare_cached(&sql).map_err(failed)?;
        let mut rows = statement.query([sequence.as_i64()]).map_err(failed)?;
        rows.next().map_err(failed)?.map(row::read).transpose()
    }

    /// Remembers a request, unless it is remembered already.
    pub(crate) fn remember(&self, request: Option<&Subject>, now: Timestamp) -> Answer<()> {
        let Some(subject) = request else { return Ok(Ok(())) };
        let known: Option<i64> = self
            .connection
            .prepare_cached("select expires_at from requests where tenant = ?1 and key = ?2")
            .and_then(|mut statement| {
                statement.query_row(params![subject.tenant.0, subject.key], |row| row.get(0)).optional()
            })
            .map_err(failed)?;
        if known.is_some_and(|expires_at| expires_at > millis(now)) {
            refuse!(Refused::Repeated);
        }
        self.line(
            "insert or replace into requests values (?1, ?2, ?3, ?4, ?5)",
            params![
                subject.tenant.0,
                subject.key,
                subject.fingerprint,
                millis(subject.expires_at),
                subject.result
            ],
        )?;
        Ok(Ok(()))
    }

    /// Whether what the end of a run brings was decided for the job as it is.
    fn check_successor(&mut self, job: JobId, successor: Option<Successor>) -> Answer<()> {
        let Some(successor) = successor else { return Ok(Ok(())) };
        match self.current(job)? {
            Some((version, _)) if version == successor.version => Ok(Ok(())),
            Some((current, _)) => refuse!(Refused::WrongVersion { current }),
            None => refuse!(Refused::NoJob),
        }
    }

    /// Records a completion and what it brings.
    fn succeed(&mut self, job: JobId, successor: Option<Successor>, now: Timestamp) -> Result<(), Error> {
        let Some(successor) = successor else { return Ok(()) };
        self.line("update jobs set completed_at = ?2 where id = ?1", params![job.as_bytes(), millis(now)])?;
        if let Some(due) = successor.due {
            self.insert_due(&due)?;
        }
        if let Some(retention) = successor.over {
            self.end_job(job, successor.version, retention, now);
        }
        Ok(())
    }
}

/// A job's state as a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobCode(pub(crate) u8);

impl JobCode {
    const ACTIVE: JobCode = JobCode(0);
    const DELETED: JobCode = JobCode(3);

    pub(crate) fn of(state: &punctual_domain::job::JobState) -> Self {
        use punctual_domain::job::JobState;
        match state {
            JobState::Active => JobCode::ACTIVE,
            JobState::Paused(_) => JobCode(1),
            JobState::Ended => JobCode(2),
            JobState::Deleted => JobCode::DELETED,
        }
    }
}

/// Higher priorities come first.
pub(crate) fn urgency(run: &Run) -> i64 {
    -i64::from(run.priority)
}
