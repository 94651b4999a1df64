//! Jobs: register, read, change, pause, resume, trigger, and what comes of their slots.

use axum::extract::Path;
use http::StatusCode;
use punctual_api::backfill::{Asked, Backfill, BackfillSlots};
use punctual_api::bulk::{edited, with_key};
use punctual_api::defaults::read_job_over;
use punctual_api::job::{Facts, Pause, Purpose, Trigger, Upcoming};
use punctual_api::ledger::{LedgerEntry, Why};
use punctual_api::page::Page;
use punctual_api::read::{At, Errors, Unread};
use punctual_api::{Job, read};
use punctual_domain::account::{Row, What};
use punctual_domain::job::Spec;
use punctual_domain::{JobId, Version};
use punctual_engine::Error as EngineError;
use punctual_engine::backfill;
use punctual_engine::history::{JobFilter, Seen, Subject};
use punctual_engine::ledger::Range;
use punctual_engine::register::{Registered, Waiting};
use punctual_engine::trigger;
use punctual_engine::warnings::Recent;
use punctual_engine::why::When;

use crate::answer::Answer;
use crate::call::{Call, Text};
use crate::cursor::Cursor;
use crate::error::Error;
use crate::once::{answered, once, replay};
use crate::{operations, runs};

type Outcome = Result<Answer, Error>;

/// A patch that meets another change is tried again this often.
const TRIES: usize = 5;

pub(crate) async fn create(call: Call, Text(text): Text) -> Outcome {
    call.query.check()?;
    let request = call.request(&text)?;
    if let Some(request) = &request
        && let Some(answer) = replay(&call, request).await?
    {
        return Ok(answer);
    }
    let spec = read(&call, &text, Purpose::Create).await?;
    let hints = hints(&call, &spec).await?;
    let answer = |registered: &Registered| created(&call, registered, hints.clone());
    let registered = call
        .shared
        .engine
        .register_answering(call.tenant, vec![(spec, request.clone())], |registered, request| {
            request.result = answer(registered).to_text();
        })
        .await?;
    match (registered.into_iter().next(), request) {
        (Some(Ok(registered)), _) => Ok(answer(&registered)),
        (Some(Err(EngineError::Repeated(known))), Some(request)) => answered(&known, &request),
        // The same request, a moment sooner, may have taken the key.
        (Some(Err(error)), Some(request)) => match replay(&call, &request).await? {
            Some(answer) => Ok(answer),
            None => Err(error.into()),
        },
        (Some(Err(error)), None) => Err(error.into()),
        (None, _) => Err(Error::BodyBroken("no job was registered".into())),
    }
}

/// Reads a whole job over the defaults of its tenant.
pub(crate) async fn read(call: &Call, text: &str, purpose: Purpose) -> Result<Spec, Error> {
    let defaults = call.shared.engine.job_defaults(call.tenant).await?;
    Ok(read_job_over(text, defaults.as_deref(), purpose, &call.shared.rules())?)
}

/// What there is to say to whoever registers or changes a job.
pub(crate) async fn hints(call: &Call, spec: &Spec) -> Result<Vec<String>, Error> {
    let unmet = call.shared.engine.unmet(call.tenant, &spec.queue, &spec.requires).await?;
    Ok(unmet.into_iter().chain(call.shared.engine.crowded(call.tenant, spec).await).collect())
}

fn created(call: &Call, registered: &Registered, hints: Vec<String>) -> Answer {
    let location = format!("/v1/jobs/{}", registered.job.id);
    shown(call, &call.shared.engine.seen(registered), &Recent::default(), hints, StatusCode::CREATED)
        .at(location)
}

/// A job alone: with its newest run and its warnings.
fn shown(call: &Call, seen: &Seen, recent: &Recent, hints: Vec<String>, status: StatusCode) -> Answer {
    let mut warnings = call.shared.engine.warnings(&seen.job, recent);
    warnings.extend(hints);
    let facts = Facts {
        tenant: &call.tenant_name,
        next_fire_at: seen.next_fire_at,
        is_over: seen.is_over,
        last_run: recent.last(),
        warnings,
    };
    Answer::new(status, &Job::new(&seen.job, facts)).version(seen.job.version.0)
}

async fn changed(call: &Call, registered: &Registered) -> Outcome {
    let engine = &call.shared.engine;
    let recent = engine.recent(&registered.job).await?;
    let seen = match registered.next_slot {
        Some(_) => None,
        // It may be over, unless somebody has changed it since.
        None => engine.job(call.tenant, registered.job.id).await.ok(),
    };
    let seen = seen.filter(|seen| seen.job.version == registered.job.version);
    let seen = seen.unwrap_or_else(|| engine.seen(registered));
    let mut hints: Vec<String> = engine
        .unmet(seen.job.tenant, &seen.job.spec.queue, &seen.job.spec.requires)
        .await?
        .into_iter()
        .collect();
    if seen.job.is_active() {
        hints.extend(engine.crowded(call.tenant, &seen.job.spec).await);
    }
    Ok(shown(call, &seen, &recent, hints, StatusCode::OK))
}

async fn looked_at(call: &Call, seen: &Seen) -> Outcome {
    if call.if_none_match(&format!("\"{}\"", seen.job.version)) {
        return Ok(Answer::empty(StatusCode::NOT_MODIFIED).version(seen.job.version.0));
    }
    let recent = call.shared.engine.recent(&seen.job).await?;
    let unmet =
        call.shared.engine.unmet(seen.job.tenant, &seen.job.spec.queue, &seen.job.spec.requires).await?;
    Ok(shown(call, seen, &recent, unmet.into_iter().collect(), StatusCode::OK))
}

pub(crate) async fn get(call: Call, Path(id): Path<String>) -> Outcome {
    call.query.check()?;
    let seen = call.shared.engine.job(call.tenant, job_id(&id)?).await?;
    looked_at(&call, &seen).await
}

pub(crate) async fn get_by_key(call: Call, Path(key): Path<String>) -> Outcome {
    call.query.check()?;
    let seen = call.shared.engine.job_by_key(call.tenant, &key).await?;
    looked_at(&call, &seen).await
}

pub(crate) async fn list(mut call: Call) -> Outcome {
    let states = [("active", "active"), ("paused", "paused"), ("ended", "ended")];
    let label = |text: &str| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_string(), value.to_string())),
        None => Err(Error::wrong("label", "wrong_type", "write a label as `name=value`")),
    };
    let filter = JobFilter {
        tenant: Some(call.tenant),
        state: call.query.word("state", &states),
        name: call.query.text("name").map(Into::into),
        key_prefix: call.query.text("key_prefix").map(Into::into),
        labels: call.query.texts("label").map(label).collect::<Result<_, _>>()?,
        queue: call.query.text("queue").map(Into::into),
        kind: call.query.text("type").map(Into::into),
        is_batch: false,
    };
    let page = call.query.page();
    call.query.check()?;
    let page = call.shared.engine.list_jobs(&filter, page).await?;
    let show = |seen: &Seen| {
        let facts = Facts {
            tenant: &call.tenant_name,
            next_fire_at: seen.next_fire_at,
            is_over: seen.is_over,
            ..Facts::default()
        };
        Job::new(&seen.job, facts)
    };
    let items: Vec<Job> = page.items.iter().map(show).collect();
    Ok(Answer::ok(&Page { items, next_cursor: page.next.map(|next| next.encode()) }))
}

pub(crate) async fn put(mut call: Call, Path(id): Path<String>, Text(text): Text) -> Outcome {
    let (id, expected, waiting) = (job_id(&id)?, call.expected()?, waiting(&mut call)?);
    let spec = read(&call, &text, Purpose::Change).await?;
    let old = call.shared.engine.job(call.tenant, id).await?;
    let spec = with_key(spec, &old.job.spec)?;
    let registered = call.shared.engine.update(call.tenant, id, expected, spec, waiting).await?;
    changed(&call, &registered).await
}

pub(crate) async fn patch(mut call: Call, Path(id): Path<String>, Text(text): Text) -> Outcome {
    let (id, expected, waiting) = (job_id(&id)?, call.expected()?, waiting(&mut call)?);
    for _ in 0..TRIES {
        let old = call.shared.engine.job(call.tenant, id).await?;
        let version = old.job.version;
        if let Some(expected) = expected.filter(|expected| *expected != version) {
            return Err(EngineError::VersionConflict { expected, current: version }.into());
        }
        let spec = edited(&old.job.spec, &text, &call.shared.rules())?;
        match call.shared.engine.update(call.tenant, id, Some(version), spec, waiting).await {
            Err(EngineError::VersionConflict { .. }) if expected.is_none() => {}
            answer => return changed(&call, &answer?).await,
        }
    }
    let current = call.shared.engine.job(call.tenant, id).await?.job.version;
    Err(EngineError::VersionConflict { expected: Version(current.0.saturating_sub(1)), current }.into())
}

/// What becomes of runs that wait: `pending=keep` or `pending=update`.
fn waiting(call: &mut Call) -> Result<Waiting, Error> {
    let waiting = call.query.word("pending", &[("keep", Waiting::Keep), ("update", Waiting::Update)]);
    call.query.check()?;
    Ok(waiting.unwrap_or_default())
}

pub(crate) async fn upsert(call: Call, Path(key): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    let expected = call.expected()?;
    let spec = read(&call, &text, Purpose::Change).await?;
    if spec.key.as_ref().is_some_and(|own| *own != key) {
        let detail = format!("the path says `{}`; leave `key` out, or write the same", shorten(&key));
        return Err(Error::wrong("/key", "conflict", detail));
    }
    if key.len() > punctual_api::limits::WORD_MAX || key.chars().any(|c| !('!'..='~').contains(&c)) {
        let detail = "a key has 1 to 200 printable ASCII characters without spaces";
        return Err(Error::wrong("/key", "bad_character", detail));
    }
    if call.if_none_match("*") && call.shared.engine.job_by_key(call.tenant, &key).await.is_ok() {
        return Err(Error::AlreadyThere);
    }
    let spec = Spec { name: if spec.name.is_empty() { key.clone() } else { spec.name.clone() }, ..spec };
    let hints = hints(&call, &spec).await?;
    let answer = call.shared.engine.upsert(call.tenant, &key, expected, spec).await;
    let (registered, is_new) = answer.map_err(|error| match error {
        // RFC 9110: what was to match is not there, so the condition is false.
        punctual_engine::Error::JobNotFound(key) if expected.is_some() => Error::NotThere(shorten(&key)),
        error => error.into(),
    })?;
    match is_new {
        true => Ok(created(&call, &registered, hints)),
        false => changed(&call, &registered).await,
    }
}

pub(crate) async fn delete(call: Call, Path(id): Path<String>) -> Outcome {
    call.query.check()?;
    call.shared.engine.delete(call.tenant, job_id(&id)?, call.expected()?).await?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

pub(crate) async fn pause(call: Call, Path(id): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    let (id, expected) = (job_id(&id)?, call.expected()?);
    let pause: Pause = read_or_default(&text)?;
    once(&call, &text, async {
        let pause = pause.to_domain(call.shared.engine.now())?;
        let registered = call.shared.engine.pause(call.tenant, id, expected, pause).await?;
        changed(&call, &registered).await
    })
    .await
}

pub(crate) async fn resume(call: Call, Path(id): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    let (id, expected) = (job_id(&id)?, call.expected()?);
    once(&call, &text, async {
        let registered = call.shared.engine.resume(call.tenant, id, expected).await?;
        changed(&call, &registered).await
    })
    .await
}

pub(crate) async fn trigger(call: Call, Path(id): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    let id = job_id(&id)?;
    let trigger: Trigger = read_or_default(&text)?;
    let correlation_id = trigger.correlation_id.map(|text| {
        let is_right = (1..=punctual_api::limits::WORD_MAX).contains(&text.len())
            && text.chars().all(|c| ('!'..='~').contains(&c));
        let detail = "write 1 to 200 printable ASCII characters without spaces";
        is_right.then(|| text.into()).ok_or_else(|| Error::wrong("/correlation_id", "bad_character", detail))
    });
    let payload = trigger.payload.map(|payload| {
        let mut errors = Errors::default();
        payload.check(call.shared.rules().payload_max, &At::ROOT.member("payload"), &mut errors);
        errors.is_empty().then(|| payload.as_str().into()).ok_or_else(|| Unread::Wrong(errors.into_vec()))
    });
    let asked = trigger::Asked {
        correlation_id: correlation_id.transpose()?,
        payload: payload.transpose()?,
        ..trigger::Asked::default()
    };
    let request = call.request(&text)?;
    if let Some(request) = &request
        && let Some(known) = call.shared.engine.remembered(call.tenant, &request.key).await?
    {
        return triggered_before(&call, &known, request).await;
    }
    match call.shared.engine.trigger_as(call.tenant, id, asked, request.clone()).await {
        Ok(run) => triggered(&call, &run).await,
        Err(EngineError::Repeated(known)) => match request {
            Some(request) => triggered_before(&call, &known, &request).await,
            None => Err(EngineError::Repeated(known).into()),
        },
        Err(error) => Err(error.into()),
    }
}

async fn triggered(call: &Call, run: &punctual_domain::Run) -> Outcome {
    let summary = runs::summaries(call, std::slice::from_ref(run)).await?;
    let location = format!("/v1/runs/{}", run.id());
    Ok(Answer::new(StatusCode::CREATED, &summary.first()).at(location))
}

/// The store remembers the run; it is shown as it is now.
async fn triggered_before(
    call: &Call,
    known: &punctual_engine::history::Subject,
    request: &punctual_engine::history::Subject,
) -> Outcome {
    if known.fingerprint != request.fingerprint {
        return Err(Error::KeyReused);
    }
    let run = call.shared.engine.run(call.tenant, runs::run_id(&known.result)?).await?.run;
    triggered(call, &run).await.map(Answer::replayed)
}

pub(crate) async fn backfill(call: Call, Path(id): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    let id = job_id(&id)?;
    let body: Backfill = read::read(&text)?;
    let Asked { from, to, rate, overlap } = body.to_domain()?;
    let asked = backfill::Asked { from, to, rate: rate.unwrap_or(backfill::RATE), overlap };
    if body.dry_run == Some(true) {
        let slots = call.shared.engine.backfill_slots(call.tenant, id, &asked).await?;
        let (job_id, backfill::Slots { count, first, last }) = (id.to_string(), slots);
        return Ok(Answer::ok(&BackfillSlots { job_id, slots: count, first, last }));
    }
    operations::start_by(&call, &text, |request| {
        let remember = |operation: &_, request: &mut Subject| {
            request.result = operations::accepted(operation).to_text();
        };
        call.shared.engine.backfill(call.tenant, id, asked, request, remember)
    })
    .await
}

pub(crate) async fn upcoming(mut call: Call, Path(id): Path<String>) -> Outcome {
    let (from, limit) = (call.query.time("from"), call.query.limit());
    call.query.check()?;
    let slots = call.shared.engine.upcoming(call.tenant, job_id(&id)?, from, limit).await?;
    let items: Vec<Upcoming> = slots
        .into_iter()
        .map(|slot| Upcoming {
            scheduled_for: slot.slot,
            fires_at: slot.fires_at,
            local: slot.local,
            note: slot.note.map(|note| note.to_string()),
        })
        .collect();
    // The slots go on after the last: `from` is the cursor here.
    Ok(Answer::ok(&Page { items, next_cursor: None }))
}

pub(crate) async fn ledger(mut call: Call, Path(id): Path<String>) -> Outcome {
    let (page, range) =
        (call.query.page(), Range { from: call.query.time("from"), to: call.query.time("to") });
    call.query.check()?;
    let (engine, id) = (&call.shared.engine, job_id(&id)?);
    let (mut items, next): (Vec<LedgerEntry>, _) = match range == Range::default() {
        true => {
            let page = engine.ledger(call.tenant, id, page).await?;
            (page.items.iter().map(LedgerEntry::from).collect(), page.next)
        }
        false => {
            let page = engine.account(call.tenant, id, range, page).await?;
            (accounted(&call, id, &page.items).await?, page.next)
        }
    };
    let is_unnamed = |entry: &LedgerEntry| entry.reason == "calendar" && entry.calendars.is_none();
    if items.iter().any(is_unnamed) {
        let job = engine.kept_job(call.tenant, id).await?;
        for entry in items.iter_mut().filter(|entry| is_unnamed(entry)) {
            entry.calendars = Some(engine.excluded_by(&job, entry.from, Some(entry.decided_at)));
        }
    }
    Ok(Answer::ok(&Page { items, next_cursor: next.map(|next| next.encode()) }))
}

async fn accounted(call: &Call, id: JobId, rows: &[Row]) -> Result<Vec<LedgerEntry>, Error> {
    let run = |row: &Row| match &row.what {
        What::Run(run) => Some(punctual_domain::Run::clone(run)),
        _ => None,
    };
    let runs: Vec<_> = rows.iter().filter_map(run).collect();
    let mut due_times = call.shared.engine.due_times(&runs).await?.into_iter();
    let now = call.shared.engine.now();
    let mut show = |row: &Row| {
        let due_at = matches!(row.what, What::Run(_)).then(|| due_times.next()).flatten();
        LedgerEntry::of(id, row, due_at, now)
    };
    Ok(rows.iter().map(&mut show).collect())
}

pub(crate) async fn why(call: Call, Path(id): Path<String>) -> Outcome {
    let when = match call.query.text("at") {
        Some(text) => When::parse(text).ok_or_else(|| {
            let detail = "write a time as `2026-12-24T18:00:00Z`, in epoch seconds, or as \
                          `2026-12-24T18:00` on the clock of the job";
            Error::wrong("at", "wrong_type", detail)
        })?,
        None => When::Latest,
    };
    call.query.check()?;
    let id = job_id(&id)?;
    let answer = call.shared.engine.why(call.tenant, id, when).await?;
    Ok(Answer::ok(&Why::new(id, answer)))
}

/// A body that may be left out.
pub(crate) fn read_or_default<T: read::Read + Default>(text: &str) -> Result<T, Error> {
    match text.trim().is_empty() {
        true => Ok(T::default()),
        false => Ok(read::read(text)?),
    }
}

/// A job's id in a path. What is no id names no job.
pub(crate) fn job_id(text: &str) -> Result<JobId, Error> {
    text.parse().map_err(|_| EngineError::JobNotFound(shorten(text)).into())
}

pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}
