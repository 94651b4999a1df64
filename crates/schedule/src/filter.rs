//! Calendars as bit masks, ready for search.
//!
//! Made when a schedule is bound, from all its calendars on one clock. Promise: a day is one bit, a closed
//! stretch is crossed in one step, however long.

use std::sync::Arc;

use crate::calendar::{Calendar, OnExcluded};
use crate::civil::{Wall, YEAR_MAX, YEAR_MIN, date_from_days, days_from_date, days_in_month, split, wall};

/// The common part of two ordered, disjoint lists.
fn intersection(a: &[(u32, u32)], b: &[(u32, u32)]) -> Vec<(u32, u32)> {
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
    windows: Option<Vec<(u32, u32)>>,
    pub(crate) on_excluded: OnExcluded,
}

/// A slot moves over at most this many months of excluded days; a longer closure skips it.
const MOVE_MONTHS_MAX: u32 = 12;

impl DayFilter {
    pub(crate) fn new(calendars: Vec<Arc<Calendar>>, on_excluded: OnExcluded) -> Self {
        let windows = calendars.iter().filter_map(|c| c.open_windows()).reduce(|a, b| intersection(&a, &b));
        let months = (YEAR_MIN..=YEAR_MAX)
            .flat_map(|year| (1..=12).map(move |month| (year, month)))
            .map(|(year, month)| calendars.iter().fold(u32::MAX, |mask, c| mask & c.month(year, month)))
            .collect();
        DayFilter { months, windows, on_excluded }
    }

    /// The allowed parts of a day; empty for the whole day.
    pub(crate) fn windows(&self) -> &[(u32, u32)] {
        self.windows.as_deref().unwrap_or_default()
    }

    /// No time of any day is allowed.
    pub(crate) fn is_closed_all_day(&self) -> bool {
        self.windows.as_ref().is_some_and(Vec::is_empty)
    }

    /// The days of a month that every calendar allows; none outside our years.
    pub(crate) fn allowed(&self, year: i32, month: u32) -> u32 {
        let index = (year - YEAR_MIN) * 12 + month as i32 - 1;
        usize::try_from(index).ok().and_then(|index| self.months.get(index)).copied().unwrap_or(0)
    }

    /// The days of a month on which slots happen, given the days `matched` names.
    pub(crate) fn settle(&self, year: i32, month: u32, matched: impl Fn(i32, u32) -> u32) -> u32 {
        let (here, open) = (matched(year, month), self.allowed(year, month));
        let length = days_in_month(year, month);
        match self.on_excluded {
            OnExcluded::Skip => here & open,
            OnExcluded::Next => {
                let mut pending = self.pending(year, month, &matched, Side::Before);
                (1..=length).fold(0, |mask, day| step(mask, day, here, open, &mut pending))
            }
            OnExcluded::Previous => {
                let mut pending = self.pending(year, month, &matched, Side::After);
                (1..=length).rev().fold(0, |mask, day| step(mask, day, here, open, &mut pending))
            }
        }
    }

    /// Whether a matched day in the closed stretch just before (or after) a month moves into it.
    fn pending(&self, mut year: i32, mut month: u32, matched: &impl Fn(i32, u32) -> u32, side: Side) -> bool {
        for _ in 0..MOVE_MONTHS_MAX {
            (year, month) = match side {
                Side::Before => month_before(year, month),
                Side::After => month_after(year, month),
            };
            let (named, open) = (matched(year, month), self.allowed(year, month));
            let stretch = match side {
                Side::Before if open != 0 => u32::MAX.checked_shl(32 - open.leading_zeros()).unwrap_or(0),
                Side::After if open != 0 => (1 << open.trailing_zeros()) - 1,
                Side::Before | Side::After => u32::MAX,
            };
            if named & stretch != 0 {
                return true;
            }
            if open != 0 {
                return false;
            }
        }
        false
    }

    /// Whether a single day and time is allowed, and when it may be tried again if not.
    pub(crate) fn check(&self, at: Wall) -> Verdict {
        let (day, time) = split(at);
        let (year, month, date) = date_from_days(day);
        if self.allowed(year, month) >> date & 1 == 0 {
            // The whole closed stretch at once, so that years without an open day cost nothing.
            let after = self.open_day_from(day).unwrap_or(days_from_date(YEAR_MAX + 1, 1, 2));
            let before = self.open_day_until(day).map_or(days_from_date(YEAR_MIN, 1, 1) - 1, |open| open + 1);
            return Verdict::Excluded { until: wall(after, 0), since: wall(before, 0) };
        }
        let Some(windows) = &self.windows else {
            return Verdict::Allowed { until: wall(day + 1, 0) };
        };
        let (mut since, mut until) = (0, 86_400);
        for &(open, close) in windows {
            if open <= time && time < close {
                return Verdict::Allowed { until: wall(day, 0) + i64::from(close) };
            }
            if close <= time {
                since = close;
            }
            if open > time && until == 86_400 {
                until = open;
            }
        }
        Verdict::Excluded { until: wall(day, 0) + i64::from(until), since: wall(day, 0) + i64::from(since) }
    }

    /// Whether a time of day lies in the windows.
    pub(crate) fn is_open_at(&self, time: u32) -> bool {
        let is_inside = |&(open, close): &(u32, u32)| open <= time && time < close;
        self.windows.as_ref().is_none_or(|windows| windows.iter().any(is_inside))
    }

    /// The first open day from a day on.
    pub(crate) fn open_day_from(&self, day: i32) -> Option<i32> {
        let (mut year, mut month, date) = date_from_days(day.max(days_from_date(YEAR_MIN, 1, 1)));
        let mut mask = self.allowed(year, month) & (u32::MAX << date);
        while mask == 0 {
            (year, month) = month_after(year, month);
            if year > YEAR_MAX {
                return None;
            }
            mask = self.allowed(year, month);
        }
        Some(days_from_date(year, month, mask.trailing_zeros()))
    }

    /// The last open day up to a day.
    pub(crate) fn open_day_until(&self, day: i32) -> Option<i32> {
        let (mut year, mut month, date) = date_from_days(day.min(days_from_date(YEAR_MAX, 12, 31)));
        let mut mask = self.allowed(year, month) & (u32::MAX >> (31 - date));
        while mask == 0 {
            (year, month) = month_before(year, month);
            if year < YEAR_MIN {
                return None;
            }
            mask = self.allowed(year, month);
        }
        Some(days_from_date(year, month, 31 - mask.leading_zeros()))
    }

    /// Where a single wall time goes: itself, another day, or nowhere.
    pub(crate) fn settle_one(&self, at: Wall) -> Option<Wall> {
        let (day, time) = split(at);
        if !self.is_open_at(time) {
            return None; // No day helps a time outside the windows.
        }
        let (mut year, mut month, date) = date_from_days(day);
        let mut mask = self.allowed(year, month);
        if mask >> date & 1 == 1 {
            return Some(at);
        }
        mask &= match self.on_excluded {
            OnExcluded::Skip => return None,
            OnExcluded::Next => u32::MAX << date,
            OnExcluded::Previous => (1 << date) - 1,
        };
        for _ in 0..=MOVE_MONTHS_MAX {
            if mask != 0 {
                let date = match self.on_excluded {
                    OnExcluded::Previous => 31 - mask.leading_zeros(),
                    OnExcluded::Skip | OnExcluded::Next => mask.trailing_zeros(),
                };
                return Some(wall(days_from_date(year, month, date), time));
            }
            (year, month) = match self.on_excluded {
                OnExcluded::Previous => month_before(year, month),
                OnExcluded::Skip | OnExcluded::Next => month_after(year, month),
            };
            mask = self.allowed(year, month);
        }
        None
    }
}

fn month_before(year: i32, month: u32) -> (i32, u32) {
    if month == 1 { (year - 1, 12) } else { (year, month - 1) }
}

fn month_after(year: i32, month: u32) -> (i32, u32) {
    if month == 12 { (year + 1, 1) } else { (year, month + 1) }
}

#[derive(Clone, Copy)]
enum Side {
    Before,
    After,
}

/// One day of a walk in the direction slots move: an open day takes what is pending.
fn step(mask: u32, day: u32, matched: u32, open: u32, pending: &mut bool) -> u32 {
    let named = matched >> day & 1 == 1;
    if open >> day & 1 == 0 {
        *pending |= named;
        return mask;
    }
    let takes = named || std::mem::take(pending);
    *pending = false;
    mask | u32::from(takes) << day
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
