//! Secrets of targets. A value goes to the server and never comes back.

use http::Method;
use punctual_api::secret::{Secret, SecretSpec, SecretsRotated};

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::list::List;
use crate::server::escaped;

impl Client {
    /// Secrets by name, without their values.
    pub fn secrets(&self) -> List<Secret> {
        List::new(self, "/v1/secrets", &[])
    }

    /// What is known of a secret, without its value.
    pub async fn secret(&self, name: &str) -> Result<Answer<Secret>, Error> {
        self.call(Call::get(path(name))).await
    }

    /// Sets a secret, new or not. Only if it still has this version, if one is given.
    pub async fn put_secret(
        &self,
        name: &str,
        spec: &SecretSpec,
        version: Option<u32>,
    ) -> Result<Answer<Secret>, Error> {
        self.call(Call::new(Method::PUT, path(name)).body(spec)?.of_version(version)).await
    }

    /// Deletes a secret. Jobs that name it fail from then on.
    pub async fn delete_secret(&self, name: &str, version: Option<u32>) -> Result<(), Error> {
        self.call_empty(Call::new(Method::DELETE, path(name)).of_version(version)).await
    }

    /// Seals the secrets of all tenants with the newest master key of the server.
    pub async fn rotate_secrets_key(&self) -> Result<Answer<SecretsRotated>, Error> {
        self.call(Call::post("/v1/secret-keys/rotate")).await
    }
}

fn path(name: &str) -> String {
    format!("/v1/secrets/{}", escaped(name))
}
