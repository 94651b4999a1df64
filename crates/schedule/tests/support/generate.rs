//! Random cron expressions, from a seeded generator passed in.
//!
//! Promise: covers the whole cron syntax, and leans to where engines go wrong: hours near a DST
//! change and dates near the instant asked about.

use fastrand::Rng;
use jiff::civil::DateTime;

/// How many fields an expression is written in.
#[derive(Clone, Copy)]
pub(crate) enum Fields {
    Five,
    Six,
    Seven,
}

/// An expression that often has slots near the wall time `near`.
pub(crate) fn expression(rng: &mut Rng, fields: Fields, near: DateTime) -> String {
    if matches!(fields, Fields::Five) && one_in(rng, 100) {
        return pick(rng, &NICKNAMES).to_string();
    }
    // Which of hour, minute and second is written with a star; fixed-time when none is.
    let starred = match rng.u8(..10) {
        0..6 => 0,
        6 => 1,
        7 => 2,
        8 => 4,
        _ => rng.u8(1..8),
    };
    let mut text = match fields {
        Fields::Five => vec![],
        Fields::Six | Fields::Seven => vec![clock(rng, SECOND, near.second(), starred & 4 != 0)],
    };
    text.push(clock(rng, MINUTE, near.minute(), starred & 2 != 0));
    text.push(clock(rng, HOUR, near.hour(), starred & 1 != 0));
    text.push(day(rng, near.day()));
    text.push(month(rng, near.month()));
    text.push(weekday(rng, near.weekday().to_sunday_zero_offset()));
    if matches!(fields, Fields::Seven) {
        text.push(year(rng, near.year()));
    }
    text.join(if one_in(rng, 50) { "  " } else { " " })
}

const NICKNAMES: [&str; 7] =
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
const MONTH_NAMES: [&str; 13] =
    ["", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
// Twice Sunday: a range of names ends on it as 7.
const WEEKDAY_NAMES: [&str; 8] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"];

/// A field's values and the ones worth trying more often than the others.
#[derive(Clone, Copy)]
struct Field {
    min: i16,
    max: i16,
    likely: &'static [i16],
    names: &'static [&'static str],
}

const SECOND: Field = Field { min: 0, max: 59, likely: &[0, 0, 0, 30, 59], names: &[] };
const MINUTE: Field = Field { min: 0, max: 59, likely: &[0, 0, 15, 30, 45, 59], names: &[] };
const HOUR: Field = Field { min: 0, max: 23, likely: &[0, 1, 2, 3, 4, 23], names: &[] };
const DAY: Field = Field { min: 1, max: 31, likely: &[1, 15, 28, 29, 30, 31], names: &[] };
const MONTH: Field = Field { min: 1, max: 12, likely: &[2, 3, 4, 9, 10, 11], names: &MONTH_NAMES };
const WEEKDAY: Field = Field { min: 0, max: 7, likely: &[0, 1, 5, 6, 7], names: &WEEKDAY_NAMES };
const YEAR: Field = Field { min: 1970, max: 2199, likely: &[1970, 2000, 2100, 2199], names: &[] };

impl Field {
    fn value(&self, rng: &mut Rng, near: i16) -> i16 {
        match rng.u8(..10) {
            0..5 => (near + pick(rng, &[-1, 0, 0, 0, 1])).clamp(self.min, self.max),
            5..8 => *pick(rng, self.likely),
            _ => rng.i16(self.min..=self.max),
        }
    }

    /// A value, `a-b`, `a-b/n` or `a/n`.
    fn item(&self, rng: &mut Rng, near: i16) -> String {
        let named = !self.names.is_empty() && rng.bool();
        let first = self.value(rng, near);
        let last = rng.i16(first..=self.max.min(first + 6));
        let form = rng.u8(..10);
        let step = self.step(rng);
        // From Sunday to Sunday could be one day or eight.
        let is_ambiguous = named && self.is_sunday(first) && self.is_sunday(last);
        if form < 6 || is_ambiguous {
            return self.write(rng, first, named);
        }
        let (first, last) = (self.write(rng, first, named), self.write(rng, last, named));
        match form {
            6..8 => format!("{first}-{last}"),
            8 => format!("{first}-{last}/{step}"),
            _ => format!("{first}/{step}"),
        }
    }

    fn is_sunday(&self, value: i16) -> bool {
        self.names.get(value as usize) == Some(&"SUN")
    }

    fn step(&self, rng: &mut Rng) -> i16 {
        let longest = if one_in(rng, 3) { self.max } else { 5 };
        rng.i16(1..=longest.min(YEAR.max - YEAR.min))
    }

    fn list(&self, rng: &mut Rng, near: i16) -> Vec<String> {
        let length = *pick(rng, &[1, 1, 1, 2, 3]);
        (0..length).map(|_| self.item(rng, near)).collect()
    }

    fn write(&self, rng: &mut Rng, value: i16, named: bool) -> String {
        match self.names.get(value as usize) {
            Some(name) if named => match rng.u8(..3) {
                0 => name.to_lowercase(),
                1 => format!("{}{}", &name[..1], name[1..].to_lowercase()),
                _ => name.to_string(),
            },
            _ => value.to_string(),
        }
    }
}

fn clock(rng: &mut Rng, field: Field, near: i8, starred: bool) -> String {
    let mut items = field.list(rng, near.into());
    if starred {
        let Field { min, max, .. } = field;
        let middle = rng.i16(min..max);
        let star = match rng.u8(..20) {
            0 => "*".to_owned(),
            1 => format!("{min}-{max}"),
            2 => format!("{min}/1"),
            3 => format!("{min}-{middle},{}-{max}", middle + 1),
            _ => format!("*/{}", rng.i16(1..=max)),
        };
        // Alone or in a list: one star, or the full range, makes the field a wildcard.
        if items.len() == 1 {
            items[0] = star;
        } else {
            items.push(star);
        }
        rng.shuffle(&mut items);
    }
    items.join(",")
}

fn day(rng: &mut Rng, near: i8) -> String {
    match rng.u8(..20) {
        0..9 => return "*".to_owned(),
        9 => return "?".to_owned(),
        10 => return "*/1".to_owned(),
        _ => {}
    }
    let mut items = DAY.list(rng, near.into());
    if one_in(rng, 2) {
        let special = match rng.u8(..6) {
            0 => "L".to_owned(),
            1 => "LW".to_owned(),
            2 => format!("L-{}", rng.u8(1..=30)),
            3 => format!("*/{}", rng.u8(2..=31)),
            _ => format!("{}W", DAY.value(rng, near.into())),
        };
        let place = rng.usize(..items.len());
        items[place] = special;
    }
    items.join(",")
}

fn month(rng: &mut Rng, near: i8) -> String {
    match rng.u8(..10) {
        0..6 => "*".to_owned(),
        6 => format!("*/{}", rng.u8(1..=12)),
        _ => MONTH.list(rng, near.into()).join(","),
    }
}

fn weekday(rng: &mut Rng, near: i8) -> String {
    match rng.u8(..20) {
        0..9 => return "*".to_owned(),
        9 => return "?".to_owned(),
        10 => return pick(rng, &["*/1", "+*"]).to_string(),
        _ => {}
    }
    let mut items = WEEKDAY.list(rng, near.into());
    if one_in(rng, 2) {
        let named = rng.bool();
        let value = WEEKDAY.value(rng, near.into());
        let name = WEEKDAY.write(rng, value, named);
        let special = match rng.u8(..8) {
            0..4 => format!("{name}#{}", rng.u8(1..=5)),
            4 => format!("{name}#L"),
            5 => format!("*/{}", rng.u8(2..=7)),
            _ => format!("{name}L"),
        };
        let place = rng.usize(..items.len());
        items[place] = special;
    }
    let plus = if one_in(rng, 3) { "+" } else { "" };
    format!("{plus}{}", items.join(","))
}

fn year(rng: &mut Rng, near: i16) -> String {
    match rng.u8(..10) {
        0..4 => "*".to_owned(),
        4 => format!("*/{}", rng.u8(1..=9)),
        // Near years first: a schedule of the far past has no slots to compare.
        5..9 => format!("{},{}", near.clamp(YEAR.min, YEAR.max), YEAR.item(rng, near)),
        _ => YEAR.list(rng, near).join(","),
    }
}

pub(crate) fn one_in(rng: &mut Rng, n: u8) -> bool {
    rng.u8(..n) == 0
}

pub(crate) fn pick<'a, T>(rng: &mut Rng, items: &'a [T]) -> &'a T {
    &items[rng.usize(..items.len())]
}
