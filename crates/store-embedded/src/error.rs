//! What can go wrong with a data directory.

use std::path::PathBuf;

use punctual_store::Error;

/// A data directory that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("the data directory {0} is in use by another process; stop it, or choose another directory")]
    InUse(PathBuf),
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
        "the data directory {path} has format {found}, and this version knows {known}; use a newer version"
    )]
    NewerFormat {
        /// The directory.
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
    /// It was created with another number of shards.
    #[error("the data directory has {found} shards, not {wanted}; the number is fixed when it is created")]
    Shards {
        /// How many it has.
        found: u16,
        /// How many were asked for.
        wanted: u16,
    },
}

/// Whether something could not be made durable.
pub(crate) fn is_fsync(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC))
}

/// An error of SQLite in the words of the store.
pub(crate) fn failed(error: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Error::Damaged { what: error.to_string() }
        }
        _ => Error::Unavailable { reason: error.to_string() },
    }
}
