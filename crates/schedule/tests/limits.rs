//! The limits of what is read: the last value that is taken and the first that is not.

use std::collections::BTreeSet;

use crate::support::plan::{Plan, at};
use punctual_schedule::cron::Dialect;
use punctual_schedule::{Code, Schedule, Seed, TEXT_MAX};

/// The days of January 2026 that a text with `H` chooses for five hundred jobs.
fn hashed_days(text: &str) -> BTreeSet<i8> {
    (0..500)
        .map(|n| {
            let mut plan = Plan::new(text, "UTC");
            plan.binding.seed = Seed::of(&format!("job-{n}"));
            let first = plan.bind().unwrap().next_after(at("2025-12-31T23:59Z")).unwrap();
            assert!(first < at("2026-02-01T00:00Z"), "job-{n}: {first}");
            jiff::tz::Offset::UTC.to_datetime(first).day()
        })
        .collect()
}

#[test]
fn h_chooses_a_day_that_every_month_has() {
    assert_eq!(hashed_days("0 0 H * *"), (1..=28).collect());
    assert_eq!(hashed_days("0 0 H(1-31) * *"), (1..=31).collect());
    assert_eq!(hashed_days("0 0 H(10-12) * *"), (10..=12).collect());
    for (text, printed) in [
        ("0 0 H * *", "0 0 H * *"),
        ("0 0 H(1-28) * *", "0 0 H * *"),
        ("0 0 H(1-31) * *", "0 0 H(1-31) * *"),
        ("0 0 h/7 * *", "0 0 H/7 * *"),
    ] {
        assert_eq!(Schedule::parse(text).unwrap().to_string(), printed);
    }
}

#[test]
fn the_last_value_of_each_kind_of_day_is_taken_and_the_next_refused() {
    for (last, beyond) in [("31B", "32B"), ("1B", "0B"), ("31W", "32W"), ("L-30", "L-31"), ("L-1", "L-0")] {
        let text = |day: &str| format!("0 0 {day} * *");
        assert_eq!(Schedule::parse(&text(last)).unwrap().to_string(), text(last));
        let error = Schedule::parse(&text(beyond)).unwrap_err();
        assert_eq!(error.code(), Code::OutOfRange, "{error}");
        assert_eq!(error.field_name(), Some("day-of-month"), "{error}");
    }
    // Of the months of 2026 only July and December have 23 weekdays.
    Plan::new("0 0 0 23B * * 2026", "UTC")
        .expect("2026-01-01T00:00Z", "2026-07-31T00:00Z 2026-12-31T00:00Z end");
}

#[test]
fn a_sixth_field_that_looks_like_a_year_gets_the_hint_and_others_do_not() {
    for year in ["1900", "1969", "2030", "2999", "2030-2032", "2030,2040", "2030/2"] {
        let error = Schedule::parse(&format!("0 9 * * * {year}")).unwrap_err();
        assert_eq!(error.code(), Code::FieldCount, "{error}");
        assert!(error.way_out().unwrap().contains(&format!("`0 0 9 * * * {year}`")), "{error}");
        assert_eq!(error.span(), Some(10..10 + year.len()), "{error}");
    }
    for number in ["1899", "3000", "199", "20300", "8"] {
        let error = Schedule::parse(&format!("0 9 * * * {number}")).unwrap_err();
        assert_eq!((error.code(), error.field_name()), (Code::OutOfRange, Some("weekday")), "{error}");
    }
}

/// `*/13` of the years is printed as `1983-2191/13` once another step has taken 1970.
#[test]
fn what_would_be_too_long_to_read_again_is_refused() {
    let primes = [11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73];
    let (mut accepted, mut refused) = (0, 0);
    for count in 1..=primes.len() {
        let years: Vec<String> = primes[..count].iter().map(|prime| format!("*/{prime}")).collect();
        let text = format!("*/7,*/11,*/13,*/17 */7,*/11,*/13,*/17 0 1 1 * {}", years.join(","));
        assert!(text.len() <= TEXT_MAX, "{text}");
        match Schedule::parse(&text) {
            Ok(schedule) => {
                let printed = schedule.to_string();
                assert!(printed.len() <= TEXT_MAX, "{} bytes: {printed}", printed.len());
                assert_eq!(Schedule::parse(&printed).unwrap(), schedule);
                accepted += 1;
            }
            Err(error) => {
                assert_eq!(error.code(), Code::TooLong, "{error}");
                assert!(error.to_string().contains("too many scattered values"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused");
}

#[test]
fn an_offset_must_be_one_that_its_zone_has_at_that_time() {
    for (text, code) in [
        ("2026-07-01T09:00-04:00[America/New_York]", None),
        ("2026-07-01T09:00-05:00[America/New_York]", Some(Code::Conflict)),
        ("2026-11-01T01:30-04:00[America/New_York]", None),
        ("2026-11-01T01:30-05:00[America/New_York]", None),
        ("2026-11-01T01:30-06:00[America/New_York]", Some(Code::Conflict)),
        ("2026-03-08T02:30-05:00[America/New_York]", Some(Code::Conflict)),
        ("R/2026-07-01T09:00-05:00[America/New_York]/P1D", Some(Code::Conflict)),
        ("@every 1h anchor 2026-07-01T09:00-05:00[America/New_York]", Some(Code::Conflict)),
        // `Z` and an offset alone are instants, whatever the zone's clock shows.
        ("2026-07-01T09:00Z[America/New_York]", None),
        ("2026-07-01T09:00+09:00", None),
    ] {
        let bound = Plan::new(text, "America/New_York").bind();
        assert_eq!(bound.err().map(|error| error.code()), code, "{text}");
    }
}

#[test]
fn an_end_before_the_start_is_refused_where_the_text_shows_it() {
    let late = "R/2026-01-01T00:00Z/";
    for end in [
        "2026-01-01T00:00Z",
        "2025-12-31T23:59:59Z",
        "2026-01-01T05:00+05:00",
        "2026-01-01T04:59+05:00",
        "2025-12-31T19:00-05:00",
    ] {
        let error = Schedule::parse(&format!("{late}{end}")).unwrap_err();
        assert_eq!(error.code(), Code::OutOfRange, "{end}: {error}");
        assert_eq!(error.span(), Some(late.len()..late.len() + end.len()), "{end}: {error}");
    }
    for (end, second) in [
        ("2026-01-01T05:01+05:00", "2026-01-01T00:01Z"),
        ("2025-12-31T19:01-05:00", "2026-01-01T00:01Z"),
        ("2026-01-01T00:00-05:00", "2026-01-01T05:00Z"),
    ] {
        let plan = Plan::new(&format!("R2/2026-01-01T00:00Z/{end}"), "UTC");
        plan.expect("2025-12-01T00:00Z", &format!("2026-01-01T00:00Z {second} end"));
    }
    Plan::new("R2/2026-01-01T00:00+05:00/2026-01-01T00:00Z", "UTC")
        .expect("2025-12-01T00:00Z", "2025-12-31T19:00Z 2026-01-01T00:00Z end");
}

#[test]
fn a_rate_is_read_in_each_of_its_units() {
    for (rate, ours) in [
        ("rate(1 minute)", "@every PT1M"),
        ("rate(90 minutes)", "@every PT1H30M"),
        ("rate(1 hour)", "@every PT1H"),
        ("rate(12 hours)", "@every PT12H"),
        ("rate(1 day)", "@every PT24H"),
        ("rate(7 days)", "@every PT168H"),
    ] {
        assert_eq!(Schedule::parse_dialect(rate, Dialect::Aws).unwrap().to_string(), ours);
    }
}
