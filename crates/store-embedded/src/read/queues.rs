//! What waits in queues.
//!
//! Stepping from line to line, lane to lane and tenant to tenant by the index that claims use, and counting each up to a bound.

use std::collections::BTreeSet;

use punctual_domain::Labels;
use punctual_domain::id::TenantId;
use punctual_store::queues::{COUNTED_MAX, LINES_MAX};
use punctual_store::{Error, MARK, Queue, Queues};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::failed;
use crate::row::timestamp;

const NEXT: &str = "select queue, lane, tenant from ready indexed by ready_by_queue \
    where (queue, lane, tenant) > (?1, ?2, ?3) order by queue, lane, tenant limit 1";

const COUNT: &str = "select count(*), min(available_at) from (\
    select available_at from ready indexed by ready_by_queue where queue = ?1 and lane = ?2 and tenant = ?3 \
    order by urgency, available_at, seq limit ?4)";

pub(crate) fn queues(connection: &Connection, wanted: Option<TenantId>) -> Result<Vec<Queue>, Error> {
    let mut next = connection.prepare_cached(NEXT).map_err(failed)?;
    let mut count = connection.prepare_cached(COUNT).map_err(failed)?;
    let mut queues = Queues::default();
    let mut after = (String::new(), -1_i64, -1_i64);
    for _ in 0..LINES_MAX {
        let found = next
            .query_row(params![after.0, after.1, after.2], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional();
        let Some((line, lane, tenant)): Option<(String, i64, i64)> = found.map_err(failed)? else { break };
        match wanted.map(|wanted| i64::from(wanted.0)) {
            // Those of others are passed over.
            Some(wanted) if tenant < wanted => after = (line, lane, wanted - 1),
            Some(wanted) if tenant > wanted => after = (line, lane, i64::MAX),
            _ => {
                let values = params![line, lane, tenant, COUNTED_MAX as i64];
                let counted = count.query_row(values, |row| Ok((row.get(0)?, row.get(1)?)));
                let (runs, oldest): (i64, Option<i64>) = counted.map_err(failed)?;
                let of = TenantId(u32::try_from(tenant).unwrap_or_default());
                queues.wait(of, &line, runs as u64, oldest.map(timestamp).transpose()?);
                after = (line, lane, tenant);
            }
        }
    }
    Ok(queues.into_vec())
}

/// What is required in lines that are for one worker alone.
pub(crate) fn addressed(connection: &Connection) -> Result<Vec<Labels>, Error> {
    let sql = "select min(queue) from ready indexed by ready_by_queue where queue > ?1 and queue < ?2";
    let mut next = connection.prepare_cached(sql).map_err(failed)?;
    let (mut after, last) = (MARK.to_string(), "\u{2}");
    let mut all = BTreeSet::new();
    for _ in 0..LINES_MAX {
        let line = next.query_row(params![after, last], |row| row.get::<_, Option<String>>(0));
        let Some(line) = line.map_err(failed)? else { break };
        all.extend(punctual_store::addressed(&line));
        after = line;
    }
    Ok(all.into_iter().collect())
}
