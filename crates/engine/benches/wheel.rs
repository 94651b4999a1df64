//! The wheel beside the simpler structures, with a million entries of 48 bytes each.
//!
//! `cargo bench -p punctual-engine`: nanoseconds per entry, in and out, the median of the rounds.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use std::time::{Duration, Instant};

use punctual_engine::wheel::Wheel;

fn main() {
    println!("nanoseconds per entry in + out, longest pop of {BATCH} in ms");
    println!("{:<32}{:>20}{:>20}{:>20}{:>20}", "", "Wheel", "BinaryHeap", "BTreeMap", "BTreeMap of Vec");
    for load in LOADS {
        let times = load.times();
        print!("{:<32}", load.name);
        print!("{:>20}", measure::<Wheel<Body>>(&load, &times));
        print!("{:>20}", measure::<Heap>(&load, &times));
        print!("{:>20}", measure::<Tree>(&load, &times));
        println!("{:>20}", measure::<Lists>(&load, &times));
    }
}

struct Load {
    name: &'static str,
    spread_ms: i64,
    /// As the loader reads them.
    sorted: bool,
    /// Each entry that comes out goes in again, `spread_ms` later.
    again: bool,
}

const LOADS: [Load; 6] = [
    Load { name: "one millisecond", spread_ms: 1, sorted: true, again: false },
    Load { name: "10 s", spread_ms: 10_000, sorted: false, again: false },
    Load { name: "10 s, in time order", spread_ms: 10_000, sorted: true, again: false },
    Load { name: "10 s, each in again 10 s later", spread_ms: 10_000, sorted: false, again: true },
    Load { name: "a day", spread_ms: DAY_MS, sorted: false, again: false },
    Load { name: "a day, in time order", spread_ms: DAY_MS, sorted: true, again: false },
];

impl Load {
    fn times(&self) -> Vec<i64> {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut times: Vec<i64> =
            (0..ENTRIES).map(|_| START + AHEAD_MS + rng.i64(0..self.spread_ms)).collect();
        if self.sorted {
            times.sort_unstable();
        }
        times
    }
}

/// The median of the rounds, as text.
fn measure<Q: Queue>(load: &Load, times: &[i64]) -> String {
    let mut rounds: Vec<Round> = (0..ROUNDS).map(|_| round::<Q>(load, times)).collect();
    rounds.sort_unstable_by_key(|round| round.inserting + round.popping);
    let Round { inserting, popping, longest_pop } = rounds[ROUNDS / 2];
    let per_entry = |all: Duration| all.as_nanos() / ENTRIES as u128;
    format!("{} + {}, {:.1}", per_entry(inserting), per_entry(popping), longest_pop.as_secs_f64() * 1e3)
}

struct Round {
    inserting: Duration,
    popping: Duration,
    longest_pop: Duration,
}

fn round<Q: Queue>(load: &Load, times: &[i64]) -> Round {
    let mut queue = Q::new();
    let began = Instant::now();
    for at in times {
        queue.insert(*at, [0; 6]);
    }
    let inserting = began.elapsed();
    let mut longest_pop = Duration::ZERO;
    let mut due = Vec::with_capacity(BATCH);
    let mut popped = 0;
    while popped < ENTRIES {
        let pop_began = Instant::now();
        queue.pop_due(i64::MAX, &mut due);
        longest_pop = longest_pop.max(pop_began.elapsed());
        popped += due.len();
        for (at, body) in due.drain(..) {
            if load.again {
                queue.insert(at + load.spread_ms, body);
            }
        }
    }
    Round { inserting, popping: began.elapsed() - inserting, longest_pop }
}

const ENTRIES: usize = 1_000_000;
const ROUNDS: usize = 5;
const BATCH: usize = 500; // What one fire would take.
const AHEAD_MS: i64 = 30_000; // What the loader may read ahead.
const DAY_MS: i64 = 86_400_000;
const START: i64 = 1_790_000_000_000; // In September 2026.

/// As large as a due entry: job id, version, shard, epoch, tenant.
type Body = [u64; 6];

trait Queue {
    fn new() -> Self;
    fn insert(&mut self, at: i64, body: Body);
    fn pop_due(&mut self, now: i64, due: &mut Vec<(i64, Body)>);
}

impl Queue for Wheel<Body> {
    fn new() -> Self {
        Wheel::new(ENTRIES, START)
    }

    fn insert(&mut self, at: i64, body: Body) {
        assert!(self.insert(at, body).is_ok());
    }

    fn pop_due(&mut self, now: i64, due: &mut Vec<(i64, Body)>) {
        self.pop_due(now, BATCH, due);
    }
}

/// `BinaryHeap`, with a number that keeps the order of insertion.
#[derive(Default)]
struct Heap {
    entries: BinaryHeap<Reverse<Numbered>>,
    inserted: u64,
}

struct Numbered(i64, u64, Body);

impl Ord for Numbered {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

impl PartialOrd for Numbered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Numbered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Numbered {}

impl Queue for Heap {
    fn new() -> Self {
        Heap::default()
    }

    fn insert(&mut self, at: i64, body: Body) {
        self.inserted += 1;
        self.entries.push(Reverse(Numbered(at, self.inserted, body)));
    }

    fn pop_due(&mut self, now: i64, due: &mut Vec<(i64, Body)>) {
        while due.len() < BATCH && self.entries.peek().is_some_and(|first| first.0.0 <= now) {
            due.extend(self.entries.pop().map(|first| (first.0.0, first.0.2)));
        }
    }
}

/// `BTreeMap` by time and number.
#[derive(Default)]
struct Tree {
    entries: BTreeMap<(i64, u64), Body>,
    inserted: u64,
}

impl Queue for Tree {
    fn new() -> Self {
        Tree::default()
    }

    fn insert(&mut self, at: i64, body: Body) {
        self.inserted += 1;
        self.entries.insert((at, self.inserted), body);
    }

    fn pop_due(&mut self, now: i64, due: &mut Vec<(i64, Body)>) {
        while due.len() < BATCH
            && let Some(first) = self.entries.first_entry()
            && first.key().0 <= now
        {
            let ((at, _), body) = first.remove_entry();
            due.push((at, body));
        }
    }
}

/// `BTreeMap` of milliseconds, each with its list.
#[derive(Default)]
struct Lists(BTreeMap<i64, Vec<Body>>);

impl Queue for Lists {
    fn new() -> Self {
        Lists::default()
    }

    fn insert(&mut self, at: i64, body: Body) {
        self.0.entry(at).or_default().push(body);
    }

    // Ignores the batch: a whole millisecond at a time.
    fn pop_due(&mut self, now: i64, due: &mut Vec<(i64, Body)>) {
        while due.len() < BATCH
            && let Some(first) = self.0.first_entry()
            && *first.key() <= now
        {
            let (at, bodies) = first.remove_entry();
            due.extend(bodies.into_iter().map(|body| (at, body)));
        }
    }
}
