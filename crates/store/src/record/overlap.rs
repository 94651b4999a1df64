//! An overlap policy, in a job's row or an operation's.

use punctual_domain::policy::overlap::Overlap;
use serde::{Deserialize, Serialize};

/// In a job's row `allow`, the default, is not written: stores ask whether the member is there.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OverlapRecord {
    Allow,
    Skip,
    QueueOne,
    QueueAll(u32),
    CancelRunning,
}

impl From<Overlap> for OverlapRecord {
    fn from(overlap: Overlap) -> Self {
        match overlap {
            Overlap::Allow => OverlapRecord::Allow,
            Overlap::Skip => OverlapRecord::Skip,
            Overlap::QueueOne => OverlapRecord::QueueOne,
            Overlap::QueueAll { max } => OverlapRecord::QueueAll(max),
            Overlap::CancelRunning => OverlapRecord::CancelRunning,
        }
    }
}

impl From<&OverlapRecord> for Overlap {
    fn from(record: &OverlapRecord) -> Self {
        match *record {
            OverlapRecord::Allow => Overlap::Allow,
            OverlapRecord::Skip => Overlap::Skip,
            OverlapRecord::QueueOne => Overlap::QueueOne,
            OverlapRecord::QueueAll(max) => Overlap::QueueAll { max },
            OverlapRecord::CancelRunning => Overlap::CancelRunning,
        }
    }
}
