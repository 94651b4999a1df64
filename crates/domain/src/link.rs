//! Links: other jobs that are triggered when a run of a job ends.
//!
//! Decided when a run ends, from its state alone. What follows is a [message](crate::message) in the shard of the run that ended, in the
//! commit that ended it; delivering it triggers the linked job. Promise: everything that names a linked run follows from the end that
//! causes it (run, attempt, place of the link), so that however often a message is delivered, and by whom, there is one linked run for it.

use jiff::Timestamp;

use crate::id::{JobId, RunId};
use crate::job::{Job, Spec, Target};
use crate::message;
use crate::policy::retention::Keep;
use crate::run::{CausedBy, Run, RunState};

/// Links of a job: each end of a run makes as many messages.
pub const LINKS_MAX: usize = 16;

/// How long a chain of linked runs may be. Cycles are refused when a link is registered; two edits at the same time may still close one,
/// which ends here.
pub const DEPTH_MAX: u16 = 32;

/// The type of a message that triggers a linked job, and the name of the function that does it.
pub const MESSAGE: &str = "system.link";

/// The queue of such messages, which every node serves, whatever queues it is for.
pub const QUEUE: &str = "system";

/// Which ends of a run trigger a linked job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum On {
    /// It succeeded.
    Succeeded,
    /// It is a dead letter: it failed or timed out, after its last attempt.
    Failed,
    /// Either of the two. What was cancelled or missed has ended without having finished.
    Finished,
}

impl On {
    /// All of them, with their words in the API.
    pub const WORDS: [(&str, On); 3] =
        [("succeeded", On::Succeeded), ("failed", On::Failed), ("finished", On::Finished)];

    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            On::Succeeded => "succeeded",
            On::Failed => "failed",
            On::Finished => "finished",
        }
    }

    /// Whether a run in this state has ended so.
    pub fn is_met(self, state: RunState) -> bool {
        match self {
            On::Succeeded => state == RunState::Succeeded,
            On::Failed => state.is_dead(),
            On::Finished => On::Succeeded.is_met(state) || On::Failed.is_met(state),
        }
    }
}

/// Another job that is triggered when a run ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// By which ends.
    pub on: On,
    /// Which job of the same tenant: its id or its key, as it was written. A key is looked up when a run ends.
    pub job: String,
}

/// The end of a run as links see it: a run that is redriven ends again, with another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Which run.
    pub run: RunId,
    /// Its last attempt.
    pub attempt: u32,
    /// Which of the job's links it is for.
    pub place: u32,
}

impl End {
    /// The end of a run, for one of its job's links.
    pub fn of(run: &Run, place: usize) -> Self {
        End { run: run.id(), attempt: run.attempt, place: place as u32 }
    }

    /// The part of the linked run. With the time of the end, which is its slot, it keeps apart what ends cause that come at the same
    /// millisecond.
    pub fn part(&self) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.hash(b"punctual linked part v1")[..4]);
        u32::from_be_bytes(bytes)
    }

    /// The id of the message, in the run's own shard.
    pub fn message_id(&self, at: Timestamp) -> JobId {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.hash(b"punctual link v1")[..8]);
        JobId::new(at, self.run.shard(), u64::from_be_bytes(bytes))
    }

    /// The `Idempotency-Key` under which the linked job is triggered. Keys of clients have no spaces.
    pub fn request_key(&self) -> String {
        format!("link {} {} {}", self.run, self.attempt, self.place)
    }

    /// The fingerprint that goes with it.
    pub fn fingerprint(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.hash(b"punctual link request v1")[..16]);
        bytes
    }

    fn hash(&self, what: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(what);
        hasher.update(self.run.to_string().as_bytes());
        hasher.update(&self.attempt.to_be_bytes());
        hasher.update(&self.place.to_be_bytes());
        *hasher.finalize().as_bytes()
    }
}

/// The links of a job that the end of a run triggers, with their places.
pub fn due(job: &Job, ended: &Run) -> Vec<(usize, Link)> {
    let links = job.spec.links.iter().cloned().enumerate();
    links.filter(|(_, link)| link.on.is_met(ended.state)).collect()
}

/// What a run that is caused by the end of another carries. Its depth may be too large: whoever delivers the link says so.
pub fn caused_by(ended: &Run) -> CausedBy {
    let depth = ended.caused_by.map_or(0, |before| before.depth);
    CausedBy { run: ended.id(), depth: depth.saturating_add(1) }
}

/// The message that triggers a linked job. Of its own history only failures are kept long: the linked run tells the rest.
pub fn message(of: &Job, link: &Link, payload: String) -> Spec {
    let from = if of.spec.name.is_empty() { of.id.to_string() } else { of.spec.name.clone() };
    let name = format!("link from {from} to {}", link.job);
    let target = Target::Function { name: MESSAGE.into() };
    let mut spec = message::spec(MESSAGE, name, target, payload);
    spec.queue = QUEUE.into();
    spec.policies.retention.keep = Keep::Failures(spec.policies.retention.keep.class());
    // A node of an older version may have claimed it; another one knows the function.
    spec.policies.retry.on.errors.push("function_unknown".into());
    spec
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use punctual_schedule::Schedule;

    use super::*;
    use crate::id::{Sequence, ShardId};
    use crate::lifecycle::tests::{at, pending};
    use crate::run::{Lease, WaitingFor};

    #[test]
    fn an_end_meets_the_links_that_name_it() {
        let lease = Lease { worker: crate::id::WorkerId::new(at(0), 1), attempt: 1, claimed_at: at(0) };
        for (state, met) in [
            (RunState::Succeeded, vec![On::Succeeded, On::Finished]),
            (RunState::Failed, vec![On::Failed, On::Finished]),
            (RunState::TimedOut, vec![On::Failed, On::Finished]),
            (RunState::Cancelled, vec![]),
            (RunState::Missed, vec![]),
            (RunState::Pending(WaitingFor::Retry), vec![]),
            (RunState::Running(lease), vec![]),
        ] {
            let found: Vec<On> = On::WORDS.iter().map(|(_, on)| *on).filter(|on| on.is_met(state)).collect();
            assert_eq!(found, met, "{state:?}");
        }
        assert!(On::WORDS.iter().all(|(word, on)| *word == on.as_str()));
    }

    #[test]
    fn every_end_and_every_link_has_names_of_its_own() {
        let run = RunId::new(Sequence::first_at(at(5), 3), ShardId(9));
        let other = RunId::new(Sequence::first_at(at(5), 3).next(), ShardId(9));
        let elsewhere = RunId::new(Sequence::first_at(at(5), 3), ShardId(8));
        let end = End { run, attempt: 3, place: 0 };
        let ends = [
            end,
            End { attempt: 4, ..end },
            End { place: 1, ..end },
            End { run: other, ..end },
            End { run: elsewhere, ..end },
        ];
        let count = |names: BTreeSet<String>| assert_eq!(names.len(), ends.len(), "{names:?}");
        count(ends.iter().map(|end| end.part().to_string()).collect());
        count(ends.iter().map(|end| end.message_id(at(7)).to_string()).collect());
        count(ends.iter().map(End::request_key).collect());
        count(ends.iter().map(|end| format!("{:?}", end.fingerprint())).collect());
        assert_eq!(
            (end.message_id(at(7)), end.message_id(at(7)).shard()),
            (end.message_id(at(7)), ShardId(9))
        );
        assert!(end.request_key().contains(' '), "no client sends it");
        assert_eq!(end.part(), 445_267_855, "receivers recognise linked runs by it: it must never change");
    }

    #[test]
    fn a_chain_counts_its_runs() {
        let first = pending();
        let second = Run { caused_by: Some(caused_by(&first)), ..pending() };
        assert_eq!(second.caused_by, Some(CausedBy { run: first.id(), depth: 1 }));
        assert_eq!(caused_by(&second).depth, 2);
        let last = Run { caused_by: Some(CausedBy { run: first.id(), depth: u16::MAX }), ..pending() };
        assert_eq!(caused_by(&last).depth, u16::MAX);
    }

    #[test]
    fn a_message_runs_on_any_node_and_brings_nothing_else() {
        let link = Link { on: On::Succeeded, job: "report".into() };
        let schedule = Schedule::parse("0 * * * *").expect("valid");
        let job = Job {
            id: JobId::new(at(0), ShardId(1), 1),
            tenant: crate::id::TenantId(3),
            version: crate::id::Version::FIRST,
            state: crate::job::JobState::Active,
            spec: Spec {
                queue: "slow".into(),
                links: vec![link.clone()],
                ..Spec::new("load", schedule, Target::Discard)
            },
            created_at: at(0),
            updated_at: at(0),
            carried: None,
            changes: Vec::new(),
        };
        let ended = Run { state: RunState::Succeeded, ..pending() };
        assert_eq!(due(&job, &ended), [(0, link.clone())]);
        assert_eq!(due(&job, &Run { state: RunState::Cancelled, ..pending() }), []);
        let message = message(&job, &link, "{}".into());
        assert_eq!((&*message.queue, &*message.name), (QUEUE, "link from load to report"));
        assert!(message.links.is_empty() && message.requires.is_empty());
        assert!(message::is_reserved(message.kind.as_deref()));
        assert!(message.policies.retry.on.errors.iter().any(|code| code == "function_unknown"));
    }
}
