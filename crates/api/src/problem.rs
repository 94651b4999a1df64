//! A refusal as a user sees it: RFC 9457, with a stable code and every wrong field.
//!
//! Which status a code has is decided in one place, the server's `error.rs`.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// What went wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Names the kind of problem, as a URI: `urn:punctual:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// What kind of problem it is, in a few words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong with this request, and the way out.
    pub detail: String,
    /// The stable code, for programs.
    pub code: String,
    /// The request it is about: its `X-Request-Id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Every wrong field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

/// One wrong field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// Where, as a JSON pointer: `/schedule/cron`. For a query or header, its name.
    pub pointer: String,
    /// The stable reason.
    #[schema(value_type = String)]
    pub code: Cow<'static, str>,
    /// What is wrong, and what to write instead.
    pub detail: String,
}

impl FieldError {
    /// A wrong field.
    pub fn new(
        pointer: impl Into<String>,
        code: impl Into<Cow<'static, str>>,
        detail: impl Into<String>,
    ) -> Self {
        FieldError { pointer: pointer.into(), code: code.into(), detail: detail.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => f.write_str(&self.detail),
            pointer => write!(f, "{pointer}: {}", self.detail),
        }
    }
}

impl Problem {
    /// A problem of a kind.
    pub fn new(code: Code, status: u16, detail: impl Into<String>) -> Self {
        Problem {
            kind: format!("urn:punctual:problem:{}", code.as_str()),
            title: code.title().into(),
            status,
            detail: detail.into(),
            code: code.as_str().into(),
            instance: None,
            errors: Vec::new(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.code)?;
        self.errors.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl std::error::Error for Problem {}

macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $word:literal, $title:literal;)*) => {
        /// The kinds of problem. A word never changes its meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $code,)*
        }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Code] = &[$(Code::$code,)*];

            /// The word, as in the API.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$code => $word,)* }
            }

            /// A few words for people.
            pub fn title(self) -> &'static str {
                match self { $(Code::$code => $title,)* }
            }
        }
    };
}

codes! {
    /// The body is not JSON.
    MalformedJson = "malformed_json", "The body is not JSON";
    /// The message of gRPC is not one.
    MalformedMessage = "malformed_message", "The message cannot be read";
    /// The body is not what this route takes.
    WrongContentType = "wrong_content_type", "The body has another media type";
    /// A body is longer than it may be.
    BodyTooLarge = "body_too_large", "The body is too large";
    /// The headers are longer than they may be.
    HeadersTooLarge = "headers_too_large", "The headers are too large";
    /// Fields are wrong; each is listed.
    InvalidRequest = "invalid_request", "Some fields are wrong";
    /// The same `Idempotency-Key` came with another request.
    IdempotencyKeyReused = "idempotency_key_reused", "The idempotency key was used for another request";
    /// Another job of the tenant has the key.
    KeyTaken = "key_taken", "The key is taken";
    /// The job changed since it was read.
    VersionConflict = "version_conflict", "The job has changed";
    /// The job is not in a state for this.
    WrongState = "wrong_state", "That cannot be done in this state";
    /// Runs of the job are open, and there is no place for another.
    Overlap = "overlap", "A run of the job is open";
    /// As many runs wait as may.
    TooManyPending = "too_many_pending", "Too many runs wait";
    /// The caller asks more often than they may.
    RateLimited = "rate_limited", "Too many requests";
    /// No such job.
    JobNotFound = "job_not_found", "No such job";
    /// No such batch.
    BatchNotFound = "batch_not_found", "No such batch";
    /// No such run.
    RunNotFound = "run_not_found", "No such run";
    /// No such tenant.
    TenantNotFound = "tenant_not_found", "No such tenant";
    /// The tenant is suspended.
    TenantSuspended = "tenant_suspended", "The tenant is suspended";
    /// The tenant may not have more.
    QuotaExceeded = "quota_exceeded", "A quota of the tenant is reached";
    /// No such worker.
    WorkerNotFound = "worker_not_found", "No such worker";
    /// A broadcast that nobody would hear.
    NoWorker = "no_worker", "No worker lives that it is for";
    /// The worker was taken for dead.
    WorkerLost = "worker_lost", "The worker was taken for dead";
    /// The attempt is not the worker's any more.
    LeaseLost = "lease_lost", "The attempt is not held any more";
    /// The token was not made by this installation, or there is none.
    TokenInvalid = "token_invalid", "The token is not ours";
    /// The time of the token's attempt is over.
    TokenExpired = "token_expired", "The token has expired";
    /// The token is for another run.
    TokenOfAnotherRun = "token_of_another_run", "The token is for another run";
    /// The attempt that a token names is over.
    AttemptOver = "attempt_over", "The attempt is over";
    /// No such operation.
    OperationNotFound = "operation_not_found", "No such operation";
    /// No such limit.
    LimitNotFound = "limit_not_found", "No such limit";
    /// No such breaker.
    BreakerNotFound = "breaker_not_found", "No such breaker";
    /// No such calendar.
    CalendarNotFound = "calendar_not_found", "No such calendar";
    /// Jobs use the calendar.
    CalendarInUse = "calendar_in_use", "Jobs use the calendar";
    /// No such alert.
    AlertNotFound = "alert_not_found", "No such alert";
    /// No such key of the API.
    KeyNotFound = "key_not_found", "No such key";
    /// What was sent as a key is none.
    KeyMalformed = "key_malformed", "That is not a key";
    /// The key is not known.
    KeyUnknown = "key_unknown", "The key is not known";
    /// The key was taken back.
    KeyRevoked = "key_revoked", "The key was revoked";
    /// The time of the key is over, or it was replaced by a newer one.
    KeyExpired = "key_expired", "The key has expired";
    /// No such route.
    RouteNotFound = "route_not_found", "There is nothing here";
    /// The route does not take this method.
    MethodNotAllowed = "method_not_allowed", "That method is not taken here";
    /// Nobody we know asks.
    Unauthenticated = "unauthenticated", "A key is needed";
    /// The caller may not do this.
    Forbidden = "forbidden", "That is not allowed";
    /// Storage cannot do it now.
    Unavailable = "unavailable", "Not possible right now";
    /// A bug or a damaged store.
    Internal = "internal", "Something is wrong with the server";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_back_as_it_was_written() {
        let mut problem = Problem::new(Code::InvalidRequest, 422, "2 fields are wrong");
        problem.errors.push(FieldError::new("/schedule/cron", "schedule_syntax", "no"));
        let text = serde_json::to_string(&problem).expect("JSON");
        assert!(text.contains(r#""type":"urn:punctual:problem:invalid_request""#), "{text}");
        assert_eq!(serde_json::from_str::<Problem>(&text).expect("a problem"), problem);
    }

    #[test]
    fn no_two_codes_share_a_word() {
        let words: std::collections::BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), Code::ALL.len());
    }
}
