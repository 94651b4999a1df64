//! Who is alive: the last sign of life of every worker, and what the dead held.
//!
//! Kept in memory by stores that are one process; everybody has a lease's time to give a sign anew after a restart.
//! Promise: a worker that was taken for dead stays dead; an attempt whose worker is dead or does not list it is released,
//! and not before a lease has passed since it was claimed, unless the worker is known to be gone.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::id::{Sequence, WorkerId};

use crate::verbs::{Heartbeat, Held};

/// The workers that have given a sign of life, and those that are dead.
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    workers: HashMap<WorkerId, Worker>,
}

#[derive(Clone, Debug)]
enum Worker {
    Alive {
        seen_at: Timestamp,
        held: HashSet<Held>,
    },
    /// No sign of life for a lease: it may be at work all the same, on what it claimed last.
    Silent,
    /// It is known that it does nothing any more.
    Gone,
}

impl Liveness {
    /// Whether a worker was taken for dead.
    pub fn is_dead(&self, worker: WorkerId) -> bool {
        matches!(self.workers.get(&worker), Some(Worker::Silent | Worker::Gone))
    }

    /// A worker is known to be gone: what it held is lost at once.
    pub fn bury(&mut self, worker: WorkerId) {
        self.workers.insert(worker, Worker::Gone);
    }

    /// A worker's sign of life, with everything it holds. `find` finds an open run.
    pub fn heartbeat<'a>(
        &mut self,
        worker: WorkerId,
        held: Vec<Held>,
        now: Timestamp,
        find: impl Fn(Sequence) -> Option<&'a Run>,
    ) -> Heartbeat {
        if self.is_dead(worker) {
            return Heartbeat { is_refused: true, not_held: held, cancelled: Vec::new() };
        }
        self.workers.insert(worker, Worker::Alive { seen_at: now, held: held.iter().copied().collect() });
        let mut reply = Heartbeat::default();
        for attempt in held {
            match find(attempt.sequence).filter(|run| holds(run, worker, attempt)) {
                None => reply.not_held.push(attempt),
                Some(run) if run.is_cancel_requested => reply.cancelled.push(attempt),
                Some(_) => {}
            }
        }
        reply
    }

    /// Those of the running runs whose worker is dead, or does not list them, for longer than `lease`. Marks silent
    /// workers dead first.
    pub fn expired<'a>(
        &mut self,
        running: impl Iterator<Item = &'a Run>,
        lease: Duration,
        now: Timestamp,
        limit: usize,
    ) -> Vec<Run> {
        for worker in self.workers.values_mut() {
            if matches!(worker, Worker::Alive { seen_at, .. } if is_over(*seen_at, lease, now)) {
                *worker = Worker::Silent;
            }
        }
        running.filter(|run| self.is_lost(run, lease, now)).take(limit).cloned().collect()
    }

    fn is_lost(&self, run: &Run, lease: Duration, now: Timestamp) -> bool {
        let Some(held) = run.lease() else { return false };
        let this = Held { sequence: run.sequence, attempt: held.attempt };
        match self.workers.get(&held.worker) {
            Some(Worker::Gone) => true,
            Some(Worker::Alive { held: listed, .. }) if listed.contains(&this) => false,
            // Nobody else has it before a lease has passed, however long ago its worker last gave a sign of life.
            Some(Worker::Alive { .. } | Worker::Silent) | None => is_over(held.claimed_at, lease, now),
        }
    }
}

fn holds(run: &Run, worker: WorkerId, held: Held) -> bool {
    run.lease().is_some_and(|lease| lease.worker == worker && lease.attempt == held.attempt)
}

/// Whether a lease has passed without a sign of life.
fn is_over(since: Timestamp, lease: Duration, now: Timestamp) -> bool {
    now > since && now.duration_since(since).unsigned_abs() > lease
}
