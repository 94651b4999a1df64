//! Runs as rows: the same columns for open runs and for history.
//!
//! The attempts of most runs are one plain success, which the columns already tell; only others are
//! written out.

use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::attempt::{Attempt, Outcome, Report};
use punctual_domain::id::{JobId, Sequence, TenantId, Version, WorkerId};
use punctual_domain::job::Lane;
use punctual_domain::policy::retention::Retention;
use punctual_domain::run::{Cause, Lease, Run, RunState, WaitingFor};
use punctual_store::Error;
use punctual_store::record::{decode_attempts, encode_attempts};
use rusqlite::{CachedStatement, Connection, Row, params};

/// The columns, in order.
pub(crate) const COLUMNS: &str = "seq, job, tenant, version, cause, slot, part, state, available_at, attempt, charged, lost, \
    queue, retention, lane, priority, started_at, finished_at, is_cancel_requested, correlation_id, worker, claimed_at, \
    reported_at, attempts, kind";

/// A run and its attempts so far.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) run: Run,
    pub(crate) attempts: Vec<Attempt>,
}

/// Writes a run into a table, replacing an older row of it.
pub(crate) fn insert(connection: &Connection, table: &str, entry: &Entry) -> Result<(), Error> {
    let mut statement: CachedStatement<'_> = connection
        .prepare_cached(&format!(
            "insert or replace into {table} ({COLUMNS}) values \
             (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23,?24,?25)"
        ))
        .map_err(crate::error::failed)?;
    let Entry { run, attempts } = entry;
    let last = attempts.last();
    let reported_at =
        last.and_then(|attempt| attempt.report.as_ref()).map(|report| millis(report.finished_at));
    let written = (!is_told_by_columns(run, attempts)).then(|| encode_attempts(attempts)).transpose()?;
    statement
        .execute(params![
            run.sequence.as_i64(),
            run.job.as_bytes(),
            run.tenant.0,
            run.version.0,
            cause_code(run.cause),
            millis(run.scheduled_for),
            run.part,
            state_code(run.state),
            millis(run.available_at),
            run.attempt,
            run.charged,
            run.lost,
            &*run.queue,
            run.retention.days(),
            run.lane.rank(),
            run.priority,
            run.started_at.map(millis),
            run.finished_at.map(millis),
            run.is_cancel_requested,
            run.correlation_id.as_deref(),
            last.map(|attempt| *attempt.worker.as_bytes()),
            last.map(|attempt| millis(attempt.claimed_at)),
            reported_at,
            written,
            run.kind.as_deref(),
        ])
        .map_err(crate::error::failed)?;
    Ok(())
}

/// Reads a run from a row of [`COLUMNS`].
pub(crate) fn read(row: &Row<'_>) -> Result<Entry, Error> {
    let get = |index: usize| row.get::<_, Option<i64>>(index).map_err(crate::error::failed);
    let need = |index: usize| get(index)?.ok_or_else(|| damaged(format!("a run without column {index}")));
    let time = |index: usize| get(index)?.map(timestamp).transpose();
    let need_time = |index: usize| timestamp(need(index)?);
    let bytes = |index: usize| row.get::<_, Option<[u8; 16]>>(index).map_err(crate::error::failed);
    let text = |index: usize| row.get::<_, Option<Arc<str>>>(index).map_err(crate::error::failed);

    let sequence = Sequence::from_i64(need(0)?);
    let worker = bytes(20)?.map(WorkerId::from_bytes);
    let claimed_at = time(21)?;
    let attempt = need(9)? as u32;
    let held = worker.zip(claimed_at);
    let state = match need(7)? {
        1 => {
            let (worker, claimed_at) = held.ok_or_else(|| damaged("a running run without a lease"))?;
            RunState::Running(Lease { worker, attempt, claimed_at })
        }
        code => state_of(code).ok_or_else(|| damaged(format!("run state {code}")))?,
    };
    let run = Run {
        sequence,
        job: JobId::from_bytes(bytes(1)?.ok_or_else(|| damaged("a run without a job"))?),
        tenant: TenantId(need(2)? as u32),
        version: Version(need(3)? as u32),
        cause: cause_of(need(4)?).ok_or_else(|| damaged("a run without a cause"))?,
        scheduled_for: need_time(5)?,
        part: need(6)? as u32,
        state,
        available_at: need_time(8)?,
        attempt,
        charged: need(10)? as u32,
        lost: need(11)? as u32,
        kind: text(24)?,
        queue: text(12)?.ok_or_else(|| damaged("a run without a queue"))?,
        retention: Retention::of_days(need(13)? as u64)
            .ok_or_else(|| damaged("a run without a retention"))?,
        lane: lane_of(need(14)?).ok_or_else(|| damaged("a run without a lane"))?,
        priority: need(15)? as i16,
        started_at: time(16)?,
        finished_at: time(17)?,
        is_cancel_requested: need(18)? != 0,
        correlation_id: text(19)?,
    };
    let written: Option<Vec<u8>> = row.get(23).map_err(crate::error::failed)?;
    let attempts = match (written, held) {
        (Some(bytes), _) => decode_attempts(&bytes)?,
        (None, None) => Vec::new(),
        (None, Some((worker, claimed_at))) => {
            let report =
                time(22)?.zip(run.started_at).map(|(finished_at, started_at)| plain(started_at, finished_at));
            vec![Attempt { number: attempt, worker, claimed_at, report }]
        }
    };
    Ok(Entry { run, attempts })
}

/// One attempt, running or plainly successful.
fn is_told_by_columns(run: &Run, attempts: &[Attempt]) -> bool {
    match attempts {
        [] => true,
        [one] if one.number == run.attempt => match &one.report {
            None => true,
            Some(report) => {
                run.started_at == Some(report.started_at)
                    && *report == plain(report.started_at, report.finished_at)
            }
        },
        _ => false,
    }
}

fn plain(started_at: Timestamp, finished_at: Timestamp) -> Report {
    Report {
        outcome: Outcome::Succeeded,
        started_at,
        finished_at,
        error: None,
        output: None,
        status: None,
        phases: Vec::new(),
    }
}

pub(crate) fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

pub(crate) fn timestamp(millis: i64) -> Result<Timestamp, Error> {
    Timestamp::from_millisecond(millis).map_err(|_| damaged(format!("{millis} is not a time")))
}

pub(crate) fn damaged(what: impl Into<String>) -> Error {
    Error::Damaged { what: what.into() }
}

pub(crate) fn lane_of(rank: i64) -> Option<Lane> {
    Lane::ALL.into_iter().find(|lane| i64::from(lane.rank()) == rank)
}

const CAUSES: [Cause; 5] = [Cause::Schedule, Cause::Trigger, Cause::Backfill, Cause::Batch, Cause::Link];

fn cause_code(cause: Cause) -> i64 {
    CAUSES.iter().position(|one| *one == cause).unwrap_or(0) as i64
}

fn cause_of(code: i64) -> Option<Cause> {
    CAUSES.get(usize::try_from(code).ok()?).copied()
}

fn state_code(state: RunState) -> i64 {
    match state {
        RunState::Pending(WaitingFor::Time) => 2,
        RunState::Pending(WaitingFor::Capacity) => 3,
        RunState::Pending(WaitingFor::Retry) => 4,
        RunState::Running(_) => 1,
        RunState::Succeeded => 10,
        RunState::Failed => 11,
        RunState::TimedOut => 12,
        RunState::Cancelled => 13,
    }
}

fn state_of(code: i64) -> Option<RunState> {
    Some(match code {
        2 => RunState::Pending(WaitingFor::Time),
        3 => RunState::Pending(WaitingFor::Capacity),
        4 => RunState::Pending(WaitingFor::Retry),
        10 => RunState::Succeeded,
        11 => RunState::Failed,
        12 => RunState::TimedOut,
        13 => RunState::Cancelled,
        _ => return None,
    })
}
