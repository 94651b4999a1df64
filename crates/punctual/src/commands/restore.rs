//! `punctual restore`: makes a data directory of a backup.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;

use super::backup::{bar, failed, report, show};
use super::output::Format;
use crate::failure::{EXIT_CODES, Failure};

/// Make a data directory of a backup
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// The backup
    from: PathBuf,
    /// The data directory: empty, or one that does not exist
    #[arg(long, env = "PUNCTUAL_DATA", value_name = "DIR", default_value = "punctual-data")]
    data: PathBuf,
    /// A table for people or one JSON object
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (bar, now) = (bar(), Timestamp::now());
    let restored = punctual_store_embedded::restore(&arguments.from, &arguments.data, now, |p| show(&bar, p));
    bar.finish_and_clear();
    let manifest = restored.map_err(failed)?;
    report(&manifest, arguments.output, &format!("restored to {}", arguments.data.display()))
}
