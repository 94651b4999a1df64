//! Fires due jobs: turns each due slot into a run, or into an account of why not.
//!
//! Runs on the node that owns the shard, when the earliest slot arrives or when woken. Promise: one run per
//! (job, slot), however many nodes race, because the store accepts a firing only from the shard's current
//! epoch and only once per slot; a slot reached too late is decided by the job's catch-up policy and its start window. Where that wants
//! several runs, and where the job is a batch, they are owed by an operation that is started in the same commit. Where as many runs wait as may, a slot is run at once
//! or accounted for. The entry of a paused job is the
//! end of its pause: it resumes the job.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{Epoch, JobId, OperationId, ShardId, Version, WorkerId};
use punctual_domain::job::{Job, Spec};
use punctual_domain::labels::Labels;
use punctual_domain::ledger::{Fate, LedgerEntry};
use punctual_domain::operation::{self, Operation};
use punctual_domain::parts::{self, Part};
use punctual_domain::policy::catch_up::{self, CatchUp, Missed};
use punctual_domain::policy::limit::Limits;
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::policy::timeouts;
use punctual_domain::run::{Cause, Run};
use punctual_domain::work::Leased;
use punctual_schedule::every::Origin;
use punctual_schedule::{Kind, Progress, Timetable};
use punctual_store::{Birth, Due, Firing, Otherwise, Refused, Shards, Stored, is_full};

use crate::backlog::Intake;
use crate::batches;
use crate::desk::Pulled;
use crate::engine::Engine;
use crate::error::Error;
use crate::parts::{together, unheard};
use crate::register::{due, end_of_pause};

/// Under which epochs this node owns its shards, and until when it may fire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    held: HashMap<ShardId, Epoch>,
    until: Option<Instant>,
}

impl Epochs {
    /// The shards that were acquired.
    pub fn new(acquired: impl IntoIterator<Item = (ShardId, Epoch)>) -> Self {
        Epochs { held: acquired.into_iter().collect(), until: None }
    }

    /// The shards that were acquired until a time.
    pub(crate) fn until(acquired: impl IntoIterator<Item = (ShardId, Epoch)>, until: Instant) -> Self {
        Epochs { until: Some(until), ..Epochs::new(acquired) }
    }

    /// The same without some.
    pub(crate) fn without(&self, shards: impl IntoIterator<Item = ShardId>) -> Self {
        let mut rest = self.clone();
        for shard in shards {
            rest.held.remove(&shard);
        }
        rest
    }

    /// Whether they may have been taken by another.
    pub(crate) fn are_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether a shard is among them.
    pub(crate) fn contains(&self, shard: ShardId) -> bool {
        self.held.contains_key(&shard)
    }

    /// How many of them the others do not have, or have under another epoch.
    pub(crate) fn count_missing_from(&self, others: &Epochs) -> usize {
        self.held.iter().filter(|(shard, epoch)| others.held.get(shard) != Some(epoch)).count()
    }

    /// The shards, of so many that there are.
    pub(crate) fn shards(&self, count: u16) -> Shards {
        if self.held.len() == usize::from(count) {
            return Shards::All;
        }
        let mut shards: Vec<ShardId> = self.held.keys().copied().collect();
        shards.sort_unstable();
        Shards::Some(shards)
    }

    pub(crate) fn of(&self, shard: ShardId) -> Epoch {
        // Epoch 0 is nobody's: the store refuses it.
        self.held.get(&shard).copied().unwrap_or_default()
    }
}

/// Room on this node's own worker: so many runs may be born running.
#[derive(Clone, Debug)]
pub struct Room {
    /// The worker.
    pub worker: WorkerId,
    /// The queues it serves; empty for all.
    pub queues: Arc<[Arc<str>]>,
    /// What it has, for jobs that require it.
    pub labels: Labels,
    /// How many attempts it can take.
    pub attempts: usize,
}

impl Room {
    /// Takes the room for one attempt of a job, if the worker may execute it.
    fn take(&mut self, job: &Spec) -> Option<WorkerId> {
        let serves = self.queues.is_empty() || self.queues.contains(&job.queue);
        if !serves || !self.labels.meet(&job.requires) || self.attempts == 0 {
            return None;
        }
        self.attempts -= 1;
        Some(self.worker)
    }
}

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fired {
    /// The new runs, with their jobs. Those with a lease of the room's worker are this node's to execute; those of others were given to
    /// them.
    pub runs: Vec<(Run, Arc<Job>)>,
    /// Slots that did not become runs.
    pub missed: u64,
    /// Those of them that might not wait.
    pub throttled: u64,
    /// Operations that were started, to catch up with old slots.
    pub operations: usize,
    /// Entries that were fired before or belong to an older version.
    pub stale: usize,
    /// The entries that follow.
    pub next: Vec<Due>,
}

impl Engine {
    /// Fires due entries.
    pub async fn fire(
        &self,
        entries: Vec<Due>,
        epochs: &Epochs,
        mut room: Option<Room>,
    ) -> Result<Fired, Error> {
        let now = self.clock.now();
        let jobs = self.bodies_of(&entries).await?;
        if let Some(room) = &room {
            let jobs: Vec<&Job> = jobs.iter().flatten().map(|stored| &*stored.job).collect();
            self.guess_for(&jobs, room.attempts).await;
        }
        self.learn(self.unread(jobs.iter().flatten().map(|stored| &*stored.job))).await?;
        let audience = self.audience(jobs.iter().flatten().map(|stored| &*stored.job)).await?;
        let mut firings = Vec::with_capacity(entries.len());
        let mut bodies = Vec::with_capacity(entries.len());
        let mut pauses = Vec::new();
        let mut intake = self.intake();
        let mut pulled = Pulled::new(&self.desk);
        for (entry, stored) in entries.into_iter().zip(jobs) {
            let epoch = epochs.of(entry.key.job.shard());
            if stored.as_ref().is_some_and(|stored| ends_pause(&stored.job, &entry)) {
                pauses.push(entry);
                continue;
            }
            let current = match stored {
                Some(stored) if self.is_current(&stored, &entry)? => Some(stored),
                _ => None,
            };
            let firing = match &current {
                Some(stored) => {
                    let workers = audience.of(&stored.job);
                    let parts = parts::of(stored.job.spec.parts, 0, &workers);
                    self.addressed.add(parts.iter().filter_map(|part| part.worker));
                    self.plan(stored, entry, epoch, now, (&parts, &mut room, &mut pulled), &mut intake)?
                }
                // Nothing is born of a stale entry; firing it drops it.
                None => empty(entry, epoch),
            };
            firings.push(firing);
            bodies.push(current.map(|stored| stored.job));
        }
        for entry in self.end_pauses(pauses, now).await? {
            firings.push(empty(entry, epochs.of(entry.key.job.shard())));
            bodies.push(None);
        }
        let plans: Vec<Planned> = firings.iter().map(Planned::from).collect();
        let answers = self.heard(self.store.fire(firings, now)).await?;
        let mut fired = Fired::default();
        for ((answer, job), planned) in answers.into_iter().zip(bodies).zip(plans) {
            match (answer, job) {
                (Ok(runs), Some(job)) => {
                    let skipped = planned.births - runs.len();
                    fired.throttled += skipped.min(planned.full) as u64;
                    fired.runs.extend(runs.into_iter().map(|run| (run, Arc::clone(&job))));
                    self.notice_missed(&job, planned.missed, now);
                    fired.missed += planned.missed + skipped as u64;
                    fired.operations += usize::from(planned.has_operation);
                    // Being told of one too many does no harm.
                    fired.next.extend(planned.next.into_iter().flatten());
                }
                (Err(Refused::NotDue | Refused::StaleEpoch), _) | (Ok(_), None) => fired.stale += 1,
                (Err(refused), _) => {
                    let reason = format!("a firing was refused: {refused}");
                    return Err(Error::Store(punctual_store::Error::Unavailable { reason }));
                }
            }
        }
        let leased = fired.runs.iter().filter(|(run, _)| pulled.is_for(run));
        let leased = leased
            .map(|(run, job)| Leased { run: run.clone(), job: Arc::clone(job), checkpoint: None })
            .collect();
        pulled.give(leased);
        Ok(fired)
    }

    /// Whether an entry is what its job waits for.
    fn is_current(&self, stored: &Stored, entry: &Due) -> Result<bool, Error> {
        if !stored.job.is_active() {
            return Ok(false);
        }
        // A job that counts from completion may end more runs than the schedule's own, and each brings an entry: that of
        // the last counts.
        let may_be_old = counts_from_completion(&stored.job);
        Ok(!(may_be_old && self.timetables.of(&stored.job)?.is_superseded(entry.slot, stored.progress)))
    }

    /// The jobs of due entries, in the versions these were made for, and what has been counted of them.
    async fn bodies_of(&self, entries: &[Due]) -> Result<Vec<Option<Stored>>, Error> {
        let versions: Vec<(JobId, Version)> =
            entries.iter().map(|entry| (entry.key.job, entry.version)).collect();
        let jobs = self.bodies.of(&*self.store, &self.metrics, &versions).await?;
        let mut all: Vec<Option<Stored>> = jobs
            .into_iter()
            .map(|job| job.map(|job| Stored { job, progress: Progress::default() }))
            .collect();
        // What is counted changes with every fire, so it is read anew for the few that count.
        let counting: Vec<usize> = (0..all.len())
            .filter(|index| all[*index].as_ref().is_some_and(|stored| counts(&stored.job)))
            .collect();
        let ids: Vec<JobId> = counting.iter().map(|index| versions[*index].0).collect();
        if !ids.is_empty() {
            for (index, stored) in counting.into_iter().zip(self.store.jobs(&ids).await?) {
                all[index] = stored.filter(|stored| stored.job.version == versions[index].1);
            }
        }
        Ok(all)
    }

    fn plan(
        &self,
        stored: &Stored,
        entry: Due,
        epoch: Epoch,
        now: Timestamp,
        (parts, room, pulled): (&[Part], &mut Option<Room>, &mut Pulled<'_>),
        intake: &mut Intake<'_>,
    ) -> Result<Firing, Error> {
        let job = &stored.job;
        let timetable = self.timetables.of(job)?;
        if self.is_excluded(job, &timetable, &entry) {
            return Ok(self.skip_excluded(stored, &timetable, entry, epoch, now));
        }
        // Lateness counts from when the entry was to be fired: the slot and its spread.
        let spread = entry.key.at.duration_since(entry.slot);
        let mut plan = catch_up::plan(job.spec.policies.catch_up, &timetable, entry.slot, now - spread);
        let late = timeouts::take_late(&job.spec.policies.timeouts, &mut plan.run, spread, now);
        // Without anybody whom it could reach it is no fire.
        let unheard = match parts.is_empty() {
            true => unheard(job, &mut plan.run, now),
            false => None,
        };
        let following = plan.next;
        let progress = progress(stored, &mut plan);
        let from_completion = counts_from_completion(job);
        if from_completion {
            // The end of the run brings the next slot. Without a run it is as if one had ended now.
            let is_left = plan.run.is_empty();
            plan.next = is_left.then(|| slot_after_completion(stored, &timetable, now)).flatten();
        }
        // A period from completion is over when its last run has ended.
        let is_over = plan.next.is_none() && (!from_completion || plan.run.is_empty());
        let fired = progress.map_or(stored.progress.fired, |progress| progress.fired);
        let is_over = is_over && !job.waits_for_calendars(fired, now);
        let operation = match &job.spec.batch {
            // It makes the runs, item by item.
            Some(batch) => plan.run.first().map(|slot| batches::operation(job, batch, *slot, now)),
            None => self.catch_up(job, &plan.run, parts.len(), now),
        };
        let limits = self.limits_of(job);
        // Nobody keeps room for what is not born.
        let is_active = self.tenancies.is_active(job.tenant);
        let mut births: Vec<Birth> = match &operation {
            Some(_) => Vec::new(),
            None => {
                let starts_at = |slot: Timestamp| slot.checked_add(spread).unwrap_or(slot);
                let mut births = Vec::with_capacity(plan.run.len() * parts.len());
                for (slot, part) in
                    plan.run.iter().flat_map(|slot| parts.iter().map(move |part| (slot, part)))
                {
                    // What is for one worker alone waits until it asks.
                    let mut nobody = None;
                    let room = if part.worker.is_none() && is_active { &mut *room } else { &mut nobody };
                    let mut birth = birth(job, *slot, starts_at(*slot), room, now);
                    if birth.available_at <= now
                        && birth.claimed_by.is_none()
                        && part.worker.is_none()
                        && is_active
                    {
                        birth.claimed_by = pulled.take(&job.spec);
                    }
                    births.push(Birth {
                        previous: slot_before(job.spec.policies.overlap, &timetable, *slot),
                        limits: limits.clone(),
                        part: part.part,
                        parts: part.of,
                        requires: part.requires(&job.spec.requires),
                        ..birth
                    });
                }
                births
            }
        };
        intake.admit(job.tenant, &mut births);
        let crowded_out = together(job, &mut births, now);
        let is_full = is_full(&births);
        if is_full {
            for birth in &mut births {
                birth.previous = timetable.previous_before(birth.scheduled_for);
            }
        }
        // A slot that is left without a run is no fire: there is one more to come than was counted.
        let is_counted = progress.is_some() && job.spec.policies.overlap != Overlap::Allow;
        let goes_on = |slot: Option<Timestamp>| Otherwise {
            next: slot.map(|slot| due(job, &timetable, slot)),
            over: (slot.is_none() && !job.waits_for_calendars(stored.progress.fired, now))
                .then_some(job.spec.policies.retention.keep.at_birth()),
        };
        let otherwise = match (from_completion, is_full) {
            // Without a run it is as if one had ended now. Where one is open, its end brings another slot, and the later counts.
            (true, true) => Some(goes_on(slot_after_completion(stored, &timetable, now))),
            // The end of the open run brings the next.
            (true, false) => is_counted.then_some(Otherwise { next: None, over: None }),
            (false, _) => (is_counted || is_full && progress.is_some()).then(|| goes_on(following)),
        };
        let missed = plan.missed.map(|missed| (missed, Fate::MissedCatchUp));
        let late = late.map(|(missed, limit)| (missed, Fate::of(limit)));
        let ledger = missed.into_iter().chain(late).map(|(missed, fate)| account(job, missed, fate, now));
        Ok(Firing {
            due: entry,
            epoch,
            births,
            ledger: ledger.chain(crowded_out).chain(unheard).collect(),
            next: plan.next.map(|slot| due(job, &timetable, slot)),
            over: is_over.then_some(job.spec.policies.retention.keep.at_birth()),
            progress,
            operation,
            otherwise,
        })
    }

    /// Whether a calendar excludes a slot that was planned before the calendar was changed. What a job owes from before a change of
    /// its own was due by another schedule.
    fn is_excluded(&self, job: &Job, timetable: &Timetable, entry: &Due) -> bool {
        let slot = entry.slot;
        let is_owed = job.carried.is_some_and(|carried| carried.slot == slot);
        if job.spec.schedule.calendars.is_empty() || is_owed {
            return false;
        }
        let just_after = slot.checked_add(SignedDuration::from_nanos(1)).unwrap_or(slot);
        timetable.previous_before(just_after) != Some(slot)
            && !self.excluded_by(job, slot, Some(Timestamp::MAX)).is_empty()
    }

    /// The slot is accounted for, and the next one is due by the calendars as they are.
    fn skip_excluded(
        &self,
        stored: &Stored,
        timetable: &Timetable,
        entry: Due,
        epoch: Epoch,
        now: Timestamp,
    ) -> Firing {
        let (job, slot) = (&stored.job, entry.slot);
        let next = timetable.next_given(slot, stored.progress);
        let is_over = next.is_none() && !job.waits_for_calendars(stored.progress.fired, now);
        let missed = Missed { from: slot, to: slot, slots: 1 };
        Firing {
            ledger: vec![account(job, missed, Fate::SkippedCalendar, now)],
            next: next.map(|slot| due(job, timetable, slot)),
            over: is_over.then_some(job.spec.policies.retention.keep.at_birth()),
            ..empty(entry, epoch)
        }
    }

    /// The operation that makes runs for several old slots. One slot needs none.
    fn catch_up(&self, job: &Job, slots: &[Timestamp], parts: usize, now: Timestamp) -> Option<Operation> {
        let (CatchUp::All { rate, .. }, [first, .., last]) = (job.spec.policies.catch_up, slots) else {
            return None;
        };
        // In the job's shard: its steps and the job's runs are committed together.
        let id = OperationId::new(now, job.id.shard(), self.entropy.bits());
        let catch_up =
            operation::CatchUp { job: job.id, schedule: job.spec.schedule.clone(), to: *last, rate };
        let mut operation = Operation::new(id, job.tenant, operation::Kind::CatchUp(Box::new(catch_up)), now);
        operation.cursor = operation::Cursor::Slot(*first);
        operation.total = Some((slots.len() * parts) as u64);
        Some(operation)
    }
}

/// What a firing was to bring.
struct Planned {
    births: usize,
    /// How many of them might not wait.
    full: usize,
    missed: u64,
    has_operation: bool,
    /// With a run, and without.
    next: [Option<Due>; 2],
}

impl From<&Firing> for Planned {
    fn from(firing: &Firing) -> Self {
        Planned {
            births: firing.births.len(),
            full: firing.births.iter().filter(|birth| birth.full.is_some()).count(),
            missed: firing.ledger.iter().map(|entry| entry.slots).sum(),
            has_operation: firing.operation.is_some(),
            next: [firing.next, firing.otherwise.and_then(|otherwise| otherwise.next)],
        }
    }
}

/// Counts fires for jobs with a maximum, and ends the schedule there.
fn progress(stored: &Stored, plan: &mut catch_up::Plan) -> Option<Progress> {
    let most = stored.job.max_fires()?.get();
    let left = most.saturating_sub(stored.progress.fired);
    plan.run.truncate(usize::try_from(left).unwrap_or(usize::MAX));
    let fired = stored.progress.fired + plan.run.len() as u64;
    if fired >= most {
        plan.next = None;
    }
    Some(Progress { fired, ..stored.progress })
}

/// Whether fires of a job are counted.
fn counts(job: &Job) -> bool {
    job.max_fires().is_some() || counts_from_completion(job)
}

pub(crate) fn counts_from_completion(job: &Job) -> bool {
    matches!(&job.spec.schedule.kind, Kind::Every(every) if *every.origin() == Origin::Completion)
}

/// The slot that follows a completion, for jobs that count from it.
pub(crate) fn slot_after_completion(
    stored: &Stored,
    timetable: &Timetable,
    now: Timestamp,
) -> Option<Timestamp> {
    let progress = Progress { last_completion: Some(now), ..stored.progress };
    (counts_from_completion(&stored.job) && stored.job.is_active())
        .then(|| timetable.next_given(now, progress))?
}

/// The account of slots that do not run.
pub(crate) fn account(job: &Job, missed: Missed, fate: Fate, now: Timestamp) -> LedgerEntry {
    let Missed { from, to, slots } = missed;
    LedgerEntry { job: job.id, tenant: job.tenant, from, to, slots, fate, decided_at: now }
}

/// The slot before one that overlap may skip: slots that follow each other are accounted for together.
pub(crate) fn slot_before(overlap: Overlap, timetable: &Timetable, slot: Timestamp) -> Option<Timestamp> {
    (overlap != Overlap::Allow).then(|| timetable.previous_before(slot)).flatten()
}

/// The birth of a slot's run, running if its time has come and there is room.
pub(crate) fn birth(
    job: &Job,
    slot: Timestamp,
    available_at: Timestamp,
    room: &mut Option<Room>,
    now: Timestamp,
) -> Birth {
    let claimed_by = match available_at <= now {
        true => room.as_mut().and_then(|room| room.take(&job.spec)),
        false => None,
    };
    Birth {
        cause: Cause::Schedule,
        scheduled_for: slot,
        part: 0,
        parts: None,
        available_at,
        start_by: timeouts::first_start(&job.spec.policies.timeouts, slot, available_at),
        kind: job.spec.kind.as_deref().map(Arc::from),
        queue: Arc::clone(&job.spec.queue),
        requires: job.spec.requires.clone(),
        lane: job.spec.lane,
        priority: job.spec.priority,
        retention: job.spec.policies.retention.keep,
        correlation_id: job.spec.correlation_id.clone(),
        payload: None,
        caused_by: None,
        claimed_by,
        overlap: job.spec.policies.overlap,
        previous: None,
        limits: Limits::NONE,
        full: None,
    }
}

/// Whether an entry is no slot of its job but the end of its pause.
fn ends_pause(job: &Job, entry: &Due) -> bool {
    end_of_pause(job).is_some_and(|end| end.version == entry.version)
}

fn empty(due: Due, epoch: Epoch) -> Firing {
    Firing {
        due,
        epoch,
        births: Vec::new(),
        ledger: Vec::new(),
        next: None,
        over: None,
        progress: None,
        operation: None,
        otherwise: None,
    }
}
