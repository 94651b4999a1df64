//! `punctual explain`: what a schedule means and when its next slots are.
//!
//! Needs no server, unless a calendar of one is named. Promise: it answers with the same code that fires jobs, so what it shows is
//! what happens.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone};
use punctual_api::calendar::CalendarSpec;
use punctual_schedule::calendar::{Calendars, OnExcluded};
use punctual_schedule::cron::Dialect;
use punctual_schedule::every::Origin;
use punctual_schedule::{Binding, Error, Kind, Schedule, Seed, Source, Timetable, Tzdb, dst};
use serde::Serialize;

use super::output::{self, Format};
use super::remote::{self, Remote};
use super::{calendar, tzdata};
use crate::failure::Failure;

/// Show what a schedule means and when its next slots are
#[derive(Args)]
#[command(after_help = "Examples:
  punctual explain '30 2 * * *' --tz America/New_York
  punctual explain '@every 90s' --count 3
  punctual explain 'R6/2026-01-31T09:00[Europe/Paris]/P1M'
  punctual explain '0 0 12 ? * 2-6' --dialect quartz -o json")]
pub(crate) struct Arguments {
    /// A cron expression, `@every 90s`, `PT5S`, `R5/<start>/<duration>` or a date and time
    #[arg(allow_hyphen_values = true)]
    expression: String,

    /// Time zone: an IANA name such as Europe/Paris, or an offset such as +05:30
    #[arg(long = "tz", value_name = "ZONE", default_value = "UTC", allow_hyphen_values = true)]
    timezone: String,

    /// Show slots after this instant, RFC 3339; a date alone is its midnight in UTC [default: now]
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    from: Option<Timestamp>,

    /// How many slots to show
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    count: u32,

    /// What happens to times that DST leaves out
    #[arg(long, value_enum, default_value_t = Gap::After)]
    dst_gap: Gap,

    /// What happens to times that DST repeats
    #[arg(long, value_enum, default_value_t = Overlap::First)]
    dst_overlap: Overlap,

    /// The system the expression was written for
    #[arg(long, value_enum, default_value_t = ImportDialect::Standard)]
    dialect: ImportDialect,

    /// The job id that `H` hashes
    #[arg(long, value_name = "ID")]
    job_id: Option<String>,

    /// Directory with a compiled time zone database, or `bundled` [default: the system's]
    #[arg(long, value_name = "DIR", env = "PUNCTUAL_TZDATA")]
    tzdata: Option<PathBuf>,

    /// A calendar of the server that must allow a slot; may be repeated
    #[arg(long = "calendar", value_name = "NAME")]
    calendars: Vec<String>,

    /// A file with a calendar as JSON that must allow a slot; may be repeated
    #[arg(long, value_name = "FILE")]
    calendar_file: Vec<PathBuf>,

    /// What happens to slots that a calendar excludes
    #[arg(long, value_enum, default_value_t = Excluded::Skip)]
    on_excluded: Excluded,

    #[command(flatten)]
    remote: Remote,
}

/// [`OnExcluded`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Excluded {
    /// Do not run
    Skip,
    /// Run on the next allowed day, same time of day
    Next,
    /// Run on the previous allowed day, same time of day
    Previous,
}

/// [`dst::Gap`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Gap {
    /// Run once, right after the gap
    After,
    /// Do not run
    Skip,
    /// Run later by the length of the gap
    Shift,
}

/// [`dst::Overlap`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Overlap {
    /// Run the first time
    First,
    /// Run both times
    Both,
    /// Run the second time
    Last,
}

/// [`Dialect`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ImportDialect {
    /// 0 and 7 are Sunday; 5, 6 or 7 fields
    Standard,
    /// 1 is Sunday; seconds first
    Quartz,
    /// 1 is Sunday; a year last; also rate(...) and at(...)
    Aws,
}

/// What is shown, in JSON's order.
#[derive(Serialize)]
struct Explanation {
    expression: String,
    canonical: String,
    timezone: String,
    description: String,
    kind: &'static str,
    slots: Vec<String>,
    warnings: Vec<String>,
    tzdata: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut schedule = parse(arguments)?;
    let tzdb = tzdata::open(arguments.tzdata.as_deref())?;
    let calendars = calendars(arguments, &tzdb)?;
    schedule.calendars = calendars.keys().cloned().collect();
    let from = arguments.from.unwrap_or_else(Timestamp::now);
    let binding = Binding {
        seed: Seed::of(arguments.job_id.as_deref().unwrap_or_default()),
        registered_at: from,
        calendars: Arc::new(calendars),
    };
    let timetable = schedule.timetable(&tzdb, &binding).map_err(|error| refused(&error, arguments))?;
    // A job that runs when it is registered has its first slot at that very instant.
    let after = match schedule.kind {
        Kind::Now => from.checked_sub(jiff::SignedDuration::from_millis(1)).unwrap_or(Timestamp::MIN),
        Kind::Every(ref every) if *every.origin() == Origin::Completion => {
            from.checked_sub(jiff::SignedDuration::from_millis(1)).unwrap_or(Timestamp::MIN)
        }
        _ => from,
    };
    let slots: Vec<Timestamp> = timetable.upcoming(after).take(arguments.count as usize).collect();
    let explanation = Explanation {
        expression: arguments.expression.clone(),
        canonical: schedule.to_string(),
        timezone: timetable.zone().name().to_string(),
        description: timetable.describe(after),
        kind: timetable.nature().as_str(),
        slots: slots.iter().map(|slot| rfc3339(*slot, &timetable)).collect(),
        warnings: warnings(&timetable, after, arguments),
        tzdata: tzdb.version().map(str::to_string),
    };
    match arguments.remote.output {
        format @ (Format::Json | Format::Yaml) => {
            let json = serde_json::to_string_pretty(&explanation).map_err(anyhow::Error::from)?;
            output::print(&output::machine(&json, format)?)
        }
        Format::Table | Format::Wide => output::print(&page(&explanation, &timetable, &slots, &tzdb)),
    }
}

/// The calendars of files and of the server.
fn calendars(arguments: &Arguments, tzdb: &Tzdb) -> Result<Calendars, Failure> {
    let mut calendars = Calendars::new();
    let mut add = |name: &str, spec: &CalendarSpec| {
        let calendar = spec.to_domain("calendar", tzdb).map_err(|unread| {
            Failure::Input(format!("calendar {name}: {}", punctual_api::bulk::first_wrong(&unread)))
        })?;
        calendars.insert(name.to_string(), Arc::new(calendar));
        Ok::<_, Failure>(())
    };
    for path in &arguments.calendar_file {
        add(&path.display().to_string(), &calendar::from_file(path)?)?;
    }
    if !arguments.calendars.is_empty() {
        let client = arguments.remote.client()?;
        remote::run(async {
            for name in &arguments.calendars {
                add(name, &client.calendar(name).await?.value.spec)?;
            }
            Ok(())
        })?;
    }
    Ok(calendars)
}

fn instant(text: &str) -> Result<Timestamp, String> {
    let midnight = || text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok();
    match text.parse::<Timestamp>() {
        Ok(instant) => Ok(instant),
        // jiff takes a date with a time for a date too.
        Err(_) if text.len() == "2026-11-01".len() => midnight().map(|zoned| zoned.timestamp()).ok_or(()),
        Err(_) => Err(()),
    }
    .map_err(|()| {
        "write `2026-11-01T00:00:00Z`, with another offset, or `2026-11-01` for midnight UTC".into()
    })
}

fn parse(arguments: &Arguments) -> Result<Schedule, Failure> {
    let dialect = match arguments.dialect {
        ImportDialect::Standard => Dialect::Standard,
        ImportDialect::Quartz => Dialect::Quartz,
        ImportDialect::Aws => Dialect::Aws,
    };
    let mut schedule = Schedule::parse_dialect(&arguments.expression, dialect)
        .map_err(|error| refused(&error, arguments))?;
    schedule.timezone.clone_from(&arguments.timezone);
    schedule.on_excluded = match arguments.on_excluded {
        Excluded::Skip => OnExcluded::Skip,
        Excluded::Next => OnExcluded::Next,
        Excluded::Previous => OnExcluded::Previous,
    };
    schedule.dst = dst::Policy {
        gap: match arguments.dst_gap {
            Gap::After => dst::Gap::After,
            Gap::Skip => dst::Gap::Skip,
            Gap::Shift => dst::Gap::Shift,
        },
        overlap: match arguments.dst_overlap {
            Overlap::First => dst::Overlap::First,
            Overlap::Both => dst::Overlap::Both,
            Overlap::Last => dst::Overlap::Last,
        },
    };
    Ok(schedule)
}

/// The message, with a caret under the place when it is in the expression.
fn refused(error: &Error, arguments: &Arguments) -> Failure {
    Failure::Input(match error.caret(&arguments.expression) {
        Some(caret) => format!("{error}\n{caret}"),
        None => error.to_string(),
    })
}

fn warnings(timetable: &Timetable, after: Timestamp, arguments: &Arguments) -> Vec<String> {
    let mut warnings = timetable.warnings(after);
    let hashed = matches!(&timetable.schedule().kind, Kind::Cron(expression) if expression.is_hashed());
    if hashed && arguments.job_id.is_none() {
        warnings.push("`H` depends on the job's id: give --job-id to see the slots of one job".into());
    }
    warnings
}

fn rfc3339(slot: Timestamp, timetable: &Timetable) -> String {
    slot.display_with_offset(offset(slot, timetable)).to_string()
}

fn offset(slot: Timestamp, timetable: &Timetable) -> Offset {
    Offset::from_seconds(timetable.zone().offset_at(slot)).unwrap_or(Offset::UTC)
}

/// The page for people.
fn page(explanation: &Explanation, timetable: &Timetable, slots: &[Timestamp], tzdb: &Tzdb) -> String {
    let mut page = format!("{}\n\n", explanation.description);
    if !slots.is_empty() {
        page.push_str(&slot_table(timetable, slots));
        page.push_str("\n\n");
    }
    for warning in &explanation.warnings {
        page.push_str(&format!("warning: {warning}\n"));
    }
    page.push_str(&format!("{}\n", footer(explanation, tzdb)));
    page
}

fn slot_table(timetable: &Timetable, slots: &[Timestamp]) -> String {
    let notes: Vec<String> = slots
        .iter()
        .map(|slot| timetable.dst_note(*slot).map(|note| note.to_string()).unwrap_or_default())
        .collect();
    let noted = notes.iter().any(|note| !note.is_empty());
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut header = vec!["SLOT", "LOCAL TIME", "UTC"];
    header.extend(noted.then_some("NOTE"));
    table.set_header(header);
    for (index, (slot, note)) in slots.iter().zip(&notes).enumerate() {
        let local = slot.to_zoned(TimeZone::fixed(offset(*slot, timetable)));
        let mut row = vec![
            (index + 1).to_string(),
            format!("{} {}", local.strftime("%a"), rfc3339(*slot, timetable)),
            slot.to_string(),
        ];
        row.extend(noted.then(|| note.clone()));
        table.add_row(row);
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_string()).collect();
    lines.join("\n")
}

fn footer(explanation: &Explanation, tzdb: &Tzdb) -> String {
    let kind = match explanation.kind {
        "fixed" => "fixed time, the DST policy applies",
        "wildcard" => "wildcard, follows the wall clock through DST",
        "interval" => "interval, counts from a point",
        _ => "once",
    };
    let version = tzdb.version().unwrap_or("of unknown version");
    let source = match tzdb.source() {
        Source::System(directory) | Source::Directory(directory) => directory.display().to_string(),
        Source::Bundled => "bundled".into(),
    };
    let newer = match (tzdb.version(), Tzdb::bundled_version()) {
        (Some(ours), Some(bundled)) if ours < bundled => {
            format!(
                "\nnote: tzdata {bundled} is newer and inside this binary; update the system's, or give --tzdata bundled"
            )
        }
        _ => String::new(),
    };
    format!("{kind}; tzdata {version} from {source}{newer}")
}
