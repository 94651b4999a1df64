//! Reads cron text.
//!
//! Promise: linear in the text, which is at most 256 bytes; every refusal names the field, the
//! position and, where we can know it, what to write instead. Nothing is guessed: a text that
//! means different things to different schedulers is refused with a hint.

use super::fields::Reader;
use super::spec::{HOUR, MINUTE, SECOND, WEEKDAY};
use super::token::{Token, span_of};
use super::{Dialect, Expression, Field, Years};
use crate::error::{Code, Error};

/// An expression and what its reader should know about how it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) expression: Expression,
    pub(crate) remarks: Vec<String>,
}

pub(super) fn parse(text: &str, dialect: Dialect) -> Result<Parsed, Error> {
    crate::check_text(text)?;
    if let Some(at) = text.find('@') {
        return nickname(text, at, dialect);
    }
    if let Some(prefix) = ["CRON_TZ=", "TZ="].iter().find(|p| text.trim_start().starts_with(**p)) {
        return Err(Error::new(Code::Unsupported, format!("`{prefix}` inside the expression"))
            .at(span_of(text, text.trim_start().split(' ').next().unwrap_or(text)))
            .hint("give the zone beside the expression, as `timezone`"));
    }
    let fields: Vec<Token<'_>> = text
        .split([' ', '\t'])
        .filter(|part| !part.is_empty())
        .map(|part| Token { text: part, start: span_of(text, part).start })
        .collect();
    let layout = layout(text, &fields, dialect)?;

    let mut reader = Reader::new(dialect);
    let seconds = match layout.seconds {
        Some(field) => reader.times(field, &SECOND)?,
        None => Field { bits: 1, ..Field::default() },
    };
    let minutes = reader.times(layout.minutes, &MINUTE)?;
    let hours = reader.times(layout.hours, &HOUR)?;
    let days = reader.days(layout.days)?;
    let months = reader.months(layout.months)?;
    let weekdays = reader.weekdays(layout.weekdays)?;
    let years = match layout.years {
        Some(field) => reader.years(field)?,
        None => Years::ALL,
    };
    if dialect != Dialect::Standard {
        one_question_mark(layout.days, layout.weekdays, dialect)?;
    }
    let parsed = Parsed {
        expression: Expression { seconds, minutes, hours, days, months, weekdays, years },
        remarks: reader.remarks,
    };
    // What we store and show must be readable again; only lists can grow when printed.
    let may_grow = text.contains(',') && parsed.expression.printed_len_max() > crate::TEXT_MAX;
    if may_grow && parsed.expression.to_string().len() > crate::TEXT_MAX {
        return Err(Error::new(Code::TooLong, "its lists name too many scattered values")
            .hint("use ranges and steps, or several jobs"));
    }
    Ok(parsed)
}
struct Layout<'a> {
    seconds: Option<Token<'a>>,
    minutes: Token<'a>,
    hours: Token<'a>,
    days: Token<'a>,
    months: Token<'a>,
    weekdays: Token<'a>,
    years: Option<Token<'a>>,
}

/// Which field is which, by their number and the dialect.
fn layout<'a>(text: &str, fields: &[Token<'a>], dialect: Dialect) -> Result<Layout<'a>, Error> {
    let of = |seconds: Option<Token<'a>>, rest: &[Token<'a>], years: Option<Token<'a>>| Layout {
        seconds,
        minutes: rest[0],
        hours: rest[1],
        days: rest[2],
        months: rest[3],
        weekdays: rest[4],
        years,
    };
    match (dialect, fields.len()) {
        (_, 0) => Err(Error::new(Code::Empty, "the expression is empty")
            .at(0..0)
            .hint("write five fields: minute hour day month weekday, such as `0 9 * * MON`")),
        (Dialect::Standard, 5) => Ok(of(None, fields, None)),
        (Dialect::Standard, 6) => {
            if looks_like_year(fields[5].text) {
                let five: Vec<&str> = fields[..5].iter().map(|f| f.text).collect();
                return Err(Error::new(
                    Code::FieldCount,
                    format!("six fields start with seconds, but `{}` looks like a year", fields[5].text),
                )
                .at(fields[5].span())
                .hint(format!(
                    "with a year, write all seven: `0 {} {}`",
                    five.join(" "),
                    fields[5].text
                )));
            }
            Ok(of(Some(fields[0]), &fields[1..], None))
        }
        (Dialect::Standard | Dialect::Quartz, 7) => Ok(of(Some(fields[0]), &fields[1..6], Some(fields[6]))),
        (Dialect::Quartz, 6) => Ok(of(Some(fields[0]), &fields[1..], None)),
        (Dialect::Aws, 6) => Ok(of(None, &fields[..5], Some(fields[5]))),
        (_, count) => {
            let wants = match dialect {
                Dialect::Standard => {
                    "5 (minute hour day month weekday), 6 (seconds first) or 7 (a year last)"
                }
                Dialect::Quartz => "6 (seconds minute hour day month weekday) or 7 (a year last)",
                Dialect::Aws => "6 (minute hour day month weekday year)",
            };
            let error = Error::new(
                Code::FieldCount,
                format!("{count} field{} given", if count == 1 { "" } else { "s" }),
            );
            let error = match fields.get(7) {
                Some(extra) => error.at(extra.start..text.trim_end().len()),
                None => error.at(text.trim_end().len()..text.trim_end().len()),
            };
            Err(error.hint(format!("write {wants}")))
        }
    }
}

fn looks_like_year(field: &str) -> bool {
    field
        .split(|c: char| !c.is_ascii_digit())
        .any(|number| number.len() == 4 && number.parse().is_ok_and(|y: i32| (1900..=2999).contains(&y)))
}

fn one_question_mark(days: Token<'_>, weekdays: Token<'_>, dialect: Dialect) -> Result<(), Error> {
    if (days.text == "?") != (weekdays.text == "?") {
        return Ok(());
    }
    let system = if dialect == Dialect::Aws { "AWS" } else { "Quartz" };
    let message = if days.text == "?" { "both day fields are `?`" } else { "neither day field is `?`" };
    Err(Error::new(Code::Syntax, message)
        .field(WEEKDAY.name)
        .at(weekdays.span())
        .hint(format!("{system} takes a day of the month or a weekday: the other one must be `?`")))
}
const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

fn nickname(text: &str, at: usize, dialect: Dialect) -> Result<Parsed, Error> {
    let word = text.trim();
    let span = span_of(text, word);
    if at != span.start || word.contains([' ', '\t']) {
        return Err(Error::new(Code::Syntax, "`@` starts a nickname, which stands alone")
            .at(at..at + 1)
            .hint("write `@daily` alone, or five fields"));
    }
    if dialect != Dialect::Standard {
        return Err(Error::new(
            Code::Unsupported,
            format!("the {} dialect has no `{word}`", dialect.as_str()),
        )
        .at(span)
        .hint("leave the dialect out"));
    }
    if word.eq_ignore_ascii_case("@reboot") {
        return Err(Error::new(Code::Unsupported, "`@reboot` names no time")
            .at(span)
            .hint("use a schedule of `now` to run once, at once"));
    }
    match NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
        Some((_, fields)) => parse(fields, Dialect::Standard),
        None => Err(Error::new(Code::Syntax, format!("`{word}` is not a nickname"))
            .at(span)
            .hint("there are @yearly, @monthly, @weekly, @daily, @midnight, @hourly and @every <duration>")),
    }
}
