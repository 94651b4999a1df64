//! The oracle: finds the slots of an expression by walking real time step by step.
//!
//! A window is walked once (its local times come from jiff, one step at a time) and then asked
//! about many expressions. Promise: gaps and overlaps are known only from what the walk saw, a
//! wall clock that jumped between two steps or a wall time seen twice. Transitions are looked up
//! only to choose a step that lands on them.

use crate::support::interpreter::Expression;
use jiff::{Timestamp, civil::Date, tz::TimeZone};

/// What a fixed-time schedule does with a wall time that a jump forward leaves out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gap {
    After,
    Skip,
    Shift,
}

/// Which passes over a repeated wall time a fixed-time schedule takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Overlap {
    First,
    Both,
    Last,
}

/// All nine policies.
pub(crate) const POLICIES: [(Gap, Overlap); 9] = [
    (Gap::After, Overlap::First),
    (Gap::After, Overlap::Both),
    (Gap::After, Overlap::Last),
    (Gap::Skip, Overlap::First),
    (Gap::Skip, Overlap::Both),
    (Gap::Skip, Overlap::Last),
    (Gap::Shift, Overlap::First),
    (Gap::Shift, Overlap::Both),
    (Gap::Shift, Overlap::Last),
];

// A longer jump is a calendar correction: the times it leaves out never existed.
const LONGEST_GAP_S: i64 = 3 * 3600;

// Walked on both sides of the compared part, so that a wall time's other pass is always seen:
// longer than the largest change of offset, 24 hours.
const MARGIN_S: i64 = 26 * 3600;

const DAY_S: i64 = 86_400;

/// A stretch of real time in one zone, walked.
pub(crate) struct Window {
    from: i64,
    to: i64,
    step_s: i64,
    steps: Vec<Step>,
    missing: Vec<Missing>,
    /// The dates that a wall's `day` counts.
    dates: Vec<Date>,
}

/// A reading of the wall clock.
#[derive(Clone, Copy)]
struct Wall {
    day: u16,
    hour: u8,
    minute: u8,
    second: u8,
}

/// One instant of the walk.
struct Step {
    wall: Wall,
    first_pass: bool,
    last_pass: bool,
}

/// A wall time that a jump forward of at most three hours left out.
struct Missing {
    wall: Wall,
    /// The instant of the jump.
    after: i64,
    /// The instant the wall time would have been, had the clock not jumped.
    shifted: i64,
}

impl Window {
    /// Walks `[from, to)` in steps of at most `step_s` seconds, a divisor of a minute.
    pub(crate) fn walk(zone: &TimeZone, from: Timestamp, to: Timestamp, step_s: i64) -> Window {
        let (from, to) = (from.as_second(), to.as_second());
        let (start, end) = (from - MARGIN_S, to + MARGIN_S);
        let step_s = aligned_step(zone, start, end, step_s);
        let instants: Vec<i64> = (start..end).step_by(step_s as usize).collect();
        let locals: Vec<i64> = instants.iter().map(|&at| at + offset(zone, at)).collect();

        let earliest = *locals.iter().min().unwrap();
        let latest = *locals.iter().max().unwrap();
        let first_day = earliest.div_euclid(DAY_S);
        let wall = |local: i64| {
            let second = local.rem_euclid(DAY_S);
            Wall {
                day: (local.div_euclid(DAY_S) - first_day) as u16,
                hour: (second / 3600) as u8,
                minute: (second / 60 % 60) as u8,
                second: (second % 60) as u8,
            }
        };

        let place = |local: i64| ((local - earliest) / step_s) as usize;
        let mut seen = vec![false; place(latest) + 1];
        let mut see = |&local: &i64| !std::mem::replace(&mut seen[place(local)], true);
        let first_pass: Vec<bool> = locals.iter().map(&mut see).collect();
        let mut seen_later = vec![false; seen.len()];
        let mut see = |&local: &i64| !std::mem::replace(&mut seen_later[place(local)], true);
        let mut last_pass: Vec<bool> = locals.iter().rev().map(&mut see).collect();
        last_pass.reverse();

        let mut missing = Vec::new();
        for (instants, locals) in instants.windows(2).zip(locals.windows(2)) {
            let (expected, jumped_to) = (locals[0] + step_s, locals[1]);
            if jumped_to - expected > LONGEST_GAP_S {
                continue;
            }
            let left_out = (expected..jumped_to).step_by(step_s as usize);
            missing.extend(left_out.filter(|&local| !seen[place(local)]).map(|local| Missing {
                wall: wall(local),
                after: instants[1],
                shifted: instants[1] + (local - expected),
            }));
        }

        let steps = locals
            .iter()
            .zip(first_pass)
            .zip(last_pass)
            .map(|((&local, first_pass), last_pass)| Step { wall: wall(local), first_pass, last_pass });
        let dates = first_day..=latest.div_euclid(DAY_S);
        Window {
            from,
            to,
            step_s,
            steps: steps.collect(),
            missing,
            dates: dates.map(|day| date(day * DAY_S)).collect(),
        }
    }

    /// The slots in `[from, to)`, in order.
    pub(crate) fn slots(&self, expression: &Expression, policy: (Gap, Overlap)) -> Vec<Timestamp> {
        let dates: Vec<bool> = self.dates.iter().map(|&d| expression.matches_date(d)).collect();
        let matches = |wall: Wall| {
            expression.minutes[wall.minute as usize]
                && dates[wall.day as usize]
                && expression.hours[wall.hour as usize]
                && expression.seconds[wall.second as usize]
        };
        let (gap, overlap) = policy;
        let mut slots = Vec::new();
        for (index, step) in self.steps.iter().enumerate().filter(|(_, step)| matches(step.wall)) {
            let taken = match overlap {
                Overlap::First => step.first_pass,
                Overlap::Both => true,
                Overlap::Last => step.last_pass,
            };
            if expression.wildcard || taken {
                slots.push(self.from - MARGIN_S + index as i64 * self.step_s);
            }
        }
        if !expression.wildcard {
            let missing = self.missing.iter().filter(|missing| matches(missing.wall));
            slots.extend(missing.filter_map(|missing| match gap {
                Gap::After => Some(missing.after),
                Gap::Skip => None,
                Gap::Shift => Some(missing.shifted),
            }));
            slots.sort_unstable();
            slots.dedup();
        }
        slots.retain(|slot| (self.from..self.to).contains(slot));
        slots.into_iter().map(|slot| Timestamp::from_second(slot).unwrap()).collect()
    }
}

/// The largest step that lands on every whole local minute (or second) and every jump.
///
/// Monrovia kept -00:44:30 until 1972-01-07T00:44:30Z: there it is half a minute.
fn aligned_step(zone: &TimeZone, start: i64, end: i64, step_s: i64) -> i64 {
    let first = Timestamp::from_second(start).unwrap();
    let changes = zone.following(first).map(|change| change.timestamp().as_second());
    changes
        .take_while(|&at| at < end)
        .chain([start])
        .fold(step_s, |step, at| gcd(gcd(step, at), offset(zone, at)))
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

fn offset(zone: &TimeZone, at: i64) -> i64 {
    zone.to_offset(Timestamp::from_second(at).unwrap()).seconds().into()
}

fn date(local: i64) -> Date {
    jiff::tz::Offset::UTC.to_datetime(Timestamp::from_second(local).unwrap()).date()
}
