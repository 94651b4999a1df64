//! Limits that administrators set.

use http::Method;
use punctual_api::Page;
use punctual_api::limit::Limit;
use serde::Serialize;

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::server::escaped;

impl Client {
    /// All limits, by name.
    pub async fn limits(&self) -> Result<Answer<Page<Limit>>, Error> {
        self.call(Call::get("/v1/limits")).await
    }

    /// A limit.
    pub async fn limit(&self, name: &str) -> Result<Answer<Limit>, Error> {
        self.call(Call::get(path(name))).await
    }

    /// Sets a limit, new or not: a [`punctual_api::limit::LimitSpec`], or JSON text as a `RawValue`.
    pub async fn put_limit(
        &self,
        name: &str,
        spec: &(impl Serialize + ?Sized),
    ) -> Result<Answer<Limit>, Error> {
        self.call(Call::new(Method::PUT, path(name)).body(spec)?).await
    }

    /// Deletes a limit.
    pub async fn delete_limit(&self, name: &str) -> Result<(), Error> {
        self.call_empty(Call::new(Method::DELETE, path(name))).await
    }
}

fn path(name: &str) -> String {
    format!("/v1/limits/{}", escaped(name))
}
