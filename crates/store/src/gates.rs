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
use punctual_domain::policy::limit::{Allowance, Allowed, Key, Limited, Limits, Rule};
use punctual_domain::run::Run;

use crate::verbs::{RuleChange, Shards};

/// So many runs go on in one commit at most; a line that would go on further is looked at again at once.
pub const GO_ON_MAX: usize = 1_000;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Gates {
    rules: BTreeMap<Arc<str>, Rule>,
    gates: HashMap<Key, Entrance>,
    /// Gates whose line goes on at a time.
    timers: BTreeSet<(Timestamp, Key)>,
    /// Gates at which something came back, or somebody left; narrow ones first, so that who has passed one is in the line of
    /// the next when that is looked at.
    touched: BTreeSet<(u8, Key)>,
    /// Gates that gave tokens, if somebody writes them down.
    spent: Option<Vec<Key>>,
}

/// A gate as a store writes it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Its key.
    pub key: Key,
    /// The rule it is of, if an administrator set it.
    pub rule: Option<Arc<str>>,
    /// How many hold a permit.
    pub held: u32,
    /// How many stand in its line.
    pub waiting: u64,
    /// When its bucket is full, in nanoseconds since 1970.
    pub full_at: i64,
    /// When its line is looked at.
    pub next_at: Option<Timestamp>,
}

/// A gate with its line.
#[derive(Clone, Debug, Default)]
struct Entrance {
    gate: Gate,
    /// How narrow it is.
    breadth: u8,
    /// How many stand in its line.
    waiting: u64,
    /// When it is looked at.
    next_at: Option<Timestamp>,
    /// The rule it is of, if an administrator set it.
    rule: Option<Arc<str>>,
}

impl Gates {
    /// None yet, for a store that writes down what [`Gates::spent`] says.
    pub fn written() -> Self {
        Gates { spent: Some(Vec::new()), ..Gates::default() }
    }

    /// A gate that gave a token, and when its bucket is full.
    pub fn spent(&mut self) -> Option<(Key, i64)> {
        let key = self.spent.as_mut()?.pop()?;
        Some((key, self.gates.get(&key).map_or(0, |entrance| entrance.gate.full_at)))
    }

    /// Whether there is a gate to look at.
    pub fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// All rules, by name.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.values()
    }

    /// Changes a rule. The lines of its gates are looked at.
    pub fn change_rule(&mut self, change: RuleChange, now: Timestamp) {
        let RuleChange { name, rule } = change;
        let of_rule =
            |(_, entrance): &(&Key, &Entrance)| entrance.waiting > 0 && entrance.rule.as_ref() == Some(&name);
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
            let entrance = self.gates.entry(limited.key).or_default();
            let closed = match entrance.waiting {
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

    /// Whether a run with these limits would pass all of its gates now, where nobody waits.
    pub fn are_open(&self, limits: &Limits, now: Timestamp) -> bool {
        limits.all().iter().all(|limited| {
            let entrance = self.gates.get(&limited.key);
            let mut gate = entrance.map(|entrance| entrance.gate).unwrap_or_default();
            entrance.is_none_or(|entrance| entrance.waiting == 0)
                && gate.pass(&self.allowance(limited), limited.has_permit(), now).is_ok()
        })
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
            self.touched.insert((limited.breadth, limited.key));
        }
    }

    /// Takes back the permits that a run had and has not any more.
    pub fn give_back(&mut self, before: &Run, after: &Run) {
        for limited in before.permits() {
            if after.permits().any(|kept| kept.key == limited.key) {
                continue;
            }
            if let Some(entrance) = self.gates.get_mut(&limited.key) {
                entrance.gate.give_back();
            }
            self.touched.insert((limited.breadth, limited.key));
        }
    }

    /// The next gate whose line may go on.
    pub fn touched(&mut self) -> Option<Key> {
        loop {
            let (_, key) = self.touched.pop_first()?;
            if self.gates.get(&key).is_some_and(|entrance| entrance.waiting > 0) {
                return Some(key);
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
            if let Some(entrance) = self.gates.get_mut(&key) {
                entrance.next_at = None;
                self.touched.insert((entrance.breadth, key));
            }
        }
    }

    /// When the first gate of these shards is to be looked at.
    pub fn next_at(&self, shards: &Shards, count: u16) -> Option<Timestamp> {
        self.timers.iter().find(|(_, key)| shards.contains(key.shard(count))).map(|(at, _)| *at)
    }

    /// A gate is looked at then, or before.
    pub fn look_at(&mut self, key: Key, at: Timestamp) {
        let entrance = self.gates.entry(key).or_default();
        if entrance.next_at.is_some_and(|known| known <= at) {
            return;
        }
        if let Some(known) = entrance.next_at.replace(at) {
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

    /// A gate as it was written down.
    pub fn recall_gate(&mut self, passage: Passage) {
        let Passage { key, rule, held, waiting, full_at, next_at } = passage;
        let gate = Gate { held, full_at };
        self.gates.insert(key, Entrance { gate, breadth: 0, waiting, next_at: None, rule });
        if let Some(at) = next_at {
            self.look_at(key, at);
        }
    }

    /// All gates, to be written down.
    pub fn passages(&self) -> impl Iterator<Item = Passage> {
        self.gates.iter().map(|(key, entrance)| Passage {
            key: *key,
            rule: entrance.rule.clone(),
            held: entrance.gate.held,
            waiting: entrance.waiting,
            full_at: entrance.gate.full_at,
            next_at: entrance.next_at,
        })
    }

    /// Gates to look at, whose time has come.
    pub fn touch(&mut self, keys: impl IntoIterator<Item = Key>) {
        for key in keys {
            let Some(entrance) = self.gates.get_mut(&key) else { continue };
            if let Some(at) = entrance.next_at.take() {
                self.timers.remove(&(at, key));
            }
            self.touched.insert((entrance.breadth, key));
        }
    }

    /// A rule as it is found when the store is opened.
    pub fn recall_rule(&mut self, rule: Rule) {
        self.rules.insert(Arc::clone(&rule.name), rule);
    }

    /// How full a bucket is, as it is found when the store is opened.
    pub fn recall_tokens(&mut self, key: Key, full_at: i64) {
        self.gates.entry(key).or_default().gate.full_at = full_at;
    }

    /// Forgets gates that say nothing, and returns the keys of those that had given tokens.
    pub fn forget_idle(&mut self, now: Timestamp) -> Vec<Key> {
        let mut forgotten = Vec::new();
        self.gates.retain(|key, entrance| {
            let is_kept = entrance.waiting > 0 || entrance.next_at.is_some() || !entrance.gate.is_idle(now);
            if !is_kept && entrance.gate.full_at != 0 {
                forgotten.push(*key);
            }
            is_kept
        });
        forgotten
    }

    /// How many hold a permit of a key and how many wait for one.
    pub fn counts(&self, key: Key) -> (u32, u64) {
        self.gates.get(&key).map_or((0, 0), |entrance| (entrance.gate.held, entrance.waiting))
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
        if let (Ok(()), Some(_), Some(spent)) = (passed, allowance.rate, &mut self.spent) {
            spent.push(limited.key);
        }
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
        if let Some(entrance) = self.gates.get_mut(&key) {
            entrance.waiting = entrance.waiting.saturating_sub(1);
        }
    }

    fn named(&mut self, limited: &Limited) -> &mut Entrance {
        let entrance = self.gates.entry(limited.key).or_default();
        entrance.breadth = limited.breadth;
        if let Allowed::Rule(name) = &limited.allowed
            && entrance.rule.is_none()
        {
            entrance.rule = Some(Arc::clone(name));
        }
        entrance
    }
}
