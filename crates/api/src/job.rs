//! Jobs on the wire: what a user sends, and what is shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::job::{self as domain, DEFAULT_QUEUE, JobState, Lane, Spec};
use punctual_domain::labels::{self, Labels};
use punctual_domain::link as domain_link;
use punctual_domain::message;
use punctual_domain::parts as domain_parts;
use punctual_domain::policy::Policies;
use punctual_domain::policy::catch_up::CatchUp as DomainCatchUp;
use punctual_domain::policy::completion::Completion;
use punctual_domain::policy::overlap::Overlap as DomainOverlap;
use punctual_domain::policy::timeouts::Timeouts;
use punctual_domain::policy::unknown::OnUnknown;
use punctual_schedule::Kind;
use punctual_schedule::every::Origin;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::breaker::JobBreaker;
use crate::duration::Duration;
use crate::limit::{Concurrency, RateLimit};
use crate::limits::{LABEL_MAX, LABELS_MAX, NAME_MAX, WORD_MAX};
use crate::link::{self, Link};
use crate::parts::Parts;
use crate::payload::Payload;
use crate::policies::{CatchUp, Overlap, Retention};
use crate::read::{At, Errors, Rules, Unread, checked, one_of};
use crate::retry::Retry;
use crate::schedule::Schedule;
use crate::target::{Target, required};
use crate::time::Time;

object! {
    /// A job as its owner asks for it.
    pub struct JobSpec {
        /// Free text for people; the key, unless said otherwise.
        #[schema(example = "nightly")]
        pub name: String,
        /// Chosen by the client, unique in the tenant.
        pub key: String,
        /// Groups jobs, for filters, limits and metrics.
        pub r#type: String,
        /// For filters.
        pub labels: BTreeMap<String, String>,
        /// Who executes: workers that serve this queue; `default`.
        pub queue: String,
        /// Labels that the worker must have, each exactly; none. A run waits until a worker has them all.
        pub requires: BTreeMap<String, String>,
        /// How each slot becomes several runs: `{"count": n}`, or `"broadcast"`; it becomes one, unless said otherwise.
        pub parts: Parts,
        /// `critical`, `standard` (the default) or `batch`.
        pub lane: String,
        /// Inside tenant and lane, higher first; 0.
        pub priority: i16,
        /// When.
        #[schema(required = true)]
        pub schedule: Schedule,
        /// Where.
        #[schema(required = true)]
        pub target: Target,
        /// Where it is told that a run is a dead letter; nowhere, unless said otherwise.
        pub dead_letter_target: Target,
        /// Other jobs that are triggered when a run ends, and get its output; none, unless said otherwise.
        pub links: Vec<Link>,
        /// What is sent: any JSON, passed on as it is written.
        pub payload: Payload,
        /// When a failed attempt is followed by another.
        pub retry: Retry,
        /// What happens to slots that are reached too late.
        pub catch_up: CatchUp,
        /// What happens when a run is to be made while others of the job are open.
        pub overlap: Overlap,
        /// How many runs may go on at once; as many as there are, unless said otherwise.
        pub concurrency: Concurrency,
        /// How fast attempts may start; at once, unless said otherwise.
        pub rate: RateLimit,
        /// When the job is left alone because it fails again and again; never, unless said otherwise.
        pub breaker: JobBreaker,
        /// How long after its slot and spread a run may start; after that it is `missed`. No limit, unless said otherwise.
        pub start_window: Duration,
        /// How long an attempt may take; `PT5M`.
        pub timeout: Duration,
        /// How long after its slot all of a run may take: no attempt goes on after that, and the run is `timed_out`. No
        /// limit, unless said otherwise.
        pub deadline: Duration,
        /// A success that took less than this is told by a warning. Off, unless said otherwise.
        pub min_duration: Duration,
        /// What follows an attempt of which nobody knows whether it did its work: its worker is gone, or its request broke off in the
        /// middle. `retry` (the default): it is tried again; `skip`: it is not, and the run is `failed`; `ask`: the run waits until
        /// somebody answers.
        #[schema(example = "retry")]
        pub on_unknown: String,
        /// When a call is over. `answer` (the default): with its answer; `token`: a 2xx means that the receiver has begun, and it reports
        /// what came of it under the token that the call has in `Punctual-Completion-Token`. For `http` targets.
        #[schema(example = "answer")]
        pub completion: String,
        /// With `completion` `token`: how often the receiver must be heard of, 1 second to 24 hours. Within `timeout`, unless said otherwise.
        pub heartbeat: Duration,
        /// What is kept of its runs, and how long.
        pub retention: Retention,
        /// Follows every run through logs and callbacks.
        pub correlation_id: String,
    }

    /// Why a job is paused.
    pub struct Pause {
        /// In the words of whoever pauses it.
        pub reason: String,
        /// Who pauses it.
        pub by: String,
        /// When it resumes by itself; not before it is resumed, unless said otherwise.
        pub until: Time,
    }

    /// A run outside the schedule.
    pub struct Trigger {
        /// Follows the run through logs and callbacks; the job's, unless said otherwise.
        pub correlation_id: String,
        /// What is sent: any JSON, passed on as it is written; the job's, unless said otherwise.
        pub payload: Payload,
    }
}

/// What the server decides about a job. A body that was read from it may contain them; they are passed over.
pub const SERVER_MEMBERS: [&str; 11] = [
    "id",
    "tenant",
    "version",
    "state",
    "next_fire_at",
    "last_run",
    "paused",
    "warnings",
    "batch_items",
    "created_at",
    "updated_at",
];

const ON_UNKNOWN: [(&str, OnUnknown); 3] =
    [("retry", OnUnknown::Retry), ("skip", OnUnknown::Skip), ("ask", OnUnknown::Ask)];

const LANES: [(&str, Lane); 3] =
    [("critical", Lane::Critical), ("standard", Lane::Standard), ("batch", Lane::Batch)];

/// Whether a body is for a new job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A new job: what the server decides is refused, because it would be ignored.
    Create,
    /// A change of what was read: what the server decides is passed over.
    Change,
}

/// Reads the body of a job, with every wrong field at once.
pub fn read_job(text: &str, purpose: Purpose, rules: &Rules<'_>) -> Result<Spec, Unread> {
    let text = checked(text)?;
    let mut errors = Errors::default();
    match read_at(text, purpose, rules, &At::ROOT, &mut errors) {
        Some(spec) if errors.is_empty() => Ok(spec),
        _ => Err(Unread::Wrong(errors.into_vec())),
    }
}

/// The texts of the jobs in a list, each to be read for itself.
pub fn split_jobs(text: &str) -> Result<Vec<&str>, Unread> {
    let text = checked(text)?;
    let mut errors = Errors::default();
    crate::read::items(text, &At::ROOT, &mut errors).ok_or_else(|| Unread::Wrong(errors.into_vec()))
}

fn read_at(
    text: &str,
    purpose: Purpose,
    rules: &Rules<'_>,
    at: &At<'_>,
    errors: &mut Errors,
) -> Option<Spec> {
    let passed_over: &[&str] = match purpose {
        Purpose::Create => &[],
        Purpose::Change => &SERVER_MEMBERS,
    };
    let spec = JobSpec::read_except(text, passed_over, at, errors)?;
    for member in SERVER_MEMBERS {
        let detail = || format!("`{member}` is decided by the server; leave it out");
        errors.relabel(&at.member(member), "unknown_field", "read_only_field", detail);
    }
    spec.to_domain(at, rules, errors)
}

impl JobSpec {
    /// A job with the defaults in every other respect.
    pub fn new(name: impl Into<String>, schedule: Schedule, target: Target) -> Self {
        JobSpec {
            name: Some(name.into()),
            schedule: Some(schedule),
            target: Some(target),
            ..JobSpec::default()
        }
    }

    /// As the domain has it, or everything that is wrong.
    pub fn to_spec(&self, rules: &Rules<'_>) -> Result<Spec, Vec<crate::FieldError>> {
        let mut errors = Errors::default();
        match self.to_domain(&At::ROOT, rules, &mut errors) {
            Some(spec) if errors.is_empty() => Ok(spec),
            _ => Err(errors.into_vec()),
        }
    }

    pub(crate) fn to_domain(&self, at: &At<'_>, rules: &Rules<'_>, errors: &mut Errors) -> Option<Spec> {
        if self.name.as_ref().is_some_and(|name| name.chars().count() > NAME_MAX) {
            errors.add(&at.member("name"), "too_long", format!("a name has at most {NAME_MAX} characters"));
        }
        for (member, word) in [
            ("key", &self.key),
            ("type", &self.r#type),
            ("queue", &self.queue),
            ("correlation_id", &self.correlation_id),
        ] {
            check_word(word.as_ref(), &at.member(member), WORD_MAX, errors);
        }
        if message::is_reserved(self.r#type.as_deref()) {
            let detail =
                format!("types that begin with `{}` are the system's own; take another", message::RESERVED);
            errors.add(&at.member("type"), "reserved", detail);
        }
        if self.queue.as_deref() == Some(domain_link::QUEUE) {
            let detail = format!("the queue `{}` is the system's own; take another", domain_link::QUEUE);
            errors.add(&at.member("queue"), "reserved", detail);
        }
        check_labels(self.labels.as_ref(), &at.member("labels"), errors);
        let requires = requirements(self.requires.as_ref(), &at.member("requires"), errors);
        let parts = self.parts.as_ref().and_then(|parts| parts.to_domain(&at.member("parts"), errors));
        let lane = match &self.lane {
            Some(word) => one_of(word, &LANES, &at.member("lane"), errors),
            None => Some(Lane::default()),
        };
        if let Some(payload) = &self.payload {
            payload.check(rules.payload_max, &at.member("payload"), errors);
        }
        let links = link::to_domain(self.links.as_deref().unwrap_or_default(), &at.member("links"), errors);
        let policies = self.policies(at, errors);
        let schedule = required(self.schedule.as_ref(), at, "schedule", errors)
            .and_then(|schedule| schedule.to_domain(&at.member("schedule"), rules, errors));
        let target = required(self.target.as_ref(), at, "target", errors)
            .and_then(|target| target.to_domain(&at.member("target"), errors));
        let dead_letter_target = self
            .dead_letter_target
            .as_ref()
            .and_then(|target| target.to_domain(&at.member("dead_letter_target"), errors));
        if let (Some(parts), Some(schedule), Some(target)) = (parts, &schedule, &target) {
            check_parts(parts, &policies, schedule, target, at, errors);
        }
        if policies.completion.is_by_token()
            && target.as_ref().is_some_and(|target| !matches!(target, domain::Target::Http(_)))
        {
            let detail = "a token goes with a call; give it the target `http`, or leave `completion` out";
            errors.add(&at.member("completion"), "conflict", detail);
        }
        if let (Some(check), true) = (rules.check_target, errors.is_empty()) {
            for (member, target) in [("target", &target), ("dead_letter_target", &dead_letter_target)] {
                if let Some((target, Err(reason))) = target.as_ref().map(|target| (target, check(target))) {
                    let here = at.member(member);
                    errors.add(&here.member(target.as_str()), "target_refused", reason);
                }
            }
        }
        Some(Spec {
            name: self.name.clone().or_else(|| self.key.clone()).unwrap_or_default(),
            key: self.key.clone(),
            kind: self.r#type.clone(),
            labels: self.labels.clone().unwrap_or_default(),
            queue: self.queue.as_deref().unwrap_or(DEFAULT_QUEUE).into(),
            requires: requires?,
            parts,
            batch: None,
            lane: lane?,
            priority: self.priority.unwrap_or(0),
            schedule: schedule?,
            target: target?,
            dead_letter_target,
            links: links?,
            payload: self.payload.as_ref().map(|payload| payload.as_str().into()),
            policies,
            correlation_id: self.correlation_id.as_deref().map(Arc::from),
        })
    }

    fn policies(&self, at: &At<'_>, errors: &mut Errors) -> Policies {
        let default = Policies::default();
        Policies {
            catch_up: match &self.catch_up {
                Some(catch_up) => catch_up.to_domain(&at.member("catch_up"), errors),
                None => default.catch_up,
            },
            overlap: match &self.overlap {
                Some(overlap) => overlap.to_domain(&at.member("overlap"), errors),
                None => default.overlap,
            },
            retry: match &self.retry {
                Some(retry) => retry.to_domain(&at.member("retry"), errors),
                None => default.retry,
            },
            timeouts: self.timeouts(at, errors),
            on_unknown: match &self.on_unknown {
                Some(word) => one_of(word, &ON_UNKNOWN, &at.member("on_unknown"), errors).unwrap_or_default(),
                None => default.on_unknown,
            },
            completion: self.completion(at, errors),
            concurrency: self
                .concurrency
                .as_ref()
                .and_then(|concurrency| concurrency.to_domain(&at.member("concurrency"), errors)),
            rate: self.rate.as_ref().and_then(|rate| rate.to_domain(&at.member("rate"), errors)),
            breaker: self
                .breaker
                .as_ref()
                .and_then(|breaker| breaker.to_domain(&at.member("breaker"), errors)),
            retention: match &self.retention {
                Some(retention) => retention.to_domain(&at.member("retention"), errors),
                None => default.retention,
            },
        }
    }
}

impl JobSpec {
    fn completion(&self, at: &At<'_>, errors: &mut Errors) -> Completion {
        let token = Completion::Token { heartbeat: self.heartbeat.map(|heartbeat| heartbeat.0) };
        let words = [(Completion::WORDS[0], Completion::Answer), (Completion::WORDS[1], token)];
        let completion = match &self.completion {
            Some(word) => one_of(word, &words, &at.member("completion"), errors).unwrap_or_default(),
            None => Completion::Answer,
        };
        let Some(heartbeat) = self.heartbeat else { return completion };
        let here = at.member("heartbeat");
        if !completion.is_by_token() {
            let detail = "only receivers that report later are heard of; write `\"completion\": \"token\"`, or leave it out";
            errors.add(&here, "conflict", detail);
        }
        if !(HEARTBEAT_MIN..=TIMEOUT_MAX).contains(&heartbeat.0) {
            errors.add(&here, "out_of_range", "a receiver is heard of every `PT1S` to `PT24H`");
        }
        completion
    }

    fn timeouts(&self, at: &At<'_>, errors: &mut Errors) -> Timeouts {
        let length = |length: Option<Duration>| length.map(|length| length.0);
        let timeouts = Timeouts {
            start_window: length(self.start_window),
            attempt: length(self.timeout).unwrap_or(Timeouts::default().attempt),
            deadline: length(self.deadline),
            min_duration: length(self.min_duration),
        };
        if timeouts.attempt > TIMEOUT_MAX {
            let detail = "an attempt may take at most `PT24H`; report longer work in steps";
            errors.add(&at.member("timeout"), "out_of_range", detail);
        }
        let retry = at.member("retry");
        let retry_for = self.retry.as_ref().and_then(|retry| length(retry.retry_for));
        let spread = self.schedule.as_ref().and_then(|schedule| length(schedule.spread));
        if let Some(deadline) = timeouts.deadline {
            let limit = Duration(deadline);
            if timeouts.start_window.is_some_and(|window| window > deadline) {
                let detail =
                    format!("a run does not start after its `deadline` of `{limit}`; make it no longer");
                errors.add(&at.member("start_window"), "out_of_range", detail);
            }
            if retry_for.is_some_and(|retry_for| retry_for > deadline) {
                let detail = format!(
                    "no attempt starts after the `deadline` of `{limit}`; make it no longer, or leave it out"
                );
                errors.add(&retry.member("retry_for"), "out_of_range", detail);
            }
            if timeouts.min_duration.is_some_and(|least| least >= deadline) {
                let detail = format!("no run takes longer than its `deadline` of `{limit}`; make it shorter");
                errors.add(&at.member("min_duration"), "out_of_range", detail);
            }
        }
        if timeouts.min_duration.is_some_and(|least| least >= timeouts.attempt) {
            let limit = Duration(timeouts.attempt);
            let detail = format!("no attempt takes longer than its `timeout` of `{limit}`; make it shorter");
            errors.add(&at.member("min_duration"), "out_of_range", detail);
        }
        // These count from the slot, and a run may not begin before its spread is over.
        let of_slot = [(at.member("deadline"), timeouts.deadline), (retry.member("retry_for"), retry_for)];
        for (here, limit) in of_slot {
            if let Some(spread) = spread.filter(|spread| limit.is_some_and(|limit| limit <= *spread)) {
                let detail = format!(
                    "it counts from the slot, and runs begin up to `{}` after that by their `spread`; make it longer",
                    Duration(spread)
                );
                errors.add(&here, "out_of_range", detail);
            }
        }
        timeouts
    }
}

/// A longer attempt holds its lease for longer than anybody watches it.
const TIMEOUT_MAX: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// More often is a load on both sides that says nothing more.
const HEARTBEAT_MIN: std::time::Duration = std::time::Duration::from_secs(1);

/// Words go into headers, log lines and metric labels: printable ASCII.
pub(crate) fn check_word(word: Option<&String>, at: &At<'_>, most: usize, errors: &mut Errors) {
    let Some(word) = word else { return };
    if word.is_empty() || word.len() > most {
        errors.add(at, "too_long", format!("expected 1 to {most} characters, found {}", word.len()));
    } else if word.chars().any(|c| !('!'..='~').contains(&c)) {
        errors.add(at, "bad_character", "write printable ASCII without spaces");
    }
}

/// What cannot be had together with parts.
fn check_parts(
    parts: domain_parts::Parts,
    policies: &Policies,
    schedule: &punctual_schedule::Schedule,
    target: &domain::Target,
    at: &At<'_>,
    errors: &mut Errors,
) {
    if policies.overlap != DomainOverlap::Allow {
        let detail = "the parts of a slot run beside each other; leave `overlap` out, or `parts`";
        errors.add(&at.member("overlap"), "conflict", detail);
    }
    let from_completion =
        matches!(&schedule.kind, Kind::Every(every) if *every.origin() == Origin::Completion);
    if from_completion {
        let detail = "a period that counts from completion follows one run, not several; leave `parts` out";
        errors.add(&at.member("parts"), "conflict", detail);
    }
    if parts != domain_parts::Parts::Broadcast {
        return;
    }
    if !matches!(target, domain::Target::Worker { .. }) {
        let detail =
            "a broadcast is for workers that pull; give it the target `worker`, or `{\"count\": n}` parts";
        errors.add(&at.member("parts"), "conflict", detail);
    }
    if matches!(policies.catch_up, DomainCatchUp::All { .. }) {
        let detail = "a broadcast is for those who live when its slot comes; write `latest` or `none`";
        errors.add(&at.member("catch_up"), "conflict", detail);
    }
}

/// What is required of a worker, if all of it can be.
pub(crate) fn requirements(
    required: Option<&BTreeMap<String, String>>,
    at: &At<'_>,
    errors: &mut Errors,
) -> Option<Labels> {
    let Some(required) = required else { return Some(Labels::NONE) };
    let code = |wrong: &labels::Wrong| match wrong {
        labels::Wrong::Character(_) => "bad_character",
        labels::Wrong::Reserved(_) => "reserved",
        _ => "too_long",
    };
    for (name, value) in required {
        if let Err(wrong) = labels::check(name, value) {
            errors.add(&at.member(name), code(&wrong), wrong.to_string());
        }
    }
    if let Err(wrong @ (labels::Wrong::Count(_) | labels::Wrong::Reserved(_))) = Labels::given(required) {
        errors.add(at, code(&wrong), wrong.to_string());
    }
    Labels::given(required).ok()
}

fn check_labels(labels: Option<&BTreeMap<String, String>>, at: &At<'_>, errors: &mut Errors) {
    let Some(labels) = labels else { return };
    if labels.len() > LABELS_MAX {
        errors.add(at, "too_long", format!("{} labels are too many; at most {LABELS_MAX}", labels.len()));
    }
    for (name, value) in labels {
        if name.is_empty() || name.len() > LABEL_MAX || value.len() > LABEL_MAX {
            let detail = format!("a label's name has 1 to {LABEL_MAX} bytes and its value at most as many");
            errors.add(&at.member(name), "too_long", detail);
        }
    }
}

impl From<&Spec> for JobSpec {
    fn from(spec: &Spec) -> Self {
        JobSpec {
            name: Some(spec.name.clone()),
            key: spec.key.clone(),
            r#type: spec.kind.clone(),
            labels: Some(spec.labels.clone()).filter(|labels| !labels.is_empty()),
            queue: Some(spec.queue.to_string()),
            requires: Some(spec.requires.without_own().to_map()).filter(|requires| !requires.is_empty()),
            parts: spec.parts.map(Parts::from),
            lane: Some(spec.lane.as_str().into()),
            priority: Some(spec.priority),
            schedule: Some(Schedule::from(&spec.schedule)),
            target: Some(Target::from(&spec.target)),
            dead_letter_target: spec.dead_letter_target.as_ref().map(Target::from),
            links: Some(spec.links.iter().map(Link::from).collect())
                .filter(|links: &Vec<Link>| !links.is_empty()),
            payload: Payload::of(spec),
            retry: Some(Retry::from(&spec.policies.retry)),
            catch_up: Some(CatchUp::from(&spec.policies.catch_up)),
            overlap: Some(Overlap::from(spec.policies.overlap)),
            concurrency: spec.policies.concurrency.as_ref().map(Concurrency::from),
            rate: spec.policies.rate.as_ref().map(RateLimit::from),
            breaker: spec.policies.breaker.map(JobBreaker::from),
            start_window: spec.policies.timeouts.start_window.map(Duration),
            timeout: Some(Duration(spec.policies.timeouts.attempt)),
            deadline: spec.policies.timeouts.deadline.map(Duration),
            min_duration: spec.policies.timeouts.min_duration.map(Duration),
            on_unknown: Some(spec.policies.on_unknown.as_str().into()),
            completion: Some(spec.policies.completion.as_str().into()),
            heartbeat: spec.policies.completion.heartbeat().map(Duration),
            retention: Some(Retention::from(spec.policies.retention)),
            correlation_id: spec.correlation_id.as_deref().map(str::to_string),
        }
    }
}

/// A job as it is: what its owner asked for, and what the server knows about it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Job {
    /// What the server knows.
    #[serde(flatten)]
    pub status: JobStatus,
    /// What its owner asked for, defaults included.
    #[serde(flatten)]
    pub spec: JobSpec,
}

impl Pause {
    /// A pause that begins now.
    pub fn to_domain(self, now: Timestamp) -> Result<domain::Pause, Unread> {
        let mut errors = Errors::default();
        let at = At::ROOT.member("until");
        let until = self.until.and_then(|until| until.instant(&at, &mut errors));
        if until.is_some_and(|until| until <= now) {
            errors.add(
                &at,
                "out_of_range",
                "a pause ends in the future; leave `until` out for one without an end",
            );
        }
        match errors.is_empty() {
            true => Ok(domain::Pause { reason: self.reason, by: self.by, since: now, until }),
            false => Err(Unread::Wrong(errors.into_vec())),
        }
    }
}

/// What the server knows about a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobStatus {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub tenant: String,
    /// Counts its changes; also its `ETag`.
    pub version: u32,
    /// `active`, `paused` or `ended`.
    pub state: String,
    /// When it fires next.
    pub next_fire_at: Option<Timestamp>,
    /// Its newest run. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<LastRun>,
    /// Why it is paused, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Paused>,
    /// What its owner should know. Not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// How many items it has, if it is a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_items: Option<u64>,
    /// When it was first registered.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// The newest run of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LastRun {
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: String,
    /// Its nominal time.
    pub scheduled_for: Timestamp,
}

/// Why and since when a job is paused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Paused {
    /// In the words of whoever paused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who paused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// When it resumes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What a job's row does not say.
#[derive(Clone, Debug, Default)]
pub struct Facts<'a> {
    /// The name of its tenant.
    pub tenant: &'a str,
    /// When it fires next.
    pub next_fire_at: Option<Timestamp>,
    /// Its schedule has no more slots, and its last run has ended.
    pub is_over: bool,
    /// Its newest run.
    pub last_run: Option<&'a punctual_domain::Run>,
    /// What its owner should know.
    pub warnings: Vec<String>,
}

impl Job {
    /// A job with what its row does not say.
    pub fn new(job: &domain::Job, facts: Facts<'_>) -> Self {
        let paused = match &job.state {
            JobState::Paused(pause) => {
                let (reason, by) = (pause.reason.clone(), pause.by.clone());
                Some(Paused { reason, by, since: pause.since, until: pause.until })
            }
            JobState::Active | JobState::Ended | JobState::Deleted => None,
        };
        let state = match &job.state {
            JobState::Active if facts.is_over => JobState::Ended.as_str(),
            state => state.as_str(),
        };
        let status = JobStatus {
            id: job.id.to_string(),
            tenant: facts.tenant.into(),
            version: job.version.0,
            state: state.into(),
            next_fire_at: facts.next_fire_at,
            last_run: facts.last_run.map(|run| LastRun {
                id: run.id().to_string(),
                state: run.state.as_str().into(),
                scheduled_for: run.scheduled_for,
            }),
            paused,
            warnings: facts.warnings,
            batch_items: job.spec.batch.as_ref().map(|batch| batch.total()),
            created_at: job.created_at,
            updated_at: job.updated_at,
        };
        Job { status, spec: JobSpec::from(&job.spec) }
    }
}

/// Read twice from its text: serde cannot flatten a payload that stays text.
impl<'de> Deserialize<'de> for Job {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let wrong = serde::de::Error::custom;
        Ok(Job {
            status: serde_json::from_str(text.get()).map_err(wrong)?,
            spec: serde_json::from_str(text.get()).map_err(wrong)?,
        })
    }
}

/// A slot to come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Upcoming {
    /// Its nominal time.
    pub scheduled_for: Timestamp,
    /// When it fires: later by the job's spread.
    pub fires_at: Timestamp,
    /// The nominal time on the clock of the job's zone.
    pub local: String,
    /// What a change of the clock does to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
