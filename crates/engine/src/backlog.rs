//! Keeps what waits within its caps: who gives birth to runs that wait asks here first.
//!
//! Runs inside register, fire and operations, in memory alone. What is asked for at once is refused, a slot is accounted for, an
//! operation waits. Promise: of what this node gives birth to, no more waits than the caps allow, however many ask at the same
//! time; what other nodes do is known as of the last count, which [`Tallying`] has made from time to time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::TenantId;
use punctual_domain::policy::backlog::{self, Cap, Caps, Full, Pending};
use punctual_store::{Backlog, Birth};

use crate::engine::Engine;
use crate::error::Error;
use crate::pass::{Duty, Next};

/// What this node keeps about it.
#[derive(Debug, Default)]
pub(crate) struct Intakes {
    caps: Mutex<Caps>,
    /// Runs whose birth was allowed and is not committed yet.
    asked: Mutex<Backlog>,
    /// The names of tenants that were told of a cap. They do not change.
    names: Mutex<HashMap<TenantId, Arc<str>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Room in the backlog for what one pass or one request gives birth to. It is given back when that has been committed, and
/// counted by the store, or was not done.
pub(crate) struct Intake<'e> {
    engine: &'e Engine,
    /// What waited when it was last asked. Far below the caps it is enough to ask once.
    known: HashMap<TenantId, Pending>,
    taken: Vec<(TenantId, u64)>,
}

impl Engine {
    /// Sets the caps.
    pub fn set_caps(&self, caps: Caps) {
        *lock(&self.intakes.caps) = caps;
    }

    /// The caps.
    pub fn caps(&self) -> Caps {
        *lock(&self.intakes.caps)
    }

    /// How many runs of a tenant wait, and how many in all.
    pub fn pending(&self, tenant: TenantId) -> Pending {
        self.store.pending(tenant)
    }

    /// Nothing is taken yet.
    pub(crate) fn intake(&self) -> Intake<'_> {
        Intake { engine: self, known: HashMap::new(), taken: Vec::new() }
    }

    /// A refusal that names the tenant.
    pub(crate) async fn too_many(&self, tenant: TenantId, full: Full) -> Result<Error, Error> {
        let id = tenant;
        let known = lock(&self.intakes.names).get(&tenant).cloned();
        let tenant = match known {
            Some(name) => name,
            None => {
                let tenants = self.store.tenants().await?;
                let all = tenants.iter().map(|tenant| (tenant.id, Arc::from(tenant.name.as_str())));
                let mut names = lock(&self.intakes.names);
                names.extend(all);
                names.get(&tenant).cloned().unwrap_or_else(|| tenant.0.to_string().into())
            }
        };
        if full.cap == Cap::Suspended {
            let standing = self.standing(id);
            return Ok(Error::TenantSuspended {
                tenant,
                state: standing.state.as_str(),
                reason: standing.reason,
            });
        }
        self.metrics.refused_pending.inc();
        Ok(Error::TooManyPending { tenant, full })
    }
}

impl Intake<'_> {
    /// Room for some of so many runs of a tenant that wait: at least one, or the cap that leaves none.
    pub(crate) fn some(&mut self, tenant: TenantId, runs: u64) -> Result<u64, Full> {
        if runs == 0 {
            return Ok(0);
        }
        let store = &self.engine.store;
        let caps = self.engine.caps_of(tenant);
        if !self.engine.tenancies.is_active(tenant) {
            return Err(Full { cap: Cap::Suspended, most: 0, pending: store.pending(tenant).tenant });
        }
        // Under one lock, so that no two take the last place: what others asked for is here until the store has counted it.
        let mut asked = lock(&self.engine.intakes.asked);
        let known = self.known.entry(tenant).or_insert_with(|| store.pending(tenant));
        if backlog::is_near(caps, known.plus(asked.of(tenant))) {
            *known = store.pending(tenant);
        }
        let room = backlog::room(caps, known.plus(asked.of(tenant)))?.min(runs);
        asked.add(tenant, i64::try_from(room).unwrap_or(i64::MAX));
        self.taken.push((tenant, room));
        Ok(room)
    }

    /// Room for one run of a tenant that waits.
    pub(crate) fn one(&mut self, tenant: TenantId) -> Result<(), Full> {
        self.some(tenant, 1).map(|_| ())
    }

    /// Room for those births of a tenant that may have to wait. Without it, they are born running or not at all.
    pub(crate) fn admit(&mut self, tenant: TenantId, births: &mut [Birth]) {
        for birth in births.iter_mut().filter(|birth| may_wait(birth)) {
            birth.full = self.one(tenant).err().map(|full| full.cap);
        }
    }
}

impl Drop for Intake<'_> {
    fn drop(&mut self) {
        let mut asked = lock(&self.engine.intakes.asked);
        for (tenant, runs) in self.taken.drain(..) {
            asked.add(tenant, -i64::try_from(runs).unwrap_or(i64::MAX));
        }
    }
}

/// Whether a run may be born waiting: nobody has room for it, or others of its job or its limits may stand in its way.
fn may_wait(birth: &Birth) -> bool {
    use punctual_domain::policy::overlap::Overlap;
    birth.claimed_by.is_none() || birth.overlap != Overlap::Allow || !birth.limits.is_empty()
}

/// Counting takes at most a fiftieth of the time.
const SHARE: u32 = 50;

/// From half of a cap on, it is counted this often if it is quick.
const OFTEN: Duration = Duration::from_secs(1);

/// Below, this often.
const SELDOM: Duration = Duration::from_secs(5);

/// The duty that has it counted what waits.
pub(crate) struct Tallying {
    pub(crate) engine: Arc<Engine>,
}

#[async_trait]
impl Duty for Tallying {
    const NAME: &'static str = "backlog";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        let begun = Instant::now();
        let most = self.engine.store.count_pending().await?;
        self.engine.metrics.most_pending.set(i64::try_from(most.tenant).unwrap_or(i64::MAX));
        self.engine.tell_queues().await?;
        let rest = until_next(self.engine.caps(), most, begun.elapsed());
        Ok(Next::At(now + SignedDuration::try_from(rest).unwrap_or(SignedDuration::MAX)))
    }
}

/// How long after a count the next one is made.
fn until_next(caps: Caps, most: Pending, took: Duration) -> Duration {
    let wanted = if backlog::is_near(caps, most) { OFTEN } else { SELDOM };
    wanted.max(took * SHARE)
}

#[cfg(test)]
mod tests {
    use punctual_schedule::Tzdb;
    use punctual_store::Memory;

    use super::*;
    use crate::clock::{ManualClock, SystemEntropy};

    const TENANT: TenantId = TenantId::DEFAULT;

    fn engine(caps: Caps) -> Engine {
        let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
        let tzdb = Arc::new(Tzdb::bundled());
        let engine = Engine::new(Arc::new(Memory::new(4)), clock, Arc::new(SystemEntropy), tzdb);
        engine.set_caps(caps);
        engine
    }

    #[test]
    fn who_asks_at_the_same_time_does_not_get_the_same_room() {
        let engine = engine(Caps { tenant: 5, all: 7 });
        let (mut one, mut other) = (engine.intake(), engine.intake());
        assert_eq!(one.some(TENANT, 3), Ok(3));
        assert_eq!(other.some(TENANT, 3), Ok(2), "as many as there are");
        assert_eq!(other.one(TENANT).map_err(|full| full.cap), Err(backlog::Cap::Tenant));
        let next = TenantId(2);
        assert_eq!(other.some(next, 9), Ok(2));
        assert_eq!(other.one(next).map_err(|full| full.cap), Err(backlog::Cap::All));
        drop(one);
        assert_eq!(other.some(next, 9), Ok(3), "what was not used is given back");
        drop(other);
        assert_eq!(*lock(&engine.intakes.asked), Backlog::default());
    }

    #[test]
    fn counting_costs_a_fiftieth_of_the_time_and_is_rare_where_nothing_is_near() {
        let caps = Caps { tenant: 10, all: 100 };
        let wait =
            |tenant, took| until_next(caps, Pending { tenant, all: tenant }, Duration::from_millis(took));
        assert_eq!(wait(4, 1), SELDOM);
        assert_eq!(wait(5, 1), OFTEN);
        assert_eq!(wait(5, 100), Duration::from_secs(5));
        assert_eq!(wait(0, 3_000), Duration::from_secs(150));
    }
}
