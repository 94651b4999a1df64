//! How lanes share what there is room for.
//!
//! Promise: while all lanes have something waiting, each gets its share of every stretch of turns, to within one turn;
//! what a lane does not use is lent to the others in proportion to their shares, and is not owed to it later. Where turns
//! have a time ([`Shares::next_at`]) no lane waits for seconds because turns are rare.

use jiff::{SignedDuration, Timestamp};

use crate::job::Lane;

/// A lane that has waited so long is next. With the time between two turns it is less than 5 s.
const PATIENCE: SignedDuration = SignedDuration::from_secs(4);

/// But only after so many turns of others: more than every tenth turn would take a lane further above its share than
/// five of a hundred.
const TURNS_OF_OTHERS: u32 = 9;

/// The turns of lanes, as one node gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    weights: [i64; Lane::COUNT],
    /// What a lane has coming of its share; less than nothing if it has had more.
    credits: [i64; Lane::COUNT],
    /// Since when a lane waits for its turn, and how many others had since.
    waits: [Option<(Timestamp, u32)>; Lane::COUNT],
}

impl Default for Shares {
    /// 70, 25 and 5 of a hundred turns.
    fn default() -> Self {
        Shares { weights: [70, 25, 5], credits: [0; Lane::COUNT], waits: [None; Lane::COUNT] }
    }
}

impl Shares {
    /// The lane whose turn it is among those that have something waiting; none if none has.
    pub fn next(&mut self, is_waiting: impl Fn(Lane) -> bool) -> Option<Lane> {
        self.give(is_waiting, None)
    }

    /// The same at a time: a lane that has waited too long goes before its share, and its share is charged.
    pub fn next_at(&mut self, now: Timestamp, is_waiting: impl Fn(Lane) -> bool) -> Option<Lane> {
        for lane in Lane::ALL {
            let wait = &mut self.waits[usize::from(lane.rank())];
            match is_waiting(lane) {
                true => drop(wait.get_or_insert((now, 0))),
                false => *wait = None,
            }
        }
        let is_overdue = |&(since, turns): &(Timestamp, u32)| {
            turns >= TURNS_OF_OTHERS && now.duration_since(since) >= PATIENCE
        };
        let wait = |lane: &Lane| self.waits[usize::from(lane.rank())].filter(is_overdue);
        let overdue = Lane::ALL.into_iter().filter(|lane| wait(lane).is_some()).min_by_key(wait);
        let next = self.give(is_waiting, overdue)?;
        for lane in Lane::ALL {
            if let Some((since, turns)) = &mut self.waits[usize::from(lane.rank())] {
                (*since, *turns) = if lane == next { (now, 0) } else { (*since, *turns + 1) };
            }
        }
        Some(next)
    }

    /// All that waited had its turn: nothing is owed.
    pub fn settle(&mut self) {
        self.credits = [0; Lane::COUNT];
    }

    /// Gives a turn to the lane that has most coming, or to this one.
    fn give(&mut self, is_waiting: impl Fn(Lane) -> bool, before_all: Option<Lane>) -> Option<Lane> {
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
        let first = before_all.map(|lane| usize::from(lane.rank())).or(first)?;
        self.credits[first] -= total;
        Some(Lane::ALL[first])
    }

    /// How many of so many turns each lane gets, when this many wait in each.
    pub fn divide(&mut self, mut waiting: [usize; Lane::COUNT], turns: usize) -> [usize; Lane::COUNT] {
        let mut given = [0; Lane::COUNT];
        if waiting.iter().sum::<usize>() <= turns {
            self.settle();
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

    #[test]
    fn no_lane_waits_for_seconds_because_turns_are_rare() {
        let turns = |per_second: i64| {
            let (mut shares, mut given) = (Shares::default(), Vec::new());
            for turn in 0..per_second * 300 {
                let now = Timestamp::UNIX_EPOCH + SignedDuration::from_millis(turn * 1_000 / per_second);
                given.extend(shares.next_at(now, |_| true).map(|lane| (now, lane)));
            }
            given
        };
        for (per_second, longest_s) in [(2, 5), (3, 5), (10, 5), (100, 5), (1, 21)] {
            let given = turns(per_second);
            for lane in Lane::ALL {
                let times: Vec<Timestamp> =
                    given.iter().filter(|(_, had)| *had == lane).map(|(at, _)| *at).collect();
                let gap = times.windows(2).map(|pair| pair[1].duration_since(pair[0])).max();
                assert!(
                    gap <= Some(SignedDuration::from_secs(longest_s)),
                    "{lane:?} at {per_second}: {gap:?}"
                );
                let (share, weight) =
                    (100 * times.len() / given.len(), [70, 25, 5][usize::from(lane.rank())]);
                assert!(share.abs_diff(weight) <= 5, "{lane:?} at {per_second}: {share}");
            }
        }
    }
}
