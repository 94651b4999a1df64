//! Attempts under way on this node, by where they go.
//!
//! Noted when they are handed to a worker and when they are reported, read every second by [`crate::breakers`]. Promise: an attempt
//! counts as ended when it is reported, whether the store has it or not, and once; what a worker lost is forgotten after two heartbeats.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::WorkerId;
use punctual_domain::job::{Job, Target};
use punctual_domain::policy::breaker::{ANSWERS_OF, HANGS_AFTER, Load};
use punctual_domain::work::{Finished, Held, Leased};

/// A destination that answered this long ago is known.
const KNOWN_FOR: SignedDuration = SignedDuration::from_mins(10);

/// What a worker does not list in a heartbeat though it was given it so long ago, it has lost.
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(15);

/// Destinations without attempts are forgotten beyond this many.
const DESTINATIONS_MAX: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    table: Mutex<Table>,
    /// The most that the node was seen to have room for.
    room: AtomicU32,
}

#[derive(Debug, Default)]
struct Table {
    attempts: HashMap<Held, Begun>,
    destinations: HashMap<Arc<str>, Flow>,
}

#[derive(Debug)]
struct Begun {
    worker: WorkerId,
    destination: Arc<str>,
    at: Timestamp,
    /// A breaker of its destination let it through.
    was_let_through: bool,
}

/// What goes to a destination and what comes back.
#[derive(Debug, Default)]
struct Flow {
    begun: BTreeSet<(Timestamp, i64, u32)>,
    /// Answers by the second.
    answers: VecDeque<(i64, u32)>,
    answered_at: Option<Timestamp>,
    /// How many of those that have begun a breaker let through.
    let_through: u32,
}

/// Where a job's runs go, if that may hang.
pub(crate) fn destination(job: &Job) -> Option<String> {
    match &job.spec.target {
        // Whoever pulls waits for itself.
        Target::Discard | Target::Worker { .. } => None,
        target => Some(target.destination()),
    }
}

fn place(at: Timestamp, held: &Held) -> (Timestamp, i64, u32) {
    (at, held.sequence.as_i64(), held.attempt)
}

impl UnderWay {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attempts are handed to a worker.
    pub(crate) fn begin(&self, worker: WorkerId, leased: &[Leased], now: Timestamp) {
        let mut table = self.table();
        for one in leased {
            let Some(name) = destination(&one.job) else { continue };
            let key = Held::from(&one.run);
            let destination = match table.destinations.get_key_value(name.as_str()) {
                Some((known, _)) => Arc::clone(known),
                None => name.into(),
            };
            let was_let_through =
                one.run.limits.all().iter().any(|limited| limited.breaker() == Some(&*destination));
            let flow = table.destinations.entry(Arc::clone(&destination)).or_default();
            flow.begun.insert(place(now, &key));
            flow.let_through += u32::from(was_let_through);
            table.attempts.insert(key, Begun { worker, destination, at: now, was_let_through });
        }
    }

    /// An attempt was reported. `is_answer`: its destination is there.
    pub(crate) fn end(&self, finished: &Finished, is_answer: bool, now: Timestamp) {
        let key = Held::from(&finished.run);
        let mut table = self.table();
        let Some(begun) = table.attempts.remove(&key) else { return };
        let Some(flow) = table.destinations.get_mut(&begun.destination) else { return };
        flow.end(&key, &begun);
        if is_answer {
            flow.answered(now);
        }
    }

    /// A worker says what it holds.
    pub(crate) fn keep(&self, worker: WorkerId, held: &[Held], now: Timestamp) {
        let held: HashSet<&Held> = held.iter().collect();
        self.forget(|key, begun| {
            begun.worker == worker && begun.at < now - LOST_AFTER && !held.contains(key)
        });
    }

    /// Forgets what workers held that are gone, and destinations that nobody asks.
    pub(crate) fn tidy(&self, is_seated: impl Fn(WorkerId) -> bool, now: Timestamp) {
        self.forget(|_, begun| !is_seated(begun.worker));
        let mut table = self.table();
        let is_many = table.destinations.len() > DESTINATIONS_MAX;
        table.destinations.retain(|_, flow| {
            !flow.begun.is_empty() || !is_many && flow.answered_at.is_some_and(|at| at >= now - KNOWN_FOR)
        });
    }

    /// A worker begins: what one held that has left is not under way any more, and how much room there is is seen anew.
    pub(crate) fn begin_anew(&self, is_seated: impl Fn(WorkerId) -> bool, now: Timestamp) {
        self.tidy(is_seated, now);
        self.room.store(0, Ordering::Relaxed);
    }

    fn forget(&self, is_gone: impl Fn(&Held, &Begun) -> bool) {
        let mut table = self.table();
        let table = &mut *table;
        table.attempts.retain(|key, begun| {
            let goes = is_gone(key, begun);
            if goes && let Some(flow) = table.destinations.get_mut(&begun.destination) {
                flow.end(key, begun);
            }
            !goes
        });
    }

    /// The node has this much room that nobody uses: with what is under way, so much in all.
    pub(crate) fn see_room(&self, free: usize) -> u32 {
        let all = u32::try_from(self.table().attempts.len() + free).unwrap_or(u32::MAX);
        self.room.fetch_max(all, Ordering::Relaxed).max(all)
    }

    /// Destinations with attempts under way.
    pub(crate) fn destinations(&self) -> Vec<Arc<str>> {
        let table = self.table();
        let asked = table.destinations.iter().filter(|(_, flow)| !flow.begun.is_empty());
        asked.map(|(destination, _)| Arc::clone(destination)).collect()
    }

    /// Whether so many more could bring one of them above this.
    pub(crate) fn may_exceed(&self, more: usize, most: u32) -> bool {
        let table = self.table();
        let largest = table.destinations.values().map(|flow| flow.begun.len()).max().unwrap_or(0);
        largest + more > most as usize
    }

    /// How many a breaker of a destination let through that have not ended.
    pub(crate) fn let_through(&self, destination: &str) -> u32 {
        self.table().destinations.get(destination).map_or(0, |flow| flow.let_through)
    }

    /// What a destination holds.
    pub(crate) fn load(&self, destination: &str, room: u32, now: Timestamp) -> Load {
        let table = self.table();
        let Some(flow) = table.destinations.get(destination) else { return Load { room, ..Load::default() } };
        let first_second = (now - ANSWERS_OF).as_second();
        let answers =
            flow.answers.iter().filter(|(second, _)| *second > first_second).map(|(_, count)| count);
        let hanging = flow.begun.range(..(now - HANGS_AFTER, 0, 0)).count();
        Load {
            under_way: u32::try_from(flow.begun.len()).unwrap_or(u32::MAX),
            hanging: u32::try_from(hanging).unwrap_or(u32::MAX),
            answers: answers.sum(),
            is_known: flow.answered_at.is_some_and(|at| at >= now - KNOWN_FOR),
            room,
        }
    }
}

impl Flow {
    fn end(&mut self, key: &Held, begun: &Begun) {
        self.begun.remove(&place(begun.at, key));
        self.let_through = self.let_through.saturating_sub(u32::from(begun.was_let_through));
    }

    fn answered(&mut self, now: Timestamp) {
        self.answered_at = Some(now);
        let second = now.as_second();
        match self.answers.back_mut() {
            Some((last, count)) if *last == second => *count += 1,
            _ => self.answers.push_back((second, 1)),
        }
        while self.answers.front().is_some_and(|(first, _)| *first + ANSWERS_OF.as_secs() < second) {
            self.answers.pop_front();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use punctual_domain::id::{JobId, Sequence, ShardId, TenantId, Version};
    use punctual_domain::job::{Http, JobState, Method, Spec};
    use punctual_schedule::Schedule;
    use punctual_store::Parent;

    use super::*;
    use crate::fire::birth;

    const HOST: &str = "http api.example.com";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn worker(n: u64) -> WorkerId {
        WorkerId::new(at(0), n << 52 | n)
    }

    fn leased(n: u8, target: Target) -> Leased {
        let job = Job {
            id: JobId::new(at(0), ShardId(1), n.into()),
            tenant: TenantId::DEFAULT,
            version: Version::FIRST,
            state: JobState::Active,
            spec: Spec::new("job", Schedule::parse("@now").unwrap(), target),
            created_at: at(0),
            updated_at: at(0),
            carried: None,
            changes: Vec::new(),
        };
        let birth = birth(&job, at(0), at(0), &mut None, at(0));
        let (run, _) = birth.into_run(Parent::from(&job), Sequence::first_at(at(0), n), at(0));
        Leased { run, job: Arc::new(job), checkpoint: None }
    }

    fn http(n: u8) -> Leased {
        let url = "http://api.example.com/hook".into();
        leased(n, Target::Http(Http { url, method: Method::Post, headers: Vec::new(), tls: None }))
    }

    fn finished(leased: &Leased) -> Finished {
        let (run, job) = (leased.run.clone(), Arc::clone(&leased.job));
        Finished { worker: worker(1), run, job, report: None }
    }

    #[test]
    fn an_attempt_counts_until_it_is_reported_and_once() {
        let under_way = UnderWay::default();
        let attempts = [http(1), http(2), http(3), leased(4, Target::Discard)];
        under_way.begin(worker(1), &attempts, at(0));
        assert_eq!(under_way.see_room(7), 10, "what succeeds at once is not counted");
        let load = |second| under_way.load(HOST, 10, at(second));
        assert_eq!((load(5).under_way, load(5).hanging, load(6).hanging), (3, 0, 3));
        assert!(!load(0).is_known && under_way.may_exceed(1, 3) && !under_way.may_exceed(1, 4));
        for _ in 0..2 {
            under_way.end(&finished(&attempts[0]), true, at(6));
        }
        under_way.end(&finished(&attempts[1]), false, at(6));
        assert_eq!((load(6).under_way, load(6).answers, load(6).is_known), (1, 1, true));
        assert_eq!((load(15).answers, load(16).answers), (1, 0), "of the last ten seconds");
        assert_eq!((load(606).is_known, load(607).is_known), (true, false));
        assert_eq!(under_way.see_room(0), 10, "the most that was seen");
    }

    #[test]
    fn what_a_worker_lost_is_not_under_way() {
        let under_way = UnderWay::default();
        let attempts = [http(1), http(2)];
        under_way.begin(worker(1), &attempts, at(0));
        let held = [Held::from(&attempts[0].run)];
        under_way.keep(worker(1), &held, at(15));
        assert_eq!(under_way.load(HOST, 10, at(15)).under_way, 2, "it may not have taken it yet");
        under_way.keep(worker(2), &[], at(16));
        assert_eq!(under_way.load(HOST, 10, at(16)).under_way, 2, "it is another's");
        under_way.keep(worker(1), &held, at(16));
        assert_eq!(under_way.load(HOST, 10, at(16)).under_way, 1);
        assert_eq!(under_way.see_room(99), 100);
        under_way.begin_anew(|_| false, at(17));
        assert_eq!((under_way.load(HOST, 10, at(17)).under_way, under_way.see_room(50)), (0, 50));
        assert!(under_way.destinations().is_empty());
    }
}
