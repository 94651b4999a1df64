//! A job's row: what is not in columns of its own.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use punctual_domain::batch::{Batch, Item};
use punctual_domain::id::{JobId, TenantId, Version};
use punctual_domain::job::{
    Before, Carried, Change, Http, Job, JobState, Lane, Method, Pause, Spec, Target, Tls, host,
};
use punctual_domain::labels::Labels;
use punctual_domain::link::{Link, On};
use punctual_domain::parts::Parts;
use punctual_schedule::calendar::OnExcluded;
use punctual_schedule::{Schedule, dst};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::policies::{PoliciesRecord, decode_policies, encode_policies};
use super::{damaged, is_default, millis, timestamp};
use crate::error::Error;
use crate::verbs::Planned;

/// Raised when a field changes its meaning; adding one does not need it.
const FORM: u8 = 1;

#[derive(Serialize, Deserialize)]
struct JobRecord<'a> {
    v: u8,
    name: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "is_empty")]
    labels: Cow<'a, BTreeMap<String, String>>,
    queue: Arc<str>,
    /// As text: `gpu=true,zone=eu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requires: Option<Cow<'a, str>>,
    /// How many parts a slot has; 0 for one for each worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parts: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    lane: u8,
    #[serde(default, skip_serializing_if = "is_default")]
    priority: i16,
    schedule: ScheduleRecord,
    target: TargetRecord<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    dead_letter_target: Option<TargetRecord<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    links: Vec<LinkRecord<'a>>,
    #[serde(default, skip_serializing_if = "is_default")]
    policies: PoliciesRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    correlation: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<StateRecord>,
    created: i64,
    updated: i64,
    /// When it was to be fired, and the slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    carried: Option<(i64, i64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    changes: Vec<ChangeRecord>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    batch: Option<BatchRecord<'a>>,
}

/// What makes a job a batch.
#[derive(Serialize, Deserialize)]
struct BatchRecord<'a> {
    #[serde(borrow)]
    items: Vec<ItemRecord<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    on_complete: Option<TargetRecord<'a>>,
    print: [u8; 16],
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancelled: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct ItemRecord<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
}

/// Another job that is triggered when a run ends: when, and which.
#[derive(Serialize, Deserialize)]
struct LinkRecord<'a> {
    on: u8,
    job: Cow<'a, str>,
}

/// What a change of the job ended: a schedule or a pause.
#[derive(Serialize, Deserialize)]
struct ChangeRecord {
    at: i64,
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schedule: Option<ScheduleRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<StateRecord>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ScheduleRecord {
    at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tz: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    gap: u8,
    #[serde(default, skip_serializing_if = "is_default")]
    overlap: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fires: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spread: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calendars: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    excluded: u8,
}

#[derive(Serialize, Deserialize)]
struct TlsRecord<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cert: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TargetRecord<'a> {
    Http {
        url: Cow<'a, str>,
        #[serde(default, skip_serializing_if = "is_default")]
        method: u8,
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        headers: Cow<'a, [(String, String)]>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tls: Option<TlsRecord<'a>>,
    },
    Function(Cow<'a, str>),
    Worker(Cow<'a, str>),
    Discard,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StateRecord {
    Paused {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        since: i64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<i64>,
    },
    Ended,
    Deleted,
}

fn is_empty(labels: &BTreeMap<String, String>) -> bool {
    labels.is_empty()
}

/// Writes a job. Its id, tenant and version are columns of their own.
pub fn encode_job(job: &Job) -> Result<Vec<u8>, Error> {
    let payload: Option<&RawValue> = job
        .spec
        .payload
        .as_deref()
        .map(serde_json::from_str)
        .transpose()
        .map_err(|_| damaged("a payload that is not JSON"))?;
    let record = JobRecord {
        v: FORM,
        name: job.spec.name.as_str().into(),
        key: job.spec.key.as_deref().map(Cow::from),
        kind: job.spec.kind.as_deref().map(Cow::from),
        labels: Cow::Borrowed(&job.spec.labels),
        queue: Arc::clone(&job.spec.queue),
        requires: Some(job.spec.requires.as_str()).filter(|text| !text.is_empty()).map(Cow::from),
        parts: job.spec.parts.map(|parts| match parts {
            Parts::Count(count) => count,
            Parts::Broadcast => 0,
        }),
        lane: lane_code(job.spec.lane),
        priority: job.spec.priority,
        schedule: encode_schedule(&job.spec.schedule),
        target: encode_target(&job.spec.target),
        dead_letter_target: job.spec.dead_letter_target.as_ref().map(encode_target),
        payload,
        links: job.spec.links.iter().map(encode_link).collect(),
        policies: encode_policies(&job.spec.policies),
        correlation: job.spec.correlation_id.clone(),
        state: encode_state(&job.state),
        created: millis(job.created_at),
        updated: millis(job.updated_at),
        carried: job.carried.map(|carried| (millis(carried.at), millis(carried.slot))),
        changes: job.changes.iter().map(encode_change).collect(),
        batch: job.spec.batch.as_deref().map(encode_batch).transpose()?,
    };
    serde_json::to_vec(&record).map_err(|error| damaged(format!("job {}: {error}", job.id)))
}

/// Reads a job back.
pub fn decode_job(id: JobId, tenant: TenantId, version: Version, bytes: &[u8]) -> Result<Job, Error> {
    let wrong = |what: String| damaged(format!("job {id}: {what}"));
    let record: JobRecord<'_> = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
    if record.v > FORM {
        return Err(wrong(format!("written by a newer version (form {})", record.v)));
    }
    Ok(Job {
        id,
        tenant,
        version,
        state: decode_state(record.state)?,
        spec: Spec {
            name: record.name.into_owned(),
            key: record.key.map(Cow::into_owned),
            kind: record.kind.map(Cow::into_owned),
            labels: record.labels.into_owned(),
            queue: record.queue,
            requires: match record.requires {
                None => Labels::NONE,
                Some(text) => text.parse().map_err(|error| wrong(format!("what it requires: {error}")))?,
            },
            parts: record.parts.map(|count| match count {
                0 => Parts::Broadcast,
                count => Parts::Count(count),
            }),
            batch: match record.batch {
                None => None,
                Some(batch) => Some(Arc::new(decode_batch(batch).ok_or_else(|| wrong("its items".into()))?)),
            },
            lane: lane_of(record.lane).ok_or_else(|| wrong(format!("lane {}", record.lane)))?,
            priority: record.priority,
            schedule: decode_schedule(record.schedule).map_err(|error| wrong(error.to_string()))?,
            target: decode_target(record.target).ok_or_else(|| wrong("its target".into()))?,
            dead_letter_target: match record.dead_letter_target {
                Some(target) => {
                    Some(decode_target(target).ok_or_else(|| wrong("its dead-letter target".into()))?)
                }
                None => None,
            },
            links: record
                .links
                .into_iter()
                .map(decode_link)
                .collect::<Option<_>>()
                .ok_or_else(|| wrong("its links".into()))?,
            payload: record.payload.map(|raw| raw.get().into()),
            policies: decode_policies(&record.policies).ok_or_else(|| wrong("its policies".into()))?,
            correlation_id: record.correlation,
        },
        created_at: timestamp(record.created)?,
        updated_at: timestamp(record.updated)?,
        carried: match record.carried {
            Some((at, slot)) => Some(Carried { at: timestamp(at)?, slot: timestamp(slot)? }),
            None => None,
        },
        changes: record.changes.into_iter().map(decode_change).collect::<Result<_, _>>()?,
    })
}

/// What [`PlannedReader`] reads of a job; the rest is passed over.
#[derive(Deserialize)]
struct PlannedRecord<'a> {
    v: u8,
    #[serde(borrow, default)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    schedule: &'a RawValue,
    #[serde(borrow)]
    target: TargetRecord<'a>,
    #[serde(borrow)]
    queue: Cow<'a, str>,
    created: i64,
}

/// Reads jobs as [`Planned`], for one page: schedules, types and destinations that were seen before are not made again.
#[derive(Default)]
pub struct PlannedReader {
    schedules: HashMap<Box<str>, Arc<Schedule>>,
    words: HashSet<Arc<str>>,
}

impl PlannedReader {
    /// Reads an active job from its row.
    pub fn read(&mut self, id: JobId, tenant: TenantId, fired: u64, bytes: &[u8]) -> Result<Planned, Error> {
        let wrong = |what: String| damaged(format!("job {id}: {what}"));
        let record: PlannedRecord<'_> =
            serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        if record.v > FORM {
            return Err(wrong(format!("written by a newer version (form {})", record.v)));
        }
        let text = record.schedule.get();
        let schedule = match self.schedules.get(text) {
            Some(schedule) => Arc::clone(schedule),
            None => {
                let read = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
                let schedule = Arc::new(decode_schedule(read).map_err(|error| wrong(error.to_string()))?);
                self.schedules.insert(text.into(), Arc::clone(&schedule));
                schedule
            }
        };
        let destination = match &record.target {
            TargetRecord::Http { url, .. } => format!("http {}", host(url)),
            TargetRecord::Function(name) => format!("function {name}"),
            TargetRecord::Worker(handler) => format!("worker {handler}"),
            TargetRecord::Discard => "discard".into(),
        };
        Ok(Planned {
            job: id,
            tenant,
            kind: record.kind.as_deref().map(|kind| self.word(kind)),
            destination: self.word(&destination),
            queue: self.word(&record.queue),
            schedule,
            registered_at: timestamp(record.created)?,
            fired,
        })
    }

    fn word(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.words.get(text) {
            return Arc::clone(known);
        }
        let word: Arc<str> = text.into();
        self.words.insert(Arc::clone(&word));
        word
    }
}

fn encode_change(change: &Change) -> ChangeRecord {
    let (schedule, state) = match &change.until {
        Before::Schedule(schedule) => (Some(encode_schedule(schedule)), None),
        Before::Pause(pause) => (None, encode_state(&JobState::Paused(pause.clone()))),
    };
    ChangeRecord { at: millis(change.at), version: change.version.0, schedule, state }
}

fn decode_change(record: ChangeRecord) -> Result<Change, Error> {
    let until = match (record.schedule, decode_state(record.state)?) {
        (Some(schedule), _) => Before::Schedule(Box::new(decode_schedule(schedule)?)),
        (None, JobState::Paused(pause)) => Before::Pause(pause),
        (None, _) => return Err(damaged("a change that changed nothing")),
    };
    Ok(Change { at: timestamp(record.at)?, version: Version(record.version), until })
}

fn encode_link(link: &Link) -> LinkRecord<'_> {
    let on = match link.on {
        On::Succeeded => 0,
        On::Failed => 1,
        On::Finished => 2,
    };
    LinkRecord { on, job: link.job.as_str().into() }
}

fn decode_link(record: LinkRecord<'_>) -> Option<Link> {
    let on = match record.on {
        0 => On::Succeeded,
        1 => On::Failed,
        2 => On::Finished,
        _ => return None,
    };
    Some(Link { on, job: record.job.into_owned() })
}

fn encode_batch(batch: &Batch) -> Result<BatchRecord<'_>, Error> {
    let mut items = Vec::with_capacity(batch.items.len());
    for item in batch.items.iter() {
        let payload = item.payload.as_deref().map(serde_json::from_str).transpose();
        let payload = payload.map_err(|_| damaged("a payload of an item that is not JSON"))?;
        items.push(ItemRecord { id: Cow::from(&*item.id), payload });
    }
    Ok(BatchRecord {
        items,
        on_complete: batch.on_complete.as_ref().map(encode_target),
        print: batch.fingerprint,
        cancelled: batch.cancelled_at.map(millis),
    })
}

fn decode_batch(record: BatchRecord<'_>) -> Option<Batch> {
    let item = |item: ItemRecord<'_>| Item {
        id: item.id.into(),
        payload: item.payload.map(|payload| payload.get().into()),
    };
    Some(Batch {
        items: record.items.into_iter().map(item).collect(),
        on_complete: match record.on_complete {
            Some(target) => Some(decode_target(target)?),
            None => None,
        },
        fingerprint: record.print,
        cancelled_at: match record.cancelled {
            Some(at) => Some(timestamp(at).ok()?),
            None => None,
        },
    })
}

/// Standard is 0, so that most rows do not write it.
fn lane_code(lane: Lane) -> u8 {
    match lane {
        Lane::Standard => 0,
        Lane::Critical => 1,
        Lane::Batch => 2,
    }
}

fn lane_of(code: u8) -> Option<Lane> {
    Lane::ALL.into_iter().find(|lane| lane_code(*lane) == code)
}

pub(super) fn encode_schedule(schedule: &Schedule) -> ScheduleRecord {
    ScheduleRecord {
        at: schedule.to_string(),
        tz: Some(schedule.timezone.clone()).filter(|zone| zone != "UTC"),
        gap: match schedule.dst.gap {
            dst::Gap::After => 0,
            dst::Gap::Skip => 1,
            dst::Gap::Shift => 2,
        },
        overlap: match schedule.dst.overlap {
            dst::Overlap::First => 0,
            dst::Overlap::Both => 1,
            dst::Overlap::Last => 2,
        },
        start: schedule.bounds.start.map(millis),
        end: schedule.bounds.end.map(millis),
        fires: schedule.bounds.max_fires.map(std::num::NonZeroU64::get),
        spread: schedule.spread.map(|window| window.as_millis() as u64),
        calendars: schedule.calendars.clone(),
        excluded: match schedule.on_excluded {
            OnExcluded::Skip => 0,
            OnExcluded::Next => 1,
            OnExcluded::Previous => 2,
        },
    }
}

pub(super) fn decode_schedule(record: ScheduleRecord) -> Result<Schedule, Error> {
    let mut schedule = Schedule::parse(&record.at).map_err(|error| damaged(error.to_string()))?;
    schedule.timezone = record.tz.unwrap_or_else(|| "UTC".into());
    schedule.dst.gap = match record.gap {
        0 => dst::Gap::After,
        1 => dst::Gap::Skip,
        2 => dst::Gap::Shift,
        other => return Err(damaged(format!("dst_gap {other}"))),
    };
    schedule.dst.overlap = match record.overlap {
        0 => dst::Overlap::First,
        1 => dst::Overlap::Both,
        2 => dst::Overlap::Last,
        other => return Err(damaged(format!("dst_overlap {other}"))),
    };
    schedule.bounds.start = record.start.map(timestamp).transpose()?;
    schedule.bounds.end = record.end.map(timestamp).transpose()?;
    schedule.bounds.max_fires = record.fires.and_then(std::num::NonZeroU64::new);
    schedule.spread = record.spread.map(Duration::from_millis);
    schedule.calendars = record.calendars;
    schedule.on_excluded = match record.excluded {
        0 => OnExcluded::Skip,
        1 => OnExcluded::Next,
        2 => OnExcluded::Previous,
        other => return Err(damaged(format!("on_excluded {other}"))),
    };
    Ok(schedule)
}

const METHODS: [Method; 5] = [Method::Post, Method::Put, Method::Patch, Method::Get, Method::Delete];

fn encode_target(target: &Target) -> TargetRecord<'_> {
    match target {
        Target::Http(http) => TargetRecord::Http {
            url: http.url.as_str().into(),
            method: METHODS.iter().position(|method| *method == http.method).unwrap_or(0) as u8,
            headers: http.headers.as_slice().into(),
            tls: http.tls.as_deref().map(|tls| TlsRecord {
                ca: tls.ca.as_deref().map(Cow::Borrowed),
                cert: tls.client_cert.as_deref().map(Cow::Borrowed),
                key: tls.client_key.as_deref().map(Cow::Borrowed),
            }),
        },
        Target::Function { name } => TargetRecord::Function(name.as_str().into()),
        Target::Worker { handler } => TargetRecord::Worker(handler.as_str().into()),
        Target::Discard => TargetRecord::Discard,
    }
}

fn decode_target(record: TargetRecord<'_>) -> Option<Target> {
    Some(match record {
        TargetRecord::Http { url, method, headers, tls } => {
            let method = *METHODS.get(usize::from(method))?;
            let tls = tls.map(|tls| {
                Box::new(Tls {
                    ca: tls.ca.map(Cow::into_owned),
                    client_cert: tls.cert.map(Cow::into_owned),
                    client_key: tls.key.map(Cow::into_owned),
                })
            });
            Target::Http(Http { url: url.into_owned(), method, headers: headers.into_owned(), tls })
        }
        TargetRecord::Function(name) => Target::Function { name: name.into_owned() },
        TargetRecord::Worker(handler) => Target::Worker { handler: handler.into_owned() },
        TargetRecord::Discard => Target::Discard,
    })
}

fn encode_state(state: &JobState) -> Option<StateRecord> {
    match state {
        JobState::Active => None,
        JobState::Paused(pause) => Some(StateRecord::Paused {
            reason: pause.reason.clone(),
            by: pause.by.clone(),
            since: millis(pause.since),
            until: pause.until.map(millis),
        }),
        JobState::Ended => Some(StateRecord::Ended),
        JobState::Deleted => Some(StateRecord::Deleted),
    }
}

fn decode_state(record: Option<StateRecord>) -> Result<JobState, Error> {
    Ok(match record {
        None => JobState::Active,
        Some(StateRecord::Ended) => JobState::Ended,
        Some(StateRecord::Deleted) => JobState::Deleted,
        Some(StateRecord::Paused { reason, by, since, until }) => JobState::Paused(Pause {
            reason,
            by,
            since: timestamp(since)?,
            until: until.map(timestamp).transpose()?,
        }),
    })
}

#[cfg(test)]
mod tests;
