//! Finds jobs, runs and pages: the palette, and a page of its own without JavaScript.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use punctual_api::page::Page;
use punctual_api::{Job, Run};

use super::form;
use super::frame::{Frame, html};
use super::shown;
use crate::call::Call;
use crate::error::Error;
use crate::{jobs, runs};

/// Hits that are shown; who needs more narrows the search.
const HITS: &str = "12";

#[derive(Template)]
#[template(path = "find.html")]
struct FindPage {
    frame: Frame,
    q: String,
    jobs: Vec<Hit>,
    runs: Vec<Hit>,
    pages: Vec<Hit>,
}

struct Hit {
    href: String,
    icon: &'static str,
    text: String,
    about: String,
}

/// Pages by their names, and the role that sees them: anybody, operators, admins, admins of all tenants.
const PAGES: [(&str, &str, &str, u8); 15] = [
    ("Overview", "/console", "overview", 0),
    ("Jobs", "/console/jobs", "jobs", 0),
    ("New job", "/console/new-job", "plus", 1),
    ("Runs", "/console/runs", "runs", 0),
    ("Dead letters", "/console/dead-letters", "dead", 0),
    ("Forecast", "/console/forecast", "forecast", 0),
    ("Workers", "/console/workers", "workers", 0),
    ("Queues", "/console/queues", "queues", 0),
    ("Nodes and shards", "/console/nodes", "nodes", 3),
    ("Operations", "/console/operations", "columns", 0),
    ("Keys", "/console/keys", "keys", 2),
    ("Tenants", "/console/tenants", "permit", 2),
    ("Calendars", "/console/calendars", "calendar", 0),
    ("Alerts", "/console/alerts", "bell", 0),
    ("Settings", "/console/settings", "settings", 0),
];

pub(crate) async fn page(call: Call) -> Result<Response, Error> {
    let q = call.query.text("q").unwrap_or("").trim().to_string();
    let frame = Frame::new(&call, "", "Find");
    let level = match (frame.is_of_all, frame.can_administer, frame.can_operate) {
        (true, ..) => 3,
        (_, true, _) => 2,
        (_, _, true) => 1,
        _ => 0,
    };
    let wanted = q.to_lowercase();
    let pages = PAGES
        .iter()
        .filter(|(name, _, _, needs)| *needs <= level && name.to_lowercase().contains(&wanted))
        .map(|(name, href, icon, _)| Hit {
            href: (*href).into(),
            icon: *icon,
            text: (*name).into(),
            about: String::new(),
        })
        .collect();
    let (found_jobs, found_runs) = match q.is_empty() {
        true => (Vec::new(), Vec::new()),
        false => (find_jobs(&call, &q).await?, find_run(&call, &q).await),
    };
    let api = format!("/v1/jobs{}", form::query(&[("name", q.as_str())]));
    let frame = frame.same("punctual job list --name TEXT", api);
    html(&FindPage { frame, q, jobs: found_jobs, runs: found_runs, pages })
}

/// By a part of the name, by the whole id, and by how the key begins.
async fn find_jobs(call: &Call, q: &str) -> Result<Vec<Hit>, Error> {
    let mut found: Vec<Job> = Vec::new();
    if let Ok(answer) = jobs::get(call.asking(&[]), Path(q.to_string())).await {
        found.push(answer.read()?);
    }
    for member in ["name", "key_prefix"] {
        let page: Page<Job> = jobs::list(call.asking(&[(member, q), ("limit", HITS)])).await?.read()?;
        for job in page.items {
            if !found.iter().any(|known| known.status.id == job.status.id) {
                found.push(job);
            }
        }
    }
    let hit = |job: Job| Hit {
        href: format!("/console/jobs/{}", job.status.id),
        icon: "jobs",
        text: job.spec.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| job.status.id.clone()),
        about: match job.status.state.as_str() {
            "active" => shown::schedule(job.spec.schedule.as_ref()),
            state => state.to_string(),
        },
    };
    Ok(found.into_iter().take(12).map(hit).collect())
}

async fn find_run(call: &Call, q: &str) -> Vec<Hit> {
    let Ok(answer) = runs::get(call.asking(&[]), Path(q.to_string())).await else { return Vec::new() };
    let Ok(run) = answer.read::<Run>() else { return Vec::new() };
    let href = format!("/console/runs/{}", run.summary.id);
    vec![Hit { href, icon: "runs", text: run.summary.id, about: run.summary.state }]
}
