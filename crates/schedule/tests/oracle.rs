//! Oracle equality: the engine's slots are those of a walker that knows no shortcuts.
//!
//! Each window is a stretch of real time around a change of offset of a random zone, walked once
//! and shared by a group of random expressions. Forwards, backwards and counted, the engine must
//! find exactly the slots that the walk finds. `PUNCTUAL_SEED=n` makes window n the first one.

use crate::support::generate;
use crate::support::generate::Fields;
use crate::support::interpreter;
use crate::support::oracle::{Gap, Overlap, POLICIES, Window};
use crate::support::zones;
use crate::support::zones::{Zone, Zones};
use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use punctual_schedule::{Binding, Schedule, Timetable, Tzdb, dst};

#[test]
fn slots_of_whole_minutes_equal_those_of_a_walk_over_thirty_days() {
    compare(&Plan {
        windows: 2000,
        expressions_per_window: 10,
        days: 30,
        step_s: 60,
        fields: &[Fields::Five],
    });
}

#[test]
fn slots_of_seconds_equal_those_of_a_walk_over_one_day() {
    compare(&Plan {
        windows: 200,
        expressions_per_window: 20,
        days: 1,
        step_s: 1,
        fields: &[Fields::Six, Fields::Seven],
    });
}

#[test]
fn the_oracle_itself_finds_the_published_rows() {
    let database = jiff::tz::TimeZoneDatabase::bundled();
    let rows = include_str!("support/rows.txt").lines();
    for row in rows.filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let expression = interpreter::read(columns[0]);
        let zone = database.get(columns[1]).unwrap();
        let after: Timestamp = columns[2].parse().unwrap();
        let expected = columns[3].split(' ').map(|slot| slot.parse::<Timestamp>().unwrap());
        let expected: Vec<Timestamp> = expected.collect();
        let policy = policy_named(columns.get(4).copied().unwrap_or("after first"));

        let has_seconds = columns[0].split(' ').count() > 5;
        let (days, step_s) = if has_seconds { (2, 1) } else { (30, 60) };
        let mut from = after + SignedDuration::from_secs(step_s);
        let mut found = Vec::new();
        while found.len() < expected.len() && from < *expected.last().unwrap() + DAY {
            let to = from + DAY * days;
            found.extend(Window::walk(&zone, from, to, step_s).slots(&expression, policy));
            from = to;
        }
        found.truncate(expected.len());
        assert_eq!(found, expected, "{row}");
    }
}

const DAY: SignedDuration = SignedDuration::from_hours(24);
const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

// Arbitrary; each window adds its number to it.
const SEED: u64 = 20_260_308;

// Enough to see a pattern; the rest of a broken run only repeats it.
const MISMATCHES_SHOWN: usize = 10;

/// How much to compare.
struct Plan {
    windows: u64,
    expressions_per_window: usize,
    days: i32,
    step_s: i64,
    fields: &'static [Fields],
}

fn compare(plan: &Plan) {
    let zones = Zones::bundled();
    let tzdb = Tzdb::bundled();
    let first_seed = std::env::var("PUNCTUAL_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    let mut expressions = 0;
    let mut slots = 0;
    let mut mismatches = Vec::new();
    for seed in first_seed..first_seed + plan.windows {
        let mut rng = Rng::with_seed(seed);
        let (zone, around, from) = stretch(&mut rng, &zones, plan);
        let to = from + DAY * plan.days;
        let window = Window::walk(&zone.rules, from, to, plan.step_s);
        for _ in 0..plan.expressions_per_window {
            let fields = *generate::pick(&mut rng, plan.fields);
            let near = zone.wall_around(&mut rng, around);
            let case = Case {
                expression: generate::expression(&mut rng, fields, near),
                zone,
                policy: *generate::pick(&mut rng, &POLICIES),
                from,
                to,
                seed,
            };
            let expected = window.slots(&interpreter::read(&case.expression), case.policy);
            expressions += 1;
            slots += expected.len();
            let within = rng.usize(..=expected.len());
            mismatches.extend(case.difference(&tzdb, &expected, within).err());
        }
        if mismatches.len() >= MISMATCHES_SHOWN {
            break;
        }
    }
    assert!(mismatches.is_empty(), "the engine and the walk differ:\n{}", mismatches.join("\n"));
    let days = if plan.days == 1 { "day" } else { "days" };
    let slots = grouped(slots);
    println!("oracle: {expressions} expressions over {} {days}, {slots} slots compared", plan.days);
}

/// A zone, an instant worth looking at, and the start of the window around it.
fn stretch<'a>(rng: &mut Rng, zones: &'a Zones, plan: &Plan) -> (&'a Zone, Timestamp, Timestamp) {
    let (zone, around) = if generate::one_in(rng, 25) {
        // No slots exist outside the years 1970 to 2199, on the local clock.
        (zones.zone(rng), *generate::pick(rng, &[*zones::span().start(), *zones::span().end()]))
    } else {
        zones.jump(rng)
    };
    let minutes = rng.i64(0..i64::from(plan.days) * 24 * 60);
    let minute = around.as_second().div_euclid(60) - minutes;
    (zone, around, Timestamp::from_second(minute * 60).unwrap())
}

/// One expression in one window; printed when the engine and the walk differ.
struct Case<'a> {
    expression: String,
    zone: &'a Zone,
    policy: (Gap, Overlap),
    from: Timestamp,
    to: Timestamp,
    seed: u64,
}

impl Case<'_> {
    fn difference(&self, tzdb: &Tzdb, expected: &[Timestamp], within: usize) -> Result<(), String> {
        let timetable = self.timetable(tzdb)?;

        let mut at = self.from - NANOSECOND;
        for &slot in expected {
            let found = timetable.next_after(at);
            self.require(found == Some(slot), || format!("after {at}: {slot}, not {found:?}"))?;
            at = slot;
        }
        let found = timetable.next_after(at);
        let beyond = found.is_none_or(|found| found >= self.to);
        self.require(beyond, || format!("after {at}: none in the window, not {found:?}"))?;

        let mut at = self.to;
        for &slot in expected.iter().rev() {
            let found = timetable.previous_before(at);
            self.require(found == Some(slot), || format!("before {at}: {slot}, not {found:?}"))?;
            at = slot;
        }
        let found = timetable.previous_before(at);
        let beyond = found.is_none_or(|found| found < self.from);
        self.require(beyond, || format!("before {at}: none in the window, not {found:?}"))?;

        self.require_count(&timetable, self.to, expected.len())?;
        // Up to a slot, which is itself not counted.
        let some = expected.get(within).copied().unwrap_or(self.to);
        self.require_count(&timetable, some, within)
    }

    fn timetable(&self, tzdb: &Tzdb) -> Result<Timetable, String> {
        let refused = |error| self.describe(&format!("a timetable, not {error}"));
        let mut schedule = Schedule::parse(&self.expression).map_err(refused)?;
        schedule.timezone = self.zone.name.clone();
        schedule.dst = engine_policy(self.policy);
        schedule.timetable(tzdb, &Binding::default()).map_err(refused)
    }

    fn require_count(&self, found: &Timetable, to: Timestamp, want: usize) -> Result<(), String> {
        let found = found.count(self.from, to);
        self.require(found == want as u64, || format!("{want} slots before {to}, not {found}"))
    }

    fn require(&self, holds: bool, expected: impl Fn() -> String) -> Result<(), String> {
        if holds { Ok(()) } else { Err(self.describe(&expected())) }
    }

    fn describe(&self, expected: &str) -> String {
        let Case { expression, zone: Zone { name, .. }, policy, from, to, seed } = self;
        format!(
            "`{expression}` | {name} | {policy:?} | {from} to {to} | expected {expected} | \
             PUNCTUAL_SEED={seed}"
        )
    }
}

fn engine_policy((gap, overlap): (Gap, Overlap)) -> dst::Policy {
    dst::Policy {
        gap: match gap {
            Gap::After => dst::Gap::After,
            Gap::Skip => dst::Gap::Skip,
            Gap::Shift => dst::Gap::Shift,
        },
        overlap: match overlap {
            Overlap::First => dst::Overlap::First,
            Overlap::Both => dst::Overlap::Both,
            Overlap::Last => dst::Overlap::Last,
        },
    }
}

fn policy_named(name: &str) -> (Gap, Overlap) {
    let named = |policy: &&(Gap, Overlap)| format!("{:?} {:?}", policy.0, policy.1).to_lowercase() == name;
    *POLICIES.iter().find(named).unwrap()
}

/// Digits in groups of three, as Rust writes them.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}
