//! Wake-ups: how a committed write reaches the loops of this node.
//!
//! Used after every commit that makes something due or claimable. Promise: a due entry that was committed behind
//! the horizon's cover is offered to it, or the horizon reads everything anew; being told twice does no harm. A write
//! that may or may not have been committed is looked for by all loops.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use punctual_domain::id::ShardId;
use punctual_store::Due;
use tokio::sync::Notify;

/// More offers than this at a time are forgotten, and the horizon reads the store instead.
const OFFERS_MAX: usize = 50_000;

/// What the steps tell the loops.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    /// Entries later than this are not offered: the horizon will read them. In milliseconds.
    reach: AtomicI64,
    offers: Mutex<Offers>,
    /// The horizon has something to look at.
    pub(crate) due: Notify,
    /// A run may have become claimable.
    pub(crate) claimable: Arc<Notify>,
    is_claimable: AtomicBool,
    /// An operation was started.
    pub(crate) operations: Arc<Notify>,
    /// A census was begun.
    pub(crate) census: Arc<Notify>,
    /// Another node made something due.
    pub(crate) news: Arc<Notify>,
    /// The earliest entry that others made due and the horizon has not read.
    news_at: Mutex<Option<Timestamp>>,
    /// Another node gave shards away.
    pub(crate) placement: Arc<Notify>,
    /// Slots of the next minute, by shard.
    densities: Mutex<Vec<(ShardId, u32)>>,
    /// Why nothing is fired, if the clock is wrong.
    wrong_clock: Mutex<Option<String>>,
    /// Slots have been due for more than a second and are not fired yet: what can wait does.
    pub(crate) is_behind: AtomicBool,
}

/// Due entries that were committed since the horizon looked.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    pub(crate) entries: Vec<Due>,
    /// There may be others that were not offered.
    pub(crate) is_incomplete: bool,
}

impl Wakes {
    /// Tells the horizon of due entries, after their commit.
    pub(crate) fn offer(&self, entries: impl IntoIterator<Item = Due>) {
        // Read after the commit and before the horizon's next read: whoever is not told will read.
        let reach = self.reach.load(Ordering::SeqCst);
        let mut near = entries.into_iter().filter(|entry| entry.key.at.as_millisecond() <= reach).peekable();
        if near.peek().is_none() {
            return;
        }
        let mut offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in near {
            if offers.entries.len() >= OFFERS_MAX {
                offers.is_incomplete = true;
                break;
            }
            offers.entries.push(entry);
        }
        drop(offers);
        self.due.notify_one();
    }

    /// A write failed that may have been committed all the same: what it made due, claimable or runnable is looked for.
    pub(crate) fn unsure(&self) {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner).is_incomplete = true;
        self.due.notify_one();
        self.claimable();
        self.operations.notify_one();
    }

    /// What was offered since the last time.
    pub(crate) fn take(&self) -> Offers {
        std::mem::take(&mut self.offers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells the horizon that others made something due.
    pub(crate) fn tell_news(&self, at: Timestamp) {
        let mut news = self.news_at.lock().unwrap_or_else(PoisonError::into_inner);
        *news = Some(news.map_or(at, |known| known.min(at)));
        drop(news);
        self.due.notify_one();
    }

    /// The earliest entry that others made due since the last time.
    pub(crate) fn take_news(&self) -> Option<Timestamp> {
        self.news_at.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Slots of the next minute, by shard.
    pub(crate) fn densities(&self) -> Vec<(ShardId, u32)> {
        self.densities.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What others knew about shards that nothing is known about here yet.
    pub(crate) fn expect_densities(&self, expected: impl IntoIterator<Item = (ShardId, u32)>) {
        let mut densities = self.densities.lock().unwrap_or_else(PoisonError::into_inner);
        for (shard, density) in expected {
            if !densities.iter().any(|(known, _)| *known == shard) {
                densities.push((shard, density));
            }
        }
    }

    pub(crate) fn set_densities(&self, densities: Vec<(ShardId, u32)>) {
        *self.densities.lock().unwrap_or_else(PoisonError::into_inner) = densities;
    }

    pub(crate) fn has_wrong_clock(&self) -> bool {
        self.wrong_clock().is_some()
    }

    /// Why nothing is fired, if the clock is wrong.
    pub(crate) fn wrong_clock(&self) -> Option<String> {
        self.wrong_clock.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_wrong_clock(&self, why: Option<String>) {
        *self.wrong_clock.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Tells the claim loop that a run may have become claimable, after its commit.
    pub(crate) fn claimable(&self) {
        self.is_claimable.store(true, Ordering::SeqCst);
        self.claimable.notify_one();
    }

    /// Whether a run may have become claimable since the last time.
    pub(crate) fn take_claimable(&self) -> bool {
        self.is_claimable.swap(false, Ordering::SeqCst)
    }

    /// How far offers are wanted. Everything, while a read is under way whose end is not known yet.
    pub(crate) fn set_reach(&self, reach: i64) {
        self.reach.store(reach, Ordering::SeqCst);
    }
}
