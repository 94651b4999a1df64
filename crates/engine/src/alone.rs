//! Tries suspects alone: runs that were lost with their worker more than once, one of which may be what the workers died of.
//!
//! Runs with every claim while such runs wait; they wait in lines of their own, which nothing else takes from. Promise: a worker is given at most one
//! of them at a time, whichever nodes it asks, and the workers of this process count as one, because they die together. So whoever was lost beside
//! the cause is not lost with it again, and only the cause comes to its cap. They are the first to be given room, of which each takes one.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_domain::id::WorkerId;
use punctual_domain::work::Leased;
use punctual_domain::{Labels, Run};
use punctual_store::{Claim, Shards};

use crate::desk::Taken;
use crate::engine::Engine;
use crate::error::Error;
use crate::fire::Room;

/// Of one pass, at most so many: others have their turn.
const BATCH: usize = 1_000;

/// What this node knows of suspects. Promise: none but speed; what is not so is found when it is looked again, or when one was claimed.
#[derive(Debug, Default)]
pub(crate) struct Suspects(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// What those require that wait.
    waiting: BTreeSet<Labels>,
    /// Who has one.
    holders: HashSet<WorkerId>,
    /// Kinds of workers for which there was none since it was looked.
    in_vain: HashSet<Kind>,
}

/// Workers that claim with the same labels from the same queues.
type Kind = (Arc<[Arc<str>]>, Labels);

impl Suspects {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any wait.
    pub(crate) fn wait(&self) -> bool {
        !self.known().waiting.is_empty()
    }

    /// An attempt of one is over, or of a run that has become one. Says whether others may have what its worker has given up.
    pub(crate) fn over(&self, worker: WorkerId, before: &Run, run: &Run) -> bool {
        if !before.requires.are_alone() && !run.requires.are_alone() {
            return false; // The usual case.
        }
        let mut known = self.known();
        known.in_vain.clear();
        if before.requires.are_alone() {
            known.holders.remove(&worker);
        }
        if !run.state.is_ended() && run.requires.are_alone() {
            known.waiting.insert(run.requires.clone());
        }
        !known.waiting.is_empty()
    }

    /// It was looked what waits.
    fn seen(&self, waiting: BTreeSet<Labels>) {
        let mut known = self.known();
        known.waiting = waiting;
        known.in_vain.clear();
    }

    fn seen_holders(&self, holders: &[WorkerId]) {
        self.known().holders = holders.iter().copied().collect();
    }

    fn hold(&self, worker: WorkerId) {
        self.known().holders.insert(worker);
    }

    fn missed(&self, room: &Room, labels: Labels) {
        self.known().in_vain.insert((Arc::clone(&room.queues), labels));
    }
}

impl Known {
    /// What a worker claims with, if one may wait that is for it: a part that is for this worker alone, or else any.
    fn labels_for(&self, room: &Room) -> Option<Labels> {
        let is_for = |labels: &Labels| {
            self.waiting.iter().any(|required| labels.meet(required))
                && !self.in_vain.contains(&(Arc::clone(&room.queues), labels.clone()))
        };
        [room.labels.of_worker(room.worker).alone(), room.labels.alone()].into_iter().find(is_for)
    }
}

impl Engine {
    /// Notes what was seen to wait, and who has one.
    pub(crate) async fn note_suspects(&self, waiting: &[Labels]) -> Result<(), Error> {
        let waiting: BTreeSet<Labels> =
            waiting.iter().filter(|required| required.are_alone()).cloned().collect();
        if !waiting.is_empty() {
            self.suspects.seen_holders(&self.store.suspected().await?);
        }
        self.suspects.seen(waiting);
        Ok(())
    }

    /// Claims suspects, for workers that have none.
    pub(crate) async fn claim_alone(&self) -> Result<(), Error> {
        if !self.suspects.wait() {
            return Ok(());
        }
        let mut has_looked = false;
        for _ in 0..BATCH {
            let Some((taken, labels)) = self.take_for_suspect() else { break };
            // Who has one may have it from another node, or from a claim whose answer was lost.
            if !has_looked {
                has_looked = true;
                let holders = self.store.suspected().await?;
                self.suspects.seen_holders(&holders);
                if self.count(&holders, taken.room.worker) > 0 {
                    continue;
                }
            }
            self.claim_suspect(taken, labels).await?;
        }
        Ok(())
    }

    /// Room for one attempt, of a worker that may have a suspect, and what it claims with.
    fn take_for_suspect(&self) -> Option<(Taken<'_>, Labels)> {
        let known = self.suspects.known();
        let is_own = |worker: WorkerId| self.desk.is_seated(worker);
        let own_has_one = known.holders.iter().any(|holder| is_own(*holder));
        let may_have = |room: &Room| {
            let has_one = match room.labels.are_pulling() {
                true => known.holders.contains(&room.worker),
                false => own_has_one,
            };
            !has_one && known.labels_for(room).is_some()
        };
        let taken = self.desk.take_one(may_have)?;
        let labels = known.labels_for(&taken.room)?;
        Some((taken, labels))
    }

    /// How many of these are with a worker, or with those that die with it.
    fn count(&self, holders: &[WorkerId], worker: WorkerId) -> usize {
        let is_own = self.desk.is_seated(worker);
        let dies_with = |holder: &&WorkerId| **holder == worker || is_own && self.desk.is_seated(**holder);
        holders.iter().filter(dies_with).count()
    }

    /// Claims one suspect with this room, and gives it to whom the room is of.
    async fn claim_suspect(&self, taken: Taken<'_>, labels: Labels) -> Result<(), Error> {
        let room = &taken.room;
        let (worker, queues) = (room.worker, room.queues.to_vec());
        let claim = Claim { worker, queues, labels: labels.clone(), shards: Shards::All, limit: 1 };
        let (leased, late) = self.claim_with(claim).await?;
        if leased.is_empty() {
            if late.is_empty() {
                self.suspects.missed(room, labels);
            }
            drop(taken);
            self.end_late(late).await?;
            return Ok(());
        }
        self.suspects.hold(worker);
        // Another node may have given this worker one at the same time. Whoever comes second sees both, because each looks after its own is
        // committed; if both do, both go back.
        match self.store.suspected().await {
            Ok(holders) if self.count(&holders, worker) <= 1 => self.give_suspect(taken, leased).await,
            answer => {
                drop(taken);
                self.give_back(worker, leased).await;
                // Giving back was the end of an attempt; but somebody else's is still there.
                self.suspects.hold(worker);
                answer?;
            }
        }
        Ok(())
    }

    async fn give_suspect(&self, taken: Taken<'_>, leased: Vec<Leased>) {
        if taken.room.labels.are_pulling() {
            self.metrics.claimed.inc_by(leased.len() as u64);
            taken.give(leased);
        } else {
            self.give_own(&taken.into_room(), leased).await;
        }
    }
}
