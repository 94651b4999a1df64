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
    /// Allowed parts of a day that have a matching time, ordered and disjoint; empty: the whole day.
    windows: Box<[Window]>,
    /// No time of day is left after the windows.
    never: bool,
}

/// A part of the day in seconds, half-open, and how many times match before it.
#[derive(Clone, Copy, Debug)]
struct Window {
    open: u32,
    close: u32,
    before: u64,
}

impl Pattern {
    pub(crate) fn new(expression: &Expression, seed: Seed, calendars: Option<DayFilter>) -> Self {
        let parts: Vec<(u32, u32)> = calendars.as_ref().map(|c| c.windows().into()).unwrap_or_default();
        let closed = calendars.as_ref().is_some_and(DayFilter::is_closed_all_day);
        let mut pattern = Pattern {
            seconds: expression.seconds.resolve(0, seed),
            minutes: expression.minutes.resolve(1, seed),
            hours: expression.hours.resolve(2, seed) as u32,
            days: DayRule::new(expression, seed, calendars),
            windows: Box::default(),
            never: closed,
        };
        let (mut windows, mut before) = (Vec::new(), 0);
        for &(open, close) in &parts {
            let inside = pattern.bare_times_before(close) - pattern.bare_times_before(open);
            if inside > 0 {
                windows.push(Window { open, close, before });
                before += inside;
            }
        }
        pattern.never |= if parts.is_empty() { pattern.time_from(0).is_none() } else { windows.is_empty() };
        pattern.windows = windows.into();
        pattern
    }

    /// How many times of day match.
    pub(crate) fn per_day(&self) -> u64 {
        if self.never { 0 } else { self.times_before(86_400) }
    }

    /// Whether it names all seconds of its minutes.
    pub(crate) fn is_every_second(&self) -> bool {
        self.seconds == (1 << 60) - 1
    }

    /// The matching days of a month, calendars applied: bit `d` is day `d`.
    pub(crate) fn days_of(&self, year: i32, month: u32) -> u32 {
        if self.never { 0 } else { self.days.month(year, month) }
    }

    /// The first time of day at or after `from`.
    fn time_from(&self, from: u32) -> Option<u32> {
        if self.windows.is_empty() {
            return self.bare_time_from(from);
        }
        let first = self.windows.partition_point(|window| window.close <= from);
        // Every window has a time; only the first may have them all behind it.
        self.windows[first..]
            .iter()
            .take(2)
            .find_map(|window| self.bare_time_from(from.max(window.open)).filter(|&time| time < window.close))
    }

    /// The last time of day before `to`.
    fn time_before(&self, to: u32) -> Option<u32> {
        if self.windows.is_empty() {
            return self.bare_time_before(to);
        }
        let end = self.windows.partition_point(|window| window.open < to);
        self.windows[..end].iter().rev().take(2).find_map(|window| {
            self.bare_time_before(to.min(window.close)).filter(|&time| time >= window.open)
        })
    }

    /// How many times of day lie before `to`.
    pub(crate) fn times_before(&self, to: u32) -> u64 {
        if self.windows.is_empty() {
            return self.bare_times_before(to);
        }
        match self.windows.partition_point(|window| window.open < to).checked_sub(1) {
            None => 0,
            Some(last) => {
                let Window { open, close, before } = self.windows[last];
                before + self.bare_times_before(to.min(close)) - self.bare_times_before(open)
            }
        }
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

    fn count_again(&self, from: Wall, to: Wall, by: i64) -> u64 {
        const SECONDS: u64 = (1 << 60) - 1;
        let first_day = split(from).0;
        let matches: [bool; 3] = std::array::from_fn(|ahead| self.days.contains(first_day + ahead as i32));
        let seconds = |minute: i64| {
            let (day, time) = split(minute * 60);
            let is_matched = matches.get((day - first_day) as usize).copied();
            if is_matched.unwrap_or_else(|| self.days.contains(day)) { self.seconds_of(time) } else { 0 }
        };
        if self.never || from >= to {
            return 0;
        }
        (from.div_euclid(60)..=(to - 1).div_euclid(60))
            .map(|minute| {
                let start = minute * 60;
                let asked = span_bits(from - start, to - start);
                let (later, ahead) = ((start + by).div_euclid(60), (start + by).rem_euclid(60));
                let again = seconds(later) >> ahead | (seconds(later + 1) << (60 - ahead) & SECONDS);
                u64::from((seconds(minute) & asked & again).count_ones())
            })
            .sum()
    }
}

impl Pattern {
    /// The matching seconds of the minute that starts at a time of day.
    fn seconds_of(&self, time: u32) -> u64 {
        let is_named = self.hours >> (time / 3600) & 1 == 1 && self.minutes >> (time / 60 % 60) & 1 == 1;
        if !is_named {
            return 0;
        }
        if self.windows.is_empty() {
            return self.seconds;
        }
        let first = self.windows.partition_point(|window| window.close <= time);
        self.windows[first..]
            .iter()
            .take_while(|window| window.open < time + 60)
            .map(|window| {
                let start = i64::from(time);
                self.seconds & span_bits(i64::from(window.open) - start, i64::from(window.close) - start)
            })
            .fold(0, |bits, part| bits | part)
    }
}

/// The bits of a minute's seconds from one up to, not including, another.
fn span_bits(from: i64, to: i64) -> u64 {
    let below = |second: i64| (1_u64 << second.clamp(0, 60)) - 1;
    below(to) & !below(from)
}
