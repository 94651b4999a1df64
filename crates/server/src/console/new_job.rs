//! A new job: explains while somebody types, shows the next slots before anything is saved, and says what is wrong beside the field.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use jiff::SignedDuration;
use punctual_api::job::Purpose;
use punctual_api::{FieldError, Job, JobSpec, Payload, Time};
use punctual_domain::Spec;
use punctual_schedule::{Binding, Kind, Seed};
use serde_json::{Map, Value, json};

use super::form::Form;
use super::frame::{Frame, go, html};
use super::shown::{self, Moment, View};
use crate::call::{Call, Text};
use crate::error::Error;
use crate::jobs as rest;

/// Slots that are shown before a job is saved.
const SLOTS: usize = 5;

#[derive(Template)]
#[template(path = "job_form.html")]
pub(crate) struct JobForm {
    pub(crate) frame: Frame,
    pub(crate) form: Form,
    pub(crate) wrong: Wrong,
    pub(crate) explained: Option<Explained>,
    /// What would be sent to the API.
    pub(crate) body: String,
    /// The job that is edited; none for a new one.
    pub(crate) edited: Option<Edited>,
}

/// A job that is edited.
pub(crate) struct Edited {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The version that was read: another one means that somebody else changed it meanwhile.
    pub(crate) version: u32,
    pub(crate) changes: Vec<Change>,
}

/// A member that would change.
pub(crate) struct Change {
    pub(crate) member: String,
    pub(crate) old: String,
    pub(crate) new: String,
}

/// What is wrong, by field.
#[derive(Debug, Default)]
pub(crate) struct Wrong {
    pub(crate) detail: String,
    pub(crate) errors: Vec<FieldError>,
}

impl Wrong {
    /// What is wrong with a field or something in it; empty, if nothing is.
    fn at(&self, pointer: &str) -> String {
        let is_here = |error: &&FieldError| {
            error.pointer == pointer || error.pointer.starts_with(&format!("{pointer}/"))
        };
        self.errors.iter().find(is_here).map_or(String::new(), |error| error.detail.clone())
    }
}

/// What a job would do.
pub(crate) struct Explained {
    pub(crate) words: String,
    pub(crate) slots: Vec<Slot>,
    pub(crate) warnings: Vec<String>,
    pub(crate) target: String,
}

pub(crate) struct Slot {
    pub(crate) at: Moment,
    pub(crate) note: String,
}

pub(crate) async fn page(call: Call) -> Result<Response, Error> {
    let form = match call.query.text("from").map(str::to_string) {
        Some(id) => {
            let job: Job = rest::get(call.asking(&[]), Path(id)).await?.read()?;
            let name = job.spec.name.as_ref().map(|name| format!("{name} (copy)"));
            copied(&job.spec, name)
        }
        None => Form::of(&[
            ("kind", "cron"),
            ("cron", "30 2 * * *"),
            ("timezone", View::of(&call).zone_name()),
            ("target", "http"),
            ("method", "POST"),
        ]),
    };
    // Nobody has typed yet: what is missing is not wrong.
    let (explained, _) = explain(&call, &form).await?;
    shown_page(&call, form, Wrong::default(), explained)
}

/// Registers the job, or only shows what it would do.
pub(crate) async fn create(call: Call, Text(text): Text) -> Result<Response, Error> {
    let form = Form::read(&text)?;
    if form.text("do") == "preview" {
        let (explained, wrong) = explain(&call, &form).await?;
        return shown_page(&call, form, wrong, explained);
    }
    let made = match body(&form) {
        Ok(body) => rest::create(call.asking(&[]), Text(body)).await,
        Err(error) => Err(error),
    };
    match made {
        Ok(answer) => {
            let job: Job = answer.read()?;
            Ok(go(&format!("/console/jobs/{}?done=created", job.status.id)))
        }
        Err(error) => {
            let problem = error.problem();
            if problem.status >= 500 {
                return Err(error);
            }
            let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::UNPROCESSABLE_ENTITY);
            let (explained, _) = explain(&call, &form).await?;
            let wrong = Wrong { detail: problem.detail, errors: problem.errors };
            let mut response = shown_page(&call, form, wrong, explained)?;
            *response.status_mut() = status;
            Ok(response)
        }
    }
}

fn shown_page(
    call: &Call,
    form: Form,
    wrong: Wrong,
    explained: Option<Explained>,
) -> Result<Response, Error> {
    let zone = form.given("timezone").unwrap_or("UTC");
    let cli = match form.text("kind") {
        "cron" => format!("punctual explain '{}' --tz {zone}", form.text("cron")),
        "every" => format!("punctual explain '@every {}'", form.text("every")),
        _ => "punctual job create --help".into(),
    };
    let body = body(&form).unwrap_or_default();
    let frame = Frame::new(call, "jobs", "New job").same(cli, "/v1/jobs");
    html(&JobForm { frame, form, wrong, explained, body, edited: None })
}

/// What the job would do, and what is wrong with it.
async fn explain(call: &Call, form: &Form) -> Result<(Option<Explained>, Wrong), Error> {
    let read = match body(form) {
        Ok(body) => rest::read(call, &body, Purpose::Create).await,
        Err(error) => Err(error),
    };
    match read {
        Ok(spec) => {
            let mut explained = told(call, &spec)?;
            explained.warnings.extend(rest::hints(call, &spec).await?);
            Ok((Some(explained), Wrong::default()))
        }
        Err(error) => {
            let problem = error.problem();
            if problem.status >= 500 {
                return Err(error);
            }
            // The schedule is told as soon as it is right, whatever else is missing.
            let alone =
                json!({"name": "x", "schedule": schedule(form), "target": {"discard": {}}}).to_string();
            let explained = match rest::read(call, &alone, Purpose::Create).await {
                Ok(spec) => Some(Explained { target: String::new(), ..told(call, &spec)? }),
                Err(_) => None,
            };
            Ok((explained, Wrong { detail: problem.detail, errors: problem.errors }))
        }
    }
}

/// The schedule in words and the next slots as proof, by the code that fires jobs.
pub(crate) fn told(call: &Call, spec: &Spec) -> Result<Explained, Error> {
    let (engine, view) = (&call.shared.engine, View::of(call));
    let now = engine.now();
    let mut schedule = spec.schedule.clone();
    let calendars = std::mem::take(&mut schedule.calendars);
    let binding = Binding { seed: Seed::of(""), registered_at: now, ..Binding::default() };
    let timetable = schedule
        .timetable(engine.tzdb(), &binding)
        .map_err(|error| Error::Engine(punctual_engine::Error::Schedule(error)))?;
    // A job that runs when it is registered has its first slot at that very instant.
    let after = match schedule.kind {
        Kind::Now => now - SignedDuration::from_millis(1),
        _ => now,
    };
    let slot = |at| Slot {
        at: view.moment(at),
        note: timetable.dst_note(at).map_or(String::new(), |note| note.to_string()),
    };
    let slots: Vec<Slot> = timetable.upcoming(after).take(SLOTS).map(slot).collect();
    let mut warnings = timetable.warnings(now);
    if !calendars.is_empty() {
        warnings.push(format!("The slots are shown without the calendars {}.", calendars.join(", ")));
    }
    let target = shown::target(JobSpec::from(spec).target.as_ref());
    Ok(Explained { words: timetable.describe(now), slots, warnings, target })
}

/// The body that the API takes.
pub(crate) fn body(form: &Form) -> Result<String, Error> {
    let mut job = Map::new();
    for member in ["name", "key", "type", "queue", "lane", "timeout", "start_window", "on_unknown"] {
        if let Some(value) = form.given(member) {
            job.insert(member.into(), Value::from(value));
        }
    }
    job.insert("schedule".into(), schedule(form));
    job.insert("target".into(), target(form)?);
    let labels: Map<String, Value> = form
        .text("labels")
        .split_whitespace()
        .filter_map(|label| label.split_once('='))
        .map(|(name, value)| (name.to_string(), Value::from(value)))
        .collect();
    if !labels.is_empty() {
        job.insert("labels".into(), labels.into());
    }
    if let Some(policy) = form.given("catch_up") {
        job.insert("catch_up".into(), json!({"policy": policy}));
    }
    if let Some(policy) = form.given("overlap") {
        job.insert("overlap".into(), json!({"policy": policy}));
    }
    if let Some(attempts) = form.given("max_attempts") {
        let attempts = attempts.parse::<u32>().map_or_else(|_| Value::from(attempts), Value::from);
        job.insert("retry".into(), json!({"max_attempts": attempts}));
    }
    let text = Value::from(job).to_string();
    let Some(payload) = form.given("payload") else { return Ok(text) };
    // A payload is text from end to end: it goes into the body as it was written.
    let payload = Payload::new(payload).ok_or_else(|| {
        let why = serde_json::from_str::<serde::de::IgnoredAny>(payload).err().map(|error| error.to_string());
        let why = why.unwrap_or_else(|| "it cannot be read".into());
        Error::wrong("/payload", "malformed_json", format!("this is no JSON: {why}"))
    })?;
    let members = text.strip_suffix('}').unwrap_or(&text);
    Ok(format!("{members},\"payload\":{}}}", payload.as_str()))
}

fn schedule(form: &Form) -> Value {
    let mut schedule = Map::new();
    let kind = form.given("kind").unwrap_or("cron");
    match kind {
        "now" => schedule.insert("now".into(), true.into()),
        kind => schedule.insert(kind.into(), form.text(kind).into()),
    };
    // Periods count on no clock of a zone.
    if matches!(kind, "cron" | "at" | "interval")
        && let Some(zone) = form.given("timezone")
    {
        schedule.insert("timezone".into(), zone.into());
    }
    if let Some(spread) = form.given("spread") {
        schedule.insert("spread".into(), spread.into());
    }
    let calendars: Vec<&str> =
        form.text("calendars").split([',', ' ']).filter(|name| !name.is_empty()).collect();
    if !calendars.is_empty() {
        schedule.insert("calendars".into(), calendars.into());
    }
    schedule.into()
}

fn target(form: &Form) -> Result<Value, Error> {
    Ok(match form.given("target").unwrap_or("http") {
        "worker" => json!({"worker": {"handler": form.text("handler")}}),
        "discard" => json!({"discard": {}}),
        "http" => {
            let mut http = json!({"url": form.text("url")});
            if let Some(method) = form.given("method") {
                http["method"] = method.into();
            }
            if let Some(name) = form.given("header_name") {
                http["headers"] = json!({name: form.text("header_value")});
            }
            json!({"http": http})
        }
        _ => return Err(Error::wrong("/target", "unknown_value", "choose http, worker or discard")),
    })
}

/// A form that is filled as another job is; its key stays its own, and headers may be secrets.
pub(crate) fn copied(spec: &JobSpec, name: Option<String>) -> Form {
    let mut fields: Vec<(&str, String)> = Vec::new();
    let mut put = |name: &'static str, value: Option<String>| {
        fields.extend(value.map(|value| (name, value)));
    };
    put("name", name);
    put("type", spec.r#type.clone());
    put("queue", spec.queue.clone());
    put("lane", spec.lane.clone());
    put("timeout", spec.timeout.map(|timeout| timeout.to_string()));
    put("payload", spec.payload.as_ref().map(|payload| payload.as_str().to_string()));
    put("start_window", spec.start_window.map(|window| window.to_string()));
    put("on_unknown", spec.on_unknown.clone());
    put("overlap", spec.overlap.as_ref().and_then(|overlap| overlap.policy.clone()));
    put("catch_up", spec.catch_up.as_ref().and_then(|catch_up| catch_up.policy.clone()));
    put(
        "max_attempts",
        spec.retry.as_ref().and_then(|retry| retry.max_attempts).map(|count| count.to_string()),
    );
    let labels = spec.labels.iter().flatten().map(|(name, value)| format!("{name}={value}"));
    put("labels", Some(labels.collect::<Vec<_>>().join(" ")));
    if let Some(schedule) = &spec.schedule {
        let at = schedule.at.as_ref().map(|at| match at {
            Time::Text(text) => text.clone(),
            Time::Seconds(seconds) => seconds.to_string(),
        });
        let kinds = [
            ("cron", schedule.cron.clone()),
            ("every", schedule.every.clone()),
            ("interval", schedule.interval.clone()),
            ("after", schedule.after.clone()),
            ("at", at),
        ];
        put(
            "kind",
            Some(kinds.iter().find(|(_, value)| value.is_some()).map_or("now", |(kind, _)| *kind).into()),
        );
        for (kind, value) in kinds {
            put(kind, value);
        }
        put("timezone", schedule.timezone.clone());
        put("spread", schedule.spread.map(|spread| spread.to_string()));
        put("calendars", schedule.calendars.as_ref().map(|names| names.join(", ")));
    }
    if let Some(target) = &spec.target {
        if let Some(http) = &target.http {
            put("target", Some("http".into()));
            put("url", http.url.clone());
            put("method", http.method.clone());
        } else if let Some(worker) = &target.worker {
            put("target", Some("worker".into()));
            put("handler", worker.handler.clone());
        } else {
            put("target", Some("discard".into()));
        }
    }
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Form::of(&fields)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "what is not there fails the test")]
mod tests {
    use super::*;

    #[test]
    fn a_form_becomes_the_body_that_the_api_takes() {
        let form = Form::of(&[
            ("name", "n"),
            ("kind", "cron"),
            ("cron", "0 2 * * *"),
            ("timezone", "Europe/Paris"),
            ("url", "http://a"),
            ("labels", "a=b c=d"),
            ("payload", "{\"big\": 12345678901234567890123}"),
        ]);
        let text = body(&form).unwrap();
        assert!(text.ends_with(",\"payload\":{\"big\": 12345678901234567890123}}"), "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["schedule"], json!({"cron": "0 2 * * *", "timezone": "Europe/Paris"}));
        assert_eq!(
            (&value["labels"]["c"], &value["target"]["http"]["url"]),
            (&json!("d"), &json!("http://a"))
        );
    }

    #[test]
    fn a_payload_that_is_no_json_is_said_to_be_none() {
        let problem = body(&Form::of(&[("payload", "{a}")])).unwrap_err().problem();
        assert_eq!(problem.errors[0].pointer, "/payload");
    }
}
