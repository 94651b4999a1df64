//! How lanes share what there is room for.
//!
//! Promise: while all lanes have something waiting, each gets its share of every stretch of turns, to within one turn;
//! what a lane does not use is lent to the others in proportion to their shares, and is not owed to it later.

use crate::job::Lane;

/// The turns of lanes, as one node gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    weights: [i64; Lane::COUNT],
    /// What a lane has coming of its share; less than nothing if it has had more.
    credits: [i64; Lane::COUNT],
}

impl Default for Shares {
    /// 70, 25 and 5 of a hundred turns.
    fn default() -> Self {
        Shares { weights: [70, 25, 5], credits: [0; Lane::COUNT] }
    }
}

impl Shares {
    /// The lane whose turn it is among those that have something waiting; none if none has.
    pub fn next(&mut self, is_waiting: impl Fn(Lane) -> bool) -> Option<Lane> {
        let mut total = 0;
        let mut first: Option<usize> = None;
        for lane in Lane::ALL {
            let place = usize::from(lane.rank());
            if !is_waiting(lane) {
                // A lane that has nothing does not save up for later.
                self.credits[place] = 0;
                continue;
            }
            self.credits[place] += self.weights[place];
            total += self.weights[place];
            if first.is_none_or(|first| self.credits[place] > self.credits[first]) {
                first = Some(place);
            }
        }
        let first = first?;
        self.credits[first] -= total;
        Some(Lane::ALL[first])
    }

    /// How many of so many turns each lane gets, when this many wait in each.
    pub fn divide(&mut self, mut waiting: [usize; Lane::COUNT], turns: usize) -> [usize; Lane::COUNT] {
        let mut given = [0; Lane::COUNT];
        if waiting.iter().sum::<usize>() <= turns {
            self.credits = [0; Lane::COUNT];
            return waiting;
        }
        for _ in 0..turns {
            let Some(lane) = self.next(|lane| waiting[usize::from(lane.rank())] > 0) else { break };
            waiting[usize::from(lane.rank())] -= 1;
            given[usize::from(lane.rank())] += 1;
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_saturation_each_lane_has_its_share_of_every_hundred_turns() {
        let mut shares = Shares::default();
        for _ in 0..10 {
            assert_eq!(shares.divide([1_000; 3], 100), [70, 25, 5]);
        }
        // And no lane waits longer than its share says.
        let turns: Vec<Lane> = (0..1_000).filter_map(|_| shares.next(|_| true)).collect();
        let batch: Vec<usize> = (0..1_000).filter(|turn| turns[*turn] == Lane::Batch).collect();
        assert!(batch.windows(2).all(|pair| pair[1] - pair[0] <= 21), "{batch:?}");
    }

    #[test]
    fn small_divisions_come_to_the_same() {
        let mut shares = Shares::default();
        let mut given = [0; 3];
        for _ in 0..200 {
            let some = shares.divide([50; 3], 3);
            (0..3).for_each(|lane| given[lane] += some[lane]);
        }
        assert_eq!(given, [420, 150, 30]);
    }

    #[test]
    fn what_a_lane_leaves_is_lent_by_share_and_not_owed() {
        let mut shares = Shares::default();
        assert_eq!(shares.divide([0, 1_000, 1_000], 60), [0, 50, 10]);
        assert_eq!(shares.divide([3, 1_000, 0], 100), [3, 97, 0]);
        assert_eq!(shares.divide([1_000; 3], 100), [70, 25, 5]);
        assert_eq!(shares.divide([4, 2, 1], 100), [4, 2, 1]);
        assert_eq!(shares.next(|_| false), None);
    }
}
