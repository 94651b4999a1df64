//! The document of a calendar: what it says, and what it said before.

use std::sync::Arc;

use punctual_domain::Document;
use punctual_domain::calendar::{Named, Was};
use punctual_schedule::calendar::{Calendar, Parts};
use serde::{Deserialize, Serialize};

use super::{damaged, millis, timestamp};
use crate::error::Error;

/// Raised when a field changes its meaning; adding one does not need it.
const FORM: u8 = 1;

#[derive(Serialize, Deserialize)]
struct NamedRecord {
    v: u8,
    #[serde(flatten)]
    calendar: CalendarRecord,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    before: Vec<WasRecord>,
}

#[derive(Serialize, Deserialize)]
struct WasRecord {
    until: i64,
    #[serde(flatten)]
    calendar: CalendarRecord,
}

#[derive(Serialize, Deserialize)]
struct CalendarRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tz: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    include_dates: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    exclude_dates: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    include_weekdays: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    exclude_weekdays: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    include_windows: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    exclude_windows: Vec<String>,
}

/// Writes a calendar. Its name, version and time are members of the document.
pub fn encode_calendar(calendar: &Calendar, before: &[Was]) -> Result<Box<str>, Error> {
    let was = |was: &Was| WasRecord { until: millis(was.until), calendar: encode(&was.calendar) };
    let record =
        NamedRecord { v: FORM, calendar: encode(calendar), before: before.iter().map(was).collect() };
    let text = serde_json::to_string(&record).map_err(|error| damaged(format!("a calendar: {error}")))?;
    Ok(text.into())
}

/// Reads a calendar.
pub fn decode_calendar(document: &Document) -> Result<Named, Error> {
    let wrong = |what: String| damaged(format!("calendar `{}`: {what}", document.name));
    let record: NamedRecord =
        serde_json::from_str(&document.body).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if record.v != FORM {
        return Err(wrong(format!("has form {}, which is not known", record.v)));
    }
    let read =
        |record: CalendarRecord| decode(record).map(Arc::new).map_err(|error| wrong(error.to_string()));
    let was = |was: WasRecord| Ok(Was { until: timestamp(was.until)?, calendar: read(was.calendar)? });
    Ok(Named {
        name: document.name.clone(),
        version: document.version,
        updated_at: document.updated_at,
        calendar: read(record.calendar)?,
        before: record.before.into_iter().map(was).collect::<Result<_, Error>>()?,
    })
}

fn encode(calendar: &Calendar) -> CalendarRecord {
    let parts = calendar.parts();
    CalendarRecord {
        tz: parts.timezone,
        include_dates: parts.include_dates,
        exclude_dates: parts.exclude_dates,
        include_weekdays: parts.include_weekdays,
        exclude_weekdays: parts.exclude_weekdays,
        include_windows: parts.include_windows,
        exclude_windows: parts.exclude_windows,
    }
}

fn decode(record: CalendarRecord) -> Result<Calendar, punctual_schedule::Error> {
    Calendar::from_parts(&Parts {
        timezone: record.tz,
        include_dates: record.include_dates,
        exclude_dates: record.exclude_dates,
        include_weekdays: record.include_weekdays,
        exclude_weekdays: record.exclude_weekdays,
        include_windows: record.include_windows,
        exclude_windows: record.exclude_windows,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use jiff::Timestamp;
    use punctual_domain::TenantId;
    use punctual_domain::document::Kind;

    use super::*;

    fn document(body: &str) -> Document {
        let (kind, tenant, name) = (Kind::Calendar, TenantId::DEFAULT, "holidays".to_string());
        Document { kind, tenant, name, version: 3, body: body.into(), updated_at: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn a_calendar_reads_back_with_what_it_said_before() {
        let calendar = Calendar::weekdays()
            .in_zone("Europe/Paris")
            .exclude_date("12-25")
            .and_then(|calendar| calendar.include_date("2026-12-26"))
            .and_then(|calendar| calendar.include_window("09:00-17:30"))
            .and_then(|calendar| calendar.exclude_window("12:00-13:00"))
            .unwrap();
        let before =
            [Was { until: "2026-01-01T00:00:00.5Z".parse().unwrap(), calendar: Arc::new(Calendar::new()) }];
        let named = decode_calendar(&document(&encode_calendar(&calendar, &before).unwrap())).unwrap();
        assert_eq!((&*named.calendar, &named.before[..], named.version), (&calendar, &before[..], 3));
    }

    #[test]
    fn what_nobody_said_is_not_written() {
        assert_eq!(&*encode_calendar(&Calendar::new(), &[]).unwrap(), r#"{"v":1}"#);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for body in ["", r#"{"v":2}"#, r#"{"v":1,"exclude_dates":["2026-13-01"]}"#] {
            let error = decode_calendar(&document(body)).unwrap_err().to_string();
            assert!(error.contains("calendar `holidays`"), "{error}");
        }
    }
}
