//! The words of an answer: times on the clock of the job, pauses, errors, what comes next.

use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use punctual_schedule::{Timetable, length};

use super::Facts;
use crate::attempt::{Attempt, Outcome};
use crate::job::Pause;

/// Longer messages of targets are cut off: the run has them whole.
const MESSAGE_MAX: usize = 200;

/// Tells times on the clock of a job.
pub(super) struct Tell<'a> {
    timetable: Option<&'a Timetable>,
    facts: &'a Facts<'a>,
}

impl<'a> Tell<'a> {
    pub(super) fn new(facts: &'a Facts<'a>) -> Self {
        Tell { timetable: facts.timetable.or(facts.current), facts }
    }

    fn offset(&self, at: Timestamp) -> Offset {
        let seconds = self.timetable.map_or(0, |timetable| timetable.zone().offset_at(at));
        Offset::from_seconds(seconds).unwrap_or(Offset::UTC)
    }

    fn format(&self, at: Timestamp, day: &str) -> String {
        let zoned = at.to_zoned(TimeZone::fixed(self.offset(at)));
        let clock = match (zoned.second(), zoned.millisecond()) {
            (0, 0) => "%H:%M",
            (_, 0) => "%H:%M:%S",
            _ => "%H:%M:%S.%3f",
        };
        zoned.strftime(&format!("{day}{clock}")).to_string()
    }

    /// The time of day alone where that is enough: on the day of the slot.
    pub(super) fn time(&self, at: Timestamp) -> String {
        let day = |at: Timestamp| self.offset(at).to_datetime(at).date();
        let of = self.facts.slot.or(self.facts.at).unwrap_or(self.facts.now);
        self.format(at, if day(at) == day(of) { "" } else { "%Y-%m-%d " })
    }

    /// With the day and the zone.
    pub(super) fn full(&self, at: Timestamp) -> String {
        let zone = self.timetable.map_or("UTC", |timetable| timetable.zone().name());
        format!("{} {zone}", self.format(at, "%Y-%m-%d "))
    }

    /// `The slot of 2026-11-17 09:00 Europe/Paris`, with what a change of the clock did to it.
    pub(super) fn slot(&self, slot: Timestamp) -> String {
        let note = self.timetable.and_then(|timetable| timetable.dst_note(slot));
        let note = note.map(|note| format!(" ({note})")).unwrap_or_default();
        format!("The slot of {}{note}", self.full(slot))
    }

    /// `paused since 10:00 by ada ("maintenance")`.
    pub(super) fn pause(&self, pause: &Pause) -> String {
        format!("paused since {}{}", self.time(pause.since), by(pause))
    }

    /// What comes next, as a sentence with a space before it.
    pub(super) fn next(&self) -> String {
        match self.facts.next.filter(|_| self.facts.job.is_active()) {
            Some(next) => format!(" It fires next at {}.", self.full(next)),
            None => String::new(),
        }
    }
}

/// Who paused it and why.
pub(super) fn by(pause: &Pause) -> String {
    let by = pause.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let reason = pause.reason.as_ref().map(|reason| format!(" (\"{reason}\")")).unwrap_or_default();
    format!("{by}{reason}")
}

/// `connect_failed: connection refused`.
pub(super) fn error(attempt: &Attempt) -> String {
    let Some(report) = &attempt.report else { return "it was given back before it began".into() };
    match &report.error {
        Some(error) => {
            let mut message: String = error.message.chars().take(MESSAGE_MAX).collect();
            if error.message.chars().nth(MESSAGE_MAX).is_some() {
                message.push_str("...");
            }
            format!("{}: {message}", error.code)
        }
        None => match report.outcome {
            Outcome::Lost => "its worker is gone".into(),
            outcome => outcome.as_str().replace('_', " "),
        },
    }
}

/// A length that is never negative.
pub(super) fn span(from: Timestamp, to: Timestamp) -> String {
    length(to.duration_since(from).max(SignedDuration::ZERO))
}

/// `1 attempt`, `3 attempts`.
pub(super) fn count(many: u64, one: &str) -> String {
    match many {
        1 => format!("1 {one}"),
        many => format!("{many} {one}s"),
    }
}
