//! When, on the wire: one of `now`, `at`, `after`, `every`, `interval` and `cron`, with what bounds and bends it.

use std::num::NonZeroU64;

use punctual_schedule::calendar::OnExcluded;
use punctual_schedule::cron::Dialect;
use punctual_schedule::dst::{Gap, Overlap, Policy};
use punctual_schedule::every::{Every, Origin};
use punctual_schedule::interval::Interval;
use punctual_schedule::{self as domain, Kind, Period};

use crate::duration::Duration;
use crate::read::{At, Errors, Rules, one_of};
use crate::time::Time;

object! {
    /// When a job is due: exactly one of `now`, `at`, `after`, `every`, `interval` and `cron`.
    pub struct Schedule {
        /// `true`: once, when it is registered.
        pub now: bool,
        /// Once, at a time: RFC 3339, epoch seconds, or a wall-clock time in `timezone`.
        pub at: Time,
        /// Once, so long after it is registered: `PT30S` or `30s`.
        #[schema(example = "PT30S")]
        pub after: String,
        /// At a fixed period: `PT5S` or `5s`.
        #[schema(example = "PT5S")]
        pub every: String,
        /// With `every`: `clock` (the default) or `completion`, the end of the last run.
        pub from: String,
        /// With `every`: where slot 0 would be.
        pub anchor: Time,
        /// With `every`: so long after each multiple of the period.
        pub phase: Duration,
        /// An ISO 8601 repeating interval.
        #[schema(example = "R5/2026-12-01T00:00:00Z/P1D")]
        pub interval: String,
        /// A cron expression of 5, 6 or 7 fields, or a nickname such as `@daily`.
        #[schema(example = "0 2 * * *")]
        pub cron: String,
        /// With `cron`: `standard` (the default), `quartz` or `aws`.
        pub dialect: String,
        /// An IANA name such as `Europe/Paris`, or an offset; UTC unless said otherwise.
        #[schema(example = "Europe/Paris")]
        pub timezone: String,
        /// A time that a clock change leaves out: `after` the gap (the default), `skip` or `shift`.
        pub dst_gap: String,
        /// A time that comes twice: `first` (the default), `both` or `last`.
        pub dst_overlap: String,
        /// No slot before.
        pub start: Time,
        /// No slot after.
        pub end: Time,
        /// At most so many fires.
        pub max_fires: u64,
        /// Runs start up to so much after their slot, always the same for a job.
        pub spread: Duration,
        /// Named calendars that must all allow a slot.
        pub calendars: Vec<String>,
        /// A slot that a calendar excludes: `skip` (the default), `next` or `previous`.
        pub on_excluded: String,
    }
}

/// The members of which a schedule has exactly one.
pub const KINDS: [&str; 6] = ["now", "at", "after", "every", "interval", "cron"];

/// Members that belong to one kind and leave with it.
pub(crate) const OF_A_KIND: [(&str, &str); 4] =
    [("from", "every"), ("anchor", "every"), ("phase", "every"), ("dialect", "cron")];

const GAPS: [(&str, Gap); 3] = [("after", Gap::After), ("skip", Gap::Skip), ("shift", Gap::Shift)];
const OVERLAPS: [(&str, Overlap); 3] =
    [("first", Overlap::First), ("both", Overlap::Both), ("last", Overlap::Last)];
const EXCLUDED: [(&str, OnExcluded); 3] =
    [("skip", OnExcluded::Skip), ("next", OnExcluded::Next), ("previous", OnExcluded::Previous)];
const DIALECTS: [(&str, Dialect); 3] =
    [("standard", Dialect::Standard), ("quartz", Dialect::Quartz), ("aws", Dialect::Aws)];
const ORIGINS: [(&str, bool); 2] = [("clock", false), ("completion", true)];

impl Schedule {
    /// A cron schedule in a zone.
    pub fn cron(expression: impl Into<String>, timezone: impl Into<String>) -> Self {
        Schedule { cron: Some(expression.into()), timezone: Some(timezone.into()), ..Schedule::default() }
    }

    /// A fixed period.
    pub fn every(period: impl Into<String>) -> Self {
        Schedule { every: Some(period.into()), ..Schedule::default() }
    }

    /// The names of the kinds it has; a right one has one.
    fn kinds(&self) -> Vec<&'static str> {
        let present = [
            self.now.is_some(),
            self.at.is_some(),
            self.after.is_some(),
            self.every.is_some(),
            self.interval.is_some(),
            self.cron.is_some(),
        ];
        KINDS.iter().zip(present).filter(|(_, is_there)| *is_there).map(|(name, _)| *name).collect()
    }

    pub(crate) fn to_domain(
        &self,
        at: &At<'_>,
        rules: &Rules<'_>,
        errors: &mut Errors,
    ) -> Option<domain::Schedule> {
        let base = self.base(at, errors);
        let timezone = self.timezone.clone().unwrap_or_else(|| "UTC".into());
        if let Err(error) = rules.tzdb.zone(&timezone) {
            errors.add(&at.member("timezone"), error.code().as_str(), error.to_string());
        }
        let gap = word(self.dst_gap.as_ref(), &GAPS, &at.member("dst_gap"), errors);
        let overlap = word(self.dst_overlap.as_ref(), &OVERLAPS, &at.member("dst_overlap"), errors);
        let on_excluded = word(self.on_excluded.as_ref(), &EXCLUDED, &at.member("on_excluded"), errors);
        let mut instant = |time: &Option<Time>, member| {
            time.as_ref().and_then(|time| time.instant(&at.member(member), errors))
        };
        let (start, end) = (instant(&self.start, "start"), instant(&self.end, "end"));
        if let (Some(start), Some(end)) = (start, end)
            && end < start
        {
            errors.add(&at.member("end"), "out_of_range", "`end` is before `start`; swap them");
        }
        if self.max_fires == Some(0) {
            let way_out = "at least 1; to stop a job, pause or delete it";
            errors.add(&at.member("max_fires"), "out_of_range", way_out);
        }
        let names = self.calendars.clone().unwrap_or_default();
        for (index, name) in names.iter().enumerate().filter(|(index, name)| names[..*index].contains(name)) {
            let list = at.member("calendars");
            errors.add(&list.item(index), "duplicate_field", format!("`{name}` is there twice"));
        }
        let mut schedule = base?;
        schedule.timezone = timezone;
        schedule.dst = Policy { gap, overlap };
        schedule.calendars = names;
        schedule.on_excluded = on_excluded;
        schedule.bounds.start = start;
        schedule.bounds.end = end;
        schedule.bounds.max_fires = self.max_fires.and_then(NonZeroU64::new);
        schedule.spread = self.spread.map(|spread| spread.0);
        Some(schedule)
    }

    /// The kind alone, in UTC.
    fn base(&self, at: &At<'_>, errors: &mut Errors) -> Option<domain::Schedule> {
        let kinds = self.kinds();
        let kind = match kinds.as_slice() {
            [kind] => *kind,
            [] => {
                let way_out = "write one of `now`, `at`, `after`, `every`, `interval` and `cron`";
                errors.add(at, "missing_field", format!("no time is given; {way_out}"));
                return None;
            }
            several => {
                let detail = format!("{} do not go together; keep one", several.join(" and "));
                errors.add(at, "conflict", detail);
                return None;
            }
        };
        let has = [
            ("from", self.from.is_some()),
            ("anchor", self.anchor.is_some()),
            ("phase", self.phase.is_some()),
            ("dialect", self.dialect.is_some()),
        ];
        for ((member, is_there), (_, owner)) in has.into_iter().zip(OF_A_KIND) {
            if is_there && owner != kind {
                errors.add(&at.member(member), "conflict", format!("`{member}` goes with `{owner}` only"));
            }
        }
        let here = at.member(kind);
        match kind {
            "now" if self.now == Some(false) => {
                errors.add(&here, "out_of_range", "write `true`, or another kind of schedule");
                None
            }
            "now" => Some(domain::Schedule::new(Kind::Now)),
            "at" => {
                let moment = self.at.as_ref()?.moment(&here, errors)?;
                Some(domain::Schedule::new(Kind::At(moment)))
            }
            "after" => {
                let text = self.after.as_deref()?;
                let period = match text.starts_with(['P', 'p']) {
                    true => Period::parse_iso(text),
                    false => Period::parse_exact(text),
                };
                told(period, &here, errors).map(|period| domain::Schedule::new(Kind::After(period)))
            }
            "every" => self.fixed_period(at, errors).map(|every| domain::Schedule::new(Kind::Every(every))),
            "interval" => {
                let interval = told(Interval::parse(self.interval.as_deref()?), &here, errors)?;
                Some(domain::Schedule::new(Kind::Interval(interval)))
            }
            _ => {
                let dialect = match &self.dialect {
                    Some(word) => one_of(word, &DIALECTS, &at.member("dialect"), errors)?,
                    None => Dialect::Standard,
                };
                told(domain::Schedule::parse_dialect(self.cron.as_deref()?, dialect), &here, errors)
            }
        }
    }

    fn fixed_period(&self, at: &At<'_>, errors: &mut Errors) -> Option<Every> {
        let from_completion = match &self.from {
            Some(word) => one_of(word, &ORIGINS, &at.member("from"), errors)?,
            None => false,
        };
        let here = at.member("every");
        let anchor = match &self.anchor {
            Some(time) => Some(time.moment(&at.member("anchor"), errors)?),
            None => None,
        };
        let origin = match from_completion {
            true if anchor.is_some() || self.phase.is_some() => {
                let detail = "a period from the last completion has no anchor or phase; leave them out";
                errors.add(&at.member("from"), "conflict", detail);
                return None;
            }
            true => Origin::Completion,
            false => {
                Origin::Clock { anchor, phase_ms: self.phase.map_or(0, |phase| phase.0.as_millis() as u64) }
            }
        };
        let period = told(Period::parse_exact(self.every.as_deref()?), &here, errors)?;
        told(Every::new(period, origin), &here, errors)
    }
}

/// A word's meaning; the default without one.
fn word<T: Copy + Default>(
    text: Option<&String>,
    known: &[(&'static str, T)],
    at: &At<'_>,
    errors: &mut Errors,
) -> T {
    text.and_then(|text| one_of(text, known, at, errors)).unwrap_or_default()
}

fn word_of<T: Copy + PartialEq + Default>(words: &[(&'static str, T)], value: T) -> Option<String> {
    let word = words.iter().find(|(_, known)| *known == value).map(|(word, _)| (*word).to_string());
    word.filter(|_| value != T::default())
}

fn told<T>(read: Result<T, domain::Error>, at: &At<'_>, errors: &mut Errors) -> Option<T> {
    read.map_err(|error| errors.add(at, error.code().as_str(), error.to_string())).ok()
}

impl From<&domain::Schedule> for Schedule {
    fn from(schedule: &domain::Schedule) -> Self {
        let mut wire = Schedule {
            dst_gap: word_of(&GAPS, schedule.dst.gap),
            dst_overlap: word_of(&OVERLAPS, schedule.dst.overlap),
            on_excluded: word_of(&EXCLUDED, schedule.on_excluded),
            start: schedule.bounds.start.map(Time::from),
            end: schedule.bounds.end.map(Time::from),
            max_fires: schedule.bounds.max_fires.map(NonZeroU64::get),
            spread: schedule.spread.map(Duration),
            calendars: Some(schedule.calendars.clone()).filter(|names| !names.is_empty()),
            timezone: Some(schedule.timezone.clone()).filter(|zone| zone != "UTC"),
            ..Schedule::default()
        };
        match &schedule.kind {
            Kind::Now => wire.now = Some(true),
            Kind::At(moment) => wire.at = Some(Time::Text(moment.to_string())),
            Kind::After(period) => wire.after = Some(period.to_string()),
            Kind::Every(every) => {
                wire.every = Some(every.period().to_string());
                match every.origin() {
                    Origin::Completion => wire.from = Some("completion".into()),
                    Origin::Clock { anchor, phase_ms } => {
                        wire.anchor = anchor.as_ref().map(|moment| Time::Text(moment.to_string()));
                        wire.phase = Some(*phase_ms)
                            .filter(|phase| *phase > 0)
                            .map(|phase| Duration(std::time::Duration::from_millis(phase)));
                    }
                }
            }
            Kind::Interval(interval) => wire.interval = Some(interval.to_string()),
            Kind::Cron(expression) => {
                wire.cron = Some(expression.to_string());
                // What a cron expression means depends on it, so it is always shown.
                wire.timezone = Some(schedule.timezone.clone());
            }
        }
        wire
    }
}
