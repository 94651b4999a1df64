//! What was asked of the cluster for one job, and what is known to have come of it.

use serde_json::{Value, json};

use crate::schedule::{Millis, Schedule};

/// Where a job's runs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To the receiver that always answers; after a while.
    Good(&'static str),
    /// To the one that is taken down at times.
    Faulty,
    /// Nowhere.
    Discard,
}

/// The addresses of the receivers.
#[derive(Clone, Debug)]
pub(crate) struct Urls {
    pub(crate) good: String,
    pub(crate) faulty: String,
}

/// A job of the load.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) schedule: Schedule,
    pub(crate) target: Target,
    /// Its id, once that is known.
    pub(crate) id: Option<u128>,
    /// When its creation was first sent, and when it was acknowledged.
    pub(crate) sent_at: Millis,
    pub(crate) acknowledged_at: Option<Millis>,
    /// Its changes that are known to be done, in order.
    pub(crate) changes: Vec<Change>,
    /// One that nobody knows the outcome of. Nothing was asked for after it.
    pub(crate) given_up: Option<(What, Millis)>,
    /// Runs that were asked for and acknowledged.
    pub(crate) triggered: Vec<u128>,
    /// Triggers that nobody knows the outcome of.
    pub(crate) triggers_given_up: usize,
}

/// A change of a job that was done.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) what: What,
    /// The version it made.
    pub(crate) version: u32,
    /// When the node decided it, as it says itself.
    pub(crate) decided_at: Millis,
    pub(crate) sent_at: Millis,
    pub(crate) acknowledged_at: Millis,
}

/// What a change does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Edit(Schedule),
    Pause {
        until: Option<Millis>,
    },
    /// By request, or by itself.
    Resume,
    Delete,
}

impl Account {
    pub(crate) fn new(name: String, schedule: Schedule, target: Target, sent_at: Millis) -> Self {
        Account {
            name,
            schedule,
            target,
            id: None,
            sent_at,
            acknowledged_at: None,
            changes: Vec::new(),
            given_up: None,
            triggered: Vec::new(),
            triggers_given_up: 0,
        }
    }

    /// The body of the job with a schedule.
    pub(crate) fn body(&self, schedule: &Schedule, urls: &Urls) -> Value {
        let target = match self.target {
            Target::Good(path) => json!({ "http": { "url": format!("{}{path}", urls.good) } }),
            Target::Faulty => json!({ "http": { "url": format!("{}/", urls.faulty) } }),
            Target::Discard => json!({ "discard": {} }),
        };
        // The slowest answers take seven seconds, and what is called may be busy for some before it begins.
        let timeout = if self.target == Target::Good("/slowest") { "PT30S" } else { "PT10S" };
        json!({
            "name": self.name,
            "schedule": schedule.to_json(),
            "target": target,
            "timeout": timeout,
            "payload": { "of": self.name },
        })
    }

    /// Its version, as far as is known.
    pub(crate) fn version(&self) -> u32 {
        self.changes.last().map_or(1, |change| change.version)
    }

    /// Its schedule, as far as is known.
    pub(crate) fn current(&self) -> &Schedule {
        self.edits().next_back().map_or(&self.schedule, |(_, schedule)| schedule)
    }

    /// How long after a slot a run of this version may begin: as its schedule says, or one that was there when the
    /// slot was and was edited before the run began.
    pub(crate) fn spread_of(&self, slot: Millis, version: u32) -> Millis {
        let mut spread = self.schedule.spread;
        for (edit, schedule) in self.edits().take_while(|(edit, _)| edit.version <= version) {
            spread = if edit.decided_at < slot { schedule.spread } else { spread.max(schedule.spread) };
        }
        spread
    }

    fn edits(&self) -> impl DoubleEndedIterator<Item = (&Change, &Schedule)> {
        self.changes.iter().filter_map(|change| match &change.what {
            What::Edit(schedule) => Some((change, schedule)),
            What::Pause { .. } | What::Resume | What::Delete => None,
        })
    }

    /// When it was created, as its id says.
    pub(crate) fn created_at(&self) -> Option<Millis> {
        self.id.map(|id| (id >> 80) as Millis)
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.changes.last().is_some_and(|change| change.what == What::Delete)
    }
}

/// An id of a job or a run, as the API writes it.
pub(crate) fn id_text(id: u128) -> String {
    uuid::Uuid::from_u128(id).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::When;

    #[test]
    fn a_spread_counts_for_the_slots_that_had_it() {
        let spread = |spread| {
            let when = When::Every { anchor: 0, period: 5_000, writes_anchor: true };
            Schedule { when, end: None, max_fires: None, spread }
        };
        let edit = |version, decided_at, schedule| {
            let what = What::Edit(schedule);
            Change { what, version, decided_at, sent_at: decided_at, acknowledged_at: decided_at }
        };
        let mut account = Account::new("one".into(), spread(2_000), Target::Discard, 0);
        account.changes = vec![edit(2, 11_000, spread(0)), edit(3, 21_000, spread(1_000))];
        assert_eq!(account.spread_of(5_000, 1), 2_000);
        assert_eq!(account.spread_of(10_000, 2), 2_000, "edited before the run began");
        assert_eq!(account.spread_of(15_000, 2), 0, "what came later does not count");
        assert_eq!(account.spread_of(20_000, 2), 0);
        assert_eq!(account.spread_of(25_000, 3), 1_000);
    }
}
