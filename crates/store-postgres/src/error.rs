//! Errors of PostgreSQL in the words of the store.

use punctual_store::Error;
use tokio_postgres::error::SqlState;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is not one.
    #[error(
        "`{address}` is not the address of a PostgreSQL database (postgres://user@host/database): {reason}"
    )]
    Address {
        /// Without its password.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no talking to the database.
    #[error("cannot reach the database: {reason}")]
    Unreachable {
        /// Why.
        reason: String,
    },
    /// A newer version of Punctual has changed the schema.
    #[error(
        "the database has schema {found} and this version knows {known}: use a newer version of Punctual"
    )]
    NewerSchema {
        /// What the database has.
        found: i32,
        /// What we know.
        known: i32,
    },
    /// The number of shards is fixed when the database is set up.
    #[error("the database has {found} shards, not {wanted}: the number is fixed when it is set up")]
    Shards {
        /// What the database has.
        found: u16,
        /// What was asked for.
        wanted: u16,
    },
}

/// Why a transaction did not happen.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Another transaction was in the way; the same call will succeed.
    Again(String),
    /// A run ended whose partition of history is not there yet.
    NoPartition,
    /// It stays an error.
    Error(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Error(error)
    }
}

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Self {
        let again = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::UNIQUE_VIOLATION,
        ];
        match error.code() {
            Some(code) if again.contains(code) => Failed::Again(reason(&error)),
            Some(code) if *code == SqlState::CHECK_VIOLATION => Failed::NoPartition,
            _ => Failed::Error(failed(error)),
        }
    }
}

/// A statement that failed.
pub(crate) fn failed(error: tokio_postgres::Error) -> Error {
    Error::Unavailable { reason: reason(&error) }
}

/// What PostgreSQL says, or what happened to the connection.
pub(crate) fn reason(error: &tokio_postgres::Error) -> String {
    use std::error::Error as _;
    match (error.as_db_error(), error.source()) {
        (Some(database), _) => format!("PostgreSQL: {} ({})", database.message(), database.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

/// What was read contradicts itself.
pub(crate) fn damaged(what: impl Into<String>) -> Error {
    Error::Damaged { what: what.into() }
}
