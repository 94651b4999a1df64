//! Documents: what people keep in files and hand to `apply`, as values with the lines they stand on.
//!
//! Read in this order: [`value`] is what all of them become, [`json`] and [`yaml`] read it from text, [`write`] writes it
//! as YAML, [`diff`] says what is different, [`files`] finds the documents in files and folders.
//! Promise: numbers and texts stay as they are written, and whatever is wrong has a line.

pub(crate) mod diff;
pub(crate) mod files;
pub(crate) mod json;
pub(crate) mod value;
pub(crate) mod write;
pub(crate) mod yaml;

pub(crate) use files::Document;
pub(crate) use value::{Node, Value};

/// Why a text is not a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unread {
    /// The line, from 1.
    pub(crate) line: usize,
    /// What is wrong, and the way out.
    pub(crate) reason: String,
}

impl Unread {
    fn new(line: usize, reason: impl Into<String>) -> Self {
        Unread { line, reason: reason.into() }
    }
}

/// Deeper than any job may be; what is deeper would only exhaust the stack.
const DEPTH_MAX: usize = 100;
