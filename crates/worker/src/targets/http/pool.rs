//! Keeps connections for later calls, and holds calls back when a host has enough of them.
//!
//! A call takes a place at its host first, then a resting connection, the youngest first so that
//! the others can grow old. A new connection is opened only by a call that has a place and found
//! none resting; so there are never more connections to a host than places.
//! The sweep runs every second while any host is known, and ends with the last one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::connection::{Connection, H1, H2};
use super::target::Origin;

/// How soon a resting connection that ended is let go.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// How many connections, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) per_host_max: usize,
    pub(super) resting_max: usize,
    pub(super) rest_max: Duration,
    pub(super) probe_after: Duration,
}

pub(super) struct Pool {
    limits: Limits,
    hosts: RwLock<HashMap<Arc<Origin>, Arc<Host>>>,
    /// Over all hosts.
    resting: AtomicUsize,
    sweeping: AtomicBool,
}

/// The connections to one origin.
pub(super) struct Host {
    /// One per call under way.
    pub(super) places: Semaphore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    resting: Vec<Resting>,
    shared: Option<(H2, Instant)>,
}

struct Resting {
    connection: Box<H1>,
    since: Instant,
}

impl Pool {
    pub(super) fn new(limits: Limits) -> Pool {
        Pool {
            limits,
            hosts: RwLock::default(),
            resting: AtomicUsize::new(0),
            sweeping: AtomicBool::new(false),
        }
    }

    /// The host of an origin. The sweep forgets it when nobody uses it.
    pub(super) fn host(self: &Arc<Self>, origin: &Arc<Origin>) -> Arc<Host> {
        if let Some(host) = self.hosts.read().unwrap_or_else(PoisonError::into_inner).get(origin) {
            return Arc::clone(host);
        }
        let mut hosts = self.hosts.write().unwrap_or_else(PoisonError::into_inner);
        let new =
            || Arc::new(Host { places: Semaphore::new(self.limits.per_host_max), state: Mutex::default() });
        let host = Arc::clone(hosts.entry(Arc::clone(origin)).or_insert_with(new));
        drop(hosts);
        self.ensure_sweeping();
        host
    }

    /// A connection that rests, or is shared, and leads to an address that the guard lets through.
    pub(super) fn take(&self, host: &Host, allowed: impl Fn(IpAddr) -> bool) -> Option<Connection> {
        let now = Instant::now();
        let mut state = host.lock();
        if let Some((shared, used)) = &mut state.shared {
            if shared.is_open() && allowed(shared.remote().ip()) {
                *used = now;
                return Some(Connection::H2(shared.clone()));
            }
            if !shared.is_open() {
                state.shared = None;
            }
        }
        let at = state.resting.iter().rposition(|resting| allowed(resting.connection.remote().ip()))?;
        let Resting { connection, since } = state.resting.remove(at);
        drop(state);
        self.resting.fetch_sub(1, Relaxed);
        let rest = now.saturating_duration_since(since);
        if rest >= self.limits.rest_max {
            // It was the youngest: the rest is older, and the sweep's.
            return None;
        }
        if rest >= self.limits.probe_after {
            connection.wire().rested();
        }
        Some(Connection::H1(connection))
    }

    /// Shares a new HTTP/2 connection, unless another call was faster: then that one is used.
    pub(super) fn share(&self, host: &Host, new: H2, allowed: impl Fn(IpAddr) -> bool) -> H2 {
        let mut state = host.lock();
        match &state.shared {
            Some((shared, _)) if shared.is_open() && allowed(shared.remote().ip()) => shared.clone(),
            Some(_) | None => {
                state.shared = Some((new.clone(), Instant::now()));
                new
            }
        }
    }

    /// Lets a connection rest after a complete call, if it can serve another.
    pub(super) fn put(&self, host: &Host, mut connection: Box<H1>) {
        if !connection.settle() || self.resting.load(Relaxed) >= self.limits.resting_max {
            return;
        }
        self.resting.fetch_add(1, Relaxed);
        host.lock().resting.push(Resting { connection, since: Instant::now() });
    }

    fn ensure_sweeping(self: &Arc<Self>) {
        if !self.sweeping.load(Relaxed) && !self.sweeping.swap(true, Relaxed) {
            tokio::spawn(sweep_while_needed(Arc::downgrade(self)));
        }
    }

    /// Lets go of connections that rested too long or ended, and of hosts without any. Returns how
    /// many hosts remain.
    fn sweep(&self, now: Instant) -> usize {
        let hosts: Vec<Arc<Host>> =
            self.hosts.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for host in hosts {
            let mut state = host.lock();
            let before = state.resting.len();
            state.resting.retain_mut(|resting| {
                let rest = now.saturating_duration_since(resting.since);
                rest < self.limits.rest_max && is_alive(&mut resting.connection)
            });
            self.resting.fetch_sub(before - state.resting.len(), Relaxed);
            if let Some((shared, used)) = &state.shared
                && (!shared.is_open() || now.saturating_duration_since(*used) >= self.limits.rest_max)
            {
                state.shared = None;
            }
        }
        let mut hosts = self.hosts.write().unwrap_or_else(PoisonError::into_inner);
        hosts.retain(|_, host| Arc::strong_count(host) > 1 || !host.lock().is_empty());
        hosts.len()
    }
}

/// Asks the system, because nobody watches a resting connection.
fn is_alive(connection: &mut H1) -> bool {
    connection.wire().rested();
    connection.settle()
}

async fn sweep_while_needed(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(pool) = pool.upgrade() else { return };
        if pool.sweep(Instant::now()) == 0 {
            pool.sweeping.store(false, Relaxed);
            // A host that came in between would otherwise wait for the next call to start a sweep.
            if pool.hosts.read().unwrap_or_else(PoisonError::into_inner).is_empty()
                || pool.sweeping.swap(true, Relaxed)
            {
                return;
            }
        }
    }
}

impl Host {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.resting.is_empty() && self.shared.is_none()
    }
}
