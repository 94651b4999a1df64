//! A transaction, and what it means for those who wait.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use punctual_store::GO_ON_MAX;

use crate::client::Client;
use crate::depth::Moves;
use crate::error::Failed;
use crate::limit::{Journal, Settled};
use crate::postgres::Postgres;
use crate::row::Entry;

/// A transaction; what it moves is counted when it is committed, and what it does to runs with limits is settled before.
pub(crate) struct Work<'c> {
    transaction: Client<'c>,
    moves: Mutex<Moves>,
    journal: Mutex<Journal>,
}

impl<'c> Work<'c> {
    pub(crate) async fn begin(client: &'c mut Client<'static>) -> Result<Self, Failed> {
        let transaction = client.transaction().await?;
        Ok(Work { transaction, moves: Mutex::default(), journal: Mutex::default() })
    }

    pub(crate) fn moved(&self, moves: &Moves) {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner).add(moves);
    }

    /// Runs with limits were written, open or ended.
    pub(crate) fn note<'e>(&self, limited: impl IntoIterator<Item = &'e (Entry, Timestamp)>) {
        let mut limited = limited.into_iter().peekable();
        if limited.peek().is_none() {
            return;
        }
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        limited.for_each(|(entry, now)| journal.note(entry, *now));
    }

    /// Returns runs that limits changed at the end, as they are.
    pub(crate) async fn commit(self, store: &Postgres) -> Result<Settled, Failed> {
        let journal = std::mem::take(&mut *self.journal.lock().unwrap_or_else(PoisonError::into_inner));
        let settled = store.settle_limits(&self, journal, GO_ON_MAX).await?;
        let begun = Instant::now();
        self.transaction.commit().await.map_err(Failed::at_commit)?;
        store.calls.committed(begun.elapsed());
        store.moved(&self.moves.into_inner().unwrap_or_else(PoisonError::into_inner));
        store.leases.keep(settled.values().filter(|entry| entry.run.lease().is_some()).cloned());
        Ok(settled)
    }
}

impl<'c> Deref for Work<'c> {
    type Target = Client<'c>;

    fn deref(&self) -> &Client<'c> {
        &self.transaction
    }
}
