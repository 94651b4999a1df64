//! Runs: find, read, follow, cancel, retry, answer for.

use punctual_api::report::{AttemptEnd, AttemptHeard, AttemptHeartbeat};
use punctual_api::run::{Run, RunAnswer, RunLogLine, RunSummary};
use punctual_api::worker::ResultTaken;

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::list::List;
use crate::server::escaped;

/// Which runs; what is not given does not narrow.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Of a job, by its id.
    pub job: Option<String>,
    /// In a state.
    pub state: Option<String>,
    /// Pending, and waiting for this: `time`, `capacity`, `retry`, `earlier_run`, `limit` or `answer`.
    pub waiting_for: Option<String>,
    /// In the dead letters, or not.
    pub dead: Option<bool>,
    /// Of a type of job.
    pub r#type: Option<String>,
    /// In a queue.
    pub queue: Option<String>,
    /// Born at or after: RFC 3339 or epoch seconds.
    pub from: Option<String>,
    /// Born before.
    pub to: Option<String>,
    /// Of dead letters: the code of their error.
    pub error: Option<String>,
    /// Of dead letters: a label of their job, as `name=value`.
    pub label: Option<String>,
}

impl RunFilter {
    pub(crate) fn parameters(&self) -> [(&'static str, Option<&str>); 10] {
        [
            ("job", self.job.as_deref()),
            ("state", self.state.as_deref()),
            ("waiting_for", self.waiting_for.as_deref()),
            ("dead", self.dead.map(|is_dead| if is_dead { "true" } else { "false" })),
            ("type", self.r#type.as_deref()),
            ("queue", self.queue.as_deref()),
            ("from", self.from.as_deref()),
            ("to", self.to.as_deref()),
            ("error", self.error.as_deref()),
            ("label", self.label.as_deref()),
        ]
    }
}

impl Client {
    /// Runs, newest first.
    pub fn runs(&self, filter: &RunFilter) -> List<RunSummary> {
        List::new(self, "/v1/runs", &filter.parameters())
    }

    /// A run with its attempts.
    pub async fn run(&self, id: &str) -> Result<Answer<Run>, Error> {
        self.call(Call::get(path(id))).await
    }

    /// The log of a run, oldest lines first: of one attempt or of all. Who follows gets pages, also empty ones, until the run is over.
    pub fn run_log(&self, id: &str, attempt: Option<u32>, follows: bool) -> List<RunLogLine> {
        let attempt = attempt.map(|attempt| attempt.to_string());
        let parameters = [("attempt", attempt.as_deref()), ("follow", follows.then_some("true"))];
        List::new(self, format!("{}/log", path(id)), &parameters)
    }

    /// Ends a waiting run, or asks a running one to stop.
    pub async fn cancel_run(&self, id: &str) -> Result<Answer<RunSummary>, Error> {
        self.call(Call::post(format!("{}/cancel", path(id)))).await
    }

    /// Lets a dead run go on: the same run, the next attempt.
    pub async fn retry_run(&self, id: &str) -> Result<Answer<RunSummary>, Error> {
        self.call(Call::post(format!("{}/retry", path(id)))).await
    }

    /// Says what became of a run that waits for an answer: `retry`, `succeeded` or `failed`.
    pub async fn answer_run(&self, id: &str, answer: &str) -> Result<Answer<RunSummary>, Error> {
        let body = RunAnswer { answer: Some(answer.into()) };
        self.call(Call::post(format!("{}/answer", path(id))).body(&body)?).await
    }

    /// Says that an attempt goes on, under the token that its receiver was given; what it says of itself is kept.
    pub async fn heartbeat_run(
        &self,
        id: &str,
        token: &str,
        beat: &AttemptHeartbeat,
    ) -> Result<Answer<AttemptHeard>, Error> {
        self.call(Call::post(format!("{}/heartbeat", path(id))).with_token(token).body(beat)?).await
    }

    /// Says what became of an attempt, under the token that its receiver was given.
    pub async fn complete_run(
        &self,
        id: &str,
        token: &str,
        end: &AttemptEnd,
    ) -> Result<Answer<ResultTaken>, Error> {
        self.call(Call::post(format!("{}/complete", path(id))).with_token(token).body(end)?).await
    }
}

fn path(id: &str) -> String {
    format!("/v1/runs/{}", escaped(id))
}
