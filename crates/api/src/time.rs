//! A point in time as users write it: RFC 3339 text, or epoch seconds.

use jiff::Timestamp;
use punctual_schedule::Moment;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::read::{At, Errors, Read};

/// Text such as `2026-12-24T18:00:00Z`, or the seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Time {
    /// RFC 3339, perhaps a wall-clock time without an offset.
    Text(String),
    /// Seconds since 1970, with up to three decimals.
    Seconds(f64),
}

/// Later seconds are milliseconds by mistake: this is the end of 2199.
const SECONDS_MAX: f64 = 7_258_118_400.0;

impl Time {
    /// As a moment that may leave its instant to a zone.
    pub(crate) fn moment(&self, at: &At<'_>, errors: &mut Errors) -> Option<Moment> {
        match self {
            Time::Text(text) => Moment::parse(text)
                .map_err(|error| errors.add(at, error.code().as_str(), error.to_string()))
                .ok(),
            Time::Seconds(seconds) => instant(*seconds, at, errors).map(Moment::instant),
        }
    }

    /// As an instant.
    pub fn instant(&self, at: &At<'_>, errors: &mut Errors) -> Option<Timestamp> {
        match self {
            Time::Seconds(seconds) => instant(*seconds, at, errors),
            Time::Text(text) => match text.parse::<Timestamp>() {
                Ok(instant) => Some(instant),
                Err(_) => {
                    let way_out =
                        "write it with an offset, such as `2026-12-24T18:00:00Z`, or in epoch seconds";
                    let shown: String = text.chars().take(64).collect();
                    errors.add(at, "time", format!("`{shown}` is not an instant; {way_out}"));
                    None
                }
            },
        }
    }
}

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        Time::Text(at.to_string())
    }
}

fn instant(seconds: f64, at: &At<'_>, errors: &mut Errors) -> Option<Timestamp> {
    let is_possible = (0.0..SECONDS_MAX).contains(&seconds);
    match Timestamp::from_millisecond((seconds * 1000.0).round() as i64) {
        Ok(instant) if is_possible => Some(instant),
        _ => {
            let detail = "these seconds since 1970 lie outside of 1970 to 2199; milliseconds are not taken";
            errors.add(at, "time", detail);
            None
        }
    }
}

impl Read for Time {
    fn read(text: &str, at: &At<'_>, errors: &mut Errors) -> Option<Self> {
        match serde_json::from_str(text) {
            Ok(time) => Some(time),
            Err(_) => {
                errors.wrong_type(at, "a time such as `2026-12-24T18:00:00Z`, or epoch seconds", text);
                None
            }
        }
    }
}
