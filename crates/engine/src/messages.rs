//! Messages: jobs that the system registers because something happened.
//!
//! Made where it happens, by complete, lapse and reclaim, and registered by the store in the same commit. Promise: a run that
//! becomes a dead letter is told once where its job says, through whatever fails between; one that does not is not told. The same holds
//! for the links of a job, by the ends that they name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use punctual_domain::alert::{self, Alarm, Alert, On, Step, Subject, To};
use punctual_domain::attempt::Output;
use punctual_domain::id::{JobId, ShardId, TenantId};
use punctual_domain::job::{Http, Job, Method, Spec, Target};
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::link::{self, End, Link};
use punctual_domain::run::{Cause, Limit, Run};
use punctual_domain::{Report, message};
use punctual_store::{Birth, Message, Put};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::create::{birth, new_job, new_put};
use crate::engine::Engine;
use crate::error::Error;
use crate::links;

/// Names of tenants, which never change.
#[derive(Debug, Default)]
pub(crate) struct TenantNames(Mutex<HashMap<TenantId, Arc<str>>>);

/// Where the report of a run's last attempt is.
pub(crate) enum Last<'a> {
    /// It has just come, or the attempt was given back without one.
    Here(Option<&'a Report>),
    /// In the store.
    Stored,
}

impl Engine {
    /// What tells of the end of a run, if this is one: that it is a dead letter, if its job says where to, and what its links trigger.
    pub(crate) async fn end_messages(
        &self,
        job: &Job,
        run: &Run,
        event: Event,
        last: Last<'_>,
        now: Timestamp,
    ) -> Result<Vec<Message>, Error> {
        if job.spec.dead_letter_target.is_none() && job.spec.links.is_empty() {
            return Ok(Vec::new());
        }
        let mut ended = run.clone();
        let is_over = lifecycle::apply(&mut ended, event).is_ok() && ended.state.is_ended();
        let is_told = is_over && ended.state.is_dead() && job.spec.dead_letter_target.is_some();
        let links = if is_over { link::due(job, &ended) } else { Vec::new() };
        if !is_told && links.is_empty() {
            return Ok(Vec::new());
        }
        let tenant = self.tenant_name(job.tenant).await?;
        let stored = match last {
            Last::Here(_) => None,
            Last::Stored => self.store.run(run.id()).await?,
        };
        let report = match (&stored, last) {
            (_, Last::Here(report)) => report,
            (stored, Last::Stored) => {
                let attempts = stored.as_ref().map(|detail| detail.attempts.as_slice()).unwrap_or_default();
                attempts.iter().rev().find_map(|attempt| attempt.report.as_ref())
            }
        };
        let correlation_id = ended.correlation_id.clone().or_else(|| Some(ended.id().to_string().into()));
        let telling = |on: link::On, id: JobId, spec: Spec| {
            let spec = Spec { correlation_id: correlation_id.clone(), ..spec };
            Message { on, put: Box::new(self.message(new_job(id, job.tenant, spec, now), now)) }
        };
        let mut messages = Vec::with_capacity(links.len() + 1);
        let of_dead_letter = || message::of_dead_letter(job, || payload(job, &ended, report, &tenant));
        if let Some(spec) = is_told.then(of_dead_letter).flatten() {
            messages.push(telling(link::On::Failed, message::id(ended.id(), ended.attempt, now), spec));
        }
        for (place, link) in links {
            let end = End::of(&ended, place);
            let told = linked_payload(&link, job, &ended, report, &tenant);
            let text = links::text(&link, end, link::caused_by(&ended), &ended, &told);
            messages.push(telling(link.on, end.message_id(now), link::message(job, &link, text)));
        }
        Ok(messages)
    }

    /// What tells of an alarm.
    pub(crate) fn alarm_message(
        &self,
        alert: &Alert,
        alarm: &Alarm,
        step: Step,
        tenant: &str,
        now: Timestamp,
    ) -> Put {
        let (target, payload) = delivery(alert, alarm, step, tenant);
        let key = alarm.key(step);
        let name = format!("alert {}", alert.name);
        let mut spec = message::spec(alert::MESSAGE, name, target, payload.to_string());
        // Another node may be one that sends mail.
        spec.policies.retry.on.errors.push("function_unknown".into());
        let shard = ShardId::of(alert.tenant, &key, self.store.shard_count());
        let id = JobId::new(now, shard, self.entropy.bits());
        self.message(new_job(id, alert.tenant, Spec { key: Some(key), ..spec }, now), now)
    }

    /// A message with its run.
    pub(crate) fn message(&self, job: Job, now: Timestamp) -> Put {
        let job = Arc::new(job);
        let born = birth(&job, Cause::Schedule, now, 0, None);
        let born = Birth { limits: self.limits_of(&job), ..born };
        Put { birth: Some(born), ..new_put(job, None) }
    }

    /// Messages were registered: somebody may deliver them.
    pub(crate) fn told(&self, has_limits: bool) {
        self.wakes.claimable();
        if has_limits {
            self.look_at_limits();
        }
    }

    /// The name of a tenant.
    pub(crate) async fn tenant_name(&self, id: TenantId) -> Result<Arc<str>, Error> {
        let known = |names: &TenantNames| {
            names.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).map(Arc::clone)
        };
        if let Some(name) = known(&self.tenant_names) {
            return Ok(name);
        }
        let tenants = self.store.tenants().await?;
        let mut names = self.tenant_names.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.extend(tenants.into_iter().map(|tenant| (tenant.id, Arc::from(tenant.name.as_str()))));
        Ok(names.get(&id).map_or_else(|| "unknown".into(), Arc::clone))
    }
}

/// Whether some of these messages wait for limits.
pub(crate) fn have_limits<'m>(messages: impl Iterator<Item = &'m Message>) -> bool {
    messages.filter_map(|message| message.put.birth.as_ref()).any(|birth| !birth.limits.is_empty())
}

/// What a receiver is told of a dead letter. Members may be added, none changes its meaning.
fn payload(job: &Job, run: &Run, report: Option<&Report>, tenant: &str) -> String {
    let mut told = end_of(job, run, report, tenant);
    told["kind"] = "dead_letter".into();
    told["output"] = report.and_then(|report| report.output.as_ref()).map(output).into();
    // What was sent goes as it was written, which a value would not keep.
    let sent = run.payload.as_deref().or(job.spec.payload.as_deref());
    with_member(&told, "payload", sent.unwrap_or("null"))
}

/// What a linked run is told of the end that it follows; its job's own payload is added when it is made. Members may be added, none
/// changes its meaning.
fn linked_payload(link: &Link, job: &Job, run: &Run, report: Option<&Report>, tenant: &str) -> String {
    let mut told = end_of(job, run, report, tenant);
    told["kind"] = "link".into();
    told["on"] = link.on.as_str().into();
    let output = report.and_then(|report| report.output.as_ref());
    told["output_is_truncated"] = output.is_some_and(|output| output.is_truncated).into();
    // JSON goes on as it was written; everything else is text.
    let text = output.map(|output| String::from_utf8_lossy(&output.bytes));
    let output = match text {
        None => "null".into(),
        Some(text) => match serde_json::from_str::<&RawValue>(&text) {
            Ok(value) => value.get().to_string(),
            Err(_) => Value::from(&*text).to_string(),
        },
    };
    with_member(&told, "output", &output)
}

/// An object with one more member, as it was written.
fn with_member(object: &Value, name: &str, text: &str) -> String {
    let mut object = object.to_string();
    object.pop();
    format!("{object},\"{name}\":{text}}}")
}

/// The end of a run, for whoever is told of it.
fn end_of(job: &Job, run: &Run, report: Option<&Report>, tenant: &str) -> Value {
    let error = report.and_then(|report| report.error.as_ref());
    json!({
        "run": {
            "id": run.id().to_string(),
            "state": run.state.as_str(),
            "reason": run.reason.map(Limit::as_str),
            "cause": run.cause.as_str(),
            "scheduled_for": run.scheduled_for.to_string(),
            "finished_at": run.finished_at.map(|at| at.to_string()),
            "attempts": run.attempt,
            "idempotency_key": run.idempotency_key().to_string(),
            "correlation_id": run.correlation_id.as_deref(),
        },
        "job": {
            "id": job.id.to_string(),
            "name": job.spec.name,
            "key": job.spec.key,
            "type": job.spec.kind,
            "labels": job.spec.labels,
            "tenant": tenant,
            "version": job.version.0,
        },
        "outcome": report.map(|report| report.outcome.as_str()),
        "status": report.and_then(|report| report.status),
        "error": error.map(|error| json!({ "code": error.code, "message": error.message })),
    })
}

fn output(output: &Output) -> Value {
    json!({ "text": String::from_utf8_lossy(&output.bytes), "is_truncated": output.is_truncated })
}

/// Where an alarm is told, and what is sent there.
fn delivery(alert: &Alert, alarm: &Alarm, step: Step, tenant: &str) -> (Target, Value) {
    let post = |url: &str| {
        Target::Http(Http { url: url.into(), method: Method::Post, headers: Vec::new(), tls: None })
    };
    let text = text(alert, alarm, step);
    match &alert.to {
        To::Webhook { url } => (post(url), told(alarm, step, tenant, &text)),
        To::Slack { url } => (post(url), json!({ "text": text })),
        To::Mail { to } => {
            let subject = format!("[punctual] {} {}: {}", state(alarm, step), alert.name, alarm.name);
            let subject: String = subject.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            (
                Target::Function { name: alert::MAIL.into() },
                json!({ "to": to, "subject": subject, "text": text }),
            )
        }
    }
}

/// Which message about an alarm it is.
fn state(alarm: &Alarm, step: Step) -> &'static str {
    match step {
        Step::TellOver => "over",
        Step::Tell | Step::Wait(_) if alarm.told == 0 => "raised",
        Step::Tell | Step::Wait(_) => "repeated",
    }
}

/// What a webhook is told of an alarm. Members may be added, none changes its meaning.
fn told(alarm: &Alarm, step: Step, tenant: &str, text: &str) -> Value {
    let subject = match &alarm.subject {
        Subject::Job(job) => json!({ "job": { "id": job.to_string(), "name": alarm.name } }),
        Subject::Breaker(name) => json!({ "breaker": name }),
        Subject::Rest => json!({ "rest": true }),
    };
    json!({
        "kind": "alarm",
        "state": state(alarm, step),
        "alert": alarm.alert,
        "tenant": tenant,
        "on": alarm.on,
        "subject": subject,
        "since": alarm.since.to_string(),
        "last_at": alarm.last_at.to_string(),
        "over_at": alarm.over_at.map(|at| at.to_string()),
        "count": alarm.count,
        "detail": alarm.detail,
        "text": text,
    })
}

/// An alarm in a line, for people.
fn text(alert: &Alert, alarm: &Alarm, step: Step) -> String {
    let what = match alert.on {
        On::DeadLetter => "dead letters",
        On::BreakerOpen => "breaker open",
        On::Missed => "missed slots",
        On::Late { .. } => "late runs",
        On::Silent { .. } => "silence",
    };
    let of = match &alarm.subject {
        Subject::Job(job) if alarm.name.is_empty() => format!("job {job}"),
        Subject::Job(job) => format!("job {} ({job})", alarm.name),
        Subject::Breaker(name) => name.clone(),
        Subject::Rest => "and more jobs".into(),
    };
    let times = if alarm.count == 1 { "once".to_string() } else { format!("{} times", alarm.count) };
    match state(alarm, step) {
        "raised" => format!("{}: {what} of {of}: {}", alert.name, alarm.detail),
        "repeated" => {
            format!("{}: still {what} of {of}, {times} since {}: {}", alert.name, alarm.since, alarm.detail)
        }
        _ => format!("{}: over: {what} of {of}, {times} since {}", alert.name, alarm.since),
    }
}
