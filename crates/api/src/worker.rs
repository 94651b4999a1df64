//! Pull workers on the wire: what they ask for, hold and report, and who is there.

use std::collections::BTreeMap;

use jiff::Timestamp;
use punctual_domain::attempt::Failure;
use punctual_domain::id::{RunId, WorkerId};
use punctual_domain::job::Target;
use punctual_domain::papers::{CHECKPOINT_MAX, Progress};
use punctual_domain::policy::timeouts;
use punctual_domain::work::{Held as DomainHeld, Leased, Presence};
use punctual_domain::{Labels, Outcome};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::duration::Duration;
use crate::job::{check_word, requirements};
use crate::limits::{NAME_MAX, RUNS_MAX, WORD_MAX};
use crate::payload::Payload;
use crate::problem::Problem;
use crate::read::{At, Errors, Unread, one_of};
use crate::target::required;
use crate::time::Time;

object! {
    /// A worker asks for runs.
    pub struct Claim {
        /// Who asks: left out at the first call, which gives an identity; the same in all calls after it.
        pub worker: String,
        /// What lists show, such as host and process.
        #[schema(example = "mailer-7")]
        pub name: String,
        /// The queues it serves, 1 to 32.
        #[schema(required = true, example = json!(["emails"]))]
        pub queues: Vec<String>,
        /// What it has, for jobs that require it.
        pub labels: BTreeMap<String, String>,
        /// How many attempts this call may give, 1 to 1000; 1.
        pub capacity: u32,
        /// How many it can execute at a time in all; `capacity` of its first call.
        pub concurrency: u32,
        /// How long the call may wait, at most a minute; `PT20S`.
        pub wait: Duration,
    }

    /// A sign of life, with everything that the worker holds.
    pub struct WorkerHeartbeat {
        /// What is not listed for a lease is given to somebody else.
        #[schema(required = true)]
        pub held: Vec<HeldAttempt>,
        /// How many it can execute at a time in all.
        pub concurrency: u32,
        /// How busy it is, from 0 to 1.
        pub saturation: f64,
    }

    /// An attempt that a worker holds, and what it says of itself.
    pub struct HeldAttempt {
        /// The run.
        #[schema(required = true)]
        pub run_id: String,
        /// The attempt.
        #[schema(required = true)]
        pub attempt: u32,
        /// How far it is.
        pub progress: AttemptProgress,
        /// Where the next attempt goes on: any JSON up to 64 KiB. The last one counts.
        pub checkpoint: Payload,
        /// What happened since the last heartbeat; of each line 4 KiB are kept.
        pub log: Vec<String>,
    }

    /// How far an attempt is.
    pub struct AttemptProgress {
        /// Of a hundred.
        pub percent: u16,
        /// For people.
        pub message: String,
    }

    /// What became of attempts, 1 to 1000.
    pub struct Results {
        /// Each stands for itself.
        #[schema(required = true)]
        pub results: Vec<AttemptResult>,
    }

    /// What became of an attempt.
    pub struct AttemptResult {
        /// The run.
        #[schema(required = true)]
        pub run_id: String,
        /// The attempt.
        #[schema(required = true)]
        pub attempt: u32,
        /// `succeeded`, `failed`, `timed_out`, `cancelled`, or `released`: given back unfinished.
        #[schema(required = true, example = "succeeded")]
        pub outcome: String,
        /// What it says, kept up to the job's `output_max`.
        pub output: String,
        /// Why it failed, with `failed` and `timed_out`.
        pub error: ResultError,
        /// The last lines of its log.
        pub log: Vec<String>,
        /// When it began, by the worker's clock.
        pub started_at: Time,
        /// When it ended, by the worker's clock.
        pub finished_at: Time,
    }

    /// Why an attempt failed.
    pub struct ResultError {
        /// A sentence for people.
        #[schema(required = true)]
        pub message: String,
        /// A word for programs; `worker_failed`.
        pub code: String,
        /// Whether another attempt may help; true.
        pub is_retryable: bool,
        /// Not before so long.
        pub retry_after: Duration,
    }
}

/// What a worker is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Claimed {
    /// The worker's identity, for all its calls.
    pub worker: String,
    /// How long an attempt is its own without a sign of life.
    pub lease: Duration,
    /// How often a sign of life is expected.
    pub heartbeat_every: Duration,
    /// Each leased to this worker.
    pub attempts: Vec<ClaimedAttempt>,
}

/// An attempt, with everything needed to execute it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClaimedAttempt {
    /// The run.
    pub run_id: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The job.
    pub job_id: String,
    /// Its name.
    pub job_name: String,
    /// What is to be done.
    pub handler: String,
    /// Which part of its slot, from 1, of a job in parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    /// Of how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<u32>,
    /// The id of its batch, of an item of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<String>,
    /// The item's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_id: Option<String>,
    /// In which queue it was.
    pub queue: String,
    /// The job's type.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The job's labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The nominal time.
    pub scheduled_for: Timestamp,
    /// The same for every attempt of the run.
    pub idempotency_key: String,
    /// The payload as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// Follows it through logs and callbacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// How long the attempt may take.
    pub timeout: Duration,
    /// Until when the run must have ended, if there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Where an earlier attempt said to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Payload>,
}

/// What a sign of life is answered with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatAnswer {
    /// Somebody asked these to stop: stop them, and report them as `cancelled`.
    pub cancelled: Vec<Held>,
    /// These are not held any more: stop them, and report nothing.
    pub not_held: Vec<Held>,
}

/// An attempt by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Held {
    /// The run.
    pub run_id: String,
    /// The attempt.
    pub attempt: u32,
}

/// What became of each result, in the same order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResultsTaken {
    /// One for each.
    pub results: Vec<ResultTaken>,
}

/// What became of a result: the state of its run, or why it was not taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResultTaken {
    /// The run.
    pub run_id: String,
    /// The attempt.
    pub attempt: u32,
    /// How the run stands now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Why the result was not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// A worker that is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Its id; new at every start.
    pub id: String,
    /// What it calls itself.
    pub name: String,
    /// Whose runs it executes.
    pub tenant: String,
    /// The queues it serves.
    pub queues: Vec<String>,
    /// What it has, for jobs that require it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How many attempts it can execute at a time.
    pub concurrency: u32,
    /// How many it held at its last sign of life.
    pub held: usize,
    /// How busy it is, from 0 to 1, if it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<f64>,
    /// When it was first heard of.
    pub started_at: Timestamp,
    /// When it gave its last sign of life.
    pub seen_at: Timestamp,
}

/// Queues of one worker; more are a worker for everything.
const QUEUES_MAX: usize = 32;

/// How long a claim waits, unless it says otherwise: shorter than what proxies cut off.
const WAIT: std::time::Duration = std::time::Duration::from_secs(20);

/// Proxies end what is silent for longer.
const WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// Attempts of one worker at a time; more are several workers.
const CONCURRENCY_MAX: u32 = 100_000;

/// Bytes of a failure's message.
const MESSAGE_MAX: usize = 8 << 10;

/// A claim that can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadClaim {
    /// Who asks, if it has an identity.
    pub worker: Option<WorkerId>,
    /// What people call it.
    pub name: String,
    /// The queues it serves.
    pub queues: Vec<std::sync::Arc<str>>,
    /// What it has.
    pub labels: Labels,
    /// At most so many.
    pub capacity: u32,
    /// How many in all.
    pub concurrency: u32,
    /// For so long.
    pub wait: std::time::Duration,
}

impl Claim {
    /// As it can be made, or everything that is wrong.
    pub fn to_domain(&self) -> Result<ReadClaim, Unread> {
        let (at, mut errors) = (At::ROOT, Errors::default());
        let worker = self.worker.as_ref().and_then(|text| id(text, &at.member("worker"), &mut errors));
        let name = self.name.clone().unwrap_or_default();
        if name.chars().count() > NAME_MAX {
            errors.add(&at.member("name"), "too_long", format!("expected at most {NAME_MAX} characters"));
        }
        let queues = required(self.queues.as_ref(), &at, "queues", &mut errors).cloned().unwrap_or_default();
        let here = at.member("queues");
        if self.queues.is_some() && !(1..=QUEUES_MAX).contains(&queues.len()) {
            errors.add(&here, "out_of_range", format!("expected 1 to {QUEUES_MAX} queues"));
        }
        for (index, queue) in queues.iter().enumerate() {
            check_word(Some(queue), &here.item(index), WORD_MAX, &mut errors);
        }
        let labels = requirements(self.labels.as_ref(), &at.member("labels"), &mut errors);
        let capacity = bounded(self.capacity, 1, RUNS_MAX as u32, &at.member("capacity"), &mut errors);
        let concurrency =
            bounded(self.concurrency, capacity, CONCURRENCY_MAX, &at.member("concurrency"), &mut errors);
        let wait = self.wait.map_or(WAIT, |wait| wait.0);
        if wait > WAIT_MAX {
            errors.add(&at.member("wait"), "out_of_range", "a claim waits for a minute at most; ask again");
        }
        match (errors.is_empty(), labels) {
            (true, Some(labels)) => Ok(ReadClaim {
                worker,
                name,
                queues: queues.iter().map(|queue| queue.as_str().into()).collect(),
                labels,
                capacity,
                concurrency,
                wait,
            }),
            _ => Err(Unread::Wrong(errors.into_vec())),
        }
    }
}

/// A sign of life that can be taken.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadHeartbeat {
    /// What is held: the run and the attempt.
    pub held: Vec<(RunId, u32)>,
    /// How many in all.
    pub concurrency: Option<u32>,
    /// How busy, in percent.
    pub saturation: Option<u8>,
    /// What attempts say of themselves.
    pub notes: Vec<ReadNote>,
}

/// What an attempt says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadNote {
    /// Of this run.
    pub run: RunId,
    /// Which attempt.
    pub attempt: u32,
    /// How far it is.
    pub progress: Option<Progress>,
    /// Where the next attempt goes on, as JSON text.
    pub checkpoint: Option<Box<str>>,
    /// What happened.
    pub lines: Vec<String>,
}

impl WorkerHeartbeat {
    /// As it can be taken, or everything that is wrong.
    pub fn to_domain(&self) -> Result<ReadHeartbeat, Unread> {
        let (at, mut errors) = (At::ROOT, Errors::default());
        let held = required(self.held.as_ref(), &at, "held", &mut errors).cloned().unwrap_or_default();
        let here = at.member("held");
        if held.len() > CONCURRENCY_MAX as usize {
            errors.add(&here, "too_long", format!("a worker holds {CONCURRENCY_MAX} attempts at most"));
        }
        let mut read = Vec::with_capacity(held.len());
        let mut notes = Vec::new();
        for (index, one) in held.iter().enumerate() {
            let here = here.item(index);
            let Some((run, number)) = attempt(one.run_id.as_ref(), one.attempt, &here, &mut errors) else {
                continue;
            };
            read.push((run, number));
            notes.extend(one.note(run, number, &here, &mut errors));
        }
        let concurrency = self.concurrency.map(|concurrency| {
            bounded(Some(concurrency), 1, CONCURRENCY_MAX, &at.member("concurrency"), &mut errors)
        });
        if self.saturation.is_some_and(|saturation| !(0.0..=1.0).contains(&saturation)) {
            errors.add(&at.member("saturation"), "out_of_range", "expected a number from 0 to 1");
        }
        let saturation = self.saturation.map(|saturation| (saturation * 100.0).round() as u8);
        match errors.is_empty() {
            true => Ok(ReadHeartbeat { held: read, concurrency, saturation, notes }),
            false => Err(Unread::Wrong(errors.into_vec())),
        }
    }
}

impl HeldAttempt {
    /// What it says of itself, if anything.
    pub(crate) fn note(
        &self,
        run: RunId,
        attempt: u32,
        at: &At<'_>,
        errors: &mut Errors,
    ) -> Option<ReadNote> {
        let progress = self.progress.as_ref().map(|progress| Progress {
            percent: progress.percent.map(|percent| percent.min(100) as u8),
            message: progress.message.clone(),
        });
        let checkpoint = self.checkpoint.as_ref().map(Payload::as_str);
        let bytes = checkpoint.map_or(0, str::len);
        if bytes > CHECKPOINT_MAX {
            let detail = format!(
                "a checkpoint of {bytes} bytes is too large, at most {CHECKPOINT_MAX}; keep the data and say where it is"
            );
            errors.add(&at.member("checkpoint"), "too_long", detail);
        }
        let lines = self.log.clone().unwrap_or_default();
        let is_empty = progress.is_none() && checkpoint.is_none() && lines.is_empty();
        let checkpoint = checkpoint.map(Into::into);
        (!is_empty).then_some(ReadNote { run, attempt, progress, checkpoint, lines })
    }
}

/// What became of an attempt, as it can be taken.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadResult {
    /// The run.
    pub run: RunId,
    /// The attempt.
    pub attempt: u32,
    /// How it ended; nothing if it is given back unfinished.
    pub outcome: Option<Outcome>,
    /// Why it failed.
    pub error: Option<Failure>,
    /// What it says.
    pub output: Option<String>,
    /// The last lines of its log.
    pub lines: Vec<String>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

const OUTCOMES: [(&str, Option<Outcome>); 5] = [
    ("succeeded", Some(Outcome::Succeeded)),
    ("failed", Some(Outcome::Failed)),
    ("timed_out", Some(Outcome::TimedOut)),
    ("cancelled", Some(Outcome::Cancelled)),
    ("released", None),
];

impl Results {
    /// As they can be taken, or everything that is wrong.
    pub fn to_domain(&self) -> Result<Vec<ReadResult>, Unread> {
        let (at, mut errors) = (At::ROOT, Errors::default());
        let here = at.member("results");
        let empty = Vec::new();
        let results = required(self.results.as_ref(), &at, "results", &mut errors).unwrap_or(&empty);
        if self.results.is_some() && !(1..=RUNS_MAX).contains(&results.len()) {
            errors.add(&here, "out_of_range", format!("expected 1 to {RUNS_MAX} results"));
        }
        let read: Vec<ReadResult> = results
            .iter()
            .enumerate()
            .filter_map(|(index, result)| result.to_domain(&here.item(index), &mut errors))
            .collect();
        match errors.is_empty() {
            true => Ok(read),
            false => Err(Unread::Wrong(errors.into_vec())),
        }
    }
}

impl AttemptResult {
    pub(crate) fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> Option<ReadResult> {
        let held = attempt(self.run_id.as_ref(), self.attempt, at, errors);
        let outcome = required(self.outcome.as_ref(), at, "outcome", errors)
            .and_then(|word| one_of(word, &OUTCOMES, &at.member("outcome"), errors));
        let started_at =
            self.started_at.as_ref().and_then(|time| time.instant(&at.member("started_at"), errors));
        let finished_at =
            self.finished_at.as_ref().and_then(|time| time.instant(&at.member("finished_at"), errors));
        let is_failure = matches!(outcome, Some(Some(Outcome::Failed | Outcome::TimedOut)));
        let error = self.error.as_ref().and_then(|error| error.to_domain(&at.member("error"), errors));
        if error.is_some() && outcome.is_some() && !is_failure {
            let detail = "an error goes with `failed` and `timed_out`; leave it out, or take another outcome";
            errors.add(&at.member("error"), "conflict", detail);
        }
        let error = error.or_else(|| is_failure.then(|| failure("the worker says no more", None)));
        let (run, attempt) = held?;
        let (outcome, output) = (outcome?, self.output.clone());
        let lines = self.log.clone().unwrap_or_default();
        Some(ReadResult { run, attempt, outcome, error, output, lines, started_at, finished_at })
    }
}

impl ResultError {
    fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> Option<Failure> {
        check_word(self.code.as_ref(), &at.member("code"), WORD_MAX, errors);
        let message = required(self.message.as_ref(), at, "message", errors)?;
        let mut message = message.clone();
        if message.len() > MESSAGE_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_MAX));
        }
        Some(Failure {
            is_retryable: self.is_retryable.unwrap_or(true),
            retry_after: self.retry_after.map(|after| after.0),
            ..failure(&message, self.code.as_deref())
        })
    }
}

fn failure(message: &str, code: Option<&str>) -> Failure {
    let code = code.unwrap_or("worker_failed");
    Failure { code: code.into(), message: message.into(), is_retryable: true, retry_after: None }
}

fn attempt(
    run: Option<&String>,
    number: Option<u32>,
    at: &At<'_>,
    errors: &mut Errors,
) -> Option<(RunId, u32)> {
    let run = required(run, at, "run_id", errors).and_then(|text| id(text, &at.member("run_id"), errors));
    let number = required(number.as_ref(), at, "attempt", errors).copied();
    run.zip(number)
}

fn id<T: std::str::FromStr<Err: std::fmt::Display>>(
    text: &str,
    at: &At<'_>,
    errors: &mut Errors,
) -> Option<T> {
    text.parse().map_err(|error: T::Err| errors.add(at, "id", error.to_string())).ok()
}

fn bounded(value: Option<u32>, default: u32, most: u32, at: &At<'_>, errors: &mut Errors) -> u32 {
    let value = value.unwrap_or(default);
    if !(1..=most).contains(&value) {
        errors.add(at, "out_of_range", format!("expected a whole number from 1 to {most}"));
    }
    value
}

impl From<&Leased> for ClaimedAttempt {
    fn from(leased: &Leased) -> Self {
        let Leased { run, job, .. } = leased;
        let limits = &job.spec.policies.timeouts;
        let claimed_at = run.lease().map_or(run.available_at, |lease| lease.claimed_at);
        let (timeout, _) = timeouts::attempt(limits, run, claimed_at);
        let handler = match &job.spec.target {
            Target::Worker { handler } => handler.clone(),
            // What is not pulled is not claimed.
            Target::Http(_) | Target::Function { .. } | Target::Discard => String::new(),
        };
        ClaimedAttempt {
            run_id: run.id().to_string(),
            attempt: run.attempt,
            job_id: job.id.to_string(),
            job_name: job.spec.name.clone(),
            handler,
            part: run.part_of().map(|(part, _)| part),
            parts: run.part_of().map(|(_, of)| of),
            batch_id: leased.item().map(|(batch, _)| batch.into()),
            item_id: leased.item().map(|(_, item)| item.into()),
            queue: run.queue.to_string(),
            kind: job.spec.kind.clone(),
            labels: job.spec.labels.clone(),
            scheduled_for: run.scheduled_for,
            idempotency_key: run.idempotency_key().to_string(),
            payload: leased.payload().and_then(Payload::new),
            correlation_id: run.correlation_id.as_deref().map(str::to_string),
            timeout: Duration(timeout),
            deadline: timeouts::deadline(limits, run),
            checkpoint: leased.checkpoint.as_deref().and_then(Payload::new),
        }
    }
}

impl Worker {
    /// A worker of a tenant.
    pub fn new(present: &Presence, tenant: &str) -> Self {
        let about = &present.about;
        Worker {
            id: present.worker.to_string(),
            name: about.name.clone(),
            tenant: tenant.into(),
            queues: about.queues.iter().map(ToString::to_string).collect(),
            labels: about.labels.to_map(),
            concurrency: about.concurrency,
            held: present.held.len(),
            saturation: about.saturation.map(|percent| f64::from(percent) / 100.0),
            started_at: about.started_at,
            seen_at: present.seen_at,
        }
    }
}

impl Held {
    /// An attempt of a run, by what a worker called it.
    pub fn of(held: &DomainHeld, listed: &[(RunId, u32)]) -> Option<Self> {
        let is_it =
            |(run, attempt): &&(RunId, u32)| run.sequence() == held.sequence && *attempt == held.attempt;
        let (run, attempt) = listed.iter().find(is_it)?;
        Some(Held { run_id: run.to_string(), attempt: *attempt })
    }
}
