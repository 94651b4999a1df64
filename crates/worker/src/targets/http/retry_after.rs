//! `Retry-After`: how long a receiver asks us to wait.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::http::HeaderMap;
use ::http::header::{DATE, RETRY_AFTER};

/// Longer waits are cut: a receiver that is broken in this header must not end a job for ever.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Reads seconds or a date. A date is compared with the receiver's own `Date`, because its clock
/// may differ from ours, else with `now_s`. What cannot be read asks for nothing.
pub(super) fn read(headers: &HeaderMap, now_s: i64) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // Only too many digits fail to parse.
        return Some(text.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs).min(RETRY_AFTER_MAX));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    let date = headers.get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    let now = date.or_else(|| from_unix(now_s))?;
    Some(until.duration_since(now).unwrap_or(Duration::ZERO).min(RETRY_AFTER_MAX))
}

fn from_unix(seconds: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_nonsense_asks_for_nothing() {
        const NOW_S: i64 = 1_445_412_480; // Wed, 21 Oct 2015 07:28:00 GMT
        let month = RETRY_AFTER_MAX.as_secs();
        let cases = [
            ("120", None, Some(120)),
            ("0", None, Some(0)),
            (" 7 ", None, Some(7)),
            ("007", None, Some(7)),
            ("99999999", None, Some(month)),
            ("99999999999999999999999999", None, Some(month)),
            ("Wed, 21 Oct 2015 07:29:00 GMT", None, Some(60)),
            ("Wed, 21 Oct 2015 07:27:00 GMT", None, Some(0)),
            ("Wednesday, 21-Oct-15 07:29:00 GMT", None, Some(60)),
            ("Wed Oct 21 07:29:00 2015", None, Some(60)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", None, Some(month)),
            ("Wed, 21 Oct 2015 07:29:00 GMT", Some("Wed, 21 Oct 2015 07:28:50 GMT"), Some(10)),
            ("Wed, 21 Oct 2015 07:29:00 GMT", Some("not a date"), Some(60)),
            ("120", Some("Wed, 21 Oct 2015 07:28:50 GMT"), Some(120)),
            ("", None, None),
            ("-1", None, None),
            ("+1", None, None),
            ("1.5", None, None),
            ("1, 2", None, None),
            ("soon", None, None),
            ("Wed, 41 Oct 2015 07:29:00 GMT", None, None),
        ];
        for (text, date, expected) in cases {
            let mut headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            if let Some(date) = date {
                headers.insert(DATE, date.parse().unwrap());
            }
            assert_eq!(read(&headers, NOW_S).map(|wait| wait.as_secs()), expected, "{text} {date:?}");
        }
        assert_eq!(read(&HeaderMap::new(), NOW_S), None);
    }
}
