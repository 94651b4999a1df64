//! What waits in queues and runs from them.
//!
//! Stepping from line to line by the index that claims use, and counting each up to a bound. Promise: however many runs wait,
//! a bounded number of rows is read.

use std::collections::BTreeSet;

use punctual_domain::Labels;
use punctual_domain::id::TenantId;
use punctual_store::queues::{COUNTED_MAX, LINES_MAX, RUNNING_MAX};
use punctual_store::{Queue, Queues};

use crate::error::{Failed, failed};
use crate::postgres::Postgres;
use crate::row::timestamp;

/// Lines by line, queue, lane and tenant, of all tenants.
pub(crate) const WAITING_IN_QUEUES: &str = "
with recursive lines as (
    (select line, queue, lane, tenant from open_runs where line * line = 1
     order by line + 0, queue, lane + 0, tenant limit 1)
    union all
    select n.line, n.queue, n.lane, n.tenant from lines l cross join lateral (
        select o.line, o.queue, o.lane, o.tenant from open_runs o
        where o.line * o.line = 1 and (o.line + 0, o.queue, o.lane + 0, o.tenant) > (l.line, l.queue, l.lane, l.tenant)
        order by o.line + 0, o.queue, o.lane + 0, o.tenant limit 1) n
), known as (select * from lines limit $2)
select s.tenant, s.queue, c.runs, c.oldest from known s cross join lateral (
    select count(*) as runs, min(p.available_at) as oldest from (
        select o.available_at from open_runs o
        where o.line * o.line = 1 and o.line + 0 = s.line and o.queue = s.queue and o.lane + 0 = s.lane
            and o.tenant = s.tenant
        order by o.line + 0, o.queue, o.lane + 0, o.tenant, o.urgency, o.available_at, o.seq limit $1) p) c";

/// The same of one tenant: from line to line, lane to lane.
pub(crate) const WAITING_IN_QUEUES_OF: &str = "
with recursive lines as (
    (select line, queue, lane from open_runs where line * line = 1 order by line + 0, queue, lane + 0 limit 1)
    union all
    select n.line, n.queue, n.lane from lines l cross join lateral (
        select o.line, o.queue, o.lane from open_runs o
        where o.line * o.line = 1 and (o.line + 0, o.queue, o.lane + 0) > (l.line, l.queue, l.lane)
        order by o.line + 0, o.queue, o.lane + 0 limit 1) n
), known as (select * from lines limit $2)
select $3::int, s.queue, c.runs, c.oldest from known s cross join lateral (
    select count(*) as runs, min(p.available_at) as oldest from (
        select o.available_at from open_runs o
        where o.line * o.line = 1 and o.line + 0 = s.line and o.queue = s.queue and o.lane + 0 = s.lane
            and o.tenant = $3
        order by o.line + 0, o.queue, o.lane + 0, o.tenant, o.urgency, o.available_at, o.seq limit $1) p) c
where c.runs > 0";

/// As many as workers have room for.
pub(crate) const RUNNING_IN_QUEUES: &str = "
select tenant, queue, count(*) from (
    select tenant, queue from open_runs where line = 2 order by claimed_at, seq limit $1) r
where $2::int is null or tenant = $2 group by tenant, queue";

/// Lines that require something, one after the other.
pub(crate) const REQUIRING_LINES: &str = "
with recursive lines as (
    (select queue from open_runs where line * line = 1 and line + 0 = -1 order by line + 0, queue limit 1)
    union all
    select n.queue from lines l cross join lateral (
        select o.queue from open_runs o where o.line * o.line = 1 and o.line + 0 = -1 and o.queue > l.queue
        order by o.line + 0, o.queue limit 1) n
)
select queue from lines limit $1";

impl Postgres {
    pub(crate) async fn addressed(&self) -> Result<Vec<Labels>, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(REQUIRING_LINES).await.map_err(failed)?;
        let rows = client.query(&statement, &[&(LINES_MAX as i64)]).await.map_err(failed)?;
        let lines = rows.iter().filter_map(|row| punctual_store::addressed(row.get(0)));
        Ok(lines.collect::<BTreeSet<_>>().into_iter().collect())
    }

    pub(crate) async fn queues(&self, tenant: Option<TenantId>) -> Result<Vec<Queue>, Failed> {
        let client = self.connection().await?;
        let (counted, lines, running) = (COUNTED_MAX as i64, LINES_MAX as i64, RUNNING_MAX as i64);
        let wanted = tenant.map(|tenant| tenant.0 as i32);
        let mut queues = Queues::default();
        let rows = match wanted {
            None => {
                let statement = client.prepare_cached(WAITING_IN_QUEUES).await.map_err(failed)?;
                client.query(&statement, &[&counted, &lines]).await
            }
            Some(wanted) => {
                let statement = client.prepare_cached(WAITING_IN_QUEUES_OF).await.map_err(failed)?;
                client.query(&statement, &[&counted, &lines, &wanted]).await
            }
        };
        let of = |number: i32| TenantId(number as u32);
        for row in rows.map_err(failed)? {
            let oldest: Option<i64> = row.get(3);
            let oldest = oldest.map(timestamp).transpose()?;
            queues.wait(of(row.get(0)), row.get(1), row.get::<_, i64>(2) as u64, oldest);
        }
        let statement = client.prepare_cached(RUNNING_IN_QUEUES).await.map_err(failed)?;
        for row in client.query(&statement, &[&running, &wanted]).await.map_err(failed)? {
            queues.run(of(row.get(0)), row.get(1), row.get::<_, i64>(2) as u64);
        }
        Ok(queues.into_vec())
    }
}
