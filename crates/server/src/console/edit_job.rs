//! Editing a job: the same form as for a new one, with what would change beside it.
//!
//! What is saved is a merge patch of what the form has, under the version that was read: what the form does not show stays as it is, and
//! nobody overwrites what somebody else changed meanwhile.

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::response::Response;
use http::header::IF_MATCH;
use http::{HeaderValue, StatusCode};
use punctual_api::bulk::edited;
use punctual_api::{Job, JobSpec};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::form::{self, Form};
use super::frame::{Frame, go, html};
use super::jobs::name_of;
use super::new_job::{Change, Edited, Explained, JobForm, Wrong, body, copied, told};
use crate::call::{Call, Text};
use crate::error::Error;
use crate::jobs as rest;

/// Members that go back to their defaults when a field is empty. What is chosen from a list is always said.
const EMPTIED: [&str; 5] = ["type", "queue", "timeout", "start_window", "payload"];

/// A longer text says no more about a change.
const SHOWN: usize = 400;

pub(crate) async fn page(call: Call, Path(id): Path<String>) -> Result<Response, Error> {
    let job: Job = rest::get(call.asking(&[]), Path(id)).await?.read()?;
    let form = copied(&job.spec, job.spec.name.clone());
    shown(&call, &job, form, Wrong::default()).await
}

/// Saves the change, or only shows it.
pub(crate) async fn save(call: Call, Path(id): Path<String>, Text(text): Text) -> Result<Response, Error> {
    let form = Form::read(&text)?;
    let job: Job = rest::get(call.asking(&[]), Path(id.clone())).await?.read()?;
    if form.text("do") == "preview" {
        return shown(&call, &job, form, Wrong::default()).await;
    }
    let mut asking = call.asking(&[]);
    if let Ok(version) = HeaderValue::from_str(&format!("\"{}\"", form.text("version"))) {
        asking.headers.insert(IF_MATCH, version);
    }
    let saved = match patch(&form, &job.spec) {
        Ok(patch) => rest::patch(asking, Path(id.clone()), Text(patch)).await,
        Err(error) => Err(error),
    };
    let Err(error) = saved else {
        return Ok(go(&format!("/console/jobs/{}?done=saved", form::encoded(&id))));
    };
    let problem = error.problem();
    if problem.status >= 500 {
        return Err(error);
    }
    let wrong = Wrong { detail: problem.detail, errors: problem.errors };
    let mut response = shown(&call, &job, form, wrong).await?;
    *response.status_mut() = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::UNPROCESSABLE_ENTITY);
    Ok(response)
}

/// The form, with what would change and what that would mean.
async fn shown(call: &Call, job: &Job, form: Form, wrong: Wrong) -> Result<Response, Error> {
    let (explained, changes, wrong) = match look(call, job, &form).await {
        Ok((explained, changes)) => (Some(explained), changes, wrong),
        Err(error) => {
            let problem = error.problem();
            match (problem.status >= 500, wrong.detail.is_empty()) {
                (true, _) => return Err(error),
                (false, true) => (None, Vec::new(), Wrong { detail: problem.detail, errors: problem.errors }),
                (false, false) => (None, Vec::new(), wrong),
            }
        }
    };
    let id = job.status.id.clone();
    let frame = Frame::new(call, "jobs", format!("Edit {}", name_of(job)))
        .same(format!("punctual job update {id} --help"), format!("/v1/jobs/{id}"));
    // The version that the form was read with stays, however often it is shown.
    let version =
        form.given("version").and_then(|version| version.parse().ok()).unwrap_or(job.status.version);
    let body = patch(&form, &job.spec).unwrap_or_default();
    let edited = Edited { id, name: name_of(job), version, changes };
    html(&JobForm { frame, form, wrong, explained, body, edited: Some(edited) })
}

/// What the job would be, and what of it would be another.
async fn look(call: &Call, job: &Job, form: &Form) -> Result<(Explained, Vec<Change>), Error> {
    let old = call.shared.engine.job(call.tenant, rest::job_id(&job.status.id)?).await?;
    let patch = patch(form, &job.spec)?;
    let spec = edited(&old.job.spec, &patch, &call.shared.rules())?;
    let mut explained = told(call, &spec)?;
    explained.warnings.extend(rest::hints(call, &spec).await?);
    Ok((explained, changes(&JobSpec::from(&old.job.spec), &JobSpec::from(&spec))))
}

/// A merge patch of what the form has.
fn patch(form: &Form, old: &JobSpec) -> Result<String, Error> {
    let text = body(form)?;
    let members: Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| Error::Unwritten(error.to_string()))?;
    let mut gone: Vec<String> = EMPTIED
        .iter()
        .filter(|member| !members.contains_key(**member))
        .map(|member| format!("\"{member}\":null"))
        .collect();
    // A patch adds to labels: those that are not in the form go by name.
    let kept = members.get("labels").and_then(Value::as_object);
    let lost: Map<String, Value> = old
        .labels
        .iter()
        .flatten()
        .filter(|(name, _)| kept.is_none_or(|kept| !kept.contains_key(*name)))
        .map(|(name, _)| (name.clone(), Value::Null))
        .collect();
    let mut labels = kept.cloned().unwrap_or_default();
    labels.extend(lost);
    let mut schedule = members.get("schedule").and_then(Value::as_object).cloned().unwrap_or_default();
    for member in ["spread", "calendars"] {
        schedule.entry(member).or_insert(Value::Null);
    }
    for (name, value) in members.iter().filter(|(name, _)| *name != "payload") {
        match name.as_str() {
            "labels" | "schedule" => {}
            name => gone.push(format!("\"{name}\":{value}")),
        }
    }
    gone.push(format!("\"labels\":{}", Value::from(labels)));
    gone.push(format!("\"schedule\":{}", Value::from(schedule)));
    let (new, was) = (form.text("payload"), old.payload.as_ref().map_or("", |old| old.as_str()));
    if !new.is_empty() && new != was.trim() {
        let detail = "an edit takes a member away by null, so none can become null; use PUT /v1/jobs/{id} for this payload";
        let payload = replacing(new, was).ok_or_else(|| Error::wrong("/payload", "conflict", detail))?;
        gone.push(format!("\"payload\":{payload}"));
    }
    Ok(format!("{{{}}}", gone.join(",")))
}

/// The patch that makes one payload of another, in the texts of its values; none, if it has a null that a patch cannot say.
fn replacing(new: &str, old: &str) -> Option<String> {
    let members = |text: &str| serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(text).ok();
    let Some(wanted) = members(new) else { return Some(new.to_string()) };
    let known = members(old).unwrap_or_default();
    let mut parts = Vec::with_capacity(wanted.len());
    for (name, value) in &wanted {
        if value.get() == "null" {
            return None;
        }
        let value = replacing(value.get(), known.get(name).map_or("", |old| old.get()))?;
        parts.push(format!("{}:{value}", Value::from(name.as_str())));
    }
    let lost = known.keys().filter(|name| !wanted.contains_key(*name));
    parts.extend(lost.map(|name| format!("{}:null", Value::from(name.as_str()))));
    Some(format!("{{{}}}", parts.join(",")))
}

/// The members that differ, as JSON.
fn changes(old: &JobSpec, new: &JobSpec) -> Vec<Change> {
    let members = |spec: &JobSpec| -> Map<String, Value> {
        let text = serde_json::to_string(spec).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    };
    let (old, new) = (members(old), members(new));
    let told = |value: Option<&Value>| {
        value.map_or("not there".to_string(), |value| value.to_string().chars().take(SHOWN).collect())
    };
    JobSpec::MEMBERS
        .iter()
        .filter(|member| old.get(**member) != new.get(**member))
        .map(|member| Change {
            member: (*member).to_string(),
            old: told(old.get(*member)),
            new: told(new.get(*member)),
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "what is not there fails the test")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_takes_away_what_the_form_has_no_more() {
        let old: JobSpec =
            serde_json::from_value(json!({"labels": {"a": "1", "b": "2"}, "timeout": "PT1M"})).unwrap();
        let form =
            Form::of(&[("kind", "every"), ("every", "PT5M"), ("target", "discard"), ("labels", "b=3")]);
        let patch: Value = serde_json::from_str(&patch(&form, &old).unwrap()).unwrap();
        assert_eq!(patch["labels"], json!({"a": null, "b": "3"}));
        assert_eq!(patch["schedule"], json!({"every": "PT5M", "spread": null, "calendars": null}));
        assert!(patch["timeout"].is_null() && patch.as_object().unwrap().contains_key("timeout"), "{patch}");
    }

    #[test]
    fn a_payload_replaces_the_old_one_at_every_depth_and_keeps_its_numbers() {
        let old = r#"{"a":1,"b":{"c":2,"d":3}}"#;
        let patch = |new: &str| replacing(new, old);
        assert_eq!(patch(r#"{"b":{"d":4}}"#).as_deref(), Some(r#"{"b":{"d":4,"c":null},"a":null}"#));
        assert_eq!(patch("{}").as_deref(), Some(r#"{"a":null,"b":null}"#));
        assert_eq!(patch("[1, null]").as_deref(), Some("[1, null]"));
        assert_eq!(
            patch(r#"{"a":12345678901234567890123,"b":1}"#).as_deref(),
            Some(r#"{"a":12345678901234567890123,"b":1}"#)
        );
        assert_eq!(patch(r#"{"a":{"x":null}}"#), None);
    }
}
