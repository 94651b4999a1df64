//! Calendars that allow nothing, or almost nothing: every question still ends.

use std::sync::Arc;

use jiff::Timestamp;
use punctual_schedule::calendar::{Calendar, Calendars, OnExcluded};
use punctual_schedule::{Binding, Schedule, Tzdb};

#[test]
fn a_calendar_that_allows_nothing_means_never_and_is_decided_at_once() {
    let tzdb = Tzdb::bundled();
    let nothing = Calendar::new().exclude_weekdays("*").unwrap();
    let once = Calendar::new().include_date("2150-03-04").unwrap();
    let leap = Calendar::new().include_date("02-29").unwrap();
    let from: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let leap_day: Timestamp = "2028-02-29T09:00:00Z".parse().unwrap();
    for text in ["0 9 * * *", "R/2026-01-01T09:00/P1D", "@every 1h", "0 9 31 * *", "* * * * * *"] {
        for (calendar, expected) in [(&nothing, None), (&once, None), (&leap, Some(leap_day))] {
            for zone in [None, Some("Asia/Tokyo")] {
                for on_excluded in [OnExcluded::Skip, OnExcluded::Next, OnExcluded::Previous] {
                    let calendar = match zone {
                        Some(zone) => calendar.clone().in_zone(zone),
                        None => calendar.clone(),
                    };
                    let mut schedule = Schedule::parse(text).unwrap();
                    schedule.calendars = vec!["c".into()];
                    schedule.on_excluded = on_excluded;
                    let calendars = Arc::new(Calendars::from([("c".to_string(), Arc::new(calendar))]));
                    let binding = Binding { calendars, ..Binding::default() };
                    let Ok(timetable) = schedule.timetable(&tzdb, &binding) else { continue };
                    let next = timetable.next_after(from);
                    timetable.previous_before(from);
                    if expected.is_none() && is_bound_to(&nothing, &binding) {
                        assert_eq!(next, None, "{text} {on_excluded:?}");
                    }
                    if on_excluded == OnExcluded::Skip && text.starts_with("0 9 *") && zone.is_none() {
                        let one = "2150-03-04T09:00:00Z".parse().unwrap();
                        let wanted = expected.or(is_bound_to(&once, &binding).then_some(one));
                        assert_eq!(next, wanted, "{text}");
                    }
                }
            }
        }
    }
}

fn is_bound_to(wanted: &Calendar, binding: &Binding) -> bool {
    binding.calendars.values().any(|calendar| **calendar == *wanted)
}
