//! How many runs may go on at once, and how fast: limits that runs share.
//!
//! A job has limits of its own, an administrator's rules are for many jobs. Each gives every key it counts apart a
//! [`Gate`](super::gate::Gate). Which keys a run has is decided when it is born; it passes the gates of all of them before it may be claimed,
//! narrow ones first, and gives its permits back when it ends. Promise: keys are passed in one order by all, so that nobody
//! waits in a circle.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::breaker::{self, Breaker};
pub use super::gate::{Allowance, Rate};
use super::template::Template;
use crate::id::{JobId, ShardId, TenantId};
use crate::job::Job;

/// A run has at most so many keys: each costs a row at its birth and its end.
pub const KEYS_MAX: usize = 10;

/// So many of them are of administrators' rules; a job has two of its own, and there may be two breakers.
pub const RULES_MAX: usize = KEYS_MAX - 4;

/// How many runs of a job, or of a key, may go on at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// So many.
    pub max: NonZeroU32,
    /// What is counted apart.
    pub key: Option<Template>,
    /// With whose runs they are counted together.
    pub across: Across,
    /// A run that waits for its next attempt keeps its permit, so that none overtakes it.
    pub holds_retries: bool,
}

/// How fast runs of a job, or of a key, may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// So fast. Every attempt that was not held takes a token.
    pub rate: Rate,
    /// What is counted apart.
    pub key: Option<Template>,
    /// With whose runs they are counted together.
    pub across: Across,
}

/// With whose runs a job's own limit counts together: those that have such a limit too, and the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Across {
    /// The job's alone.
    #[default]
    Job,
    /// All of the tenant's of the job's type.
    Kind,
    /// All of the tenant's in the job's queue.
    Queue,
    /// All of the tenant's.
    Tenant,
}

impl Across {
    /// All of them, from narrow to wide.
    pub const ALL: [Across; 4] = [Across::Job, Across::Kind, Across::Queue, Across::Tenant];

    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        self.dimension().as_str()
    }

    fn dimension(self) -> Dimension {
        match self {
            Across::Job => Dimension::Job,
            Across::Kind => Dimension::Kind,
            Across::Queue => Dimension::Queue,
            Across::Tenant => Dimension::Tenant,
        }
    }
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

/// An administrator's limit.
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
    /// What is counted apart; nothing: all runs together.
    pub by: Vec<Dimension>,
    /// What is allowed for each.
    pub allowance: Allowance,
    /// A run that waits for its next attempt keeps its permit.
    pub holds_retries: bool,
    /// It is no administrator's: nodes set it and take it away.
    pub breaker: Option<Box<Breaker>>,
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

impl Counted<'_> {
    /// The values that are counted apart, each behind a mark.
    fn text(&self, name: &str, by: impl IntoIterator<Item = Dimension>) -> String {
        let mut text = name.to_string();
        for dimension in by {
            text.push('\u{1}');
            match dimension {
                Dimension::Key => text.push_str(self.key.unwrap_or_default()),
                Dimension::Job => text.push_str(&self.job.to_string()),
                Dimension::Kind => text.push_str(self.kind.unwrap_or_default()),
                Dimension::Queue => text.push_str(self.queue),
                Dimension::Tenant => text.push_str(&self.tenant.0.to_string()),
            }
        }
        text
    }
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

    /// Whether there may be a run that both are for.
    pub fn meets(&self, other: &Rule) -> bool {
        fn agree<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }
        agree(self.tenant, other.tenant)
            && agree(self.queue.as_deref(), other.queue.as_deref())
            && agree(self.kind.as_deref(), other.kind.as_deref())
    }

    /// The key of a run.
    pub fn limited(&self, run: &Counted<'_>) -> Limited {
        let mut by = self.by.clone();
        by.sort_unstable();
        by.dedup();
        let named = [
            self.kind.as_ref().map(|_| Dimension::Kind),
            self.queue.as_ref().map(|_| Dimension::Queue),
            self.tenant.map(|_| Dimension::Tenant),
        ];
        let narrowest = by.iter().copied().chain(named.into_iter().flatten()).min();
        // What it allows may change, its keys not.
        let breadth = breadth(narrowest, false);
        Limited {
            key: Key::of(breadth, &run.text(&self.name, by)),
            breadth,
            holds_retries: self.holds_retries,
            allowed: Allowed::Rule(Arc::clone(&self.name)),
        }
    }
}

/// How narrow a key is. Of two that are as narrow, the one with permits is passed first: who waits for a token keeps its place.
fn breadth(narrowest: Option<Dimension>, is_rate: bool) -> u8 {
    let place = Dimension::ALL.iter().position(|one| Some(*one) == narrowest).unwrap_or(Dimension::ALL.len());
    place as u8 * 2 + u8::from(is_rate)
}

/// The name of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u64);

impl Key {
    /// What a rule and the values that it counts apart hash to. The same key has the same breadth always.
    fn of(breadth: u8, text: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"punctual limit v1");
        hasher.update(&[breadth]);
        hasher.update(text.as_bytes());
        let mut key = [0; 8];
        key.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        Key(u64::from_be_bytes(key))
    }

    /// Of a breaker: of the narrowest, and smaller than almost all others, so that it is passed before them.
    pub(super) fn first(text: &str) -> Self {
        Key(Key::of(0, text).0 >> 16)
    }

    /// The shard whose owner looks after it.
    pub fn shard(self, shards: u16) -> ShardId {
        ShardId((self.0 % u64::from(shards.max(1))) as u16)
    }
}

/// What a run is counted as by one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The gate it passes.
    pub key: Key,
    /// How narrow it is; narrow ones are passed first.
    pub breadth: u8,
    /// It keeps its permit while it waits for its next attempt.
    pub holds_retries: bool,
    /// What is allowed there.
    pub allowed: Allowed,
}

/// What is allowed for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// What the job said when the run was born.
    Own(Allowance),
    /// What the rule of that name says when the gate is passed.
    Rule(Arc<str>),
}

impl Limited {
    /// Whether there is a permit to give back. A rule may get a maximum at any time, so that all who passed it are counted.
    pub fn has_permit(&self) -> bool {
        match &self.allowed {
            Allowed::Own(allowance) => allowance.max.is_some(),
            Allowed::Rule(_) => true,
        }
    }
}

impl Limited {
    /// The name of the breaker that it is of, if it is one: see [`breaker::Of::name`].
    pub fn breaker(&self) -> Option<&str> {
        match &self.allowed {
            Allowed::Rule(name) => name.strip_prefix(breaker::PREFIX),
            Allowed::Own(_) => None,
        }
    }
}

/// All that limits a run, in the order in which it passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits(Option<Arc<[Limited]>>);

impl Limits {
    /// No limits.
    pub const NONE: Limits = Limits(None);

    /// These, in whatever order.
    pub fn new(mut limits: Vec<Limited>) -> Self {
        limits.sort_by_key(|limited| (limited.breadth, limited.key));
        limits.dedup_by_key(|limited| limited.key);
        limits.truncate(KEYS_MAX);
        Limits((!limits.is_empty()).then(|| limits.into()))
    }

    /// The same with these breakers instead of those that were among them.
    pub fn with_breakers<'b>(&self, breakers: impl IntoIterator<Item = &'b Breaker>) -> Self {
        let others = self.all().iter().filter(|limited| limited.breaker().is_none()).cloned();
        Limits::new(others.chain(breakers.into_iter().map(Breaker::limited)).collect())
    }

    /// Whether a breaker is among them.
    pub fn has_breaker(&self, breaker: &Breaker) -> bool {
        let name = breaker.of.name();
        self.all().iter().any(|limited| limited.breaker() == Some(name.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all().len()
    }

    /// All of them.
    pub fn all(&self) -> &[Limited] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Those at which a run holds a permit that has passed so many.
    pub fn permits(&self, passed: u8) -> impl Iterator<Item = &Limited> {
        self.all().iter().take(passed.into()).filter(|limited| limited.has_permit())
    }

    /// How many of those that a run has passed it keeps while it waits for its next attempt: up to the first that it does not.
    /// To keep a wider one would be to wait for a narrow one with it in hand, against the order.
    pub fn kept(&self, passed: u8) -> u8 {
        self.all().iter().take(passed.into()).take_while(|limited| limited.holds_retries).count() as u8
    }
}

/// The names of a job's own limits; no rule has such a name.
const OWN: [&str; 2] = ["\u{2}concurrency", "\u{2}rate"];

/// What limits the runs of a job, with its keys filled in.
pub fn of_job(job: &Job, keys: &Keys, rules: &[Rule]) -> Limits {
    let policies = &job.spec.policies;
    if policies.concurrency.is_none() && policies.rate.is_none() && rules.is_empty() {
        return Limits::NONE;
    }
    let run = Counted {
        job: job.id,
        tenant: job.tenant,
        kind: job.spec.kind.as_deref(),
        queue: &job.spec.queue,
        key: keys.concurrency.as_deref().or(keys.rate.as_deref()),
    };
    let own = |name: &str, key: Option<&str>, across: Across, holds_retries: bool, allowance: Allowance| {
        let run = Counted { key, ..run.clone() };
        let dimensions = [key.map(|_| Dimension::Key), Some(across.dimension())];
        let breadth = breadth(dimensions.into_iter().flatten().min(), allowance.max.is_none());
        let by = [Dimension::Tenant, across.dimension(), Dimension::Key];
        let key = Key::of(breadth, &run.text(name, by));
        Limited { key, breadth, holds_retries, allowed: Allowed::Own(allowance) }
    };
    let concurrency = policies.concurrency.as_ref().map(|one| {
        let allowance = Allowance { max: Some(one.max), rate: None };
        own(OWN[0], keys.concurrency.as_deref(), one.across, one.holds_retries, allowance)
    });
    let rate = policies.rate.as_ref().map(|one| {
        let allowance = Allowance { max: None, rate: Some(one.rate) };
        own(OWN[1], keys.rate.as_deref(), one.across, false, allowance)
    });
    let shared = rules.iter().filter(|rule| rule.is_for(&run)).map(|rule| rule.limited(&run));
    Limits::new(concurrency.into_iter().chain(rate).chain(shared.take(RULES_MAX)).collect())
}

/// A job's keys, filled in; none where it has no template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Of its concurrency.
    pub concurrency: Option<String>,
    /// Of its rate.
    pub rate: Option<String>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use punctual_schedule::Schedule;

    use super::*;
    use crate::id::Version;
    use crate::job::{JobState, Spec, Target};

    fn number(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).unwrap()
    }

    fn job(n: u64) -> Job {
        let at = Timestamp::UNIX_EPOCH;
        Job {
            id: JobId::new(at, ShardId(3), n),
            tenant: TenantId(4),
            version: Version::FIRST,
            state: JobState::Active,
            spec: Spec::new("job", Schedule::parse("now").unwrap(), Target::Discard),
            created_at: at,
            updated_at: at,
            carried: None,
            changes: Vec::new(),
        }
    }

    fn limited(job: &mut Job, across: Across) {
        let key: Template = "{payload.customer}".parse().unwrap();
        let rate = Rate { limit: number(5), per: Duration::from_secs(1), burst: number(1) };
        let concurrency = Concurrency { max: number(1), key: Some(key), across, holds_retries: true };
        job.spec.policies.concurrency = Some(concurrency);
        job.spec.policies.rate = Some(RateLimit { rate, key: None, across });
    }

    fn rule(name: &str, by: &[Dimension]) -> Rule {
        Rule {
            name: name.into(),
            tenant: None,
            queue: None,
            kind: None,
            by: by.to_vec(),
            allowance: Allowance::default(),
            holds_retries: false,
            breaker: None,
        }
    }

    fn keys(key: &str) -> Keys {
        Keys { concurrency: Some(key.into()), rate: None }
    }

    #[test]
    fn keys_are_apart_where_the_rule_says_and_nowhere_else() {
        let rule = Rule { queue: Some("mail".into()), ..rule("x", &[Dimension::Tenant, Dimension::Key]) };
        let id = |n| JobId::new(Timestamp::UNIX_EPOCH, ShardId(3), n);
        let run = Counted { job: id(7), tenant: TenantId(4), kind: None, queue: "mail", key: Some("acme") };
        assert!(rule.is_for(&run));
        assert!(!rule.is_for(&Counted { queue: "reports", ..run.clone() }));
        assert!(!rule.is_for(&Counted { key: None, ..run.clone() }), "it has nothing to be counted by");
        assert_eq!(rule.limited(&run), rule.limited(&Counted { job: id(8), ..run.clone() }));
        assert_ne!(rule.limited(&run), rule.limited(&Counted { key: Some("other"), ..run.clone() }));
        assert_ne!(rule.limited(&run), rule.limited(&Counted { tenant: TenantId(5), ..run.clone() }));
        let other = Rule { queue: Some("reports".into()), ..rule.clone() };
        assert!(
            !rule.meets(&other) && rule.meets(&rule) && other.meets(&Rule { queue: None, ..rule.clone() })
        );
    }

    #[test]
    fn a_job_shares_its_limits_as_far_as_it_says() {
        for across in Across::ALL {
            let (mut one, mut other) = (job(1), job(2));
            limited(&mut one, across);
            limited(&mut other, across);
            let is_shared = across != Across::Job;
            let limits = of_job(&one, &keys("acme"), &[]);
            assert_eq!(limits.len(), 2);
            assert_eq!(limits == of_job(&other, &keys("acme"), &[]), is_shared, "{across:?}");
            let elsewhere = of_job(&one, &keys("other"), &[]);
            assert_ne!(limits.all()[0], elsewhere.all()[0]);
            assert_eq!(limits.all()[1], elsewhere.all()[1], "its rate has no key");
            other.tenant = TenantId(9);
            assert_ne!(limits, of_job(&other, &keys("acme"), &[]), "tenants share nothing of their own");
        }
        assert_eq!(of_job(&job(1), &Keys::default(), &[]), Limits::NONE);
    }

    #[test]
    fn narrow_ones_are_passed_first_whatever_they_are_called() {
        let mut job = job(1);
        limited(&mut job, Across::Tenant);
        let rules =
            [rule("a", &[]), rule("b", &[Dimension::Queue]), rule("c", &[Dimension::Key, Dimension::Tenant])];
        let limits = of_job(&job, &keys("acme"), &rules);
        let breadths: Vec<u8> = limits.all().iter().map(|limited| limited.breadth).collect();
        assert_eq!(breadths.len(), 5);
        assert!(breadths.is_sorted());
        assert_eq!(limits.all()[4].allowed, Allowed::Rule("a".into()), "all runs together are the widest");
        // Own rates have no permit, rules always.
        assert_eq!(limits.permits(5).count(), 4);
        assert_eq!(limits.permits(0).count(), 0);
    }

    #[test]
    fn a_retry_keeps_its_permits_up_to_the_first_that_does_not_hold() {
        let mut job = job(1);
        limited(&mut job, Across::Job);
        let limits = of_job(&job, &keys("acme"), &[rule("all", &[])]);
        assert_eq!([0, 1, 2, 3].map(|passed| limits.kept(passed)), [0, 1, 1, 1]);
        job.spec.policies.concurrency.as_mut().unwrap().holds_retries = false;
        assert_eq!(of_job(&job, &keys("acme"), &[rule("all", &[])]).kept(3), 0);
    }

    #[test]
    fn a_key_is_pinned() {
        // Gates are stored under it.
        assert_eq!(Key::of(3, "x"), Key::of(3, "x"));
        assert_ne!(Key::of(3, "x"), Key::of(4, "x"));
        assert_eq!(Key(17).shard(4), ShardId(1));
    }
}
