//! Tenants on the wire.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Names the tenant of a request.
pub const HEADER: &str = "punctual-tenant";

object! {
    /// A new tenant.
    pub struct TenantSpec {
        /// 1 to 63 lower-case letters, digits and hyphens.
        #[schema(example = "acme", required = true)]
        pub name: String,
    }
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// How many of its runs wait, whatever for; as this node knows it.
    #[serde(default)]
    pub pending_runs: u64,
    /// How many may, before no more are taken: `tenant_pending_max` of the server.
    #[serde(default)]
    pub pending_max: u64,
}

impl Tenant {
    /// A tenant, how many of its runs wait and how many may.
    pub fn new(tenant: &punctual_domain::Tenant, pending_runs: u64, pending_max: u64) -> Self {
        let name = tenant.name.to_string();
        Tenant { name, created_at: tenant.created_at, pending_runs, pending_max }
    }
}
