//! Breakers that are set: listed, and reset by hand. Nodes set them and take them away by themselves. Targets are shared by tenants, so breakers are too.

use axum::extract::Path;
use http::StatusCode;
use punctual_api::breaker::Breaker;
use punctual_api::page::Page;

use crate::answer::Answer;
use crate::call::Call;
use crate::error::Error;

type Outcome = Result<Answer, Error>;

/// All of them at once: most of the time there are none.
pub(crate) async fn list(call: Call) -> Outcome {
    call.query.check()?;
    let breakers = call.shared.engine.breakers().await?;
    let items: Vec<Breaker> = breakers.iter().map(Breaker::from).collect();
    Ok(Answer::ok(&Page { items, next_cursor: None }))
}

pub(crate) async fn reset(call: Call, Path(name): Path<String>) -> Outcome {
    call.query.check()?;
    match call.acting().reset_breaker(&name).await? {
        true => Ok(Answer::empty(StatusCode::NO_CONTENT)),
        false => Err(Error::BreakerNotFound(name.chars().take(300).collect())),
    }
}
