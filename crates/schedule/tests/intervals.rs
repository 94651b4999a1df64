//! Intervals against a plain reading with jiff: slot k is start + k periods, one by one.

use fastrand::Rng;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Span, Timestamp};
use punctual_schedule::{Binding, Schedule, Tzdb, dst};

const CASES: usize = 3_000;
const SEED: u64 = 15;

/// An interval as its parts.
struct Case {
    zone: String,
    start: DateTime,
    months: i64,
    days: i64,
    seconds: i64,
    gap: dst::Gap,
    overlap: dst::Overlap,
}

impl Case {
    fn random(rng: &mut Rng, zones: &[String]) -> Self {
        let zone = zones[rng.usize(..zones.len())].clone();
        let start = DateTime::constant(1975, 1, 1, 0, 0, 0, 0)
            + SignedDuration::from_mins(rng.i64(0..100 * 365 * 1440) / 15 * 15);
        let (months, days, seconds) = match rng.u8(..6) {
            0 => (0, 0, rng.i64(3_600..1_000_000)),
            1 => (rng.i64(1..15), 0, 0),
            2 => (0, rng.i64(1..40), 0),
            3 => (rng.i64(0..3), rng.i64(1..10), 0),
            4 => (0, rng.i64(1..5), rng.i64(1..80_000)),
            _ => (0, 1, 0),
        };
        let gap = *rng.choice(&[dst::Gap::After, dst::Gap::Skip, dst::Gap::Shift]).unwrap();
        let overlap = *rng.choice(&[dst::Overlap::First, dst::Overlap::Last]).unwrap();
        Case { zone, start, months, days, seconds, gap, overlap }
    }

    fn text(&self) -> String {
        let date = match (self.months, self.days) {
            (0, 0) => String::new(),
            (months, 0) => format!("{months}M"),
            (0, days) => format!("{days}D"),
            (months, days) => format!("{months}M{days}D"),
        };
        let time = if self.seconds == 0 { String::new() } else { format!("T{}S", self.seconds) };
        format!("R/{}/P{date}{time}", self.start)
    }

    /// Slot k, if it exists.
    fn slot(&self, tz: &TimeZone, k: i64) -> Option<Timestamp> {
        let exact = SignedDuration::from_secs(self.seconds * k);
        if self.months == 0 && self.days == 0 {
            return Some(self.resolve(tz, self.start)? + exact);
        }
        let moved = self.start.checked_add(Span::new().months(self.months * k)).unwrap();
        let wall = moved.checked_add(Span::new().days(self.days * k)).unwrap();
        Some(self.resolve(tz, wall)? + exact)
    }

    fn resolve(&self, tz: &TimeZone, wall: DateTime) -> Option<Timestamp> {
        let ambiguous = tz.to_ambiguous_timestamp(wall);
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } => ambiguous.unambiguous().ok(),
            AmbiguousOffset::Fold { .. } => match self.overlap {
                dst::Overlap::First | dst::Overlap::Both => ambiguous.earlier().ok(),
                dst::Overlap::Last => ambiguous.later().ok(),
            },
            AmbiguousOffset::Gap { before, after } => {
                if after.seconds() - before.seconds() > 3 * 3600 {
                    return None;
                }
                // Under the offset before the gap, the time lies that much after the jump.
                let shifted = before.to_timestamp(wall).unwrap();
                match self.gap {
                    dst::Gap::Skip => None,
                    dst::Gap::Shift => Some(shifted),
                    dst::Gap::After => {
                        tz.preceding(shifted + SignedDuration::from_secs(1)).next().map(|t| t.timestamp())
                    }
                }
            }
        }
    }
}

#[test]
fn intervals_agree_with_counting_one_by_one() {
    let tzdb = Tzdb::bundled();
    let database = TimeZoneDatabase::bundled();
    let zones = tzdb.names();
    let mut rng = Rng::with_seed(SEED);
    let mut compared = 0;
    for number in 0..CASES {
        let case = Case::random(&mut rng, &zones);
        let tz = database.get(&case.zone).unwrap();
        let mut schedule = Schedule::parse(&case.text()).unwrap();
        schedule.timezone.clone_from(&case.zone);
        schedule.dst = dst::Policy { gap: case.gap, overlap: case.overlap };
        let context = format!("case {number}: {} in {} {:?}", case.text(), case.zone, schedule.dst);
        let timetable = match schedule.timetable(&tzdb, &Binding::default()) {
            Ok(timetable) => timetable,
            Err(error) => {
                assert!(case.resolve(&tz, case.start).is_none(), "{context}: {error}");
                continue;
            }
        };
        // Near the start, and far from it.
        let far = rng.i64(50..800);
        let first = match rng.bool() {
            true => 0,
            false => far,
        };
        let end: Timestamp = "2199-06-01T00:00:00Z".parse().unwrap();
        let slots: Vec<Timestamp> =
            (first..first + 40).filter_map(|k| case.slot(&tz, k)).take_while(|slot| *slot < end).collect();
        for pair in slots.windows(2) {
            assert!(pair[0] < pair[1], "{context}: the reading itself");
            assert_eq!(timetable.next_after(pair[0]), Some(pair[1]), "{context}: after {}", pair[0]);
            assert_eq!(timetable.previous_before(pair[1]), Some(pair[0]), "{context}: before {}", pair[1]);
            let between = pair[1] - SignedDuration::from_millis(1);
            assert_eq!(timetable.next_after(between), Some(pair[1]), "{context}: after {between}");
            compared += 1;
        }
        if let (Some(from), Some(to)) = (slots.first(), slots.last()) {
            assert_eq!(timetable.count(*from, *to), slots.len() as u64 - 1, "{context}: {from} to {to}");
        }
    }
    println!("interval oracle: {CASES} intervals, {compared} slots compared");
    assert!(compared > 50_000, "too few comparisons to mean anything: {compared}");
}
