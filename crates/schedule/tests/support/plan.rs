//! A schedule with its calendars, as a row of a table says it, and the questions every row answers.

use std::sync::Arc;

use jiff::civil::{Date, DateTime};
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp, ToSpan};
use punctual_schedule::calendar::{Calendar, Calendars, OnExcluded};
use punctual_schedule::{Binding, Error, Schedule, Timetable, Tzdb, dst};

/// A schedule and what it is bound to.
pub(crate) struct Plan {
    pub(crate) schedule: Schedule,
    pub(crate) binding: Binding,
}

impl Plan {
    pub(crate) fn new(text: &str, zone: &str) -> Self {
        let mut schedule = Schedule::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        schedule.timezone = zone.into();
        Plan { schedule, binding: Binding::default() }
    }

    /// Calendars in words, several of them apart by `;`. Each word allows (`+`) or excludes (`-`)
    /// weekdays, a date, all dates of `from..to` or a daily window; `@` names the zone.
    pub(crate) fn calendars(mut self, words: &str) -> Self {
        let mut calendars = Calendars::new();
        for (index, words) in words.split(';').enumerate() {
            let name = format!("calendar-{index}");
            let calendar = words.split_whitespace().fold(Calendar::new(), |c, word| add(c, word).unwrap());
            calendars.insert(name.clone(), Arc::new(calendar));
            self.schedule.calendars.push(name);
        }
        self.binding.calendars = Arc::new(calendars);
        self
    }
    pub(crate) fn excluded(mut self, on_excluded: OnExcluded) -> Self {
        self.schedule.on_excluded = on_excluded;
        self
    }
    pub(crate) fn policy(mut self, gap: dst::Gap, overlap: dst::Overlap) -> Self {
        self.schedule.dst = dst::Policy { gap, overlap };
        self
    }

    pub(crate) fn bind(&self) -> Result<Timetable, Error> {
        self.schedule.timetable(&Tzdb::bundled(), &self.binding)
    }

    /// The slots after an instant are these, forwards, backwards and counted; a last word `end`
    /// says that there are no more.
    #[track_caller]
    pub(crate) fn expect(&self, after: &str, slots: &str) {
        let context = format!("{} after {after}", self.schedule);
        let timetable = self.bind().unwrap_or_else(|error| panic!("{context}: {error}"));
        let (slots, ends) = match slots.strip_suffix("end") {
            Some(slots) => (slots, true),
            None => (slots, false),
        };
        let slots: Vec<Timestamp> = slots.split_whitespace().map(at).collect();
        let after = at(after);
        let wanted = slots.len() + usize::from(ends);
        let found: Vec<Timestamp> = timetable.upcoming(after).take(wanted).collect();
        assert_eq!(found, slots, "{context}");
        for pair in slots.windows(2) {
            assert_eq!(timetable.previous_before(pair[1]), Some(pair[0]), "{context}: before {}", pair[1]);
        }
        let (nanosecond, millisecond) = (SignedDuration::from_nanos(1), SignedDuration::from_millis(1));
        for slot in &slots {
            assert_eq!(
                timetable.next_after(*slot - millisecond),
                Some(*slot),
                "{context}: just before {slot}"
            );
            assert_eq!(
                timetable.previous_before(*slot + millisecond),
                Some(*slot),
                "{context}: just after {slot}"
            );
            assert_eq!(timetable.count(*slot, *slot + nanosecond), 1, "{context}: counted at {slot}");
        }
        let until = match (ends, slots.last()) {
            (true, last) => {
                let end = at("2199-12-31T23:59Z");
                assert_eq!(timetable.previous_before(end).filter(|slot| *slot > after), last.copied());
                end
            }
            (false, Some(last)) => *last,
            (false, None) => panic!("{context}: expects nothing at all"),
        };
        let counted = timetable.count(after + nanosecond, until + nanosecond);
        assert_eq!(counted, slots.len() as u64, "{context}: counted to {until}");
    }
}

fn add(calendar: Calendar, word: &str) -> Result<Calendar, Error> {
    let (sign, what) = word.split_at(1);
    if let Some((from, to)) = what.split_once("..") {
        let (from, to): (Date, Date) = (from.parse().unwrap(), to.parse().unwrap());
        let dates = from.series(1.day()).take_while(|date| *date <= to);
        return dates.into_iter().try_fold(calendar, |c, date| add(c, &format!("{sign}{date}")));
    }
    let starts_with_digit = what.starts_with(|c: char| c.is_ascii_digit());
    match (sign, what.contains(':'), starts_with_digit) {
        ("@", ..) => Ok(calendar.in_zone(what)),
        ("+", true, _) => calendar.include_window(what),
        ("-", true, _) => calendar.exclude_window(what),
        ("+", false, true) => calendar.include_date(what),
        ("-", false, true) => calendar.exclude_date(what),
        ("+", false, false) => calendar.include_weekdays(what),
        ("-", false, false) => calendar.exclude_weekdays(what),
        _ => panic!("`{word}` says nothing about a calendar"),
    }
}

/// `2026-03-08T03:00-04:00` and `2026-03-08T03:00Z`, with or without seconds.
pub(crate) fn at(text: &str) -> Timestamp {
    let (civil, offset) = match text.strip_suffix('Z') {
        Some(civil) => (civil, Offset::UTC),
        None => {
            let (civil, offset) = text.split_at(text.len() - 6);
            let number = |text: &str| text.parse::<i32>().unwrap();
            let seconds = number(&offset[1..3]) * 3600 + number(&offset[4..6]) * 60;
            let signed = if offset.starts_with('-') { -seconds } else { seconds };
            (civil, Offset::from_seconds(signed).unwrap())
        }
    };
    let civil: DateTime = civil.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    offset.to_timestamp(civil).unwrap()
}

/// The rows of a table in `testdata/`, cut at ` | `.
pub(crate) fn rows<const N: usize>(table: &str) -> Vec<[&str; N]> {
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let columns: Vec<&str> = line.split(" | ").map(str::trim).collect();
            columns.try_into().unwrap_or_else(|c: Vec<&str>| panic!("{} columns in {line}", c.len()))
        })
        .collect()
}
