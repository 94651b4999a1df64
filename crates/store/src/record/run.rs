//! A run and its attempts, as one value.
//!
//! Two of these are written per run, so it is bytes: times count from the run's birth, which its sequence tells, and
//! what is as usual takes a bit. The attempts of most runs are one plain success, which the run itself tells; only
//! others are written out.

use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::attempt::{Attempt, Outcome, Report};
use punctual_domain::id::{JobId, Sequence, TenantId, Version, WorkerId};
use punctual_domain::job::{DEFAULT_QUEUE, Lane};
use punctual_domain::labels::Labels;
use punctual_domain::policy::limit::Limits;
use punctual_domain::policy::retention::Retention;
use punctual_domain::run::{Cause, Lease, Limit, Run, RunState, StartBy, WaitingFor};

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

/// What few records have. It is told by a byte at the end, which readers that know nothing of it pass over.
const START_BY: u8 = 1;
const REASON: u8 = 1 << 1;
const REDRIVEN: u8 = 1 << 2;
const TURN: u8 = 1 << 3;
/// The limits themselves are at the very end of the record, behind what is required.
const LIMITS: u8 = 1 << 4;

/// The part of a record that is read without the rest, to find and to filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHead {
    /// The job.
    pub job: JobId,
    /// Its tenant.
    pub tenant: TenantId,
    /// How long its history is kept.
    pub retention: Retention,
    state: u8,
}

impl RunHead {
    /// Reads it.
    pub fn of(record: &[u8]) -> Result<Self, Error> {
        let mut take = Take(record);
        let [form, state, codes, _, _] = take.fixed()?;
        if form != FORM {
            return Err(damaged(format!("a run of form {form}")));
        }
        let retention = retention_of(codes >> 5).ok_or_else(|| damaged("a run without a retention"))?;
        Ok(RunHead {
            job: JobId::from_bytes(take.fixed()?),
            tenant: TenantId(take.small()?),
            retention,
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
        | flag(!run.requires.is_empty(), REQUIRES);
    let mut put = Put(Vec::with_capacity(96));
    put.byte(FORM);
    put.byte(state_code(run.state));
    put.byte(cause_code(run.cause) | run.lane.rank() << 3 | retention_code(run.retention) << 5);
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
    put.0
}

fn has_more(run: &Run) -> bool {
    run.start_by.is_some()
        || run.reason.is_some()
        || run.redriven_at.is_some()
        || run.turn_at.is_some()
        || !run.limits.is_empty()
}

fn put_more(put: &mut Put, run: &Run, born: i64) {
    let flag = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
    put.byte(
        flag(run.start_by.is_some(), START_BY)
            | flag(run.reason.is_some(), REASON)
            | flag(run.redriven_at.is_some(), REDRIVEN)
            | flag(run.turn_at.is_some(), TURN)
            | flag(!run.limits.is_empty(), LIMITS),
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
}

fn take_more(
    take: &mut Take<'_>,
    time: impl Fn(&mut Take<'_>) -> Result<Timestamp, Error>,
) -> Result<More, Error> {
    let has = take.byte()?;
    let limit = |take: &mut Take<'_>| limit_of(take.byte()?).ok_or_else(|| damaged("a run's limit"));
    let mut more = More { is_limited: has & LIMITS != 0, ..More::default() };
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
    let lease = held.map(|(worker, claimed_at)| Lease { worker, attempt, claimed_at });
    let run = Run {
        sequence,
        job,
        tenant,
        version,
        cause: cause_of(codes & 0b111).ok_or_else(|| damaged("a run without a cause"))?,
        scheduled_for,
        part,
        state: match (state_of(state, lease)?, has & BEHIND != 0) {
            (RunState::Pending(_), true) => RunState::Pending(WaitingFor::EarlierRun),
            (_, true) => return Err(damaged("a run that is not pending and waits for an earlier one")),
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
        retention: retention_of(codes >> 5).ok_or_else(|| damaged("a run without a retention"))?,
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

fn retention_of(code: u8) -> Option<Retention> {
    Retention::ALL.get(usize::from(code)).copied()
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
        RunState::Pending(WaitingFor::Retry) => 4,
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
mod tests {
    use punctual_domain::id::ShardId;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + millis).expect("in range")
    }

    fn running() -> (Run, Vec<Attempt>) {
        let worker = WorkerId::new(at(0), 9);
        let run = Run {
            sequence: Sequence::first_at(at(0), 0).next(),
            job: JobId::new(at(-5), ShardId(7), 77),
            tenant: TenantId(3),
            version: Version(2),
            cause: Cause::Schedule,
            scheduled_for: at(-1),
            part: 0,
            state: RunState::Running(Lease { worker, attempt: 1, claimed_at: at(2) }),
            available_at: at(-1),
            start_by: None,
            attempt: 1,
            charged: 0,
            lost: 0,
            kind: None,
            queue: "default".into(),
            requires: Labels::NONE,
            retention: Retention::Week,
            lane: Lane::Standard,
            priority: 0,
            started_at: None,
            finished_at: None,
            reason: None,
            redriven_at: None,
            turn_at: None,
            is_cancel_requested: false,
            limits: Limits::NONE,
            passed: 0,
            correlation_id: None,
        };
        (run, vec![Attempt { number: 1, worker, claimed_at: at(2), report: None }])
    }

    fn cases() -> Vec<(Run, Vec<Attempt>)> {
        let (born, attempts) = running();
        let pending = Run { state: RunState::Pending(WaitingFor::Time), attempt: 0, ..born.clone() };
        let mut succeeded = attempts.clone();
        succeeded[0].report = Some(plain(at(3), at(1_000)));
        let ended = Run {
            state: RunState::Succeeded,
            started_at: Some(at(3)),
            finished_at: Some(at(1_001)),
            ..born.clone()
        };
        let mut twice = succeeded.clone();
        twice.push(Attempt { number: 2, worker: WorkerId::new(at(1), 1), claimed_at: at(9), report: None });
        twice[0].report = Some(Report::lost(at(3), at(8)));
        let full = Run {
            cause: Cause::Link,
            part: 70_000,
            state: RunState::TimedOut,
            attempt: 2,
            charged: 3,
            lost: 4,
            kind: Some("report".into()),
            queue: "slow".into(),
            requires: "zone=eu,gpu=true".parse().expect("labels"),
            retention: Retention::Year,
            lane: Lane::Batch,
            priority: -700,
            is_cancel_requested: true,
            correlation_id: Some("corr".into()),
            scheduled_for: at(-86_400_000_000),
            reason: Some(Limit::Deadline),
            redriven_at: Some(at(7)),
            ..ended.clone()
        };
        let limited =
            Run { start_by: Some(StartBy { at: at(60_000), limit: Limit::StartWindow }), ..pending.clone() };
        let missed = Run {
            state: RunState::Missed,
            finished_at: Some(at(60_001)),
            reason: Some(Limit::StartWindow),
            ..limited.clone()
        };
        let behind = Run { state: RunState::Pending(WaitingFor::EarlierRun), ..pending.clone() };
        let limited_behind = Run { start_by: limited.start_by, ..behind.clone() };
        let backfilled = Run { cause: Cause::Backfill, turn_at: Some(at(9)), ..limited_behind.clone() };
        let redriven = Run { attempt: 2, ..behind.clone() };
        let waiting = Run {
            state: RunState::Pending(WaitingFor::Limit),
            limits: super::super::limit::tests::limits(),
            passed: 2,
            requires: full.requires.clone(),
            ..limited.clone()
        };
        let early = Run { state: RunState::Pending(WaitingFor::Time), passed: 0, ..waiting.clone() };
        let through = Run { state: RunState::Pending(WaitingFor::Capacity), passed: 4, ..waiting.clone() };
        let retried = Run { state: RunState::Pending(WaitingFor::Retry), passed: 1, ..waiting.clone() };
        let mut cases = vec![(pending, Vec::new()), (born, attempts), (ended, succeeded)];
        cases.extend([(full, twice.clone()), (behind, Vec::new()), (redriven, twice)]);
        cases.extend([limited, missed, limited_behind, backfilled].map(|run| (run, Vec::new())));
        cases.extend([waiting, early, through, retried].map(|run| (run, Vec::new())));
        cases
    }

    /// The bytes of a run with limits as a reader takes them that knows nothing of limits.
    #[test]
    fn what_few_records_have_is_at_the_end_and_can_be_passed_over() {
        for (run, attempts) in cases() {
            let plain = Run {
                start_by: None,
                reason: None,
                redriven_at: None,
                turn_at: None,
                requires: Labels::NONE,
                limits: Limits::NONE,
                passed: 0,
                ..run.clone()
            };
            let (record, mut without) = (encode_run(&run, &attempts), encode_run(&plain, &attempts));
            without[4] |= record[4] & ((MORE | REQUIRES) >> 8) as u8;
            assert!(record.starts_with(&without));
        }
    }

    #[test]
    fn a_run_reads_back_as_it_was_written() {
        for (run, attempts) in cases() {
            let record = encode_run(&run, &attempts);
            let head = RunHead::of(&record).expect("decodes");
            assert_eq!((head.job, head.tenant, head.retention), (run.job, run.tenant, run.retention));
            assert!(head.is_in(run.state.as_str()));
            assert_eq!(decode_run(run.sequence, &record).expect("decodes"), (run, attempts));
        }
    }

    #[test]
    fn a_plain_run_is_small() {
        let sizes: Vec<usize> =
            cases().iter().map(|(run, attempts)| encode_run(run, attempts).len()).collect();
        assert_eq!(sizes[..3], [26, 43, 48], "waiting, running, succeeded");
    }

    #[test]
    fn damaged_records_are_refused() {
        for (run, attempts) in cases() {
            let record = encode_run(&run, &attempts);
            for cut in 0..record.len() {
                assert!(decode_run(run.sequence, &record[..cut]).is_err(), "cut at {cut}");
            }
            for (index, byte) in [(0, 9), (1, 99), (2, 0xff)] {
                let mut wrong = record.clone();
                wrong[index] = byte;
                assert!(decode_run(run.sequence, &wrong).is_err(), "byte {index}");
            }
        }
    }
}
