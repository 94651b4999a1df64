//! Jobs: register, read, change, pause, trigger.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use http::Method;
use punctual_api::Page;
use punctual_api::backfill::{Backfill, BackfillSlots};
use punctual_api::import::BulkResult;
use punctual_api::job::{Job, Pause, Trigger, Upcoming};
use punctual_api::ledger::{LedgerEntry, Why};
use punctual_api::operation::Operation;
use punctual_api::run::RunSummary;
use serde::Serialize;

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::list::List;
use crate::server::{escaped, query};

/// A job by its id, or by the key its owner chose: `key:nightly`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobRef {
    /// By id.
    Id(String),
    /// By key.
    Key(String),
}

impl FromStr for JobRef {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.strip_prefix("key:") {
            Some(key) => JobRef::Key(key.into()),
            None => JobRef::Id(text.into()),
        })
    }
}

impl fmt::Display for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobRef::Id(id) => f.write_str(id),
            JobRef::Key(key) => write!(f, "key:{key}"),
        }
    }
}

impl JobRef {
    fn path(&self) -> String {
        match self {
            JobRef::Id(id) => format!("/v1/jobs/{}", escaped(id)),
            JobRef::Key(key) => format!("/v1/jobs/key/{}", escaped(key)),
        }
    }
}

/// Which jobs; what is not given does not narrow.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// `active`, `paused` or `ended`.
    pub state: Option<String>,
    /// With all of these labels: `name=value`.
    pub labels: Vec<String>,
    /// With a text in their names.
    pub name: Option<String>,
    /// With keys that begin like this.
    pub key_prefix: Option<String>,
    /// In a queue.
    pub queue: Option<String>,
    /// Of a type.
    pub r#type: Option<String>,
}

impl Client {
    /// Registers a job: a [`punctual_api::JobSpec`], or JSON text as a `RawValue`. Durable when this returns.
    pub async fn create_job(
        &self,
        spec: &(impl Serialize + ?Sized),
        idempotency_key: Option<&str>,
    ) -> Result<Answer<Job>, Error> {
        self.call(Call::post("/v1/jobs").body(spec)?.under(idempotency_key)).await
    }

    /// A job, with its last run and warnings.
    pub async fn job(&self, job: &JobRef) -> Result<Answer<Job>, Error> {
        self.call(Call::get(job.path())).await
    }

    /// The id of a job; asks the server only for a key.
    pub async fn job_id(&self, job: &JobRef) -> Result<String, Error> {
        match job {
            JobRef::Id(id) => Ok(id.clone()),
            JobRef::Key(_) => Ok(self.job(job).await?.value.status.id),
        }
    }

    /// Jobs in the order of their ids.
    pub fn jobs(&self, filter: &JobFilter) -> List<Job> {
        let mut parameters = vec![
            ("state", filter.state.as_deref()),
            ("name", filter.name.as_deref()),
            ("key_prefix", filter.key_prefix.as_deref()),
            ("queue", filter.queue.as_deref()),
            ("type", filter.r#type.as_deref()),
        ];
        parameters.extend(filter.labels.iter().map(|label| ("label", Some(label.as_str()))));
        List::new(self, "/v1/jobs", &parameters)
    }

    /// Puts another body in the place of a job's; only if it still has this version, if one is given.
    pub async fn replace_job(
        &self,
        id: &str,
        spec: &(impl Serialize + ?Sized),
        version: Option<u32>,
    ) -> Result<Answer<Job>, Error> {
        let path = JobRef::Id(id.into()).path();
        self.call(Call::new(Method::PUT, path).body(spec)?.of_version(version)).await
    }

    /// Changes what a merge patch (RFC 7396) names.
    pub async fn patch_job(
        &self,
        id: &str,
        patch: &(impl Serialize + ?Sized),
        version: Option<u32>,
    ) -> Result<Answer<Job>, Error> {
        let path = JobRef::Id(id.into()).path();
        self.call(Call::new(Method::PATCH, path).body(patch)?.of_version(version)).await
    }

    /// Registers the job with a key, or puts another body in the place of its own.
    pub async fn put_job(&self, key: &str, spec: &(impl Serialize + ?Sized)) -> Result<Answer<Job>, Error> {
        self.call(Call::new(Method::PUT, JobRef::Key(key.into()).path()).body(spec)?).await
    }

    /// Deletes a job: cancels its pending runs, lets running ones end, keeps its history until it expires.
    pub async fn delete_job(&self, id: &str, version: Option<u32>) -> Result<(), Error> {
        let path = JobRef::Id(id.into()).path();
        self.call_empty(Call::new(Method::DELETE, path).of_version(version)).await
    }

    /// Stops a job from firing, if it still has the version.
    pub async fn pause_job(
        &self,
        id: &str,
        pause: &Pause,
        version: Option<u32>,
    ) -> Result<Answer<Job>, Error> {
        let path = format!("{}/pause", JobRef::Id(id.into()).path());
        self.call(Call::post(path).body(pause)?.of_version(version)).await
    }

    /// Lets a job fire again, if it still has the version.
    pub async fn resume_job(&self, id: &str, version: Option<u32>) -> Result<Answer<Job>, Error> {
        let path = format!("{}/resume", JobRef::Id(id.into()).path());
        self.call(Call::post(path).of_version(version)).await
    }

    /// Runs a job now, outside its schedule.
    pub async fn trigger_job(
        &self,
        id: &str,
        trigger: &Trigger,
        idempotency_key: Option<&str>,
    ) -> Result<Answer<RunSummary>, Error> {
        let path = format!("{}/trigger", JobRef::Id(id.into()).path());
        self.call(Call::post(path).body(trigger)?.under(idempotency_key)).await
    }

    /// Runs slots of the past, as an operation.
    pub async fn backfill_job(
        &self,
        id: &str,
        backfill: &Backfill,
        idempotency_key: Option<&str>,
    ) -> Result<Answer<Operation>, Error> {
        let path = format!("{}/backfill", JobRef::Id(id.into()).path());
        self.call(Call::post(path).body(backfill)?.under(idempotency_key)).await
    }

    /// The slots that a backfill would run.
    pub async fn backfill_slots(
        &self,
        id: &str,
        backfill: &Backfill,
    ) -> Result<Answer<BackfillSlots>, Error> {
        let path = format!("{}/backfill", JobRef::Id(id.into()).path());
        let backfill = Backfill { dry_run: Some(true), ..backfill.clone() };
        self.call(Call::post(path).body(&backfill)?).await
    }

    /// The next slots of a job.
    pub async fn upcoming(&self, id: &str, count: usize) -> Result<Answer<Page<Upcoming>>, Error> {
        let count = count.to_string();
        let query = query(&[("limit", Some(&count))]);
        self.call(Call::get(format!("{}/upcoming{query}", JobRef::Id(id.into()).path()))).await
    }

    /// The runs of a job, newest first.
    pub fn job_runs(&self, id: &str) -> List<RunSummary> {
        List::new(self, format!("{}/runs", JobRef::Id(id.into()).path()), &[])
    }

    /// The slots of a job that did not simply run, newest first.
    pub fn ledger(&self, id: &str) -> List<LedgerEntry> {
        List::new(self, format!("{}/ledger", JobRef::Id(id.into()).path()), &[])
    }

    /// All slots of a job in a range, newest first: RFC 3339 or epoch seconds.
    pub fn account(&self, id: &str, from: Option<&str>, to: Option<&str>) -> List<LedgerEntry> {
        let path = format!("{}/ledger", JobRef::Id(id.into()).path());
        List::new(self, path, &[("from", from), ("to", to)])
    }

    /// Why a job did or did not run at a time, or lately.
    pub async fn why(&self, id: &str, at: Option<&str>) -> Result<Answer<Why>, Error> {
        let query = query(&[("at", at)]);
        self.call(Call::get(format!("{}/why{query}", JobRef::Id(id.into()).path()))).await
    }

    /// Registers up to 1,000 jobs; each is answered for itself.
    pub async fn create_jobs(
        &self,
        specs: &[impl Serialize],
        idempotency_key: Option<&str>,
    ) -> Result<Answer<BulkResult>, Error> {
        self.call(Call::post("/v1/jobs/bulk").body(specs)?.under(idempotency_key)).await
    }
}
