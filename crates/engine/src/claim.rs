//! Claims waiting runs for workers with room.
//!
//! Runs when a run may have become claimable, when room comes free while runs wait, and when the next retry is due.
//! Promise: runs are given in turns, as the store says ([`Store::claim`](punctual_store::Store::claim)), each leased to the
//! worker that gets it, with what an earlier attempt left it to go on with; one that is too late to start is ended instead; while runs wait that could not be claimed, nothing
//! that is fired overtakes them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, RunId, Version};
use punctual_domain::run::Run;
use punctual_domain::work::Leased;
use punctual_store::{Claim, Shards};

use crate::engine::Engine;
use crate::error::Error;
use crate::fire::Room;
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
                let count = leased.len();
                self.give_own(&room, leased).await;
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

    /// Gives what was claimed to a worker of this node.
    pub(crate) async fn give_own(&self, room: &Room, leased: Vec<Leased>) {
        // What is for others is given to them first; what meets a breaker gets in its line beside.
        let mut sorted = self.sort_out(leased, Some(room.attempts));
        let given = std::mem::take(&mut sorted.given);
        self.metrics.claimed.inc_by(given.len() as u64);
        self.under_way.begin(room.worker, &given, self.clock.now());
        self.desk.give(room, given);
        self.put_back(room.worker, sorted).await;
    }

    /// Claims for those who pull, as often as there are seats at most: others have their turn. Says whether there may be more to claim.
    async fn claim_pulled(&self) -> Result<bool, Error> {
        for _ in 0..self.desk.count_pulling() {
            let Some(taken) = self.desk.take_pulling(BATCH) else { return Ok(false) };
            let room = &taken.room;
            let claim = Claim {
                worker: room.worker,
                queues: room.queues.to_vec(),
                labels: room.labels.clone(),
                shards: Shards::All,
                limit: room.attempts,
            };
            let (leased, late) = self.claim_with(claim).await?;
            if leased.len() + late.len() < room.attempts {
                self.desk.caught_up(room);
            }
            let worker = room.worker;
            let mut sorted = self.sort_out(leased, Some(room.attempts));
            let given = std::mem::take(&mut sorted.given);
            self.metrics.claimed.inc_by(given.len() as u64);
            taken.give(given);
            self.put_back(worker, sorted).await;
            self.end_late(late).await?;
        }
        Ok(self.desk.is_behind())
    }

    /// What was leased, and what was met that may not start any more.
    pub(crate) async fn claim_with(&self, claim: Claim) -> Result<(Vec<Leased>, Vec<Run>), Error> {
        let claimed = self.store.claim(claim, self.clock.now()).await?;
        let (runs, late): (Vec<Run>, Vec<Run>) = claimed.into_iter().partition(|run| run.lease().is_some());
        let versions: Vec<(JobId, Version)> = runs.iter().map(|run| (run.job, run.version)).collect();
        let jobs = self.bodies.of(&*self.store, &self.metrics, &versions).await?;
        let again: Vec<RunId> = runs.iter().filter(|run| run.attempt > 1).map(Run::id).collect();
        let mut checkpoints = match again.is_empty() {
            true => Vec::new(), // The usual case asks nothing.
            false => self.store.checkpoints(&again).await?,
        }
        .into_iter();
        let mut leased = Vec::with_capacity(runs.len());
        for (run, job) in runs.into_iter().zip(jobs) {
            let checkpoint = if run.attempt > 1 { checkpoints.next().flatten() } else { None };
            match job {
                Some(job) => leased.push(Leased { run, job, checkpoint }),
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
    /// When it is looked again for which workers parts wait.
    address_at: Timestamp,
    /// Nobody is taken to be gone before this: who lives may be known only when everybody has had a lease's time to say so.
    known_at: Timestamp,
}

impl Claiming {
    /// Begins with a claim: what waits is not known.
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        engine.wakes.claimable();
        let look_at = engine.clock.now();
        let lease = SignedDuration::try_from(engine.lease()).unwrap_or(SignedDuration::MAX);
        let known_at = look_at.saturating_add(lease).unwrap_or(Timestamp::MAX);
        Claiming { engine, next_at: None, look_at, address_at: look_at, known_at }
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
        let is_news = wakes.take_claimable() || is_time;
        let may_wait = is_news || desk.has_backlog.load(Ordering::Acquire);
        if is_news {
            desk.fall_behind();
        }
        if may_wait {
            desk.has_backlog.store(true, Ordering::Release);
        }
        if now >= self.address_at {
            let looked = self.engine.look_for_addressed(now, now > self.known_at).await;
            self.address_at = looked.inspect_err(|_| wakes.claimable())?;
        }
        self.engine.claim_addressed().await.inspect_err(|_| wakes.claimable())?;
        // Others do not wait for what is tried alone, whatever is in its way.
        let alone = self.engine.claim_alone().await.inspect_err(|_| wakes.claimable());
        // What waits is not known any more if it fails: the next pass claims again.
        let pulled = self.engine.claim_pulled().await.inspect_err(|_| wakes.claimable());
        if may_wait {
            match self.engine.claim().await? {
                Claimed::Full => return Ok(Next::Now),
                // What is for a worker that is gone is ended all the same.
                Claimed::NoRoom if !desk.has_pulling() => return Ok(Next::At(self.address_at)),
                Claimed::NoRoom => {}
                Claimed::All => {
                    desk.has_backlog.store(false, Ordering::Release);
                    desk.room_for_fire.notify_one();
                }
            }
            let next_at = self.engine.store.next_available_at(&Shards::All).await;
            let next_at = next_at.inspect_err(|_| wakes.claimable())?;
            // What may be claimed now and was not is for others.
            self.next_at = next_at.map(|at| at.max(now + LOOK_AGAIN));
        }
        alone?;
        if pulled? {
            return Ok(Next::Now);
        }
        let look_at = self.engine.store.is_shared().then_some(self.look_at);
        // While somebody is addressed, or may be.
        let is_looked_for = desk.has_pulling() || !self.engine.addressed.is_empty();
        let address_at = is_looked_for.then_some(self.address_at);
        Ok([self.next_at, look_at, address_at].into_iter().flatten().min().map_or(Next::Woken, Next::At))
    }
}
