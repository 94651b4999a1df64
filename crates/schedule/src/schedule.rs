//! What a user registers: when, in which zone, within which bounds.
//!
//! Parsed once at the edge; printing it gives the canonical text back. A schedule answers no
//! question about time by itself: [`Schedule::timetable`] binds it to a job and a database.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;

use crate::calendar::OnExcluded;
use crate::cron::{Dialect, Expression};
use crate::dst;
use crate::error::{Code, Error};
use crate::every::{Every, Origin};
use crate::interval::{Interval, Step};
use crate::moment::Moment;
use crate::period::Period;
use crate::spoken::Spoken;
use crate::timetable::{Binding, Timetable};
use crate::tzdb::Tzdb;

/// A schedule with everything that decides its slots.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// What kind, with its own text.
    pub kind: Kind,
    /// IANA name or offset; the clock that cron, days and months follow.
    pub timezone: String,
    /// What happens at a change of the clock.
    pub dst: dst::Policy,
    /// From when to when, and how often at most.
    pub bounds: Bounds,
    /// Runs start up to this much after their slot, by a stable hash of the job's id.
    pub spread: Option<Duration>,
    /// Names of calendars; a slot must be allowed by all.
    pub calendars: Vec<String>,
    /// What happens to slots that a calendar excludes.
    pub on_excluded: OnExcluded,
    /// How it was written; not part of the schedule.
    pub(crate) remarks: Remarks,
}

/// The kinds of schedule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Once, when it is registered.
    Now,
    /// Once, at a moment.
    At(Moment),
    /// Once, so long after it is registered.
    After(Period),
    /// At a fixed period.
    Every(Every),
    /// An ISO 8601 repeating interval.
    Interval(Interval),
    /// A cron expression.
    Cron(Expression),
}

/// From when to when slots exist, and how many at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// No slot before this instant.
    pub start: Option<Timestamp>,
    /// No slot after this instant.
    pub end: Option<Timestamp>,
    /// At most so many fires; who fires keeps count (see [`crate::Progress`]).
    pub max_fires: Option<NonZeroU64>,
}

/// How it was written; does not make two schedules different.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remarks {
    /// What the reader of the text should know.
    pub(crate) notes: Vec<String>,
    /// The text itself, so that what is found wrong later can point into it.
    pub(crate) text: String,
}

impl PartialEq for Remarks {
    fn eq(&self, _: &Remarks) -> bool {
        true
    }
}

impl Schedule {
    /// A schedule of this kind in UTC with the default policies.
    pub fn new(kind: Kind) -> Self {
        Schedule {
            kind,
            timezone: "UTC".into(),
            dst: dst::Policy::default(),
            bounds: Bounds::default(),
            spread: None,
            calendars: Vec::new(),
            on_excluded: OnExcluded::default(),
            remarks: Remarks::default(),
        }
    }

    /// Reads any kind: a cron expression, `@daily`, `@every 90s`, `PT5S`, `R5/<start>/P1D`,
    /// `@at 2026-12-24T18:00Z` (or the moment alone), `@after PT30S`, `@now`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Schedule::parse_dialect(text, Dialect::Standard)
    }

    /// Reads a schedule as another system writes it.
    pub fn parse_dialect(text: &str, dialect: Dialect) -> Result<Self, Error> {
        crate::check_text(text)?;
        let trimmed = text.trim_matches([' ', '\t']);
        let lead = text.len() - text.trim_start_matches([' ', '\t']).len();
        let read = match dialect {
            Dialect::Standard => read_standard(trimmed),
            Dialect::Aws => read_aws(trimmed),
            Dialect::Quartz => read_cron(trimmed, dialect),
        };
        let (kind, notes) = read.map_err(|error| error.shifted(lead))?;
        Ok(Schedule { remarks: Remarks { notes, text: text.into() }, ..Schedule::new(kind) })
    }

    /// Binds it to a job and a database.
    pub fn timetable(&self, tzdb: &Tzdb, binding: &Binding) -> Result<Timetable, Error> {
        Timetable::new(self, tzdb, binding).map_err(|error| self.pointed(error))
    }

    /// The schedule of all jobs that have this one, whatever their ids: with every slot that `H` may stand for. The second
    /// answer is the share of these slots that one job has on average; 1 where nothing depends on the id.
    pub fn evened(&self) -> (Schedule, f64) {
        match &self.kind {
            Kind::Cron(expression) => {
                let (expression, share) = expression.evened();
                (Schedule { kind: Kind::Cron(expression), ..self.clone() }, share)
            }
            Kind::Now | Kind::At(_) | Kind::After(_) | Kind::Every(_) | Kind::Interval(_) => {
                (self.clone(), 1.0)
            }
        }
    }

    /// Points an error at the zone or moment that it names, if the text has it.
    fn pointed(&self, error: Error) -> Error {
        let text = &self.remarks.text;
        let zone = match error.code() {
            Code::Timezone | Code::Conflict => self.kind.zone_names().into_iter().find_map(|name| {
                let at = text.find(&format!("{name}]"))?;
                error.message().contains(name).then_some(at..at + name.len())
            }),
            _ => None,
        };
        match (zone, error.code()) {
            (Some(zone), Code::Timezone) => error.at(zone),
            (Some(zone), Code::Conflict) => {
                // The whole moment: back to the blank or slash before it.
                let bracket = text[..zone.start].rfind('[').unwrap_or(zone.start);
                let start = text[..bracket].rfind([' ', '/']).map_or(0, |before| before + 1);
                error.at(start..zone.end + 1)
            }
            _ => error,
        }
    }
}

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Schedule::parse(text)
    }
}

/// The canonical text of the kind; zone, policies and bounds are fields of their own.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl Kind {
    /// The zones that its moments name.
    fn zone_names(&self) -> Vec<&str> {
        let moments = match self {
            Kind::At(moment) => vec![moment],
            Kind::Every(every) => match every.origin() {
                Origin::Clock { anchor, .. } => anchor.iter().collect(),
                Origin::Completion => Vec::new(),
            },
            Kind::Interval(interval) => match &interval.step {
                Step::Until(end) => vec![&interval.start, end],
                Step::Period(_) => vec![&interval.start],
            },
            Kind::Now | Kind::After(_) | Kind::Cron(_) => Vec::new(),
        };
        moments.into_iter().filter_map(Moment::zone_name).collect()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Now => f.write_str("@now"),
            Kind::At(moment) => write!(f, "@at {moment}"),
            Kind::After(period) => write!(f, "@after {period}"),
            Kind::Every(every) => every.fmt(f),
            Kind::Interval(interval) => interval.fmt(f),
            Kind::Cron(expression) => expression.fmt(f),
        }
    }
}

type Read = Result<(Kind, Vec<String>), Error>;

fn read_standard(text: &str) -> Read {
    if let Some(rest) = after_word(text, "@every") {
        return at_offset(text, rest, Every::parse(rest).map(Kind::Every));
    }
    if let Some(rest) = after_word(text, "@at") {
        return at_offset(text, rest, Moment::parse(rest).map(Kind::At));
    }
    if let Some(rest) = after_word(text, "@after") {
        let period = match rest.starts_with(['P', 'p']) {
            true => Period::parse_iso(rest),
            false => Period::parse_exact(rest),
        };
        return at_offset(text, rest, period.map(Kind::After));
    }
    if text.eq_ignore_ascii_case("@now") || text.eq_ignore_ascii_case("now") {
        return Ok((Kind::Now, Vec::new()));
    }
    let one_word = !text.contains([' ', '\t']);
    let second = text.as_bytes().get(1).copied().unwrap_or(0);
    if one_word
        && text.starts_with(['R', 'r'])
        && (second.is_ascii_digit() || [b'/', b'-', b'+'].contains(&second))
    {
        return Interval::parse(text).map(|interval| (Kind::Interval(interval), Vec::new()));
    }
    if one_word
        && text.starts_with(['P', 'p'])
        && (second.is_ascii_digit() || second.eq_ignore_ascii_case(&b'T'))
    {
        return Every::parse(text).map(|every| (Kind::Every(every), Vec::new()));
    }
    if one_word && is_date_like(text) {
        return match text.contains('/') && !text.contains('[') {
            true => Err(Error::new(Code::Syntax, "an interval that repeats starts with `R`")
                .at(0..text.len())
                .hint(format!("write `R/{text}`"))),
            false => Moment::parse(text).map(|moment| (Kind::At(moment), Vec::new())),
        };
    }
    read_cron(text, Dialect::Standard).map_err(|error| meant(text).unwrap_or(error))
}

/// What somebody meant who wrote a schedule in a way that is none.
fn meant(text: &str) -> Option<Error> {
    let refused =
        |reason: String, hint: String| Some(Error::new(Code::Syntax, reason).at(0..text.len()).hint(hint));
    if let Some(spoken) = Spoken::read(text) {
        return refused(format!("`{text}` is not how a period is written"), spoken.way_out());
    }
    let (name, inside) = text.strip_suffix(')').and_then(|text| text.split_once('(')).unwrap_or_default();
    let is = |word: &str| name.eq_ignore_ascii_case(word);
    if is("rate") || is("cron") || is("at") {
        let ours =
            Spoken::read(inside).filter(|_| is("rate")).map(|spoken| format!(", or {}", spoken.way_out()));
        return refused(
            format!("`{name}(...)` is how AWS writes it"),
            format!("import it with the dialect `aws`{}", ours.unwrap_or_default()),
        );
    }
    if let Some((date, time)) = text.split_once(' ').filter(|(date, _)| is_date_like(date)) {
        let joined = format!("{date}T{}", time.trim_start());
        return match Moment::parse(&joined) {
            Ok(_) => {
                refused(format!("`{text}` has a blank where a `T` belongs"), format!("write `@at {joined}`"))
            }
            Err(error) => Some(error.at(0..text.len())),
        };
    }
    None
}

fn is_date_like(text: &str) -> bool {
    text.len() >= 10 && text.as_bytes()[..4].iter().all(u8::is_ascii_digit) && text.as_bytes()[4] == b'-'
}

fn read_cron(text: &str, dialect: Dialect) -> Read {
    let parsed = Expression::parse_dialect(text, dialect)?;
    Ok((Kind::Cron(parsed.expression), parsed.remarks))
}

/// `cron(...)`, `rate(5 minutes)`, `at(2026-12-24T18:00:00)`, or the six fields alone.
fn read_aws(text: &str) -> Read {
    let inside = |name: &str| {
        let head = text.get(..name.len()).filter(|head| head.eq_ignore_ascii_case(name))?;
        text[head.len()..].strip_prefix('(')?.strip_suffix(')')
    };
    if let Some(fields) = inside("cron") {
        return read_cron(fields, Dialect::Aws).map_err(|error| error.shifted("cron(".len()));
    }
    if let Some(rate) = inside("rate") {
        let every = aws_rate(rate).map_err(|error| error.shifted("rate(".len()))?;
        let remark = "AWS counts a rate from its creation; here it is counted from the Unix epoch, \
                      or from the schedule's start if one is given";
        return Ok((Kind::Every(every), vec![remark.into()]));
    }
    if let Some(at) = inside("at") {
        let moment = Moment::parse(at).map_err(|error| error.shifted("at(".len()))?;
        return Ok((Kind::At(moment), Vec::new()));
    }
    read_cron(text, Dialect::Aws)
}

fn aws_rate(text: &str) -> Result<Every, Error> {
    let wrong = || {
        Error::new(Code::Syntax, format!("`{text}` is not a rate"))
            .at(0..text.len())
            .hint("write `rate(5 minutes)`, `rate(1 hour)` or `rate(7 days)`")
    };
    let (count, unit) = text.split_once(' ').ok_or_else(wrong)?;
    let count: i64 = count.parse().ok().filter(|n| (1..=1_000_000).contains(n)).ok_or_else(wrong)?;
    let seconds = match unit {
        "minute" | "minutes" => 60,
        "hour" | "hours" => 3_600,
        "day" | "days" => 86_400,
        _ => return Err(wrong()),
    };
    let period = Period::exact(jiff::SignedDuration::from_secs(count * seconds))?;
    Every::new(period, Origin::Clock { anchor: None, phase_ms: 0 })
}

fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let head = text.get(..word.len())?;
    let rest = &text[word.len()..];
    let apart = rest.is_empty() || rest.starts_with([' ', '\t']);
    (head.eq_ignore_ascii_case(word) && apart).then(|| rest.trim_start_matches([' ', '\t']))
}

fn at_offset(whole: &str, rest: &str, read: Result<Kind, Error>) -> Read {
    let offset = whole.len() - rest.len();
    read.map(|kind| (kind, Vec::new())).map_err(|error| error.shifted(offset))
}
