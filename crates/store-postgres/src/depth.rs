//! How many runs wait for a worker, by lane, as this node knows it.
//!
//! Counted once when the store is opened, and kept from then on by what this node commits. Promise: asking costs nothing.
//! What other nodes do is not in it: each tells of its own, and who watches a cluster adds them up.

use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_domain::job::Lane;
use punctual_store::Waiting;

use crate::client::Client;
use crate::error::{Failed, failed};
use crate::row::{READY, REQUIRING, lane};

#[derive(Debug, Default)]
pub(crate) struct Depth(Mutex<Waiting>);

/// Runs that moved from one line to another, or came, or went.
#[derive(Debug, Default)]
pub(crate) struct Moves(Vec<(Lane, i64)>);

impl Moves {
    pub(crate) fn push(&mut self, lane: Lane, from: Option<i16>, to: Option<i16>) {
        let waits = |line: Option<i16>| line.is_some_and(|line| [READY, REQUIRING].contains(&line));
        match (waits(from), waits(to)) {
            (false, true) => self.0.push((lane, 1)),
            (true, false) => self.0.push((lane, -1)),
            _ => {}
        }
    }

    pub(crate) fn add(&mut self, others: &Moves) {
        self.0.extend_from_slice(&others.0);
    }
}

impl Depth {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn load(&self, client: &Client<'_>) -> Result<(), Failed> {
        let sql = "select lane, count(*) from open_runs where line in (-1, 1) group by lane";
        let mut waiting = Waiting::default();
        for row in client.query(sql, &[]).await.map_err(failed)? {
            waiting.add(lane(row.get(0))?, row.get::<_, i64>(1) as u64);
        }
        *self.waiting() = waiting;
        Ok(())
    }

    pub(crate) fn now(&self) -> Waiting {
        *self.waiting()
    }

    /// They were committed.
    pub(crate) fn apply(&self, moves: &Moves) {
        let mut waiting = self.waiting();
        for &(lane, by) in &moves.0 {
            match by > 0 {
                true => waiting.add(lane, by.unsigned_abs()),
                false => waiting.remove(lane, by.unsigned_abs()),
            }
        }
    }
}
