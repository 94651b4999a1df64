//! Requests under an `Idempotency-Key`: done once, answered the same again for a day.
//!
//! What gives birth to a job or a run is remembered in the same commit. What changes something that is already there
//! has the same effect when it is done twice, so it is done, and then remembered.

use std::future::Future;

use punctual_engine::history::Subject;

use crate::answer::Answer;
use crate::call::Call;
use crate::error::Error;

/// Does what a request asks for, unless it was done before.
pub(crate) async fn once(
    call: &Call,
    body: &str,
    work: impl Future<Output = Result<Answer, Error>> + Send,
) -> Result<Answer, Error> {
    let Some(request) = call.request(body)? else { return work.await };
    if let Some(answer) = replay(call, &request).await? {
        return Ok(answer);
    }
    let answer = work.await?;
    let kept = Subject { result: answer.to_text(), ..request.clone() };
    let known = call.shared.engine.remember(kept.clone()).await?;
    match known == kept {
        true => Ok(answer),
        false => answered(&known, &request), // The same request, a moment sooner.
    }
}

/// What came of a request, if it was made before.
pub(crate) async fn replay(call: &Call, request: &Subject) -> Result<Option<Answer>, Error> {
    let known = call.shared.engine.remembered(call.tenant, &request.key).await?;
    known.map(|known| answered(&known, request)).transpose()
}

/// The remembered answer, if it was given to the same request.
pub(crate) fn answered(known: &Subject, request: &Subject) -> Result<Answer, Error> {
    if known.fingerprint != request.fingerprint {
        return Err(Error::KeyReused);
    }
    Answer::from_text(&known.result).ok_or(Error::KeyReused)
}
