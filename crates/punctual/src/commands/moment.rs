//! Times and lengths as people read them: on the local clock, and from now.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

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

/// The two largest units: `3h 12m`, `350ms`, `1.5s`.
pub(crate) fn length(of: SignedDuration) -> String {
    let millis = of.as_millis().max(0);
    let seconds = millis / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: i128, unit: &str, small: i128, less: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit} {small}{less}"),
    };
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..10_000 if millis % 1_000 >= 100 => format!("{}.{}s", seconds, millis % 1_000 / 100),
        1_000..60_000 => format!("{seconds}s"),
        60_000..3_600_000 => two(minutes, "m", seconds % 60, "s"),
        3_600_000..86_400_000 => two(hours, "h", minutes % 60, "m"),
        _ => two(days, "d", hours % 24, "h"),
    }
}

/// A length in milliseconds.
pub(crate) fn millis(of: i64) -> String {
    length(SignedDuration::from_millis(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_show_their_two_largest_units() {
        for (millis, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (1_550, "1.5s"),
            (59_999, "59s"),
            (61_000, "1m 1s"),
            (7_200_000, "2h"),
            (7_260_000, "2h 1m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(super::millis(millis), text);
        }
    }

    #[test]
    fn a_time_is_told_from_now() {
        let now: Timestamp = "2026-11-16T00:00:00Z".parse().expect("a time");
        assert_eq!(relative(now + SignedDuration::from_hours(3), now), "in 3h");
        assert_eq!(relative(now - SignedDuration::from_secs(12), now), "12s ago");
        assert_eq!(relative(now, now), "now");
    }
}
