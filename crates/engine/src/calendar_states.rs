//! What a node knows of calendars: each that was read, in every state that it remembers.
//!
//! Asked whenever a schedule that names calendars is bound. Promise: what was read is believed for a second; every state of a calendar
//! has a number that no other has, so that what was made of one is never taken for another; bounded memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use punctual_domain::calendar::Named;
use punctual_domain::id::TenantId;
use punctual_schedule::calendar::{Calendar, Calendars};

/// What was read is believed for so long.
pub(crate) const BELIEVED: SignedDuration = SignedDuration::from_secs(1);

/// Calendars that are known; beyond this, those that nobody asked for lately are forgotten.
const KNOWN_MAX: usize = 10_000;

/// What this node knows of calendars.
#[derive(Debug, Default)]
pub(crate) struct Known {
    read: Mutex<HashMap<(TenantId, String), Read>>,
    serials: AtomicU64,
}

#[derive(Clone, Debug)]
struct Read {
    at: Timestamp,
    found: Option<Arc<Kept>>,
}

/// A calendar, with a number for each of its states that no other has: the first is of the oldest that is remembered.
#[derive(Debug)]
struct Kept {
    named: Named,
    serial: u64,
}

impl Kept {
    fn state(&self, at: Option<Timestamp>) -> (Arc<Calendar>, u64) {
        let before = &self.named.before;
        let index = match at {
            Some(at) => before.iter().position(|was| at <= was.until).unwrap_or(before.len()),
            None => before.len(),
        };
        let calendar = before.get(index).map_or(&self.named.calendar, |was| &was.calendar);
        (Arc::clone(calendar), self.serial + index as u64)
    }
}

/// The calendars of a schedule, and numbers that tell them from others of the same names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bound {
    pub(crate) calendars: Arc<Calendars>,
    pub(crate) serials: Vec<u64>,
}

/// What becomes of a name that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It excludes nothing: somebody deleted the calendar in the moment in which the job came to name it.
    Allows,
    /// It is left out, and the schedule cannot be bound.
    Fails,
}

impl Known {
    fn read(&self) -> MutexGuard<'_, HashMap<(TenantId, String), Read>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calendars by their names, as they are or as they were at a time. One that was never read is left out.
    pub(crate) fn bind(
        &self,
        tenant: TenantId,
        names: &[String],
        at: Option<Timestamp>,
        missing: Missing,
    ) -> Bound {
        if names.is_empty() {
            return Bound::default();
        }
        let read = self.read();
        let (mut calendars, mut serials) = (Calendars::new(), Vec::with_capacity(names.len()));
        for name in names {
            // A key of borrowed parts would need a map of maps; names are short.
            match read.get(&(tenant, name.clone())).map(|read| &read.found) {
                Some(Some(kept)) => {
                    let (calendar, serial) = kept.state(at);
                    calendars.insert(name.clone(), calendar);
                    serials.push(serial);
                }
                Some(None) if missing == Missing::Allows => {
                    calendars.insert(name.clone(), Arc::new(Calendar::new()));
                    serials.push(0);
                }
                Some(None) | None => {}
            }
        }
        Bound { calendars: Arc::new(calendars), serials }
    }

    /// When calendars were changed, as far as that is remembered, oldest first.
    pub(crate) fn changes(&self, tenant: TenantId, names: &[String]) -> Vec<Timestamp> {
        let read = self.read();
        let found = names.iter().filter_map(|name| read.get(&(tenant, name.clone()))?.found.as_ref());
        let changes: BTreeSet<Timestamp> =
            found.flat_map(|kept| kept.named.before.iter().map(|was| was.until)).collect();
        changes.into_iter().collect()
    }

    /// Those of the names that are not there.
    pub(crate) fn missing(&self, tenant: TenantId, names: &[String]) -> Vec<String> {
        let read = self.read();
        let is_gone =
            |name: &&String| read.get(&(tenant, (*name).clone())).is_some_and(|read| read.found.is_none());
        names.iter().filter(is_gone).cloned().collect()
    }

    pub(crate) fn is_believed(&self, key: &(TenantId, String), now: Timestamp) -> bool {
        let age = self.read().get(key).map(|read| now.duration_since(read.at));
        age.is_some_and(|age| (SignedDuration::ZERO..BELIEVED).contains(&age))
    }

    /// Takes what was read. What is the same as before keeps its numbers.
    pub(crate) fn take(&self, key: (TenantId, String), found: Option<Named>, at: Timestamp) {
        let mut read = self.read();
        let known = read.get(&key).and_then(|read| read.found.clone());
        let found = found.map(|named| match known {
            Some(kept) if kept.named == named => kept,
            _ => {
                let states = named.before.len() as u64 + 1;
                // Number 0 is that of a calendar which is not there.
                let serial = 1 + self.serials.fetch_add(states, Ordering::Relaxed);
                Arc::new(Kept { named, serial })
            }
        });
        if read.len() >= KNOWN_MAX {
            read.retain(|_, read| at.duration_since(read.at) < SignedDuration::from_mins(1));
        }
        read.insert(key, Read { at, found });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use punctual_domain::calendar::Was;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn named(version: u64, before: &[i64]) -> Named {
        let was = |until: &i64| Was { until: at(*until), calendar: Arc::new(Calendar::new()) };
        let calendar = Arc::new(Calendar::weekdays());
        let before = before.iter().map(was).collect();
        Named { name: "week".into(), version, updated_at: at(0), calendar, before }
    }

    fn serials(known: &Known, at: Option<Timestamp>) -> Vec<u64> {
        known.bind(TenantId::DEFAULT, &["week".into()], at, Missing::Allows).serials
    }

    #[test]
    fn every_state_of_a_calendar_has_a_number_of_its_own() {
        let (known, key) = (Known::default(), (TenantId::DEFAULT, "week".to_string()));
        known.take(key.clone(), Some(named(1, &[])), at(0));
        let first = serials(&known, None);
        known.take(key.clone(), Some(named(1, &[])), at(5));
        assert_eq!(serials(&known, None), first, "it is the same");
        known.take(key.clone(), Some(named(3, &[10, 20])), at(30));
        let states = [serials(&known, Some(at(10))), serials(&known, Some(at(20))), serials(&known, None)];
        let different: BTreeSet<_> = states.iter().chain([&first]).collect();
        assert_eq!(different.len(), 4, "{states:?} {first:?}");
        assert_eq!(serials(&known, Some(at(21))), states[2]);
        assert_eq!(known.changes(TenantId::DEFAULT, &["week".into()]), [at(10), at(20)]);
        // Deleted and made again, it has the same version and says something else.
        known.take(key.clone(), None, at(31));
        assert_eq!(serials(&known, None), [0]);
        known.take(key, Some(named(1, &[])), at(32));
        assert!(!states.contains(&serials(&known, None)) && serials(&known, None) != first);
    }

    #[test]
    fn what_was_read_is_believed_for_a_second() {
        let (known, key) = (Known::default(), (TenantId::DEFAULT, "week".to_string()));
        assert!(!known.is_believed(&key, at(0)));
        known.take(key.clone(), None, at(0));
        assert!(known.is_believed(&key, at(0)));
        assert!(!known.is_believed(&key, at(1)));
        assert!(!known.is_believed(&key, at(-1)), "the clock was set back");
    }

    #[test]
    fn a_name_that_is_not_there_allows_all_or_is_left_out() {
        let known = Known::default();
        let names = ["week".to_string()];
        let bind = |missing| known.bind(TenantId::DEFAULT, &names, None, missing).calendars.len();
        assert_eq!((bind(Missing::Allows), bind(Missing::Fails)), (0, 0), "nobody has looked");
        known.take((TenantId::DEFAULT, "week".into()), None, at(0));
        assert_eq!((bind(Missing::Allows), bind(Missing::Fails)), (1, 0));
    }
}
