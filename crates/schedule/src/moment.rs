//! A point in time as people write it: an instant, or a wall-clock time with or without a zone.
//!
//! Read by `at`, by the start of intervals and by anchors, as RFC 3339 or RFC 9557 text. Promise:
//! it prints as it was meant, and becomes an instant only when zone and policy are known.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::temporal::{Pieces, PiecesOffset};
use jiff::tz::Offset;

use crate::civil::{Wall, YEAR_MAX, YEAR_MIN, wall_of};
use crate::dst::{self, Policy};
use crate::error::{Code, Error};
use crate::tzdb::{Tzdb, ZONE_NAME_MAX};
use crate::zone::Zone;

/// `2026-12-24T18:00:00Z`, `2026-03-08T02:30[America/New_York]`, `2026-03-08T02:30`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    civil: DateTime,
    offset: Option<Written>,
    zone: Option<String>,
}

/// How the offset was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Written {
    /// `Z`: an instant, wherever its clock is.
    Zulu,
    /// `-05:00`: must agree with the zone, if one is given too.
    Offset(i32),
}

/// A moment in its zone.
pub(crate) struct Placed {
    /// Milliseconds since 1970, or nothing if the policy drops it.
    pub(crate) millis: Option<i64>,
    pub(crate) wall: Wall,
    pub(crate) subsec_millis: i64,
    pub(crate) zone: Arc<Zone>,
}

impl Moment {
    /// Reads RFC 3339, also without an offset, and the RFC 9557 zone in brackets.
    pub fn parse(text: &str) -> Result<Self, Error> {
        crate::check_text(text)?;
        let wrong = |reason: String| {
            Error::new(Code::Syntax, reason).at(0..text.len()).hint(
                "write `2026-12-24T18:00:00Z`, `2026-12-24T18:00:00+01:00` or `2026-12-24T18:00[Europe/Paris]`",
            )
        };
        let pieces = Pieces::parse(text).map_err(|_| {
            let week_date = text.get(4..6).is_some_and(|s| s.eq_ignore_ascii_case("-W"));
            wrong(match week_date {
                true => format!("week dates such as `{text}` are not taken"),
                false => format!("`{text}` is not a date and time"),
            })
        })?;
        let time = pieces.time().ok_or_else(|| wrong(format!("`{text}` has no time of day")))?;
        let civil = pieces.date().to_datetime(time);
        if !(YEAR_MIN..=YEAR_MAX).contains(&i32::from(civil.year())) {
            return Err(Error::new(Code::OutOfRange, format!("the year {} is too far", civil.year()))
                .at(0..text.len())
                .hint(format!("times lie in the years {YEAR_MIN} to {YEAR_MAX}")));
        }
        if civil.subsec_nanosecond() % 1_000_000 != 0 {
            return Err(Error::new(Code::OutOfRange, "a time finer than a millisecond")
                .at(0..text.len())
                .hint("write at most three digits after the second"));
        }
        let offset = match pieces.offset() {
            None => None,
            Some(PiecesOffset::Zulu) => Some(Written::Zulu),
            Some(PiecesOffset::Numeric(n)) if n.offset().seconds() % 60 != 0 => {
                return Err(wrong("an offset has whole minutes".into()));
            }
            Some(PiecesOffset::Numeric(n)) => Some(Written::Offset(n.offset().seconds())),
            Some(_) => return Err(wrong(format!("`{text}` has an offset of an unknown kind"))),
        };
        let zone = match pieces.time_zone_annotation() {
            None => None,
            Some(annotation) => Some(match annotation.kind() {
                jiff::fmt::temporal::TimeZoneAnnotationKind::Named(name) => name.as_str().to_string(),
                jiff::fmt::temporal::TimeZoneAnnotationKind::Offset(offset) => print_offset(offset.seconds()),
                _ => return Err(wrong(format!("`{text}` has a zone of an unknown kind"))),
            }),
        };
        if zone.as_ref().is_some_and(|name| name.len() > ZONE_NAME_MAX) {
            return Err(Error::new(Code::Timezone, "the time zone's name is too long")
                .at(0..text.len())
                .hint("use an IANA name such as `Europe/Paris`"));
        }
        Ok(Moment { civil, offset, zone })
    }

    /// An instant, cut to milliseconds.
    pub fn instant(at: Timestamp) -> Self {
        let cut = Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
        Moment { civil: Offset::UTC.to_datetime(cut), offset: Some(Written::Zulu), zone: None }
    }

    /// Whether it is at or before another, as far as can be said without a zone.
    pub(crate) fn is_surely_not_after(&self, other: &Moment) -> bool {
        match (self.offset_seconds(), other.offset_seconds()) {
            (Some(a), Some(b)) => wall_of(self.civil) - a <= wall_of(other.civil) - b,
            (None, None) => self.zone == other.zone && self.civil <= other.civil,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    fn offset_seconds(&self) -> Option<i64> {
        self.offset.map(|offset| match offset {
            Written::Zulu => 0,
            Written::Offset(seconds) => seconds.into(),
        })
    }

    /// The zone it names itself.
    pub(crate) fn zone_name(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// The wall-clock time it names, if it leaves the instant to the zone.
    pub(crate) fn wall_time(&self) -> Option<Wall> {
        self.offset.is_none().then(|| wall_of(self.civil))
    }

    /// Its instant, in its own zone or else in `zone`.
    pub(crate) fn place(&self, tzdb: &Tzdb, zone: &Arc<Zone>, policy: Policy) -> Result<Placed, Error> {
        let zone = match &self.zone {
            Some(name) => tzdb.zone(name)?,
            None => Arc::clone(zone),
        };
        let written = wall_of(self.civil);
        let subsec_millis = i64::from(self.civil.subsec_nanosecond()) / 1_000_000;
        let second = match self.offset {
            None => dst::resolve(written, &zone, policy),
            Some(Written::Zulu) => Some(written),
            Some(Written::Offset(seconds)) => {
                let second = written - i64::from(seconds);
                if self.zone.is_some() && zone.wall_at(second) != written {
                    return Err(Error::new(
                        Code::Conflict,
                        format!("`{self}`: its offset is not that of {} at that time", zone.name()),
                    )
                    .hint("leave the offset out, or correct it"));
                }
                Some(second)
            }
        };
        Ok(Placed {
            millis: second.map(|s| s * 1000 + subsec_millis),
            wall: match (self.offset, second) {
                (Some(_), Some(second)) => zone.wall_at(second),
                _ => written,
            },
            subsec_millis,
            zone,
        })
    }
}

pub(crate) fn print_offset(seconds: i32) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.abs() / 60;
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.civil)?;
        match self.offset {
            None => {}
            Some(Written::Zulu) => f.write_str("Z")?,
            Some(Written::Offset(seconds)) => {
                f.write_str(&print_offset(seconds))?;
            }
        }
        match &self.zone {
            Some(zone) => write!(f, "[{zone}]"),
            None => Ok(()),
        }
    }
}
