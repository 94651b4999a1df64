//! The cluster: live nodes and the owners of shards.

use punctual_api::node::{Node, Shard};
use punctual_api::page::Page;

use crate::answer::Answer;
use crate::call::Call;
use crate::error::Error;

/// All of them at once: a cluster has a few.
pub(crate) async fn list(call: Call) -> Result<Answer, Error> {
    call.query.check()?;
    let placement = call.shared.engine.placement().await?;
    Ok(Answer::ok(&Page { items: Node::all(&placement), next_cursor: None }))
}

/// All of them at once: there are a few hundred.
pub(crate) async fn shards(call: Call) -> Result<Answer, Error> {
    call.query.check()?;
    let placement = call.shared.engine.placement().await?;
    Ok(Answer::ok(&Page { items: Shard::all(&placement), next_cursor: None }))
}
