//! A time zone as a list of offsets, ready for search.
//!
//! Built once per zone from the database, up to the end of 2199. Promise: only offsets count,
//! never the DST flag (Dublin and Casablanca have it backwards), and each stretch knows which of
//! its wall times were seen before and which will come again.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::civil::{Wall, YEAR_MAX, days_from_date, wall};

/// A time zone with all its offset changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    name: String,
    stretches: Box<[Stretch]>,
    years_end: i64,
}

/// A time during which the offset does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Its first second, in Unix time.
    pub(crate) start: i64,
    /// Seconds east of UTC.
    pub(crate) offset: i64,
    /// Wall times below this were on the clock in an earlier stretch.
    pub(crate) seen_until: Wall,
    /// Wall times from this on will be on the clock again in a later stretch.
    pub(crate) again_from: Wall,
}

/// Far outside 1970 to 2199, and far from overflow.
const BEGINNING: i64 = -1 << 40;
const END: i64 = 1 << 40;

impl Zone {
    pub(crate) fn new(name: String, tz: &TimeZone) -> Self {
        // Two days more than the last slot, so that every offset of its day is known.
        let horizon = wall(days_from_date(YEAR_MAX + 1, 1, 3), 0);
        let mut changes = vec![(BEGINNING, offset_at(tz, Timestamp::MIN))];
        for transition in tz.following(Timestamp::MIN) {
            let at = transition.timestamp().as_second();
            if at > horizon {
                break;
            }
            let offset = i64::from(transition.offset().seconds());
            if changes.last().is_some_and(|last| last.1 != offset) {
                changes.push((at, offset));
            }
        }
        Zone::of(name, &changes)
    }

    /// A zone that is one offset for ever.
    pub(crate) fn fixed(name: String, offset: i64) -> Self {
        Zone::of(name, &[(BEGINNING, offset)])
    }

    fn of(name: String, changes: &[(i64, i64)]) -> Self {
        let midnight = wall(days_from_date(YEAR_MAX + 1, 1, 1), 0);
        let mut zone = Zone { name, stretches: stretches(changes), years_end: midnight };
        // No clock changes near a New Year's midnight, so the offset of about then is that of then.
        zone.years_end -= zone.stretch(zone.index_at(midnight)).offset;
        zone
    }

    /// The name it was asked for by, such as `America/New_York` or `+05:30`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether both always show the same time, whatever they are called: `US/Eastern` is
    /// `America/New_York`.
    pub fn is_same_clock(&self, other: &Zone) -> bool {
        self.stretches == other.stretches
    }

    /// Seconds east of UTC at an instant.
    pub fn offset_at(&self, instant: Timestamp) -> i32 {
        self.stretch(self.index_at(instant.as_second())).offset as i32
    }

    /// The first instant from `from` on at which two versions of a zone differ.
    pub(crate) fn first_difference(&self, other: &Zone, from: Timestamp) -> Option<Timestamp> {
        let from = from.as_second();
        let mut points: Vec<i64> = [self, other]
            .iter()
            .flat_map(|zone| zone.stretches.iter().map(|s| s.start))
            .filter(|start| *start > from)
            .chain([from])
            .collect();
        points.sort_unstable();
        points
            .into_iter()
            .find(|&at| self.stretch(self.index_at(at)).offset != other.stretch(other.index_at(at)).offset)
            .and_then(|at| Timestamp::from_second(at).ok())
    }

    pub(crate) fn wall_at(&self, second: i64) -> Wall {
        second + self.stretch(self.index_at(second)).offset
    }

    /// One past the last second of 2199 on this clock: the end of every schedule that follows it.
    pub(crate) fn years_end(&self) -> i64 {
        self.years_end
    }

    pub(crate) fn len(&self) -> usize {
        self.stretches.len()
    }

    pub(crate) fn stretch(&self, index: usize) -> Stretch {
        self.stretches[index]
    }

    /// One past the last second of a stretch.
    pub(crate) fn end(&self, index: usize) -> i64 {
        self.stretches.get(index + 1).map_or(END, |next| next.start)
    }

    /// The stretch that a second lies in.
    pub(crate) fn index_at(&self, second: i64) -> usize {
        self.stretches.partition_point(|s| s.start <= second).saturating_sub(1)
    }
}

fn offset_at(tz: &TimeZone, instant: Timestamp) -> i64 {
    i64::from(tz.to_offset(instant).seconds())
}

fn stretches(changes: &[(i64, i64)]) -> Box<[Stretch]> {
    let mut stretches: Vec<Stretch> = changes
        .iter()
        .map(|&(start, offset)| Stretch { start, offset, seen_until: BEGINNING, again_from: END })
        .collect();
    for index in 1..stretches.len() {
        let earlier = stretches[index - 1];
        stretches[index].seen_until = earlier.seen_until.max(stretches[index].start + earlier.offset);
    }
    for index in (0..stretches.len().saturating_sub(1)).rev() {
        let later = stretches[index + 1];
        stretches[index].again_from = later.again_from.min(later.start + later.offset);
    }
    stretches.into()
}
