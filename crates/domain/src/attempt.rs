//! One try of a run, and what its worker reports.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;

use crate::id::WorkerId;
use crate::papers::Line;
use crate::run::Run;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The target did it.
    Succeeded,
    /// The target or the way to it failed.
    Failed,
    /// It took longer than it may.
    TimedOut,
    /// It was asked to stop, and did.
    Cancelled,
    /// Its worker is gone; nobody knows what happened.
    Lost,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Outcome; 5] =
        [Outcome::Succeeded, Outcome::Failed, Outcome::TimedOut, Outcome::Cancelled, Outcome::Lost];

    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
            Outcome::TimedOut => "timed_out",
            Outcome::Cancelled => "cancelled",
            Outcome::Lost => "lost",
        }
    }
}

/// An attempt in a run's history.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// From 1, without gaps.
    pub number: u32,
    /// Who tried; the receiver, once that goes on with it.
    pub worker: WorkerId,
    /// When it was claimed, by the store's clock.
    pub claimed_at: Timestamp,
    /// What came of it; nothing while it runs, or if it was given back before it began.
    pub report: Option<Report>,
}

impl Attempt {
    /// Whoever holds its run goes on with it, if anybody does.
    pub fn goes_on_with(&mut self, run: &Run) {
        if let Some(lease) = run.lease() {
            self.worker = lease.worker;
        }
    }
}

/// What a worker says about an attempt, the same for every target.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// When the target was reached for, by the worker's clock.
    pub started_at: Timestamp,
    /// When it ended, by the worker's clock.
    pub finished_at: Timestamp,
    /// Why it failed.
    pub error: Option<Failure>,
    /// The target's answer, capped.
    pub output: Option<Output>,
    /// The target's own code: an HTTP status, an exit code.
    pub status: Option<i32>,
    /// How long each phase took, in order.
    pub phases: Vec<(Cow<'static, str>, Duration)>,
    /// The last lines of its log, which no note brought.
    pub lines: Vec<Line>,
    /// It failed, and something of it may have reached the target. Told to the engine and not stored: where it matters, the error says
    /// it ([`crate::policy::unknown`]).
    pub is_unknown: bool,
}

/// The codes of failures that a job can choose to retry or not, in the order of a call.
pub const CODES: [&str; 18] = [
    "target_url_invalid",
    "target_header_invalid",
    "target_refused",
    "call_unsendable",
    "secret_not_found",
    "secret_unreadable",
    "dns_failed",
    "connect_failed",
    "tls_failed",
    "timed_out",
    "connection_closed",
    "protocol_error",
    "http_status",
    "function_unknown",
    "function_failed",
    "function_panicked",
    "worker_failed",
    "internal",
];

/// The code of an attempt that the deadline of its run cut off.
pub const DEADLINE: &str = "deadline";

/// The code of a part of a broadcast whose worker is gone. It is final, and no job names it.
pub const WORKER_GONE: &str = "worker_gone";

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A stable word, one of [`CODES`], or `lost`, [`DEADLINE`], [`WORKER_GONE`] or [`UNKNOWN`](crate::policy::unknown::UNKNOWN).
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// Whether another attempt may help, by the target's rules.
    pub is_retryable: bool,
    /// Not before so long, because the target said so.
    pub retry_after: Option<Duration>,
}

/// Longer patterns say no more about what went wrong.
const PATTERN_MAX: usize = 200;

impl Failure {
    /// Its message without what differs from one failure to the next: words with a digit in them are `#`.
    pub fn pattern(&self) -> String {
        let mut pattern = String::with_capacity(self.message.len().min(PATTERN_MAX));
        let mut length = 0;
        for word in self.message.split_inclusive(|c: char| !c.is_alphanumeric() && !"_-.".contains(c)) {
            let end = word.trim_end_matches(|c: char| !c.is_alphanumeric() && !"_-".contains(c)).len();
            let (name, mark) = word.split_at(end);
            let name = if name.chars().any(|c| c.is_ascii_digit()) { "#" } else { name };
            length += name.chars().count() + mark.chars().count();
            if length > PATTERN_MAX {
                pattern.push_str("...");
                break;
            }
            pattern.push_str(name);
            pattern.push_str(mark);
        }
        pattern
    }
}

/// What a target answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The first bytes, at most the cap of the job.
    pub bytes: Vec<u8>,
    /// Whether there was more.
    pub is_truncated: bool,
}

impl Output {
    /// Text, up to so many bytes of it.
    pub fn text(text: String, most: usize) -> Self {
        let is_truncated = text.len() > most;
        let mut bytes = text.into_bytes();
        bytes.truncate(most);
        Output { bytes, is_truncated }
    }
}

impl Report {
    /// The report nobody could write: the worker is gone.
    pub fn lost(claimed_at: Timestamp, now: Timestamp) -> Self {
        Report {
            outcome: Outcome::Lost,
            started_at: claimed_at,
            finished_at: now,
            error: Some(Failure {
                code: "lost".into(),
                message: "the worker that held this attempt is gone".into(),
                is_retryable: true,
                retry_after: None,
            }),
            output: None,
            status: None,
            phases: Vec::new(),
            lines: Vec::new(),
            is_unknown: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_differ_in_numbers_have_one_pattern() {
        let pattern = |message: &str| {
            let (code, message) = ("http_status".into(), message.into());
            Failure { code, message, is_retryable: true, retry_after: None }.pattern()
        };
        for (message, expected) in [
            ("connect to 10.0.0.7:8080: refused", "connect to #:#: refused"),
            ("the target answered 503.", "the target answered #."),
            ("job 0198c6f0-aaaa-7000-8000-1: no such row", "job #: no such row"),
            ("plain words, kept", "plain words, kept"),
            ("", ""),
        ] {
            assert_eq!(pattern(message), expected);
        }
        let long = pattern(&"word ".repeat(100));
        assert!(long.ends_with("...") && long.len() <= PATTERN_MAX + 3, "{long}");
    }
}
