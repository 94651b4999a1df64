//! Whose turn it is among the runs that wait for a worker.
//!
//! Waiting runs stand by line (see [`crate::line_of`]), lane and tenant. A claim that has room for fewer than wait takes
//! some of each stand. Promise: lanes get their shares, and inside a lane every tenant gets as much as the others, however
//! many it has; what one does not use goes to the rest.

use std::collections::BTreeMap;

use punctual_domain::id::TenantId;
use punctual_domain::job::Lane;
use punctual_domain::shares::Shares;

/// Where runs wait. Inside of one they go by urgency, time and birth.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stand {
    /// The queue, and what is required of the worker.
    pub line: String,
    /// The lane.
    pub lane: Lane,
    /// Whose they are.
    pub tenant: TenantId,
}

/// A claim looks at so many stands; if there are more, the next one goes on behind them.
pub const STANDS_MAX: usize = 1_000;

/// The turns that were given so far.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    shares: Shares,
    /// In each lane: so that of more tenants than there is room for, not the same are always first.
    given: [usize; Lane::COUNT],
    /// Where the next claim goes on, if the last one did not see all stands.
    pub after: Option<Stand>,
}

impl Turns {
    /// How many of each of these stands a claim takes that has room for so many.
    fn divide(&mut self, stands: &[Stand], room: usize) -> Vec<usize> {
        let mut lanes: [BTreeMap<TenantId, Vec<usize>>; Lane::COUNT] = Default::default();
        for (place, stand) in stands.iter().enumerate() {
            lanes[usize::from(stand.lane.rank())].entry(stand.tenant).or_default().push(place);
        }
        let waiting = lanes.each_ref().map(|tenants| if tenants.is_empty() { 0 } else { room });
        let quotas = self.shares.divide(waiting, room);
        let mut wanted = vec![0; stands.len()];
        for ((tenants, quota), given) in lanes.iter().zip(quotas).zip(&mut self.given) {
            let places: Vec<&Vec<usize>> = tenants.values().collect();
            for (places, quota) in places.iter().zip(split(quota, places.len(), *given)) {
                for (place, quota) in places.iter().zip(split(quota, places.len(), *given)) {
                    wanted[*place] = quota;
                }
            }
            *given = given.wrapping_add(quota);
        }
        wanted
    }
}

/// So many in equal parts, of which those from `first` on get what is left over.
fn split(quota: usize, parts: usize, first: usize) -> impl Iterator<Item = usize> {
    let parts = parts.max(1);
    (0..parts)
        .map(move |part| quota / parts + usize::from((part + parts - first % parts) % parts < quota % parts))
}

/// A claim under way: stands that did not have what was wanted leave what is left to the others.
#[derive(Debug)]
pub struct Round {
    stands: Vec<Stand>,
    room: usize,
}

impl Round {
    /// A claim with room for so many runs from these stands.
    pub fn new(stands: Vec<Stand>, room: usize) -> Self {
        Round { stands, room }
    }

    /// How many to take of which stands; nothing when the claim is over. It is followed by [`Round::took`].
    pub fn next(&self, turns: &mut Turns) -> Vec<(Stand, usize)> {
        let wanted = turns.divide(&self.stands, self.room);
        self.stands.iter().cloned().zip(wanted).filter(|(_, wanted)| *wanted > 0).collect()
    }

    /// How many there were of what was wanted.
    pub fn took(&mut self, wanted: &[(Stand, usize)], took: impl IntoIterator<Item = usize>) {
        for ((stand, wanted), took) in wanted.iter().zip(took) {
            self.room = self.room.saturating_sub(took);
            if took < *wanted {
                self.stands.retain(|other| other != stand);
            }
        }
    }

    /// How many more it has room for.
    pub fn room(&self) -> usize {
        self.room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stand(line: &str, lane: Lane, tenant: u32) -> Stand {
        Stand { line: line.into(), lane, tenant: TenantId(tenant) }
    }

    /// Takes turns until the room or what waits is used up.
    fn claim(turns: &mut Turns, waiting: &mut BTreeMap<Stand, usize>, room: usize) -> BTreeMap<Stand, usize> {
        let stands =
            waiting.iter().filter(|(_, count)| **count > 0).map(|(stand, _)| stand.clone()).collect();
        let mut round = Round::new(stands, room);
        let mut taken = BTreeMap::new();
        loop {
            let wanted = round.next(turns);
            if wanted.is_empty() {
                return taken;
            }
            let mut took = Vec::new();
            for (stand, wanted) in &wanted {
                let left = waiting.get_mut(stand).map_or(0, |left| {
                    let took = (*wanted).min(*left);
                    *left -= took;
                    took
                });
                *taken.entry(stand.clone()).or_default() += left;
                took.push(left);
            }
            round.took(&wanted, took);
        }
    }

    #[test]
    fn tenants_get_the_same_and_leave_to_others_what_they_do_not_use() {
        let (noisy, quiet) = (stand("q", Lane::Standard, 1), stand("q", Lane::Standard, 2));
        let mut waiting = BTreeMap::from([(noisy.clone(), 1_000_000), (quiet.clone(), 3)]);
        let taken = claim(&mut Turns::default(), &mut waiting, 100);
        assert_eq!((taken[&noisy], taken[&quiet]), (97, 3));
        assert_eq!(claim(&mut Turns::default(), &mut waiting, 10), BTreeMap::from([(noisy, 10)]));
    }

    #[test]
    fn of_more_tenants_than_there_is_room_for_each_has_its_turn() {
        let stands: Vec<Stand> = (0..7).map(|tenant| stand("q", Lane::Batch, tenant)).collect();
        let mut waiting: BTreeMap<Stand, usize> = stands.iter().cloned().map(|stand| (stand, 100)).collect();
        let mut turns = Turns::default();
        for _ in 0..14 {
            assert_eq!(claim(&mut turns, &mut waiting, 2).values().sum::<usize>(), 2);
        }
        assert!(waiting.values().all(|left| *left == 96), "{waiting:?}");
    }

    #[test]
    fn a_tenant_with_many_queues_gets_no_more_than_one_with_few() {
        let many = ["a", "b", "c", "d"].map(|line| stand(line, Lane::Standard, 1));
        let few = stand("a", Lane::Standard, 2);
        let mut waiting: BTreeMap<Stand, usize> =
            many.iter().chain([&few]).cloned().map(|stand| (stand, 100)).collect();
        let taken = claim(&mut Turns::default(), &mut waiting, 80);
        assert_eq!((taken[&few], taken[&many[0]], taken[&many[3]]), (40, 10, 10));
    }

    #[test]
    fn lanes_get_their_shares_also_in_small_claims() {
        let stands = Lane::ALL.map(|lane| stand("q", lane, 1));
        let mut waiting: BTreeMap<Stand, usize> =
            stands.iter().cloned().map(|stand| (stand, 1_000)).collect();
        let mut turns = Turns::default();
        (0..100).for_each(|_| drop(claim(&mut turns, &mut waiting, 3)));
        assert_eq!(stands.map(|stand| 1_000 - waiting[&stand]), [210, 75, 15]);
    }
}
