//! Tenants on the wire.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::read::{At, Errors, Unread};

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

object! {
    /// What the targets of a tenant may reach, beside what the installation allows.
    pub struct TenantNetwork {
        /// The only hosts that they may name: `example.com` is also everything below it. 1 to 100.
        #[schema(required = true, example = json!(["example.com", "10.1.2.3"]))]
        pub only_hosts: Vec<String>,
    }
}

/// Hosts that a tenant may be held to; each is looked at before every call.
const HOSTS_MAX: usize = 100;

impl TenantNetwork {
    /// The hosts, or everything that is wrong.
    pub fn to_domain(&self) -> Result<Vec<String>, Unread> {
        let (here, mut errors) = (At::ROOT.member("only_hosts"), Errors::default());
        let hosts = self.only_hosts.clone().unwrap_or_default();
        if hosts.is_empty() || hosts.len() > HOSTS_MAX {
            let detail = format!("write 1 to {HOSTS_MAX} hosts; delete the list to hold the tenant to none");
            errors.add(&here, "out_of_range", detail);
        }
        for (n, host) in hosts.iter().enumerate() {
            let name = host.strip_prefix("*.").unwrap_or(host);
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let is_name = !name.is_empty() && name.len() <= 253 && name.chars().all(is_plain);
            if !is_name && name.parse::<std::net::IpAddr>().is_err() {
                let detail = "this is not a host: write `example.com`, which is also everything below it, or an address";
                errors.add(&here.item(n), "unknown_value", detail);
            }
        }
        if errors.is_empty() { Ok(hosts) } else { Err(Unread::Wrong(errors.into_vec())) }
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
