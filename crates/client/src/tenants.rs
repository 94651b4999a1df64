//! Tenants: create and list, and what holds for their jobs.

use http::Method;
use punctual_api::Page;
use punctual_api::defaults::JobDefaults;
use punctual_api::tenant::{Tenant, TenantNetwork, TenantSpec};
use serde::Serialize;

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::server::escaped;

impl Client {
    /// Creates a tenant, or finds the one of that name.
    pub async fn create_tenant(&self, name: &str) -> Result<Answer<Tenant>, Error> {
        let spec = TenantSpec { name: Some(name.into()) };
        self.call(Call::post("/v1/tenants").body(&spec)?).await
    }

    /// All tenants.
    pub async fn tenants(&self) -> Result<Answer<Page<Tenant>>, Error> {
        self.call(Call::get("/v1/tenants")).await
    }

    /// What holds for jobs of a tenant that do not say.
    pub async fn defaults(&self, tenant: &str) -> Result<Answer<JobDefaults>, Error> {
        self.call(Call::get(defaults_of(tenant))).await
    }

    /// Sets what holds for jobs of a tenant that do not say, from a part of a job.
    pub async fn put_defaults(
        &self,
        tenant: &str,
        defaults: &(impl Serialize + ?Sized),
    ) -> Result<Answer<JobDefaults>, Error> {
        self.call(Call::new(Method::PUT, defaults_of(tenant)).body(defaults)?).await
    }

    /// Takes it away; jobs keep what they have.
    pub async fn delete_defaults(&self, tenant: &str) -> Result<(), Error> {
        self.call_empty(Call::new(Method::DELETE, defaults_of(tenant))).await
    }

    /// The hosts that targets of a tenant are held to.
    pub async fn network(&self, tenant: &str) -> Result<Answer<TenantNetwork>, Error> {
        self.call(Call::get(network_of(tenant))).await
    }

    /// Holds targets of a tenant to some hosts.
    pub async fn put_network(
        &self,
        tenant: &str,
        network: &TenantNetwork,
    ) -> Result<Answer<TenantNetwork>, Error> {
        self.call(Call::new(Method::PUT, network_of(tenant)).body(network)?).await
    }

    /// Holds them to none any more.
    pub async fn delete_network(&self, tenant: &str) -> Result<(), Error> {
        self.call_empty(Call::new(Method::DELETE, network_of(tenant))).await
    }
}

fn network_of(tenant: &str) -> String {
    format!("/v1/tenants/{}/network", escaped(tenant))
}

fn defaults_of(tenant: &str) -> String {
    format!("/v1/tenants/{}/defaults", escaped(tenant))
}
