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
        let edits = self.changes.iter().rev().find_map(|change| match &change.what {
            What::Edit(schedule) => Some(schedule),
            What::Pause { .. } | What::Resume | What::Delete => None,
        });
        edits.unwrap_or(&self.schedule)
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
