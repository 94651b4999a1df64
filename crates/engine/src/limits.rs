//! Limits: which keys runs are born with, administrators' rules, and lines that go on with time.
//!
//! A run's limits are decided where it is born, from its job and the rules as this node knows them. The duty keeps those no older
//! than a second where others may change them, and lets runs go on to whom something has come with time: a token, a changed rule, their own
//! time. What ends a run lets the next go on in its own commit, without this. Promise: a change of a rule counts within two
//! seconds on every node; a line whose time has come goes on then, and nobody asks about it before.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::TenantId;
use punctual_domain::job::Job;
use punctual_domain::policy::limit::{self, Keys, Limits, Rule};
use punctual_domain::policy::template::{Filled, Place, Template};
use punctual_domain::run::{Run, RunState};
use punctual_store::{Advanced, RuleChange, Shards};
use serde_json::Value;
use tokio::sync::{Notify, watch};

use crate::audit::{Done, Thing};
use crate::engine::Engine;
use crate::error::Error;
use crate::fire::Epochs;
use crate::pass::{Duty, Next};

/// Runs of one pass: they share a commit, which others wait for.
const BATCH: usize = 1_000;

/// How often rules that others set are read, and lines that others made are looked for.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// What this node knows of limits.
#[derive(Debug, Default)]
pub(crate) struct Known {
    rules: Mutex<Arc<[Rule]>>,
    /// Held while they are read, so that who read them last is who says what they are.
    reading: tokio::sync::Mutex<()>,
    /// Whoever changed them went away before they were read: how often the duty is to read them.
    unread: AtomicU8,
    /// A run of this node waits for a limit, or for its time before one.
    pub(crate) waits: Arc<Notify>,
    has_waits: AtomicBool,
}

impl Known {
    pub(crate) fn rules(&self) -> Arc<[Rule]> {
        Arc::clone(&self.rules.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, rules: Vec<Rule>) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules.into();
    }
}

impl Engine {
    /// What limits runs of a job that are born now.
    pub(crate) fn limits_of(&self, job: &Job) -> Limits {
        self.limits_with(job, job.spec.payload.as_deref())
    }

    /// What limits a run of a job that is sent this payload.
    pub(crate) fn limits_with(&self, job: &Job, payload: Option<&str>) -> Limits {
        let (rules, breakers) = (self.limits.rules(), self.breakers.of(job));
        let policies = &job.spec.policies;
        let limits = match policies.concurrency.is_none() && policies.rate.is_none() && rules.is_empty() {
            true => Limits::NONE,
            false => limit::of_job(job, &keys(job, payload).0, &rules),
        };
        match breakers.is_empty() {
            true => limits,
            false => limits.with_breakers(breakers.iter().map(Arc::as_ref)),
        }
    }

    /// After a commit: a run that waits for a limit is looked after by this node until the owner of its gate has heard of it.
    pub(crate) fn note_limited(&self, run: &Run) {
        if matches!(run.state, RunState::Pending(_)) && !run.has_passed() && !run.is_behind() {
            self.look_at_limits();
        }
    }

    /// Runs may wait for limits that this node has not heard of.
    pub(crate) fn look_at_limits(&self) {
        self.limits.has_waits.store(true, Ordering::SeqCst);
        self.limits.waits.notify_one();
    }

    /// Reads the rules anew.
    pub async fn read_rules(&self) -> Result<(), Error> {
        let _reading = self.limits.reading.lock().await;
        let rules = self.store.rules().await?;
        let (breakers, rules): (Vec<Rule>, Vec<Rule>) =
            rules.into_iter().partition(|rule| rule.breaker.is_some());
        self.limits.set(rules);
        self.breakers.set(breakers);
        self.metrics.set_breakers(|state| self.breakers.count(state));
        Ok(())
    }

    /// All rules of administrators, by name.
    pub async fn rules(&self) -> Result<Vec<Rule>, Error> {
        let mut rules = self.store.rules().await?;
        rules.retain(|rule| rule.breaker.is_none());
        Ok(rules)
    }

    /// Sets a rule. The answer says whether it is new.
    pub async fn put_rule(&self, rule: Rule) -> Result<bool, Error> {
        let known = self.rules().await?;
        let meeting = known.iter().filter(|other| other.name != rule.name && other.meets(&rule)).count();
        if meeting >= limit::RULES_MAX {
            return Err(Error::TooManyLimits);
        }
        let old = known.iter().find(|other| other.name == rule.name);
        let is_new = old.is_none();
        self.audit_thing(about(&rule, old.map(Thing::Limit), Some(Thing::Limit(&rule)))).await?;
        self.change_rules(vec![RuleChange { name: Arc::clone(&rule.name), rule: Some(rule) }]).await?;
        Ok(is_new)
    }

    /// Takes a rule away. The answer says whether it was there.
    pub async fn delete_rule(&self, name: &str) -> Result<bool, Error> {
        let known = self.rules().await?;
        let old = known.iter().find(|rule| &*rule.name == name);
        let was_there = old.is_some();
        if let Some(old) = old {
            self.audit_thing(about(old, Some(Thing::Limit(old)), None)).await?;
            self.change_rules(vec![RuleChange { name: name.into(), rule: None }]).await?;
        }
        Ok(was_there)
    }

    pub(crate) async fn change_rules(&self, changes: Vec<RuleChange>) -> Result<(), Error> {
        let mut unread = Unread { engine: self, is_read: false };
        self.heard(self.store.put_rules(changes, self.clock.now())).await?;
        self.read_rules().await?;
        unread.is_read = true;
        self.look_at_limits();
        Ok(())
    }

    /// Lets runs go on to whom something has come with time. Call again while it lets any.
    pub async fn advance(&self, shards: &Shards) -> Result<Advanced, Error> {
        let advanced = self.store.advance(shards, self.clock.now(), BATCH).await?;
        if advanced.runs > 0 {
            self.wakes.claimable();
        }
        Ok(advanced)
    }
}

/// Rules that are being changed: if whoever does it goes away in the middle, or fails, the duty reads them.
struct Unread<'a> {
    engine: &'a Engine,
    is_read: bool,
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        if !self.is_read {
            // At once, and again when a write that nobody waits for is surely done.
            self.engine.limits.unread.store(2, Ordering::SeqCst);
            self.engine.look_at_limits();
        }
    }
}

/// A job's keys, filled in for a run that is sent this payload, and the places that name nothing.
pub(crate) fn keys(job: &Job, payload: Option<&str>) -> (Keys, Vec<String>) {
    let policies = &job.spec.policies;
    let concurrency = policies.concurrency.as_ref().and_then(|one| one.key.as_ref());
    let rate = policies.rate.as_ref().and_then(|one| one.key.as_ref());
    // A payload is read only for those who ask for something in it.
    let needs_payload = [concurrency, rate].into_iter().flatten().any(Template::needs_payload);
    let payload: Option<Value> = match needs_payload {
        true => payload.and_then(|text| serde_json::from_str(text).ok()),
        false => None,
    };
    let mut missing = Vec::new();
    let mut fill = |template: Option<&Template>| -> Option<String> {
        let Filled { text, missing: gone } = template?.fill(|place| match place {
            Place::Label(name) => job.spec.labels.get(*name).cloned(),
            Place::Payload(path) => text_at(payload.as_ref()?, path),
        });
        missing.extend(gone);
        Some(text)
    };
    let keys = Keys { concurrency: fill(concurrency), rate: fill(rate) };
    missing.dedup();
    (keys, missing)
}

/// What a payload says at a path: text as it is, other values as they are written.
fn text_at(payload: &Value, path: &[&str]) -> Option<String> {
    let found = path.iter().try_fold(payload, |value, name| match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        value => value.get(name),
    })?;
    match found {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// What is wrong with a job's keys, if anything is.
pub(crate) fn warning(job: &Job) -> Option<String> {
    let (_, missing) = keys(job, job.spec.payload.as_deref());
    (!missing.is_empty()).then(|| {
        let places: Vec<String> = missing.iter().map(|place| format!("`{{{place}}}`")).collect();
        format!(
            "the key of its limits names {}, which is not there: it counts as empty text, together with all others that have none",
            places.join(" and ")
        )
    })
}

/// The duty.
pub(crate) struct Advancing {
    pub(crate) engine: Arc<Engine>,
    pub(crate) epochs: watch::Receiver<Arc<Epochs>>,
    /// Until then this node looks after all gates, because it has made runs wait at some.
    pub(crate) all_until: Option<Timestamp>,
    /// When the rules are read again.
    pub(crate) look_at: Option<Timestamp>,
}

impl Advancing {
    pub(crate) fn new(engine: Arc<Engine>, epochs: watch::Receiver<Arc<Epochs>>) -> Self {
        Advancing { engine, epochs, all_until: None, look_at: None }
    }
}

#[async_trait]
impl Duty for Advancing {
    const NAME: &'static str = "advance";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        let unread = self.engine.limits.unread.load(Ordering::SeqCst);
        let is_shared = self.engine.store.is_shared();
        if self.look_at.is_none_or(|at| (is_shared || unread > 0) && at <= now) {
            self.engine.read_rules().await?;
            self.look_at = Some(now + LOOK_EVERY);
            let read = self.engine.limits.unread.load(Ordering::SeqCst);
            self.engine.limits.unread.store(read.saturating_sub(1), Ordering::SeqCst);
        }
        if self.engine.limits.has_waits.swap(false, Ordering::SeqCst) {
            self.all_until = Some(now + LOOK_EVERY);
        }
        let epochs = Arc::clone(&self.epochs.borrow());
        let shards = match self.all_until.is_some_and(|until| now < until) {
            true => Shards::All,
            false => epochs.shards(self.engine.store.shard_count()),
        };
        let advanced = self.engine.advance(&shards).await?;
        if advanced.runs >= BATCH as u64 {
            return Ok(Next::Now);
        }
        let soonest = now + SignedDuration::from_millis(1);
        let next_at = advanced.next_at.map(|at| at.max(soonest));
        let look_at = (is_shared || unread > 0).then_some(now + LOOK_EVERY);
        Ok([next_at, look_at].into_iter().flatten().min().map_or(Next::Woken, Next::At))
    }
}

/// What is written of a change of a limit: it counts for all, or for its tenant.
fn about<'a>(rule: &'a Rule, before: Option<Thing<'a>>, after: Option<Thing<'a>>) -> Done<'a> {
    let tenant = rule.tenant.unwrap_or(TenantId::NOBODY);
    Done { tenant, kind: "limit", subject: &rule.name, action: None, before, after }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_read_by_its_path() {
        let payload: Value =
            serde_json::from_str(r#"{"a":{"b":"text","n":7,"list":["x",{"y":true}],"no":null}}"#).unwrap();
        for (path, expected) in [
            ("a.b", Some("text")),
            ("a.n", Some("7")),
            ("a.list.0", Some("x")),
            ("a.list.1.y", Some("true")),
            ("a.list.1", Some(r#"{"y":true}"#)),
            ("a.list.2", None),
            ("a.no", None),
            ("a.x", None),
            ("b", None),
        ] {
            let path: Vec<&str> = path.split('.').collect();
            assert_eq!(text_at(&payload, &path).as_deref(), expected, "{path:?}");
        }
    }
}
