//! Runs for slots of the past, on the wire.

use jiff::Timestamp;
use punctual_domain::operation;
use punctual_domain::policy::overlap::Overlap as DomainOverlap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::BACKFILL_RATE_MAX;
use crate::policies::{Overlap, check_range};
use crate::read::{At, Errors, Unread};
use crate::target::required;
use crate::time::Time;

object! {
    /// Which slots of a job's schedule are run, and how fast: those at or after `from` and before `to`.
    pub struct Backfill {
        /// Slots at or after.
        #[schema(required = true)]
        pub from: Time,
        /// Slots before; not in the future.
        #[schema(required = true)]
        pub to: Time,
        /// How many per second at most, 1 to 10000; 50.
        #[schema(example = 50)]
        pub rate: u32,
        /// Instead of the job's own policy.
        pub overlap: Overlap,
        /// Only says how many slots there are.
        pub dry_run: bool,
    }
}

/// What a backfill would run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BackfillSlots {
    /// Whose slots.
    pub job_id: String,
    /// How many.
    pub slots: u64,
    /// The first.
    pub first: Timestamp,
    /// The last.
    pub last: Timestamp,
}

/// A backfill that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Slots at or after.
    pub from: Timestamp,
    /// Slots before.
    pub to: Timestamp,
    /// How many per second, if it is said.
    pub rate: Option<u32>,
    /// Instead of the job's own policy.
    pub overlap: Option<DomainOverlap>,
}

impl Backfill {
    /// As it is asked for, or everything that is wrong.
    pub fn to_domain(&self) -> Result<Asked, Unread> {
        let mut errors = Errors::default();
        let mut time = |time: Option<&Time>, name: &'static str| {
            let at = At::ROOT;
            required(time, &at, name, &mut errors)
                .and_then(|time| time.instant(&at.member(name), &mut errors))
        };
        let (from, to) = (time(self.from.as_ref(), "from"), time(self.to.as_ref(), "to"));
        if let Some(rate) = self.rate {
            check_range(rate, BACKFILL_RATE_MAX, &At::ROOT.member("rate"), &mut errors);
        }
        let overlap =
            self.overlap.as_ref().map(|overlap| overlap.to_domain(&At::ROOT.member("overlap"), &mut errors));
        match (from, to, errors.is_empty()) {
            (Some(from), Some(to), true) => Ok(Asked { from, to, rate: self.rate, overlap }),
            _ => Err(Unread::Wrong(errors.into_vec())),
        }
    }
}

impl From<&operation::Backfill> for Backfill {
    fn from(backfill: &operation::Backfill) -> Self {
        Backfill {
            from: Some(backfill.from.into()),
            to: Some(backfill.to.into()),
            rate: Some(backfill.rate),
            overlap: backfill.overlap.map(Overlap::from),
            dry_run: None,
        }
    }
}
