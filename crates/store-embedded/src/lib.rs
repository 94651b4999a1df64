//! The default store: SQLite in a data directory.
//!
//! One writer thread owns the database and everything about open runs that must be quick to find;
//! writes that arrive together share one commit and one fsync, and no caller hears of a write before
//! that. Readers have connections of their own. Read in this order: [`Embedded`] is the [`Store`],
//! `writer` the thread, `write/` one file per verb that writes, `read/` the verbs that only read,
//! `partition` where history lives, `papers` what attempts say, `births` where the runs of a job are in it.
//!
//! [`Store`]: punctual_store::Store

mod backup;
mod births;
mod check;
mod directory;
mod embedded;
mod error;
mod log;
mod open_runs;
mod origin;
mod papers;
mod partition;
mod read;
mod row;
mod schema;
mod transfer;
mod waits;
mod write;
mod writer;

pub use backup::{BackupError, Counts, Manifest, Phase, Progress, backup, restore};
pub use check::check;
#[doc(hidden)]
pub use embedded::Opening;
pub use embedded::{Embedded, Options, SHARDS};
pub use error::OpenError;
pub use punctual_store::check::{Checked, Finding};
pub use transfer::Side;
