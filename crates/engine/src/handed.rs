//! Runs that were handed to workers elsewhere, as they were then.
//!
//! A worker that pulls reports a run by its id; the end of an attempt needs the whole run and its job. Promise: none but speed. What is
//! not known here, because another node handed it out or this one was restarted, is read from the store.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use punctual_domain::id::{RunId, WorkerId};
use punctual_domain::work::{About, Held, Leased};

/// Above this, what is remembered was probably lost; it is forgotten.
const ATTEMPTS_MAX: usize = 200_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Handed(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    attempts: HashMap<Held, (WorkerId, Leased)>,
    /// What workers told of themselves, as the store has it, and when they were last heard of here.
    about: HashMap<WorkerId, (About, Timestamp)>,
}

impl Handed {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what a worker is given.
    pub(crate) fn keep(&self, worker: WorkerId, leased: &[Leased]) {
        let mut known = self.known();
        if known.attempts.len() > ATTEMPTS_MAX {
            known.attempts.clear();
        }
        known.attempts.extend(leased.iter().map(|one| (Held::from(&one.run), (worker, one.clone()))));
    }

    /// What a worker was given, to be ended.
    pub(crate) fn take(&self, worker: WorkerId, held: Held) -> Option<Leased> {
        let mut known = self.known();
        match known.attempts.get(&held) {
            Some((of, _)) if *of == worker => known.attempts.remove(&held).map(|(_, leased)| leased),
            _ => None,
        }
    }

    /// What a worker was given and has not reported, if that is known.
    pub(crate) fn of(&self, worker: WorkerId, held: &[Held]) -> Vec<Leased> {
        let known = self.known();
        let of_it = |held: &Held| known.attempts.get(held).filter(|(of, _)| *of == worker);
        held.iter().filter_map(of_it).map(|(_, leased)| leased.clone()).collect()
    }

    /// Those of a worker's attempts that nothing is known of here, at most so many.
    pub(crate) fn unknown(
        &self,
        worker: WorkerId,
        listed: &[(RunId, u32)],
        most: usize,
    ) -> Vec<(RunId, u32)> {
        let known = self.known();
        let is_unknown = |(run, attempt): &&(RunId, u32)| {
            let held = Held { sequence: run.sequence(), attempt: *attempt };
            known.attempts.get(&held).is_none_or(|(of, _)| *of != worker)
        };
        listed.iter().filter(is_unknown).take(most).copied().collect()
    }

    /// Everything that a worker was given and has not reported.
    pub(crate) fn all_of(&self, worker: WorkerId) -> Vec<Leased> {
        let known = self.known();
        let of_it = known.attempts.values().filter(|(of, _)| *of == worker);
        of_it.map(|(_, leased)| leased.clone()).collect()
    }

    /// A worker is not heard any more, or has gone.
    pub(crate) fn forget(&self, worker: WorkerId) {
        let mut known = self.known();
        known.about.remove(&worker);
        known.attempts.retain(|_, (of, _)| *of != worker);
    }

    /// Workers that were last heard of here before this are forgotten: they have gone, or talk to another node.
    pub(crate) fn forget_silent(&self, before: Timestamp) {
        let mut known = self.known();
        let Known { attempts, about } = &mut *known;
        let silent = about.iter().filter(|(_, (_, heard_at))| *heard_at < before);
        let silent: HashSet<WorkerId> = silent.map(|(worker, _)| *worker).collect();
        if !silent.is_empty() {
            about.retain(|worker, _| !silent.contains(worker));
            attempts.retain(|_, (of, _)| !silent.contains(of));
        }
    }

    /// What a worker that is heard of now told of itself.
    pub(crate) fn about(&self, worker: WorkerId, now: Timestamp) -> Option<About> {
        let mut known = self.known();
        let (about, heard_at) = known.about.get_mut(&worker)?;
        *heard_at = now;
        Some(about.clone())
    }

    /// A worker told of itself, and the store has it.
    pub(crate) fn told(&self, worker: WorkerId, about: About, now: Timestamp) {
        self.known().about.insert(worker, (about, now));
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use punctual_domain::Labels;
    use punctual_domain::id::TenantId;

    use super::*;

    #[test]
    fn who_is_not_heard_of_any_more_is_forgotten() {
        let handed = Handed::default();
        let (one, two) = (WorkerId::from_bytes([1; 16]), WorkerId::from_bytes([2; 16]));
        let about = About {
            tenant: TenantId::DEFAULT,
            name: String::new(),
            queues: Vec::new(),
            labels: Labels::NONE,
            concurrency: 1,
            saturation: None,
            started_at: Timestamp::UNIX_EPOCH,
        };
        let later = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(30);
        [one, two].into_iter().for_each(|worker| handed.told(worker, about.clone(), Timestamp::UNIX_EPOCH));
        assert!(handed.about(two, later).is_some());
        handed.forget_silent(later);
        assert_eq!((handed.about(one, later), handed.about(two, later)), (None, Some(about)));
    }
}
