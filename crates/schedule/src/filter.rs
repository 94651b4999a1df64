//! Calendars as bit masks, ready for search.
//!
//! Made when a schedule is bound, from all its calendars on one clock. Promise: a day is one bit, a closed
//! stretch is crossed in one step, however long.

use std::sync::Arc;

use crate::calendar::{Calendar, OnExcluded, our_months, weekly};
use crate::civil::{Wall, YEAR_MAX, YEAR_MIN, date_from_days, days_from_date, split, wall, weekday};
use crate::dayset::DaySet;

/// The common part of two ordered, disjoint lists.
pub(crate) fn intersection(a: &[(u32, u32)], b: &[(u32, u32)]) -> Vec<(u32, u32)> {
    a.iter()
        .flat_map(|x| b.iter().map(move |y| (x.0.max(y.0), x.1.min(y.1))))
        .filter(|(from, to)| from < to)
        .collect()
}

/// The calendars of one schedule on one clock, as day masks and windows.
#[derive(Clone, Debug)]
pub(crate) struct DayFilter {
    /// The days that every calendar allows, by month from January 1970: asked for often, so made once.
    months: Arc<[u32]>,
    /// The same days in one row.
    days: Arc<DaySet>,
    /// The open days that are weekends and no business days, unless a calendar names weekdays itself.
    weekends: Option<Arc<[u32]>>,
    windows: Option<Vec<(u32, u32)>>,
    pub(crate) on_excluded: OnExcluded,
}

/// A slot moves over at most this many months of excluded days; a longer closure skips it.
const MOVE_MONTHS_MAX: usize = 12;

impl DayFilter {
    pub(crate) fn new(calendars: &[Arc<Calendar>], on_excluded: OnExcluded) -> Self {
        let windows = calendars.iter().filter_map(|c| c.open_windows()).reduce(|a, b| intersection(&a, &b));
        let months = calendars
            .iter()
            .map(|calendar| calendar.months())
            .reduce(|a, b| a.iter().zip(&b).map(|(a, b)| a & b).collect())
            .unwrap_or_default();
        let index = |year: i32, month: u32| ((year - YEAR_MIN) * 12 + month as i32 - 1) as usize;
        let (first, last) = (days_from_date(YEAR_MIN, 1, 1), days_from_date(YEAR_MAX, 12, 31));
        let days = DaySet::new(first, last, |year, month| months[index(year, month)]);
        DayFilter { months: months.into(), days: Arc::new(days), weekends: None, windows, on_excluded }
    }

    /// The allowed parts of a day; empty for the whole day.
    pub(crate) fn windows(&self) -> &[(u32, u32)] {
        self.windows.as_deref().unwrap_or_default()
    }

    /// The allowed parts of a day, if windows narrow it.
    pub(crate) fn open_parts(&self) -> Option<&[(u32, u32)]> {
        self.windows.as_deref()
    }

    /// No time of any day is allowed.
    pub(crate) fn is_closed_all_day(&self) -> bool {
        self.windows.as_ref().is_some_and(Vec::is_empty)
    }

    /// Makes it count business days: without a word on weekdays in the calendars, Saturdays and Sundays are
    /// none, except those that a calendar includes by their date.
    #[must_use]
    pub(crate) fn with_business_days(mut self, calendars: &[Arc<Calendar>]) -> Self {
        if calendars.iter().any(|calendar| calendar.names_weekdays()) {
            return self;
        }
        let weekend = weekly(0b100_0001);
        let mut weekends: Vec<u32> = our_months()
            .map(|(year, month)| weekend[weekday(days_from_date(year, month, 1)) as usize])
            .collect();
        for calendar in calendars {
            for (days, included) in weekends.iter_mut().zip(calendar.included_months()) {
                *days &= !included;
            }
        }
        self.weekends = Some(weekends.into());
        self
    }

    /// The business days of a month.
    pub(crate) fn business_days(&self, year: i32, month: u32) -> u32 {
        let index = (year - YEAR_MIN) * 12 + month as i32 - 1;
        let weekends = self.weekends.as_ref().and_then(|weekends| weekends.get(usize::try_from(index).ok()?));
        self.allowed(year, month) & !weekends.copied().unwrap_or(0)
    }

    /// The days of a month that every calendar allows; none outside our years.
    pub(crate) fn allowed(&self, year: i32, month: u32) -> u32 {
        let index = (year - YEAR_MIN) * 12 + month as i32 - 1;
        usize::try_from(index).ok().and_then(|index| self.months.get(index)).copied().unwrap_or(0)
    }

    /// Whether slots on excluded days move, rather than vanish.
    pub(crate) fn moves(&self) -> bool {
        self.on_excluded != OnExcluded::Skip
    }

    /// The days on which slots happen, for every month from January 1970, given the days that are named.
    pub(crate) fn settle(&self, named: impl Fn(i32, u32) -> u32) -> Box<[u32]> {
        let mut months: Vec<u32> = our_months().map(|(year, month)| named(year, month)).collect();
        let count = months.len();
        let mut waits_since: Option<usize> = None; // The last month with a day that still waits to move.
        for turn in 0..count {
            let index = match self.on_excluded {
                OnExcluded::Skip | OnExcluded::Next => turn,
                OnExcluded::Previous => count - 1 - turn,
            };
            let (here, open) = (months[index], self.months[index]);
            let waits = waits_since.is_some_and(|since| turn - since <= MOVE_MONTHS_MAX);
            // Days after (or before) the last open one wait for another month.
            let leaving = match self.on_excluded {
                OnExcluded::Skip => 0,
                OnExcluded::Next if open != 0 => u32::MAX.checked_shl(32 - open.leading_zeros()).unwrap_or(0),
                OnExcluded::Previous if open != 0 => (1 << open.trailing_zeros()) - 1,
                OnExcluded::Next | OnExcluded::Previous => u32::MAX,
            };
            months[index] = match self.on_excluded {
                OnExcluded::Skip => here & open,
                OnExcluded::Next => {
                    (1..32).fold(Moving::new(waits), |m, day| m.step(day, here, open)).settled
                }
                OnExcluded::Previous => {
                    (1..32).rev().fold(Moving::new(waits), |m, day| m.step(day, here, open)).settled
                }
            };
            if here & leaving != 0 {
                waits_since = Some(turn);
            } else if open != 0 {
                waits_since = None;
            }
        }
        months.into()
    }

    /// Whether a single day and time is allowed, and when it may be tried again if not.
    pub(crate) fn check(&self, at: Wall) -> Verdict {
        let (day, time) = split(at);
        if !self.days.contains(day) {
            // The whole closed stretch at once, so that years without an open day cost nothing.
            let after = self.days.next_from(day).unwrap_or(days_from_date(YEAR_MAX + 1, 1, 2));
            let before =
                self.days.last_until(day).map_or(days_from_date(YEAR_MIN, 1, 1) - 1, |open| open + 1);
            return Verdict::Excluded { until: wall(after, 0), since: wall(before, 0) };
        }
        let Some(windows) = &self.windows else {
            return Verdict::Allowed { until: wall(day + 1, 0) };
        };
        let next = windows.partition_point(|window| window.1 <= time);
        match windows.get(next) {
            Some(&(open, close)) if open <= time => {
                Verdict::Allowed { until: wall(day, 0) + i64::from(close) }
            }
            later => {
                let since = next.checked_sub(1).map_or(0, |last| windows[last].1);
                let until = later.map_or(86_400, |window| window.0);
                Verdict::Excluded { until: wall(day, until), since: wall(day, since) }
            }
        }
    }

    /// Whether a time of day lies in the windows.
    pub(crate) fn is_open_at(&self, time: u32) -> bool {
        self.windows.as_ref().is_none_or(|windows| {
            let next = windows.partition_point(|window| window.1 <= time);
            windows.get(next).is_some_and(|window| window.0 <= time)
        })
    }

    /// The days that every calendar allows.
    pub(crate) fn days(&self) -> &DaySet {
        &self.days
    }

    /// The open days around a closed one: the last before it and the first after it.
    pub(crate) fn open_around(&self, day: i32) -> (Option<i32>, Option<i32>) {
        (self.days.last_until(day), self.days.next_from(day))
    }

    /// Where a slot of a closed day goes, given the open days around it.
    pub(crate) fn moved(&self, day: i32, around: (Option<i32>, Option<i32>)) -> Option<i32> {
        let open = match self.on_excluded {
            OnExcluded::Skip => None,
            OnExcluded::Next => around.1,
            OnExcluded::Previous => around.0,
        }?;
        let month_of = |day: i32| {
            let (year, month, _) = date_from_days(day);
            year * 12 + month as i32
        };
        // Within eleven months of 28 days there is nothing to compare.
        let is_near =
            open.abs_diff(day) < 308 || month_of(open).abs_diff(month_of(day)) as usize <= MOVE_MONTHS_MAX;
        is_near.then_some(open)
    }

    /// Where a single wall time goes: itself, another day, or nowhere.
    pub(crate) fn settle_one(&self, at: Wall) -> Option<Wall> {
        let (day, time) = split(at);
        if !self.is_open_at(time) {
            return None; // No day helps a time outside the windows.
        }
        if self.days.contains(day) {
            return Some(at);
        }
        self.moved(day, self.open_around(day)).map(|day| wall(day, time))
    }
}

/// A walk over the days of a month in the direction slots move: an open day takes what waits.
struct Moving {
    settled: u32,
    waits: bool,
}

impl Moving {
    fn new(waits: bool) -> Self {
        Moving { settled: 0, waits }
    }

    fn step(self, day: u32, named: u32, open: u32) -> Self {
        let is_named = named >> day & 1 == 1;
        match open >> day & 1 == 1 {
            true => Moving { settled: self.settled | u32::from(is_named || self.waits) << day, waits: false },
            false => Moving { waits: self.waits || is_named, ..self },
        }
    }
}

/// The answer for one time on a calendar's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Allowed, as is everything up to `until`.
    Allowed {
        /// The end of the allowed stretch, at most the end of the day.
        until: Wall,
    },
    /// Excluded, as is everything from `since` up to `until`.
    Excluded {
        /// The end of the excluded stretch, at most the end of the day.
        until: Wall,
        /// The start of the excluded stretch.
        since: Wall,
    },
}
