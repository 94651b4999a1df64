//! Calendars against a walk: random rules and schedules, each wall time judged and moved day by day.
//!
//! The wall times come from the same schedule in UTC without calendars, so that only calendars and moves are
//! compared; jiff says which instants a wall time is. Forwards, backwards and counted, the engine must find
//! exactly the slots of the walk.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::support::plan::{Plan, at};
use fastrand::Rng;
use jiff::civil::{Date, DateTime, Time, date};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, ToSpan};
use punctual_schedule::calendar::{Calendar, Calendars, OnExcluded};
use punctual_schedule::{Binding, Timetable, Tzdb};

const CASES: u64 = 1_200;

const ZONES: [&str; 6] =
    ["UTC", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe", "Europe/Paris", "Asia/Tokyo"];

/// Slots at wall-clock times: days decide them, and days can move them.
const BY_DAY: [&str; 15] = [
    "0 9 * * *",
    "0 9 1 * *",
    "30 2 * * *",
    "0 0 31 * *",
    "0 0,12 15W * *",
    "15 */3 * * 1",
    "0 18 L * *",
    "0 12 13 * +FRI",
    "0 9 29 2 *",
    "0,30 1 * 3,10,11 *",
    "0 6 1 1 *",
    "0 9 */5 6-8 *",
    "R/2026-01-31T09:00/P1M",
    "R/2026-01-01T02:30/P1D",
    "R40/2026-02-28T23:15/P9D",
];

/// Slots counted in exact time: each is judged where it falls.
const BY_INSTANT: [&str; 5] =
    ["@every 7h", "@every 36h", "@every 50m", "R/2026-01-01T02:30/P1DT1H", "R/2026-01-03T00:30/PT31H"];

/// What a calendar says, in a form that is judged one day and one second at a time.
#[derive(Debug, Default)]
struct Rules {
    zone: Option<&'static str>,
    included: BTreeSet<Date>,
    excluded: BTreeSet<Date>,
    included_yearly: BTreeSet<(i8, i8)>,
    excluded_yearly: BTreeSet<(i8, i8)>,
    included_weekdays: u8,
    excluded_weekdays: u8,
    open: Vec<Window>,
    shut: Vec<Window>,
}

/// From one second of the day up to another; may run over midnight.
#[derive(Clone, Copy, Debug)]
struct Window {
    from: u32,
    to: u32,
}

impl Window {
    fn random(rng: &mut Rng) -> Self {
        let (from, hours) = (rng.u32(0..96) * 900, rng.u32(1..96) * 900);
        Window { from, to: (from + hours) % 86_400 }
    }

    fn contains(self, second: u32) -> bool {
        match self.from < self.to {
            true => (self.from..self.to).contains(&second),
            false => second >= self.from || second < self.to,
        }
    }

    fn text(self) -> String {
        let clock = |s: u32| format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
        format!("{}-{}", clock(self.from), clock(self.to))
    }
}

impl Rules {
    fn random(rng: &mut Rng, zone: Option<&'static str>) -> Self {
        let day = |rng: &mut Rng| date(rng.i16(2025..2029), rng.i8(1..=12), rng.i8(1..=28));
        let days = |rng: &mut Rng| (0..rng.u8(1..20)).map(|_| day(rng)).collect::<Vec<Date>>();
        let mut rules = Rules { zone, ..Rules::default() };
        if rng.u8(..5) == 0 {
            rules.included.extend(days(rng));
        }
        if rng.u8(..3) == 0 {
            rules.excluded.extend(days(rng));
        }
        if rng.u8(..3) == 0 {
            let closure = day(rng).series(1.day()).take(rng.usize(1..130));
            rules.excluded.extend(closure);
        }
        if rng.u8(..6) == 0 {
            rules.included_yearly.extend([(2, 29), month_and_day(day(rng))]);
        }
        if rng.u8(..4) == 0 {
            rules.excluded_yearly.extend([(2, 29), month_and_day(day(rng))]);
        }
        if rng.u8(..3) == 0 {
            rules.included_weekdays = rng.u8(1..127);
        }
        if rng.u8(..3) == 0 {
            rules.excluded_weekdays = rng.u8(1..127);
        }
        if rng.u8(..6) == 0 {
            rules.open = (0..rng.u8(1..4)).map(|_| Window::random(rng)).collect();
        }
        if rng.u8(..5) == 0 {
            rules.shut = (0..rng.u8(1..4)).map(|_| Window::random(rng)).collect();
        }
        rules
    }

    fn calendar(&self) -> Calendar {
        let mut calendar = Calendar::new();
        let yearly = |set: &BTreeSet<(i8, i8)>| set.iter().map(|(m, d)| format!("{m:02}-{d:02}")).collect();
        let once = |set: &BTreeSet<Date>| set.iter().map(Date::to_string).collect();
        let included: [Vec<String>; 2] = [once(&self.included), yearly(&self.included_yearly)];
        for date in included.iter().flatten() {
            calendar = calendar.include_date(date).unwrap();
        }
        let excluded: [Vec<String>; 2] = [once(&self.excluded), yearly(&self.excluded_yearly)];
        for date in excluded.iter().flatten() {
            calendar = calendar.exclude_date(date).unwrap();
        }
        for weekday in (0..7).filter(|day| self.included_weekdays >> day & 1 == 1) {
            calendar = calendar.include_weekdays(&weekday.to_string()).unwrap();
        }
        for weekday in (0..7).filter(|day| self.excluded_weekdays >> day & 1 == 1) {
            calendar = calendar.exclude_weekdays(&weekday.to_string()).unwrap();
        }
        for window in &self.open {
            calendar = calendar.include_window(&window.text()).unwrap();
        }
        for window in &self.shut {
            calendar = calendar.exclude_window(&window.text()).unwrap();
        }
        match self.zone {
            Some(zone) => calendar.in_zone(zone),
            None => calendar,
        }
    }

    fn allows_day(&self, date: Date) -> bool {
        let yearly = month_and_day(date);
        if self.excluded.contains(&date) || self.excluded_yearly.contains(&yearly) {
            return false;
        }
        if self.included.contains(&date) || self.included_yearly.contains(&yearly) {
            return true;
        }
        let weekday = date.weekday().to_sunday_zero_offset();
        if self.excluded_weekdays >> weekday & 1 == 1 {
            return false;
        }
        if self.included_weekdays != 0 {
            return self.included_weekdays >> weekday & 1 == 1;
        }
        // Included dates alone allow only those.
        let only_dates = !(self.included.is_empty() && self.included_yearly.is_empty());
        !only_dates || self.excluded_weekdays != 0
    }

    fn allows_time(&self, time: Time) -> bool {
        let (hour, minute, second) = (time.hour() as u32, time.minute() as u32, time.second() as u32);
        let second = hour * 3600 + minute * 60 + second;
        let inside = |windows: &[Window]| windows.iter().any(|window| window.contains(second));
        (self.open.is_empty() || inside(&self.open)) && !inside(&self.shut)
    }
}

fn month_and_day(date: Date) -> (i8, i8) {
    (date.month(), date.day())
}

/// A schedule and the rules of its calendars.
#[derive(Debug)]
struct Case {
    text: &'static str,
    zone: &'static str,
    on_excluded: OnExcluded,
    rules: Vec<Rules>,
}

impl Case {
    fn random(rng: &mut Rng) -> Self {
        let on_excluded = *rng.choice(&[OnExcluded::Skip, OnExcluded::Next, OnExcluded::Previous]).unwrap();
        let skips = on_excluded == OnExcluded::Skip;
        let text = match skips && rng.u8(..3) == 0 {
            true => *rng.choice(&BY_INSTANT).unwrap(),
            false => *rng.choice(&BY_DAY).unwrap(),
        };
        let zone = *rng.choice(&ZONES).unwrap();
        let rules = (0..rng.u8(1..3)).map(|_| {
            let foreign = (skips && rng.u8(..3) == 0).then(|| *rng.choice(&ZONES).unwrap());
            Rules::random(rng, foreign.filter(|other| *other != zone))
        });
        Case { text, zone, on_excluded, rules: rules.collect() }
    }

    fn timetable(&self, tzdb: &Tzdb) -> Timetable {
        let mut plan = Plan::new(self.text, self.zone).excluded(self.on_excluded);
        let mut calendars = Calendars::new();
        for (index, rules) in self.rules.iter().enumerate() {
            let name = format!("calendar-{index}");
            calendars.insert(name.clone(), Arc::new(rules.calendar()));
            plan.schedule.calendars.push(name);
        }
        plan.binding.calendars = Arc::new(calendars);
        plan.schedule.timetable(tzdb, &plan.binding).unwrap()
    }

    /// The slots in a span of time, one by one.
    fn slots(&self, tzdb: &Tzdb, span: &Range<Timestamp>) -> Vec<Timestamp> {
        // A slot moves at most thirteen months.
        let reach = SignedDuration::from_hours(400 * 24);
        let wide = span.start - reach..span.end + reach;
        let mut slots = BTreeSet::new();
        let by_instant = BY_INSTANT.contains(&self.text);
        if by_instant {
            slots.extend(bare_slots(self.text, self.zone, tzdb, &wide));
        } else {
            let zone = rules_of(self.zone);
            for slot in bare_slots(self.text, "UTC", tzdb, &wide) {
                let wall = self.settled(TimeZone::UTC.to_datetime(slot));
                slots.extend(wall.map(|wall| self.instants(&zone, wall)).into_iter().flatten());
            }
        }
        slots.retain(|slot| span.contains(slot));
        for rules in &self.rules {
            // By the instant where it has to be: on another clock, or without a wall time that was meant.
            if rules.zone.is_some() || by_instant {
                let zone = rules_of(rules.zone.unwrap_or(self.zone));
                slots.retain(|slot| {
                    let wall = zone.to_datetime(*slot);
                    rules.allows_day(wall.date()) && rules.allows_time(wall.time())
                });
            }
        }
        slots.into_iter().collect()
    }

    /// The rules on the schedule's own clock.
    fn own(&self) -> impl Iterator<Item = &Rules> {
        self.rules.iter().filter(|rules| rules.zone.is_none())
    }

    /// Where a wall time goes: day by day, at most into the twelfth month from its own.
    fn settled(&self, wall: DateTime) -> Option<DateTime> {
        if !self.own().all(|rules| rules.allows_time(wall.time())) {
            return None;
        }
        let months = |date: Date| i32::from(date.year()) * 12 + i32::from(date.month());
        let mut day = wall.date();
        while months(day).abs_diff(months(wall.date())) <= 12 {
            if self.own().all(|rules| rules.allows_day(day)) {
                return Some(day.to_datetime(wall.time()));
            }
            day = match self.on_excluded {
                OnExcluded::Skip => return None,
                OnExcluded::Next => day.tomorrow().unwrap(),
                OnExcluded::Previous => day.yesterday().unwrap(),
            };
        }
        None
    }

    /// The instants of a wall time under the default policy.
    fn instants(&self, zone: &TimeZone, wall: DateTime) -> Vec<Timestamp> {
        let is_wildcard = self.text.contains("*/3");
        let ambiguous = zone.to_ambiguous_timestamp(wall);
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } => vec![ambiguous.unambiguous().unwrap()],
            AmbiguousOffset::Fold { before, after } if is_wildcard => {
                vec![before.to_timestamp(wall).unwrap(), after.to_timestamp(wall).unwrap()]
            }
            AmbiguousOffset::Fold { before, .. } => vec![before.to_timestamp(wall).unwrap()],
            AmbiguousOffset::Gap { .. } if is_wildcard => Vec::new(),
            AmbiguousOffset::Gap { before, .. } => {
                let shifted = before.to_timestamp(wall).unwrap() + SignedDuration::from_secs(1);
                zone.preceding(shifted).next().map(|jump| jump.timestamp()).into_iter().collect()
            }
        }
    }
}

fn rules_of(zone: &str) -> TimeZone {
    TimeZoneDatabase::bundled().get(zone).unwrap()
}

/// The slots of a schedule without calendars.
fn bare_slots(text: &str, zone: &str, tzdb: &Tzdb, span: &Range<Timestamp>) -> Vec<Timestamp> {
    let timetable = Plan::new(text, zone).schedule.timetable(tzdb, &Binding::default()).unwrap();
    let before = span.start - SignedDuration::from_nanos(1);
    timetable.upcoming(before).take_while(|slot| *slot < span.end).collect()
}

#[test]
fn calendars_agree_with_a_walk_day_by_day() {
    let tzdb = Tzdb::bundled();
    let span = at("2026-01-10T00:00Z")..at("2027-12-20T00:00Z");
    let (mut compared, mut empty) = (0, 0);
    for number in 0..CASES {
        let mut rng = Rng::with_seed(number);
        let case = Case::random(&mut rng);
        let timetable = case.timetable(&tzdb);
        let expected = case.slots(&tzdb, &span);
        let context = || format!("case {number}: {case:?}");
        let before = span.start - SignedDuration::from_nanos(1);
        let found: Vec<Timestamp> = timetable.upcoming(before).take_while(|slot| *slot < span.end).collect();
        assert_eq!(found, expected, "{}", context());
        compared += expected.len();
        empty += usize::from(expected.is_empty());
        for _ in 0..10 {
            let mut instant = || {
                let random = rng.i64(span.start.as_second()..span.end.as_second());
                let near = rng.choice(&expected).map(|slot| slot.as_second() + rng.i64(-1..=1));
                let second = if rng.bool() { random } else { near.unwrap_or(random) };
                Timestamp::from_second(second).unwrap().clamp(span.start, span.end)
            };
            let (one, other) = (instant(), instant());
            let (from, to) = (one.min(other), one.max(other));
            let inside = expected.iter().filter(|slot| (from..to).contains(*slot)).count();
            assert_eq!(timetable.count(from, to), inside as u64, "{from} to {to}, {}", context());
            if let Some(next) = expected.iter().find(|slot| **slot > from) {
                assert_eq!(timetable.next_after(from), Some(*next), "after {from}, {}", context());
            }
            if let Some(previous) = expected.iter().rev().find(|slot| **slot < to) {
                assert_eq!(timetable.previous_before(to), Some(*previous), "before {to}, {}", context());
            }
        }
    }
    println!("calendar walk: {CASES} cases, {compared} slots, {empty} cases without any");
    assert!(compared > 100_000, "too few comparisons to mean anything: {compared}");
}
