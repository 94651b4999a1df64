//! Breakers: targets and jobs that fail again and again are left alone; those that do not answer get no more room than they can take.
//!
//! What is reported is noted after its commit; once a second this node looks what its attempts wait for. Both may set a rule of limits,
//! change it or take it away ([`punctual_domain::policy::breaker`] says when), which all nodes hear of within a second. A run that meets
//! a breaker whose limit it does not have is put back into its line without being executed. Promise: nothing is asked of the
//! store while everything is well; a birth costs a look-up while something is not; neither firing nor claiming waits for a target.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, TenantId, WorkerId};
use punctual_domain::job::{Job, JobState};
use punctual_domain::policy::breaker::{
    self, Breaker, Change, FAILURES, IDLE, INTERVAL_MAX, Of, SPAN, Seen, Stage, Threshold, Tried, Watch,
};
use punctual_domain::policy::limit::{Limits, Rule};
use punctual_domain::run::Run;
use punctual_domain::work::{Finished, Leased};
use punctual_domain::{Outcome, Report};
use punctual_store::{RuleChange, Stored};
use tokio::sync::Semaphore;

use crate::audit::{Done, Thing};
use crate::engine::Engine;
use crate::error::Error;
use crate::pass::{Duty, Next, chain};
use crate::under_way::destination;

/// How often this node looks what its attempts wait for.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// How often it looks for breakers that nobody comes to any more.
const TIDY_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// Destinations and jobs whose failures are counted at a time.
const WATCHES_MAX: usize = 10_000;

/// A first failure of so long ago is forgotten if there are too many.
const WATCHED_FOR: SignedDuration = SignedDuration::from_hours(1);

/// Breakers of jobs, and of destinations, that are set at a time: all nodes read all of them every second.
const JOBS_MAX: usize = 1_000;
const DESTINATIONS_MAX: usize = 2_000;

/// Batches of claimed runs that are put back at a time; the next claim waits for the first of them.
const BACKS_MAX: usize = 2;

/// What is seen last is told in so many letters.
const CAUSE_MAX: usize = 200;

/// What this node knows of breakers.
#[derive(Debug)]
pub(crate) struct Breakers {
    /// Failures that open the breaker of a destination; 0: no breakers of destinations.
    failures: AtomicU32,
    known: Mutex<Arc<Known>>,
    /// One is set, or something has failed: it is worth while to look.
    is_awake: AtomicBool,
    watches: Mutex<HashMap<Of, Watch>>,
    /// Those that are being changed.
    changing: Mutex<HashSet<Of>>,
    backs: Arc<Semaphore>,
}

/// The breakers that are set.
#[derive(Debug, Default)]
struct Known {
    destinations: HashMap<Arc<str>, Arc<Breaker>>,
    jobs: HashMap<JobId, Arc<Breaker>>,
}

impl Known {
    fn get(&self, of: &Of) -> Option<&Arc<Breaker>> {
        match of {
            Of::Destination(destination) => self.destinations.get(destination),
            Of::Job(job) => self.jobs.get(job),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Breaker>> {
        self.destinations.values().chain(self.jobs.values())
    }

    fn is_empty(&self) -> bool {
        self.destinations.is_empty() && self.jobs.is_empty()
    }
}

/// A change, and what was seen last.
type Wanted = (Of, Change, Option<String>);

impl Default for Breakers {
    fn default() -> Self {
        Breakers {
            failures: AtomicU32::new(FAILURES),
            known: Mutex::default(),
            is_awake: AtomicBool::new(false),
            watches: Mutex::default(),
            changing: Mutex::default(),
            backs: Arc::new(Semaphore::new(BACKS_MAX)),
        }
    }
}

impl Breakers {
    fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes what was read of the rules that are breakers.
    pub(crate) fn set(&self, rules: impl IntoIterator<Item = Rule>) {
        let mut known = Known::default();
        for breaker in rules.into_iter().filter_map(|rule| rule.breaker) {
            let breaker = Arc::new(*breaker);
            match &breaker.of {
                Of::Destination(of) => drop(known.destinations.insert(Arc::clone(of), breaker)),
                Of::Job(of) => drop(known.jobs.insert(*of, breaker)),
            }
        }
        if !known.is_empty() {
            self.is_awake.store(true, Ordering::Release);
        }
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
    }

    /// All that are set.
    pub(crate) fn all(&self) -> Vec<Arc<Breaker>> {
        self.known().all().cloned().collect()
    }

    /// How many are set, by stage.
    pub(crate) fn count(&self, stage: &str) -> usize {
        self.known().all().filter(|breaker| breaker.stage.as_str() == stage).count()
    }

    /// The breaker of that name, if it is set.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<Breaker>> {
        self.known().get(&Of::named(name)?).cloned()
    }

    /// Those that runs of a job meet now.
    pub(crate) fn of(&self, job: &Job) -> Vec<Arc<Breaker>> {
        if !self.is_awake.load(Ordering::Acquire) {
            return Vec::new();
        }
        let known = self.known();
        let of_job = known.jobs.get(&job.id);
        let of_destination = match known.destinations.is_empty() {
            true => None,
            false => destination(job).and_then(|name| known.destinations.get(name.as_str())),
        };
        of_job.into_iter().chain(of_destination).cloned().collect()
    }

    /// The limits of a run that is to go on, if it has to get in the line of a breaker: of one that it has not met, or, if an attempt
    /// was `spared`, of those that it has.
    pub(crate) fn limits(&self, run: &Run, job: &Job, is_spared: bool) -> Option<Limits> {
        let breakers = self.of(job);
        let is_met = |breaker: &Arc<Breaker>| run.limits.has_breaker(breaker);
        if breakers.is_empty() || !is_spared && breakers.iter().all(is_met) {
            return None;
        }
        let limits = run.limits.with_breakers(breakers.iter().map(Arc::as_ref));
        // There may be no place for one more.
        (is_spared || limits != run.limits).then_some(limits)
    }

    /// If an attempt that failed is not charged: how long its run stands back.
    pub(crate) fn spares(&self, job: &Job, report: &Report) -> Option<Duration> {
        if report.outcome == Outcome::Succeeded {
            return None;
        }
        self.of(job).iter().filter_map(|breaker| breaker.spares(report)).max()
    }

    fn threshold(&self, of: &Of, job: &Job) -> Option<Threshold> {
        match of {
            Of::Destination(_) => {
                let failures = NonZeroU32::new(self.failures.load(Ordering::Relaxed))?;
                Some(Threshold { failures, span: SPAN })
            }
            Of::Job(_) => {
                let failures = job.spec.policies.breaker?.failures;
                Some(Threshold { failures, span: SignedDuration::ZERO })
            }
        }
    }

    /// Takes a recorded attempt into account; says what is to be done.
    fn note(&self, finished: &Finished, report: &Report, now: Timestamp) -> Vec<Wanted> {
        let (job, run) = (&finished.job, &finished.run);
        if report.outcome == Outcome::Succeeded && !self.is_awake.load(Ordering::Acquire) {
            return Vec::new();
        }
        let of_destination = destination(job).map(|name| Of::Destination(name.into()));
        let mut wanted = Vec::new();
        for of in of_destination.into_iter().chain([Of::Job(job.id)]) {
            let (seen, threshold) = (of.judge(report), self.threshold(&of, job));
            let known = self.known().get(&of).cloned();
            if threshold.is_none() && known.is_none() {
                continue;
            }
            let was_let_through = known.as_ref().is_some_and(|breaker| run.limits.has_breaker(breaker));
            let tried = Tried { seen, started_at: report.started_at, was_let_through };
            if let Some(change) = self.watch(&of, known.as_deref(), tried, threshold, now) {
                let cause = (seen == Seen::Unwell).then(|| cause(report));
                wanted.push((of, change, cause));
            }
        }
        wanted
    }

    fn watch(
        &self,
        of: &Of,
        known: Option<&Breaker>,
        tried: Tried,
        threshold: Option<Threshold>,
        now: Timestamp,
    ) -> Option<Change> {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut watch = watches.get(of).copied().unwrap_or_default();
        let change = watch.note(known, tried, threshold, now);
        if watch.is_quiet() {
            watches.remove(of);
        } else {
            if watches.len() >= WATCHES_MAX && !watches.contains_key(of) {
                watches.retain(|_, watch| watch.first_at().is_some_and(|at| at > now - WATCHED_FOR));
            }
            if watches.len() < WATCHES_MAX || watches.contains_key(of) {
                watches.insert(of.clone(), watch);
            }
        }
        let is_awake = !watches.is_empty() || !self.known().is_empty();
        self.is_awake.store(is_awake, Ordering::Release);
        change
    }

    fn forget(&self, of: &Of) {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).remove(of);
    }

    /// Those of the changes that nobody is making already.
    fn begin(&self, wanted: Vec<Wanted>) -> Changing<'_> {
        let known = self.known();
        let mut changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |of: &Of| {
            let is_full = known.get(of).is_none()
                && match of {
                    Of::Job(_) => known.jobs.len() >= JOBS_MAX,
                    Of::Destination(_) => known.destinations.len() >= DESTINATIONS_MAX,
                };
            if is_full {
                tracing::warn!(breaker = of.name(), "too many breakers are set for one more");
            }
            is_full
        };
        let is_ours = |(of, ..): &Wanted| !is_full(of) && changing.insert(of.clone());
        Changing { wanted: wanted.into_iter().filter(is_ours).collect(), breakers: self }
    }
}

/// Changes that nobody else makes meanwhile. Whoever makes them may go away in the middle: then others may again.
struct Changing<'a> {
    wanted: Vec<Wanted>,
    breakers: &'a Breakers,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut changing = self.breakers.changing.lock().unwrap_or_else(PoisonError::into_inner);
        for (of, ..) in &self.wanted {
            changing.remove(of);
        }
    }
}

/// What an attempt failed of, in a line.
fn cause(report: &Report) -> String {
    let text = match &report.error {
        Some(error) => format!("{}: {}", error.code, error.message),
        None => report.outcome.as_str().into(),
    };
    text.chars().take(CAUSE_MAX).collect()
}

/// Claimed runs by whether they may be executed.
pub(crate) struct Sorted {
    /// These may.
    pub(crate) given: Vec<Leased>,
    /// These get in the line of a breaker.
    back: Vec<Leased>,
    /// Which is set before, if it is not yet.
    guesses: Vec<Wanted>,
}

impl Engine {
    /// Failures of a destination that open its breaker; 0 for no such breakers.
    pub fn set_breaker_failures(&self, failures: u32) {
        self.breakers.failures.store(failures, Ordering::Relaxed);
    }

    /// All breakers that are set, by name.
    pub async fn breakers(&self) -> Result<Vec<Breaker>, Error> {
        let rules = self.store.rules().await?;
        Ok(rules.into_iter().filter_map(|rule| rule.breaker.map(|breaker| *breaker)).collect())
    }

    /// Takes a breaker away by hand: who waits goes on. The answer says whether it was set.
    pub async fn reset_breaker(&self, name: &str) -> Result<bool, Error> {
        let Some(of) = Of::named(name) else { return Ok(false) };
        let known = self.breakers().await?;
        let set = known.iter().find(|breaker| breaker.of == of);
        let is_set = set.is_some();
        if let Some(set) = set {
            self.audit_thing(Done {
                tenant: TenantId::NOBODY,
                kind: "breaker",
                subject: name,
                action: Some("reset"),
                before: Some(Thing::Breaker(set)),
                after: None,
            })
            .await?;
            self.change_rules(vec![RuleChange { name: of.rule_name(), rule: None }]).await?;
            self.breakers.forget(&of);
            tracing::info!(breaker = name, "breaker reset by hand");
        }
        Ok(is_set)
    }

    /// Attempts were reported: they are not under way any more.
    pub(crate) fn note_reported(&self, finished: &[Finished]) {
        let now = self.clock.now();
        for one in finished {
            let of = Of::Destination(Arc::default());
            let is_answer = one.report.as_ref().is_some_and(|report| of.judge(report) == Seen::Well);
            self.under_way.end(one, is_answer, now);
        }
    }

    /// Attempts were recorded: breakers open and close.
    pub(crate) async fn note_recorded(&self, recorded: &[Finished]) {
        let now = self.clock.now();
        let mut wanted = Vec::new();
        for (finished, report) in recorded.iter().filter_map(|one| Some((one, one.report.as_ref()?))) {
            for one in self.breakers.note(finished, report, now) {
                // What the last of them says counts.
                wanted.retain(|(of, ..): &Wanted| *of != one.0);
                wanted.push(one);
            }
        }
        self.change_breakers(wanted, now).await;
    }

    /// Sets breakers and takes them away. What cannot be done now is seen again.
    async fn change_breakers(&self, wanted: Vec<Wanted>, now: Timestamp) {
        if wanted.is_empty() {
            return;
        }
        let changing = self.breakers.begin(wanted);
        let known = self.breakers.known();
        let mut changes = Vec::with_capacity(changing.wanted.len());
        for (of, change, cause) in &changing.wanted {
            let before = known.get(of);
            let rule = match change {
                Change::Close => None,
                Change::Set(stage) => {
                    let since = before.map_or(now, |before| before.since);
                    let cause = cause.clone().or_else(|| before.and_then(|before| before.cause.clone()));
                    // More who ask are no news: it goes on being open as it was.
                    let is_same = |before: &&Arc<Breaker>| asks_more(&before.stage, stage);
                    let changed_at = before.filter(is_same).map_or(now, |before| before.changed_at);
                    let breaker = Breaker { of: of.clone(), since, changed_at, stage: *stage, cause };
                    Some(breaker.rule())
                }
            };
            changes.push(RuleChange { name: of.rule_name(), rule });
        }
        let changed = match changes.is_empty() {
            true => Ok(()),
            false => self.change_rules(changes).await,
        };
        for (of, change, cause) in &changing.wanted {
            if changed.is_ok() {
                self.breakers.forget(of);
                self.metrics.breaker_changed(change);
                tell(of, change, cause.as_deref());
            }
        }
        if let Err(error) = changed {
            tracing::warn!(error = %chain(&error), "a breaker could not be changed");
        }
    }

    /// Before room is spent on jobs: one that may hang gets no more than half of it.
    pub(crate) async fn guess_for(&self, jobs: &[&Job], taken: usize) {
        let guesses = self.guesses(jobs, taken);
        self.change_breakers(guesses, self.clock.now()).await;
    }

    /// With room for so many attempts that was taken for them.
    fn guesses(&self, jobs: &[&Job], taken: usize) -> Vec<Wanted> {
        let room = self.under_way.see_room(self.desk.free() + taken);
        let is_on = self.breakers.failures.load(Ordering::Relaxed) > 0 && room >= breaker::ROOM_MIN;
        if !is_on || !self.under_way.may_exceed(jobs.len(), room / 2) {
            return Vec::new();
        }
        let mut more: HashMap<String, u32> = HashMap::new();
        for name in jobs.iter().filter_map(|job| destination(job)) {
            *more.entry(name).or_default() += 1;
        }
        let (known, now) = (self.breakers.known(), self.clock.now());
        more.retain(|name, _| !known.destinations.contains_key(name.as_str()));
        let guess = |(name, count): (String, u32)| {
            let stage = breaker::guess(&self.under_way.load(&name, room, now), count)?;
            Some((Of::Destination(name.into()), Change::Set(stage), None))
        };
        more.into_iter().filter_map(guess).collect()
    }

    /// Which of the runs that were born running, or claimed with so much room, may be executed. Decided in memory.
    pub(crate) fn sort_out(&self, leased: Vec<Leased>, claimed_with: Option<usize>) -> Sorted {
        let is_claim = claimed_with.is_some();
        let guesses = match claimed_with {
            Some(taken) => self.guesses(&leased.iter().map(|one| &*one.job).collect::<Vec<_>>(), taken),
            None => Vec::new(), // Whoever fired them has looked.
        };
        let is_guessed = |job: &Job| {
            !guesses.is_empty()
                && destination(job).is_some_and(|name| {
                    guesses.iter().any(|(of, ..)| matches!(of, Of::Destination(of) if **of == *name))
                })
        };
        // Runs may have gone through while it was not set, or allowed more: they come to it anew.
        let mut through: HashMap<Arc<str>, u32> = HashMap::new();
        let mut is_too_many = |one: &Leased| {
            let mut is_over = |breaker: &Arc<Breaker>| {
                let (Of::Destination(name), Some(max)) = (&breaker.of, breaker.stage.allowance().max) else {
                    return false;
                };
                let under_way = || self.under_way.let_through(name);
                let count = through.entry(Arc::clone(name)).or_insert_with(under_way);
                *count += 1;
                *count > max.get()
            };
            is_claim && self.breakers.of(&one.job).iter().any(&mut is_over)
        };
        let waits = |one: &Leased| {
            self.breakers.limits(&one.run, &one.job, false).is_some()
                || is_guessed(&one.job)
                || is_too_many(one)
        };
        let (back, given) = leased.into_iter().partition(waits);
        Sorted { given, back, guesses }
    }

    /// Puts runs back into the lines of the breakers that they met, beside whatever else is done.
    pub(crate) async fn put_back(&self, worker: WorkerId, sorted: Sorted) {
        let Sorted { back, guesses, .. } = sorted;
        if back.is_empty() {
            return;
        }
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&self.breakers.backs).acquire_owned().await else { return };
        let engine = self.clone();
        tokio::spawn(async move {
            engine.change_breakers(guesses, engine.clock.now()).await;
            let back = back.into_iter().map(|Leased { mut run, job, .. }| {
                // Whatever it has passed, it comes to all of them anew.
                run.limits = run.limits.with_breakers([]);
                Finished { worker, run, job, report: None }
            });
            // Nobody lists them in a heartbeat: what could not be put back is reclaimed.
            if let Err(error) = engine.complete(back.collect()).await {
                tracing::warn!(error = %chain(&error), "runs could not be put back into the line of a breaker");
            }
            drop(permit);
        });
    }

    /// Looks for breakers whose probes tell nothing.
    async fn look_at_probes(&self, now: Timestamp) {
        let known = self.breakers.known();
        let stalled = |breaker: &Arc<Breaker>| {
            breaker::stalled(breaker, now).map(|change| (breaker.of.clone(), change, None))
        };
        let wanted: Vec<Wanted> = known.all().filter_map(stalled).collect();
        self.change_breakers(wanted, now).await;
    }

    /// Looks what attempts wait for.
    async fn look_at_loads(&self, now: Timestamp) {
        if self.breakers.failures.load(Ordering::Relaxed) == 0 {
            return;
        }
        let room = self.under_way.see_room(self.desk.free());
        let known = self.breakers.known();
        let mut names: HashSet<Arc<str>> = self.under_way.destinations().into_iter().collect();
        names.extend(known.destinations.keys().cloned());
        let decide = |name: Arc<str>| {
            let load = self.under_way.load(&name, room, now);
            let change = breaker::crowd(known.destinations.get(&name).map(Arc::as_ref), &load, now)?;
            let cause = matches!(change, Change::Set(_)).then(|| {
                let seconds = breaker::ANSWERS_OF.as_secs();
                format!("{} attempts under way, {} answers in {seconds} s", load.under_way, load.answers)
            });
            Some((Of::Destination(name), change, cause))
        };
        let wanted = names.into_iter().filter_map(decide).collect();
        self.change_breakers(wanted, now).await;
    }

    /// Takes breakers away that nobody comes to any more, and those of jobs that are gone.
    async fn tidy_breakers(&self, now: Timestamp) -> Result<(), Error> {
        self.under_way.tidy(|worker| self.desk.is_seated(worker), now);
        let known = self.breakers.known();
        let jobs: Vec<JobId> = known.jobs.keys().copied().collect();
        let mut wanted: Vec<Wanted> = Vec::new();
        if !jobs.is_empty() {
            let found = self.store.jobs(&jobs).await?;
            // What is left of a job that fires no more has been asked by then.
            let is_old = |job: &JobId| {
                let before = now - SignedDuration::try_from(INTERVAL_MAX).unwrap_or(SignedDuration::MAX) * 2;
                known.jobs.get(job).is_some_and(|breaker| breaker.changed_at < before)
            };
            let gone = jobs.iter().zip(found).filter(|(id, stored)| {
                stored.as_ref().is_none_or(|Stored { job, .. }| {
                    let is_over = matches!(job.state, JobState::Ended | JobState::Deleted);
                    job.spec.policies.breaker.is_none() || is_over && is_old(id)
                })
            });
            wanted.extend(gone.map(|(job, _)| (Of::Job(*job), Change::Close, None)));
        }
        let idle = known.destinations.values().filter(|breaker| breaker.changed_at < now - IDLE);
        wanted.extend(idle.map(|breaker| (breaker.of.clone(), Change::Close, None)));
        self.change_breakers(wanted, now).await;
        Ok(())
    }
}

/// Whether all that changes is how many may ask at once.
fn asks_more(before: &Stage, after: &Stage) -> bool {
    match (before, after) {
        (Stage::Open { interval: before, asking }, Stage::Open { interval: after, asking: more }) => {
            before == after && asking < more
        }
        _ => false,
    }
}

/// Says in the log what became of a breaker.
fn tell(of: &Of, change: &Change, cause: Option<&str>) {
    let breaker = of.name();
    match change {
        Change::Set(stage @ Stage::Open { interval, asking }) => {
            let interval_ms = interval.as_millis() as u64;
            tracing::warn!(breaker, state = stage.as_str(), interval_ms, asking, cause, "breaker is open");
        }
        Change::Set(stage @ Stage::Widening { max }) => {
            tracing::info!(breaker, state = stage.as_str(), max, "breaker lets more through");
        }
        Change::Set(stage @ Stage::Crowded { max, .. }) => {
            tracing::warn!(breaker, state = stage.as_str(), max, cause, "target is crowded");
        }
        Change::Close => tracing::info!(breaker, "breaker closed"),
    }
}

/// The duty.
pub(crate) struct Watching {
    pub(crate) engine: Arc<Engine>,
    pub(crate) tidy_at: Timestamp,
}

impl Watching {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let tidy_at = engine.clock.now() + TIDY_EVERY;
        Watching { engine, tidy_at }
    }
}

#[async_trait]
impl Duty for Watching {
    const NAME: &'static str = "breakers";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        self.engine.look_at_loads(now).await;
        self.engine.look_at_probes(now).await;
        if self.tidy_at <= now {
            self.tidy_at = now + TIDY_EVERY;
            self.engine.tidy_breakers(now).await?;
        }
        Ok(Next::At(now + LOOK_EVERY))
    }
}
