//! Runs on the wire: a summary in lists, with attempts when read alone.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use punctual_domain::{self as domain, RunState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::duration::Duration;

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunSummary {
    /// Its id.
    pub id: String,
    /// Whose slot it is.
    pub job_id: String,
    /// Whose it is.
    pub tenant: String,
    /// The version of the job it was fired with.
    pub job_version: u32,
    /// The job's type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Who executes.
    pub queue: String,
    /// Labels that the worker must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requires: BTreeMap<String, String>,
    /// Why it exists: `schedule`, `trigger`, `backfill`, `batch` or `link`.
    pub cause: String,
    /// Its nominal time.
    pub scheduled_for: Timestamp,
    /// `pending`, `running`, `succeeded`, `failed`, `timed_out`, `cancelled` or `missed`.
    pub state: String,
    /// The limit that ended it, if one did: `start_window`, `retry_for` or `deadline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What a pending run waits for: `time`, `capacity`, `retry` or `earlier_run`.
    pub waiting_for: Option<String>,
    /// When a pending run may be claimed; nothing while it waits for an earlier run.
    pub available_at: Option<Timestamp>,
    /// Until when a pending run may start its next attempt, if there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_by: Option<Timestamp>,
    /// The number of the last attempt; 0 before the first.
    pub attempt: u32,
    /// When its first attempt started, by the worker's clock.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// How late its first attempt started, in milliseconds.
    pub lateness_ms: Option<i64>,
    /// When somebody last asked for more attempts; limits count from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redriven_at: Option<Timestamp>,
    /// Somebody asked it to stop while it was running.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cancel_requested: bool,
    /// What receivers recognise repeated deliveries by.
    pub idempotency_key: String,
    /// Follows it through logs and callbacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
}

/// A run with its attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// The run.
    #[serde(flatten)]
    pub summary: RunSummary,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// What its owner should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One try of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    /// Which worker tried.
    pub worker: String,
    /// `succeeded`, `failed`, `timed_out`, `cancelled` or `lost`; nothing while it runs, or if it was given back unfinished.
    pub outcome: Option<String>,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// When the target was reached for, by the worker's clock.
    pub started_at: Option<Timestamp>,
    /// When it ended, by the worker's clock.
    pub finished_at: Option<Timestamp>,
    /// From start to end, in milliseconds.
    pub duration_ms: Option<i64>,
    /// The target's own code: an HTTP status, an exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<AttemptError>,
    /// What the target answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// How long each phase took, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AttemptError {
    /// A stable word, such as `connect_failed`, `timed_out`, `http_status`, `deadline` or `lost`.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// Whether another attempt may follow, as the target says or the job's `retry` says otherwise.
    pub is_retryable: bool,
    /// How long the target asked to be left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
}

/// What a target answered: `text`, or `base64` if it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Output {
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes, if they are not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Whether there was more.
    pub is_truncated: bool,
}

/// How long a phase took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Phase {
    /// Which: `queued`, `dns`, `connect`, `tls`, `first_byte` or `body`.
    pub name: String,
    /// How long, in milliseconds.
    pub duration_ms: f64,
}

impl RunSummary {
    /// A run; `kind` is the job's type, `due_at` its nominal time and the job's spread.
    pub fn new(run: &domain::Run, tenant: &str, kind: Option<&str>, due_at: Timestamp) -> Self {
        let waiting_for = match run.state {
            RunState::Pending(waiting_for) => Some(waiting_for.as_str().to_string()),
            RunState::Running(_)
            | RunState::Succeeded
            | RunState::Failed
            | RunState::TimedOut
            | RunState::Cancelled
            | RunState::Missed => None,
        };
        RunSummary {
            id: run.id().to_string(),
            job_id: run.job.to_string(),
            tenant: tenant.into(),
            job_version: run.version.0,
            kind: kind.map(str::to_string),
            queue: run.queue.to_string(),
            requires: run.requires.to_map(),
            cause: run.cause.as_str().into(),
            scheduled_for: run.scheduled_for,
            state: run.state.as_str().into(),
            reason: run.reason.map(|reason| reason.as_str().into()),
            available_at: (waiting_for.is_some() && !run.is_behind()).then_some(run.available_at),
            waiting_for,
            start_by: run.lapses_after(),
            attempt: run.attempt,
            started_at: run.started_at,
            finished_at: run.finished_at,
            lateness_ms: run.lateness(due_at).map(|late| late.as_millis() as i64),
            redriven_at: run.redriven_at,
            is_cancel_requested: run.is_cancel_requested,
            idempotency_key: run.idempotency_key().to_string(),
            correlation_id: run.correlation_id.as_deref().map(str::to_string),
        }
    }
}

impl From<&domain::Attempt> for Attempt {
    fn from(attempt: &domain::Attempt) -> Self {
        let report = attempt.report.as_ref();
        Attempt {
            number: attempt.number,
            worker: attempt.worker.to_string(),
            outcome: report.map(|report| report.outcome.as_str().into()),
            claimed_at: attempt.claimed_at,
            started_at: report.map(|report| report.started_at),
            finished_at: report.map(|report| report.finished_at),
            duration_ms: report
                .map(|report| report.finished_at.duration_since(report.started_at).as_millis() as i64),
            status: report.and_then(|report| report.status),
            error: report.and_then(|report| report.error.as_ref()).map(|error| AttemptError {
                code: error.code.clone(),
                message: error.message.clone(),
                is_retryable: error.is_retryable,
                retry_after: error.retry_after.filter(|after| !after.is_zero()).map(Duration),
            }),
            output: report.and_then(|report| report.output.as_ref()).map(Output::from),
            phases: report.map_or_else(Vec::new, |report| {
                let phase = |(name, length): &(std::borrow::Cow<'static, str>, std::time::Duration)| Phase {
                    name: name.to_string(),
                    duration_ms: length.as_secs_f64() * 1000.0,
                };
                report.phases.iter().map(phase).collect()
            }),
        }
    }
}

impl From<&domain::attempt::Output> for Output {
    fn from(output: &domain::attempt::Output) -> Self {
        // A cut in the middle of a character is still text.
        let text = match std::str::from_utf8(&output.bytes) {
            Ok(text) => Some(text),
            Err(error) if output.is_truncated && error.error_len().is_none() => {
                std::str::from_utf8(&output.bytes[..error.valid_up_to()]).ok()
            }
            Err(_) => None,
        };
        Output {
            base64: text.is_none().then(|| STANDARD.encode(&output.bytes)),
            text: text.map(str::to_string),
            is_truncated: output.is_truncated,
        }
    }
}
