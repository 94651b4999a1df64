//! Which dates of a month match, as a bit mask.
//!
//! The date half of a pattern. Promise: one month is decided in a handful of bit operations, so
//! that "never" is known after 2,760 months, in microseconds.

use std::sync::Arc;

use super::{Expression, Years};
use crate::civil::{YEAR_MAX, YEAR_MIN, days_from_date, days_in_month, every_week, first_of, weekday};
use crate::filter::DayFilter;
use crate::seed::Seed;

/// The day, month, weekday and year fields with `H` resolved, and the calendars that apply.
#[derive(Clone, Debug)]
pub(super) struct DayRule {
    days: u32,
    last: u32,
    nearest: u32,
    nearest_last: u32,
    business: u32,
    weekdays: u8,
    nth: u64,
    last_of_weekday: u8,
    months: u16,
    years: Years,
    combine: Combine,
    calendars: Option<DayFilter>,
    /// The days of every month from January 1970, where calendars move some: a moved day depends on
    /// months before and after, so all are decided at once.
    settled: Option<Arc<[u32]>>,
}

/// How the two day fields go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combine {
    EveryDay,
    Days,
    Weekdays,
    Either,
    Both,
}

impl DayRule {
    pub(super) fn new(expression: &Expression, seed: Seed, calendars: Option<DayFilter>) -> Self {
        let (days, weekdays) = (&expression.days, &expression.weekdays);
        let combine = match (days.field.star, weekdays.field.star) {
            (true, true) => Combine::EveryDay,
            (false, true) => Combine::Days,
            (true, false) => Combine::Weekdays,
            (false, false) if weekdays.and => Combine::Both,
            (false, false) => Combine::Either,
        };
        let mut rule = DayRule {
            days: days.field.resolve(3, seed) as u32,
            last: days.last,
            nearest: days.nearest,
            nearest_last: days.nearest_last,
            business: days.business,
            weekdays: weekdays.field.resolve(5, seed) as u8,
            nth: weekdays.nth,
            last_of_weekday: weekdays.last,
            months: expression.months.resolve(4, seed) as u16,
            years: expression.years,
            combine,
            calendars,
            settled: None,
        };
        if let Some(filter) = rule.calendars.as_ref().filter(|filter| filter.moves()) {
            rule.settled = Some(filter.settle(|year, month| rule.matched(year, month)).into());
        }
        rule
    }

    /// The first matching day at or after `from`, as days since 1970-01-01.
    pub(super) fn next(&self, from: i32) -> Option<i32> {
        let from = from.max(days_from_date(YEAR_MIN, 1, 1));
        let (mut year, mut month, day) = crate::civil::date_from_days(from);
        let mut mask = self.month(year, month) & (u32::MAX << day);
        loop {
            if mask != 0 {
                return Some(days_from_date(year, month, mask.trailing_zeros()));
            }
            (year, month) = self.month_after(year, month)?;
            mask = self.month(year, month);
        }
    }

    /// The last matching day at or before `to`.
    pub(super) fn previous(&self, to: i32) -> Option<i32> {
        let to = to.min(days_from_date(YEAR_MAX, 12, 31));
        if to < days_from_date(YEAR_MIN, 1, 1) {
            return None;
        }
        let (mut year, mut month, day) = crate::civil::date_from_days(to);
        let mut mask = self.month(year, month) & (u32::MAX >> (31 - day));
        loop {
            if mask != 0 {
                return Some(days_from_date(year, month, 31 - mask.leading_zeros()));
            }
            (year, month) = self.month_before(year, month)?;
            mask = self.month(year, month);
        }
    }

    /// How many days match in `from..to`.
    pub(super) fn count(&self, from: i32, to: i32) -> u64 {
        let from = from.max(days_from_date(YEAR_MIN, 1, 1));
        let to = to.min(days_from_date(YEAR_MAX + 1, 1, 1));
        if from >= to {
            return 0;
        }
        let (mut year, mut month, day) = crate::civil::date_from_days(from);
        let last = crate::civil::date_from_days(to - 1);
        let mut mask = self.month(year, month) & (u32::MAX << day);
        let mut total = 0;
        while (year, month) < (last.0, last.1) {
            total += u64::from(mask.count_ones());
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            mask = self.month(year, month);
        }
        total + u64::from((mask & (u32::MAX >> (31 - last.2))).count_ones())
    }

    pub(super) fn contains(&self, day: i32) -> bool {
        let (year, month, day) = crate::civil::date_from_days(day);
        self.month(year, month) >> day & 1 == 1
    }

    /// The next month worth looking at. With calendars that move slots, any month may get one.
    fn month_after(&self, mut year: i32, month: u32) -> Option<(i32, u32)> {
        let months = if self.moves() { 0b1_1111_1111_1110 } else { self.months };
        let later = months & (u16::MAX.checked_shl(month + 1).unwrap_or(0));
        if later != 0 {
            return Some((year, later.trailing_zeros()));
        }
        year += 1;
        while !self.moves() && year <= YEAR_MAX && !self.years.contains(year) {
            year += 1;
        }
        (year <= YEAR_MAX && months != 0).then(|| (year, months.trailing_zeros()))
    }

    fn month_before(&self, mut year: i32, month: u32) -> Option<(i32, u32)> {
        let months = if self.moves() { 0b1_1111_1111_1110 } else { self.months };
        let earlier = months & ((1 << month) - 1);
        if earlier != 0 {
            return Some((year, 15 - earlier.leading_zeros()));
        }
        year -= 1;
        while !self.moves() && year >= YEAR_MIN && !self.years.contains(year) {
            year -= 1;
        }
        (year >= YEAR_MIN && months != 0).then(|| (year, 15 - months.leading_zeros()))
    }

    fn moves(&self) -> bool {
        self.settled.is_some()
    }

    /// The matching days of a month, calendars applied: bit `d` is day `d`.
    pub(super) fn month(&self, year: i32, month: u32) -> u32 {
        if !(YEAR_MIN..=YEAR_MAX).contains(&year) {
            return 0;
        }
        match (&self.settled, &self.calendars) {
            (Some(settled), _) => settled[((year - YEAR_MIN) * 12 + month as i32 - 1) as usize],
            (None, Some(filter)) => self.matched(year, month) & filter.allowed(year, month),
            (None, None) => self.matched(year, month),
        }
    }

    /// The days of a month that the expression names.
    fn matched(&self, year: i32, month: u32) -> u32 {
        if self.months >> month & 1 == 0 || !self.years.contains(year) {
            return 0;
        }
        let length = days_in_month(year, month);
        let all = (u32::MAX >> (31 - length)) & !1;
        match self.combine {
            Combine::EveryDay => all,
            Combine::Days => self.by_day(year, month, length) & all,
            Combine::Weekdays => self.by_weekday(year, month, length) & all,
            Combine::Either => {
                (self.by_day(year, month, length) | self.by_weekday(year, month, length)) & all
            }
            Combine::Both => self.by_day(year, month, length) & self.by_weekday(year, month, length) & all,
        }
    }

    fn by_day(&self, year: i32, month: u32, length: u32) -> u32 {
        let mut mask = self.days;
        let mut back = self.last;
        while back != 0 {
            let n = back.trailing_zeros();
            back &= back - 1;
            if n < length {
                mask |= 1 << (length - n);
            }
        }
        if self.nearest != 0 || self.nearest_last != 0 {
            let first = weekday(days_from_date(year, month, 1));
            let mut wanted = self.nearest;
            let mut back = self.nearest_last;
            while back != 0 {
                let n = back.trailing_zeros();
                back &= back - 1;
                if n < length {
                    wanted |= 1 << (length - n);
                }
            }
            while wanted != 0 {
                let day = wanted.trailing_zeros();
                wanted &= wanted - 1;
                if day <= length {
                    mask |= 1 << nearest_weekday(day, first, length);
                }
            }
        }
        if self.business != 0 {
            mask |= self.business_days(year, month, length);
        }
        mask
    }

    /// `nB` and `LB`: counted over the business days of the calendars, or Monday to Friday without one.
    fn business_days(&self, year: i32, month: u32, length: u32) -> u32 {
        let mut open = match &self.calendars {
            Some(filter) => filter.business_days(year, month),
            None => {
                let first = weekday(days_from_date(year, month, 1));
                (1..=5).fold(0, |mask, day| mask | every_week(day, first))
            }
        } & (u32::MAX >> (31 - length))
            & !1;
        let mut mask = 0;
        if self.business & 1 == 1 && open != 0 {
            mask |= 1 << (31 - open.leading_zeros());
        }
        let mut nth = 0;
        while open != 0 {
            nth += 1;
            if self.business >> nth & 1 == 1 {
                mask |= open & open.wrapping_neg();
            }
            open &= open - 1;
        }
        mask
    }

    fn by_weekday(&self, year: i32, month: u32, length: u32) -> u32 {
        let first = weekday(days_from_date(year, month, 1));
        let mut mask = 0;
        let mut wanted = self.weekdays;
        while wanted != 0 {
            mask |= every_week(wanted.trailing_zeros(), first);
            wanted &= wanted - 1;
        }
        let mut nth = self.nth;
        while nth != 0 {
            let (day, n) = (nth.trailing_zeros() / 5, nth.trailing_zeros() % 5);
            nth &= nth - 1;
            let date = first_of(day, first) + 7 * n;
            if date <= length {
                mask |= 1 << date;
            }
        }
        let mut last = self.last_of_weekday;
        while last != 0 {
            let date = first_of(last.trailing_zeros(), first);
            last &= last - 1;
            mask |= 1 << (date + (length - date) / 7 * 7);
        }
        mask
    }
}

/// The weekday nearest to a day, without leaving the month.
fn nearest_weekday(day: u32, first: u32, length: u32) -> u32 {
    match (first + day - 1) % 7 {
        0 if day == length => day - 2,
        0 => day + 1,
        6 if day == 1 => 3,
        6 => day - 1,
        _ => day,
    }
}
