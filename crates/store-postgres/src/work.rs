//! A transaction, and what it means for those who wait.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::client::Client;
use crate::depth::Moves;
use crate::error::Failed;
use crate::postgres::Postgres;

/// A transaction; what it moves is counted when it is committed.
pub(crate) struct Work<'c> {
    transaction: Client<'c>,
    moves: Mutex<Moves>,
}

impl<'c> Work<'c> {
    pub(crate) async fn begin(client: &'c mut Client<'static>) -> Result<Self, Failed> {
        Ok(Work { transaction: client.transaction().await?, moves: Mutex::default() })
    }

    pub(crate) fn moved(&self, moves: &Moves) {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner).add(moves);
    }

    pub(crate) async fn commit(self, store: &Postgres) -> Result<(), Failed> {
        let begun = Instant::now();
        self.transaction.commit().await.map_err(Failed::at_commit)?;
        store.calls.committed(begun.elapsed());
        store.depth.apply(&self.moves.into_inner().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }
}

impl<'c> Deref for Work<'c> {
    type Target = Client<'c>;

    fn deref(&self) -> &Client<'c> {
        &self.transaction
    }
}
