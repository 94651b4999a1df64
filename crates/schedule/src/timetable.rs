//! A schedule bound to a job and a database: the answers.
//!
//! Made when a job is registered, loaded or recomputed; cheap to keep and to ask. Promise: slots
//! are strictly increasing, the same from every starting point and in both directions, and none
//! lies outside the schedule's bounds or calendars.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::calendar::{Calendar, Calendars, OnExcluded};
use crate::civil::{DAY, YEAR_MAX, days_from_date};
use crate::cron::Pattern;
use crate::dst::{self, Policy, Resolver};
use crate::error::{Code, Error};
use crate::every::{Beat, Origin};
use crate::filter::{DayFilter, Verdict};
use crate::interval::{Repetition, Step, end_before_start};
use crate::moment::Moment;
use crate::period::Period;
use crate::schedule::{Kind, Schedule};
use crate::seed::Seed;
use crate::sieve::{CLOCKS_MAX, Filters, Sieve, Source};
use crate::tzdb::Tzdb;
use crate::zone::Zone;

/// What a schedule is bound to.
#[derive(Clone, Debug)]
pub struct Binding {
    /// What `H` and spread hash: the job's id.
    pub seed: Seed,
    /// When the job was registered; `now` and `after` count from it.
    pub registered_at: Timestamp,
    /// The calendars that schedules may name.
    pub calendars: Arc<Calendars>,
}

impl Default for Binding {
    /// No job: an empty seed, registered in 1970, no calendars.
    fn default() -> Self {
        Binding { seed: Seed::default(), registered_at: Timestamp::UNIX_EPOCH, calendars: Arc::default() }
    }
}

/// What has happened so far, for schedules that depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// How many slots have fired.
    pub fired: u64,
    /// When the last run ended.
    pub last_completion: Option<Timestamp>,
}

/// How a schedule behaves in time, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Names times of day.
    Fixed,
    /// Follows the wall clock.
    Wildcard,
    /// Counts from a point.
    Interval,
    /// Happens once.
    Once,
}

impl Nature {
    /// The word, as shown to users.
    pub fn as_str(self) -> &'static str {
        match self {
            Nature::Fixed => "fixed",
            Nature::Wildcard => "wildcard",
            Nature::Interval => "interval",
            Nature::Once => "once",
        }
    }
}

/// The slots of one job.
#[derive(Clone, Debug)]
pub struct Timetable {
    pub(crate) schedule: Schedule,
    pub(crate) zone: Arc<Zone>,
    pub(crate) slots: Slots,
    /// Calendars that judge instants, because they have a clock of their own or the schedule
    /// counts exact time.
    filters: Vec<(DayFilter, Arc<Zone>)>,
    seed: Seed,
}

/// Where the slots come from, before bounds and foreign calendars.
#[derive(Clone, Debug)]
pub(crate) enum Slots {
    /// At most one, in milliseconds.
    Once(Option<i64>),
    Beat(Beat),
    /// The first slot; the next ones need a completion.
    Completion {
        first: Option<i64>,
        period: i64,
    },
    Repetition(Repetition),
    Cron {
        pattern: Box<Pattern>,
        policy: Policy,
    },
}

/// So many slots excluded in a row are tried one by one; then whole stretches are counted.
const TRIES_MAX: u32 = 64;

/// The first stretch that is counted; each following one is twice as long.
const FAR_MS: i64 = 64 * DAY * 1000;

/// A stretch this short is searched slot by slot.
const NEAR_MS: i64 = DAY * 1000;

/// More calendars than this are better joined into one.
pub(crate) const CALENDARS_MAX: usize = 8;

/// Before the first instant of 1970 on every clock, in milliseconds: calendars allow nothing earlier.
const BEFORE_MS: i64 = -3 * DAY * 1000;

/// After the last instant of 2199 on every clock, in milliseconds.
const BEYOND_MS: i64 = days_from_date(YEAR_MAX + 1, 1, 3) as i64 * DAY * 1000;

/// A longer spread would let a run start closer to another year's slot than to its own.
const SPREAD_MAX: Duration = Duration::from_secs(366 * DAY as u64);

impl Timetable {
    pub(crate) fn new(schedule: &Schedule, tzdb: &Tzdb, binding: &Binding) -> Result<Self, Error> {
        if let (Some(start), Some(end)) = (schedule.bounds.start, schedule.bounds.end)
            && start > end
        {
            return Err(Error::new(Code::Conflict, format!("the start {start} is after the end {end}"))
                .hint("swap them"));
        }
        if let Some(spread) = schedule.spread.filter(|spread| *spread > SPREAD_MAX) {
            return Err(Error::new(
                Code::OutOfRange,
                format!("a spread of {} days is too long", spread.as_secs() / DAY as u64),
            )
            .hint("the longest is 366 days"));
        }
        let zone = tzdb.zone(own_zone(&schedule.kind).unwrap_or(&schedule.timezone))?;
        let calendars = Named::find(schedule, binding, &zone, tzdb)?;
        let registered = binding.registered_at.as_millisecond();
        let in_our_years = |at: &i64| *at < zone.years_end() * 1000;
        let mut filters = calendars.foreign;
        let slots = match &schedule.kind {
            Kind::Now => {
                let at = Some(registered).filter(in_our_years);
                Slots::Once(settle(at, &zone, schedule.dst, calendars.own.as_ref()))
            }
            Kind::At(moment) => {
                let placed = moment.place(tzdb, &zone, schedule.dst)?;
                let settled = settle(placed.millis, &zone, schedule.dst, calendars.own.as_ref());
                Slots::Once(settled)
            }
            Kind::After(period) => {
                let placed = crate::moment::Placed {
                    millis: Some(registered),
                    wall: zone.wall_at(registered.div_euclid(1000)),
                    subsec_millis: registered.rem_euclid(1000),
                    zone: Arc::clone(&zone),
                };
                let twice = Repetition::new(&placed, registered, *period, Some(2), schedule.dst);
                let at = twice.last_before(BEYOND_MS).filter(|at| *at > registered);
                Slots::Once(settle(at, &zone, schedule.dst, calendars.own.as_ref()))
            }
            Kind::Every(every) => {
                filters.extend(calendars.own.map(|filter| (filter, Arc::clone(&zone))));
                let period = every.period().millis;
                match every.origin() {
                    Origin::Completion => {
                        let first = schedule.bounds.start.map_or(registered, ceil_millis);
                        Slots::Completion { first: Some(first).filter(in_our_years), period }
                    }
                    Origin::Clock { anchor, phase_ms } => {
                        let anchor = match anchor {
                            Some(moment) => {
                                let placed = moment.place(tzdb, &zone, schedule.dst)?;
                                Some(
                                    placed
                                        .millis
                                        .ok_or_else(|| no_such_time("anchor", moment, &placed.zone))?,
                                )
                            }
                            None => schedule.bounds.start.map(ceil_millis),
                        };
                        let from = anchor.unwrap_or(0) + *phase_ms as i64;
                        Slots::Beat(Beat { anchor: from, period, first: from })
                    }
                }
            }
            Kind::Interval(interval) => {
                let placed = interval.start.place(tzdb, &zone, schedule.dst)?;
                let Some(start) = placed.millis else {
                    return Err(no_such_time("start", &interval.start, &placed.zone));
                };
                let period = match &interval.step {
                    Step::Period(period) => *period,
                    Step::Until(end) => until(start, end.place(tzdb, &placed.zone, schedule.dst)?.millis)?,
                };
                let repetition = Repetition::new(&placed, start, period, interval.repeats, schedule.dst);
                // With hours in it, a slot is not where its days alone would put it: judge the instant.
                let own = match period.millis != 0 {
                    true => {
                        filters.extend(calendars.own.map(|filter| (filter, Arc::clone(&zone))));
                        None
                    }
                    false => calendars.own,
                };
                Slots::Repetition(repetition.with_filter(own))
            }
            Kind::Cron(expression) => Slots::Cron {
                pattern: Box::new(Pattern::new(expression, binding.seed, calendars.own)),
                policy: match expression.is_wildcard() {
                    true => Policy::FOLLOW,
                    false => schedule.dst,
                },
            },
        };
        check_moves(schedule, &zone, &filters)?;
        let mut timetable =
            Timetable { schedule: schedule.clone(), zone, slots, filters, seed: binding.seed };
        if let Slots::Completion { first: Some(first), period } = timetable.slots {
            // The first one waits for the calendars, as every later one does.
            let first = timetable.allowed_from(first).map(floor_millis);
            timetable.slots = Slots::Completion { first, period };
        }
        Ok(timetable)
    }

    /// The first slot strictly after `t`.
    pub fn next_after(&self, t: Timestamp) -> Option<Timestamp> {
        let mut from = millis_after(t);
        if let Some(start) = self.schedule.bounds.start {
            from = from.max(ceil_millis(start));
        }
        let slot = self.next_from(from)?;
        let in_bounds = self.schedule.bounds.end.is_none_or(|end| slot <= floor_millis(end));
        if in_bounds { instant(slot) } else { None }
    }

    /// The last slot strictly before `t`.
    pub fn previous_before(&self, t: Timestamp) -> Option<Timestamp> {
        let mut to = ceil_millis(t);
        if let Some(end) = self.schedule.bounds.end {
            to = to.min(floor_millis(end) + 1);
        }
        let slot = self.last_before(to)?;
        let in_bounds = self.schedule.bounds.start.is_none_or(|start| slot >= ceil_millis(start));
        if in_bounds { instant(slot) } else { None }
    }

    /// The next slot after `t` given what has happened: stops at the maximum number of fires, and
    /// counts from the last completion where the schedule does.
    pub fn next_given(&self, t: Timestamp, progress: Progress) -> Option<Timestamp> {
        if self.schedule.bounds.max_fires.is_some_and(|most| progress.fired >= most.get()) {
            return None;
        }
        match (&self.slots, progress.last_completion) {
            (Slots::Completion { period, .. }, Some(completed)) => {
                let due = floor_millis(completed).checked_add(*period)?;
                self.allowed_from(due.max(millis_after(t)))
            }
            _ => self.next_after(t),
        }
    }

    /// Whether a completion has come since this slot was computed, for schedules that count from the last one: the slot
    /// that counts is then another, at least a period after that completion.
    pub fn is_superseded(&self, slot: Timestamp, progress: Progress) -> bool {
        match (&self.slots, progress.last_completion) {
            (Slots::Completion { period, .. }, Some(completed)) => {
                floor_millis(completed).checked_add(*period).is_some_and(|due| floor_millis(slot) < due)
            }
            _ => false,
        }
    }

    /// The first instant from `at` on that calendars and bounds allow.
    fn allowed_from(&self, at: i64) -> Option<Timestamp> {
        let bounds = &self.schedule.bounds;
        let at = at.max(bounds.start.map_or(at, ceil_millis));
        let at = match is_allowed(&self.filters, at) {
            true => at,
            // Calendars open on whole seconds.
            false => first_let_through(&Slots::seconds_from(at), &self.zone, &self.filters, at)?,
        };
        let in_our_years = at < self.zone.years_end() * 1000;
        instant(at).filter(|slot| in_our_years && bounds.end.is_none_or(|end| *slot <= end))
    }

    /// Slots after `t`, in order, at most the schedule's maximum number of fires.
    pub fn upcoming(&self, t: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
        let most = self.schedule.bounds.max_fires.map_or(u64::MAX, std::num::NonZeroU64::get);
        let first = self.next_after(t);
        std::iter::successors(first, |slot| self.next_after(*slot))
            .take(usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// How many slots lie in `from..to`, without visiting each.
    pub fn count(&self, from: Timestamp, to: Timestamp) -> u64 {
        let (mut low, mut high) = (ceil_millis(from), ceil_millis(to));
        if let Some(start) = self.schedule.bounds.start {
            low = low.max(ceil_millis(start));
        }
        if let Some(end) = self.schedule.bounds.end {
            high = high.min(floor_millis(end).saturating_add(1));
        }
        if low >= high {
            return 0;
        }
        match self.filters.is_empty() {
            true => self.slots.count(&self.zone, low, high),
            false => self.slots.count_through(&self.zone, &self.filters, low, high),
        }
    }

    /// The zone whose clock the schedule follows.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The schedule it was made from.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub(crate) fn seed(&self) -> Seed {
        self.seed
    }

    /// How it behaves in time.
    pub fn nature(&self) -> Nature {
        match &self.schedule.kind {
            Kind::Now | Kind::At(_) | Kind::After(_) => Nature::Once,
            Kind::Every(_) | Kind::Interval(_) => Nature::Interval,
            Kind::Cron(expression) if expression.is_wildcard() => Nature::Wildcard,
            Kind::Cron(_) => Nature::Fixed,
        }
    }

    /// How long after its slots this job starts, by the stable hash of its id.
    pub fn spread_offset(&self) -> Duration {
        const PURPOSE: u64 = 100; // Apart from the field numbers that `H` uses.
        let window = self.schedule.spread.map_or(0, |window| window.as_millis());
        match u64::try_from(window) {
            Ok(window @ 1..) => Duration::from_millis(self.seed.pick(PURPOSE, window)),
            _ => Duration::ZERO,
        }
    }

    /// Refuses a schedule that has no slot after `t`, as a registration does. Where the registration itself
    /// is the slot, one at `t` will do.
    pub fn must_fire_after(&self, t: Timestamp) -> Result<Timestamp, Error> {
        let fires_at_once = self.schedule.kind == Kind::Now || matches!(self.slots, Slots::Completion { .. });
        let after = match fires_at_once {
            true => instant(floor_millis(t) - 1).unwrap_or(Timestamp::MIN),
            false => t,
        };
        self.next_after(after).ok_or_else(|| match self.does_not_exist() {
            Some(why) => Error::new(Code::NeverFires, format!("`{}` never fires: {why}", self.schedule))
                .hint("choose a time that exists, or another `dst_gap`"),
            None => Error::new(Code::NeverFires, format!("`{}` never fires after {t}", self.schedule))
                .hint("check the dates: slots are searched to the end of 2199"),
        })
    }

    fn next_from(&self, from: i64) -> Option<i64> {
        match self.filters.is_empty() {
            true => self.slots.next_from(&self.zone, from),
            false => first_let_through(&self.slots, &self.zone, &self.filters, from),
        }
    }

    fn last_before(&self, to: i64) -> Option<i64> {
        match self.filters.is_empty() {
            true => self.slots.last_before(&self.zone, to),
            false => last_let_through(&self.slots, &self.zone, &self.filters, to),
        }
    }

    pub(crate) fn resolver<'a>(&'a self, pattern: &'a Pattern, policy: Policy) -> Resolver<'a, Pattern> {
        Resolver { times: pattern, zone: &self.zone, policy }
    }
}

/// The slots themselves, before bounds and calendars that judge instants. All times are milliseconds.
impl Slots {
    /// Every whole second from an instant on.
    fn seconds_from(at: i64) -> Self {
        let first = ceil_second(at) * 1000;
        Slots::Beat(Beat { anchor: first, period: 1000, first })
    }

    fn next_from(&self, zone: &Zone, from: i64) -> Option<i64> {
        match self {
            Slots::Once(at) | Slots::Completion { first: at, .. } => at.filter(|at| *at >= from),
            Slots::Beat(beat) => beat.next_from(from).filter(|slot| *slot < zone.years_end() * 1000),
            Slots::Repetition(repetition) => repetition.next_from(from),
            Slots::Cron { pattern, policy } => {
                let resolver = Resolver { times: &**pattern, zone, policy: *policy };
                Some(resolver.next_from(ceil_second(from))? * 1000)
            }
        }
    }

    fn last_before(&self, zone: &Zone, to: i64) -> Option<i64> {
        match self {
            Slots::Once(at) | Slots::Completion { first: at, .. } => at.filter(|at| *at < to),
            Slots::Beat(beat) => beat.last_before(to.min(zone.years_end() * 1000)),
            Slots::Repetition(repetition) => repetition.last_before(to),
            Slots::Cron { pattern, policy } => {
                let resolver = Resolver { times: &**pattern, zone, policy: *policy };
                Some(resolver.last_before(ceil_second(to))? * 1000)
            }
        }
    }

    fn count(&self, zone: &Zone, from: i64, to: i64) -> u64 {
        match self {
            Slots::Once(at) | Slots::Completion { first: at, .. } => {
                u64::from(at.is_some_and(|at| (from..to).contains(&at)))
            }
            Slots::Beat(beat) => beat.count(from, to.min(zone.years_end() * 1000)),
            Slots::Repetition(repetition) => repetition.count(from, to),
            Slots::Cron { pattern, policy } => {
                let resolver = Resolver { times: &**pattern, zone, policy: *policy };
                resolver.count(ceil_second(from), ceil_second(to))
            }
        }
    }

    fn count_through(&self, zone: &Zone, filters: &Filters, from: i64, to: i64) -> u64 {
        let (from, to) = (from.max(BEFORE_MS), to.min(BEYOND_MS));
        match self.sieve(zone, filters, from, to) {
            Some(mut sieve) => sieve.count(from, to),
            None => {
                u64::from(self.next_from(zone, from).is_some_and(|at| at < to && is_allowed(filters, at)))
            }
        }
    }

    /// Counts through calendars; nothing for the kinds with a single slot.
    fn sieve<'a>(&'a self, zone: &'a Zone, filters: &'a Filters, from: i64, to: i64) -> Option<Sieve<'a>> {
        let source = match self {
            Slots::Once(_) | Slots::Completion { .. } => return None,
            Slots::Beat(beat) => Source::Beat(*beat, zone.years_end() * 1000),
            Slots::Repetition(repetition) => match repetition.as_beat() {
                Some((beat, end)) => Source::Beat(beat, end.min(zone.years_end() * 1000)),
                None => Source::Repetition(repetition),
            },
            Slots::Cron { pattern, policy } => {
                Source::Cron(Resolver { times: &**pattern, zone, policy: *policy })
            }
        };
        Some(Sieve::new(source, filters, from, to))
    }
}

/// The first slot from an instant on that the calendars let through.
fn first_let_through(slots: &Slots, zone: &Zone, filters: &Filters, from: i64) -> Option<i64> {
    let mut from = from.max(BEFORE_MS);
    for _ in 0..TRIES_MAX {
        let slot = slots.next_from(zone, from)?;
        match closed_around(filters, slot) {
            None => return Some(slot),
            Some((_, until)) => from = until.max(slot + 1),
        }
    }
    // Count ever longer stretches until one has a slot, then halve it.
    let mut sieve = slots.sieve(zone, filters, from, BEYOND_MS)?;
    let (mut low, mut length) = (from, FAR_MS);
    while low < BEYOND_MS && sieve.count(low, low + length) == 0 {
        (low, length) = (low + length, length * 2);
    }
    while length > NEAR_MS {
        length /= 2;
        if sieve.count(low, low + length) == 0 {
            low += length;
        }
    }
    // At most a day with a slot in it: as many steps as its windows.
    while low < BEYOND_MS {
        let slot = slots.next_from(zone, low)?;
        match closed_around(filters, slot) {
            None => return Some(slot),
            Some((_, until)) => low = until.max(slot + 1),
        }
    }
    None
}

/// [`first_let_through`], the other way.
fn last_let_through(slots: &Slots, zone: &Zone, filters: &Filters, to: i64) -> Option<i64> {
    let mut to = to.min(BEYOND_MS);
    for _ in 0..TRIES_MAX {
        let slot = slots.last_before(zone, to)?;
        match closed_around(filters, slot) {
            None => return Some(slot),
            Some((since, _)) => to = since.min(slot),
        }
    }
    let mut sieve = slots.sieve(zone, filters, BEFORE_MS, to)?;
    let (mut high, mut length) = (to, FAR_MS);
    while high > BEFORE_MS && sieve.count(high - length, high) == 0 {
        (high, length) = (high - length, length * 2);
    }
    while length > NEAR_MS {
        length /= 2;
        if sieve.count(high - length, high) == 0 {
            high -= length;
        }
    }
    while high > BEFORE_MS {
        let slot = slots.last_before(zone, high)?;
        match closed_around(filters, slot) {
            None => return Some(slot),
            Some((since, _)) => high = since.min(slot),
        }
    }
    None
}

/// The stretch around an instant in which a calendar excludes everything: (start, end).
fn closed_around(filters: &Filters, at: i64) -> Option<(i64, i64)> {
    filters.iter().find_map(|(filter, zone)| {
        let second = at.div_euclid(1000);
        let index = zone.index_at(second);
        let stretch = zone.stretch(index);
        match filter.check(second + stretch.offset) {
            Verdict::Allowed { .. } => None,
            Verdict::Excluded { until, since } => {
                // Not past the next change of the clock: there the wall time means another instant.
                let until = (until - stretch.offset).min(zone.end(index));
                let since = (since - stretch.offset).max(stretch.start);
                Some((since * 1000, until * 1000))
            }
        }
    })
}

fn is_allowed(filters: &Filters, at: i64) -> bool {
    closed_around(filters, at).is_none()
}

/// A zone in brackets inside the text stands above the schedule's.
fn own_zone(kind: &Kind) -> Option<&str> {
    match kind {
        Kind::At(moment) => moment.zone_name(),
        Kind::Interval(interval) => interval.start.zone_name(),
        Kind::Now | Kind::After(_) | Kind::Every(_) | Kind::Cron(_) => None,
    }
}

fn no_such_time(what: &str, moment: &Moment, zone: &Zone) -> Error {
    Error::new(Code::NeverFires, format!("the {what} {moment} does not exist in {}", zone.name()))
        .hint("choose a time outside the DST gap, or another `dst_gap`")
}

/// The length of an interval given by its end.
fn until(start: i64, end: Option<i64>) -> Result<Period, Error> {
    match end {
        Some(end) if end - start >= 1000 => Period::exact(jiff::SignedDuration::from_millis(end - start)),
        _ => Err(end_before_start()),
    }
}

/// Applies calendars to the one slot of a one-time schedule.
fn settle(at: Option<i64>, zone: &Zone, policy: Policy, filter: Option<&DayFilter>) -> Option<i64> {
    let Some(filter) = filter else { return at };
    let at = at?;
    let wall = zone.wall_at(at.div_euclid(1000));
    match filter.settle_one(wall)? {
        moved if moved == wall => Some(at),
        moved => Some(dst::resolve(moved, zone, policy)? * 1000 + at.rem_euclid(1000)),
    }
}

/// The calendars a schedule names, apart by whose clock they use.
struct Named {
    own: Option<DayFilter>,
    foreign: Vec<(DayFilter, Arc<Zone>)>,
}

impl Named {
    fn find(schedule: &Schedule, binding: &Binding, zone: &Arc<Zone>, tzdb: &Tzdb) -> Result<Self, Error> {
        if schedule.calendars.len() > CALENDARS_MAX {
            return Err(Error::new(
                Code::Calendar,
                format!("a schedule has at most {CALENDARS_MAX} calendars, not {}", schedule.calendars.len()),
            )
            .hint("join some of them into one calendar"));
        }
        let mut own: Vec<Arc<Calendar>> = Vec::new();
        let mut foreign: Vec<(Vec<Arc<Calendar>>, Arc<Zone>)> = Vec::new();
        for name in &schedule.calendars {
            let calendar = binding.calendars.get(name).ok_or_else(|| {
                Error::new(Code::Calendar, format!("calendar `{name}` not found"))
                    .hint("create it first, or correct its name")
            })?;
            let clock = calendar.zone().map(|zone| tzdb.zone(zone)).transpose()?;
            match clock.filter(|other| !other.is_same_clock(zone)) {
                None => own.push(Arc::clone(calendar)),
                Some(clock) => match foreign.iter_mut().find(|(_, known)| known.is_same_clock(&clock)) {
                    Some((calendars, _)) => calendars.push(Arc::clone(calendar)),
                    None => foreign.push((vec![Arc::clone(calendar)], clock)),
                },
            }
        }
        if foreign.len() >= CLOCKS_MAX {
            return Err(Error::new(
                Code::Calendar,
                format!("the calendars are in {} time zones beside the schedule's", foreign.len()),
            )
            .hint(format!(
                "at most {} is possible: leave the zone out where it does not matter",
                CLOCKS_MAX - 1
            )));
        }
        let filter = |calendars: &[Arc<Calendar>]| DayFilter::new(calendars, schedule.on_excluded);
        Ok(Named {
            own: (!own.is_empty()).then(|| match counts_business_days(schedule) {
                true => filter(&own).with_business_days(&own),
                false => filter(&own),
            }),
            foreign: foreign.into_iter().map(|(calendars, clock)| (filter(&calendars), clock)).collect(),
        })
    }
}

fn counts_business_days(schedule: &Schedule) -> bool {
    matches!(&schedule.kind, Kind::Cron(expression) if expression.has_business_days())
}

/// Moving a slot by days needs wall-clock slots and calendars on the same clock.
fn check_moves(schedule: &Schedule, zone: &Zone, filters: &[(DayFilter, Arc<Zone>)]) -> Result<(), Error> {
    if counts_business_days(schedule)
        && let Some((_, calendar)) = filters.first()
    {
        return Err(Error::new(
            Code::Conflict,
            format!(
                "business days are counted on the schedule's clock, and a calendar is in {}",
                calendar.name()
            ),
        )
        .hint(format!("set the schedule's timezone to {}", calendar.name())));
    }
    if schedule.on_excluded == OnExcluded::Skip || schedule.calendars.is_empty() {
        return Ok(());
    }
    match filters.first() {
        Some((_, calendar)) if !calendar.is_same_clock(zone) => Err(Error::new(
            Code::Conflict,
            format!("slots move by days on the schedule's clock, and a calendar is in {}", calendar.name()),
        )
        .hint("give both the same timezone, or skip excluded slots")),
        Some(_) => Err(exact_moves()),
        None => Ok(()),
    }
}

fn exact_moves() -> Error {
    Error::new(Code::Conflict, "a period in hours cannot move to another day")
        .hint("skip excluded slots, or use cron or whole days")
}

fn instant(millis: i64) -> Option<Timestamp> {
    Timestamp::from_millisecond(millis).ok()
}

/// The last whole millisecond at or before `t`.
fn floor_millis(t: Timestamp) -> i64 {
    // jiff rounds towards zero, which is down only after 1970.
    t.as_millisecond() - i64::from(t.subsec_nanosecond() % 1_000_000 < 0)
}

/// The first whole millisecond at or after `t`.
fn ceil_millis(t: Timestamp) -> i64 {
    t.as_millisecond() + i64::from(t.subsec_nanosecond() % 1_000_000 > 0)
}

/// The first whole millisecond strictly after `t`.
fn millis_after(t: Timestamp) -> i64 {
    floor_millis(t) + 1
}

/// The first whole second at or after a millisecond.
fn ceil_second(millis: i64) -> i64 {
    -(-millis).div_euclid(1000)
}
