//! How a command ends when it cannot do what it was asked.
//!
//! Promise: the message goes to stderr, and the exit code says what kind of failure it is, so that scripts can tell
//! them apart. The codes are in `--help` and in docs/reference/cli.md.

use std::process::ExitCode;

use punctual_api::Problem;
use punctual_client::Error;

/// What the exit codes mean, for `--help`.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 the input is wrong, 3 not found, \
4 conflict (a key is taken, a version or state has changed), 5 the server cannot be reached";

/// The exit code of `apply --exit-code` when something is different.
const DIFFERENT: u8 = 6;

/// A command that did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The user can mend the input; the text says how.
    Input(String),
    /// What was asked for is not there.
    NotFound(String),
    /// Something else is in the way: another job, a newer version, a state.
    Conflict(String),
    /// The server cannot be reached.
    Unreachable(String),
    /// Nothing failed, but something is different, and whoever asked wants to know by the exit code.
    Different,
    /// Something outside failed.
    Other(anyhow::Error),
}

impl Failure {
    /// Prints the failure and chooses the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (code, message) = match self {
            Failure::Other(error) => (1, format!("{error:#}")),
            Failure::Input(message) => (2, message),
            Failure::NotFound(message) => (3, message),
            Failure::Conflict(message) => (4, message),
            Failure::Unreachable(message) => (5, message),
            Failure::Different => return ExitCode::from(DIFFERENT),
        };
        eprintln!("error: {message}");
        ExitCode::from(code)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::Other(error)
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let message = told(&problem);
        match problem.code.as_str() {
            "job_not_found"
            | "run_not_found"
            | "tenant_not_found"
            | "operation_not_found"
            | "limit_not_found"
            | "breaker_not_found"
            | "calendar_not_found"
            | "alert_not_found"
            | "key_not_found" => Failure::NotFound(message),
            "key_taken"
            | "version_conflict"
            | "wrong_state"
            | "overlap"
            | "too_many_pending"
            | "quota_exceeded"
            | "rate_limited"
            | "calendar_in_use"
            | "idempotency_key_reused" => Failure::Conflict(message),
            "malformed_json" | "wrong_content_type" | "body_too_large" | "invalid_request" => {
                Failure::Input(message)
            }
            _ => Failure::Other(anyhow::anyhow!(message)),
        }
    }
}

/// The detail, then every wrong field in a line of its own, unless the detail says it already.
fn told(problem: &Problem) -> String {
    let mut message = problem.detail.clone();
    for error in &problem.errors {
        let line = error.to_string();
        if line != problem.detail {
            message.push_str("\n  ");
            message.push_str(&line);
        }
    }
    message
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(problem) => Failure::from(*problem),
            Error::Address { .. } | Error::Tls(_) | Error::Request(_) => Failure::Input(error.to_string()),
            Error::Unreachable { .. } => Failure::Unreachable(format!(
                "{error}\nis `punctual serve` running there? choose another server with --server or PUNCTUAL_SERVER"
            )),
            Error::Broken { .. } | Error::Unexpected { .. } => Failure::Other(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_api::{Code, FieldError};

    use super::*;

    #[test]
    fn a_wrong_field_is_told_once() {
        let mut problem = Problem::new(Code::InvalidRequest, 422, "/name: too long");
        problem.errors.push(FieldError::new("/name", "too_long", "too long"));
        assert_eq!(told(&problem), "/name: too long");
        problem.detail = "2 fields are wrong".into();
        problem.errors.push(FieldError::new("/target", "missing_field", "`target` is missing"));
        assert_eq!(told(&problem), "2 fields are wrong\n  /name: too long\n  /target: `target` is missing");
    }
}
