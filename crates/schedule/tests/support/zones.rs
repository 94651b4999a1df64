//! The zones of the bundled database and the jumps of their clocks, drawn at random.
//!
//! Promise: every zone comes up, and jumps of an unusual size (15 minutes, a whole day) far more
//! often than their number.

use crate::support::generate::{one_in, pick};
use fastrand::Rng;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, civil::DateTime};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The zones of the bundled database and the instants at which their offsets change.
pub(crate) struct Zones {
    zones: Vec<Zone>,
    jumping: Vec<usize>,
    by_size: BTreeMap<i32, Vec<(usize, Timestamp)>>,
}

/// A named zone and its changes of offset from 1970 to 2199.
pub(crate) struct Zone {
    pub(crate) name: String,
    pub(crate) rules: TimeZone,
    jumps: Vec<Timestamp>,
}

impl Zones {
    pub(crate) fn bundled() -> Zones {
        let database = TimeZoneDatabase::bundled();
        let mut zones = Vec::new();
        let mut by_size = BTreeMap::<_, Vec<_>>::new();
        for name in database.available().filter(|name| !REFUSED.contains(&name.as_str())) {
            let rules = database.get(name.as_str()).unwrap();
            let mut offset = rules.to_offset(*span().start());
            let mut jumps = Vec::new();
            let within = |at: &Timestamp| span().contains(at);
            for change in rules.following(*span().start()).take_while(|c| within(&c.timestamp())) {
                let size_s = change.offset().seconds() - offset.seconds();
                if size_s != 0 {
                    by_size.entry(size_s).or_default().push((zones.len(), change.timestamp()));
                    jumps.push(change.timestamp());
                }
                offset = change.offset();
            }
            zones.push(Zone { name: name.as_str().to_owned(), rules, jumps });
        }
        let jumping = (0..zones.len()).filter(|&zone| !zones[zone].jumps.is_empty()).collect();
        Zones { zones, jumping, by_size }
    }

    /// Any zone.
    pub(crate) fn zone(&self, rng: &mut Rng) -> &Zone {
        pick(rng, &self.zones)
    }

    /// A zone and one of its jumps; unusual sizes (15 minutes, a whole day) come up often.
    pub(crate) fn jump(&self, rng: &mut Rng) -> (&Zone, Timestamp) {
        if one_in(rng, 4) {
            let sizes: Vec<_> = self.by_size.values().collect();
            let same_size = pick(rng, &sizes);
            let &(zone, at) = pick(rng, same_size);
            return (&self.zones[zone], at);
        }
        let zone = &self.zones[*pick(rng, &self.jumping)];
        (zone, *pick(rng, &zone.jumps))
    }
}

impl Zone {
    /// A wall time that a jump at this instant leaves out or repeats; else the one before it.
    pub(crate) fn wall_around(&self, rng: &mut Rng, at: Timestamp) -> DateTime {
        let before = at - SignedDuration::from_secs(1);
        let (old, new) = (self.rules.to_offset(before), self.rules.to_offset(at));
        let jump_s = f64::from(new.seconds() - old.seconds());
        old.to_datetime(before) + SignedDuration::from_secs((jump_s * rng.f64()) as i64)
    }
}

// Names of the database that the policy refuses: abbreviations, and the zone of an unset clock.
const REFUSED: [&str; 8] = ["CET", "EET", "EST", "Factory", "HST", "MET", "MST", "WET"];

/// The years in which slots exist, as UTC has them.
pub(crate) fn span() -> RangeInclusive<Timestamp> {
    Timestamp::UNIX_EPOCH..=Timestamp::constant(7_258_118_399, 0) // 2199-12-31T23:59:59Z
}
