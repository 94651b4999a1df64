//! The cluster: live nodes, the owners of shards, and the databases where they live.

use std::collections::HashMap;

use punctual_api::node::{Database, MoveShards, Node, Shard, numbers, ranges};
use punctual_api::page::Page;
use punctual_api::read;
use punctual_domain::id::ShardId;
use punctual_domain::operation::{self, Kind};

use crate::answer::Answer;
use crate::call::{Call, Text};
use crate::error::Error;
use crate::operations;

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
    let homes = call.shared.engine.homes();
    let lives: HashMap<u16, u8> =
        homes.iter().flat_map(|home| home.shards.iter().map(|shard| (shard.0, home.database))).collect();
    let mut items = Shard::all(&placement);
    items.iter_mut().for_each(|shard| shard.database = lives.get(&shard.shard).copied());
    Ok(Answer::ok(&Page { items, next_cursor: None }))
}

/// All of them at once: there are at most sixty-four.
pub(crate) async fn databases(call: Call) -> Result<Answer, Error> {
    call.query.check()?;
    let homes = call.shared.engine.homes();
    let items = homes.iter().map(|home| {
        let shards: Vec<u16> = home.shards.iter().map(|shard| shard.0).collect();
        Database {
            database: home.database,
            address: home.address.clone(),
            shard_count: shards.len(),
            shards: ranges(&shards),
        }
    });
    Ok(Answer::ok(&Page { items: items.collect::<Vec<_>>(), next_cursor: None }))
}

pub(crate) async fn move_shards(call: Call, Text(text): Text) -> Result<Answer, Error> {
    call.query.check()?;
    let asked: MoveShards = read::read(&text)?;
    let homes = call.shared.engine.homes();
    let to = asked.to.ok_or_else(|| {
        Error::wrong("/to", "missing", "say which database; `punctual databases` lists them")
    })?;
    let Some(to) = homes.iter().map(|home| home.database).find(|number| u32::from(*number) == to) else {
        let detail = match homes.len() {
            0 => "this store is one place; shards move between PostgreSQL databases".into(),
            _ => format!(
                "there is no database {to}; start the nodes with --store for it, and see `punctual databases`"
            ),
        };
        return Err(Error::wrong("/to", "unknown", detail));
    };
    let wrong = || Error::wrong("/shards", "invalid", "write numbers and ranges, as `0-127 200`");
    let shards =
        asked.shards.as_deref().and_then(numbers).filter(|shards| !shards.is_empty()).ok_or_else(wrong)?;
    let count = call.shared.engine.shard_count();
    if let Some(beyond) = shards.iter().find(|shard| **shard >= count) {
        let detail = format!("there is no shard {beyond}; they are 0 to {}", count - 1);
        return Err(Error::wrong("/shards", "out_of_range", detail));
    }
    let kind =
        Kind::MoveShards(operation::MoveShards { shards: shards.into_iter().map(ShardId).collect(), to });
    operations::start(&call, &text, kind).await
}
