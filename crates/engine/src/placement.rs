//! Keeps this node's share of the shards.
//!
//! Runs every second, and when another node gives a sign. Promise: the node fires only under epochs it holds, and stops
//! by itself before another may take them; shards go to nodes as [`Placement::targets`] says, each from hand to hand while
//! both are alive; a node whose clock is wrong gets none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{ShardId, WorkerId};
use punctual_domain::placement::{Node, Placement};
use punctual_store::{Attendance, Shards};
use tokio::sync::{Mutex, watch};

use crate::engine::Engine;
use crate::error::Error;
use crate::fire::Epochs;
use crate::pass::{Duty, Next};

/// The capacity of a node that keeps up.
pub(crate) const CAPACITY: u32 = 64;

/// A node that cannot keep up goes down to this, and no further: it has to show that it can again.
const CAPACITY_MIN: u32 = 4;

/// A node that was behind for so many passes in a row takes less.
const STRAINED: u32 = 3;

/// A clock that differs more than this from the store's is wrong: its slots would be early or late.
const CLOCK_MAX: SignedDuration = SignedDuration::from_secs(1);

/// A correction that changes by less than this is left as it is.
const CORRECTED_FROM: SignedDuration = SignedDuration::from_millis(20);

/// A pass is made at least this often.
const EVERY: Duration = Duration::from_secs(1);

/// What keeps the shards of one node.
pub(crate) struct Placing {
    engine: Arc<Engine>,
    me: Node,
    lease: Duration,
    epochs: watch::Sender<Arc<Epochs>>,
    /// By how much the clock is corrected.
    corrected: SignedDuration,
    /// Passes in a row in which firing was behind.
    strained: u32,
    /// Whether it gives everything away.
    is_leaving: bool,
}

/// The duty. A node that leaves makes a pass by itself.
#[derive(Clone)]
pub(crate) struct Keeper(Arc<Mutex<Placing>>);

impl Keeper {
    pub(crate) fn new(
        engine: Arc<Engine>,
        me: Node,
        lease: Duration,
        epochs: watch::Sender<Arc<Epochs>>,
    ) -> Self {
        let placing = Placing {
            engine,
            me,
            lease,
            epochs,
            corrected: SignedDuration::ZERO,
            strained: 0,
            is_leaving: false,
        };
        Keeper(Arc::new(Mutex::new(placing)))
    }

    /// Gives every shard to another node, if there is one.
    pub(crate) async fn hand_over_all(&self) -> Result<(), Error> {
        let mut placing = self.0.lock().await;
        placing.is_leaving = true;
        let now = placing.engine.clock.now();
        placing.place(now).await
    }
}

#[async_trait]
impl Duty for Keeper {
    const NAME: &'static str = "placement";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        let mut placing = self.0.lock().await;
        placing.place(now).await?;
        let every = SignedDuration::try_from(EVERY.min(placing.lease / 4));
        Ok(Next::At(now + every.unwrap_or(SignedDuration::from_secs(1))))
    }
}

impl Placing {
    async fn place(&mut self, now: Timestamp) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        self.me.capacity = self.capacity();
        let densities = engine.wakes.densities();
        engine.store.attend(Attendance { node: self.me.clone(), densities }, self.lease, now).await?;
        let (asked, asked_at) = (Instant::now(), engine.clock.now());
        let placement = engine.store.placement(now).await?;
        if engine.store.is_shared() {
            self.compare_clocks(asked_at, asked.elapsed(), placement.at);
        }
        engine.metrics.nodes.set(placement.nodes.len() as i64);
        let mine = placement.shards.iter().filter(|shard| shard.owner == Some(self.me.id));
        engine.wakes.expect_densities(mine.map(|shard| (shard.shard, shard.density)));
        let targets = placement.targets();
        self.give(&placement, &targets, now).await?;
        self.keep(&placement, &targets, now).await
    }

    /// What it can fire, compared to others: less while it is behind, and slowly more again.
    fn capacity(&mut self) -> u32 {
        if self.is_leaving || !self.me.roles.scheduler || self.engine.wakes.has_wrong_clock() {
            return 0;
        }
        let is_behind = self.engine.wakes.is_behind.load(Ordering::Relaxed);
        self.strained = if is_behind { self.strained + 1 } else { 0 };
        match self.me.capacity {
            0 => CAPACITY,
            capacity if self.strained >= STRAINED => {
                self.strained = 0;
                (capacity * 3 / 4).max(CAPACITY_MIN)
            }
            capacity if is_behind => capacity,
            capacity => (capacity + 1).min(CAPACITY),
        }
    }

    /// Says how far the clock is from the store's, which was read between asking and the answer.
    fn compare_clocks(&mut self, asked_at: Timestamp, took: Duration, stores: Timestamp) {
        let half = SignedDuration::try_from(took / 2).unwrap_or_default();
        let ahead = (asked_at + half).duration_since(stores) + self.corrected;
        self.me.clock_ahead = ahead;
        self.engine.metrics.clock_ahead.set(ahead.as_secs_f64());
        let was_wrong = self.engine.wakes.has_wrong_clock();
        let is_wrong = is_wrong(ahead, half).unwrap_or(was_wrong);
        // A wrong clock is corrected, so that what is asked for now is now; rather a little late than early. What the
        // answer's way may explain is no reason to correct it anew.
        if !is_wrong {
            self.corrected = self.engine.clock.correct(SignedDuration::ZERO);
        } else if (self.corrected - ahead).abs() > half + CORRECTED_FROM {
            self.corrected = self.engine.clock.correct(ahead + half);
        }
        let why = is_wrong.then(|| {
            format!(
                "this node's clock is {:.3} s ahead of the database's; it fires nothing",
                ahead.as_secs_f64()
            )
        });
        if let Some(why) = why.as_ref().filter(|_| !was_wrong) {
            tracing::error!("{why}");
        } else if was_wrong && !is_wrong {
            tracing::info!("this node's clock agrees with the database's again");
        }
        self.engine.wakes.set_wrong_clock(why);
    }

    /// Gives shards to those who should have them. What is given is not fired any more, before anybody else does.
    async fn give(
        &mut self,
        placement: &Placement,
        targets: &BTreeMap<ShardId, WorkerId>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let mine = placement.shards.iter().filter(|shard| shard.owner == Some(self.me.id));
        let given: Vec<(ShardId, WorkerId)> = mine
            .filter_map(|shard| Some((shard.shard, *targets.get(&shard.shard)?)))
            .filter(|(_, target)| *target != self.me.id)
            .collect();
        if given.is_empty() {
            return Ok(());
        }
        let rest = self.epochs.borrow().without(given.iter().map(|(shard, _)| *shard));
        self.publish(rest);
        tracing::info!(shards = given.len(), "handing over");
        self.engine.metrics.handed_over.inc_by(given.len() as u64);
        Ok(self.engine.store.hand_over(self.me.id, given, self.lease, now).await?)
    }

    /// Takes what nobody holds and what this node should have, and keeps what it has.
    async fn keep(
        &mut self,
        placement: &Placement,
        targets: &BTreeMap<ShardId, WorkerId>,
        now: Timestamp,
    ) -> Result<(), Error> {
        if self.engine.wakes.has_wrong_clock() {
            // What nobody would take is left to run out.
            self.publish(Epochs::default());
            return Ok(());
        }
        let free = placement.shards.iter().filter(|one| one.owner.is_none() || one.expires_at < placement.at);
        let wanted: Vec<ShardId> =
            free.map(|one| one.shard).filter(|shard| targets.get(shard) == Some(&self.me.id)).collect();
        let sent = Instant::now();
        let before = Arc::clone(&self.epochs.borrow());
        let held = self.engine.store.acquire(self.me.id, Shards::Some(wanted), self.lease, now).await?;
        // The lease counts from when it was asked for; a fifth is for clocks that run at different speeds, and for a
        // batch that is under way.
        let epochs = Epochs::until(held, sent + self.lease * 4 / 5);
        let lost = before.count_missing_from(&epochs);
        if lost > 0 {
            tracing::warn!(shards = lost, "shards went to another node, because the lease had run out");
            self.engine.metrics.lost_shards.inc_by(lost as u64);
        }
        self.engine.metrics.shards.set(epochs.len() as i64);
        self.publish(epochs);
        Ok(())
    }

    fn publish(&self, epochs: Epochs) {
        self.epochs.send_replace(Arc::new(epochs));
    }
}

/// Whether a clock is wrong that seems this far ahead, give or take what the answer's way may explain. Nothing, if that
/// may be the whole of it: then what was known before holds.
fn is_wrong(ahead: SignedDuration, give_or_take: SignedDuration) -> Option<bool> {
    if ahead.abs() - give_or_take > CLOCK_MAX {
        Some(true)
    } else if ahead.abs() + give_or_take <= CLOCK_MAX {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_took_long_says_nothing_new_about_a_clock() {
        let millis = SignedDuration::from_millis;
        for sign in [1, -1] {
            assert_eq!(is_wrong(millis(1_500 * sign), millis(2)), Some(true));
            assert_eq!(is_wrong(millis(1_500 * sign), millis(600)), None);
            assert_eq!(is_wrong(millis(3 * sign), millis(2)), Some(false));
            assert_eq!(is_wrong(millis(300 * sign), millis(2_000)), None);
        }
    }
}
