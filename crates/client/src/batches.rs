//! Batches: jobs with a list of items, each of which is a run.

use http::Method;
use punctual_api::batch::{Batch, BatchRun};
use serde::Serialize;

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::list::List;
use crate::server::escaped;

impl Client {
    /// Registers a batch: a [`punctual_api::batch::BatchSpec`], or JSON text as a `RawValue`. The same again is the same batch.
    pub async fn create_batch(&self, spec: &(impl Serialize + ?Sized)) -> Result<Answer<Batch>, Error> {
        self.call(Call::new(Method::POST, "/v1/batches").body(spec)?).await
    }

    /// Batches, in the order of their jobs' ids.
    pub fn batches(&self) -> List<Batch> {
        List::new(self, "/v1/batches", &[])
    }

    /// A batch, with how its items stand.
    pub async fn batch(&self, id: &str) -> Result<Answer<Batch>, Error> {
        self.call(Call::get(path(id))).await
    }

    /// The items of a batch that have runs, newest first; those in a state, if one is given.
    pub fn batch_items(&self, id: &str, state: Option<&str>) -> List<BatchRun> {
        List::new(self, format!("{}/items", path(id)), &[("state", state)])
    }

    /// Ends a batch.
    pub async fn cancel_batch(&self, id: &str) -> Result<Answer<Batch>, Error> {
        self.call(Call::new(Method::POST, format!("{}/cancel", path(id)))).await
    }

    /// Deletes a batch; its history stays until it expires.
    pub async fn delete_batch(&self, id: &str) -> Result<(), Error> {
        self.call_empty(Call::new(Method::DELETE, path(id))).await
    }
}

fn path(id: &str) -> String {
    format!("/v1/batches/{}", escaped(id))
}
