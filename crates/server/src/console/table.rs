//! A page that is one table: what most of the console's small pages are.

use askama::Template;
use axum::response::Response;

use super::frame::{Frame, html};
use super::shown::{Moment, Pill};
use crate::error::Error;

/// A heading and a table.
#[derive(Template)]
#[template(path = "table.html")]
pub(crate) struct TablePage {
    pub(crate) frame: Frame,
    pub(crate) about: String,
    pub(crate) tables: Vec<Table>,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) note: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
    /// What is said when there is nothing, and the next step.
    pub(crate) empty: String,
    /// Where it goes on.
    pub(crate) next: String,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// `num`, or nothing.
    pub(crate) class: &'static str,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) cells: Vec<Cell>,
    /// A form at the end of the row, for those who may.
    pub(crate) deed: Option<Deed>,
}

/// What can be done about a row.
#[derive(Clone, Debug)]
pub(crate) struct Deed {
    pub(crate) path: String,
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) label: String,
    pub(crate) is_danger: bool,
}

/// A cell: one of a pill, a time, a link or text, with a line under it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    pub(crate) class: &'static str,
    pub(crate) text: String,
    pub(crate) href: String,
    pub(crate) sub: String,
    pub(crate) pill: Option<Pill>,
    pub(crate) time: Option<Moment>,
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Cell { text: text.into(), ..Cell::default() }
    }

    pub(crate) fn number(text: impl Into<String>) -> Self {
        Cell { text: text.into(), class: "num", ..Cell::default() }
    }

    pub(crate) fn mono(text: impl Into<String>) -> Self {
        Cell { text: text.into(), class: "mono", ..Cell::default() }
    }

    pub(crate) fn link(text: impl Into<String>, href: impl Into<String>) -> Self {
        Cell { text: text.into(), href: href.into(), ..Cell::default() }
    }

    pub(crate) fn pill(pill: Pill) -> Self {
        Cell { pill: Some(pill), ..Cell::default() }
    }

    /// A time, or a word where there is none.
    pub(crate) fn time(time: Option<Moment>, none: &str) -> Self {
        let text = if time.is_none() { none.into() } else { String::new() };
        Cell { time, text, class: "nowrap", ..Cell::default() }
    }

    pub(crate) fn under(self, sub: impl Into<String>) -> Self {
        Cell { sub: sub.into(), ..self }
    }
}

/// Columns by their titles; those that begin with `#` are numbers.
pub(crate) fn columns(titles: &[&'static str]) -> Vec<Column> {
    let column = |title: &&'static str| match title.strip_prefix('#') {
        Some(title) => Column { title, class: "num" },
        None => Column { title: *title, class: "" },
    };
    titles.iter().map(column).collect()
}

impl From<Vec<Cell>> for Row {
    fn from(cells: Vec<Cell>) -> Self {
        Row { cells, deed: None }
    }
}

impl TablePage {
    pub(crate) fn answer(self) -> Result<Response, Error> {
        html(&self)
    }
}
