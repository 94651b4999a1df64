//! What a server answers that has no store yet: it lives, it is not ready and, to this machine alone, why. Keys are in the store.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderValue;

use crate::access::Loopback;
use crate::error::Error;
use crate::front;
use crate::meta::{livez, readiness, told};
use crate::state::Health;

/// Answers until [`crate::router`] can: probes as that does, everything else with 503 and what is not well. To be served like that.
pub fn waiting(health: Arc<dyn Health>) -> Router {
    let ready = |State(health): State<Arc<dyn Health>>, request: Request| async move {
        readiness(told(&*health, &Loopback, &request))
    };
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(ready))
        .fallback(not_started)
        .layer(axum::middleware::map_response(|mut response: Response| async {
            // Nothing was asked of an engine, so nothing has a name but what the caller gave.
            let id = response.extensions_mut().remove::<HeaderValue>();
            front::finish(&mut response, id.unwrap_or(HeaderValue::from_static("none")));
            response
        }))
        .with_state(health)
}

async fn not_started(State(health): State<Arc<dyn Health>>, request: Request) -> Response {
    let checks = told(&*health, &Loopback, &request).into_iter();
    let reasons: Vec<String> = checks
        .filter(|check| !check.is_ok)
        .map(|check| check.detail.unwrap_or_else(|| format!("{} is not ready yet", check.name)))
        .collect();
    let mut response = Error::NotStarted(reasons.join("; ")).into_response();
    if let Some(id) = front::request_id(&request) {
        response.extensions_mut().insert(id);
    }
    response
}
