//! Which hosts the targets of a tenant may name: asked before every call, beside what the installation allows.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::TenantId;
use punctual_domain::attempt::Failure;

use crate::targets::http::Policy;
use crate::targets::http::guard::HostSuffix;

/// Knows the hosts that tenants are held to.
#[async_trait]
pub trait Networks: Send + Sync {
    /// The only hosts of a tenant; nothing if it is held to none. What cannot be known is an error.
    async fn only_hosts(&self, tenant: TenantId) -> Result<Option<Arc<[String]>>, String>;
}

/// The policy of a tenant. A list that cannot be read lets nothing through.
pub(crate) async fn policy(
    networks: Option<&dyn Networks>,
    tenant: TenantId,
) -> Result<Option<Policy>, Failure> {
    let Some(networks) = networks else { return Ok(None) };
    let hosts = match networks.only_hosts(tenant).await {
        Ok(hosts) => hosts,
        Err(reason) => {
            return Err(refused(format!("the hosts of the tenant cannot be read: {reason}"), true));
        }
    };
    let Some(hosts) = hosts else { return Ok(None) };
    let parsed = hosts.iter().map(|host| host.parse::<HostSuffix>()).collect::<Result<Vec<_>, _>>();
    match parsed {
        Ok(hosts) if !hosts.is_empty() => Ok(Some(Policy::tenant_with_only(hosts))),
        Ok(_) => Err(refused("the tenant policy allows no host".into(), false)),
        Err(error) => Err(refused(format!("the hosts of the tenant cannot be read: {error}"), false)),
    }
}

fn refused(message: String, is_retryable: bool) -> Failure {
    Failure { code: "target_refused".into(), message, is_retryable, retry_after: None }
}
