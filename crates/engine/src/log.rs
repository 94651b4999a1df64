//! The log of a run: what its attempts wrote, line by line, while they run and afterwards.
//!
//! Runs when somebody asks. Promise: lines come in the order of attempts and of writing, each once, however they are paged; who follows is
//! answered as soon as there is more, or when there will be no more.

use std::time::Duration;

use jiff::SignedDuration;
use punctual_domain::id::{RunId, TenantId};
use punctual_domain::papers::{Line, Place};
use punctual_store::RunDetail;

use crate::engine::Engine;
use crate::error::Error;

/// How often it is looked for more while somebody follows: a person does not see the difference, and it is a read of one run.
const LOOK_EVERY: SignedDuration = SignedDuration::from_millis(500);

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct LogQuery {
    /// Of one attempt; of all, if none is named.
    pub attempt: Option<u32>,
    /// Lines after this one.
    pub after: Place,
    /// At most so many.
    pub limit: usize,
    /// Waits for more so long, if there are none yet.
    pub wait: Option<Duration>,
}

/// Some lines of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogPage {
    /// The lines, oldest first.
    pub lines: Vec<(Place, Line)>,
    /// Where it goes on; nothing, if there is no more to read, nor to come for one who follows.
    pub next: Option<Place>,
}

impl Engine {
    /// Lines of the log of a run.
    pub async fn log(&self, tenant: TenantId, run: RunId, query: LogQuery) -> Result<LogPage, Error> {
        let wait = query.wait.map(|wait| SignedDuration::try_from(wait).unwrap_or(SignedDuration::ZERO));
        let until = wait.map(|wait| self.clock.now() + wait);
        loop {
            let page = page(&self.run(tenant, run).await?, &query);
            let is_over = *self.draining.borrow() || until.is_none_or(|until| until <= self.clock.now());
            if !page.lines.is_empty() || page.next.is_none() || is_over {
                return Ok(page);
            }
            self.clock.sleep_until(self.clock.now() + LOOK_EVERY).await;
        }
    }
}

/// A page of what is there now.
fn page(detail: &RunDetail, query: &LogQuery) -> LogPage {
    let mut rest = detail.papers.lines_after(query.after, query.attempt);
    let lines: Vec<(Place, Line)> =
        rest.by_ref().take(query.limit).map(|(place, line)| (place, line.clone())).collect();
    let has_more = rest.next().is_some();
    let follows = query.wait.is_some() && !is_over(detail, query.attempt);
    let last = lines.last().map_or(query.after, |(place, _)| *place);
    LogPage { lines, next: (has_more || follows).then_some(last) }
}

/// Whether nothing more will be written.
fn is_over(detail: &RunDetail, attempt: Option<u32>) -> bool {
    let run = &detail.run;
    let is_past = |attempt| run.attempt > attempt || (run.attempt == attempt && run.lease().is_none());
    run.state.is_ended() || attempt.is_some_and(is_past)
}
