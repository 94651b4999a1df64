//! Batches: jobs with a list of items; registered, read with how their items stand, cancelled, deleted.

use axum::extract::Path;
use http::StatusCode;
use punctual_api::batch::{Batch, BatchRun, read_batch};
use punctual_api::page::Page;
use punctual_engine::Error as EngineError;
use punctual_engine::batches::BatchSeen;
use punctual_engine::history::RunFilter;

use crate::answer::Answer;
use crate::call::{Call, Text};
use crate::cursor::Cursor;
use crate::error::Error;
use crate::jobs::shorten;
use crate::runs::STATES;

type Outcome = Result<Answer, Error>;

/// The same batch again is the same batch: no key is needed to repeat it.
pub(crate) async fn create(call: Call, Text(text): Text) -> Outcome {
    call.query.check()?;
    let engine = &call.shared.engine;
    let defaults = engine.job_defaults(call.tenant).await?;
    let spec = read_batch(&text, defaults.as_deref(), &call.shared.rules())?;
    let id = spec.key.clone().unwrap_or_default();
    let is_new = call.acting().register_batch(call.tenant, spec).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let seen = engine.batch(call.tenant, &id).await?;
    Ok(Answer::new(status, &shown(&call, &seen)).at(format!("/v1/batches/{}", escaped(&id))))
}

/// An id as it stands in a path.
fn escaped(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    id.bytes().map(one).collect()
}

fn shown(call: &Call, seen: &BatchSeen) -> Batch {
    let job = &seen.seen.job;
    Batch {
        id: job.spec.key.clone().unwrap_or_default(),
        name: job.spec.name.clone(),
        job_id: job.id.to_string(),
        tenant: call.tenant_name.to_string(),
        state: seen.state().into(),
        items: seen.batch.total(),
        scheduled_for: seen.slot,
        counts: seen.counts.map(Into::into),
        completed_at: seen.completed_at,
        cancelled_at: seen.batch.cancelled_at,
        next_fire_at: seen.seen.next_fire_at,
        created_at: job.created_at,
    }
}

pub(crate) async fn list(mut call: Call) -> Outcome {
    let page = call.query.page();
    call.query.check()?;
    let page = call.shared.engine.batches(call.tenant, page).await?;
    let items: Vec<Batch> = page.items.iter().map(|seen| shown(&call, seen)).collect();
    Ok(Answer::ok(&Page { items, next_cursor: page.next.map(|next| next.encode()) }))
}

pub(crate) async fn get(call: Call, Path(id): Path<String>) -> Outcome {
    call.query.check()?;
    let seen = call.shared.engine.batch(call.tenant, &id).await.map_err(|error| short(error, &id))?;
    Ok(Answer::ok(&shown(&call, &seen)))
}

pub(crate) async fn items(mut call: Call, Path(id): Path<String>) -> Outcome {
    let (state, page) = (call.query.word("state", &STATES), call.query.page());
    call.query.check()?;
    let engine = &call.shared.engine;
    let (seen, batch) = engine.batch_job(call.tenant, &id).await.map_err(|error| short(error, &id))?;
    let filter =
        RunFilter { tenant: Some(call.tenant), job: Some(seen.job.id), state, ..RunFilter::default() };
    let page = engine.runs(&filter, page).await?;
    let items: Vec<BatchRun> = page.items.iter().filter_map(|run| BatchRun::new(&batch, run)).collect();
    Ok(Answer::ok(&Page { items, next_cursor: page.next.map(|next| next.encode()) }))
}

/// Asked again, it is cancelled already.
pub(crate) async fn cancel(call: Call, Path(id): Path<String>) -> Outcome {
    call.query.check()?;
    let engine = &call.shared.engine;
    call.acting().cancel_batch(call.tenant, &id).await.map_err(|error| short(error, &id))?;
    Ok(Answer::ok(&shown(&call, &engine.batch(call.tenant, &id).await?)))
}

pub(crate) async fn delete(call: Call, Path(id): Path<String>) -> Outcome {
    call.query.check()?;
    let engine = &call.shared.engine;
    let (seen, _) = engine.batch_job(call.tenant, &id).await.map_err(|error| short(error, &id))?;
    call.acting().delete(call.tenant, seen.job.id, None).await?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

/// An id in a path may be anything; only some of it is told back.
fn short(error: EngineError, id: &str) -> Error {
    match error {
        EngineError::BatchNotFound(_) => EngineError::BatchNotFound(shorten(id)).into(),
        error => error.into(),
    }
}
