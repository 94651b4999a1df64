//! What happens to slots that are reached too late: after downtime, a pause, a jump of the clock.
//!
//! Decided when a due entry is reached. Promise: every slot between the due one and now is either
//! run or in the ledger, none twice; long ranges are counted, not walked.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_schedule::Timetable;

/// The catch-up policy of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatchUp {
    /// One run, for the newest missed slot, if it is not older than the window.
    Latest {
        /// How old a slot may be.
        window: Duration,
    },
    /// No run for missed slots.
    None,
    /// A run for each of the newest `max` missed slots, oldest first, at most `rate` per second.
    All {
        /// How old a slot may be.
        window: Duration,
        /// How many at most.
        max: u32,
        /// How many per second at most.
        rate: u32,
    },
}

impl Default for CatchUp {
    fn default() -> Self {
        CatchUp::Latest { window: Duration::from_secs(3600) }
    }
}

/// Younger slots are simply late, and each runs.
pub const GRACE: SignedDuration = SignedDuration::from_secs(60);

/// What becomes of a due entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Slots that do not run.
    pub missed: Option<Missed>,
    /// The slots to run now, oldest first. More than one only under `all`.
    pub run: Vec<Timestamp>,
    /// The slot that is due next, whatever its time.
    pub next: Option<Timestamp>,
}

/// A range of slots that do not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The first.
    pub from: Timestamp,
    /// The last.
    pub to: Timestamp,
    /// How many.
    pub slots: u64,
}

/// Plans a due slot at `now`. `after` answers what follows a slot: the timetable's `next_after`,
/// with the job's count of fires applied by the caller.
pub fn plan(policy: CatchUp, timetable: &Timetable, due: Timestamp, now: Timestamp) -> Plan {
    let late_from = now.checked_sub(GRACE).unwrap_or(Timestamp::MIN);
    if due >= late_from {
        return Plan { missed: None, run: vec![due], next: timetable.next_after(due) };
    }
    // The old slots are due..late_from; what follows is younger and simply runs.
    let newest = timetable.previous_before(late_from).filter(|slot| *slot >= due).unwrap_or(due);
    let next = timetable.next_after(newest);
    let run = match policy {
        CatchUp::None => Vec::new(),
        CatchUp::Latest { window } => {
            vec![newest].into_iter().filter(|slot| is_within(*slot, window, now)).collect()
        }
        CatchUp::All { window, max, .. } => {
            let mut slots = Vec::new();
            let mut slot = Some(newest);
            while let Some(at) = slot.filter(|at| *at >= due && is_within(*at, window, now)) {
                if slots.len() >= max as usize {
                    break;
                }
                slots.push(at);
                slot = timetable.previous_before(at);
            }
            slots.reverse();
            slots
        }
    };
    let missed_to = match run.first() {
        Some(first) if *first == due => None,
        Some(first) => timetable.previous_before(*first),
        None => Some(newest),
    };
    let missed = missed_to.map(|to| {
        let just_after = to.checked_add(SignedDuration::from_nanos(1)).unwrap_or(Timestamp::MAX);
        Missed { from: due, to, slots: timetable.count(due, just_after).max(1) }
    });
    Plan { missed, run, next }
}

fn is_within(slot: Timestamp, window: Duration, now: Timestamp) -> bool {
    let window = SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX);
    now.duration_since(slot) <= window
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_schedule::{Binding, Schedule, Tzdb};

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T{text}Z").parse().expect("a time")
    }

    fn every_minute() -> Timetable {
        let schedule = Schedule::parse("* * * * *").expect("valid");
        schedule.timetable(&Tzdb::bundled(), &Binding::default()).expect("valid")
    }

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(count * 60)
    }

    #[test]
    fn a_slot_up_to_a_minute_late_simply_runs_under_every_policy() {
        for policy in
            [CatchUp::None, CatchUp::default(), CatchUp::All { window: minutes(60), max: 3, rate: 1 }]
        {
            let plan = plan(policy, &every_minute(), at("12:00:00"), at("12:01:00"));
            assert_eq!(plan, Plan { missed: None, run: vec![at("12:00:00")], next: Some(at("12:01:00")) });
        }
    }

    #[test]
    fn latest_runs_the_newest_old_slot_and_counts_the_others() {
        let plan = plan(CatchUp::default(), &every_minute(), at("10:00:00"), at("12:00:30"));
        assert_eq!(plan.run, [at("11:59:00")]);
        assert_eq!(plan.next, Some(at("12:00:00")), "the young slot runs by itself");
        assert_eq!(plan.missed, Some(Missed { from: at("10:00:00"), to: at("11:58:00"), slots: 119 }));
    }

    #[test]
    fn none_runs_nothing_old() {
        let plan = plan(CatchUp::None, &every_minute(), at("10:00:00"), at("12:00:30"));
        assert_eq!((plan.run.len(), plan.next), (0, Some(at("12:00:00"))));
        assert_eq!(plan.missed, Some(Missed { from: at("10:00:00"), to: at("11:59:00"), slots: 120 }));
    }

    #[test]
    fn all_runs_the_newest_few_oldest_first() {
        let policy = CatchUp::All { window: minutes(180), max: 3, rate: 50 };
        let plan = plan(policy, &every_minute(), at("10:00:00"), at("12:00:30"));
        assert_eq!(plan.run, [at("11:57:00"), at("11:58:00"), at("11:59:00")]);
        assert_eq!(plan.missed, Some(Missed { from: at("10:00:00"), to: at("11:56:00"), slots: 117 }));
    }

    #[test]
    fn the_window_leaves_out_what_is_too_old() {
        let schedule = Schedule::parse("0 10 * * *").expect("valid");
        let daily = schedule.timetable(&Tzdb::bundled(), &Binding::default()).expect("valid");
        let plan = |window| plan(CatchUp::Latest { window }, &daily, at("10:00:00"), at("12:00:30"));
        assert_eq!(plan(minutes(119)).run, []);
        assert_eq!(
            plan(minutes(119)).missed,
            Some(Missed { from: at("10:00:00"), to: at("10:00:00"), slots: 1 })
        );
        assert_eq!(
            plan(minutes(121)),
            Plan { missed: None, run: vec![at("10:00:00")], next: plan(minutes(0)).next }
        );
    }

    #[test]
    fn every_old_slot_is_run_or_counted_exactly_once() {
        let mut rng = fastrand::Rng::with_seed(3);
        let timetable = every_minute();
        for _ in 0..2_000 {
            let due = at("00:00:00") + SignedDuration::from_mins(rng.i64(0..600));
            let now = due + SignedDuration::from_secs(rng.i64(61..40_000));
            let window = minutes(rng.u64(0..900));
            let policy = match rng.u8(..3) {
                0 => CatchUp::None,
                1 => CatchUp::Latest { window },
                _ => CatchUp::All { window, max: rng.u32(1..50), rate: 10 },
            };
            let plan = plan(policy, &timetable, due, now);
            let old = timetable.count(due, now - GRACE);
            let missed = plan.missed.map_or(0, |missed| missed.slots);
            assert_eq!(missed + plan.run.len() as u64, old.max(1), "{policy:?} {due} {now}");
            assert!(plan.run.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(plan.next.is_some_and(|next| next >= now - GRACE));
        }
    }
}
