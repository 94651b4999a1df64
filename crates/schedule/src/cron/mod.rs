//! Cron expressions: five, six or seven fields, as people write them.
//!
//! `parse` reads text into an [`Expression`] (with `fields`, `spec` and `token`), `print` writes it
//! canonically, `dialect` says how Quartz and AWS number their fields. An expression becomes a [`Pattern`] (bitsets, searchable)
//! once the job's seed is known, because `H` depends on it; `days` decides which dates match.

mod days;
mod dialect;
mod fields;
mod parse;
mod pattern;
mod print;
mod spec;
mod token;

pub use dialect::Dialect;
pub(crate) use parse::Parsed;
pub(crate) use pattern::Pattern;

use crate::seed::Seed;

/// A parsed cron expression. `H` is kept as written until a job's seed is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expression {
    pub(crate) seconds: Field,
    pub(crate) minutes: Field,
    pub(crate) hours: Field,
    pub(crate) days: Days,
    pub(crate) months: Field,
    pub(crate) weekdays: Weekdays,
    pub(crate) years: Years,
}

/// The values of one field, bit by bit, and how they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Field {
    pub(crate) bits: u64,
    /// In seconds, minutes and hours: written with `*` or `*/n`, or full, so the schedule follows
    /// the wall clock. In days and weekdays: unrestricted. Elsewhere always false.
    pub(crate) star: bool,
    pub(crate) hashed: Vec<Hashed>,
}

/// `H`, `H(lo-hi)` and `H(lo-hi)/step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Hashed {
    pub(crate) lo: u8,
    pub(crate) hi: u8,
    /// 0: one value of the range.
    pub(crate) step: u8,
}

/// The day-of-month field. Bit `n` of a set stands for day `n`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Days {
    pub(crate) field: Field,
    /// Bit `n`: `L-n`; bit 0: `L`.
    pub(crate) last: u32,
    /// Bit `n`: `nW`, the weekday nearest to day `n`.
    pub(crate) nearest: u32,
    /// Bit `n`: `L-nW`, the weekday nearest to the day `n` before the last; bit 0: `LW`.
    pub(crate) nearest_last: u32,
    /// Bit `n`: `nB`, the `n`-th business day; bit 0: `LB`, the last one.
    pub(crate) business: u32,
}

/// The weekday field. 0 is Sunday.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Weekdays {
    pub(crate) field: Field,
    /// Bit `d * 5 + n - 1`: `d#n`.
    pub(crate) nth: u64,
    /// Bit `d`: `dL`.
    pub(crate) last: u8,
    /// `+`: the day must match both day fields.
    pub(crate) and: bool,
}

/// The year field: bit `y - 1970`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Years(pub(crate) [u64; 4]);

impl Field {
    pub(crate) fn resolve(&self, unit: u64, seed: Seed) -> u64 {
        self.hashed.iter().fold(self.bits, |bits, hashed| bits | hashed.resolve(unit, seed))
    }
}

impl Hashed {
    fn resolve(self, unit: u64, seed: Seed) -> u64 {
        let width = u64::from(self.hi - self.lo) + 1;
        if self.step == 0 {
            return 1 << (u64::from(self.lo) + seed.pick(unit, width));
        }
        let first = u64::from(self.lo) + seed.pick(unit, width.min(self.step.into()));
        (first..=self.hi.into()).step_by(self.step.into()).fold(0, |bits, value| bits | 1 << value)
    }
}

impl Field {
    /// The same with every value that `H` may stand for; and the share of its values that a job has, on average.
    fn evened(&self) -> (Field, f64) {
        if self.hashed.is_empty() {
            return (self.clone(), 1.0);
        }
        let range = |hashed: &Hashed| (hashed.lo..=hashed.hi).fold(0, |bits, value| bits | 1 << value);
        let bits = self.hashed.iter().fold(self.bits, |bits, hashed| bits | range(hashed));
        let picked = self.hashed.iter().map(|hashed| match hashed.step {
            0 => 1.0,
            step => (f64::from(hashed.hi - hashed.lo) + 1.0) / f64::from(step),
        });
        let picked = f64::from(self.bits.count_ones()) + picked.sum::<f64>();
        let share = (picked / f64::from(bits.count_ones())).min(1.0);
        (Field { bits, star: self.star, hashed: Vec::new() }, share)
    }
}

impl Years {
    pub(crate) const ALL: Years = {
        let mut bits = [u64::MAX; 4];
        bits[3] = (1 << (230 - 192)) - 1;
        Years(bits)
    };

    pub(crate) fn contains(self, year: i32) -> bool {
        let index = (year - crate::civil::YEAR_MIN) as usize;
        index < 230 && self.0[index / 64] >> (index % 64) & 1 == 1
    }
}

impl Expression {
    /// Reads five fields (minute to weekday), six (seconds first) or seven (a year last), or a
    /// nickname such as `@daily`.
    pub fn parse(text: &str) -> Result<Self, crate::Error> {
        parse::parse(text, Dialect::Standard).map(|parsed| parsed.expression)
    }

    /// Like [`Expression::parse`] in another dialect, with remarks about what was renumbered.
    pub(crate) fn parse_dialect(text: &str, dialect: Dialect) -> Result<Parsed, crate::Error> {
        parse::parse(text, dialect)
    }

    /// True if a seconds, minute or hour field is a wildcard: the schedule follows the wall clock
    /// through a DST change instead of naming times.
    pub fn is_wildcard(&self) -> bool {
        self.seconds.star || self.minutes.star || self.hours.star
    }

    /// True if the slots depend on the job's id.
    pub fn is_hashed(&self) -> bool {
        [&self.seconds, &self.minutes, &self.hours, &self.days.field, &self.months, &self.weekdays.field]
            .iter()
            .any(|field| !field.hashed.is_empty())
    }

    /// The expression that names every slot that `H` may stand for, and the share of them that one job has on average.
    pub(crate) fn evened(&self) -> (Expression, f64) {
        let mut all = self.clone();
        let fields = [
            &mut all.seconds,
            &mut all.minutes,
            &mut all.hours,
            &mut all.days.field,
            &mut all.months,
            &mut all.weekdays.field,
        ];
        let mut share = 1.0;
        for field in fields {
            let (evened, of) = field.evened();
            *field = evened;
            share *= of;
        }
        (all, share)
    }

    /// True if a day must match both day fields or either of them, that is, if both are set.
    pub(crate) fn has_both_days(&self) -> bool {
        !self.days.field.star && !self.weekdays.field.star
    }

    /// No longer than this when printed: every value by itself. Cheap to tell, unlike the printed form.
    fn printed_len_max(&self) -> usize {
        let fields =
            [&self.seconds, &self.minutes, &self.hours, &self.days.field, &self.months, &self.weekdays.field];
        let values: u32 = fields.iter().map(|field| field.bits.count_ones()).sum();
        let hashed: usize = fields.iter().map(|field| field.hashed.len()).sum();
        let days = [self.days.last, self.days.nearest, self.days.nearest_last, self.days.business];
        let days: u32 = days.iter().map(|bits| bits.count_ones()).sum();
        let weekdays = self.weekdays.nth.count_ones() + self.weekdays.last.count_ones();
        let years: u32 = self.years.0.iter().map(|bits| bits.count_ones()).sum();
        let years = if self.years == Years::ALL { 0 } else { years };
        // With their commas: two digits, `H(10-20)/30`, `L-30W`, `5#5`, four digits; stars and blanks beside.
        values as usize * 3
            + hashed * 12
            + days as usize * 6
            + weekdays as usize * 4
            + years as usize * 5
            + 40
    }

    /// True if `nB` or `LB` is used.
    pub(crate) fn has_business_days(&self) -> bool {
        self.days.business != 0
    }
}
