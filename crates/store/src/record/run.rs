//! A run and its attempts, as one value.
//!
//! Two of these are written per run, so it is bytes: times count from the run's birth, which its sequence tells, and
//! what is as usual takes a bit. The attempts of most runs are one plain success, which the run itself tells; only
//! others are written out.

use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::attempt::{Attempt, Outcome, Report};
use punctual_domain::id::{JobId, RunId, Sequence, ShardId, TenantId, Version, WorkerId};
use punctual_domain::job::{DEFAULT_QUEUE, Lane};
use punctual_domain::labels::Labels;
use punctual_domain::policy::limit::Limits;
use punctual_domain::policy::retention::{Keep, Retention};
use punctual_domain::run::{Cause, CausedBy, Lease, Limit, Run, RunState, StartBy, WaitingFor};

use super::attempt::{put_attempts, take_attempts};
use super::bytes::{Put, Take};
use super::limit::{put_limits, take_limits};
use super::{damaged, millis, timestamp};
use crate::error::Error;

/// Raised when the layout changes; readers know every older one.
const FORM: u8 = 1;

/// What a record has, beyond what every run has.
const PART: u16 = 1;
const COUNTS: u16 = 1 << 1;
const PRIORITY: u16 = 1 << 2;
const KIND: u16 = 1 << 3;
const CORRELATION: u16 = 1 << 4;
const QUEUE: u16 = 1 << 5;
const HELD: u16 = 1 << 6;
const STARTED: u16 = 1 << 7;
const FINISHED: u16 = 1 << 8;
const REPORTED: u16 = 1 << 9;
const ATTEMPTS: u16 = 1 << 10;
const CANCEL: u16 = 1 << 11;
const MORE: u16 = 1 << 12;
/// It waits for an earlier run. A bit beside the state, because nodes of the version before, which know nothing of overlap,
/// read it as waiting for capacity; they do not find it in the line.
const BEHIND: u16 = 1 << 13;
/// At the very end, where readers that know nothing of it pass it over.
const REQUIRES: u16 = 1 << 14;
/// If it succeeds it is kept for a day. Readers that know nothing of it keep it for its class.
const FAILURES: u16 = 1 << 15;

/// What few records have. It is told by a byte at the end, which readers that know nothing of it pass over.
const START_BY: u8 = 1;
const REASON: u8 = 1 << 1;
const REDRIVEN: u8 = 1 << 2;
const TURN: u8 = 1 << 3;
/// The limits themselves are at the very end of the record, behind what is required.
const LIMITS: u8 = 1 << 4;
/// What fewer have is told by another byte, behind the limits.
const FEW: u8 = 1 << 7;

/// What came with the run itself. Readers that know nothing of it pass it over.
const PAYLOAD: u8 = 1;
const CAUSED_BY: u8 = 1 << 1;
/// Of how many parts it is one.
const PARTS: u8 = 1 << 2;
/// It waits for an answer. Readers that know nothing of it find it waiting for a retry that never comes.
const ASKING: u8 = 1 << 5;

/// The part of a record that is read without the rest, to find and to filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHead {
    /// The job.
    pub job: JobId,
    /// Its tenant.
    pub tenant: TenantId,
    /// How long its history is kept.
    pub retention: Keep,
    state: u8,
}

impl RunHead {
    /// Reads it.
    pub fn of(record: &[u8]) -> Result<Self, Error> {
        let mut take = Take(record);
        let [form, state, codes, low, high] = take.fixed()?;
        if form != FORM {
            return Err(damaged(format!("a run of form {form}")));
        }
        Ok(RunHead {
            job: JobId::from_bytes(take.fixed()?),
            tenant: TenantId(take.small()?),
            retention: keep_of(codes >> 5, u16::from_le_bytes([low, high]))?,
            state,
        })
    }

    /// Whether the run is in the state of that name.
    pub fn is_in(&self, state: &str) -> bool {
        match self.state {
            RUNNING => state == "running",
            code => state_of(code, None).is_ok_and(|found| found.as_str() == state),
        }
    }
}

/// Writes a run. Its sequence is a column of its own.
pub fn encode_run(run: &Run, attempts: &[Attempt]) -> Vec<u8> {
    let born = millis(run.sequence.born_at());
    let last = attempts.last();
    let reported = last.and_then(|attempt| attempt.report.as_ref()).map(|report| millis(report.finished_at));
    let is_told = is_told_by_run(run, attempts);
    let flag = |is_there: bool, bit: u16| if is_there { bit } else { 0 };
    let has = flag(run.part != 0, PART)
        | flag(run.charged != 0 || run.lost != 0, COUNTS)
        | flag(run.priority != 0, PRIORITY)
        | flag(run.kind.is_some(), KIND)
        | flag(run.correlation_id.is_some(), CORRELATION)
        | flag(*run.queue != *DEFAULT_QUEUE, QUEUE)
        | flag(last.is_some(), HELD)
        | flag(run.started_at.is_some(), STARTED)
        | flag(run.finished_at.is_some(), FINISHED)
        | flag(is_told && reported.is_some(), REPORTED)
        | flag(!is_told, ATTEMPTS)
        | flag(run.is_cancel_requested, CANCEL)
        | flag(has_more(run), MORE)
        | flag(run.is_behind(), BEHIND)
        | flag(!run.requires.is_empty(), REQUIRES)
        | flag(matches!(run.retention, Keep::Failures(_)), FAILURES);
    let mut put = Put(Vec::with_capacity(96));
    put.byte(FORM);
    put.byte(state_code(run.state));
    put.byte(cause_code(run.cause) | run.lane.rank() << 3 | retention_code(run.retention.class()) << 5);
    put.fixed(&has.to_le_bytes());
    put.fixed(run.job.as_bytes());
    put.number(run.tenant.0.into());
    put.number(run.version.0.into());
    put.number(run.attempt.into());
    put.signed(millis(run.scheduled_for) - born);
    put.signed(millis(run.available_at) - born);
    if has & PART != 0 {
        put.number(run.part.into());
    }
    if has & COUNTS != 0 {
        put.number(run.charged.into());
        put.number(run.lost.into());
    }
    if has & PRIORITY != 0 {
        put.signed(run.priority.into());
    }
    if has & QUEUE != 0 {
        put.bytes(run.queue.as_bytes());
    }
    for text in [&run.kind, &run.correlation_id].into_iter().flatten() {
        put.bytes(text.as_bytes());
    }
    if let Some(attempt) = last {
        put.fixed(attempt.worker.as_bytes());
        put.signed(millis(attempt.claimed_at) - born);
    }
    for at in [run.started_at, run.finished_at].into_iter().flatten() {
        put.signed(millis(at) - born);
    }
    match (is_told, reported) {
        (true, Some(at)) => put.signed(at - born),
        (true, None) => {}
        (false, _) => put_attempts(&mut put, attempts),
    }
    if has & MORE != 0 {
        put_more(&mut put, run, born);
    }
    if has & REQUIRES != 0 {
        put.bytes(run.requires.as_str().as_bytes());
    }
    if !run.limits.is_empty() {
        put_limits(&mut put, run);
    }
    if has_few(run) {
        put_few(&mut put, run);
    }
    put.0
}

fn has_more(run: &Run) -> bool {
    run.start_by.is_some()
        || run.reason.is_some()
        || run.redriven_at.is_some()
        || run.turn_at.is_some()
        || !run.limits.is_empty()
        || run.is_asking()
        || has_few(run)
}

fn has_few(run: &Run) -> bool {
    run.payload.is_some() || run.caused_by.is_some() || run.parts.is_some()
}

fn put_few(put: &mut Put, run: &Run) {
    let flag = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
    put.byte(
        flag(run.payload.is_some(), PAYLOAD)
            | flag(run.caused_by.is_some(), CAUSED_BY)
            | flag(run.parts.is_some(), PARTS),
    );
    if let Some(payload) = &run.payload {
        put.bytes(payload.as_bytes());
    }
    if let Some(by) = run.caused_by {
        put.fixed(&by.run.sequence().as_i64().to_be_bytes());
        put.number(by.run.shard().0.into());
        put.number(by.depth.into());
    }
    if let Some(parts) = run.parts {
        put.number(parts.into());
    }
}

/// What few runs have.
#[derive(Default)]
struct Few {
    payload: Option<Arc<str>>,
    caused_by: Option<CausedBy>,
    parts: Option<u32>,
}

fn take_few(take: &mut Take<'_>) -> Result<Few, Error> {
    let has = take.byte()?;
    let payload = match has & PAYLOAD {
        0 => None,
        _ => Some(Arc::from(take.text()?)),
    };
    let caused_by = match has & CAUSED_BY {
        0 => None,
        _ => {
            let sequence = Sequence::from_i64(i64::from_be_bytes(take.fixed()?));
            let (shard, depth) = (take.number()?, take.number()?);
            let (Ok(shard), Ok(depth)) = (u16::try_from(shard), u16::try_from(depth)) else {
                return Err(damaged("what caused a run"));
            };
            Some(CausedBy { run: RunId::new(sequence, ShardId(shard)), depth })
        }
    };
    let parts = match has & PARTS {
        0 => None,
        _ => Some(take.small()?),
    };
    Ok(Few { payload, caused_by, parts })
}

fn put_more(put: &mut Put, run: &Run, born: i64) {
    let flag = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
    put.byte(
        flag(run.start_by.is_some(), START_BY)
            | flag(run.reason.is_some(), REASON)
            | flag(run.redriven_at.is_some(), REDRIVEN)
            | flag(run.turn_at.is_some(), TURN)
            | flag(!run.limits.is_empty(), LIMITS)
            | flag(run.is_asking(), ASKING)
            | flag(has_few(run), FEW),
    );
    if let Some(by) = run.start_by {
        put.byte(limit_code(by.limit));
        put.signed(millis(by.at) - born);
    }
    if let Some(limit) = run.reason {
        put.byte(limit_code(limit));
    }
    for at in [run.redriven_at, run.turn_at].into_iter().flatten() {
        put.signed(millis(at) - born);
    }
}

/// What few records have.
#[derive(Default)]
struct More {
    start_by: Option<StartBy>,
    reason: Option<Limit>,
    redriven_at: Option<Timestamp>,
    turn_at: Option<Timestamp>,
    is_limited: bool,
    has_few: bool,
    is_asking: bool,
}

fn take_more(
    take: &mut Take<'_>,
    time: impl Fn(&mut Take<'_>) -> Result<Timestamp, Error>,
) -> Result<More, Error> {
    let has = take.byte()?;
    let limit = |take: &mut Take<'_>| limit_of(take.byte()?).ok_or_else(|| damaged("a run's limit"));
    let mut more = More {
        is_limited: has & LIMITS != 0,
        is_asking: has & ASKING != 0,
        has_few: has & FEW != 0,
        ..More::default()
    };
    if has & START_BY != 0 {
        let limit = limit(take)?;
        more.start_by = Some(StartBy { at: time(take)?, limit });
    }
    if has & REASON != 0 {
        more.reason = Some(limit(take)?);
    }
    if has & REDRIVEN != 0 {
        more.redriven_at = Some(time(take)?);
    }
    if has & TURN != 0 {
        more.turn_at = Some(time(take)?);
    }
    Ok(more)
}

/// Reads a run back.
pub fn decode_run(sequence: Sequence, record: &[u8]) -> Result<(Run, Vec<Attempt>), Error> {
    let born = millis(sequence.born_at());
    let mut take = Take(record);
    let [form, state, codes, low, high] = take.fixed()?;
    if form != FORM {
        return Err(damaged(format!("a run of form {form}")));
    }
    let has = u16::from_le_bytes([low, high]);
    let time = |take: &mut Take<'_>| {
        let millis = born.checked_add(take.signed()?).ok_or_else(|| damaged("a time out of range"))?;
        timestamp(millis)
    };
    let job = JobId::from_bytes(take.fixed()?);
    let (tenant, version) = (TenantId(take.small()?), Version(take.small()?));
    let attempt = take.small()?;
    let (scheduled_for, available_at) = (time(&mut take)?, time(&mut take)?);
    let part = if has & PART != 0 { take.small()? } else { 0 };
    let (charged, lost) = if has & COUNTS != 0 { (take.small()?, take.small()?) } else { (0, 0) };
    let priority = if has & PRIORITY != 0 { take.signed()? as i16 } else { 0 };
    let queue: Arc<str> = if has & QUEUE != 0 { take.text()? } else { DEFAULT_QUEUE }.into();
    let text = |take: &mut Take<'_>, bit: u16| match has & bit {
        0 => Ok(None),
        _ => take.text().map(|text| Some(Arc::from(text))),
    };
    let kind = text(&mut take, KIND)?;
    let correlation_id = text(&mut take, CORRELATION)?;
    let held = match has & HELD {
        0 => None,
        _ => Some((WorkerId::from_bytes(take.fixed()?), time(&mut take)?)),
    };
    let optional_time = |take: &mut Take<'_>, bit: u16| match has & bit {
        0 => Ok(None),
        _ => time(take).map(Some),
    };
    let started_at = optional_time(&mut take, STARTED)?;
    let finished_at = optional_time(&mut take, FINISHED)?;
    let reported_at = optional_time(&mut take, REPORTED)?;
    let attempts = match (has & ATTEMPTS, held) {
        (0, None) => Vec::new(),
        (0, Some((worker, claimed_at))) => {
            let report = started_at.zip(reported_at).map(|(from, to)| plain(from, to));
            vec![Attempt { number: attempt, worker, claimed_at, report }]
        }
        _ => take_attempts(&mut take)?,
    };
    let more = match has & MORE {
        0 => More::default(),
        _ => take_more(&mut take, time)?,
    };
    let requires: Labels = match has & REQUIRES {
        0 => Labels::NONE,
        _ => take.text()?.parse().map_err(|wrong| damaged(format!("what a run requires: {wrong}")))?,
    };
    let (limits, passed) = match more.is_limited {
        true => take_limits(&mut take)?,
        false => (Limits::NONE, 0),
    };
    let Few { payload, caused_by, parts } = match more.has_few {
        true => take_few(&mut take)?,
        false => Few::default(),
    };
    let lease = held.map(|(worker, claimed_at)| Lease { worker, attempt, claimed_at });
    let run = Run {
        sequence,
        job,
        tenant,
        version,
        cause: cause_of(codes & 0b111).ok_or_else(|| damaged("a run without a cause"))?,
        scheduled_for,
        part,
        parts,
        state: match (state_of(state, lease)?, has & BEHIND != 0) {
            (RunState::Pending(_), true) => RunState::Pending(WaitingFor::EarlierRun),
            (_, true) => return Err(damaged("a run that is not pending and waits for an earlier one")),
            (RunState::Pending(_), false) if more.is_asking => RunState::Pending(WaitingFor::Answer),
            // Nodes of the version before read it as waiting for capacity too; they do not find it in the line.
            (RunState::Pending(WaitingFor::Capacity), false) if usize::from(passed) < limits.len() => {
                RunState::Pending(WaitingFor::Limit)
            }
            (state, false) => state,
        },
        available_at,
        start_by: more.start_by,
        attempt,
        charged,
        lost,
        kind,
        queue,
        requires,
        retention: keep_of(codes >> 5, has)?,
        lane: lane_of(codes >> 3 & 0b11).ok_or_else(|| damaged("a run without a lane"))?,
        priority,
        started_at,
        finished_at,
        reason: more.reason,
        redriven_at: more.redriven_at,
        turn_at: more.turn_at,
        is_cancel_requested: has & CANCEL != 0,
        limits,
        passed,
        correlation_id,
        payload,
        caused_by,
    };
    Ok((run, attempts))
}

/// One attempt, running or plainly successful.
fn is_told_by_run(run: &Run, attempts: &[Attempt]) -> bool {
    match attempts {
        [] => true,
        [one] if one.number == run.attempt => one.report.as_ref().is_none_or(|report| {
            run.started_at == Some(report.started_at)
                && *report == plain(report.started_at, report.finished_at)
        }),
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
        lines: Vec::new(),
        is_unknown: false,
    }
}

const CAUSES: [Cause; 5] = [Cause::Schedule, Cause::Trigger, Cause::Backfill, Cause::Batch, Cause::Link];

fn cause_code(cause: Cause) -> u8 {
    CAUSES.iter().position(|one| *one == cause).unwrap_or(0) as u8
}

fn cause_of(code: u8) -> Option<Cause> {
    CAUSES.get(usize::from(code)).copied()
}

fn lane_of(rank: u8) -> Option<Lane> {
    Lane::ALL.into_iter().find(|lane| lane.rank() == rank)
}

fn retention_code(retention: Retention) -> u8 {
    Retention::ALL.iter().position(|one| *one == retention).unwrap_or(0) as u8
}

fn keep_of(code: u8, has: u16) -> Result<Keep, Error> {
    let class = Retention::ALL.get(usize::from(code)).copied();
    let class = class.ok_or_else(|| damaged("a run without a retention"))?;
    Ok(if has & FAILURES != 0 { Keep::Failures(class) } else { Keep::All(class) })
}

fn limit_code(limit: Limit) -> u8 {
    Limit::ALL.iter().position(|one| *one == limit).unwrap_or(0) as u8
}

fn limit_of(code: u8) -> Option<Limit> {
    Limit::ALL.get(usize::from(code)).copied()
}

const RUNNING: u8 = 1;

fn state_code(state: RunState) -> u8 {
    match state {
        RunState::Running(_) => RUNNING,
        RunState::Pending(WaitingFor::Time) => 2,
        RunState::Pending(WaitingFor::Capacity | WaitingFor::EarlierRun | WaitingFor::Limit) => 3,
        RunState::Pending(WaitingFor::Retry | WaitingFor::Answer) => 4,
        RunState::Succeeded => 10,
        RunState::Failed => 11,
        RunState::TimedOut => 12,
        RunState::Cancelled => 13,
        RunState::Missed => 14,
    }
}

fn state_of(code: u8, lease: Option<Lease>) -> Result<RunState, Error> {
    Ok(match code {
        RUNNING => RunState::Running(lease.ok_or_else(|| damaged("a running run without a lease"))?),
        2 => RunState::Pending(WaitingFor::Time),
        3 => RunState::Pending(WaitingFor::Capacity),
        4 => RunState::Pending(WaitingFor::Retry),
        10 => RunState::Succeeded,
        11 => RunState::Failed,
        12 => RunState::TimedOut,
        13 => RunState::Cancelled,
        14 => RunState::Missed,
        code => return Err(damaged(format!("run state {code}"))),
    })
}

#[cfg(test)]
mod tests;
