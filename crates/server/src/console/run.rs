//! A run: what became of it and whose fault it was, its attempts on one time axis, what went out and what came back.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use jiff::Timestamp;
use punctual_api::page::Page;
use punctual_api::run::{Attempt, RunLogLine};
use punctual_api::{Job, Run};
use serde_json::json;

use super::draw::{self, Stretch, Svg};
use super::form::{self, Form};
use super::frame::{Frame, go, html};
use super::jobs::name_of;
use super::shown::{self, Moment, Pill, View};
use crate::call::{Call, Text};
use crate::error::Error;
use crate::{dead_letters as rest_dead, jobs as rest_jobs, runs as rest};

/// Lines of the log that are shown; the rest is a link away.
const LINES: &str = "200";

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    frame: Frame,
    id: String,
    job_id: String,
    job_name: String,
    slot: Moment,
    pill: Pill,
    headline: Headline,
    attempts: Vec<AttemptView>,
    facts: Vec<(&'static str, String)>,
    progress: String,
    percent: Option<u8>,
    target: String,
    request: String,
    warnings: Vec<String>,
    log: Vec<LineView>,
    log_goes_on: bool,
    can_cancel: bool,
    can_redrive: bool,
    is_asking: bool,
    axis: [String; 4],
}

/// What became of it, in a sentence.
struct Headline {
    class: &'static str,
    icon: &'static str,
    text: String,
    more: String,
}

struct AttemptView {
    number: u32,
    worker: String,
    pill: Pill,
    bar: Svg,
    phases: Vec<String>,
    ended: Option<Moment>,
    error: String,
    code: String,
    output: String,
    output_about: String,
    dropped: u64,
}

struct LineView {
    at: Moment,
    attempt: u32,
    text: String,
}

pub(crate) async fn page(call: Call, Path(id): Path<String>) -> Result<Response, Error> {
    let view = View::of(&call);
    let run: Run = rest::get(call.asking(&[]), Path(id.clone())).await?.read()?;
    let log = rest::log(call.asking(&[("limit", LINES)]), Path(id.clone())).await?;
    let log: Page<RunLogLine> = log.read()?;
    // The job may be deleted; its runs are there as long as they are kept.
    let job = rest_jobs::get(call.asking(&[]), Path(run.summary.job_id.clone())).await;
    let job: Option<Job> = job.ok().and_then(|answer| answer.read().ok());
    let summary = &run.summary;
    let ends = run.attempts.iter().filter_map(|attempt| attempt.finished_at).max();
    let end = ends.unwrap_or_else(|| call.shared.engine.now()).max(summary.scheduled_for);
    let whole_ms = since(summary.scheduled_for, end).max(1.0);
    let payload = run.payload.as_ref().or(job.as_ref().and_then(|job| job.spec.payload.as_ref()));
    let is_dead = matches!(summary.state.as_str(), "failed" | "timed_out" | "missed");
    let is_open = matches!(summary.state.as_str(), "pending" | "running");
    let slot = view.moment(summary.scheduled_for);
    let frame = Frame::new(&call, "runs", format!("Slot {}", slot.text))
        .same(format!("punctual run get {id}"), format!("/v1/runs/{id}"));
    // What has ended stays as it is.
    let frame = if is_open || is_dead { frame.live(format!("run:{id}")) } else { frame };
    let axis = [0.0, 1.0, 2.0, 3.0].map(|third| shown::millis((whole_ms * third / 3.0) as i64));
    html(&RunPage {
        frame,
        job_id: summary.job_id.clone(),
        job_name: job.as_ref().map_or("a job that is deleted".into(), name_of),
        slot,
        pill: shown::run(summary),
        headline: headline(&run),
        attempts: run.attempts.iter().map(|attempt| attempt_view(attempt, &run, whole_ms, &view)).collect(),
        facts: facts(&run, &view),
        progress: run.progress.as_ref().and_then(|progress| progress.message.clone()).unwrap_or_default(),
        percent: run.progress.as_ref().and_then(|progress| progress.percent),
        target: job.as_ref().map_or(String::new(), |job| shown::target(job.spec.target.as_ref())),
        request: payload.map_or(String::new(), |payload| payload.as_str().to_string()),
        warnings: run.warnings.clone(),
        log: log.items.iter().map(|line| line_view(line, &view)).collect(),
        log_goes_on: log.next_cursor.is_some(),
        can_cancel: is_open && !summary.is_cancel_requested,
        can_redrive: is_dead,
        is_asking: summary.waiting_for.as_deref() == Some("answer"),
        axis,
        id: summary.id.clone(),
    })
}

/// From the slot to a time, in milliseconds.
fn since(slot: Timestamp, at: Timestamp) -> f64 {
    at.duration_since(slot).as_millis() as f64
}

fn headline(run: &Run) -> Headline {
    let summary = &run.summary;
    let late = summary.lateness_ms.filter(|late| *late > draw::PROMISE_MS);
    let timing = match (summary.lateness_ms, late) {
        (_, Some(late)) => format!("It started {} late.", shown::millis(late)),
        (Some(_), None) => "It started on time.".to_string(),
        (None, None) => String::new(),
    };
    let error = run.attempts.iter().rev().find_map(|attempt| attempt.error.as_ref());
    let (class, icon, text, more) = match summary.state.as_str() {
        "succeeded" if summary.attempt > 1 => {
            ("info", "ok", format!("It succeeded at attempt {}.", summary.attempt), timing)
        }
        "succeeded" => ("info", "ok", "It succeeded.".into(), timing),
        "failed" | "timed_out" => {
            let said = error.map_or("No attempt said why.".into(), |error| error.message.clone());
            let side =
                if late.is_none() && !timing.is_empty() { " The fault is on the target's side." } else { "" };
            ("bad", "bad", said, format!("{timing}{side} {} attempts.", summary.attempt))
        }
        "missed" => {
            ("warn", "missed", "It could not start in time, so it did not run.".into(), String::new())
        }
        "cancelled" => ("warn", "stop", "Somebody cancelled it.".into(), String::new()),
        "running" => ("info", "ring", format!("Attempt {} is under way.", summary.attempt), timing),
        _ if summary.waiting_for.as_deref() == Some("answer") => {
            let text = "Nobody knows whether it did its work. Say what became of it.";
            (
                "warn",
                "info",
                text.into(),
                "Its worker is gone, or its request broke off in the middle.".into(),
            )
        }
        _ => {
            let said = error.map_or(String::new(), |error| format!("The last attempt: {}", error.message));
            ("info", "clock", format!("It {}.", shown::run(summary).why), said)
        }
    };
    Headline { class, icon, text, more }
}

fn attempt_view(attempt: &Attempt, run: &Run, whole_ms: f64, view: &View) -> AttemptView {
    let slot = run.summary.scheduled_for;
    let word = attempt.outcome.as_deref().unwrap_or(if attempt.finished_at.is_some() {
        "given back"
    } else {
        "running"
    });
    let pill = match attempt.status {
        Some(status) => shown::state(word).because(status.to_string()),
        None => shown::state(word),
    };
    let output = attempt.output.as_ref();
    let text = output.and_then(|output| output.text.clone().or_else(|| output.base64.clone()));
    let about = match output {
        Some(output) if output.text.is_none() => "base64, since it is not text",
        Some(output) if output.is_truncated => "cut off; there was more",
        Some(_) => "complete",
        None => "",
    };
    AttemptView {
        number: attempt.number,
        worker: attempt.worker.clone(),
        bar: draw::attempt(attempt.number, &stretches(attempt, slot), word == "succeeded", whole_ms),
        pill,
        phases: attempt
            .phases
            .iter()
            .map(|phase| format!("{} {}", phase.name.replace('_', " "), fine(phase.duration_ms)))
            .collect(),
        ended: view.maybe(attempt.finished_at),
        error: attempt.error.as_ref().map_or(String::new(), |error| error.message.clone()),
        code: attempt.error.as_ref().map_or(String::new(), |error| error.code.clone()),
        output: text.unwrap_or_default(),
        output_about: about.into(),
        dropped: attempt.log_dropped,
    }
}

/// A short length, with the part of a millisecond that matters.
fn fine(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.1} ms") } else { shown::millis(ms as i64) }
}

/// An attempt in stretches: its phases one after the other from its start, the rest as body.
fn stretches(attempt: &Attempt, slot: Timestamp) -> Vec<Stretch> {
    let start = since(slot, attempt.started_at.unwrap_or(attempt.claimed_at)).max(0.0);
    let claimed = since(slot, attempt.claimed_at).max(0.0);
    let end = attempt.finished_at.map_or(start, |at| since(slot, at)).max(start);
    let mut found = vec![Stretch { class: "p-wait", from_ms: claimed.min(start), to_ms: start }];
    let mut from_ms = start;
    for phase in &attempt.phases {
        let class = match phase.name.as_str() {
            "queued" => "p-wait",
            "dns" | "connect" | "tls" => "p-connect",
            "first_byte" => "p-first",
            _ => "p-body",
        };
        let to_ms = (from_ms + phase.duration_ms).min(end.max(from_ms));
        found.push(Stretch { class, from_ms, to_ms });
        from_ms = to_ms;
    }
    found.push(Stretch { class: "p-body", from_ms, to_ms: end.max(from_ms) });
    found
}

fn facts(run: &Run, view: &View) -> Vec<(&'static str, String)> {
    let summary = &run.summary;
    let time = |at: Option<Timestamp>| at.map(|at| view.moment(at).title);
    let facts = [
        ("Late by", summary.lateness_ms.map(shown::millis)),
        ("Took", shown::took(summary).map(shown::millis)),
        ("Cause", Some(format!("{}, version {} of the job", summary.cause, summary.job_version))),
        ("Scheduled for", time(Some(summary.scheduled_for))),
        ("Started", time(summary.started_at)),
        ("Ended", time(summary.finished_at)),
        ("May start at", time(summary.available_at)),
        ("Must start by", time(summary.start_by)),
        ("Reports by", time(summary.report_by)),
        ("Queue", Some(summary.queue.clone())),
        ("Idempotency key", Some(summary.idempotency_key.clone())),
        ("Correlation", summary.correlation_id.clone()),
        ("Item", summary.item_id.clone()),
        ("For worker", summary.for_worker.clone()),
        ("Follows run", summary.caused_by.as_ref().map(|cause| cause.run_id.clone())),
    ];
    facts.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))).collect()
}

fn line_view(line: &RunLogLine, view: &View) -> LineView {
    LineView { at: view.moment(line.at), attempt: line.attempt, text: line.text.clone() }
}

/// Cancels, redrives, acknowledges or answers for a run.
pub(crate) async fn act(
    call: Call,
    Path((id, deed)): Path<(String, String)>,
    Text(text): Text,
) -> Result<Response, Error> {
    let form = Form::read(&text)?;
    let (asking, path, nothing) = (call.asking(&[]), Path(id.clone()), Text(String::new()));
    let done = match deed.as_str() {
        "cancel" => rest::cancel(asking, path, nothing).await.map(|_| "cancelled")?,
        "retry" => rest::retry(asking, path, nothing).await.map(|_| "redriven")?,
        "acknowledge" => {
            let body = json!({"runs": [id]}).to_string();
            rest_dead::acknowledge(asking, Text(body)).await.map(|_| "acknowledged")?
        }
        "answer" => {
            let body = json!({"answer": form.text("answer")}).to_string();
            rest::answer(asking, path, Text(body)).await.map(|_| "answered")?
        }
        _ => return Err(Error::RouteNotFound(crate::jobs::shorten(&deed))),
    };
    Ok(go(&format!("/console/runs/{}?done={done}", form::encoded(&id))))
}
