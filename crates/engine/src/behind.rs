//! What is due and was set aside, so that it does not make the rest late.
//!
//! What was due while nobody fired, and the rest of a crowd: very many entries of one tenant at one time. Both are parts
//! of the order of firing that are read in turns, a page each. Promise: every entry of what was set aside comes out, none
//! before its time, unless it is not there any more when its part is read; no part waits for another to end.

use std::collections::VecDeque;

use jiff::Timestamp;
use punctual_domain::id::{JobId, TenantId};
use punctual_domain::job::Lane;
use punctual_store::{Due, DueKey, DuePage, DueQuery, Shards};

use crate::ripe::Ripe;

/// A read takes so many.
const PAGE: usize = 10_000;

/// The next read begins when fewer than this are at hand.
const LOW: usize = 5_000;

/// No more is taken from the horizon when this many are at hand.
const ROOM: usize = 30_000;

/// So many of one tenant at one time are a crowd; fewer, while there is another crowd.
const CROWD: usize = 10_000;
const CROWD_AMONG_CROWDS: usize = 2_000;

/// With more parts than this, nothing more is set aside.
const PARTS_MAX: usize = 1_000;

/// What was set aside.
#[derive(Default)]
pub(crate) struct Behind {
    parts: VecDeque<Part>,
    /// The part that a read under way is of.
    reading: Option<Part>,
    entries: Ripe,
}

/// A part of the order of firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    after: Option<DueKey>,
    /// Its last place.
    end: DueKey,
    crowd: Crowd,
}

/// How many entries of one tenant and time were read one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crowd {
    last: Option<DueKey>,
    count: usize,
}

impl Crowd {
    /// Counts on.
    pub(crate) fn read(&mut self, page: &DuePage) {
        let Some(last) = page.entries.last().map(|entry| entry.key) else { return };
        let is_same = |key: &DueKey| (key.at, key.lane, key.tenant) == (last.at, last.lane, last.tenant);
        let count = page.entries.iter().rev().take_while(|entry| is_same(&entry.key)).count();
        let goes_on = count == page.entries.len() && self.last.as_ref().is_some_and(is_same);
        *self = Crowd { last: Some(last), count: if goes_on { self.count + count } else { count } };
    }
}

impl Behind {
    /// Everything up to a time.
    pub(crate) fn until(until: Timestamp) -> Self {
        let mut behind = Behind::default();
        behind.parts.push_back(Part { after: None, end: end_of(until), crowd: Crowd::default() });
        behind
    }

    /// How many entries are at hand.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it can take as many entries as a horizon holds.
    pub(crate) fn has_room(&self) -> bool {
        self.entries.len() < ROOM && self.parts.len() < PARTS_MAX
    }

    /// Takes entries that were read, and everything that follows them up to a time.
    pub(crate) fn take(&mut self, read: Ripe, cover: DueKey, until: Timestamp) {
        self.entries.append(read);
        self.parts.push_back(Part { after: Some(cover), end: end_of(until), crowd: Crowd::default() });
    }

    /// If what was read last is a crowd, and may go on after the page: its rest is set aside, and reading goes on behind
    /// it, at the place that is returned.
    pub(crate) fn set_aside(&mut self, crowd: &mut Crowd, page: &DuePage) -> Option<DueKey> {
        crowd.read(page);
        let last = crowd.last?;
        let least = if self.parts.is_empty() { CROWD } else { CROWD_AMONG_CROWDS };
        let may_go_on = page.next_at == Some(last.at);
        if !may_go_on || crowd.count < least || self.parts.len() >= PARTS_MAX {
            return None;
        }
        let end = DueKey { job: JobId::from_bytes([0xff; 16]), ..last };
        self.parts.push_back(Part { after: Some(last), end, crowd: Crowd::default() });
        *crowd = Crowd::default();
        Some(end)
    }

    /// The next read, if one is wanted. It is followed by [`Behind::absorb`] or [`Behind::read_failed`].
    pub(crate) fn query(&mut self, shards: Shards, now: Timestamp) -> Option<DueQuery> {
        if self.reading.is_some() || self.entries.len() >= LOW {
            return None;
        }
        // The crowd of a time that has not come stays where it is.
        let place = self.parts.iter().position(|part| part.end.at <= now)?;
        let part = self.parts.remove(place)?;
        self.reading = Some(part);
        Some(DueQuery { shards, after: part.after, until: part.end.at, limit: PAGE })
    }

    /// Takes what was read.
    pub(crate) fn absorb(&mut self, page: DuePage) {
        let Some(mut part) = self.reading.take() else { return };
        let is_whole = part.is_whole_with(&page);
        let mut crowd = part.crowd;
        // A crowd is set aside once; the rest of it is read to its end.
        let is_crowd = part.after.is_some_and(|after| group(&after) == group(&part.end));
        let behind_crowd = if is_crowd { None } else { self.set_aside(&mut crowd, &page) };
        part.after = behind_crowd.or(page.entries.last().map(|entry| entry.key)).or(part.after);
        part.crowd = crowd;
        page.entries
            .into_iter()
            .filter(|entry| entry.key <= part.end)
            .for_each(|entry| self.entries.push(entry));
        if !is_whole {
            self.parts.push_back(part);
        }
    }

    /// A read came to nothing: everything is read anew.
    pub(crate) fn read_failed(&mut self) {
        if let Some(part) = self.reading.take() {
            self.parts.push_front(part);
        }
    }

    /// Takes up to `limit` out.
    pub(crate) fn draw(&mut self, limit: usize) -> Vec<Due> {
        self.entries.draw(limit)
    }
}

impl Part {
    /// Whether nothing of it follows a page.
    fn is_whole_with(&self, page: &DuePage) -> bool {
        let is_past = page.entries.last().is_some_and(|last| last.key >= self.end);
        // A page may be short, and others follow all the same.
        is_past || page.next_at.is_none_or(|at| at > self.end.at)
    }
}

fn group(key: &DueKey) -> (Timestamp, Lane, TenantId) {
    (key.at, key.lane, key.tenant)
}

/// The last place in the order of firing at a time. Tenants are numbered as databases number them, up to 2^31.
pub(crate) fn end_of(at: Timestamp) -> DueKey {
    DueKey { at, lane: Lane::Batch, tenant: TenantId(i32::MAX as u32), job: JobId::from_bytes([0xff; 16]) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use punctual_domain::id::{ShardId, Version};

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
    }

    fn entry(millis: i64, tenant: u32, number: usize) -> Due {
        let job = JobId::new(at(0), ShardId(0), number as u64);
        let key = DueKey { at: at(millis), lane: Lane::Standard, tenant: TenantId(tenant), job };
        Due { key, version: Version::FIRST, slot: at(millis) }
    }

    /// What a store has, and what is asked of it.
    struct World {
        entries: Vec<Due>,
        behind: Behind,
        reads: usize,
    }

    impl World {
        fn new(mut entries: Vec<Due>, behind: Behind) -> Self {
            entries.sort_by_key(|entry| entry.key);
            World { entries, behind, reads: 0 }
        }

        fn read(&mut self, now: Timestamp) -> bool {
            let Some(query) = self.behind.query(Shards::All, now) else { return false };
            self.reads += 1;
            let mut rest =
                self.entries.iter().filter(|entry| query.after.is_none_or(|after| entry.key > after));
            let wanted = |entry: &&Due| entry.key.at <= query.until;
            let entries: Vec<Due> = rest.by_ref().take(query.limit).filter(wanted).copied().collect();
            let next = self.entries.iter().find(|entry| {
                entries.last().map(|last| last.key).or(query.after).is_none_or(|after| entry.key > after)
            });
            self.behind.absorb(DuePage { next_at: next.map(|entry| entry.key.at), entries });
            true
        }

        /// Reads and draws until nothing comes; returns the tenants in the order of firing.
        fn drain(&mut self, now: Timestamp) -> Vec<u32> {
            let mut drawn = Vec::new();
            loop {
                let has_read = self.read(now);
                let some = self.behind.draw(1_000);
                drawn.extend(some.iter().map(|due| due.key.tenant.0));
                if !has_read && some.is_empty() {
                    return drawn;
                }
            }
        }
    }

    #[test]
    fn the_rest_of_a_crowd_lets_others_pass_and_comes_out_to_its_end() {
        let crowd = (0..45_000).map(|number| entry(0, 1, number));
        let others = [entry(0, 2, 50_000), entry(400, 3, 50_001)];
        let mut world = World::new(crowd.chain(others).collect(), Behind::until(at(1_000)));
        let drawn = world.drain(at(2_000));
        assert_eq!(drawn.iter().filter(|tenant| **tenant == 1).count(), 45_000);
        for tenant in [2, 3] {
            let place = drawn.iter().position(|drawn| *drawn == tenant).unwrap();
            assert!(place < 22_000, "{tenant} was fired after {place}");
        }
        assert!(world.behind.parts.is_empty() && world.behind.reading.is_none());
    }

    #[test]
    fn nothing_comes_out_before_its_time() {
        let mut behind = Behind::default();
        let mut crowd = Crowd::default();
        let page = |from: usize| DuePage {
            entries: (from..from + CROWD).map(|number| entry(5_000, 1, number)).collect(),
            next_at: Some(at(5_000)),
        };
        let end = behind.set_aside(&mut crowd, &page(0)).unwrap();
        assert!(end > entry(5_000, 1, usize::MAX >> 1).key && end < entry(5_000, 2, 0).key);
        let mut world = World::new((0..CROWD + 7).map(|number| entry(5_000, 1, number)).collect(), behind);
        assert!(!world.read(at(4_999)));
        assert_eq!(world.drain(at(5_000)).len(), 7, "what came before was not set aside");
    }

    #[test]
    fn many_crowds_take_turns() {
        let of = |tenant: u32| (0..15_000).map(move |number| entry(0, tenant, number));
        let entries: Vec<Due> = (1..=4).flat_map(of).collect();
        let mut world = World::new(entries, Behind::until(at(1_000)));
        let drawn = world.drain(at(2_000));
        assert_eq!(drawn.len(), 60_000);
        let first = drawn.iter().position(|tenant| *tenant == 4).unwrap();
        assert!(first < 45_000, "the last tenant waited for all others: {first}");
    }

    #[test]
    fn an_end_of_a_page_that_is_no_crowd_is_no_end() {
        let entries: Vec<Due> = (0..25_000).map(|number| entry(number as i64 % 50, 1, number)).collect();
        let mut world = World::new(entries, Behind::until(at(1_000)));
        assert_eq!(world.drain(at(2_000)).len(), 25_000);
        assert_eq!(world.reads, 3);
    }

    #[test]
    fn what_could_not_be_read_is_read_again() {
        let mut world = World::new(vec![entry(0, 1, 0)], Behind::until(at(1_000)));
        assert!(world.behind.query(Shards::All, at(1_000)).is_some());
        assert!(world.behind.query(Shards::All, at(1_000)).is_none(), "one read at a time");
        world.behind.read_failed();
        assert_eq!(world.drain(at(1_000)), [1]);
    }
}
