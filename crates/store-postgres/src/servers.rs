//! The servers behind an address: which of them takes writes, and whether it still does.
//!
//! A connection is made to the first server that greets in time and may be used, beginning with the one that did last. A
//! server that went away without a word leaves connections behind on which nothing is ever said. So who waits for long
//! looks which server takes writes now, on a connection of its own, and connections to any other are ended.
//! Promise: a call to a server that takes writes is waited for, however slow it is; one to a server whose place another
//! has taken ends soon, as one whose connection broke off.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use deadpool_postgres::Connect;
use tokio::sync::{Mutex, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_postgres::config::Host;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, SimpleQueryMessage, Socket};

use crate::tls::{Connector, Stream};

/// How long a server may take to accept a connection, and to greet.
pub(crate) const CONNECT: Duration = Duration::from_secs(3);

/// One look tells everybody who has been waiting.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Who a server is, and whether it takes writes. No two servers were started in the same microsecond, and one that was
/// started again has none of its connections left.
const WHO: &str =
    "select extract(epoch from pg_postmaster_start_time()), current_setting('transaction_read_only')";

/// A server, as it tells itself apart from others and from what it was before it was started again.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Server(Arc<str>);

/// What a server said when it was connected.
struct Greeted {
    client: Client,
    task: JoinHandle<()>,
    server: Server,
    is_writable: bool,
}

/// The servers of an address.
pub(crate) struct Servers {
    /// One for each server.
    configs: Vec<Config>,
    tls: Connector,
    /// What is said first on every connection.
    greeting: String,
    /// Which was connected last.
    last: AtomicUsize,
    /// Which takes writes: the one that was first connected, then as of the last look.
    found: watch::Sender<Option<Server>>,
    /// When the last look was over.
    looked_at: Mutex<Option<Instant>>,
}

impl Servers {
    /// The servers of a configuration; every session of them begins with these settings.
    pub(crate) fn new(config: &Config, tls: Connector, settings: Option<&str>) -> Self {
        let count = config.get_hosts().len().max(config.get_hostaddrs().len()).max(1);
        let greeting = settings.map_or(WHO.into(), |settings| format!("{settings}; {WHO}"));
        Servers {
            configs: (0..count).map(|place| only(config, place)).collect(),
            tls,
            greeting,
            last: AtomicUsize::new(0),
            found: watch::Sender::new(None),
            looked_at: Mutex::new(None),
        }
    }

    /// How long it may take to find out that none of them can be used, or which.
    pub(crate) fn patience(&self) -> Duration {
        CONNECT * (self.configs.len() as u32 + 1)
    }

    /// Connects to the first server that can be used. Hears what is notified on the connection, if anything is; the task
    /// ends with it.
    pub(crate) async fn connect(
        &self,
        name: Option<&str>,
        hear: impl Fn(&str) + Clone + Send + 'static,
    ) -> Result<(Client, JoinHandle<()>), Error> {
        let greeted = self.greet_any(name, hear).await?;
        Ok((greeted.client, greeted.task))
    }

    async fn greet_any(
        &self,
        name: Option<&str>,
        hear: impl Fn(&str) + Clone + Send + 'static,
    ) -> Result<Greeted, Error> {
        let (count, last) = (self.configs.len(), self.last.load(Ordering::Relaxed));
        for place in (last..last + count - 1).map(|place| place % count) {
            let greeted = tokio::time::timeout(CONNECT, self.greet(place, name, hear.clone())).await;
            if let Ok(Ok(greeted)) = greeted {
                self.last.store(place, Ordering::Relaxed);
                return Ok(greeted);
            }
        }
        // There is nobody else to try: it may take as long as the caller waits.
        let place = (last + count - 1) % count;
        let greeted = self.greet(place, name, hear).await?;
        self.last.store(place, Ordering::Relaxed);
        Ok(greeted)
    }

    /// Connects to one server.
    async fn greet(
        &self,
        place: usize,
        name: Option<&str>,
        hear: impl Fn(&str) + Send + 'static,
    ) -> Result<Greeted, Error> {
        let mut config = self.configs[place].clone();
        if let Some(name) = name {
            config.application_name(name);
        }
        let (client, connection) = config.connect(self.tls.clone()).await?;
        let (is, who) = oneshot::channel();
        let found = self.found.subscribe();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = attend(connection, hear) => {}
                () = superseded(who, found) => {}
            }
        });
        let (mut server, mut is_writable) = (None, false);
        for message in client.simple_query(&self.greeting).await? {
            if let SimpleQueryMessage::Row(row) = message {
                server = row.try_get(0)?.map(|started| Server(started.into()));
                is_writable = row.try_get(1)? == Some("off");
            }
        }
        let server = server.unwrap_or_else(|| Server("".into()));
        self.found.send_if_modified(|found| {
            found.get_or_insert_with(|| server.clone());
            false
        });
        // The task is there as long as the connection is.
        let _ = is.send(server.clone());
        Ok(Greeted { client, task, server, is_writable })
    }

    /// Looks which server takes writes now. Connections to any other end. Whoever comes while somebody looks, or just
    /// has, need not.
    pub(crate) async fn look(&self) {
        let Ok(mut looked_at) = self.looked_at.try_lock() else { return };
        if looked_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        let greeted = self.greet_any(Some("punctual look"), |_: &str| {});
        if let Ok(Ok(Greeted { server, is_writable: true, .. })) =
            tokio::time::timeout(self.patience(), greeted).await
        {
            let before = self.found.send_replace(Some(server.clone()));
            if before.is_some_and(|before| before != server) {
                tracing::warn!("another server takes writes now; connections to the one before are ended");
            }
        }
        *looked_at = Some(Instant::now());
    }
}

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Servers").field("configs", &self.configs).finish_non_exhaustive()
    }
}

/// How the pool connects.
pub(crate) struct Dial(pub(crate) Arc<Servers>);

impl Connect for Dial {
    fn connect(
        &self,
        _: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        Box::pin(self.0.connect(None, |_| {}))
    }
}

/// Moves what is said on a connection, until it ends.
async fn attend(mut connection: Connection<Socket, Stream<Socket>>, hear: impl Fn(&str)) {
    loop {
        match std::future::poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(said))) => hear(said.payload()),
            Some(Ok(_)) => {}
            // Whoever waits for an answer hears of it.
            Some(Err(_)) | None => return,
        }
    }
}

/// Waits until another server than this takes writes.
async fn superseded(who: oneshot::Receiver<Server>, mut found: watch::Receiver<Option<Server>>) {
    if let Ok(this) = who.await {
        // What was found before says nothing about this connection.
        while found.changed().await.is_ok() {
            if found.borrow_and_update().as_ref().is_some_and(|found| *found != this) {
                return;
            }
        }
    }
    std::future::pending::<()>().await;
}

/// A configuration with one of its servers alone.
fn only(config: &Config, place: usize) -> Config {
    let mut one = Config::new();
    match config.get_hosts().get(place) {
        Some(Host::Tcp(host)) => drop(one.host(host)),
        Some(Host::Unix(path)) => drop(one.host_path(path)),
        None => {}
    }
    if let Some(address) = config.get_hostaddrs().get(place) {
        one.hostaddr(*address);
    }
    if let Some(port) = config.get_ports().get(place).or_else(|| config.get_ports().first()) {
        one.port(*port);
    }
    config.get_user().map(|user| one.user(user));
    config.get_password().map(|password| one.password(password));
    config.get_dbname().map(|name| one.dbname(name));
    config.get_options().map(|options| one.options(options));
    config.get_application_name().map(|name| one.application_name(name));
    config.get_connect_timeout().map(|timeout| one.connect_timeout(*timeout));
    config.get_tcp_user_timeout().map(|timeout| one.tcp_user_timeout(*timeout));
    config.get_keepalives_interval().map(|interval| one.keepalives_interval(interval));
    config.get_keepalives_retries().map(|retries| one.keepalives_retries(retries));
    one.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .load_balance_hosts(config.get_load_balance_hosts());
    one
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_connected_as_all_of_them_are_but_for_its_place() {
        let text = "postgres://me:secret@one:1,two:2/jobs?application_name=a&connect_timeout=4&keepalives_retries=7\
            &channel_binding=disable&options=-c%20geqo%3Doff&target_session_attrs=read-write&sslmode=require";
        let config: Config = text.parse().unwrap();
        for (place, server) in ["one:1", "two:2"].iter().enumerate() {
            let expected: Config = text.replace("one:1,two:2", server).parse().unwrap();
            assert_eq!(only(&config, place), expected);
        }
    }

    #[test]
    fn servers_may_share_a_port_or_be_sockets() {
        let config: Config = "host=/run/a,b hostaddr=10.0.0.1,10.0.0.2 port=7".parse().unwrap();
        let expected: Config = "host=/run/a hostaddr=10.0.0.1 port=7".parse().unwrap();
        assert_eq!(only(&config, 0), expected);
        let expected: Config = "host=b hostaddr=10.0.0.2 port=7".parse().unwrap();
        assert_eq!(only(&config, 1), expected);
    }
}
