//! Schedules of the load, and which slots they have.
//!
//! Promise: slots are worked out here by plain arithmetic on milliseconds, from what was asked for. Nothing of the
//! product's own schedule code is used, so that both cannot be wrong in the same way.

use fastrand::Rng;
use serde_json::{Value, json};

/// Milliseconds since 1970.
pub(crate) type Millis = i64;

/// Periods whose mean rate is about one slot in five seconds.
const PERIODS: [i64; 6] = [3, 4, 5, 6, 8, 10];

/// Clocks that differ from UTC by whole minutes: seconds are the same everywhere.
const ZONES: [&str; 6] =
    ["UTC", "Europe/Paris", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Auckland"];

/// When a job is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Once, when it is registered.
    Now,
    /// Once, at a time.
    At(Millis),
    /// Once, so long after it is registered.
    After(i64),
    /// At `anchor + k * period`.
    Every { anchor: Millis, period: i64, writes_anchor: bool },
    /// So long after the end of the run before, from the registration on.
    Completion { period: i64 },
    /// `start + k * period`, k from 0, perhaps so many.
    Interval { start: Millis, period: i64, repeats: Option<i64> },
    /// At these seconds of every minute: `from-59/step`.
    Cron { from: i64, step: i64, zone: &'static str },
}

/// When, and within which bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) when: When,
    /// No slot after.
    pub(crate) end: Option<Millis>,
    pub(crate) max_fires: Option<u64>,
    /// Runs start up to so much after their slot.
    pub(crate) spread: i64,
}

impl Schedule {
    /// One that goes on, until `end` if there is one.
    pub(crate) fn recurring(random: &mut Rng, now: Millis, end: Option<Millis>) -> Self {
        let period = PERIODS[random.usize(..PERIODS.len())] * 1_000;
        let when = match random.u8(..20) {
            0..=7 => {
                let writes_anchor = random.bool();
                let past = now - random.i64(0..100_000);
                // Without an anchor periods are counted from 1970, shifted by a phase.
                let anchor = if writes_anchor { past } else { random.i64(1..period) };
                When::Every { anchor, period, writes_anchor }
            }
            8..=12 => {
                let step = period / 1_000;
                let from = random.i64(0..step.min(3));
                When::Cron { from, step, zone: ZONES[random.usize(..ZONES.len())] }
            }
            13..=17 => {
                let start = now + random.i64(-60_000..20_000);
                let repeats = random.bool().then(|| random.i64(40..2_000));
                When::Interval { start, period, repeats }
            }
            _ => When::Completion { period },
        };
        let is_few = random.u8(..20) == 0;
        let max_fires = is_few.then(|| random.u64(3..40));
        let spread = if random.u8(..30) == 0 && !matches!(when, When::Completion { .. }) { 2_000 } else { 0 };
        Schedule { when, end, max_fires, spread }
    }

    /// One that happens once, within a few seconds.
    pub(crate) fn once(random: &mut Rng, now: Millis) -> Self {
        let when = match random.u8(..3) {
            0 => When::Now,
            1 => When::At(now + random.i64(-500..6_000)),
            _ => When::After(random.i64(100..6_000)),
        };
        Schedule { when, end: None, max_fires: None, spread: 0 }
    }

    /// As the API takes it.
    pub(crate) fn to_json(&self) -> Value {
        let mut wire = match &self.when {
            When::Now => json!({ "now": true }),
            When::At(at) => json!({ "at": time(*at) }),
            When::After(delay) => json!({ "after": duration(*delay) }),
            When::Every { anchor, period, writes_anchor: true } => {
                json!({ "every": duration(*period), "anchor": time(*anchor) })
            }
            When::Every { anchor, period, writes_anchor: false } => {
                json!({ "every": duration(*period), "phase": duration(*anchor) })
            }
            When::Completion { period } => json!({ "every": duration(*period), "from": "completion" }),
            When::Interval { start, period, repeats } => {
                let repeats = repeats.map(|count| count.to_string()).unwrap_or_default();
                json!({ "interval": format!("R{repeats}/{}/{}", time(*start), duration(*period)) })
            }
            When::Cron { from: 0, step, zone } => {
                json!({ "cron": format!("*/{step} * * * * *"), "timezone": zone })
            }
            When::Cron { from, step, zone } => {
                json!({ "cron": format!("{from}-59/{step} * * * * *"), "timezone": zone })
            }
        };
        if let Some(end) = self.end {
            wire["end"] = json!(time(end));
        }
        if let Some(most) = self.max_fires {
            wire["max_fires"] = json!(most);
        }
        if self.spread > 0 {
            wire["spread"] = json!(duration(self.spread));
        }
        wire
    }

    /// The first slot of a job that is registered at `now`.
    pub(crate) fn first(&self, now: Millis) -> Option<Millis> {
        match self.when {
            When::Now | When::Completion { .. } => Some(now),
            // One that has just passed is still taken.
            When::At(at) => Some(at),
            When::After(delay) => Some(now + delay),
            When::Every { .. } | When::Interval { .. } | When::Cron { .. } => self.next_after(now),
        }
    }

    /// The first slot after `t`, where the clock alone decides.
    pub(crate) fn next_after(&self, t: Millis) -> Option<Millis> {
        let slot = match self.when {
            When::Now | When::At(_) | When::After(_) | When::Completion { .. } => return None,
            // A phase is counted from 1970, and nothing is before an anchor.
            When::Every { anchor, period, .. } => (t + period - (t - anchor).rem_euclid(period)).max(anchor),
            When::Interval { start, period, repeats } => {
                let next = t + period - (t - start).rem_euclid(period);
                let next = next.max(start);
                let is_over = repeats.is_some_and(|repeats| (next - start) / period >= repeats);
                if is_over {
                    return None;
                }
                next
            }
            When::Cron { from, step, .. } => {
                let mut second = t.div_euclid(1_000) + 1;
                // A minute always has one.
                while second.rem_euclid(60) < from || (second.rem_euclid(60) - from) % step != 0 {
                    second += 1;
                }
                second * 1_000
            }
        };
        self.end.is_none_or(|end| slot <= end).then_some(slot)
    }
}

/// As RFC 3339.
pub(crate) fn time(at: Millis) -> String {
    jiff::Timestamp::from_millisecond(at).map(|at| at.to_string()).unwrap_or_default()
}

fn duration(millis: i64) -> String {
    match millis % 1_000 {
        0 => format!("PT{}S", millis / 1_000),
        rest => format!("PT{}.{rest:03}S", millis / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(when: When) -> Schedule {
        Schedule { when, end: None, max_fires: None, spread: 0 }
    }

    #[test]
    fn slots_are_strictly_after() {
        let every = of(When::Every { anchor: 500, period: 3_000, writes_anchor: true });
        assert_eq!(every.next_after(500), Some(3_500));
        assert_eq!(every.next_after(499), Some(500));
        assert_eq!(every.next_after(-5_000), Some(500));
        let cron = of(When::Cron { from: 2, step: 25, zone: "UTC" });
        let mut slots = Vec::new();
        let mut at = -1;
        while slots.len() < 5 {
            at = cron.next_after(at).unwrap_or_default();
            slots.push(at / 1_000);
        }
        assert_eq!(slots, [2, 27, 52, 62, 87]);
    }

    #[test]
    fn an_interval_begins_at_its_start_and_ends_after_its_repeats() {
        let two = of(When::Interval { start: 10_000, period: 4_000, repeats: Some(2) });
        assert_eq!(two.next_after(0), Some(10_000));
        assert_eq!(two.next_after(10_000), Some(14_000));
        assert_eq!(two.next_after(14_000), None);
    }

    #[test]
    fn the_end_is_still_a_slot() {
        let ending = Schedule {
            end: Some(6_000),
            ..of(When::Every { anchor: 0, period: 3_000, writes_anchor: true })
        };
        assert_eq!((ending.next_after(3_000), ending.next_after(6_000)), (Some(6_000), None));
    }
}
