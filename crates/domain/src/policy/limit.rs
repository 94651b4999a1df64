//! How many runs may go on at once, and how fast: limits that runs share.
//!
//! A rule gives every key it counts apart a gate. A run passes the gates of all its keys before it may be claimed, narrow
//! ones first, and gives its permits back when it ends. Promise: never more hold a permit than the rule says, and over any
//! stretch of time no more tokens are given than its rate and one burst.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::id::{JobId, TenantId};

/// A run has at most so many keys: what it holds is in its record, and each costs a row at its birth and its end.
pub const KEYS_MAX: usize = 4;

/// What a rule allows for each of its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// So many at once.
    pub max: Option<NonZeroU32>,
    /// So many in a time.
    pub rate: Option<Rate>,
    /// A run that waits for its next attempt keeps its permit, so that none overtakes it.
    pub holds_retries: bool,
}

/// A bucket of tokens, as the time between two of them.
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

/// What stands between the runs of a key and the line to be claimed.
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
    /// Until somebody gives a permit back.
    Full,
    /// Until there is a token.
    Until(Timestamp),
}

impl Gate {
    /// Lets one run pass, or says what it waits for. A gate that is full gives no token away.
    pub fn pass(&mut self, allowance: &Allowance, now: Timestamp) -> Result<(), Closed> {
        if allowance.max.is_some_and(|max| self.held >= max.get()) {
            return Err(Closed::Full);
        }
        if let Some(rate) = allowance.rate {
            let now = nanoseconds(now);
            let full_at = self.full_at.max(now);
            let early = full_at.saturating_sub(rate.tolerance());
            if early > now {
                // In whole milliseconds, which is what stores wait for; never before its time.
                let millis = early.div_euclid(1_000_000) + i64::from(early.rem_euclid(1_000_000) > 0);
                return Err(Closed::Until(Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)));
            }
            self.full_at = full_at.saturating_add(rate.interval());
        }
        self.held += 1;
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

/// What a rule counts apart, from narrow to wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// What the job's template makes of payload and labels.
    Key,
    /// The job.
    Job,
    /// The job's type.
    Kind,
    /// The queue.
    Queue,
    /// The tenant.
    Tenant,
}

impl Dimension {
    /// All of them, from narrow to wide.
    pub const ALL: [Dimension; 5] =
        [Dimension::Key, Dimension::Job, Dimension::Kind, Dimension::Queue, Dimension::Tenant];

    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Dimension::Key => "key",
            Dimension::Job => "job",
            Dimension::Kind => "type",
            Dimension::Queue => "queue",
            Dimension::Tenant => "tenant",
        }
    }
}

/// What of a run its keys are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted<'a> {
    /// Its job.
    pub job: JobId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its job's type.
    pub kind: Option<&'a str>,
    /// Its queue.
    pub queue: &'a str,
    /// What its job's template made of payload and labels.
    pub key: Option<&'a str>,
}

/// A limit that runs share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name, which its keys are made of.
    pub name: Arc<str>,
    /// Only runs of this tenant.
    pub tenant: Option<TenantId>,
    /// Only runs of this queue.
    pub queue: Option<Arc<str>>,
    /// Only runs of this type.
    pub kind: Option<Arc<str>>,
    /// What is counted apart, narrow to wide; nothing: all runs together.
    pub by: Vec<Dimension>,
    /// What is allowed for each.
    pub allowance: Allowance,
}

impl Rule {
    /// Whether it is for a run.
    pub fn is_for(&self, run: &Counted<'_>) -> bool {
        self.tenant.is_none_or(|tenant| tenant == run.tenant)
            && self.queue.as_deref().is_none_or(|queue| queue == run.queue)
            && self.kind.as_deref().is_none_or(|kind| Some(kind) == run.kind)
            // A run that has no key, or no type, is not one of those that are counted by it.
            && !(self.by.contains(&Dimension::Key) && run.key.is_none())
            && !(self.by.contains(&Dimension::Kind) && run.kind.is_none())
    }

    /// How narrow it is: rules are passed in this order by all, so that nobody waits in a circle.
    pub fn breadth(&self) -> (usize, &str) {
        let narrowest = self.by.iter().min().and_then(|one| Dimension::ALL.iter().position(|all| all == one));
        (narrowest.unwrap_or(Dimension::ALL.len()), &self.name)
    }

    /// What a run of it is counted as: the values that are counted apart, in the order of dimensions, each behind a mark.
    pub fn text(&self, run: &Counted<'_>) -> String {
        let mut by = self.by.clone();
        by.sort_unstable();
        let mut text = self.name.to_string();
        for dimension in by {
            text.push('\u{1}');
            match dimension {
                Dimension::Key => text.push_str(run.key.unwrap_or_default()),
                Dimension::Job => text.push_str(&run.job.to_string()),
                Dimension::Kind => text.push_str(run.kind.unwrap_or_default()),
                Dimension::Queue => text.push_str(run.queue),
                Dimension::Tenant => text.push_str(&run.tenant.0.to_string()),
            }
        }
        text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::id::ShardId;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
    }

    fn number(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).unwrap()
    }

    fn rate(limit: u32, per_ms: u64, burst: u32) -> Allowance {
        let per = Duration::from_millis(per_ms);
        Allowance { rate: Some(Rate { limit: number(limit), per, burst: number(burst) }), ..Allowance::default() }
    }

    #[test]
    fn no_more_hold_a_permit_than_the_rule_says() {
        let two = Allowance { max: Some(number(2)), ..Allowance::default() };
        let mut gate = Gate::default();
        assert_eq!(gate.pass(&two, at(0)), Ok(()));
        assert_eq!(gate.pass(&two, at(0)), Ok(()));
        assert_eq!(gate.pass(&two, at(0)), Err(Closed::Full));
        gate.give_back();
        assert_eq!(gate.pass(&two, at(0)), Ok(()));
        // A rule that was made stricter lets those end that hold a permit.
        let one = Allowance { max: Some(number(1)), ..Allowance::default() };
        gate.give_back();
        assert_eq!((gate.held, gate.pass(&one, at(0))), (1, Err(Closed::Full)));
    }

    #[test]
    fn tokens_come_with_time_and_a_burst_after_a_quiet_one() {
        let ten_a_second = rate(10, 1_000, 3);
        let mut gate = Gate::default();
        for _ in 0..3 {
            assert_eq!(gate.pass(&ten_a_second, at(0)), Ok(()));
        }
        assert_eq!(gate.pass(&ten_a_second, at(0)), Err(Closed::Until(at(100))));
        assert_eq!(gate.pass(&ten_a_second, at(100)), Ok(()));
        assert_eq!(gate.pass(&ten_a_second, at(100)), Err(Closed::Until(at(200))));
        let passed = (0..5).filter(|_| gate.pass(&ten_a_second, at(60_000)).is_ok()).count();
        assert_eq!(passed, 3, "a quiet hour saves up no more than a burst");
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
                match gate.pass(&allowance, now) {
                    Ok(()) => passed += 1,
                    Err(Closed::Until(next)) => now = next.max(now + SignedDuration::from_millis(rng.i64(0..3))),
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
        assert_eq!(gate.pass(&allowance, at(0)), Ok(()));
        assert_eq!(gate.pass(&allowance, at(60_000)), Err(Closed::Full));
        gate.give_back();
        assert_eq!(gate.pass(&allowance, at(60_000)), Ok(()));
        assert!(!gate.is_idle(at(60_000)));
        gate.give_back();
        assert!(gate.is_idle(at(120_000)) && !gate.is_idle(at(119_999)));
    }

    #[test]
    fn keys_are_apart_where_the_rule_says_and_nowhere_else() {
        let rule = Rule {
            name: "per-customer".into(),
            tenant: None,
            queue: Some("mail".into()),
            kind: None,
            by: vec![Dimension::Tenant, Dimension::Key],
            allowance: Allowance::default(),
        };
        let run = Counted {
            job: JobId::new(at(0), ShardId(3), 7),
            tenant: TenantId(4),
            kind: None,
            queue: "mail",
            key: Some("acme"),
        };
        assert!(rule.is_for(&run));
        assert!(!rule.is_for(&Counted { queue: "reports", ..run.clone() }));
        assert!(!rule.is_for(&Counted { key: None, ..run.clone() }), "it has nothing to be counted by");
        let other_job = Counted { job: JobId::new(at(0), ShardId(4), 8), ..run.clone() };
        assert_eq!(rule.text(&run), rule.text(&other_job));
        assert_ne!(rule.text(&run), rule.text(&Counted { key: Some("other"), ..run.clone() }));
        assert_ne!(rule.text(&run), rule.text(&Counted { tenant: TenantId(5), ..run.clone() }));
        let all = Rule { by: Vec::new(), queue: None, name: "all".into(), ..rule.clone() };
        assert!(rule.breadth() < all.breadth());
    }
}
