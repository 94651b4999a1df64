//! Health as gRPC asks for it: the same answer as `/readyz`.

use std::pin::Pin;
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::METHODS;
use crate::state::Shared;

/// How often whoever watches is looked after.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Service(pub(super) Shared);

fn status(shared: &Shared) -> ServingStatus {
    match shared.health.ready().iter().all(|check| check.is_ok) {
        true => ServingStatus::Serving,
        false => ServingStatus::NotServing,
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status as i32 }
}

/// The whole server, or a service of ours.
fn is_known(service: &str) -> bool {
    let is_of = |path: &str| path.trim_start_matches('/').split('/').next() == Some(service);
    service.is_empty() || METHODS.iter().any(|method| !method.rest.is_empty() && is_of(method.path))
}

#[tonic::async_trait]
impl Health for Service {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match is_known(&request.get_ref().service) {
            true => Ok(Response::new(answer(status(&self.0)))),
            false => Err(Status::not_found("there is no such service")),
        }
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// Says how it is, and again when that has changed.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let is_known = is_known(&request.get_ref().service);
        let stream = unfold((self.0.clone(), None), move |(shared, told)| async move {
            loop {
                let now = if is_known { status(&shared) } else { ServingStatus::ServiceUnknown };
                if told != Some(now) {
                    return Some((Ok(answer(now)), (shared, Some(now))));
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        Ok(Response::new(Box::pin(stream)))
    }
}
