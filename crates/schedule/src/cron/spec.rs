//! What each cron field is called and which values it takes.
//!
//! Reads single values and says, for everything a person might write instead, what is wrong and
//! what to write.

use super::token::Token;
use crate::civil::{YEAR_MAX, YEAR_MIN};
use crate::error::{Code, Error};

/// What a field is called and which values it takes.
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) min: u16,
    pub(super) max: u16,
    pub(super) names: &'static [&'static str],
    /// The value of `names[0]`.
    pub(super) first_name: u16,
}

pub(super) const SECOND: Spec = Spec { name: "second", min: 0, max: 59, names: &[], first_name: 0 };
pub(super) const MINUTE: Spec = Spec { name: "minute", min: 0, max: 59, names: &[], first_name: 0 };
pub(super) const HOUR: Spec = Spec { name: "hour", min: 0, max: 23, names: &[], first_name: 0 };
pub(super) const DAY: Spec = Spec { name: "day-of-month", min: 1, max: 31, names: &[], first_name: 1 };
pub(super) const MONTH: Spec = Spec { name: "month", min: 1, max: 12, names: &MONTHS, first_name: 1 };
pub(super) const WEEKDAY: Spec = Spec { name: "weekday", min: 0, max: 7, names: &WEEKDAYS, first_name: 0 };
pub(super) const WEEKDAY_FROM_ONE: Spec =
    Spec { name: "weekday", min: 1, max: 7, names: &WEEKDAYS, first_name: 1 };
pub(super) const YEAR: Spec =
    Spec { name: "year", min: YEAR_MIN as u16, max: YEAR_MAX as u16, names: &[], first_name: 0 };

pub(super) const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
pub(super) const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
impl Spec {
    /// The bit of a value: years count from 1970.
    pub(super) fn index(&self, value: u16) -> u16 {
        if self.max > 100 { value - self.min } else { value }
    }
}
/// A value of the field: digits or a name.
pub(super) fn number(token: Token<'_>, spec: &Spec, what: &str) -> Result<u16, Error> {
    if token.text.is_empty() {
        return Err(Error::new(Code::Syntax, format!("a {what} is missing"))
            .field(spec.name)
            .at(token.start.saturating_sub(1)..token.start)
            .hint(takes(spec)));
    }
    if let Some(index) = spec.names.iter().position(|name| token.is(name)) {
        return Ok(spec.first_name + index as u16);
    }
    if !token.text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(unexpected(token, spec));
    }
    let value = digits(token, spec)?;
    if value < spec.min.into() || value > spec.max.into() {
        return Err(Error::new(
            Code::OutOfRange,
            format!("{} is not between {} and {}", token.text, spec.min, spec.max),
        )
        .field(spec.name)
        .at(token.span())
        .hint(out_of_range_hint(spec, value)));
    }
    Ok(value as u16)
}

pub(super) fn digits(token: Token<'_>, spec: &Spec) -> Result<u64, Error> {
    if token.text.len() > 9 || !token.text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(unexpected(token, spec));
    }
    token.text.parse().map_err(|_| unexpected(token, spec))
}

pub(super) fn out_of_range_hint(spec: &Spec, value: u64) -> String {
    match (spec.name, value) {
        ("second" | "minute", 60) => "the next one is 0".into(),
        ("hour", 24) => "midnight is hour 0".into(),
        ("weekday", 0) => "in this dialect Sunday is 1".into(),
        _ => takes(spec),
    }
}

pub(super) fn takes(spec: &Spec) -> String {
    match spec.names.first() {
        Some(first) => format!(
            "it takes {} to {} or {first} to {}, lists `a,b`, ranges `a-b` and steps `*/n`",
            spec.min,
            spec.max,
            spec.names[spec.names.len() - 1]
        ),
        None => format!("it takes {} to {}, lists `a,b`, ranges `a-b` and steps `*/n`", spec.min, spec.max),
    }
}

pub(super) fn unexpected(token: Token<'_>, spec: &Spec) -> Error {
    let error = Error::new(Code::Syntax, format!("`{}` is not a {}", token.text, spec.name))
        .field(spec.name)
        .at(token.span());
    // Only the first three characters of a long name are its cron name.
    let short = token.text.get(..3).unwrap_or_default();
    if let Some(name) = spec.names.iter().find(|name| short.eq_ignore_ascii_case(name)) {
        return error.hint(format!("write `{name}`"));
    }
    if token.text.contains(':') {
        return error.hint("02:30 is written `30 2 * * *`: minute first, then hour");
    }
    let special = |c: char| token.text.contains([c, c.to_ascii_lowercase()]);
    if special('W') && spec.name != DAY.name || special('L') && spec.names.is_empty() && spec.name != DAY.name
    {
        return error.hint("`L` and `W` belong to the day-of-month field (`L` also to the weekday field)");
    }
    if token.text.contains('#') && spec.name != WEEKDAY.name {
        return error.hint("`#` belongs to the weekday field: `MON#2` is the second Monday");
    }
    if token.text.starts_with('+') {
        return error.hint("`+` belongs before the weekday field");
    }
    error.hint(takes(spec))
}

pub(super) fn reversed(range: Token<'_>, spec: &Spec, from: u16, to: u16) -> Error {
    let around: Vec<String> = (from..=spec.max.min(if spec.max == 7 { 6 } else { spec.max }))
        .chain(spec.min..=to)
        .map(|value| match spec.names.get(usize::from(value.wrapping_sub(spec.first_name))) {
            Some(name) if range.text.bytes().any(|b| b.is_ascii_alphabetic()) => (*name).to_string(),
            _ => value.to_string(),
        })
        .collect();
    let listed =
        if around.len() <= 12 { around.join(",") } else { format!("{from}-{},{}-{to}", spec.max, spec.min) };
    Error::new(Code::OutOfRange, format!("the range `{}` runs backwards", range.text))
        .field(spec.name)
        .at(range.span())
        .hint(format!("if it should wrap around, write `{listed}`"))
}
