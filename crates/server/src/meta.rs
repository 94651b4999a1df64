//! What the server says about itself: probes, metrics, version, the OpenAPI document.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use punctual_api::health::{Check, Readiness};

use crate::access::Access;
use crate::answer::Answer;
use crate::error::Error;
use crate::state::{Health, Shared};

/// The process answers.
pub(crate) async fn livez() -> Response {
    text("ok\n", "text/plain; charset=utf-8")
}

/// The process can work.
pub(crate) async fn readyz(State(shared): State<Shared>, request: Request) -> Answer {
    readiness(told(&*shared.health, &*shared.access, &request))
}

/// Everybody hears which check fails; why, which may name servers and paths, whoever would be let in.
pub(crate) fn told(health: &dyn Health, access: &dyn Access, request: &Request) -> Vec<Check> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    let mut checks = health.ready();
    if access.caller(peer, request.headers()).is_err() {
        checks.iter_mut().for_each(|check| check.detail = None);
    }
    checks
}

pub(crate) fn readiness(checks: Vec<Check>) -> Answer {
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
    text(&crate::openapi::document(), "application/json")
}

pub(crate) async fn no_such_route(request: Request) -> Error {
    Error::RouteNotFound(crate::jobs::shorten(request.uri().path()))
}

pub(crate) async fn no_such_method(request: Request) -> Error {
    Error::MethodNotAllowed(crate::jobs::shorten(request.method().as_str()))
}

fn text(body: &str, media_type: &'static str) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static(media_type))], body.to_string()).into_response()
}
