//! What the server says about itself: probes, metrics, version, the OpenAPI document.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use punctual_api::health::Readiness;

use crate::answer::Answer;
use crate::error::Error;
use crate::state::{Health, Shared};

/// The process answers.
pub(crate) async fn livez() -> Response {
    text("ok\n", "text/plain; charset=utf-8")
}

/// The process can work.
pub(crate) async fn readyz(State(shared): State<Shared>) -> Answer {
    readiness(&*shared.health)
}

pub(crate) fn readiness(health: &dyn Health) -> Answer {
    let checks = health.ready();
    let is_ready = checks.iter().all(|check| check.is_ok);
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Answer::new(status, &Readiness { is_ready, checks })
}

pub(crate) async fn metrics(State(shared): State<Shared>) -> Response {
    text(&(shared.metrics)(), "text/plain; version=0.0.4; charset=utf-8")
}

pub(crate) async fn version(State(shared): State<Shared>) -> Answer {
    Answer::ok(&shared.version)
}

pub(crate) async fn openapi() -> Response {
    text(crate::openapi::document(), "application/json")
}

pub(crate) async fn no_such_route(request: axum::extract::Request) -> Error {
    Error::RouteNotFound(crate::jobs::shorten(request.uri().path()))
}

pub(crate) async fn no_such_method(request: axum::extract::Request) -> Error {
    Error::MethodNotAllowed(crate::jobs::shorten(request.method().as_str()))
}

fn text(body: &str, media_type: &'static str) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static(media_type))], body.to_string()).into_response()
}
