//! Tenants: create and list.

use punctual_api::Page;
use punctual_api::tenant::{Tenant, TenantSpec};

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;

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
}
