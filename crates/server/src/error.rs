//! Every refusal leaves through here: the one place that chooses status codes.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use punctual_api::read::Unread;
use punctual_api::{Code, FieldError, Problem};
use punctual_domain::{key, lifecycle, token};
use punctual_engine::Error as EngineError;
use punctual_engine::backfill::Refusal;
use punctual_engine::keys;

/// Why a request was not done.
#[derive(Debug)]
pub(crate) enum Error {
    /// The engine refused.
    Engine(EngineError),
    /// The body could not be read.
    Unread(Unread),
    /// Parameters, headers or fields are wrong.
    Wrong(Vec<FieldError>),
    /// The body is too large.
    BodyTooLarge { max: usize },
    /// The headers are too large.
    HeadersTooLarge { max: usize },
    /// The body broke off.
    BodyBroken(String),
    /// A media type that this route does not take.
    WrongContentType(String),
    /// The `Idempotency-Key` belongs to another request.
    KeyReused,
    /// `If-None-Match: *`, and there is one.
    AlreadyThere,
    /// `If-Match`, and there is none.
    NotThere(String),
    /// `If-None-Match: *`, and there is a calendar.
    CalendarThere(String),
    /// `If-Match`, and there is no calendar.
    NoCalendarThere(String),
    /// No such limit.
    LimitNotFound(String),
    /// No such breaker.
    BreakerNotFound(String),
    /// No such route.
    RouteNotFound(String),
    /// The route does not take this method.
    MethodNotAllowed(String),
    /// The server has not begun to work yet.
    NotStarted(String),
    /// Nobody we know.
    Unauthenticated(String),
    /// The caller's key is not good.
    Key(keys::Denied),
    /// Not allowed.
    Forbidden(String),
    /// A page could not be written.
    Unwritten(String),
}

/// The status of a code. Nothing else decides one.
fn status(code: Code) -> StatusCode {
    match code {
        Code::MalformedJson => StatusCode::BAD_REQUEST,
        Code::Unauthenticated
        | Code::KeyMalformed
        | Code::KeyUnknown
        | Code::KeyRevoked
        | Code::KeyExpired
        | Code::TokenInvalid
        | Code::TokenExpired => StatusCode::UNAUTHORIZED,
        Code::Forbidden | Code::TokenOfAnotherRun => StatusCode::FORBIDDEN,
        Code::JobNotFound
        | Code::BatchNotFound
        | Code::RunNotFound
        | Code::WorkerNotFound
        | Code::TenantNotFound
        | Code::OperationNotFound
        | Code::LimitNotFound
        | Code::BreakerNotFound
        | Code::CalendarNotFound
        | Code::AlertNotFound
        | Code::KeyNotFound
        | Code::RouteNotFound => StatusCode::NOT_FOUND,
        Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Code::KeyTaken
        | Code::WrongState
        | Code::Overlap
        | Code::CalendarInUse
        | Code::WorkerLost
        | Code::NoWorker
        | Code::AttemptOver
        | Code::LeaseLost => StatusCode::CONFLICT,
        Code::VersionConflict => StatusCode::PRECONDITION_FAILED,
        Code::TooManyPending => StatusCode::TOO_MANY_REQUESTS,
        Code::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::WrongContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::InvalidRequest | Code::IdempotencyKeyReused => StatusCode::UNPROCESSABLE_ENTITY,
        Code::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Error::Engine(error)
    }
}

impl From<Unread> for Error {
    fn from(unread: Unread) -> Self {
        Error::Unread(unread)
    }
}

impl Error {
    /// One wrong parameter, header or field.
    pub(crate) fn wrong(pointer: &str, code: &'static str, detail: impl Into<String>) -> Self {
        Error::Wrong(vec![FieldError::new(pointer, code, detail)])
    }

    /// As the user sees it.
    pub(crate) fn problem(&self) -> Problem {
        let new = |code, detail: String| Problem::new(code, status(code).as_u16(), detail);
        match self {
            Error::Engine(error) => engine_problem(error),
            Error::Unread(Unread::Malformed(reason)) => new(Code::MalformedJson, reason.clone()),
            Error::Unread(Unread::Wrong(errors)) | Error::Wrong(errors) => wrong_fields(errors.clone()),
            Error::BodyTooLarge { max } => new(
                Code::BodyTooLarge,
                format!("the body is larger than {max} bytes; many jobs go to /v1/jobs/import"),
            ),
            Error::HeadersTooLarge { max } => {
                new(Code::HeadersTooLarge, format!("the headers are larger than {max} bytes"))
            }
            Error::BodyBroken(reason) => new(Code::MalformedJson, format!("the body broke off: {reason}")),
            Error::WrongContentType(reason) => new(Code::WrongContentType, reason.clone()),
            Error::KeyReused => {
                let reason = "this `Idempotency-Key` came with another request before; take a new key for a new request";
                new(Code::IdempotencyKeyReused, reason.into())
            }
            Error::AlreadyThere => new(
                Code::VersionConflict,
                "there is a job with this key already; leave `If-None-Match` out to change it".into(),
            ),
            Error::NotThere(key) => new(
                Code::VersionConflict,
                format!("there is no job with the key `{key}`; leave `If-Match` out to create it"),
            ),
            Error::CalendarThere(name) => new(
                Code::VersionConflict,
                format!("there is a calendar `{name}` already; leave `If-None-Match` out to change it"),
            ),
            Error::NoCalendarThere(name) => new(
                Code::VersionConflict,
                format!("there is no calendar `{name}`; leave `If-Match` out to create it"),
            ),
            Error::LimitNotFound(name) => {
                new(Code::LimitNotFound, format!("there is no limit `{name}`; `GET /v1/limits` lists them"))
            }
            Error::BreakerNotFound(name) => new(
                Code::BreakerNotFound,
                format!("no breaker `{name}` is set; `GET /v1/breakers` lists those that are"),
            ),
            Error::RouteNotFound(path) => new(
                Code::RouteNotFound,
                format!("there is nothing at `{path}`; the routes are in /v1/openapi.json"),
            ),
            Error::MethodNotAllowed(method) => {
                new(Code::MethodNotAllowed, format!("{method} is not taken here; `Allow` says which are"))
            }
            Error::NotStarted(reason) => new(Code::Unavailable, reason.clone()),
            Error::Unauthenticated(reason) => new(Code::Unauthenticated, reason.clone()),
            Error::Key(denied) => {
                let (code, way_out) = match denied {
                    keys::Denied::Malformed(_) => {
                        (Code::KeyMalformed, "; send it as `Authorization: Bearer pk_...`, as it was shown")
                    }
                    keys::Denied::Refused(refused) => {
                        (key_code(refused), "; ask an admin for another (`punctual key create`)")
                    }
                    keys::Denied::Needed => {
                        (Code::Unauthenticated, "; send one as `Authorization: Bearer pk_...`")
                    }
                    keys::Denied::Unread => (Code::Unavailable, "; try again when the store can be reached"),
                };
                new(code, format!("{denied}{way_out}"))
            }
            Error::Forbidden(reason) => new(Code::Forbidden, reason.clone()),
            Error::Unwritten(reason) => {
                new(Code::Internal, format!("the page could not be written: {reason}"))
            }
        }
    }
}

fn key_code(refused: &key::Refused) -> Code {
    match refused {
        key::Refused::Unknown => Code::KeyUnknown,
        key::Refused::Revoked(_) => Code::KeyRevoked,
        key::Refused::Expired(_) => Code::KeyExpired,
    }
}

fn engine_problem(error: &EngineError) -> Problem {
    use punctual_schedule::Code as ScheduleCode;

    let code = match error {
        EngineError::JobNotFound(_) => Code::JobNotFound,
        EngineError::BatchNotFound(_) => Code::BatchNotFound,
        EngineError::RunNotFound(_) => Code::RunNotFound,
        EngineError::WorkerNotFound(_) => Code::WorkerNotFound,
        EngineError::NoWorker(_) => Code::NoWorker,
        EngineError::WorkerLost(_) => Code::WorkerLost,
        EngineError::LeaseLost { .. } => Code::LeaseLost,
        EngineError::Token(token::Refused::Invalid) => Code::TokenInvalid,
        EngineError::Token(token::Refused::Expired(_)) => Code::TokenExpired,
        EngineError::TokenOfAnotherRun(_) => Code::TokenOfAnotherRun,
        EngineError::AttemptOver { .. } => Code::AttemptOver,
        EngineError::TenantNotFound(_) => Code::TenantNotFound,
        EngineError::KeyNotFound(_) => Code::KeyNotFound,
        EngineError::KeyBeyond(_) => Code::Forbidden,
        EngineError::KeyRefused(refused) => key_code(refused),
        EngineError::KeyOver { .. } | EngineError::KeyTooWeak { .. } => Code::WrongState,
        EngineError::NoEntropy(_) => Code::Internal,
        EngineError::OperationNotFound(_) => Code::OperationNotFound,
        EngineError::CalendarNotFound(_) => Code::CalendarNotFound,
        EngineError::CalendarChanged { .. } => Code::VersionConflict,
        EngineError::CalendarInUse { .. } => Code::CalendarInUse,
        EngineError::KeyTaken { .. } | EngineError::BatchTaken(_) => Code::KeyTaken,
        EngineError::VersionConflict { .. } | EngineError::DefaultsChanged => Code::VersionConflict,
        EngineError::Repeated(_) => Code::IdempotencyKeyReused,
        EngineError::WrongState { .. }
        | EngineError::OperationEnded { .. }
        | EngineError::Run(lifecycle::Refused::WrongState { .. }) => Code::WrongState,
        EngineError::Run(lifecycle::Refused::StaleLease { .. } | lifecycle::Refused::AskedToStop) => {
            Code::WrongState
        }
        EngineError::Overlap { .. } => Code::Overlap,
        EngineError::TooManyPending { .. } => Code::TooManyPending,
        EngineError::TooManyLimits | EngineError::TooManyAlerts | EngineError::TooManyKeys => {
            Code::InvalidRequest
        }
        EngineError::AlertNotFound(_) => Code::AlertNotFound,
        EngineError::ReservedType => {
            return wrong_fields(vec![FieldError::new("/type", "reserved", error.to_string())]);
        }
        EngineError::LinkMissing { place, .. } => {
            let detail = format!("{error}; register that job first");
            let pointer = format!("/links/{place}/job");
            return wrong_fields(vec![FieldError::new(&pointer, "job_not_found", detail)]);
        }
        EngineError::LinkCycle { place, .. } => {
            let detail = format!("{error}; leave one of these links out");
            return wrong_fields(vec![FieldError::new(format!("/links/{place}"), "cycle", detail)]);
        }
        EngineError::TooManyLinked(_) => {
            return wrong_fields(vec![FieldError::new("/links", "too_long", error.to_string())]);
        }
        EngineError::Link(_) => Code::WrongState,
        EngineError::Backfill(refusal) => {
            let pointer = match refusal {
                Refusal::Reversed | Refusal::Future { .. } | Refusal::TooMany { .. } => "/to",
                Refusal::Empty | Refusal::FromCompletion | Refusal::Broadcast | Refusal::Batch => "",
            };
            return wrong_fields(vec![FieldError::new(pointer, "out_of_range", refusal.to_string())]);
        }
        EngineError::Schedule(error) => {
            let pointer = match error.code() {
                ScheduleCode::Timezone => "/schedule/timezone",
                ScheduleCode::Calendar => "/schedule/calendars",
                _ => "/schedule",
            };
            return wrong_fields(vec![FieldError::new(pointer, error.code().as_str(), error.to_string())]);
        }
        EngineError::Edit(_) => Code::InvalidRequest,
        EngineError::Store(_) if error.is_damage() => Code::Internal,
        EngineError::Store(_) => Code::Unavailable,
    };
    let way_out = match error {
        EngineError::KeyTaken { .. } => "; change that job with PUT /v1/jobs/key/{key}, or take another key",
        EngineError::BatchTaken(_) => "; the same id with the same body is the same batch: take another id",
        EngineError::BatchNotFound(_) => "; `GET /v1/batches` lists them",
        EngineError::VersionConflict { .. } | EngineError::CalendarChanged { .. } => {
            "; read it again and repeat the change"
        }
        EngineError::NoWorker(_) => "; start one, and ask again",
        EngineError::KeyNotFound(_) => "; `GET /v1/keys` lists them",
        EngineError::KeyOver { .. } => "; create another",
        EngineError::WorkerLost(_) => "; it holds nothing: claim without `worker` to begin anew",
        EngineError::Token(token::Refused::Invalid) => {
            "; send what the call had in `Punctual-Completion-Token`, in the same header or as `Authorization: Bearer`"
        }
        EngineError::Token(token::Refused::Expired(_)) | EngineError::AttemptOver { .. } => {
            "; stop it, nothing more is taken for it"
        }
        EngineError::LeaseLost { .. } => "; stop it, its result is not taken",
        EngineError::CalendarNotFound(_) => "; `GET /v1/calendars` lists them",
        EngineError::CalendarInUse { .. } => "; take it out of `calendars` of these jobs first",
        EngineError::Overlap { .. } => {
            "; wait until it has ended, cancel it (`GET /v1/jobs/{id}/runs` shows it), or change `overlap` of the job"
        }
        EngineError::TooManyPending { .. } => {
            "; try again later, cancel runs that need not run (`POST /v1/runs/bulk/cancel`), or let a worker serve their queues"
        }
        EngineError::WrongState { action: "backfilled", .. } => "; resume it first",
        _ => "",
    };
    Problem::new(code, status(code).as_u16(), format!("{error}{way_out}"))
}

fn wrong_fields(errors: Vec<FieldError>) -> Problem {
    let detail = match errors.as_slice() {
        [one] => one.to_string(),
        several => format!("{} fields are wrong", several.len()),
    };
    let code = Code::InvalidRequest;
    Problem { errors, ..Problem::new(code, status(code).as_u16(), detail) }
}

/// The body is written in `front.rs`, which knows the request's id.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let problem = self.problem();
        if problem.status >= 500 {
            tracing::error!(code = %problem.code, detail = %problem.detail, "refused");
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(problem);
        response
    }
}
