//! A job's body from flags, a file, or a file with flags over it.
//!
//! What is in a file goes to the server as it is written, member by member, so that the server judges it: it names
//! every wrong field at once.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use clap::Args;
use punctual_api::job::{Job, JobSpec};
use punctual_api::link::Link;
use punctual_api::parts::Parts;
use punctual_api::policies::{CatchUp, Overlap};
use punctual_api::retry::{self, Retry};
use punctual_api::schedule::{KINDS, Schedule};
use punctual_api::target::{Discard, Function, Headers, Http, Target, Worker};
use punctual_api::{Duration, Payload};
use punctual_client::{Answer, Client, JobRef};
use serde_json::value::{RawValue, to_raw_value};

use super::{limits, retention, sharing};
use crate::commands::dead_letter::time;
use crate::document::{Value, yaml};
use crate::failure::Failure;

/// A job on the command line. What is not given has its default, or stays as it is.
#[derive(Args, Default)]
pub(crate) struct Flags {
    /// A cron expression of 5, 6 or 7 fields, or a nickname such as @daily
    #[arg(long, group = "when", value_name = "EXPRESSION", help_heading = "When")]
    cron: Option<String>,
    /// At a fixed period: 5s, 1h30m or PT5S
    #[arg(long, group = "when", value_name = "PERIOD", help_heading = "When")]
    every: Option<String>,
    /// Once, at a time: 2026-12-24T18:00:00Z or epoch seconds
    #[arg(long, group = "when", value_name = "TIME", help_heading = "When")]
    at: Option<String>,
    /// Once, so long after it is registered: 30s or PT30S
    #[arg(long, group = "when", value_name = "PERIOD", help_heading = "When")]
    after: Option<String>,
    /// Once, when it is registered
    #[arg(long, group = "when", help_heading = "When")]
    now: bool,
    /// An ISO 8601 repeating interval: R5/2026-12-01T00:00:00Z/P1D
    #[arg(long, group = "when", value_name = "INTERVAL", help_heading = "When")]
    interval: Option<String>,
    /// Time zone: an IANA name such as Europe/Paris, or an offset [default: UTC]
    #[arg(long = "tz", value_name = "ZONE", allow_hyphen_values = true, help_heading = "When")]
    timezone: Option<String>,
    /// With --every: count from the end of the last run
    #[arg(long, requires = "every", help_heading = "When")]
    from_completion: bool,
    /// No slot before
    #[arg(long, value_name = "TIME", help_heading = "When")]
    start: Option<String>,
    /// No slot after
    #[arg(long, value_name = "TIME", help_heading = "When")]
    end: Option<String>,
    /// At most so many fires
    #[arg(long, value_name = "N", help_heading = "When")]
    max_fires: Option<u64>,
    /// Start up to so much after each slot, always the same for a job
    #[arg(long, value_name = "PERIOD", help_heading = "When")]
    spread: Option<Duration>,
    /// A calendar that must allow a slot; may be repeated
    #[arg(long = "calendar", value_name = "NAME", help_heading = "When")]
    calendars: Vec<String>,
    /// A slot that a calendar excludes: skip, next or previous [default: skip]
    #[arg(long, value_name = "POLICY", help_heading = "When")]
    on_excluded: Option<String>,

    /// Call this URL
    #[arg(long, group = "where", value_name = "URL", help_heading = "Where")]
    url: Option<String>,
    /// POST, PUT, PATCH, GET or DELETE [default: POST]
    #[arg(long, value_name = "METHOD", help_heading = "Where")]
    method: Option<String>,
    /// Send this header; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header, help_heading = "Where")]
    headers: Vec<(String, String)>,
    /// Leave it to a worker that asks for runs of the queue: what it calls what is to be done
    #[arg(long, group = "where", value_name = "NAME", help_heading = "Where")]
    handler: Option<String>,
    /// Call a handler of the program that uses Punctual as a library
    #[arg(long, group = "where", value_name = "NAME", help_heading = "Where")]
    function: Option<String>,
    /// Succeed at once
    #[arg(long, group = "where", help_heading = "Where")]
    discard: bool,
    /// Tell this URL of every run that becomes a dead letter; `off` tells nobody
    #[arg(long, value_name = "URL", help_heading = "Where")]
    dead_letter_url: Option<String>,
    /// Trigger this job when a run succeeds, with its output: its id or key; may be repeated, `off` takes all links away
    #[arg(long, value_name = "JOB", help_heading = "Where")]
    on_success: Vec<String>,
    /// The same when a run is a dead letter
    #[arg(long, value_name = "JOB", help_heading = "Where")]
    on_failure: Vec<String>,
    /// The same in either case
    #[arg(long, value_name = "JOB", help_heading = "Where")]
    on_finish: Vec<String>,
    /// What is sent: JSON, or @FILE
    #[arg(long, value_name = "JSON", help_heading = "Where")]
    payload: Option<String>,

    /// How many attempts count, the first one included [default: 3]
    #[arg(long, value_name = "N", help_heading = "Policies")]
    max_attempts: Option<u32>,
    /// The delay after the first failure [default: 1s]
    #[arg(long, value_name = "PERIOD", help_heading = "Policies")]
    retry_base: Option<Duration>,
    /// The longest delay [default: 5m]
    #[arg(long, value_name = "PERIOD", help_heading = "Policies")]
    retry_cap: Option<Duration>,
    #[command(flatten)]
    limits: limits::Flags,
    #[command(flatten)]
    sharing: sharing::Flags,
    /// How long an attempt may take [default: 5m]
    #[arg(long, value_name = "PERIOD", help_heading = "Policies")]
    timeout: Option<Duration>,
    /// Slots reached too late: latest, none or all [default: latest]
    #[arg(long, value_name = "POLICY", help_heading = "Policies")]
    catch_up: Option<String>,
    /// While a run is open: allow, skip, queue_one, queue_all or cancel_running [default: allow]
    #[arg(long, value_name = "POLICY", help_heading = "Policies")]
    overlap: Option<String>,
    /// With --overlap queue_all: how many runs wait at most [default: 100]
    #[arg(long, value_name = "N", help_heading = "Policies")]
    overlap_max: Option<u32>,
    /// An attempt of which nobody knows whether it did its work: retry, skip or ask [default: retry]
    #[arg(long, value_name = "POLICY", help_heading = "Policies")]
    on_unknown: Option<String>,
    /// When a call is over: answer, or token: its receiver reports later [default: answer]
    #[arg(long, value_name = "HOW", help_heading = "Policies")]
    completion: Option<String>,
    /// With --completion token: how often the receiver must be heard of [default: within --timeout]
    #[arg(long, value_name = "PERIOD", help_heading = "Policies")]
    heartbeat: Option<Duration>,
    #[command(flatten)]
    retention: retention::Flags,

    /// Who executes: workers that serve this queue
    #[arg(long, value_name = "QUEUE", help_heading = "Order")]
    queue: Option<String>,
    /// A label that the worker must have; may be repeated
    #[arg(long = "require", value_name = "NAME=VALUE", value_parser = label, help_heading = "Order")]
    requires: Vec<(String, String)>,
    /// Each slot becomes so many runs, or one for each worker with `broadcast`
    #[arg(long, value_name = "N|broadcast", help_heading = "Order")]
    parts: Option<Parts>,
    /// critical, standard or batch
    #[arg(long, value_name = "LANE", help_heading = "Order")]
    lane: Option<String>,
    /// Inside tenant and lane, higher first
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Order")]
    priority: Option<i16>,
    /// Groups jobs
    #[arg(long, value_name = "TYPE", help_heading = "Order")]
    r#type: Option<String>,
    /// For filters; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label, help_heading = "Order")]
    labels: Vec<(String, String)>,
    /// Follows every run through logs and callbacks
    #[arg(long, value_name = "ID", help_heading = "Order")]
    correlation_id: Option<String>,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as `Name: value`")?;
    Ok((name.trim().into(), value.trim().into()))
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as `name=value`")?;
    Ok((name.into(), value.into()))
}

/// The members of an object, each as it is written.
pub(super) type Members = BTreeMap<String, Box<RawValue>>;

impl Flags {
    /// What the flags say, as members of a job.
    pub(super) fn over(&self, name: Option<String>, key: Option<String>) -> Result<Members, Failure> {
        let spec = JobSpec {
            name,
            key,
            r#type: self.r#type.clone(),
            labels: (!self.labels.is_empty()).then(|| self.labels.iter().cloned().collect()),
            queue: self.queue.clone(),
            requires: (!self.requires.is_empty()).then(|| self.requires.iter().cloned().collect()),
            parts: self.parts.clone(),
            lane: self.lane.clone(),
            priority: self.priority,
            schedule: Some(self.schedule()).filter(|schedule| *schedule != Schedule::default()),
            target: Some(self.target()).filter(|target| *target != Target::default()),
            payload: self.payload.as_deref().map(payload).transpose()?,
            catch_up: self
                .catch_up
                .clone()
                .map(|policy| CatchUp { policy: Some(policy), ..CatchUp::default() }),
            overlap: overlap(self.overlap.as_deref(), self.overlap_max),
            timeout: self.timeout,
            on_unknown: self.on_unknown.clone(),
            completion: self.completion.clone(),
            heartbeat: self.heartbeat,
            correlation_id: self.correlation_id.clone(),
            ..JobSpec::default()
        };
        let mut over = members(&to_raw_value(&spec).context("write the job")?)?;
        over.extend(self.limits.over(Retry {
            max_attempts: self.max_attempts,
            base: self.retry_base,
            cap: self.retry_cap,
            ..Retry::default()
        })?);
        over.extend(self.sharing.over()?);
        let told = match self.dead_letter_url.as_deref() {
            Some("off") => Some(to_raw_value(&()).context("write the job")?),
            Some(url) => Some(to_raw_value(&Target::http(url)).context("write the job")?),
            None => None,
        };
        over.extend(told.map(|target| ("dead_letter_target".to_string(), target)));
        over.extend(self.links()?.map(|links| ("links".to_string(), links)));
        over.extend(self.retention.over()?);
        Ok(over)
    }

    /// All links of the job, if flags name any.
    fn links(&self) -> Result<Option<Box<RawValue>>, Failure> {
        let named =
            [("succeeded", &self.on_success), ("failed", &self.on_failure), ("finished", &self.on_finish)];
        let links: Vec<Link> = named
            .into_iter()
            .flat_map(|(on, jobs)| jobs.iter().filter(|job| *job != "off").map(move |job| (on, job)))
            .map(|(on, job)| Link::new(on, job.strip_prefix("key:").unwrap_or(job)))
            .collect();
        let is_off = named.iter().any(|(_, jobs)| jobs.iter().any(|job| job == "off"));
        let written = match (links.is_empty(), is_off) {
            (true, false) => return Ok(None),
            (true, true) => to_raw_value(&()),
            (false, false) => to_raw_value(&links),
            (false, true) => {
                return Err(Failure::Input("`off` takes all links away; name no other beside it".into()));
            }
        };
        Ok(Some(written.context("write the job")?))
    }

    fn schedule(&self) -> Schedule {
        Schedule {
            now: self.now.then_some(true),
            at: self.at.as_deref().map(time),
            after: self.after.clone(),
            every: self.every.clone(),
            from: self.from_completion.then(|| "completion".into()),
            interval: self.interval.clone(),
            cron: self.cron.clone(),
            timezone: self.timezone.clone(),
            start: self.start.as_deref().map(time),
            end: self.end.as_deref().map(time),
            max_fires: self.max_fires,
            spread: self.spread,
            calendars: (!self.calendars.is_empty()).then(|| self.calendars.clone()),
            on_excluded: self.on_excluded.clone(),
            ..Schedule::default()
        }
    }

    fn target(&self) -> Target {
        let headers = (!self.headers.is_empty()).then(|| Headers(self.headers.clone()));
        let http = Http { url: self.url.clone(), method: self.method.clone(), headers, tls: None };
        Target {
            http: Some(http).filter(|http| *http != Http::default()),
            worker: self.handler.clone().map(|handler| Worker { handler: Some(handler) }),
            function: self.function.clone().map(|name| Function { name: Some(name) }),
            discard: self.discard.then_some(Discard {}),
        }
    }
}

/// What flags say about overlap, if they do.
pub(super) fn overlap(policy: Option<&str>, max: Option<u32>) -> Option<Overlap> {
    let overlap = Overlap { policy: policy.map(Into::into), max };
    Some(overlap).filter(|overlap| *overlap != Overlap::default())
}

pub(super) fn payload(text: &str) -> Result<Payload, Failure> {
    let text = match text.strip_prefix('@') {
        Some(file) => read(Path::new(file))?,
        None => text.to_string(),
    };
    let wrong = serde_json::from_str::<&RawValue>(&text).err();
    match (Payload::new(text.trim()), wrong) {
        (Some(payload), None) => Ok(payload),
        (_, error) => {
            let reason = error.map(|error| format!(": {error}")).unwrap_or_default();
            Err(Failure::Input(format!(
                "--payload is not JSON{reason}; text is written in double quotes, as '\"text\"'"
            )))
        }
    }
}

/// The text of a file, or of standard input for `-`.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let read = match path.as_os_str() == "-" {
        true => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        }
        false => std::fs::read_to_string(path),
    };
    read.map_err(|error| Failure::Input(format!("cannot read {}: {error}", path.display())))
}

pub(super) fn members(text: &RawValue) -> Result<Members, Failure> {
    serde_json::from_str(text.get())
        .map_err(|error| Failure::Input(format!("a job is one JSON object: {error}")))
}

/// The body in a file: JSON as it is written, or YAML.
pub(crate) fn read_json(path: &Path) -> Result<Box<RawValue>, Failure> {
    let text = read(path)?;
    let wrong = |reason: String| Failure::Input(format!("{} {reason}", path.display()));
    match serde_json::from_str(&text) {
        Ok(body) => Ok(body),
        Err(error) if text.trim_start().starts_with(['{', '[', '"']) || is_json(path) => {
            Err(wrong(format!("is not JSON: {error}")))
        }
        Err(_) => {
            let documents = yaml::read_all(&text);
            let documents =
                documents.map_err(|unread| wrong(format!("line {}: {}", unread.line, unread.reason)))?;
            match documents.as_slice() {
                [one] if matches!(one.value, Value::Map(_)) => {
                    RawValue::from_string(one.to_json()).map_err(|error| wrong(error.to_string()))
                }
                _ => Err(wrong("is not one object, in JSON or in YAML".into())),
            }
        }
    }
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "json")
}

/// The body of a new job.
pub(super) fn body(file: Option<&Path>, flags: Members) -> Result<Box<RawValue>, Failure> {
    match file {
        // As it is written: it may be wrong in ways that only the whole text shows.
        Some(path) if flags.is_empty() => read_json(path),
        Some(path) => written(&overlaid(members(&read_json(path)?)?, flags)?),
        None => written(&flags),
    }
}

fn written(members: &Members) -> Result<Box<RawValue>, Failure> {
    Ok(to_raw_value(members).context("write the job")?)
}

/// A job with other members. Inside objects only the members that are named change, except that another kind of
/// schedule, target or backoff takes the place of the old one, and a payload is always replaced.
fn overlaid(mut base: Members, over: Members) -> Result<Members, Failure> {
    for (name, value) in over {
        let merged = match (name.as_str(), base.get(&name)) {
            ("payload", _) | (_, None) => value,
            (_, Some(old)) if !old.get().starts_with('{') || !value.get().starts_with('{') => value,
            (part, Some(old)) => {
                let (mut old, new) = (members(old)?, members(&value)?);
                if part == "retry" {
                    let backoff = |of: &Members| -> Option<String> {
                        serde_json::from_str(of.get("backoff")?.get()).ok()
                    };
                    let (was, becomes) = (backoff(&old), backoff(&new));
                    let has_delays = new.contains_key("delays");
                    let ended = retry::ended_by(was.as_deref(), becomes.as_deref(), has_delays);
                    old.retain(|name, _| !ended.contains(&name.as_str()));
                }
                let is_other = match part {
                    "schedule" => KINDS.iter().any(|kind| new.contains_key(*kind)),
                    "target" | "dead_letter_target" => new.keys().any(|kind| !old.contains_key(kind)),
                    _ => false,
                };
                match (is_other, part) {
                    (false, _) => written(&overlaid(old, new)?)?,
                    (true, "schedule") => written(&of_other_kind(old, new)?)?,
                    (true, _) => value,
                }
            }
        };
        base.insert(name, merged);
    }
    Ok(base)
}

/// Another kind of schedule keeps what bounds the old one, and its time zone.
fn of_other_kind(mut old: Members, new: Members) -> Result<Members, Failure> {
    for member in KINDS.iter().chain(&["from", "anchor", "phase", "dialect"]) {
        old.remove(*member);
    }
    overlaid(old, new)
}

/// A change of a job.
pub(super) struct Change<'a> {
    pub(super) file: Option<&'a Path>,
    pub(super) is_patch: bool,
    pub(super) version: Option<u32>,
    pub(super) is_forced: bool,
    pub(super) flags: Members,
}

impl Change<'_> {
    pub(super) async fn apply(self, job: &JobRef, client: &Client) -> Result<Answer<Job>, Failure> {
        let Some(path) = self.file else {
            if self.flags.is_empty() {
                return Err(Failure::Input("nothing to change: give flags or a file".into()));
            }
            let old = client.job(job).await?;
            let version = self.version(Some(old.status.version));
            let old_body: Box<RawValue> = serde_json::from_str(old.text()).context("read the job")?;
            let body = written(&overlaid(members(&old_body)?, self.flags)?)?;
            return Ok(client.replace_job(&old.status.id, &*body, version).await?);
        };
        let text = read_json(path)?;
        let id = client.job_id(job).await?;
        if self.is_patch {
            if !self.flags.is_empty() {
                return Err(Failure::Input(
                    "a merge patch takes no flags besides; write them into it".into(),
                ));
            }
            return Ok(client.patch_job(&id, &*text, self.version(None)).await?);
        }
        let body = members(&text)?;
        // What was read, edited and is written back must not undo another's change.
        let read_as = body.get("version").and_then(|version| serde_json::from_str(version.get()).ok());
        let version = self.version(read_as);
        let body = match self.flags.is_empty() {
            true => text,
            false => written(&overlaid(body, self.flags)?)?,
        };
        Ok(client.replace_job(&id, &*body, version).await?)
    }

    fn version(&self, read: Option<u32>) -> Option<u32> {
        self.version.or(read).filter(|_| !self.is_forced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(base: &str, over: &str, expected: &str) {
        let parse = |text: &str| -> Members { serde_json::from_str(text).expect("an object") };
        let merged = overlaid(parse(base), parse(over)).expect("a job");
        assert_eq!(serde_json::to_string(&merged).expect("JSON"), expected, "{base} with {over}");
    }

    #[test]
    fn flags_change_what_they_name() {
        check(r#"{"name":"a","queue":"q"}"#, r#"{"name":"b"}"#, r#"{"name":"b","queue":"q"}"#);
        check(
            r#"{"retry":{"max_attempts":3,"cap":"PT5M"}}"#,
            r#"{"retry":{"max_attempts":5}}"#,
            r#"{"retry":{"cap":"PT5M","max_attempts":5}}"#,
        );
    }

    #[test]
    fn another_kind_takes_the_place_of_the_old_one() {
        check(
            r#"{"schedule":{"every":"PT5S","from":"completion","timezone":"Europe/Paris"}}"#,
            r#"{"schedule":{"cron":"0 2 * * *"}}"#,
            r#"{"schedule":{"cron":"0 2 * * *","timezone":"Europe/Paris"}}"#,
        );
        check(
            r#"{"schedule":{"cron":"0 2 * * *","timezone":"UTC"}}"#,
            r#"{"schedule":{"timezone":"Europe/Paris"}}"#,
            r#"{"schedule":{"cron":"0 2 * * *","timezone":"Europe/Paris"}}"#,
        );
        check(
            r#"{"retry":{"backoff":"exponential","base":"PT1S","cap":"PT5M","max_attempts":3,"retry_for":"PT2H"}}"#,
            r#"{"retry":{"backoff":"list","delays":["PT1S"],"retry_for":null}}"#,
            r#"{"retry":{"backoff":"list","delays":["PT1S"],"retry_for":null}}"#,
        );
        check(
            r#"{"target":{"http":{"url":"u"}}}"#,
            r#"{"target":{"discard":{}}}"#,
            r#"{"target":{"discard":{}}}"#,
        );
        check(
            r#"{"target":{"http":{"url":"u","method":"PUT"}}}"#,
            r#"{"target":{"http":{"url":"v"}}}"#,
            r#"{"target":{"http":{"method":"PUT","url":"v"}}}"#,
        );
    }

    #[test]
    fn a_payload_is_replaced_as_it_is_written() {
        check(r#"{"payload":{"a":1}}"#, r#"{"payload":{"b": 2.50}}"#, r#"{"payload":{"b": 2.50}}"#);
    }
}
