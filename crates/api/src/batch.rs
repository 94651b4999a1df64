//! Batches on the wire: a job with a list of items, each of which is a run, and how they stand.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain as domain;
use punctual_domain::batch::{self, ITEMS_MAX};
use punctual_domain::job::Spec;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::defaults::fill;
use crate::job::{JobSpec, check_word};
use crate::limits::WORD_MAX;
use crate::payload::Payload;
use crate::read::{At, Errors, Rules, Unread, checked};
use crate::target::{Target, required};

object! {
    /// One of the things that a batch does.
    pub struct BatchItem {
        /// Chosen by the client, unique in the batch.
        #[schema(required = true, example = "customer-17")]
        pub id: String,
        /// What is sent: any JSON, passed on as it is written; the batch's, unless said otherwise.
        pub payload: Payload,
    }

    /// What makes a job a batch.
    pub struct BatchMembers {
        /// Chosen by the client, unique in the tenant: the key of its job.
        #[schema(required = true, example = "invoices-2026-11")]
        pub id: String,
        /// What is done at each slot, 1 to 10000 items. Each is a run.
        #[schema(required = true)]
        pub items: Vec<BatchItem>,
        /// What is called once when all items of a slot have ended; nothing, unless said otherwise.
        pub on_complete: Target,
    }
}

/// A batch as its owner asks for it: what makes it one, and everything that a job has but `key`, `parts` and `overlap`. Its lane is
/// `batch`, unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct BatchSpec {
    /// What makes it a batch.
    #[serde(flatten)]
    pub own: BatchMembers,
    /// When, where and how.
    #[serde(flatten)]
    pub job: JobSpec,
}

/// Read twice from its text: serde cannot flatten payloads that stay text.
impl<'de> Deserialize<'de> for BatchSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let wrong = serde::de::Error::custom;
        Ok(BatchSpec {
            own: serde_json::from_str(text.get()).map_err(wrong)?,
            job: serde_json::from_str(text.get()).map_err(wrong)?,
        })
    }
}

/// Reads the body of a batch over the defaults of its tenant, with every wrong field at once.
pub fn read_batch(text: &str, defaults: Option<&str>, rules: &Rules<'_>) -> Result<Spec, Unread> {
    let text = checked(text)?;
    let mut errors = Errors::default();
    let spec = BatchSpec::read(text, defaults, &mut errors).and_then(|(given, filled)| {
        // A hash of what was given, however it was written: defaults may change.
        let written = serde_json::to_string(&given).unwrap_or_default();
        filled.to_domain(batch::fingerprint(&written), rules, &mut errors)
    });
    match spec {
        Some(spec) if errors.is_empty() => Ok(spec),
        _ => Err(Unread::Wrong(errors.into_vec())),
    }
}

impl BatchSpec {
    /// What was given, and the same with what it does not say.
    fn read(text: &str, defaults: Option<&str>, errors: &mut Errors) -> Option<(Self, Self)> {
        // What is not known to either is told once, by the one that comes first.
        let job = JobSpec::read_except(text, BatchMembers::MEMBERS, &At::ROOT, errors)?;
        let own = BatchMembers::read_except(text, JobSpec::MEMBERS, &At::ROOT, errors)?;
        let given = BatchSpec { own, job };
        let Some(defaults) = defaults else { return Some((given.clone(), given)) };
        let (filled, added) = fill(text, defaults);
        let mut job = JobSpec::read_except(&filled, BatchMembers::MEMBERS, &At::ROOT, errors)?;
        // These defaults are meant for jobs that have one run a slot.
        let is_added = |member: &str| added.iter().any(|name| name == member);
        if is_added("overlap") {
            job.overlap = None;
        }
        if is_added("catch_up") {
            job.catch_up = None;
        }
        let filled = BatchSpec { own: given.own.clone(), job };
        Some((given, filled))
    }

    fn to_domain(&self, fingerprint: [u8; 16], rules: &Rules<'_>, errors: &mut Errors) -> Option<Spec> {
        let at = At::ROOT;
        let id = required(self.own.id.as_ref(), &at, "id", errors);
        check_word(id, &at.member("id"), WORD_MAX, errors);
        if self.job.key.is_some() {
            errors.add(&at.member("key"), "conflict", "the key of a batch is its `id`; leave `key` out");
        }
        let items = self.items(rules, &at.member("items"), errors);
        let on_complete = self
            .own
            .on_complete
            .as_ref()
            .and_then(|target| target.to_domain(&at.member("on_complete"), errors));
        let job = JobSpec {
            key: id.cloned().filter(|_| errors.is_empty()),
            name: self.job.name.clone().or_else(|| id.cloned()),
            lane: self.job.lane.clone().or_else(|| Some(domain::Lane::Batch.as_str().into())),
            ..self.job.clone()
        };
        let spec = job.to_domain(&at, rules, errors)?;
        if let Some((member, why)) = batch::conflict(&spec) {
            errors.add(&at.member(member), "conflict", why);
        }
        if let (Some(check), Some(target)) = (rules.check_target, &on_complete)
            && let Err(reason) = check(target)
        {
            let here = at.member("on_complete");
            errors.add(&here.member(target.as_str()), "target_refused", reason);
        }
        let batch = batch::Batch { items: items?, on_complete, fingerprint, cancelled_at: None };
        Some(Spec { batch: Some(Arc::new(batch)), ..spec })
    }

    fn items(&self, rules: &Rules<'_>, at: &At<'_>, errors: &mut Errors) -> Option<Arc<[batch::Item]>> {
        let items = required(self.own.items.as_ref(), &At::ROOT, "items", errors)?;
        if items.is_empty() || items.len() > ITEMS_MAX {
            let detail = format!(
                "a batch has 1 to {ITEMS_MAX} items, and these are {}; register several batches",
                items.len()
            );
            errors.add(at, "out_of_range", detail);
            return None;
        }
        let mut known: HashMap<&str, usize> = HashMap::with_capacity(items.len());
        let mut read = Vec::with_capacity(items.len());
        for (place, item) in items.iter().enumerate() {
            let here = at.item(place);
            let Some(id) = required(item.id.as_ref(), &here, "id", errors) else { continue };
            check_word(Some(id), &here.member("id"), WORD_MAX, errors);
            if let Some(first) = known.insert(id, place) {
                let detail = format!("`{id}` is the id of item {first} already; an item is there once");
                errors.add(&here.member("id"), "duplicate", detail);
            }
            if let Some(payload) = &item.payload {
                payload.check(rules.payload_max, &here.member("payload"), errors);
            }
            let payload = item.payload.as_ref().map(|payload| payload.as_str().into());
            read.push(batch::Item { id: id.as_str().into(), payload });
        }
        Some(read.into())
    }
}

/// A batch as it is, and how its newest slot stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Batch {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its job, whose runs are its items.
    pub job_id: String,
    /// Whose it is.
    pub tenant: String,
    /// `scheduled` (its time has not come), `running`, `completed`, `paused` or `cancelled`.
    pub state: String,
    /// How many items it has.
    pub items: u64,
    /// Its newest slot of which items have begun.
    pub scheduled_for: Option<Timestamp>,
    /// How the items of that slot stand. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<BatchCounts>,
    /// When it was found that all of them had ended; known for a week.
    pub completed_at: Option<Timestamp>,
    /// Since when nothing more is done of it.
    pub cancelled_at: Option<Timestamp>,
    /// When its next slot comes.
    pub next_fire_at: Option<Timestamp>,
    /// When it was registered.
    pub created_at: Timestamp,
}

/// How many items of a slot stand how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchCounts {
    /// They wait, or have no run yet.
    pub pending: u64,
    /// An attempt goes on.
    pub running: u64,
    /// They ended well.
    pub succeeded: u64,
    /// They ended badly: dead letters, which can be redriven.
    pub failed: u64,
    /// They took too long: dead letters too.
    pub timed_out: u64,
    /// Somebody stopped them, or they never had a run because of that.
    pub cancelled: u64,
    /// They were too late to start.
    pub missed: u64,
    /// They ended so long ago that their runs are not kept any more.
    pub forgotten: u64,
}

impl From<batch::Counts> for BatchCounts {
    fn from(counts: batch::Counts) -> Self {
        let batch::Counts { pending, running, succeeded, failed, timed_out, cancelled, missed, forgotten } =
            counts;
        BatchCounts { pending, running, succeeded, failed, timed_out, cancelled, missed, forgotten }
    }
}

/// An item and its run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchRun {
    /// The item's id.
    pub item_id: String,
    /// Its run.
    pub run_id: String,
    /// The slot.
    pub scheduled_for: Timestamp,
    /// `pending`, `running`, `succeeded`, `failed`, `timed_out`, `cancelled` or `missed`.
    pub state: String,
    /// How many attempts were made.
    pub attempts: u32,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

impl BatchRun {
    /// The run of an item of a batch.
    pub fn new(batch: &batch::Batch, run: &domain::Run) -> Option<Self> {
        Some(BatchRun {
            item_id: batch.item(run)?.id.to_string(),
            run_id: run.id().to_string(),
            scheduled_for: run.scheduled_for,
            state: run.state.as_str().into(),
            attempts: run.attempt,
            finished_at: run.finished_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use punctual_schedule::Tzdb;

    use super::*;

    fn read(text: &str) -> Result<Spec, Unread> {
        read_batch(text, None, &Rules::new(&Tzdb::bundled()))
    }

    const BODY: &str = r#"{"id":"b","schedule":{"now":true},"target":{"discard":{}},"labels":{"a":"1","b":"2"},
        "items":[{"id":"x","payload":{ "n" : 1.0 }},{"id":"y"}],"on_complete":{"discard":{}}}"#;

    #[test]
    fn a_batch_is_a_job_with_items() {
        let spec = read(BODY).expect("right");
        assert_eq!((spec.key.as_deref(), &*spec.name, spec.lane), (Some("b"), "b", domain::Lane::Batch));
        let batch = spec.batch.expect("a batch");
        let items: Vec<(&str, Option<&str>)> =
            batch.items.iter().map(|item| (&*item.id, item.payload.as_deref())).collect();
        assert_eq!(items, [("x", Some(r#"{ "n" : 1.0 }"#)), ("y", None)]);
        assert!(batch.on_complete.is_some());
    }

    #[test]
    fn the_same_is_the_same_however_it_is_written() {
        let print = |text: &str| read(text).expect("right").batch.expect("a batch").fingerprint;
        let other_order = r#"{"items":[{"payload":{ "n" : 1.0 },"id":"x"},{"id":"y","payload":null}],"target":{"discard":{}},
            "labels":{"b":"2","a":"1"},"schedule":{"now":true},"id":"b","on_complete":{"discard":{}},"name":null}"#;
        assert_eq!(print(BODY), print(other_order));
        for (from, to) in [("1.0", "1.00"), ("\"y\"", "\"z\""), ("\"2\"", "\"3\"")] {
            assert_ne!(print(BODY), print(&BODY.replace(from, to)), "{to}");
        }
        // Defaults of the tenant are none of it, and those for one run a slot are not for batches.
        let defaults = Some(r#"{"overlap":{"policy":"skip"},"timeout":"PT7S"}"#);
        let filled = read_batch(BODY, defaults, &Rules::new(&Tzdb::bundled())).expect("right");
        assert_eq!(filled.policies.timeouts.attempt.as_secs(), 7);
        assert_eq!(filled.batch.expect("a batch").fingerprint, print(BODY));
    }

    #[test]
    fn too_many_items_are_refused() {
        let item = |n: usize| format!("{{\"id\":\"{n}\"}}");
        let items = |count: usize| (0..count).map(item).collect::<Vec<_>>().join(",");
        let body = |count| BODY.replace(r#"{"id":"x","payload":{ "n" : 1.0 }},{"id":"y"}"#, &items(count));
        assert!(read(&body(ITEMS_MAX)).is_ok());
        for count in [0, ITEMS_MAX + 1] {
            let Err(Unread::Wrong(errors)) = read(&body(count)) else { panic!("{count}") };
            assert_eq!((errors.len(), &*errors[0].pointer), (1, "/items"), "{errors:?}");
        }
    }

    #[test]
    fn what_is_sent_reads_back() {
        let given: BatchSpec = serde_json::from_str(BODY).expect("read");
        let text = serde_json::to_string(&given).expect("written");
        assert_eq!(serde_json::from_str::<BatchSpec>(&text).expect("read"), given);
        assert_eq!(read(&text), read(BODY));
    }
}
