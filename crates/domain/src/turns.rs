//! Whose turn it is among the tenants that have runs waiting.
//!
//! Used by every claim. A store tells which tenants wait in each lane ([`Waiters`]), this says how many runs of each are
//! wanted ([`Division::divide`]), the store tells how many it found, and what is left is divided again. Which of a tenant's
//! runs those are is the store's to know: the first by priority and time.
//!
//! Promise: lanes get their shares; inside a lane the tenants that wait get one run each, round after round, whoever has
//! waited for a turn going first, so that a tenant with very many delays another by as many runs as there are tenants that wait;
//! room that one does not use goes to the others. Nothing is remembered of a tenant but who had the last turn.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;

use crate::id::TenantId;
use crate::job::Lane;
use crate::shares::Shares;

/// The turns that were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    shares: Shares,
    /// Who had the last turn in each lane.
    last: [Option<TenantId>; Lane::COUNT],
}

impl Turns {
    /// Turns of a lane go on with the first tenant after this one, and from the beginning when there is none.
    pub fn after(&self, lane: Lane) -> Option<TenantId> {
        self.last[usize::from(lane.rank())]
    }
}

/// Tenants that have runs waiting, by lane, in the order of their turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiters([VecDeque<TenantId>; Lane::COUNT]);

impl Waiters {
    /// Of tenants in any order, each lane's in the order of their turns, as many as may get one.
    pub fn new(turns: &Turns, waiting: impl IntoIterator<Item = (Lane, TenantId)>, most: usize) -> Self {
        let mut lanes: [Vec<TenantId>; Lane::COUNT] = Default::default();
        for (lane, tenant) in waiting {
            lanes[usize::from(lane.rank())].push(tenant);
        }
        let mut waiters = Waiters::default();
        for lane in Lane::ALL {
            let tenants = &mut lanes[usize::from(lane.rank())];
            tenants.sort_unstable_by_key(|tenant| (Some(*tenant) <= turns.after(lane), *tenant));
            tenants.dedup();
            tenants.truncate(most);
            waiters.0[usize::from(lane.rank())].extend(tenants.iter().copied());
        }
        waiters
    }

    fn lane(&mut self, lane: Lane) -> &mut VecDeque<TenantId> {
        &mut self.0[usize::from(lane.rank())]
    }

    fn is_waiting(&self, lane: Lane) -> bool {
        !self.0[usize::from(lane.rank())].is_empty()
    }
}

/// How many runs of a tenant are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// In this lane.
    pub lane: Lane,
    /// Of this tenant.
    pub tenant: TenantId,
    /// So many in all, those that were found before among them.
    pub most: usize,
}

/// How the room of one claim is divided.
#[derive(Debug)]
pub struct Division {
    waiters: Waiters,
    room: usize,
    /// The turns as the claim found them.
    begun: Turns,
    known: HashMap<(Lane, TenantId), Known>,
    /// In the order in which each first has a turn.
    asks: Vec<Ask>,
}

/// What is known of the runs of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// At least so many wait.
    Some(usize),
    /// Just so many.
    All(usize),
}

impl Division {
    /// Nothing is divided yet.
    pub fn new(turns: &Turns, waiters: Waiters, room: usize) -> Self {
        Division { waiters, room, begun: turns.clone(), known: HashMap::new(), asks: Vec::new() }
    }

    /// Divides all of the room, as far as is known how many wait. Returns what must be looked for; nothing when it is all
    /// known.
    ///
    /// It begins anew each time, so that the turns come out as if everything had been known from the beginning.
    pub fn divide(&mut self, turns: &mut Turns, now: Timestamp) -> Vec<Ask> {
        *turns = self.begun.clone();
        let mut waiters = self.waiters.clone();
        let mut places: HashMap<(Lane, TenantId), usize> = HashMap::new();
        self.asks.clear();
        for _ in 0..self.room {
            let Some(lane) = turns.shares.next_at(now, |lane| waiters.is_waiting(lane)) else {
                turns.shares.settle();
                break;
            };
            let Some(tenant) = waiters.lane(lane).pop_front() else { break };
            turns.last[usize::from(lane.rank())] = Some(tenant);
            let place = *places.entry((lane, tenant)).or_insert(self.asks.len());
            if place == self.asks.len() {
                self.asks.push(Ask { lane, tenant, most: 0 });
            }
            self.asks[place].most += 1;
            if self.known.get(&(lane, tenant)) != Some(&Known::All(self.asks[place].most)) {
                waiters.lane(lane).push_back(tenant);
            }
        }
        let is_open = |ask: &&Ask| match self.known.get(&(ask.lane, ask.tenant)) {
            Some(Known::Some(count)) => *count < ask.most,
            Some(Known::All(_)) => false,
            None => true,
        };
        self.asks.iter().filter(is_open).copied().collect()
    }

    /// So many were found of what was asked. Who has fewer than wanted has no more.
    pub fn found(&mut self, ask: Ask, count: usize) {
        let known = if count < ask.most { Known::All(count) } else { Known::Some(ask.most) };
        self.known.insert((ask.lane, ask.tenant), known);
        if count == 0 {
            self.waiters.lane(ask.lane).retain(|tenant| *tenant != ask.tenant);
        }
    }

    /// What was found of each ask, in the order of turns: urgent lanes first, in each the first of every tenant, then the
    /// second.
    pub fn in_turns<T>(&self, mut found: HashMap<(Lane, TenantId), Vec<T>>) -> Vec<T> {
        let mut ordered = Vec::new();
        for (place, ask) in self.asks.iter().enumerate() {
            let of_tenant = found.remove(&(ask.lane, ask.tenant)).unwrap_or_default();
            let turns = of_tenant.into_iter().take(ask.most).enumerate();
            ordered.extend(turns.map(|(nth, one)| ((ask.lane, nth, place), one)));
        }
        ordered.sort_by_key(|(turn, _)| *turn);
        ordered.into_iter().map(|(_, one)| one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims of some room where so many wait in each lane, of each tenant; who is given turns.
    fn claim(turns: &mut Turns, depth: &mut [(Lane, u32, usize)], room: usize) -> Vec<(Lane, u32)> {
        let some = depth.iter().filter(|(_, _, count)| *count > 0);
        let listed: Vec<_> = some.map(|(lane, tenant, _)| (*lane, TenantId(*tenant))).collect();
        let mut division = Division::new(turns, Waiters::new(turns, listed, room), room);
        let mut found = HashMap::new();
        loop {
            let asks = division.divide(turns, Timestamp::UNIX_EPOCH);
            if asks.is_empty() {
                break;
            }
            for ask in asks {
                let of = |one: &&(Lane, u32, usize)| (one.0, one.1) == (ask.lane, ask.tenant.0);
                let count = depth.iter().find(of).expect("asked of those that wait").2.min(ask.most);
                division.found(ask, count);
                found.insert((ask.lane, ask.tenant), vec![(ask.lane, ask.tenant.0); count]);
            }
        }
        let given = division.in_turns(found);
        for (lane, tenant) in &given {
            let of = |one: &&mut (Lane, u32, usize)| (one.0, one.1) == (*lane, *tenant);
            depth.iter_mut().find(of).expect("there").2 -= 1;
        }
        given
    }

    fn counts(given: &[(Lane, u32)]) -> Vec<(u32, usize)> {
        let mut counts = std::collections::BTreeMap::new();
        given.iter().for_each(|(_, tenant)| *counts.entry(*tenant).or_insert(0) += 1);
        counts.into_iter().collect()
    }

    #[test]
    fn tenants_that_wait_get_one_each_however_many_they_have() {
        let mut turns = Turns::default();
        let of = |tenant, count| (Lane::Standard, tenant, count);
        let mut waiting = [of(1, 1_000_000), of(2, 1), of(3, 4)];
        assert_eq!(counts(&claim(&mut turns, &mut waiting, 9)), [(1, 4), (2, 1), (3, 4)]);
        assert_eq!(counts(&claim(&mut turns, &mut waiting, 9)), [(1, 9)]);
        waiting[1].2 = 5;
        assert_eq!(counts(&claim(&mut turns, &mut waiting, 4)), [(1, 2), (2, 2)]);
        assert_eq!(counts(&claim(&mut turns, &mut waiting, 100)), [(1, 97), (2, 3)]);
    }

    #[test]
    fn one_at_a_time_comes_to_the_same() {
        let mut turns = Turns::default();
        let mut waiting = [(1, 100), (2, 100), (7, 2)].map(|(tenant, count)| (Lane::Batch, tenant, count));
        let one: Vec<u32> = (0..9).map(|_| claim(&mut turns, &mut waiting, 1)[0].1).collect();
        assert_eq!(one, [1, 2, 7, 1, 2, 7, 1, 2, 1]);
    }

    #[test]
    fn who_did_not_get_a_turn_is_first_with_the_next_claim() {
        let mut turns = Turns::default();
        let mut waiting: Vec<_> = (1..=10).map(|tenant| (Lane::Standard, tenant, 100)).collect();
        let all: Vec<u32> =
            (0..5).flat_map(|_| claim(&mut turns, &mut waiting, 4)).map(|(_, tenant)| tenant).collect();
        assert_eq!(all, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn lanes_have_their_shares_and_lend_what_they_do_not_use() {
        for (depth, expected) in [
            ([900, 900, 900], [70, 25, 5]),
            ([0, 900, 900], [0, 83, 17]),
            ([3, 900, 0], [3, 97, 0]),
            ([3, 900, 900], [3, 81, 16]),
            ([900, 900, 0], [74, 26, 0]),
        ] {
            for room in [1, 3, 7, 50, 100] {
                let mut turns = Turns::default();
                let mut waiting = Lane::ALL.map(|lane| (lane, 1, depth[usize::from(lane.rank())]));
                let mut given = [0_usize; 3];
                while given.iter().sum::<usize>() < 100 {
                    let room = room.min(100 - given.iter().sum::<usize>());
                    for (lane, _) in claim(&mut turns, &mut waiting, room) {
                        given[usize::from(lane.rank())] += 1;
                    }
                }
                let is_near = |(given, expected): (&usize, usize)| given.abs_diff(expected) <= 1;
                assert!(given.iter().zip(expected).all(is_near), "{depth:?} by {room}: {given:?}");
            }
        }
    }

    #[test]
    fn turns_come_out_as_if_it_had_been_known_how_many_wait() {
        let mut turns = Turns::default();
        let mut waiting = [(Lane::Critical, 1, 1), (Lane::Standard, 1, 3), (Lane::Batch, 1, 1)];
        let lanes: Vec<Lane> = [4, 9]
            .into_iter()
            .flat_map(|room| claim(&mut turns, &mut waiting, room))
            .map(|(lane, _)| lane)
            .collect();
        assert_eq!(lanes, [Lane::Critical, Lane::Standard, Lane::Standard, Lane::Standard, Lane::Batch]);
        assert_eq!(turns.shares, Turns::default().shares, "nothing is owed");
    }

    #[test]
    fn what_was_found_is_told_in_the_order_of_turns() {
        let mut turns = Turns::default();
        let mut waiting = [(Lane::Standard, 2, 2), (Lane::Standard, 1, 3), (Lane::Critical, 2, 2)];
        let given = claim(&mut turns, &mut waiting, 9);
        let (critical, standard) = given.split_at(2);
        assert_eq!(critical, [(Lane::Critical, 2); 2]);
        assert_eq!(standard.iter().map(|(_, tenant)| *tenant).collect::<Vec<_>>(), [1, 2, 1, 2, 1]);
    }
}
