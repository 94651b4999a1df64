//! `punctual man`: the manual, one page a command.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};

use super::output;
use crate::failure::Failure;

/// Write the manual pages into a folder
#[derive(Args)]
#[command(after_help = "Example:
  punctual man ~/.local/share/man/man1 && man punctual-job-create")]
pub(crate) struct Arguments {
    /// Where to; it is made if it is not there
    dir: PathBuf,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments, mut command: Command) -> Result<(), Failure> {
    let unwritable = || format!("write {}", arguments.dir.display());
    fs::create_dir_all(&arguments.dir).with_context(unwritable)?;
    command.build();
    let mut pages = Vec::new();
    collect(&command, "punctual", &mut pages);
    for (name, page) in &pages {
        fs::write(arguments.dir.join(format!("{name}.1")), page).with_context(unwritable)?;
    }
    output::print(&format!("{} pages written to {}\n", pages.len(), arguments.dir.display()))
}

/// The page of a command and of all in it.
fn collect(command: &Command, name: &str, pages: &mut Vec<(String, Vec<u8>)>) {
    let mut page = Vec::new();
    let named = command.clone().display_name(name.to_string());
    // Writing to memory cannot fail.
    let _ = clap_mangen::Man::new(named).render(&mut page);
    pages.push((name.to_string(), page));
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        collect(inner, &format!("{name}-{}", inner.get_name()), pages);
    }
}
