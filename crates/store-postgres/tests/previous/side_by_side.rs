//! A node of the previous version and one of this one at work on the same database.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_domain::attempt::Output;
use punctual_domain::id::{Epoch, JobId, ShardId, TenantId, Version, WorkerId};
use punctual_domain::job::{DEFAULT_QUEUE, Job, JobState, Lane, Spec, Target};
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::papers::Line;
use punctual_domain::policy::limit::Limits;
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::policy::retention::Retention;
use punctual_domain::{Cause, Note, Outcome, Report, Run};
use punctual_schedule::Schedule;
use punctual_store::conformance::SHARDS;
use punctual_store::{
    Birth, Claim, Conclusion, Due, DueKey, DueQuery, DueWhen, Expect, Firing, Held, OpenRuns, PageRequest,
    Put, RunDetail, RunFilter, Shards, Store, Trigger,
};
use punctual_store_postgres::{Options, Postgres};
use punctual_testing::Postgres as Server;

use crate::due::{DueRow, shard};
use crate::old::Old;

/// Batches of jobs that each of the two registers, and jobs of a batch.
const BATCHES: u64 = 12;
const BATCH: u64 = SHARDS as u64 * 2;

/// The shards of the old one, and as many of the new one.
const HALF: u64 = SHARDS as u64 / 2;

const TTL: Duration = Duration::from_secs(600);

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(120);

fn now() -> Timestamp {
    Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap()
}

/// A job that is due at once, and then over.
fn job(number: u64) -> (Job, Due) {
    let now = now();
    let spec = Spec::new("once", Schedule::parse("* * * * *").unwrap(), Target::Discard);
    let job = Job {
        id: JobId::new(now, ShardId((number % u64::from(SHARDS)) as u16), number),
        tenant: TenantId::DEFAULT,
        version: Version::FIRST,
        state: JobState::Active,
        spec,
        created_at: now,
        updated_at: now,
        carried: None,
        changes: Vec::new(),
    };
    let key = DueKey { at: now, lane: job.spec.lane, tenant: job.tenant, job: job.id };
    let due = Due { key, version: job.version, slot: now };
    (job, due)
}

fn birth(slot: Timestamp) -> Birth {
    Birth {
        cause: Cause::Schedule,
        scheduled_for: slot,
        part: 0,
        available_at: slot,
        start_by: None,
        kind: None,
        queue: DEFAULT_QUEUE.into(),
        requires: Default::default(),
        lane: Lane::default(),
        priority: 0,
        retention: Retention::Week.into(),
        correlation_id: None,
        payload: None,
        caused_by: None,
        claimed_by: None,
        overlap: Overlap::Allow,
        previous: None,
        limits: Limits::NONE,
        full: None,
        parts: None,
    }
}

/// What both have done.
#[derive(Default)]
struct Done {
    registered: Mutex<Vec<JobId>>,
    fired: Mutex<Vec<JobId>>,
    ended: Mutex<Vec<JobId>>,
}

impl Done {
    fn is_all(&self) -> bool {
        self.ended.lock().unwrap().len() as u64 >= 2 * BATCHES * BATCH
    }
}

/// A node of this version.
struct New {
    store: Arc<Postgres>,
    id: WorkerId,
    owned: Vec<(ShardId, Epoch)>,
}

impl New {
    async fn put_jobs(&self, jobs: &[(Job, Due)]) {
        let put = |(job, due): &(Job, Due)| Put {
            job: Arc::new(job.clone()),
            expect: Expect::Absent,
            due: Some(*due),
            due_when: DueWhen::Always,
            carry: None,
            unfired: Vec::new(),
            birth: None,
            open_runs: OpenRuns::Keep,
            limits: Limits::NONE,
            lets_overlap: false,
            ledger: Vec::new(),
            request: None,
            audit: None,
        };
        let answers = Store::put_jobs(&*self.store, jobs.iter().map(put).collect(), now()).await.unwrap();
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }

    async fn due(&self) -> Vec<Due> {
        let shards = Shards::Some(self.owned.iter().map(|(shard, _)| *shard).collect());
        let query = DueQuery { shards, after: None, until: now(), limit: 10_000 };
        Store::due(&*self.store, query).await.unwrap().entries
    }

    fn firing(due: Due, epoch: Epoch) -> Firing {
        Firing {
            due,
            epoch,
            births: vec![birth(due.slot)],
            ledger: Vec::new(),
            next: None,
            over: Some(Retention::Week),
            progress: None,
            operation: None,
            otherwise: None,
        }
    }

    async fn fire(&self, entries: Vec<Due>) -> Vec<JobId> {
        let epoch = |due: &Due| self.owned.iter().find(|(shard, _)| *shard == due.key.job.shard()).unwrap().1;
        let firings = entries.into_iter().map(|due| New::firing(due, epoch(&due))).collect();
        let answers = Store::fire(&*self.store, firings, now()).await.unwrap();
        answers.into_iter().flatten().flatten().map(|run| run.job).collect()
    }

    async fn claim(&self, limit: usize) -> Vec<Run> {
        let claim = Claim {
            worker: self.id,
            queues: Vec::new(),
            labels: Default::default(),
            shards: Shards::All,
            limit,
        };
        Store::claim(&*self.store, claim, now()).await.unwrap()
    }

    /// Ends runs that a worker holds.
    async fn complete(&self, worker: WorkerId, runs: &[Run]) -> Vec<JobId> {
        let mut report = Report::lost(now(), now());
        (report.outcome, report.error) = (Outcome::Succeeded, None);
        let conclusion = |run: &Run| Conclusion {
            worker,
            held: Held { sequence: run.sequence, attempt: run.attempt },
            report: Some(report.clone()),
            verdict: Verdict::Succeed,
            successor: None,
            messages: Vec::new(),
            limits: None,
        };
        let answers =
            Store::complete(&*self.store, runs.iter().map(conclusion).collect(), now()).await.unwrap();
        answers.into_iter().flatten().map(|concluded| concluded.run.job).collect()
    }

    async fn work(&self, done: &Done) {
        let (begun, mut batches) = (Instant::now(), 0);
        while !done.is_all() {
            assert!(begun.elapsed() < PATIENCE, "the work of both does not end");
            if batches < BATCHES {
                // In the shards of the other, which hears of them by what is told alone.
                let number = |n: u64| (batches * BATCH + n) * u64::from(SHARDS) + n % HALF;
                let jobs: Vec<_> = (0..BATCH).map(|n| job(number(n))).collect();
                self.put_jobs(&jobs).await;
                done.registered.lock().unwrap().extend(jobs.iter().map(|(job, _)| job.id));
                batches += 1;
            }
            if Store::news(&*self.store, self.id, now()).await.unwrap().is_some() {
                let fired = self.fire(self.due().await).await;
                done.fired.lock().unwrap().extend(fired);
            }
            let runs = self.claim(9).await;
            let held = runs.iter().map(|run| Held { sequence: run.sequence, attempt: run.attempt }).collect();
            let answer = Store::heartbeat(&*self.store, self.id, held, now()).await.unwrap();
            assert!(!answer.is_refused && answer.not_held.is_empty(), "{answer:?}");
            let ended = self.complete(self.id, &runs).await;
            assert_eq!(ended.len(), runs.len());
            done.ended.lock().unwrap().extend(ended);
        }
    }
}

async fn work(old: &Old, done: &Done) {
    let (begun, mut batches) = (Instant::now(), 0);
    while !done.is_all() {
        assert!(begun.elapsed() < PATIENCE, "the work of both does not end");
        if batches < BATCHES {
            let number = |n: u64| ((BATCHES + batches) * BATCH + n) * u64::from(SHARDS) + HALF + n % HALF;
            let jobs: Vec<_> = (0..BATCH).map(|n| job(number(n))).collect();
            old.put_jobs(&jobs).await;
            done.registered.lock().unwrap().extend(jobs.iter().map(|(job, _)| job.id));
            batches += 1;
        }
        if old.news().await {
            let due = old.due().await;
            let fired = old.fire(&due, &birth(now()), now()).await;
            done.fired.lock().unwrap().extend(fired);
        }
        let held = old.claim(9, now()).await;
        assert_eq!(old.heartbeat(&held).await, Some(held.len()));
        let count = held.len();
        let ended = old.complete(held, now()).await;
        assert_eq!(ended.len(), count);
        done.ended.lock().unwrap().extend(ended);
    }
}

/// Half of the shards for each.
async fn both() -> (New, Old) {
    let address = Server::shared().database();
    let options = Options { shards: Some(SHARDS), connections: 4, ..Options::new(&address) };
    let store = Arc::new(Postgres::open(&options).await.unwrap());
    let mut old = Old::connect(&address, WorkerId::new(now(), 1 << 60)).await;
    old.make_partitions(now()).await;
    let half: Vec<i16> = (0..HALF as i16).collect();
    old.acquire(&half, TTL.as_millis() as i64).await;
    assert_eq!(old.epochs.len(), half.len());
    let id = WorkerId::new(now(), 2 << 60);
    let owned = Store::acquire(&*store, id, Shards::All, TTL, now()).await.unwrap();
    assert_eq!(owned.len(), usize::from(SHARDS) / 2, "what the old one owns is not to be had");
    (New { store, id, owned }, old)
}

/// The old one goes on with a run that has said something, and ends it: it knows nothing of that, and takes nothing away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_attempts_said_is_there_whoever_ends_their_run() {
    let (new, old) = both().await;
    let jobs = [job(HALF)];
    new.put_jobs(&jobs).await;
    new.fire(new.due().await).await;
    let run = new.claim(1).await.remove(0);
    let held = Held::from(&run);
    let lines = vec![Line { at: now(), text: "begun".into() }];
    let note = Note { worker: new.id, held, progress: None, checkpoint: Some("7".into()), lines };
    assert_eq!(Store::note(&*new.store, vec![note], now()).await.unwrap(), [Ok(())]);
    let output = Some(Output { bytes: b"of the new one".to_vec(), is_truncated: false });
    let again = Conclusion {
        worker: new.id,
        held,
        report: Some(Report { output, ..Report::lost(now(), now()) }),
        verdict: Verdict::Retry { available_at: now(), charge: Charge::Attempt, start_by: None },
        successor: None,
        messages: Vec::new(),
        limits: None,
    };
    Store::complete(&*new.store, vec![again], now()).await.unwrap().remove(0).unwrap();
    let held = old.claim(1, now()).await;
    assert_eq!(old.complete(held, now()).await, [run.job]);
    let detail = async || Store::run(&*new.store, run.id()).await.unwrap().unwrap();
    let output = |detail: &RunDetail, place: usize| {
        let output = detail.attempts[place].report.as_ref().unwrap().output.as_ref();
        output.map(|output| String::from_utf8_lossy(&output.bytes).into_owned())
    };
    assert_eq!(output(&detail().await, 1).as_deref(), Some("of the old one"));
    Store::retain(&*new.store, now(), 100).await.unwrap();
    let detail = detail().await;
    assert_eq!(output(&detail, 0).as_deref(), Some("of the new one"));
    assert_eq!(output(&detail, 1).as_deref(), Some("of the old one"));
    assert_eq!(detail.log(1).map(|log| log.lines.len()), Some(1));
}

/// A run that another waits for is not ended in one statement, by either version: who waits would be left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_another_waits_for_is_not_ended_the_short_way() {
    let (new, old) = both().await;
    let jobs = [job(HALF)];
    new.put_jobs(&jobs).await;
    let of = &jobs[0].0;
    let trigger = |part| Trigger {
        job: of.id,
        version: of.version,
        birth: Birth { cause: Cause::Trigger, part, overlap: Overlap::QueueOne, ..birth(now()) },
        is_over: false,
        request: None,
        audit: None,
    };
    let answers = Store::trigger(&*new.store, vec![trigger(1), trigger(2)], now()).await.unwrap();
    let behind = answers.into_iter().map(Result::unwrap).find(Run::is_behind).unwrap();
    // It reads the one that waits as any other, and does not find it in the line.
    let held = old.claim(9, now()).await;
    assert_eq!(held.len(), 1);
    assert_eq!(old.complete(held, now()).await, []);
    assert_eq!(new.claim(9).await, []);
    let waits = Store::run(&*new.store, behind.id()).await.unwrap().unwrap();
    assert!(waits.run.is_behind());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_versions_work_and_nothing_is_lost_or_done_twice() {
    let (new, old) = both().await;
    let done = Done::default();
    tokio::join!(new.work(&done), work(&old, &done));
    let Done { registered, fired, ended } = done;
    let set = |list: &[JobId]| list.iter().copied().collect::<BTreeSet<_>>();
    let (registered, fired, ended) =
        (registered.into_inner().unwrap(), fired.into_inner().unwrap(), ended.into_inner().unwrap());
    let all = set(&registered);
    assert_eq!(all.len() as u64, 2 * BATCHES * BATCH);
    for list in [&fired, &ended] {
        assert_eq!(list.len(), all.len(), "something was done twice or not at all");
        assert_eq!(set(list), all);
    }
    let history = Store::runs(&*new.store, &RunFilter::default(), PageRequest::first(10_000)).await.unwrap();
    assert_eq!(history.items.len(), all.len());
    assert!(history.items.iter().all(|run| run.state.as_str() == "succeeded" && run.attempt == 1));
    assert_eq!(set(&history.items.iter().map(|run| run.job).collect::<Vec<_>>()), all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_do_the_same_one_has_done_it() {
    let (new, old) = both().await;
    for number in 0..60 {
        // In a shard of the old one, under its epoch.
        let (job, due) = job(number * u64::from(SHARDS) + 3);
        new.put_jobs(&[(job, due)]).await;
        let (entry, birth) = (DueRow::from(&due), birth(due.slot));
        let epoch = Epoch(old.epochs[&shard(due.key.job)] as u64);
        let (fired_by_old, fired_by_new) = tokio::join!(
            old.fire(std::slice::from_ref(&entry), &birth, now()),
            Store::fire(&*new.store, vec![New::firing(due, epoch)], now()),
        );
        let fired_by_new = fired_by_new.unwrap().remove(0);
        assert_ne!(fired_by_old.len() == 1, fired_by_new.is_ok(), "{fired_by_old:?} {fired_by_new:?}");
        let held = old.claim(10, now()).await;
        assert_eq!(held.len(), 1, "one slot is one run");
        let run = held[0].run.clone();
        let (ended_by_old, ended_by_new) =
            tokio::join!(old.complete(held, now()), new.complete(old.id, std::slice::from_ref(&run)));
        assert_eq!(ended_by_old.len() + ended_by_new.len(), 1, "one run has one end");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_takes_a_shard_over_fences_the_other_version() {
    let (mut new, mut old) = both().await;
    let jobs: Vec<_> = (0..u64::from(SHARDS)).map(job).collect();
    old.put_jobs(&jobs).await;
    let half: Vec<i16> = old.epochs.keys().copied().collect();
    let entries = old.due().await;
    assert_eq!(entries.len(), half.len());
    // Its lease is over.
    old.acquire(&half, -1).await;
    new.owned = Store::acquire(&*new.store, new.id, Shards::All, TTL, now()).await.unwrap();
    assert_eq!(new.owned.len(), usize::from(SHARDS));
    assert_eq!(old.fire(&entries, &birth(now()), now()).await, []);
    assert_eq!(new.fire(new.due().await).await.len(), usize::from(SHARDS));
    // And the other way round.
    let taken = Store::acquire(&*new.store, new.id, Shards::All, Duration::ZERO, now()).await.unwrap();
    assert_eq!(taken.len(), usize::from(SHARDS));
    let jobs: Vec<_> = (0..u64::from(SHARDS)).map(|n| job(1_000 * u64::from(SHARDS) + n)).collect();
    new.put_jobs(&jobs).await;
    let all: Vec<i16> = (0..SHARDS as i16).collect();
    while old.epochs.len() < all.len() {
        old.acquire(&all, TTL.as_millis() as i64).await;
    }
    assert_eq!(new.fire(new.due().await).await, []);
    assert_eq!(old.fire(&old.due().await, &birth(now()), now()).await.len(), usize::from(SHARDS));
}
