//! What a calendar and a schedule may hold at most, and calendars as parts.

use std::sync::Arc;

use punctual_schedule::calendar::{Calendar, Calendars, DATES_MAX, Parts, WINDOWS_MAX};
use punctual_schedule::{Binding, Code, Error, Schedule, Tzdb};

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Error>, part: &str) {
    let error = answer.unwrap_err();
    assert_eq!(error.code(), Code::Calendar, "{error}");
    assert!(error.to_string().contains(part) && error.way_out().is_some(), "{error}");
}

#[test]
fn a_calendar_has_so_many_dates_and_windows_and_no_more() {
    let dates: Vec<String> = (0..DATES_MAX)
        .map(|n| format!("{}-{:02}-{:02}", 1970 + n / 336, n / 28 % 12 + 1, n % 28 + 1))
        .collect();
    let full = Calendar::from_parts(&Parts { exclude_dates: dates.clone(), ..Parts::default() }).unwrap();
    assert!(full.clone().exclude_date(&dates[0]).is_ok(), "the same date again adds nothing");
    refused(full.clone().exclude_date("2199-12-31"), "at most 4000 dates");
    refused(full.include_date("12-31"), "at most 4000 dates");

    let windows: Vec<String> = (0..WINDOWS_MAX).map(|n| format!("{n:02}:00-{n:02}:30")).collect();
    let full = Calendar::from_parts(&Parts { include_windows: windows, ..Parts::default() }).unwrap();
    refused(full.clone().include_window("00:40-00:50"), "at most 24 daily time windows");
    refused(full.exclude_window("00:40-00:50"), "at most 24 daily time windows");
}

#[test]
fn a_schedule_has_so_many_calendars_and_clocks_and_no_more() {
    let bind = |zones: &[Option<&str>]| {
        let mut schedule = Schedule::parse("0 9 * * *").unwrap();
        let mut calendars = Calendars::new();
        for (n, zone) in zones.iter().enumerate() {
            let calendar = zone.map_or(Calendar::weekdays(), |zone| Calendar::weekdays().in_zone(zone));
            schedule.calendars.push(n.to_string());
            calendars.insert(n.to_string(), Arc::new(calendar));
        }
        schedule
            .timetable(&Tzdb::bundled(), &Binding { calendars: Arc::new(calendars), ..Binding::default() })
    };
    assert!(bind(&[None; 8]).is_ok());
    refused(bind(&[None; 9]), "at most 8 calendars");
    // The same clock under another name is one clock.
    let two = [None, Some("Europe/Paris"), Some("US/Eastern"), Some("America/New_York"), Some("UTC")];
    assert!(bind(&two).is_ok());
    refused(bind(&[Some("Europe/Paris"), Some("US/Eastern"), Some("Asia/Tokyo")]), "3 time zones beside");
}

#[test]
fn a_calendar_is_the_same_after_its_parts_were_stored() {
    let calendar = Calendar::new()
        .in_zone("Europe/Paris")
        .include_date("2026-01-03")
        .unwrap()
        .include_date("02-29")
        .unwrap()
        .exclude_date("12-25")
        .unwrap()
        .exclude_date("2026-05-01")
        .unwrap()
        .include_weekdays("MON-FRI")
        .unwrap()
        .exclude_weekdays("WED")
        .unwrap()
        .include_window("22:00-24:00")
        .unwrap()
        .include_window("09:00-17:30:15")
        .unwrap()
        .exclude_window("23:00-01:00")
        .unwrap();
    let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let parts = Parts {
        timezone: Some("Europe/Paris".into()),
        include_dates: texts(&["2026-01-03", "02-29"]),
        exclude_dates: texts(&["2026-05-01", "12-25"]),
        include_weekdays: texts(&["MON", "TUE", "WED", "THU", "FRI"]),
        exclude_weekdays: texts(&["WED"]),
        include_windows: texts(&["09:00-17:30:15", "22:00-24:00"]),
        exclude_windows: texts(&["23:00-01:00"]),
    };
    assert_eq!(calendar.parts(), parts);
    assert_eq!(Calendar::from_parts(&parts).unwrap(), calendar);
    assert_eq!(Calendar::new().parts(), Parts::default());
    let wrong = Parts { exclude_windows: texts(&["9-17"]), ..Parts::default() };
    refused(Calendar::from_parts(&wrong), "daily time window");
}

#[test]
fn a_sign_is_no_part_of_a_time_of_day() {
    for wrong in ["+9:00-10:00", "09:00-+1:00", "09:00:+1-10:00", "-9:00-10:00"] {
        refused(Calendar::new().include_window(wrong), "daily time window");
    }
}
