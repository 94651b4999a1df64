//! The cluster: live nodes and the owners of shards.

use punctual_api::Page;
use punctual_api::node::{Node, Shard};

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;

impl Client {
    /// The live nodes.
    pub async fn nodes(&self) -> Result<Answer<Page<Node>>, Error> {
        self.call(Call::get("/v1/nodes")).await
    }

    /// All shards and their owners.
    pub async fn shards(&self) -> Result<Answer<Page<Shard>>, Error> {
        self.call(Call::get("/v1/shards")).await
    }
}
