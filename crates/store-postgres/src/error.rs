//! Errors of PostgreSQL in the words of the store.

use deadpool_postgres::PoolError;
use punctual_store::Error;
use tokio_postgres::error::SqlState;

use crate::calls::unconnected;

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
    /// There is no talking to the database now. It passes by itself, so waiting helps.
    #[error("cannot reach the database: {reason}")]
    Unreachable {
        /// Why.
        reason: String,
    },
    /// The database is there, and does not let us in or do what we ask: somebody must change something first.
    #[error(
        "the database refuses: {reason}; mend the address, the rights of its user or the certificates, and start again"
    )]
    Refused {
        /// Why.
        reason: String,
    },
    /// Connections are not sessions.
    #[error(
        "`{address}` is a pool that gives a connection to another after every transaction \
         (PgBouncer in transaction mode): start with --wakeups poll"
    )]
    NoSession {
        /// Without its password.
        address: String,
    },
    /// The schema was not brought up to date.
    #[error(
        "the database has schema {found} and this version needs {known}: \
         bring it up to date with `punctual migrate up --store ADDRESS`, or start without --no-migrate"
    )]
    OlderSchema {
        /// What the database has.
        found: i32,
        /// What we need.
        known: i32,
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
    /// A database is not one of the installation, and cannot become one.
    #[error("{address} belongs to another installation: an empty database can join this one")]
    Foreign {
        /// Which, without its password.
        address: String,
    },
    /// The same database under two addresses.
    #[error("{address} is given twice")]
    Twice {
        /// Which, without its password.
        address: String,
    },
    /// Shards live in a database that was not given.
    #[error(
        "{missing} shards live in a database that was not given: give every database of the installation with --store; \
         it has had {known}"
    )]
    Missing {
        /// How many.
        missing: usize,
        /// The databases that are known.
        known: String,
    },
    /// It is one of several databases, and has not everything.
    #[error("{elsewhere} shards live in other databases: move them here first (`punctual shards move`)")]
    Partial {
        /// How many.
        elsewhere: i64,
    },
    /// Nodes are live in it.
    #[error(
        "{nodes} nodes use the database: stop them, and wait until `punctual nodes` would not list them any more \
         (a node that was killed is listed for its --shard-lease)"
    )]
    InUse {
        /// How many.
        nodes: i64,
    },
    /// A copy into it was interrupted.
    #[error(
        "the database is an unfinished copy of {from}: run the same `punctual copy` again to finish it, \
         or drop the database and make a new one"
    )]
    Unfinished {
        /// What is copied.
        from: String,
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

impl From<tokio_postgres::Error> for OpenError {
    fn from(error: tokio_postgres::Error) -> Self {
        OpenError::from(&error)
    }
}

impl From<&tokio_postgres::Error> for OpenError {
    fn from(error: &tokio_postgres::Error) -> Self {
        let reason = reason(error);
        match is_passing(error) {
            true => OpenError::Unreachable { reason },
            false => OpenError::Refused { reason },
        }
    }
}

impl From<&PoolError> for OpenError {
    fn from(error: &PoolError) -> Self {
        match error {
            PoolError::Backend(error) => OpenError::from(error),
            other => OpenError::Unreachable { reason: unconnected(other).told().1.to_string() },
        }
    }
}

impl From<Failed> for OpenError {
    fn from(failed: Failed) -> Self {
        let (kind, error) = failed.told();
        let reason = error.to_string();
        match kind {
            Kind::Other => OpenError::Refused { reason },
            _ => OpenError::Unreachable { reason },
        }
    }
}

/// Classes of SQLSTATE that pass by themselves: connections, rollbacks, resources (too many connections), operators
/// (a server that starts or ends).
const PASSING: [&str; 4] = ["08", "40", "53", "57"];

/// Whether the same may succeed later without anybody changing anything: the server is away, starts, ends, is full, or is
/// a standby that was not promoted yet. A wrong password or certificate, an unknown database or a missing right is no
/// outage.
fn is_passing(error: &tokio_postgres::Error) -> bool {
    use std::error::Error as _;
    use std::io::ErrorKind;
    if let Some(code) = error.code() {
        return PASSING.iter().any(|class| code.code().starts_with(class))
            || [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::LOCK_NOT_AVAILABLE].contains(code);
    }
    let cause = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    // What TLS finds wrong, and what cannot be said to this server, comes as one of these.
    let is_told = |cause: &std::io::Error| {
        use ErrorKind::{InvalidData, InvalidInput, Other, Unsupported};
        matches!(cause.kind(), InvalidData | InvalidInput | Unsupported | Other)
    };
    error.is_closed() || cause.is_some_and(|cause| !is_told(cause))
}

/// What went wrong, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Two transactions waited for each other; this one was chosen to go.
    Deadlock,
    /// Another transaction changed what this one had read.
    Serialization,
    /// Another transaction wrote the same key a moment sooner.
    Conflict,
    /// A run ended whose partition of history is not there yet.
    Partition,
    /// A statement took too long, or waited too long for a lock.
    StatementTimeout,
    /// The server ended the connection: an administrator, a shutdown, a timeout of its own.
    Terminated,
    /// The connection broke off, or that of a pool in between.
    Disconnected,
    /// The server takes no writes any more.
    ReadOnly,
    /// No connection of the pool was free in time.
    Pool,
    /// No connection could be made.
    Unreachable,
    /// The server did not answer.
    Stalled,
    /// Anything else.
    Other,
}

impl Kind {
    pub(crate) const ALL: [Kind; 12] = [
        Kind::Deadlock,
        Kind::Serialization,
        Kind::Conflict,
        Kind::Partition,
        Kind::StatementTimeout,
        Kind::Terminated,
        Kind::Disconnected,
        Kind::ReadOnly,
        Kind::Pool,
        Kind::Unreachable,
        Kind::Stalled,
        Kind::Other,
    ];

    /// Its label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Deadlock => "deadlock",
            Kind::Serialization => "serialization",
            Kind::Conflict => "conflict",
            Kind::Partition => "partition",
            Kind::StatementTimeout => "statement_timeout",
            Kind::Terminated => "terminated",
            Kind::Disconnected => "disconnected",
            Kind::ReadOnly => "read_only",
            Kind::Pool => "pool",
            Kind::Unreachable => "unreachable",
            Kind::Stalled => "stalled",
            Kind::Other => "other",
        }
    }

    /// How often the same is tried, when nothing was done.
    pub(crate) fn tries(self) -> u32 {
        match self {
            Kind::Deadlock | Kind::Serialization | Kind::Conflict | Kind::Partition => 8,
            // Connections that were ended together are found to be gone one by one.
            Kind::Terminated | Kind::Disconnected => 4,
            // The second try may find what was in its way gone; a third one would keep its caller waiting for nothing.
            Kind::StatementTimeout => 2,
            // The second try is on a new connection, to the server that takes writes if there is one.
            Kind::ReadOnly => 2,
            Kind::Pool | Kind::Unreachable | Kind::Stalled | Kind::Other => 1,
        }
    }

    /// None, if it is nothing that passes.
    fn of(error: &tokio_postgres::Error) -> Option<Kind> {
        use std::error::Error as _;
        let Some(code) = error.code() else {
            let cause = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
            let is_broken = error.is_closed() || cause.is_some();
            return is_broken.then_some(Kind::Disconnected);
        };
        let kinds = [
            (SqlState::T_R_DEADLOCK_DETECTED, Kind::Deadlock),
            (SqlState::T_R_SERIALIZATION_FAILURE, Kind::Serialization),
            (SqlState::UNIQUE_VIOLATION, Kind::Conflict),
            (SqlState::CHECK_VIOLATION, Kind::Partition),
            (SqlState::QUERY_CANCELED, Kind::StatementTimeout),
            (SqlState::LOCK_NOT_AVAILABLE, Kind::StatementTimeout),
            (SqlState::READ_ONLY_SQL_TRANSACTION, Kind::ReadOnly),
            (SqlState::ADMIN_SHUTDOWN, Kind::Terminated),
            (SqlState::CRASH_SHUTDOWN, Kind::Terminated),
            (SqlState::CANNOT_CONNECT_NOW, Kind::Terminated),
            (SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, Kind::Terminated),
        ];
        let kind = kinds.iter().find(|(known, _)| known == code).map(|(_, kind)| *kind);
        // The class of connections: how PgBouncer says that it has none, or lost it.
        kind.or_else(|| code.code().starts_with("08").then_some(Kind::Disconnected))
    }
}

/// Why a call, or one try of it, did not succeed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Nothing was done, and the same may succeed at once.
    Again(Kind, String),
    /// It stays an error.
    Error(Kind, Error),
}

impl Failed {
    /// A commit failed, or a statement that is one by itself: if its connection broke off, nobody knows.
    pub(crate) fn at_commit(error: tokio_postgres::Error) -> Self {
        match Failed::from(error) {
            Failed::Again(kind @ (Kind::Terminated | Kind::Disconnected), reason) => {
                let reason = format!("{reason}; whether it was done is not known");
                Failed::Error(kind, Error::Unavailable { reason })
            }
            failed => failed,
        }
    }

    /// As the caller of the store hears it.
    pub(crate) fn told(self) -> (Kind, Error) {
        match self {
            Failed::Again(kind, reason) => (kind, Error::Unavailable { reason }),
            Failed::Error(kind, error) => (kind, error),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Error(Kind::Other, error)
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.told().1
    }
}

/// A statement inside a transaction, or one that only reads: if it fails, nothing was done.
impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Self {
        match Kind::of(&error) {
            Some(kind) => Failed::Again(kind, reason(&error)),
            None => Failed::Error(Kind::Other, Error::Unavailable { reason: reason(&error) }),
        }
    }
}

/// A statement that failed.
pub(crate) fn failed(error: tokio_postgres::Error) -> Failed {
    error.into()
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
