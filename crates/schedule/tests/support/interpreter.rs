//! The oracle's own reading of cron text.
//!
//! Used only by the oracle, on text that the generator made: text it cannot read is a mistake
//! of the tests, so it panics. Promise: shares nothing with the engine. Day fields stay text
//! and are asked about one date at a time, the plainest way to say what each item means.

use jiff::civil::{Date, Weekday};

const MONTHS: [&str; 13] =
    ["", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const NO_NAMES: [&str; 0] = [];

/// A cron expression, ready to be asked whether a wall time matches.
pub(crate) struct Expression {
    pub(crate) seconds: Vec<bool>,
    pub(crate) minutes: Vec<bool>,
    pub(crate) hours: Vec<bool>,
    months: Vec<bool>,
    years: Vec<bool>,
    day: String,
    weekday: String,
    /// `+` before the weekday: the date must match both day fields.
    both_days: bool,
    /// Follows the wall clock through gaps and overlaps, instead of naming times of day.
    pub(crate) wildcard: bool,
}

/// Reads 5 fields, 6 (leading seconds), 7 (seconds and trailing year) or a nickname.
pub(crate) fn read(text: &str) -> Expression {
    let text = spell_out(text);
    let mut fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() == 5 {
        fields.insert(0, "0");
    }
    if fields.len() == 6 {
        fields.push("*");
    }
    let [second, minute, hour, day, month, weekday, year] = fields[..] else {
        panic!("the oracle cannot read `{text}`");
    };
    let seconds = numbers(second, 0, 59, &NO_NAMES);
    let minutes = numbers(minute, 0, 59, &NO_NAMES);
    let hours = numbers(hour, 0, 23, &NO_NAMES);
    Expression {
        wildcard: [(second, &seconds), (minute, &minutes), (hour, &hours)]
            .iter()
            .any(|(text, set)| is_wildcard(text, set)),
        seconds,
        minutes,
        hours,
        months: numbers(month, 1, 12, &MONTHS),
        years: numbers(year, 1970, 2199, &NO_NAMES),
        day: day.to_owned(),
        weekday: weekday.trim_start_matches('+').to_owned(),
        both_days: weekday.starts_with('+'),
    }
}

impl Expression {
    /// Whether slots may fall on this date, whatever the time of day.
    pub(crate) fn matches_date(&self, date: Date) -> bool {
        let year = usize::try_from(date.year()).unwrap_or(0);
        self.months[date.month() as usize]
            && self.years.get(year).copied().unwrap_or(false)
            && self.matches_day(date)
    }

    fn matches_day(&self, date: Date) -> bool {
        let day = self.day.split(',').any(|item| day_item_matches(item, date));
        let weekday = self.weekday.split(',').any(|item| weekday_item_matches(item, date));
        if self.both_days || is_unrestricted(&self.day) || is_unrestricted(&self.weekday) {
            day && weekday
        } else {
            day || weekday
        }
    }
}

fn spell_out(text: &str) -> &str {
    match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        fields => fields,
    }
}

fn is_wildcard(field: &str, set: &[bool]) -> bool {
    field.split(',').any(|item| item.starts_with('*')) || set.iter().all(|&set| set)
}

fn is_unrestricted(field: &str) -> bool {
    matches!(field, "*" | "?" | "*/1")
}

fn day_item_matches(item: &str, date: Date) -> bool {
    let day = date.day();
    if item == "L" {
        day == date.days_in_month()
    } else if item == "LW" {
        working_days(date).max() == Some(day)
    } else if let Some(before) = item.strip_prefix("L-") {
        day == date.days_in_month() - number(before) as i8
    } else if let Some(nominal) = item.strip_suffix('W') {
        let nominal = number(nominal) as i8;
        nominal <= date.days_in_month()
            && working_days(date).min_by_key(|day| (day - nominal).abs()) == Some(day)
    } else {
        numbers(item, 1, 31, &NO_NAMES)[day as usize]
    }
}

fn weekday_item_matches(item: &str, date: Date) -> bool {
    let is = |name| weekdays(name)[date.weekday().to_sunday_zero_offset() as usize];
    let is_last = date.day() + 7 > date.days_in_month();
    if let Some((name, nth)) = item.split_once('#') {
        is(name) && if nth == "L" { is_last } else { (date.day() - 1) / 7 + 1 == number(nth) as i8 }
    } else if let Some(name) = item.strip_suffix('L') {
        is(name) && is_last
    } else {
        is(item)
    }
}

/// The days Monday to Friday of the month of `date`.
fn working_days(date: Date) -> impl Iterator<Item = i8> {
    (1..=date.days_in_month()).filter(move |&day| {
        let weekday = date.with().day(day).build().unwrap().weekday();
        !matches!(weekday, Weekday::Saturday | Weekday::Sunday)
    })
}

/// Seven flags, Sunday first: 7 is folded into 0.
fn weekdays(item: &str) -> Vec<bool> {
    let mut set = numbers(item, 0, 7, &WEEKDAYS);
    set[0] |= set[7];
    set.truncate(7);
    set
}

/// The set a field names, as one flag per value from 0 to `max`.
fn numbers(field: &str, min: usize, max: usize, names: &[&str]) -> Vec<bool> {
    let mut set = vec![false; max + 1];
    for item in field.split(',') {
        let (span, step) = match item.split_once('/') {
            Some((span, step)) => (span, Some(number(step))),
            None => (item, None),
        };
        let (first, last) = if span == "*" || span == "?" {
            (min, max)
        } else if let Some((first, last)) = span.split_once('-') {
            let (first, last) = (value(first, names), value(last, names));
            // `FRI-SUN`: a range that ends on Sunday reads it as 7.
            (first, if last < first && last == 0 { 7 } else { last })
        } else {
            let first = value(span, names);
            // A week, like `*`, runs from 0 to 6; 7 only names its Sunday once more.
            let end = if max == 7 { first.max(6) } else { max };
            (first, if step.is_some() { end } else { first })
        };
        assert!(min <= first && first <= last && last <= max, "the oracle cannot read `{field}`");
        (first..=last).step_by(step.unwrap_or(1)).for_each(|value| set[value] = true);
    }
    set
}

fn value(text: &str, names: &[&str]) -> usize {
    let named = names.iter().position(|name| !name.is_empty() && name.eq_ignore_ascii_case(text));
    named.unwrap_or_else(|| number(text))
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("the oracle expected a number, not `{text}`"))
}
