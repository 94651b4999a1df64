//! Runs in tables: the list of them, and the rows that other pages share.

use askama::Template;
use axum::response::Response;
use punctual_api::RunSummary;
use punctual_api::page::Page;

use super::form;
use super::frame::{Frame, html};
use super::shown::{self, Moment, Pill, View};
use crate::call::Call;
use crate::error::Error;
use crate::runs as rest;

/// A run in a table.
pub(crate) struct RunRow {
    pub(crate) id: String,
    pub(crate) job_id: String,
    pub(crate) slot: Moment,
    pub(crate) pill: Pill,
    pub(crate) late: String,
    pub(crate) is_late: bool,
    pub(crate) attempts: u32,
    pub(crate) took: String,
    pub(crate) cause: String,
}

impl RunRow {
    pub(crate) fn new(run: &RunSummary, view: &View) -> Self {
        let part = match (run.part, run.parts) {
            (Some(part), Some(parts)) => format!(", part {part} of {parts}"),
            _ => String::new(),
        };
        RunRow {
            id: run.id.clone(),
            job_id: run.job_id.clone(),
            slot: view.moment(run.scheduled_for),
            pill: shown::run(run),
            late: run.lateness_ms.map_or(String::new(), shown::millis),
            is_late: run.lateness_ms.is_some_and(|late| late > super::draw::PROMISE_MS),
            attempts: run.attempt,
            took: shown::took(run).map_or(String::new(), shown::millis),
            cause: format!("{}{part}", run.cause),
        }
    }
}

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage {
    frame: Frame,
    tabs: Vec<Tab>,
    runs: Vec<RunRow>,
    filter: Vec<(&'static str, String)>,
    next: String,
}

/// A saved filter.
pub(crate) struct Tab {
    pub(crate) href: String,
    pub(crate) text: &'static str,
    pub(crate) is_current: bool,
}

const FILTERS: [&str; 6] = ["state", "waiting_for", "dead", "queue", "type", "job"];

const TABS: [(&str, &str); 8] = [
    ("All", ""),
    ("Running", "?state=running"),
    ("Waiting", "?state=pending"),
    ("Wait for an answer", "?waiting_for=answer"),
    ("Failed", "?state=failed"),
    ("Timed out", "?state=timed_out"),
    ("Missed", "?state=missed"),
    ("Dead letters", "?dead=true"),
];

pub(crate) async fn page(call: Call) -> Result<Response, Error> {
    let view = View::of(&call);
    let given = |name: &'static str| (name, call.query.text(name).unwrap_or("").to_string());
    let filter: Vec<(&'static str, String)> = FILTERS.into_iter().map(given).collect();
    let cursor = call.query.text("cursor").unwrap_or("").to_string();
    let mut pairs: Vec<(&str, &str)> = filter.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let address = form::query(&pairs);
    pairs.push(("cursor", cursor.as_str()));
    let page: Page<RunSummary> = rest::list(call.asking(&pairs)).await?.read()?;
    pairs.pop();
    let next = page.next_cursor.as_deref().map(|next| {
        pairs.push(("cursor", next));
        format!("/console/runs{}", form::query(&pairs))
    });
    let next = next.unwrap_or_default();
    let tab = |(text, query): &(&'static str, &'static str)| Tab {
        href: format!("/console/runs{query}"),
        text: *text,
        is_current: *query == address,
    };
    let frame = Frame::new(&call, "runs", "Runs").same("punctual run list", format!("/v1/runs{address}"));
    let frame = if cursor.is_empty() { frame.live("runs") } else { frame };
    html(&RunsPage {
        frame,
        tabs: TABS.iter().map(tab).collect(),
        runs: page.items.iter().map(|run| RunRow::new(run, &view)).collect(),
        next,
        filter: filter.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
    })
}
