//! The API over gRPC, on the address of REST.
//!
//! A method is a route like another: it is in a table that says who may call it, passes `front.rs` and the gate, and every refusal of either
//! leaves through `error.rs`, as a status with details. A test holds the table against the proto files.

mod health;
mod outbound;
mod stream;
mod workers;

use axum::routing::{MethodRouter, post_service};
use punctual_rpc::v1::workers_server::WorkersServer;
use tonic_health::pb::health_server::HealthServer;

use crate::endpoint::Endpoint;
use crate::state::Shared;

/// The methods of gRPC by the names of their services, as routes.
pub(crate) struct Services(Vec<(&'static str, MethodRouter<Shared>)>);

impl Services {
    pub(crate) fn new(shared: &Shared) -> Self {
        let workers = WorkersServer::new(workers::Service(shared.clone()))
            .max_decoding_message_size(shared.limits.bulk_max);
        let health = HealthServer::new(health::Service(shared.clone()));
        let mut services = vec![
            ("/punctual.v1.Workers/", post_service(workers)),
            ("/grpc.health.v1.Health/", post_service(health)),
        ];
        let described = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(punctual_rpc::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        // The descriptors are our own, made when this was built.
        if let (Ok(v1), Ok(older)) = (described().build_v1(), described().build_v1alpha()) {
            services.push(("/grpc.reflection.v1.ServerReflection/", post_service(v1)));
            services.push(("/grpc.reflection.v1alpha.ServerReflection/", post_service(older)));
        }
        Services(services)
    }

    /// The service that a method belongs to.
    pub(crate) fn of(&self, method: &Endpoint) -> Option<MethodRouter<Shared>> {
        self.0.iter().find(|(prefix, _)| method.path.starts_with(prefix)).map(|(_, service)| service.clone())
    }
}
