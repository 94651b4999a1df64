//! Alerts and alarms, as the bodies of their documents.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_domain::Document;
use punctual_domain::alert::{Alarm, Alert, On, To, Which};
use serde::{Deserialize, Serialize};

use super::{damaged, millis, timestamp};
use crate::error::Error;

#[derive(Serialize, Deserialize)]
struct AlertRecord {
    on: OnRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    to: ToRecord,
    repeat_every: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OnRecord {
    DeadLetter,
    BreakerOpen,
    Missed,
    Late(u64),
    Silent(u64),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToRecord {
    Webhook(String),
    Slack(String),
    Mail(Vec<String>),
}

#[derive(Serialize, Deserialize)]
struct AlarmRecord {
    alert: String,
    on: String,
    subject: String,
    name: String,
    since: i64,
    last: i64,
    count: u64,
    detail: String,
    #[serde(default)]
    told: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    told_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    over_at: Option<i64>,
}

/// Writes an alert. Its name and tenant are the document's.
pub fn encode_alert(alert: &Alert) -> Result<Box<str>, Error> {
    let ms = |duration: Duration| duration.as_millis() as u64;
    let Which { job, key, kind, queue, labels } = alert.jobs.clone();
    let record = AlertRecord {
        on: match alert.on {
            On::DeadLetter => OnRecord::DeadLetter,
            On::BreakerOpen => OnRecord::BreakerOpen,
            On::Missed => OnRecord::Missed,
            On::Late { over } => OnRecord::Late(ms(over)),
            On::Silent { after } => OnRecord::Silent(ms(after)),
        },
        job: job.map(|job| job.to_string()),
        key,
        kind,
        queue,
        labels,
        to: match alert.to.clone() {
            To::Webhook { url } => ToRecord::Webhook(url),
            To::Slack { url } => ToRecord::Slack(url),
            To::Mail { to } => ToRecord::Mail(to),
        },
        repeat_every: ms(alert.repeat_every),
    };
    text(&record)
}

/// Reads an alert back.
pub fn decode_alert(document: &Document) -> Result<Alert, Error> {
    let wrong = |what: String| damaged(format!("alert `{}`: {what}", document.name));
    let record: AlertRecord =
        serde_json::from_str(&document.body).map_err(|error| wrong(error.to_string()))?;
    let job = record.job.map(|id| id.parse()).transpose().map_err(|_| wrong("its job".into()))?;
    let ms = Duration::from_millis;
    Ok(Alert {
        name: document.name.clone(),
        tenant: document.tenant,
        on: match record.on {
            OnRecord::DeadLetter => On::DeadLetter,
            OnRecord::BreakerOpen => On::BreakerOpen,
            OnRecord::Missed => On::Missed,
            OnRecord::Late(over) => On::Late { over: ms(over) },
            OnRecord::Silent(after) => On::Silent { after: ms(after) },
        },
        jobs: Which { job, key: record.key, kind: record.kind, queue: record.queue, labels: record.labels },
        to: match record.to {
            ToRecord::Webhook(url) => To::Webhook { url },
            ToRecord::Slack(url) => To::Slack { url },
            ToRecord::Mail(to) => To::Mail { to },
        },
        repeat_every: ms(record.repeat_every),
        since: document.updated_at,
    })
}

/// Writes an alarm. Its tenant is the document's.
pub fn encode_alarm(alarm: &Alarm) -> Result<Box<str>, Error> {
    text(&AlarmRecord {
        alert: alarm.alert.clone(),
        on: alarm.on.clone(),
        subject: alarm.subject.to_string(),
        name: alarm.name.clone(),
        since: millis(alarm.since),
        last: millis(alarm.last_at),
        count: alarm.count,
        detail: alarm.detail.clone(),
        told: alarm.told,
        told_at: alarm.told_at.map(millis),
        over_at: alarm.over_at.map(millis),
    })
}

/// Reads an alarm back.
pub fn decode_alarm(document: &Document) -> Result<Alarm, Error> {
    let wrong = |what: String| damaged(format!("alarm `{}`: {what}", document.name));
    let record: AlarmRecord =
        serde_json::from_str(&document.body).map_err(|error| wrong(error.to_string()))?;
    Ok(Alarm {
        alert: record.alert,
        tenant: document.tenant,
        on: record.on,
        subject: record.subject.parse().map_err(|()| wrong("its subject".into()))?,
        name: record.name,
        since: timestamp(record.since)?,
        last_at: timestamp(record.last)?,
        count: record.count,
        detail: record.detail,
        told: record.told,
        told_at: record.told_at.map(timestamp).transpose()?,
        over_at: record.over_at.map(timestamp).transpose()?,
    })
}

fn text(record: &impl Serialize) -> Result<Box<str>, Error> {
    serde_json::to_string(record).map(Into::into).map_err(|error| damaged(error.to_string()))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use punctual_domain::alert::{Seen, Subject};
    use punctual_domain::document::Kind;
    use punctual_domain::{JobId, ShardId, TenantId};

    use super::*;

    fn document(kind: Kind, name: &str, body: Box<str>, at: Timestamp) -> Document {
        Document { kind, tenant: TenantId(3), name: name.into(), version: 1, body, updated_at: at }
    }

    #[test]
    fn alerts_and_alarms_read_back_as_they_were_written() {
        let at = Timestamp::from_millisecond(1_800_000_000_123).expect("in range");
        let job = JobId::new(at, ShardId(7), 1);
        let second = Duration::from_millis(1_500);
        let named = Which {
            job: Some(job),
            key: Some("k".into()),
            kind: Some("report".into()),
            queue: Some("q".into()),
            labels: BTreeMap::from([("a".into(), "b".into())]),
        };
        for (on, jobs, to) in [
            (On::DeadLetter, Which::default(), To::Webhook { url: "http://a/b".into() }),
            (On::BreakerOpen, Which::default(), To::Slack { url: "http://a/b".into() }),
            (On::Missed, named, To::Mail { to: vec!["a@example.com".into(), "b@example.com".into()] }),
            (On::Late { over: second }, Which::default(), To::Mail { to: Vec::new() }),
            (On::Silent { after: second }, Which::default(), To::Mail { to: Vec::new() }),
        ] {
            let (name, tenant, repeat_every) = ("pager".to_string(), TenantId(3), Duration::from_secs(60));
            let alert = Alert { name, tenant, on, jobs, to, repeat_every, since: at };
            let stored = document(Kind::Alert, "pager", encode_alert(&alert).expect("encodes"), at);
            assert_eq!(decode_alert(&stored).expect("decodes"), alert);
            let seen = Seen { name: "j".into(), last_at: at, count: 9, detail: "d".into() };
            let mut alarm = Alarm::raise(&alert, Subject::Job(job), seen);
            for _ in 0..2 {
                let stored = document(Kind::Alarm, "x", encode_alarm(&alarm).expect("encodes"), at);
                assert_eq!(decode_alarm(&stored).expect("decodes"), alarm);
                alarm.tell(at);
                alarm.over_at = Some(at);
            }
        }
        assert!(decode_alert(&document(Kind::Alert, "x", "{}".into(), at)).is_err());
        assert!(decode_alarm(&document(Kind::Alarm, "x", "[]".into(), at)).is_err());
    }
}
