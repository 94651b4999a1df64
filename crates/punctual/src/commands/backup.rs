//! `punctual backup`: a copy of a data directory, also of one that a server has open.

use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use punctual_store_embedded::{BackupError, Manifest, OpenError, Phase, Progress};

use super::output::{self, Format};
use crate::failure::{EXIT_CODES, Failure};

/// Copy a data directory, while a server uses it or not
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// Where to: a directory that is empty or does not exist
    to: PathBuf,
    /// The data directory
    #[arg(long, env = "PUNCTUAL_DATA", value_name = "DIR", default_value = "punctual-data")]
    data: PathBuf,
    /// A table for people or one JSON object
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (bar, now) = (bar(), Timestamp::now());
    let made = punctual_store_embedded::backup(&arguments.data, &arguments.to, now, |p| show(&bar, p));
    bar.finish_and_clear();
    let manifest = made.map_err(failed)?;
    report(&manifest, arguments.output, &format!("backed up to {}", arguments.to.display()))
}

pub(super) fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:9} {bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

pub(super) fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_message(match progress.phase {
        Phase::Copying => "copying",
        Phase::Verifying => "verifying",
    });
    bar.set_length(progress.total);
    bar.set_position(progress.done);
}

pub(super) fn report(manifest: &Manifest, format: Format, deed: &str) -> Result<(), Failure> {
    match format {
        Format::Json | Format::Yaml => {
            let text = serde_json::to_string(manifest).map_err(anyhow::Error::from)?;
            output::print(&output::machine(&text, format)?)
        }
        Format::Table | Format::Wide => {
            let counts = &manifest.counts;
            output::print(&format!(
                "{deed}: {} jobs, {} open runs, {} runs of history, {} bytes, as of {}\n",
                counts.jobs, counts.open_runs, counts.history, manifest.bytes, manifest.made_at
            ))
        }
    }
}

/// What the user can mend is wrong input.
pub(super) fn failed(error: BackupError) -> Failure {
    match error {
        BackupError::NotEmpty(_)
        | BackupError::NotABackup(_)
        | BackupError::Open(OpenError::IsBackup(_) | OpenError::Shards { .. }) => {
            Failure::Input(error.to_string())
        }
        BackupError::Busy(_) | BackupError::Open(OpenError::InUse { .. }) => {
            Failure::Conflict(error.to_string())
        }
        BackupError::Damaged { .. } | BackupError::Io { .. } | BackupError::Open(_) => {
            Failure::Other(error.into())
        }
    }
}
