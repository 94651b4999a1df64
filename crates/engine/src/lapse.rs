//! Ends runs whose next attempt did not start in time.
//!
//! Runs when a claim meets one, and on the node that owns the shard when the time of one is over, whether anybody claims or
//! not. Promise: such a run never starts; it is missed if it has not started before, and a dead letter if it has; what the end
//! of a run brings, this one brings too.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, Version};
use punctual_domain::lifecycle::Event;
use punctual_domain::run::{Limit, Run};
use punctual_store::Lapse;
use tokio::sync::watch;

use crate::engine::Engine;
use crate::error::Error;
use crate::fire::Epochs;
use crate::messages::{Last, have_limits};
use crate::pass::{Duty, Next};

/// Runs of one pass: they share a commit, which others wait for.
const BATCH: usize = 1_000;

/// A run that was born since the last look may lapse sooner than those that were known then.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lapsed {
    /// The runs as they ended.
    pub runs: Vec<Run>,
    /// When the next one lapses, as far as this pass knows.
    pub next_at: Option<Timestamp>,
}

impl Engine {
    /// Ends what lapsed in these shards. Call again while it ends any.
    pub async fn lapse(&self, epochs: &Epochs) -> Result<Lapsed, Error> {
        let shards = epochs.shards(self.store.shard_count());
        let found = self.store.lapsed(&shards, self.clock.now(), BATCH).await?;
        Ok(Lapsed { runs: self.end_late(found.runs).await?, next_at: found.next_at })
    }

    /// Ends runs that may not start any more, each for itself. One that meets a change of its job is left to the next pass.
    pub(crate) async fn end_late(&self, late: Vec<Run>) -> Result<Vec<Run>, Error> {
        if late.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.clock.now();
        let versions: Vec<(JobId, Version)> = late.iter().map(|run| (run.job, run.version)).collect();
        let jobs = self.bodies.of(&*self.store, &self.metrics, &versions).await?;
        let mut lapses = Vec::with_capacity(late.len());
        for (run, job) in late.iter().zip(&jobs) {
            let (mut successor, mut messages) = (None, Vec::new());
            if let Some(job) = job {
                successor = self.successor_of(run.job, job, now).await?;
                let event = Event::Lapsed { at: now };
                messages = self.end_messages(job, run, event, Last::Stored, now).await?;
            }
            lapses.push(Lapse { run: run.id(), successor, messages });
        }
        let are_limited = have_limits(lapses.iter().flat_map(|lapse| &lapse.messages));
        let dues: Vec<_> = lapses.iter().map(|lapse| lapse.successor.and_then(|after| after.due)).collect();
        let mut ended = Vec::with_capacity(lapses.len());
        let answers = self.heard(self.store.lapse(lapses, now)).await?;
        for ((answer, due), job) in answers.into_iter().zip(dues).zip(jobs) {
            let Ok(run) = answer else { continue };
            if let Some(job) = job {
                self.notice_lapsed(&job, &run);
            }
            self.wakes.offer(due);
            self.metrics.lapsed(&run);
            tell(&run);
            ended.push(run);
        }
        if !ended.is_empty() {
            self.told(are_limited); // Those that waited for them may go on, too.
        }
        Ok(ended)
    }
}

/// Says in the log what was not done, and why.
fn tell(run: &Run) {
    tracing::info!(
        job_id = %run.job,
        run_id = %run.id(),
        scheduled_for = %run.scheduled_for,
        correlation_id = run.correlation_id.as_deref(),
        attempts = run.attempt,
        state = run.state.as_str(),
        reason = run.reason.map(Limit::as_str),
        "lapsed"
    );
}

/// The duty.
pub(crate) struct Lapsing {
    pub(crate) engine: Arc<Engine>,
    pub(crate) epochs: watch::Receiver<Arc<Epochs>>,
}

#[async_trait]
impl Duty for Lapsing {
    const NAME: &'static str = "lapse";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        let epochs = Arc::clone(&self.epochs.borrow());
        if epochs.len() == 0 {
            return Ok(Next::At(now + LOOK_EVERY));
        }
        let lapsed = self.engine.lapse(&epochs).await?;
        // Those that could not be ended are found again, but not at once.
        if !lapsed.runs.is_empty() {
            return Ok(Next::Now);
        }
        let soonest = now + SignedDuration::from_millis(1);
        let at = lapsed.next_at.map_or(now + LOOK_EVERY, |at| {
            // At that time it may still start.
            let after = at.checked_add(SignedDuration::from_millis(1)).unwrap_or(at);
            after.clamp(soonest, now + LOOK_EVERY)
        });
        Ok(Next::At(at))
    }
}
