//! Many jobs in one body: each stands for itself.

use std::sync::Arc;

use http::StatusCode;
use punctual_api::defaults::read_job_over;
use punctual_api::import::{BulkItem, BulkResult};
use punctual_api::job::{Purpose, split_jobs};
use punctual_api::limits::BULK_MAX;
use punctual_domain::JobId;
use punctual_domain::job::Spec;
use punctual_engine::Error as EngineError;
use punctual_engine::history::Subject;
use serde::Serialize;

use crate::answer::Answer;
use crate::call::{Call, LongText};
use crate::error::Error;
use crate::once::once;

pub(crate) async fn create(call: Call, LongText(text): LongText) -> Result<Answer, Error> {
    call.query.check()?;
    let texts = split_jobs(&text)?;
    if texts.len() > BULK_MAX {
        let detail = format!("{} jobs are too many, at most {BULK_MAX}; use /v1/jobs/import", texts.len());
        return Err(Error::wrong("", "too_long", detail));
    }
    once(&call, &text, async {
        let key = call.idempotency_key()?;
        let defaults = call.shared.engine.job_defaults(call.tenant).await?;
        let mut parsed = Parsed::with_capacity(texts.len(), defaults);
        for (number, text) in texts.iter().enumerate() {
            parsed.read(&call, key, text, number as u64);
        }
        call.note_jobs("create", &Asked { asked: texts.len() }).await?;
        let results = parsed.register(&call).await?;
        let items: Vec<BulkItem> = results.into_iter().map(|(_, registered)| registered.into()).collect();
        let failed = items.iter().filter(|item| item.problem.is_some()).count() as u64;
        let created = items.len() as u64 - failed;
        call.note_jobs("created", &Done { created, failed }).await?;
        Ok(Answer::ok(&BulkResult { created, failed, items }))
    })
    .await
}

/// What is written of many jobs before they are registered: one entry for all.
#[derive(Serialize)]
struct Asked {
    asked: usize,
}

/// And afterwards.
#[derive(Serialize)]
struct Done {
    created: u64,
    failed: u64,
}

/// What became of one job of many.
pub(crate) enum Registered {
    New(JobId),
    /// An earlier request under the same `Idempotency-Key` had registered it.
    Repeated(String),
    Refused(Error),
}

impl From<Registered> for BulkItem {
    fn from(registered: Registered) -> Self {
        let created = |id| BulkItem { status: StatusCode::CREATED.as_u16(), id: Some(id), problem: None };
        match registered {
            Registered::New(id) => created(id.to_string()),
            Registered::Repeated(id) => created(id),
            Registered::Refused(error) => {
                let problem = error.problem();
                BulkItem { status: problem.status, id: None, problem: Some(problem) }
            }
        }
    }
}

/// Jobs of one request, read and not registered yet.
pub(crate) struct Parsed {
    /// Every job by its number: the hash of its text if it was read, or why it was not.
    jobs: Vec<(u64, Result<[u8; 16], Error>)>,
    /// Those that were read, in the same order.
    specs: Vec<(Spec, Option<Subject>)>,
    /// What holds for those that do not say.
    defaults: Option<Arc<str>>,
}

impl Parsed {
    /// None yet, with room for so many, over the defaults of their tenant.
    pub(crate) fn with_capacity(count: usize, defaults: Option<Arc<str>>) -> Self {
        Parsed { jobs: Vec::with_capacity(count), specs: Vec::with_capacity(count), defaults }
    }

    /// Reads a job. It is remembered under the request's key and its number, in its own commit: a request that broke
    /// off half way goes on where it was when it is repeated.
    pub(crate) fn read(&mut self, call: &Call, key: Option<&str>, text: &str, number: u64) {
        let spec = match read_job_over(text, self.defaults.as_deref(), Purpose::Create, &call.shared.rules())
        {
            Ok(spec) => spec,
            Err(unread) => return self.refuse(number, unread.into()),
        };
        let fingerprint = key.map_or([0; 16], |_| call.fingerprint(text));
        let request =
            key.map(|key| call.shared.engine.request(call.tenant, numbered(key, number), fingerprint));
        self.jobs.push((number, Ok(fingerprint)));
        self.specs.push((spec, request));
    }

    /// Takes a job that cannot be read.
    pub(crate) fn refuse(&mut self, number: u64, error: Error) {
        self.jobs.push((number, Err(error)));
    }

    /// Registers what was read. Durable when this returns.
    pub(crate) async fn register(self, call: &Call) -> Result<Vec<(u64, Registered)>, Error> {
        let key = call.idempotency_key()?;
        let remember = |registered: &punctual_engine::register::Registered, request: &mut Subject| {
            request.result = registered.job.id.to_string();
        };
        let answers = call.shared.engine.register_answering(call.tenant, self.specs, remember).await?;
        let mut answers = answers.into_iter();
        let mut results = Vec::with_capacity(self.jobs.len());
        for (number, read) in self.jobs {
            let registered = match read {
                Err(error) => Registered::Refused(error),
                Ok(fingerprint) => match (answers.next(), key) {
                    (Some(Ok(registered)), _) => Registered::New(registered.job.id),
                    (Some(Err(EngineError::Repeated(known))), _) => repeated(*known, fingerprint),
                    // A key that is taken may be taken by the same request.
                    (Some(Err(error)), Some(key)) => {
                        let known =
                            call.shared.engine.remembered(call.tenant, &numbered(key, number)).await?;
                        match known {
                            Some(known) => repeated(known, fingerprint),
                            None => Registered::Refused(error.into()),
                        }
                    }
                    (Some(Err(error)), None) => Registered::Refused(error.into()),
                    (None, _) => continue,
                },
            };
            results.push((number, registered));
        }
        Ok(results)
    }
}

/// The key of one job of a request. No key of a caller has a space in it.
fn numbered(key: &str, number: u64) -> String {
    format!("{key} {number}")
}

fn repeated(known: Subject, fingerprint: [u8; 16]) -> Registered {
    match known.fingerprint == fingerprint {
        true => Registered::Repeated(known.result),
        false => Registered::Refused(Error::KeyReused),
    }
}
