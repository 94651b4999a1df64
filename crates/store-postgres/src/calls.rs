//! Calls: how a verb is measured, bounded and repeated.
//!
//! Every verb passes here. Promise: whatever the database does, a call ends; what failed without having done anything is
//! tried again where that helps; and all of it is counted.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deadpool_postgres::{PoolError, TimeoutType};
use punctual_store::{Durations, Error, Fault, Figures, Health};

use crate::client::Client;
use crate::error::{Failed, Kind, reason};
use crate::postgres::Postgres;

/// What is counted about calls.
#[derive(Debug)]
pub(crate) struct Calls {
    counted: Mutex<Counted>,
    reach: Mutex<Reach>,
    /// Of a replica nothing depends: whether it is within reach is said elsewhere.
    is_replica: bool,
}

#[derive(Debug, Default)]
struct Counted {
    verbs: BTreeMap<&'static str, Durations>,
    waits: Durations,
    commits: Durations,
    /// How often it was tried again, and how often a caller heard of it.
    faults: BTreeMap<Kind, (u64, u64)>,
}

/// Whether there was a connection when one was last wanted.
#[derive(Debug)]
struct Reach {
    health: Health,
    /// Since when there always was.
    since: Instant,
}

impl Default for Calls {
    fn default() -> Self {
        let reach = Reach { health: Health::default(), since: Instant::now() };
        Calls { counted: Mutex::default(), reach: Mutex::new(reach), is_replica: false }
    }
}

impl Calls {
    pub(crate) fn of_replica() -> Self {
        Calls { is_replica: true, ..Calls::default() }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reach(&self) -> MutexGuard<'_, Reach> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn health(&self) -> Health {
        self.reach().health.clone()
    }

    /// How long the database has been within reach. Who gave no sign of life before could not.
    pub(crate) fn reached_for(&self) -> Duration {
        self.reach().since.elapsed()
    }

    fn reached(&self) {
        let mut reach = self.reach();
        if !reach.health.writable {
            *reach = Reach { health: Health::default(), since: Instant::now() };
            if !self.is_replica {
                tracing::info!("the database is there again");
            }
        }
    }

    fn out_of_reach(&self, error: &Error) {
        let mut reach = self.reach();
        if reach.health.writable && !self.is_replica {
            tracing::error!(%error, "the database is out of reach; writes are refused until it is there again");
        }
        reach.health = Health::failing(error.to_string());
    }

    /// A commit was answered.
    pub(crate) fn committed(&self, took: Duration) {
        self.counted().commits.observe(took);
    }

    /// Adds what was counted to the figures of the store.
    pub(crate) fn add_to(&self, figures: Figures) -> Figures {
        let counted = self.counted();
        let fault = |kind: Kind| {
            let (retried, failed) = counted.faults.get(&kind).copied().unwrap_or_default();
            Fault { kind: kind.as_str(), retried, failed }
        };
        Figures {
            verbs: counted.verbs.iter().map(|(verb, took)| (*verb, *took)).collect(),
            waits: counted.waits,
            commits: counted.commits,
            faults: Kind::ALL.into_iter().map(fault).collect(),
            ..figures
        }
    }
}

impl Postgres {
    /// A call that must not be repeated as a whole.
    pub(crate) async fn write<T>(
        &self,
        verb: &'static str,
        work: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Error> {
        let begun = Instant::now();
        // It is many statements, and nobody waits for it.
        let patience = if verb == "retain" { self.patience * 20 } else { self.patience };
        let result = match tokio::time::timeout(patience, self.doubting(work)).await {
            Ok(result) => result,
            Err(_) => Err(self.stalled()),
        };
        self.calls.counted().verbs.entry(verb).or_default().observe(begun.elapsed());
        result.map_err(|failed| {
            let (kind, error) = failed.told();
            self.notice(kind, &error.to_string());
            self.calls.counted().faults.entry(kind).or_default().1 += 1;
            error
        })
    }

    /// Work that goes on for long is doubted: if the server is not the one that takes writes any more, its connection ends.
    async fn doubting<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            if let Ok(result) = tokio::time::timeout(self.doubt, &mut work).await {
                return result;
            }
            tokio::select! {
                result = &mut work => return result,
                () = self.connections.servers().look() => {}
            }
        }
    }

    /// A call that reads, or that does the same when it is done twice.
    pub(crate) async fn read<T, F: Future<Output = Result<T, Failed>>>(
        &self,
        verb: &'static str,
        work: impl Fn() -> F,
    ) -> Result<T, Error> {
        let tried = async {
            let mut tries = 0;
            loop {
                if let Some(value) = self.settle(work().await, &mut tries)? {
                    return Ok(value);
                }
            }
        };
        self.write(verb, tried).await
    }

    /// What comes of a try: a value, another try, or an error.
    pub(crate) fn settle<T>(&self, result: Result<T, Failed>, tries: &mut u32) -> Result<Option<T>, Failed> {
        *tries += 1;
        let (kind, reason) = match result {
            Ok(value) => return Ok(Some(value)),
            Err(Failed::Again(kind, reason)) => (kind, reason),
            Err(failed @ Failed::Error(..)) => return Err(failed),
        };
        self.notice(kind, &reason);
        if kind == Kind::Partition {
            self.partitions.forget();
        }
        if *tries >= kind.tries() {
            return Err(Failed::Error(kind, Error::Unavailable { reason }));
        }
        tracing::debug!(kind = kind.as_str(), reason, "tried again");
        self.calls.counted().faults.entry(kind).or_default().0 += 1;
        Ok(None)
    }

    /// A connection to the database.
    pub(crate) async fn connection(&self) -> Result<Client<'static>, Failed> {
        let begun = Instant::now();
        let result = self.connections.get().await;
        self.calls.counted().waits.observe(begun.elapsed());
        let client = match result {
            Ok(client) => self.within_reach(client).await,
            Err(error) => Err(unconnected(&error)),
        };
        client.inspect(|_| self.calls.reached()).inspect_err(|failed| {
            if let Failed::Error(Kind::Unreachable, error) = failed {
                self.calls.out_of_reach(error);
            }
        })
    }

    /// Without a session, a connection is one to a pool, which may be there while the database is not: after an outage it
    /// is asked.
    async fn within_reach(&self, client: Client<'static>) -> Result<Client<'static>, Failed> {
        if client.has_session() || self.calls.health().writable {
            return Ok(client);
        }
        match client.batch_execute("select").await {
            Ok(()) => Ok(client),
            Err(error) => {
                Err(Failed::Error(Kind::Unreachable, Error::Unavailable { reason: reason(&error) }))
            }
        }
    }

    /// A try has failed. If the pool in between says that it lost the database, that is an outage; if the server takes no
    /// writes any more, whoever comes next looks for the one that does.
    fn notice(&self, kind: Kind, reason: &str) {
        match kind {
            Kind::Disconnected if !self.connections.are_sessions() => {
                self.calls.out_of_reach(&Error::Unavailable { reason: reason.into() });
            }
            Kind::ReadOnly => self.connections.renew(),
            _ => {}
        }
    }

    /// The database did not answer in time. Its other connections are no better: whoever comes next gets new ones.
    fn stalled(&self) -> Failed {
        self.connections.renew();
        let reason = format!("the database did not answer for {} seconds", self.patience.as_secs_f32());
        let error = Error::Unavailable { reason };
        self.calls.out_of_reach(&error);
        Failed::Error(Kind::Stalled, error)
    }
}

/// Why there is no connection.
pub(crate) fn unconnected(error: &PoolError) -> Failed {
    let (kind, reason) = match error {
        PoolError::Timeout(TimeoutType::Wait) => {
            (Kind::Pool, "all connections to the database are in use".into())
        }
        PoolError::Timeout(_) => (Kind::Unreachable, "the database does not answer".into()),
        PoolError::Backend(error) => (Kind::Unreachable, reason(error)),
        other => (Kind::Unreachable, other.to_string()),
    };
    Failed::Error(kind, Error::Unavailable { reason })
}
