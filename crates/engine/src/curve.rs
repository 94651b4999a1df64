//! How the slots of one schedule lie in buckets of time.
//!
//! Asked by a forecast, once for all jobs that share a schedule. Promise: a schedule is asked at most twice per bucket and a
//! few times more, however many slots or jobs it has; what depends on a job's id is spread evenly over its window.

use jiff::Timestamp;
use punctual_schedule::Timetable;

/// Buckets of one length, side by side. Times are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buckets {
    pub(crate) from: i64,
    pub(crate) width: i64,
    pub(crate) count: usize,
    /// Nothing is planned before this any more.
    pub(crate) now: i64,
}

impl Buckets {
    pub(crate) fn to(&self) -> i64 {
        self.from + self.width * self.count as i64
    }

    /// The first instant at which something is still planned.
    pub(crate) fn low(&self) -> i64 {
        self.from.max(self.now + 1)
    }

    fn start_of(&self, bucket: i64) -> i64 {
        self.from + bucket * self.width
    }
}

/// When one of many jobs fires that share a schedule.
#[derive(Debug)]
pub(crate) struct Plan {
    /// With every slot that `H` may stand for.
    pub(crate) timetable: Timetable,
    /// The part of these slots that one job has.
    pub(crate) share: f64,
    /// At most so many slots are left.
    pub(crate) left: Option<u64>,
    /// The period, where it counts from the end of the last run: nobody knows when that is.
    pub(crate) from_completion: Option<i64>,
}

/// A schedule with a count of how often it was asked.
struct Asked<'a> {
    timetable: &'a Timetable,
    times: &'a mut u64,
}

impl Asked<'_> {
    fn count(&mut self, from: i64, to: i64) -> u64 {
        *self.times += 1;
        if from < to { self.timetable.count(instant(from), instant(to)) } else { 0 }
    }

    fn next_from(&mut self, from: i64) -> Option<i64> {
        *self.times += 1;
        self.timetable.next_after(instant(from - 1)).map(Timestamp::as_millisecond)
    }
}

impl Plan {
    /// The window over which its jobs are spread.
    pub(crate) fn spread(&self) -> i64 {
        let spread = self.timetable.schedule().spread.map_or(0, |spread| spread.as_millis());
        i64::try_from(spread).unwrap_or(i64::MAX / 4)
    }

    /// Whether its jobs differ, and are counted evenly.
    pub(crate) fn is_even(&self) -> bool {
        self.share < 1.0 || self.spread() > 0
    }

    /// How many slots the buckets have of one job, about: what their sum is, give or take what crosses the edges.
    pub(crate) fn total(&self, buckets: &Buckets, asked: &mut u64) -> f64 {
        match self.from_completion {
            Some(_) => self.slots(buckets, asked).iter().sum(),
            None => {
                let mut timetable = Asked { timetable: &self.timetable, times: asked };
                let slots = timetable.count(buckets.low(), buckets.to());
                self.left.map_or(slots, |left| left.min(slots)) as f64 * self.share
            }
        }
    }

    /// The slots of one job, bucket by bucket.
    pub(crate) fn slots(&self, buckets: &Buckets, asked: &mut u64) -> Vec<f64> {
        let mut masses = Masses::new(*buckets);
        if let Some(period) = self.from_completion {
            self.drip(&mut masses, period);
            return masses.into_slots();
        }
        let spread = self.spread();
        let mut timetable = Asked { timetable: &self.timetable, times: asked };
        // Slots that are over may still be waited for, by jobs that start late in their window.
        let first = buckets.low() - spread;
        let total = timetable.count(first, buckets.to());
        let left = self.left.map_or(u64::MAX, |left| {
            let sooner = if first > buckets.now { timetable.count(buckets.now + 1, first) } else { 0 };
            left.saturating_sub(sooner)
        });
        if total == 0 || left == 0 {
            return masses.into_slots();
        }
        match total <= buckets.count as u64 {
            true => self.walk(&mut masses, &mut timetable, first, total.min(left)),
            false => self.count(&mut masses, &mut timetable, left),
        }
        masses.into_slots()
    }

    /// Few slots: each for itself.
    fn walk(&self, masses: &mut Masses, timetable: &mut Asked<'_>, first: i64, slots: u64) {
        let mut from = first;
        for _ in 0..slots {
            let Some(slot) = timetable.next_from(from) else { return };
            masses.add(self.share, slot, self.spread());
            from = slot + 1;
        }
    }

    /// Many slots: each bucket as a whole.
    fn count(&self, masses: &mut Masses, timetable: &mut Asked<'_>, mut left: u64) {
        let (buckets, spread) = (masses.buckets, self.spread());
        let before = (spread + buckets.width - 1) / buckets.width;
        if before > buckets.count as i64 {
            // The window is longer than all buckets together: none has more than another.
            let first = buckets.low() - spread;
            let slots = timetable.count(first, buckets.to()).min(left) as f64;
            let length = (buckets.to() - first).max(1) as f64;
            let here = slots * self.share * (buckets.to() - buckets.low()).max(0) as f64 / length;
            masses.even(here);
            return;
        }
        for bucket in -before..buckets.count as i64 {
            let (start, end) = (buckets.start_of(bucket), buckets.start_of(bucket + 1));
            let slots = timetable.count(start.max(buckets.low() - spread), end).min(left);
            left -= slots;
            if slots == 0 {
                continue;
            }
            match spread {
                0 => masses.add(slots as f64 * self.share, start.max(buckets.low()), 0),
                // Where in the bucket they lie is not known: at four points of it.
                _ => (0..4).for_each(|point| {
                    let at = start + buckets.width * (2 * point + 1) / 8;
                    masses.add(slots as f64 * self.share / 4.0, at, spread);
                }),
            }
        }
    }

    /// As if its runs took no time.
    fn drip(&self, masses: &mut Masses, period: i64) {
        let (buckets, bounds) = (masses.buckets, &self.timetable.schedule().bounds);
        let low = bounds.start.map_or(i64::MIN, Timestamp::as_millisecond).max(buckets.low());
        let high = bounds.end.map_or(i64::MAX, Timestamp::as_millisecond).min(buckets.to());
        let mut left = self.left.map_or(f64::INFINITY, |left| left as f64);
        for bucket in 0..buckets.count as i64 {
            let (start, end) = (buckets.start_of(bucket).max(low), buckets.start_of(bucket + 1).min(high));
            let slots = ((end - start).max(0) as f64 / period.max(1) as f64).min(left);
            left -= slots;
            masses.add(slots, start.clamp(buckets.low(), buckets.to() - 1), 0);
        }
    }
}

/// What falls into each bucket, where a slot may be spread over many.
pub(crate) struct Masses {
    buckets: Buckets,
    slots: Vec<f64>,
    /// Where whole buckets begin to get so much each, and where they cease to.
    steps: Vec<f64>,
}

impl Masses {
    pub(crate) fn new(buckets: Buckets) -> Self {
        Masses { buckets, slots: vec![0.0; buckets.count], steps: vec![0.0; buckets.count + 1] }
    }

    /// Adds what lies evenly from an instant on for so long. What is over, or beyond the last bucket, does not count.
    pub(crate) fn add(&mut self, mass: f64, at: i64, length: i64) {
        let Buckets { from, width, .. } = self.buckets;
        let (low, high) = (self.buckets.low(), self.buckets.to());
        if length == 0 {
            if (low..high).contains(&at) {
                self.slots[((at - from) / width) as usize] += mass;
            }
            return;
        }
        let (start, end) = (at.max(low), at.saturating_add(length).min(high));
        if start >= end {
            return;
        }
        let density = mass / length as f64;
        let (first, last) = (((start - from) / width) as usize, ((end - 1 - from) / width) as usize);
        if first == last {
            self.slots[first] += density * (end - start) as f64;
            return;
        }
        self.slots[first] += density * (self.buckets.start_of(first as i64 + 1) - start) as f64;
        self.slots[last] += density * (end - self.buckets.start_of(last as i64)) as f64;
        self.steps[first + 1] += density * width as f64;
        self.steps[last] -= density * width as f64;
    }

    /// Adds the same to every instant.
    pub(crate) fn even(&mut self, mass: f64) {
        let (low, high) = (self.buckets.low(), self.buckets.to());
        if low < high {
            self.add(mass, low, high - low);
        }
    }

    pub(crate) fn into_slots(self) -> Vec<f64> {
        let mut level = 0.0;
        let mut slots = self.slots;
        for (slot, step) in slots.iter_mut().zip(&self.steps) {
            level += step;
            *slot += level;
        }
        slots
    }
}

/// An instant within the years that are scheduled in.
pub(crate) fn instant(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap_or(if millis < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use punctual_schedule::{Binding, Schedule, Tzdb};

    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    fn plan(text: &str, change: impl FnOnce(&mut Schedule)) -> Plan {
        let mut schedule = Schedule::parse(text).unwrap();
        change(&mut schedule);
        let (schedule, share) = schedule.evened();
        let timetable = schedule.timetable(&Tzdb::bundled(), &Binding::default()).unwrap();
        Plan { timetable, share, left: None, from_completion: None }
    }

    fn day(width_minutes: i64, count: usize) -> Buckets {
        let from = at("2026-03-01T00:00:00Z");
        Buckets { from, width: width_minutes * 60_000, count, now: from - 1 }
    }

    /// The slots, and how often the schedule was asked.
    fn slots(plan: &Plan, buckets: &Buckets) -> (Vec<f64>, u64) {
        let mut asked = 0;
        (plan.slots(buckets, &mut asked), asked)
    }

    #[test]
    fn many_slots_are_counted_by_the_bucket_and_few_one_by_one() {
        let (counted, asked) = slots(&plan("* * * * * *", |_| {}), &day(60, 24));
        assert_eq!((counted, asked), (vec![3_600.0; 24], 25));
        let (counted, asked) = slots(&plan("30 9,17 * * *", |_| {}), &day(60, 24));
        let wanted: Vec<f64> = (0..24).map(|hour| f64::from(u8::from(hour == 9 || hour == 17))).collect();
        assert_eq!((counted, asked), (wanted, 3));
        let (counted, asked) = slots(&plan("0 0 30 2 *", |_| {}), &day(60, 24));
        assert_eq!((counted, asked), (vec![0.0; 24], 1), "never");
    }

    #[test]
    fn both_ways_of_counting_agree_on_every_bucket() {
        for (text, zone) in [
            ("*/7 * * * *", "UTC"),
            ("@every 13m", "UTC"),
            ("30 * * * *", "Europe/Berlin"),
            ("*/20 1-3 * * *", "America/New_York"),
            ("R/2026-02-28T23:59:30Z/PT11M", "UTC"),
        ] {
            let plan = plan(text, |schedule| schedule.timezone = zone.into());
            // Through a change of the clock, in buckets that have many, one or no slots.
            for (width, count) in [(5, 1_440), (60, 744), (1_440, 31)] {
                let buckets = Buckets { from: at("2026-03-01T00:00:00Z"), ..day(width, count) };
                let (counted, _) = slots(&plan, &buckets);
                for (bucket, counted) in counted.iter().enumerate() {
                    let start = buckets.start_of(bucket as i64);
                    let wanted = plan.timetable.upcoming(instant(start - 1));
                    let end = instant(start + buckets.width);
                    let wanted = wanted.take_while(|slot| *slot < end).count();
                    assert_eq!(*counted, wanted as f64, "{text} {zone} {width} {bucket}");
                }
            }
        }
    }

    #[test]
    fn what_is_over_is_not_planned() {
        let plan = plan("* * * * *", |_| {});
        let buckets = Buckets { now: at("2026-03-01T00:30:00Z"), ..day(60, 2) };
        // The slot of this very instant is being fired.
        assert_eq!(slots(&plan, &buckets).0, [29.0, 60.0]);
    }

    #[test]
    fn a_hashed_slot_is_anywhere_in_its_window() {
        let hour = slots(&plan("H 9 * * *", |_| {}), &day(60, 24)).0;
        assert!((hour[9] - 1.0).abs() < 1e-9, "{hour:?}");
        assert!((hour.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let quarter = slots(&plan("H/15 * * * *", |_| {}), &day(5, 12)).0;
        assert!(quarter.iter().all(|slots| (slots - 1.0 / 3.0).abs() < 1e-9), "{quarter:?}");
        let both = slots(&plan("H H(0-5) * * *", |_| {}), &day(60, 24)).0;
        let wanted = |hour: usize| if hour < 6 { 1.0 / 6.0 } else { 0.0 };
        assert!(both.iter().enumerate().all(|(hour, slots)| (slots - wanted(hour)).abs() < 1e-9), "{both:?}");
    }

    #[test]
    fn a_spread_slot_is_anywhere_in_its_window() {
        let spread = |minutes: u64| {
            move |schedule: &mut Schedule| schedule.spread = Some(Duration::from_secs(60 * minutes))
        };
        let near = |slots: &[f64], wanted: &[f64]| {
            assert!(slots.iter().zip(wanted).all(|(one, other)| (one - other).abs() < 1e-6), "{slots:?}");
        };
        // From 00:30 on for an hour and a half.
        near(&slots(&plan("30 0 * * *", spread(90)), &day(60, 3)).0, &[1.0 / 3.0, 2.0 / 3.0, 0.0]);
        // Slots before the first bucket reach into it.
        near(&slots(&plan("30 23 * * *", spread(120)), &day(30, 4)).0, &[0.25, 0.25, 0.25, 0.0]);
        // Every second, over ten minutes: as many as without.
        near(&slots(&plan("* * * * * *", spread(10)), &day(5, 12)).0, &[300.0; 12]);
        // Over more than all buckets.
        let (far, asked) = slots(&plan("* * * * * *", spread(600)), &day(5, 12));
        near(&far, &[300.0; 12]);
        assert!(asked < 10);
    }

    #[test]
    fn no_more_slots_are_planned_than_are_left() {
        let limited = Plan { left: Some(70), ..plan("* * * * *", |_| {}) };
        assert_eq!(slots(&limited, &day(60, 3)).0, [60.0, 10.0, 0.0]);
        // Some of them come before the first bucket.
        let later =
            Buckets { from: at("2026-03-01T01:00:00Z"), now: at("2026-02-28T23:59:59.999Z"), ..day(60, 2) };
        assert_eq!(slots(&limited, &later).0, [10.0, 0.0]);
        let few = Plan { left: Some(2), ..plan("0 */6 * * *", |_| {}) };
        assert_eq!(slots(&few, &day(360, 4)).0, [1.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_period_from_completion_is_counted_as_if_runs_took_no_time() {
        let drip = Plan { from_completion: Some(600_000), ..plan("@every 10m from completion", |_| {}) };
        assert_eq!(slots(&drip, &day(60, 2)), (vec![6.0, 6.0], 0));
    }
}
