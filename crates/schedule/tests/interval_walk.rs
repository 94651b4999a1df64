//! Intervals where they are hardest, against counting one by one with jiff: around clock changes, with
//! milliseconds and a number of repeats, centuries from their start, and at the end of 2199.

use crate::support::plan::{Plan, at};
use fastrand::Rng;
use jiff::civil::{DateTime, date};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Span, Timestamp};
use punctual_schedule::dst::{Gap, Overlap};
use punctual_schedule::{Binding, Timetable, Tzdb};

const CASES: u64 = 1_200;

/// Counted no further than this; the questions stay inside what was counted.
const SLOTS_MAX: i64 = 3_000;

const ZONES: [&str; 12] = [
    "UTC",
    "Africa/Casablanca",
    "Africa/Monrovia",
    "America/New_York",
    "America/Nuuk",
    "America/Sao_Paulo",
    "Antarctica/Troll",
    "Asia/Pyongyang",
    "Australia/Lord_Howe",
    "Europe/Paris",
    "Pacific/Apia",
    "Pacific/Kiritimati",
];

/// An interval as its parts.
#[derive(Debug)]
struct Case {
    zone: &'static str,
    start: DateTime,
    months: i64,
    days: i64,
    millis: i64,
    repeats: Option<i64>,
    gap: Gap,
    overlap: Overlap,
}

/// The slots that were counted.
struct Counted {
    slots: Vec<Timestamp>,
    /// There are no others.
    all: bool,
}

impl Case {
    fn random(rng: &mut Rng) -> Self {
        let zone = *rng.choice(&ZONES).unwrap();
        let tz = TimeZoneDatabase::bundled().get(zone).unwrap();
        let until = at("2060-01-01T00:00Z");
        let changes: Vec<Timestamp> = tz
            .following(at("1970-06-01T00:00Z"))
            .map(|change| change.timestamp())
            .take_while(|change| *change < until)
            .collect();
        let start = match rng.choice(&changes).filter(|_| rng.u8(..3) > 0) {
            // Up to sixty days before a change, at about the time of day that it concerns.
            Some(change) => {
                let days = SignedDuration::from_hours(24 * rng.i64(0..60));
                let near = SignedDuration::from_secs(rng.i64(-7_200..7_200));
                tz.to_datetime(*change - SignedDuration::from_secs(1)) - days + near
            }
            None => {
                let date = date(rng.i16(1970..2150), rng.i8(1..=12), rng.i8(1..=28));
                date.at(rng.i8(0..24), rng.i8(0..60), rng.i8(0..60), 0)
            }
        };
        let subsec = if rng.bool() { 0 } else { rng.i32(0..1_000) * 1_000_000 };
        let (months, days, millis) = match rng.u8(..8) {
            0 => (0, 1, 0),
            1 => (rng.i64(1..4), 0, 0),
            2 => (0, rng.i64(1..20), 0),
            3 => (0, 0, rng.i64(1..200_000) * 1_000),
            4 => (rng.i64(0..3), rng.i64(1..5), rng.i64(0..100_000_000)),
            5 => (0, 1, rng.i64(1..86_400_000)),
            6 => (12 * rng.i64(1..4), 0, 0),
            _ => (rng.i64(0..2), rng.i64(1..3), 3_600_000 * rng.i64(0..30)),
        };
        Case {
            zone,
            start: start.with().subsec_nanosecond(subsec).build().unwrap(),
            months,
            days,
            millis,
            repeats: rng.bool().then(|| rng.i64(1..2_000)),
            gap: *rng.choice(&[Gap::After, Gap::Skip, Gap::Shift]).unwrap(),
            overlap: *rng.choice(&[Overlap::First, Overlap::Both, Overlap::Last]).unwrap(),
        }
    }

    fn plan(&self) -> Plan {
        let repeats = self.repeats.map_or(String::new(), |n| n.to_string());
        let (seconds, millis) = (self.millis / 1_000, self.millis % 1_000);
        let time = if self.millis == 0 { String::new() } else { format!("T{seconds}.{millis:03}S") };
        let text = format!("R{repeats}/{}/P{}M{}D{time}", self.start, self.months, self.days);
        Plan::new(&text, self.zone).policy(self.gap, self.overlap)
    }

    /// Every slot up to the end of 2199 or [`SLOTS_MAX`].
    fn count(&self, tz: &TimeZone) -> Counted {
        let end = at("2200-01-01T00:00Z");
        let is_exact = self.months == 0 && self.days == 0;
        let mut slots = Vec::new();
        for k in 0..self.repeats.unwrap_or(i64::MAX).min(SLOTS_MAX) {
            let calendar = Span::new().months(self.months * k).days(self.days * k);
            let wall = if is_exact { self.start } else { self.start.checked_add(calendar).unwrap() };
            if wall.year() > 2200 {
                return Counted { slots, all: true };
            }
            let Some(base) = self.resolve(tz, wall) else { continue };
            let slot = base + SignedDuration::from_millis(self.millis * k);
            if slot >= end {
                return Counted { slots, all: true };
            }
            slots.push(slot);
        }
        Counted { slots, all: self.repeats.is_some_and(|repeats| repeats <= SLOTS_MAX) }
    }

    fn resolve(&self, tz: &TimeZone, wall: DateTime) -> Option<Timestamp> {
        let ambiguous = tz.to_ambiguous_timestamp(wall);
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(wall).ok(),
            AmbiguousOffset::Fold { before, after } => match self.overlap {
                // It happens once.
                Overlap::First | Overlap::Both => before.to_timestamp(wall).ok(),
                Overlap::Last => after.to_timestamp(wall).ok(),
            },
            AmbiguousOffset::Gap { before, after } => {
                if after.seconds() - before.seconds() > 3 * 3600 {
                    return None;
                }
                // Under the offset before the gap, the time lies that much after the jump.
                let shifted = before.to_timestamp(wall).unwrap();
                match self.gap {
                    Gap::Skip => None,
                    Gap::Shift => Some(shifted),
                    Gap::After => {
                        let jump = tz.preceding(shifted + SignedDuration::from_secs(1)).next()?;
                        let subsec = i64::from(wall.subsec_nanosecond());
                        Some(jump.timestamp() + SignedDuration::from_nanos(subsec))
                    }
                }
            }
        }
    }
}

#[test]
fn intervals_around_clock_changes_agree_with_counting() {
    let tzdb = Tzdb::bundled();
    let mut compared = 0;
    for number in 0..CASES {
        let mut rng = Rng::with_seed(number);
        let case = Case::random(&mut rng);
        let context = || format!("case {number}: {case:?}");
        let tz = TimeZoneDatabase::bundled().get(case.zone).unwrap();
        let bound = case.plan().schedule.timetable(&tzdb, &Binding::default());
        if case.resolve(&tz, case.start).is_none() {
            assert!(bound.is_err(), "a start that does not exist: {}", context());
            continue;
        }
        let timetable = bound.unwrap();
        let counted = case.count(&tz);
        let slots = &counted.slots;
        assert!(slots.is_sorted_by(|a, b| a < b), "the counting itself: {}", context());
        let first = slots[0] - SignedDuration::from_hours(1);
        let found: Vec<Timestamp> = timetable.upcoming(first).take(slots.len().min(400)).collect();
        assert_eq!(found, slots[..slots.len().min(400)], "{}", context());
        compared += found.len();
        for _ in 0..20 {
            let questions = ask(&mut rng, &timetable, &counted);
            assert_eq!(questions, Ok(()), "{}", context());
        }
    }
    println!("interval walk: {CASES} intervals, {compared} slots, {} questions", CASES * 60);
    assert!(compared > 200_000, "too few comparisons to mean anything: {compared}");
}

/// Next, previous and count at two random instants, some of them slots.
fn ask(rng: &mut Rng, timetable: &Timetable, counted: &Counted) -> Result<(), String> {
    let Counted { slots, all } = counted;
    let (first, last) = (slots[0], slots[slots.len() - 1]);
    let beyond = SignedDuration::from_hours(24 * 400);
    let span = first - SignedDuration::from_hours(24)..if *all { last + beyond } else { last };
    let mut instant = || match rng.u8(..3) {
        0 => *rng.choice(slots).unwrap(),
        _ => {
            let nanos = rng.i128(span.start.as_nanosecond()..span.end.as_nanosecond());
            Timestamp::from_nanosecond(nanos).unwrap()
        }
    };
    let (one, other) = (instant(), instant());
    let (from, to) = (one.min(other), one.max(other));
    let next = slots.iter().find(|slot| **slot > from).copied();
    if (next.is_some() || *all) && timetable.next_after(from) != next {
        return Err(format!("after {from}: {:?}, not {next:?}", timetable.next_after(from)));
    }
    let previous = slots.iter().rev().find(|slot| **slot < to).copied();
    if timetable.previous_before(to) != previous {
        return Err(format!("before {to}: {:?}, not {previous:?}", timetable.previous_before(to)));
    }
    let inside = slots.iter().filter(|slot| (from..to).contains(*slot)).count() as u64;
    if timetable.count(from, to) != inside {
        return Err(format!("{from} to {to}: {}, not {inside}", timetable.count(from, to)));
    }
    Ok(())
}

#[test]
fn slots_are_found_centuries_from_the_start_and_up_to_the_end_of_2199() {
    let start = DateTime::constant(1970, 1, 31, 9, 0, 0, 0);
    for (months, days, millis) in [
        (1, 0, 0),
        (2, 0, 0),
        (5, 0, 0),
        (12, 0, 0),
        (48, 0, 0),
        (1, 1, 0),
        (3, 10, 0),
        (1, 30, 0),
        (1, 0, 3_600_000),
        (0, 29, 0),
        (0, 31, 0),
        (0, 400, 0),
        (0, 30, 37_000),
        (0, 0, 30 * 86_400_000),
    ] {
        for zone in ["UTC", "America/New_York"] {
            let (gap, overlap) = (Gap::After, Overlap::First);
            let case = Case { zone, start, months, days, millis, repeats: None, gap, overlap };
            let tz = TimeZoneDatabase::bundled().get(zone).unwrap();
            let Counted { slots, all } = case.count(&tz);
            assert!(all, "{case:?} was not counted to its end");
            let timetable = case.plan().bind().unwrap();
            let millisecond = SignedDuration::from_millis(1);
            for (index, slot) in slots.iter().enumerate() {
                let (before, after) = (*slot - millisecond, *slot + millisecond);
                assert_eq!(timetable.next_after(before), Some(*slot), "{case:?}");
                assert_eq!(timetable.previous_before(after), Some(*slot), "{case:?}");
                assert_eq!(
                    timetable.next_after(*slot),
                    slots.get(index + 1).copied(),
                    "{case:?} after {slot}"
                );
                if index % 16 == 0 {
                    assert_eq!(timetable.count(slots[0], *slot), index as u64, "{case:?} to {slot}");
                }
            }
            let all_time = timetable.count(Timestamp::UNIX_EPOCH, Timestamp::MAX);
            assert_eq!(all_time, slots.len() as u64, "{case:?}");
            assert_eq!(timetable.previous_before(Timestamp::MAX), slots.last().copied(), "{case:?}");
        }
    }
}

#[test]
fn the_last_day_of_2199_has_its_slots_and_nothing_follows() {
    for (text, slots) in [
        ("R/2026-01-01T09:00/P1D", "2199-12-30T09:00Z 2199-12-31T09:00Z"),
        ("R/2026-01-31T23:59:30/P1M", "2199-12-31T23:59:30Z"),
        ("R/2026-01-01T00:00/PT12H", "2199-12-30T12:00Z 2199-12-31T00:00Z 2199-12-31T12:00Z"),
        ("R/2199-12-31T00:00/PT23H59M59.999S", "2199-12-31T00:00Z 2199-12-31T23:59:59.999Z"),
        ("R/2199-12-31T00:00/P1D", "2199-12-31T00:00Z"),
        ("@every 12h", "2199-12-30T12:00Z 2199-12-31T00:00Z 2199-12-31T12:00Z"),
    ] {
        let timetable = Plan::new(text, "UTC").bind().unwrap();
        let slots: Vec<Timestamp> = slots.split_whitespace().map(at).collect();
        let found: Vec<Timestamp> = timetable.upcoming(at("2199-12-30T00:00Z")).collect();
        assert_eq!(found, slots, "{text}");
        assert_eq!(timetable.previous_before(Timestamp::MAX), slots.last().copied(), "{text}");
        let counted = timetable.count(at("2199-12-30T00:00:00.001Z"), Timestamp::MAX);
        assert_eq!(counted, slots.len() as u64, "{text}");
    }
}
