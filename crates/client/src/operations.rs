//! Operations: long work that was started before.

use punctual_api::operation::Operation;

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::list::List;
use crate::server::escaped;

impl Client {
    /// Operations, newest first; in one state, if it is given.
    pub fn operations(&self, state: Option<&str>) -> List<Operation> {
        List::new(self, "/v1/operations", &[("state", state)])
    }

    /// An operation, until a week after its end.
    pub async fn operation(&self, id: &str) -> Result<Answer<Operation>, Error> {
        self.call(Call::get(path(id))).await
    }

    /// Ends an operation between two steps; what it did stays done.
    pub async fn cancel_operation(&self, id: &str) -> Result<Answer<Operation>, Error> {
        self.call(Call::post(format!("{}/cancel", path(id)))).await
    }
}

fn path(id: &str) -> String {
    format!("/v1/operations/{}", escaped(id))
}
