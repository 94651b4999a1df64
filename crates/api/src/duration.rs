//! A length of time on the wire: ISO 8601 (`PT5S`) or as people write it (`30s`).

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;
use punctual_schedule::{Error, Period};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::read::{At, Errors, Read};

/// A positive length of time in whole milliseconds; written as ISO 8601.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ToSchema)]
#[schema(value_type = String, example = "PT5S")]
pub struct Duration(pub std::time::Duration);

impl FromStr for Duration {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let period = Period::parse_exact(text)?;
        // Exact periods print as an exact duration; their length is a private matter of the schedule.
        let exact: SignedDuration = period.to_string().parse().unwrap_or_default();
        Ok(Duration(exact.unsigned_abs()))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of what we have worked out, such as a third of a lease, what is less than a millisecond is left out: nobody could read it.
        let whole = self.0.as_millis().try_into().ok().map(SignedDuration::from_millis);
        match whole.and_then(|exact| Period::exact(exact).ok()) {
            Some(period) => period.fmt(f),
            None => write!(f, "PT{}S", self.0.as_secs_f64()),
        }
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Read for Duration {
    fn read(text: &str, at: &At<'_>, errors: &mut Errors) -> Option<Self> {
        let Ok(spelled) = serde_json::from_str::<String>(text) else {
            errors.wrong_type(at, "a duration such as `PT5S` or `30s`", text);
            return None;
        };
        spelled.parse().map_err(|error: Error| errors.add(at, "duration", error.to_string())).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_read_in_both_forms_and_written_as_iso() {
        for (text, millis, written) in [
            ("PT5S", 5_000, "PT5S"),
            ("30s", 30_000, "PT30S"),
            ("1h30m", 5_400_000, "PT1H30M"),
            ("250ms", 250, "PT0.250S"),
            ("PT24H", 86_400_000, "PT24H"),
        ] {
            let duration: Duration = text.parse().expect("a duration");
            assert_eq!(duration.0.as_millis(), millis, "{text}");
            assert_eq!(duration.to_string(), written);
            assert_eq!(written.parse::<Duration>().expect("a duration"), duration);
        }
        for (seconds, parts, written) in [(8, 3, "PT2.666S"), (10, 3, "PT3.333S"), (7, 6, "PT1.166S")] {
            let part = Duration(std::time::Duration::from_secs(seconds) / parts);
            assert_eq!(part.to_string(), written);
            assert!(written.parse::<Duration>().is_ok_and(|read| read <= part), "{written} is read again");
        }
        for text in ["5", "PT0S", "-5s", "P1M", "soon", ""] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
    }
}
