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
}

impl From<&punctual_domain::Tenant> for Tenant {
    fn from(tenant: &punctual_domain::Tenant) -> Self {
        Tenant { name: tenant.name.to_string(), created_at: tenant.created_at }
    }
}
