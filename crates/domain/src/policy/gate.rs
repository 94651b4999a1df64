//! A gate: what stands between the runs of a key and the line to be claimed.
//!
//! Stores keep one for each key that is in use, and pass runs through it in the commits that are made anyway. Promise: never
//! more hold a permit than is allowed, and over any stretch of time no more tokens are given than the rate and one burst.

use std::num::NonZeroU32;
use std::time::Duration;

use jiff::Timestamp;

/// What is allowed for a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// So many at once.
    pub max: Option<NonZeroU32>,
    /// So many in a time.
    pub rate: Option<Rate>,
}

/// A bucket of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub limit: NonZeroU32,
    /// In this time.
    pub per: Duration,
    /// How many may come together after a quiet time.
    pub burst: NonZeroU32,
}

impl Rate {
    /// Nanoseconds from one token to the next; at least one.
    fn interval(self) -> i64 {
        let interval = self.per.as_nanos() / u128::from(self.limit.get());
        i64::try_from(interval).unwrap_or(i64::MAX / 4).max(1)
    }

    /// How far ahead of its time a token may be taken.
    fn tolerance(self) -> i64 {
        self.interval().saturating_mul(i64::from(self.burst.get() - 1))
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// How many hold a permit.
    pub held: u32,
    /// When a bucket that is emptied now would be full, in nanoseconds since 1970.
    pub full_at: i64,
}

/// Why a gate lets nobody pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Until somebody gives a permit back, or leaves the line.
    Full,
    /// Until there is a token.
    Until(Timestamp),
}

impl Gate {
    /// Lets one run pass, or says what it waits for. One that `holds` has a permit until it gives it back. A gate that is
    /// full gives no token away.
    pub fn pass(&mut self, allowance: &Allowance, holds: bool, now: Timestamp) -> Result<(), Closed> {
        if allowance.max.is_some_and(|max| self.held >= max.get()) {
            return Err(Closed::Full);
        }
        if let Some(rate) = allowance.rate {
            let now = nanoseconds(now);
            // An empty bucket is full after so long. What it owes beyond that it owes by a slower rate that it had before.
            let filling = rate.interval().saturating_mul(i64::from(rate.burst.get()));
            let full_at = self.full_at.min(now.saturating_add(filling)).max(now);
            let early = full_at.saturating_sub(rate.tolerance());
            if early > now {
                // In whole milliseconds, which is what stores wait for; never before its time.
                let millis = early.div_euclid(1_000_000) + i64::from(early.rem_euclid(1_000_000) > 0);
                return Err(Closed::Until(Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)));
            }
            self.full_at = full_at.saturating_add(rate.interval());
        }
        self.held += u32::from(holds);
        Ok(())
    }

    /// Takes a permit back.
    pub fn give_back(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    /// Whether nothing is known that a new gate would not know.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        self.held == 0 && self.full_at <= nanoseconds(now)
    }
}

fn nanoseconds(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
    }

    fn number(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).unwrap()
    }

    fn at_most(max: u32) -> Allowance {
        Allowance { max: Some(number(max)), rate: None }
    }

    fn rate(limit: u32, per_ms: u64, burst: u32) -> Allowance {
        let per = Duration::from_millis(per_ms);
        Allowance { max: None, rate: Some(Rate { limit: number(limit), per, burst: number(burst) }) }
    }

    #[test]
    fn no_more_hold_a_permit_than_is_allowed() {
        let mut gate = Gate::default();
        assert_eq!(gate.pass(&at_most(2), true, at(0)), Ok(()));
        assert_eq!(gate.pass(&at_most(2), true, at(0)), Ok(()));
        assert_eq!(gate.pass(&at_most(2), true, at(0)), Err(Closed::Full));
        gate.give_back();
        assert_eq!(gate.pass(&at_most(2), true, at(0)), Ok(()));
        // A rule that was made stricter lets those end that hold a permit.
        gate.give_back();
        assert_eq!((gate.held, gate.pass(&at_most(1), true, at(0))), (1, Err(Closed::Full)));
    }

    #[test]
    fn tokens_come_with_time_and_a_burst_after_a_quiet_one() {
        let ten_a_second = rate(10, 1_000, 3);
        let mut gate = Gate::default();
        for _ in 0..3 {
            assert_eq!(gate.pass(&ten_a_second, false, at(0)), Ok(()));
        }
        assert_eq!(gate.pass(&ten_a_second, false, at(0)), Err(Closed::Until(at(100))));
        assert_eq!(gate.pass(&ten_a_second, false, at(100)), Ok(()));
        assert_eq!(gate.pass(&ten_a_second, false, at(100)), Err(Closed::Until(at(200))));
        let passed = (0..5).filter(|_| gate.pass(&ten_a_second, false, at(60_000)).is_ok()).count();
        assert_eq!((passed, gate.held), (3, 0), "a quiet hour saves up no more than a burst");
    }

    #[test]
    fn a_rate_that_was_raised_counts_at_once() {
        let mut gate = Gate::default();
        let (hourly, quick) = (rate(1, 3_600_000, 1), rate(100, 1_000, 1));
        assert_eq!(gate.pass(&hourly, false, at(0)), Ok(()));
        assert_eq!(gate.pass(&hourly, false, at(10)), Err(Closed::Until(at(3_600_000))));
        assert_eq!(gate.pass(&quick, false, at(20)), Err(Closed::Until(at(30))), "a token of the new rate");
        assert_eq!(gate.pass(&quick, false, at(3_600_000)), Ok(()));
        let burst = rate(100, 1_000, 5);
        let mut gate = Gate { full_at: nanoseconds(at(86_400_000)), ..Gate::default() };
        assert_eq!(gate.pass(&burst, false, at(0)), Err(Closed::Until(at(10))), "as from an empty bucket");
    }

    #[test]
    fn over_any_stretch_a_rate_is_kept() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let (limit, burst) = (rng.u32(1..2_000), rng.u32(1..50));
            let allowance = rate(limit, 1_000, burst);
            let (mut gate, mut now, mut passed) = (Gate::default(), at(0), 0_u64);
            let end = at(10_000);
            while now < end {
                match gate.pass(&allowance, false, now) {
                    Ok(()) => passed += 1,
                    Err(Closed::Until(next)) => {
                        now = next.max(now + SignedDuration::from_millis(rng.i64(0..3)));
                    }
                    Err(Closed::Full) => unreachable!("no maximum"),
                }
            }
            let most = u64::from(limit) * 10 + u64::from(burst);
            assert!(passed <= most, "{passed} of {most}");
            // Whoever waits no longer than it has to gets what is there, but for the last milliseconds of each wait.
            assert!(burst < 10 || passed * 100 >= most * 95, "{passed} of {most}");
        }
    }

    #[test]
    fn a_gate_that_is_full_gives_no_token_away() {
        let allowance = Allowance { max: Some(number(1)), ..rate(1, 60_000, 1) };
        let mut gate = Gate::default();
        assert_eq!(gate.pass(&allowance, true, at(0)), Ok(()));
        assert_eq!(gate.pass(&allowance, true, at(60_000)), Err(Closed::Full));
        gate.give_back();
        assert_eq!(gate.pass(&allowance, true, at(60_000)), Ok(()));
        assert!(!gate.is_idle(at(60_000)));
        gate.give_back();
        assert!(gate.is_idle(at(120_000)) && !gate.is_idle(at(119_999)));
    }
}
