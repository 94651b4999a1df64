//! Slots that calendars move, against moving each by itself, one day at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use punctual_schedule::calendar::{Calendar, Calendars, OnExcluded, Parts};
use punctual_schedule::{Binding, Schedule, Tzdb};

const TEXTS: [&str; 11] = [
    "0 9 * * *",
    "0 9 13 * *",
    "0 9 1,31 * *",
    "0 9 L 2,8 *",
    "0 9 * * MON",
    "R/2020-01-01T09:00Z/P1D",
    "R/2020-01-03T09:00Z/P17D",
    "R/2020-01-31T09:00Z/P1M",
    // Twelve months from the 15th of June, which is near enough, and fifteen from a leap day, which is not.
    "0 9 10,20 6 *",
    "R/2020-06-20T09:00Z/P1Y",
    "R/2020-11-20T09:00Z/P2Y",
];

#[test]
fn every_slot_moves_to_the_nearest_open_day_on_its_side() {
    let tzdb = Tzdb::bundled();
    let mut rng = Rng::with_seed(31);
    let (first, last) = (date("2024-01-01"), date("2028-12-31"));
    let mut moved = 0;
    for case in 0..220 {
        let text = TEXTS[case % TEXTS.len()];
        let parts = calendar(&mut rng);
        let on_excluded = if rng.bool() { OnExcluded::Next } else { OnExcluded::Previous };
        let mut schedule = Schedule::parse(text).unwrap();
        // Far enough around that whatever moves into the time asked about is seen.
        let bare: Vec<Date> = schedule
            .timetable(&tzdb, &Binding::default())
            .unwrap()
            .upcoming(at(date("2021-12-01")))
            .map(day_of)
            .take_while(|day| *day < date("2031-01-01"))
            .collect();
        let expected: BTreeSet<Date> = bare
            .iter()
            .filter_map(|day| settle(*day, &parts, on_excluded))
            .filter(|day| (first..=last).contains(day))
            .collect();
        moved += expected.iter().filter(|day| !bare.contains(day)).count();

        schedule.calendars = vec!["c".into()];
        schedule.on_excluded = on_excluded;
        let calendar = Arc::new(Calendar::from_parts(&parts).unwrap());
        let calendars = Arc::new(Calendars::from([("c".to_string(), calendar)]));
        let timetable = schedule.timetable(&tzdb, &Binding { calendars, ..Binding::default() }).unwrap();
        let slots: BTreeSet<Date> =
            timetable.upcoming(at(first)).map(day_of).take_while(|day| *day <= last).collect();
        assert_eq!(slots, expected, "case {case}: {text} {on_excluded:?} {parts:#?}");
        let count = timetable.count(at(first), at(last.tomorrow().unwrap()));
        assert_eq!(count, expected.len() as u64, "case {case}: {text} {on_excluded:?} {parts:#?}");
        let mut back = BTreeSet::new();
        let mut before = at(last.tomorrow().unwrap());
        while let Some(slot) = timetable.previous_before(before).filter(|slot| *slot > at(first)) {
            back.insert(day_of(slot));
            before = slot;
        }
        assert_eq!(back, expected, "case {case}: {text} {on_excluded:?} {parts:#?}");
    }
    println!("moved: {moved} days that no slot was named for");
    assert!(moved > 1_000);
}

/// Dense calendars, and some with months or years between their open days.
fn calendar(rng: &mut Rng) -> Parts {
    let mut day = |years: std::ops::RangeInclusive<u32>| {
        format!("{}-{:02}-{:02}", rng.u32(years), rng.u32(1..=12), rng.u32(1..=28))
    };
    let many: Vec<String> = (0..60).map(|_| day(2024..=2028)).collect();
    let few: Vec<String> = (0..4).map(|_| day(2023..=2029)).collect();
    match rng.u8(..5) {
        0 => Parts { exclude_weekdays: vec!["SAT,SUN".into()], exclude_dates: many, ..Parts::default() },
        1 => Parts { include_dates: many, exclude_dates: few, ..Parts::default() },
        2 => Parts { include_dates: few, ..Parts::default() },
        3 => Parts { include_dates: vec!["02-29".into()], ..Parts::default() },
        _ => Parts { include_dates: vec!["06-15".into()], ..Parts::default() },
    }
}

fn is_open(day: Date, parts: &Parts) -> bool {
    let text = day.to_string();
    let is_in = |dates: &[String]| dates.iter().any(|date| *date == text || *date == text[5..]);
    let is_weekend = day.weekday().to_monday_zero_offset() > 4;
    let by_weekday = !parts.exclude_weekdays.is_empty() && !is_weekend;
    !is_in(&parts.exclude_dates) && (is_in(&parts.include_dates) || by_weekday)
}

/// At most into the twelfth month after or before.
fn settle(named: Date, parts: &Parts, on_excluded: OnExcluded) -> Option<Date> {
    let step = if on_excluded == OnExcluded::Next { 1.day() } else { -1.day() };
    let month = |day: Date| i32::from(day.year()) * 12 + i32::from(day.month());
    std::iter::successors(Some(named), |day| day.checked_add(step).ok())
        .take_while(|day| month(*day).abs_diff(month(named)) <= 12)
        .find(|day| is_open(*day, parts))
}

fn date(text: &str) -> Date {
    text.parse().unwrap()
}

fn at(day: Date) -> Timestamp {
    day.to_zoned(TimeZone::UTC).unwrap().timestamp()
}

fn day_of(slot: Timestamp) -> Date {
    TimeZone::UTC.to_datetime(slot).date()
}
