//! A worker elsewhere that stays: it keeps its seat for as long as its stream lives, instead of one for each poll.
//!
//! Runs from hello to the end of a stream. Promise: runs are given as soon as they are due, while there is room; what was given and is not
//! delivered goes back; who is asked to stop is known within a second, whichever node was asked; who gives no sign of life for a lease does not stay.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{RunId, TenantId, WorkerId};
use punctual_domain::run::Run;
use punctual_domain::work::{About, Heartbeat, Held, Leased};

use crate::desk::Seat;
use crate::engine::Engine;
use crate::error::Error;
use crate::pull::Reported;

/// How often it is asked who is to stop: half of what is promised, because asking takes its time.
const LOOK_EVERY: SignedDuration = SignedDuration::from_millis(500);

/// A worker that stays.
pub struct Stay {
    engine: Engine,
    tenant: TenantId,
    seat: Seat,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// What it listed last, and was given here since, and has not reported.
    held: HashMap<Held, RunId>,
    /// Of these, what it was given since: a sign of life that was on its way does not list it.
    fresh: HashSet<Held>,
    /// Of these, what it was told to stop.
    told: HashSet<Held>,
    heard_at: Timestamp,
    /// Signs of life that the store has not taken yet: whoever waits for it is not silent.
    beating: usize,
    looked_at: Timestamp,
}

impl Known {
    /// It is given these.
    fn give(&mut self, leased: &[Leased]) {
        for one in leased {
            let held = Held::from(&one.run);
            self.held.insert(held, one.run.id());
            self.fresh.insert(held);
        }
    }

    /// It lists everything it holds. The rest it has reported by another way, or somebody ended it.
    fn list(&mut self, listed: &[(RunId, u32)]) {
        let Known { held, fresh, told, .. } = self;
        held.retain(|known, _| fresh.contains(known));
        fresh.clear();
        let named =
            |(run, attempt): &(RunId, u32)| (Held { sequence: run.sequence(), attempt: *attempt }, *run);
        held.extend(listed.iter().map(named));
        told.retain(|known| held.contains_key(known));
    }

    /// When the worker is taken for dead, if nothing is heard of it.
    fn silent_at(&self, lease: SignedDuration) -> Timestamp {
        match self.beating {
            0 => self.heard_at.saturating_add(lease).unwrap_or(Timestamp::MAX),
            _ => Timestamp::MAX,
        }
    }
}

/// What there is to tell a worker that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Somebody asked these to stop.
    Stop(Vec<(RunId, u32)>),
    /// The node stops, and gives nothing more.
    Drain,
    /// It gave no sign of life for a lease.
    Silent,
}

impl Engine {
    /// Seats a worker that stays. Whatever seat it had is given nothing more: it came again because that one is lost.
    pub async fn stay(&self, worker: WorkerId, about: About) -> Result<Stay, Error> {
        let about = self.admit(worker, about).await?;
        self.desk.expel(worker);
        let now = self.clock.now();
        let known = Known {
            held: HashMap::new(),
            fresh: HashSet::new(),
            told: HashSet::new(),
            heard_at: now,
            beating: 0,
            looked_at: now,
        };
        Ok(Stay {
            engine: self.clone(),
            tenant: about.tenant,
            seat: self.pulling_seat(worker, &about),
            known: Mutex::new(known),
        })
    }
}

impl Stay {
    /// Who stays.
    pub fn worker(&self) -> WorkerId {
        self.seat.worker()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants room for so many more attempts.
    pub fn grant(&self, attempts: usize) {
        self.seat.grant(attempts);
    }

    /// Waits for runs, each leased to the worker. Nothing is lost if nobody waits any more.
    pub async fn next(&self) -> Vec<Leased> {
        let leased = self.seat.next().await;
        self.engine.handed.keep(self.worker(), &leased);
        self.known().give(&leased);
        leased
    }

    /// Takes back all room, and what is being given: it goes to others. Nobody may wait for [`Stay::next`] meanwhile.
    pub async fn leave(&self) {
        let leased = self.seat.collect().await;
        self.give_back(leased).await;
    }

    /// Gives back what could not be delivered.
    pub async fn give_back(&self, leased: Vec<Leased>) {
        {
            let mut known = self.known();
            for one in &leased {
                known.held.remove(&Held::from(&one.run));
            }
        }
        self.engine.give_back(self.worker(), leased).await;
    }

    /// A sign of life came in. It counts from here on, however long the store takes.
    pub fn heard(&self) {
        self.known().heard_at = self.engine.clock.now();
    }

    /// A sign of life, with everything that the worker holds.
    pub async fn heartbeat(
        &self,
        change: impl FnOnce(&mut About) + Send,
        listed: &[(RunId, u32)],
    ) -> Result<Heartbeat, Error> {
        {
            let mut known = self.known();
            known.list(listed);
            known.beating += 1;
        }
        let answer = self.engine.pull_heartbeat(self.tenant, self.worker(), change, listed).await;
        let mut known = self.known();
        known.beating -= 1;
        // The worker says nothing while it waits for the answer.
        known.heard_at = self.engine.clock.now();
        let answer = answer?;
        for gone in &answer.not_held {
            known.held.remove(gone);
            known.told.remove(gone);
        }
        known.told.extend(&answer.cancelled);
        Ok(answer)
    }

    /// Takes reports.
    pub async fn report(&self, reported: Vec<Reported>) -> Result<Vec<Result<Run, Error>>, Error> {
        let named = |one: &Reported| Held { sequence: one.run.sequence(), attempt: one.attempt };
        let over: Vec<Held> = reported.iter().map(named).collect();
        let answers = self.engine.report(self.tenant, self.worker(), reported).await?;
        let mut known = self.known();
        for held in over {
            known.held.remove(&held);
            known.told.remove(&held);
        }
        Ok(answers)
    }

    /// Waits until there is something to tell the worker. After a drain, only what is to stop.
    pub async fn word(&self, is_drained: bool) -> Word {
        let drain = async {
            match is_drained {
                true => std::future::pending().await,
                false => self.engine.drains().await,
            }
        };
        tokio::select! {
            word = self.look() => word,
            () = drain => Word::Drain,
        }
    }

    async fn look(&self) -> Word {
        let lease = SignedDuration::try_from(self.engine.lease()).unwrap_or(SignedDuration::MAX);
        loop {
            let (look_at, silent_at) = {
                let known = self.known();
                (known.looked_at + LOOK_EVERY, known.silent_at(lease))
            };
            self.engine.clock.sleep_until(look_at.min(silent_at)).await;
            let now = self.engine.clock.now();
            if now >= self.known().silent_at(lease) {
                return Word::Silent;
            }
            let held: Vec<Held> = {
                let mut known = self.known();
                known.looked_at = now;
                known.held.keys().filter(|held| !known.told.contains(held)).copied().collect()
            };
            if held.is_empty() {
                continue;
            }
            // A store that does not answer is asked again; the heartbeats' answers say it too.
            let asked = self.engine.store.asked_to_stop(self.worker(), &held).await.unwrap_or_default();
            if !asked.is_empty() {
                let mut known = self.known();
                known.told.extend(&asked);
                let named = |held: &Held| known.held.get(held).map(|run| (*run, held.attempt));
                return Word::Stop(asked.iter().filter_map(named).collect());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_domain::id::Sequence;
    use punctual_domain::id::ShardId;

    use super::*;

    #[test]
    fn what_a_worker_does_not_list_any_more_is_forgotten_unless_it_was_just_given() {
        let now = Timestamp::UNIX_EPOCH;
        let mut known = Known {
            held: HashMap::new(),
            fresh: HashSet::new(),
            told: HashSet::new(),
            heard_at: now,
            beating: 0,
            looked_at: now,
        };
        let [one, two] = [1, 2].map(|n| RunId::new(Sequence::from_i64(n), ShardId(0)));
        let held = |run: RunId| Held { sequence: run.sequence(), attempt: 1 };
        let kept = |known: &Known| {
            let mut kept: Vec<RunId> = known.held.values().copied().collect();
            kept.sort_unstable();
            kept
        };
        known.list(&[(one, 1)]);
        known.told.insert(held(one));
        known.held.insert(held(two), two);
        known.fresh.insert(held(two));
        // It was on its way when the second was given; the first was reported by a call of its own.
        known.list(&[]);
        assert_eq!((kept(&known), known.told.len()), (vec![two], 0));
        known.list(&[(two, 1)]);
        assert_eq!(kept(&known), [two]);
        known.list(&[]);
        assert_eq!(kept(&known), []);
    }
}
