//! What can go wrong with a data directory.

use std::path::PathBuf;

use punctual_store::Error;

/// A data directory that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("the data directory {path} is in use by {}; stop it, or choose another directory", holder(*pid))]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Who has it open, as far as that process has said.
        pid: Option<u32>,
    },
    /// The directory or a file in it cannot be used.
    #[error("cannot use the data directory {path}: {reason}")]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// Why, in the words of the system.
        reason: String,
    },
    /// It was written by a version that knows more than this one.
    #[error(
        "the data in {path} has format {found}, written by a newer version of Punctual, and this one knows formats up to \
         {known}; run the newer version, or restore a backup made by this one into another directory"
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format we know.
        known: i64,
    },
    /// It is not a database of ours, or it is damaged.
    #[error("the data in {path} is damaged: {reason}; restore a backup")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        reason: String,
    },
    /// It holds a backup.
    #[error("{0} is a backup, not a data directory; restore it into an empty directory")]
    IsBackup(PathBuf),
    /// A copy into it was interrupted.
    #[error(
        "{path} is an unfinished copy of {from}; run the same `punctual copy` again to finish it, or empty the directory"
    )]
    Unfinished {
        /// The directory.
        path: PathBuf,
        /// What is copied.
        from: String,
    },
    /// It was created with another number of shards.
    #[error("the data directory has {found} shards, not {wanted}; the number is fixed when it is created")]
    Shards {
        /// How many it has.
        found: u16,
        /// How many were asked for.
        wanted: u16,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or("another process".into(), |pid| format!("another process (pid {pid})"))
}

/// Whether something could not be made durable.
pub(crate) fn is_fsync(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC))
}

/// An error of SQLite in the words of the store.
pub(crate) fn failed(error: rusqlite::Error) -> Error {
    use rusqlite::{Error as Sqlite, ErrorCode};
    let is_damage = match &error {
        // A value that is not of the kind that is written there.
        Sqlite::FromSqlConversionFailure(..)
        | Sqlite::InvalidColumnType(..)
        | Sqlite::IntegralValueOutOfRange(..)
        | Sqlite::Utf8Error(..) => true,
        // Our statements are fixed: one that is wrong finds another schema than ours.
        Sqlite::SqlInputError { .. } => true,
        other => matches!(
            other.sqlite_error_code(),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown)
        ),
    };
    match is_damage {
        true => Error::Damaged { what: error.to_string() },
        false => Error::Unavailable { reason: error.to_string() },
    }
}
