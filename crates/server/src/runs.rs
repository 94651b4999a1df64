//! Runs: listed newest first, read with their attempts and their log, cancelled, retried, answered for.

use std::time::Duration;

use axum::extract::Path;
use punctual_api::page::Page;
use punctual_api::read;
use punctual_api::run::{Run, RunAnswer, RunLogLine, RunSummary};
use punctual_domain::papers::Place;
use punctual_domain::run::WaitingFor;
use punctual_domain::{self as domain, JobId, RunId};
use punctual_engine::Error as EngineError;
use punctual_engine::history::RunFilter;
use punctual_engine::log::LogQuery;

use crate::access::{Caller, Role};
use crate::answer::Answer;
use crate::call::{Call, Text};
use crate::cursor::Cursor;
use crate::error::Error;
use crate::jobs::{job_id, shorten};
use crate::once::once;
use crate::state::Shared;

type Outcome = Result<Answer, Error>;

/// The states a run can be in.
pub(crate) const STATES: [(&str, &str); 7] = [
    ("pending", "pending"),
    ("running", "running"),
    ("succeeded", "succeeded"),
    ("failed", "failed"),
    ("timed_out", "timed_out"),
    ("cancelled", "cancelled"),
    ("missed", "missed"),
];

const WAITING_FOR: [(&str, WaitingFor); 6] = [
    ("time", WaitingFor::Time),
    ("capacity", WaitingFor::Capacity),
    ("retry", WaitingFor::Retry),
    ("earlier_run", WaitingFor::EarlierRun),
    ("limit", WaitingFor::Limit),
    ("answer", WaitingFor::Answer),
];

pub(crate) async fn list(mut call: Call) -> Outcome {
    let mut filter = filter(&mut call);
    filter.state = call.query.word("state", &STATES);
    filter.waiting_for = call.query.word("waiting_for", &WAITING_FOR);
    filter.is_dead = call.query.parsed("dead", "`true` or `false`");
    if let Some(name) = call.query.text("tenant").map(str::to_string) {
        filter.tenant = named_tenant(&call, &name).await?;
    }
    page(call, filter).await
}

/// The tenant of a filter; `*` is all of them, for those who may see them.
pub(crate) async fn named_tenant(call: &Call, name: &str) -> Result<Option<domain::TenantId>, Error> {
    named_tenant_of(&call.shared, &call.caller, name).await
}

/// The same, for a caller.
pub(crate) async fn named_tenant_of(
    shared: &Shared,
    caller: &Caller,
    name: &str,
) -> Result<Option<domain::TenantId>, Error> {
    match (name, &caller.tenant) {
        ("*", None) if caller.role == Role::Admin => Ok(None),
        ("*", _) => Err(Error::Forbidden("only an admin of all tenants may list them all".into())),
        (name, Some(own)) if *name != *own.as_str() => Err(EngineError::TenantNotFound(shorten(name)).into()),
        (name, _) => shared.tenant(name).await.map(Some),
    }
}

pub(crate) async fn list_of_job(mut call: Call, Path(id): Path<String>) -> Outcome {
    let job = job_id(&id)?;
    let mut filter = filter(&mut call);
    filter.job = Some(job);
    filter.state = call.query.word("state", &STATES);
    filter.waiting_for = call.query.word("waiting_for", &WAITING_FOR);
    filter.is_dead = call.query.parsed("dead", "`true` or `false`");
    // The runs of a deleted job are there as long as they are kept.
    call.shared.engine.kept_job(call.tenant, job).await?;
    page(call, filter).await
}

/// What every list of runs can be narrowed by.
pub(crate) fn filter(call: &mut Call) -> RunFilter {
    RunFilter {
        tenant: Some(call.tenant),
        job: call.query.parsed::<JobId>("job", "a job's id"),
        kind: call.query.text("type").map(Into::into),
        queue: call.query.text("queue").map(Into::into),
        born_from: call.query.time("from"),
        born_before: call.query.time("to"),
        ..RunFilter::default()
    }
}

async fn page(mut call: Call, filter: RunFilter) -> Outcome {
    let page = call.query.page();
    call.query.check()?;
    let page = call.shared.engine.runs(&filter, page).await?;
    let items = summaries(&call, &page.items).await?;
    Ok(Answer::ok(&Page { items, next_cursor: page.next.map(|next| next.encode()) }))
}

pub(crate) async fn summaries(call: &Call, runs: &[domain::Run]) -> Result<Vec<RunSummary>, Error> {
    let due_times = call.shared.engine.due_times(runs).await?;
    let items = call.shared.engine.item_ids(runs).await?;
    let mut summaries = Vec::with_capacity(runs.len());
    for ((run, due_at), item_id) in runs.iter().zip(due_times).zip(items) {
        let tenant = call.shared.tenant_name(run.tenant).await?;
        let summary = RunSummary::new(run, &tenant, run.kind.as_deref(), due_at);
        summaries.push(RunSummary { item_id, ..summary });
    }
    Ok(summaries)
}

pub(crate) async fn get(call: Call, Path(id): Path<String>) -> Outcome {
    call.query.check()?;
    let detail = call.shared.engine.run(call.tenant, run_id(&id)?).await?;
    let summary = summaries(&call, std::slice::from_ref(&detail.run)).await?.into_iter().next();
    let warnings = match detail.run.state {
        domain::RunState::Pending(_) => {
            call.shared.engine.unmet(call.tenant, &detail.run.queue, &detail.run.requires).await?
        }
        _ => None,
    };
    let warnings = warnings.into_iter().collect();
    let payload = detail.run.payload.as_deref();
    let show = |summary| Run::new(summary, payload, &detail.attempts, &detail.papers, warnings);
    Ok(Answer::ok(&summary.map(show)))
}

/// How long somebody who follows is kept waiting, as long as a worker that claims.
const FOLLOW: Duration = Duration::from_secs(20);

pub(crate) async fn log(mut call: Call, Path(id): Path<String>) -> Outcome {
    let follows = call.query.parsed::<bool>("follow", "`true` or `false`").unwrap_or(false);
    let attempt = call.query.parsed::<u32>("attempt", "the number of an attempt");
    let page = call.query.page::<Place>();
    call.query.check()?;
    let after = page.after.unwrap_or_default();
    let query = LogQuery { attempt, after, limit: page.limit, wait: follows.then_some(FOLLOW) };
    let page = call.while_good(call.shared.engine.log(call.tenant, run_id(&id)?, query)).await?;
    let items: Vec<_> = page.lines.iter().map(|(place, line)| RunLogLine::new(*place, line)).collect();
    Ok(Answer::ok(&Page { items, next_cursor: page.next.map(|next| next.encode()) }))
}

pub(crate) async fn cancel(call: Call, Path(id): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    let id = run_id(&id)?;
    once(&call, &text, async {
        let run = call.acting().cancel(call.tenant, id).await?;
        Ok(Answer::ok(&summaries(&call, &[run]).await?.first()))
    })
    .await
}

pub(crate) async fn retry(call: Call, Path(id): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    let id = run_id(&id)?;
    once(&call, &text, async {
        let redriven = call.acting().redrive(call.tenant, &[id]).await?.into_iter().next();
        let run = redriven.unwrap_or_else(|| Err(EngineError::RunNotFound(id.to_string())))?;
        Ok(Answer::ok(&summaries(&call, &[run]).await?.first()))
    })
    .await
}

pub(crate) async fn answer(call: Call, Path(id): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    let id = run_id(&id)?;
    let answer = read::read::<RunAnswer>(&text)?.to_domain()?;
    once(&call, &text, async {
        let run = call.acting().answer(call.tenant, id, answer).await?;
        Ok(Answer::ok(&summaries(&call, &[run]).await?.first()))
    })
    .await
}

/// A run's id in a path. What is no id names no run.
pub(crate) fn run_id(text: &str) -> Result<RunId, Error> {
    text.parse().map_err(|_| EngineError::RunNotFound(shorten(text)).into())
}
