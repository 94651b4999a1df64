//! Workers that pull: what they tell of themselves, beside their signs of life.
//!
//! In the rows of `workers`, which [`crate::claim`] keeps. Promise: one that was taken for dead is not heard any more.

use jiff::Timestamp;
use punctual_domain::id::{Sequence, TenantId, WorkerId};
use punctual_domain::work::{About, Held, Presence};
use punctual_store::record::{decode_about, encode_about};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::error::{Failed, failed};
use crate::postgres::Postgres;
use crate::row::{timestamp, worker_uuid};

/// A sign of life too. Nothing comes back if the worker is dead, another tenant's, or nobody's: then it executes for everybody.
const INTRODUCE: &str = "
insert into workers (id, seen_at, is_dead, held_seq, held_attempt, tenant, about)
values ($1, punctual_now($2), false, '{}', '{}', $3, $4)
on conflict (id) do update set seen_at = excluded.seen_at, about = excluded.about
where not workers.is_dead and workers.tenant = excluded.tenant
returning id";

const WORKERS: &str = "
select id, seen_at, held_seq, held_attempt, about from workers
where about is not null and not is_dead and ($1::int is null or tenant = $1) order by id";

const DISMISS: &str = "
insert into workers (id, seen_at, is_dead, held_seq, held_attempt) values ($1, punctual_now($2), true, '{}', '{}')
on conflict (id) do update set is_dead = true";

impl Postgres {
    pub(crate) async fn introduce(
        &self,
        worker: WorkerId,
        about: &About,
        now: Timestamp,
    ) -> Result<bool, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(INTRODUCE).await.map_err(failed)?;
        let (id, tenant, text) = (worker_uuid(worker), about.tenant.0 as i32, encode_about(about)?);
        let values: [&(dyn ToSql + Sync); 4] = [&id, &self.callers(now), &tenant, &text];
        Ok(client.query_opt(&statement, &values).await.map_err(failed)?.is_some())
    }

    pub(crate) async fn workers(&self, tenant: Option<TenantId>) -> Result<Vec<Presence>, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(WORKERS).await.map_err(failed)?;
        let tenant = tenant.map(|tenant| tenant.0 as i32);
        let mut workers = Vec::new();
        for row in client.query(&statement, &[&tenant]).await.map_err(failed)? {
            let (id, sequences, attempts): (Uuid, Vec<i64>, Vec<i32>) = (row.get(0), row.get(2), row.get(3));
            let held = sequences.into_iter().zip(attempts).map(|(sequence, attempt)| Held {
                sequence: Sequence::from_i64(sequence),
                attempt: attempt as u32,
            });
            workers.push(Presence {
                worker: WorkerId::from_bytes(id.into_bytes()),
                about: decode_about(row.get(4))?,
                seen_at: timestamp(row.get(1))?,
                held: held.collect(),
            });
        }
        Ok(workers)
    }

    pub(crate) async fn dismiss(&self, worker: WorkerId, now: Timestamp) -> Result<(), Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(DISMISS).await.map_err(failed)?;
        client.execute(&statement, &[&worker_uuid(worker), &self.callers(now)]).await.map_err(failed)?;
        Ok(())
    }
}
