//! Many jobs in one body: each stands for itself.

use http::StatusCode;
use punctual_api::import::{BulkItem, BulkResult};
use punctual_api::job::{Purpose, read_job, split_jobs};
use punctual_api::limits::BULK_MAX;
use punctual_domain::job::Spec;
use punctual_engine::Error as EngineError;
use punctual_engine::history::Subject;

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
        let places: Vec<u64> = (0..texts.len() as u64).collect();
        let results = register(&call, &texts, &places).await?;
        let items: Vec<BulkItem> = results.into_iter().map(BulkItem::from).collect();
        let failed = items.iter().filter(|item| item.problem.is_some()).count() as u64;
        Ok(Answer::ok(&BulkResult { created: items.len() as u64 - failed, failed, items }))
    })
    .await
}

/// What became of one job of many.
pub(crate) enum Registered {
    New(String),
    /// An earlier request under the same `Idempotency-Key` had registered it.
    Repeated(String),
    Refused(Error),
}

impl From<Registered> for BulkItem {
    fn from(registered: Registered) -> Self {
        match registered {
            Registered::New(id) | Registered::Repeated(id) => {
                BulkItem { status: StatusCode::CREATED.as_u16(), id: Some(id), problem: None }
            }
            Registered::Refused(error) => {
                let problem = error.problem();
                BulkItem { status: problem.status, id: None, problem: Some(problem) }
            }
        }
    }
}

/// Registers jobs by their texts. Each is remembered under the request's key and its number, in its own commit: a
/// request that broke off half way goes on where it was when it is repeated.
pub(crate) async fn register(call: &Call, texts: &[&str], numbers: &[u64]) -> Result<Vec<Registered>, Error> {
    let key = call.idempotency_key()?;
    let rules = call.shared.rules();
    let mut results: Vec<Option<Registered>> = Vec::with_capacity(texts.len());
    let mut specs: Vec<(Spec, Option<Subject>)> = Vec::with_capacity(texts.len());
    let mut places = Vec::with_capacity(texts.len());
    for (place, (text, number)) in texts.iter().zip(numbers).enumerate() {
        let spec = match read_job(text, Purpose::Create, &rules) {
            Ok(spec) => spec,
            Err(unread) => {
                results.push(Some(Registered::Refused(unread.into())));
                continue;
            }
        };
        // No key of a caller has a space in it.
        let request = key.map(|key| {
            let key = format!("{key} {number}");
            call.shared.engine.request(call.tenant, key, call.fingerprint(text))
        });
        results.push(None);
        places.push(place);
        specs.push((spec, request));
    }
    let requests: Vec<Option<Subject>> = specs.iter().map(|(_, request)| request.clone()).collect();
    let remember = |registered: &punctual_engine::register::Registered, request: &mut Subject| {
        request.result = registered.job.id.to_string();
    };
    let answers = call.shared.engine.register_answering(call.tenant, specs, remember).await?;
    for ((place, answer), request) in places.into_iter().zip(answers).zip(requests) {
        results[place] = Some(match (answer, request) {
            (Ok(registered), _) => Registered::New(registered.job.id.to_string()),
            (Err(EngineError::Repeated(known)), Some(request)) => repeated(&known, &request),
            // A key that is taken may be taken by the same request.
            (Err(error), Some(request)) => {
                match call.shared.engine.remembered(call.tenant, &request.key).await? {
                    Some(known) => repeated(&known, &request),
                    None => Registered::Refused(error.into()),
                }
            }
            (Err(error), None) => Registered::Refused(error.into()),
        });
    }
    Ok(results.into_iter().flatten().collect())
}

fn repeated(known: &Subject, request: &Subject) -> Registered {
    match known.fingerprint == request.fingerprint {
        true => Registered::Repeated(known.result.clone()),
        false => Registered::Refused(Error::KeyReused),
    }
}
