//! Counts slots that calendars with a clock of their own let through.
//!
//! Asked by a timetable whose calendars judge instants: because they are in another zone than the schedule, or
//! because the schedule counts exact time. Promise: the cost grows with the changes of the clocks and with the
//! days, never with the slots or the windows: centuries of seconds are counted in a few milliseconds.
//!
//! Between two changes of any clock, every day looks the same: the calendars' midnights cut it into pieces, and
//! in a piece the windows say which parts are open and one bit per calendar whether its day is allowed.

use std::sync::Arc;

use crate::civil::{DAY, split};
use crate::cron::Pattern;
use crate::dayset::DaySet;
use crate::dst::Resolver;
use crate::every::Beat;
use crate::filter::{DayFilter, intersection};
use crate::interval::Repetition;
use crate::zone::Zone;

/// Different clocks that the calendars of one schedule may have.
pub(crate) const CLOCKS_MAX: usize = 3;

const DAY_MS: i64 = DAY * 1000;

/// Calendars that judge instants, each on its clock.
pub(crate) type Filters = [(DayFilter, Arc<Zone>)];

/// The slots that are sieved.
pub(crate) enum Source<'a> {
    /// From its first slot up to, not including, an instant.
    Beat(Beat, i64),
    Cron(Resolver<'a, Pattern>),
    Repetition(&'a Repetition),
}

/// Calendars and slots, prepared for the time that is asked about.
pub(crate) struct Sieve<'a> {
    source: Source<'a>,
    filters: &'a Filters,
    /// The days of a cron expression on its own clock.
    named: Option<DaySet>,
    /// Made once for each combination of offsets, of which a few come back all the time.
    profiles: Vec<Profile>,
}

/// What every day looks like while the calendars' clocks run this far ahead of the source's.
struct Profile {
    ahead: [i64; CLOCKS_MAX],
    pieces: Vec<Piece>,
}

/// A part of the day in which no calendar has its midnight.
struct Piece {
    /// How many days each calendar's date is ahead.
    days_ahead: [i32; CLOCKS_MAX],
    /// The parts that every calendar's windows leave open, in seconds of the source's day.
    open: Vec<(u32, u32)>,
    slots: PerDay,
}

/// How many slots lie in the open parts of a day.
enum PerDay {
    /// The same every day.
    Same(u64),
    /// By how far the beat is in its period when the day starts: `base`, changed by the last step not above.
    ByPhase { base: i64, steps: Vec<(i64, i64)> },
}

impl<'a> Sieve<'a> {
    /// Ready for questions inside `from..to`, in milliseconds.
    pub(crate) fn new(source: Source<'a>, filters: &'a Filters, from: i64, to: i64) -> Self {
        // Two days more, because the clocks differ by up to two.
        let (first, last) = (split(from.div_euclid(1000)).0 - 2, split(to.div_euclid(1000)).0 + 2);
        let named = match &source {
            Source::Cron(resolver) => {
                Some(DaySet::new(first, last, |year, month| resolver.times.days_of(year, month)))
            }
            Source::Beat(..) | Source::Repetition(_) => None,
        };
        Sieve { source, filters, named, profiles: Vec::new() }
    }

    /// How many slots lie in `from..to`.
    pub(crate) fn count(&mut self, from: i64, to: i64) -> u64 {
        match &self.source {
            Source::Beat(beat, end) => {
                let (from, to) = (from.max(beat.first), to.min(*end));
                self.count_shown(from, to, 0)
            }
            Source::Repetition(repetition) => self.count_visited(repetition, from, to),
            Source::Cron(resolver) => {
                let resolver = *resolver;
                let (from, to) = (ceil_second(from), ceil_second(to));
                if from >= to {
                    return 0;
                }
                (resolver.zone.index_at(from)..=resolver.zone.index_at(to - 1))
                    .map(|index| {
                        let offset = resolver.zone.stretch(index).offset;
                        let (low, high) = resolver.native(index, from, to);
                        let native = self.count_shown((low - offset) * 1000, (high - offset) * 1000, offset);
                        native + self.count_made_up(&resolver, index, from, to)
                    })
                    .sum()
            }
        }
    }

    /// The slots of `from..to` while the source's clock shows `offset` (a beat's clock is UTC).
    fn count_shown(&mut self, from: i64, to: i64, offset: i64) -> u64 {
        if from >= to {
            return 0;
        }
        let mut indexes = [0; CLOCKS_MAX];
        for (index, (_, zone)) in indexes.iter_mut().zip(self.filters) {
            *index = zone.index_at(from.div_euclid(1000));
        }
        let (mut total, mut start) = (0, from);
        while start < to {
            let mut ahead = [0; CLOCKS_MAX];
            let mut end = to;
            for (slot, (index, (_, zone))) in indexes.iter().zip(self.filters).enumerate() {
                ahead[slot] = zone.stretch(*index).offset - offset;
                end = end.min(zone.end(*index) * 1000);
            }
            let profile = self.profile(ahead);
            total += self.count_alike(profile, start + offset * 1000, end + offset * 1000);
            for (index, (_, zone)) in indexes.iter_mut().zip(self.filters) {
                *index += usize::from(zone.end(*index) * 1000 == end);
            }
            start = end;
        }
        total
    }

    /// The slots between two times of the source's clock, while no clock changes.
    fn count_alike(&self, profile: usize, from: i64, to: i64) -> u64 {
        let (first, start) = (from.div_euclid(DAY_MS) as i32, from.rem_euclid(DAY_MS));
        let (last, end) = (to.div_euclid(DAY_MS) as i32, to.rem_euclid(DAY_MS));
        if first == last {
            return self.count_part(profile, first, start, end);
        }
        let head = if start > 0 { self.count_part(profile, first, start, DAY_MS) } else { 0 };
        let tail = if end > 0 { self.count_part(profile, last, 0, end) } else { 0 };
        head + self.count_days(profile, first + i32::from(start > 0), last) + tail
    }

    /// The slots in a part of one day, in milliseconds.
    fn count_part(&self, profile: usize, day: i32, from: i64, to: i64) -> u64 {
        if self.named.as_ref().is_some_and(|named| !named.contains(day)) {
            return 0;
        }
        let mut total = 0;
        for piece in &self.profiles[profile].pieces {
            let parts = &piece.open;
            let skipped = parts.partition_point(|part| i64::from(part.1) * 1000 <= from);
            let begin = parts.get(skipped).is_some_and(|part| i64::from(part.0) * 1000 < to);
            if !begin || self.allowed_word(piece, day) & 1 == 0 {
                continue;
            }
            for &(open, close) in &parts[skipped..] {
                let (open, close) = ((i64::from(open) * 1000).max(from), (i64::from(close) * 1000).min(to));
                if open >= close {
                    break;
                }
                total += match &self.source {
                    Source::Beat(beat, _) => {
                        let midnight = i64::from(day) * DAY_MS;
                        beat.count(midnight + open, midnight + close)
                    }
                    Source::Cron(resolver) => {
                        let before = |at: i64| resolver.times.times_before(ceil_second(at) as u32);
                        before(close) - before(open)
                    }
                    Source::Repetition(_) => 0,
                };
            }
        }
        total
    }

    /// The slots of the whole days `first..last`.
    fn count_days(&self, profile: usize, first: i32, last: i32) -> u64 {
        let mut total = 0;
        for piece in self.profiles[profile].pieces.iter().filter(|piece| !piece.open.is_empty()) {
            for day in (first..last).step_by(64) {
                let mut days = self.allowed_word(piece, day);
                if let Some(named) = &self.named {
                    days &= named.word_at(day);
                }
                if last - day < 64 {
                    days &= (1 << (last - day)) - 1;
                }
                total += match (&piece.slots, &self.source) {
                    (PerDay::Same(slots), _) => u64::from(days.count_ones()) * slots,
                    (PerDay::ByPhase { base, steps }, Source::Beat(beat, _)) => {
                        count_by_phase(days, i64::from(day) * DAY_MS, beat, *base, steps)
                    }
                    (PerDay::ByPhase { .. }, Source::Cron(_) | Source::Repetition(_)) => 0,
                };
            }
        }
        total
    }

    /// Which of the 64 days from `day` on every calendar allows, in a piece of the day.
    fn allowed_word(&self, piece: &Piece, day: i32) -> u64 {
        self.filters
            .iter()
            .zip(piece.days_ahead)
            .fold(u64::MAX, |days, ((filter, _), ahead)| days & filter.days().word_at(day + ahead))
    }

    /// The slots that exist only because of a gap of the source's clock: few, so one open stretch at a time.
    fn count_made_up(&self, resolver: &Resolver<'_, Pattern>, index: usize, from: i64, to: i64) -> u64 {
        let Some((first, last)) = resolver.made_up(index) else {
            return 0;
        };
        let (mut at, to) = (first.max(from), last.min(to));
        let mut total = 0;
        while at < to {
            let (is_open, until) = stretch_from(self.filters, at);
            let until = until.min(to);
            if is_open {
                total += resolver.count_made_up(index, at, until);
            }
            at = until;
        }
        total
    }

    /// At most one slot a day: each is looked at.
    fn count_visited(&self, repetition: &Repetition, from: i64, to: i64) -> u64 {
        let mut near = [0; CLOCKS_MAX];
        let mut total = 0;
        repetition.visit(from, to, |slot| {
            let second = slot.div_euclid(1000);
            let is_open = self.filters.iter().zip(&mut near).all(|((filter, zone), index)| {
                if second < zone.stretch(*index).start || second >= zone.end(*index) {
                    *index = zone.index_at(second);
                }
                let (day, time) = split(second + zone.stretch(*index).offset);
                filter.days().contains(day) && filter.is_open_at(time)
            });
            total += u64::from(is_open);
        });
        total
    }

    fn profile(&mut self, ahead: [i64; CLOCKS_MAX]) -> usize {
        if let Some(known) = self.profiles.iter().position(|profile| profile.ahead == ahead) {
            return known;
        }
        let mut cuts = vec![0, DAY];
        cuts.extend(ahead.iter().take(self.filters.len()).map(|ahead| (-ahead).rem_euclid(DAY)));
        cuts.sort_unstable();
        cuts.dedup();
        let pieces = cuts.windows(2).map(|cut| self.piece(&ahead, cut[0], cut[1])).collect();
        self.profiles.push(Profile { ahead, pieces });
        self.profiles.len() - 1
    }

    fn piece(&self, ahead: &[i64; CLOCKS_MAX], from: i64, to: i64) -> Piece {
        let days_ahead = ahead.map(|ahead| (from + ahead).div_euclid(DAY) as i32);
        let mut open = vec![(from as u32, to as u32)];
        for ((filter, _), ahead) in self.filters.iter().zip(ahead) {
            let Some(windows) = filter.open_parts() else { continue };
            // No midnight of this calendar lies inside: its clock is off by the same all the time.
            let off = (from + ahead).rem_euclid(DAY) - from;
            let here = |time: u32| (i64::from(time) - off).clamp(from, to) as u32;
            let shifted: Vec<(u32, u32)> = windows.iter().map(|part| (here(part.0), here(part.1))).collect();
            open = intersection(&open, &shifted);
        }
        let slots = match &self.source {
            Source::Beat(beat, _) => per_day(beat, &open),
            Source::Cron(resolver) => {
                let before = |time: u32| resolver.times.times_before(time);
                PerDay::Same(open.iter().map(|part| before(part.1) - before(part.0)).sum())
            }
            Source::Repetition(_) => PerDay::Same(0),
        };
        Piece { days_ahead, open, slots }
    }
}

/// Whether every calendar allows a second, and up to which one the answer stays the same or is unknown.
pub(crate) fn stretch_from(filters: &Filters, second: i64) -> (bool, i64) {
    use crate::filter::Verdict;
    let (mut is_open, mut open_until, mut closed_until) = (true, i64::MAX, i64::MIN);
    for (filter, zone) in filters {
        let index = zone.index_at(second);
        let offset = zone.stretch(index).offset;
        // Not past the next change of the clock: there the wall time means another instant.
        let until = |wall: i64| (wall - offset).min(zone.end(index));
        match filter.check(second + offset) {
            Verdict::Allowed { until: wall } => open_until = open_until.min(until(wall)),
            Verdict::Excluded { until: wall, .. } => {
                is_open = false;
                closed_until = closed_until.max(until(wall));
            }
        }
    }
    (is_open, if is_open { open_until } else { closed_until })
}

/// With slots at anchor + k * period, the number before a time x of a day whose start is `phase` after a slot
/// is floor((x - 1 + phase) / period): a constant, and one more from some phase on.
fn per_day(beat: &Beat, open: &[(u32, u32)]) -> PerDay {
    let period = beat.period;
    let split = |time: u32| {
        let end = i64::from(time) * 1000 + period - 1;
        (end / period, period - end % period)
    };
    let mut base = 0;
    let mut steps: Vec<(i64, i64)> = Vec::new();
    for part in open {
        let ((before, early), (after, late)) = (split(part.0), split(part.1));
        base += after - before;
        steps.extend([(early, -1), (late, 1)]);
    }
    steps.sort_unstable();
    let mut slots = base;
    for step in &mut steps {
        slots += step.1;
        step.1 = slots;
    }
    if DAY_MS % period == 0 {
        let phase = (-beat.anchor).rem_euclid(period);
        return PerDay::Same(at_phase(phase, base, &steps) as u64);
    }
    PerDay::ByPhase { base, steps }
}

fn at_phase(phase: i64, base: i64, steps: &[(i64, i64)]) -> i64 {
    steps.partition_point(|step| step.0 <= phase).checked_sub(1).map_or(base, |last| steps[last].1)
}

/// The slots of up to 64 days that start at `midnight`.
fn count_by_phase(days: u64, midnight: i64, beat: &Beat, base: i64, steps: &[(i64, i64)]) -> u64 {
    let mut phase = (midnight - beat.anchor).rem_euclid(beat.period);
    let daily = DAY_MS % beat.period;
    let (mut total, mut rest) = (0, days);
    while rest != 0 {
        if rest & 1 == 1 {
            total += at_phase(phase, base, steps);
        }
        rest >>= 1;
        phase += daily;
        if phase >= beat.period {
            phase -= beat.period;
        }
    }
    total as u64
}

/// The first whole second at or after a millisecond.
fn ceil_second(millis: i64) -> i64 {
    -(-millis).div_euclid(1000)
}
