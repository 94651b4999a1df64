//! What a server answers that has no store yet: it lives, it is not ready, and why.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderValue;

use crate::error::Error;
use crate::front;
use crate::meta::{livez, readiness};
use crate::state::Health;

/// Answers until [`crate::router`] can: probes as that does, everything else with 503 and what is not well.
pub fn waiting(health: Arc<dyn Health>) -> Router {
    let ready = |State(health): State<Arc<dyn Health>>| async move { readiness(&*health) };
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(ready))
        .fallback(not_started)
        .layer(axum::middleware::map_response(|mut response: Response| async {
            let id = response.extensions_mut().remove::<HeaderValue>();
            front::finish(&mut response, id.unwrap_or_else(front::early_id));
            response
        }))
        .with_state(health)
}

async fn not_started(State(health): State<Arc<dyn Health>>, request: Request) -> Response {
    let reasons: Vec<String> =
        health.ready().into_iter().filter(|check| !check.is_ok).filter_map(|check| check.detail).collect();
    let mut response = Error::NotStarted(reasons.join("; ")).into_response();
    if let Some(id) = front::request_id(&request) {
        response.extensions_mut().insert(id);
    }
    response
}
