//! Reads the fields of a cron text, one by one.
//!
//! Each field is a list of items; most items mean the same everywhere, the day fields have some
//! of their own. Promise: what a dialect renumbers is renumbered here and nowhere else.

use super::spec::{
    DAY, MONTH, Spec, WEEKDAY, WEEKDAY_FROM_ONE, WEEKDAYS, YEAR, digits, number, reversed, unexpected,
};
use super::token::Token;
use super::{Days, Dialect, Field, Hashed, Weekdays, Years};
use crate::error::{Code, Error};

/// Reads fields, collecting remarks.
pub(super) struct Reader {
    dialect: Dialect,
    pub(super) remarks: Vec<String>,
}

/// Values below 256, while a field is read; years count from 1970.
#[derive(Default)]
struct Values {
    bits: [u64; 4],
    star: bool,
    hashed: Vec<Hashed>,
}

impl Values {
    fn insert(&mut self, index: u16) {
        self.bits[usize::from(index) / 64] |= 1 << (index % 64);
    }
}

impl Reader {
    pub(super) fn new(dialect: Dialect) -> Self {
        Reader { dialect, remarks: Vec::new() }
    }

    /// Seconds, minutes and hours.
    pub(super) fn times(&mut self, field: Token<'_>, spec: &Spec) -> Result<Field, Error> {
        let mut values = Values::default();
        for item in items(field, spec)? {
            self.plain(item, spec, &mut values)?;
        }
        let full = (1u64 << (spec.max + 1)) - 1;
        let bits = values.bits[0];
        Ok(normal(bits, values.star || bits == full, values.hashed))
    }

    pub(super) fn months(&mut self, field: Token<'_>) -> Result<Field, Error> {
        let mut values = Values::default();
        for item in items(field, &MONTH)? {
            self.plain(item, &MONTH, &mut values)?;
        }
        Ok(normal(values.bits[0], false, values.hashed))
    }

    pub(super) fn years(&mut self, field: Token<'_>) -> Result<Years, Error> {
        let mut values = Values::default();
        for item in items(field, &YEAR)? {
            self.plain(item, &YEAR, &mut values)?;
        }
        Ok(Years(values.bits))
    }

    pub(super) fn days(&mut self, field: Token<'_>) -> Result<Days, Error> {
        let mut days = Days::default();
        let mut values = Values::default();
        let mut star = false;
        for item in items(field, &DAY)? {
            if item.text == "?" {
                star = true;
            } else if item.is("L") {
                days.last |= 1;
            } else if item.is("LW") || item.is("WL") {
                days.nearest_last |= 1;
            } else if item.is("LB") {
                days.business |= 1;
            } else if item.text.len() > 2 && item.text[..2].eq_ignore_ascii_case("L-") {
                let back = item.sub(2, item.text.len());
                let (back, set) = match back.strip_suffix_ignore_case('W') {
                    Some(back) => (back, &mut days.nearest_last),
                    None => (back, &mut days.last),
                };
                *set |= 1 << number(back, &Spec { min: 1, max: 30, ..DAY }, "days before the last")?;
            } else if let Some(day) = item.strip_suffix_ignore_case('W') {
                days.nearest |= 1 << single_day(day, 'W', &DAY)?;
            } else if let Some(nth) = item.strip_suffix_ignore_case('B') {
                // More than 23 need a calendar with business days at weekends.
                days.business |= 1 << single_day(nth, 'B', &DAY)?;
            } else {
                self.plain(item, &DAY, &mut values)?;
                star |= is_everything(item.text);
            }
        }
        if star {
            return Ok(Days { field: unrestricted(&DAY), ..Days::default() });
        }
        days.field = normal(values.bits[0], false, values.hashed);
        Ok(days)
    }

    pub(super) fn weekdays(&mut self, field: Token<'_>) -> Result<Weekdays, Error> {
        let mut weekdays = Weekdays::default();
        let field = match field.text.strip_prefix('+') {
            Some(rest) => {
                if rest.is_empty() {
                    return Err(Error::new(Code::Syntax, "`+` without a weekday")
                        .field(WEEKDAY.name)
                        .at(field.span())
                        .hint("write the weekday that must match too, such as `+MON`"));
                }
                if self.dialect != Dialect::Standard {
                    return Err(unexpected(field, &WEEKDAY).hint(format!(
                        "`+` is our own sign; the {} dialect does not have it",
                        self.dialect.as_str()
                    )));
                }
                weekdays.and = true;
                field.sub(1, field.text.len())
            }
            None => field,
        };
        let from_one = self.dialect.sunday_is_one();
        let spec = if from_one { &WEEKDAY_FROM_ONE } else { &WEEKDAY };
        let to_ours = |value: u16| if from_one { value - 1 } else { value % 7 };
        let mut values = Values::default();
        let mut star = false;
        for item in items(field, spec)? {
            if item.text == "?" {
                star = true;
            } else if item.is("L") && from_one {
                values.insert(7); // Quartz and AWS: the last day of the week is Saturday.
            } else if item.is("L") {
                return Err(Error::new(Code::Syntax, "`L` needs a weekday before it")
                    .field(spec.name)
                    .at(item.span())
                    .hint("write `5L` or `FRIL` for the last Friday of the month"));
            } else if let Some((day, nth)) = item.split_once('#') {
                let day = to_ours(number(day, spec, "weekday")?);
                if nth.is("L") {
                    weekdays.last |= 1 << day;
                } else {
                    let nth = nth_of_month(nth)?;
                    weekdays.nth |= 1 << (day * 5 + nth - 1);
                }
            } else if let Some(day) = last_weekday_of(item) {
                weekdays.last |= 1 << to_ours(number(day, spec, "weekday")?);
            } else {
                self.plain(item, spec, &mut values)?;
                star |= is_everything(item.text);
            }
        }
        if star {
            return Ok(Weekdays { field: unrestricted_weekdays(), ..Weekdays::default() });
        }
        let bits =
            (0..8u16).filter(|v| values.bits[0] >> v & 1 == 1).fold(0, |bits, v| bits | 1u64 << to_ours(v));
        if from_one && field.text.bytes().any(|b| b.is_ascii_digit()) {
            self.remarks.push(format!(
                "weekdays renumbered: {} counts from Sunday = 1, so `{}` is {}",
                self.dialect.as_str(),
                field.text,
                weekday_names(bits, weekdays.nth, weekdays.last)
            ));
        }
        weekdays.field = normal(bits, false, values.hashed);
        Ok(weekdays)
    }

    /// One item of a list: `*`, a value, a range, `H`, each with an optional step.
    fn plain(&mut self, item: Token<'_>, spec: &Spec, values: &mut Values) -> Result<(), Error> {
        let (base, step) = match item.split_once('/') {
            Some((base, step)) => (base, Some(self.step(base, step, spec)?)),
            None => (item, None),
        };
        // Weekdays run to 7 so that `5-7` reads naturally, but `*` must not name Sunday twice.
        let full_max = if spec.min == 0 && spec.max == 7 { 6 } else { spec.max };
        if base.text == "*" {
            values.star = true;
            fill(values, spec, spec.min, full_max, step.unwrap_or(1));
            return Ok(());
        }
        if base.text.starts_with(['H', 'h']) && self.dialect == Dialect::Standard {
            values.hashed.push(hashed(base, step, spec, full_max)?);
            return Ok(());
        }
        if let Some((low, high)) = base.split_once('-') {
            if low.text.is_empty() {
                return Err(Error::new(Code::Syntax, format!("`{}` has no start", base.text))
                    .field(spec.name)
                    .at(base.span())
                    .hint(format!(
                        "negative numbers do not exist here; a range is written `{}-{}`",
                        spec.min, spec.max
                    )));
            }
            let from = number(low, spec, spec.name)?;
            let mut to = number(high, spec, spec.name)?;
            if spec.min == 0 && spec.max == 7 && to == 0 && from > 0 && high.text != "0" {
                to = 7; // `FRI-SUN`: a week may end with its Sunday.
            }
            if from > to {
                if self.dialect.sunday_is_one() && spec.name != YEAR.name {
                    // Quartz and AWS define a reversed range as one that wraps around.
                    let wrapped = spec.max - spec.min + 1;
                    for value in (from..=to + wrapped).step_by(step.unwrap_or(1).into()) {
                        values.insert(spec.index(spec.min + (value - spec.min) % wrapped));
                    }
                    return Ok(());
                }
                return Err(reversed(base, spec, from, to));
            }
            fill(values, spec, from, to, step.unwrap_or(1));
            return Ok(());
        }
        let value = number(base, spec, spec.name)?;
        match step {
            None => values.insert(spec.index(value)),
            Some(step) => {
                if self.dialect == Dialect::Standard {
                    self.remarks.push(format!(
                        "`{}` in the {} field is read as `{}-{}/{}`",
                        item.text, spec.name, base.text, full_max, step
                    ));
                }
                fill(values, spec, value, full_max.max(value), step);
            }
        }
        Ok(())
    }

    fn step(&self, base: Token<'_>, step: Token<'_>, spec: &Spec) -> Result<u16, Error> {
        if base.text.is_empty() {
            return Err(Error::new(Code::Syntax, format!("`/{}` is a step without a base", step.text))
                .field(spec.name)
                .at(base.start..step.start + step.text.len())
                .hint(format!("write `*/{}`", step.text)));
        }
        if step.text.is_empty() {
            return Err(Error::new(Code::Syntax, "`/` without a step")
                .field(spec.name)
                .at(step.start - 1..step.start)
                .hint("write the step after it, such as `*/5`"));
        }
        let most = if spec.max > 100 { spec.max - spec.min } else { spec.max };
        let value = digits(step, spec)?;
        if value == 0 {
            return Err(Error::new(Code::OutOfRange, "a step of 0 never moves")
                .field(spec.name)
                .at(step.span())
                .hint(format!("steps are 1 to {most}")));
        }
        if value > u64::from(most) {
            let error =
                Error::new(Code::OutOfRange, format!("a step of {} is longer than the field", step.text))
                    .field(spec.name)
                    .at(step.span());
            let unit = match spec.name {
                "second" => "s",
                "minute" => "m",
                "hour" => "h",
                _ => return Err(error.hint(format!("steps are 1 to {most}"))),
            };
            return Err(
                error.hint(format!("steps are 1 to {most}; for a period, use `@every {value}{unit}`"))
            );
        }
        Ok(value as u16)
    }
}
fn fill(values: &mut Values, spec: &Spec, from: u16, to: u16, step: u16) {
    for value in (from..=to).step_by(step.into()) {
        values.insert(spec.index(value));
    }
}

fn step_bits(spec: &Spec, step: u16) -> u64 {
    let mut values = Values::default();
    fill(&mut values, spec, spec.min, spec.max, step);
    values.bits[0]
}

fn normal(bits: u64, star: bool, mut hashed: Vec<Hashed>) -> Field {
    hashed.sort_unstable();
    hashed.dedup();
    Field { bits, star, hashed }
}

fn unrestricted(spec: &Spec) -> Field {
    Field { bits: step_bits(spec, 1), star: true, hashed: Vec::new() }
}

fn unrestricted_weekdays() -> Field {
    Field { bits: 0b111_1111, star: true, hashed: Vec::new() }
}

/// `*` and `*/1`, which restrict nothing.
fn is_everything(item: &str) -> bool {
    item == "*" || item.strip_prefix("*/").is_some_and(|step| step.parse() == Ok(1))
}

fn items<'a>(field: Token<'a>, spec: &Spec) -> Result<Vec<Token<'a>>, Error> {
    let mut items = Vec::new();
    let mut start = 0;
    for (index, part) in field.text.split(',').enumerate() {
        let token = field.sub(start, start + part.len());
        if part.is_empty() {
            let at = token.start.saturating_sub(usize::from(index > 0));
            return Err(Error::new(Code::Syntax, "a list item is empty")
                .field(spec.name)
                .at(at..at + 1)
                .hint("write values between the commas, without spaces, such as `1,2,3`"));
        }
        if part == "?" && spec.name != DAY.name && spec.name != WEEKDAY.name {
            return Err(Error::new(Code::Syntax, "`?` belongs to the day fields")
                .field(spec.name)
                .at(token.span())
                .hint("write `*`; if this comes from Quartz or AWS, import it with that dialect"));
        }
        if part == "?" && field.text != "?" {
            return Err(Error::new(Code::Syntax, "`?` stands alone")
                .field(spec.name)
                .at(token.span())
                .hint("leave it out of the list, or write only `?`"));
        }
        start += part.len() + 1;
        items.push(token);
    }
    Ok(items)
}
/// The single day before `W` or `B`.
fn single_day(day: Token<'_>, suffix: char, spec: &Spec) -> Result<u16, Error> {
    if day.text.is_empty() {
        return Err(Error::new(Code::Syntax, format!("`{suffix}` without a day"))
            .field(spec.name)
            .at(day.start..day.start + 1)
            .hint(format!("write the day before it, such as `15{suffix}`")));
    }
    if day.text.contains(['-', '/', '*']) {
        let example = day.text.rsplit('-').next().filter(|d| d.parse::<u8>().is_ok()).unwrap_or("15");
        return Err(Error::new(Code::Syntax, format!("`{suffix}` takes one day, not `{}`", day.text))
            .field(spec.name)
            .at(day.start..day.start + day.text.len() + 1)
            .hint(format!("write single days, such as `{example}{suffix}`, separated by commas")));
    }
    number(day, spec, spec.name)
}

/// `5L`, `FRIL`.
fn last_weekday_of(item: Token<'_>) -> Option<Token<'_>> {
    let day = item.strip_suffix_ignore_case('L')?;
    (!day.text.is_empty() && !day.text.contains(['-', '/'])).then_some(day)
}

fn nth_of_month(nth: Token<'_>) -> Result<u16, Error> {
    let spec = Spec { min: 1, max: 5, names: &[], ..WEEKDAY };
    match digits(nth, &spec) {
        Ok(value @ 1..=5) => Ok(value as u16),
        _ => Err(Error::new(Code::OutOfRange, format!("`#{}` is not one of #1 to #5", nth.text))
            .field(WEEKDAY.name)
            .at(nth.start - 1..nth.start + nth.text.len())
            .hint("a weekday comes at most five times in a month; the last one is `L`, as in `5L`")),
    }
}

/// `H`, `H(a-b)`; the step is read already.
fn hashed(base: Token<'_>, step: Option<u16>, spec: &Spec, full_max: u16) -> Result<Hashed, Error> {
    if spec.max > 100 {
        return Err(unexpected(base, spec).hint("`H` chooses inside a year, not among years"));
    }
    let rest = base.sub(1, base.text.len());
    // Days 29 to 31 do not exist in every month; `H` must.
    let default_max = if spec.name == DAY.name { 28 } else { full_max };
    let (lo, hi) = if rest.text.is_empty() {
        (spec.min, default_max)
    } else {
        let inner = rest
            .text
            .strip_prefix('(')
            .and_then(|r| r.strip_suffix(')'))
            .map(|_| rest.sub(1, rest.text.len() - 1))
            .and_then(|r| r.split_once('-'))
            .ok_or_else(|| unexpected(base, spec).hint("write `H`, `H(0-29)` or `H(0-29)/10`"))?;
        let (lo, hi) = (number(inner.0, spec, spec.name)?, number(inner.1, spec, spec.name)?);
        if lo > hi || hi > full_max {
            return Err(reversed(rest.sub(1, rest.text.len() - 1), spec, lo, hi)
                .hint(format!("`H` takes a range inside {}-{full_max}, low first", spec.min)));
        }
        (lo, hi)
    };
    Ok(Hashed { lo: lo as u8, hi: hi as u8, step: step.unwrap_or(0) as u8 })
}

fn weekday_names(bits: u64, nth: u64, last: u8) -> String {
    let mut names: Vec<String> = Vec::new();
    for (day, name) in WEEKDAYS.iter().enumerate() {
        if bits >> day & 1 == 1 {
            names.push((*name).to_string());
        }
        names.extend((1..=5).filter(|n| nth >> (day * 5 + n - 1) & 1 == 1).map(|n| format!("{name}#{n}")));
        if last >> day & 1 == 1 {
            names.push(format!("{name}L"));
        }
    }
    names.join(",")
}
