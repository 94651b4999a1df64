//! What is wrong with a schedule, where, and the way out.
//!
//! Made by the parsers and by binding a schedule to a database. Promise: the message names the
//! field and the value, the position points into the text the user wrote, and a hint says what
//! to write instead wherever we can know it.

use std::fmt;
use std::ops::Range;

/// A refused schedule, zone or calendar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: Code,
    message: String,
    hint: Option<String>,
    field: Option<&'static str>,
    span: Option<Range<usize>>,
}

/// Stable reasons, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Longer than [`crate::TEXT_MAX`] bytes.
    TooLong,
    /// A character that no schedule contains: NUL, control characters, non-ASCII.
    BadCharacter,
    /// Nothing to read.
    Empty,
    /// The text does not follow the grammar.
    Syntax,
    /// A number or name outside its field.
    OutOfRange,
    /// Too few or too many fields.
    FieldCount,
    /// Well-formed, but something we deliberately do not take.
    Unsupported,
    /// A time zone that is not in the database, or is ambiguous.
    Timezone,
    /// A calendar that is unknown or contradicts itself.
    Calendar,
    /// Options that do not go together.
    Conflict,
    /// No slot exists from here to the end of 2199.
    NeverFires,
    /// The time zone database cannot be read.
    Tzdata,
}

impl Code {
    /// The code as it appears in APIs and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::TooLong => "schedule_too_long",
            Code::BadCharacter => "schedule_bad_character",
            Code::Empty => "schedule_empty",
            Code::Syntax => "schedule_syntax",
            Code::OutOfRange => "schedule_out_of_range",
            Code::FieldCount => "schedule_field_count",
            Code::Unsupported => "schedule_unsupported",
            Code::Timezone => "schedule_timezone",
            Code::Calendar => "schedule_calendar",
            Code::Conflict => "schedule_conflict",
            Code::NeverFires => "schedule_never_fires",
            Code::Tzdata => "tzdata_unreadable",
        }
    }
}

impl Error {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Error { code, message: message.into(), hint: None, field: None, span: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn field(mut self, field: &'static str) -> Self {
        self.field = Some(field);
        self
    }

    pub(crate) fn at(mut self, span: Range<usize>) -> Self {
        self.span = Some(span);
        self
    }

    /// Moves the span by `by` bytes, when the text was a part of a longer one.
    pub(crate) fn shifted(mut self, by: usize) -> Self {
        self.span = self.span.map(|s| s.start + by..s.end + by);
        self
    }

    /// The stable reason.
    pub fn code(&self) -> Code {
        self.code
    }

    /// What is wrong, without field, position or hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to write instead.
    pub fn way_out(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The cron field, such as `minute`.
    pub fn field_name(&self) -> Option<&'static str> {
        self.field
    }

    /// Where in the text, in bytes.
    pub fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }

    /// The text with a caret under the position, or nothing when the error has no place in it.
    ///
    /// ```
    /// let text = "60 * * * *";
    /// let error = punctual_schedule::Schedule::parse(text).unwrap_err();
    /// assert_eq!(error.caret(text).unwrap(), "  60 * * * *\n  ^^");
    /// ```
    pub fn caret(&self, text: &str) -> Option<String> {
        const SHOWN_MAX: usize = 256; // A longer text is refused as a whole and has no position.
        let span = self.span.clone()?;
        if text.len() > SHOWN_MAX || span.start > text.len() || !text.is_char_boundary(span.start) {
            return None;
        }
        let shown: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        let before = text[..span.start].chars().count();
        let end = span.end.min(text.len());
        let width = text.get(span.start..end).map_or(1, |s| s.chars().count());
        Some(format!("  {shown}\n  {}{}", " ".repeat(before), "^".repeat(width.max(1))))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(field) = self.field {
            write!(f, "{field} field: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(span) = &self.span {
            write!(f, " (position {})", span.start + 1)?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
