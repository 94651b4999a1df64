//! Queues, for people and for whoever adds and takes away workers.

use jiff::SignedDuration;
use punctual_api::page::Page;
use punctual_api::queue::Queue;
use punctual_engine::queues::QueueState;

use crate::answer::Answer;
use crate::call::Call;
use crate::error::Error;

/// All of them at once: as many as the store looks at.
pub(crate) async fn list(call: Call) -> Result<Answer, Error> {
    let named = call.query.text("tenant").map(str::to_string);
    call.query.check()?;
    let tenant = match named {
        Some(name) => crate::runs::named_tenant(&call, &name).await?,
        None => Some(call.tenant),
    };
    let engine = &call.shared.engine;
    let states = engine.queues(tenant).await?;
    let (now, is_exact) = (engine.now(), states.estimated.is_empty());
    let mut items = Vec::with_capacity(states.queues.len());
    for QueueState { counted, lateness, workers, concurrency, saturation, planned } in states.queues {
        let waits = |since| now.duration_since(since).max(SignedDuration::ZERO).as_millis() as i64;
        items.push(Queue {
            tenant: call.shared.tenant_name(counted.tenant).await?.to_string(),
            queue: counted.queue.to_string(),
            waiting: counted.waiting,
            is_more: counted.is_more,
            oldest_at: counted.oldest_at,
            oldest_wait_ms: counted.oldest_at.map_or(0, waits),
            lateness_ms: lateness.map(|late| late.as_millis() as i64),
            running: counted.running,
            workers,
            concurrency,
            saturation: saturation.map(|percent| f64::from(percent) / 100.0),
            planned,
            is_planned_exact: is_exact,
        });
    }
    Ok(Answer::ok(&Page { items, next_cursor: None }))
}
