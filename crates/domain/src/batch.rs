//! Batches: jobs whose every slot is a list of items, each of which is a run.
//!
//! Decided when a slot is fired, while its items run and when they have ended. Promise: an item has one run a slot, whose identity follows
//! from its place in the list; how a slot stands is counted from its runs alone, so that nothing is written for it when one ends.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use punctual_schedule::Kind;
use punctual_schedule::every::Origin;

use crate::id::{JobId, OperationId, RunId};
use crate::job::{Job, Spec, Target};
use crate::message;
use crate::policy::catch_up::CatchUp;
use crate::policy::overlap::Overlap;
use crate::run::{Cause, Run, RunState};

/// The most items of a batch: all of them are in its job's row, and whoever asks how a slot stands looks at a run of each.
pub const ITEMS_MAX: usize = 10_000;

/// The type of a message that tells that all items of a slot have ended.
pub const MESSAGE: &str = "system.batch";

/// So many items that failed are named in it.
pub const FAILED_MAX: usize = 100;

/// It is looked whether all items have ended after a twentieth of the time that they have taken so far, within these.
const LOOK_MIN: SignedDuration = SignedDuration::from_millis(250);
const LOOK_MAX: SignedDuration = SignedDuration::from_secs(10);

/// What makes a job a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What is done at each slot, in order.
    pub items: Arc<[Item]>,
    /// Where it is told that all items of a slot have ended, if anywhere.
    pub on_complete: Option<Target>,
    /// A hash of what was asked for: the same id with another is an error.
    pub fingerprint: [u8; 16],
    /// Since when nothing more is done of it.
    pub cancelled_at: Option<Timestamp>,
}

/// One of the things that a batch does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Chosen by the client, unique in the batch.
    pub id: Box<str>,
    /// What is sent, as JSON text; the job's payload, if it has none.
    pub payload: Option<Arc<str>>,
}

impl Batch {
    /// The item that a run is for.
    pub fn item(&self, run: &Run) -> Option<&Item> {
        let place = (run.part as usize).checked_sub(1).filter(|_| run.cause == Cause::Batch)?;
        self.items.get(place)
    }

    /// How many items there are.
    pub fn total(&self) -> u64 {
        self.items.len() as u64
    }

    /// Bytes of its items, about.
    pub fn size(&self) -> usize {
        let bytes = |item: &Item| item.id.len() + item.payload.as_deref().map_or(0, str::len) + 32;
        self.items.iter().map(bytes).sum()
    }
}

/// The part of the identity of the run of an item, by its place from 0.
pub fn part(place: usize) -> u32 {
    u32::try_from(place + 1).unwrap_or(u32::MAX)
}

/// What cannot be had together with items: the member that says so, and why.
pub fn conflict(spec: &Spec) -> Option<(&'static str, &'static str)> {
    if spec.parts.is_some() {
        return Some(("parts", "the items of a batch are its parts; leave `parts` out"));
    }
    if spec.policies.overlap != Overlap::Allow {
        return Some((
            "overlap",
            "the items of a slot run beside each other; leave `overlap` out, and write how many in `concurrency`",
        ));
    }
    if matches!(&spec.schedule.kind, Kind::Every(every) if *every.origin() == Origin::Completion) {
        return Some((
            "schedule",
            "a period that counts from completion follows one run, not the items of a batch; count it from its anchor",
        ));
    }
    if matches!(spec.policies.catch_up, CatchUp::All { .. }) {
        return Some((
            "catch_up",
            "a batch does not catch up with all slots that it missed; write `latest` or `none`",
        ));
    }
    None
}

/// A hash of what was asked for.
pub fn fingerprint(text: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
    bytes
}

/// The operation that looks after a slot: there is one, and whoever knows the slot finds it.
pub fn operation_id(job: JobId, slot: Timestamp) -> OperationId {
    OperationId::new(slot, job.shard(), hash("punctual batch operation v1", job, slot))
}

/// The id of the message that tells that all items of a slot have ended.
pub fn message_id(job: JobId, slot: Timestamp, at: Timestamp) -> JobId {
    JobId::new(at, job.shard(), hash("punctual batch message v1", job, slot))
}

fn hash(what: &str, job: JobId, slot: Timestamp) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(what.as_bytes());
    hasher.update(job.as_bytes());
    hasher.update(&slot.as_millisecond().to_be_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_be_bytes(bytes)
}

/// The message that all items of a slot have ended, if the batch says where to. Whoever executes the batch delivers it.
pub fn message(job: &Job, payload: impl FnOnce() -> String) -> Option<Spec> {
    let target = job.spec.batch.as_ref()?.on_complete.clone()?;
    let of = job.spec.key.as_deref().unwrap_or(&job.spec.name);
    Some(
        Spec {
            queue: job.spec.queue.clone(),
            requires: job.spec.requires.clone(),
            correlation_id: job.spec.correlation_id.clone(),
            ..message::spec(MESSAGE, format!("completion of batch {of}"), target, payload())
        }
        .of(job.tenant),
    )
}

/// When to look again whether all items have ended, of a slot that has taken so long.
pub fn look_again_in(elapsed: SignedDuration) -> SignedDuration {
    (elapsed / 20).clamp(LOOK_MIN, LOOK_MAX)
}

/// How many items of a slot stand how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting, or without a run yet.
    pub pending: u64,
    /// An attempt goes on.
    pub running: u64,
    /// Ended well.
    pub succeeded: u64,
    /// Ended badly.
    pub failed: u64,
    /// Took too long.
    pub timed_out: u64,
    /// Ended because somebody asked, or never had a run because of that.
    pub cancelled: u64,
    /// Were too late to start.
    pub missed: u64,
    /// Ended so long ago that their runs are not kept any more.
    pub forgotten: u64,
}

impl Counts {
    /// With their words, as in the API.
    pub fn words(&self) -> [(&'static str, u64); 8] {
        [
            ("pending", self.pending),
            ("running", self.running),
            ("succeeded", self.succeeded),
            ("failed", self.failed),
            ("timed_out", self.timed_out),
            ("cancelled", self.cancelled),
            ("missed", self.missed),
            ("forgotten", self.forgotten),
        ]
    }

    /// How many have not ended.
    pub fn open(&self) -> u64 {
        self.pending + self.running
    }

    /// How many are counted.
    pub fn total(&self) -> u64 {
        self.words().iter().map(|(_, count)| count).sum()
    }

    fn add(&mut self, state: &RunState) {
        let count = match state {
            RunState::Pending(_) => &mut self.pending,
            RunState::Running(_) => &mut self.running,
            RunState::Succeeded => &mut self.succeeded,
            RunState::Failed => &mut self.failed,
            RunState::TimedOut => &mut self.timed_out,
            RunState::Cancelled => &mut self.cancelled,
            RunState::Missed => &mut self.missed,
        };
        *count += 1;
    }
}

/// An item that failed, took too long or could not start in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedItem {
    /// Its id.
    pub item: Box<str>,
    /// Its run.
    pub run: RunId,
    /// How it ended.
    pub state: &'static str,
}

/// What became of items that have no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// They will have one.
    ToCome,
    /// They will have none.
    Cancelled,
    /// They had one, which is not kept any more.
    Forgotten,
}

/// Counts the items of a slot by their runs.
#[derive(Clone, Debug)]
pub struct Tally<'a> {
    batch: &'a Batch,
    slot: Timestamp,
    counts: Counts,
    failed: Vec<FailedItem>,
}

impl<'a> Tally<'a> {
    /// Nothing is counted yet.
    pub fn new(batch: &'a Batch, slot: Timestamp) -> Self {
        Tally { batch, slot, counts: Counts::default(), failed: Vec::new() }
    }

    /// Counts a run, if it is of an item of the slot.
    pub fn see(&mut self, run: &Run) {
        let Some(item) = self.batch.item(run).filter(|_| run.scheduled_for == self.slot) else { return };
        self.counts.add(&run.state);
        // What was cancelled was stopped by somebody, who knows.
        let is_told = run.state.is_dead() || run.state == RunState::Missed;
        if is_told && self.failed.len() < FAILED_MAX {
            let (run, state) = (run.id(), run.state.as_str());
            self.failed.push(FailedItem { item: item.id.clone(), run, state });
        }
    }

    /// Whether every item has been seen.
    pub fn is_whole(&self) -> bool {
        self.counts.total() >= self.batch.total()
    }

    /// The counts, and the items that failed, as far as they are named.
    pub fn end(mut self, rest: Rest) -> (Counts, Vec<FailedItem>) {
        let left = self.batch.total().saturating_sub(self.counts.total());
        match rest {
            Rest::ToCome => self.counts.pending += left,
            Rest::Cancelled => self.counts.cancelled += left,
            Rest::Forgotten => self.counts.forgotten += left,
        }
        (self.counts, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use punctual_schedule::Schedule;

    use super::*;
    use crate::id::{ShardId, TenantId};
    use crate::lifecycle::tests::{at, pending};
    use crate::parts::Parts;

    fn batch(items: usize) -> Batch {
        let item = |n: usize| Item { id: format!("item-{n}").into(), payload: None };
        Batch {
            items: (0..items).map(item).collect(),
            on_complete: None,
            fingerprint: [0; 16],
            cancelled_at: None,
        }
    }

    fn run(place: usize, state: RunState) -> Run {
        Run { cause: Cause::Batch, part: part(place), scheduled_for: at(0), state, ..pending() }
    }

    #[test]
    fn a_run_is_for_the_item_at_its_place() {
        let batch = batch(2);
        let id = |run: Run| batch.item(&run).map(|item| &*item.id);
        assert_eq!(id(run(0, RunState::Succeeded)), Some("item-0"));
        assert_eq!(id(run(1, RunState::Succeeded)), Some("item-1"));
        assert_eq!(id(run(2, RunState::Succeeded)), None);
        assert_eq!(id(Run { part: 0, ..run(0, RunState::Succeeded) }), None);
        let triggered = Run { cause: Cause::Trigger, ..run(0, RunState::Succeeded) };
        assert_eq!(id(triggered), None, "what somebody asked for is no item");
    }

    #[test]
    fn every_item_is_counted_once_and_those_without_a_run_too() {
        let batch = batch(6);
        let states = [RunState::Succeeded, RunState::Failed, RunState::TimedOut, RunState::Cancelled];
        for (rest, word) in
            [(Rest::ToCome, "pending"), (Rest::Cancelled, "cancelled"), (Rest::Forgotten, "forgotten")]
        {
            let mut tally = Tally::new(&batch, at(0));
            for (place, state) in states.into_iter().enumerate() {
                tally.see(&run(place, state));
            }
            let other_slot = Run { scheduled_for: at(60), ..run(4, RunState::Failed) };
            tally.see(&other_slot);
            assert!(!tally.is_whole());
            let (counts, failed) = tally.end(rest);
            assert_eq!(counts.total(), 6);
            assert_eq!((counts.succeeded, counts.failed, counts.timed_out), (1, 1, 1));
            let expected = if word == "cancelled" { 3 } else { 2 };
            let (_, count) = counts.words().into_iter().find(|(known, _)| *known == word).expect("known");
            assert_eq!(count, expected, "{word}");
            let told: Vec<(&str, &str)> = failed.iter().map(|one| (&*one.item, one.state)).collect();
            assert_eq!(told, [("item-1", "failed"), ("item-2", "timed_out")]);
        }
    }

    #[test]
    fn so_many_items_are_named_and_no_more() {
        let batch = batch(FAILED_MAX + 5);
        let mut tally = Tally::new(&batch, at(0));
        (0..FAILED_MAX + 5).for_each(|place| tally.see(&run(place, RunState::Failed)));
        assert!(tally.is_whole());
        let (counts, failed) = tally.end(Rest::Forgotten);
        assert_eq!((counts.failed, counts.open(), failed.len()), (FAILED_MAX as u64 + 5, 0, FAILED_MAX));
    }

    #[test]
    fn a_slot_has_one_operation_and_one_message_in_the_shard_of_its_job() {
        let job = JobId::new(at(0), ShardId(9), 1);
        let (first, other) = (operation_id(job, at(5)), operation_id(job, at(6)));
        assert_eq!((first, first.shard()), (operation_id(job, at(5)), ShardId(9)));
        assert_ne!(first, other);
        assert_ne!(first, operation_id(JobId::new(at(0), ShardId(9), 2), at(5)));
        assert_eq!(message_id(job, at(5), at(7)).shard(), ShardId(9));
        assert_ne!(message_id(job, at(5), at(7)), message_id(job, at(6), at(7)));
    }

    #[test]
    fn it_is_looked_seldom_where_items_take_long() {
        let look = |seconds| look_again_in(SignedDuration::from_secs(seconds));
        assert_eq!(look(0), LOOK_MIN);
        assert_eq!(look(100), SignedDuration::from_secs(5));
        assert_eq!(look(100_000), LOOK_MAX);
    }

    #[test]
    fn what_cannot_be_had_together_is_named() {
        let spec =
            |schedule: &str| Spec::new("a", Schedule::parse(schedule).expect("valid"), Target::Discard);
        assert_eq!(conflict(&spec("0 3 * * *")), None);
        let member = |change: fn(&mut Spec)| {
            let mut spec = spec("0 3 * * *");
            change(&mut spec);
            conflict(&spec).map(|(member, _)| member)
        };
        assert_eq!(member(|spec| spec.parts = Some(Parts::Count(2))), Some("parts"));
        assert_eq!(member(|spec| spec.policies.overlap = Overlap::Skip), Some("overlap"));
        let all = |spec: &mut Spec| {
            let window = std::time::Duration::from_secs(60);
            spec.policies.catch_up = CatchUp::All { window, max: 5, rate: 1 };
        };
        assert_eq!(member(all), Some("catch_up"));
        assert_eq!(conflict(&spec("@every 5m from completion")).map(|(member, _)| member), Some("schedule"));
    }

    #[test]
    fn the_end_of_a_slot_is_told_where_the_batch_says() {
        let mut spec = Spec::new("a", Schedule::parse("@now").expect("valid"), Target::Discard);
        let told = |spec: &Spec| {
            let job = Job {
                id: JobId::new(at(0), ShardId(9), 1),
                tenant: TenantId::DEFAULT,
                version: crate::id::Version::FIRST,
                state: crate::job::JobState::Active,
                spec: spec.clone(),
                created_at: at(0),
                updated_at: at(0),
                carried: None,
                changes: Vec::new(),
            };
            message(&job, || "{}".into())
        };
        assert_eq!(told(&spec), None);
        spec.batch = Some(Arc::new(batch(1)));
        assert_eq!(told(&spec), None);
        let on_complete = Some(Target::Function { name: "done".into() });
        spec.batch = Some(Arc::new(Batch { on_complete: on_complete.clone(), ..batch(1) }));
        spec.queue = "slow".into();
        let message = told(&spec).expect("told");
        assert_eq!((Some(message.target), &*message.queue), (on_complete, "slow"));
        assert!(message::is_reserved(message.kind.as_deref()) && message.batch.is_none());
    }
}
