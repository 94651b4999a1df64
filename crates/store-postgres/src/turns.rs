//! Whose turn it is: who waits, and the first runs of each.
//!
//! Used by claims. Who waits is found by stepping from tenant to tenant, through all queues or through the lines that a claim may
//! take from; then the runs of each are one range of an index. Promise: however many runs wait, a claim reads as many
//! steps as it has room, and the runs it takes; whatever waits in other queues, or for other workers, is not read.

use std::collections::HashMap;
use std::sync::PoisonError;

use jiff::Timestamp;
use punctual_domain::id::TenantId;
use punctual_domain::job::Lane;
use punctual_domain::{Ask, Division, Turns, Waiters};
use punctual_store::{Claim, Error, may_take};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::client::Client;
use crate::error::Failed;
use crate::postgres::Postgres;
use crate::row::{Entry, lane, millis, numbers, urgency, worker_uuid};

/// Tenants that have runs in a lane, in any queue, in ranges of tenants: at most so many of each.
pub(crate) const WHO: &str = "
with recursive who as (
    select c.lane, c.upto, 1::bigint as nth, (
        select o.tenant from open_runs o
        where o.line = 1 and o.lane + 0 = c.lane and o.tenant > c.above and o.tenant <= c.upto
        order by o.lane + 0, o.tenant limit 1) as tenant
    from unnest($1::smallint[], $2::int[], $3::int[]) c (lane, above, upto)
    union all
    select w.lane, w.upto, w.nth + 1, (
        select o.tenant from open_runs o
        where o.line = 1 and o.lane + 0 = w.lane and o.tenant > w.tenant and o.tenant <= w.upto
        order by o.lane + 0, o.tenant limit 1)
    from who w where w.tenant is not null and w.nth < $4
)
select lane, tenant from who where tenant is not null";

/// The same in the lines of queues $5, and in those that require what is among $6: of these queues, or of all.
pub(crate) const WHO_OF_LINES: &str = "
with recursive required as (
    (select queue from open_runs where line * line = 1 and line + 0 = -1 and cardinality($6::text[]) > 0
     order by line + 0, queue limit 1)
    union all
    select (
        select o.queue from open_runs o where o.line * o.line = 1 and o.line + 0 = -1 and o.queue > r.queue
        order by o.line + 0, o.queue limit 1)
    from required r where r.queue is not null
), lines as (
    select 1::smallint as line, q.queue from unnest($5::text[]) q (queue)
    union all
    select -1::smallint, r.queue from required r where r.queue is not null and punctual_may_take(r.queue, $5, $6)
), who as (
    select l.line, l.queue, c.lane, c.upto, 1::bigint as nth, (
        select o.tenant from open_runs o
        where o.line * o.line = 1 and o.line + 0 = l.line and o.queue = l.queue and o.lane + 0 = c.lane
            and o.tenant > c.above and o.tenant <= c.upto
        order by o.line + 0, o.queue, o.lane + 0, o.tenant limit 1) as tenant
    from lines l cross join unnest($1::smallint[], $2::int[], $3::int[]) c (lane, above, upto)
    union all
    select w.line, w.queue, w.lane, w.upto, w.nth + 1, (
        select o.tenant from open_runs o
        where o.line * o.line = 1 and o.line + 0 = w.line and o.queue = w.queue and o.lane + 0 = w.lane
            and o.tenant > w.tenant and o.tenant <= w.upto
        order by o.line + 0, o.queue, o.lane + 0, o.tenant limit 1)
    from who w where w.tenant is not null and w.nth < $4
)
select lane, tenant, line, queue from who where tenant is not null";

/// The first runs of tenants, in any queue.
macro_rules! of_tenants {
    ($columns:literal, $inner:literal, $lock:literal, $where:literal) => {
        concat!(
            "select ",
            $columns,
            " from unnest($1::smallint[], $2::int[], $3::bigint[]) a (lane, tenant, most) cross join lateral (
    select ",
            $inner,
            " from open_runs where line = 1 and lane + 0 = a.lane and tenant = a.tenant
        and ($4::smallint[] is null or shard = any($4))
    order by lane + 0, tenant, urgency, available_at, seq limit a.most ",
            $lock,
            ") o ",
            $where
        )
    };
}

/// The first runs of tenants in lines.
macro_rules! of_lines {
    ($columns:literal, $inner:literal, $lock:literal, $where:literal) => {
        concat!(
            "select ",
            $columns,
            " from unnest($1::smallint[], $2::int[], $3::bigint[], $5::smallint[], $6::text[])
    a (lane, tenant, most, line, queue) cross join lateral (
    select ",
            $inner,
            " from open_runs where line * line = 1 and line + 0 = a.line and queue = a.queue and lane + 0 = a.lane
        and tenant = a.tenant and ($4::smallint[] is null or shard = any($4))
    order by line + 0, queue, lane + 0, tenant, urgency, available_at, seq limit a.most ",
            $lock,
            ") o ",
            $where
        )
    };
}

/// Those that nobody else is claiming are taken, unless the worker is dead. Its id and the caller's time are the last
/// parameters.
pub(crate) const TAKE: &str = of_tenants!(
    "o.seq, o.revision, o.record, o.line, punctual_now($6)",
    "seq, revision, record, line",
    "for update skip locked",
    "where not exists (select from workers where id = $5 and is_dead)"
);
pub(crate) const TAKE_OF_LINES: &str = of_lines!(
    "o.seq, o.revision, o.record, o.line, punctual_now($8)",
    "seq, revision, record, line",
    "for update skip locked",
    "where not exists (select from workers where id = $7 and is_dead)"
);

/// They are only looked at.
pub(crate) const PEEK: &str = of_tenants!(
    "o.lane, o.tenant, o.urgency, o.available_at, o.seq",
    "lane, tenant, urgency, available_at, seq",
    "",
    ""
);
pub(crate) const PEEK_OF_LINES: &str = of_lines!(
    "o.lane, o.tenant, o.urgency, o.available_at, o.seq",
    "lane, tenant, urgency, available_at, seq",
    "",
    ""
);

/// A tenant in a lane.
pub(crate) type Waiter = (Lane, TenantId);

/// A run's place among those of its tenant and lane.
pub(crate) type Place = (i32, i64, i64);

/// Who waits, and where.
#[derive(Debug, Default)]
pub(crate) struct Seen(HashMap<Waiter, Lines>);

/// Where runs of a tenant wait that a claim may take.
#[derive(Debug, Default)]
struct Lines {
    /// In any queue.
    all: bool,
    /// In lines of queues, or of queues and what is required.
    lines: Vec<(i16, String)>,
}

impl Seen {
    pub(crate) fn waiters(&self) -> impl Iterator<Item = Waiter> {
        self.0.keys().copied()
    }
}

/// A run that is held, to be leased, and the time by the clock that counts.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) entry: Entry,
    pub(crate) at: i64,
}

/// Asks as columns.
#[derive(Default)]
struct Columns {
    lane: Vec<i16>,
    tenant: Vec<i32>,
    most: Vec<i64>,
    line: Vec<i16>,
    queue: Vec<String>,
}

impl Columns {
    fn push(&mut self, ask: &Ask) {
        self.lane.push(ask.lane.rank().into());
        self.tenant.push(ask.tenant.0 as i32);
        self.most.push(ask.most as i64);
    }
}

/// Finds who waits for a claim, those first whose turn is next.
pub(crate) async fn look(client: &Client<'_>, claim: &Claim, turns: &Turns) -> Result<Seen, Failed> {
    let (mut lanes, mut above, mut upto) = (Vec::new(), Vec::new(), Vec::new());
    for one in Lane::ALL {
        let after = turns.after(one).map(|tenant| tenant.0 as i32);
        let ranges = [Some((after.unwrap_or(i32::MIN), i32::MAX)), after.map(|after| (i32::MIN, after))];
        for (from, to) in ranges.into_iter().flatten() {
            lanes.push(i16::from(one.rank()));
            above.push(from);
            upto.push(to);
        }
    }
    let most = claim.limit as i64;
    let queues: Option<Vec<&str>> =
        (!claim.queues.is_empty()).then(|| claim.queues.iter().map(|queue| &**queue).collect());
    let labels: Vec<&str> = claim.labels.each().collect();
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![&lanes, &above, &upto, &most];
    let mut seen = Seen::default();
    if claim.queues.is_empty() && !claim.is_apart() {
        let who = client.prepare_cached(WHO).await?;
        for row in client.query(&who, &values).await? {
            seen.0.entry(waiter(&row)?).or_default().all = true;
        }
    }
    if queues.is_some() || !labels.is_empty() {
        values.extend([&queues as &(dyn ToSql + Sync), &labels]);
        let who = client.prepare_cached(WHO_OF_LINES).await?;
        for row in client.query(&who, &values).await? {
            let line: (i16, String) = (row.get(2), row.get(3));
            // Who pulls, or asks for what is tried alone, takes from no line of others, and others from none of theirs: the
            // database knows labels alone.
            let is_required = line.0 == -1;
            if is_required && !may_take(claim, &line.1) || !is_required && claim.is_apart() {
                continue;
            }
            let lines = &mut seen.0.entry(waiter(&row)?).or_default().lines;
            // A worker may name a queue twice.
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    Ok(seen)
}

fn waiter(row: &Row) -> Result<Waiter, Error> {
    Ok((lane(row.get(0))?, TenantId(row.get::<_, i32>(1) as u32)))
}

/// Holds the runs that are asked for, of each tenant in their order.
pub(crate) async fn take(
    client: &Client<'_>,
    claim: &Claim,
    seen: &Seen,
    asks: &[Ask],
    callers: Option<i64>,
) -> Result<HashMap<Waiter, Vec<Taken>>, Failed> {
    let mut taken: HashMap<Waiter, Vec<Taken>> = HashMap::new();
    let worker = worker_uuid(claim.worker);
    let more: [&(dyn ToSql + Sync); 2] = [&worker, &callers];
    for row in ask(client, [TAKE, TAKE_OF_LINES], claim, seen, asks, &more).await? {
        let (entry, at) = (Entry::read(&row)?, row.get(4));
        taken.entry((entry.run.lane, entry.run.tenant)).or_default().push(Taken { entry, at });
    }
    for ask in asks {
        if let Some(taken) = taken.get_mut(&(ask.lane, ask.tenant)) {
            taken.sort_by_key(|taken| {
                let run = &taken.entry.run;
                (urgency(run), millis(run.available_at), run.sequence)
            });
            taken.truncate(ask.most);
        }
    }
    Ok(taken)
}

/// Looks at the runs that are asked for, of each tenant in their order.
pub(crate) async fn peek(
    client: &Client<'_>,
    claim: &Claim,
    seen: &Seen,
    asks: &[Ask],
) -> Result<HashMap<Waiter, Vec<Place>>, Failed> {
    let mut places: HashMap<Waiter, Vec<Place>> = HashMap::new();
    for row in ask(client, [PEEK, PEEK_OF_LINES], claim, seen, asks, &[]).await? {
        places.entry(waiter(&row)?).or_default().push((row.get(2), row.get(3), row.get(4)));
    }
    Ok(places)
}

/// Asks for runs of tenants: in any queue by the first statement, in lines by the second.
async fn ask(
    client: &Client<'_>,
    [of_tenants, of_lines]: [&'static str; 2],
    claim: &Claim,
    seen: &Seen,
    asks: &[Ask],
    more: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Failed> {
    let (mut all, mut some) = (Columns::default(), Columns::default());
    for ask in asks {
        let Some(lines) = seen.0.get(&(ask.lane, ask.tenant)) else { continue };
        if lines.all {
            all.push(ask);
        }
        for (line, queue) in &lines.lines {
            some.push(ask);
            some.line.push(*line);
            some.queue.push(queue.clone());
        }
    }
    let shards = numbers(&claim.shards);
    let mut rows = Vec::new();
    if !all.lane.is_empty() {
        let statement = client.prepare_cached(of_tenants).await?;
        let values: [&(dyn ToSql + Sync); 4] = [&all.lane, &all.tenant, &all.most, &shards];
        rows.extend(client.query(&statement, &[&values[..], more].concat()).await?);
    }
    if !some.lane.is_empty() {
        let statement = client.prepare_cached(of_lines).await?;
        let values: [&(dyn ToSql + Sync); 6] =
            [&some.lane, &some.tenant, &some.most, &shards, &some.line, &some.queue];
        rows.extend(client.query(&statement, &[&values[..], more].concat()).await?);
    }
    Ok(rows)
}

impl Postgres {
    /// The turns of the kind of worker that claims, as they are now.
    pub(crate) fn turns(&self, claim: &Claim) -> Turns {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).of(claim).clone()
    }

    /// Holds the runs whose turn it is.
    pub(crate) async fn take_turns(
        &self,
        client: &Client<'_>,
        claim: &Claim,
        now: Timestamp,
    ) -> Result<Vec<Taken>, Failed> {
        let turns = self.turns(claim);
        let seen = look(client, claim, &turns).await?;
        let waiters = Waiters::new(&turns, seen.waiters(), claim.limit);
        let mut division = Division::new(&turns, waiters, claim.limit);
        let mut found = HashMap::new();
        loop {
            let asks = {
                let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
                division.divide(kinds.of(claim), now)
            };
            if asks.is_empty() {
                return Ok(division.in_turns(found));
            }
            let mut taken = take(client, claim, &seen, &asks, self.callers(now)).await?;
            for ask in asks {
                let waiter = (ask.lane, ask.tenant);
                let first = taken.remove(&waiter).unwrap_or_default();
                division.found(ask, first.len());
                found.insert(waiter, first);
            }
        }
    }
}
