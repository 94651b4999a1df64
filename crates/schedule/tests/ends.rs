//! Where schedules end, whatever their kind.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use punctual_schedule::{Binding, Code, Schedule, Tzdb};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn every_kind_ends_with_the_year_2199_on_the_schedules_clock() {
    let tzdb = Tzdb::bundled();
    for (zone, last) in [
        ("UTC", "2199-12-31T23:00:00Z"),
        ("America/New_York", "2199-12-31T23:00:00-05:00"),
        ("Asia/Tokyo", "2199-12-31T23:00:00+09:00"),
        ("-10:00", "2199-12-31T23:00:00-10:00"),
    ] {
        let last = at(last);
        for text in [
            "0 * * * *",
            "@every 1h",
            "R/2199-12-01T23:00/P1D",
            "R/2199-12-01T00:00/PT1H",
            "R/2199-12-30T22:00/P1DT1H",
            "2199-12-31T23:00",
        ] {
            let mut schedule = Schedule::parse(text).unwrap();
            schedule.timezone = zone.into();
            let timetable = schedule.timetable(&tzdb, &Binding::default()).unwrap();
            assert_eq!(timetable.previous_before(Timestamp::MAX), Some(last), "{text} in {zone}");
            assert_eq!(timetable.next_after(last), None, "{text} in {zone}");
            let hour = jiff::SignedDuration::from_hours(1);
            assert_eq!(timetable.next_after(last - hour), Some(last), "{text} in {zone}");
            assert_eq!(timetable.count(last, Timestamp::MAX), 1, "{text} in {zone}");
            assert_eq!(timetable.count(last + hour, Timestamp::MAX), 0, "{text} in {zone}");
        }
    }
    // A moment with an offset has its own clock.
    let own = Schedule::parse("@at 2199-12-31T23:00-10:00").unwrap();
    let timetable = own.timetable(&tzdb, &Binding::default()).unwrap();
    assert_eq!(timetable.next_after(at("2026-01-01T00:00:00Z")), Some(at("2200-01-01T09:00:00Z")));
    // What is counted from a registration ends there too.
    for (text, registered, ends) in [
        ("@after 1h", "2199-12-31T23:30:00Z", true),
        ("@after 1h", "2199-12-31T22:30:00Z", false),
        ("@now", "2200-01-01T00:00:00Z", true),
        ("@every 1h from completion", "2200-01-01T00:00:00Z", true),
    ] {
        let binding = Binding { registered_at: at(registered), ..Binding::default() };
        let timetable = Schedule::parse(text).unwrap().timetable(&tzdb, &binding).unwrap();
        assert_eq!(timetable.next_after(at("2199-01-01T00:00:00Z")).is_none(), ends, "{text} {registered}");
    }
}

#[test]
fn a_spread_that_is_too_long_is_refused() {
    let mut schedule = Schedule::parse("0 9 * * *").unwrap();
    for (days, is_fine) in [(1, true), (366, true), (367, false)] {
        schedule.spread = Some(Duration::from_secs(days * 86_400));
        assert_eq!(schedule.timetable(&Tzdb::bundled(), &Binding::default()).is_ok(), is_fine, "{days}");
    }
    schedule.spread = Some(Duration::MAX);
    let error = schedule.timetable(&Tzdb::bundled(), &Binding::default()).unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange);
    assert!(error.to_string().contains("366 days"), "{error}");
}

#[test]
fn offsets_do_not_crowd_zones_out_of_memory() {
    let tzdb = Tzdb::bundled();
    for minutes in 0..18 * 60 {
        for sign in ["+", "-"] {
            for colon in [":", ""] {
                tzdb.zone(&format!("{sign}{:02}{colon}{:02}", minutes / 60, minutes % 60)).unwrap();
            }
        }
    }
    assert!(Arc::ptr_eq(&tzdb.zone("Europe/Paris").unwrap(), &tzdb.zone("Europe/Paris").unwrap()));
    for name in ["+05:30", "+0530"] {
        assert_eq!(tzdb.zone(name).unwrap().name(), "+05:30");
    }
    assert_eq!(tzdb.zone("-08").unwrap().name(), "-08:00");
}
