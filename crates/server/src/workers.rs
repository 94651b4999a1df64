//! Workers that pull: they claim, give signs of life, report, and are listed. What gRPC shares with REST is here too.

use axum::extract::Path;
use http::StatusCode;
use punctual_api::duration::Duration;
use punctual_api::page::Page;
use punctual_api::read;
use punctual_api::worker::{
    Claim, Claimed, ClaimedAttempt, HeartbeatAnswer, Held, ReadClaim, ReadHeartbeat, ResultTaken, Results,
    ResultsTaken, Worker, WorkerHeartbeat,
};
use punctual_domain::Note;
use punctual_domain::id::{TenantId, WorkerId};
use punctual_domain::papers::Line;
use punctual_domain::run::Run;
use punctual_domain::work::{self, About};
use punctual_engine::pull::{Asking, End, Reported};
use punctual_engine::{Engine, Error as EngineError};

use crate::access::Role;
use crate::answer::Answer;
use crate::call::{Call, LongText, Text};
use crate::error::Error;
use crate::jobs::shorten;
use crate::state::Shared;

type Outcome = Result<Answer, Error>;

/// Signs of life in a lease: two may be missed.
pub(crate) const BEATS: u32 = 3;

pub(crate) async fn claim(call: Call, Text(text): Text) -> Outcome {
    call.query.check()?;
    let claim = read::read::<Claim>(&text)?.to_domain()?;
    let engine = &call.shared.engine;
    let (worker, is_new) = match claim.worker {
        Some(worker) => (worker, false),
        None => (engine.new_worker_id(), true),
    };
    let (capacity, wait) = (claim.capacity as usize, claim.wait);
    let asking = Asking { worker, is_new, about: about(claim, call.tenant, engine), capacity, wait };
    let leased = call.while_good(engine.pull(asking)).await?;
    Ok(Answer::ok(&Claimed {
        worker: worker.to_string(),
        lease: Duration(engine.lease()),
        heartbeat_every: Duration(engine.lease() / BEATS),
        attempts: leased.iter().map(ClaimedAttempt::from).collect(),
    }))
}

/// What a worker tells of itself with a claim.
pub(crate) fn about(claim: ReadClaim, tenant: TenantId, engine: &Engine) -> About {
    About {
        tenant,
        name: claim.name,
        queues: claim.queues,
        labels: claim.labels,
        concurrency: claim.concurrency,
        saturation: None,
        started_at: engine.now(),
    }
}

pub(crate) async fn heartbeat(call: Call, Path(id): Path<String>, LongText(text): LongText) -> Outcome {
    call.query.check()?;
    let beat = read::read::<WorkerHeartbeat>(&text)?.to_domain()?;
    Ok(Answer::ok(&beat_outside(&call.shared.engine, call.tenant, worker_id(&id)?, beat).await?))
}

/// A sign of life of a worker that does not stay.
pub(crate) async fn beat_outside(
    engine: &Engine,
    tenant: TenantId,
    worker: WorkerId,
    beat: ReadHeartbeat,
) -> Result<HeartbeatAnswer, Error> {
    let answer = engine.pull_heartbeat(tenant, worker, |about| change(about, &beat), &beat.held).await?;
    beaten(engine, worker, beat, answer).await
}

/// What a worker tells of itself with a heartbeat.
pub(crate) fn change(about: &mut About, beat: &ReadHeartbeat) {
    about.concurrency = beat.concurrency.unwrap_or(about.concurrency);
    about.saturation = beat.saturation;
}

/// After a sign of life was taken: what attempts say is kept, and the answer made.
pub(crate) async fn beaten(
    engine: &Engine,
    worker: WorkerId,
    beat: ReadHeartbeat,
    answer: work::Heartbeat,
) -> Result<HeartbeatAnswer, Error> {
    let now = engine.now();
    let notes = beat.notes.into_iter().map(|note| Note {
        worker,
        held: work::Held { sequence: note.run.sequence(), attempt: note.attempt },
        progress: note.progress,
        checkpoint: note.checkpoint,
        lines: note.lines.into_iter().map(|text| Line { at: now, text }).collect(),
    });
    let notes: Vec<Note> = notes.collect();
    if !notes.is_empty() {
        // What is not held any more is told by the answer.
        engine.note(notes).await?;
    }
    let named = |held: Vec<work::Held>| held.iter().filter_map(|held| Held::of(held, &beat.held)).collect();
    Ok(HeartbeatAnswer { cancelled: named(answer.cancelled), not_held: named(answer.not_held) })
}

pub(crate) async fn results(call: Call, Path(id): Path<String>, LongText(text): LongText) -> Outcome {
    call.query.check()?;
    let worker = worker_id(&id)?;
    let (names, ends) = reported(&read::read::<Results>(&text)?)?;
    Ok(Answer::ok(&taken(names, call.shared.engine.report(call.tenant, worker, ends).await?)))
}

/// Attempts by the names of their runs.
pub(crate) type Names = Vec<(String, u32)>;

/// Results as the engine takes them.
pub(crate) fn reported(results: &Results) -> Result<(Names, Vec<Reported>), Error> {
    let results = results.to_domain()?;
    let names = results.iter().map(|one| (one.run.to_string(), one.attempt)).collect();
    let ends = results.into_iter().map(|one| Reported {
        run: one.run,
        attempt: one.attempt,
        end: one.outcome.map(|outcome| End {
            outcome,
            error: one.error,
            output: one.output,
            lines: one.lines,
            started_at: one.started_at,
            finished_at: one.finished_at,
        }),
    });
    Ok((names, ends.collect()))
}

/// What became of results, in their order.
pub(crate) fn taken(names: Names, answers: Vec<Result<Run, EngineError>>) -> ResultsTaken {
    let results = names.into_iter().zip(answers).map(|((run_id, attempt), answer)| match answer {
        Ok(run) => ResultTaken { run_id, attempt, state: Some(run.state.as_str().into()), problem: None },
        Err(error) => {
            ResultTaken { run_id, attempt, state: None, problem: Some(Error::from(error).problem()) }
        }
    });
    ResultsTaken { results: results.collect() }
}

/// All of them at once: one for each process that pulls.
pub(crate) async fn list(call: Call) -> Outcome {
    let named = call.query.text("tenant").map(str::to_string);
    call.query.check()?;
    let tenant = match named {
        Some(name) => crate::runs::named_tenant(&call, &name).await?,
        None => Some(call.tenant),
    };
    Ok(Answer::ok(&Page { items: present(&call.shared, tenant).await?, next_cursor: None }))
}

/// Those of a tenant, or of all.
pub(crate) async fn present(shared: &Shared, tenant: Option<TenantId>) -> Result<Vec<Worker>, Error> {
    let mut items = Vec::new();
    for present in shared.engine.workers(tenant).await? {
        let tenant = shared.tenant_name(present.about.tenant).await?;
        items.push(Worker::new(&present, &tenant));
    }
    Ok(items)
}

pub(crate) async fn get(call: Call, Path(id): Path<String>) -> Outcome {
    call.query.check()?;
    let worker = worker_id(&id)?;
    let is_bound = call.caller.tenant.is_some() || call.caller.role != Role::Admin;
    let tenant = is_bound.then_some(call.tenant);
    let workers = call.shared.engine.workers(tenant).await?;
    let present = workers.into_iter().find(|present| present.worker == worker);
    let present = present.ok_or_else(|| EngineError::WorkerNotFound(worker.to_string()))?;
    let tenant = call.shared.tenant_name(present.about.tenant).await?;
    Ok(Answer::ok(&Worker::new(&present, &tenant)))
}

pub(crate) async fn dismiss(call: Call, Path(id): Path<String>) -> Outcome {
    call.query.check()?;
    // That a worker goes by itself is no news.
    let engine = match call.caller.role {
        Role::Worker => call.shared.engine.clone(),
        Role::Viewer | Role::Operator | Role::Admin => call.acting(),
    };
    engine.dismiss(call.tenant, worker_id(&id)?).await?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

/// A worker's id in a path. What is no id names no worker.
pub(crate) fn worker_id(text: &str) -> Result<WorkerId, Error> {
    text.parse().map_err(|_| EngineError::WorkerNotFound(shorten(text)).into())
}
