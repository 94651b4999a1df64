//! Every case of `testdata/`, forwards, backwards, counted and from within the hour before.

use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use punctual_schedule::cron::Dialect;
use punctual_schedule::{Binding, Schedule, Timetable, Tzdb, dst};

/// A case: what to schedule, from when, and what to expect.
struct Case<'a> {
    line: &'a str,
    timetable: Timetable,
    after: Timestamp,
    slots: Vec<Timestamp>,
    /// No slot follows the last one.
    ends: bool,
}

#[test]
fn the_table_holds_under_the_default_policy() {
    let tzdb = Tzdb::bundled();
    let rows = rows(include_str!("../testdata/table.txt"));
    for row in &rows {
        let [expression, zone, after, slots] = columns(row);
        check(&case(&tzdb, row, expression, zone, dst::Policy::default(), after, slots));
    }
    println!("table: {} rows", rows.len());
}

#[test]
fn the_variants_hold_under_their_policies() {
    let tzdb = Tzdb::bundled();
    let rows = rows(include_str!("../testdata/variants.txt"));
    for row in &rows {
        let [expression, zone, policy, after, slots] = columns(row);
        check(&case(&tzdb, row, expression, zone, parse_policy(policy), after, slots));
    }
    println!("variants: {} rows", rows.len());
}

#[test]
fn intervals_periods_and_single_times_hold() {
    let tzdb = Tzdb::bundled();
    let rows = rows(include_str!("../testdata/intervals.txt"));
    for row in &rows {
        let [text, zone, after, slots] = columns(row);
        check(&case(&tzdb, row, text, zone, dst::Policy::default(), after, slots));
    }
    println!("intervals: {} rows", rows.len());
}

#[test]
fn dialects_read_as_ours() {
    let rows = rows(include_str!("../testdata/dialects.txt"));
    for row in &rows {
        let [dialect, text, ours] = columns(row);
        let dialect = match dialect {
            "quartz" => Dialect::Quartz,
            "aws" => Dialect::Aws,
            other => panic!("unknown dialect {other}"),
        };
        let read = Schedule::parse_dialect(text, dialect).unwrap_or_else(|e| panic!("{row}: {e}"));
        assert_eq!(read.to_string(), ours, "{row}");
        assert_eq!(read, Schedule::parse(ours).unwrap(), "{row}");
    }
    println!("dialects: {} rows", rows.len());
}

fn check(case: &Case<'_>) {
    let Case { line, timetable, after, slots, ends } = case;
    let mut from = *after;
    for (index, expected) in slots.iter().enumerate() {
        assert_eq!(timetable.next_after(from), Some(*expected), "slot {index} of {line}");
        // Any instant of the hour before, not only the slot before, must lead to the same slot.
        let start = from.max(*expected - jiff::SignedDuration::from_hours(1));
        let span = expected.as_second() - start.as_second();
        for second in 0..span {
            let inside = start + jiff::SignedDuration::new(second, 999_999_999);
            if inside > from && inside < *expected {
                assert_eq!(timetable.next_after(inside), Some(*expected), "from {inside}: {line}");
            }
        }
        let previous = timetable.previous_before(*expected);
        match index {
            0 => assert!(previous.is_none_or(|p| p <= *after), "before slot 0 of {line}"),
            _ => assert_eq!(previous, Some(slots[index - 1]), "before slot {index} of {line}"),
        }
        let just_after = *expected + jiff::SignedDuration::from_nanos(1);
        assert_eq!(timetable.previous_before(just_after), Some(*expected), "{line}");
        from = *expected;
    }
    let just_after = |t: Timestamp| t + jiff::SignedDuration::from_nanos(1);
    assert_eq!(timetable.count(just_after(*after), just_after(from)), slots.len() as u64, "{line}");
    if *ends {
        assert_eq!(timetable.next_after(from), None, "after the last of {line}");
    }
    let printed = timetable.schedule().to_string();
    assert_eq!(Schedule::parse(&printed).unwrap().kind, timetable.schedule().kind, "{line}");
}

fn case<'a>(
    tzdb: &Tzdb,
    line: &'a str,
    text: &str,
    zone: &str,
    policy: dst::Policy,
    after: &str,
    slots: &str,
) -> Case<'a> {
    let mut schedule = Schedule::parse(text).unwrap_or_else(|error| panic!("{line}: {error}"));
    schedule.timezone = zone.into();
    schedule.dst = policy;
    let timetable = schedule.timetable(tzdb, &Binding::default()).unwrap_or_else(|e| panic!("{line}: {e}"));
    let words: Vec<&str> = slots.split_whitespace().collect();
    let ends = words.last() == Some(&"end");
    let slots = words.iter().filter(|w| **w != "end").map(|w| instant(w)).collect();
    Case { line, timetable, after: instant(after), slots, ends }
}

fn rows(data: &str) -> Vec<&str> {
    data.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

fn columns<const N: usize>(row: &str) -> [&str; N] {
    let columns: Vec<&str> = row.split(" | ").map(str::trim).collect();
    columns.try_into().unwrap_or_else(|c: Vec<&str>| panic!("{} columns in {row}", c.len()))
}

fn parse_policy(text: &str) -> dst::Policy {
    let (gap, overlap) = text.split_once(' ').unwrap();
    dst::Policy {
        gap: match gap {
            "after" => dst::Gap::After,
            "skip" => dst::Gap::Skip,
            "shift" => dst::Gap::Shift,
            other => panic!("unknown gap policy {other}"),
        },
        overlap: match overlap {
            "first" => dst::Overlap::First,
            "both" => dst::Overlap::Both,
            "last" => dst::Overlap::Last,
            other => panic!("unknown overlap policy {other}"),
        },
    }
}

/// `2026-03-08T03:00-04:00` and `2026-03-08T03:00Z`, with or without seconds.
fn instant(text: &str) -> Timestamp {
    let (civil, offset) = match text.strip_suffix('Z') {
        Some(civil) => (civil, Offset::UTC),
        None => {
            let (civil, offset) = text.split_at(text.len() - 6);
            let minutes = |s: &str| i32::from_str(s).unwrap();
            let seconds = minutes(&offset[1..3]) * 3600 + minutes(&offset[4..6]) * 60;
            let signed = if offset.starts_with('-') { -seconds } else { seconds };
            (civil, Offset::from_seconds(signed).unwrap())
        }
    };
    let civil: DateTime = civil.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    TimeZone::fixed(offset).to_timestamp(civil).unwrap()
}
