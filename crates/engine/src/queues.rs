//! Queues: what waits, what runs, who is there to take it, and what is planned.
//!
//! Told when somebody asks, and in the figures from time to time, for whoever adds and takes away workers. Promise: a question reads a
//! bounded number of runs, however many wait, and says where it stopped counting.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::TenantId;
use punctual_domain::work::{Finished, Presence};
use punctual_store::Queue;

use crate::engine::Engine;
use crate::error::Error;
use crate::forecast::Question;

/// How far ahead slots are told: as long as it takes to start machines.
pub const PLANNED_FOR: SignedDuration = SignedDuration::from_mins(15);

/// How late runs started is remembered for so long, and for half of it at least.
const RECENT: SignedDuration = SignedDuration::from_secs(120);

/// Queues whose lateness is remembered; beyond that all begin anew.
const KNOWN_MAX: usize = 2_000;

/// Queues that the figures tell apart: those with the most that waits and runs.
const IN_FIGURES: usize = 100;

/// Slots are counted anew for the figures after so long.
const PLAN_EVERY: SignedDuration = SignedDuration::from_secs(60);

/// A queue of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueState {
    /// What the store counts.
    pub counted: Queue,
    /// How late the run that started latest was, of those that ended on this node within the last two minutes.
    pub lateness: Option<Duration>,
    /// Workers that pull from it.
    pub workers: u64,
    /// How many attempts they can execute at a time.
    pub concurrency: u64,
    /// How busy they are, in percent: as they say, or by what they hold, each by its concurrency.
    pub saturation: Option<u8>,
    /// Slots of the next quarter of an hour.
    pub planned: u64,
}

/// All queues that were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueStates {
    /// By tenant and name.
    pub queues: Vec<QueueState>,
    /// Why the planned slots are an estimate, if they are.
    pub estimated: Vec<String>,
}

type Name = (TenantId, Arc<str>);

/// How late runs started, by queue.
#[derive(Debug, Default)]
pub(crate) struct Latenesses(Mutex<HashMap<Name, Recent>>);

/// The longest in the stretch that began then, and in the one before.
#[derive(Clone, Copy, Debug)]
struct Recent {
    since: Timestamp,
    now: Duration,
    before: Duration,
}

impl Latenesses {
    /// A run of a queue started so late.
    pub(crate) fn observe(&self, tenant: TenantId, queue: &Arc<str>, late: Duration, now: Timestamp) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (tenant, Arc::clone(queue));
        if known.len() >= KNOWN_MAX && !known.contains_key(&name) {
            known.clear();
        }
        let recent = known.entry(name).or_insert(Recent { since: now, now: late, before: Duration::ZERO });
        if now.duration_since(recent.since) >= RECENT / 2 {
            *recent = Recent { since: now, now: Duration::ZERO, before: recent.now };
        }
        recent.now = recent.now.max(late);
    }

    fn of(&self, tenant: TenantId, queue: &Arc<str>, now: Timestamp) -> Option<Duration> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = known.get(&(tenant, Arc::clone(queue)))?;
        (now.duration_since(recent.since) <= RECENT).then(|| recent.now.max(recent.before))
    }
}

/// Planned slots by queue, and since when they are known.
#[derive(Debug, Default)]
pub(crate) struct Plans(Mutex<Option<(Timestamp, HashMap<Name, u64>)>>);

impl Engine {
    /// The queues of a tenant, or of all: those in which runs wait, run or are planned, and those that somebody serves.
    pub async fn queues(&self, tenant: Option<TenantId>) -> Result<QueueStates, Error> {
        let now = self.clock.now();
        let forecast = self.forecast(Question::by_queue(now, PLANNED_FOR, tenant)).await?;
        let mut planned: HashMap<Name, u64> = HashMap::new();
        for group in forecast.groups {
            if let (Some(tenant), Some(queue)) = (group.tenant, group.queue) {
                *planned.entry((tenant, queue)).or_default() += group.slots.iter().sum::<u64>();
            }
        }
        let queues = self.queues_with(tenant, &planned, now).await?;
        Ok(QueueStates { queues, estimated: forecast.estimated })
    }

    async fn queues_with(
        &self,
        tenant: Option<TenantId>,
        planned: &HashMap<Name, u64>,
        now: Timestamp,
    ) -> Result<Vec<QueueState>, Error> {
        let counted = self.store.queues(tenant).await?;
        let workers = self.store.workers(tenant).await?;
        let mut queues = put_together(counted, &workers, planned);
        for queue in &mut queues {
            queue.lateness = self.latenesses.of(queue.counted.tenant, &queue.counted.queue, now);
        }
        Ok(queues)
    }

    /// Remembers how late a run started, by its queue.
    pub(crate) fn note_lateness(&self, finished: &Finished, now: Timestamp) {
        let (run, Some(report)) = (&finished.run, &finished.report) else { return };
        if run.attempt == 1 {
            let late = report.started_at.duration_since(run.available_at).max(SignedDuration::ZERO);
            self.latenesses.observe(run.tenant, &run.queue, late.unsigned_abs(), now);
        }
    }

    /// Brings the figures of queues up to date.
    pub(crate) async fn tell_queues(&self) -> Result<(), Error> {
        let now = self.clock.now();
        let known = self.plans.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let planned = match known {
            Some((at, planned)) if now >= at && now.duration_since(at) < PLAN_EVERY => planned,
            _ => {
                let forecast = self.forecast(Question::by_queue(now, PLANNED_FOR, None)).await?;
                let named = forecast.groups.into_iter().filter_map(|group| {
                    Some(((group.tenant?, group.queue?), group.slots.iter().sum::<u64>()))
                });
                let planned: HashMap<Name, u64> = named.collect();
                *self.plans.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, planned.clone()));
                planned
            }
        };
        let mut queues = self.queues_with(None, &planned, now).await?;
        queues.sort_by_key(|queue| std::cmp::Reverse(queue.counted.waiting + queue.counted.running));
        queues.truncate(IN_FIGURES);
        let mut named = Vec::with_capacity(queues.len());
        for queue in queues {
            named.push((self.tenant_name(queue.counted.tenant).await?, queue));
        }
        self.metrics.set_queues(&named, now);
        Ok(())
    }
}

/// Queues with those who serve them, and with what is planned.
fn put_together(counted: Vec<Queue>, workers: &[Presence], planned: &HashMap<Name, u64>) -> Vec<QueueState> {
    let mut queues: BTreeMap<Name, QueueState> = BTreeMap::new();
    let empty = |(tenant, queue): &Name| QueueState {
        counted: Queue {
            tenant: *tenant,
            queue: Arc::clone(queue),
            waiting: 0,
            is_more: false,
            oldest_at: None,
            running: 0,
        },
        lateness: None,
        workers: 0,
        concurrency: 0,
        saturation: None,
        planned: 0,
    };
    for counted in counted {
        let name = (counted.tenant, Arc::clone(&counted.queue));
        let state = QueueState { counted, ..empty(&name) };
        queues.insert(name, state);
    }
    for (name, slots) in planned.iter().filter(|(_, slots)| **slots > 0) {
        queues.entry(name.clone()).or_insert_with(|| empty(name)).planned += slots;
    }
    let mut busy: HashMap<Name, u64> = HashMap::new();
    for present in workers {
        let about = &present.about;
        let concurrency = u64::from(about.concurrency);
        let held = (present.held.len() as u64 * 100).checked_div(concurrency).unwrap_or(100).min(100);
        let saturation = about.saturation.map_or(held, u64::from);
        for queue in &about.queues {
            let name = (about.tenant, Arc::clone(queue));
            let state = queues.entry(name.clone()).or_insert_with(|| empty(&name));
            state.workers += 1;
            state.concurrency += concurrency;
            *busy.entry(name).or_default() += saturation * concurrency;
        }
    }
    for (name, busy) in busy {
        if let Some(state) = queues.get_mut(&name) {
            state.saturation = busy.checked_div(state.concurrency).map(|percent| percent.min(100) as u8);
        }
    }
    queues.into_values().collect()
}

#[cfg(test)]
mod tests {
    use punctual_domain::Labels;
    use punctual_domain::id::WorkerId;
    use punctual_domain::work::About;

    use super::*;

    const TENANT: TenantId = TenantId::DEFAULT;

    fn worker(queues: &[&str], concurrency: u32, saturation: Option<u8>) -> Presence {
        let about = About {
            tenant: TENANT,
            name: String::new(),
            queues: queues.iter().map(|queue| Arc::from(*queue)).collect(),
            labels: Labels::NONE,
            concurrency,
            saturation,
            started_at: Timestamp::UNIX_EPOCH,
        };
        let worker = WorkerId::new(Timestamp::UNIX_EPOCH, u64::from(concurrency));
        Presence { worker, about, seen_at: Timestamp::UNIX_EPOCH, held: Vec::new() }
    }

    #[test]
    fn a_queue_is_as_busy_as_its_workers_by_their_size() {
        let planned = HashMap::from([((TENANT, Arc::from("planned")), 7), ((TENANT, Arc::from("none")), 0)]);
        let workers =
            [worker(&["a", "b"], 10, Some(100)), worker(&["a"], 30, Some(20)), worker(&["c"], 4, None)];
        let queues = put_together(Vec::new(), &workers, &planned);
        let told: Vec<_> = queues
            .iter()
            .map(|of| (&*of.counted.queue, of.workers, of.concurrency, of.saturation, of.planned))
            .collect();
        assert_eq!(
            told,
            [
                ("a", 2, 40, Some(40), 0),
                ("b", 1, 10, Some(100), 0),
                ("c", 1, 4, Some(0), 0),
                ("planned", 0, 0, None, 7)
            ]
        );
    }

    #[test]
    fn lateness_is_the_worst_of_the_last_two_minutes() {
        let (known, queue): (Latenesses, Arc<str>) = (Latenesses::default(), "a".into());
        let at = |second| Timestamp::from_second(second).expect("in range");
        let late = Duration::from_secs;
        assert_eq!(known.of(TENANT, &queue, at(0)), None);
        known.observe(TENANT, &queue, late(9), at(0));
        known.observe(TENANT, &queue, late(2), at(50));
        assert_eq!(known.of(TENANT, &queue, at(59)), Some(late(9)));
        known.observe(TENANT, &queue, late(1), at(61));
        assert_eq!(known.of(TENANT, &queue, at(61)), Some(late(9)));
        known.observe(TENANT, &queue, late(3), at(122));
        assert_eq!(known.of(TENANT, &queue, at(122)), Some(late(3)));
        assert_eq!(known.of(TENANT, &queue, at(243)), None, "nothing was heard of it since");
    }
}
