//! How many runs wait, by tenant, as this node knows it.
//!
//! Counted from time to time, when the engine asks, and kept in between by what this node commits. Promise: asking costs
//! nothing, and no birth writes a row that others write too. What other nodes did since it was counted is not in it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_domain::id::TenantId;
use punctual_domain::policy::backlog::Pending;
use punctual_store::Backlog;

use crate::client::Client;
use crate::error::Failed;
use crate::postgres::Postgres;

/// Runs of a part of all, in the order of their births: a statement reads a bounded number of rows, by the primary key.
pub(crate) const COUNT_WAITING: &str = "
select tenant, count(*) filter (where line <> 2), max(seq) from (
    select tenant, line, seq from open_runs where seq > $1 order by seq limit $2) part group by tenant";

/// Rows of one statement: some tens of milliseconds.
const PART: i64 = 100_000;

#[derive(Debug, Default)]
pub(crate) struct Counted(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    backlog: Backlog,
    /// What this node committed since a count that is under way began.
    since: Backlog,
}

impl Counted {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn of(&self, tenant: TenantId) -> Pending {
        self.counts().backlog.of(tenant)
    }

    pub(crate) fn all(&self) -> u64 {
        self.counts().backlog.all()
    }

    /// They were committed.
    pub(crate) fn apply(&self, moves: impl IntoIterator<Item = (TenantId, i64)>) {
        let mut counts = self.counts();
        for (tenant, runs) in moves {
            counts.backlog.add(tenant, runs);
            counts.since.add(tenant, runs);
        }
    }

    fn begin(&self) {
        self.counts().since = Backlog::default();
    }

    /// What was counted, and what came since that began.
    fn replace(&self, mut counted: Backlog) -> Pending {
        let mut counts = self.counts();
        counted.add_all(&counts.since);
        counts.backlog = counted;
        counts.backlog.most()
    }
}

impl Postgres {
    /// Counts what waits, as of one moment.
    pub(crate) async fn count_pending(&self) -> Result<Pending, Failed> {
        let mut client = self.connection().await?;
        self.backlog.begin();
        let transaction = client.transaction().await?;
        transaction.batch_execute("set transaction isolation level repeatable read read only").await?;
        let counted = count(&transaction).await?;
        transaction.commit().await?;
        Ok(self.backlog.replace(counted))
    }
}

async fn count(client: &Client<'_>) -> Result<Backlog, Failed> {
    let statement = client.prepare_cached(COUNT_WAITING).await?;
    let mut counted = Backlog::default();
    let mut after = i64::MIN;
    loop {
        let rows = client.query(&statement, &[&after, &PART]).await?;
        for row in &rows {
            counted.add(TenantId(row.get::<_, i32>(0) as u32), row.get(1));
        }
        match rows.iter().map(|row| row.get::<_, i64>(2)).max() {
            Some(last) => after = last,
            None => return Ok(counted),
        }
    }
}
