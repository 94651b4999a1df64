//! Holds the due entries of the near horizon in memory, in time order.
//!
//! The loader fills it ahead of time; the fire loop drains it and sleeps until [`Wheel::next_at`].
//! Promise: an entry comes out once, never before its time, earliest first, and within one
//! millisecond in the order of insertion, whichever way the clock moves. Pure: time is an argument.
//!
//! It is a hierarchical wheel. Level 0 has a bucket for each of 64 milliseconds, level 1 for each
//! 64 of those, and so on over all of `i64`: no time is too far ahead. An entry lies on the level of
//! the highest digit, in base 64, in which its time differs from the wheel's start. When the earliest
//! bucket is due and above level 0, it is opened: the start moves to its earliest entry, its entries
//! move to lower levels. So empty hours and jumps of the clock cost nothing, and an entry moves at
//! most once per level: about twice from 10 s ahead, four times from a day ahead. A bucket is opened
//! within one [`Wheel::pop_due`]: with a million entries in it, that call takes about 10 ms.
//!
//! An entry before the start is late and waits in a tree: O(log n) and twice the memory. Few are,
//! unless a running node takes over a backlog.
//!
//! Memory: 10 bytes per entry beside the entry, and at most 832 part-filled or spare chunks of 32
//! entries, 1.5 MB at 48 bytes. A million such entries take 58 MB. A drained wheel has given all but
//! 0.5 MB back to the allocator; whether the process shrinks is the allocator's choice, and glibc's
//! mostly does not.
//!
//! Why not something simpler: nanoseconds to insert and pop one of a million entries of 48 bytes
//! (`cargo bench -p punctual-engine`), and the memory of that million over a day in time order.
//!
//! | entries | wheel | `BinaryHeap` | `BTreeMap<(ms, number), T>` | `BTreeMap<ms, Vec<T>>` |
//! |---|---|---|---|---|
//! | in one millisecond | 46 | 169 | 173 | 50 |
//! | over 10 s | 63 | 574 | 380 | 110 |
//! | over 10 s, inserted in time order | 42 | 178 | 144 | 49 |
//! | over 10 s, each inserted again | 78 | 895 | 537 | 189 |
//! | over a day | 124 | 790 | 622 | 1229 |
//! | over a day, inserted in time order | 137 | 275 | 214 | 268 |
//! | memory | 58 MB | 67 MB | 122 MB | 254 MB |

use std::collections::{BTreeMap, VecDeque};
use std::mem;

/// Entries of type `T`, each due at a time in milliseconds.
pub struct Wheel<T> {
    capacity: usize,
    len: usize,
    /// Late entries are before it, all others at or after it.
    start: i64,
    late: BTreeMap<(i64, u64), T>,
    /// Numbers late entries, so that those of one millisecond keep their order.
    late_inserted: u64,
    /// `LEVELS` times `BUCKETS`.
    buckets: Vec<Bucket<T>>,
    /// One bit for each bucket that has entries, one word for each level.
    occupied: [u64; LEVELS],
    spare: Vec<Chunk<T>>,
    /// How many entries each second has, modulo `SECONDS`.
    seconds: Vec<usize>,
}

const BITS: u32 = 6; // One word says which buckets of a level have entries.
const BUCKETS: usize = 1 << BITS;
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;
const SECONDS: usize = 4_096; // Over an hour: a horizon is shorter, so counts are exact.

impl<T> Wheel<T> {
    /// An empty wheel that takes up to `capacity` entries, best after `now`.
    pub fn new(capacity: usize, now: i64) -> Self {
        Wheel {
            capacity,
            len: 0,
            start: now,
            late: BTreeMap::new(),
            late_inserted: 0,
            buckets: (0..LEVELS * BUCKETS).map(|_| Bucket::new()).collect(),
            occupied: [0; LEVELS],
            spare: Vec::new(),
            seconds: vec![0; SECONDS],
        }
    }

    /// Adds an entry at any time, past or future; gives it back when the wheel is full.
    pub fn insert(&mut self, at: i64, entry: T) -> Result<(), T> {
        if self.len >= self.capacity {
            return Err(entry);
        }
        self.admit(at, entry);
        Ok(())
    }

    /// Moves up to `limit` entries due at `now` or before to the end of `due`, with their times.
    pub fn pop_due(&mut self, now: i64, limit: usize, due: &mut Vec<(i64, T)>) {
        let first = due.len();
        let full = first.saturating_add(limit);
        self.pop_late(now, full, due);
        while due.len() < full
            && let Some(place) = self.first_occupied()
            && self.buckets[place.index()].earliest <= now
        {
            if place.level > 0 {
                self.open(place);
                continue;
            }
            let bucket = &mut self.buckets[place.index()];
            bucket.pop(full, due, &mut self.spare);
            if bucket.is_empty() {
                self.vacate(place);
            }
        }
        self.len -= due.len() - first;
        for (at, _) in &due[first..] {
            self.seconds[second_of(*at)] -= 1;
        }
    }

    /// The time of the earliest entry, in a few steps.
    pub fn next_at(&self) -> Option<i64> {
        match self.late.first_key_value() {
            Some(((at, _), _)) => Some(*at),
            None => self.first_occupied().map(|place| self.buckets[place.index()].earliest),
        }
    }

    /// How many entries are at `from` or later and before `to`, in whole seconds: never too few,
    /// too many by the rest of the seconds at both ends and by entries a multiple of 4,096 s away.
    pub fn density(&self, from: i64, to: i64) -> usize {
        if from >= to {
            return 0;
        }
        let (first, last) = (from.div_euclid(1_000), (to - 1).div_euclid(1_000));
        if last - first >= SECONDS as i64 {
            return self.len;
        }
        (first..=last).map(|second| self.seconds[second.rem_euclid(SECONDS as i64) as usize]).sum()
    }

    /// Drops the entries for which `keep` says no, such as those of a shard that is handed over.
    /// Visits all entries, in no order.
    pub fn retain(&mut self, mut keep: impl FnMut(i64, &T) -> bool) {
        let all = mem::replace(self, Wheel::new(self.capacity, self.start));
        let late = all.late.into_iter().map(|((at, _), entry)| (at, entry));
        let others = all.buckets.into_iter().flat_map(|bucket| bucket.chunks).flatten();
        for (at, entry) in late.chain(others) {
            if keep(at, &entry) {
                self.admit(at, entry);
            }
        }
    }

    /// Drops all entries, and the memory they took.
    pub fn clear(&mut self) {
        *self = Wheel::new(self.capacity, self.start);
    }

    /// How many entries it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many entries it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn admit(&mut self, at: i64, entry: T) {
        // A node that starts reads its backlog earliest first: none of it is late, if the start follows.
        if self.len == 0 && at < self.start {
            self.start = at;
        }
        self.len += 1;
        self.seconds[second_of(at)] += 1;
        if at < self.start {
            self.late.insert((at, self.late_inserted), entry);
            self.late_inserted += 1;
        } else {
            self.push(at, entry);
        }
    }

    fn push(&mut self, at: i64, entry: T) {
        let place = Place::of(at, self.start);
        self.occupied[place.level] |= 1 << place.digit;
        self.buckets[place.index()].push(at, entry, &mut self.spare);
    }

    fn pop_late(&mut self, now: i64, full: usize, due: &mut Vec<(i64, T)>) {
        while due.len() < full
            && let Some(first) = self.late.first_entry()
            && first.key().0 <= now
        {
            let ((at, _), entry) = first.remove_entry();
            due.push((at, entry));
        }
    }

    /// The bucket with the earliest entry that is not late. Digits of a level are above the start's, so
    /// that lower levels come first, and on a level the lowest digit.
    fn first_occupied(&self) -> Option<Place> {
        let level = self.occupied.iter().position(|word| *word != 0)?;
        Some(Place { level, digit: self.occupied[level].trailing_zeros() as usize })
    }

    /// Moves the start to the first bucket, and its entries to the levels below.
    fn open(&mut self, place: Place) {
        let bucket = &mut self.buckets[place.index()];
        self.start = bucket.earliest;
        let mut chunks = mem::take(&mut bucket.chunks);
        while let Some(mut chunk) = chunks.pop_front() {
            for (at, entry) in chunk.drain(..) {
                self.push(at, entry);
            }
            recycle(chunk, &mut self.spare);
        }
        self.buckets[place.index()].chunks = chunks;
        self.vacate(place);
    }

    fn vacate(&mut self, place: Place) {
        self.occupied[place.level] &= !(1 << place.digit);
        let bucket = &mut self.buckets[place.index()];
        bucket.earliest = i64::MAX;
        bucket.chunks.shrink_to(BUCKET_CHUNKS_KEPT);
    }
}

/// Which bucket.
#[derive(Clone, Copy)]
struct Place {
    level: usize,
    digit: usize,
}

impl Place {
    fn of(at: i64, start: i64) -> Self {
        let highest_bit = ((at ^ start) as u64).checked_ilog2().unwrap_or(0);
        let level = highest_bit / BITS;
        // With the sign bit turned, negative times have the lower digits.
        let digits = (at ^ i64::MIN) as u64;
        Place { level: level as usize, digit: (digits >> (level * BITS)) as usize % BUCKETS }
    }

    fn index(self) -> usize {
        self.level * BUCKETS + self.digit
    }
}

fn second_of(at: i64) -> usize {
    at.div_euclid(1_000).rem_euclid(SECONDS as i64) as usize
}

/// Entries that share their time but for the lowest digits, in the order of insertion.
struct Bucket<T> {
    earliest: i64,
    chunks: VecDeque<Chunk<T>>,
}

/// Up to `CHUNK` entries. Chunks instead of one list: growing copies nothing, and no memory is held
/// in reserve beyond the last chunk of each bucket.
type Chunk<T> = Vec<(i64, T)>;

const CHUNK: usize = 32; // About 2 KB, so that 704 part-filled ones stay near 1 MB.
const SPARE_MAX: usize = 64; // One for each bucket of a level: opening one allocates nothing.
const BUCKET_CHUNKS_KEPT: usize = 4; // The smallest the standard library allocates.

impl<T> Bucket<T> {
    fn new() -> Self {
        Bucket { earliest: i64::MAX, chunks: VecDeque::new() }
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    fn push(&mut self, at: i64, entry: T, spare: &mut Vec<Chunk<T>>) {
        self.earliest = self.earliest.min(at);
        if let Some(chunk) = self.chunks.back_mut()
            && chunk.len() < CHUNK
        {
            chunk.push((at, entry));
            return;
        }
        let mut chunk = spare.pop().unwrap_or_else(|| Vec::with_capacity(CHUNK));
        chunk.push((at, entry));
        self.chunks.push_back(chunk);
    }

    /// Moves entries from the front to `due`, until that has `full`.
    fn pop(&mut self, full: usize, due: &mut Vec<(i64, T)>, spare: &mut Vec<Chunk<T>>) {
        while let Some(mut chunk) = self.chunks.pop_front() {
            let count = chunk.len().min(full - due.len());
            due.extend(chunk.drain(..count));
            if !chunk.is_empty() {
                self.chunks.push_front(chunk);
                return;
            }
            recycle(chunk, spare);
        }
    }
}

fn recycle<T>(chunk: Chunk<T>, spare: &mut Vec<Chunk<T>>) {
    if spare.len() < SPARE_MAX {
        spare.push(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_790_000_000_000;
    const HOUR: i64 = 3_600_000;

    fn wheel(entries: &[(i64, u32)]) -> Wheel<u32> {
        let mut wheel = Wheel::new(1_000, NOW);
        for (at, entry) in entries {
            assert_eq!(wheel.insert(*at, *entry), Ok(()));
        }
        wheel
    }

    fn pop<T>(wheel: &mut Wheel<T>, now: i64, limit: usize) -> Vec<(i64, T)> {
        let mut due = Vec::new();
        wheel.pop_due(now, limit, &mut due);
        due
    }

    #[test]
    fn an_empty_wheel_has_nothing_due_ever() {
        let mut wheel = wheel(&[]);
        assert!(wheel.is_empty());
        assert_eq!(wheel.next_at(), None);
        assert_eq!(pop(&mut wheel, i64::MAX, usize::MAX), []);
    }

    #[test]
    fn an_entry_comes_out_at_its_millisecond_and_not_before() {
        let mut wheel = wheel(&[(NOW + 90_000, 1)]);
        assert_eq!(wheel.next_at(), Some(NOW + 90_000));
        assert_eq!(pop(&mut wheel, NOW + 89_999, 9), []);
        assert_eq!(pop(&mut wheel, NOW + 90_000, 9), [(NOW + 90_000, 1)]);
        assert_eq!(wheel.next_at(), None);
    }

    #[test]
    fn one_millisecond_keeps_the_order_of_insertion_on_whatever_level_an_entry_began() {
        let mut wheel = wheel(&[(NOW + HOUR, 1), (NOW + HOUR - 70_000, 2), (NOW + HOUR - 1, 3)]);
        pop(&mut wheel, NOW + HOUR - 60_000, 9);
        assert_eq!(wheel.insert(NOW + HOUR, 4), Ok(()));
        pop(&mut wheel, NOW + HOUR - 1, 9);
        assert_eq!(wheel.insert(NOW + HOUR, 5), Ok(()));
        let at = NOW + HOUR;
        assert_eq!(pop(&mut wheel, at, 9), [(at, 1), (at, 4), (at, 5)]);
    }

    #[test]
    fn a_batch_stops_at_its_limit_inside_a_millisecond_and_goes_on_there() {
        let mut wheel = wheel(&[]);
        for n in 0..100 {
            assert_eq!(wheel.insert(NOW + 5, n), Ok(()));
        }
        let mut due = pop(&mut wheel, NOW + 5, 45);
        assert_eq!((due.len(), wheel.len()), (45, 55));
        wheel.pop_due(NOW + 5, 0, &mut due);
        assert_eq!(due.len(), 45);
        wheel.pop_due(NOW + 5, 99, &mut due);
        assert!(due.iter().map(|(_, n)| *n).eq(0..100));
    }

    #[test]
    fn late_entries_come_out_first_and_in_time_order() {
        let mut wheel = wheel(&[(NOW + 1_000, 1), (NOW + 1_070, 2)]);
        pop(&mut wheel, NOW + 1_000, 9);
        for (at, entry) in [(NOW + 3, 3), (NOW - HOUR, 4), (NOW + 3, 5)] {
            assert_eq!(wheel.insert(at, entry), Ok(()));
        }
        assert_eq!(wheel.next_at(), Some(NOW - HOUR));
        assert_eq!(pop(&mut wheel, NOW + 2, 9), [(NOW - HOUR, 4)]);
        assert_eq!(pop(&mut wheel, NOW + 3, 1), [(NOW + 3, 3)]);
        assert_eq!(pop(&mut wheel, NOW + HOUR, 9), [(NOW + 3, 5), (NOW + 1_070, 2)]);
    }

    #[test]
    fn a_backlog_read_earliest_first_into_an_empty_wheel_is_not_late() {
        let mut wheel = wheel(&[]);
        for n in 0..100 {
            assert_eq!(wheel.insert(NOW - 24 * HOUR + i64::from(n) * HOUR / 10, n), Ok(()));
        }
        assert!(wheel.late.is_empty());
        assert!(pop(&mut wheel, NOW, 100).iter().map(|(_, n)| *n).eq(0..100));
    }

    #[test]
    fn a_clock_that_steps_back_loses_and_repeats_nothing() {
        let mut wheel = wheel(&[(NOW + 1_000, 1), (NOW + 2_000, 2), (NOW + 3_000, 3)]);
        assert_eq!(pop(&mut wheel, NOW + 2_500, 9).len(), 2);
        assert_eq!(pop(&mut wheel, NOW - 48 * HOUR, 9), []);
        assert_eq!(wheel.next_at(), Some(NOW + 3_000));
        assert_eq!(wheel.insert(NOW + 1_500, 4), Ok(()));
        assert_eq!(pop(&mut wheel, NOW + 1_400, 9), []);
        assert_eq!(pop(&mut wheel, NOW + 3_000, 9), [(NOW + 1_500, 4), (NOW + 3_000, 3)]);
    }

    #[test]
    fn the_ends_of_time_are_in_reach_in_one_step_each() {
        let all = [(i64::MIN, 1), (-1, 2), (0, 3), (NOW, 4), (i64::MAX, 5)];
        let mut wheel = wheel(&[all[3], all[4], all[0], all[2], all[1]]);
        assert_eq!(wheel.next_at(), Some(i64::MIN));
        assert_eq!(pop(&mut wheel, i64::MAX - 1, 9), all[..4]);
        assert_eq!(pop(&mut wheel, i64::MAX, 9), all[4..]);
        assert_eq!(wheel.insert(i64::MIN, 6), Ok(()));
        assert_eq!(pop(&mut wheel, i64::MIN, 9), [(i64::MIN, 6)]);
    }

    #[test]
    fn a_full_wheel_gives_the_entry_back_until_one_comes_out() {
        let mut wheel = Wheel::new(2, NOW);
        assert_eq!(wheel.capacity(), 2);
        assert_eq!([wheel.insert(NOW, 1), wheel.insert(NOW + HOUR, 2)], [Ok(()), Ok(())]);
        assert_eq!([wheel.insert(NOW + 9, 3), wheel.insert(NOW - 9, 4)], [Err(3), Err(4)]);
        pop(&mut wheel, NOW, 9);
        assert_eq!(wheel.insert(NOW + 9, 5), Ok(()));
    }

    #[test]
    fn density_counts_the_seconds_that_a_range_touches() {
        let mut wheel = wheel(&[(NOW, 1), (NOW + 999, 2), (NOW + 1_000, 3), (NOW + HOUR, 4), (NOW - 1, 5)]);
        assert_eq!(wheel.density(NOW, NOW + 1_000), 2);
        assert_eq!(wheel.density(NOW, NOW + 1_001), 3);
        assert_eq!(wheel.density(NOW + 500, NOW + 600), 2);
        assert_eq!(wheel.density(NOW - 1, NOW), 1);
        assert_eq!(wheel.density(NOW + 2_000, NOW + HOUR), 0);
        assert_eq!(wheel.density(NOW + 1, NOW), 0);
        assert_eq!(wheel.density(i64::MIN, i64::MAX), 5);
        pop(&mut wheel, NOW, 9);
        assert_eq!(wheel.density(NOW, NOW + 1_000), 1);
        // An alias: 4,096 s earlier.
        assert_eq!(wheel.density(NOW - 4_096_000, NOW - 4_095_000), 1);
    }

    #[test]
    fn a_shard_is_handed_over_and_the_rest_keeps_its_order() {
        let mut wheel = wheel(&[(NOW + 500, 1)]);
        pop(&mut wheel, NOW + 500, 9);
        for n in 0..300 {
            let at = [NOW, NOW + 600, NOW + HOUR][n as usize % 3];
            assert_eq!(wheel.insert(at, n), Ok(()));
        }
        wheel.retain(|at, n| at != NOW + 600 && n % 2 == 0);
        assert_eq!(wheel.len(), 100);
        assert_eq!(wheel.density(NOW, NOW + 1_000), 50);
        let due = pop(&mut wheel, i64::MAX, 999);
        assert!(due.is_sorted());
        assert_eq!(due.len(), 100);
    }

    #[test]
    fn a_cleared_wheel_is_as_new() {
        let mut wheel = wheel(&[(NOW, 1), (NOW + HOUR, 2)]);
        wheel.clear();
        assert_eq!((wheel.len(), wheel.next_at(), wheel.density(NOW, NOW + HOUR + 1)), (0, None, 0));
        assert_eq!(wheel.insert(NOW, 3), Ok(()));
        assert_eq!(pop(&mut wheel, i64::MAX, 9), [(NOW, 3)]);
    }

    #[test]
    fn a_million_entries_stay_within_64_mb_and_leave_less_than_500_kb() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut wheel: Wheel<[u64; 6]> = Wheel::new(1_000_000, NOW);
        let mut start = NOW;
        for spread_ms in [1, 1, 1, 10_000, 24 * HOUR] {
            start += 10_001;
            while wheel.insert(start + rng.i64(0..spread_ms), [0; 6]).is_ok() {}
            let (mut fullest, mut due) = (0, Vec::new());
            while !wheel.is_empty() {
                fullest = fullest.max(bytes(&wheel));
                wheel.pop_due(i64::MAX, 10_000, &mut due);
                due.clear();
            }
            assert!(fullest < 64_000_000, "{fullest} bytes at the fullest, over {spread_ms} ms");
            assert!(bytes(&wheel) < 500_000, "{} bytes when drained, over {spread_ms} ms", bytes(&wheel));
        }
    }

    fn bytes<T>(wheel: &Wheel<T>) -> usize {
        let lists: usize = wheel.buckets.iter().map(|bucket| bucket.chunks.capacity()).sum();
        let chunks = wheel.buckets.iter().flat_map(|bucket| &bucket.chunks).chain(&wheel.spare);
        chunks.map(|chunk| chunk.capacity() * size_of::<(i64, T)>()).sum::<usize>()
            + lists * size_of::<Chunk<T>>()
            + wheel.buckets.capacity() * size_of::<Bucket<T>>()
            + wheel.spare.capacity() * size_of::<Chunk<T>>()
            + wheel.seconds.capacity() * size_of::<usize>()
    }

    /// What the wheel promises, said with a sorted map.
    #[derive(Default)]
    struct Model {
        entries: BTreeMap<(i64, u32), u32>,
    }

    impl Model {
        fn pop_due(&mut self, now: i64, limit: usize) -> Vec<(i64, u32)> {
            let mut due = Vec::new();
            while due.len() < limit
                && let Some(first) = self.entries.first_entry()
                && first.key().0 <= now
            {
                let ((at, _), entry) = first.remove_entry();
                due.push((at, entry));
            }
            due
        }
    }

    #[test]
    fn three_million_random_operations_do_what_a_sorted_map_does() {
        for seed in 0..30 {
            compare_with_the_model(seed, 100_000);
        }
    }

    fn compare_with_the_model(seed: u64, operations: u32) {
        let mut rng = fastrand::Rng::with_seed(seed);
        // Some wheels are mostly full, some mostly empty, some live around the change of sign.
        let capacity = [3, 100, 5_000][seed as usize % 3];
        let mut now = [NOW, 0, -NOW, 63][seed as usize % 4];
        let mut wheel = Wheel::new(capacity, now);
        let mut model = Model::default();
        for n in 0..operations {
            match rng.u32(0..1_000) {
                0..600 => {
                    let at = any_time(&mut rng, now);
                    let expected = if model.entries.len() < capacity { Ok(()) } else { Err(n) };
                    assert_eq!(wheel.insert(at, n), expected, "seed {seed}, operation {n}");
                    if expected.is_ok() {
                        model.entries.insert((at, n), n);
                    }
                }
                600..990 => {
                    now = any_next(&mut rng, now);
                    // Sometimes everything is due, or the far entries would pile up.
                    let until = if rng.u8(0..100) == 0 { i64::MAX } else { now };
                    let limit = [0, 1, 40, usize::MAX][rng.usize(0..4)];
                    let due = pop(&mut wheel, until, limit);
                    assert_eq!(due, model.pop_due(until, limit), "seed {seed}, operation {n}");
                }
                990..998 => {
                    let (from, to) = (any_time(&mut rng, now), any_time(&mut rng, now));
                    let exact = model.entries.keys().filter(|(at, _)| (from..to).contains(at)).count();
                    assert!(wheel.density(from, to) >= exact, "seed {seed}, operation {n}");
                }
                998 => {
                    let odd = rng.u32(2..9);
                    wheel.retain(|_, entry| entry % odd != 0);
                    model.entries.retain(|_, entry| *entry % odd != 0);
                }
                _ if rng.u8(0..10) == 0 => {
                    wheel.clear();
                    model.entries.clear();
                }
                _ => {}
            }
            assert_eq!(wheel.len(), model.entries.len(), "seed {seed}, operation {n}");
            let first = model.entries.keys().next().map(|(at, _)| *at);
            assert_eq!(wheel.next_at(), first, "seed {seed}, operation {n}");
        }
        assert_eq!(pop(&mut wheel, i64::MAX, usize::MAX), model.pop_due(i64::MAX, usize::MAX));
        assert!(wheel.seconds.iter().all(|count| *count == 0), "seed {seed}");
    }

    fn any_time(rng: &mut fastrand::Rng, now: i64) -> i64 {
        match rng.u8(0..100) {
            0..30 => now.saturating_add(rng.i64(0..100)),
            30..70 => now.saturating_add(rng.i64(0..20_000)),
            70..80 => now.saturating_add(rng.i64(0..20) * 1_000),
            80..90 => now.saturating_add(rng.i64(0..HOUR * 72)),
            90..98 => now.saturating_sub(rng.i64(0..10_000)),
            98 => rng.i64(..),
            _ => [i64::MIN, -1, 0, i64::MAX][rng.usize(0..4)],
        }
    }

    fn any_next(rng: &mut fastrand::Rng, now: i64) -> i64 {
        match rng.u8(0..100) {
            0..90 => now.saturating_add(rng.i64(0..300)),
            90..95 => now.saturating_add(rng.i64(0..HOUR)),
            95 => now.saturating_add(rng.i64(0..HOUR * 240)),
            96..99 => now.saturating_sub(rng.i64(0..5_000)),
            _ => now.saturating_sub(rng.i64(0..HOUR * 240)),
        }
    }
}
