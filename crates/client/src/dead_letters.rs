//! Dead letters: listed, redriven, acknowledged.

use http::StatusCode;
use punctual_api::dead_letter::{Selection, SelectionResult};
use punctual_api::operation::Operation;
use punctual_api::run::RunSummary;

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::list::List;
use crate::runs::RunFilter;

/// What came of a selection: named runs are changed at once, a filter starts an operation.
#[derive(Clone, Debug)]
pub enum Done {
    /// Each run, as it was named.
    Runs(Answer<SelectionResult>),
    /// Goes on by itself; ask for it by its id.
    Started(Box<Answer<Operation>>),
}

impl Client {
    /// Dead letters, newest first. The filter's `dead` has no meaning here.
    pub fn dead_letters(&self, filter: &RunFilter) -> List<RunSummary> {
        let known = ["job", "type", "queue", "from", "to"];
        let parameters = filter.parameters().into_iter().filter(|(name, _)| known.contains(name));
        List::new(self, "/v1/dead-letters", &parameters.collect::<Vec<_>>())
    }

    /// Lets dead runs go on: the same runs, the next attempts.
    pub async fn redrive(&self, selection: &Selection) -> Result<Done, Error> {
        self.select("/v1/dead-letters/redrive", selection).await
    }

    /// Takes dead runs out of the dead letters; they stay as they are.
    pub async fn acknowledge(&self, selection: &Selection) -> Result<Done, Error> {
        self.select("/v1/dead-letters/acknowledge", selection).await
    }

    async fn select(&self, path: &str, selection: &Selection) -> Result<Done, Error> {
        let (status, text) = self.exchange(Call::post(path).body(selection)?).await?;
        let name = format!("POST {path}");
        match status {
            StatusCode::ACCEPTED => self.read(&name, &text).map(|started| Done::Started(Box::new(started))),
            _ => self.read(&name, &text).map(Done::Runs),
        }
    }
}
