//! ISO 8601 repeating intervals: `R5/2026-01-31T09:00[America/New_York]/P1M`.
//!
//! Slot k is start + k x period, always from the start and never from the slot before, or
//! January 31st would decay to the 28th. Days and months follow the wall clock of the zone; hours
//! are exact. Promise: next, previous and count cost a few steps, however far from the start.

use std::fmt;
use std::sync::Arc;

use crate::calendar::OnExcluded;
use crate::civil::{DAY, Wall, YEAR_MAX, date_from_days, days_from_date, days_in_month, split, wall};
use crate::dst::{self, Gap, Policy};
use crate::error::{Code, Error};
use crate::every::Beat;
use crate::filter::DayFilter;
use crate::moment::{Moment, Placed};
use crate::period::Period;
use crate::zone::Zone;

/// A repeating interval.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    /// The total number of slots; `None` is without end.
    pub repeats: Option<u64>,
    /// Slot 0.
    pub start: Moment,
    /// How slot k + 1 follows slot k.
    pub step: Step,
}

/// The distance between slots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A length.
    Period(Period),
    /// As long as from the start to here.
    Until(Moment),
}

impl Interval {
    /// Reads `R[n]/start/duration` or `R[n]/start/end`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        crate::check_text(text)?;
        let usage =
            "write `R5/2026-01-31T09:00[Europe/Paris]/P1M`: repeats, start, then a duration or an end";
        let wrong = |reason: String, from: usize, to: usize| {
            Error::new(Code::Syntax, reason).at(from..to).hint(usage)
        };
        // A zone in brackets contains slashes of its own.
        let parts = split_outside_brackets(text);
        let [repeat, start, step] = parts.as_slice() else {
            let reason = match parts.len() {
                2 if parts[1].1.starts_with(['P', 'p']) => "an interval needs a start",
                _ => "an interval has three parts",
            };
            return Err(wrong(reason.into(), 0, text.len()));
        };
        let repeats = parse_repeats(repeat.1, usage)?;
        if start.1.is_empty() || start.1.starts_with(['P', 'p']) {
            return Err(wrong(
                "an interval needs a start before its duration".into(),
                start.0,
                start.0 + start.1.len(),
            ));
        }
        let start_at = Moment::parse(start.1).map_err(|error| error.shifted(start.0))?;
        let step_is_period = step.1.starts_with(['P', 'p', '-', '+']) || step.1.is_empty();
        let step = match step_is_period {
            true => Step::Period(Period::parse_iso(step.1).map_err(|error| error.shifted(step.0))?),
            false => Step::Until(Moment::parse(step.1).map_err(|error| error.shifted(step.0))?),
        };
        let too_fast = matches!(step, Step::Period(period) if period.about_millis() < 1_000);
        if too_fast {
            return Err(Error::new(Code::OutOfRange, "the period is shorter than a second")
                .at(text.len() - parts[2].1.len()..text.len())
                .hint("the shortest is `PT1S`"));
        }
        if let Step::Until(end) = &step
            && end.is_surely_not_after(&start_at)
        {
            return Err(end_before_start().at(text.len() - parts[2].1.len()..text.len()));
        }
        Ok(Interval { repeats, start: start_at, step })
    }
}

pub(crate) fn end_before_start() -> Error {
    Error::new(Code::OutOfRange, "the interval's end is not after its start")
        .hint("the third part is the end of the first interval, or a duration such as `PT6H`")
}

fn split_outside_brackets(text: &str) -> Vec<(usize, &str)> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => inside = true,
            b']' => inside = false,
            b'/' if !inside => {
                parts.push((start, &text[start..index]));
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push((start, &text[start..]));
    parts
}

fn parse_repeats(text: &str, usage: &str) -> Result<Option<u64>, Error> {
    let count = text.strip_prefix(['R', 'r']).unwrap_or(text);
    if count.is_empty() {
        return Ok(None);
    }
    let number =
        count.parse::<u64>().ok().filter(|_| count.len() <= 12 && count.bytes().all(|b| b.is_ascii_digit()));
    match number {
        Some(0) => Err(Error::new(Code::OutOfRange, "R0 never fires")
            .at(0..text.len())
            .hint("R counts all slots: `R1` fires once, `R` without a number has no end")),
        Some(number) => Ok(Some(number)),
        None => Err(Error::new(Code::OutOfRange, format!("`{text}` is not a number of repeats"))
            .at(0..text.len())
            .hint(usage)),
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("R")?;
        if let Some(repeats) = self.repeats {
            write!(f, "{repeats}")?;
        }
        write!(f, "/{}/", self.start)?;
        match &self.step {
            Step::Period(period) => write!(f, "{period}"),
            Step::Until(end) => write!(f, "{end}"),
        }
    }
}

/// An interval in its zone: slot k of `0..repeats`, in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Repetition {
    start: i64,
    wall: Wall,
    subsec_millis: i64,
    pub(crate) period: Period,
    repeats: i64,
    pub(crate) zone: Arc<Zone>,
    pub(crate) policy: Policy,
    filter: Option<DayFilter>,
}

/// Where slot k is.
#[derive(Clone, Copy)]
enum Place {
    Slot(i64),
    /// It does not exist; before calendars and gaps it would be at this wall time.
    Missing(Wall),
    /// After the end of 2199.
    Beyond,
}

/// A moved slot is at most 13 months from where it was.
const MOVE_DAYS_MAX: i32 = 400;
const MOVE_MAX_MS: i64 = MOVE_DAYS_MAX as i64 * DAY * 1000;

/// Days closed in a row that are stepped over one by one, which is cheap.
const LONG_CLOSURE_DAYS: i32 = 60;

impl Repetition {
    /// `start` must have an instant; the caller has checked.
    pub(crate) fn new(
        start: &Placed,
        millis: i64,
        period: Period,
        repeats: Option<u64>,
        policy: Policy,
    ) -> Self {
        Repetition {
            start: millis,
            wall: start.wall,
            subsec_millis: start.subsec_millis,
            period,
            repeats: repeats.map_or(i64::MAX, |n| i64::try_from(n).unwrap_or(i64::MAX)),
            zone: Arc::clone(&start.zone),
            policy: policy.once(),
            filter: None,
        }
    }

    pub(crate) fn with_filter(mut self, filter: Option<DayFilter>) -> Self {
        // A time of day outside the windows is outside them on every day.
        if filter.as_ref().is_some_and(|filter| !filter.is_open_at(split(self.wall).1)) {
            self.repeats = 0;
        }
        self.filter = filter;
        self
    }

    fn years_end(&self) -> i64 {
        self.zone.years_end() * 1000
    }

    pub(crate) fn start_wall(&self) -> Wall {
        self.wall
    }

    pub(crate) fn next_from(&self, from: i64) -> Option<i64> {
        let reach = if self.moves(OnExcluded::Next) { MOVE_MAX_MS } else { 0 };
        let mut k = self.guess(from.saturating_sub(reach), -2);
        while k < self.repeats {
            match self.place(k) {
                Place::Slot(slot) if slot >= from => return Some(slot),
                Place::Slot(_) => k += 1,
                Place::Missing(_) => k = self.after_closed(k)?,
                Place::Beyond => return None,
            }
        }
        None
    }

    pub(crate) fn last_before(&self, to: i64) -> Option<i64> {
        let reach = if self.moves(OnExcluded::Previous) { MOVE_MAX_MS } else { 0 };
        // Nothing lies after 2199; a search that started there would walk down all the way.
        let to = to.min(self.years_end());
        let mut k = self.guess(to.saturating_add(reach), 2).min(self.repeats - 1);
        while k >= 0 {
            match self.place(k) {
                Place::Slot(slot) if slot < to => return Some(slot),
                Place::Slot(_) | Place::Beyond => k -= 1,
                Place::Missing(_) => k = self.before_closed(k)?,
            }
        }
        None
    }

    /// The k to look at after a missing one: past the days that its calendar closes, if it does.
    fn after_closed(&self, k: i64) -> Option<i64> {
        let (Some(filter), Some(wanted)) = (&self.filter, self.wall_of(k)) else { return Some(k + 1) };
        let day = split(wanted).0;
        let open = filter.days().next_from(day)?;
        let reach = if filter.on_excluded == OnExcluded::Next { MOVE_DAYS_MAX } else { 0 };
        let target = wall(open - reach, 0);
        Some(if open > day { (self.guess_wall(target) - 3).max(k + 1) } else { k + 1 })
    }

    /// [`Repetition::after_closed`], the other way.
    fn before_closed(&self, k: i64) -> Option<i64> {
        let (Some(filter), Some(wanted)) = (&self.filter, self.wall_of(k)) else { return Some(k - 1) };
        let day = split(wanted).0;
        let open = filter.days().last_until(day)?;
        let reach = if filter.on_excluded == OnExcluded::Previous { MOVE_DAYS_MAX } else { 0 };
        let target = wall(open + reach, 0);
        Some(if open < day { (self.guess_wall(target) + 3).min(k - 1) } else { k - 1 })
    }

    /// How many slots lie in `from..to`.
    pub(crate) fn count(&self, from: i64, to: i64) -> u64 {
        let (from, to) = (from.min(self.years_end()), to.min(self.years_end()));
        if self.filter.is_some() {
            let mut total = 0;
            self.visit(from, to, |_| total += 1);
            return total;
        }
        if from >= to {
            return 0;
        }
        let (low, high) = (self.first_at(from), self.first_at(to));
        let missing = if self.period.is_exact() { 0 } else { self.count_missing(low, high) };
        (high - low) as u64 - missing
    }

    /// How many slots of `low..high` do not exist. Only a jump of the clock makes one go missing, so only
    /// those whose wall time is near a jump are looked at.
    fn count_missing(&self, low: i64, high: i64) -> u64 {
        let (Some(first), Some(last)) = (self.wall_of(low), self.wall_of((high - 1).max(low))) else {
            return 0;
        };
        let (mut missing, mut checked) = (0, low - 1);
        for index in self.zone.index_at(first - 2 * DAY)..=self.zone.index_at(last + 2 * DAY) {
            let jump = self.zone.stretch(index);
            let near = self.guess_wall(jump.start + jump.offset);
            for k in (near - 4).max(checked + 1).max(low)..(near + 5).min(high) {
                missing += u64::from(matches!(self.place(k), Place::Missing(_)));
                checked = k;
            }
        }
        missing
    }

    /// Visits the slots in `from..to`, in order, where calendars make them irregular.
    pub(crate) fn visit(&self, from: i64, to: i64, mut each: impl FnMut(i64)) {
        let reach = if self.moves(OnExcluded::Next) { MOVE_MAX_MS } else { 0 };
        let ahead = if self.moves(OnExcluded::Previous) { MOVE_MAX_MS } else { 0 };
        let mut k = self.guess(from.saturating_sub(reach), -2);
        let end = self.guess(to.saturating_add(ahead), 3).min(self.repeats);
        let (mut last, mut near) = (i64::MIN, Near::default());
        while k < end {
            match self.place_near(k, &mut near) {
                Place::Slot(slot) => {
                    if (from..to).contains(&slot) && slot != last {
                        each(slot);
                        last = slot;
                    }
                    k += 1;
                }
                Place::Missing(wanted) => {
                    let opens = near.closed.map_or(Some(i32::MIN), |closed| closed.1);
                    let is_long =
                        opens.is_none_or(|open| open.saturating_sub(split(wanted).0) > LONG_CLOSURE_DAYS);
                    let next = if is_long { self.after_closed(k) } else { Some(k + 1) };
                    match next {
                        Some(next) => k = next,
                        None => return,
                    }
                }
                Place::Beyond => return,
            }
        }
    }

    /// The first wall time of a slot from a wall time on, calendars applied, before exact time is added.
    pub(crate) fn next_wall(&self, from: Wall) -> Option<Wall> {
        let reach = if self.moves(OnExcluded::Next) { i64::from(MOVE_DAYS_MAX) * DAY } else { 0 };
        let mut k = (self.guess_wall(from - reach) - 3).clamp(0, self.repeats);
        while k < self.repeats {
            let wanted = self.wall_of(k)?;
            let settled = match &self.filter {
                Some(filter) => filter.settle_one(wanted),
                None => Some(wanted),
            };
            match settled {
                Some(at) if at >= from => return Some(at),
                Some(_) => k += 1,
                None => k = self.after_closed(k)?,
            }
        }
        None
    }

    /// Slots at a fixed distance, as a beat, and one past the last.
    pub(crate) fn as_beat(&self) -> Option<(Beat, i64)> {
        let end = self.period.millis.saturating_mul(self.repeats).saturating_add(self.start);
        let beat = Beat { anchor: self.start, period: self.period.millis, first: self.start };
        self.period.is_exact().then_some((beat, end))
    }

    /// About which k has a wall time, before exact time is added; never more than two off.
    fn guess_wall(&self, wall: Wall) -> i64 {
        let step = Period { millis: 0, ..self.period }.about_millis() / 1000;
        (wall - self.wall).div_euclid(step)
    }

    /// The first k at or after an instant, missing or not.
    fn first_at(&self, at: i64) -> i64 {
        let mut k = self.guess(at, -2);
        while k < self.repeats {
            match self.place(k) {
                Place::Slot(slot) if slot < at => k += 1,
                Place::Missing(wanted) if self.would_be(k, wanted) < at => k += 1,
                Place::Slot(_) | Place::Missing(_) | Place::Beyond => break,
            }
        }
        k.min(self.repeats)
    }

    fn moves(&self, to: OnExcluded) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.on_excluded == to)
    }

    /// About which k an instant is, moved by `by`; never more than two off.
    fn guess(&self, at: i64, by: i64) -> i64 {
        let k = at.saturating_sub(self.start).div_euclid(self.period.about_millis());
        k.saturating_add(by).clamp(0, self.repeats)
    }

    fn place(&self, k: i64) -> Place {
        self.place_near(k, &mut Near::default())
    }

    /// Where slot k is; `near` remembers the neighbourhood when many are asked for in order.
    fn place_near(&self, k: i64, near: &mut Near) -> Place {
        let Some(exact) = self.period.millis.checked_mul(k) else {
            return Place::Beyond;
        };
        let within = |slot: i64| {
            if slot < self.years_end() { Place::Slot(slot) } else { Place::Beyond }
        };
        if self.period.is_exact() {
            return self.start.checked_add(exact).map_or(Place::Beyond, within);
        }
        let Some(wanted) = self.wall_of(k) else {
            return Place::Beyond;
        };
        let settled = match &self.filter {
            Some(filter) => near.settle(filter, wanted),
            None => Some(wanted),
        };
        let slot_at = |second: i64| second * 1000 + self.subsec_millis + exact;
        if k == 0 && settled == Some(wanted) {
            return within(self.start);
        }
        let resolved =
            settled.and_then(|at| dst::resolve_near(at, &self.zone, self.policy, &mut near.stretch));
        match resolved {
            Some(second) => within(slot_at(second)),
            None => Place::Missing(wanted),
        }
    }

    /// About where a missing slot k would be.
    fn would_be(&self, k: i64, wanted: Wall) -> i64 {
        let shifted = Policy { gap: Gap::Shift, ..self.policy };
        let day_before = self.zone.stretch(self.zone.index_at(wanted - DAY)).offset;
        let second = dst::resolve(wanted, &self.zone, shifted).unwrap_or(wanted - day_before);
        second * 1000 + self.subsec_millis + self.period.millis * k
    }

    /// The wall time of slot k before exact time is added; a month that is too short ends sooner.
    fn wall_of(&self, k: i64) -> Option<Wall> {
        let (day, time) = split(self.wall);
        let days = i64::from(self.period.days).checked_mul(k)?;
        let within = |day: &i64| *day <= i64::from(days_from_date(YEAR_MAX + 1, 1, 2));
        if self.period.months == 0 {
            return i64::from(day).checked_add(days).filter(within).map(|day| wall(day as i32, time));
        }
        let (year, month, date) = date_from_days(day);
        let months = i64::from(self.period.months).checked_mul(k)?.checked_add(i64::from(month) - 1)?;
        let year = i64::from(year).checked_add(months.div_euclid(12))?;
        if year > i64::from(YEAR_MAX) + 1 {
            return None;
        }
        let (year, month) = (year as i32, months.rem_euclid(12) as u32 + 1);
        let base = days_from_date(year, month, date.min(days_in_month(year, month)));
        i64::from(base).checked_add(days).filter(within).map(|day| wall(day as i32, time))
    }
}

/// What the last slot's neighbourhood was.
#[derive(Default)]
struct Near {
    stretch: usize,
    /// The open days around a closed stretch.
    closed: Option<(Option<i32>, Option<i32>)>,
}

impl Near {
    /// [`DayFilter::settle_one`] for a time of day that is known to be open.
    fn settle(&mut self, filter: &DayFilter, wanted: Wall) -> Option<Wall> {
        let (day, time) = split(wanted);
        let inside = |(before, after): &(Option<i32>, Option<i32>)| {
            before.is_none_or(|open| open < day) && after.is_none_or(|open| day < open)
        };
        if self.closed.filter(inside).is_none() {
            if filter.days().contains(day) {
                return Some(wanted);
            }
            self.closed = Some(filter.open_around(day));
        }
        filter.moved(day, self.closed?).map(|day| wall(day, time))
    }
}
