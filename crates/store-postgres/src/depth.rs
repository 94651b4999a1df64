//! How many runs wait for a worker, by lane, as this node knows it.
//!
//! Counted once when the store is opened, and kept from then on by what this node commits. Promise: asking costs nothing.
//! What other nodes do is not in it: each tells of its own, and who watches a cluster adds them up.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_domain::Run;
use punctual_domain::id::TenantId;
use punctual_domain::job::Lane;
use punctual_store::Waiting;

use crate::client::Client;
use crate::error::{Failed, failed};
use crate::row::{READY, REQUIRING, RUNNING, lane};

#[derive(Debug, Default)]
pub(crate) struct Depth(Mutex<Waiting>);

/// Runs that moved from one line to another, or came, or went: by lane, those that may be claimed; by tenant, all that wait.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    lanes: Vec<(Lane, i64)>,
    tenants: HashMap<TenantId, i64>,
}

impl Moves {
    pub(crate) fn push(&mut self, run: &Run, from: Option<i16>, to: Option<i16>) {
        self.change_line(run.lane, from, to);
        self.wait(run, from, to);
    }

    /// A run waits from now on, or no more.
    pub(crate) fn wait(&mut self, run: &Run, from: Option<i16>, to: Option<i16>) {
        let waits = |line: Option<i16>| line.is_some_and(|line| line != RUNNING);
        let by = i64::from(waits(to)) - i64::from(waits(from));
        if by != 0 {
            *self.tenants.entry(run.tenant).or_default() += by;
        }
    }

    /// A run that waits before and after goes to another line.
    pub(crate) fn change_line(&mut self, lane: Lane, from: Option<i16>, to: Option<i16>) {
        let waits = |line: Option<i16>| line.is_some_and(|line| [READY, REQUIRING].contains(&line));
        match (waits(from), waits(to)) {
            (false, true) => self.lanes.push((lane, 1)),
            (true, false) => self.lanes.push((lane, -1)),
            _ => {}
        }
    }

    pub(crate) fn add(&mut self, others: &Moves) {
        self.lanes.extend_from_slice(&others.lanes);
        for (tenant, by) in &others.tenants {
            *self.tenants.entry(*tenant).or_default() += by;
        }
    }

    /// How many more wait, by tenant.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = (TenantId, i64)> {
        self.tenants.iter().map(|(tenant, by)| (*tenant, *by))
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
        for &(lane, by) in &moves.lanes {
            match by > 0 {
                true => waiting.add(lane, by.unsigned_abs()),
                false => waiting.remove(lane, by.unsigned_abs()),
            }
        }
    }
}
