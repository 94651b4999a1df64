//! The life of a run with a restart between every two steps, on the embedded store, with a clock that the test moves.
//!
//! A kill leaves the files as they are at that moment. So they are copied while the store is open, and the copy is
//! what the next process opens; the first store is closed afterwards and not looked at again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_executor::block_on;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::IdempotencyKey;
use punctual_domain::attempt::Failure;
use punctual_domain::id::{JobId, RunId, WorkerId};
use punctual_domain::policy::retention::Retention;
use punctual_domain::run::{Run, RunState};
use punctual_domain::work::{Finished, Held, Leased};
use punctual_domain::{Outcome, Report};
use punctual_engine::fire::{Epochs, Room};
use punctual_engine::{Clock, Engine, Error, ManualClock};
use punctual_schedule::Tzdb;
use punctual_store::{Claim, Due, DueQuery, PageRequest, Refused, RunFilter, Shards, Store};
use punctual_store_embedded::{Embedded, Options, check};

use crate::support::world::{Counter, TENANT, at, spec};

const LEASE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
enum Step {
    Register,
    /// The slot comes and its entry is read.
    Due,
    Fire,
    /// Fire and claim in one write.
    FireWithRoom,
    Claim,
    /// The target is called and the worker gives a sign of life.
    Execute,
    Complete(Outcome),
    /// The worker is silent for longer than a lease.
    Lose,
    History,
    Retain,
}

use Step::{
    Claim as Claims, Complete, Due as Dues, Execute, Fire, FireWithRoom, History, Lose, Register, Retain,
};

/// What happens to one run, and how it ends however often the process is killed meanwhile.
struct Life {
    name: &'static str,
    steps: &'static [Step],
    state: RunState,
    charged: u32,
}

const FAILED: Step = Complete(Outcome::Failed);
const SUCCEEDED: Step = Complete(Outcome::Succeeded);

const LIVES: [Life; 5] = [
    Life {
        name: "success",
        steps: &[Register, Dues, Fire, Claims, Execute, SUCCEEDED, History, Retain],
        state: RunState::Succeeded,
        charged: 0,
    },
    Life {
        name: "success, born running",
        steps: &[Register, Dues, FireWithRoom, Execute, SUCCEEDED, History, Retain],
        state: RunState::Succeeded,
        charged: 0,
    },
    Life {
        name: "failure with retry",
        steps: &[Register, Dues, Fire, Claims, Execute, FAILED, Claims, Execute, SUCCEEDED, History, Retain],
        state: RunState::Succeeded,
        charged: 1,
    },
    Life {
        name: "lost",
        steps: &[Register, Dues, Fire, Claims, Execute, Lose, Claims, Execute, SUCCEEDED, History, Retain],
        state: RunState::Succeeded,
        charged: 0,
    },
    Life {
        // The last failure ends the run; the two before it are charged.
        name: "failure for good, one attempt lost in between",
        steps: &[
            Register,
            Dues,
            FireWithRoom,
            FAILED,
            Claims,
            Lose,
            Claims,
            FAILED,
            Claims,
            FAILED,
            History,
            Retain,
        ],
        state: RunState::Failed,
        charged: 2,
    },
];

/// How long nobody is there after a kill: not at all, a little late, past other slots.
const DOWN: [SignedDuration; 3] =
    [SignedDuration::ZERO, SignedDuration::from_secs(30), SignedDuration::from_secs(7_230)];

#[test]
fn a_restart_between_any_two_steps_changes_nothing_about_a_run() {
    let mut lived = 0;
    for life in &LIVES {
        for down in DOWN {
            for cut in 0..=life.steps.len() {
                live(life, down, &format!("{}, killed before step {cut}, down {down:#}", life.name), |at| {
                    at == cut
                });
                lived += 1;
            }
        }
        // More often, and the run would be taken for what kills its workers.
        for from in 0..3 {
            let story = format!("{}, killed before every third step from {from}", life.name);
            live(life, SignedDuration::ZERO, &story, |at| at % 3 == from);
            lived += 1;
        }
    }
    println!("{lived} lives with restarts");
}

fn live(life: &Life, down: SignedDuration, story: &str, is_killed_before: impl Fn(usize) -> bool) {
    let mut world = World::new(story);
    for (index, step) in life.steps.iter().enumerate() {
        if is_killed_before(index) {
            world.kill(down);
        }
        world.take(*step, life);
    }
    if is_killed_before(life.steps.len()) {
        world.kill(down);
    }
    world.account();
}

/// A data directory, whoever has it open now, and what the outside world has seen.
struct World {
    story: String,
    root: tempfile::TempDir,
    clock: Arc<ManualClock>,
    entropy: Arc<Counter>,
    process: Option<Process>,
    kills: usize,
    job: Option<JobId>,
    first_slot: Option<Timestamp>,
    /// The run of each slot.
    fired: BTreeMap<Timestamp, RunId>,
    /// The run that is followed: the first that a worker got.
    run: Option<(RunId, IdempotencyKey)>,
    /// How its attempts ended, in order.
    ended: Vec<Outcome>,
    /// What a killed process held.
    orphan: Option<(WorkerId, Leased)>,
}

/// What dies with a kill.
struct Process {
    store: Arc<Embedded>,
    engine: Engine,
    epochs: Epochs,
    worker: WorkerId,
    entries: Vec<Due>,
    held: Option<Leased>,
}

impl Process {
    /// A worker that was taken for dead starts anew under another name.
    fn renew_worker(&mut self) {
        self.worker = self.engine.new_worker_id();
    }
}

impl World {
    fn new(story: &str) -> Self {
        let mut world = World {
            story: story.into(),
            root: tempfile::tempdir().unwrap(),
            clock: Arc::new(ManualClock::new(at("12:30:00"))),
            entropy: Arc::default(),
            process: None,
            kills: 0,
            job: None,
            first_slot: None,
            fired: BTreeMap::new(),
            run: None,
            ended: Vec::new(),
            orphan: None,
        };
        world.open();
        world
    }

    fn directory(&self) -> PathBuf {
        self.root.path().join(format!("data-{}", self.kills))
    }

    fn open(&mut self) {
        let store =
            Arc::new(Embedded::open(&Options { directory: self.directory(), shards: Some(4) }).unwrap());
        let (clock, entropy) = (Arc::clone(&self.clock), Arc::clone(&self.entropy));
        let engine = Engine::new(store.clone(), clock, entropy, Arc::new(Tzdb::bundled()));
        let owner = engine.new_worker_id();
        let held = block_on(store.acquire(owner, Shards::All, LEASE, self.clock.now())).unwrap();
        assert_eq!(held.len(), 4, "{}: a restart need not wait for the shards", self.story);
        let worker = engine.new_worker_id();
        self.process = Some(Process {
            store,
            engine,
            epochs: Epochs::new(held),
            worker,
            entries: Vec::new(),
            held: None,
        });
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().unwrap()
    }

    /// Ends the process without a word, looks at what it left, and starts the next one.
    fn kill(&mut self, down: SignedDuration) {
        let before = self.directory();
        self.kills += 1;
        let after = self.directory();
        copy(&before, &after);
        let mut killed = self.process.take().unwrap();
        if let Some(leased) = killed.held.take() {
            self.orphan = Some((killed.worker, leased));
            self.ended.push(Outcome::Lost);
        }
        drop(killed);
        std::fs::remove_dir_all(&before).unwrap();
        self.clock.advance(down);
        let checked = check(&after, self.clock.now()).unwrap();
        assert!(checked.is_sound(), "{}: {:?}", self.story, checked.findings);
        self.open();
    }

    fn take(&mut self, step: Step, life: &Life) {
        match step {
            Register => self.register(),
            Dues => {
                let slot = self.first_slot.unwrap().duration_since(self.clock.now());
                self.clock.advance(slot.max(SignedDuration::ZERO));
                self.read_due();
                assert_eq!(self.process().entries.len(), 1, "{}", self.story);
            }
            Fire => self.fire(false),
            FireWithRoom => self.fire(true),
            Claims => drop(self.hold()),
            Execute => {
                let held = Held::from(&self.hold().run);
                let Process { engine, worker, .. } = self.process();
                let answer = block_on(engine.heartbeat(*worker, vec![held])).unwrap();
                assert!(!answer.is_refused && answer.not_held.is_empty(), "{}: {answer:?}", self.story);
            }
            Complete(outcome) => self.complete(outcome),
            Lose => {
                let leased = self.hold();
                self.clock.advance(SignedDuration::from_secs(11));
                self.process().held = None;
                let lost = block_on(self.process().engine.reclaim(LEASE)).unwrap();
                assert_eq!(lost.iter().map(Run::id).collect::<Vec<_>>(), [leased.run.id()], "{}", self.story);
                self.ended.push(Outcome::Lost);
                self.process().renew_worker();
            }
            History => self.look_back(life),
            Retain => self.retain(life),
        }
    }

    fn register(&mut self) {
        let mut hourly = spec("0 * * * *");
        hourly.policies.retention = Retention::Day.into();
        let engine = &self.process().engine;
        let registered = block_on(engine.register(TENANT, vec![(hourly, None)])).unwrap().remove(0).unwrap();
        (self.job, self.first_slot) = (Some(registered.job.id), registered.next_slot);
    }

    /// Reads what is due, as the horizon does when it starts.
    fn read_due(&mut self) {
        let query = DueQuery { shards: Shards::All, after: None, until: self.clock.now(), limit: 100 };
        self.process().entries = block_on(self.process().store.due(query)).unwrap().entries;
    }

    /// Fires what is due until nothing is. With room, the first run is born running.
    fn fire(&mut self, with_room: bool) {
        let mut attempts = usize::from(with_room);
        if self.process().entries.is_empty() {
            self.read_due();
        }
        while !self.process().entries.is_empty() {
            let Process { engine, epochs, entries, worker, .. } = self.process();
            let room = Room {
                worker: *worker,
                queues: [].into(),
                labels: Default::default(),
                attempts: std::mem::take(&mut attempts),
            };
            let fired = block_on(engine.fire(std::mem::take(entries), epochs, Some(room))).unwrap();
            for (run, job) in fired.runs {
                let twice = self.fired.insert(run.scheduled_for, run.id());
                assert_eq!(twice, None, "{}: two runs of the slot {}", self.story, run.scheduled_for);
                if run.lease().is_some() {
                    self.follow(&run);
                    self.process().held = Some(Leased { run, job, checkpoint: None });
                }
            }
            self.read_due();
        }
    }

    fn follow(&mut self, run: &Run) {
        let (id, key) = *self.run.get_or_insert((run.id(), run.idempotency_key()));
        assert_eq!((run.id(), run.idempotency_key()), (id, key), "{}", self.story);
        assert_eq!(run.attempt as usize, self.ended.len() + 1, "{}: attempts are numbered", self.story);
    }

    /// The followed run, leased to this process: as it was, or once the lease of a killed one is over.
    fn hold(&mut self) -> Leased {
        // A lease, and the longest delay before a retry.
        for _ in 0..20 {
            if let Some(leased) = &self.process().held {
                return leased.clone();
            }
            let now = self.clock.now();
            let Process { engine, store, worker, .. } = self.process();
            block_on(engine.reclaim(LEASE)).unwrap();
            let claim = Claim {
                worker: *worker,
                queues: Vec::new(),
                labels: Default::default(),
                shards: Shards::All,
                limit: 1,
            };
            // Killed often enough, it is tried alone.
            let alone = Claim { labels: claim.labels.alone(), ..claim.clone() };
            let mut claimed = block_on(store.claim(claim, now)).unwrap();
            if claimed.is_empty() {
                claimed = block_on(store.claim(alone, now)).unwrap();
            }
            match claimed.pop() {
                None => self.clock.advance(SignedDuration::from_secs(1)),
                Some(run) => self.got(run),
            }
        }
        panic!("{}: the run is stuck", self.story);
    }

    /// Takes a claimed run. Another one than the followed is ended at once.
    fn got(&mut self, run: Run) {
        let versions = [(run.job, run.version)];
        let job = block_on(self.process().store.job_versions(&versions)).unwrap().remove(0).unwrap().job;
        if self.run.is_some_and(|(id, _)| id != run.id()) {
            let ended = self.report(
                self.process.as_ref().unwrap().worker,
                Leased { run, job, checkpoint: None },
                Outcome::Succeeded,
            );
            assert_eq!(ended.unwrap().state, RunState::Succeeded, "{}", self.story);
            return;
        }
        self.follow(&run);
        self.process().held = Some(Leased { run, job, checkpoint: None });
        if let Some((worker, leased)) = self.orphan.take() {
            let late = self.report(worker, leased, Outcome::Succeeded);
            assert!(matches!(late, Err(Refused::Lifecycle(_))), "{}: a late report is refused", self.story);
        }
    }

    fn report(&self, worker: WorkerId, leased: Leased, outcome: Outcome) -> Result<Run, Refused> {
        let now = self.clock.now();
        let failure =
            Failure { code: "x".into(), message: "x".into(), is_retryable: true, retry_after: None };
        let error = (outcome != Outcome::Succeeded).then_some(failure);
        let report = Some(Report { outcome, error, ..Report::lost(now, now) });
        let finished = Finished { worker, run: leased.run, job: leased.job, report };
        block_on(self.process.as_ref().unwrap().engine.complete(vec![finished])).unwrap().remove(0)
    }

    fn complete(&mut self, outcome: Outcome) {
        let leased = self.hold();
        let worker = self.process().worker;
        self.report(worker, leased, outcome).unwrap();
        self.process().held = None;
        self.ended.push(outcome);
    }

    fn look_back(&mut self, life: &Life) {
        let (id, key) = self.run.unwrap();
        let detail = block_on(self.process().engine.run(TENANT, id)).unwrap();
        let run = &detail.run;
        let lost = self.ended.iter().filter(|outcome| **outcome == Outcome::Lost).count();
        assert_eq!(
            (run.state, run.charged, run.lost as usize, run.idempotency_key()),
            (life.state, life.charged, lost, key),
            "{}",
            self.story
        );
        let attempts: Vec<(u32, Option<Outcome>)> = detail
            .attempts
            .iter()
            .map(|attempt| (attempt.number, attempt.report.as_ref().map(|report| report.outcome)))
            .collect();
        let expected: Vec<(u32, Option<Outcome>)> =
            (1..).zip(self.ended.iter().map(|outcome| Some(*outcome))).collect();
        assert_eq!(attempts, expected, "{}", self.story);
        let runs =
            block_on(self.process().store.runs(&RunFilter::default(), PageRequest::first(100))).unwrap();
        let mut listed: Vec<(Timestamp, RunId)> =
            runs.items.iter().map(|run| (run.scheduled_for, run.id())).collect();
        listed.sort();
        assert_eq!(listed, self.fired.clone().into_iter().collect::<Vec<_>>(), "{}", self.story);
    }

    /// Two days later a run that ended well is forgotten, and one that ended badly waits for somebody.
    fn retain(&mut self, life: &Life) {
        for _ in 0..48 {
            self.clock.advance(SignedDuration::from_hours(1));
            let now = self.clock.now();
            while block_on(self.process().store.retain(now, 10)).unwrap() > 0 {}
        }
        let (id, _) = self.run.unwrap();
        let found = block_on(self.process().engine.run(TENANT, id));
        match life.state.is_dead() {
            true => assert_eq!(found.unwrap().run.state, life.state, "{}", self.story),
            false => assert!(matches!(found, Err(Error::RunNotFound(_))), "{}: {found:?}", self.story),
        }
    }

    /// Every slot until now is one run or in the ledger, nothing is open, and nothing is wrong on disk.
    fn account(&mut self) {
        self.fire(false);
        let job = self.job.unwrap();
        let ledger = block_on(self.process().store.ledger(job, PageRequest::first(100))).unwrap().items;
        let missed: u64 = ledger.iter().map(|entry| entry.slots).sum();
        let slots = 1 + self.clock.now().duration_since(self.first_slot.unwrap()).as_hours();
        assert_eq!(
            self.fired.len() as u64 + missed,
            slots as u64,
            "{}: {:?} {ledger:?}",
            self.story,
            self.fired
        );
        let now = self.clock.now();
        self.process().renew_worker();
        let Process { engine, store, worker, .. } = self.process();
        assert_eq!(block_on(engine.reclaim(LEASE)).unwrap(), [], "nobody holds anything");
        let claim = Claim {
            worker: *worker,
            queues: Vec::new(),
            labels: Default::default(),
            shards: Shards::All,
            limit: 100,
        };
        let alone = Claim { labels: claim.labels.alone(), ..claim.clone() };
        let mut claimed = block_on(store.claim(claim, now)).unwrap();
        claimed.extend(block_on(store.claim(alone, now)).unwrap());
        for run in claimed {
            self.got(run);
        }
        let open = [
            RunFilter { state: Some("pending"), ..RunFilter::default() },
            RunFilter { state: Some("running"), ..RunFilter::default() },
        ];
        for filter in open {
            let stuck = block_on(self.process().store.runs(&filter, PageRequest::first(100))).unwrap().items;
            assert_eq!(stuck, [], "{}", self.story);
        }
        self.process = None;
        let checked = check(&self.directory(), self.clock.now()).unwrap();
        assert!(checked.is_sound(), "{}: {:?}", self.story, checked.findings);
        assert_eq!((checked.due, checked.open_runs), (1, 0), "{}", self.story);
    }
}

/// Copies the files of a data directory as they are. Nobody writes meanwhile; a checkpoint may, and moves nothing that
/// the log does not still have.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in ["punctual.db", "punctual.db-wal", "punctual.lock"] {
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
}
