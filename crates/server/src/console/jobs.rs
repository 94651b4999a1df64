//! Jobs: find one among a million, and see at once which is unwell.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use punctual_api::bulk::BulkPreview;
use punctual_api::page::Page;
use punctual_api::{Job, RunSummary};
use serde_json::{Map, Value, json};

use super::draw::{self, Bar, Svg};
use super::form::{self, Form};
use super::frame::{Frame, go, html};
use super::runs::Tab;
use super::shown::{self, Moment, Pill, View};
use crate::call::{Call, Text};
use crate::error::Error;
use crate::{jobs as rest, many as rest_many, runs as rest_runs};

/// Rows of a page: each is a read of its newest runs, and twenty-five are a screen.
const ROWS: &str = "25";

/// Runs of a strip.
const STRIP: &str = "24";

const FILTERS: [&str; 6] = ["name", "state", "label", "queue", "type", "key_prefix"];

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    frame: Frame,
    tabs: Vec<Tab>,
    rows: Vec<JobRow>,
    name: String,
    state: String,
    label: String,
    queue: String,
    kind: String,
    key_prefix: String,
    is_filtered: bool,
    next: String,
    /// How many a bulk action would change, when it was asked for.
    preview: Option<Preview>,
}

/// What a bulk action would do.
struct Preview {
    deed: String,
    reason: String,
    /// As it is shown: `1,842`, or `more than 10,000`.
    count: String,
    examples: Vec<String>,
}

/// A job in the list.
struct JobRow {
    id: String,
    name: String,
    key: String,
    pill: Pill,
    schedule: String,
    target: String,
    strip: Svg,
    late: String,
    is_late: bool,
    next: Option<Moment>,
    no_next: String,
}

pub(crate) async fn page(call: Call) -> Result<Response, Error> {
    let filter: Vec<(&'static str, String)> =
        FILTERS.iter().map(|name| (*name, call.query.text(name).unwrap_or("").to_string())).collect();
    listed(&call, &filter, None).await
}

/// The page of a filter, perhaps with the preview of a bulk action.
async fn listed(
    call: &Call,
    filter: &[(&'static str, String)],
    preview: Option<Preview>,
) -> Result<Response, Error> {
    let view = View::of(call);
    let cursor = call.query.text("cursor").unwrap_or("").to_string();
    let mut pairs: Vec<(&str, &str)> = filter.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let address = form::query(&pairs);
    let is_filtered = !address.is_empty();
    pairs.extend([("limit", ROWS), ("cursor", cursor.as_str())]);
    let page: Page<Job> = rest::list(call.asking(&pairs)).await?.read()?;
    pairs.truncate(FILTERS.len());
    let next = match page.next_cursor.as_deref() {
        Some(next) => {
            pairs.push(("cursor", next));
            format!("/console/jobs{}", form::query(&pairs))
        }
        None => String::new(),
    };
    let mut rows = Vec::with_capacity(page.items.len());
    for job in &page.items {
        rows.push(row(call, &view, job).await?);
    }
    let tab = |(text, query): (&'static str, &'static str)| Tab {
        href: format!("/console/jobs{query}"),
        text,
        is_current: query == address,
    };
    let tabs =
        [("All", ""), ("Active", "?state=active"), ("Paused", "?state=paused"), ("Ended", "?state=ended")];
    let frame = Frame::new(call, "jobs", "Jobs").same("punctual job list", format!("/v1/jobs{address}"));
    let frame = if is_filtered || !cursor.is_empty() { frame } else { frame.live("jobs") };
    let text = |wanted: &str| {
        filter.iter().find(|(name, _)| *name == wanted).map_or(String::new(), |(_, value)| value.clone())
    };
    html(&JobsPage {
        frame,
        tabs: tabs.into_iter().map(tab).collect(),
        rows,
        name: text("name"),
        state: text("state"),
        label: text("label"),
        queue: text("queue"),
        kind: text("type"),
        key_prefix: text("key_prefix"),
        is_filtered,
        next,
        preview,
    })
}

async fn row(call: &Call, view: &View, job: &Job) -> Result<JobRow, Error> {
    let (status, spec) = (&job.status, &job.spec);
    let runs = rest_runs::list_of_job(call.asking(&[("limit", STRIP)]), Path(status.id.clone())).await?;
    let runs: Page<RunSummary> = runs.read()?;
    let bars: Vec<Bar> =
        runs.items.iter().rev().map(|run| Bar::of(&run.state, run.attempt, run.lateness_ms)).collect();
    let worst = runs.items.iter().filter_map(|run| run.lateness_ms).max();
    Ok(JobRow {
        id: status.id.clone(),
        name: name_of(job),
        key: spec.key.clone().unwrap_or_else(|| status.id.clone()),
        pill: pill_of(job, view),
        schedule: shown::schedule(spec.schedule.as_ref()),
        target: shown::target(spec.target.as_ref()),
        strip: draw::strip(&bars, false),
        late: worst.map_or(String::new(), shown::millis),
        is_late: worst.is_some_and(|late| late > draw::PROMISE_MS),
        next: view.maybe(status.next_fire_at),
        no_next: format!("none, {}", status.state),
    })
}

/// What a job is called: its name, or its id.
pub(crate) fn name_of(job: &Job) -> String {
    job.spec.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| job.status.id.clone())
}

/// The state of a job, with who paused it.
pub(crate) fn pill_of(job: &Job, view: &View) -> Pill {
    let pill = shown::state(&job.status.state);
    let Some(paused) = &job.status.paused else { return pill };
    match (&paused.until, &paused.by) {
        (Some(until), _) => pill.because(format!("until {}", view.moment(*until).text)),
        (None, Some(by)) => pill.because(format!("by {by}")),
        (None, None) => pill,
    }
}

/// Pauses, resumes or deletes all jobs of a filter: the first time it says how many, the second it starts the operation.
pub(crate) async fn many(call: Call, Text(text): Text) -> Result<Response, Error> {
    let form = Form::read(&text)?;
    let mut filter = Map::new();
    let mut shown_filter = Vec::new();
    for name in FILTERS {
        let value = form.text(name).to_string();
        // Labels are `name=value`, of which a filter takes several.
        if let Some((label, text)) = value.split_once('=').filter(|_| name == "label") {
            filter.insert("labels".into(), json!({label: text}));
        } else if !value.is_empty() {
            filter.insert(name.into(), Value::from(value.clone()));
        }
        shown_filter.push((name, value));
    }
    let deed = form.text("deed").to_string();
    let is_confirmed = form.text("confirm") == "yes";
    let mut body = json!({"filter": filter});
    if !is_confirmed {
        body["dry_run"] = true.into();
    }
    if deed == "pause"
        && let Some(reason) = form.given("reason")
    {
        body["reason"] = reason.into();
    }
    let asking = call.asking(&[]);
    let body = Text(body.to_string());
    let answer = match deed.as_str() {
        "pause" => rest_many::pause(asking, body).await?,
        "resume" => rest_many::resume(asking, body).await?,
        "delete" => rest_many::delete(asking, body).await?,
        _ => return Err(Error::wrong("deed", "unknown_value", "choose pause, resume or delete")),
    };
    if is_confirmed {
        return Ok(go("/console/operations?done=started"));
    }
    let told: BulkPreview = answer.read()?;
    let preview = preview(told, deed, form.text("reason").to_string());
    listed(&call, &shown_filter, Some(preview)).await
}

/// What the dry run of REST says.
fn preview(told: BulkPreview, deed: String, reason: String) -> Preview {
    let more = if told.next_cursor.is_some() { "more than " } else { "" };
    let examples = told.examples.into_iter().take(5);
    Preview {
        deed,
        reason,
        count: format!("{more}{}", shown::number(told.changes)),
        examples: examples.map(|job| job.name.or(job.key).unwrap_or(job.id)).collect(),
    }
}
