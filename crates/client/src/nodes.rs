//! The cluster: live nodes and the owners of shards.

use punctual_api::Page;
use punctual_api::node::{Database, MoveShards, Node, Shard};
use punctual_api::operation::Operation;

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

    /// The databases of the installation.
    pub async fn databases(&self) -> Result<Answer<Page<Database>>, Error> {
        self.call(Call::get("/v1/databases")).await
    }

    /// Moves shards, given as `0-127 200`, to another database.
    pub async fn move_shards(&self, shards: &str, to: u8) -> Result<Answer<Operation>, Error> {
        let body = MoveShards { shards: Some(shards.into()), to: Some(to.into()) };
        self.call(Call::post("/v1/shards/move").body(&body)?).await
    }
}
