//! An operation's row: what is not in columns of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_domain::bulk::{CancelRuns, Change, ChangeJobs, Jobs, Left};
use punctual_domain::id::{JobId, OperationId, Sequence, ShardId, TenantId, Version};
use punctual_domain::operation::{
    Backfill, BatchSlot, CatchUp, Cursor, DeadLetters, Kind, MoveShards, Operation, Replan, State,
};
use serde::{Deserialize, Serialize};

use super::is_default;
use super::job::{ScheduleRecord, decode_schedule, encode_schedule};
use super::overlap::OverlapRecord;
use super::{damaged, millis, timestamp};
use crate::error::Error;

/// Raised when a field changes its meaning; adding one does not need it.
const FORM: u8 = 1;

#[derive(Serialize, Deserialize)]
struct OperationRecord {
    v: u8,
    kind: KindRecord,
    state: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cursor: Option<CursorRecord>,
    #[serde(default, skip_serializing_if = "is_default")]
    done: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    failed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    example: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left: Vec<LeftRecord>,
    #[serde(default, skip_serializing_if = "is_default")]
    tries: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    resume: i64,
    created: i64,
    updated: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished: Option<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KindRecord {
    Redrive(DeadLettersRecord),
    Acknowledge(DeadLettersRecord),
    /// With members that older versions do not know: what they cannot read they leave alone, where they would do too much.
    RedriveSome(DeadLettersRecord),
    AcknowledgeSome(DeadLettersRecord),
    CatchUp {
        job: String,
        schedule: Box<ScheduleRecord>,
        to: i64,
        rate: u32,
    },
    MoveShards {
        shards: Vec<u16>,
        to: u8,
    },
    Backfill(Box<BackfillRecord>),
    ChangeJobs {
        which: Box<JobsRecord>,
        change: ChangeRecord,
    },
    CancelRuns(CancelRunsRecord),
    Replan {
        calendar: String,
        version: u64,
    },
    Batch {
        job: String,
        slot: i64,
    },
}

#[derive(Serialize, Deserialize)]
struct JobsRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_prefix: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ChangeRecord {
    Pause {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<i64>,
    },
    Resume,
    Delete,
    Edit {
        patch: Box<str>,
        #[serde(default, skip_serializing_if = "is_default")]
        updates_waiting: bool,
    },
}

#[derive(Serialize, Deserialize)]
struct CancelRunsRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LeftRecord {
    Job(String),
    Run(String),
}

#[derive(Serialize, Deserialize)]
struct BackfillRecord {
    job: String,
    schedule: ScheduleRecord,
    from: i64,
    to: i64,
    rate: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    overlap: Option<OverlapRecord>,
    part: u32,
}

#[derive(Serialize, Deserialize)]
struct DeadLettersRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<(String, String)>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CursorRecord {
    Run(i64),
    Slot(i64),
    Job(String),
    Item(u32),
}

/// Writes an operation. Its id, tenant and version are columns of their own.
pub fn encode_operation(operation: &Operation) -> Result<Vec<u8>, Error> {
    let record = OperationRecord {
        v: FORM,
        kind: match &operation.kind {
            Kind::Redrive(which) if is_some(which) => KindRecord::RedriveSome(encode_dead_letters(which)),
            Kind::Redrive(which) => KindRecord::Redrive(encode_dead_letters(which)),
            Kind::Acknowledge(which) if is_some(which) => {
                KindRecord::AcknowledgeSome(encode_dead_letters(which))
            }
            Kind::Acknowledge(which) => KindRecord::Acknowledge(encode_dead_letters(which)),
            Kind::CatchUp(catch_up) => KindRecord::CatchUp {
                job: catch_up.job.to_string(),
                schedule: Box::new(encode_schedule(&catch_up.schedule)),
                to: millis(catch_up.to),
                rate: catch_up.rate,
            },
            Kind::MoveShards(moved) => KindRecord::MoveShards {
                shards: moved.shards.iter().map(|shard| shard.0).collect(),
                to: moved.to,
            },
            Kind::Backfill(backfill) => KindRecord::Backfill(Box::new(BackfillRecord {
                job: backfill.job.to_string(),
                schedule: encode_schedule(&backfill.schedule),
                from: millis(backfill.from),
                to: millis(backfill.to),
                rate: backfill.rate,
                overlap: backfill.overlap.map(OverlapRecord::from),
                part: backfill.part,
            })),
            Kind::ChangeJobs(asked) => KindRecord::ChangeJobs {
                which: Box::new(encode_jobs(&asked.which)),
                change: encode_change(&asked.change),
            },
            Kind::CancelRuns(which) => KindRecord::CancelRuns(encode_cancel_runs(which)),
            Kind::Replan(Replan { calendar, version }) => {
                KindRecord::Replan { calendar: calendar.clone(), version: *version }
            }
            Kind::Batch(BatchSlot { job, slot }) => {
                KindRecord::Batch { job: job.to_string(), slot: millis(*slot) }
            }
        },
        state: State::ALL.iter().position(|state| *state == operation.state).unwrap_or(0) as u8,
        cursor: match operation.cursor {
            Cursor::Start => None,
            Cursor::Run(sequence) => Some(CursorRecord::Run(sequence.as_i64())),
            Cursor::Slot(slot) => Some(CursorRecord::Slot(millis(slot))),
            Cursor::Job(job) => Some(CursorRecord::Job(job.to_string())),
            Cursor::Item(place) => Some(CursorRecord::Item(place)),
        },
        done: operation.done,
        failed: operation.failed,
        example: operation.example.clone(),
        left: operation.left.iter().map(encode_left).collect(),
        tries: operation.tries,
        total: operation.total,
        error: operation.error.clone(),
        resume: millis(operation.resume_at),
        created: millis(operation.created_at),
        updated: millis(operation.updated_at),
        finished: operation.finished_at.map(millis),
    };
    serde_json::to_vec(&record).map_err(|error| damaged(format!("an operation: {error}")))
}

/// Reads an operation.
pub fn decode_operation(
    id: OperationId,
    tenant: TenantId,
    version: Version,
    bytes: &[u8],
) -> Result<Operation, Error> {
    let wrong = |what: String| damaged(format!("operation {id}: {what}"));
    let record: OperationRecord =
        serde_json::from_slice(bytes).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if record.v != FORM {
        return Err(wrong(format!("has form {}, which is not known", record.v)));
    }
    let state = State::ALL.get(usize::from(record.state)).copied();
    Ok(Operation {
        id,
        tenant,
        version,
        kind: match record.kind {
            KindRecord::Redrive(which) | KindRecord::RedriveSome(which) => {
                Kind::Redrive(decode_dead_letters(which)?)
            }
            KindRecord::Acknowledge(which) | KindRecord::AcknowledgeSome(which) => {
                Kind::Acknowledge(decode_dead_letters(which)?)
            }
            KindRecord::CatchUp { job, schedule, to, rate } => Kind::CatchUp(Box::new(CatchUp {
                job: job_id(&job)?,
                schedule: decode_schedule(*schedule)?,
                to: timestamp(to)?,
                rate,
            })),
            KindRecord::MoveShards { shards, to } => {
                Kind::MoveShards(MoveShards { shards: shards.into_iter().map(ShardId).collect(), to })
            }
            KindRecord::Backfill(record) => Kind::Backfill(Box::new(Backfill {
                job: job_id(&record.job)?,
                schedule: decode_schedule(record.schedule)?,
                from: timestamp(record.from)?,
                to: timestamp(record.to)?,
                rate: record.rate,
                overlap: record.overlap.as_ref().map(Into::into),
                part: record.part,
            })),
            KindRecord::ChangeJobs { which, change } => Kind::ChangeJobs(Box::new(ChangeJobs {
                which: decode_jobs(*which)?,
                change: decode_change(change)?,
            })),
            KindRecord::CancelRuns(which) => Kind::CancelRuns(decode_cancel_runs(which)?),
            KindRecord::Replan { calendar, version } => Kind::Replan(Replan { calendar, version }),
            KindRecord::Batch { job, slot } => {
                Kind::Batch(BatchSlot { job: job_id(&job)?, slot: timestamp(slot)? })
            }
        },
        state: state.ok_or_else(|| wrong(format!("is in state {}", record.state)))?,
        cursor: match record.cursor {
            None => Cursor::Start,
            Some(CursorRecord::Run(number)) => Cursor::Run(Sequence::from_i64(number)),
            Some(CursorRecord::Slot(at)) => Cursor::Slot(timestamp(at)?),
            Some(CursorRecord::Job(job)) => Cursor::Job(job_id(&job)?),
            Some(CursorRecord::Item(place)) => Cursor::Item(place),
        },
        done: record.done,
        failed: record.failed,
        example: record.example,
        left: record.left.into_iter().map(decode_left).collect::<Result<_, _>>()?,
        tries: record.tries,
        total: record.total,
        error: record.error,
        resume_at: timestamp(record.resume)?,
        created_at: timestamp(record.created)?,
        updated_at: timestamp(record.updated)?,
        finished_at: record.finished.map(timestamp).transpose()?,
    })
}

/// Whether they are narrowed by what older versions do not know.
fn is_some(which: &DeadLetters) -> bool {
    which.error.is_some() || which.label.is_some()
}

fn encode_dead_letters(which: &DeadLetters) -> DeadLettersRecord {
    DeadLettersRecord {
        job: which.job.map(|job| job.to_string()),
        kind: which.kind.clone(),
        queue: which.queue.clone(),
        from: which.born_from.map(millis),
        before: which.born_before.map(millis),
        error: which.error.clone(),
        label: which.label.clone(),
    }
}

fn decode_dead_letters(record: DeadLettersRecord) -> Result<DeadLetters, Error> {
    Ok(DeadLetters {
        job: record.job.as_deref().map(job_id).transpose()?,
        kind: record.kind,
        queue: record.queue,
        born_from: record.from.map(timestamp).transpose()?,
        born_before: record.before.map(timestamp).transpose()?,
        error: record.error,
        label: record.label,
    })
}

fn encode_jobs(which: &Jobs) -> JobsRecord {
    JobsRecord {
        state: which.state.map(Into::into),
        name: which.name.clone(),
        key_prefix: which.key_prefix.clone(),
        kind: which.kind.clone(),
        queue: which.queue.clone(),
        labels: which.labels.clone(),
    }
}

fn decode_jobs(record: JobsRecord) -> Result<Jobs, Error> {
    Ok(Jobs {
        state: record.state.map(|word| one_of(&word, &Jobs::STATES)).transpose()?,
        name: record.name,
        key_prefix: record.key_prefix,
        kind: record.kind,
        queue: record.queue,
        labels: record.labels,
    })
}

fn encode_change(change: &Change) -> ChangeRecord {
    match change {
        Change::Pause { reason, by, until } => {
            ChangeRecord::Pause { reason: reason.clone(), by: by.clone(), until: until.map(millis) }
        }
        Change::Resume => ChangeRecord::Resume,
        Change::Delete => ChangeRecord::Delete,
        Change::Edit { patch, updates_waiting } => {
            ChangeRecord::Edit { patch: patch.clone(), updates_waiting: *updates_waiting }
        }
    }
}

fn decode_change(record: ChangeRecord) -> Result<Change, Error> {
    Ok(match record {
        ChangeRecord::Pause { reason, by, until } => {
            Change::Pause { reason, by, until: until.map(timestamp).transpose()? }
        }
        ChangeRecord::Resume => Change::Resume,
        ChangeRecord::Delete => Change::Delete,
        ChangeRecord::Edit { patch, updates_waiting } => Change::Edit { patch, updates_waiting },
    })
}

fn encode_cancel_runs(which: &CancelRuns) -> CancelRunsRecord {
    CancelRunsRecord {
        job: which.job.map(|job| job.to_string()),
        kind: which.kind.clone(),
        queue: which.queue.clone(),
        state: which.state.map(Into::into),
        from: which.born_from.map(millis),
        before: which.born_before.map(millis),
    }
}

fn decode_cancel_runs(record: CancelRunsRecord) -> Result<CancelRuns, Error> {
    Ok(CancelRuns {
        job: record.job.as_deref().map(job_id).transpose()?,
        kind: record.kind,
        queue: record.queue,
        state: record.state.map(|word| one_of(&word, &CancelRuns::STATES)).transpose()?,
        born_from: record.from.map(timestamp).transpose()?,
        born_before: record.before.map(timestamp).transpose()?,
    })
}

fn encode_left(left: &Left) -> LeftRecord {
    match left {
        Left::Job(job) => LeftRecord::Job(job.to_string()),
        Left::Run(run) => LeftRecord::Run(run.to_string()),
    }
}

fn decode_left(record: LeftRecord) -> Result<Left, Error> {
    Ok(match record {
        LeftRecord::Job(id) => Left::Job(job_id(&id)?),
        LeftRecord::Run(id) => {
            Left::Run(id.parse().map_err(|_| damaged(format!("`{id}` is not a run's id")))?)
        }
    })
}

fn one_of(word: &str, known: &[&'static str]) -> Result<&'static str, Error> {
    let found = known.iter().find(|known| **known == word).copied();
    found.ok_or_else(|| damaged(format!("`{word}` is not a state")))
}

fn job_id(text: &str) -> Result<JobId, Error> {
    text.parse().map_err(|_| damaged(format!("`{text}` is not a job's id")))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use punctual_domain::id::RunId;
    use punctual_domain::operation::Event;
    use punctual_domain::policy::overlap::Overlap;
    use punctual_schedule::Schedule;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("in range")
    }

    #[test]
    fn operations_of_every_kind_and_state_read_back() {
        let job = JobId::new(at(0), ShardId(5), 9);
        let which = DeadLetters {
            job: Some(job),
            kind: Some("report".into()),
            queue: Some("slow".into()),
            born_from: Some(at(-9)),
            born_before: Some(at(-1)),
            ..DeadLetters::default()
        };
        let (error, label) = (Some("dns_failed".into()), Some(("team".into(), "a".into())));
        let some = DeadLetters { error, label, ..which.clone() };
        let schedule = Schedule::parse("*/5 9-17 * * MON-FRI").expect("valid");
        let catch_up = Box::new(CatchUp { job, schedule: schedule.clone(), to: at(60), rate: 7 });
        let overlap = Some(Overlap::QueueAll { max: 5 });
        let (from, to) = (at(-3_600), at(-60));
        let backfill = Backfill { job, schedule, from, to, rate: 3, overlap, part: u32::MAX };
        let id = OperationId::new(at(0), ShardId(5), 1);
        let jobs = Jobs {
            state: Some("ended"),
            name: Some("night".into()),
            key_prefix: Some("eu/".into()),
            kind: Some("report".into()),
            queue: Some("slow".into()),
            labels: [("team".into(), "a".into())].into(),
        };
        let change = |which, change| Kind::ChangeJobs(Box::new(ChangeJobs { which, change }));
        let run = RunId::new(Sequence::first_at(at(1), 2), ShardId(5));
        for kind in [
            Kind::Redrive(DeadLetters::default()),
            Kind::Redrive(which.clone()),
            Kind::Acknowledge(which),
            Kind::Redrive(some.clone()),
            Kind::Acknowledge(some),
            Kind::CatchUp(catch_up),
            Kind::Backfill(Box::new(Backfill { overlap: Some(Overlap::Allow), ..backfill.clone() })),
            Kind::Backfill(Box::new(Backfill { overlap: None, ..backfill.clone() })),
            Kind::Backfill(Box::new(backfill)),
            Kind::MoveShards(MoveShards { shards: vec![ShardId(0), ShardId(4095)], to: 3 }),
            change(Jobs::default(), Change::Resume),
            change(jobs.clone(), Change::Delete),
            change(jobs.clone(), Change::Pause { reason: None, by: None, until: None }),
            change(
                jobs.clone(),
                Change::Pause { reason: Some("why".into()), by: Some("me".into()), until: Some(at(60)) },
            ),
            change(jobs.clone(), Change::Edit { patch: r#"{"queue":"x"}"#.into(), updates_waiting: true }),
            change(jobs, Change::Edit { patch: "{}".into(), updates_waiting: false }),
            Kind::CancelRuns(CancelRuns::default()),
            Kind::Replan(Replan { calendar: "holidays".into(), version: 7 }),
            Kind::Batch(BatchSlot { job, slot: at(-60) }),
            Kind::CancelRuns(CancelRuns {
                job: Some(job),
                kind: Some("report".into()),
                queue: Some("slow".into()),
                state: Some("running"),
                born_from: Some(at(-9)),
                born_before: Some(at(-1)),
            }),
        ] {
            let mut operation = Operation::new(id, TenantId(4), kind, at(0));
            for event in [
                Event::Stepped { cursor: Cursor::Run(Sequence::first_at(at(1), 2)), resume_at: at(5) },
                Event::Stepped { cursor: Cursor::Slot(at(7)), resume_at: at(6) },
                Event::Stepped { cursor: Cursor::Job(job), resume_at: at(6) },
                Event::Stepped { cursor: Cursor::Item(7), resume_at: at(6) },
                Event::Failed { error: "why".into() },
            ] {
                operation.apply(event, at(3)).expect("running");
                (operation.done, operation.failed, operation.total) = (5, 1, Some(9));
                (operation.left, operation.tries) = (vec![Left::Job(job), Left::Run(run)], 3);
                operation.example = Some("job x: why".into());
                let bytes = encode_operation(&operation).expect("written");
                assert_eq!(
                    decode_operation(id, TenantId(4), operation.version, &bytes),
                    Ok(operation.clone())
                );
            }
        }
    }

    #[test]
    fn what_is_not_known_is_damage() {
        let id = OperationId::new(at(0), ShardId(5), 1);
        for text in [
            "",
            "{}",
            r#"{"v":2,"kind":{"redrive":{}},"state":0,"resume":0,"created":0,"updated":0}"#,
            r#"{"v":1,"kind":{"redrive":{}},"state":4,"resume":0,"created":0,"updated":0}"#,
            r#"{"v":1,"kind":{"redrive":{"job":"x"}},"state":0,"resume":0,"created":0,"updated":0}"#,
            r#"{"v":1,"kind":{"dance":{}},"state":0,"resume":0,"created":0,"updated":0}"#,
            r#"{"v":1,"kind":{"cancel_runs":{"state":"x"}},"state":0,"resume":0,"created":0,"updated":0}"#,
        ] {
            let read = decode_operation(id, TenantId(1), Version::FIRST, text.as_bytes());
            assert!(matches!(read, Err(Error::Damaged { .. })), "{text}");
        }
    }
}
