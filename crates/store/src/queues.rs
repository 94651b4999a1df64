//! What waits in queues and runs from them, as a store knows it at a moment.
//!
//! Asked for by people and by whoever adds and takes away workers. Promise: however many runs wait, a bounded number of them is
//! read: what is counted up to its bound says that there is more.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::id::TenantId;

use crate::line::queue_of;

/// Runs that are counted of one tenant, lane and line: whoever adds workers does not need to know more, and it is some milliseconds of an index.
pub const COUNTED_MAX: usize = 10_000;

/// Lines that are looked at.
pub const LINES_MAX: usize = 2_000;

/// Running runs that are looked at: as many as very many workers have room for.
pub const RUNNING_MAX: usize = 200_000;

/// A queue of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Whose runs.
    pub tenant: TenantId,
    /// Its name.
    pub queue: Arc<str>,
    /// How many runs wait for a worker, and their time has come.
    pub waiting: u64,
    /// There are more than were counted.
    pub is_more: bool,
    /// Since when the one waits that waits longest, of those that were counted.
    pub oldest_at: Option<Timestamp>,
    /// How many run.
    pub running: u64,
}

/// Queues, while they are counted.
#[derive(Clone, Debug, Default)]
pub struct Queues(BTreeMap<(TenantId, Arc<str>), Queue>);

impl Queues {
    fn of(&mut self, tenant: TenantId, queue: &str) -> &mut Queue {
        let queue: Arc<str> = queue.into();
        let key = (tenant, Arc::clone(&queue));
        self.0.entry(key).or_insert_with(|| Queue {
            tenant,
            queue,
            waiting: 0,
            is_more: false,
            oldest_at: None,
            running: 0,
        })
    }

    /// So many wait in a line, counted up to [`COUNTED_MAX`], the oldest of them since then.
    pub fn wait(&mut self, tenant: TenantId, line: &str, runs: u64, oldest_at: Option<Timestamp>) {
        let queue = self.of(tenant, queue_of(line));
        queue.waiting += runs;
        queue.is_more |= runs >= COUNTED_MAX as u64;
        queue.oldest_at = queue.oldest_at.into_iter().chain(oldest_at).min();
    }

    /// So many run that waited in a line.
    pub fn run(&mut self, tenant: TenantId, line: &str, runs: u64) {
        self.of(tenant, queue_of(line)).running += runs;
    }

    /// What another part of the store has counted is added.
    pub fn join(&mut self, others: impl IntoIterator<Item = Queue>) {
        for other in others {
            let queue = self.of(other.tenant, &other.queue);
            queue.waiting += other.waiting;
            queue.running += other.running;
            queue.is_more |= other.is_more;
            queue.oldest_at = queue.oldest_at.into_iter().chain(other.oldest_at).min();
        }
    }

    /// By tenant and name.
    pub fn into_vec(self) -> Vec<Queue> {
        self.0.into_values().collect()
    }
}
