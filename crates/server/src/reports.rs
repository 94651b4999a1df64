//! Receivers that report later: signs of life and the end of an attempt, under the token that the call had.
//!
//! No key is asked for: whoever has the token may do this one thing. Browsers do not send it by themselves, so that a page of another
//! origin cannot make them.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use punctual_api::read;
use punctual_api::report::{AttemptEnd, AttemptHeard, AttemptHeartbeat, TOKEN_HEADER};
use punctual_api::worker::ResultTaken;
use punctual_domain::Outcome as AttemptOutcome;
use punctual_engine::entrust::{Heard, Saying};
use punctual_engine::pull::End;

use crate::answer::Answer;
use crate::call::{Call, LongText, Path};
use crate::error::Error;
use crate::jobs::read_or_default;
use crate::runs::run_id;

type Outcome = Result<Answer, Error>;

pub(crate) async fn heartbeat(call: Call, Path(id): Path, LongText(text): LongText) -> Outcome {
    call.query.check()?;
    let id = run_id(&id)?;
    let note = read_or_default::<AttemptHeartbeat>(&text)?.to_domain(id)?;
    let saying =
        note.map(|note| Saying { progress: note.progress, checkpoint: note.checkpoint, lines: note.lines });
    let heard = call.shared.engine.hear(id, token(&call.headers), saying.unwrap_or_default()).await?;
    Ok(Answer::ok(&match heard {
        Heard::Until(at) => AttemptHeard { cancelled: false, report_by: Some(at) },
        Heard::Cancelled => AttemptHeard { cancelled: true, report_by: None },
    }))
}

pub(crate) async fn complete(call: Call, Path(id): Path, LongText(text): LongText) -> Outcome {
    call.query.check()?;
    let id = run_id(&id)?;
    let end = read::read::<AttemptEnd>(&text)?.to_domain(id)?;
    let end = End {
        // Another one was refused.
        outcome: end.outcome.unwrap_or(AttemptOutcome::Failed),
        error: end.error,
        output: end.output,
        lines: end.lines,
        started_at: end.started_at,
        finished_at: end.finished_at,
    };
    let run = call.shared.engine.report_by_token(id, token(&call.headers), end).await?;
    Ok(Answer::ok(&ResultTaken {
        run_id: id.to_string(),
        attempt: run.attempt,
        state: Some(run.state.as_str().into()),
        problem: None,
    }))
}

/// The token of a request; nothing is none.
fn token(headers: &HeaderMap) -> &str {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = || text(AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    text(TOKEN_HEADER).or_else(bearer).unwrap_or("").trim()
}
