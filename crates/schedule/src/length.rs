//! A length of time as people read it.

use jiff::SignedDuration;

/// A length in its two largest units, such as `1h 30m`.
pub fn length(of: SignedDuration) -> String {
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
            assert_eq!(length(SignedDuration::from_millis(millis)), text);
        }
    }
}
