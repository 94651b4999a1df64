//! Breakers that are set.

use http::Method;
use punctual_api::Page;
use punctual_api::breaker::Breaker;

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::server::escaped;

impl Client {
    /// All breakers that are set, by name.
    pub async fn breakers(&self) -> Result<Answer<Page<Breaker>>, Error> {
        self.call(Call::get("/v1/breakers")).await
    }

    /// Takes a breaker away: who waits goes on.
    pub async fn reset_breaker(&self, name: &str) -> Result<(), Error> {
        self.call_empty(Call::new(Method::DELETE, format!("/v1/breakers/{}", escaped(name)))).await
    }
}
