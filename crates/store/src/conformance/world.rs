//! A small world for cases: a store, a clock that the case moves, jobs and workers.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{Epoch, JobId, RunId, ShardId, TenantId, Version, WorkerId};
use punctual_domain::job::{Job, JobState, Spec, Target};
use punctual_domain::lifecycle::Verdict;
use punctual_domain::policy::limit::Limits;
use punctual_domain::run::{Cause, Run};
use punctual_domain::{Outcome, Report};
use punctual_schedule::Schedule;

use crate::detail::RunDetail;
use crate::error::Refused;
use crate::store::Store;
use crate::verbs::{
    Birth, Claim, Concluded, Conclusion, Due, DueKey, DueQuery, DueWhen, Expect, Firing, Held, OpenRuns, Put,
    Shards,
};

/// How long a lease lasts in the cases.
pub(super) const LEASE: Duration = Duration::from_secs(10);

/// The store under test and what a case knows.
pub struct World {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The time; cases move it.
    pub now: Timestamp,
    /// The owner of all shards.
    pub node: WorkerId,
    /// Its epochs, by shard.
    pub epochs: Vec<Epoch>,
    made: u64,
}

impl World {
    /// A world in which one node owns all shards.
    pub async fn new(store: Arc<dyn Store>) -> Self {
        World::new_at(store, 1_800_000_000).await
    }

    /// The same at another time, by the second; for a store that had an owner before.
    pub async fn new_at(store: Arc<dyn Store>, second: i64) -> Self {
        let now = Timestamp::from_second(second).expect("in range");
        let node = WorkerId::new(now, u64::MAX / 3);
        let ttl = Duration::from_secs(1_000_000);
        let owned = store.acquire(node, Shards::All, ttl, now).await.expect("acquire");
        assert_eq!(owned.len(), usize::from(store.shard_count()), "a fresh store has no owner");
        let epochs = owned.into_iter().map(|(_, epoch)| epoch).collect();
        World { store, now, node, epochs, made: 0 }
    }

    /// Moves the clock.
    pub fn advance(&mut self, by: Duration) {
        self.now += SignedDuration::try_from(by).expect("in range");
    }

    /// So many seconds from now.
    pub fn after(&self, seconds: i64) -> Timestamp {
        self.now + SignedDuration::from_secs(seconds)
    }

    /// A worker that nobody knows yet.
    pub fn worker(&mut self) -> WorkerId {
        self.made += 1;
        WorkerId::new(self.now, self.made << 52 | self.made)
    }

    /// A job that is not in the store yet, on a shard of its own.
    pub fn job(&mut self, name: &str) -> Job {
        self.made += 1;
        let shard = ShardId((self.made % u64::from(self.store.shard_count())) as u16);
        Job {
            id: JobId::new(self.now, shard, self.made),
            tenant: TenantId::DEFAULT,
            version: Version::FIRST,
            state: JobState::Active,
            spec: Spec {
                payload: Some(r#"{"n":7}"#.into()),
                ..Spec::new(name, Schedule::parse("* * * * *").expect("valid"), Target::Discard)
            },
            created_at: self.now,
            updated_at: self.now,
            carried: None,
            changes: Vec::new(),
        }
    }

    /// The same in the shard of a name, where it is found out whether another has the name.
    pub fn job_of(&mut self, shard_of: &str, name: &str) -> Job {
        let shard = ShardId::of(TenantId::DEFAULT, shard_of, self.store.shard_count());
        let job = self.job(name);
        Job { id: JobId::new(self.now, shard, self.made), ..job }
    }

    /// A new job's put, due at a time.
    pub fn put(&self, job: Job, due_at: Option<Timestamp>) -> Put {
        Put {
            due: due_at.map(|at| due(&job, at)),
            expect: match job.version {
                Version::FIRST => Expect::Absent,
                Version(n) => Expect::Version(Version(n - 1)),
            },
            job: Arc::new(job),
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
        }
    }

    /// Puts one job and returns what the store says.
    pub async fn try_put(&self, put: Put) -> Result<(), Refused> {
        let mut answers = self.store.put_jobs(vec![put], self.now).await.expect("put_jobs");
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    /// Registers a job, due at a time.
    pub async fn register(&mut self, name: &str, due_at: Timestamp) -> Job {
        let job = self.job(name);
        self.try_put(self.put(job.clone(), Some(due_at))).await.expect("registered");
        job
    }

    /// Fires a job's slot, with a run and a next slot a minute later.
    pub async fn try_fire(&self, job: &Job, slot: Timestamp) -> Result<Vec<Run>, Refused> {
        self.try_firing(self.firing(job, slot)).await
    }

    /// The firing of [`World::try_fire`].
    pub fn firing(&self, job: &Job, slot: Timestamp) -> Firing {
        Firing {
            due: due(job, slot),
            epoch: self.epochs[usize::from(job.id.shard().0)],
            births: vec![birth(job, slot)],
            ledger: Vec::new(),
            next: Some(due(job, slot + SignedDuration::from_secs(60))),
            over: None,
            progress: None,
            operation: None,
            otherwise: None,
        }
    }

    /// Fires and returns what the store says.
    pub async fn try_firing(&self, firing: Firing) -> Result<Vec<Run>, Refused> {
        let mut answers = self.store.fire(vec![firing], self.now).await.expect("fire");
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    /// Registers a job that is due now, and fires it: a waiting run.
    pub async fn fired(&mut self, name: &str) -> Run {
        let job = self.register(name, self.now).await;
        self.try_fire(&job, self.now).await.expect("fired").remove(0)
    }

    /// Claims runs for a worker.
    pub async fn claim(&self, worker: WorkerId, limit: usize) -> Vec<Run> {
        let claim =
            Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit };
        self.store.claim(claim, self.now).await.expect("claim")
    }

    /// The jobs of runs, in the versions they were fired with.
    pub async fn jobs_of(&self, runs: &[Run]) -> Vec<Arc<Job>> {
        let versions: Vec<_> = runs.iter().map(|run| (run.job, run.version)).collect();
        let found = self.store.job_versions(&versions).await.expect("job_versions");
        found.into_iter().map(|stored| stored.expect("kept while a run needs it").job).collect()
    }

    /// A run that a worker holds.
    pub async fn running(&mut self, name: &str, worker: WorkerId) -> Run {
        let run = self.fired(name).await;
        let claimed = self.claim(worker, 1).await;
        assert_eq!(claimed.len(), 1);
        assert_eq!(claimed[0].id(), run.id());
        claimed[0].clone()
    }

    /// Ends an attempt and returns what the store says.
    pub async fn conclude(
        &self,
        worker: WorkerId,
        run: &Run,
        outcome: Outcome,
        verdict: Verdict,
    ) -> Result<Run, Refused> {
        self.try_complete(conclusion(worker, run, Some(self.report(outcome)), verdict)).await
    }

    /// Completes and returns what the store says.
    pub async fn try_complete(&self, conclusion: Conclusion) -> Result<Run, Refused> {
        self.try_conclude(conclusion).await.map(|concluded| concluded.run)
    }

    /// The same, with the run that goes on because of it.
    pub async fn try_conclude(&self, conclusion: Conclusion) -> Result<Concluded, Refused> {
        let mut answers = self.store.complete(vec![conclusion], self.now).await.expect("complete");
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    /// What a worker reports.
    pub fn report(&self, outcome: Outcome) -> Report {
        let mut report = Report::lost(self.now, self.now);
        report.outcome = outcome;
        if outcome == Outcome::Succeeded {
            report.error = None;
        }
        report
    }

    /// The run with its attempts.
    pub async fn detail(&self, id: RunId) -> RunDetail {
        self.store.run(id).await.expect("run").expect("the run is there")
    }

    /// All due entries up to a time.
    pub async fn due_until(&self, until: Timestamp) -> Vec<Due> {
        let query = DueQuery { shards: Shards::All, after: None, until, limit: 1_000 };
        self.store.due(query).await.expect("due").entries
    }
}

/// Waits for all of these, which are under way at once.
pub(super) async fn at_once<T>(work: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut work: Vec<_> = work.into_iter().map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|context| {
        for (one, done) in work.iter_mut().filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(value) = one.as_mut().poll(context) {
                *done = Some(value);
            }
        }
        if work.iter().all(|(_, done)| done.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    work.into_iter().filter_map(|(_, done)| done).collect()
}

/// Two things at once, which may be of different kinds.
pub(super) async fn at_once_two<A, B>(
    one: impl Future<Output = A>,
    other: impl Future<Output = B>,
) -> (A, B) {
    let (mut one, mut other) = (Box::pin(one), Box::pin(other));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|context| {
        if first.is_none()
            && let std::task::Poll::Ready(value) = one.as_mut().poll(context)
        {
            first = Some(value);
        }
        if second.is_none()
            && let std::task::Poll::Ready(value) = other.as_mut().poll(context)
        {
            second = Some(value);
        }
        match (first.is_some(), second.is_some()) {
            (true, true) => std::task::Poll::Ready(()),
            _ => std::task::Poll::Pending,
        }
    })
    .await;
    match (first, second) {
        (Some(first), Some(second)) => (first, second),
        _ => unreachable!("both are done"),
    }
}

/// A job's due entry.
pub(super) fn due(job: &Job, at: Timestamp) -> Due {
    let key = DueKey { at, lane: job.spec.lane, tenant: job.tenant, job: job.id };
    Due { key, version: job.version, slot: at }
}

/// A waiting run for a slot.
pub fn birth(job: &Job, slot: Timestamp) -> Birth {
    Birth {
        cause: Cause::Schedule,
        scheduled_for: slot,
        part: 0,
        available_at: slot,
        start_by: None,
        kind: job.spec.kind.as_deref().map(Arc::from),
        queue: job.spec.queue.clone(),
        requires: job.spec.requires.clone(),
        lane: job.spec.lane,
        priority: job.spec.priority,
        retention: job.spec.policies.retention.keep,
        correlation_id: None,
        payload: None,
        caused_by: None,
        claimed_by: None,
        overlap: job.spec.policies.overlap,
        previous: Some(slot - SignedDuration::from_secs(60)),
        limits: Limits::NONE,
        full: None,
        parts: None,
    }
}

/// The end of the attempt that a run shows.
pub(super) fn conclusion(
    worker: WorkerId,
    run: &Run,
    report: Option<Report>,
    verdict: Verdict,
) -> Conclusion {
    let held = Held { sequence: run.sequence, attempt: run.attempt };
    Conclusion { worker, held, report, verdict, successor: None, messages: Vec::new(), limits: None }
}
