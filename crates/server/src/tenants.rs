//! Tenants: listed, created, and what holds for their jobs.

use axum::extract::Path;
use http::StatusCode;
use punctual_api::defaults::{JobDefaults, read_defaults};
use punctual_api::page::Page;
use punctual_api::read;
use punctual_api::tenant::{Tenant, TenantSpec};
use punctual_domain::{Document, TenantId, TenantName};

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
    let items: Vec<Tenant> = tenants.iter().filter(may_see).map(|tenant| shown(&call, tenant)).collect();
    Ok(Answer::ok(&Page { items, next_cursor: None }))
}

pub(crate) async fn create(call: Call, Text(text): Text) -> Outcome {
    call.query.check()?;
    let spec: TenantSpec = read::read(&text)?;
    let name = spec.name.ok_or_else(|| Error::wrong("/name", "missing_field", "`name` is missing"))?;
    let name: TenantName =
        name.parse().map_err(|error| Error::wrong("/name", "tenant_name", format!("{error}")))?;
    once(&call, &text, async {
        let is_new = call.shared.tenant(name.as_str()).await.is_err();
        let tenant = call.acting().put_tenant(&name).await?;
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        Ok(Answer::new(status, &shown(&call, &tenant)))
    })
    .await
}

fn shown(call: &Call, tenant: &punctual_domain::Tenant) -> Tenant {
    let engine = &call.shared.engine;
    Tenant::new(tenant, engine.pending(tenant.id).tenant, engine.caps().tenant)
}

pub(crate) async fn defaults(call: Call, Path(name): Path<String>) -> Outcome {
    call.query.check()?;
    let tenant = own(&call, &name).await?;
    match call.shared.engine.defaults(tenant).await? {
        Some(document) => Ok(shown_defaults(&document)),
        None => Ok(Answer::ok(&JobDefaults::default())),
    }
}

/// The same again is the same: no key is needed to repeat it.
pub(crate) async fn put_defaults(call: Call, Path(name): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    let (tenant, expected) = (own(&call, &name).await?, expected(&call)?);
    let defaults = read_defaults(&text, &call.shared.rules())?;
    let body = serde_json::to_string(&defaults).map_err(|error| Error::BodyBroken(error.to_string()))?;
    let document = call.acting().put_defaults(tenant, Some(body.into()), expected).await?;
    Ok(document.as_ref().map_or_else(|| Answer::ok(&defaults), shown_defaults))
}

pub(crate) async fn delete_defaults(call: Call, Path(name): Path<String>) -> Outcome {
    call.query.check()?;
    let (tenant, expected) = (own(&call, &name).await?, expected(&call)?);
    call.acting().put_defaults(tenant, None, expected).await?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

/// The tenant with a name, if the caller may know of it: another's is not there, whether it exists or not.
async fn own(call: &Call, name: &str) -> Result<TenantId, Error> {
    match &call.caller.tenant {
        Some(own) if own.as_str() != name => {
            let unknown = name.chars().take(64).collect();
            Err(Error::Engine(punctual_engine::Error::TenantNotFound(unknown)))
        }
        _ => call.shared.tenant(name).await,
    }
}

fn expected(call: &Call) -> Result<Option<u64>, Error> {
    Ok(call.expected()?.map(|version| version.0.into()))
}

fn shown_defaults(document: &Document) -> Answer {
    // What is stored was written from this type; if a later version wrote more, the rest is its own.
    let defaults: JobDefaults = serde_json::from_str(&document.body).unwrap_or_default();
    Answer::ok(&defaults).version(u32::try_from(document.version).unwrap_or(u32::MAX))
}
