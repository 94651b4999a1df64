//! What every request and every answer passes: the request's id, the limit of its headers, the body of a problem.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, HOST, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, StatusCode};
use punctual_api::Problem;

use crate::error::Error;
use crate::state::Shared;

/// Names a request; the caller's own is kept.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What a request is called, for whoever writes it down.
#[derive(Clone)]
pub(crate) struct RequestId(pub(crate) HeaderValue);

/// Longer ids are somebody's mistake and do not go into logs.
const REQUEST_ID_MAX: usize = 128;

pub(crate) async fn front(State(shared): State<Shared>, mut request: Request, next: Next) -> Response {
    let id = request_id(&request).unwrap_or_else(|| new_id(&shared));
    name_host(&mut request);
    request.extensions_mut().insert(RequestId(id.clone()));
    let is_grpc = is_grpc(&request);
    let bytes: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let mut response = match bytes > shared.limits.headers_max {
        true => Error::HeadersTooLarge { max: shared.limits.headers_max }.into_response(),
        false => next.run(request).await,
    };
    if is_grpc && let Some(mut problem) = response.extensions_mut().remove::<Problem>() {
        problem.instance = id.to_str().ok().map(|id| format!("urn:request:{id}"));
        response = punctual_rpc::status::of(&problem).into_http();
    }
    finish(&mut response, id);
    response
}

/// HTTP/2 names the host in another place than HTTP/1.1; who may call is decided by one.
fn name_host(request: &mut Request) {
    let named = request.uri().authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let (http::Version::HTTP_2, Some(host)) = (request.version(), named) {
        request.headers_mut().insert(HOST, host);
    }
}

fn is_grpc(request: &Request) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    kind == "application/grpc"
        || kind.starts_with("application/grpc+")
        || kind.starts_with("application/grpc;")
}

/// What every answer gets.
pub(crate) fn finish(response: &mut Response, id: HeaderValue) {
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        write_problem(response, problem, &id);
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// The caller's own name for a request.
pub(crate) fn request_id(request: &Request) -> Option<HeaderValue> {
    let given = request.headers().get(REQUEST_ID)?;
    let text = given.to_str().ok()?;
    (!text.is_empty() && text.len() <= REQUEST_ID_MAX).then(|| given.clone())
}

fn new_id(shared: &Shared) -> HeaderValue {
    HeaderValue::from_str(&shared.engine.new_worker_id().to_string())
        .unwrap_or(HeaderValue::from_static("none"))
}

fn write_problem(response: &mut Response, mut problem: Problem, id: &HeaderValue) {
    problem.instance = id.to_str().ok().map(|id| format!("urn:request:{id}"));
    let status = response.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(punctual_api::problem::MEDIA_TYPE));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    // A backlog that is full does not empty in a moment.
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("10"));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    *response.body_mut() = Body::from(serde_json::to_vec(&problem).unwrap_or_default());
}
