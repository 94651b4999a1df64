//! Due entries whose time has come, until they are fired.
//!
//! Promise: when not all can be fired at once, lanes go by their shares, tenants inside a lane in turns, and the entries
//! of a tenant in the order they came. So a tenant with very many delays the others by no more than one turn each.

use std::collections::{BTreeMap, HashMap, VecDeque};

use jiff::Timestamp;
use punctual_domain::id::TenantId;
use punctual_domain::job::Lane;
use punctual_domain::shares::Shares;
use punctual_store::Due;

/// Entries to be fired.
#[derive(Default)]
pub(crate) struct Ripe {
    shares: Shares,
    lanes: [Tenants; Lane::COUNT],
    /// How many were due at each time.
    times: BTreeMap<Timestamp, usize>,
    len: usize,
}

/// The entries of a lane.
#[derive(Default)]
struct Tenants {
    lines: HashMap<TenantId, VecDeque<Due>>,
    /// Whose turn is next: each tenant that has entries, once.
    turns: VecDeque<TenantId>,
}

impl Ripe {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// When the oldest was due.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.times.first_key_value().map(|(at, _)| *at)
    }

    /// How many were due before a time.
    pub(crate) fn count_before(&self, at: Timestamp) -> usize {
        self.times.range(..at).map(|(_, count)| count).sum()
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Due> {
        self.lanes.iter().flat_map(|tenants| tenants.lines.values().flatten())
    }

    /// Adds an entry behind those of its tenant.
    pub(crate) fn push(&mut self, entry: Due) {
        self.len += 1;
        *self.times.entry(entry.key.at).or_default() += 1;
        let tenants = &mut self.lanes[usize::from(entry.key.lane.rank())];
        let line = tenants.lines.entry(entry.key.tenant).or_default();
        if line.is_empty() {
            tenants.turns.push_back(entry.key.tenant);
        }
        line.push_back(entry);
    }

    /// Adds others, those of each tenant behind its own.
    pub(crate) fn append(&mut self, others: Ripe) {
        for mut tenants in others.lanes {
            for tenant in std::mem::take(&mut tenants.turns) {
                tenants.lines.remove(&tenant).into_iter().flatten().for_each(|entry| self.push(entry));
            }
        }
    }

    /// Takes up to `limit` out.
    pub(crate) fn draw(&mut self, limit: usize) -> Vec<Due> {
        let mut drawn = Vec::with_capacity(limit.min(self.len));
        while drawn.len() < limit
            && let Some(lane) =
                self.shares.next(|lane| !self.lanes[usize::from(lane.rank())].turns.is_empty())
            && let Some(entry) = self.lanes[usize::from(lane.rank())].pop()
        {
            self.len -= 1;
            if let Some(count) = self.times.get_mut(&entry.key.at) {
                *count -= 1;
                if *count == 0 {
                    self.times.remove(&entry.key.at);
                }
            }
            drawn.push(entry);
        }
        drawn
    }

    /// Keeps those for which it says so.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Due) -> bool) {
        let mut all = std::mem::take(self);
        self.shares = all.shares.clone();
        for tenants in &mut all.lanes {
            tenants.lines.values_mut().for_each(|line| line.retain(&mut keep));
        }
        self.append(all);
    }
}

impl Tenants {
    /// The next entry of the tenant whose turn it is.
    fn pop(&mut self) -> Option<Due> {
        let tenant = self.turns.pop_front()?;
        let line = self.lines.get_mut(&tenant)?;
        let entry = line.pop_front();
        match line.is_empty() {
            true => {
                self.lines.remove(&tenant);
            }
            false => self.turns.push_back(tenant),
        }
        entry
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use punctual_domain::id::{JobId, ShardId, Version};
    use punctual_store::DueKey;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
    }

    fn entry(millis: i64, lane: Lane, tenant: u32) -> Due {
        let job = JobId::new(at(0), ShardId(0), millis as u64);
        let key = DueKey { at: at(millis), lane, tenant: TenantId(tenant), job };
        Due { key, version: Version::FIRST, slot: at(millis) }
    }

    fn tenants(drawn: &[Due]) -> Vec<u32> {
        drawn.iter().map(|due| due.key.tenant.0).collect()
    }

    #[test]
    fn a_tenant_with_very_many_waits_its_turn() {
        let mut ripe = Ripe::default();
        (0..1_000).for_each(|n| ripe.push(entry(n, Lane::Standard, 1)));
        ripe.push(entry(2_000, Lane::Standard, 2));
        ripe.push(entry(2_001, Lane::Standard, 2));
        let drawn = ripe.draw(5);
        assert_eq!(tenants(&drawn), [1, 2, 1, 2, 1]);
        let of_first: Vec<_> = drawn.iter().filter(|due| due.key.tenant.0 == 1).map(|due| due.slot).collect();
        assert_eq!(of_first, [at(0), at(1), at(2)], "in the order they came");
        assert_eq!((ripe.len(), ripe.oldest()), (997, Some(at(3))));
    }

    #[test]
    fn lanes_go_by_their_shares() {
        let mut ripe = Ripe::default();
        for lane in Lane::ALL {
            (0..1_000).for_each(|n| ripe.push(entry(n, lane, 1)));
        }
        let drawn = ripe.draw(200);
        let count = |lane| drawn.iter().filter(|due| due.key.lane == lane).count();
        assert_eq!(Lane::ALL.map(count), [140, 50, 10]);
        assert_eq!(ripe.draw(5_000).len(), 2_800);
        assert_eq!((ripe.len(), ripe.oldest(), ripe.draw(1)), (0, None, Vec::new()));
    }

    #[test]
    fn what_is_not_kept_is_gone() {
        let mut ripe = Ripe::default();
        (0..10).for_each(|n| ripe.push(entry(n, Lane::Batch, n as u32 % 2)));
        ripe.retain(|due| due.key.tenant.0 == 1);
        assert_eq!((ripe.len(), ripe.oldest(), ripe.iter().count()), (5, Some(at(1)), 5));
        assert_eq!(tenants(&ripe.draw(9)), [1; 5]);
    }
}
