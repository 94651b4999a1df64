//! Breakers: a target or a job that fails again and again is left alone, and asked now and then whether it is well.
//!
//! A breaker is a rule of limits that nodes set and take away by themselves, so runs that meet it wait in its line. What a node sees of
//! attempts goes through [`Watch::note`] when they are reported, and what a destination holds of the node's room through [`crowd`] every
//! second. Promise: a breaker opens after so many failures one after the other and not for a single event; while it is open one
//! attempt at a time asks, ever more seldom; it closes in steps, so that what has just come back is not flooded.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::gate::{Allowance, Rate};
use super::limit::{Allowed, Key, Limited, Rule};
use crate::attempt::{Outcome, Report};
use crate::id::JobId;

/// The names of rules that are breakers begin so. No administrator's does: their names have no spaces.
pub const PREFIX: &str = "breaker ";

/// Failures of a destination, one after the other, that open its breaker unless the server is told otherwise.
pub const FAILURES: u32 = 10;

/// Failures of a destination that all come within this time are one event: a restart under load opens nothing.
pub const SPAN: SignedDuration = SignedDuration::from_secs(2);

/// From one probe to the next at first. It doubles with every probe that fails.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// Probes are never further apart.
pub const INTERVAL_MAX: Duration = Duration::from_secs(300);

/// How many may go on at once after a probe succeeded, step by step; after the last the breaker is gone.
pub const STEPS: [u32; 3] = [16, 64, 256];

/// A step in which something succeeded is over after this long, however few came.
const STEP: SignedDuration = SignedDuration::from_secs(2);

/// If nothing is heard of those who may ask for this long, others may.
const STALLED_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// So many may ask at once at the most.
const ASKING_MAX: u32 = 1_024;

/// A crowded target that still hangs is said to after this long, so that nodes that do not call it do not take it for well.
const RENEWED_AFTER: SignedDuration = SignedDuration::from_secs(TOO_LONG as i64);

/// Attempts that are older than this hang, if they are many.
pub const HANGS_AFTER: SignedDuration = SignedDuration::from_secs(5);

/// Over this time answers are counted.
pub const ANSWERS_OF: SignedDuration = SignedDuration::from_secs(10);

/// A destination is crowded if attempts would take longer than this each, at the rate at which it answers.
const TOO_LONG: u64 = 30;

/// However slow a destination is, so many may ask at once.
const CROWDED_MIN: u32 = 8;

/// A worker with less room than this has no shares to divide.
pub const ROOM_MIN: u32 = 64;

/// A breaker that nobody comes to any more is taken away after this long.
pub const IDLE: SignedDuration = SignedDuration::from_hours(24);

/// When a job's own breaker opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfJob {
    /// After so many failures one after the other.
    pub failures: NonZeroU32,
}

/// Whose breaker it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Of {
    /// Of a destination: see [`crate::Target::destination`].
    Destination(Arc<str>),
    /// Of one job.
    Job(JobId),
}

impl Of {
    /// Its name, as in the API: `http api.example.com`, or `job` and an id.
    pub fn name(&self) -> String {
        match self {
            Of::Destination(destination) => destination.to_string(),
            Of::Job(job) => format!("job {job}"),
        }
    }

    /// Whose a name is.
    pub fn named(name: &str) -> Option<Of> {
        match name.strip_prefix("job ") {
            Some(id) => id.parse().ok().map(Of::Job),
            None => (!name.is_empty()).then(|| Of::Destination(name.into())),
        }
    }

    /// The name of its rule.
    pub fn rule_name(&self) -> Arc<str> {
        format!("{PREFIX}{}", self.name()).into()
    }

    /// What it makes of an attempt. A destination fails if it cannot be reached, does not answer, or says that it is
    /// overloaded; any other answer shows that it is there. For a job every failure is one.
    pub fn judge(&self, report: &Report) -> Seen {
        match report.outcome {
            Outcome::Succeeded => Seen::Well,
            Outcome::Cancelled | Outcome::Lost => Seen::Nothing,
            Outcome::Failed | Outcome::TimedOut => match self {
                Of::Job(_) => Seen::Unwell,
                Of::Destination(_) => judge_destination(report),
            },
        }
    }
}

fn judge_destination(report: &Report) -> Seen {
    let code = report.error.as_ref().map_or("", |error| error.code.as_str());
    match (code, report.status) {
        ("dns_failed" | "connect_failed" | "tls_failed" | "connection_closed" | "timed_out", _) => {
            Seen::Unwell
        }
        ("http_status", Some(429 | 502 | 503 | 504)) => Seen::Unwell,
        ("http_status" | "protocol_error" | "function_failed" | "function_panicked", _) => Seen::Well,
        // It was never asked.
        _ => Seen::Nothing,
    }
}

/// What an attempt tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is there.
    Well,
    /// It is not, or has too much to do.
    Unwell,
    /// Nothing about it.
    Nothing,
}

/// A breaker that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// Whose.
    pub of: Of,
    /// Since when.
    pub since: Timestamp,
    /// When its stage last changed.
    pub changed_at: Timestamp,
    /// What it lets pass.
    pub stage: Stage,
    /// What was seen last, for people.
    pub cause: Option<String>,
}

/// What a breaker lets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// One after the other, to ask whether it is well again.
    Open {
        /// So long from one to the next.
        interval: Duration,
        /// So many ask at once: one, and more if those who may ask tell nothing.
        asking: NonZeroU32,
    },
    /// It was well when asked: so many at once, more with each step.
    Widening {
        /// So many.
        max: NonZeroU32,
    },
    /// It does not answer as fast as it is asked: as many at once as it can take.
    Crowded {
        /// So many.
        max: NonZeroU32,
        /// It has not been asked for long enough to know.
        is_guess: bool,
    },
}

impl Stage {
    /// It has just opened.
    pub const OPENED: Stage = Stage::Open { interval: INTERVAL, asking: NonZeroU32::MIN };

    /// The word, as in the API.
    pub fn as_str(&self) -> &'static str {
        match self {
            Stage::Open { .. } => "open",
            Stage::Widening { .. } => "half_open",
            Stage::Crowded { .. } => "crowded",
        }
    }

    /// All words.
    pub const ALL: [&'static str; 3] = ["open", "half_open", "crowded"];

    /// As the allowance of a rule.
    pub fn allowance(&self) -> Allowance {
        match *self {
            Stage::Open { interval, asking } => {
                let rate = Rate { limit: NonZeroU32::MIN, per: interval, burst: NonZeroU32::MIN };
                Allowance { max: Some(asking), rate: Some(rate) }
            }
            Stage::Widening { max } | Stage::Crowded { max, .. } => Allowance { max: Some(max), rate: None },
        }
    }
}

impl Breaker {
    /// If an attempt that fails now is not charged, because it was to find out or was under way: how long its run stands back, so that
    /// the next to ask is another one. What fails may be its own path, and not the whole target.
    pub fn spares(&self, report: &Report) -> Option<Duration> {
        if self.of.judge(report) != Seen::Unwell {
            return None;
        }
        match self.stage {
            Stage::Open { interval, .. } => Some(longer(interval)),
            Stage::Widening { .. } => Some(INTERVAL),
            Stage::Crowded { .. } => None,
        }
    }

    /// At the latest then it is asked again, if anybody waits and nobody is asking; while it is open.
    pub fn asks_by(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Open { interval, .. } => {
                let interval = SignedDuration::try_from(interval).ok()?;
                self.changed_at.checked_add(interval).ok()
            }
            Stage::Widening { .. } | Stage::Crowded { .. } => None,
        }
    }

    /// What a run that meets it is counted as. Its gate comes before all others, so that who waits for it holds nothing.
    pub fn limited(&self) -> Limited {
        let name = self.of.rule_name();
        Limited { key: Key::first(&name), breadth: 0, holds_retries: false, allowed: Allowed::Rule(name) }
    }

    /// As a rule. It is for no run by itself, so that nodes that know nothing of breakers give it to none.
    pub fn rule(self) -> Rule {
        Rule {
            name: self.of.rule_name(),
            tenant: None,
            queue: None,
            kind: Some("\u{2}breaker".into()),
            by: Vec::new(),
            allowance: self.stage.allowance(),
            holds_retries: false,
            breaker: Some(Box::new(self)),
        }
    }
}

/// When a breaker opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// After so many failures one after the other.
    pub failures: NonZeroU32,
    /// If they were not all within this time.
    pub span: SignedDuration,
}

/// What is to be done with a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is set, or goes on to this stage.
    Set(Stage),
    /// It is taken away.
    Close,
}

/// An attempt that was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// What it told.
    pub seen: Seen,
    /// When it started.
    pub started_at: Timestamp,
    /// Its run had passed the breaker: it was a probe.
    pub was_let_through: bool,
}

/// What a node has seen of a destination or a job since it was last well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    failures: u32,
    first_at: Option<Timestamp>,
    /// Successes in the step that began then.
    successes: (Option<Timestamp>, u32),
}

impl Watch {
    /// Whether there is nothing to remember.
    pub fn is_quiet(&self) -> bool {
        *self == Watch::default()
    }

    /// When the first of its failures was.
    pub fn first_at(&self) -> Option<Timestamp> {
        self.first_at
    }

    /// Takes an attempt into account; says what is to be done with the breaker that is `known`.
    pub fn note(
        &mut self,
        known: Option<&Breaker>,
        tried: Tried,
        threshold: Option<Threshold>,
        now: Timestamp,
    ) -> Option<Change> {
        let (Some(threshold), Seen::Well | Seen::Unwell) = (threshold, tried.seen) else {
            // Nobody asks for it any more.
            let is_left = threshold.is_none() && known.is_some();
            return is_left.then_some(Change::Close);
        };
        let is_well = tried.seen == Seen::Well;
        let Some(known) = known else { return self.count(is_well, threshold, now) };
        // What was under way before tells nothing about the time since.
        let is_probe = tried.was_let_through && tried.started_at >= known.changed_at;
        match (known.stage, is_well) {
            (Stage::Open { .. }, true) => Some(Change::Set(widening(STEPS[0]))),
            (Stage::Open { interval, asking }, false) => {
                is_probe.then_some(Change::Set(Stage::Open { interval: longer(interval), asking }))
            }
            (Stage::Widening { .. }, false) => is_probe.then_some(Change::Set(Stage::OPENED)),
            (Stage::Widening { max }, true) => self.widen(max.get(), known.changed_at, now),
            // It was not known whether it answers, and it does: whoever waits need not wait for the next look.
            (Stage::Crowded { is_guess: true, .. }, true) => {
                *self = Watch::default();
                Some(Change::Close)
            }
            (Stage::Crowded { .. }, is_well) => self.count(is_well, threshold, now),
        }
    }

    fn count(&mut self, is_well: bool, threshold: Threshold, now: Timestamp) -> Option<Change> {
        if is_well {
            *self = Watch::default();
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        let first = *self.first_at.get_or_insert(now);
        let opens = self.failures >= threshold.failures.get() && now.duration_since(first) >= threshold.span;
        opens.then_some(Change::Set(Stage::OPENED))
    }

    fn widen(&mut self, max: u32, began: Timestamp, now: Timestamp) -> Option<Change> {
        let before = if self.successes.0 == Some(began) { self.successes.1 } else { 0 };
        self.successes = (Some(began), before + 1);
        if self.successes.1 < max / 2 && now.duration_since(began) < STEP {
            return None;
        }
        *self = Watch::default();
        Some(next_step(max))
    }
}

fn next_step(max: u32) -> Change {
    match STEPS.iter().find(|step| **step > max) {
        Some(more) => Change::Set(widening(*more)),
        None => Change::Close,
    }
}

/// From the next probe to the one after it, if it fails.
fn longer(interval: Duration) -> Duration {
    interval.saturating_mul(2).min(INTERVAL_MAX)
}

/// What is to be done about a breaker whose probes tell nothing. The runs that were let through may wait for something else, such as a
/// worker that nobody starts: others must not wait for them.
pub fn stalled(known: &Breaker, now: Timestamp) -> Option<Change> {
    let since = now.duration_since(known.changed_at);
    match known.stage {
        Stage::Open { interval, asking } => {
            let every = SignedDuration::try_from(interval).unwrap_or(SignedDuration::MAX);
            let patience =
                every.max(STALLED_AFTER).saturating_mul(i32::try_from(asking.get()).unwrap_or(i32::MAX));
            let more = asking.saturating_mul(NonZeroU32::MIN.saturating_add(1));
            let is_stalled = since >= patience && asking.get() < ASKING_MAX;
            is_stalled.then_some(Change::Set(Stage::Open { interval, asking: more }))
        }
        Stage::Widening { max } => (since >= STALLED_AFTER).then(|| next_step(max.get())),
        Stage::Crowded { .. } => None,
    }
}

fn widening(max: u32) -> Stage {
    Stage::Widening { max: NonZeroU32::new(max).unwrap_or(NonZeroU32::MIN) }
}

/// What a destination holds of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Attempts under way.
    pub under_way: u32,
    /// Those of them that are older than [`HANGS_AFTER`].
    pub hanging: u32,
    /// How many it answered within [`ANSWERS_OF`].
    pub answers: u32,
    /// Whether it has answered lately.
    pub is_known: bool,
    /// All attempts that the node has room for.
    pub room: u32,
}

impl Load {
    /// How much of the room it may hold before anybody asks how fast it answers.
    fn share(&self) -> u32 {
        if self.is_known { self.room / 4 } else { self.room / 2 }
    }

    /// Whether attempts under way take less than so many seconds each, at the rate at which it answers.
    fn takes_less_than(&self, seconds: u64) -> bool {
        let per = ANSWERS_OF.as_secs().unsigned_abs();
        u64::from(self.under_way) * per < u64::from(self.answers) * seconds
    }
}

/// What is to be done about a destination that holds much of a node's room, or did.
pub fn crowd(known: Option<&Breaker>, load: &Load, now: Timestamp) -> Option<Change> {
    let per = ANSWERS_OF.as_secs().unsigned_abs();
    let can_take = u32::try_from(u64::from(load.answers) * TOO_LONG / per).unwrap_or(u32::MAX);
    let can_take = can_take.max(CROWDED_MIN);
    let crowded = |max: u32| {
        let max = NonZeroU32::new(max).unwrap_or(NonZeroU32::MIN);
        Some(Change::Set(Stage::Crowded { max, is_guess: false }))
    };
    let hangs = load.hanging > 0 && !load.takes_less_than(TOO_LONG);
    let Some(known) = known else {
        let is_large = load.room >= ROOM_MIN && load.hanging > load.share();
        return if is_large && hangs { crowded(can_take) } else { None };
    };
    let Stage::Crowded { max, is_guess } = known.stage else { return None };
    let since = now.duration_since(known.changed_at);
    if hangs {
        let is_settled = is_guess || since >= ANSWERS_OF;
        return match can_take < max.get() && is_settled {
            true => crowded(can_take),
            false if since >= RENEWED_AFTER => crowded(max.get()),
            false => None,
        };
    }
    if load.under_way == 0 && load.answers == 0 {
        // Nobody asks it from here. Where it still hangs, it was said to not long ago.
        return (since >= SignedDuration::from_secs(2 * TOO_LONG as i64)).then_some(Change::Close);
    }
    if !load.takes_less_than(TOO_LONG) {
        return None;
    }
    let is_plenty = is_guess || max.get() >= load.share() || load.under_way.saturating_mul(2) < max.get();
    match is_plenty {
        true => Some(Change::Close),
        false if since >= STEP => crowded(max.get().saturating_mul(2)),
        false => None,
    }
}

/// How many may go on at once at a destination that is about to be given so many more, if it has not answered any lately and would
/// hold more than half of the room: it may be that it never does.
pub fn guess(load: &Load, more: u32) -> Option<Stage> {
    let half = load.room / 2;
    let is_risky = load.room >= ROOM_MIN && load.answers == 0 && load.under_way.saturating_add(more) > half;
    let max = half.saturating_sub(load.under_way).max(CROWDED_MIN);
    is_risky.then(|| Stage::Crowded { max: NonZeroU32::new(max).unwrap_or(NonZeroU32::MIN), is_guess: true })
}

#[cfg(test)]
mod tests;
