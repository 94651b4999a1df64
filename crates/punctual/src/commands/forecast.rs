//! `punctual forecast`: how many slots are planned, and when it gets crowded.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use comfy_table::{Cell, CellAlignment};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use punctual_api::forecast::{Forecast, ForecastGroup};
use punctual_client::ForecastQuery;

use super::remote::{self, Remote};
use super::run::word;
use super::{moment, output};
use crate::failure::{EXIT_CODES, Failure};

/// Show how many slots are planned, and when it gets crowded
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// From when on: 2026-12-24T18:00:00Z or epoch seconds [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// To when, at most 31 days later [default: an hour later]
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// How long a line stands for, as 1m or PT1H [default: what gives 60 lines at most]
    #[arg(long, value_name = "PERIOD")]
    resolution: Option<String>,
    /// Tell slots apart by this, several with commas between
    #[arg(long, value_enum, value_delimiter = ',')]
    by: Vec<By>,
    /// Tell so many groups apart; the others are one [default: 20]
    #[arg(long, value_name = "N")]
    groups: Option<u16>,
    /// Of all tenants, for an admin
    #[arg(long)]
    all_tenants: bool,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum By {
    Tenant,
    Type,
    Target,
}

/// The longest bar.
const BAR: u64 = 40;

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    remote::run(execute(arguments))
}

async fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let by: Vec<String> = arguments.by.iter().map(|by| word(*by)).collect();
    let asked = ForecastQuery {
        from: arguments.from.clone(),
        to: arguments.to.clone(),
        resolution: arguments.resolution.clone(),
        by: (!by.is_empty()).then(|| by.join(",")),
        tenant: arguments.all_tenants.then(|| "*".into()),
        groups: arguments.groups,
    };
    let forecast = arguments.remote.client()?.forecast(&asked).await?;
    arguments.remote.show(&forecast, |forecast, now| page(forecast, &by, now))
}

fn page(forecast: &Forecast, by: &[String], now: Timestamp) -> String {
    let mut text = String::new();
    let about = if forecast.is_exact { "" } else { "about " };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{about}{} slots from {} to {}",
        forecast.slots,
        moment::local(forecast.from),
        moment::local(forecast.to)
    );
    if let Some(peak) = &forecast.peak {
        let _ = writeln!(
            text,
            "at most {} in {}, {}",
            peak.slots,
            forecast.resolution,
            moment::full(peak.at, now)
        );
    }
    for reason in &forecast.estimated {
        let _ = writeln!(text, "estimated: {reason}");
    }
    let _ = write!(text, "\n{}", bars(forecast));
    if !by.is_empty() {
        let _ = write!(text, "\n{}", groups(forecast, by));
    }
    text
}

/// A line for each bucket, with a bar.
fn bars(forecast: &Forecast) -> String {
    let mut table = output::table(&["TIME", "SLOTS", ""]);
    let most = forecast.peak.map_or(1, |peak| peak.slots).max(1);
    let day = SignedDuration::from_hours(24);
    let format = match forecast.to.duration_since(forecast.from) > day {
        true => "%a %d %b %H:%M:%S",
        false => "%H:%M:%S",
    };
    for bucket in &forecast.buckets {
        let time = bucket.at.to_zoned(TimeZone::system()).strftime(format).to_string();
        // What is not nothing is seen.
        let bar = (bucket.slots * BAR).div_ceil(most);
        table.add_row(vec![Cell::new(time), number(bucket.slots), Cell::new("#".repeat(bar as usize))]);
    }
    output::lines(&table)
}

fn groups(forecast: &Forecast, by: &[String]) -> String {
    let names: Vec<String> = by.iter().map(|by| by.to_uppercase()).collect();
    let header: Vec<&str> = names.iter().map(String::as_str).chain(["SLOTS", "AT MOST"]).collect();
    let mut table = output::table(&header);
    for group in &forecast.groups {
        let mut row: Vec<Cell> = by.iter().map(|by| Cell::new(output::safe(&name(group, by)))).collect();
        row.push(number(group.slots));
        row.push(number(group.buckets.iter().copied().max().unwrap_or(0)));
        table.add_row(row);
    }
    output::lines(&table)
}

fn name(group: &ForecastGroup, by: &str) -> String {
    let name = match by {
        "tenant" => &group.tenant,
        "type" => &group.kind,
        _ => &group.target,
    };
    match (name, group.is_rest) {
        (Some(name), _) => name.clone(),
        (None, true) => "others".into(),
        (None, false) => "-".into(),
    }
}

fn number(of: u64) -> Cell {
    Cell::new(of).set_alignment(CellAlignment::Right)
}
