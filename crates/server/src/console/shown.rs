//! Times, lengths and states in words, as every page writes them.

use http::HeaderMap;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use punctual_api::{RunSummary, Target};

use super::gate;
use crate::call::Call;

/// In which zone and from which moment a viewer looks.
#[derive(Clone, Debug)]
pub(crate) struct View {
    zone: TimeZone,
    name: String,
    now: Timestamp,
}

/// A time: in words, and exactly.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    /// RFC 3339, for programs.
    pub(crate) exact: String,
    /// With milliseconds and offset, for whoever asks.
    pub(crate) title: String,
    /// For people.
    pub(crate) text: String,
    /// How far away: `in 12 min`, `3 h ago`.
    pub(crate) away: String,
}

impl View {
    pub(crate) fn of(call: &Call) -> Self {
        View::from_headers(&call.headers, call.shared.engine.now())
    }

    /// In the zone that the viewer chose, or UTC.
    pub(crate) fn from_headers(headers: &HeaderMap, now: Timestamp) -> Self {
        let chosen = gate::cookie(headers, gate::ZONE);
        let found = chosen.and_then(|name| TimeZone::get(&name).ok().map(|zone| (zone, name)));
        let (zone, name) = found.unwrap_or((TimeZone::UTC, "UTC".into()));
        View { zone, name, now }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    pub(crate) fn zone_name(&self) -> &str {
        &self.name
    }

    /// Within a day only the time of day; the year only if it is another.
    pub(crate) fn moment(&self, at: Timestamp) -> Moment {
        let zoned = at.to_zoned(self.zone.clone());
        let today = self.now.to_zoned(self.zone.clone());
        let form = match (zoned.date() == today.date(), zoned.year() == today.year()) {
            (true, _) => "%H:%M:%S",
            (false, true) => "%a %-d %b %H:%M",
            (false, false) => "%-d %b %Y %H:%M",
        };
        Moment {
            exact: at.to_string(),
            title: zoned.strftime("%Y-%m-%d %H:%M:%S%.3f %:z").to_string(),
            text: zoned.strftime(form).to_string(),
            away: away(at, self.now),
        }
    }

    pub(crate) fn maybe(&self, at: Option<Timestamp>) -> Option<Moment> {
        at.map(|at| self.moment(at))
    }

    /// As a format says, in the viewer's zone.
    pub(crate) fn format(&self, at: Timestamp, form: &str) -> String {
        at.to_zoned(self.zone.clone()).strftime(form).to_string()
    }

    /// The hour of the day, and the minute in it.
    pub(crate) fn hour_and_minute(&self, at: Timestamp) -> (i8, i8) {
        let zoned = at.to_zoned(self.zone.clone());
        (zoned.hour(), zoned.minute())
    }
}

/// How far a time is away, in two units at most.
fn away(at: Timestamp, now: Timestamp) -> String {
    let length = at.duration_since(now);
    match length.as_secs() {
        0 => "now".into(),
        seconds if seconds > 0 => format!("in {}", long(length)),
        _ => format!("{} ago", long(-length)),
    }
}

/// A length from seconds on, in two units at most.
pub(crate) fn long(length: SignedDuration) -> String {
    let seconds = length.as_secs().max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let two = |first: i64, unit: &str, second: i64, smaller: &str| match second {
        0 => format!("{first} {unit}"),
        _ => format!("{first} {unit} {second} {smaller}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => two(minutes, "min", seconds % 60, "s"),
        3600..86_400 => two(hours, "h", minutes, "min"),
        _ => two(days, "d", hours, "h"),
    }
}

/// A length in milliseconds: `38 ms`, `8.2 s`, `4 min 12 s`.
pub(crate) fn millis(length: i64) -> String {
    match length {
        ..0 => format!("\u{2212}{}", millis(length.saturating_neg())),
        0..1000 => format!("{length} ms"),
        1000..60_000 => format!("{}.{} s", length / 1000, length % 1000 / 100),
        _ => long(SignedDuration::from_millis(length)),
    }
}

/// A number with commas.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A state, with its icon and why.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pill {
    /// The class after `pill-`.
    pub(crate) class: &'static str,
    /// The icon after `i-`.
    pub(crate) icon: &'static str,
    pub(crate) word: String,
    pub(crate) why: String,
}

impl Pill {
    fn new(class: &'static str, icon: &'static str, word: &str) -> Self {
        Pill { class, icon, word: word.into(), why: String::new() }
    }

    pub(crate) fn because(self, why: impl Into<String>) -> Self {
        Pill { why: why.into(), ..self }
    }
}

/// The state of a run, an attempt or a slot.
pub(crate) fn state(word: &str) -> Pill {
    match word {
        "succeeded" | "ran" => Pill::new("succeeded", "ok", word),
        "failed" => Pill::new("failed", "bad", word),
        "timed_out" => Pill::new("timed_out", "timeout", "timed out"),
        "running" => Pill::new("running", "ring", word),
        "missed" => Pill::new("missed", "missed", word),
        "lost" => Pill::new("lost", "missed", word),
        "cancelled" => Pill::new("cancelled", "stop", word),
        "skipped" => Pill::new("skipped", "skip", word),
        "active" => Pill::new("active", "ok", word),
        "paused" => Pill::new("paused", "pause", word),
        "ended" => Pill::new("ended", "end", word),
        "deleted" | "revoked" => Pill::new("deleted", "trash", word),
        "expired" => Pill::new("ended", "end", word),
        "late" | "throttled" => Pill::new("late", "clock", word),
        word => Pill::new("pending", "clock", word),
    }
}

/// The state of a run, with what it waits for or what ended it.
pub(crate) fn run(summary: &RunSummary) -> Pill {
    let pill = state(&summary.state);
    if let Some(reason) = &summary.reason {
        return pill.because(reason.replace('_', " "));
    }
    match summary.waiting_for.as_deref() {
        Some("time") => pill.because("waits for its time"),
        Some("capacity") => Pill { icon: "workers", ..pill }.because("waits for capacity"),
        Some("retry") => Pill { icon: "retry", ..pill }.because("waits to be retried"),
        Some("earlier_run") => pill.because("waits for an earlier run"),
        Some("limit") => Pill { icon: "permit", ..pill }.because("waits for a permit"),
        Some("breaker") => Pill { icon: "breaker", ..pill }.because("waits for a breaker"),
        Some("answer") => Pill { class: "ask", icon: "info", ..pill }.because("waits for an answer"),
        Some(other) => pill.because(other.to_string()),
        None if summary.is_cancel_requested && summary.state == "running" => pill.because("asked to stop"),
        None => pill,
    }
}

/// From the first start to the end, in milliseconds.
pub(crate) fn took(summary: &RunSummary) -> Option<i64> {
    let (started, finished) = (summary.started_at?, summary.finished_at?);
    Some(finished.duration_since(started).as_millis() as i64)
}

/// What a job does, in words.
pub(crate) fn target(target: Option<&Target>) -> String {
    let Some(target) = target else { return "nothing".into() };
    if let Some(http) = &target.http {
        let method = http.method.as_deref().unwrap_or("POST");
        return format!("{method} {}", http.url.as_deref().unwrap_or(""));
    }
    if let Some(worker) = &target.worker {
        return format!("hand to a worker as {}", worker.handler.as_deref().unwrap_or(""));
    }
    if let Some(function) = &target.function {
        return format!("call the function {}", function.name.as_deref().unwrap_or(""));
    }
    "succeed at once (discard)".into()
}

/// When, as it was written.
pub(crate) fn schedule(schedule: Option<&punctual_api::Schedule>) -> String {
    let Some(schedule) = schedule else { return String::new() };
    let time = |time: &punctual_api::Time| match time {
        punctual_api::Time::Text(text) => text.clone(),
        punctual_api::Time::Seconds(seconds) => seconds.to_string(),
    };
    let zone = schedule.timezone.as_deref().filter(|zone| *zone != "UTC").map(|zone| format!(" {zone}"));
    let zone = zone.unwrap_or_default();
    if let Some(cron) = &schedule.cron {
        format!("{cron}{zone}")
    } else if let Some(every) = &schedule.every {
        format!("every {every}")
    } else if let Some(at) = &schedule.at {
        format!("at {}{zone}", time(at))
    } else if let Some(after) = &schedule.after {
        format!("after {after}")
    } else if let Some(interval) = &schedule.interval {
        format!("{interval}{zone}")
    } else {
        "once, when it was registered".into()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "what is not there fails the test")]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_two_units_at_most() {
        let cases = [
            (0, "0 ms"),
            (38, "38 ms"),
            (8_249, "8.2 s"),
            (252_000, "4 min 12 s"),
            (240_000, "4 min"),
            (44_820_000, "12 h 27 min"),
            (129_600_000, "1 d 12 h"),
            (-1_100, "\u{2212}1.1 s"),
        ];
        for (length, words) in cases {
            assert_eq!(millis(length), words);
        }
    }

    #[test]
    fn numbers_have_commas() {
        for (value, words) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_204_318, "1,204,318")] {
            assert_eq!(number(value), words);
        }
    }

    #[test]
    fn a_time_is_as_long_as_it_must_be() {
        let now: Timestamp = "2026-03-26T13:02:31Z".parse().unwrap();
        let view = View { zone: TimeZone::UTC, name: "UTC".into(), now };
        let text = |at: &str| view.moment(at.parse().unwrap());
        assert_eq!(text("2026-03-26T14:02:31Z").text, "14:02:31");
        assert_eq!(text("2026-03-27T02:30:00Z").text, "Fri 27 Mar 02:30");
        assert_eq!(text("2027-03-27T02:30:00Z").text, "27 Mar 2027 02:30");
        assert_eq!(text("2026-03-26T14:02:31Z").away, "in 1 h");
        assert_eq!(text("2026-03-26T13:01:31Z").away, "1 min ago");
        assert_eq!(text("2026-03-26T13:02:31.408Z").title, "2026-03-26 13:02:31.408 +00:00");
    }
}
