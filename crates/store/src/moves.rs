//! Moves of shards between the databases of a store that has several.

use punctual_domain::id::{Epoch, OperationId, ShardId};

/// A database of a store that has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its number.
    pub database: u8,
    /// Where it is, without a password.
    pub address: String,
    /// The shards that live there.
    pub shards: Vec<ShardId>,
}

/// Takes the move of shards to another database on by a step. It may be done twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveStep {
    /// The operation that it is a step of.
    pub operation: OperationId,
    /// The epoch under which the operation's shard is owned: whoever has an older one does nothing more.
    pub epoch: Epoch,
    /// Which shards; those that live there already stay.
    pub shards: Vec<ShardId>,
    /// The number of the database.
    pub to: u8,
}

/// What a step of a move did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// How many rows it wrote or took away.
    pub rows: u64,
    /// Where it stands.
    pub state: MoveState,
}

/// Where a move stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveState {
    /// It goes on.
    Moving,
    /// It waits for another move to end.
    Waiting,
    /// It is done.
    Done,
}
