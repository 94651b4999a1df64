//! Times and lengths as people read them: on the local clock, and from now.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
pub(crate) use punctual_schedule::length;

/// `Tue 2026-11-17 02:00:00 +01:00`, on the clock of this machine.
pub(crate) fn local(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string()
}

/// `in 3h 12m`, `12s ago`, `now`.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    let distance = at.duration_since(now);
    match distance.as_secs() {
        0 => "now".into(),
        1.. => format!("in {}", length(distance)),
        _ => format!("{} ago", length(-distance)),
    }
}

/// Both.
pub(crate) fn full(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", local(at), relative(at, now))
}

/// A length in milliseconds.
pub(crate) fn millis(of: i64) -> String {
    length(SignedDuration::from_millis(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_from_now() {
        let now: Timestamp = "2026-11-16T00:00:00Z".parse().expect("a time");
        assert_eq!(relative(now + SignedDuration::from_hours(3), now), "in 3h");
        assert_eq!(relative(now - SignedDuration::from_secs(12), now), "12s ago");
        assert_eq!(relative(now, now), "now");
    }
}
