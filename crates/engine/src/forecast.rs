//! Forecasts: how many slots are planned, by time and by who and where.
//!
//! Made when somebody asks, from a [census](crate::census) of the jobs: the slots of each different schedule are found once and
//! multiplied with the jobs that have it. Promise: the work depends on buckets and different schedules, not on jobs, and
//! is bounded; the answer says as of when it is, and why it is an estimate if it is one. One is made at a time.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::TenantId;

use crate::census::{AHEAD, Census, Group};
use crate::curve::{Buckets, Masses};
use crate::engine::Engine;
use crate::error::Error;

/// Buckets of a forecast: a day by the minute.
pub const BUCKETS_MAX: usize = 1_440;

/// The longest stretch of a forecast.
pub const RANGE_MAX: SignedDuration = SignedDuration::from_hours(24 * 31);

/// Groups that are told apart, unless said otherwise; the others are one.
pub const GROUPS: usize = 20;

/// Groups that can be asked for.
pub const GROUPS_MAX: usize = 100;

/// Queues that are told apart where they are asked for: as many as the census has groups.
const QUEUES_MAX: usize = 2_000;

/// Without a wish, a forecast is of the next hour.
const RANGE: SignedDuration = SignedDuration::from_hours(1);

/// Without a wish, a forecast has no more buckets: what fits on a screen.
const BUCKETS: i64 = 60;

/// Lengths of buckets to choose from, in seconds.
const RESOLUTIONS: [i64; 12] = [1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 3 * 3_600, 6 * 3_600, 86_400];

/// Schedules are asked so often for one forecast: a few seconds. What is left then is counted whole, and evenly.
const ASKED_MAX: u64 = 2_000_000;

/// What is asked for; what is not said is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// From when on; now.
    pub from: Option<Timestamp>,
    /// To when; an hour later.
    pub to: Option<Timestamp>,
    /// The length of a bucket.
    pub resolution: Option<SignedDuration>,
    /// What groups are told apart by.
    pub by: By,
    /// Of this tenant; of all if none is named.
    pub tenant: Option<TenantId>,
    /// So many groups are told apart.
    pub groups: Option<usize>,
}

/// What groups are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By {
    /// By tenant.
    pub tenant: bool,
    /// By type.
    pub kind: bool,
    /// By where runs go.
    pub destination: bool,
    /// By who executes them.
    pub queue: bool,
}

impl Default for By {
    fn default() -> Self {
        By { tenant: true, kind: true, destination: true, queue: false }
    }
}

/// What is wrong with a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Which part of it.
    pub field: &'static str,
    /// What, and what to do.
    pub detail: String,
}

/// A question that can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    buckets: Buckets,
    by: By,
    tenant: Option<TenantId>,
    groups: usize,
}

impl Asked {
    /// Chooses what was not said, and refuses what is too much.
    pub fn settle(&self, now: Timestamp) -> Result<Question, Wrong> {
        let wrong = |field, detail: String| Err(Wrong { field, detail });
        let from = self.from.unwrap_or(now);
        let to = self.to.or(from.checked_add(RANGE).ok()).unwrap_or(Timestamp::MAX);
        if to <= from || to <= now {
            return wrong("to", format!("a forecast ends after {}", from.max(now)));
        }
        if to.duration_since(from) > RANGE_MAX {
            return wrong("to", "a forecast is of 31 days at most; ask for less".into());
        }
        if to > now + AHEAD {
            return wrong("to", "nothing is foretold for more than 400 days ahead".into());
        }
        let fits = |seconds: &&i64| to.duration_since(from).as_secs() <= **seconds * BUCKETS;
        let chosen = RESOLUTIONS.iter().find(fits).copied().unwrap_or(86_400);
        let resolution = self.resolution.unwrap_or(SignedDuration::from_secs(chosen));
        let width = i64::try_from(resolution.as_millis()).unwrap_or(i64::MAX);
        if width < 1_000 || width % 1_000 != 0 || resolution > RANGE_MAX {
            return wrong("resolution", "write whole seconds, `PT1S` to 31 days".into());
        }
        // Without a wish, buckets begin where people look for them.
        let from = match self.from {
            Some(from) => from.as_second() * 1_000,
            None => from.as_millisecond().div_euclid(width) * width,
        };
        let count = (to.as_millisecond() - from + width - 1) / width;
        if count > BUCKETS_MAX as i64 {
            return wrong(
                "resolution",
                format!("these are {count} buckets, and there are {BUCKETS_MAX} at most; make them longer"),
            );
        }
        let groups = self.groups.unwrap_or(GROUPS);
        if groups > GROUPS_MAX {
            return wrong("groups", format!("write 0 to {GROUPS_MAX}"));
        }
        let buckets = Buckets { from, width, count: count as usize, now: now.as_millisecond() };
        Ok(Question { buckets, by: self.by, tenant: self.tenant, groups })
    }
}

/// How many slots are planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Where the first bucket begins.
    pub from: Timestamp,
    /// Where the last one ends.
    pub to: Timestamp,
    /// The length of a bucket.
    pub resolution: SignedDuration,
    /// When the jobs were counted. Those registered since are counted too; changes are not.
    pub as_of: Timestamp,
    /// Whether all jobs were counted.
    pub is_complete: bool,
    /// How many active jobs were counted.
    pub jobs: u64,
    /// Why it is an estimate; exact, as of then, if nothing is said.
    pub estimated: Vec<String>,
    /// All slots, by bucket.
    pub slots: Vec<u64>,
    /// Groups with the most slots first, and the others as one.
    pub groups: Vec<GroupForecast>,
    /// How often schedules were asked for it.
    pub asked: u64,
}

impl Forecast {
    /// All slots.
    pub fn total(&self) -> u64 {
        self.slots.iter().sum()
    }
}

/// The slots of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupForecast {
    /// Whose, if groups are told apart by it.
    pub tenant: Option<TenantId>,
    /// Of which type, if groups are told apart by it and it has one.
    pub kind: Option<Arc<str>>,
    /// Where the runs go, if groups are told apart by it.
    pub destination: Option<Arc<str>>,
    /// Who executes them, if groups are told apart by it.
    pub queue: Option<Arc<str>>,
    /// Several groups that are not told apart.
    pub is_rest: bool,
    /// Its slots, by bucket.
    pub slots: Vec<u64>,
}

impl Question {
    /// How many slots each queue has from now on for so long, as one bucket; of one tenant or of all.
    pub(crate) fn by_queue(now: Timestamp, length: SignedDuration, tenant: Option<TenantId>) -> Question {
        let width = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        let buckets = Buckets { from: now.as_millisecond(), width, count: 1, now: now.as_millisecond() };
        let by = By { tenant: true, kind: false, destination: false, queue: true };
        Question { buckets, by, tenant, groups: QUEUES_MAX }
    }
}

impl Engine {
    /// How many slots are planned.
    pub async fn forecast(&self, question: Question) -> Result<Forecast, Error> {
        let mut censuses = Arc::clone(&self.censuses).lock_owned().await;
        self.bring_up(&mut censuses).await?;
        let answering = tokio::task::spawn_blocking(move || match censuses.best() {
            Some(census) => census.forecast(&question),
            None => Census::begin(Timestamp::UNIX_EPOCH).forecast(&question),
        });
        answering.await.map_err(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Error::Store(punctual_store::Error::Unavailable { reason: "the node stops".into() }),
        })
    }
}

/// Which jobs were not simply counted.
#[derive(Default)]
struct Estimated {
    even: u64,
    from_completion: u64,
    crowded_out: u64,
    single: u64,
}

/// The lines of a forecast: slots by group as asked for.
struct Lines {
    buckets: Buckets,
    /// The line of each group of the census; none if it is not asked for.
    of: Vec<Option<usize>>,
    lines: Vec<(Group, Masses)>,
}

impl Lines {
    fn add(&mut self, group: u32, jobs: f64, slots: &[f64]) {
        let Some(line) = self.of[group as usize] else { return };
        let masses = &mut self.lines[line].1;
        for (bucket, slots) in slots.iter().enumerate().filter(|(_, slots)| **slots > 0.0) {
            let start = self.buckets.from + bucket as i64 * self.buckets.width;
            masses.add(jobs * slots, start.max(self.buckets.low()), 0);
        }
    }
}

impl Census {
    /// How many slots are planned for the jobs that were counted.
    pub(crate) fn forecast(&self, question: &Question) -> Forecast {
        let Question { buckets, .. } = *question;
        let mut asked = 0;
        let shares = self.shares_of(question);
        let totals: Vec<f64> =
            shares.iter().map(|of| self.plans[of.plan].total(&buckets, &mut asked)).collect();
        let mut lines = self.lines(question, &shares, &totals);
        let mut estimated = Estimated::default();
        for (of, total) in shares.iter().zip(&totals) {
            let plan = &self.plans[of.plan];
            let slots = match asked < ASKED_MAX {
                true => plan.slots(&buckets, &mut asked),
                false => evened(buckets, *total),
            };
            let jobs: u64 = of.groups.iter().map(|(_, jobs)| jobs).sum();
            if slots.iter().any(|slots| *slots > 0.0) {
                match (plan.from_completion, plan.is_even()) {
                    _ if asked >= ASKED_MAX => estimated.crowded_out += jobs,
                    (Some(_), _) => estimated.from_completion += jobs,
                    (None, true) => estimated.even += jobs,
                    (None, false) => {}
                }
            }
            for (group, jobs) in &of.groups {
                lines.add(*group, *jobs as f64, &slots);
            }
        }
        for (group, (jobs, rate)) in self.even.iter().filter(|(group, _)| self.is_asked(**group, question)) {
            estimated.crowded_out += jobs;
            lines.add(*group, 1.0, &evened(buckets, rate * (buckets.to() - buckets.low()) as f64));
        }
        estimated.single = self.place_once(&mut lines, question);
        self.tell(lines, &estimated, question, asked)
    }

    fn is_asked(&self, group: u32, question: &Question) -> bool {
        let tenant = self.groups[group as usize].tenant;
        question.tenant.is_none_or(|wanted| tenant == Some(wanted))
    }

    /// Schedules with the jobs that have them, those with the most jobs first.
    fn shares_of(&self, question: &Question) -> Vec<Shares> {
        let mut by_plan: HashMap<usize, Vec<(u32, u64)>> = HashMap::new();
        for ((plan, group), jobs) in &self.shares {
            if self.is_asked(*group, question) {
                by_plan.entry(*plan as usize).or_default().push((*group, *jobs));
            }
        }
        let mut shares: Vec<Shares> =
            by_plan.into_iter().map(|(plan, groups)| Shares { plan, groups }).collect();
        let jobs = |of: &Shares| of.groups.iter().map(|(_, jobs)| jobs).sum::<u64>();
        shares.sort_by_key(|of| (Reverse(jobs(of)), of.plan));
        shares
    }

    /// Empty lines for the groups with the most slots, and one for the others.
    fn lines(&self, question: &Question, shares: &[Shares], totals: &[f64]) -> Lines {
        let Question { buckets, by, .. } = *question;
        let mut of_group = vec![0.0; self.groups.len()];
        for (of, total) in shares.iter().zip(totals) {
            for (group, jobs) in &of.groups {
                of_group[*group as usize] += total * *jobs as f64;
            }
        }
        for (group, (_, rate)) in &self.even {
            of_group[*group as usize] += rate * (buckets.to() - buckets.low()) as f64;
        }
        let width = self.once.width() * 1_000;
        for ((group, cell), jobs) in &self.once.cells {
            let is_here = cell * width < buckets.to() && (cell + 1) * width > buckets.low();
            of_group[*group as usize] += if is_here { *jobs as f64 } else { 0.0 };
        }
        let mut slots: HashMap<Group, f64> = HashMap::new();
        let shown: Vec<Option<Group>> = self
            .groups
            .iter()
            .enumerate()
            .map(|(number, group)| {
                let is_shown = self.is_asked(number as u32, question) && of_group[number] > 0.0;
                is_shown.then(|| shown(group, by))
            })
            .collect();
        for (group, of) in shown.iter().zip(&of_group) {
            if let Some(group) = group {
                *slots.entry(group.clone()).or_default() += of;
            }
        }
        let mut order: Vec<(Group, f64)> = slots.into_iter().collect();
        order.sort_by(|(one, of_one), (other, of_other)| {
            of_other.total_cmp(of_one).then_with(|| one.cmp(other))
        });
        let rest = Group::rest();
        let mut names: Vec<Group> = order.into_iter().map(|(group, _)| group).collect();
        if names.len() > question.groups {
            names.truncate(question.groups);
            if !names.contains(&rest) {
                names.push(rest.clone());
            }
        }
        let find = |group: &Group| names.iter().position(|name| name == group);
        let place = |group: &Group| find(group).or_else(|| find(&rest));
        let of = shown.iter().map(|group| group.as_ref().and_then(place)).collect();
        let lines = names.iter().map(|name| (name.clone(), Masses::new(buckets))).collect();
        Lines { buckets, of, lines }
    }

    /// Adds jobs with a single slot. Says how many are in cells that are coarser than the buckets.
    fn place_once(&self, lines: &mut Lines, question: &Question) -> u64 {
        let Question { buckets, .. } = *question;
        let width = self.once.width() * 1_000;
        let is_fine = buckets.width % width == 0 && buckets.from % width == 0;
        let mut coarse = 0;
        for ((group, cell), jobs) in &self.once.cells {
            let start = cell * width;
            if start >= buckets.to() || start + width <= buckets.low() || !self.is_asked(*group, question) {
                continue;
            }
            let Some(line) = lines.of[*group as usize] else { continue };
            let masses = &mut lines.lines[line].1;
            match is_fine || width == 1_000 {
                // A second that has begun is not over.
                true => masses.add(*jobs as f64, start.max(buckets.low()), 0),
                false => {
                    coarse += jobs;
                    masses.add(*jobs as f64, start, width);
                }
            }
        }
        coarse
    }

    fn tell(&self, lines: Lines, estimated: &Estimated, question: &Question, asked: u64) -> Forecast {
        let Question { buckets, .. } = *question;
        let mut slots = vec![0.0; buckets.count];
        let mut groups = Vec::new();
        for (group, masses) in lines.lines {
            let of = masses.into_slots();
            slots.iter_mut().zip(&of).for_each(|(all, of)| *all += of);
            groups.push(GroupForecast {
                tenant: group.tenant,
                kind: group.kind,
                destination: group.destination,
                queue: group.queue,
                is_rest: group.is_rest,
                slots: of.iter().map(|slots| slots.round() as u64).collect(),
            });
        }
        Forecast {
            from: crate::curve::instant(buckets.from),
            to: crate::curve::instant(buckets.to()),
            resolution: SignedDuration::from_millis(buckets.width),
            as_of: self.begun_at,
            is_complete: self.done_at.is_some(),
            jobs: self.jobs,
            estimated: self.reasons(estimated, question),
            slots: slots.iter().map(|slots| slots.round() as u64).collect(),
            groups,
            asked,
        }
    }

    fn reasons(&self, estimated: &Estimated, question: &Question) -> Vec<String> {
        let Estimated { even, from_completion, crowded_out, single } = *estimated;
        let mut reasons = Vec::new();
        let mut say = |count: u64, what: String| {
            if count > 0 {
                reasons.push(what);
            }
        };
        say(
            u64::from(self.done_at.is_none()),
            match question.tenant {
                None => format!("jobs are still being counted, {} so far: ask again", self.jobs),
                Some(_) => "jobs are still being counted: ask again".into(),
            },
        );
        say(even, format!("{even} jobs with `H` or a spread are counted evenly over their windows"));
        say(
            from_completion,
            format!(
                "{from_completion} jobs that count from completion are counted as if their runs took no time"
            ),
        );
        say(
            crowded_out,
            format!("{crowded_out} jobs are counted evenly, for there are too many different schedules"),
        );
        say(single, format!("{single} single times are known to {} seconds only", self.once.width()));
        say(
            self.unknown,
            format!("{} jobs are left out: their zone or calendar is not known here", self.unknown),
        );
        let is_lost = question.tenant.is_some() && self.groups.iter().any(|group| group.tenant.is_none());
        say(
            u64::from(is_lost),
            "there are too many tenants to tell all of them apart: some jobs are left out".into(),
        );
        reasons
    }
}

/// Jobs that share a schedule, by group.
struct Shares {
    plan: usize,
    groups: Vec<(u32, u64)>,
}

/// A group as the question tells groups apart.
fn shown(group: &Group, by: By) -> Group {
    Group {
        tenant: group.tenant.filter(|_| by.tenant),
        kind: group.kind.clone().filter(|_| by.kind),
        destination: group.destination.clone().filter(|_| by.destination),
        queue: group.queue.clone().filter(|_| by.queue),
        // Of one tenant's jobs it is still known whose they are.
        is_rest: group.is_rest && (by.kind || by.destination || by.queue || group.tenant.is_none()),
    }
}

fn evened(buckets: Buckets, slots: f64) -> Vec<f64> {
    let mut masses = Masses::new(buckets);
    masses.even(slots);
    masses.into_slots()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use punctual_domain::id::{JobId, ShardId};
    use punctual_schedule::{Schedule, Tzdb};
    use punctual_store::Planned;

    use super::*;
    use crate::timetables::Timetables;

    fn now() -> Timestamp {
        "2026-03-01T00:00:00Z".parse().unwrap()
    }

    /// So many jobs over a few schedules, two tenants and three hosts, in pages as a store gives them.
    fn counted(jobs: u64) -> Census {
        let timetables = Timetables::new(Arc::new(Tzdb::bundled()));
        let texts = ["0 9 * * *", "*/5 * * * *", "* * * * * *", "@every 90s", "30 2 * * 1-5"];
        let mut census = Census::begin(now());
        let mut number = 0;
        while number < jobs {
            let schedules = texts.map(|text| Arc::new(Schedule::parse(text).unwrap()));
            let destinations: [Arc<str>; 3] = ["http a", "http b", "http c"].map(Arc::from);
            let page: Vec<Planned> = (number..jobs.min(number + 5_000))
                .map(|number| Planned {
                    job: JobId::new(now(), ShardId(0), number),
                    tenant: TenantId(1 + (number % 2) as u32),
                    kind: None,
                    destination: Arc::clone(&destinations[number as usize % 3]),
                    queue: "default".into(),
                    schedule: Arc::clone(&schedules[number as usize % 5]),
                    registered_at: now(),
                    fired: 0,
                })
                .collect();
            census.add(&page, &timetables, now());
            number += page.len() as u64;
        }
        census.done_at = Some(now());
        census
    }

    fn asked(change: impl FnOnce(&mut Asked)) -> Question {
        let mut asked = Asked { to: Some(now() + SignedDuration::from_hours(24)), ..Asked::default() };
        asked.resolution = Some(SignedDuration::from_mins(1));
        change(&mut asked);
        asked.settle(now()).unwrap()
    }

    #[test]
    fn a_million_jobs_ask_their_schedules_no_more_often_than_thirty() {
        let (few, many) = (counted(30), counted(1_000_000));
        let question = asked(|_| {});
        let (of_few, of_many) = (few.forecast(&question), many.forecast(&question));
        assert_eq!(of_few.asked, of_many.asked);
        // The schedule of every second has 86,400 slots a job: each of its minutes is counted, and no slot is looked at.
        let most = (5 * (2 + BUCKETS_MAX)) as u64;
        assert!(of_many.asked <= most, "{} of {most}", of_many.asked);
        assert_eq!(of_many.estimated, Vec::<String>::new());
        // Daily, every five minutes, every second, every ninety seconds; the last not on a Sunday. The slots of this very
        // instant are over.
        let of_one_each = 1 + 287 + 86_399 + 959;
        assert_eq!(of_many.total(), 200_000 * of_one_each);
        assert_eq!(of_few.total(), 6 * of_one_each);
    }

    #[test]
    fn groups_are_told_apart_as_asked() {
        let census = counted(30);
        let by = |tenant, kind, destination| By { tenant, kind, destination, queue: false };
        let names = |question: Question| -> Vec<(Option<u32>, Option<String>)> {
            let forecast = census.forecast(&question);
            let sums: u64 = forecast.groups.iter().flat_map(|group| &group.slots).sum();
            assert_eq!(sums, forecast.total());
            let name = |group: &GroupForecast| {
                let destination = match group.is_rest {
                    true => Some("others".to_string()),
                    false => group.destination.as_deref().map(String::from),
                };
                (group.tenant.map(|tenant| tenant.0), destination)
            };
            forecast.groups.iter().map(name).collect()
        };
        assert_eq!(names(asked(|_| {})).len(), 6);
        assert_eq!(
            names(asked(|asked| asked.by = by(true, false, false))),
            [(Some(1), None), (Some(2), None)]
        );
        let hosts = names(asked(|asked| asked.by = by(false, true, true)));
        assert_eq!(
            hosts.iter().map(|(_, host)| host.clone().unwrap()).collect::<Vec<_>>(),
            ["http a", "http b", "http c"]
        );
        let two = names(asked(|asked| asked.groups = Some(2)));
        assert_eq!((two.len(), two[2].clone()), (3, (None, Some("others".into()))));
        let none = names(asked(|asked| asked.groups = Some(0)));
        assert_eq!(none, [(None, Some("others".into()))]);
        let own = census.forecast(&asked(|asked| asked.tenant = Some(TenantId(2))));
        assert!(own.groups.iter().all(|group| group.tenant == Some(TenantId(2))), "{:?}", own.groups);
        assert_eq!(own.total() * 2, census.forecast(&asked(|_| {})).total());
    }

    #[test]
    fn a_question_is_settled_or_refused() {
        let settle = |change: fn(&mut Asked)| {
            let mut asked = Asked::default();
            change(&mut asked);
            asked.settle(now() + SignedDuration::from_secs(95)).map(|question| question.buckets)
        };
        let hour = settle(|_| {}).unwrap();
        assert_eq!((hour.from, hour.width, hour.count), (now().as_millisecond() + 60_000, 60_000, 61));
        let month = settle(|asked| asked.to = Some(now() + SignedDuration::from_hours(24 * 31))).unwrap();
        assert_eq!((month.width, month.count), (86_400_000, 31));
        let field = |change: fn(&mut Asked)| settle(change).unwrap_err().field;
        assert_eq!(field(|asked| asked.to = Some(now())), "to");
        assert_eq!(field(|asked| asked.to = Some(now() + SignedDuration::from_hours(24 * 32))), "to");
        assert_eq!(field(|asked| asked.from = Some(now() + SignedDuration::from_hours(24 * 400))), "to");
        assert_eq!(field(|asked| asked.resolution = Some(SignedDuration::from_secs(2))), "resolution");
        assert_eq!(field(|asked| asked.resolution = Some(SignedDuration::from_millis(1_500))), "resolution");
        assert_eq!(field(|asked| asked.groups = Some(101)), "groups");
    }
}
