//! Times and lengths of time between the wire and ours.

use jiff::Timestamp;
use punctual_api::duration::Duration;
use punctual_api::time::Time;

pub(crate) fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}

/// A time as our readers judge it: one that cannot be is refused by them, and named.
pub(crate) fn time(at: &prost_types::Timestamp) -> Time {
    match instant(at) {
        Some(at) => Time::from(at),
        None => Time::Text(format!("{} s and {} ns", at.seconds, at.nanos)),
    }
}

pub(crate) fn instant(at: &prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(at.seconds, at.nanos).ok()
}

/// A length of time as it goes over the wire.
pub fn to_wire(duration: Duration) -> prost_types::Duration {
    let seconds = i64::try_from(duration.0.as_secs()).unwrap_or(i64::MAX);
    prost_types::Duration { seconds, nanos: duration.0.subsec_nanos() as i32 }
}

/// A negative length of time is none.
pub(crate) fn duration(wire: &prost_types::Duration) -> Duration {
    Duration(std::time::Duration::try_from(*wire).unwrap_or_default())
}
