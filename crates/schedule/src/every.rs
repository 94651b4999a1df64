//! Fixed periods: `@every 90s`.
//!
//! Slots are counted from the Unix epoch (or an anchor) plus a phase, so that a restart or a
//! failover does not shift them; or from the last completion, which the engine supplies.

use std::fmt;

use crate::error::{Code, Error};
use crate::moment::Moment;
use crate::period::Period;

/// A fixed period.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Every {
    period: Period,
    origin: Origin,
}

/// What the period is counted from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A fixed point: the anchor, or else the schedule's start, or else the Unix epoch; plus a
    /// phase in milliseconds, below the period.
    Clock {
        /// Where slot 0 would be.
        anchor: Option<Moment>,
        /// Milliseconds after it.
        phase_ms: u64,
    },
    /// The end of the last run, however it ended.
    Completion,
}

/// Shorter periods are a busy loop, not a schedule.
const PERIOD_MIN_MS: i64 = 1_000;

impl Every {
    /// A period of at least a second, counted from an origin.
    pub fn new(period: Period, origin: Origin) -> Result<Self, Error> {
        if !period.is_exact() {
            return Err(Error::new(Code::Unsupported, "a period in days or months differs in length")
                .hint("say `PT24H` for 24 hours; for calendar days or months use cron or `R/<start>/P1D`"));
        }
        if period.millis < PERIOD_MIN_MS {
            return Err(Error::new(Code::OutOfRange, format!("a period of {period} is too short"))
                .hint("the shortest is `PT1S`"));
        }
        if let Origin::Clock { phase_ms, .. } = &origin
            && *phase_ms >= period.millis as u64
        {
            return Err(Error::new(
                Code::OutOfRange,
                format!("a phase of {phase_ms}ms does not fit in {period}"),
            )
            .hint("the phase is less than the period"));
        }
        Ok(Every { period, origin })
    }

    /// Reads what follows `@every`: `90s`, `PT5S phase 250ms`, `5m anchor 2026-01-01T00:00Z`,
    /// `5m from completion`.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let words: Vec<(usize, &str)> = text
            .split([' ', '\t'])
            .filter(|word| !word.is_empty())
            .map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
            .collect();
        let split = words
            .iter()
            .position(|(_, word)| ["phase", "anchor", "from"].iter().any(|k| word.eq_ignore_ascii_case(k)))
            .unwrap_or(words.len());
        let (Some(first), Some(last)) = (words.first().filter(|_| split > 0), words[..split].last()) else {
            return Err(Error::new(Code::Empty, "no period is given")
                .at(0..text.len())
                .hint("write it after `@every`, such as `@every 90s`"));
        };
        let spelled = &text[first.0..last.0 + last.1.len()];
        let period = Period::parse_exact(spelled).map_err(|error| error.shifted(first.0))?;
        let origin = parse_origin(text, &words[split..])?;
        Every::new(period, origin).map_err(|error| error.at(first.0..last.0 + last.1.len()))
    }

    /// Its length.
    pub fn period(&self) -> Period {
        self.period
    }

    /// What it is counted from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }
}

fn parse_origin(text: &str, words: &[(usize, &str)]) -> Result<Origin, Error> {
    let (mut anchor, mut phase_ms, mut completion) = (None, 0, false);
    for clause in words.chunks(2) {
        let (at, word) = clause[0];
        let Some(&(value_at, value)) = clause.get(1) else {
            return Err(Error::new(Code::Syntax, format!("`{word}` needs a value"))
                .at(at..text.len())
                .hint("write `phase 250ms`, `anchor 2026-01-01T00:00Z` or `from completion`"));
        };
        match word.to_ascii_lowercase().as_str() {
            "anchor" => anchor = Some(Moment::parse(value).map_err(|e| e.shifted(value_at))?),
            "phase" => {
                let phase = Period::parse_exact(value).map_err(|e| e.shifted(value_at))?;
                phase_ms = phase.millis as u64;
            }
            "from" if value.eq_ignore_ascii_case("completion") => completion = true,
            _ => {
                return Err(Error::new(Code::Syntax, format!("`{word} {value}` is not understood"))
                    .at(at..value_at + value.len())
                    .hint("write `phase 250ms`, `anchor 2026-01-01T00:00Z` or `from completion`"));
            }
        }
    }
    match (completion, anchor.is_some() || phase_ms > 0) {
        (true, true) => {
            Err(Error::new(Code::Conflict, "a period from the last completion has no anchor or phase")
                .hint("leave one of them out"))
        }
        (true, false) => Ok(Origin::Completion),
        (false, _) => Ok(Origin::Clock { anchor, phase_ms }),
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@every {}", self.period)?;
        match &self.origin {
            Origin::Completion => f.write_str(" from completion"),
            Origin::Clock { anchor, phase_ms } => {
                if let Some(anchor) = anchor {
                    write!(f, " anchor {anchor}")?;
                }
                if *phase_ms > 0 {
                    write!(f, " phase {phase_ms}ms")?;
                }
                Ok(())
            }
        }
    }
}

/// Slots at `anchor + k * period`, in milliseconds, from `first` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beat {
    pub(crate) anchor: i64,
    pub(crate) period: i64,
    pub(crate) first: i64,
}

impl Beat {
    pub(crate) fn next_from(&self, from: i64) -> Option<i64> {
        let from = from.max(self.first);
        let ahead = (self.anchor - from).rem_euclid(self.period);
        Some(from + ahead)
    }

    pub(crate) fn last_before(&self, to: i64) -> Option<i64> {
        let back = (to - 1 - self.anchor).rem_euclid(self.period);
        Some(to - 1 - back).filter(|slot| *slot >= self.first)
    }

    pub(crate) fn count(&self, from: i64, to: i64) -> u64 {
        let from = from.max(self.first);
        if from >= to {
            return 0;
        }
        let slots_before = |t: i64| (t - 1 - self.anchor).div_euclid(self.period);
        (slots_before(to) - slots_before(from)) as u64
    }
}
