//! The attempts of a run, as one value.

use std::time::Duration;

use punctual_domain::attempt::{Attempt, Failure, Outcome, Output, Report};
use punctual_domain::id::WorkerId;
use serde::{Deserialize, Serialize};

use super::{damaged, millis, timestamp};
use crate::error::Error;

#[derive(Serialize, Deserialize)]
struct AttemptRecord {
    n: u32,
    worker: WorkerText,
    claimed: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    report: Option<ReportRecord>,
}

#[derive(Serialize, Deserialize)]
struct ReportRecord {
    outcome: u8,
    started: i64,
    finished: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<FailureRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<OutputRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<i32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    phases: Vec<(String, u64)>,
}

#[derive(Serialize, Deserialize)]
struct FailureRecord {
    code: String,
    message: String,
    #[serde(default)]
    retryable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
}

/// Text where it is text, bytes where it is not.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OutputRecord {
    Text(String, bool),
    Bytes(Vec<u8>, bool),
}

#[derive(Serialize, Deserialize)]
struct WorkerText(String);

/// Writes attempts, oldest first.
pub fn encode_attempts(attempts: &[Attempt]) -> Result<Vec<u8>, Error> {
    let records: Vec<AttemptRecord> = attempts
        .iter()
        .map(|attempt| AttemptRecord {
            n: attempt.number,
            worker: WorkerText(attempt.worker.to_string()),
            claimed: millis(attempt.claimed_at),
            report: attempt.report.as_ref().map(encode_report),
        })
        .collect();
    serde_json::to_vec(&records).map_err(|error| damaged(format!("attempts: {error}")))
}

/// Reads attempts back.
pub fn decode_attempts(bytes: &[u8]) -> Result<Vec<Attempt>, Error> {
    let records: Vec<AttemptRecord> =
        serde_json::from_slice(bytes).map_err(|error| damaged(format!("attempts: {error}")))?;
    records
        .into_iter()
        .map(|record| {
            let worker: WorkerId =
                record.worker.0.parse().map_err(|_| damaged(format!("worker `{}`", record.worker.0)))?;
            Ok(Attempt {
                number: record.n,
                worker,
                claimed_at: timestamp(record.claimed)?,
                report: record.report.map(decode_report).transpose()?,
            })
        })
        .collect()
}

fn outcome_code(outcome: Outcome) -> u8 {
    Outcome::ALL.iter().position(|one| *one == outcome).unwrap_or(0) as u8
}

fn encode_report(report: &Report) -> ReportRecord {
    ReportRecord {
        outcome: outcome_code(report.outcome),
        started: millis(report.started_at),
        finished: millis(report.finished_at),
        error: report.error.as_ref().map(|error| FailureRecord {
            code: error.code.clone(),
            message: error.message.clone(),
            retryable: error.is_retryable,
            after: error.retry_after.map(|after| after.as_millis() as u64),
        }),
        output: report.output.as_ref().map(|output| match std::str::from_utf8(&output.bytes) {
            Ok(text) => OutputRecord::Text(text.into(), output.is_truncated),
            Err(_) => OutputRecord::Bytes(output.bytes.clone(), output.is_truncated),
        }),
        status: report.status,
        phases: report
            .phases
            .iter()
            .map(|(name, took)| (name.to_string(), took.as_micros() as u64))
            .collect(),
    }
}

fn decode_report(record: ReportRecord) -> Result<Report, Error> {
    let outcome = Outcome::ALL.get(usize::from(record.outcome)).copied();
    Ok(Report {
        outcome: outcome.ok_or_else(|| damaged(format!("outcome {}", record.outcome)))?,
        started_at: timestamp(record.started)?,
        finished_at: timestamp(record.finished)?,
        error: record.error.map(|error| Failure {
            code: error.code,
            message: error.message,
            is_retryable: error.retryable,
            retry_after: error.after.map(Duration::from_millis),
        }),
        output: record.output.map(|output| match output {
            OutputRecord::Text(text, is_truncated) => Output { bytes: text.into_bytes(), is_truncated },
            OutputRecord::Bytes(bytes, is_truncated) => Output { bytes, is_truncated },
        }),
        status: record.status,
        phases: record
            .phases
            .into_iter()
            .map(|(name, us)| (name.into(), Duration::from_micros(us)))
            .collect(),
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
        let bytes = encode_attempts(&attempts).expect("encodes");
        assert_eq!(decode_attempts(&bytes).expect("decodes"), attempts);
        assert!(decode_attempts(b"[{\"n\":1}]").is_err());
        assert_eq!(decode_attempts(b"[]").expect("decodes"), []);
    }
}
