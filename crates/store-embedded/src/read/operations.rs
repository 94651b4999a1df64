//! Operations: by id, newest first, and those to go on with.

use jiff::Timestamp;
use punctual_domain::Operation;
use punctual_domain::id::{OperationId, TenantId, Version};
use punctual_store::record::decode_operation;
use punctual_store::{EXAMINED_MAX, Error, OperationFilter, Page, PageRequest, Runnable, Shards};
use rusqlite::{Connection, Row, params};

use crate::error::failed;
use crate::row::{damaged, millis, timestamp};

/// The columns, in order.
const COLUMNS: &str = "id, tenant, version, record";

/// Reads an operation from a row of [`COLUMNS`].
pub(crate) fn decode(row: &Row<'_>) -> Result<Operation, Error> {
    let id = OperationId::from_bytes(row.get(0).map_err(failed)?);
    let (tenant, version) = (TenantId(row.get(1).map_err(failed)?), Version(row.get(2).map_err(failed)?));
    let record = row.get_ref(3).map_err(failed)?;
    let record = record.as_bytes().map_err(|_| damaged(format!("operation {id} has no record")))?;
    decode_operation(id, tenant, version, record)
}

pub(crate) fn operation(connection: &Connection, id: OperationId) -> Result<Option<Operation>, Error> {
    let sql = format!("select {COLUMNS} from operations where id = ?1");
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let mut rows = statement.query([id.as_bytes()]).map_err(failed)?;
    rows.next().map_err(failed)?.map(decode).transpose()
}

pub(crate) fn runnable(
    connection: &Connection,
    shards: &Shards,
    now: Timestamp,
    limit: usize,
) -> Result<Runnable, Error> {
    // One process owns all shards, so hardly a row is read in vain.
    let sql = format!(
        "select {COLUMNS}, resume_at from operations where resume_at is not null order by resume_at, id"
    );
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut operations = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let id = OperationId::from_bytes(row.get(0).map_err(failed)?);
        if !shards.contains(id.shard()) {
            continue;
        }
        let resume_at: i64 = row.get(4).map_err(failed)?;
        if resume_at > millis(now) || operations.len() >= limit {
            return Ok(Runnable { operations, next_at: Some(timestamp(resume_at)?) });
        }
        operations.push(decode(row)?);
    }
    Ok(Runnable { operations, next_at: None })
}

pub(crate) fn operations(
    connection: &Connection,
    filter: &OperationFilter,
    page: &PageRequest<OperationId>,
) -> Result<Page<Operation, OperationId>, Error> {
    let of_tenant = if filter.tenant.is_some() { "tenant = ?1" } else { "?1 is null" };
    let sql = format!("select {COLUMNS} from operations where {of_tenant} and id < ?2 order by id desc");
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let below = page.after.map_or([0xff; 16], |id| *id.as_bytes());
    let tenant = filter.tenant.map(|tenant| tenant.0);
    let mut rows = statement.query(params![tenant, below]).map_err(failed)?;
    let mut found = Page { items: Vec::new(), next: None };
    let mut examined = 0;
    while let Some(row) = rows.next().map_err(failed)? {
        let operation = decode(row)?;
        let is_wanted = filter.matches(&operation);
        // There is more: it starts after the last row that was looked at.
        if examined == EXAMINED_MAX || (is_wanted && found.items.len() == page.limit) {
            return Ok(found);
        }
        examined += 1;
        found.next = Some(operation.id);
        if is_wanted {
            found.items.push(operation);
        }
    }
    found.next = None;
    Ok(found)
}
