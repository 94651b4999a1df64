//! Counts jobs by what is planned for them, so that a forecast need not look at jobs.
//!
//! Made when a forecast is asked for, page by page over all active jobs, on this node and in memory alone: nothing is written for
//! it when jobs are registered or fired. Promise: bounded memory, whatever is registered; a question waits for a few pages
//! at most, the rest is counted in the background at half of a reader's time; a census is made anew when it is older than
//! twenty times what it took. Jobs that were registered since are added to it, so only changes and deletions wait for the next.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, TenantId};
use punctual_schedule::calendar::OnExcluded;
use punctual_schedule::every::Origin;
use punctual_schedule::{Binding, Kind, Schedule, Seed, dst};
use punctual_store::{PageRequest, Planned};

use crate::calendar_states::{Bound, Missing};
use crate::curve::Plan;
use crate::engine::Engine;
use crate::error::Error;
use crate::pass::{Duty, Next};
use crate::timetables::Timetables;

/// Jobs of a page: some ten milliseconds' work.
const PAGE: usize = 5_000;

/// Pages that a question counts by itself: most installations are counted whole by then.
const PAGES_AT_ONCE: usize = 40;

/// A census is good for so many times what it took: counting takes a twentieth of one reader's time at most.
const WORTH: i32 = 20;

/// Groups of (tenant, type, destination, queue); what comes later is counted as the rest of its tenant, and when there are as many
/// tenants again, as the rest.
const GROUPS_MAX: usize = 2_000;

/// Different schedules. One takes about two kilobytes; jobs with others are counted evenly.
const PLANS_MAX: usize = 20_000;

/// Schedules of groups.
const SHARES_MAX: usize = 200_000;

/// Single times that are told apart, before they are counted by the minute, the hour and the day.
const CELLS_MAX: usize = 500_000;

/// Seconds of the cells that single times are counted in, finest first.
const CELLS: [i64; 4] = [1, 60, 3_600, 86_400];

/// Single times later than this are not counted yet, and no forecast goes so far.
pub(crate) const AHEAD: SignedDuration = SignedDuration::from_hours(24 * 400);

/// The stretch over which schedules beyond [`PLANS_MAX`] are evened.
const EVENED_OVER: SignedDuration = SignedDuration::from_hours(24 * 31);

/// Who shares a line of a forecast. What is not told apart is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Group {
    pub(crate) tenant: Option<TenantId>,
    /// The type of its jobs, if they have one.
    pub(crate) kind: Option<Arc<str>>,
    /// Where their runs go.
    pub(crate) destination: Option<Arc<str>>,
    /// Who executes them.
    pub(crate) queue: Option<Arc<str>>,
    /// Several that are not told apart.
    pub(crate) is_rest: bool,
}

impl Group {
    /// All that are not told apart.
    pub(crate) fn rest() -> Self {
        Group { tenant: None, kind: None, destination: None, queue: None, is_rest: true }
    }
}

/// What decides the slots of a job, but for its id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: Kind,
    timezone: String,
    dst: dst::Policy,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    spread: Option<Duration>,
    /// The numbers of its calendars: the same name is another calendar in another tenant, and after a change.
    calendars: Vec<u64>,
    on_excluded: u8,
    left: Option<u64>,
}

impl Key {
    fn of(schedule: &Schedule, left: Option<u64>, calendars: Vec<u64>) -> Self {
        Key {
            kind: schedule.kind.clone(),
            timezone: schedule.timezone.clone(),
            dst: schedule.dst,
            start: schedule.bounds.start,
            end: schedule.bounds.end,
            spread: schedule.spread,
            calendars,
            on_excluded: match schedule.on_excluded {
                OnExcluded::Skip => 0,
                OnExcluded::Next => 1,
                OnExcluded::Previous => 2,
            },
            left,
        }
    }
}

/// Where a job with a schedule is counted.
#[derive(Clone, Copy, Debug)]
enum Place {
    Plan(u32),
    /// So many slots in a millisecond.
    Even(f64),
    /// It fires no more.
    Over,
    /// It cannot be bound here: its zone or calendar is not known.
    Unknown,
}

/// Jobs, counted.
#[derive(Debug, Default)]
pub(crate) struct Census {
    pub(crate) begun_at: Timestamp,
    /// When all jobs had been counted.
    pub(crate) done_at: Option<Timestamp>,
    after: Option<JobId>,
    /// How many were counted.
    pub(crate) jobs: u64,
    /// How many could not be.
    pub(crate) unknown: u64,
    pub(crate) groups: Vec<Group>,
    by_group: HashMap<Group, u32>,
    pub(crate) plans: Vec<Plan>,
    by_plan: HashMap<Key, u32>,
    /// Jobs by plan and group.
    pub(crate) shares: HashMap<(u32, u32), u64>,
    /// By group: jobs whose schedules found no place, and how many slots they have in a millisecond.
    pub(crate) even: HashMap<u32, (u64, f64)>,
    pub(crate) once: Once,
}

/// Jobs with a single slot, by group and time.
#[derive(Debug, Default)]
pub(crate) struct Once {
    /// Which of [`CELLS`].
    grain: usize,
    pub(crate) cells: HashMap<(u32, i64), u64>,
}

impl Once {
    /// The length of a cell in seconds.
    pub(crate) fn width(&self) -> i64 {
        CELLS[self.grain]
    }

    fn add(&mut self, group: u32, at: Timestamp) {
        let cell = at.as_second().div_euclid(self.width());
        *self.cells.entry((group, cell)).or_default() += 1;
        while self.cells.len() > CELLS_MAX && self.grain + 1 < CELLS.len() {
            let finer = self.width();
            self.grain += 1;
            let width = self.width();
            for ((group, cell), jobs) in std::mem::take(&mut self.cells) {
                *self.cells.entry((group, (cell * finer).div_euclid(width))).or_default() += jobs;
            }
        }
    }
}

impl Census {
    pub(crate) fn begin(now: Timestamp) -> Self {
        Census { begun_at: now, ..Census::default() }
    }

    /// Whether it is so old that it should be made anew.
    fn is_stale(&self, now: Timestamp) -> bool {
        self.done_at.is_none_or(|done_at| {
            let took = done_at.duration_since(self.begun_at);
            now.duration_since(done_at) >= took.saturating_mul(WORTH) || now < done_at
        })
    }

    /// Adds jobs. The next ones come after the last.
    pub(crate) fn add(&mut self, jobs: &[Planned], timetables: &Timetables, now: Timestamp) {
        // Jobs of a page share their schedules; what was found for one is not searched for again.
        let mut places: HashMap<(*const Schedule, TenantId, Option<u64>), Place> = HashMap::new();
        for job in jobs {
            self.jobs += 1;
            self.after = Some(job.job);
            match &job.schedule.kind {
                Kind::Now => {}
                Kind::At(_) | Kind::After(_) => self.add_once(job, timetables, now),
                Kind::Every(_) | Kind::Interval(_) | Kind::Cron(_) => {
                    let most = job.schedule.bounds.max_fires.map(NonZeroU64::get);
                    let left = most.map(|most| most.saturating_sub(job.fired));
                    // Calendars are a tenant's own.
                    let whose =
                        if job.schedule.calendars.is_empty() { TenantId::DEFAULT } else { job.tenant };
                    let known = (Arc::as_ptr(&job.schedule), whose, left);
                    let place = match places.get(&known) {
                        Some(place) => *place,
                        None => {
                            let place = self.place(job, left, timetables);
                            places.insert(known, place);
                            place
                        }
                    };
                    self.add_to(place, job);
                }
            }
        }
    }

    fn add_once(&mut self, job: &Planned, timetables: &Timetables, now: Timestamp) {
        let seed = match job.schedule.spread {
            Some(_) => Seed::of(&job.job.to_string()),
            None => Seed::default(),
        };
        let calendars = bind(job, timetables).calendars;
        let binding = Binding { seed, registered_at: job.registered_at, calendars };
        let Ok(timetable) = job.schedule.timetable(timetables.tzdb(), &binding) else {
            self.unknown += 1;
            return;
        };
        let spread = SignedDuration::try_from(timetable.spread_offset()).unwrap_or_default();
        let at = timetable.next_after(now - spread).map(|slot| slot + spread);
        if let Some(at) = at.filter(|at| *at < now + AHEAD) {
            let group = self.group(job);
            self.once.add(group, at);
        }
    }

    fn add_to(&mut self, place: Place, job: &Planned) {
        match place {
            Place::Over => {}
            Place::Unknown => self.unknown += 1,
            Place::Even(rate) => self.add_even(rate, job),
            Place::Plan(plan) => {
                let group = self.group(job);
                let is_full = self.shares.len() >= SHARES_MAX;
                match self.shares.get_mut(&(plan, group)) {
                    Some(jobs) => *jobs += 1,
                    None if is_full => {
                        let rate = rate(&self.plans[plan as usize], self.begun_at);
                        self.add_even(rate, job);
                    }
                    None => {
                        self.shares.insert((plan, group), 1);
                    }
                }
            }
        }
    }

    fn add_even(&mut self, rate: f64, job: &Planned) {
        let group = self.group(job);
        let (jobs, slots) = self.even.entry(group).or_default();
        *jobs += 1;
        *slots += rate;
    }

    /// Finds where jobs with a schedule are counted.
    fn place(&mut self, job: &Planned, left: Option<u64>, timetables: &Timetables) -> Place {
        if left == Some(0) {
            return Place::Over;
        }
        let schedule = &*job.schedule;
        let Bound { calendars, serials } = bind(job, timetables);
        let key = Key::of(schedule, left, serials);
        if let Some(plan) = self.by_plan.get(&key) {
            return Place::Plan(*plan);
        }
        let (evened, share) = schedule.evened();
        let binding = Binding { calendars, ..Binding::default() };
        let Ok(timetable) = evened.timetable(timetables.tzdb(), &binding) else { return Place::Unknown };
        let plan = Plan { timetable, share, left, from_completion: from_completion(schedule) };
        if self.plans.len() >= PLANS_MAX {
            return Place::Even(rate(&plan, self.begun_at));
        }
        let number = self.plans.len() as u32;
        self.plans.push(plan);
        self.by_plan.insert(key, number);
        Place::Plan(number)
    }

    fn group(&mut self, job: &Planned) -> u32 {
        let own = Group {
            tenant: Some(job.tenant),
            kind: job.kind.clone(),
            destination: Some(Arc::clone(&job.destination)),
            queue: Some(Arc::clone(&job.queue)),
            is_rest: false,
        };
        let rest = Group { tenant: Some(job.tenant), ..Group::rest() };
        let all = Group::rest();
        for (group, most) in [(own, GROUPS_MAX), (rest, 2 * GROUPS_MAX)] {
            if let Some(known) = self.known(group, most) {
                return known;
            }
        }
        self.known(all, usize::MAX).unwrap_or_default()
    }

    /// The number of a group, unless it is new and there are too many.
    fn known(&mut self, group: Group, most: usize) -> Option<u32> {
        if let Some(known) = self.by_group.get(&group) {
            return Some(*known);
        }
        if self.groups.len() >= most {
            return None;
        }
        let number = self.groups.len() as u32;
        self.groups.push(group.clone());
        self.by_group.insert(group, number);
        Some(number)
    }
}

/// The calendars of a job, which have been read.
fn bind(job: &Planned, timetables: &Timetables) -> Bound {
    timetables.calendars().bind(job.tenant, &job.schedule.calendars, None, Missing::Allows)
}

/// Slots in a millisecond, over a month.
fn rate(plan: &Plan, now: Timestamp) -> f64 {
    let length = EVENED_OVER.as_millis() as f64;
    match plan.from_completion {
        Some(period) => 1.0 / period.max(1) as f64,
        None => plan.timetable.count(now, now + EVENED_OVER) as f64 * plan.share / length,
    }
}

/// The period in milliseconds, if it counts from the end of the last run.
fn from_completion(schedule: &Schedule) -> Option<i64> {
    let Kind::Every(every) = &schedule.kind else { return None };
    let is_so = *every.origin() == Origin::Completion;
    // An exact period prints as an exact duration.
    let length: SignedDuration = every.period().to_string().parse().ok().filter(|_| is_so)?;
    i64::try_from(length.as_millis()).ok()
}

/// The census that is answered from, and the one that takes its place when it is done.
#[derive(Debug, Default)]
pub(crate) struct Censuses {
    whole: Option<Census>,
    under_way: Option<Census>,
}

impl Censuses {
    /// The last whole one, or else as far as the first one is.
    pub(crate) fn best(&self) -> Option<&Census> {
        self.whole.as_ref().or(self.under_way.as_ref())
    }
}

impl Engine {
    /// Brings the census up to date, as far as a question waits for it.
    pub(crate) async fn bring_up(&self, censuses: &mut Censuses) -> Result<(), Error> {
        let now = self.clock.now();
        let is_stale = censuses.whole.as_ref().is_none_or(|census| census.is_stale(now));
        if is_stale && censuses.under_way.is_none() {
            censuses.under_way = Some(Census::begin(now));
        }
        if censuses.under_way.is_none() {
            return self.add_new(censuses).await;
        }
        for _ in 0..PAGES_AT_ONCE {
            if !self.count_on(censuses).await? {
                break;
            }
        }
        if censuses.under_way.is_some() {
            self.wakes.census.notify_one();
            self.add_new(censuses).await?;
        }
        Ok(())
    }

    /// Adds jobs that were registered since to the last census.
    async fn add_new(&self, censuses: &mut Censuses) -> Result<(), Error> {
        let Some(whole) = &mut censuses.whole else { return Ok(()) };
        for _ in 0..PAGES_AT_ONCE {
            if !self.count_page(whole).await? {
                break;
            }
        }
        Ok(())
    }

    /// Counts the next page of the census that is under way; says whether there are more.
    async fn count_on(&self, censuses: &mut Censuses) -> Result<bool, Error> {
        let Some(census) = &mut censuses.under_way else { return Ok(false) };
        if self.count_page(census).await? {
            return Ok(true);
        }
        census.done_at = Some(self.clock.now());
        tracing::debug!(jobs = census.jobs, plans = census.plans.len(), "counted");
        censuses.whole = censuses.under_way.take();
        Ok(false)
    }

    /// Says whether there are more.
    async fn count_page(&self, census: &mut Census) -> Result<bool, Error> {
        let page = PageRequest { after: census.after, limit: PAGE };
        let page = match self.store.lists() {
            Some(lists) => lists.planned(page).await?,
            None => self.store.planned(page).await?,
        };
        let named = |job: &Planned| -> Vec<(TenantId, String)> {
            job.schedule.calendars.iter().map(|name| (job.tenant, name.clone())).collect()
        };
        self.learn(self.not_believed(page.items.iter().flat_map(named).collect())).await?;
        census.add(&page.items, &self.timetables, self.clock.now());
        census.after = page.next.or(census.after);
        Ok(page.next.is_some())
    }
}

/// Goes on with a census that a question left unfinished.
pub(crate) struct Counting {
    pub(crate) engine: Arc<Engine>,
}

#[async_trait]
impl Duty for Counting {
    const NAME: &'static str = "census";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        let mut censuses = self.engine.censuses.lock().await;
        if !self.engine.count_on(&mut censuses).await? {
            return Ok(Next::Woken);
        }
        // Others read too: half of the time is theirs.
        let then = self.engine.clock.now();
        Ok(Next::At(then + then.duration_since(now).max(SignedDuration::ZERO)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use punctual_domain::id::ShardId;
    use punctual_schedule::Tzdb;

    use super::*;

    fn now() -> Timestamp {
        "2026-03-01T00:00:00Z".parse().unwrap()
    }

    fn job(number: u64, destination: &str, schedule: &Arc<Schedule>) -> Planned {
        Planned {
            job: JobId::new(now(), ShardId(0), number),
            tenant: TenantId::DEFAULT,
            kind: None,
            destination: destination.into(),
            queue: "default".into(),
            schedule: Arc::clone(schedule),
            registered_at: now(),
            fired: 0,
        }
    }

    fn count(jobs: impl IntoIterator<Item = Planned>) -> Census {
        let timetables = Timetables::new(Arc::new(Tzdb::bundled()));
        let mut census = Census::begin(now());
        let jobs: Vec<Planned> = jobs.into_iter().collect();
        jobs.chunks(1_000).for_each(|page| census.add(page, &timetables, now()));
        census
    }

    #[test]
    fn jobs_that_say_the_same_are_one_plan() {
        let texts = ["0 9 * * *", "*/5 * * * *", "@every 90s"];
        let jobs = (0..9_000).map(|number| {
            // Read anew for every page, as a store does.
            let schedule = Arc::new(Schedule::parse(texts[number as usize % 3]).unwrap());
            job(number, "discard", &schedule)
        });
        let census = count(jobs);
        assert_eq!((census.jobs, census.plans.len(), census.groups.len()), (9_000, 3, 1));
        assert_eq!(census.shares.values().copied().collect::<Vec<_>>(), [3_000; 3]);
    }

    #[test]
    fn memory_is_bounded_whatever_is_registered() {
        let every = Arc::new(Schedule::parse("@every 90s").unwrap());
        let groups = count((0..5_000).map(|number| job(number, &format!("http host-{number}"), &every)));
        assert_eq!(groups.groups.len(), GROUPS_MAX + 1);
        let rest = groups.groups.iter().position(|group| group.is_rest).unwrap() as u32;
        assert_eq!(groups.shares[&(0, rest)], 3_000);

        let own = |number: u64| {
            let text = format!("@every 1h phase {}ms", number + 1);
            job(number, "discard", &Arc::new(Schedule::parse(&text).unwrap()))
        };
        let plans = count((0..PLANS_MAX as u64 + 50).map(own));
        assert_eq!((plans.plans.len(), plans.shares.len()), (PLANS_MAX, PLANS_MAX));
        let (jobs, slots) = plans.even[&0];
        assert_eq!(jobs, 50);
        assert!((slots * 3_600_000.0 - 50.0).abs() < 0.1, "fifty in an hour: {slots}");
    }

    #[test]
    fn single_times_are_told_apart_until_they_are_too_many() {
        let at = |second: u64| {
            let at = now() + SignedDuration::from_secs(second as i64);
            job(second, "discard", &Arc::new(Schedule::parse(&format!("@at {at}")).unwrap()))
        };
        let few = count((1..1_000).map(at));
        assert_eq!((few.once.width(), few.once.cells.len(), few.plans.len()), (1, 999, 0));
        let mut once = Once::default();
        for second in 0..=CELLS_MAX as i64 {
            once.add(0, now() + SignedDuration::from_secs(second));
        }
        assert_eq!(once.width(), 60);
        assert_eq!(once.cells.values().sum::<u64>(), CELLS_MAX as u64 + 1);
        assert_eq!(once.cells[&(0, now().as_second() / 60)], 60);
    }

    #[test]
    fn what_fires_no_more_is_not_counted() {
        let over = |text: &str| Arc::new(Schedule::parse(text).unwrap());
        let mut limited = Schedule::parse("* * * * *").unwrap();
        limited.bounds.max_fires = NonZeroU64::new(3);
        let mut done = job(3, "discard", &Arc::new(limited));
        done.fired = 3;
        let passed = over("@at 2026-02-28T23:59:59Z");
        let census = count([job(1, "discard", &over("@now")), job(2, "discard", &passed), done]);
        assert_eq!((census.jobs, census.shares.len(), census.once.cells.len()), (3, 0, 0));
    }

    #[test]
    fn a_census_is_made_anew_by_what_it_took() {
        let seconds = SignedDuration::from_secs;
        let mut census = Census::begin(now());
        assert!(census.is_stale(now()));
        census.done_at = Some(now() + seconds(3));
        for (after, is_stale) in [(3, false), (62, false), (63, true), (2, true)] {
            assert_eq!(census.is_stale(now() + seconds(after)), is_stale, "{after}");
        }
    }
}
