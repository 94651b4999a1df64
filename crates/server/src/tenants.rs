//! Tenants: listed and created.

use http::StatusCode;
use punctual_api::page::Page;
use punctual_api::read;
use punctual_api::tenant::{Tenant, TenantSpec};
use punctual_domain::TenantName;

use crate::answer::Answer;
use crate::call::{Call, Text};
use crate::error::Error;
use crate::once::once;

type Outcome = Result<Answer, Error>;

/// All of them at once: a tenant is a customer, not a row.
pub(crate) async fn list(call: Call) -> Outcome {
    call.query.check()?;
    let tenants = call.shared.engine.tenants().await?;
    let may_see =
        |tenant: &&punctual_domain::Tenant| call.caller.tenant.as_ref().is_none_or(|own| *own == tenant.name);
    let items: Vec<Tenant> = tenants.iter().filter(may_see).map(Tenant::from).collect();
    Ok(Answer::ok(&Page { items, next_cursor: None }))
}

pub(crate) async fn create(call: Call, Text(text): Text) -> Outcome {
    call.query.check()?;
    if call.caller.tenant.is_some() {
        return Err(Error::Forbidden("only an admin of all tenants creates one".into()));
    }
    let spec: TenantSpec = read::read(&text)?;
    let name = spec.name.ok_or_else(|| Error::wrong("/name", "missing_field", "`name` is missing"))?;
    let name: TenantName =
        name.parse().map_err(|error| Error::wrong("/name", "tenant_name", format!("{error}")))?;
    once(&call, &text, async {
        let is_new = call.shared.tenant(name.as_str()).await.is_err();
        let tenant = call.shared.engine.put_tenant(&name).await?;
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        Ok(Answer::new(status, &Tenant::from(&tenant)))
    })
    .await
}
