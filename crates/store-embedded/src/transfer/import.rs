//! Writing pieces, as the verbs would have left them.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use punctual_domain::LedgerEntry;
use punctual_domain::id::{JobId, Sequence, TenantId, Version};
use punctual_domain::job::{Job, JobState};
use punctual_domain::policy::retention::Retention;
use punctual_domain::run::{Cause, Run, RunState};
use punctual_store::record::{decode_job, encode_job, encode_operation, encode_rule, encode_run, fate_code};
use punctual_store::transfer::{EndedJob, EndedRun, Piece};
use punctual_store::{Error, RunDetail, Stored, line_of};
use rusqlite::{Connection, OptionalExtension, ToSql, params};

use super::cells::{Cells, Place};
use super::export::ended_at;
use crate::error::failed;
use crate::papers;
use crate::partition::{KEPT, stray};
use crate::row::{millis, place};
use crate::waits;
use crate::write::{JobCode, LISTED, WRITE_AUDIT, WRITE_DOCUMENT, audit_values, listed, urgency};

/// Writes pieces inside a transaction. `now` is when the copy began.
pub(super) fn import(
    connection: &Connection,
    cells: &mut Cells,
    pieces: Vec<Piece>,
    now: Timestamp,
) -> Result<(), Error> {
    let mut import = Import { connection, cells, now };
    let mut ended = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Tenant(tenant) => import.line(
                "insert or replace into tenants values (?1, ?2, ?3)",
                params![tenant.id.0, tenant.name.as_str(), millis(tenant.created_at)],
            )?,
            Piece::Job(stored) => import.job(&stored)?,
            Piece::JobVersion(job) => import.line(
                "insert or replace into job_versions values (?1, ?2, ?3, ?4)",
                params![job.id.as_bytes(), job.version.0, job.tenant.0, encode_job(&job)?],
            )?,
            Piece::Due(due) => import.line(
                "insert or replace into due values (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    millis(due.key.at),
                    due.key.lane.rank(),
                    due.key.tenant.0,
                    due.key.job.as_bytes(),
                    due.version.0,
                    millis(due.slot)
                ],
            )?,
            Piece::OpenRun(detail) => import.open_run(detail)?,
            Piece::EndedRun(ended) => import.ended_run(ended)?,
            Piece::Ledger(entry) => import.ledger(&entry)?,
            Piece::Operation(operation) => import.line(
                "insert or replace into operations values (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    operation.id.as_bytes(),
                    operation.tenant.0,
                    operation.version.0,
                    encode_operation(&operation)?,
                    operation.is_running().then(|| millis(operation.resume_at)),
                    operation.finished_at.map(millis)
                ],
            )?,
            Piece::Request(subject) => import.line(
                "insert or replace into requests values (?1, ?2, ?3, ?4, ?5)",
                params![
                    subject.tenant.0,
                    subject.key,
                    subject.fingerprint,
                    millis(subject.expires_at),
                    subject.result
                ],
            )?,
            Piece::EndedJob(job) => ended.push(job),
            Piece::Rule(rule) => import.line(
                "insert or replace into rules values (?1, ?2)",
                params![&*rule.name, encode_rule(&rule)?],
            )?,
            Piece::Document(document) => import.line(
                WRITE_DOCUMENT,
                params![
                    document.kind.as_str(),
                    document.tenant.0,
                    document.name,
                    document.version as i64,
                    document.body,
                    millis(document.updated_at)
                ],
            )?,
            Piece::Audit(entry) => import.line(WRITE_AUDIT, audit_values!(entry))?,
        }
    }
    import.ended_jobs(ended)
}

struct Import<'c> {
    connection: &'c Connection,
    cells: &'c mut Cells,
    now: Timestamp,
}

impl Import<'_> {
    fn line(&self, sql: &str, values: &[&dyn ToSql]) -> Result<(), Error> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(values))
            .map_err(failed)?;
        Ok(())
    }

    fn job(&self, Stored { job, progress }: &Stored) -> Result<(), Error> {
        self.line(
            "insert or ignore into jobs values (?1, ?2, ?3, ?4, ?5, ?6, ?7, null)",
            params![
                job.id.as_bytes(),
                job.tenant.0,
                job.version.0,
                JobCode::of(&job.state).0,
                encode_job(job)?,
                progress.fired as i64,
                progress.last_completion.map(millis)
            ],
        )?;
        match job.spec.key.as_deref().filter(|_| job.state != JobState::Deleted) {
            Some(key) => self.line(
                "insert or replace into job_keys values (?1, ?2, ?3)",
                params![job.tenant.0, key, job.id.as_bytes()],
            ),
            None => Ok(()),
        }
    }

    fn open_run(&mut self, detail: RunDetail) -> Result<(), Error> {
        let (run, attempts, said) = detail.apart();
        let (run, sequence) = (&run, run.sequence.as_i64());
        let sql = match run.state {
            RunState::Running(_) => "insert or replace into running_runs values (?1, ?2)",
            _ => "insert or replace into waiting_runs values (?1, ?2)",
        };
        self.line(sql, params![sequence, encode_run(run, &attempts)])?;
        for (attempt, part) in said.apart() {
            papers::write(self.connection, run.sequence, attempt, &part)?;
        }
        waits::bring(self.connection, run, self.now)?;
        let born = self.cells.born(self.connection, run, self.now)?;
        self.place(run, born)?;
        if let Some(at) = run.lapses_after() {
            self.line(
                "insert or replace into lapses values (?1, ?2, ?3)",
                params![millis(at), sequence, run.job.shard().0],
            )?;
        }
        match run.state {
            RunState::Running(_) => Ok(()),
            _ if run.is_behind() => Ok(()),
            _ if run.is_limited() => self.line(
                "insert or replace into limited values (?1, ?2, ?3, ?4, ?5)",
                params![
                    run.next_limit().map_or(0, |limited| limited.key.0 as i64),
                    run.lane.rank(),
                    urgency(run),
                    millis(run.scheduled_for),
                    sequence
                ],
            ),
            // One that has not come to its gates yet comes to them when it is promoted.
            _ if run.available_at > self.now || !run.has_passed() => self.line(
                "insert or replace into delayed values (?1, ?2, ?3)",
                params![millis(run.available_at), sequence, run.job.shard().0],
            ),
            _ => self.line(
                "insert or replace into ready values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    place(run),
                    run.tenant.0,
                    urgency(run),
                    millis(run.available_at),
                    sequence,
                    run.job.shard().0,
                    &*line_of(run)
                ],
            ),
        }
    }

    fn ended_run(&mut self, ended: EndedRun) -> Result<(), Error> {
        let (ended_at, is_dead_letter) = (ended.ended_at(), ended.is_dead_letter);
        let (run, attempts, said) = ended.detail.apart();
        let (run, sequence) = (&run, run.sequence.as_i64());
        let place = self.cells.ended(self.connection, run, ended_at, self.now)?;
        let sql = format!("insert or replace into history_{} values (?1, ?2, ?3)", place.partition);
        self.line(&sql, params![sequence, encode_run(run, &attempts), papers::column(&said)])?;
        self.place(run, place)?;
        if is_dead_letter {
            self.line("insert or replace into dead_letters values (?1)", params![sequence])?;
        }
        if run.state.is_dead() {
            self.line("insert or replace into failures values (?1)", params![sequence])?;
        }
        Ok(())
    }

    /// Notes where a run is, if the index of births does not tell, and that it keeps its job if that is over.
    fn place(&self, run: &Run, place: Place) -> Result<(), Error> {
        if place.is_stray {
            stray(self.connection, run.sequence.as_i64(), run.job, place.partition)?;
        }
        // Runs of the schedule were born before a job was over; others may have been born at any time.
        if run.cause == Cause::Schedule || place.partition == KEPT {
            return Ok(());
        }
        self.line(
            "update jobs set kept_by = ?2 where id = ?1 and (kept_by is null or kept_by < ?2)",
            params![run.job.as_bytes(), place.partition],
        )
    }

    fn ledger(&self, entry: &LedgerEntry) -> Result<(), Error> {
        self.line(
            "insert or replace into ledger values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                entry.job.as_bytes(),
                millis(entry.from),
                millis(entry.to),
                entry.slots as i64,
                fate_code(entry.fate),
                entry.tenant.0,
                millis(entry.decided_at)
            ],
        )
    }

    /// Jobs to be forgotten, in the lists of the class that their history has.
    fn ended_jobs(&self, ended: Vec<EndedJob>) -> Result<(), Error> {
        let mut lists: BTreeMap<(u16, i64), Vec<EndedJob>> = BTreeMap::new();
        for one in ended {
            let retention = self.retention(one.job)?;
            let sequence = Sequence::first_at(ended_at(retention, one.forget_at), 0).as_i64();
            lists.entry((retention.days(), sequence)).or_default().push(one);
        }
        for ((days, sequence), jobs) in lists {
            let find = "select jobs from ended_jobs where retention = ?1 and seq = ?2";
            let known: Option<Vec<u8>> = self
                .connection
                .prepare_cached(find)
                .and_then(|mut statement| {
                    statement.query_row(params![days, sequence], |row| row.get(0)).optional()
                })
                .map_err(failed)?;
            let mut list = known.unwrap_or_default();
            let known: HashSet<(JobId, Version)> = list.chunks_exact(LISTED).filter_map(listed).collect();
            for one in jobs.iter().filter(|one| !known.contains(&(one.job, one.version))) {
                list.extend_from_slice(one.job.as_bytes());
                list.extend_from_slice(&one.version.0.to_be_bytes());
            }
            self.line(
                "insert or replace into ended_jobs values (?1, ?2, ?3)",
                params![days, sequence, list],
            )?;
        }
        Ok(())
    }

    /// The class of a job's history; any, if the job is gone.
    fn retention(&self, job: JobId) -> Result<Retention, Error> {
        let sql = "select tenant, version, record from jobs where id = ?1";
        let found: Option<(u32, u32, Vec<u8>)> = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| {
                let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
                statement.query_row([job.as_bytes()], read).optional()
            })
            .map_err(failed)?;
        let Some((tenant, version, record)) = found else { return Ok(Retention::Day) };
        let job: Job = decode_job(job, TenantId(tenant), Version(version), &record)?;
        Ok(job.spec.policies.retention.keep.at_birth())
    }
}
