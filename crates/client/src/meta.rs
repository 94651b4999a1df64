//! What the server says about itself.

use punctual_api::health::{Readiness, Version};
use serde_json::Value;

use crate::answer::Answer;
use crate::client::{Call, Client, nothing};
use crate::error::Error;

impl Client {
    /// What is running.
    pub async fn version(&self) -> Result<Answer<Version>, Error> {
        self.call(Call::get("/v1/version")).await
    }

    /// The description of the API.
    pub async fn openapi(&self) -> Result<Answer<Value>, Error> {
        self.call(Call::get("/v1/openapi.json")).await
    }

    /// Whether the process lives.
    pub async fn livez(&self) -> Result<(), Error> {
        self.call_empty(Call::get("/livez")).await
    }

    /// Whether the server can work, and what is wrong if it cannot.
    pub async fn readyz(&self) -> Result<Answer<Readiness>, Error> {
        let response = self.send(self.request(&Call::get("/readyz"))?, nothing()).await?;
        // A server that is not ready says so with 503, and with the same body.
        let (_, text) = self.whole(response).await?;
        self.read("GET /readyz", &text)
    }

    /// Metrics, in the text format of Prometheus.
    pub async fn metrics(&self) -> Result<String, Error> {
        let (_, text) = self.exchange(Call::get("/metrics")).await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
