//! From wall-clock times to instants: the one place that decides gaps and overlaps.
//!
//! Asked by cron, intervals and one-time schedules alike, over any set of wall times. Promise:
//! the instants are strictly increasing and each is counted once, however many wall times lead
//! to it; the same answer from any starting point, forwards, backwards or counted.

use crate::civil::Wall;
use crate::zone::Zone;

/// What happens to wall times that a zone's clock jumps over or shows twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Times that do not exist.
    pub gap: Gap,
    /// Times that exist twice.
    pub overlap: Overlap,
}

/// What happens to a time that a forward jump of at most three hours leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Gap {
    /// It fires at the first instant after the gap; several collapse to one.
    #[default]
    After,
    /// It does not fire.
    Skip,
    /// It fires later by the length of the gap: 02:30 at 03:30.
    Shift,
}

/// What happens to a time that a backward jump repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// The first pass only.
    #[default]
    First,
    /// Both passes.
    Both,
    /// The last pass only.
    Last,
}

impl Policy {
    /// What a wildcard schedule does: it follows the wall clock.
    pub(crate) const FOLLOW: Policy = Policy { gap: Gap::Skip, overlap: Overlap::Both };

    /// The same for something that happens once: `both` would be twice.
    pub(crate) fn once(self) -> Policy {
        match self.overlap {
            Overlap::First | Overlap::Last => self,
            Overlap::Both => Policy { overlap: Overlap::First, ..self },
        }
    }
}

/// Longer jumps are corrections of the calendar: the skipped time was never a time (Samoa,
/// 30 December 2011), so nothing makes up for it.
const GAP_MAX: i64 = 3 * 3600;

/// A set of wall times in order.
pub(crate) trait WallTimes {
    /// The first one at or after `from`.
    fn next_from(&self, from: Wall) -> Option<Wall>;
    /// The last one before `to`.
    fn last_before(&self, to: Wall) -> Option<Wall>;
    /// How many lie in `from..to`.
    fn count(&self, from: Wall, to: Wall) -> u64;
    /// How many of those in `from..to` have another one `by` seconds later.
    fn count_again(&self, from: Wall, to: Wall, by: i64) -> u64;

    /// Whether one is in `from..to`.
    fn any(&self, from: Wall, to: Wall) -> bool {
        self.count(from, to) > 0 // Looks no further than `to`, as a search would.
    }
}

/// One wall time, as a set.
pub(crate) struct Single(pub(crate) Wall);

impl WallTimes for Single {
    fn next_from(&self, from: Wall) -> Option<Wall> {
        (self.0 >= from).then_some(self.0)
    }

    fn last_before(&self, to: Wall) -> Option<Wall> {
        (self.0 < to).then_some(self.0)
    }

    fn count(&self, from: Wall, to: Wall) -> u64 {
        u64::from((from..to).contains(&self.0))
    }

    fn count_again(&self, _: Wall, _: Wall, _: i64) -> u64 {
        0
    }
}

/// Resolves wall times in a zone under a policy. All instants are Unix seconds.
pub(crate) struct Resolver<'a, T> {
    pub(crate) times: &'a T,
    pub(crate) zone: &'a Zone,
    pub(crate) policy: Policy,
}

// Not derived: that would ask the same of the times.
impl<T> Clone for Resolver<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Resolver<'_, T> {}

/// The instant of one wall time, if it has one.
pub(crate) fn resolve(at: Wall, zone: &Zone, policy: Policy) -> Option<i64> {
    const OFFSET_MAX: i64 = 26 * 3600; // jiff's limit is 25:59:59.
    Resolver { times: &Single(at), zone, policy: policy.once() }.next_from(at - OFFSET_MAX)
}

/// [`resolve`] for many wall times in order: `near` remembers the stretch.
pub(crate) fn resolve_near(at: Wall, zone: &Zone, policy: Policy, near: &mut usize) -> Option<i64> {
    const CLEAR: i64 = 2 * 26 * 3600; // So far from a change, a wall time exists exactly once.
    for _ in 0..2 {
        let stretch = zone.stretch(*near);
        let second = at - stretch.offset;
        if second >= stretch.start + CLEAR && second < zone.end(*near) - CLEAR {
            return Some(second);
        }
        *near = zone.index_at(second);
    }
    resolve(at, zone, policy)
}

impl<T: WallTimes> Resolver<'_, T> {
    /// The first instant at or after `from`.
    pub(crate) fn next_from(&self, from: i64) -> Option<i64> {
        let mut times = Forward { times: self.times, known: None };
        for index in self.zone.index_at(from)..self.zone.len() {
            let stretch = self.zone.stretch(index);
            let (low, high) = self.shown(index);
            let native = times
                .next_from(low.max(from + stretch.offset))
                .filter(|wall| *wall < high)
                .map(|wall| wall - stretch.offset);
            let made_up = self.gap(index).and_then(|gap| match self.policy.gap {
                Gap::Skip => None,
                Gap::After => (gap.end >= from
                    && times.next_from(gap.low).is_some_and(|wall| wall < gap.high))
                .then_some(gap.end),
                Gap::Shift => times
                    .next_from(gap.low.max(from + gap.offset))
                    .filter(|wall| *wall < gap.high)
                    .map(|wall| wall - gap.offset),
            });
            match (native, made_up) {
                (Some(a), Some(b)) => return Some(a.min(b)),
                (Some(a), None) | (None, Some(a)) => return Some(a),
                (None, None) => {}
            }
        }
        None
    }

    /// The last instant before `to`.
    pub(crate) fn last_before(&self, to: i64) -> Option<i64> {
        let mut times = Backward { times: self.times, known: None };
        for index in (0..=self.zone.index_at(to - 1)).rev() {
            let stretch = self.zone.stretch(index);
            let (low, high) = self.shown(index);
            let native = times
                .last_before(high.min(to + stretch.offset))
                .filter(|wall| *wall >= low)
                .map(|wall| wall - stretch.offset);
            let made_up = self.gap(index).and_then(|gap| match self.policy.gap {
                Gap::Skip => None,
                Gap::After => (gap.end < to
                    && times.last_before(gap.high).is_some_and(|wall| wall >= gap.low))
                .then_some(gap.end),
                Gap::Shift => times
                    .last_before(gap.high.min(to + gap.offset))
                    .filter(|wall| *wall >= gap.low)
                    .map(|wall| wall - gap.offset),
            });
            match (native, made_up) {
                (Some(a), Some(b)) => return Some(a.max(b)),
                (Some(a), None) | (None, Some(a)) => return Some(a),
                (None, None) => {}
            }
        }
        None
    }

    /// How many instants lie in `from..to`, without visiting them.
    pub(crate) fn count(&self, from: i64, to: i64) -> u64 {
        if from >= to {
            return 0;
        }
        (self.zone.index_at(from)..=self.zone.index_at(to - 1))
            .map(|index| {
                let (low, high) = self.native(index, from, to);
                self.times.count(low, high) + self.count_made_up(index, from, to)
            })
            .sum()
    }

    /// The wall times of a stretch that are instants of `from..to`.
    pub(crate) fn native(&self, index: usize, from: i64, to: i64) -> (Wall, Wall) {
        let offset = self.zone.stretch(index).offset;
        let (low, high) = self.shown(index);
        (low.max(from + offset), high.min(to + offset))
    }

    /// How many instants of `from..to` exist only because of the gap at the start of a stretch.
    pub(crate) fn count_made_up(&self, index: usize, from: i64, to: i64) -> u64 {
        self.gap(index).map_or(0, |gap| self.count_gap(gap, index, from, to))
    }

    /// The instants that the gap at the start of a stretch may add: first and one past the last.
    pub(crate) fn made_up(&self, index: usize) -> Option<(i64, i64)> {
        let gap = self.gap(index)?;
        match self.policy.gap {
            Gap::Skip => None,
            Gap::After => Some((gap.end, gap.end + 1)),
            Gap::Shift => Some((gap.end, gap.end + gap.high - gap.low)),
        }
    }

    fn count_gap(&self, gap: Jump, index: usize, from: i64, to: i64) -> u64 {
        let (low, high) = self.shown(index);
        let is_native = |instant: i64| {
            let wall = instant + self.zone.stretch(index).offset;
            (low..high).contains(&wall) && self.times.any(wall, wall + 1)
        };
        match self.policy.gap {
            Gap::Skip => 0,
            Gap::After => {
                let counts =
                    (from..to).contains(&gap.end) && self.times.any(gap.low, gap.high) && !is_native(gap.end);
                u64::from(counts)
            }
            Gap::Shift => {
                let length = gap.high - gap.low;
                let (first, last) = (gap.low.max(from + gap.offset), gap.high.min(to + gap.offset));
                let twice = self.times.count_again(first.max(low - length), last.min(high - length), length);
                self.times.count(first, last) - twice
            }
        }
    }

    /// The wall times of a stretch that may fire in it, given what to do with repeated ones.
    fn shown(&self, index: usize) -> (Wall, Wall) {
        let stretch = self.zone.stretch(index);
        let (low, high) = (stretch.start + stretch.offset, self.zone.end(index) + stretch.offset);
        match self.policy.overlap {
            Overlap::First => (low.max(stretch.seen_until), high),
            Overlap::Both => (low, high),
            Overlap::Last => (low, high.min(stretch.again_from)),
        }
    }

    /// The gap at the start of a stretch, if there is one that is made up for.
    fn gap(&self, index: usize) -> Option<Jump> {
        jump(self.zone, index).filter(|jump| (1..=GAP_MAX).contains(&(jump.high - jump.low)))
    }

    /// How the change at the start of a stretch concerns these times.
    pub(crate) fn touch(&self, index: usize) -> Option<Touched> {
        touch(self.zone, index, |from| self.times.next_from(from))
    }
}

/// The changes of the clock in `from..to` that concern the wall times `next_from` finds, in order.
pub(crate) fn touched<'a>(
    zone: &'a Zone,
    from: i64,
    to: i64,
    next_from: impl Fn(Wall) -> Option<Wall> + 'a,
) -> impl Iterator<Item = Touched> + 'a {
    (zone.index_at(from).max(1)..zone.len())
        .skip_while(move |index| zone.stretch(*index).start < from)
        .take_while(move |index| zone.stretch(*index).start < to)
        .filter_map(move |index| touch(zone, index, &next_from))
}

/// How the change at the start of a stretch concerns wall times.
fn touch(zone: &Zone, index: usize, next_from: impl Fn(Wall) -> Option<Wall>) -> Option<Touched> {
    let jump = jump(zone, index)?;
    let (low, high) = (jump.low.min(jump.high), jump.low.max(jump.high));
    let wall = next_from(low).filter(|wall| *wall < high)?;
    let kind = match jump.high - jump.low {
        length if length > GAP_MAX => Kind::NoSuchDay,
        length if length > 0 => Kind::Gap,
        _ => Kind::Overlap,
    };
    Some(Touched { kind, wall, at: jump.end })
}

/// A wall time that a change of the clock concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touched {
    pub(crate) kind: Kind,
    /// The first wall time concerned.
    pub(crate) wall: Wall,
    /// The instant of the change.
    pub(crate) at: i64,
}

/// How a change of the clock concerns a wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It does not exist.
    Gap,
    /// It exists twice.
    Overlap,
    /// Its whole day does not exist.
    NoSuchDay,
}

/// A change of the clock from wall time `low` to `high` at the instant `end`.
#[derive(Clone, Copy)]
struct Jump {
    low: Wall,
    high: Wall,
    end: i64,
    /// The offset before it.
    offset: i64,
}

fn jump(zone: &Zone, index: usize) -> Option<Jump> {
    let before = zone.stretch(index.checked_sub(1)?);
    let after = zone.stretch(index);
    Some(Jump {
        low: after.start + before.offset,
        high: after.start + after.offset,
        end: after.start,
        offset: before.offset,
    })
}

/// Remembers the last search, so that years without a match cost one search and not one per
/// change of the clock.
struct Forward<'a, T> {
    times: &'a T,
    known: Option<(Wall, Option<Wall>)>,
}

impl<T: WallTimes> Forward<'_, T> {
    fn next_from(&mut self, from: Wall) -> Option<Wall> {
        if let Some((searched, found)) = self.known
            && searched <= from
            && found.is_none_or(|wall| from <= wall)
        {
            return found;
        }
        let found = self.times.next_from(from);
        self.known = Some((from, found));
        found
    }
}

/// [`Forward`], the other way.
struct Backward<'a, T> {
    times: &'a T,
    known: Option<(Wall, Option<Wall>)>,
}

impl<T: WallTimes> Backward<'_, T> {
    fn last_before(&mut self, to: Wall) -> Option<Wall> {
        if let Some((searched, found)) = self.known
            && searched >= to
            && found.is_none_or(|wall| wall < to)
        {
            return found;
        }
        let found = self.times.last_before(to);
        self.known = Some((to, found));
        found
    }
}
