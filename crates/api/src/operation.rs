//! Long work over many jobs or runs, on the wire.

use jiff::Timestamp;
use punctual_domain::bulk::Change;
use punctual_domain::operation::{self as domain, Kind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::backfill::Backfill;
use crate::bulk::{JobFilter, OpenRunFilter};
use crate::dead_letter::Filter;
use crate::job::Pause;
use crate::node::MoveShards;
use crate::payload::Payload;
use crate::time::Time;

/// Long work that goes on after its request was answered, and after a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Its id.
    pub id: String,
    /// What it does: `redrive`, `acknowledge`, `catch_up`, `backfill`, `move_shards`, `pause_jobs`, `resume_jobs`,
    /// `delete_jobs`, `edit_jobs`, `cancel_runs`, `replan_jobs` or `batch`.
    pub kind: String,
    /// `running`, `succeeded`, `failed` or `cancelled`.
    pub state: String,
    /// Of `redrive` and `acknowledge`: which dead letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// Of `catch_up`, `backfill` and `batch`: whose slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// Of `backfill`: which slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfill: Option<Backfill>,
    /// Of `move_shards`: which, and where to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub move_shards: Option<MoveShards>,
    /// Of a change of many jobs: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobFilter>,
    /// Of `pause_jobs`: why, who, and until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Of `edit_jobs`: what changes in each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Payload>,
    /// Of `edit_jobs`: `keep` or `update`, for waiting runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
    /// Of `cancel_runs`: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<OpenRunFilter>,
    /// Of `replan_jobs`: the calendar that was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calendar: Option<String>,
    /// How many jobs or runs it has changed or made, or rows it has moved.
    pub done: u64,
    /// How many it could not change, because they had changed meanwhile or would not be valid, and slots that it did not run
    /// because of overlap.
    pub failed: u64,
    /// The first that it could not change, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// How many there are to do, if that is known.
    pub total: Option<u64>,
    /// When it was started.
    pub created_at: Timestamp,
    /// When it last went on.
    pub updated_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Why it failed, or was cancelled without being asked to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl From<&domain::Operation> for Operation {
    fn from(operation: &domain::Operation) -> Self {
        let (mut filter, mut backfill, mut move_shards, mut calendar) = (None, None, None, None);
        let (mut jobs, mut pause, mut patch, mut pending, mut runs) = (None, None, None, None, None);
        match &operation.kind {
            Kind::Redrive(which) | Kind::Acknowledge(which) => filter = Some(Filter::from(which)),
            Kind::CatchUp(_) | Kind::Batch(_) => {}
            Kind::Backfill(which) => backfill = Some(Backfill::from(&**which)),
            Kind::MoveShards(which) => move_shards = Some(MoveShards::from(which)),
            Kind::CancelRuns(which) => runs = Some(OpenRunFilter::from(which)),
            Kind::Replan(which) => calendar = Some(which.calendar.clone()),
            Kind::ChangeJobs(asked) => {
                jobs = Some(JobFilter::from(&asked.which));
                match &asked.change {
                    Change::Pause { reason, by, until } => {
                        let until = until.map(Time::from);
                        pause = Some(Pause { reason: reason.clone(), by: by.clone(), until });
                    }
                    Change::Edit { patch: text, updates_waiting } => {
                        patch = Payload::new(&**text);
                        pending = Some(if *updates_waiting { "update" } else { "keep" }.into());
                    }
                    Change::Resume | Change::Delete => {}
                }
            }
        }
        Operation {
            id: operation.id.to_string(),
            kind: operation.kind.as_str().into(),
            state: operation.state.as_str().into(),
            filter,
            job_id: operation.kind.job().map(|job| job.to_string()),
            backfill,
            move_shards,
            jobs,
            pause,
            patch,
            pending,
            runs,
            calendar,
            done: operation.done,
            failed: operation.failed,
            failure: operation.example.clone(),
            total: operation.total,
            created_at: operation.created_at,
            updated_at: operation.updated_at,
            finished_at: operation.finished_at,
            error: operation.error.clone(),
        }
    }
}
