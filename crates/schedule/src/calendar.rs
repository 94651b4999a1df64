//! Named calendars: the days and hours on which slots are allowed.
//!
//! A schedule may name several; a slot must be allowed by all of them. An excluded slot is
//! skipped, or moved to the next or previous allowed day at the same time of day. Business days
//! (`3B` in the day field) are counted over the days a schedule's calendars allow, Monday to Friday
//! unless one of them says something of weekdays.
//!
//! Promise: bounded, so that no calendar makes a question slow; [`Parts`] holds all of it as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::civil::{YEAR_MAX, YEAR_MIN, date_from_days, days_from_date, days_in_month, every_week, weekday};
use crate::describe::clock;
use crate::error::{Code, Error};
use crate::filter::{DayFilter, Verdict};
use crate::tzdb::Tzdb;
use crate::zone::Zone;

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
    included_windows: BTreeSet<Window>,
    excluded_windows: BTreeSet<Window>,
}

/// All that a calendar says, as text: what a store keeps and an API shows.
///
/// Made by [`Calendar::parts`] in canonical form: ordered, without doubles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// The zone of its clock, if it has one of its own.
    pub timezone: Option<String>,
    /// `2026-12-24`, or `12-24` for every year.
    pub include_dates: Vec<String>,
    /// `2026-12-25`, or `12-25` for every year.
    pub exclude_dates: Vec<String>,
    /// `MON`, or any set that a weekday field takes.
    pub include_weekdays: Vec<String>,
    /// `SAT`, or any set that a weekday field takes.
    pub exclude_weekdays: Vec<String>,
    /// `09:00-17:30`.
    pub include_windows: Vec<String>,
    /// `12:00-13:00`.
    pub exclude_windows: Vec<String>,
}

/// One day, or the same day of every year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Date {
    Once(i32),
    Yearly { month: u32, day: u32 },
}

/// From one second of the day up to, not including, another; may run over midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// Ten years of days named one by one; more is a rule, and rules are weekdays and yearly dates.
pub const DATES_MAX: usize = 4_000;

/// One for every hour of the day.
pub const WINDOWS_MAX: usize = 24;

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
        self.within_bounds()
    }

    /// Excludes a day: `2026-12-25`, or `12-25` for every year.
    pub fn exclude_date(mut self, date: &str) -> Result<Self, Error> {
        self.excluded_dates.insert(Date::parse(date)?);
        self.within_bounds()
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
        self.included_windows.insert(Window::parse(window)?);
        self.within_bounds()
    }

    /// Excludes these hours: `12:00-13:00`.
    pub fn exclude_window(mut self, window: &str) -> Result<Self, Error> {
        self.excluded_windows.insert(Window::parse(window)?);
        self.within_bounds()
    }

    fn within_bounds(self) -> Result<Self, Error> {
        if self.included_dates.len() + self.excluded_dates.len() > DATES_MAX {
            return Err(Error::new(Code::Calendar, format!("a calendar names at most {DATES_MAX} dates"))
                .hint("use weekdays and yearly dates such as `12-25`, and leave out years that are over"));
        }
        if self.included_windows.len() + self.excluded_windows.len() > WINDOWS_MAX {
            return Err(Error::new(
                Code::Calendar,
                format!("a calendar has at most {WINDOWS_MAX} daily time windows"),
            )
            .hint("join neighbouring windows, or say the times in the schedule"));
        }
        Ok(self)
    }

    /// Reads a calendar from its parts.
    pub fn from_parts(parts: &Parts) -> Result<Self, Error> {
        let mut calendar = Calendar { zone: parts.timezone.clone(), ..Calendar::default() };
        type Add = fn(Calendar, &str) -> Result<Calendar, Error>;
        let steps: [(&[String], Add); 6] = [
            (&parts.include_dates, Calendar::include_date),
            (&parts.exclude_dates, Calendar::exclude_date),
            (&parts.include_weekdays, Calendar::include_weekdays),
            (&parts.exclude_weekdays, Calendar::exclude_weekdays),
            (&parts.include_windows, Calendar::include_window),
            (&parts.exclude_windows, Calendar::exclude_window),
        ];
        for (texts, add) in steps {
            for text in texts {
                calendar = add(calendar, text)?;
            }
        }
        Ok(calendar)
    }

    /// All that it says, ready to be shown or stored.
    pub fn parts(&self) -> Parts {
        fn texts<T: ToString>(set: &BTreeSet<T>) -> Vec<String> {
            set.iter().map(T::to_string).collect()
        }
        Parts {
            timezone: self.zone.clone(),
            include_dates: texts(&self.included_dates),
            exclude_dates: texts(&self.excluded_dates),
            include_weekdays: weekday_names(self.included_weekdays),
            exclude_weekdays: weekday_names(self.excluded_weekdays),
            include_windows: texts(&self.included_windows),
            exclude_windows: texts(&self.excluded_windows),
        }
    }

    /// The zone of its clock, if it has one of its own.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// How many dates it names.
    pub fn dates(&self) -> usize {
        self.included_dates.len() + self.excluded_dates.len()
    }

    /// Whether it allows an instant, on its own clock or else on that of this zone. What a schedule makes of that is the
    /// timetable's: this says which of several calendars is in the way.
    pub fn allows(&self, at: Timestamp, tzdb: &Tzdb, zone: &Zone) -> Result<bool, Error> {
        let own = self.zone.as_deref().map(|name| tzdb.zone(name)).transpose()?;
        let wall = own.as_deref().unwrap_or(zone).wall_at(at.as_second());
        let filter = DayFilter::new(&[Arc::new(self.clone())], OnExcluded::Skip);
        Ok(matches!(filter.check(wall), Verdict::Allowed { .. }))
    }

    /// The allowed days of every month from January 1970: bit `d` is day `d`.
    pub(crate) fn months(&self) -> Vec<u32> {
        let weekdays = if self.included_weekdays != 0 {
            self.included_weekdays & !self.excluded_weekdays
        } else if self.included_dates.is_empty() || self.excluded_weekdays != 0 {
            !self.excluded_weekdays
        } else {
            0
        };
        let by_weekday = weekly(weekdays);
        let (included, excluded) = (by_month(&self.included_dates), by_month(&self.excluded_dates));
        our_months()
            .zip(included.iter().zip(&excluded))
            .map(|((year, month), (included, excluded))| {
                let starts_on = weekday(days_from_date(year, month, 1));
                let all = (u32::MAX >> (31 - days_in_month(year, month))) & !1;
                (by_weekday[starts_on as usize] | included) & !excluded & all
            })
            .collect()
    }

    /// Whether it says which weekdays are allowed.
    pub(crate) fn names_weekdays(&self) -> bool {
        self.included_weekdays | self.excluded_weekdays != 0
    }

    /// The days it includes by their dates, for every month from January 1970.
    pub(crate) fn included_months(&self) -> Vec<u32> {
        by_month(&self.included_dates)
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

/// The months in which slots exist, in order.
pub(crate) fn our_months() -> impl Iterator<Item = (i32, u32)> {
    (YEAR_MIN..=YEAR_MAX).flat_map(|year| (1..=12).map(move |month| (year, month)))
}

/// The days of a set of weekdays, by the weekday of the 1st.
pub(crate) fn weekly(weekdays: u8) -> [u32; 7] {
    std::array::from_fn(|starts_on| {
        (0..7)
            .filter(|day| weekdays >> day & 1 == 1)
            .fold(0, |mask, day| mask | every_week(day, starts_on as u32))
    })
}

/// The days a list of dates names, for every month from January 1970.
fn by_month(dates: &BTreeSet<Date>) -> Vec<u32> {
    let mut yearly = [0_u32; 12];
    let mut once = Vec::new();
    for date in dates {
        match *date {
            Date::Yearly { month, day } => yearly[month as usize - 1] |= 1 << day,
            Date::Once(day) => once.push(date_from_days(day)),
        }
    }
    let mut months: Vec<u32> = our_months().map(|(_, month)| yearly[month as usize - 1]).collect();
    for (year, month, day) in once {
        months[((year - YEAR_MIN) * 12 + month as i32 - 1) as usize] |= 1 << day;
    }
    months
}

fn merged(windows: &BTreeSet<Window>) -> Vec<(u32, u32)> {
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

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Date::Once(day) => {
                let (year, month, day) = date_from_days(day);
                write!(f, "{year}-{month:02}-{day:02}")
            }
            Date::Yearly { month, day } => write!(f, "{month:02}-{day:02}"),
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

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", clock(self.from), clock(self.to))
    }
}

fn clock_time(text: &str) -> Option<u32> {
    let parts: Vec<&str> = text.split(':').collect();
    let is_number = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(is_number) {
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

fn weekday_names(set: u8) -> Vec<String> {
    const NAMES: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
    NAMES
        .iter()
        .enumerate()
        .filter(|(day, _)| set >> day & 1 == 1)
        .map(|(_, name)| name.to_string())
        .collect()
}

fn shown(text: &str) -> String {
    text.chars().take(32).collect()
}
