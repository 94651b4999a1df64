//! What nodes tell each other: news of what was made due, and hints that there is something to look at.
//!
//! News are rows, written in the transaction that they are about and taken away by the owner of the shard. Hints are
//! notifications, a few a second at most. Promise: news are never lost, so whoever asks often enough needs no hint; a
//! hint only makes the owner ask sooner.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_domain::id::WorkerId;
use punctual_store::{Due, Hint, LOOK_AHEAD};
use tokio::sync::Notify;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::client::Client;
use crate::error::{Failed, failed, reason};
use crate::row::{millis, shard, worker_uuid};
use crate::servers::Servers;
use crate::work::Work;

/// A transaction that notifies takes a lock of the whole database at its end, so few do. What is not hinted at is seen
/// when the owner next looks by itself.
const HINT_EVERY: Duration = Duration::from_millis(100);

/// After a connection that listens was lost.
const RETRY: Duration = Duration::from_secs(1);

/// Clocks differ; entries a little further ahead are told too.
const SLACK_MILLIS: i64 = 60_000;

/// How others are heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hints {
    /// By `listen`, on a connection of its own.
    Listen,
    /// Not at all, and no connection is a session of one's own: the database is behind a pool that gives its connections
    /// away after every transaction.
    Off,
}

/// Rows of shards that are held, with their owners.
pub(crate) const INSERT_NEWS: &str = "insert into news select * from unnest($1::smallint[], $2::bigint[])";

/// Hints that nobody has acted on.
#[derive(Debug, Default)]
struct Heard {
    due: Notify,
    placement: Notify,
}

/// What a store tells and hears.
#[derive(Debug)]
pub(crate) struct Wakeups {
    hints: Hints,
    /// The node of this process: what it makes due in its own shards is no news.
    node: Mutex<Option<WorkerId>>,
    heard: Arc<Heard>,
    began: Instant,
    /// When the last hint was given, in milliseconds since the beginning.
    hinted_at: AtomicI64,
    listener: Option<tokio::task::JoinHandle<()>>,
}

impl Wakeups {
    /// Listens until dropped.
    pub(crate) fn start(hints: Hints, servers: &Arc<Servers>) -> Self {
        let heard = Arc::new(Heard::default());
        let listener =
            (hints == Hints::Listen).then(|| tokio::spawn(listen(Arc::clone(servers), Arc::clone(&heard))));
        Wakeups {
            hints,
            node: Mutex::default(),
            heard,
            began: Instant::now(),
            hinted_at: AtomicI64::new(i64::MIN / 2),
            listener,
        }
    }

    /// Which node writes here.
    pub(crate) fn node_is(&self, id: WorkerId) {
        *self.node.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
    }

    fn node(&self) -> Option<Uuid> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner).map(worker_uuid)
    }

    /// Waits for a hint.
    pub(crate) async fn hear(&self) -> Hint {
        tokio::select! {
            () = self.heard.placement.notified() => Hint::Placement,
            () = self.heard.due.notified() => Hint::Due,
        }
    }

    /// Whether another hint may be given now; if so, it is counted.
    fn may_hint(&self) -> bool {
        if self.hints == Hints::Off {
            return false;
        }
        let now = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let last = self.hinted_at.load(Ordering::Relaxed);
        now - last >= HINT_EVERY.as_millis() as i64
            && self.hinted_at.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Says that shards were given away.
    pub(crate) async fn hint_placement(&self, client: &Client<'_>) -> Result<(), Failed> {
        if self.hints == Hints::Off {
            return Ok(());
        }
        client.batch_execute("notify punctual, 'placement'").await.map_err(failed)
    }

    /// Tells the owners of shards, whose rows the transaction holds, of entries that they may have looked past.
    pub(crate) async fn tell(
        &self,
        transaction: &Work<'_>,
        held: &[Row],
        entries: impl Iterator<Item = &Due>,
        now: Timestamp,
    ) -> Result<(), Failed> {
        let me = self.node();
        let soon = millis(now) + LOOK_AHEAD.as_millis() as i64 + SLACK_MILLIS;
        let mut earliest = std::collections::BTreeMap::new();
        for due in entries.filter(|due| millis(due.key.at) <= soon) {
            let at = earliest.entry(shard(due.key.job)).or_insert(millis(due.key.at));
            *at = millis(due.key.at).min(*at);
        }
        if earliest.is_empty() {
            return Ok(());
        }
        for row in held {
            let owner: Option<Uuid> = row.get(1);
            // A shard without an owner will be read by the next.
            if owner.is_none() || owner == me {
                earliest.remove(&row.get::<_, i16>(0));
            }
        }
        if earliest.is_empty() {
            return Ok(());
        }
        let (shards, times): (Vec<i16>, Vec<i64>) = earliest.into_iter().unzip();
        let insert = transaction.prepare_cached(INSERT_NEWS).await?;
        transaction.execute(&insert, &[&shards, &times]).await?;
        if self.may_hint() {
            transaction.batch_execute("notify punctual, 'due'").await?;
        }
        Ok(())
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}

/// Listens for ever, on one connection after the other.
async fn listen(servers: Arc<Servers>, heard: Arc<Heard>) {
    let mut is_told = false;
    loop {
        match listen_once(&servers, &heard).await {
            Ok(()) => is_told = false,
            Err(error) if !is_told => {
                tracing::warn!(
                    error,
                    "cannot listen for hints of other nodes; the database is asked instead"
                );
                is_told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Listens until the connection is lost.
async fn listen_once(servers: &Servers, heard: &Arc<Heard>) -> Result<(), String> {
    let hear = Arc::clone(heard);
    let connecting = servers.connect(Some("punctual hints"), move |said: &str| match said {
        "placement" => hear.placement.notify_one(),
        _ => hear.due.notify_one(),
    });
    let connected = tokio::time::timeout(servers.patience(), connecting).await;
    let connected = connected.map_err(|_| "the database does not answer")?;
    let (client, connection) = connected.map_err(|error| reason(&error))?;
    client.batch_execute("listen punctual").await.map_err(|error| reason(&error))?;
    // What was said while nobody listened is not said again.
    heard.placement.notify_one();
    heard.due.notify_one();
    // However it ended.
    let _ = connection.await;
    Ok(())
}
