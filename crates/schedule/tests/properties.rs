//! Properties that hold for every schedule in every zone at every instant.
//!
//! No expected value is computed: the engine's answers must agree with one another, forwards,
//! backwards and counted. `PUNCTUAL_PROPERTY_CASES` says how many random cases to try (200,000
//! unless told); `PUNCTUAL_SEED=n` makes case n the first one.

use crate::support::generate;
use crate::support::generate::Fields;
use crate::support::zones;
use crate::support::zones::{Zone, Zones};
use fastrand::Rng;
use jiff::{SignedDuration, Timestamp, civil::DateTime};
use punctual_schedule::{Binding, Schedule, Timetable, Tzdb, dst};
use std::ops::Range;

#[test]
fn the_answers_of_every_timetable_agree_with_one_another() {
    let cases = number_from_env("PUNCTUAL_PROPERTY_CASES").unwrap_or(200_000);
    let first = number_from_env("PUNCTUAL_SEED").unwrap_or(SEED);
    let middle = first + cases / 2;
    let (some, others) = std::thread::scope(|scope| {
        let others = scope.spawn(|| check_all(middle..first + cases));
        (check_all(first..middle), others.join().unwrap())
    });
    let broken: Vec<String> = [some.broken, others.broken].concat();
    assert!(broken.is_empty(), "the engine contradicts itself:\n{}", broken.join("\n"));
    let slots = some.slots + others.slots;
    // An engine that always answers `None` never contradicts itself.
    assert!(slots as u64 > cases, "only {slots} slots in {cases} cases");
    println!("properties: {cases} cases, {slots} slots");
}

// Arbitrary; each case adds its number to it.
const SEED: u64 = 21_990_101;

// Enough to see a pattern; the rest of a broken run only repeats it.
const BROKEN_SHOWN: usize = 10;

// Slots followed from each instant: enough to cross the hours around a jump at typical steps.
const STEPS: usize = 5;

// Long enough for two changes to and from summer time.
const LONGEST_COUNT: SignedDuration = SignedDuration::from_hours(400 * 24);

const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

/// What one thread found.
#[derive(Default)]
struct Findings {
    slots: usize,
    broken: Vec<String>,
}

fn check_all(seeds: Range<u64>) -> Findings {
    let zones = Zones::bundled();
    let tzdb = Tzdb::bundled();
    let mut findings = Findings::default();
    for seed in seeds {
        let mut rng = Rng::with_seed(seed);
        let case = Case::random(&mut rng, &zones);
        match case.check(&mut rng, &tzdb) {
            Ok(slots) => findings.slots += slots,
            Err(why) => findings.broken.push(format!("{} | {why} | PUNCTUAL_SEED={seed}", case.describe())),
        }
        if findings.broken.len() == BROKEN_SHOWN {
            break;
        }
    }
    findings
}

/// A schedule in a zone, asked about at an instant.
struct Case<'a> {
    expression: String,
    zone: &'a Zone,
    policy: dst::Policy,
    at: Timestamp,
}

impl<'a> Case<'a> {
    fn random(rng: &mut Rng, zones: &'a Zones) -> Case<'a> {
        let (zone, at, near) = situation(rng, zones);
        let fields = *generate::pick(rng, &[Fields::Five, Fields::Six, Fields::Seven]);
        let gaps = [dst::Gap::After, dst::Gap::Skip, dst::Gap::Shift];
        let overlaps = [dst::Overlap::First, dst::Overlap::Both, dst::Overlap::Last];
        Case {
            expression: generate::expression(rng, fields, near),
            zone,
            policy: dst::Policy { gap: pick(rng, gaps), overlap: pick(rng, overlaps) },
            at,
        }
    }

    /// How many slots were seen, or the property that does not hold.
    fn check(&self, rng: &mut Rng, tzdb: &Tzdb) -> Result<usize, String> {
        let table = self.timetable(&self.expression, tzdb)?;
        let next = table.next_after(self.at);
        self.printing_keeps_the_meaning(tzdb, next)?;
        self.counts_add_up(rng, &table)?;
        let Some(next) = next else {
            return self.nothing_comes_later(rng, &table);
        };
        self.next_is_a_slot_after(next)?;
        self.next_is_the_same_until_it_comes(rng, &table, next)?;
        self.previous_is_the_slot_before(rng, &table, next)?;
        self.steps_agree_in_every_direction(&table, next)
    }

    fn timetable(&self, expression: &str, tzdb: &Tzdb) -> Result<Timetable, String> {
        let mut schedule = Schedule::parse(expression).map_err(|error| error.to_string())?;
        schedule.timezone = self.zone.name.clone();
        schedule.dst = self.policy;
        let timetable = schedule.timetable(tzdb, &Binding::default());
        timetable.map_err(|error| error.to_string())
    }

    fn printing_keeps_the_meaning(&self, tzdb: &Tzdb, next: Option<Timestamp>) -> Result<(), String> {
        let schedule = Schedule::parse(&self.expression).map_err(|error| error.to_string())?;
        let printed = schedule.to_string();
        let read_back = Schedule::parse(&printed);
        let same = read_back.as_ref().is_ok_and(|read_back| *read_back == schedule);
        require(same, || format!("printed as `{printed}`, read back as {read_back:?}"))?;
        let found = self.timetable(&printed, tzdb)?.next_after(self.at);
        require(found == next, || format!("next {next:?}, but printed as `{printed}` {found:?}"))
    }

    fn counts_add_up(&self, rng: &mut Rng, table: &Timetable) -> Result<(), String> {
        let end = between(rng, self.at, self.at + LONGEST_COUNT) + NANOSECOND;
        let middle = between(rng, self.at, end);
        let (whole, first, second) =
            (table.count(self.at, end), table.count(self.at, middle), table.count(middle, end));
        let same = whole == first + second;
        require(same, || format!("{whole} slots to {end}, but {first} + {second} by {middle}"))
    }

    fn nothing_comes_later(&self, rng: &mut Rng, table: &Timetable) -> Result<usize, String> {
        let end = *zones::span().end() + SignedDuration::from_hours(48);
        let later = between(rng, self.at, end);
        let found = table.next_after(later);
        require(found.is_none(), || format!("no next slot, yet {found:?} after {later}"))?;
        let count = table.count(self.at + NANOSECOND, end);
        require(count == 0, || format!("no next slot, yet {count} counted"))?;
        require(table.upcoming(self.at).next().is_none(), || "no next slot, yet one upcoming".into())?;
        Ok(0)
    }

    fn next_is_a_slot_after(&self, next: Timestamp) -> Result<(), String> {
        require(next > self.at, || format!("next {next} is not after"))?;
        require(next.subsec_nanosecond() == 0, || format!("next {next} is within a second"))?;
        let year = self.zone.rules.to_datetime(next).year();
        require((1970..=2199).contains(&year), || format!("next {next} is out of the years"))
    }

    fn next_is_the_same_until_it_comes(
        &self,
        rng: &mut Rng,
        table: &Timetable,
        next: Timestamp,
    ) -> Result<(), String> {
        let mut random = || between(rng, self.at, next);
        for earlier in [next - NANOSECOND, random(), random(), random()] {
            let found = table.next_after(earlier);
            let same = found == Some(next);
            require(same, || format!("next {next}, but after {earlier} it is {found:?}"))?;
        }
        Ok(())
    }

    fn previous_is_the_slot_before(
        &self,
        rng: &mut Rng,
        table: &Timetable,
        next: Timestamp,
    ) -> Result<(), String> {
        let found = table.previous_before(next + NANOSECOND);
        require(found == Some(next), || format!("next {next}, but seen from behind {found:?}"))?;
        let previous = table.previous_before(next);
        let skipped = previous.is_some_and(|previous| previous > self.at);
        require(!skipped, || format!("next {next} leaves out {previous:?}"))?;
        let mut random = || between(rng, self.at, next) + NANOSECOND;
        for earlier in [self.at + NANOSECOND, random(), random()] {
            let found = table.previous_before(earlier);
            let same = found == previous;
            require(same, || format!("{previous:?} before {next}, but before {earlier} {found:?}"))?;
        }
        // With no slot before it, it is the first of all.
        let before = previous.unwrap_or(Timestamp::MIN);
        let found = table.next_after(before);
        require(found == Some(next), || format!("{next} follows {before}, but not {found:?}"))
    }

    fn steps_agree_in_every_direction(&self, table: &Timetable, next: Timestamp) -> Result<usize, String> {
        let mut slots = vec![next];
        while slots.len() < STEPS {
            let last = slots[slots.len() - 1];
            let Some(following) = table.next_after(last) else {
                break;
            };
            require(following > last, || format!("{following} follows {last}"))?;
            let back = table.previous_before(following);
            let same = back == Some(last);
            require(same, || format!("{following} follows {last}, but is preceded by {back:?}"))?;
            slots.push(following);
        }
        let upcoming: Vec<Timestamp> = table.upcoming(self.at).take(slots.len()).collect();
        require(upcoming == slots, || format!("upcoming {upcoming:?}, one by one {slots:?}"))?;

        let last = slots[slots.len() - 1];
        for (from, to, expected) in [
            (self.at + NANOSECOND, next, 0),
            (self.at + NANOSECOND, next + NANOSECOND, 1),
            (next, last, slots.len() - 1),
            (next, last + NANOSECOND, slots.len()),
        ] {
            let count = table.count(from, to);
            let same = count == expected as u64;
            require(same, || format!("{expected} slots from {from} to {to}, not {count}"))?;
        }
        Ok(slots.len())
    }

    fn describe(&self) -> String {
        let Case { expression, zone, policy, at } = self;
        format!("`{expression}` | {} | {policy:?} | {at}", zone.name)
    }
}

/// A zone, an instant and a wall time that the schedule should be close to: half the time any
/// instant of any zone, half the time within four hours of a jump.
fn situation<'a>(rng: &mut Rng, zones: &'a Zones) -> (&'a Zone, Timestamp, DateTime) {
    if rng.bool() {
        let zone = zones.zone(rng);
        let at = between(rng, *zones::span().start(), *zones::span().end());
        return (zone, at, zone.rules.to_datetime(at));
    }
    let (zone, jump) = zones.jump(rng);
    let four_hours = SignedDuration::from_hours(4);
    let at = between(rng, jump - four_hours, jump + four_hours);
    (zone, at, zone.wall_around(rng, jump))
}

fn require(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn pick<const N: usize, T: Copy>(rng: &mut Rng, items: [T; N]) -> T {
    *generate::pick(rng, &items)
}

/// A random instant in `[from, to)`.
fn between(rng: &mut Rng, from: Timestamp, to: Timestamp) -> Timestamp {
    let nanosecond = rng.i128(from.as_nanosecond()..to.as_nanosecond());
    Timestamp::from_nanosecond(nanosecond).unwrap()
}

fn number_from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}
