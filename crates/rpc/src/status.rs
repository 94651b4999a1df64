//! A problem as gRPC tells it: a `google.rpc.Status` with details, and back.
//!
//! The reason of its `ErrorInfo` is the stable code of REST, and its `BadRequest` names every wrong field. Which gRPC code a problem has is
//! decided here and nowhere else.

use std::borrow::Cow;
use std::collections::HashMap;

use punctual_api::{Code, FieldError, Problem};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

use crate::v1;

/// Whose reasons they are.
pub const DOMAIN: &str = "punctual";

/// The metadata of an `ErrorInfo` that has the HTTP status REST would have answered with.
const HTTP_STATUS: &str = "http_status";

fn code(code: Code) -> tonic::Code {
    match code {
        Code::MalformedJson
        | Code::MalformedMessage
        | Code::WrongContentType
        | Code::InvalidRequest
        | Code::IdempotencyKeyReused
        | Code::HeadersTooLarge => tonic::Code::InvalidArgument,
        Code::BodyTooLarge | Code::TooManyPending | Code::RateLimited | Code::QuotaExceeded => {
            tonic::Code::ResourceExhausted
        }
        Code::KeyTaken => tonic::Code::AlreadyExists,
        Code::VersionConflict => tonic::Code::Aborted,
        Code::WrongState
        | Code::Overlap
        | Code::CalendarInUse
        | Code::WorkerLost
        | Code::NoWorker
        | Code::AttemptOver
        | Code::LeaseLost => tonic::Code::FailedPrecondition,
        Code::JobNotFound
        | Code::BatchNotFound
        | Code::RunNotFound
        | Code::TenantNotFound
        | Code::WorkerNotFound
        | Code::OperationNotFound
        | Code::LimitNotFound
        | Code::BreakerNotFound
        | Code::CalendarNotFound
        | Code::AlertNotFound
        | Code::KeyNotFound => tonic::Code::NotFound,
        Code::RouteNotFound | Code::MethodNotAllowed => tonic::Code::Unimplemented,
        Code::Unauthenticated
        | Code::KeyMalformed
        | Code::KeyUnknown
        | Code::KeyRevoked
        | Code::KeyExpired
        | Code::TokenInvalid
        | Code::TokenExpired => tonic::Code::Unauthenticated,
        Code::Forbidden | Code::TokenOfAnotherRun | Code::TenantSuspended => tonic::Code::PermissionDenied,
        Code::Unavailable => tonic::Code::Unavailable,
        Code::Internal => tonic::Code::Internal,
    }
}

/// A problem as a status.
pub fn of(problem: &Problem) -> Status {
    let known = Code::ALL.iter().find(|known| known.as_str() == problem.code);
    let mut details = ErrorDetails::new();
    let http = HashMap::from([(HTTP_STATUS.to_string(), problem.status.to_string())]);
    details.set_error_info(problem.code.clone(), DOMAIN, http);
    for error in &problem.errors {
        details.add_bad_request_violation(field(&error.pointer), error.detail.clone());
    }
    if let Some(request) = problem.instance.as_deref().and_then(|text| text.strip_prefix("urn:request:")) {
        details.set_request_info(request, "");
    }
    let code = known.map_or(tonic::Code::Unknown, |known| code(*known));
    Status::with_error_details(code, problem.detail.clone(), details)
}

/// The problem that a status tells, if a Punctual server made it.
pub fn problem(status: &Status) -> Option<Problem> {
    let details = status.get_error_details();
    let info = details.error_info().filter(|info| info.domain == DOMAIN)?;
    let known = Code::ALL.iter().find(|known| known.as_str() == info.reason);
    let violations = details.bad_request().map(|wrong| wrong.field_violations.as_slice()).unwrap_or_default();
    Some(Problem {
        kind: format!("urn:punctual:problem:{}", info.reason),
        title: known.map_or(String::new(), |known| known.title().into()),
        status: info.metadata.get(HTTP_STATUS).and_then(|text| text.parse().ok()).unwrap_or(500),
        detail: status.message().into(),
        code: info.reason.clone(),
        instance: None,
        errors: violations
            .iter()
            .map(|wrong| FieldError::new(pointer(&wrong.field), "invalid", wrong.description.clone()))
            .collect(),
    })
}

/// `/held/0/run_id` as `held[0].run_id`.
fn field(pointer: &str) -> String {
    let mut field = String::new();
    for part in pointer.trim_start_matches('/').split('/') {
        match part.parse::<usize>() {
            Ok(index) if !field.is_empty() => field.push_str(&format!("[{index}]")),
            _ => {
                if !field.is_empty() {
                    field.push('.');
                }
                field.push_str(part);
            }
        }
    }
    field
}

fn pointer(field: &str) -> String {
    let plain = field.replace('[', ".").replace(']', "");
    format!("/{}", plain.replace('.', "/"))
}

impl From<Problem> for v1::Problem {
    fn from(problem: Problem) -> Self {
        let wrong = problem.errors.into_iter().map(|error| v1::FieldError {
            field: field(&error.pointer),
            code: error.code.into_owned(),
            detail: error.detail,
        });
        v1::Problem {
            code: problem.code,
            detail: problem.detail,
            status: u32::from(problem.status),
            errors: wrong.collect(),
        }
    }
}

impl From<v1::Problem> for Problem {
    fn from(wire: v1::Problem) -> Self {
        let known = Code::ALL.iter().find(|known| known.as_str() == wire.code);
        let wrong = wire.errors.into_iter().map(|error| FieldError {
            pointer: pointer(&error.field),
            code: Cow::Owned(error.code),
            detail: error.detail,
        });
        Problem {
            kind: format!("urn:punctual:problem:{}", wire.code),
            title: known.map_or(String::new(), |known| known.title().into()),
            status: u16::try_from(wire.status).unwrap_or(500),
            detail: wire.detail,
            code: wire.code,
            instance: None,
            errors: wrong.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_comes_back_from_a_status_as_it_was_told() {
        for code in Code::ALL {
            let mut told = Problem::new(*code, 422, "what is wrong");
            told.errors.push(FieldError::new("/held/0/run_id", "invalid", "no run"));
            let status = of(&told);
            assert_ne!(status.code(), tonic::Code::Ok);
            assert_eq!(problem(&status), Some(told.clone()));
            assert_eq!(Problem::from(v1::Problem::from(told.clone())), told);
        }
        assert_eq!(problem(&Status::unavailable("a proxy says so")), None);
    }

    #[test]
    fn fields_are_named_as_in_messages() {
        for (pointer_, field_) in [
            ("/held/0/run_id", "held[0].run_id"),
            ("/queues", "queues"),
            ("/results/12/error/code", "results[12].error.code"),
        ] {
            assert_eq!(field(pointer_), field_);
            assert_eq!(pointer(field_), pointer_);
        }
    }
}
