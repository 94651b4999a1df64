//! Tenants: create and list, and what holds for their jobs.

use http::Method;
use punctual_api::Page;
use punctual_api::defaults::JobDefaults;
use punctual_api::operation::Operation;
use punctual_api::tenant::{Tenant, TenantQuotas, TenantSpec, TenantSuspension, TenantUsage};
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

    /// A tenant, and how it stands.
    pub async fn tenant(&self, tenant: &str) -> Result<Answer<Tenant>, Error> {
        self.call(Call::get(of(tenant, ""))).await
    }

    /// Suspends a tenant: no slot fires, requests are refused, open runs end.
    pub async fn suspend_tenant(
        &self,
        tenant: &str,
        suspension: &TenantSuspension,
    ) -> Result<Answer<Operation>, Error> {
        self.call(Call::post(of(tenant, "/suspend")).body(suspension)?).await
    }

    /// Lets a suspended tenant go on.
    pub async fn resume_tenant(&self, tenant: &str) -> Result<Answer<Tenant>, Error> {
        self.call(Call::post(of(tenant, "/resume"))).await
    }

    /// Deletes a tenant; its jobs and runs go as operations.
    pub async fn delete_tenant(&self, tenant: &str) -> Result<Answer<Operation>, Error> {
        self.call(Call::new(Method::DELETE, of(tenant, ""))).await
    }

    /// What a tenant uses now, and what it may.
    pub async fn tenant_usage(&self, tenant: &str) -> Result<Answer<TenantUsage>, Error> {
        self.call(Call::get(of(tenant, "/usage"))).await
    }

    /// How much of everything a tenant may have.
    pub async fn quotas(&self, tenant: &str) -> Result<Answer<TenantQuotas>, Error> {
        self.call(Call::get(of(tenant, "/quotas"))).await
    }

    /// Sets how much of everything a tenant may have.
    pub async fn put_quotas(
        &self,
        tenant: &str,
        quotas: &TenantQuotas,
    ) -> Result<Answer<TenantQuotas>, Error> {
        self.call(Call::new(Method::PUT, of(tenant, "/quotas")).body(quotas)?).await
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
}

fn defaults_of(tenant: &str) -> String {
    of(tenant, "/defaults")
}

fn of(tenant: &str, what: &str) -> String {
    format!("/v1/tenants/{}{what}", escaped(tenant))
}
