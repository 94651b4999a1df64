//! Which failures are retried, where a job says otherwise than its target.
//!
//! A target judges its own failures: what may be different another time is retried. A job may add to that and take
//! from it. Promise: of several rules that fit, the most exact one decides: a status before its class, that before
//! the code of the error, and that before the outcome.

use std::fmt;
use std::str::FromStr;

use crate::attempt::{Outcome, Report};

/// A set of failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// By how the attempt ended.
    pub outcomes: Vec<Outcome>,
    /// By what the target answered.
    pub statuses: Vec<Status>,
    /// By the code of the error.
    pub errors: Vec<String>,
}

/// An HTTP status, or a class of them such as `5xx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// This one.
    One(u16),
    /// All that begin with this digit.
    Class(u8),
}

/// Not a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAStatus;

/// Outcomes that are failures of the target or of the way to it.
pub const OUTCOMES: [Outcome; 2] = [Outcome::Failed, Outcome::TimedOut];

/// Whether another attempt may follow a failed one: as the job says, otherwise as the target says.
pub fn is_retryable(on: &Failures, not_on: &Failures, report: &Report) -> bool {
    let of_target = report.error.as_ref().is_none_or(|error| error.is_retryable);
    let exact_first = [Failures::has_status, Failures::has_class, Failures::has_error, Failures::has_outcome];
    let of_job = exact_first.iter().find_map(|has| match (has(on, report), has(not_on, report)) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    });
    of_job.unwrap_or(of_target)
}

impl Failures {
    /// Whether it names none.
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty() && self.statuses.is_empty() && self.errors.is_empty()
    }

    fn has_status(&self, report: &Report) -> bool {
        let status = report.status.and_then(|status| u16::try_from(status).ok());
        status.is_some_and(|status| self.statuses.contains(&Status::One(status)))
    }

    fn has_class(&self, report: &Report) -> bool {
        let class = report.status.and_then(|status| u8::try_from(status / 100).ok());
        class.is_some_and(|class| self.statuses.contains(&Status::Class(class)))
    }

    fn has_error(&self, report: &Report) -> bool {
        report.error.as_ref().is_some_and(|error| self.errors.contains(&error.code))
    }

    fn has_outcome(&self, report: &Report) -> bool {
        self.outcomes.contains(&report.outcome)
    }
}

impl FromStr for Status {
    type Err = NotAStatus;

    fn from_str(text: &str) -> Result<Self, NotAStatus> {
        match text.as_bytes() {
            [class @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] => Ok(Status::Class(class - b'0')),
            [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'] => text.parse().map(Status::One).map_err(|_| NotAStatus),
            _ => Err(NotAStatus),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::One(status) => write!(f, "{status}"),
            Status::Class(class) => write!(f, "{class}xx"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Failure;
    use crate::lifecycle::tests::at;

    fn set(words: &str) -> Failures {
        let mut set = Failures::default();
        for word in words.split_whitespace() {
            match (word.parse::<Status>(), OUTCOMES.iter().find(|outcome| outcome.as_str() == word)) {
                (Ok(status), _) => set.statuses.push(status),
                (Err(NotAStatus), Some(outcome)) => set.outcomes.push(*outcome),
                (Err(NotAStatus), None) => set.errors.push(word.into()),
            }
        }
        set
    }

    fn failed(outcome: Outcome, code: &str, status: Option<i32>, is_retryable: bool) -> Report {
        let error = Failure { code: code.into(), message: "x".into(), is_retryable, retry_after: None };
        Report { outcome, status, error: Some(error), ..Report::lost(at(0), at(1)) }
    }

    #[test]
    fn the_most_exact_rule_decides_and_otherwise_the_target() {
        let status = |status, by_default| failed(Outcome::Failed, "http_status", Some(status), by_default);
        let network = |code: &str| failed(Outcome::Failed, code, None, true);
        let late = failed(Outcome::TimedOut, "timed_out", None, true);
        for (on, not_on, report, expected) in [
            ("", "", status(503, true), true),
            ("", "", status(409, false), false),
            ("409", "", status(409, false), true),
            ("409", "", status(410, false), false),
            ("4xx", "", status(410, false), true),
            ("4xx", "410", status(410, false), false),
            ("410", "4xx", status(410, false), true),
            ("", "5xx", status(503, true), false),
            ("503", "5xx failed", status(503, true), true),
            ("", "5xx", network("connect_failed"), true),
            ("", "connect_failed", network("connect_failed"), false),
            ("connect_failed", "failed", network("connect_failed"), true),
            ("", "failed", network("dns_failed"), false),
            ("http_status", "", status(404, false), true),
            ("http_status", "404", status(404, false), false),
            ("failed", "http_status", status(404, false), false),
            ("failed", "", status(404, false), true),
            ("", "failed", late.clone(), true),
            ("", "timed_out", late.clone(), false),
        ] {
            assert_eq!(is_retryable(&set(on), &set(not_on), &report), expected, "{on} / {not_on} {report:?}");
        }
    }

    #[test]
    fn a_status_is_three_digits_or_a_class() {
        for (text, status) in
            [("409", Status::One(409)), ("5xx", Status::Class(5)), ("5XX", Status::Class(5))]
        {
            assert_eq!(text.parse(), Ok(status));
            assert_eq!(status.to_string(), text.to_lowercase());
        }
        for text in ["", "5x", "xxx", "600", "099", "40", "4090", "4x9", "+40", "conflict"] {
            assert_eq!(text.parse::<Status>(), Err(NotAStatus), "{text}");
        }
    }
}
