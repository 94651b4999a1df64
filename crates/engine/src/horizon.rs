//! The near future in memory: which due entries come next.
//!
//! Filled by reads ahead of time and by what is registered meanwhile. Promise: every entry of the store up to
//! the cover is in the wheel or was taken from it; the wheel is bounded, and a second with more entries than fit
//! is streamed through it. Memory does not grow with registered jobs.

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, TenantId};
use punctual_domain::job::Lane;
use punctual_store::{Due, DueKey, DuePage, DueQuery, Shards};

use crate::wheel::Wheel;

/// How many entries are held: 64 bytes each, and at 10,000 a second a few seconds of work.
const WHEEL_MAX: usize = 60_000;

/// A read takes so many; small enough that other reads get their turn.
const PAGE: usize = 10_000;

/// The wheel is refilled when it holds fewer than this and the cover is near.
const LOW: usize = 30_000;

/// How far ahead is read when little is due.
const AHEAD: SignedDuration = SignedDuration::from_secs(600);

/// The next read begins this long before the cover ends.
const LEAD: SignedDuration = SignedDuration::from_secs(5);

/// Due entries of the near future.
pub(crate) struct Horizon {
    wheel: Wheel<Due>,
    /// Everything up to here is in the wheel.
    cover: DueKey,
    /// When the first entry beyond the cover is due; none if there is none.
    beyond: Option<Timestamp>,
    popped: Vec<(i64, Due)>,
}

impl Horizon {
    /// A horizon that has read nothing after `from`.
    pub(crate) fn new(from: Timestamp) -> Self {
        Horizon {
            wheel: Wheel::new(WHEEL_MAX, from.as_millisecond()),
            cover: end_of(from),
            beyond: Some(from),
            popped: Vec::new(),
        }
    }

    /// How many entries it holds.
    pub(crate) fn len(&self) -> usize {
        self.wheel.len()
    }

    /// How many entries were due in a second before this one.
    pub(crate) fn overdue(&self, now: Timestamp) -> usize {
        let second = now.as_second() * 1_000;
        self.wheel.next_at().map_or(0, |first| self.wheel.density(first, second))
    }

    /// How far offers are wanted.
    pub(crate) fn reach(&self) -> i64 {
        self.cover.at.as_millisecond()
    }

    /// When the next read is to begin; none if there is nothing to read.
    pub(crate) fn load_at(&self) -> Option<Timestamp> {
        let beyond = self.beyond?;
        // As long as enough is at hand, reading can wait for the wheel to empty.
        if self.wheel.len() >= LOW {
            return None;
        }
        Some(beyond.checked_sub(LEAD).unwrap_or(beyond))
    }

    /// The next read.
    pub(crate) fn query(&self, now: Timestamp) -> DueQuery {
        let until = now.checked_add(AHEAD).unwrap_or(Timestamp::MAX);
        DueQuery { shards: Shards::All, after: Some(self.cover), until, limit: PAGE }
    }

    /// Takes what was read. Those that are due soon are returned, for their bodies to be fetched.
    pub(crate) fn absorb(&mut self, page: DuePage, now: Timestamp) -> Vec<Due> {
        self.cover = match (page.next_at, page.entries.last()) {
            (None, _) => end_of(Timestamp::MAX),
            // Nothing lies between the last entry and the next one, unless they share a time.
            (Some(next), Some(last)) if next == last.key.at => last.key,
            (Some(next), _) => end_of(next - SignedDuration::from_millis(1)),
        };
        self.beyond = page.next_at;
        let soon = now.checked_add(LEAD).unwrap_or(Timestamp::MAX);
        let near = page.entries.iter().filter(|entry| entry.key.at <= soon).copied().collect();
        for entry in page.entries {
            self.insert(entry);
        }
        near
    }

    /// Takes what was committed since the last look.
    pub(crate) fn take(&mut self, offers: Vec<Due>) {
        for entry in offers {
            if entry.key <= self.cover {
                self.insert(entry);
            } else {
                self.beyond = Some(self.beyond.map_or(entry.key.at, |beyond| beyond.min(entry.key.at)));
            }
        }
    }

    /// Moves up to `limit` due entries out.
    pub(crate) fn pop_due(&mut self, now: Timestamp, limit: usize) -> Vec<Due> {
        self.wheel.pop_due(now.as_millisecond(), limit, &mut self.popped);
        self.popped.drain(..).map(|(_, entry)| entry).collect()
    }

    /// When the earliest entry is due.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.wheel.next_at().and_then(|at| Timestamp::from_millisecond(at).ok())
    }

    fn insert(&mut self, entry: Due) {
        if self.wheel.insert(entry.key.at.as_millisecond(), entry).is_err() {
            // The later half goes, and is read again when its time comes near.
            let middle = self.middle();
            self.forget(middle);
            if entry.key <= self.cover {
                // There is room now, or every entry has the same time: then it is read again as well.
                let _ = self.wheel.insert(entry.key.at.as_millisecond(), entry);
            }
        }
    }

    /// A time that about half of the entries are before.
    fn middle(&mut self) -> i64 {
        let mut times = Vec::with_capacity(self.wheel.len());
        self.wheel.retain(|at, _| {
            times.push(at);
            true
        });
        let half = times.len() / 2;
        *times.select_nth_unstable(half).1
    }

    /// Drops the entries from a time on; they are read again.
    fn forget(&mut self, from: i64) {
        self.wheel.retain(|at, _| at < from);
        let first = Timestamp::from_millisecond(from).unwrap_or(Timestamp::MIN);
        self.cover =
            self.cover.min(end_of(first.checked_sub(SignedDuration::from_millis(1)).unwrap_or(first)));
        self.beyond = Some(self.beyond.map_or(first, |beyond| beyond.min(first)));
    }
}

/// The last place in the order of firing at a time.
fn end_of(at: Timestamp) -> DueKey {
    DueKey { at, lane: Lane::Batch, tenant: TenantId(u32::MAX), job: JobId::from_bytes([0xff; 16]) }
}
