//! Limits that administrators set: put, read, listed, deleted.

use axum::extract::Path;
use http::StatusCode;
use punctual_api::limit::{Limit, LimitSpec};
use punctual_api::page::Page;
use punctual_api::read;
use punctual_domain::policy::limit::Rule;

use crate::answer::Answer;
use crate::call::{Call, Text};
use crate::error::Error;

type Outcome = Result<Answer, Error>;

/// All of them at once: an administrator writes them, they are few.
pub(crate) async fn list(call: Call) -> Outcome {
    call.query.check()?;
    let mut items = Vec::new();
    for rule in call.shared.engine.rules().await? {
        items.push(shown(&call, &rule).await?);
    }
    Ok(Answer::ok(&Page { items, next_cursor: None }))
}

pub(crate) async fn get(call: Call, Path(name): Path<String>) -> Outcome {
    call.query.check()?;
    let rules = call.shared.engine.rules().await?;
    let rule = rules.iter().find(|rule| *rule.name == *name).ok_or_else(|| unknown(&name))?;
    Ok(Answer::ok(&shown(&call, rule).await?))
}

/// The same limit again is the same limit: no key is needed to repeat it.
pub(crate) async fn put(call: Call, Path(name): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    let spec: LimitSpec = read::read(&text)?;
    let tenant = match &spec.tenant {
        Some(name) => Some(call.shared.tenant(name).await?),
        None => None,
    };
    let rule = spec.to_domain(&name, tenant)?;
    let is_new = call.acting().put_rule(rule.clone()).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(Answer::new(status, &shown(&call, &rule).await?))
}

pub(crate) async fn delete(call: Call, Path(name): Path<String>) -> Outcome {
    call.query.check()?;
    match call.acting().delete_rule(&name).await? {
        true => Ok(Answer::empty(StatusCode::NO_CONTENT)),
        false => Err(unknown(&name)),
    }
}

async fn shown(call: &Call, rule: &Rule) -> Result<Limit, Error> {
    let tenant = match rule.tenant {
        Some(tenant) => Some(call.shared.tenant_name(tenant).await?),
        None => None,
    };
    Ok(Limit::new(rule, tenant.as_deref()))
}

fn unknown(name: &str) -> Error {
    Error::LimitNotFound(name.chars().take(64).collect())
}
