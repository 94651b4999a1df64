//! `punctual copy`: moves a whole installation to another store.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use punctual_store::transfer::{CopyError, Phase, Progress, Report, Transfer, copy};
use punctual_store_postgres::Options;
use serde_json::json;

use super::output::{self, Format};
use super::{own_secret, remote};
use crate::failure::{EXIT_CODES, Failure};

/// Pieces of a page: one commit. More make it hardly faster, and a piece may be as large as the output of a run.
const PAGE: usize = 2_000;

/// Copy a whole installation to another store, and verify it
///
/// FROM and TO are each a data directory or a database (postgres://user@host/database). Stop every node of FROM first. TO
/// must be empty or not exist. A copy that was interrupted goes on when it is started again.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// What is copied: a data directory or the address of a database
    from: String,
    /// Where to: a data directory or the address of a database
    to: String,
    /// A table for people or one JSON object
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Pieces of a page; tests have few.
    #[arg(long, hide = true, default_value_t = PAGE, value_parser = at_least_one)]
    page: usize,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "not a number above 0".into())
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    remote::run(execute(arguments))
}

async fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let now = Timestamp::now();
    if arguments.from == arguments.to {
        return Err(Failure::Input("FROM and TO are the same".into()));
    }
    let from = Place::of(&arguments.from).from(now).await?;
    let shards = from.transfer().shard_count();
    let to = Place::of(&arguments.to).to(shards, now).await?;
    let bar = bar();
    let copied =
        copy(from.transfer(), to.transfer(), arguments.page, now, &mut |progress| show(&bar, progress)).await;
    bar.finish_and_clear();
    let report = copied.map_err(failed)?;
    // Before nodes may start, or the first one would make secrets of its own.
    for name in own_secret::ALL {
        if let Some(text) = from.secret(name).await? {
            to.set_secret(name, &text).await?;
        }
    }
    to.transfer().finish().await.map_err(|error| failed(CopyError::To(error)))?;
    match arguments.output {
        format @ (Format::Json | Format::Yaml) => {
            output::print(&output::machine(&object(&report).to_string(), format)?)
        }
        Format::Table | Format::Wide => output::print(&page(&report, &arguments.to)),
    }
}

/// Where an installation is, as it was written.
enum Place {
    Directory(PathBuf),
    Database(Box<Options>),
}

impl Place {
    fn of(text: &str) -> Self {
        match ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            true => Place::Database(Box::new(Options::new(text))),
            false => Place::Directory(text.into()),
        }
    }

    async fn from(self, now: Timestamp) -> Result<Side, Failure> {
        match self {
            Place::Directory(path) => {
                let side = punctual_store_embedded::Side::from(&path).map_err(refused)?;
                Ok(Side::Directory(path, side))
            }
            Place::Database(options) => {
                Ok(Side::Database(punctual_store_postgres::Side::from(&options, now).await?))
            }
        }
    }

    async fn to(self, shards: u16, now: Timestamp) -> Result<Side, Failure> {
        match self {
            Place::Directory(path) => {
                let side = punctual_store_embedded::Side::to(&path, shards).map_err(refused)?;
                Ok(Side::Directory(path, side))
            }
            Place::Database(options) => {
                Ok(Side::Database(punctual_store_postgres::Side::to(&options, shards, now).await?))
            }
        }
    }
}

/// An installation that this process holds.
enum Side {
    Directory(PathBuf, punctual_store_embedded::Side),
    Database(punctual_store_postgres::Side),
}

impl Side {
    fn transfer(&self) -> &dyn Transfer {
        match self {
            Side::Directory(_, side) => side,
            Side::Database(side) => side,
        }
    }

    /// A secret, if one was made.
    async fn secret(&self, name: &str) -> Result<Option<String>, Failure> {
        match self {
            Side::Directory(path, _) => Ok(own_secret::read(path, name)?),
            Side::Database(side) => {
                let value = side.setting(name).await.with_context(|| format!("read the {name}"))?;
                let text =
                    value.map(String::from_utf8).transpose().with_context(|| format!("read the {name}"))?;
                Ok(text)
            }
        }
    }

    async fn set_secret(&self, name: &str, text: &str) -> Result<(), Failure> {
        match self {
            Side::Directory(path, _) => own_secret::write(path, name, text)?,
            Side::Database(side) => {
                side.set(name, text.as_bytes()).await.with_context(|| format!("write the {name}"))?;
            }
        }
        Ok(())
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:9} {bar:40} {human_pos}/{human_len} {per_sec} {eta}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_message(match progress.phase {
        Phase::Copying => "copying",
        Phase::Sealing => "indexing",
        Phase::Verifying => "verifying",
    });
    bar.set_length(progress.total);
    bar.set_position(progress.done);
}

fn object(report: &Report) -> serde_json::Value {
    let rows: Vec<_> = report
        .rows()
        .map(|(kind, copied, verified)| json!({"kind": kind.as_str(), "copied": copied.count, "verified": verified.count}))
        .collect();
    json!({"is_verified": report.differences().is_empty(), "kinds": rows})
}

fn page(report: &Report, to: &str) -> String {
    let mut table = output::table(&["KIND", "COPIED", "VERIFIED"]);
    for (kind, copied, verified) in report.rows() {
        let name = kind.as_str().replace('_', " ");
        table.add_row(vec![name, copied.count.to_string(), verified.count.to_string()]);
    }
    let next = match Place::of(to) {
        Place::Directory(path) => format!("punctual serve --data {}", path.display()),
        Place::Database(_) => "punctual serve --store with its address".into(),
    };
    format!(
        "{}everything was read back and is the same; start nodes on the copy alone: {next}\n",
        output::lines(&table)
    )
}

/// What the user can mend is wrong input or a conflict.
fn failed(error: CopyError) -> Failure {
    match error {
        CopyError::Shards { .. } | CopyError::NotEmpty { .. } | CopyError::Unfinished { .. } => {
            Failure::Input(error.to_string())
        }
        CopyError::OtherCopy { .. } | CopyError::Used { .. } => Failure::Conflict(error.to_string()),
        CopyError::From(_) | CopyError::To(_) | CopyError::Different { .. } => Failure::Other(error.into()),
    }
}

fn refused(error: punctual_store_embedded::OpenError) -> Failure {
    match error {
        punctual_store_embedded::OpenError::InUse { .. } => Failure::Conflict(error.to_string()),
        punctual_store_embedded::OpenError::IsBackup(_) => Failure::Input(error.to_string()),
        error => Failure::Other(error.into()),
    }
}
