//! Operations: started by requests about many runs, listed newest first, read, cancelled.

use axum::extract::Path;
use http::StatusCode;
use punctual_api::operation::Operation;
use punctual_api::page::Page;
use punctual_domain::OperationId;
use punctual_domain::operation::{self as domain, Kind, State};
use punctual_engine::Error as EngineError;
use punctual_engine::history::Subject;
use punctual_engine::operations::OperationFilter;

use crate::answer::Answer;
use crate::call::{Call, Text};
use crate::cursor::Cursor;
use crate::error::Error;
use crate::jobs::shorten;
use crate::once::{answered, once, replay};

type Outcome = Result<Answer, Error>;

/// Starts an operation, once for a request.
pub(crate) async fn start(call: &Call, text: &str, kind: Kind) -> Outcome {
    let engine = call.acting();
    start_by(call, text, |request| {
        let remember = |operation: &domain::Operation, request: &mut Subject| {
            request.result = accepted(operation).to_text();
        };
        engine.start_operation(call.tenant, kind, request, remember)
    })
    .await
}

/// Starts an operation in some way, once for a request.
pub(crate) async fn start_by<F>(
    call: &Call,
    text: &str,
    start: impl FnOnce(Option<Subject>) -> F + Send,
) -> Outcome
where
    F: Future<Output = Result<domain::Operation, EngineError>> + Send,
{
    let request = call.request(text)?;
    if let Some(request) = &request
        && let Some(answer) = replay(call, request).await?
    {
        return Ok(answer);
    }
    match (start(request.clone()).await, request) {
        (Ok(operation), _) => Ok(accepted(&operation)),
        (Err(EngineError::Repeated(known)), Some(request)) => answered(&known, &request),
        (Err(error), _) => Err(error.into()),
    }
}

pub(crate) fn accepted(operation: &domain::Operation) -> Answer {
    let location = format!("/v1/operations/{}", operation.id);
    Answer::new(StatusCode::ACCEPTED, &Operation::from(operation)).at(location)
}

pub(crate) async fn list(mut call: Call) -> Outcome {
    let states = State::ALL.map(|state| (state.as_str(), state));
    let filter = OperationFilter { tenant: Some(call.tenant), state: call.query.word("state", &states) };
    let page = call.query.page();
    call.query.check()?;
    let page = call.shared.engine.operations(&filter, page).await?;
    let items: Vec<Operation> = page.items.iter().map(Operation::from).collect();
    Ok(Answer::ok(&Page { items, next_cursor: page.next.map(|next| next.encode()) }))
}

pub(crate) async fn get(call: Call, Path(id): Path<String>) -> Outcome {
    call.query.check()?;
    let operation = call.shared.engine.operation(call.tenant, operation_id(&id)?).await?;
    Ok(Answer::ok(&Operation::from(&operation)))
}

pub(crate) async fn cancel(call: Call, Path(id): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    let id = operation_id(&id)?;
    once(&call, &text, async {
        let operation = call.acting().cancel_operation(call.tenant, id).await?;
        Ok(Answer::ok(&Operation::from(&operation)))
    })
    .await
}

/// An operation's id in a path. What is no id names no operation.
fn operation_id(text: &str) -> Result<OperationId, Error> {
    text.parse().map_err(|_| EngineError::OperationNotFound(shorten(text)).into())
}
