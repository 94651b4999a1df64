//! The attempts of a run, as one value. What they say is kept apart (`papers.rs`); versions before wrote outputs here.

use std::time::Duration;

use punctual_domain::attempt::{Attempt, Failure, Outcome, Output, Report};
use punctual_domain::id::WorkerId;

use super::bytes::{Put, Take};
use super::{damaged, millis, timestamp};
use crate::error::Error;

/// Raised when the layout changes; readers know every older one.
const FORM: u8 = 1;

/// What a report has.
const ERROR: u8 = 1;
const RETRYABLE: u8 = 1 << 1;
const RETRY_AFTER: u8 = 1 << 2;
const OUTPUT: u8 = 1 << 3;
const TRUNCATED: u8 = 1 << 4;
const STATUS: u8 = 1 << 5;

/// Writes attempts, oldest first.
pub fn encode_attempts(attempts: &[Attempt]) -> Vec<u8> {
    let mut put = Put(Vec::with_capacity(64 * attempts.len()));
    put_attempts(&mut put, attempts);
    put.0
}

/// Reads attempts back.
pub fn decode_attempts(bytes: &[u8]) -> Result<Vec<Attempt>, Error> {
    take_attempts(&mut Take(bytes))
}

pub(super) fn put_attempts(put: &mut Put, attempts: &[Attempt]) {
    put.byte(FORM);
    put.number(attempts.len() as u64);
    for attempt in attempts {
        put.number(attempt.number.into());
        put.fixed(attempt.worker.as_bytes());
        put.signed(millis(attempt.claimed_at));
        match &attempt.report {
            None => put.byte(0),
            Some(report) => put_report(put, report, millis(attempt.claimed_at)),
        }
    }
}

pub(super) fn take_attempts(take: &mut Take<'_>) -> Result<Vec<Attempt>, Error> {
    match take.byte()? {
        FORM => {}
        form => return Err(damaged(format!("attempts of form {form}"))),
    }
    let count = take.number()?;
    let mut attempts = Vec::new();
    for _ in 0..count {
        let (number, worker) = (take.small()?, WorkerId::from_bytes(take.fixed()?));
        let claimed = take.signed()?;
        let report = match take.byte()? {
            0 => None,
            code => Some(take_report(take, code - 1, claimed)?),
        };
        attempts.push(Attempt { number, worker, claimed_at: timestamp(claimed)?, report });
    }
    Ok(attempts)
}

fn put_report(put: &mut Put, report: &Report, claimed: i64) {
    let code = Outcome::ALL.iter().position(|one| *one == report.outcome).unwrap_or(0);
    put.byte(code as u8 + 1);
    let mut has = 0;
    if let Some(error) = &report.error {
        has |= ERROR;
        has |= if error.is_retryable { RETRYABLE } else { 0 };
        has |= if error.retry_after.is_some() { RETRY_AFTER } else { 0 };
    }
    if let Some(output) = &report.output {
        has |= if output.is_truncated { OUTPUT | TRUNCATED } else { OUTPUT };
    }
    has |= if report.status.is_some() { STATUS } else { 0 };
    put.byte(has);
    put.signed(millis(report.started_at) - claimed);
    put.signed(millis(report.finished_at) - claimed);
    if let Some(error) = &report.error {
        put.bytes(error.code.as_bytes());
        put.bytes(error.message.as_bytes());
        if let Some(after) = error.retry_after {
            put.number(after.as_millis() as u64);
        }
    }
    if let Some(output) = &report.output {
        put.bytes(&output.bytes);
    }
    if let Some(status) = report.status {
        put.signed(status.into());
    }
    put.number(report.phases.len() as u64);
    for (name, took) in &report.phases {
        put.bytes(name.as_bytes());
        put.number(took.as_micros() as u64);
    }
}

fn take_report(take: &mut Take<'_>, code: u8, claimed: i64) -> Result<Report, Error> {
    let outcome = Outcome::ALL.get(usize::from(code)).copied();
    let has = take.byte()?;
    let time = |offset: i64| {
        let millis = claimed.checked_add(offset).ok_or_else(|| damaged("a time out of range"))?;
        timestamp(millis)
    };
    let started_at = time(take.signed()?)?;
    let finished_at = time(take.signed()?)?;
    let error = match has & ERROR {
        0 => None,
        _ => Some(Failure {
            code: take.text()?.into(),
            message: take.text()?.into(),
            is_retryable: has & RETRYABLE != 0,
            retry_after: match has & RETRY_AFTER {
                0 => None,
                _ => Some(Duration::from_millis(take.number()?)),
            },
        }),
    };
    let output = match has & OUTPUT {
        0 => None,
        _ => Some(Output { bytes: take.bytes()?.into(), is_truncated: has & TRUNCATED != 0 }),
    };
    let status = match has & STATUS {
        0 => None,
        _ => Some(i32::try_from(take.signed()?).map_err(|_| damaged("a status out of range"))?),
    };
    let mut phases = Vec::new();
    for _ in 0..take.number()? {
        phases.push((take.text()?.to_string().into(), Duration::from_micros(take.number()?)));
    }
    Ok(Report {
        outcome: outcome.ok_or_else(|| damaged(format!("outcome {code}")))?,
        started_at,
        finished_at,
        error,
        output,
        status,
        phases,
        lines: Vec::new(),
        is_unknown: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    #[test]
    fn attempts_read_back_as_they_were_written() {
        let at = |ms: i64| Timestamp::from_millisecond(1_800_000_000_000 + ms).expect("in range");
        let worker = WorkerId::new(at(0), 5);
        let report = Report {
            outcome: Outcome::TimedOut,
            started_at: at(1),
            finished_at: at(2),
            error: Some(Failure {
                code: "timeout".into(),
                message: "no answer in 300 s".into(),
                is_retryable: true,
                retry_after: Some(Duration::from_secs(7)),
            }),
            output: Some(Output { bytes: "gr\u{fc}n".into(), is_truncated: true }),
            status: Some(503),
            phases: vec![("connect".into(), Duration::from_micros(120))],
            lines: Vec::new(),
            is_unknown: false,
        };
        let binary = Report {
            outcome: Outcome::Succeeded,
            error: None,
            output: Some(Output { bytes: vec![0, 255, 128], is_truncated: false }),
            status: None,
            phases: Vec::new(),
            ..report.clone()
        };
        let attempts = vec![
            Attempt { number: 1, worker, claimed_at: at(0), report: Some(report) },
            Attempt { number: 2, worker, claimed_at: at(5), report: Some(binary) },
            Attempt { number: 3, worker, claimed_at: at(9), report: None },
        ];
        let bytes = encode_attempts(&attempts);
        assert_eq!(decode_attempts(&bytes).expect("decodes"), attempts);
        for cut in 0..bytes.len() {
            assert!(decode_attempts(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        assert!(decode_attempts(b"[{\"n\":1}]").is_err());
        assert_eq!(decode_attempts(&encode_attempts(&[])).expect("decodes"), []);
    }
}
