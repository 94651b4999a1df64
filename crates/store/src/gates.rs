//! Gates, kept in memory: for stores that have one writer.
//!
//! The store keeps the lines, in which runs wait; here is how many hold a permit, how many wait, and when a line goes on by itself.
//! A run goes through in the commit in which its time comes, and what it held goes to the next in the commit that takes it
//! back: [`Gates::touched`] are the gates to look at before the commit. Promise: who arrives at a gate where somebody
//! waits stands behind them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::policy::gate::{Closed, Gate};
use punctual_domain::policy::limit::{Allowance, Allowed, Key, Limited, Rule};
use punctual_domain::run::Run;

use crate::verbs::{RuleChange, Shards};

/// So many runs go on in one commit at most; a line that would go on further is looked at again at once.
pub const GO_ON_MAX: usize = 1_000;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Gates {
    rules: BTreeMap<Arc<str>, Rule>,
    gates: HashMap<Key, Passage>,
    /// Gates whose line goes on at a time.
    timers: BTreeSet<(Timestamp, Key)>,
    /// Gates at which something came back, or somebody left.
    touched: Vec<Key>,
}

/// A gate with its line.
#[derive(Clone, Debug, Default)]
struct Passage {
    gate: Gate,
    /// How many stand in its line.
    waiting: u64,
    /// When it is looked at.
    next_at: Option<Timestamp>,
    /// The rule it is of, if an administrator set it.
    rule: Option<Arc<str>>,
}

impl Gates {
    /// All rules, by name.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.values()
    }

    /// Changes a rule. The lines of its gates are looked at.
    pub fn change_rule(&mut self, change: RuleChange, now: Timestamp) {
        let RuleChange { name, rule } = change;
        let of_rule = |(_, passage): &(&Key, &Passage)| passage.waiting > 0 && passage.rule.as_ref() == Some(&name);
        let waiting: Vec<Key> = self.gates.iter().filter(of_rule).map(|(key, _)| *key).collect();
        match rule {
            Some(rule) => self.rules.insert(name, rule),
            None => self.rules.remove(&name),
        };
        waiting.into_iter().for_each(|key| self.look_at(key, now));
    }

    /// A run whose time has come passes as many gates as are open. Returns whether it passed all of them; else it stands
    /// in the line of the next.
    pub fn arrive(&mut self, run: &mut Run, now: Timestamp) -> bool {
        let mut gates = run.passed;
        let limits = run.limits.clone();
        for limited in &limits.all()[usize::from(gates).min(limits.len())..] {
            let passage = self.gates.entry(limited.key).or_default();
            let closed = match passage.waiting {
                0 => self.pass(limited, now),
                _ => Err(None),
            };
            if let Err(until) = closed {
                self.stand(limited, until);
                break;
            }
            gates += 1;
        }
        // It is pending, its time has come, and it goes on.
        let _ = lifecycle::apply(run, Event::Passed { gates, at: now });
        run.has_passed()
    }

    /// The first in the line of a gate passes it and goes on as far as it can. Returns whether it left this line.
    pub fn go_on(&mut self, run: &mut Run, now: Timestamp) -> bool {
        let Some(limited) = run.next_limit().cloned() else { return true };
        if let Err(until) = self.pass(&limited, now) {
            if let Some(until) = until {
                self.look_at(limited.key, until);
            }
            return false;
        }
        self.unstand(limited.key);
        let gates = run.passed + 1;
        let _ = lifecycle::apply(run, Event::Passed { gates, at: now });
        if !run.has_passed() {
            self.arrive(run, now);
        }
        true
    }

    /// A run leaves the line that it stands in.
    pub fn leave(&mut self, run: &Run) {
        if run.is_limited()
            && let Some(limited) = run.next_limit()
        {
            self.unstand(limited.key);
            // Who was behind it may pass where it could not.
            self.touched.push(limited.key);
        }
    }

    /// Takes back the permits that a run had and has not any more.
    pub fn give_back(&mut self, before: &Run, after: &Run) {
        for limited in before.permits() {
            if after.permits().any(|kept| kept.key == limited.key) {
                continue;
            }
            if let Some(passage) = self.gates.get_mut(&limited.key) {
                passage.gate.give_back();
            }
            self.touched.push(limited.key);
        }
    }

    /// The next gate whose line may go on.
    pub fn touched(&mut self) -> Option<Key> {
        loop {
            let key = self.touched.pop()?;
            if self.gates.get(&key).is_some_and(|passage| passage.waiting > 0) {
                return Some(key);
            }
            // Most gates are gone with their last permit.
            if let Some(passage) = self.gates.get(&key)
                && passage.gate == Gate::default()
            {
                self.gates.remove(&key);
            }
        }
    }

    /// Touches the gates of these shards whose time has come.
    pub fn ripen(&mut self, shards: &Shards, count: u16, now: Timestamp) {
        let is_ripe = |(at, _): &&(Timestamp, Key)| *at <= now;
        let is_ours = |(_, key): &&(Timestamp, Key)| shards.contains(key.shard(count));
        let ripe: Vec<_> = self.timers.iter().take_while(is_ripe).filter(is_ours).copied().collect();
        for (at, key) in ripe {
            self.timers.remove(&(at, key));
            if let Some(passage) = self.gates.get_mut(&key) {
                passage.next_at = None;
            }
            self.touched.push(key);
        }
    }

    /// When the first gate of these shards is to be looked at.
    pub fn next_at(&self, shards: &Shards, count: u16) -> Option<Timestamp> {
        self.timers.iter().find(|(_, key)| shards.contains(key.shard(count))).map(|(at, _)| *at)
    }

    /// A gate is looked at then, or before.
    pub fn look_at(&mut self, key: Key, at: Timestamp) {
        let passage = self.gates.entry(key).or_default();
        if passage.next_at.is_some_and(|known| known <= at) {
            return;
        }
        if let Some(known) = passage.next_at.replace(at) {
            self.timers.remove(&(known, key));
        }
        self.timers.insert((at, key));
    }

    /// A run as it is found when the store is opened: it holds what it holds, and stands where it stands. Returns whether it stands in
    /// a line.
    pub fn recall(&mut self, run: &Run, now: Timestamp) -> bool {
        for limited in run.permits() {
            self.named(limited).gate.held += 1;
        }
        let Some(limited) = run.next_limit().filter(|_| run.is_limited()).cloned() else { return false };
        self.stand(&limited, Some(now));
        true
    }

    /// A rule as it is found when the store is opened.
    pub fn recall_rule(&mut self, rule: Rule) {
        self.rules.insert(Arc::clone(&rule.name), rule);
    }

    /// How full a bucket is, as it is found when the store is opened.
    pub fn recall_tokens(&mut self, key: Key, full_at: i64) {
        self.gates.entry(key).or_default().gate.full_at = full_at;
    }

    /// When the bucket of a key is full, in nanoseconds since 1970.
    pub fn full_at(&self, key: Key) -> i64 {
        self.gates.get(&key).map_or(0, |passage| passage.gate.full_at)
    }

    /// Forgets gates that say nothing, and returns the keys of those that had given tokens.
    pub fn forget_idle(&mut self, now: Timestamp) -> Vec<Key> {
        let mut forgotten = Vec::new();
        self.gates.retain(|key, passage| {
            let is_kept = passage.waiting > 0 || passage.next_at.is_some() || !passage.gate.is_idle(now);
            if !is_kept && passage.gate.full_at != 0 {
                forgotten.push(*key);
            }
            is_kept
        });
        forgotten
    }

    /// How many hold a permit of a key and how many wait for one.
    pub fn counts(&self, key: Key) -> (u32, u64) {
        self.gates.get(&key).map_or((0, 0), |passage| (passage.gate.held, passage.waiting))
    }

    fn allowance(&self, limited: &Limited) -> Allowance {
        match &limited.allowed {
            Allowed::Own(allowance) => *allowance,
            // A rule that is gone allows everything.
            Allowed::Rule(name) => self.rules.get(name).map(|rule| rule.allowance).unwrap_or_default(),
        }
    }

    fn pass(&mut self, limited: &Limited, now: Timestamp) -> Result<(), Option<Timestamp>> {
        let allowance = self.allowance(limited);
        let passed = self.named(limited).gate.pass(&allowance, limited.has_permit(), now);
        passed.map_err(|closed| match closed {
            Closed::Full => None,
            Closed::Until(at) => Some(at),
        })
    }

    fn stand(&mut self, limited: &Limited, until: Option<Timestamp>) {
        self.named(limited).waiting += 1;
        if let Some(at) = until {
            self.look_at(limited.key, at);
        }
    }

    fn unstand(&mut self, key: Key) {
        if let Some(passage) = self.gates.get_mut(&key) {
            passage.waiting = passage.waiting.saturating_sub(1);
        }
    }

    fn named(&mut self, limited: &Limited) -> &mut Passage {
        let passage = self.gates.entry(limited.key).or_default();
        if let Allowed::Rule(name) = &limited.allowed
            && passage.rule.is_none()
        {
            passage.rule = Some(Arc::clone(name));
        }
        passage
    }
}
