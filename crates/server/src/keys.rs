//! Keys of the API: made, listed, revoked, rotated.

use axum::extract::Path;
use http::StatusCode;
use punctual_api::key::{Key, KeyRotation, KeySpec, NewKey};
use punctual_api::page::Page;
use punctual_api::{read, tenant};
use punctual_domain::id::TenantId;
use punctual_domain::key::{Key as DomainKey, Right};
use punctual_engine::keys::{self, Place, Scope};

use crate::answer::Answer;
use crate::call::{Call, Text};
use crate::cursor::Cursor;
use crate::error::Error;
use crate::jobs::read_or_default;
use crate::runs::named_tenant;

type Outcome = Result<Answer, Error>;

pub(crate) async fn create(call: Call, Text(text): Text) -> Outcome {
    call.query.check()?;
    check_once(&call)?;
    let engine = &call.shared.engine;
    let asked = read::read::<KeySpec>(&text)?.to_domain(engine.now())?;
    let tenant = match &asked.tenant {
        Some(name) => named_tenant(&call, name).await?,
        None => asked_for(&call),
    };
    let right = Right { role: asked.role, tenant, expires_at: asked.expires_at };
    let created_by = match call.caller.pass {
        Some(pass) => format!("key {}", pass.id),
        None => "this machine".into(),
    };
    let own = Right { role: call.caller.role, tenant: scope(&call), expires_at: call.caller.expires_at };
    let new = keys::NewKey { name: asked.name, right, created_by };
    let (key, secret) = call.acting().create_key(new, &own).await?;
    let answer = NewKey { about: shown(&call, &key, None).await?, key: secret.reveal() };
    Ok(Answer::new(StatusCode::CREATED, &answer).at(format!("/v1/keys/{}", key.id)))
}

impl Cursor for Place {
    const KIND: u8 = 7;

    fn to_bytes(&self) -> Vec<u8> {
        [&self.0.0.to_be_bytes(), self.1.as_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (tenant, name) = bytes.split_first_chunk()?;
        Some((TenantId(u32::from_be_bytes(*tenant)), String::from_utf8(name.to_vec()).ok()?))
    }
}

pub(crate) async fn list(mut call: Call) -> Outcome {
    let named = call.query.text("tenant").map(str::to_string);
    let page = call.query.page::<Place>();
    call.query.check()?;
    let scope = match named {
        Some(name) => named_tenant(&call, &name).await?,
        None => asked_for(&call),
    };
    let page = call.shared.engine.keys(scope, page).await?;
    let mut items = Vec::with_capacity(page.items.len());
    for listed in &page.items {
        items.push(shown(&call, &listed.key, listed.last_used_at).await?);
    }
    Ok(Answer::ok(&Page { items, next_cursor: page.next.map(|next| next.encode()) }))
}

pub(crate) async fn get(call: Call, Path(id): Path<String>) -> Outcome {
    call.query.check()?;
    let listed = call.shared.engine.key(scope(&call), &id).await?;
    Ok(Answer::ok(&shown(&call, &listed.key, listed.last_used_at).await?))
}

/// Twice is once: no key is needed to repeat it.
pub(crate) async fn revoke(call: Call, Path(id): Path<String>) -> Outcome {
    call.query.check()?;
    call.acting().revoke_key(scope(&call), &id).await?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

pub(crate) async fn rotate(call: Call, Path(id): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    check_once(&call)?;
    let overlap = read_or_default::<KeyRotation>(&text)?.to_domain()?;
    let (key, secret) = call.acting().rotate_key(scope(&call), &id, overlap).await?;
    Ok(Answer::ok(&NewKey { about: shown(&call, &key, None).await?, key: secret.reveal() }))
}

/// All that the caller may see and change.
fn scope(call: &Call) -> Scope {
    call.caller.tenant.as_ref().map(|_| call.tenant)
}

/// What the request is for: the tenant that it names, or all that the caller may name.
fn asked_for(call: &Call) -> Scope {
    match call.headers.contains_key(tenant::HEADER) {
        true => Some(call.tenant),
        false => scope(call),
    }
}

/// An answer that is given again would have to be kept, with the secret in it.
fn check_once(call: &Call) -> Result<(), Error> {
    let detail = "a key is shown once, so its answer is not kept to be given again; leave the header out, and revoke a key whose answer was lost";
    match call.idempotency_key()? {
        Some(_) => Err(Error::wrong("Idempotency-Key", "conflict", detail)),
        None => Ok(()),
    }
}

async fn shown(call: &Call, key: &DomainKey, last_used_at: Option<jiff::Timestamp>) -> Result<Key, Error> {
    let tenant = match key.right.tenant {
        Some(tenant) => Some(call.shared.tenant_name(tenant).await?),
        None => None,
    };
    Ok(Key::new(key, tenant.as_deref(), last_used_at, call.shared.engine.now()))
}
