//! What a store counts about itself, for `/metrics`.

use std::time::Duration;

use punctual_domain::Lane;

/// Counted while it works. Asking costs nothing and touches no disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Runs that wait for a worker, and whose time has come.
    pub waiting: Waiting,
    /// Runs that wait, whatever for.
    pub pending: u64,
    /// How long commits took, until they were durable.
    pub commits: Durations,
    /// How long each verb took, of a store that is asked over a network.
    pub verbs: Vec<(&'static str, Durations)>,
    /// How long calls waited for a connection to it.
    pub waits: Durations,
    /// What went wrong, by kind; all kinds there are.
    pub faults: Vec<Fault>,
    /// Copies that lists may be read from.
    pub replicas: Vec<Replica>,
}

impl Figures {
    /// What two stores have counted together.
    pub fn plus(mut self, other: Figures) -> Figures {
        for lane in Lane::ALL {
            self.waiting.add(lane, other.waiting.of(lane));
        }
        self.pending += other.pending;
        self.commits.add(&other.commits);
        self.waits.add(&other.waits);
        for (verb, durations) in other.verbs {
            match self.verbs.iter_mut().find(|(known, _)| *known == verb) {
                Some((_, sum)) => sum.add(&durations),
                None => self.verbs.push((verb, durations)),
            }
        }
        for fault in other.faults {
            match self.faults.iter_mut().find(|known| known.kind == fault.kind) {
                Some(sum) => {
                    sum.retried += fault.retried;
                    sum.failed += fault.failed;
                }
                None => self.faults.push(fault),
            }
        }
        self.replicas.extend(other.replicas);
        self
    }
}

/// How often something of a kind went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// What it was.
    pub kind: &'static str,
    /// How often it was tried again.
    pub retried: u64,
    /// How often a caller heard of it.
    pub failed: u64,
}

/// A copy that lists may be read from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replica {
    /// Where it is, without a password.
    pub address: String,
    /// How old what it has may be, if that is known.
    pub lag: Option<Duration>,
    /// Whether lists are read from it now.
    pub is_used: bool,
    /// Pages that were read from it.
    pub reads: u64,
}

/// Runs that wait, by lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting([u64; Lane::ALL.len()]);

impl Waiting {
    /// How many wait in a lane.
    pub fn of(&self, lane: Lane) -> u64 {
        self.0[usize::from(lane.rank())]
    }

    /// Whether some wait, and all of them in the last lane.
    pub fn is_batch_only(&self) -> bool {
        Lane::ALL.iter().all(|lane| (self.of(*lane) > 0) == (*lane == Lane::Batch))
    }

    /// Some more wait.
    pub fn add(&mut self, lane: Lane, runs: u64) {
        self.0[usize::from(lane.rank())] += runs;
    }

    /// Some wait no more.
    pub fn remove(&mut self, lane: Lane, runs: u64) {
        let waiting = &mut self.0[usize::from(lane.rank())];
        *waiting = waiting.saturating_sub(runs);
    }
}

/// How often something took how long.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Durations {
    counts: [u64; BUCKETS],
    seconds: f64,
}

/// The bounds double from an eighth of a millisecond to four seconds; what took longer is counted apart.
const BUCKETS: usize = 17;
const FIRST_SECONDS: f64 = 0.000_125;

impl Durations {
    /// Counts one.
    pub fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = self.buckets().position(|(bound, _)| seconds <= bound).unwrap_or(BUCKETS - 1);
        self.counts[bucket] += 1;
        self.seconds += seconds;
    }

    /// Counts what another has counted.
    pub fn add(&mut self, other: &Durations) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.seconds += other.seconds;
    }

    /// Upper bounds in seconds, and how many took at most that and more than the bound before. The last has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bound = |at: usize| match at == BUCKETS - 1 {
            true => f64::INFINITY,
            false => FIRST_SECONDS * f64::from(1_u32 << at),
        };
        self.counts.into_iter().enumerate().map(move |(at, count)| (bound(at), count))
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How long all of them took together.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_two_stores_add_up() {
        let mut one = Figures::default();
        one.waiting.add(Lane::ALL[0], 2);
        one.pending = 3;
        one.commits.observe(Duration::from_millis(1));
        one.verbs.push(("fire", one.commits));
        one.faults.push(Fault { kind: "pool", retried: 1, failed: 2 });
        let mut other = one.clone();
        other.verbs.push(("due", other.commits));
        let sum = one.plus(other);
        assert_eq!((sum.waiting.of(Lane::ALL[0]), sum.pending, sum.commits.count()), (4, 6, 2));
        let verbs: Vec<_> = sum.verbs.iter().map(|(verb, took)| (*verb, took.count())).collect();
        assert_eq!(verbs, [("fire", 2), ("due", 1)]);
        assert_eq!(sum.faults, [Fault { kind: "pool", retried: 2, failed: 4 }]);
    }

    #[test]
    fn what_takes_longer_is_in_a_later_bucket() {
        let mut durations = Durations::default();
        for millis in [0, 1, 3, 5_000, 60_000] {
            durations.observe(Duration::from_millis(millis));
        }
        let counted: Vec<(f64, u64)> = durations.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(0.000_125, 1), (0.001, 1), (0.004, 1), (f64::INFINITY, 2)]);
        assert_eq!((durations.count(), durations.seconds()), (5, 65.004));
    }
}
