//! Connections, and how a verb uses one.

use std::str::FromStr;
use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use punctual_store::Error;
use tokio_postgres::{Config, NoTls};

use crate::error::{OpenError, reason};
use crate::wakeups::Hints;

/// Which database, and how it is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// `postgres://user@host/database`.
    pub address: String,
    /// How many shards a new database gets; none takes what the database has.
    pub shards: Option<u16>,
    /// Connections at most.
    pub connections: usize,
    /// Whose clock judges leases.
    pub time: Time,
    /// How other nodes are heard.
    pub hints: Hints,
}

impl Options {
    /// What a node uses.
    pub fn new(address: impl Into<String>) -> Self {
        Options {
            address: address.into(),
            shards: None,
            connections: 8,
            time: Time::Database,
            hints: Hints::Listen,
        }
    }
}

/// Whose clock judges leases and gives runs their time of birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The database's: nodes need not agree.
    Database,
    /// The caller's: for tests that move it.
    Caller,
}

/// Only statements over few rows are sent, and every one has its index; but a plan that was made while a table was
/// small would be kept when it is large. So joins go row by row; a list is looked up in a hashed one by
/// `(x in (select ...)) is true`, which the planner does not turn into a join.
const SETTINGS: &str = "set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; \
     set enable_material = off; set jit = off; set idle_in_transaction_session_timeout = '30s'";

/// How long a call waits for a connection before it says so.
const WAIT: Duration = Duration::from_secs(10);

pub(crate) fn pool(options: &Options) -> Result<Pool, OpenError> {
    let wrong = |reason: String| OpenError::Address { address: without_password(&options.address), reason };
    let mut config = Config::from_str(&options.address).map_err(|error| wrong(reason(&error)))?;
    if config.get_application_name().is_none() {
        config.application_name("punctual");
    }
    config.connect_timeout(Duration::from_secs(5));
    // A peer that went away without a word is noticed in half a minute, not in hours.
    config.keepalives_idle(Duration::from_secs(15)).tcp_user_timeout(Duration::from_secs(20));
    let manager =
        Manager::from_config(config, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
    let settings = Hook::async_fn(|client: &mut deadpool_postgres::ClientWrapper, _| {
        Box::pin(async move { client.batch_execute(SETTINGS).await.map_err(HookError::Backend) })
    });
    Pool::builder(manager)
        .max_size(options.connections)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(WAIT))
        .create_timeout(Some(WAIT))
        .post_create(settings)
        .build()
        .map_err(|error| wrong(error.to_string()))
}

/// A connection of the pool.
pub(crate) async fn connection(pool: &Pool) -> Result<Object, Error> {
    pool.get().await.map_err(|error| {
        use deadpool_postgres::PoolError;
        let reason = match error {
            PoolError::Backend(error) => reason(&error),
            PoolError::Timeout(_) => "no connection to the database was free for 10 seconds".into(),
            other => other.to_string(),
        };
        Error::Unavailable { reason }
    })
}

/// An address that may be shown.
pub(crate) fn without_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return "the address".into() };
    match rest.split_once('@') {
        Some((user, host)) => {
            let user = user.split_once(':').map_or(user, |(name, _)| name);
            format!("{scheme}://{user}@{host}")
        }
        None => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        assert_eq!(without_password("postgres://me:secret@db:5432/jobs"), "postgres://me@db:5432/jobs");
        assert_eq!(without_password("postgres://db/jobs"), "postgres://db/jobs");
        assert_eq!(without_password("host=db password=secret"), "the address");
    }
}
