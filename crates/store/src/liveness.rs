//! Who is alive: the last sign of life of every worker, and what the dead held.
//!
//! Kept in memory by stores that are one process; everybody has a lease's time to give a sign anew after a restart.
//! Promise: a worker that was taken for dead stays dead, for a day at least; an attempt whose worker is dead or does not list it is released,
//! and not before a lease has passed since it was claimed, unless the worker is known to be gone. A receiver has terms of its own
//! ([`punctual_domain::receiver`]): what it was not heard of before this process began does not count, its end does.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::id::{Sequence, TenantId, WorkerId};
use punctual_domain::work::{About, Presence};

use crate::verbs::{Heartbeat, Held};

/// The dead are remembered for so long: longer than anybody is frozen and comes back.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// The workers that have given a sign of life, and those that are dead.
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    workers: HashMap<WorkerId, Worker>,
    /// What those tell of themselves who pull.
    about: HashMap<WorkerId, About>,
}

#[derive(Clone, Debug)]
enum Worker {
    Alive {
        seen_at: Timestamp,
        held: HashSet<Held>,
    },
    /// It held something when this process began, or was there shortly before, and has not said what it holds since it was first looked
    /// for. It may have told of itself.
    Unheard {
        since: Option<Timestamp>,
        told_at: Option<Timestamp>,
    },
    /// No sign of life for a lease: it may be at work all the same, on what it claimed last.
    Silent {
        since: Timestamp,
    },
    /// It is known that it does nothing any more.
    Gone {
        since: Option<Timestamp>,
    },
}

impl Liveness {
    /// Whether a worker was taken for dead.
    pub fn is_dead(&self, worker: WorkerId) -> bool {
        matches!(self.workers.get(&worker), Some(Worker::Silent { .. } | Worker::Gone { .. }))
    }

    /// A worker is known to be gone: what it held is lost at once.
    pub fn bury(&mut self, worker: WorkerId) {
        self.about.remove(&worker);
        self.workers.insert(worker, Worker::Gone { since: None });
    }

    /// A worker elsewhere held something when this process began: it has a lease's time to be heard of.
    pub fn await_sign(&mut self, worker: WorkerId) {
        self.workers.entry(worker).or_insert(Worker::Unheard { since: None, told_at: None });
    }

    /// A worker elsewhere told this of itself before this process began: it has a lease's time to be heard of, and counts as there until
    /// then.
    pub fn recall(&mut self, worker: WorkerId, about: About) {
        self.about.insert(worker, about);
        self.await_sign(worker);
    }

    /// Whether a worker has told of itself, and lives.
    pub fn has_told(&self, worker: WorkerId) -> bool {
        self.about.contains_key(&worker)
    }

    /// A worker tells of itself. Says whether it lives, and is of this tenant.
    pub fn introduce(&mut self, worker: WorkerId, about: About, now: Timestamp) -> bool {
        let is_its_own = match self.about.get(&worker) {
            Some(known) => known.tenant == about.tenant,
            // Whoever lives and has told nothing executes for everybody.
            None => !matches!(self.workers.get(&worker), Some(Worker::Alive { .. })),
        };
        if self.is_dead(worker) || !is_its_own {
            return false;
        }
        self.about.insert(worker, about);
        match self.workers.entry(worker).or_insert(Worker::Alive { seen_at: now, held: HashSet::new() }) {
            // What it holds it says with its next heartbeat: until then it keeps what it had.
            Worker::Alive { seen_at, .. } => *seen_at = now,
            Worker::Unheard { told_at, .. } => *told_at = Some(now),
            Worker::Silent { .. } | Worker::Gone { .. } => {}
        }
        true
    }

    /// Those who have told of themselves and live, of one tenant or of all, by their ids.
    pub fn seen(&self, tenant: Option<TenantId>) -> Vec<Presence> {
        let mut all = Vec::new();
        for (worker, about) in &self.about {
            if tenant.is_some_and(|tenant| tenant != about.tenant) {
                continue;
            }
            let (seen_at, mut held): (Timestamp, Vec<Held>) = match self.workers.get(worker) {
                Some(Worker::Alive { seen_at, held }) => (*seen_at, held.iter().copied().collect()),
                // When it was last heard of before is not kept.
                Some(Worker::Unheard { since, told_at }) => {
                    (told_at.or(*since).unwrap_or(about.started_at), Vec::new())
                }
                Some(Worker::Silent { .. } | Worker::Gone { .. }) | None => continue,
            };
            held.sort_unstable_by_key(|held| (held.sequence, held.attempt));
            all.push(Presence { worker: *worker, about: about.clone(), seen_at, held });
        }
        all.sort_unstable_by_key(|seen| seen.worker);
        all
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
    /// workers dead first, and forgets those that have been dead for long.
    pub fn expired<'a>(
        &mut self,
        running: impl Iterator<Item = &'a Run>,
        lease: Duration,
        now: Timestamp,
        limit: usize,
    ) -> Vec<Run> {
        let Liveness { workers, about } = self;
        workers.retain(|id, worker| {
            let is_silent_since = |heard_at: Timestamp| match id.receiver() {
                Some(terms) => now > terms.until(heard_at),
                None => is_over(heard_at, lease, now),
            };
            let is_silent = match worker {
                Worker::Alive { seen_at, .. } => is_silent_since(*seen_at),
                Worker::Unheard { since, told_at } => {
                    let is_over_since = is_silent_since(*since.get_or_insert(now));
                    match *told_at {
                        // It is there, and does not say that it holds anything.
                        Some(seen_at) if is_over_since && !is_silent_since(seen_at) => {
                            *worker = Worker::Alive { seen_at, held: HashSet::new() };
                            false
                        }
                        _ => is_over_since,
                    }
                }
                Worker::Silent { since } => return !is_over(*since, REMEMBERED, now),
                Worker::Gone { since } => return !is_over(*since.get_or_insert(now), REMEMBERED, now),
            };
            if is_silent {
                about.remove(id);
                *worker = Worker::Silent { since: now };
            }
            true
        });
        let (mut lost, mut receivers) = (Vec::new(), HashSet::new());
        for run in running {
            let receiver = run.lease().map(|lease| lease.worker).filter(|worker| worker.receiver().is_some());
            receivers.extend(receiver);
            if lost.len() < limit && self.is_lost(run, lease, now) {
                lost.push(run.clone());
            }
        }
        // One for each attempt: they are remembered as long as that goes on, from now on if they are not known yet.
        self.workers.retain(|id, _| id.receiver().is_none() || receivers.contains(id));
        for receiver in receivers {
            self.workers.entry(receiver).or_insert(Worker::Unheard { since: Some(now), told_at: None });
        }
        lost
    }

    fn is_lost(&self, run: &Run, lease: Duration, now: Timestamp) -> bool {
        let Some(held) = run.lease() else { return false };
        let this = Held { sequence: run.sequence, attempt: held.attempt };
        if let Some(terms) = held.worker.receiver() {
            return self.is_dead(held.worker) || now > terms.ends_at;
        }
        match self.workers.get(&held.worker) {
            Some(Worker::Gone { .. }) => true,
            Some(Worker::Alive { held: listed, .. }) if listed.contains(&this) => false,
            Some(Worker::Unheard { .. }) => false,
            // Nobody else has it before a lease has passed, however long ago its worker last gave a sign of life.
            Some(Worker::Alive { .. } | Worker::Silent { .. }) | None => is_over(held.claimed_at, lease, now),
        }
    }
}

/// Those of a worker's attempts that somebody asked to stop. `find` finds an open run.
pub fn asked_to_stop<'a>(
    worker: WorkerId,
    held: &[Held],
    find: impl Fn(Sequence) -> Option<&'a Run>,
) -> Vec<Held> {
    let is_asked = |held: &&Held| {
        find(held.sequence).is_some_and(|run| run.is_cancel_requested && holds(run, worker, **held))
    };
    held.iter().filter(is_asked).copied().collect()
}

/// Who holds a run that is tried alone, once for each.
pub fn suspected<'a>(open: impl Iterator<Item = &'a Run>) -> Vec<WorkerId> {
    let alone = open.filter(|run| run.requires.are_alone());
    alone.filter_map(|run| run.lease().map(|lease| lease.worker)).collect()
}

fn holds(run: &Run, worker: WorkerId, held: Held) -> bool {
    run.lease().is_some_and(|lease| lease.worker == worker && lease.attempt == held.attempt)
}

/// Whether a lease has passed without a sign of life.
fn is_over(since: Timestamp, lease: Duration, now: Timestamp) -> bool {
    now > since && now.duration_since(since).unsigned_abs() > lease
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use punctual_domain::Labels;

    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn about() -> About {
        About {
            tenant: TenantId::DEFAULT,
            name: "w".into(),
            queues: vec!["mail".into()],
            labels: Labels::NONE,
            concurrency: 1,
            saturation: None,
            started_at: at(0),
        }
    }

    fn look(liveness: &mut Liveness, seconds: i64) {
        assert_eq!(liveness.expired(std::iter::empty(), LEASE, at(seconds), 10), []);
    }

    fn there(liveness: &Liveness) -> Vec<WorkerId> {
        liveness.seen(None).into_iter().map(|present| present.worker).collect()
    }

    #[test]
    fn who_was_there_before_a_restart_has_a_lease_to_be_heard_of() {
        let [silent, telling, beating] = [1, 2, 3].map(|n| WorkerId::from_bytes([n; 16]));
        let mut liveness = Liveness::default();
        [silent, telling, beating].into_iter().for_each(|worker| liveness.recall(worker, about()));
        assert_eq!(there(&liveness), [silent, telling, beating]);
        look(&mut liveness, 100);
        assert!(liveness.introduce(telling, about(), at(114)));
        liveness.heartbeat(beating, Vec::new(), at(114), |_| None);
        look(&mut liveness, 115);
        assert_eq!(there(&liveness), [silent, telling, beating]);
        look(&mut liveness, 116);
        assert_eq!(there(&liveness), [telling, beating], "the lease is over");
        assert!(liveness.is_dead(silent));
        look(&mut liveness, 130);
        assert_eq!(there(&liveness), []);
    }

    #[test]
    fn the_dead_are_forgotten_after_a_day() {
        let [silent, gone] = [1, 2].map(|n| WorkerId::from_bytes([n; 16]));
        let mut liveness = Liveness::default();
        assert!(liveness.introduce(silent, about(), at(0)));
        assert!(liveness.introduce(gone, about(), at(0)));
        liveness.bury(gone);
        let day = 24 * 60 * 60;
        for seconds in [20, 20 + day] {
            look(&mut liveness, seconds);
            assert!(liveness.is_dead(silent) && liveness.is_dead(gone));
            assert!(!liveness.introduce(silent, about(), at(seconds)));
        }
        look(&mut liveness, 21 + day);
        assert!(liveness.workers.is_empty() && liveness.about.is_empty());
    }
}
