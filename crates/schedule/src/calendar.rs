//! Named calendars: the days and hours on which slots are allowed.
//!
//! A schedule may name several; a slot must be allowed by all of them. An excluded slot is
//! skipped, or moved to the next or previous allowed day at the same time of day. Business days
//! (`3B` in the day field) are counted over the days a schedule's calendars allow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::civil::{days_from_date, days_in_month, every_week, weekday};
use crate::error::{Code, Error};

/// Days and hours on which slots are allowed.
///
/// A day is allowed when it is an included date, or when its weekday is allowed; an excluded date
/// is never allowed. A calendar that includes dates and says nothing of weekdays allows only
/// those dates. Inside an allowed day, the time must lie in an included window (if there are any)
/// and in no excluded one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calendar {
    zone: Option<String>,
    included_dates: BTreeSet<Date>,
    excluded_dates: BTreeSet<Date>,
    included_weekdays: u8,
    excluded_weekdays: u8,
    included_windows: Vec<Window>,
    excluded_windows: Vec<Window>,
}

/// One day, or the same day of every year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Date {
    Once(i32),
    Yearly { month: u32, day: u32 },
}

/// From one second of the day up to, not including, another; may run over midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    from: u32,
    to: u32,
}

/// What happens to a slot on an excluded day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExcluded {
    /// It does not exist.
    #[default]
    Skip,
    /// It moves to the next allowed day, same time of day.
    Next,
    /// It moves to the previous allowed day, same time of day.
    Previous,
}

/// The calendars of a tenant, by name.
pub type Calendars = BTreeMap<String, Arc<Calendar>>;

impl Calendar {
    /// A calendar that allows everything.
    pub fn new() -> Self {
        Calendar::default()
    }

    /// Monday to Friday.
    pub fn weekdays() -> Self {
        Calendar { excluded_weekdays: 0b100_0001, ..Calendar::default() }
    }

    /// Judges days and hours on the clock of this zone; without it, on that of the schedule.
    #[must_use]
    pub fn in_zone(mut self, zone: &str) -> Self {
        self.zone = Some(zone.to_string());
        self
    }

    /// Allows a day: `2026-12-24`, or `12-24` for every year.
    pub fn include_date(mut self, date: &str) -> Result<Self, Error> {
        self.included_dates.insert(Date::parse(date)?);
        Ok(self)
    }

    /// Excludes a day: `2026-12-25`, or `12-25` for every year.
    pub fn exclude_date(mut self, date: &str) -> Result<Self, Error> {
        self.excluded_dates.insert(Date::parse(date)?);
        Ok(self)
    }

    /// Allows only these weekdays (and others included too): `MON-FRI`, `SAT,SUN`.
    pub fn include_weekdays(mut self, weekdays: &str) -> Result<Self, Error> {
        self.included_weekdays |= parse_weekdays(weekdays)?;
        Ok(self)
    }

    /// Excludes these weekdays: `SAT,SUN`.
    pub fn exclude_weekdays(mut self, weekdays: &str) -> Result<Self, Error> {
        self.excluded_weekdays |= parse_weekdays(weekdays)?;
        Ok(self)
    }

    /// Allows only these hours (and others included too): `09:00-17:30`, `22:00-06:00`.
    pub fn include_window(mut self, window: &str) -> Result<Self, Error> {
        self.included_windows.push(Window::parse(window)?);
        Ok(self)
    }

    /// Excludes these hours: `12:00-13:00`.
    pub fn exclude_window(mut self, window: &str) -> Result<Self, Error> {
        self.excluded_windows.push(Window::parse(window)?);
        Ok(self)
    }

    /// The zone of its clock, if it has one of its own.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// The allowed days of a month: bit `d` is day `d`.
    pub(crate) fn month(&self, year: i32, month: u32) -> u32 {
        let first = days_from_date(year, month, 1);
        let length = days_in_month(year, month);
        let all = (u32::MAX >> (31 - length)) & !1;
        let weekdays = if self.included_weekdays != 0 {
            self.included_weekdays & !self.excluded_weekdays
        } else if self.included_dates.is_empty() || self.excluded_weekdays != 0 {
            !self.excluded_weekdays
        } else {
            0
        };
        let starts_on = weekday(first);
        let by_weekday = (0..7)
            .filter(|day| weekdays >> day & 1 == 1)
            .fold(0, |mask, day| mask | every_week(day, starts_on));
        let included = dates_in(&self.included_dates, first, length, month);
        let excluded = dates_in(&self.excluded_dates, first, length, month);
        (by_weekday | included) & !excluded & all
    }

    /// The allowed parts of a day, ordered and disjoint; `None` for the whole day.
    pub(crate) fn open_windows(&self) -> Option<Vec<(u32, u32)>> {
        if self.included_windows.is_empty() && self.excluded_windows.is_empty() {
            return None;
        }
        let included = match self.included_windows.is_empty() {
            true => vec![(0, 86_400)],
            false => merged(&self.included_windows),
        };
        Some(without(&included, &merged(&self.excluded_windows)))
    }
}

fn dates_in(dates: &BTreeSet<Date>, first: i32, length: u32, month: u32) -> u32 {
    let once =
        dates.range(Date::Once(first)..Date::Once(first + length as i32)).filter_map(|date| match date {
            Date::Once(day) => Some((day - first + 1) as u32),
            Date::Yearly { .. } => None,
        });
    let yearly =
        dates.range(Date::Yearly { month, day: 0 }..=Date::Yearly { month, day: 31 }).filter_map(|date| {
            match date {
                Date::Yearly { day, .. } => Some(*day),
                Date::Once(_) => None,
            }
        });
    once.chain(yearly).fold(0, |mask, day| mask | 1 << day)
}

fn merged(windows: &[Window]) -> Vec<(u32, u32)> {
    let mut parts: Vec<(u32, u32)> = windows
        .iter()
        .flat_map(|w| match w.from < w.to {
            true => vec![(w.from, w.to)],
            false => vec![(0, w.to), (w.from, 86_400)],
        })
        .filter(|(from, to)| from < to)
        .collect();
    parts.sort_unstable();
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for (from, to) in parts {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

fn without(open: &[(u32, u32)], closed: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut rest = Vec::new();
    for &(mut from, to) in open {
        for &(shut, reopen) in closed {
            if reopen <= from || shut >= to {
                continue;
            }
            if shut > from {
                rest.push((from, shut));
            }
            from = reopen;
        }
        if from < to {
            rest.push((from, to));
        }
    }
    rest
}

impl Date {
    fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::new(Code::Calendar, format!("`{}` is not a date", shown(text)))
                .hint("write `2026-12-25`, or `12-25` for every year")
        };
        let numbers: Option<Vec<u32>> = text
            .split('-')
            .map(|part| part.parse().ok().filter(|_| part.bytes().all(|b| b.is_ascii_digit())))
            .collect();
        match numbers.as_deref() {
            // A leap year, so that 02-29 is a date.
            Some(&[month @ 1..=12, day]) if (1..=days_in_month(2000, month)).contains(&day) => {
                Ok(Date::Yearly { month, day })
            }
            Some(&[year @ 1970..=2199, month @ 1..=12, day])
                if (1..=days_in_month(year as i32, month)).contains(&day) =>
            {
                Ok(Date::Once(days_from_date(year as i32, month, day)))
            }
            _ => Err(wrong()),
        }
    }
}

impl Window {
    fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::new(Code::Calendar, format!("`{}` is not a daily time window", shown(text)))
                .hint("write `09:00-17:30`; it may run over midnight, as `22:00-06:00`")
        };
        let (from, to) = text.split_once('-').ok_or_else(wrong)?;
        let window =
            Window { from: clock_time(from).ok_or_else(wrong)?, to: clock_time(to).ok_or_else(wrong)? };
        if window.from == window.to || window.from == 86_400 {
            return Err(wrong());
        }
        Ok(window)
    }
}

fn clock_time(text: &str) -> Option<u32> {
    let parts: Vec<&str> = text.split(':').collect();
    if !(2..=3).contains(&parts.len()) || parts.iter().any(|p| p.len() != 2) {
        return None;
    }
    let numbers: Option<Vec<u32>> = parts.iter().map(|p| p.parse().ok()).collect();
    let numbers = numbers?;
    let (hour, minute, second) = (numbers[0], numbers[1], numbers.get(2).copied().unwrap_or(0));
    let time = hour * 3600 + minute * 60 + second;
    (minute < 60 && second < 60 && time <= 86_400).then_some(time)
}

fn parse_weekdays(text: &str) -> Result<u8, Error> {
    // The weekday field of a cron expression is the same language.
    let expression = crate::cron::Expression::parse(&format!("0 0 * * {text}"));
    let one_word = !text.contains([' ', '\t']);
    match expression.as_ref().map(|e| &e.weekdays) {
        Ok(weekdays)
            if one_word
                && weekdays.nth == 0
                && weekdays.last == 0
                && !weekdays.and
                && weekdays.field.hashed.is_empty() =>
        {
            Ok(weekdays.field.bits as u8)
        }
        _ => Err(Error::new(Code::Calendar, format!("`{}` is not a set of weekdays", shown(text)))
            .hint("write `SAT,SUN` or `MON-FRI`")),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(32).collect()
}
