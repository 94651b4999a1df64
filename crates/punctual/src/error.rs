//! Why a node cannot be started or does not do what it was asked.

/// A failure of the library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data directory cannot be used.
    #[error(transparent)]
    Open(#[from] punctual_store_embedded::OpenError),
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] punctual_store_postgres::OpenError),
    /// The HTTP client cannot be set up.
    #[error("set up the HTTP client: {0}")]
    Http(#[from] punctual_worker::Error),
    /// The schedule cannot be used.
    #[error("schedule: {0}")]
    Schedule(#[from] punctual_schedule::Error),
    /// The engine refused, or its store cannot be reached.
    #[error(transparent)]
    Engine(#[from] punctual_engine::Error),
}
