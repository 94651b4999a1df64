//! Dead letters: listed, redriven, acknowledged.

use http::StatusCode;
use punctual_api::dead_letter::{DeadLetterGroups, Selection, SelectionResult};
use punctual_api::operation::Operation;
use punctual_api::run::RunSummary;

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::list::List;
use crate::runs::RunFilter;
use crate::server::query;

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
        List::new(self, "/v1/dead-letters", &parameters(filter))
    }

    /// The newest dead letters by what went wrong.
    pub async fn dead_letter_groups(&self, filter: &RunFilter) -> Result<Answer<DeadLetterGroups>, Error> {
        self.call(Call::get(format!("/v1/dead-letters/groups{}", query(&parameters(filter))))).await
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

/// What dead letters can be narrowed by.
fn parameters(filter: &RunFilter) -> Vec<(&'static str, Option<&str>)> {
    let known = ["job", "type", "queue", "from", "to", "error", "label"];
    filter.parameters().into_iter().filter(|(name, _)| known.contains(name)).collect()
}
