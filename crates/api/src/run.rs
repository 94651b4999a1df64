//! Runs on the wire: a summary in lists, with attempts when read alone.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use punctual_domain::papers::{Line, Place, Said};
use punctual_domain::policy::unknown::Answer;
use punctual_domain::{self as domain, RunState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::duration::Duration;
use crate::payload::Payload;
use crate::read::{At, Errors, Unread, one_of};
use crate::target::required;

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
    /// Which part of its slot, from 1, of a job in parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    /// Of how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<u32>,
    /// The item of its batch that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_id: Option<String>,
    /// The worker that it is for, of a broadcast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_worker: Option<String>,
    /// It was lost with its worker three times or more, and may be what the workers died of: no worker has it together with another such run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_tried_alone: bool,
    /// `pending`, `running`, `succeeded`, `failed`, `timed_out`, `cancelled` or `missed`.
    pub state: String,
    /// The limit that ended it, if one did: `start_window`, `retry_for` or `deadline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What a pending run waits for: `time`, `capacity`, `retry`, `earlier_run`, `limit`, `breaker` or `answer`.
    pub waiting_for: Option<String>,
    /// When a pending run may be claimed; nothing while it waits for an earlier run or an answer.
    pub available_at: Option<Timestamp>,
    /// Until when a pending run may start its next attempt, or be answered for, if there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_by: Option<Timestamp>,
    /// Of a running run whose receiver has answered and reports by its token: until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_by: Option<Timestamp>,
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
    /// The end of another run that it follows, by a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caused_by: Option<CausedBy>,
}

/// The end of another run that a run follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CausedBy {
    /// Which run ended.
    pub run_id: String,
    /// How many runs there are before it in the chain of links.
    pub depth: u16,
}

/// A run with its attempts and what they said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// The run.
    #[serde(flatten)]
    pub summary: RunSummary,
    /// What is sent instead of the job's payload, if it has one of its own: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// How far its last attempt is, or was, as its worker said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Where its next attempt goes on, as the last one said: any JSON. A run that is over for good has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Payload>,
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
    /// What it wrote, oldest first: the newest lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<LogLine>,
    /// How many older lines were left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub log_dropped: u64,
}

/// How far an attempt is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// Of a hundred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A line of an attempt's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// When.
    pub at: Timestamp,
    /// What.
    pub text: String,
}

/// A line of a run's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunLogLine {
    /// Which attempt wrote it.
    pub attempt: u32,
    /// Its number in the log of the attempt, from 1. A gap before it: older lines were left out.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// What.
    pub text: String,
}

impl RunLogLine {
    /// A line at its place.
    pub fn new(place: Place, line: &Line) -> Self {
        RunLogLine { attempt: place.attempt, number: place.number, at: line.at, text: line.text.clone() }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
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

object! {
    /// What somebody says about a run that waits for an answer.
    pub struct RunAnswer {
        /// `retry`: it is tried again; `succeeded`: it did its work; `failed`: it did not, and is a dead letter.
        #[schema(example = "succeeded", required = true)]
        pub answer: String,
    }
}

const ANSWERS: [(&str, Answer); 3] =
    [("retry", Answer::Retry), ("succeeded", Answer::Succeeded), ("failed", Answer::Failed)];

impl RunAnswer {
    /// As the domain has it, or everything that is wrong.
    pub fn to_domain(&self) -> Result<Answer, Unread> {
        let mut errors = Errors::default();
        let answer = required(self.answer.as_ref(), &At::ROOT, "answer", &mut errors)
            .and_then(|word| one_of(word, &ANSWERS, &At::ROOT.member("answer"), &mut errors));
        answer.ok_or_else(|| Unread::Wrong(errors.into_vec()))
    }
}

impl RunSummary {
    /// A run; `kind` is the job's type, `due_at` its nominal time and the job's spread.
    pub fn new(run: &domain::Run, tenant: &str, kind: Option<&str>, due_at: Timestamp) -> Self {
        let waiting_for = match run.state {
            RunState::Pending(_) if run.waits_for_breaker().is_some() => Some("breaker".into()),
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
            requires: run.requires.without_own().to_map(),
            cause: run.cause.as_str().into(),
            scheduled_for: run.scheduled_for,
            part: run.part_of().map(|(part, _)| part),
            parts: run.part_of().map(|(_, of)| of),
            item_id: None,
            for_worker: run.requires.worker().map(|worker| worker.to_string()),
            is_tried_alone: run.requires.are_alone() && !run.state.is_ended(),
            state: run.state.as_str().into(),
            reason: run.reason.map(|reason| reason.as_str().into()),
            available_at: (waiting_for.is_some() && !run.is_behind() && !run.is_asking())
                .then_some(run.available_at),
            waiting_for,
            start_by: run.lapses_after(),
            report_by: run.receiver().map(|terms| terms.ends_at),
            attempt: run.attempt,
            started_at: run.started_at,
            finished_at: run.finished_at,
            lateness_ms: run.lateness(due_at).map(|late| late.as_millis() as i64),
            redriven_at: run.redriven_at,
            is_cancel_requested: run.is_cancel_requested,
            idempotency_key: run.idempotency_key().to_string(),
            correlation_id: run.correlation_id.as_deref().map(str::to_string),
            caused_by: run.caused_by.map(|by| CausedBy { run_id: by.run.to_string(), depth: by.depth }),
        }
    }
}

impl Run {
    /// A run with its attempts and what they said.
    pub fn new(
        summary: RunSummary,
        payload: Option<&str>,
        attempts: &[domain::Attempt],
        papers: &domain::Papers,
        warnings: Vec<String>,
    ) -> Self {
        let attempt = |one: &domain::Attempt| Attempt::new(one, papers.of(one.number));
        let last = papers.of(summary.attempt).and_then(|said| said.progress.as_ref());
        Run {
            payload: payload.and_then(Payload::new),
            attempts: attempts.iter().map(attempt).collect(),
            progress: last.map(|last| Progress { percent: last.percent, message: last.message.clone() }),
            checkpoint: papers.checkpoint.as_deref().and_then(Payload::new),
            summary,
            warnings,
        }
    }
}

impl Attempt {
    /// An attempt with what it said.
    pub fn new(attempt: &domain::Attempt, said: Option<&Said>) -> Self {
        let report = attempt.report.as_ref();
        let line = |line: &Line| LogLine { at: line.at, text: line.text.clone() };
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
            log: said.map_or_else(Vec::new, |said| said.log.lines.iter().map(line).collect()),
            log_dropped: said.map_or(0, |said| said.log.dropped),
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// The client reads what the server shows, and a checkpoint keeps every byte.
    #[test]
    fn a_run_reads_back_with_what_its_attempts_said() {
        let text = r#"{"id":"r","job_id":"j","tenant":"default","job_version":1,"queue":"default","cause":"trigger",
            "scheduled_for":"2026-01-01T12:00:00Z","state":"running","attempt":1,"idempotency_key":"k",
            "attempts":[{"number":1,"worker":"w","claimed_at":"2026-01-01T12:00:00Z",
                "log":[{"at":"2026-01-01T12:00:01Z","text":"begun"}],"log_dropped":7}],
            "caused_by":{"run_id":"r0","depth":2},"payload":{"n": 1.50},"progress":{"percent":40},"checkpoint":{"row": 1.50}}"#;
        let run: Run = serde_json::from_str(text).unwrap();
        assert_eq!(run.checkpoint.as_ref().map(Payload::as_str), Some(r#"{"row": 1.50}"#));
        assert_eq!(run.payload.as_ref().map(Payload::as_str), Some(r#"{"n": 1.50}"#));
        assert_eq!(run.summary.caused_by, Some(CausedBy { run_id: "r0".into(), depth: 2 }));
        assert_eq!(run.progress, Some(Progress { percent: Some(40), message: None }));
        assert_eq!((run.attempts[0].log.len(), run.attempts[0].log_dropped), (1, 7));
        let shown = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<Run>(&shown).unwrap(), run);
    }
}
