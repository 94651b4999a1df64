//! The near future in memory: which due entries come next.
//!
//! Filled by reads ahead of time and by what is registered meanwhile. Promise: every entry of the store up to
//! the cover is in here, was taken from it, or is of a crowd that was set aside; what is held is bounded, and a second
//! with more entries than fit is streamed through it. Memory does not grow with registered jobs.

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::ShardId;
use punctual_store::{Due, DueKey, DuePage, DueQuery, LOOK_AHEAD, Shards};

use crate::behind::{Behind, Crowd, end_of};
use crate::fire::Epochs;
use crate::ripe::Ripe;
use crate::wheel::Wheel;

/// How many entries are held: 64 bytes each, and at 10,000 a second a few seconds of work.
const HELD_MAX: usize = 60_000;

/// A read takes so many; small enough that other reads get their turn.
const PAGE: usize = 10_000;

/// More is read when it holds fewer than this and the cover is near.
const LOW: usize = 30_000;

/// Fewer entries a second than this leave room for what is behind.
const LIGHT: usize = 1_000;

/// Offers kept during a read; it takes milliseconds, unless the store is in trouble.
const UNSURE_MAX: usize = 50_000;

/// The next read begins this long before the cover ends.
const LEAD: SignedDuration = SignedDuration::from_secs(5);

/// Due entries of the near future.
pub(crate) struct Horizon {
    wheel: Wheel<Due>,
    /// Those whose time has come.
    ripe: Ripe,
    /// Everything up to here is in here.
    cover: DueKey,
    /// How many entries before the cover are of one tenant and time.
    crowd: Crowd,
    /// When the first entry beyond the cover is due; none if there is none.
    beyond: Option<Timestamp>,
    /// Until where the last read was to look.
    until: Timestamp,
    /// Others write to the store as well: nothing is known beyond where a read looked.
    is_shared: bool,
    /// The cover that a read under way goes on from.
    reading: Option<DueKey>,
    /// Offered beyond the cover while a read was under way: it may have missed them, and take the cover past them.
    unsure: Vec<Due>,
    popped: Vec<(i64, Due)>,
}

impl Horizon {
    /// A horizon that has read nothing after `from`.
    pub(crate) fn new(from: Timestamp, is_shared: bool) -> Self {
        Horizon {
            wheel: Wheel::new(HELD_MAX, from.as_millisecond()),
            ripe: Ripe::default(),
            cover: end_of(from),
            crowd: Crowd::default(),
            beyond: Some(from),
            until: from,
            is_shared,
            reading: None,
            unsure: Vec::new(),
            popped: Vec::new(),
        }
    }

    /// How many entries it holds.
    pub(crate) fn len(&self) -> usize {
        self.wheel.len() + self.ripe.len()
    }

    /// Whether it is full of entries whose time has come, so that those that are due now cannot be read.
    pub(crate) fn is_clogged(&self, until: Timestamp) -> bool {
        self.len() >= LOW && self.cover.at < until
    }

    /// How many entries were due in a second before this one.
    pub(crate) fn overdue(&self, now: Timestamp) -> usize {
        let second = now.as_second() * 1_000;
        let ripe = Timestamp::from_millisecond(second).map_or(0, |second| self.ripe.count_before(second));
        ripe + self.wheel.next_at().map_or(0, |first| self.wheel.density(first, second))
    }

    /// Hands over what is ripe and what was not read up to a time, and goes on from there.
    pub(crate) fn set_aside(&mut self, until: Timestamp, behind: &mut Behind) {
        self.pop_due(until, 0);
        behind.take(std::mem::take(&mut self.ripe), self.cover, until);
        (self.cover, self.crowd, self.beyond) = (end_of(until), Crowd::default(), Some(until));
    }

    /// Whether few entries are due before a time.
    pub(crate) fn is_light(&self, now: Timestamp, until: Timestamp) -> bool {
        self.ripe.len() + self.wheel.density(now.as_millisecond(), until.as_millisecond()) < LIGHT
    }

    /// How far offers are wanted.
    pub(crate) fn reach(&self) -> i64 {
        self.cover.at.as_millisecond()
    }

    /// When the next read is to begin; none if there is nothing to read.
    pub(crate) fn load_at(&self) -> Option<Timestamp> {
        let beyond = self.beyond?;
        // As long as enough is at hand, reading can wait for the wheel to empty.
        if self.len() >= LOW {
            return None;
        }
        Some(beyond.checked_sub(LEAD).unwrap_or(beyond))
    }

    /// The next read. It is followed by [`Horizon::absorb`] or [`Horizon::read_failed`].
    pub(crate) fn query(&mut self, shards: Shards, now: Timestamp) -> DueQuery {
        self.reading = Some(self.cover);
        self.until = now.checked_add(LOOK_AHEAD).unwrap_or(Timestamp::MAX);
        DueQuery { shards, after: Some(self.cover), until: self.until, limit: PAGE }
    }

    /// Takes what was read, and sets the rest of a crowd aside. Those that are due soon are returned, for their bodies to
    /// be fetched.
    pub(crate) fn absorb(&mut self, page: DuePage, behind: &mut Behind, now: Timestamp) -> Vec<Due> {
        // If entries were forgotten meanwhile, the page begins too late: it is read again from there.
        let near = match self.reading.take() == Some(self.cover) {
            true => self.extend(page, behind, now),
            false => Vec::new(),
        };
        self.take_unsure();
        near
    }

    /// A read came to nothing.
    pub(crate) fn read_failed(&mut self) {
        self.reading = None;
        self.take_unsure();
    }

    fn extend(&mut self, page: DuePage, behind: &mut Behind, now: Timestamp) -> Vec<Due> {
        let behind_crowd = behind.set_aside(&mut self.crowd, &page);
        self.cover = match (page.next_at, page.entries.last()) {
            (None, _) => end_of(Timestamp::MAX),
            // Nothing lies between the last entry and the next one, unless they share a time.
            (Some(next), Some(last)) if next == last.key.at => last.key,
            (Some(next), _) => end_of(next - SignedDuration::from_millis(1)),
        };
        self.cover = behind_crowd.unwrap_or(self.cover);
        self.beyond = page.next_at;
        if self.is_shared && self.beyond.is_none_or(|beyond| beyond > self.until) {
            self.cover = end_of(self.until);
            self.beyond = Some(self.until);
        }
        let soon = now.checked_add(LEAD).unwrap_or(Timestamp::MAX);
        let near = page.entries.iter().filter(|entry| entry.key.at <= soon).copied().collect();
        for entry in page.entries {
            self.insert(entry);
        }
        near
    }

    /// Takes what was committed in owned shards since the last look.
    pub(crate) fn take(&mut self, offers: Vec<Due>, owned: &Epochs) {
        for entry in offers.into_iter().filter(|entry| owned.contains(entry.key.job.shard())) {
            self.offered(entry);
        }
    }

    /// Keeps the entries of owned shards only.
    pub(crate) fn keep(&mut self, owned: &Epochs) {
        self.wheel.retain(|_, entry| owned.contains(entry.key.job.shard()));
        self.ripe.retain(|entry| owned.contains(entry.key.job.shard()));
    }

    /// Others made something due: everything from there on is read again.
    pub(crate) fn read_again(&mut self, from: Timestamp) {
        if from <= self.cover.at {
            self.forget(from.as_millisecond());
        } else if self.beyond.is_none_or(|beyond| beyond > from) {
            self.beyond = Some(from);
        }
    }

    /// Slots of a minute from now on, by shard, as far as they are known.
    pub(crate) fn densities(&mut self, now: Timestamp) -> Vec<(ShardId, u32)> {
        let now = now.as_millisecond();
        let end = (now + 60_000).min(self.cover.at.as_millisecond());
        let mut counts = std::collections::BTreeMap::new();
        for entry in self.ripe.iter() {
            *counts.entry(entry.key.job.shard()).or_insert(0_u64) += 1;
        }
        self.wheel.retain(|at, entry| {
            if at < end {
                *counts.entry(entry.key.job.shard()).or_insert(0_u64) += 1;
            }
            true
        });
        // A busy wheel holds only seconds.
        let known = u64::try_from(end - now).unwrap_or_default().clamp(1_000, 60_000);
        let of = |(shard, count): (ShardId, u64)| {
            (shard, u32::try_from(count * 60_000 / known).unwrap_or(u32::MAX))
        };
        counts.into_iter().map(of).collect()
    }

    fn offered(&mut self, entry: Due) {
        if entry.key <= self.cover {
            self.insert(entry);
        } else if self.reading.is_some() && self.unsure.len() < UNSURE_MAX {
            self.unsure.push(entry);
        } else {
            self.beyond = Some(self.beyond.map_or(entry.key.at, |beyond| beyond.min(entry.key.at)));
            // With too many to keep, what is being read does not count: it is read again.
            self.reading = None;
        }
    }

    /// Now that no read is under way, an entry is behind the cover or will be read.
    fn take_unsure(&mut self) {
        for entry in std::mem::take(&mut self.unsure) {
            self.offered(entry);
        }
    }

    /// Moves up to `limit` due entries out; if there are more, in turns.
    pub(crate) fn pop_due(&mut self, now: Timestamp, limit: usize) -> Vec<Due> {
        self.wheel.pop_due(now.as_millisecond(), usize::MAX, &mut self.popped);
        for (_, entry) in self.popped.drain(..) {
            self.ripe.push(entry);
        }
        self.ripe.draw(limit)
    }

    /// When the earliest entry is due.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        let next = self.wheel.next_at().and_then(|at| Timestamp::from_millisecond(at).ok());
        [self.ripe.oldest(), next].into_iter().flatten().min()
    }

    fn insert(&mut self, entry: Due) {
        if self.len() >= HELD_MAX {
            // The later half goes, and is read again when its time comes near.
            let middle = self.middle();
            self.forget(middle);
            if entry.key > self.cover {
                return;
            }
        }
        // There is room, or every entry has the same time: then it is read again as well.
        let _ = self.wheel.insert(entry.key.at.as_millisecond(), entry);
    }

    /// A time that about half of the entries are before.
    fn middle(&mut self) -> i64 {
        let mut times = Vec::with_capacity(self.len());
        times.extend(self.ripe.iter().map(|entry| entry.key.at.as_millisecond()));
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
        self.ripe.retain(|entry| entry.key.at.as_millisecond() < from);
        self.crowd = Crowd::default();
        let first = Timestamp::from_millisecond(from).unwrap_or(Timestamp::MIN);
        self.cover =
            self.cover.min(end_of(first.checked_sub(SignedDuration::from_millis(1)).unwrap_or(first)));
        self.beyond = Some(self.beyond.map_or(first, |beyond| beyond.min(first)));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use punctual_domain::id::{Epoch, JobId, ShardId, TenantId, Version};
    use punctual_domain::job::Lane;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
    }

    fn entry(millis: i64) -> Due {
        let job = JobId::new(at(0), ShardId(0), millis as u64);
        let key = DueKey { at: at(millis), lane: Lane::Standard, tenant: TenantId::DEFAULT, job };
        Due { key, version: Version::FIRST, slot: at(millis) }
    }

    fn owned() -> Epochs {
        Epochs::new([(ShardId(0), Epoch(1))])
    }

    fn fired(horizon: &mut Horizon) -> Vec<Timestamp> {
        horizon.pop_due(at(1_000_000), 100).iter().map(|due| due.slot).collect()
    }

    #[test]
    fn what_is_committed_while_a_read_is_under_way_is_not_lost() {
        let mut horizon = Horizon::new(at(0), false);
        horizon.query(Shards::All, at(0));
        // The read has begun and does not see this one; the loop is woken before it ends.
        horizon.take(vec![entry(1_000)], &owned());
        horizon.absorb(
            DuePage { entries: vec![entry(500)], next_at: Some(at(2_000)) },
            &mut Behind::default(),
            at(0),
        );
        assert_eq!(fired(&mut horizon), [at(500), at(1_000)]);
    }

    #[test]
    fn what_is_offered_while_a_read_fails_is_read_by_the_next() {
        let mut horizon = Horizon::new(at(0), false);
        horizon.query(Shards::All, at(0));
        horizon.absorb(
            DuePage { entries: Vec::new(), next_at: Some(at(9_000_000)) },
            &mut Behind::default(),
            at(0),
        );
        horizon.query(Shards::All, at(0));
        horizon.take(vec![entry(9_500_000)], &owned());
        horizon.read_failed();
        assert!(horizon.load_at().is_some_and(|load_at| load_at <= at(9_000_000)));
    }

    #[test]
    fn a_page_that_begins_after_what_was_forgotten_is_read_again() {
        let mut horizon = Horizon::new(at(0), false);
        horizon.query(Shards::All, at(0));
        horizon.absorb(
            DuePage { entries: vec![entry(500)], next_at: Some(at(2_000)) },
            &mut Behind::default(),
            at(0),
        );
        horizon.query(Shards::All, at(0));
        horizon.read_again(at(400));
        horizon.absorb(
            DuePage { entries: vec![entry(2_000)], next_at: Some(at(3_000)) },
            &mut Behind::default(),
            at(0),
        );
        let again = horizon.query(Shards::All, at(0));
        assert!(again.after.is_some_and(|after| after < entry(500).key), "{again:?}");
    }

    #[test]
    fn in_a_shared_store_nothing_is_known_beyond_where_a_read_looked() {
        for (is_shared, expected) in [(false, None), (true, Some(at(0) + LOOK_AHEAD - LEAD))] {
            let mut horizon = Horizon::new(at(0), is_shared);
            horizon.query(Shards::All, at(0));
            horizon.absorb(DuePage { entries: Vec::new(), next_at: None }, &mut Behind::default(), at(0));
            assert_eq!(horizon.load_at(), expected);
        }
    }

    #[test]
    fn what_others_made_due_is_read_again() {
        let mut horizon = Horizon::new(at(0), true);
        horizon.query(Shards::All, at(0));
        horizon.absorb(
            DuePage { entries: vec![entry(500), entry(900)], next_at: None },
            &mut Behind::default(),
            at(0),
        );
        horizon.read_again(at(700));
        let again = horizon.query(Shards::All, at(0));
        assert!(again.after.is_some_and(|after| after.at < at(700) && after > entry(500).key), "{again:?}");
        horizon.absorb(
            DuePage { entries: vec![entry(700), entry(900)], next_at: None },
            &mut Behind::default(),
            at(0),
        );
        assert_eq!(fired(&mut horizon), [at(500), at(700), at(900)]);
    }

    #[test]
    fn what_clogs_it_is_set_aside_and_reading_goes_on_from_now() {
        let mut horizon = Horizon::new(at(-1), true);
        let mut behind = Behind::default();
        let mut read = 0;
        while horizon.load_at().is_some() {
            horizon.query(Shards::All, at(0));
            let entries: Vec<Due> = (read..read + 5_000).map(entry).collect();
            read += 5_000;
            horizon.absorb(DuePage { entries, next_at: Some(at(read)) }, &mut behind, at(0));
        }
        let now = at(90_000);
        assert!(!horizon.is_clogged(at(0)), "nothing is due");
        assert!(horizon.is_clogged(now));
        horizon.set_aside(now, &mut behind);
        assert_eq!((horizon.len(), behind.len()), (0, read as usize));
        assert_eq!(horizon.query(Shards::All, now).after, Some(end_of(now)));
        // What was read is at hand; what was not is read from there.
        assert_eq!(behind.draw(100_000).len(), read as usize);
        let rest = behind.query(Shards::All, now).unwrap();
        assert_eq!((rest.after.unwrap().at, rest.until), (at(read - 1), now));
    }

    #[test]
    fn entries_of_shards_that_went_are_dropped() {
        let mut horizon = Horizon::new(at(0), true);
        horizon.query(Shards::All, at(0));
        horizon.absorb(DuePage { entries: vec![entry(500)], next_at: None }, &mut Behind::default(), at(0));
        horizon.take(vec![entry(600)], &Epochs::default());
        horizon.keep(&owned());
        assert_eq!(horizon.len(), 1, "what is not owned is not taken");
        horizon.keep(&Epochs::default());
        assert_eq!(horizon.len(), 0);
    }
}
