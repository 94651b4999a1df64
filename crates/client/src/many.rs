//! One change of many jobs or runs by filter: counted beforehand, or started as an operation.

use punctual_api::bulk::{BulkPreview, CancelRuns, EditJobs, PauseJobs, SelectJobs};
use punctual_api::operation::Operation;

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;

/// What becomes of which.
#[derive(Clone, Debug, PartialEq)]
pub enum Many {
    /// Jobs stop firing.
    Pause(PauseJobs),
    /// Jobs fire again.
    Resume(SelectJobs),
    /// Jobs go.
    Delete(SelectJobs),
    /// Jobs are edited.
    Edit(EditJobs),
    /// Open runs are cancelled.
    CancelRuns(CancelRuns),
}

impl Many {
    fn path(&self) -> &'static str {
        match self {
            Many::Pause(_) => "/v1/jobs/bulk/pause",
            Many::Resume(_) => "/v1/jobs/bulk/resume",
            Many::Delete(_) => "/v1/jobs/bulk/delete",
            Many::Edit(_) => "/v1/jobs/bulk/edit",
            Many::CancelRuns(_) => "/v1/runs/bulk/cancel",
        }
    }

    fn call(&self) -> Result<Call<'_>, Error> {
        let call = Call::post(self.path());
        match self {
            Many::Pause(body) => call.body(body),
            Many::Resume(body) | Many::Delete(body) => call.body(body),
            Many::Edit(body) => call.body(body),
            Many::CancelRuns(body) => call.body(body),
        }
    }

    /// The same, to be counted only.
    fn dry(&self, from: Option<String>) -> Many {
        let mut dry = self.clone();
        let (dry_run, cursor) = match &mut dry {
            Many::Pause(body) => (&mut body.dry_run, &mut body.cursor),
            Many::Resume(body) | Many::Delete(body) => (&mut body.dry_run, &mut body.cursor),
            Many::Edit(body) => (&mut body.dry_run, &mut body.cursor),
            Many::CancelRuns(body) => (&mut body.dry_run, &mut body.cursor),
        };
        (*dry_run, *cursor) = (Some(true), from);
        dry
    }
}

impl Client {
    /// Starts the operation.
    pub async fn change_many(
        &self,
        many: &Many,
        idempotency_key: Option<&str>,
    ) -> Result<Answer<Operation>, Error> {
        self.call(many.call()?.under(idempotency_key)).await
    }

    /// What the operation would do to a part of the list; the rest is counted from its `next_cursor` on.
    pub async fn preview_many(
        &self,
        many: &Many,
        cursor: Option<String>,
    ) -> Result<Answer<BulkPreview>, Error> {
        self.call(many.dry(cursor).call()?).await
    }
}
