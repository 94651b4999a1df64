//! The firing loop: from the horizon to leased or waiting runs.
//!
//! Runs all the time on the node that owns the shards. Promise: entries are fired in the order they are due, in
//! batches of which a few are under way, and while more are due than can be fired, lanes by their shares and tenants in
//! turns. What is [`crate::behind`] (overdue when the node started or when the store was there again after it was out of
//! reach, the rest of a crowd, what piled up) is fired beside, and never makes the others late; entries whose firing
//! failed are fired again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::ShardId;
use punctual_domain::run::RunState;
use punctual_domain::run::WaitingFor;
use punctual_domain::work::Leased;
use punctual_store::{Due, DuePage};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::behind::Behind;
use crate::engine::Engine;
use crate::error::Error;
use crate::fire::{Epochs, Fired, Room};
use crate::horizon::Horizon;
use crate::metrics::seconds_between;
use crate::pass::chain;

/// Entries of one batch: large enough that a commit is shared, small enough to be quick.
const BATCH: usize = 1_000;

/// Batches under way: one being planned, one being written, one behind it.
const BATCHES_MAX: usize = 3;

/// After a small batch the next one begins no sooner than this after it: a commit every millisecond writes the same pages
/// again and again.
const GATHER: Duration = Duration::from_millis(4);

/// Fewer entries than this are not worth gathering.
const GATHER_FROM: usize = 8;

/// Entries that are due wait for room while room keeps coming free, because a run that is born running costs two
/// writes instead of five. If none came free for this long, they are fired all the same, and their runs wait.
const FLOW: Duration = Duration::from_millis(250);

/// No entry waits longer than this for room: well below the minute after which a slot is taken for missed.
const PATIENCE: SignedDuration = SignedDuration::from_secs(20);

/// While runs wait, what is due waits for room as well. But a few entries at a time are fired all the same, in the turns of
/// tenants, and their runs wait: those who wait are claimed in turns, so whose runs are many holds up nobody's slots.
const A_FEW: usize = BATCH / 4;

/// So often, and no entry sooner than this after its time: runs that wait for a moment change nothing.
const A_FEW_EVERY: SignedDuration = SignedDuration::from_millis(100);

/// Everything is read anew at most this often: a store that fails again and again still gets something fired in between.
const ANEW_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// After a failed batch.
const PAUSE: SignedDuration = SignedDuration::from_millis(500);

/// Entries that were due this long before the start are not on time any more, whatever is done.
const OVERDUE: SignedDuration = SignedDuration::from_secs(1);

/// How often the densities of shards are counted.
const MEASURE_EVERY: SignedDuration = SignedDuration::from_secs(5);

/// The loop.
pub(crate) struct Firing {
    engine: Arc<Engine>,
    epochs: watch::Receiver<Arc<Epochs>>,
    /// What is owned, as the horizon was read for.
    owned: Arc<Epochs>,
    horizon: Horizon,
    behind: Behind,
    batches: JoinSet<Batch>,
    /// How many of the batches are of what is behind, and since when it waits for its first.
    behind_batches: usize,
    behind_since: Timestamp,
    /// The last batch was full: there is more than one can take at a time.
    is_busy: bool,
    /// When a few may be fired again although runs wait.
    few_at: Timestamp,
    reading: Reading,
    reading_behind: Reading,
    paused_until: Option<Timestamp>,
    /// What was fired since the densities of shards were counted, and when they are counted next.
    fired: HashMap<ShardId, u32>,
    measure_at: Timestamp,
    /// When everything is to be read anew, and when it last was.
    anew_at: Option<Timestamp>,
    began_at: Option<Timestamp>,
}

/// A density that was known, a quarter of the way to what was counted.
fn towards(known: u32, counted: u32) -> u32 {
    u32::try_from((u64::from(known) * 3 + u64::from(counted)) / 4).unwrap_or(u32::MAX)
}

/// A read under way.
type Reading = Option<JoinHandle<Result<DuePage, punctual_store::Error>>>;

/// A batch that was fired.
struct Batch {
    entries: Vec<Due>,
    is_behind: bool,
    result: Result<Fired, Error>,
}

impl Firing {
    /// A loop that has read nothing.
    pub(crate) fn new(engine: Arc<Engine>, mut epochs: watch::Receiver<Arc<Epochs>>) -> Self {
        let now = engine.clock.now();
        let is_shared = engine.store.is_shared();
        let owned = Arc::clone(&epochs.borrow_and_update());
        Firing {
            engine,
            epochs,
            owned,
            horizon: Horizon::new(now - OVERDUE, is_shared),
            behind: Behind::until(now - OVERDUE),
            batches: JoinSet::new(),
            behind_batches: 0,
            behind_since: now,
            is_busy: false,
            few_at: now,
            reading: None,
            reading_behind: None,
            paused_until: None,
            fired: HashMap::new(),
            measure_at: now + MEASURE_EVERY,
            anew_at: None,
            began_at: None,
        }
    }

    /// What a read brings that began before something was forgotten is not enough.
    fn stop_reading(&mut self) {
        if let Some(reading) = self.reading.take() {
            reading.abort();
            self.horizon.read_failed();
        }
    }

    /// Looks which shards are owned now. What came is read; what went is not fired.
    fn place(&mut self, now: Timestamp) {
        let owned = Arc::clone(&self.epochs.borrow_and_update());
        let (came, went) = (owned.count_missing_from(&self.owned), self.owned.count_missing_from(&owned));
        self.owned = owned;
        if came > 0 {
            self.begin_anew(now);
        } else if went > 0 {
            self.horizon.keep(&self.owned);
            // A read under way may bring more of what went.
            self.stop_reading();
        }
    }

    /// Takes what other nodes made due.
    fn take_news(&mut self) {
        if let Some(at) = self.engine.wakes.take_news() {
            self.stop_reading();
            self.horizon.read_again(at);
        }
    }

    /// Counts by shard what a minute brings, for [`crate::placement`]: what is known to come, or as much as was fired
    /// before, since what is fired often is due again before it can be known. A few seconds tell little about a minute, and
    /// less about a shard that has just come: what was known before counts for most of it, or shards would go to and fro.
    fn measure(&mut self, now: Timestamp) {
        if now < self.measure_at || !self.engine.store.is_shared() {
            return;
        }
        let since = now.duration_since(self.measure_at - MEASURE_EVERY).as_millis().max(1);
        self.measure_at = now + MEASURE_EVERY;
        let mut counted: BTreeMap<ShardId, u32> = self.horizon.densities(now).into_iter().collect();
        for (shard, fired) in self.fired.drain() {
            let minute = u32::try_from(i128::from(fired) * 60_000 / since).unwrap_or(u32::MAX);
            let density = counted.entry(shard).or_default();
            *density = minute.max(*density);
        }
        let known: BTreeMap<ShardId, u32> = self.engine.wakes.densities().into_iter().collect();
        let shards: BTreeSet<ShardId> = counted.keys().chain(known.keys()).copied().collect();
        let densities = shards.into_iter().filter(|shard| self.owned.contains(*shard)).map(|shard| {
            let counted = counted.get(&shard).copied().unwrap_or_default();
            (shard, known.get(&shard).map_or(counted, |known| towards(*known, counted)))
        });
        self.engine.wakes.set_densities(densities.collect());
    }

    /// Fires until told to stop; then lets what is under way finish.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let engine = Arc::clone(&self.engine);
        while !*stop.borrow() {
            // However often there is something to look at, others get their turn.
            tokio::task::consume_budget().await;
            let now = engine.clock.now();
            self.paused_until = self.paused_until.filter(|until| *until > now);
            if self.epochs.has_changed().unwrap_or_default() {
                self.place(now);
            }
            let offers = engine.wakes.take();
            self.horizon.take(offers.entries, &self.owned);
            if offers.is_incomplete {
                self.look_anew(now);
            }
            self.take_news();
            self.measure(now);
            if self.paused_until.is_none() && !self.owned.are_over() {
                if self.anew_at.is_some_and(|at| at <= now) {
                    self.begin_anew(now);
                }
                self.read_ahead(now);
                self.read_behind(now);
                self.fire_due(now);
                self.fire_behind(now);
                self.set_aside(now);
            }
            engine.metrics.wheel.set(self.horizon.len() as i64);
            let overdue = self.horizon.next_at().map_or(0.0, |at| seconds_between(at, now));
            engine.metrics.overdue_seconds.set(overdue as i64);
            engine.wakes.is_behind.store(overdue > 1.0, Ordering::Relaxed);
            engine.metrics.overdue_jobs.set((self.horizon.overdue(now) + self.behind.len()) as i64);
            let wait = engine.clock.sleep_until(self.wake_at(now));
            tokio::select! {
                () = wait => {}
                () = engine.wakes.due.notified() => {}
                () = engine.desk.room_for_fire.notified() => {}
                Some(batch) = self.batches.join_next() => self.finish(batch, now),
                page = join(&mut self.reading) => self.absorb(page, now),
                page = join(&mut self.reading_behind) => self.absorb_behind(page, now),
                _ = self.epochs.changed() => self.place(now),
                _ = stop.changed() => {}
            }
        }
        while let Some(batch) = self.batches.join_next().await {
            self.finish(batch, engine.clock.now());
        }
        tracing::debug!("firing has stopped");
    }

    /// If what is due now cannot be read before what is older is fired, that is set aside.
    fn set_aside(&mut self, now: Timestamp) {
        if !self.horizon.is_clogged(now - OVERDUE) {
            return;
        }
        if self.behind.has_room() {
            self.stop_reading();
            self.horizon.set_aside(now - OVERDUE, &mut self.behind);
        } else {
            // It is all in the store.
            self.look_anew(now);
        }
    }

    /// Everything is to be read anew, as soon as may be.
    fn look_anew(&mut self, now: Timestamp) {
        let soonest = self.began_at.map_or(now, |at| at + ANEW_EVERY);
        self.anew_at.get_or_insert(soonest.max(now));
    }

    /// Forgets what was read: what is due is known to the store alone. What was due before now is overdue.
    fn begin_anew(&mut self, now: Timestamp) {
        self.stop_reading();
        self.horizon = Horizon::new(now - OVERDUE, self.engine.store.is_shared());
        if let Some(reading) = self.reading_behind.take() {
            reading.abort();
        }
        (self.behind, self.behind_since) = (Behind::until(now - OVERDUE), now);
        (self.anew_at, self.began_at) = (None, Some(now));
    }

    /// When to look again if nothing happens before.
    fn wake_at(&self, now: Timestamp) -> Timestamp {
        if let Some(until) = self.paused_until {
            return until;
        }
        if self.owned.are_over() {
            // Nothing is read or fired until the lease is renewed, which is told.
            return now + PAUSE;
        }
        // What waits for room: look whether there still is a flow.
        let again = now + SignedDuration::from_millis(20);
        let is_full = self.batches.len() - self.behind_batches >= self.batches_max();
        let fire_at =
            self.horizon.next_at().filter(|_| !is_full).map(|at| if at <= now { again } else { at });
        let behind_at = (self.behind.len() > 0 && self.behind_batches == 0).then_some(again);
        let load_at = self.horizon.load_at().filter(|_| self.reading.is_none());
        // Time may be set; nothing is read when looking.
        let at_last = now + SignedDuration::from_hours(1);
        [fire_at, behind_at, load_at, self.anew_at].into_iter().flatten().fold(at_last, Timestamp::min)
    }

    fn read_ahead(&mut self, now: Timestamp) {
        if self.reading.is_some() || self.horizon.load_at().is_none_or(|at| at > now) {
            return;
        }
        // How far the read will reach is not known before it is done.
        self.engine.wakes.set_reach(i64::MAX);
        let shards = self.owned.shards(self.engine.store.shard_count());
        let (store, query) = (Arc::clone(&self.engine.store), self.horizon.query(shards, now));
        self.reading = Some(tokio::spawn(async move { store.due(query).await }));
    }

    fn absorb(&mut self, page: Result<DuePage, punctual_store::Error>, now: Timestamp) {
        self.reading = None;
        match page {
            Ok(page) => {
                let near = self.horizon.absorb(page, &mut self.behind, now);
                self.engine.wakes.set_reach(self.horizon.reach());
                self.prefetch(near);
            }
            Err(error) => {
                self.horizon.read_failed();
                self.pause("read ahead", &error, now);
            }
        }
    }

    /// Reads the bodies of what is due soon, so that firing finds them in memory.
    fn prefetch(&self, entries: Vec<Due>) {
        if entries.is_empty() {
            return;
        }
        let engine = Arc::clone(&self.engine);
        tokio::spawn(async move {
            for entries in entries.chunks(BATCH) {
                let versions: Vec<_> = entries.iter().map(|entry| (entry.key.job, entry.version)).collect();
                // Firing reads what is missing, and says what is wrong.
                let _ = engine.bodies.of(&*engine.store, &engine.metrics, &versions).await;
            }
        });
    }

    fn fire_due(&mut self, now: Timestamp) {
        while self.batches.len() - self.behind_batches < self.batches_max() {
            let Some(oldest) = self.horizon.next_at().filter(|at| *at <= now) else { return };
            let Some(room) = self.room(BATCH, oldest) else { return self.fire_a_few(oldest, now) };
            let limit = room.as_ref().map_or(BATCH, |room| room.attempts);
            let entries = self.horizon.pop_due(now, limit);
            self.is_busy = entries.len() >= limit;
            self.spawn(entries, room, false);
        }
    }

    /// A few of what would wait for room behind runs that wait.
    fn fire_a_few(&mut self, oldest: Timestamp, now: Timestamp) {
        let has_backlog = self.engine.desk.has_backlog.load(Ordering::Acquire);
        if has_backlog && now >= self.few_at && now.duration_since(oldest) >= A_FEW_EVERY {
            self.few_at = now + A_FEW_EVERY;
            let entries = self.horizon.pop_due(now, A_FEW);
            self.spawn(entries, None, false);
        }
    }

    /// While batches are small, one at a time: what comes due meanwhile shares the next commit.
    fn batches_max(&self) -> usize {
        if self.is_busy { BATCHES_MAX } else { 1 }
    }

    /// Room for a batch whose oldest entry was due then: none if the batch is to wait for it; an empty one if its
    /// runs are to wait.
    fn room(&self, wanted: usize, oldest: Timestamp) -> Option<Option<Room>> {
        let desk = &self.engine.desk;
        let has_backlog = desk.has_backlog.load(Ordering::Acquire);
        if !has_backlog && let Some(room) = desk.take(wanted) {
            return Some(Some(room));
        }
        let is_flowing = desk.last_freed().is_some_and(|at| at.elapsed() < FLOW);
        let is_patient = self.engine.clock.now().duration_since(oldest) < PATIENCE;
        // Behind runs that can wait there is no waiting: born pending, slots are claimed before them.
        let is_ahead = || has_backlog && self.engine.store.figures().waiting.is_batch_only();
        (!is_flowing || !is_patient || is_ahead()).then_some(None)
    }

    /// Reads more of what is behind, unless what is due now is being read: first things first.
    fn read_behind(&mut self, now: Timestamp) {
        if self.reading.is_some() && self.horizon.reach() < now.as_millisecond() {
            return;
        }
        let shards = self.owned.shards(self.engine.store.shard_count());
        if let Some(query) = self.behind.query(shards, now) {
            let store = Arc::clone(&self.engine.store);
            self.reading_behind = Some(tokio::spawn(async move { store.due(query).await }));
        }
    }

    fn absorb_behind(&mut self, page: Result<DuePage, punctual_store::Error>, now: Timestamp) {
        self.reading_behind = None;
        match page {
            Ok(page) => {
                self.prefetch(page.entries.clone());
                self.behind.absorb(page);
            }
            Err(error) => {
                self.behind.read_failed();
                self.pause("read what is overdue", &error, now);
            }
        }
    }

    /// What is behind gets what is left: while many slots come up that can be on time, one small batch at a time.
    fn fire_behind(&mut self, now: Timestamp) {
        let soon = now + SignedDuration::from_secs(1);
        let (batches, limit) = match self.horizon.next_at() {
            Some(next) if next > soon => (BATCHES_MAX, BATCH),
            None => (BATCHES_MAX, BATCH),
            Some(_) if self.horizon.is_light(now, soon) => (BATCHES_MAX - 1, BATCH / 2),
            Some(_) => (1, BATCH / 4),
        };
        while self.behind.len() > 0 && self.behind_batches < batches {
            // Like the others, they wait for room as long as room keeps coming free.
            let Some(room) = self.room(limit, self.behind_since) else { return };
            let limit = room.as_ref().map_or(limit, |room| room.attempts);
            let entries = self.behind.draw(limit);
            self.behind_since = now;
            self.spawn(entries, room, true);
        }
    }

    fn spawn(&mut self, entries: Vec<Due>, room: Option<Room>, is_behind: bool) {
        if is_behind {
            self.behind_batches += 1;
        }
        for entry in &entries {
            *self.fired.entry(entry.key.job.shard()).or_default() += 1;
        }
        let engine = Arc::clone(&self.engine);
        let epochs = Arc::clone(&self.owned);
        self.batches.spawn(async move {
            let begun = Instant::now();
            let mut result = engine.fire(entries.clone(), &epochs, room.clone()).await;
            engine.metrics.fire_time.observe(begun.elapsed().as_secs_f64());
            engine.metrics.fire_batch.observe(entries.len() as f64);
            match &mut result {
                Ok(fired) => engine.hand_over(fired, room).await,
                Err(_) => {
                    if let Some(room) = &room {
                        engine.desk.give(room, Vec::new());
                    }
                }
            }
            // Ten entries every millisecond are better fired fifty at a time.
            if !is_behind && (GATHER_FROM..BATCH).contains(&entries.len()) {
                tokio::time::sleep(GATHER.saturating_sub(begun.elapsed())).await;
            }
            Batch { entries, is_behind, result }
        });
    }

    fn finish(&mut self, batch: Result<Batch, tokio::task::JoinError>, now: Timestamp) {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                // Its entries are still in the store: reading everything anew finds them.
                tracing::error!(%error, "a batch of firings broke off");
                self.behind_batches = 0;
                self.begin_anew(now);
                return;
            }
        };
        if batch.is_behind {
            self.behind_batches = self.behind_batches.saturating_sub(1);
        }
        match batch.result {
            Ok(fired) => tracing::trace!(
                entries = batch.entries.len(),
                missed = fired.missed,
                stale = fired.stale,
                "fired"
            ),
            Err(error) => {
                self.pause("fire", &error, now);
            }
        }
    }

    /// Waits a moment, and then reads everything anew: what was not done is still in the store.
    fn pause(&mut self, what: &str, error: &(dyn std::error::Error + 'static), now: Timestamp) {
        tracing::warn!(error = %chain(error), "cannot {what}; it is tried again");
        self.look_anew(now);
        self.paused_until = Some(now + PAUSE);
    }
}

impl Engine {
    /// Gives leased runs to their worker, and tells the loops of the rest.
    async fn hand_over(&self, fired: &mut Fired, room: Option<Room>) {
        self.wakes.offer(fired.next.iter().copied());
        self.metrics.fired.inc_by(fired.runs.len() as u64);
        self.metrics.missed.inc_by(fired.missed);
        self.metrics.throttled.inc_by(fired.throttled);
        self.metrics.stale.inc_by(fired.stale as u64);
        let now = self.clock.now();
        let mut leased = Vec::with_capacity(fired.runs.len());
        let mut is_claimable = false;
        for (run, job) in fired.runs.drain(..) {
            self.note_limited(&run);
            self.metrics.fire_lateness.observe(seconds_between(run.available_at, now));
            match run.state {
                RunState::Running(lease) if room.as_ref().is_some_and(|room| room.worker == lease.worker) => {
                    leased.push(Leased { run, job, checkpoint: None });
                }
                // What is pulled has been given.
                RunState::Running(_) => {}
                RunState::Pending(WaitingFor::Time | WaitingFor::Capacity | WaitingFor::Retry) => {
                    is_claimable = true;
                }
                // The end of the one before says when, or the line of its limit.
                RunState::Pending(WaitingFor::EarlierRun | WaitingFor::Limit | WaitingFor::Answer) => {}
                _ => {}
            }
        }
        if is_claimable {
            self.wakes.claimable();
        }
        if fired.operations > 0 {
            self.wakes.operations.notify_one();
        }
        if let Some(room) = room {
            // A breaker may have been set since these were planned.
            let mut sorted = self.sort_out(leased, None);
            let given = std::mem::take(&mut sorted.given);
            self.under_way.begin(room.worker, &given, now);
            self.desk.give(&room, given);
            self.put_back(room.worker, sorted).await;
        }
    }
}

/// Waits for a read, if there is one.
async fn join(reading: &mut Reading) -> Result<DuePage, punctual_store::Error> {
    match reading {
        Some(handle) => handle.await.unwrap_or_else(|error| {
            Err(punctual_store::Error::Unavailable { reason: format!("a read broke off: {error}") })
        }),
        None => std::future::pending().await,
    }
}
