//! Tenants: listed, created, suspended, deleted; what they may have and use, and what holds for their jobs.

use http::StatusCode;
use punctual_api::defaults::{JobDefaults, read_defaults};
use punctual_api::page::Page;
use punctual_api::read;
use punctual_api::tenant::{Tenant, TenantQuotas, TenantSpec, TenantSuspension, TenantUsage};
use punctual_domain::tenant::State;
use punctual_domain::{Document, TenantId, TenantName};

use crate::alerts::{expected, number};
use crate::answer::Answer;
use crate::call::{Call, Path, Text};
use crate::error::Error;
use crate::jobs::read_or_default;
use crate::once::once;
use crate::operations::accepted;

type Outcome = Result<Answer, Error>;

/// All of them at once: a tenant is a customer, not a row.
pub(crate) async fn list(call: Call) -> Outcome {
    call.query.check()?;
    let tenants = call.shared.engine.tenants().await?;
    let may_see =
        |tenant: &&punctual_domain::Tenant| call.caller.tenant.as_ref().is_none_or(|own| *own == tenant.name);
    let is_there =
        |tenant: &&punctual_domain::Tenant| call.shared.engine.standing(tenant.id).state != State::Deleted;
    let items: Vec<Tenant> =
        tenants.iter().filter(may_see).filter(is_there).map(|tenant| shown(&call, tenant)).collect();
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
        let tenant = call.shared.engine.put_tenant(&name).await?;
        if call.shared.engine.standing(tenant.id).state == State::Deleted {
            return Err(punctual_engine::Error::TenantGone(name.to_string()).into());
        }
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        Ok(Answer::new(status, &shown(&call, &tenant)))
    })
    .await
}

fn shown(call: &Call, tenant: &punctual_domain::Tenant) -> Tenant {
    let engine = &call.shared.engine;
    let standing = engine.standing(tenant.id);
    Tenant::new(tenant, &standing, engine.pending(tenant.id).tenant, engine.caps().tenant)
}

pub(crate) async fn get(call: Call, Path(name): Path) -> Outcome {
    call.query.check()?;
    let id = own(&call, &name).await?;
    Ok(Answer::ok(&found(&call, id).await?))
}

/// A tenant as it is listed.
async fn found(call: &Call, id: TenantId) -> Result<Tenant, Error> {
    let tenants = call.shared.engine.tenants().await?;
    let tenant = tenants.iter().find(|tenant| tenant.id == id);
    let unknown = || punctual_engine::Error::TenantNotFound(call.shared.known_name(id).to_string());
    Ok(shown(call, tenant.ok_or_else(unknown)?))
}

pub(crate) async fn quotas(call: Call, Path(name): Path) -> Outcome {
    call.query.check()?;
    let id = own(&call, &name).await?;
    let (standing, version) = call.shared.engine.read_standing(id).await?;
    let answer = || Answer::ok(&TenantQuotas::from(&standing.quotas)).version(number(version));
    Ok(call.has(number(version)).unwrap_or_else(answer))
}

/// The same again is the same: no key is needed to repeat it.
pub(crate) async fn put_quotas(call: Call, Path(name): Path, Text(text): Text) -> Outcome {
    call.query.check()?;
    let (id, expected) = (own(&call, &name).await?, expected(&call)?);
    let quotas = read::read::<TenantQuotas>(&text)?.to_domain()?;
    let version = call.shared.engine.put_quotas(id, quotas, expected).await?;
    Ok(Answer::ok(&TenantQuotas::from(&quotas)).version(number(version)))
}

pub(crate) async fn usage(call: Call, Path(name): Path) -> Outcome {
    call.query.check()?;
    let id = own(&call, &name).await?;
    let engine = &call.shared.engine;
    let usage = engine.usage(id).await?;
    Ok(Answer::ok(&TenantUsage {
        tenant: name,
        as_of: engine.now(),
        jobs: usage.jobs,
        has_more_jobs: usage.has_more_jobs,
        pending_runs: usage.pending_runs,
        running_runs: usage.running_runs,
        planned_slots: usage.planned_slots,
        quotas: TenantQuotas::from(&engine.standing(id).quotas),
    }))
}

pub(crate) async fn suspend(call: Call, Path(name): Path, Text(text): Text) -> Outcome {
    call.query.check()?;
    let id = own(&call, &name).await?;
    let reason = read_or_default::<TenantSuspension>(&text)?.to_domain()?;
    once(&call, &text, async { Ok(accepted(&call.shared.engine.suspend_tenant(id, reason).await?)) }).await
}

pub(crate) async fn resume(call: Call, Path(name): Path, Text(text): Text) -> Outcome {
    call.query.check()?;
    let id = own(&call, &name).await?;
    once(&call, &text, async {
        call.shared.engine.resume_tenant(id).await?;
        Ok(Answer::ok(&found(&call, id).await?))
    })
    .await
}

/// Asked again, it is deleted already, and what is left goes.
pub(crate) async fn delete(call: Call, Path(name): Path) -> Outcome {
    call.query.check()?;
    let id = own(&call, &name).await?;
    Ok(accepted(&call.shared.engine.delete_tenant(id).await?))
}

pub(crate) async fn defaults(call: Call, Path(name): Path) -> Outcome {
    call.query.check()?;
    let tenant = own(&call, &name).await?;
    match call.shared.engine.defaults(tenant).await? {
        Some(document) => Ok(call.has(number(document.version)).unwrap_or_else(|| shown_defaults(&document))),
        None => Ok(Answer::ok(&JobDefaults::default())),
    }
}

/// The same again is the same: no key is needed to repeat it.
pub(crate) async fn put_defaults(call: Call, Path(name): Path, Text(text): Text) -> Outcome {
    call.query.check()?;
    let (tenant, expected) = (own(&call, &name).await?, expected(&call)?);
    let defaults = read_defaults(&text, &call.shared.rules())?;
    let body = serde_json::to_string(&defaults).map_err(|error| Error::BodyBroken(error.to_string()))?;
    let document = call.shared.engine.put_defaults(tenant, Some(body.into()), expected).await?;
    Ok(document.as_ref().map_or_else(|| Answer::ok(&defaults), shown_defaults))
}

pub(crate) async fn delete_defaults(call: Call, Path(name): Path) -> Outcome {
    call.query.check()?;
    let (tenant, expected) = (own(&call, &name).await?, expected(&call)?);
    call.shared.engine.put_defaults(tenant, None, expected).await?;
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

fn shown_defaults(document: &Document) -> Answer {
    // What is stored was written from this type; if a later version wrote more, the rest is its own.
    let defaults: JobDefaults = serde_json::from_str(&document.body).unwrap_or_default();
    Answer::ok(&defaults).version(number(document.version))
}
