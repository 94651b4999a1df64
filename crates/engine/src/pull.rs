//! Gives runs to workers that ask for them, and takes what they report.
//!
//! Runs when a program elsewhere claims, says that it lives, or reports. Promise: a run is given to one of them at a time, under the same
//! leases as to workers of this process; what is given and cannot be delivered goes back at once, and what got lost on the way
//! after a lease; a report counts only under the current lease, whichever node takes it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::attempt::{Failure, Report};
use punctual_domain::audit::Deed;
use punctual_domain::id::{RunId, TenantId, WorkerId};
use punctual_domain::job::Job;
use punctual_domain::papers::Line;
use punctual_domain::policy::timeouts;
use punctual_domain::policy::unknown::{OnUnknown, UNKNOWN};
use punctual_domain::run::Run;
use punctual_domain::work::{About, Finished, Heartbeat, Held, Leased, Presence};
use punctual_domain::{Labels, Outcome};
use punctual_store::Refused;
use tokio::sync::oneshot;

use crate::desk::{Desk, Seat};
use crate::engine::Engine;
use crate::error::Error;

/// Attempts that are read with one heartbeat because nothing is known of them here: what a worker holds is known after some of them, and
/// each is answered in time.
const READ_MAX: usize = 100;

/// A worker that asks for runs.
#[derive(Clone, Debug)]
pub struct Asking {
    /// Who.
    pub worker: WorkerId,
    /// It does not know yet who it is.
    pub is_new: bool,
    /// What it tells of itself.
    pub about: About,
    /// At most so many.
    pub capacity: usize,
    /// For so long.
    pub wait: Duration,
}

/// The end of an attempt, as a worker elsewhere tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reported {
    /// Of this run.
    pub run: RunId,
    /// Which attempt.
    pub attempt: u32,
    /// What came of it; nothing if it is given back unfinished.
    pub end: Option<End>,
}

/// How an attempt ended. Times are by the worker's clock, and may be left out.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// How.
    pub outcome: Outcome,
    /// Why it failed.
    pub error: Option<Failure>,
    /// What it says.
    pub output: Option<String>,
    /// The last lines of its log.
    pub lines: Vec<String>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

impl Engine {
    /// How long an attempt is its worker's without a sign of life.
    pub fn lease(&self) -> Duration {
        self.lease.get().copied().unwrap_or(crate::node::LEASE)
    }

    /// A seat for a worker that pulls runs of a tenant.
    pub fn pulling_seat(&self, worker: WorkerId, about: &About) -> Seat {
        Desk::seat(&self.desk, worker, about.queues.clone(), about.labels.pulling(about.tenant))
    }

    /// Waits until there are runs for a worker, each leased to it. If nobody waits for the answer any more, they go back.
    pub async fn pull(&self, asking: Asking) -> Result<Vec<Leased>, Error> {
        let Asking { worker, is_new, about, capacity, wait } = asking;
        // Asking is a sign of life: until its answer comes, the worker may not know that it is one.
        let about = self.admit(worker, about).await?;
        // So nobody is taken for dead while he waits here; one who does not know himself yet hears of it in time for his first heartbeat.
        let wait = wait.min(if is_new { self.lease() / 3 } else { self.lease() });
        let (mut answer, answered) = oneshot::channel();
        let engine = self.clone();
        let until = self.clock.now() + SignedDuration::try_from(wait).unwrap_or(SignedDuration::ZERO);
        // A task of its own: what is given while the caller goes away must be given back.
        tokio::spawn(async move {
            let seat = engine.pulling_seat(worker, &about);
            seat.grant(capacity);
            let mut leased = tokio::select! {
                leased = seat.next() => leased,
                () = engine.clock.sleep_until(until) => Vec::new(),
                () = answer.closed() => Vec::new(),
                () = engine.drains() => Vec::new(),
            };
            leased.extend(seat.collect().await);
            engine.handed.keep(worker, &leased);
            if let Err(leased) = answer.send(leased) {
                engine.give_back(worker, leased).await;
            }
        });
        // It ends only with the process.
        Ok(answered.await.unwrap_or_default())
    }

    /// Lets a worker in, which is a sign of life; what it was known for stays.
    pub(crate) async fn admit(&self, worker: WorkerId, about: About) -> Result<About, Error> {
        if *self.draining.borrow() {
            let reason = "this node stops; ask another, or again in a moment".into();
            return Err(Error::Store(punctual_store::Error::Unavailable { reason }));
        }
        self.must_not_be_own(worker)?;
        let about = match self.handed.about(worker, self.clock.now()) {
            Some(known) if known.tenant == about.tenant => {
                About { started_at: known.started_at, saturation: known.saturation, ..about }
            }
            _ => about,
        };
        self.introduce(worker, about.clone()).await?;
        Ok(about)
    }

    /// Gives back what a worker was given and has not begun.
    pub async fn give_back(&self, worker: WorkerId, leased: Vec<Leased>) {
        let finished: Vec<Finished> = leased
            .into_iter()
            .map(|Leased { run, job, .. }| {
                self.handed.take(worker, Held::from(&run));
                Finished { worker, run, job, report: None }
            })
            .collect();
        // Whoever does not list them loses them after a lease in any case.
        if !finished.is_empty()
            && let Err(error) = self.complete(finished).await
        {
            tracing::warn!(%error, "runs that could not be delivered are left to their lease");
        }
    }

    async fn introduce(&self, worker: WorkerId, about: About) -> Result<(), Error> {
        let now = self.clock.now();
        if !self.store.introduce(worker, about.clone(), now).await? {
            self.handed.forget(worker);
            return Err(Error::WorkerLost(worker));
        }
        self.handed.told(worker, about, now);
        Ok(())
    }

    /// The workers of nodes are no tenant's, though their ids are seen.
    fn must_not_be_own(&self, worker: WorkerId) -> Result<(), Error> {
        match self.desk.is_seated(worker) {
            true => Err(Error::WorkerLost(worker)),
            false => Ok(()),
        }
    }

    /// Waits until this node gives out nothing more.
    pub(crate) async fn drains(&self) {
        // The sender is the engine's own.
        let _ = self.draining.subscribe().wait_for(|is_draining| *is_draining).await;
    }

    /// What a worker of a tenant told of itself.
    async fn about(&self, tenant: TenantId, worker: WorkerId) -> Result<About, Error> {
        self.must_not_be_own(worker)?;
        let now = self.clock.now();
        let mut known = self.handed.about(worker, now);
        if known.is_none() {
            // Another node was told, or this one before it was started again.
            let present = self.store.workers(None).await?;
            known = present.into_iter().find(|present| present.worker == worker).map(|one| one.about);
            known.iter().for_each(|about| self.handed.told(worker, about.clone(), now));
        }
        match known {
            Some(about) if about.tenant == tenant => Ok(about),
            Some(_) => Err(Error::WorkerLost(worker)),
            None if self.store.is_shared() => Err(Error::WorkerLost(worker)),
            // Nothing of it is kept: what it serves it tells when it claims.
            None => {
                let started_at = self.clock.now();
                let (name, queues, labels) = (String::new(), Vec::new(), Labels::NONE);
                let about =
                    About { tenant, name, queues, labels, concurrency: 1, saturation: None, started_at };
                self.introduce(worker, about.clone()).await?;
                Ok(about)
            }
        }
    }

    /// A sign of life of a worker that pulls, with everything it holds. What takes much longer than it may is ended here.
    pub async fn pull_heartbeat(
        &self,
        tenant: TenantId,
        worker: WorkerId,
        change: impl FnOnce(&mut About) + Send,
        listed: &[(RunId, u32)],
    ) -> Result<Heartbeat, Error> {
        let known = self.about(tenant, worker).await?;
        // The sign of life before everything else: nothing that fails beside it costs a lease.
        let mut answer = self.heartbeat(worker, listed.iter().map(named).collect()).await?;
        if answer.is_refused {
            self.handed.forget(worker);
            return Err(Error::WorkerLost(worker));
        }
        for held in &answer.not_held {
            self.handed.take(worker, *held);
        }
        let mut about = known.clone();
        change(&mut about);
        if about != known {
            match self.introduce(worker, about).await {
                Err(Error::WorkerLost(worker)) => return Err(Error::WorkerLost(worker)),
                Err(error) => tracing::warn!(%worker, %error, "what a worker tells of itself is not kept"),
                Ok(()) => {}
            }
        }
        let still = |one: &&(RunId, u32)| !answer.not_held.contains(&named(one));
        let held: Vec<(RunId, u32)> = listed.iter().filter(still).copied().collect();
        match self.end_overlong(tenant, worker, &held).await {
            Ok(ended) => {
                for held in ended {
                    self.handed.take(worker, held);
                    answer.cancelled.retain(|cancelled| *cancelled != held);
                    answer.not_held.push(held);
                }
            }
            Err(error) => tracing::warn!(%worker, %error, "attempts that take too long are ended later"),
        }
        Ok(answer)
    }

    /// Ends attempts that their worker should have stopped a lease ago, and lists all the same.
    async fn end_overlong(
        &self,
        tenant: TenantId,
        worker: WorkerId,
        held: &[(RunId, u32)],
    ) -> Result<Vec<Held>, Error> {
        // What another node handed out, or this one before it was started again, is read once.
        for (run, attempt) in self.handed.unknown(worker, held, READ_MAX) {
            if let Some(leased) = self.read_held(tenant, worker, run, attempt).await? {
                self.handed.keep(worker, &[leased]);
            }
        }
        let now = self.clock.now();
        let grace = SignedDuration::try_from(self.lease()).unwrap_or(SignedDuration::MAX);
        let held: Vec<Held> = held.iter().map(named).collect();
        let mut overlong = Vec::new();
        for Leased { run, job, .. } in self.handed.of(worker, &held) {
            let Some(lease) = run.lease() else { continue };
            let (timeout, _) = timeouts::attempt(&job.spec.policies.timeouts, &run, lease.claimed_at);
            let most = SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX);
            if now.duration_since(lease.claimed_at) <= most.saturating_add(grace) {
                continue;
            }
            let error = Failure {
                code: "timed_out".into(),
                message: format!("the attempt took longer than its timeout of {timeout:?}"),
                is_retryable: true,
                retry_after: None,
            };
            let report =
                Report { is_unknown: true, ..report(Outcome::TimedOut, Some(error), lease.claimed_at, now) };
            overlong.push(Finished { worker, run, job, report: Some(report) });
        }
        let ended = overlong.iter().map(|one| Held::from(&one.run)).collect();
        if !overlong.is_empty() {
            self.complete(overlong).await?;
        }
        Ok(ended)
    }

    /// Takes reports of a worker. Each answer says how the run stands now, or why the report was not taken.
    pub async fn report(
        &self,
        tenant: TenantId,
        worker: WorkerId,
        reported: Vec<Reported>,
    ) -> Result<Vec<Result<Run, Error>>, Error> {
        self.must_not_be_own(worker)?;
        let now = self.clock.now();
        let mut answers: Vec<Option<Result<Run, Error>>> = Vec::with_capacity(reported.len());
        let (mut finished, mut places) = (Vec::new(), Vec::new());
        for one in reported {
            let lost = Error::LeaseLost { run: one.run, attempt: one.attempt };
            match self.leased(tenant, worker, &one).await? {
                Some(leased) => {
                    places.push((answers.len(), lost));
                    answers.push(None);
                    finished.push(finish(worker, leased, one.end, now));
                }
                None => answers.push(Some(Err(lost))),
            }
        }
        let recorded = if finished.is_empty() { Vec::new() } else { self.complete(finished).await? };
        for ((place, lost), answer) in places.into_iter().zip(recorded) {
            answers[place] = Some(answer.map_err(|refused| match refused {
                Refused::NoRun | Refused::Lifecycle(_) => lost,
                other => {
                    Error::Store(punctual_store::Error::Unavailable { reason: format!("try again: {other}") })
                }
            }));
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// What a worker reports about, if it holds it.
    async fn leased(
        &self,
        tenant: TenantId,
        worker: WorkerId,
        reported: &Reported,
    ) -> Result<Option<Leased>, Error> {
        let (run, attempt) = (reported.run, reported.attempt);
        if let Some(known) = self.handed.take(worker, named(&(run, attempt))) {
            return Ok(Some(known).filter(|leased| leased.run.tenant == tenant));
        }
        self.read_held(tenant, worker, run, attempt).await
    }

    /// An attempt of a worker, if it holds it.
    async fn read_held(
        &self,
        tenant: TenantId,
        worker: WorkerId,
        run: RunId,
        attempt: u32,
    ) -> Result<Option<Leased>, Error> {
        let Some(detail) = self.store.run(run).await? else { return Ok(None) };
        let run = detail.run;
        let is_held = run.lease().is_some_and(|lease| lease.worker == worker && lease.attempt == attempt);
        if run.tenant != tenant || !is_held {
            return Ok(None);
        }
        self.with_job(run).await
    }

    /// Workers that pull and live: of a tenant, or of all.
    pub async fn workers(&self, tenant: Option<TenantId>) -> Result<Vec<Presence>, Error> {
        Ok(self.store.workers(tenant).await?)
    }

    /// A worker of a tenant goes: what it was given here and has not reported goes back at once, the rest when its lease is over.
    pub async fn dismiss(&self, tenant: TenantId, worker: WorkerId) -> Result<(), Error> {
        let present = self.store.workers(Some(tenant)).await?;
        if !present.iter().any(|present| present.worker == worker) {
            return Err(Error::WorkerNotFound(worker.to_string()));
        }
        let subject = worker.to_string().into();
        let deed = Deed { tenant, kind: "worker", subject, action: "dismiss", before: None, after: None };
        self.audit_ahead(vec![deed]).await?;
        // It gets nothing more before what it had goes to others.
        self.desk.expel(worker);
        self.store.dismiss(worker, self.clock.now()).await?;
        // It may have begun what it was given: where that matters, it is unknown.
        let retries = |leased: &Leased| leased.job.spec.policies.on_unknown == OnUnknown::Retry;
        let (back, lost): (Vec<_>, Vec<_>) = self.handed.all_of(worker).into_iter().partition(retries);
        self.give_back(worker, back).await;
        self.lose(worker, lost).await?;
        self.handed.forget(worker);
        Ok(())
    }

    /// Ends attempts as lost.
    async fn lose(&self, worker: WorkerId, leased: Vec<Leased>) -> Result<(), Error> {
        let now = self.clock.now();
        let lost = leased.into_iter().map(|Leased { run, job, .. }| {
            let claimed_at = run.lease().map_or(now, |lease| lease.claimed_at);
            Finished { worker, run, job, report: Some(Report::lost(claimed_at, now)) }
        });
        let lost: Vec<Finished> = lost.collect();
        if !lost.is_empty() {
            self.complete(lost).await?;
        }
        Ok(())
    }

    /// Whether somebody pulls runs of a queue who has what they require.
    pub(crate) async fn is_pulled(
        &self,
        tenant: TenantId,
        queue: &str,
        requires: &Labels,
    ) -> Result<bool, Error> {
        let workers = self.store.workers(Some(tenant)).await?;
        Ok(workers.iter().any(|present| {
            let about = &present.about;
            about.queues.iter().any(|served| **served == *queue)
                && about.labels.pulling(tenant).meet(requires)
        }))
    }
}

fn named((run, attempt): &(RunId, u32)) -> Held {
    Held { sequence: run.sequence(), attempt: *attempt }
}

/// The end of an attempt as somebody elsewhere tells it, by our clock.
pub(crate) fn finish(worker: WorkerId, leased: Leased, end: Option<End>, now: Timestamp) -> Finished {
    let Leased { run, job, .. } = leased;
    let output_max = job.spec.policies.retention.output_max as usize;
    let report = end.or_else(|| broken_off(&job)).map(|end| {
        // Clocks differ: an attempt neither begins before it was claimed nor ends after it was reported.
        let claimed_at = run.lease().map_or(now, |lease| lease.claimed_at);
        let started_at = end.started_at.unwrap_or(claimed_at).clamp(claimed_at.min(now), now);
        let finished_at = end.finished_at.unwrap_or(now).clamp(started_at, now);
        let output = end.output.map(|text| punctual_domain::attempt::Output::text(text, output_max));
        let lines = end.lines.into_iter().map(|text| Line { at: now, text }).collect();
        // It was stopped in the middle.
        let is_unknown = end.outcome == Outcome::TimedOut;
        Report { output, lines, is_unknown, ..report(end.outcome, end.error, started_at, finished_at) }
    });
    Finished { worker, run, job, report }
}

/// A worker elsewhere gives back what it has not finished, and may have begun it: where that matters, it is unknown.
fn broken_off(job: &Job) -> Option<End> {
    let error = Failure {
        code: UNKNOWN.into(),
        message: "the worker gave it back unfinished".into(),
        is_retryable: true,
        retry_after: None,
    };
    (job.spec.policies.on_unknown != OnUnknown::Retry).then(|| End {
        outcome: Outcome::Failed,
        error: Some(error),
        output: None,
        lines: Vec::new(),
        started_at: None,
        finished_at: None,
    })
}

fn report(outcome: Outcome, error: Option<Failure>, started_at: Timestamp, finished_at: Timestamp) -> Report {
    Report {
        outcome,
        started_at,
        finished_at,
        error,
        output: None,
        lines: Vec::new(),
        status: None,
        phases: Vec::new(),
        is_unknown: false,
    }
}
