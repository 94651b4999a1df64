//! What a schedule means, told to people: description, DST notes, warnings.
//!
//! Asked by `punctual explain`, the API's validation and the console. Promise: every slot that a
//! change of the clock moved or doubled has a note, and every doubt we know of has a warning.

use std::fmt;

use jiff::Timestamp;

use crate::civil::{DAY, Wall, split, wall};
use crate::cron::Expression;
use crate::describe::{clock, date, describe};
use crate::dst::{self, Gap, Kind as DstKind, Overlap, Policy, Resolver, Single, Touched, WallTimes};
use crate::every::Beat;
use crate::schedule::Kind;
use crate::timetable::{Nature, Slots, Timetable};

/// How a change of the clock touched one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DstNote {
    /// A wall time does not exist that day; this slot stands for it.
    Moved {
        /// The missing time of day.
        from: String,
    },
    /// The wall time comes twice; this is its first pass.
    FirstPass,
    /// The wall time comes twice; this is its second pass.
    SecondPass,
}

impl fmt::Display for DstNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DstNote::Moved { from } => write!(f, "DST: {from} does not exist on this day"),
            DstNote::FirstPass => f.write_str("DST: this time comes twice, first pass"),
            DstNote::SecondPass => f.write_str("DST: this time comes twice, second pass"),
        }
    }
}

/// How far ahead DST is told.
const AHEAD: i64 = 366 * DAY;

impl Timetable {
    /// The schedule in plain English, with what DST does to it in the year after `from`.
    pub fn describe(&self, from: Timestamp) -> String {
        let mut text = describe(&self.schedule, self.seed(), self.zone.name());
        for touched in self.touched_in_the_next_year(from) {
            text.push_str("; ");
            text.push_str(&self.tell(touched));
        }
        text
    }

    /// What a user should know before relying on this schedule after `from`.
    pub fn warnings(&self, from: Timestamp) -> Vec<String> {
        let mut warnings = self.schedule.remarks.notes.clone();
        if let Kind::Cron(expression) = &self.schedule.kind {
            warnings.extend(both_days(expression));
        }
        warnings.extend(self.every_second());
        let zone = self.zone.name();
        if let Some(hours) = zone.strip_prefix("Etc/GMT").filter(|rest| rest.starts_with(['+', '-'])) {
            let real = if hours.starts_with('+') { hours.replace('+', "-") } else { hours.replace('-', "+") };
            warnings.push(format!("{zone} counts the other way round: it is UTC{real}"));
        }
        if let Some(why) = self.does_not_exist() {
            warnings.push(format!("never fires: {why}"));
            return warnings;
        }
        for touched in self.touched_in_the_next_year(from) {
            match touched.kind {
                DstKind::Overlap => {}
                DstKind::NoSuchDay => {
                    warnings.push(format!("{} does not exist in {zone}: nothing runs", date(touched.wall)));
                }
                DstKind::Gap => {
                    let what = match self.schedule.dst.gap {
                        Gap::After => "after: runs once, right after it",
                        Gap::Skip => "skip: does not run",
                        Gap::Shift => "shift: runs later by the length of the gap",
                    };
                    let day = date(touched.wall);
                    warnings.push(format!("falls in a DST gap on {day} (dst_gap = {what})"));
                }
            }
        }
        // A period from completion waits for one; that is not never.
        let waits = matches!(self.slots, Slots::Completion { .. });
        if !waits && self.next_after(from).is_none() {
            let after = from.to_string();
            warnings.push(format!("never fires: no slot after {after}, searched to the end of 2199"));
        }
        warnings
    }

    /// How a change of the clock touched a slot.
    pub fn dst_note(&self, slot: Timestamp) -> Option<DstNote> {
        let second = slot.as_second();
        match &self.slots {
            Slots::Cron { pattern, policy } => note(&self.resolver(pattern, *policy), second),
            Slots::Once(_) | Slots::Repetition(_) => {
                let time = self.nominal_time_of_day()?;
                let policy = self.schedule.dst.once();
                // The wall time it was meant for is on this day, or on the one a gap at midnight cut.
                let day = split(self.zone.wall_at(second)).0;
                [day, day - 1].iter().find_map(|day| {
                    let times = Single(wall(*day, time));
                    note(&Resolver { times: &times, zone: &self.zone, policy }, second)
                })
            }
            Slots::Beat(_) | Slots::Completion { .. } => None,
        }
    }

    /// The time of day a one-time or day-wise schedule names, if it names one.
    fn nominal_time_of_day(&self) -> Option<u32> {
        match &self.slots {
            Slots::Repetition(repetition)
                if !repetition.period.is_exact() && repetition.period.millis == 0 =>
            {
                Some(split(repetition.start_wall()).1)
            }
            Slots::Once(Some(_)) => match &self.schedule.kind {
                Kind::At(moment) => moment.wall_time().map(|at| split(at).1),
                _ => None,
            },
            _ => None,
        }
    }

    /// A schedule that is as fast as a schedule can be, which is rarely meant.
    fn every_second(&self) -> Option<String> {
        let per_day = match &self.slots {
            Slots::Cron { pattern, .. } => {
                pattern.per_day().min(u64::from(pattern.is_every_second()) * 86_400)
            }
            Slots::Beat(beat) => u64::from(beat.period == 1_000) * 86_400,
            Slots::Repetition(repetition) => {
                let lasts = |(beat, end): &(Beat, i64)| beat.period == 1_000 && end - beat.first > 3_600_000;
                u64::from(repetition.as_beat().as_ref().is_some_and(lasts)) * 86_400
            }
            Slots::Once(_) | Slots::Completion { .. } => 0,
        };
        match per_day {
            0 => None,
            86_400 => Some("runs every second, 86,400 times a day".into()),
            n if n < 1_000 => Some(format!("runs every second of the minutes it names, {n} times a day")),
            n => Some(format!(
                "runs every second of the minutes it names, {},{:03} times a day",
                n / 1_000,
                n % 1_000
            )),
        }
    }

    /// Why a single time is no slot at all: the clock leaves it out.
    pub(crate) fn does_not_exist(&self) -> Option<String> {
        let (Slots::Once(None), Kind::At(moment)) = (&self.slots, &self.schedule.kind) else {
            return None;
        };
        let at = moment.wall_time().filter(|_| self.schedule.calendars.is_empty())?;
        let times = Single(at);
        let touched = dst::touched(&self.zone, i64::MIN, i64::MAX, |from| times.next_from(from))
            .find(|touched| touched.kind != DstKind::Overlap)?;
        let (day, zone) = (date(at), self.zone.name());
        Some(match touched.kind {
            DstKind::NoSuchDay => format!("{day} does not exist in {zone}"),
            DstKind::Gap | DstKind::Overlap => {
                let time = clock(split(at).1);
                format!("{time} does not exist on {day} in {zone}, and dst_gap = skip")
            }
        })
    }

    /// The wall times that a change of the clock may concern; none where no time is special.
    fn named(&self) -> Option<Named<'_>> {
        match &self.slots {
            // A wildcard follows the clock.
            Slots::Cron { pattern, policy } if self.nature() != Nature::Wildcard => Some(Named {
                next_from: Box::new(|from| pattern.next_from(from)),
                policy: *policy,
                is_single: pattern.per_day() == 1,
                ahead: AHEAD,
            }),
            Slots::Repetition(repetition) if self.nominal_time_of_day().is_some() => Some(Named {
                next_from: Box::new(|from| repetition.next_wall(from)),
                policy: self.schedule.dst.once(),
                is_single: true,
                ahead: AHEAD,
            }),
            Slots::Once(_) if self.schedule.calendars.is_empty() => {
                let Kind::At(moment) = &self.schedule.kind else { return None };
                let times = Single(moment.wall_time()?);
                Some(Named {
                    next_from: Box::new(move |from| times.next_from(from)),
                    policy: self.schedule.dst.once(),
                    is_single: true,
                    ahead: i64::MAX, // It is one time, however far.
                })
            }
            Slots::Cron { .. }
            | Slots::Repetition(_)
            | Slots::Once(_)
            | Slots::Beat(_)
            | Slots::Completion { .. } => None,
        }
    }

    /// The first change of each kind that concerns the schedule.
    fn touched_in_the_next_year(&self, from: Timestamp) -> Vec<Touched> {
        let from = from.as_second();
        let Some(named) = self.named() else {
            return Vec::new();
        };
        let all: Vec<Touched> =
            dst::touched(&self.zone, from, from.saturating_add(named.ahead), named.next_from).collect();
        let first = |kind: DstKind| all.iter().copied().find(move |touched| touched.kind == kind);
        let mut found: Vec<Touched> =
            [DstKind::Gap, DstKind::Overlap, DstKind::NoSuchDay].into_iter().filter_map(first).collect();
        found.sort_by_key(|touched| touched.at);
        found
    }

    /// `on 8 March 2026 that time does not exist: runs at 03:00`.
    fn tell(&self, touched: Touched) -> String {
        let Some(Named { policy, is_single, .. }) = self.named() else {
            return String::new();
        };
        let time = match is_single {
            true => "that time".into(),
            false => clock(split(touched.wall).1),
        };
        let day = date(touched.wall);
        let local = |second: i64| {
            let at = self.zone.wall_at(second);
            match split(at).0 == split(touched.wall).0 {
                true => clock(split(at).1),
                false => format!("{} on {}", clock(split(at).1), date(at)),
            }
        };
        let single = Resolver { times: &Single(touched.wall), zone: &self.zone, policy };
        match touched.kind {
            DstKind::NoSuchDay => format!("{day} does not exist there: nothing runs"),
            DstKind::Gap => match single.next_from(touched.at - DAY) {
                Some(second) => {
                    format!("on {day} {time} does not exist: runs at {}", local(second))
                }
                None => format!("on {day} {time} does not exist: is skipped"),
            },
            DstKind::Overlap => {
                let which = match policy.overlap {
                    Overlap::First => "the first time",
                    Overlap::Both => "both times",
                    Overlap::Last => "the second time",
                };
                format!("on {day} {time} comes twice: runs {which}")
            }
        }
    }
}

/// Wall times and what happens to those that a change of the clock concerns.
struct Named<'a> {
    next_from: Box<dyn Fn(Wall) -> Option<Wall> + 'a>,
    policy: Policy,
    /// One time of day, so that it needs no name.
    is_single: bool,
    /// How far ahead it is told, in seconds.
    ahead: i64,
}

fn both_days(expression: &Expression) -> Option<String> {
    let either = expression.has_both_days() && !expression.weekdays.and;
    either.then(|| {
        "day-of-month and weekday are both set: it runs when either matches; \
         write `+` before the weekday if both must match"
            .into()
    })
}

fn note<T: WallTimes>(resolver: &Resolver<'_, T>, second: i64) -> Option<DstNote> {
    let zone = resolver.zone;
    let index = zone.index_at(second);
    let stretch = zone.stretch(index);
    let at: Wall = second + stretch.offset;
    if let Some(touched) = resolver.touch(index).filter(|t| t.kind == DstKind::Gap) {
        let gap = stretch.offset - zone.stretch(index - 1).offset;
        let from = match resolver.policy.gap {
            Gap::After => (second == touched.at).then_some(touched.wall),
            Gap::Shift => {
                let meant = at - gap;
                let low = touched.at + stretch.offset - gap;
                (meant >= low && meant < low + gap && resolver.times.any(meant, meant + 1)).then_some(meant)
            }
            Gap::Skip => None,
        };
        if let Some(from) = from {
            return Some(DstNote::Moved { from: clock(split(from).1) });
        }
    }
    if !resolver.times.any(at, at + 1) {
        return None;
    }
    match (at < stretch.seen_until, at >= stretch.again_from) {
        (true, _) => Some(DstNote::SecondPass),
        (false, true) => Some(DstNote::FirstPass),
        (false, false) => None,
    }
}
