//! Lengths of time: `PT5S`, `90s`, `P1M`.
//!
//! Months and days are kept apart from hours, because a day is not always 24 hours. Promise:
//! positive, at most 230 years, whole milliseconds.

use std::fmt;

use jiff::{SignedDuration, Span};

use crate::error::{Code, Error};
use crate::spoken::Spoken;

/// A positive length of time, in calendar units and in exact time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Period {
    pub(crate) months: i32,
    pub(crate) days: i32,
    pub(crate) millis: i64,
}

/// Longer than all the time we schedule in.
const YEARS_MAX: i64 = 230;

impl Period {
    /// An exact length.
    pub fn exact(length: SignedDuration) -> Result<Self, Error> {
        let millis = length.as_millis();
        if length.subsec_nanos() % 1_000_000 != 0 {
            return Err(Error::new(Code::OutOfRange, "a duration finer than a millisecond")
                .hint("use whole milliseconds"));
        }
        let most = i128::from(YEARS_MAX) * 366 * 86_400_000;
        if millis <= 0 || millis > most {
            return Err(Error::new(Code::OutOfRange, "a duration must be positive and at most 230 years")
                .hint("write `PT90S`, `90s`, `1h30m` or `500ms`"));
        }
        Ok(Period { months: 0, days: 0, millis: millis as i64 })
    }

    /// ISO 8601 with calendar units: `P1M`, `P1DT12H`, `PT90M`.
    pub fn parse_iso(text: &str) -> Result<Self, Error> {
        crate::check_text(text)?;
        let wrong = |reason: &str| {
            Error::new(Code::Syntax, format!("`{text}` {reason}"))
                .at(0..text.len())
                .hint("write an ISO 8601 duration such as `PT90M`, `P1D` or `P1M`")
        };
        if !text.starts_with(['P', 'p']) {
            return Err(wrong(match text.starts_with(['-', '+']) {
                true => "is not a positive duration",
                false => "is not an ISO 8601 duration",
            }));
        }
        let span: Span = text.parse().map_err(|_| wrong("is not an ISO 8601 duration"))?;
        if span.is_zero() {
            return Err(wrong("is no time at all"));
        }
        let exact = SignedDuration::try_from(
            Span::new()
                .hours(span.get_hours())
                .minutes(span.get_minutes())
                .seconds(span.get_seconds())
                .milliseconds(span.get_milliseconds())
                .microseconds(span.get_microseconds())
                .nanoseconds(span.get_nanoseconds()),
        )
        .map_err(|_| wrong("is too long"))?;
        let months = i64::from(span.get_years()) * 12 + i64::from(span.get_months());
        let days = i64::from(span.get_weeks()) * 7 + i64::from(span.get_days());
        let too_long = months > YEARS_MAX * 12 || days > YEARS_MAX * 366;
        if too_long {
            return Err(wrong("is too long: at most 230 years"));
        }
        let millis = if exact.is_zero() {
            0
        } else {
            Period::exact(exact).map_err(|error| error.at(0..text.len()))?.millis
        };
        Ok(Period { months: months as i32, days: days as i32, millis })
    }

    /// An exact length, ISO 8601 or as people write it: `PT5S`, `90s`, `1h30m`.
    pub fn parse_exact(text: &str) -> Result<Self, Error> {
        crate::check_text(text)?;
        let hint = "write `PT90S`, `90s`, `1h30m` or `500ms`";
        if text.starts_with(['P', 'p']) {
            let period = Period::parse_iso(text)?;
            if period.months != 0 || period.days != 0 {
                return Err(Error::new(
                    Code::Unsupported,
                    format!("`{text}` is counted in days or months, which differ in length"),
                )
                .at(0..text.len())
                .hint("say `PT24H` for 24 hours; for calendar days or months use cron or `R/<start>/P1D`"));
            }
            return Ok(period);
        }
        let length: SignedDuration = text.parse().map_err(|_| match Spoken::read(text) {
            Some(spoken) if spoken.is_in_days() => Error::new(
                Code::Unsupported,
                format!("`{text}` is counted in days or longer, which differ in length"),
            )
            .at(0..text.len())
            .hint(spoken.way_out()),
            _ => Error::new(Code::Syntax, format!("`{text}` is not a duration")).at(0..text.len()).hint(hint),
        })?;
        Period::exact(length).map_err(|error| error.at(0..text.len()))
    }

    /// True if it has no months or days: the same length wherever it starts.
    pub fn is_exact(&self) -> bool {
        self.months == 0 && self.days == 0
    }

    /// How long it is, roughly if it has months.
    pub(crate) fn about_millis(&self) -> i64 {
        // The mean Gregorian month is 30.436875 days.
        i64::from(self.months) * 2_629_746_000 + i64::from(self.days) * 86_400_000 + self.millis
    }

    /// In words: `90 seconds`, `1 hour 30 minutes`, `2 months`.
    pub(crate) fn describe(&self) -> String {
        let (h, m, s, ms) = self.clock_parts();
        let parts = [
            (i64::from(self.months / 12), "year"),
            (i64::from(self.months % 12), "month"),
            (i64::from(self.days), "day"),
            (h, "hour"),
            (m, "minute"),
            (s, "second"),
            (ms, "millisecond"),
        ];
        parts
            .iter()
            .filter(|(count, _)| *count != 0)
            .map(|(count, unit)| format!("{count} {unit}{}", if *count == 1 { "" } else { "s" }))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// In words after "every": `month`, `2 months`.
    pub(crate) fn describe_each(&self) -> String {
        let words = self.describe();
        match words.strip_prefix("1 ") {
            Some(unit) if !unit.contains(' ') => unit.to_string(),
            _ => words,
        }
    }

    fn clock_parts(&self) -> (i64, i64, i64, i64) {
        let seconds = self.millis / 1000;
        (seconds / 3600, seconds / 60 % 60, seconds % 60, self.millis % 1000)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("P")?;
        for (count, unit) in [(self.months / 12, 'Y'), (self.months % 12, 'M'), (self.days, 'D')] {
            if count != 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        if self.millis == 0 {
            return Ok(());
        }
        let (hours, minutes, seconds, millis) = self.clock_parts();
        f.write_str("T")?;
        for (count, unit) in [(hours, 'H'), (minutes, 'M')] {
            if count != 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        match (seconds, millis) {
            (0, 0) => Ok(()),
            (_, 0) => write!(f, "{seconds}S"),
            _ => write!(f, "{seconds}.{millis:03}S"),
        }
    }
}
