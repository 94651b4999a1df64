//! Named calendars, on the wire: which days and hours are allowed, for all schedules that name one.

use jiff::Timestamp;
use punctual_domain::calendar::Named;
use punctual_domain::labels;
use punctual_schedule::calendar::{Calendar as Domain, Parts};
use punctual_schedule::{Error, Tzdb};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::read::{At, Errors, Unread, checked};

object! {
    /// Which days and hours are allowed. An excluded date never is, an included one is even on an excluded weekday; a calendar that
    /// includes dates and says nothing of weekdays allows only those dates.
    pub struct CalendarSpec {
        /// The zone of its clock: an IANA name or an offset. Without one, the clock of each schedule. It stays while jobs use the
        /// calendar.
        #[schema(example = "Europe/Paris")]
        pub timezone: String,
        /// Allowed days: `2026-12-24`, or `12-24` for every year.
        pub include_dates: Vec<String>,
        /// Excluded days: `2026-12-25`, or `12-25` for every year.
        #[schema(example = json!(["12-25", "2026-04-06"]))]
        pub exclude_dates: Vec<String>,
        /// Only these weekdays: `MON-FRI`.
        pub include_weekdays: Vec<String>,
        /// Not these weekdays: `SAT,SUN`.
        pub exclude_weekdays: Vec<String>,
        /// Only these hours: `09:00-17:30`, `22:00-06:00`.
        pub include_windows: Vec<String>,
        /// Not these hours: `12:00-13:00`.
        pub exclude_windows: Vec<String>,
    }
}

/// A calendar under its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Calendar {
    /// Its name.
    pub name: String,
    /// What it says.
    #[serde(flatten)]
    pub spec: CalendarSpec,
    /// Counts its changes, from 1.
    pub version: u64,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// After a change: the operation that plans the jobs anew which use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
}

/// What the server adds: a calendar that was read may be written back as it is.
const SHOWN: [&str; 4] = ["name", "version", "updated_at", "operation_id"];

type Add = fn(Domain, &str) -> Result<Domain, Error>;

impl CalendarSpec {
    /// Reads a body.
    pub fn from_text(text: &str) -> Result<Self, Unread> {
        let text = checked(text)?;
        let mut errors = Errors::default();
        match CalendarSpec::read_except(text, &SHOWN, &At::ROOT, &mut errors) {
            Some(spec) if errors.is_empty() => Ok(spec),
            _ => Err(Unread::Wrong(errors.into_vec())),
        }
    }

    /// As it is kept, or everything that is wrong.
    pub fn to_domain(&self, name: &str, tzdb: &Tzdb) -> Result<Domain, Unread> {
        let (at, mut errors) = (At::ROOT, Errors::default());
        if labels::check("name", name).is_err() {
            let detail = "the name of a calendar has 1 to 63 letters, digits and any of . _ - /";
            errors.add(&at.member("name"), "bad_character", detail);
        }
        if let Some(Err(error)) = self.timezone.as_ref().map(|zone| tzdb.zone(zone)) {
            errors.add(&at.member("timezone"), error.code().as_str(), error.to_string());
        }
        let lists: [(&str, &Option<Vec<String>>, Add); 6] = [
            ("include_dates", &self.include_dates, Domain::include_date),
            ("exclude_dates", &self.exclude_dates, Domain::exclude_date),
            ("include_weekdays", &self.include_weekdays, Domain::include_weekdays),
            ("exclude_weekdays", &self.exclude_weekdays, Domain::exclude_weekdays),
            ("include_windows", &self.include_windows, Domain::include_window),
            ("exclude_windows", &self.exclude_windows, Domain::exclude_window),
        ];
        for (member, texts, add) in lists {
            let list = at.member(member);
            for (index, text) in texts.iter().flatten().enumerate() {
                if let Err(error) = add(Domain::new(), text) {
                    errors.add(&list.item(index), error.code().as_str(), error.to_string());
                }
            }
        }
        match Domain::from_parts(&self.parts()) {
            Ok(calendar) if errors.is_empty() => Ok(calendar),
            Err(error) if errors.is_empty() => {
                errors.add(&at, error.code().as_str(), error.to_string());
                Err(Unread::Wrong(errors.into_vec()))
            }
            Ok(_) | Err(_) => Err(Unread::Wrong(errors.into_vec())),
        }
    }

    fn parts(&self) -> Parts {
        Parts {
            timezone: self.timezone.clone(),
            include_dates: self.include_dates.clone().unwrap_or_default(),
            exclude_dates: self.exclude_dates.clone().unwrap_or_default(),
            include_weekdays: self.include_weekdays.clone().unwrap_or_default(),
            exclude_weekdays: self.exclude_weekdays.clone().unwrap_or_default(),
            include_windows: self.include_windows.clone().unwrap_or_default(),
            exclude_windows: self.exclude_windows.clone().unwrap_or_default(),
        }
    }

    /// Adds what another says: its dates, weekdays and windows beside those that are here, its zone in the place of this one.
    #[must_use]
    pub fn with(self, more: CalendarSpec) -> Self {
        fn both(some: Option<Vec<String>>, more: Option<Vec<String>>) -> Option<Vec<String>> {
            let all: Vec<String> = some.into_iter().chain(more).flatten().collect();
            (!all.is_empty()).then_some(all)
        }
        CalendarSpec {
            timezone: more.timezone.or(self.timezone),
            include_dates: both(self.include_dates, more.include_dates),
            exclude_dates: both(self.exclude_dates, more.exclude_dates),
            include_weekdays: both(self.include_weekdays, more.include_weekdays),
            exclude_weekdays: both(self.exclude_weekdays, more.exclude_weekdays),
            include_windows: both(self.include_windows, more.include_windows),
            exclude_windows: both(self.exclude_windows, more.exclude_windows),
        }
    }
}

impl From<&Domain> for CalendarSpec {
    fn from(calendar: &Domain) -> Self {
        let parts = calendar.parts();
        let some = |texts: Vec<String>| (!texts.is_empty()).then_some(texts);
        CalendarSpec {
            timezone: parts.timezone,
            include_dates: some(parts.include_dates),
            exclude_dates: some(parts.exclude_dates),
            include_weekdays: some(parts.include_weekdays),
            exclude_weekdays: some(parts.exclude_weekdays),
            include_windows: some(parts.include_windows),
            exclude_windows: some(parts.exclude_windows),
        }
    }
}

impl From<&Named> for Calendar {
    fn from(named: &Named) -> Self {
        Calendar {
            name: named.name.clone(),
            spec: CalendarSpec::from(&*named.calendar),
            version: named.version,
            updated_at: named.updated_at,
            operation_id: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(body: &str) -> Vec<String> {
        let read = CalendarSpec::from_text(body);
        match read.and_then(|spec| spec.to_domain("holidays", &Tzdb::bundled())) {
            Ok(calendar) => {
                let text = serde_json::to_string(&CalendarSpec::from(&calendar)).expect("JSON");
                // What is shown is accepted again, and the same.
                let again =
                    CalendarSpec::from_text(&text).and_then(|spec| spec.to_domain("a", &Tzdb::bundled()));
                assert_eq!(again.as_ref(), Ok(&calendar));
                vec![text]
            }
            Err(Unread::Malformed(reason)) => vec![reason],
            Err(Unread::Wrong(errors)) => {
                errors.iter().map(|error| format!("{} {}", error.pointer, error.code)).collect()
            }
        }
    }

    #[test]
    fn a_calendar_is_shown_in_order_and_every_wrong_part_is_named() {
        assert_eq!(said("{}"), ["{}"]);
        let body = r#"{"name":"x","version":3,"timezone":"Europe/Paris","exclude_dates":["12-25","2026-04-06","12-25"],
            "include_weekdays":["MON-FRI"],"include_windows":["9:00-17:00"]}"#;
        assert_eq!(said(body), ["/include_windows/0 schedule_calendar"]);
        let body = r#"{"exclude_dates":["12-25","2026-04-06","12-25"],"include_weekdays":["MON-TUE"]}"#;
        let shown = r#"{"exclude_dates":["2026-04-06","12-25"],"include_weekdays":["MON","TUE"]}"#;
        assert_eq!(said(body), [shown]);
        let body = r#"{"timezone":"Mars","dates":[],"exclude_dates":["12-25",7]}"#;
        assert_eq!(said(body), ["/dates unknown_field", "/exclude_dates/1 wrong_type"]);
        let body = r#"{"timezone":"Mars","exclude_dates":["2026-02-30"],"exclude_weekdays":["someday"]}"#;
        let wrong = [
            "/timezone schedule_timezone",
            "/exclude_dates/0 schedule_calendar",
            "/exclude_weekdays/0 schedule_calendar",
        ];
        assert_eq!(said(body), wrong);
        let many: Vec<String> = (0..25).map(|minute| format!("\"01:00-01:{:02}\"", minute + 1)).collect();
        assert_eq!(said(&format!(r#"{{"exclude_windows":[{}]}}"#, many.join(","))), [" schedule_calendar"]);
        let name = CalendarSpec::default().to_domain("no blanks", &Tzdb::bundled());
        assert!(matches!(name, Err(Unread::Wrong(errors)) if errors[0].pointer == "/name"));
    }
}
