//! How other systems write the same fields.
//!
//! Used when a schedule is imported. Promise: what a dialect defines is translated exactly, what
//! it leaves open is refused; the result is an ordinary expression in our numbering.

/// The dialect a cron text is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Ours: 0 and 7 are Sunday; 5, 6 or 7 fields.
    #[default]
    Standard,
    /// Quartz: 1 is Sunday; seconds mandatory, year optional; one day field is `?`.
    Quartz,
    /// AWS EventBridge: 1 is Sunday; five fields and a year; one day field is `?`;
    /// also `cron(...)`, `rate(...)` and `at(...)`.
    Aws,
}

impl Dialect {
    /// Sunday is 1 and Saturday 7.
    pub(crate) fn sunday_is_one(self) -> bool {
        match self {
            Dialect::Standard => false,
            Dialect::Quartz | Dialect::Aws => true,
        }
    }

    /// The name as written on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Dialect::Standard => "standard",
            Dialect::Quartz => "quartz",
            Dialect::Aws => "aws",
        }
    }
}
