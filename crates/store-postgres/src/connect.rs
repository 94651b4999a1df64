//! Connections, and how a verb uses one.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;

use crate::client::Client;
use crate::error::{OpenError, reason};
use crate::servers::{CONNECT, Dial, Servers};
use crate::tls::{Connector, Tls};
use crate::wakeups::Hints;

/// Which database, and how it is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// `postgres://user@host/database`; several servers are `host1,host2`.
    pub address: String,
    /// What it is there for.
    pub role: Role,
    /// How many shards a new database gets; none takes what the database has.
    pub shards: Option<u16>,
    /// Connections at most.
    pub connections: usize,
    /// Whose clock judges leases.
    pub time: Time,
    /// How other nodes are heard.
    pub hints: Hints,
    /// How long a call waits for a connection while all are in use.
    pub wait: Duration,
    /// How long a statement may take.
    pub statement_timeout: Duration,
    /// How long a call waits before it looks whether the server is still the one that takes writes.
    pub doubt: Duration,
    /// How long a call waits for the database in all. Longer than a statement may take.
    pub patience: Duration,
}

impl Options {
    /// What a node uses.
    pub fn new(address: impl Into<String>) -> Self {
        Options {
            address: address.into(),
            role: Role::Database,
            shards: None,
            connections: 8,
            time: Time::Database,
            hints: Hints::Listen,
            wait: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(20),
            // Few calls take as long, so that looking costs nothing; and a standby that was promoted is followed soon.
            doubt: Duration::from_secs(2),
            patience: Duration::from_secs(45),
        }
    }

    /// What a node uses for a replica: there is always the database itself, so nobody waits for long.
    pub fn replica(address: impl Into<String>) -> Self {
        Options {
            role: Role::Replica { lag_max: LAG_MAX },
            connections: 4,
            wait: Duration::from_secs(1),
            statement_timeout: Duration::from_secs(4),
            patience: Duration::from_secs(5),
            ..Options::new(address)
        }
    }

    /// What a case of the suite is told to: a database of its own, a clock that the case moves, no hints.
    #[cfg(test)]
    pub(crate) fn of_a_case() -> Self {
        Options {
            shards: Some(punctual_store::conformance::SHARDS),
            time: Time::Caller,
            hints: Hints::Off,
            ..Options::new(punctual_testing::Postgres::shared().database())
        }
    }
}

/// What a server is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has everything, or its share of it.
    Database,
    /// It is a standby of such a database: lists for people are read from it while it is not further behind than that.
    Replica {
        /// How far.
        lag_max: Duration,
    },
}

/// How old lists may be. Whoever has done something and looks for it in a list waits no longer than that; a standby that
/// is further behind for any time has too little power or a fault, which should be seen and not shown around.
const LAG_MAX: Duration = Duration::from_secs(5);

/// Whose clock judges leases and gives runs their time of birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The database's: nodes need not agree.
    Database,
    /// The caller's: for tests that move it.
    Caller,
}

/// Only statements over few rows are sent, and every one has its index; but a plan that was made while a table was
/// small would be kept when it is large, and one that was made when it was counted as empty is worse. So joins go row by
/// row; a list is looked up in a hashed one by `(x in (select ...)) is true`, which the planner does not turn into a join; and
/// a list of keys finds its rows by `t.key = any(array[x.key])`, which leaves it no other order than from the list to the
/// index.
const SETTINGS: [&str; 6] = [
    "enable_seqscan = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
    "enable_material = off",
    "jit = off",
    "idle_in_transaction_session_timeout = '30s'",
];

/// How a connection is made.
pub(crate) fn config(options: &Options) -> Result<(Config, Connector), OpenError> {
    let wrong = |reason: String| OpenError::Address { address: without_password(&options.address), reason };
    let (address, tls) = Tls::of(&options.address).map_err(wrong)?;
    let mut config = Config::from_str(&address).map_err(|error| wrong(reason(&error)))?;
    config.ssl_mode(tls.ssl_mode());
    // Of several servers, the one that takes writes; a standby that was promoted is found by the next connection. As a
    // replica, one that takes none.
    if config.get_hosts().len() > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(match options.role {
            Role::Database => TargetSessionAttrs::ReadWrite,
            Role::Replica { .. } => TargetSessionAttrs::ReadOnly,
        });
    }
    if config.get_application_name().is_none() {
        config.application_name("punctual");
    }
    config.connect_timeout(CONNECT);
    // A peer that went away without a word is noticed in half a minute, not in hours.
    config.keepalives_idle(Duration::from_secs(15)).tcp_user_timeout(Duration::from_secs(20));
    Ok((config, tls.connector().map_err(wrong)?))
}

/// The connections of a store.
#[derive(Debug)]
pub(crate) struct Connections {
    pool: Pool,
    servers: Arc<Servers>,
    /// What every transaction begins with, where no connection is a session of its own.
    settings: Option<Arc<str>>,
}

impl Connections {
    /// Connects when the first is asked for.
    pub(crate) fn new(options: &Options) -> Result<Self, OpenError> {
        let wrong =
            |reason: String| OpenError::Address { address: without_password(&options.address), reason };
        let (config, tls) = config(options)?;
        let has_sessions = options.hints == Hints::Listen;
        let of_a_session = has_sessions.then(|| settings("set", options));
        let servers = Arc::new(Servers::new(&config, tls, of_a_session.as_deref()));
        let dial = Dial(Arc::clone(&servers));
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pool = Pool::builder(Manager::from_connect(config, dial, recycling))
            .max_size(options.connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(options.wait))
            .create_timeout(Some(servers.patience()))
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let settings = (!has_sessions).then(|| settings("set local", options).into());
        Ok(Connections { pool, servers, settings })
    }

    /// The servers they are made to.
    pub(crate) fn servers(&self) -> &Arc<Servers> {
        &self.servers
    }

    pub(crate) async fn get(&self) -> Result<Client<'static>, PoolError> {
        Ok(Client::new(self.pool.get().await?, self.settings.clone()))
    }

    /// Whether each connection is a session of its own.
    pub(crate) fn are_sessions(&self) -> bool {
        self.settings.is_none()
    }

    /// Whoever comes next gets a new one.
    pub(crate) fn renew(&self) {
        self.pool.retain(|_, _| false);
    }
}

/// Connections that are sessions, whatever the options say: for whoever reads or writes all of a database.
pub(crate) fn sessions(options: &Options) -> Result<Pool, OpenError> {
    Ok(Connections::new(&Options { hints: Hints::Listen, ..options.clone() })?.pool)
}

/// Refuses an address behind which two connections were found to be one: what is prepared on such a connection may be
/// another's statement a moment later. Under load they may be found to be two.
pub(crate) async fn check_sessions(options: &Options) -> Result<(), OpenError> {
    if options.hints == Hints::Off {
        return Ok(());
    }
    let connections = Connections::new(&Options { hints: Hints::Off, connections: 2, ..options.clone() })?;
    let connect = || async { connections.get().await.map_err(|error| OpenError::from(&error)) };
    let (one, other) = (connect().await?, connect().await?);
    let mut servers = Vec::new();
    for client in [one, other] {
        let row = client.query_one("select pg_backend_pid()", &[]).await;
        servers.push(row?.get::<_, i32>(0));
    }
    match servers[0] == servers[1] {
        true => Err(OpenError::NoSession { address: without_password(&options.address) }),
        false => Ok(()),
    }
}

fn settings(set: &str, options: &Options) -> String {
    let timeout = format!("statement_timeout = {}", options.statement_timeout.as_millis());
    let settings = SETTINGS.into_iter().chain([timeout.as_str()]);
    settings.map(|setting| format!("{set} {setting}")).collect::<Vec<_>>().join("; ")
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
