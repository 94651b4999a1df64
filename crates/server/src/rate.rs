//! How many requests a caller may make: one bucket for each key, and one for whoever needs none.
//!
//! Asked by the gate for every request that says who calls, on each node for itself and in memory alone. Promise: of one caller no more than
//! a second's worth is let in at once, and no more than the rate after that; one who is refused is told when to come back; callers beyond
//! [`CALLERS_MAX`] do not take memory, but begin anew.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use punctual_domain::key::KeyId;

/// What is left, as `draft-ietf-httpapi-ratelimit-headers` says it.
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// What there is.
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Callers that are remembered, as many as there are keys; above that all are forgotten.
const CALLERS_MAX: usize = 10_000;

/// A bucket holds a second's worth.
const WINDOW_US: i64 = 1_000_000;

/// More than one request in a microsecond is not told apart.
pub const PER_SECOND_MAX: u32 = 1_000_000;

/// Who called, and when the last of what they asked for would have come at an even pace, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Callers(Mutex<HashMap<Option<KeyId>, i64>>);

/// What is left to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    per_second: u32,
    /// Requests that would be let in now.
    pub(crate) requests: i64,
    /// When the bucket is full again, in microseconds.
    full_in_us: i64,
    /// Whether this one is let in.
    pub(crate) is_in: bool,
}

impl Callers {
    /// Takes one request from what a caller has.
    pub(crate) fn take(&self, caller: Option<KeyId>, per_second: u32, now: Timestamp) -> Left {
        let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= CALLERS_MAX && !callers.contains_key(&caller) {
            callers.clear();
        }
        let paced_to = callers.entry(caller).or_insert(i64::MIN);
        decide(paced_to, per_second, now.as_microsecond())
    }
}

/// Whether a request is let in at this time, and what is left after it.
fn decide(paced_to: &mut i64, per_second: u32, now: i64) -> Left {
    let pace = WINDOW_US / i64::from(per_second.clamp(1, PER_SECOND_MAX));
    // Who has not called for long has a full bucket; a clock that was set back does not lock anybody out.
    let ahead = paced_to.saturating_sub(now).clamp(0, WINDOW_US);
    let is_in = ahead + pace <= WINDOW_US;
    let ahead = if is_in { ahead + pace } else { ahead };
    *paced_to = now.saturating_add(ahead);
    Left { per_second, requests: (WINDOW_US - ahead) / pace, full_in_us: ahead, is_in }
}

impl Left {
    /// Says it in the headers of an answer.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        let seconds = self.full_in_us.div_euclid(WINDOW_US) + i64::from(self.full_in_us % WINDOW_US > 0);
        let policy = format!("\"requests\";q={};w=1", self.per_second);
        let left = format!("\"requests\";r={};t={seconds}", self.requests);
        for (name, text) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, left)] {
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_requests_is_let_in_at_once_and_then_the_rate() {
        let mut paced_to = i64::MIN;
        let taken: Vec<bool> = (0..12).map(|_| decide(&mut paced_to, 10, 0).is_in).collect();
        assert_eq!(taken.iter().filter(|is_in| **is_in).count(), 10);
        assert!(!decide(&mut paced_to, 10, 99_999).is_in);
        assert!(decide(&mut paced_to, 10, 100_000).is_in, "one tenth of a second, one more");
        assert!(!decide(&mut paced_to, 10, 100_000).is_in);
        assert_eq!(decide(&mut paced_to, 10, 9_000_000).requests, 9);
    }

    #[test]
    fn a_clock_that_is_set_back_locks_nobody_out_for_longer_than_a_second() {
        let mut paced_to = i64::MIN;
        assert!((0..10).all(|_| decide(&mut paced_to, 10, 1_000_000_000).is_in));
        assert!(!decide(&mut paced_to, 10, 5_000_000).is_in);
        assert!(decide(&mut paced_to, 10, 6_000_000).is_in);
    }

    #[test]
    fn every_rate_lets_something_in() {
        for per_second in [1, 7, 1_000, PER_SECOND_MAX] {
            let mut paced_to = i64::MIN;
            let left = decide(&mut paced_to, per_second, 0);
            assert!(left.is_in && left.requests < i64::from(per_second).max(2), "{left:?}");
        }
    }

    #[test]
    fn what_is_left_is_told_as_the_draft_says() {
        let mut headers = HeaderMap::new();
        let mut paced_to = i64::MIN;
        decide(&mut paced_to, 100, 0).tell(&mut headers);
        assert_eq!(headers["ratelimit"], "\"requests\";r=99;t=1");
        assert_eq!(headers["ratelimit-policy"], "\"requests\";q=100;w=1");
    }
}
