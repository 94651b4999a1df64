//! A set of days as one long row of bits.
//!
//! Made for a question that spans years, from the masks of single months. Promise: 64 days are one read,
//! from any day on; days outside the row are not in the set.

use crate::civil::{YEAR_MAX, YEAR_MIN, date_from_days, days_from_date, days_in_month};

/// Days of whole months.
#[derive(Debug)]
pub(crate) struct DaySet {
    /// The day of bit 0, in days since 1970-01-01.
    first: i32,
    words: Vec<u64>,
}

impl DaySet {
    /// The days that `month` names (bit `d` is day `d`) in the months from one day to another.
    pub(crate) fn new(from: i32, to: i32, month: impl Fn(i32, u32) -> u32) -> Self {
        let (from, to) = (from.max(days_from_date(YEAR_MIN, 1, 1)), to.min(days_from_date(YEAR_MAX, 12, 31)));
        let (mut year, mut current, _) = date_from_days(from);
        let first = days_from_date(year, current, 1);
        let mut words = vec![0_u64; usize::try_from(to - first).map_or(0, |days| days / 64 + 2)];
        let mut at = 0;
        while first + at <= to {
            let days = u64::from(month(year, current) >> 1);
            let (word, bit) = (at as usize / 64, at as usize % 64);
            words[word] |= days << bit;
            if bit > 33 {
                words[word + 1] |= days >> (64 - bit);
            }
            at += days_in_month(year, current) as i32;
            (year, current) = if current == 12 { (year + 1, 1) } else { (year, current + 1) };
        }
        DaySet { first, words }
    }

    /// 64 days from a day on: bit 0 is the day itself.
    pub(crate) fn word_at(&self, day: i32) -> u64 {
        let at = day - self.first;
        let (word, bit) = (at.div_euclid(64), at.rem_euclid(64));
        let read =
            |word: i32| usize::try_from(word).ok().and_then(|w| self.words.get(w)).copied().unwrap_or(0);
        match bit {
            0 => read(word),
            _ => read(word) >> bit | read(word + 1) << (64 - bit),
        }
    }

    /// The first day of the set from a day on.
    pub(crate) fn next_from(&self, day: i32) -> Option<i32> {
        let end = self.first + self.words.len() as i32 * 64;
        let mut day = day.max(self.first);
        while day < end {
            match self.word_at(day) {
                0 => day += 64,
                word => return Some(day + word.trailing_zeros() as i32),
            }
        }
        None
    }

    /// The last day of the set up to a day.
    pub(crate) fn last_until(&self, day: i32) -> Option<i32> {
        let mut day = day.min(self.first + self.words.len() as i32 * 64);
        while day >= self.first {
            match self.word_at(day - 63) {
                0 => day -= 64,
                word => return Some(day - word.leading_zeros() as i32),
            }
        }
        None
    }

    pub(crate) fn contains(&self, day: i32) -> bool {
        self.word_at(day) & 1 == 1
    }
}
