//! Claims waiting runs for workers with room.
//!
//! Runs when a run may have become claimable, when room comes free while runs wait, and when the next retry is due.
//! Promise: runs are given in turns, as the store says ([`Store::claim`](punctual_store::Store::claim)), each leased to the
//! worker that gets it; one that is too late to start is ended instead; while runs wait that could not be claimed, nothing
//! that is fired overtakes them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, Version};
use punctual_domain::run::Run;
use punctual_domain::work::Leased;
use punctual_store::{Claim, Shards};

use crate::engine::Engine;
use crate::error::Error;
use crate::pass::{Duty, Next};

/// A claim takes at most so many, so that other writes get their turn.
const BATCH: usize = 1_000;

/// How often runs are looked for that other nodes left.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// Runs that wait for other workers are looked at again after this long, in case they are gone.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_millis(100);

impl Engine {
    /// Claims for the worker with most room. Says whether there may be more to claim.
    pub(crate) async fn claim(&self) -> Result<Claimed, Error> {
        let Some(room) = self.desk.take(BATCH) else {
            return Ok(Claimed::NoRoom);
        };
        let claim = Claim {
            worker: room.worker,
            queues: room.queues.to_vec(),
            labels: room.labels.clone(),
            shards: Shards::All,
            limit: room.attempts,
        };
        let claimed = self.claim_with(claim).await;
        match claimed {
            Ok((leased, late)) => {
                self.metrics.claimed.inc_by(leased.len() as u64);
                let count = leased.len();
                self.desk.give(&room, leased);
                // They are ended in any case; here they make way for the others.
                let ended = self.end_late(late).await?;
                let is_full = count + ended.len() == room.attempts;
                Ok(if is_full { Claimed::Full } else { Claimed::All })
            }
            Err(error) => {
                self.desk.give(&room, Vec::new());
                Err(error)
            }
        }
    }

    /// What was leased, and what was met that may not start any more.
    async fn claim_with(&self, claim: Claim) -> Result<(Vec<Leased>, Vec<Run>), Error> {
        let claimed = self.store.claim(claim, self.clock.now()).await?;
        let (runs, late): (Vec<Run>, Vec<Run>) = claimed.into_iter().partition(|run| run.lease().is_some());
        let versions: Vec<(JobId, Version)> = runs.iter().map(|run| (run.job, run.version)).collect();
        let jobs = self.bodies.of(&*self.store, &self.metrics, &versions).await?;
        let mut leased = Vec::with_capacity(runs.len());
        for (run, job) in runs.into_iter().zip(jobs) {
            match job {
                Some(job) => leased.push(Leased { run, job }),
                // Nobody lists it in a heartbeat, so it is reclaimed and fails as lost in the end.
                None => {
                    tracing::error!(run_id = %run.id(), job_id = %run.job, "a run's job is not in the store");
                }
            }
        }
        Ok((leased, late))
    }
}

/// What a claim came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// Everything that could be claimed.
    All,
    /// As much as there was room for.
    Full,
    /// Nothing: there was no room.
    NoRoom,
}

/// The duty.
pub(crate) struct Claiming {
    engine: Arc<Engine>,
    /// When the next run that waits for its time may be claimed.
    next_at: Option<Timestamp>,
    /// When the runs of other nodes are looked for again.
    look_at: Timestamp,
}

impl Claiming {
    /// Begins with a claim: what waits is not known.
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        engine.wakes.claimable();
        let look_at = engine.clock.now();
        Claiming { engine, next_at: None, look_at }
    }
}

#[async_trait]
impl Duty for Claiming {
    const NAME: &'static str = "claim";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        let (desk, wakes) = (&self.engine.desk, &self.engine.wakes);
        // What other nodes leave to be claimed is not told: it is looked for.
        if self.engine.store.is_shared() && now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            self.next_at = self.engine.store.next_available_at(&Shards::All).await?;
        }
        let is_time = self.next_at.is_some_and(|at| at <= now);
        // Room alone is no reason to ask the store.
        let may_wait = wakes.take_claimable() || desk.has_backlog.load(Ordering::Acquire) || is_time;
        if may_wait {
            desk.has_backlog.store(true, Ordering::Release);
            match self.engine.claim().await? {
                Claimed::Full => return Ok(Next::Now),
                Claimed::NoRoom => return Ok(Next::Woken),
                Claimed::All => {
                    desk.has_backlog.store(false, Ordering::Release);
                    desk.room_for_fire.notify_one();
                    let next_at = self.engine.store.next_available_at(&Shards::All).await;
                    // What waits is not known any more: the next pass claims again.
                    let next_at = next_at.inspect_err(|_| wakes.claimable())?;
                    // What may be claimed now and was not is for others.
                    self.next_at = next_at.map(|at| at.max(now + LOOK_AGAIN));
                }
            }
        }
        let look_at = self.engine.store.is_shared().then_some(self.look_at);
        Ok([self.next_at, look_at].into_iter().flatten().min().map_or(Next::Woken, Next::At))
    }
}
