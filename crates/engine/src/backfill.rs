//! Backfill: runs for slots of the past, because somebody asks.
//!
//! Runs when the API asks; the work itself is an operation, beside catch-ups. Promise: what cannot be done is refused
//! before anything is, with the way out; asked twice, it is done twice, and no two runs have the same identity.

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, OperationId, TenantId};
use punctual_domain::job::JobState;
use punctual_domain::operation::{self, Cursor, Kind, Operation};
use punctual_domain::parts::Parts;
use punctual_domain::policy::overlap::Overlap;
use punctual_schedule::Timetable;
use punctual_store::{Stored, Subject};

use crate::engine::Engine;
use crate::error::Error;
use crate::fire::counts_from_completion;

/// Slots of one backfill: a day of every second, and more.
pub const SLOTS_MAX: u64 = 100_000;

/// Slots that are run in a second, unless said otherwise.
pub const RATE: u32 = 50;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Slots at or after.
    pub from: Timestamp,
    /// Slots before.
    pub to: Timestamp,
    /// At most so many a second.
    pub rate: u32,
    /// Instead of the job's own policy.
    pub overlap: Option<Overlap>,
}

/// The slots of a backfill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// How many.
    pub count: u64,
    /// The first.
    pub first: Timestamp,
    /// The last.
    pub last: Timestamp,
}

/// Why slots of the past cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It ends before it begins.
    #[error("`to` is not later than `from`; slots at `from` are run, slots at `to` are not")]
    Reversed,
    /// It ends in the future.
    #[error("`to` is in the future; slots to come are the schedule's: write {now} or earlier")]
    Future {
        /// The time now.
        now: Timestamp,
    },
    /// The schedule names no time in it.
    #[error(
        "the schedule has no slot between `from` and `to`; `upcoming` with `from` shows which it has, \
         and a trigger runs the job now"
    )]
    Empty,
    /// There are too many.
    #[error(
        "these are {slots} slots, at most {SLOTS_MAX} in one backfill; ask for a part up to {until} first"
    )]
    TooMany {
        /// How many.
        slots: u64,
        /// A `to` with as many as may be.
        until: Timestamp,
    },
    /// There are none that could be known.
    #[error("a period that counts from completion has no slots of the past; a trigger runs the job now")]
    FromCompletion,
    /// It is for whoever is there at the time.
    #[error(
        "a broadcast is for the workers that live when its slot comes, and those of the past are gone; a trigger runs the job now"
    )]
    Broadcast,
    /// It is a batch.
    #[error("slots of the past of a batch are not run; register another batch with these items")]
    Batch,
}

impl Engine {
    /// The slots that a backfill of a job would run.
    pub async fn backfill_slots(&self, tenant: TenantId, id: JobId, asked: &Asked) -> Result<Slots, Error> {
        self.slots_of(&self.find(tenant, id).await?, asked)
    }

    /// Starts a backfill. Its request is remembered in the same commit, as `answer` leaves it.
    pub async fn backfill(
        &self,
        tenant: TenantId,
        id: JobId,
        asked: Asked,
        request: Option<Subject>,
        answer: impl FnOnce(&Operation, &mut Subject) + Send,
    ) -> Result<Operation, Error> {
        let now = self.clock.now();
        let stored = self.find(tenant, id).await?;
        let slots = self.slots_of(&stored, &asked)?;
        if let JobState::Paused(_) = stored.job.state {
            return Err(Error::WrongState { state: stored.job.state.as_str(), action: "backfilled" });
        }
        let Asked { from, to, rate, overlap } = asked;
        let schedule = stored.job.spec.schedule.clone();
        // As for triggers: the part keeps the runs of two backfills of the same slots apart.
        let part = self.entropy.bits() as u32;
        let kind = operation::Backfill { job: id, schedule, from, to, rate, overlap, part };
        // In the job's shard: its steps and the job's runs are committed together.
        let operation_id = OperationId::new(now, id.shard(), self.entropy.bits());
        let mut operation = Operation::new(operation_id, tenant, Kind::Backfill(Box::new(kind)), now);
        operation.cursor = Cursor::Slot(slots.first);
        let parts = match stored.job.spec.parts {
            Some(Parts::Count(count)) => u64::from(count),
            Some(Parts::Broadcast) | None => 1,
        };
        operation.total = Some(slots.count * parts);
        self.start(operation, request, answer).await
    }

    fn slots_of(&self, stored: &Stored, asked: &Asked) -> Result<Slots, Error> {
        let (now, Asked { from, to, .. }) = (self.clock.now(), *asked);
        if from >= to {
            return Err(Refusal::Reversed.into());
        }
        if to > now {
            return Err(Refusal::Future { now }.into());
        }
        if counts_from_completion(&stored.job) {
            return Err(Refusal::FromCompletion.into());
        }
        if stored.job.spec.batch.is_some() {
            return Err(Refusal::Batch.into());
        }
        if stored.job.spec.parts == Some(Parts::Broadcast) {
            return Err(Refusal::Broadcast.into());
        }
        let timetable = self.timetables.of(&stored.job)?;
        let just_before = from.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(Timestamp::MIN);
        let first = timetable.next_after(just_before).filter(|slot| *slot < to);
        let (Some(first), Some(last)) = (first, timetable.previous_before(to)) else {
            return Err(Refusal::Empty.into());
        };
        let count = timetable.count(from, to);
        if count > SLOTS_MAX {
            return Err(
                Refusal::TooMany { slots: count, until: as_many_as_may_be(&timetable, from, to) }.into()
            );
        }
        Ok(Slots { count, first, last })
    }
}

/// A time, to the second, up to which there are as many slots as may be. Slots are counted, not walked.
fn as_many_as_may_be(timetable: &Timetable, from: Timestamp, to: Timestamp) -> Timestamp {
    let (mut few, mut many) = (from.as_second(), to.as_second());
    while many - few > 1 {
        let middle = few + (many - few) / 2;
        let at = Timestamp::from_second(middle).unwrap_or(from);
        match timetable.count(from, at) <= SLOTS_MAX {
            true => few = middle,
            false => many = middle,
        }
    }
    Timestamp::from_second(few).unwrap_or(from)
}
