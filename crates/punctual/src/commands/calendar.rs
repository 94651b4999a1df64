//! `punctual calendar`: days and hours that the schedules of a tenant share.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use jiff::Timestamp;
use punctual_api::calendar::{Calendar, CalendarSpec};
use punctual_api::read::Unread;
use punctual_client::Client;

use super::asking::Ask;
use super::job::read_json;
use super::remote::{Paging, Remote};
use super::watch::Watch;
use super::{moment, output};
use crate::failure::Failure;

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Set a calendar, or change it: the jobs that use it are planned anew
    Put(Box<Put>),
    /// List calendars by name
    List {
        #[command(flatten)]
        paging: Paging,
    },
    /// Show a calendar
    Get {
        /// Its name
        name: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Delete a calendar that no job uses
    Delete {
        /// Its name
        name: String,
        /// Only if it still has this version
        #[arg(long, value_name = "N")]
        version: Option<u32>,
    },
}

#[derive(Args)]
pub(crate) struct Put {
    /// Its name: 1 to 63 letters, digits and any of . _ - /
    name: String,
    /// A file with a calendar as JSON, or - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Add to what the calendar says now, instead of taking its place
    #[arg(long)]
    add: bool,
    /// Only if it still has this version
    #[arg(long, value_name = "N")]
    version: Option<u32>,
    #[command(flatten)]
    flags: Flags,
}

/// A calendar on the command line.
#[derive(Args)]
struct Flags {
    /// The zone of its clock [default: that of each schedule]
    #[arg(long = "tz", value_name = "ZONE", allow_hyphen_values = true)]
    timezone: Option<String>,
    /// Allow these days: 2026-12-24, or 12-24 for every year
    #[arg(long = "include-date", value_name = "DATES", value_delimiter = ',')]
    include_dates: Vec<String>,
    /// Exclude these days: 2026-12-25, or 12-25 for every year
    #[arg(long = "exclude-date", value_name = "DATES", value_delimiter = ',')]
    exclude_dates: Vec<String>,
    /// Allow only these weekdays: MON-FRI
    #[arg(long, value_name = "DAYS")]
    include_weekdays: Vec<String>,
    /// Exclude these weekdays: SAT,SUN
    #[arg(long, value_name = "DAYS")]
    exclude_weekdays: Vec<String>,
    /// Allow only these hours: 09:00-17:30
    #[arg(long = "include-window", value_name = "HOURS", value_delimiter = ',')]
    include_windows: Vec<String>,
    /// Exclude these hours: 12:00-13:00
    #[arg(long = "exclude-window", value_name = "HOURS", value_delimiter = ',')]
    exclude_windows: Vec<String>,
}

impl Flags {
    fn spec(&self) -> CalendarSpec {
        let some = |texts: &[String]| (!texts.is_empty()).then(|| texts.to_vec());
        CalendarSpec {
            timezone: self.timezone.clone(),
            include_dates: some(&self.include_dates),
            exclude_dates: some(&self.exclude_dates),
            include_weekdays: some(&self.include_weekdays),
            exclude_weekdays: some(&self.exclude_weekdays),
            include_windows: some(&self.include_windows),
            exclude_windows: some(&self.exclude_windows),
        }
    }
}

impl Ask for Command {
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure> {
        match self {
            Command::Put(put) => {
                let given = match &put.file {
                    Some(path) => from_file(path)?.with(put.flags.spec()),
                    None => put.flags.spec(),
                };
                let (spec, version) = match put.add {
                    true => {
                        let old = client.calendar(&put.name).await?.value;
                        // What is added to must not have changed since it was read.
                        let version = put.version.or(u32::try_from(old.version).ok());
                        (old.spec.with(given), version)
                    }
                    false => (given, put.version),
                };
                let calendar = client.put_calendar(&put.name, &spec, version).await?;
                remote.show(&calendar, |calendar, _| {
                    let plans = calendar.operation_id.as_ref();
                    let plans = plans.map(|id| format!("operation {id} plans the jobs anew that use it\n"));
                    format!(
                        "calendar {} (version {}): {}\n{}",
                        calendar.name,
                        calendar.version,
                        in_a_line(&calendar.spec),
                        plans.unwrap_or_default()
                    )
                })
            }
            Command::List { paging } => remote.show_list(client.calendars(), paging, table).await,
            Command::Get { name, .. } => remote.show(&client.calendar(name).await?, page),
            Command::Delete { name, version } => {
                client.delete_calendar(name, *version).await?;
                Ok(())
            }
        }
    }

    fn watch(&self) -> Watch {
        match self {
            Command::List { paging } => paging.watch,
            Command::Get { watch, .. } => *watch,
            _ => Watch::default(),
        }
    }
}

/// A calendar in a file.
pub(super) fn from_file(path: &Path) -> Result<CalendarSpec, Failure> {
    CalendarSpec::from_text(read_json(path)?.get()).map_err(|unread| {
        let reason = match unread {
            Unread::Malformed(reason) => reason,
            Unread::Wrong(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  "),
        };
        Failure::Input(format!("{}: {reason}", path.display()))
    })
}

fn table(calendars: &[&Calendar], now: Timestamp) -> String {
    let mut table = output::table(&["CALENDAR", "VERSION", "CHANGED", "SAYS"]);
    for calendar in calendars {
        table.add_row(vec![
            calendar.name.clone(),
            calendar.version.to_string(),
            moment::relative(calendar.updated_at, now),
            in_a_line(&calendar.spec),
        ]);
    }
    output::lines(&table)
}

fn page(calendar: &Calendar, now: Timestamp) -> String {
    let spec = &calendar.spec;
    let mut facts = output::Facts::new();
    let mut fact = |name: &str, value: Option<String>| facts.add(name, value);
    fact("calendar", Some(calendar.name.clone()));
    fact("timezone", Some(spec.timezone.clone().unwrap_or_else(|| "that of each schedule".into())));
    for (name, texts) in lists(spec) {
        fact(name, texts.as_ref().map(|texts| texts.join(", ")));
    }
    fact("version", Some(format!("{}, of {}", calendar.version, moment::full(calendar.updated_at, now))));
    facts.lines()
}

fn lists(spec: &CalendarSpec) -> [(&'static str, &Option<Vec<String>>); 6] {
    [
        ("include dates", &spec.include_dates),
        ("exclude dates", &spec.exclude_dates),
        ("include weekdays", &spec.include_weekdays),
        ("exclude weekdays", &spec.exclude_weekdays),
        ("include windows", &spec.include_windows),
        ("exclude windows", &spec.exclude_windows),
    ]
}

/// What a calendar says, shortened: three of each list.
fn in_a_line(spec: &CalendarSpec) -> String {
    const SHOWN: usize = 3;
    let zone = spec.timezone.as_ref().map(|zone| format!("in {zone}"));
    let said = lists(spec).into_iter().filter_map(|(name, texts)| {
        let texts = texts.as_ref()?;
        let more = texts.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let texts: Vec<&str> = texts.iter().take(SHOWN).map(String::as_str).collect();
        Some(format!("{name} {}{more}", texts.join(", ")))
    });
    let said: Vec<String> = zone.into_iter().chain(said).collect();
    if said.is_empty() { "allows everything".into() } else { output::safe(&said.join("; ")) }
}
