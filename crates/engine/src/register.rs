//! Registers jobs: creates, changes, pauses, resumes and deletes them.
//!
//! Runs when the API, the CLI or an import asks. Promise: when it returns, the job is durable and its due
//! entry in place; an edit fires nothing by itself and loses no slot that was due, because the store carries
//! an unfired slot over in the same commit. A run that somebody asks for is refused while as many wait as may.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, ShardId, TenantId, Version};
use punctual_domain::job::{Before, Carried, Job, JobState, Pause, Spec};
use punctual_domain::ledger::{Fate, LedgerEntry};
use punctual_domain::policy::catch_up::CatchUp;
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::run::{Cause, Run};
use punctual_domain::work::Leased;
use punctual_schedule::every::Origin;
use punctual_schedule::{Kind, Progress, Timetable};
use punctual_store::{
    Birth, Carry, CarryTo, Due, DueKey, DueWhen, Expect, PageRequest, Put, Refused, RunFilter, Stored,
    Subject,
};

use crate::backlog::Intake;
use crate::changes::{Change, check_type, delete, edit, resume, resumed, stop};
use crate::create::{birth, new_job, new_put};
use crate::desk::Pulled;
use crate::engine::Engine;
use crate::error::Error;
use crate::fire::counts_from_completion;

/// A job that was registered or changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Registered {
    /// The job as stored.
    pub job: Arc<Job>,
    /// Its next slot, if it has one.
    pub next_slot: Option<Timestamp>,
    /// Nothing was written, because nothing would change.
    pub is_unchanged: bool,
}

/// How a change treats runs that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// They keep the version they were fired with.
    #[default]
    Keep,
    /// They take the new version.
    Update,
}

/// The last slot that was fired is among so many runs: others may have been triggered since.
const RECENT: usize = 100;

/// A change that meets another one is tried again this often.
pub(crate) const TRIES: usize = 5;

impl Engine {
    /// Registers new jobs. Each stands for itself.
    pub async fn register(
        &self,
        tenant: TenantId,
        specs: Vec<(Spec, Option<Subject>)>,
    ) -> Result<Vec<Result<Registered, Error>>, Error> {
        self.register_answering(tenant, specs, |_, _| ()).await
    }

    /// Registers new jobs and remembers each request in the same commit, as `answer` leaves it.
    pub async fn register_answering(
        &self,
        tenant: TenantId,
        specs: Vec<(Spec, Option<Subject>)>,
        answer: impl Fn(&Registered, &mut Subject) + Send,
    ) -> Result<Vec<Result<Registered, Error>>, Error> {
        let named = specs.iter().flat_map(|(spec, _)| spec.schedule.calendars.iter().cloned());
        self.learn_anew(tenant, named.collect()).await?;
        let now = self.clock.now();
        let mut answers: Vec<Option<Result<Registered, Error>>> = Vec::new();
        let (mut puts, mut places) = (Vec::new(), Vec::new());
        let mut intake = self.intake();
        // A run of now is born leased to whoever waits for it.
        let mut pulled = Pulled::new(&self.desk);
        for (spec, request) in specs {
            if let Err(error) = self.check_links(tenant, None, &spec).await {
                answers.push(Some(Err(error)));
                continue;
            }
            let prepared = match self.prepare(tenant, spec, request, now) {
                Ok((put, registered)) => {
                    self.with_room(put, &mut intake, now).await.map(|put| (put, registered))
                }
                Err(error) => Err(error),
            };
            match prepared {
                Ok((mut put, registered)) => {
                    if let Some(birth) = &mut put.birth {
                        birth.claimed_by = pulled.take(&put.job.spec);
                    }
                    if let Some(request) = &mut put.request {
                        answer(&registered, request);
                    }
                    put.audit = self.audited_job(None, &put.job, now);
                    places.push((answers.len(), registered));
                    answers.push(None);
                    puts.push(put);
                }
                Err(error) => answers.push(Some(Err(error))),
            }
        }
        let request_key = |put: &Put| put.request.as_ref().map(|request| request.key.clone());
        let requests: Vec<Option<String>> = puts.iter().map(request_key).collect();
        let dues: Vec<Due> = puts.iter().filter_map(|put| put.due).collect();
        let has_limits = puts.iter().flat_map(|put| &put.birth).any(|birth| !birth.limits.is_empty());
        let stored = self.heard(self.store.put_born(puts, now)).await?;
        let born = places.iter().zip(&stored).filter_map(|((_, registered), answer)| {
            let run = answer.as_ref().ok()?.clone()?;
            Some(Leased { run, job: Arc::clone(&registered.job), checkpoint: None })
        });
        let (leased, waiting): (Vec<Leased>, Vec<Leased>) = born.partition(|one| pulled.is_for(&one.run));
        pulled.give(leased);
        // Telling of one that was refused does no harm.
        self.metrics.registered.inc_by(stored.iter().filter(|answer| answer.is_ok()).count() as u64);
        self.wakes.offer(dues);
        if !waiting.is_empty() {
            self.wakes.claimable();
        }
        if has_limits {
            self.look_at_limits();
        }
        for (((place, registered), answer), request) in places.into_iter().zip(stored).zip(requests) {
            answers[place] = Some(match answer {
                Ok(_) => Ok(registered),
                Err(refused) => Err(self.refused(refused, &registered.job, request.as_deref(), now).await?),
            });
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// A put whose run may wait; refused if as many wait as may, unless it was done before.
    async fn with_room(&self, put: Put, intake: &mut Intake<'_>, now: Timestamp) -> Result<Put, Error> {
        if put.birth.is_none() {
            return Ok(put);
        }
        self.must_have_room(put.job.tenant, put.request.as_ref(), intake, now).await?;
        Ok(put)
    }

    /// Refuses a run that somebody asks for if as many wait as may. What was asked for before is told, as ever.
    pub(crate) async fn must_have_room(
        &self,
        tenant: TenantId,
        request: Option<&Subject>,
        intake: &mut Intake<'_>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let Err(full) = intake.one(tenant) else { return Ok(()) };
        if let Some(request) = request
            && let Some(known) = self.store.request(tenant, &request.key, now).await?
        {
            return Err(Error::Repeated(Box::new(known)));
        }
        Err(self.too_many(tenant, full).await?)
    }

    fn prepare(
        &self,
        tenant: TenantId,
        spec: Spec,
        request: Option<Subject>,
        now: Timestamp,
    ) -> Result<(Put, Registered), Error> {
        let shards = self.store.shard_count();
        // The same name goes to the same shard, where its uniqueness can be checked.
        let shard = match spec.key.as_deref().or(request.as_ref().map(|subject| subject.key.as_str())) {
            Some(name) => ShardId::of(tenant, name, shards),
            None => ShardId((self.entropy.bits() % u64::from(shards)) as u16),
        };
        check_type(None, &spec)?;
        let id = JobId::new(now, shard, self.entropy.bits());
        let job = Arc::new(new_job(id, tenant, spec.of(tenant), now));
        let timetable = self.timetables.of_new(&job)?;
        let mut put = new_put(job, request);
        let has_calendars = !put.job.spec.schedule.calendars.is_empty();
        let next_slot = match put.job.spec.schedule.kind {
            // Where its calendars move it to another day, it is due then.
            Kind::Now if has_calendars && timetable.must_fire_after(now)? > now => {
                let slot = timetable.must_fire_after(now)?;
                put.due = Some(due(&put.job, &timetable, slot));
                Some(slot)
            }
            // Its parts or items are born when it is fired, which is at once.
            Kind::Now if put.job.spec.parts.is_some() || put.job.spec.batch.is_some() => {
                put.due = Some(due(&put.job, &timetable, now));
                Some(now)
            }
            Kind::Now => {
                let birth = birth(&put.job, Cause::Schedule, now, 0, None);
                put.birth = Some(Birth { limits: self.limits_of(&put.job), ..birth });
                Some(now)
            }
            _ => match first_slot(&put.job, &timetable, now) {
                Ok(slot) => {
                    put.due = Some(due(&put.job, &timetable, slot));
                    Some(slot)
                }
                Err(_) => {
                    self.must_fire(&put.job, &timetable, now)?;
                    None
                }
            },
        };
        let registered = Registered { job: Arc::clone(&put.job), next_slot, is_unchanged: false };
        Ok((put, registered))
    }

    /// Changes a job. Without `expected`, whatever version it has.
    pub async fn update(
        &self,
        tenant: TenantId,
        id: JobId,
        expected: Option<Version>,
        spec: Spec,
        waiting: Waiting,
    ) -> Result<Registered, Error> {
        if !spec.links.is_empty() {
            self.check_links(tenant, Some(&self.find(tenant, id).await?.job), &spec).await?;
        }
        self.change(tenant, id, expected, |old, now| edit(old, spec.clone(), waiting, now)).await
    }

    /// Creates the job with a key, or changes it. The second answer says whether it is new.
    pub async fn upsert(
        &self,
        tenant: TenantId,
        key: &str,
        expected: Option<Version>,
        spec: Spec,
    ) -> Result<(Registered, bool), Error> {
        for _ in 0..TRIES {
            let spec = Spec { key: Some(key.into()), ..spec.clone() };
            if let Some(id) = self.store.job_by_key(tenant, key).await? {
                match self.update(tenant, id, expected, spec, Waiting::Keep).await {
                    Err(Error::JobNotFound(_)) if expected.is_none() => continue, // Deleted in between.
                    answer => return answer.map(|registered| (registered, false)),
                }
            }
            if expected.is_some() {
                return Err(Error::JobNotFound(key.into()));
            }
            match self.register(tenant, vec![(spec, None)]).await?.into_iter().next() {
                Some(Err(Error::KeyTaken { .. })) => {} // Somebody was quicker.
                Some(answer) => return answer.map(|registered| (registered, true)),
                None => break,
            }
        }
        Err(busy())
    }

    /// Pauses a job: no slot becomes a run until it is resumed, or until the pause ends by itself.
    pub async fn pause(
        &self,
        tenant: TenantId,
        id: JobId,
        expected: Option<Version>,
        pause: Pause,
    ) -> Result<Registered, Error> {
        if self.job(tenant, id).await?.is_ended() {
            return Err(Error::WrongState { state: JobState::Ended.as_str(), action: "paused" });
        }
        self.change(tenant, id, expected, |old, now| stop(old, &pause, now)).await
    }

    /// Resumes a paused job. The slots in between are skipped, and accounted for.
    pub async fn resume(
        &self,
        tenant: TenantId,
        id: JobId,
        expected: Option<Version>,
    ) -> Result<Registered, Error> {
        self.change(tenant, id, expected, resume).await
    }

    /// Resumes jobs whose pauses end now. Returns the entries that are stale, because their jobs were changed since.
    pub(crate) async fn end_pauses(&self, ends: Vec<Due>, now: Timestamp) -> Result<Vec<Due>, Error> {
        if ends.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<JobId> = ends.iter().map(|entry| entry.key.job).collect();
        let current = self.store.jobs(&ids).await?;
        let (mut stale, mut entries, mut puts) = (Vec::new(), Vec::new(), Vec::new());
        for (entry, stored) in ends.into_iter().zip(current) {
            let pause = stored.as_ref().and_then(|stored| match &stored.job.state {
                JobState::Paused(pause) if stored.job.version == entry.version => Some((stored, pause)),
                _ => None,
            });
            let Some((stored, pause)) = pause else {
                stale.push(entry);
                continue;
            };
            let (put, _) =
                self.prepare_change(stored, resumed(&stored.job, pause, now), None, now, true).await?;
            entries.push(entry);
            puts.push(put);
        }
        let dues: Vec<Option<Due>> = puts.iter().map(|put| put.due).collect();
        let answers = self.heard(self.store.put_jobs(puts, now)).await?;
        for ((entry, due), answer) in entries.into_iter().zip(dues).zip(answers) {
            match answer {
                Ok(()) => {
                    tracing::info!(job_id = %entry.key.job, "resumed");
                    self.wakes.offer(due);
                }
                Err(_) => stale.push(entry), // Somebody was quicker.
            }
        }
        Ok(stale)
    }

    /// Deletes a job: its waiting runs are cancelled, its running ones end, its history stays.
    pub async fn delete(
        &self,
        tenant: TenantId,
        id: JobId,
        expected: Option<Version>,
    ) -> Result<Registered, Error> {
        self.change(tenant, id, expected, |old, now| Ok(Some(delete(old, now)))).await
    }

    pub(crate) async fn find(&self, tenant: TenantId, id: JobId) -> Result<Stored, Error> {
        let found = self.store.jobs(&[id]).await?.into_iter().next().flatten();
        let found = found.filter(|stored| stored.job.tenant == tenant);
        let stored = found.ok_or_else(|| Error::JobNotFound(id.to_string()))?;
        self.learn(self.unread([&*stored.job])).await?;
        Ok(stored)
    }

    /// Refuses a schedule that has no slot after now, unless its calendars may come to allow one.
    pub(crate) fn must_fire(&self, job: &Job, timetable: &Timetable, now: Timestamp) -> Result<(), Error> {
        if job.waits_for_calendars(0, now) {
            self.timetables.bare(job)?.must_fire_after(now)?;
            return Ok(());
        }
        timetable.must_fire_after(now)?;
        Ok(())
    }

    pub(crate) async fn change(
        &self,
        tenant: TenantId,
        id: JobId,
        expected: Option<Version>,
        decide: impl Fn(&Job, Timestamp) -> Result<Option<Change>, Error> + Send,
    ) -> Result<Registered, Error> {
        let mut last_slot = None;
        for attempt in 1..=TRIES {
            let now = self.clock.now();
            let stored = self.find(tenant, id).await?;
            let current = stored.job.version;
            if let Some(expected) = expected.filter(|expected| *expected != current) {
                return Err(Error::VersionConflict { expected, current });
            }
            let Some(change) = decide(&stored.job, now)? else {
                let timetable = self.timetables.of(&stored.job)?;
                let next_slot = next_slot(&stored.job, &timetable, stored.progress, now);
                return Ok(Registered { job: stored.job, next_slot, is_unchanged: true });
            };
            // A job can always be stopped: if its entry is not found in the end, it is left to be dropped as stale.
            let is_strict = attempt < TRIES;
            let (mut put, registered) =
                self.prepare_change(&stored, change, last_slot, now, is_strict).await?;
            put.audit = self.audited_job(Some(&stored.job), &put.job, now);
            let dues: Vec<Due> = dues(&put).collect();
            match self.heard(self.store.put_jobs(vec![put], now)).await?.into_iter().next() {
                Some(Ok(())) => {
                    self.wakes.offer(dues);
                    self.wakes.claimable(); // Waiting runs may have another lane or queue by now.
                    self.look_at_limits();
                    return Ok(registered);
                }
                // It was changed since it was read.
                Some(Err(Refused::WrongVersion { .. })) => {}
                // It was fired since it was read; or the clock was set back, and its next slot is not the next by the clock.
                Some(Err(Refused::NotDue)) => last_slot = self.last_slot(id).await?,
                Some(Err(refused)) => return Err(self.refused(refused, &registered.job, None, now).await?),
                None => break,
            }
        }
        Err(busy())
    }

    /// `last_slot` is the last one that was fired, if that is known.
    pub(crate) async fn prepare_change(
        &self,
        old: &Stored,
        mut change: Change,
        mut last_slot: Option<Timestamp>,
        now: Timestamp,
        is_strict: bool,
    ) -> Result<(Put, Registered), Error> {
        self.learn(self.unread([&*old.job])).await?;
        let is_new_schedule = old.job.spec.schedule != change.job.spec.schedule;
        let timetable = match is_new_schedule {
            true => {
                let named = change.job.spec.schedule.calendars.iter().cloned();
                self.learn_anew(change.job.tenant, named.collect()).await?;
                self.timetables.of_new(&change.job)?
            }
            false => self.timetables.of(&change.job)?,
        };
        let was_due = old.job.is_active() && !counts_from_completion(&old.job);
        let has_calendars = !old.job.spec.schedule.calendars.is_empty();
        let from_completion = counts_from_completion(&change.job);
        let mut oldest = None;
        let (mut candidates, carry_to) = match was_due {
            true => {
                let spread = spread(&*self.timetables.of(&old.job)?);
                oldest = self.oldest_due(now + spread).await?;
                (self.unfired_candidates(&old.job, oldest, now)?, change.carry_to)
            }
            // Periods from completion carry nothing over: an idle job's next slot is computed anew, and an open
            // run brings it when it ends.
            false => (self.other_candidates(old)?, CarryTo::Nothing),
        };
        let progress = match from_completion && old.progress.last_completion.is_none() {
            // It has never ended a run: the first slot counts from now.
            true => Progress { last_completion: Some(now), ..old.progress },
            false => old.progress,
        };
        if change.skipped_since.is_some() {
            // A paused job has no due entry that would tell what was fired before.
            last_slot = self.last_slot(old.job.id).await?;
        }
        // Calendars may have been changed since it was planned: its entry is where they had it then, or nowhere.
        let mut planned = None;
        if was_due && has_calendars {
            planned =
                self.planned_entry(old, oldest, last_slot.map_or(now, |slot| slot.max(now)), now).await?;
            if planned.is_none() && last_slot.is_none() {
                last_slot = self.last_slot(old.job.id).await?;
                planned =
                    self.planned_entry(old, oldest, last_slot.map_or(now, |slot| slot.max(now)), now).await?;
            }
        }
        // Editing never fires, and a clock that steps back never fires twice.
        let from = last_slot.map_or(now, |slot| slot.max(now));
        let next_slot = next_slot(&change.job, &timetable, progress, from);
        if change.job.is_active() && is_new_schedule && next_slot.is_none() {
            self.must_fire(&change.job, &timetable, now)?;
        }
        // Between deciding and committing, the slot may be fired under the old version.
        let mut unfired = Vec::new();
        change.job.carried = None;
        change.job.remember(&old.job);
        if was_due && let Some(first) = self.first_due(&mut candidates).await? {
            unfired.push(first);
            let carried = Carried { at: first.key.at, slot: first.slot };
            change.job.carried = (carry_to == CarryTo::Due).then_some(carried);
        } else if was_due && has_calendars {
            unfired.extend(planned);
        } else if was_due && (next_slot.is_some() || is_strict) {
            let old_timetable = self.timetables.of(&old.job)?;
            if let Some(slot) = old_timetable.next_given(from, old.progress) {
                unfired.clone_from(&candidates);
                unfired.push(due(&old.job, &old_timetable, slot));
            }
        }
        let is_waiting = from_completion && change.job.is_active();
        let job = Arc::new(change.job);
        let ledger = change.skipped_since.map(|since| self.skipped(&old.job, since, now));
        let put = Put {
            expect: Expect::Version(old.job.version),
            due: next_slot.map(|slot| due(&job, &timetable, slot)).or_else(|| end_of_pause(&job)),
            due_when: if is_waiting { DueWhen::Idle } else { DueWhen::Always },
            carry: (!candidates.is_empty()).then_some(Carry { candidates, to: carry_to }),
            unfired,
            birth: None,
            open_runs: change.open_runs,
            limits: self.limits_of(&job),
            lets_overlap: lets_overlap(&old.job, &job),
            ledger: ledger.unwrap_or_default(),
            request: None,
            job: Arc::clone(&job),
            audit: None,
        };
        Ok((put, Registered { job, next_slot, is_unchanged: false }))
    }

    /// The account of the slots of a pause: of each schedule that the job had meanwhile.
    fn skipped(&self, job: &Job, since: Timestamp, now: Timestamp) -> Vec<LedgerEntry> {
        let replaced = job.changes.iter().filter(|change| matches!(change.until, Before::Schedule(_)));
        let ends = replaced.map(|change| change.at).filter(|at| *at > since && *at < now).chain([now]);
        let mut from = since;
        let mut entries = Vec::new();
        for end in ends {
            let timetable = self.then(job, end).timetable;
            entries.extend(timetable.and_then(|timetable| skipped(job, &timetable, from, (end, now))));
            from = end;
        }
        entries
    }

    /// The last slot of a job that was fired or accounted for. Runs are numbered in the order they were fired, also when
    /// the clock steps back.
    pub(crate) async fn last_slot(&self, job: JobId) -> Result<Option<Timestamp>, Error> {
        let filter = RunFilter { job: Some(job), ..RunFilter::default() };
        let runs = self.store.runs(&filter, PageRequest::first(RECENT)).await?.items;
        let of_schedule = |run: &&Run| matches!(run.cause, Cause::Schedule | Cause::Batch);
        let fired = runs.iter().filter(of_schedule).map(|run| run.scheduled_for).max();
        let accounted =
            self.store.ledger(job, PageRequest::first(1)).await?.items.first().map(|entry| entry.to);
        Ok(fired.max(accounted))
    }

    pub(crate) async fn refused(
        &self,
        refused: Refused,
        job: &Job,
        request: Option<&str>,
        now: Timestamp,
    ) -> Result<Error, Error> {
        Ok(match refused {
            Refused::KeyTaken { by } => Error::KeyTaken { key: job.spec.key.clone().unwrap_or_default(), by },
            Refused::Repeated => {
                match self.store.request(job.tenant, request.unwrap_or_default(), now).await? {
                    Some(subject) => Error::Repeated(Box::new(subject)),
                    None => busy(),
                }
            }
            Refused::WrongVersion { current } => Error::VersionConflict { expected: job.version, current },
            Refused::NoJob => Error::JobNotFound(job.id.to_string()),
            Refused::Overlap { .. } => Error::Overlap { policy: job.spec.policies.overlap.as_str() },
            Refused::StaleEpoch
            | Refused::Elsewhere
            | Refused::NotDue
            | Refused::NoRun
            | Refused::StaleStep
            | Refused::DocumentChanged
            | Refused::CheckpointTooLarge
            | Refused::Lifecycle(_) => busy(),
        })
    }
}

/// Where the due entry of a change may be. Which of the candidates is carried over is decided by the store; being told of
/// one too many does no harm.
pub(crate) fn dues(put: &Put) -> impl Iterator<Item = Due> {
    let carry = put.carry.iter().filter(|carry| carry.to == CarryTo::Due);
    let carried = carry.flat_map(|carry| &carry.candidates).map(|due| due.of(&put.job));
    put.due.into_iter().chain(carried)
}

pub(crate) fn busy() -> Error {
    Error::Store(punctual_store::Error::Unavailable {
        reason: "the job is being changed by others; try again".into(),
    })
}

/// Whether runs that wait for an earlier one need not any more.
fn lets_overlap(old: &Job, new: &Job) -> bool {
    let policy = |job: &Job| job.spec.policies.overlap;
    policy(old) != policy(new) && policy(new) == Overlap::Allow
}

/// The first slot of a new job. A single time that has just passed is still taken, within its catch-up window.
pub(crate) fn first_slot(job: &Job, timetable: &Timetable, now: Timestamp) -> Result<Timestamp, Error> {
    let from = match &job.spec.schedule.kind {
        // Periods from completion have their first slot at the registration itself.
        Kind::Every(every) if *every.origin() == Origin::Completion => now - SignedDuration::from_millis(1),
        _ => now,
    };
    if let Some(slot) = timetable.next_after(from) {
        return Ok(slot);
    }
    let window = match job.spec.policies.catch_up {
        CatchUp::Latest { window } | CatchUp::All { window, .. } => {
            SignedDuration::try_from(window).unwrap_or_default()
        }
        CatchUp::None => SignedDuration::ZERO,
    };
    let is_once = matches!(job.spec.schedule.kind, Kind::At(_));
    let passed = timetable.previous_before(now).filter(|slot| is_once && now.duration_since(*slot) <= window);
    match passed {
        Some(slot) => Ok(slot),
        None => Ok(timetable.must_fire_after(now)?),
    }
}

/// The slot that is due next, strictly after now; none if the job does not fire.
pub(crate) fn next_slot(
    job: &Job,
    timetable: &Timetable,
    progress: Progress,
    now: Timestamp,
) -> Option<Timestamp> {
    job.is_active().then(|| timetable.next_given(now, progress)).flatten()
}

/// Whether a job's schedule has no more slots, and no completion can bring one.
pub(crate) fn is_out_of_slots(stored: &Stored, timetable: &Timetable, now: Timestamp) -> bool {
    let job = &stored.job;
    // An open run brings the next slot of a period from completion.
    let is_waiting =
        counts_from_completion(job) && job.max_fires().is_none_or(|most| stored.progress.fired < most.get());
    job.is_active()
        && next_slot(job, timetable, stored.progress, now).is_none()
        && !is_waiting
        && !job.waits_for_calendars(stored.progress.fired, now)
}

/// The entry that ends a job's pause, if it ends by itself.
pub(crate) fn end_of_pause(job: &Job) -> Option<Due> {
    let JobState::Paused(Pause { until: Some(until), .. }) = job.state else { return None };
    let key = DueKey { at: until, lane: job.spec.lane, tenant: job.tenant, job: job.id };
    Some(Due { key, version: job.version, slot: until })
}

pub(crate) fn spread(timetable: &Timetable) -> SignedDuration {
    SignedDuration::try_from(timetable.spread_offset()).unwrap_or_default()
}

/// A job's due entry for a slot: its spread later.
pub(crate) fn due(job: &Job, timetable: &Timetable, slot: Timestamp) -> Due {
    let at = slot.checked_add(spread(timetable)).unwrap_or(slot);
    Due {
        key: DueKey { at, lane: job.spec.lane, tenant: job.tenant, job: job.id },
        version: job.version,
        slot,
    }
}

/// The account of the slots of a time in which a job was paused, as it is decided now.
fn skipped(
    job: &Job,
    timetable: &Timetable,
    since: Timestamp,
    (until, now): (Timestamp, Timestamp),
) -> Option<LedgerEntry> {
    let just_after = until + SignedDuration::from_nanos(1);
    let (from, to) = (timetable.next_after(since)?, timetable.previous_before(just_after)?);
    let slots = timetable.count(from, just_after);
    (slots > 0).then_some(LedgerEntry {
        job: job.id,
        tenant: job.tenant,
        from,
        to,
        slots,
        fate: Fate::SkippedPause,
        decided_at: now,
    })
}
