//! Writing results: tables for people, JSON for programs.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use clap::ValueEnum;
use comfy_table::{Cell, Color, Table, presets};

use crate::failure::Failure;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Writes to stdout. A reader that went away (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(&mut io::stdout().lock(), text).map(drop)
}

/// Writes; `false` if the reader went away, and nothing more need be written.
pub(crate) fn write(out: &mut impl Write, text: &str) -> Result<bool, Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("write the output").map_err(Failure::Other),
    }
}

/// An aligned table without lines.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    table
}

/// A table of names and values.
pub(crate) fn facts() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// A table's text, without blanks at the ends of lines.
pub(crate) fn lines(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Text that others wrote, which must not command the terminal.
pub(crate) fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// Labels as people write them.
pub(crate) fn labels(labels: &BTreeMap<String, String>) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    labels.join(", ")
}

/// The state of a job or run, or an outcome, in its colour.
pub(crate) fn state(word: &str) -> Cell {
    let cell = Cell::new(word);
    if !has_colour() {
        return cell;
    }
    match word {
        "active" | "succeeded" => cell.fg(Color::Green),
        "failed" | "timed_out" | "lost" => cell.fg(Color::Red),
        "paused" | "cancelled" | "pending" | "missed" => cell.fg(Color::Yellow),
        "running" => cell.fg(Color::Cyan),
        _ => cell,
    }
}

/// Whether colours are wanted: on a terminal, unless `NO_COLOR` is set.
fn has_colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
