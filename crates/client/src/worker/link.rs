//! How a worker reaches its server: call by call over REST, or over a gRPC stream.

use std::sync::Arc;
use std::time::Duration;

use punctual_api::worker::{HeartbeatAnswer, Results, ResultsTaken, WorkerHeartbeat};

use super::line::Line;
use crate::client::Client;
use crate::error::Error;

pub(super) enum Link {
    Rest(Box<Rest>),
    Grpc(Arc<Line>),
}

pub(super) struct Rest {
    pub(super) client: Client,
    /// Of its own, so that a sign of life that was not answered is followed by one on a new connection: those of other calls that lie idle
    /// may lead to the same node, which may be gone without a word.
    pub(super) signs: Client,
}

impl Link {
    /// A sign of life, answered within a time.
    pub(super) async fn heartbeat(
        &self,
        worker: &str,
        heartbeat: &WorkerHeartbeat,
        within: Duration,
    ) -> Result<HeartbeatAnswer, Error> {
        match self {
            Link::Rest(rest) => {
                match tokio::time::timeout(within, rest.signs.heartbeat(worker, heartbeat)).await {
                    Ok(answer) => Ok(answer?.value),
                    Err(_) => Err(rest.client.broken(format!("no answer to a heartbeat within {within:?}"))),
                }
            }
            Link::Grpc(line) => line.heartbeat(worker, heartbeat, within).await,
        }
    }

    pub(super) async fn report(&self, worker: &str, results: &Results) -> Result<ResultsTaken, Error> {
        match self {
            Link::Rest(rest) => Ok(rest.client.report(worker, results).await?.value),
            Link::Grpc(line) => line.report(worker, results).await,
        }
    }

    pub(super) async fn dismiss(&self, worker: &str) -> Result<(), Error> {
        match self {
            Link::Rest(rest) => rest.client.dismiss_worker(worker).await,
            Link::Grpc(line) => line.dismiss(worker).await,
        }
    }
}
