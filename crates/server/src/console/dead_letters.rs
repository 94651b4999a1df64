//! Dead letters: grouped by error, redriven or acknowledged a group or one at a time.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use punctual_api::RunSummary;
use punctual_api::dead_letter::{DeadLetterGroup, DeadLetterGroups};
use punctual_api::page::Page;
use serde_json::{Map, Value, json};

use super::form::{self, Form};
use super::frame::{Frame, go, html};
use super::runs::RunRow;
use super::shown::{self, Moment, View};
use crate::call::{Call, Text};
use crate::dead_letters as rest;
use crate::error::Error;

#[derive(Template)]
#[template(path = "dead_letters.html")]
struct DeadPage {
    frame: Frame,
    groups: Vec<GroupView>,
    examined: String,
    is_complete: bool,
    runs: Vec<RunRow>,
    error: String,
    job: String,
    is_filtered: bool,
    next: String,
}

/// Dead letters with one cause.
pub(crate) struct GroupView {
    pub(crate) error: String,
    pub(crate) status: String,
    pub(crate) message: String,
    pub(crate) count: String,
    pub(crate) jobs: String,
    pub(crate) last: Moment,
    pub(crate) example: String,
    /// All of this error, on the page of dead letters.
    pub(crate) href: String,
}

impl GroupView {
    pub(crate) fn new(group: &DeadLetterGroup, view: &View) -> Self {
        GroupView {
            error: group.error.clone(),
            status: group.status.map_or(String::new(), |status| status.to_string()),
            message: group.message.clone(),
            count: shown::number(group.count),
            jobs: shown::number(group.jobs),
            last: view.moment(group.last_at),
            example: group.example_run_id.clone(),
            href: format!("/console/dead-letters{}", form::query(&[("error", group.error.as_str())])),
        }
    }
}

pub(crate) async fn page(call: Call) -> Result<Response, Error> {
    let view = View::of(&call);
    let text = |name: &str| call.query.text(name).unwrap_or("").to_string();
    let (error, job, cursor) = (text("error"), text("job"), text("cursor"));
    let filter = [("error", error.as_str()), ("job", job.as_str())];
    let found: DeadLetterGroups = rest::groups(call.asking(&filter)).await?.read()?;
    let listed = [filter[0], filter[1], ("cursor", cursor.as_str()), ("limit", "25")];
    let runs: Page<RunSummary> = rest::list(call.asking(&listed)).await?.read()?;
    let next = runs.next_cursor.as_deref().map(|next| {
        format!("/console/dead-letters{}", form::query(&[filter[0], filter[1], ("cursor", next)]))
    });
    let address = form::query(&filter);
    let frame = Frame::new(&call, "dead-letters", "Dead letters")
        .same("punctual dead-letter groups", format!("/v1/dead-letters/groups{address}"));
    let frame = if cursor.is_empty() { frame.live("dead-letters") } else { frame };
    html(&DeadPage {
        frame,
        groups: found.items.iter().map(|group| GroupView::new(group, &view)).collect(),
        examined: shown::number(found.examined),
        is_complete: found.is_complete,
        runs: runs.items.iter().map(|run| RunRow::new(run, &view)).collect(),
        is_filtered: !address.is_empty(),
        next: next.unwrap_or_default(),
        error,
        job,
    })
}

/// Redrives or acknowledges what a form names: an error, a job, or everything. It is an operation, which goes on by itself.
pub(crate) async fn act(call: Call, Path(deed): Path<String>, Text(text): Text) -> Result<Response, Error> {
    let form = Form::read(&text)?;
    let mut filter = Map::new();
    for name in ["error", "job"] {
        if let Some(value) = form.given(name) {
            filter.insert(name.into(), Value::from(value));
        }
    }
    let body = Text(json!({"filter": filter}).to_string());
    match deed.as_str() {
        "redrive" => rest::redrive(call.asking(&[]), body).await?,
        "acknowledge" => rest::acknowledge(call.asking(&[]), body).await?,
        _ => return Err(Error::RouteNotFound(crate::jobs::shorten(&deed))),
    };
    Ok(go("/console/dead-letters?done=started"))
}
