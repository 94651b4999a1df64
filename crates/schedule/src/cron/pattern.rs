//! The wall-clock times an expression names, as a searchable set.
//!
//! Made once per schedule and seed. Promise: the next, previous and number of times are found
//! from bit sets and months, never by walking minutes; zones and DST are not known here.

use super::Expression;
use super::days::DayRule;
use crate::civil::{Wall, split, wall};
use crate::dst::WallTimes;
use crate::filter::DayFilter;
use crate::seed::Seed;

/// A resolved expression.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    seconds: u64,
    minutes: u64,
    hours: u32,
    days: DayRule,
    /// Allowed parts of a day in seconds, half-open, ordered and disjoint; empty: the whole day.
    windows: Box<[(u32, u32)]>,
    /// No time of day is left after the windows.
    never: bool,
}

impl Pattern {
    pub(crate) fn new(expression: &Expression, seed: Seed, calendars: Option<DayFilter>) -> Self {
        let windows: Box<[_]> = calendars.as_ref().map(|c| c.windows().into()).unwrap_or_default();
        let closed = calendars.as_ref().is_some_and(DayFilter::is_closed_all_day);
        let mut pattern = Pattern {
            seconds: expression.seconds.resolve(0, seed),
            minutes: expression.minutes.resolve(1, seed),
            hours: expression.hours.resolve(2, seed) as u32,
            days: DayRule::new(expression, seed, calendars),
            windows,
            never: false,
        };
        pattern.never = closed || pattern.time_from(0).is_none();
        pattern
    }

    /// How many times of day match.
    pub(crate) fn per_day(&self) -> u64 {
        if self.never { 0 } else { self.times_before(86_400) }
    }

    /// The first time of day at or after `from`.
    fn time_from(&self, from: u32) -> Option<u32> {
        if self.windows.is_empty() {
            return self.bare_time_from(from);
        }
        self.windows
            .iter()
            .filter(|window| window.1 > from)
            .find_map(|&(open, close)| self.bare_time_from(from.max(open)).filter(|&time| time < close))
    }

    /// The last time of day before `to`.
    fn time_before(&self, to: u32) -> Option<u32> {
        if self.windows.is_empty() {
            return self.bare_time_before(to);
        }
        self.windows
            .iter()
            .rev()
            .filter(|window| window.0 < to)
            .find_map(|&(open, close)| self.bare_time_before(to.min(close)).filter(|&time| time >= open))
    }

    /// How many times of day lie before `to`.
    fn times_before(&self, to: u32) -> u64 {
        if self.windows.is_empty() {
            return self.bare_times_before(to);
        }
        self.windows
            .iter()
            .filter(|window| window.0 < to)
            .map(|&(open, close)| self.bare_times_before(to.min(close)) - self.bare_times_before(open))
            .sum()
    }

    fn bare_time_from(&self, from: u32) -> Option<u32> {
        if from >= 86_400 {
            return None;
        }
        let (hour, minute, second) = (from / 3600, from / 60 % 60, from % 60);
        let first_second = self.seconds.trailing_zeros();
        let first_minute = self.minutes.trailing_zeros() * 60 + first_second;
        if self.hours >> hour & 1 == 1 {
            if self.minutes >> minute & 1 == 1 {
                let seconds = self.seconds & (u64::MAX << second);
                if seconds != 0 {
                    return Some(hour * 3600 + minute * 60 + seconds.trailing_zeros());
                }
            }
            let minutes = self.minutes & (u64::MAX << (minute + 1));
            if minutes != 0 {
                return Some(hour * 3600 + minutes.trailing_zeros() * 60 + first_second);
            }
        }
        let hours = self.hours & (u32::MAX << (hour + 1));
        (hours != 0).then(|| hours.trailing_zeros() * 3600 + first_minute)
    }

    fn bare_time_before(&self, to: u32) -> Option<u32> {
        let to = to.checked_sub(1)?.min(86_399);
        let (hour, minute, second) = (to / 3600, to / 60 % 60, to % 60);
        let last_second = 63 - self.seconds.leading_zeros();
        let last_minute = (63 - self.minutes.leading_zeros()) * 60 + last_second;
        if self.hours >> hour & 1 == 1 {
            if self.minutes >> minute & 1 == 1 {
                let seconds = self.seconds & (u64::MAX >> (63 - second));
                if seconds != 0 {
                    return Some(hour * 3600 + minute * 60 + 63 - seconds.leading_zeros());
                }
            }
            let minutes = self.minutes & ((1 << minute) - 1);
            if minutes != 0 {
                return Some(hour * 3600 + (63 - minutes.leading_zeros()) * 60 + last_second);
            }
        }
        let hours = self.hours & ((1 << hour) - 1);
        (hours != 0).then(|| (31 - hours.leading_zeros()) * 3600 + last_minute)
    }

    fn bare_times_before(&self, to: u32) -> u64 {
        let ones = |bits: u64| u64::from(bits.count_ones());
        let per_minute = ones(self.seconds);
        let per_hour = ones(self.minutes) * per_minute;
        if to >= 86_400 {
            return u64::from(self.hours.count_ones()) * per_hour;
        }
        let (hour, minute, second) = (to / 3600, to / 60 % 60, to % 60);
        let mut total = ones(u64::from(self.hours) & ((1 << hour) - 1)) * per_hour;
        if self.hours >> hour & 1 == 1 {
            total += ones(self.minutes & ((1 << minute) - 1)) * per_minute;
            if self.minutes >> minute & 1 == 1 {
                total += ones(self.seconds & ((1 << second) - 1));
            }
        }
        total
    }
}

impl WallTimes for Pattern {
    fn next_from(&self, from: Wall) -> Option<Wall> {
        if self.never {
            return None;
        }
        let (day, time) = split(from);
        if self.days.contains(day)
            && let Some(time) = self.time_from(time)
        {
            return Some(wall(day, time));
        }
        Some(wall(self.days.next(day + 1)?, self.time_from(0)?))
    }

    fn last_before(&self, to: Wall) -> Option<Wall> {
        if self.never {
            return None;
        }
        let (day, time) = split(to);
        if self.days.contains(day)
            && let Some(time) = self.time_before(time)
        {
            return Some(wall(day, time));
        }
        Some(wall(self.days.previous(day - 1)?, self.time_before(86_400)?))
    }

    fn count(&self, from: Wall, to: Wall) -> u64 {
        if self.never || from >= to {
            return 0;
        }
        let before = |day: i32, time: u32| {
            if self.days.contains(day) { self.times_before(time) } else { 0 }
        };
        let ((first, start), (last, end)) = (split(from), split(to));
        self.days.count(first, last) * self.per_day() + before(last, end) - before(first, start)
    }
}
