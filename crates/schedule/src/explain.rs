//! What a schedule means, told to people: description, DST notes, warnings.
//!
//! Asked by `punctual explain`, the API's validation and the console. Promise: every slot that a
//! change of the clock moved or doubled has a note, and every doubt we know of has a warning.

use std::fmt;

use jiff::Timestamp;

use crate::civil::{DAY, Wall, split, wall};
use crate::cron::Expression;
use crate::describe::{clock, date, describe};
use crate::dst::{Gap, Kind as DstKind, Overlap, Resolver, Single, Touched, WallTimes};
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
        let mut text = describe(&self.schedule, self.seed());
        for touched in self.touched_in_the_next_year(from) {
            text.push_str("; ");
            text.push_str(&self.tell(touched));
        }
        text
    }

    /// What a user should know before relying on this schedule after `from`.
    pub fn warnings(&self, from: Timestamp) -> Vec<String> {
        let mut warnings = self.schedule.remarks.0.clone();
        if let Kind::Cron(expression) = &self.schedule.kind {
            warnings.extend(both_days(expression));
        }
        if let Slots::Cron { pattern, .. } = &self.slots
            && pattern.per_day() == 86_400
        {
            warnings.push("runs every second, 86,400 times a day".into());
        }
        let zone = self.schedule.timezone.as_str();
        if let Some(hours) = zone.strip_prefix("Etc/GMT").filter(|rest| rest.starts_with(['+', '-'])) {
            let real = if hours.starts_with('+') { hours.replace('+', "-") } else { hours.replace('-', "+") };
            warnings.push(format!("{zone} counts the other way round: it is UTC{real}"));
        }
        let gap = |touched: &Touched| touched.kind == DstKind::Gap;
        if let Some(touched) = self.touched_in_the_next_year(from).into_iter().find(gap) {
            let what = match self.schedule.dst.gap {
                Gap::After => "after: runs once, right after it",
                Gap::Skip => "skip: does not run",
                Gap::Shift => "shift: runs later by the length of the gap",
            };
            warnings.push(format!("falls in a DST gap on {} (dst_gap = {what})", date(touched.wall)));
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

    /// The first gap and the first overlap that concern the schedule.
    fn touched_in_the_next_year(&self, from: Timestamp) -> Vec<Touched> {
        let from = from.as_second();
        let Slots::Cron { pattern, policy } = &self.slots else {
            return Vec::new();
        };
        if self.nature() == Nature::Wildcard {
            return Vec::new(); // It follows the clock: no time is special.
        }
        let resolver = self.resolver(pattern, *policy);
        let all: Vec<Touched> = resolver.touched(from, from + AHEAD).collect();
        let first = |kind: DstKind| all.iter().copied().find(move |touched| touched.kind == kind);
        let mut found: Vec<Touched> =
            [first(DstKind::Gap), first(DstKind::Overlap)].into_iter().flatten().collect();
        found.sort_by_key(|touched| touched.at);
        found
    }

    /// `on 8 March 2026 that time does not exist: runs at 03:00`.
    fn tell(&self, touched: Touched) -> String {
        let (pattern, policy) = match &self.slots {
            Slots::Cron { pattern, policy } => (pattern, *policy),
            _ => return String::new(),
        };
        let time = match pattern.per_day() {
            1 => "that time".into(),
            _ => clock(split(touched.wall).1),
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
