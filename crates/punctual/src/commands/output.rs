//! Writing results: tables for people, JSON and YAML for programs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use clap::ValueEnum;
use comfy_table::{Cell, Color, Table, presets};

use crate::document::{json, write as documents};
use crate::failure::Failure;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For people with a wide screen: more columns, where there are more
    Wide,
    /// For programs: exactly what the server gave
    Json,
    /// The same as YAML
    Yaml,
}

impl Format {
    /// Whether a program reads it.
    pub(crate) fn is_for_programs(self) -> bool {
        match self {
            Format::Json | Format::Yaml => true,
            Format::Table | Format::Wide => false,
        }
    }
}

/// JSON in the form that a program asked for, with the end of its line.
pub(crate) fn machine(text: &str, format: Format) -> Result<String, Failure> {
    match format {
        Format::Yaml => {
            let unread = |unread: crate::document::Unread| Failure::Other(anyhow::anyhow!(unread.reason));
            Ok(documents::yaml(&json::read_as_is(text).map_err(unread)?))
        }
        Format::Json | Format::Table | Format::Wide => Ok(format!("{text}\n")),
    }
}

thread_local! {
    /// What is printed, while somebody wants to compare it first.
    static HELD: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Holds back what is printed until [`held`].
pub(crate) fn hold() {
    HELD.with_borrow_mut(|held| *held = Some(String::new()));
}

/// What was held back.
pub(crate) fn held() -> String {
    HELD.take().unwrap_or_default()
}

/// Writes to stdout. A reader that went away (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_more(text).map(drop)
}

/// The same; `false` if the reader went away, and nothing more need be asked for.
pub(crate) fn print_more(text: &str) -> Result<bool, Failure> {
    let is_held = HELD.with_borrow_mut(|held| held.as_mut().map(|held| held.push_str(text)).is_some());
    if is_held { Ok(true) } else { write(&mut io::stdout().lock(), text) }
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

/// What there is to say about one thing: names and values, those that there are.
pub(crate) struct Facts(Table);

impl Facts {
    pub(crate) fn new() -> Self {
        Facts(facts())
    }

    /// Adds a line, if there is a value.
    pub(crate) fn add(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.0.add_row(vec![name.to_string(), safe(&value)]);
        }
    }

    /// The lines.
    pub(crate) fn lines(&self) -> String {
        lines(&self.0)
    }
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

/// A colour of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Green,
    Yellow,
    Red,
}

/// A text in a colour, if colours are wanted.
pub(crate) fn painted(text: &str, paint: Paint) -> String {
    let code = match paint {
        Paint::Plain => return text.into(),
        Paint::Green => 32,
        Paint::Yellow => 33,
        Paint::Red => 31,
    };
    if has_colour() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
}

/// Whether colours are wanted: on a terminal, unless `NO_COLOR` is set.
fn has_colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
