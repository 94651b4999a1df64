//! A job's row: what is not in columns of its own.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use punctual_domain::id::{JobId, TenantId, Version};
use punctual_domain::job::{
    Before, Carried, Change, Http, Job, JobState, Lane, Method, Pause, Spec, Target, host,
};
use punctual_domain::labels::Labels;
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
    #[serde(default, skip_serializing_if = "is_default")]
    lane: u8,
    #[serde(default, skip_serializing_if = "is_default")]
    priority: i16,
    schedule: ScheduleRecord,
    target: TargetRecord<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
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
#[serde(rename_all = "lowercase")]
enum TargetRecord<'a> {
    Http {
        url: Cow<'a, str>,
        #[serde(default, skip_serializing_if = "is_default")]
        method: u8,
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        headers: Cow<'a, [(String, String)]>,
    },
    Function(Cow<'a, str>),
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
        lane: lane_code(job.spec.lane),
        priority: job.spec.priority,
        schedule: encode_schedule(&job.spec.schedule),
        target: encode_target(&job.spec.target),
        payload,
        policies: encode_policies(&job.spec.policies),
        correlation: job.spec.correlation_id.clone(),
        state: encode_state(&job.state),
        created: millis(job.created_at),
        updated: millis(job.updated_at),
        carried: job.carried.map(|carried| (millis(carried.at), millis(carried.slot))),
        changes: job.changes.iter().map(encode_change).collect(),
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
            lane: lane_of(record.lane).ok_or_else(|| wrong(format!("lane {}", record.lane)))?,
            priority: record.priority,
            schedule: decode_schedule(record.schedule).map_err(|error| wrong(error.to_string()))?,
            target: decode_target(record.target).ok_or_else(|| wrong("its target".into()))?,
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
            TargetRecord::Discard => "discard".into(),
        };
        Ok(Planned {
            job: id,
            tenant,
            kind: record.kind.as_deref().map(|kind| self.word(kind)),
            destination: self.word(&destination),
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
        },
        Target::Function { name } => TargetRecord::Function(name.as_str().into()),
        Target::Discard => TargetRecord::Discard,
    }
}

fn decode_target(record: TargetRecord<'_>) -> Option<Target> {
    Some(match record {
        TargetRecord::Http { url, method, headers } => {
            let method = *METHODS.get(usize::from(method))?;
            Target::Http(Http { url: url.into_owned(), method, headers: headers.into_owned() })
        }
        TargetRecord::Function(name) => Target::Function { name: name.into_owned() },
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
mod tests {
    use std::num::NonZeroU32;

    use punctual_domain::policy::limit::{Across, Concurrency, Rate, RateLimit};

    use super::*;
    use std::time::Duration;

    use jiff::Timestamp;
    use punctual_domain::Outcome;
    use punctual_domain::ShardId;
    use punctual_domain::policy::Policies;
    use punctual_domain::policy::catch_up::CatchUp;
    use punctual_domain::policy::failures::Failures;
    use punctual_domain::policy::failures::Status;
    use punctual_domain::policy::overlap::Overlap;
    use punctual_domain::policy::retention::Retention;
    use punctual_domain::policy::retry::{Backoff, Retry};
    use punctual_domain::policy::timeouts::Timeouts;

    use super::super::policies::defaults;

    fn job() -> Job {
        let at = Timestamp::from_millisecond(1_800_000_000_123).expect("in range");
        Job {
            id: JobId::new(at, ShardId(7), 1),
            tenant: TenantId(3),
            version: Version(4),
            state: JobState::Active,
            spec: Spec::new("plain", Schedule::parse("@every 5s").expect("valid"), Target::Discard),
            created_at: at,
            updated_at: at,
            carried: None,
            changes: Vec::new(),
        }
    }

    fn full() -> Job {
        let mut job = job();
        job.state = JobState::Paused(Pause {
            reason: Some("because".into()),
            by: Some("me".into()),
            since: job.created_at,
            until: Some(job.created_at),
        });
        job.spec.key = Some("k".into());
        job.spec.kind = Some("report".into());
        job.spec.labels.insert("a".into(), "b".into());
        job.spec.requires = "zone=eu,gpu=true".parse().expect("labels");
        job.spec.lane = Lane::Critical;
        job.spec.priority = -7;
        job.spec.schedule = Schedule::parse("30 2 * * MON-FRI").expect("valid");
        job.spec.schedule.timezone = "Europe/Paris".into();
        job.spec.schedule.dst = dst::Policy { gap: dst::Gap::Shift, overlap: dst::Overlap::Last };
        job.spec.schedule.bounds.start = Some(job.created_at);
        job.spec.schedule.bounds.end = Some(job.created_at);
        job.spec.schedule.bounds.max_fires = std::num::NonZeroU64::new(9);
        job.spec.schedule.spread = Some(Duration::from_secs(30));
        job.spec.schedule.calendars = vec!["holidays".into()];
        job.spec.schedule.on_excluded = OnExcluded::Previous;
        job.spec.target = Target::Http(Http {
            url: "http://127.0.0.1:9/x".into(),
            method: Method::Put,
            headers: vec![("A".into(), "b".into())],
        });
        job.spec.payload = Some("{ \"kept\" :  [1.0, 1e2,\t\"\\u00e9\"] }".into());
        job.spec.policies = Policies {
            catch_up: CatchUp::All { window: Duration::from_secs(5), max: 6, rate: 7 },
            retry: Retry {
                max_attempts: 9,
                backoff: Backoff::Exponential {
                    base: Duration::from_millis(1500),
                    cap: Duration::from_secs(60),
                },
                retry_for: Some(Duration::from_secs(7_200)),
                on: Failures {
                    outcomes: vec![Outcome::TimedOut],
                    statuses: vec![Status::One(409), Status::Class(5)],
                    errors: vec!["tls_failed".into()],
                },
                not_on: Failures { statuses: vec![Status::One(501)], ..Failures::default() },
            },
            timeouts: Timeouts {
                start_window: Some(Duration::from_secs(600)),
                attempt: Duration::from_secs(5),
                deadline: Some(Duration::from_millis(3_600_500)),
                min_duration: Some(Duration::from_millis(1)),
            },
            retention: Retention::Year,
            overlap: Overlap::QueueAll { max: 3 },
            concurrency: Some(Concurrency {
                max: NonZeroU32::MIN,
                key: Some("{payload.customer}".parse().expect("a template")),
                across: Across::Queue,
                holds_retries: false,
            }),
            rate: Some(RateLimit {
                rate: Rate { limit: NonZeroU32::MAX, per: Duration::from_secs(60), burst: NonZeroU32::MIN },
                key: None,
                across: Across::Tenant,
            }),
        };
        job.spec.correlation_id = Some("corr".into());
        let pause = Pause { reason: None, by: Some("you".into()), since: job.created_at, until: None };
        let schedule = Box::new(Schedule::parse("15 3 * * *").expect("valid"));
        job.changes = [Before::Pause(pause), Before::Schedule(schedule)]
            .map(|until| Change { at: job.updated_at, version: Version(2), until })
            .into();
        job
    }

    #[test]
    fn a_job_reads_back_as_it_was_written() {
        let backoff = |backoff: Backoff| {
            let mut job = job();
            job.spec.policies.retry.backoff = backoff;
            job
        };
        let (base, cap) = (Duration::from_secs(2), Duration::from_secs(20));
        let retried = [
            backoff(Backoff::Linear { base, cap }),
            backoff(Backoff::Fixed { delay: base }),
            backoff(Backoff::List { delays: vec![cap, base] }),
        ];
        let policies = [Overlap::Skip, Overlap::QueueOne, Overlap::CancelRunning];
        let overlapping = policies.map(|overlap| {
            let mut job = job();
            job.spec.policies.overlap = overlap;
            job
        });
        for job in [job(), full()].into_iter().chain(retried).chain(overlapping) {
            let bytes = encode_job(&job).expect("encodes");
            assert_eq!(decode_job(job.id, job.tenant, job.version, &bytes).expect("decodes"), job);
        }
    }

    /// A job as programs wrote it that knew exponential delays and one timeout.
    #[test]
    fn what_was_written_before_is_read_as_it_was_meant() {
        let plain = job();
        let read = |policies: &str| {
            let bytes = encode_job(&plain).expect("encodes");
            let text = String::from_utf8(bytes).expect("text");
            let text = text.replace("\"created\"", &format!("\"policies\":{policies},\"created\""));
            decode_job(plain.id, plain.tenant, plain.version, text.as_bytes()).expect("decodes").spec.policies
        };
        let old = read(r#"{"retry":[5,2000,60000],"timeout":7000}"#);
        let backoff = Backoff::Exponential { base: Duration::from_secs(2), cap: Duration::from_secs(60) };
        assert_eq!(old.retry, Retry { max_attempts: 5, backoff, ..defaults().retry });
        assert_eq!(old.timeouts, Timeouts { attempt: Duration::from_secs(7), ..defaults().timeouts });
        assert_eq!(read("{}"), Policies::default(), "today's defaults are those of this form");
    }

    #[test]
    fn what_equals_the_default_is_not_written() {
        let bytes = encode_job(&job()).expect("encodes");
        let text = String::from_utf8(bytes).expect("text");
        let expected = "{\"v\":1,\"name\":\"plain\",\"queue\":\"default\",\"schedule\":{\"at\":\"@every PT5S\"},\
                        \"target\":\"discard\",\"created\":1800000000123,\"updated\":1800000000123}";
        assert_eq!(text, expected);
    }

    #[test]
    fn damaged_rows_are_named_and_not_guessed() {
        let job = full();
        let bytes = encode_job(&job).expect("encodes");
        let read = |bytes: &[u8]| decode_job(job.id, job.tenant, job.version, bytes);
        let text = String::from_utf8(bytes).expect("text");
        for (from, to) in [
            ("\"v\":1", "\"v\":99"),
            ("\"lane\":1", "\"lane\":77"),
            ("30 2 * * 1-5", "30 2 * *"),
            ("\"gap\":2", "\"gap\":9"),
            ("\"days\":400", "\"days\":3"),
            ("gpu=true", "gpu"),
            ("\"timed_out\"", "\"tired_out\""),
            ("\"5xx\"", "\"5xy\""),
            ("{\"v\"", "[\"v\""),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            let error = read(text.replace(from, to).as_bytes()).expect_err(to);
            assert!(error.to_string().contains(&job.id.to_string()), "{error}");
        }
    }
}
