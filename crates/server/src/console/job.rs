//! A job: what it does in words, how it went, what comes, and what happened at any time in the past.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use punctual_api::job::{Paused, Upcoming};
use punctual_api::ledger::{LedgerEntry, Why};
use punctual_api::page::Page;
use punctual_api::{Job, JobSpec, RunSummary};
use serde_json::json;

use super::draw::{self, Bar, Svg};
use super::form::{self, Form};
use super::frame::{Frame, go, html};
use super::jobs::{name_of, pill_of};
use super::runs::RunRow;
use super::shown::{self, Moment, Pill, View};
use crate::call::{Call, Text};
use crate::error::Error;
use crate::jobs::job_id;
use crate::{jobs as rest, runs as rest_runs};

/// Runs of the strip and the chart.
const HISTORY: &str = "60";

/// Runs of the table.
const ROWS: usize = 20;

#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    frame: Frame,
    id: String,
    name: String,
    key: String,
    version: u32,
    pill: Pill,
    labels: Vec<String>,
    updated: Moment,
    is_active: bool,
    is_paused: bool,
    paused: Option<PausedView>,
    warnings: Vec<String>,
    words: String,
    written: String,
    target: String,
    strip: Svg,
    told: String,
    chart: Svg,
    has_runs: bool,
    runs: Vec<RunRow>,
    older: String,
    slots: Vec<SlotRow>,
    policies: Vec<(&'static str, String, bool)>,
    ledger: Vec<LedgerRow>,
    at: String,
    why: Option<WhyView>,
    payload: String,
}

struct PausedView {
    reason: String,
    by: String,
    since: Moment,
    until: Option<Moment>,
}

struct SlotRow {
    at: Moment,
    local: String,
    note: String,
}

struct LedgerRow {
    at: Moment,
    pill: Pill,
    text: String,
    run: String,
}

struct WhyView {
    text: String,
    reason: String,
    run: String,
}

pub(crate) async fn page(call: Call, Path(id): Path<String>) -> Result<Response, Error> {
    let view = View::of(&call);
    let path = || Path(id.clone());
    let job: Job = rest::get(call.asking(&[]), path()).await?.read()?;
    let cursor = call.query.text("cursor").unwrap_or("").to_string();
    let pairs = [("limit", HISTORY), ("cursor", cursor.as_str())];
    let runs: Page<RunSummary> = rest_runs::list_of_job(call.asking(&pairs), path()).await?.read()?;
    let slots: Page<Upcoming> = rest::upcoming(call.asking(&[("limit", "6")]), path()).await?.read()?;
    let ledger: Page<LedgerEntry> = rest::ledger(call.asking(&[("limit", "10")]), path()).await?.read()?;
    let at = call.query.text("at").unwrap_or("").to_string();
    let why = match at.is_empty() {
        true => None,
        // A time that cannot be read is said where it was asked, not instead of the page.
        false => Some(why(&call, &id, &at).await),
    };
    let seen: Vec<(Bar, Option<i64>)> = runs
        .items
        .iter()
        .rev()
        .map(|run| (Bar::of(&run.state, run.attempt, run.lateness_ms), run.lateness_ms))
        .collect();
    let bars: Vec<Bar> = seen.iter().map(|(bar, _)| *bar).collect();
    let name = name_of(&job);
    let frame = Frame::new(&call, "jobs", name.clone())
        .same(format!("punctual job get {id}"), format!("/v1/jobs/{id}"))
        .live(format!("job:{id}"));
    let older = runs
        .next_cursor
        .as_deref()
        .map(|next| format!("/console/jobs/{id}{}", form::query(&[("cursor", next)])));
    html(&JobPage {
        frame,
        name,
        key: job.spec.key.clone().unwrap_or_else(|| job.status.id.clone()),
        version: job.status.version,
        pill: pill_of(&job, &view),
        labels: labels(&job.spec),
        updated: view.moment(job.status.updated_at),
        is_active: job.status.state == "active",
        is_paused: job.status.state == "paused",
        paused: job.status.paused.as_ref().map(|paused| paused_view(paused, &view)),
        warnings: job.status.warnings.clone(),
        words: words(&call, &job).await?,
        written: shown::schedule(job.spec.schedule.as_ref()),
        target: shown::target(job.spec.target.as_ref()),
        strip: draw::strip(&bars, true),
        told: draw::told(&bars),
        chart: draw::lateness(&seen),
        has_runs: !bars.is_empty(),
        runs: runs.items.iter().take(ROWS).map(|run| RunRow::new(run, &view)).collect(),
        older: older.unwrap_or_default(),
        slots: slots.items.iter().map(|slot| slot_row(slot, &view)).collect(),
        policies: policies(&job.spec),
        ledger: ledger.items.iter().map(|entry| ledger_row(entry, &view)).collect(),
        at,
        why,
        payload: job.spec.payload.as_ref().map_or(String::new(), |payload| payload.as_str().to_string()),
        id: job.status.id,
    })
}

/// The schedule in plain words, with what clock changes do to it, as `punctual explain` says it.
async fn words(call: &Call, job: &Job) -> Result<String, Error> {
    let engine = &call.shared.engine;
    let seen = engine.job(call.tenant, job_id(&job.status.id)?).await?;
    // Calendars are told by their names; the slots beside it know what they allow.
    let mut schedule = seen.job.spec.schedule.clone();
    let calendars = std::mem::take(&mut schedule.calendars);
    let binding = punctual_schedule::Binding {
        seed: punctual_schedule::Seed::of(&job.status.id),
        registered_at: seen.job.created_at,
        ..punctual_schedule::Binding::default()
    };
    let Ok(timetable) = schedule.timetable(engine.tzdb(), &binding) else { return Ok(String::new()) };
    let text = timetable.describe(engine.now());
    Ok(match calendars.is_empty() {
        true => text,
        false => format!("{text}; where its calendars allow it"),
    })
}

async fn why(call: &Call, id: &str, at: &str) -> WhyView {
    let answer = rest::why(call.asking(&[("at", at)]), Path(id.to_string())).await;
    match answer.and_then(|answer| answer.read::<Why>()) {
        Ok(why) => WhyView { text: why.text, reason: why.reason, run: why.run.unwrap_or_default() },
        Err(error) => {
            let problem = error.problem();
            WhyView { text: problem.detail, reason: problem.code, run: String::new() }
        }
    }
}

fn labels(spec: &JobSpec) -> Vec<String> {
    let mut labels: Vec<String> =
        spec.labels.iter().flatten().map(|(name, value)| format!("{name}={value}")).collect();
    labels.extend(spec.r#type.iter().map(|kind| format!("type={kind}")));
    labels
}

fn paused_view(paused: &Paused, view: &View) -> PausedView {
    PausedView {
        reason: paused.reason.clone().unwrap_or_else(|| "no reason was given".into()),
        by: paused.by.clone().unwrap_or_else(|| "somebody".into()),
        since: view.moment(paused.since),
        until: view.maybe(paused.until),
    }
}

fn slot_row(slot: &Upcoming, view: &View) -> SlotRow {
    SlotRow {
        at: view.moment(slot.fires_at),
        local: slot.local.clone(),
        note: slot.note.clone().unwrap_or_default(),
    }
}

fn ledger_row(entry: &LedgerEntry, view: &View) -> LedgerRow {
    let many = match entry.slots {
        1 => String::new(),
        slots => format!("{} slots until {}. ", shown::number(slots), view.moment(entry.to).text),
    };
    let pause = entry.pause.as_ref().map_or(String::new(), |pause| {
        format!(
            "Paused by {}: {}. ",
            pause.by.as_deref().unwrap_or("somebody"),
            pause.reason.as_deref().unwrap_or("no reason given")
        )
    });
    let calendars =
        entry.calendars.as_ref().map_or(String::new(), |names| format!("Calendars: {}. ", names.join(", ")));
    LedgerRow {
        at: view.moment(entry.from),
        pill: shown::state(&entry.state).because(entry.reason.replace('_', " ")),
        text: format!("{many}{pause}{calendars}Decided {}.", view.moment(entry.decided_at).text),
        run: entry.run.as_ref().map_or(String::new(), |run| run.id.clone()),
    }
}

/// Each policy with its value, and whether that is the default.
fn policies(spec: &JobSpec) -> Vec<(&'static str, String, bool)> {
    let length = |length: Option<punctual_api::Duration>| length.map(|length| length.to_string());
    let or = |value: Option<String>, default: &str| {
        let value = value.unwrap_or_else(|| default.to_string());
        let is_default = value == default;
        (value, is_default)
    };
    let catch_up = spec.catch_up.as_ref().map(|catch_up| {
        let window = length(catch_up.window).map_or(String::new(), |window| format!(", within {window}"));
        format!("{}{window}", catch_up.policy.as_deref().unwrap_or("latest"))
    });
    let retry = spec.retry.as_ref().map(|retry| {
        let base = length(retry.base).map_or(String::new(), |base| format!(", from {base}"));
        let cap = length(retry.cap).map_or(String::new(), |cap| format!(", at most {cap}"));
        let backoff = retry.backoff.as_deref().unwrap_or("exponential");
        format!("{} attempts, {backoff}{base}{cap}", retry.max_attempts.unwrap_or(3))
    });
    let overlap = spec.overlap.as_ref().and_then(|overlap| overlap.policy.clone());
    let concurrency =
        spec.concurrency.as_ref().and_then(|limit| limit.max).map(|max| format!("{max} at once"));
    let rate = spec.rate.as_ref().and_then(|rate| {
        Some(format!("{} per {}", rate.limit?, length(rate.per).unwrap_or_else(|| "second".into())))
    });
    let breaker = spec
        .breaker
        .as_ref()
        .and_then(|breaker| breaker.failures)
        .map(|count| format!("after {count} failures"));
    let retention = spec.retention.as_ref().and_then(|kept| kept.days).map(|days| format!("{days} days"));
    let schedule = spec.schedule.as_ref();
    let spread = schedule.and_then(|schedule| length(schedule.spread));
    let calendars = schedule.and_then(|schedule| schedule.calendars.as_ref()).map(|names| names.join(", "));
    let rows: [(&'static str, (String, bool)); 15] = [
        ("Catch up", or(catch_up, "latest, within PT1H")),
        ("Overlap", or(overlap, "allow")),
        ("Retry", or(retry, "3 attempts, exponential, from PT1S, at most PT5M")),
        ("Timeout", or(length(spec.timeout), "PT5M")),
        ("Start window", or(length(spec.start_window), "no limit")),
        ("Deadline", or(length(spec.deadline), "no limit")),
        ("On unknown", or(spec.on_unknown.clone(), "retry")),
        ("Completion", or(spec.completion.clone(), "answer")),
        ("Spread", or(spread, "off")),
        ("Concurrency", or(concurrency, "no limit")),
        ("Rate", or(rate, "no limit")),
        ("Breaker", or(breaker, "off")),
        ("Calendars", or(calendars, "none")),
        (
            "Queue and lane",
            or(
                Some(format!(
                    "{}, {}",
                    spec.queue.as_deref().unwrap_or("default"),
                    spec.lane.as_deref().unwrap_or("standard")
                )),
                "default, standard",
            ),
        ),
        ("Retention", or(retention, "30 days")),
    ];
    rows.into_iter().map(|(name, (value, is_default))| (name, value, is_default)).collect()
}

/// Who does it, for the job's own record.
fn by(call: &Call) -> String {
    call.caller.pass.map_or("this machine".into(), |pass| format!("key {}", pass.id))
}

pub(crate) async fn pause(call: Call, Path(id): Path<String>, Text(text): Text) -> Result<Response, Error> {
    let form = Form::read(&text)?;
    let mut body = json!({"by": by(&call)});
    for member in ["reason", "until"] {
        if let Some(value) = form.given(member) {
            body[member] = value.into();
        }
    }
    rest::pause(call.asking(&[]), Path(id.clone()), Text(body.to_string())).await?;
    Ok(go(&format!("/console/jobs/{}?done=paused", form::encoded(&id))))
}

pub(crate) async fn resume(call: Call, Path(id): Path<String>, Text(_): Text) -> Result<Response, Error> {
    rest::resume(call.asking(&[]), Path(id.clone()), Text(String::new())).await?;
    Ok(go(&format!("/console/jobs/{}?done=resumed", form::encoded(&id))))
}

/// Goes on to the run, where it can be watched.
pub(crate) async fn trigger(call: Call, Path(id): Path<String>, Text(text): Text) -> Result<Response, Error> {
    let form = Form::read(&text)?;
    // A payload is text from end to end: it is put into the body as it was written.
    let body = form.given("payload").map_or(String::new(), |payload| format!("{{\"payload\":{payload}}}"));
    let answer = rest::trigger(call.asking(&[]), Path(id), Text(body)).await?;
    let run: RunSummary = answer.read()?;
    Ok(go(&format!("/console/runs/{}?done=triggered", run.id)))
}

pub(crate) async fn delete(call: Call, Path(id): Path<String>, Text(_): Text) -> Result<Response, Error> {
    rest::delete(call.asking(&[]), Path(id)).await?;
    Ok(go("/console/jobs?done=deleted"))
}
