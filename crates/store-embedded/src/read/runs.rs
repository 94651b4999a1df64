//! A run by its id, those that lapse, and the ledger.

use jiff::Timestamp;
use punctual_domain::LedgerEntry;
use punctual_domain::id::{JobId, RunId, Sequence, ShardId, TenantId};
use punctual_store::record::fate_of;
use punctual_store::{Error, Lapsed, Page, PageRequest, RunDetail, Shards};
use rusqlite::{Connection, params};

use super::search::ended_run;
use crate::error::failed;
use crate::papers;
use crate::partition::Partitions;
use crate::row::{self, COLUMNS, Entry, damaged, millis, timestamp};

pub(crate) fn run(connection: &Connection, id: RunId) -> Result<Option<RunDetail>, Error> {
    // A run ends between two reads, but not inside a snapshot.
    let snapshot = connection.unchecked_transaction().map_err(failed)?;
    let open = find(&snapshot, "open_runs", id.sequence())?.filter(|entry| entry.run.id() == id);
    let (entry, papers) = match open {
        Some(entry) => (entry, papers::of_open(&snapshot, id.sequence())?),
        None => match ended_run(&snapshot, &Partitions::load(&snapshot)?, id)? {
            Some((entry, table)) => (entry, papers::of_ended(&snapshot, &table, id.sequence())?),
            None => return Ok(None),
        },
    };
    Ok(Some(RunDetail::of(entry.run, entry.attempts, papers)))
}

/// The run with a sequence in a table.
pub(super) fn find(connection: &Connection, table: &str, sequence: Sequence) -> Result<Option<Entry>, Error> {
    let sql = format!("select {COLUMNS} from {table} where seq = ?1");
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let mut rows = statement.query([sequence.as_i64()]).map_err(failed)?;
    rows.next().map_err(failed)?.map(row::read).transpose()
}

pub(crate) fn lapsed(
    connection: &Connection,
    shards: &Shards,
    now: Timestamp,
    limit: usize,
) -> Result<Lapsed, Error> {
    let snapshot = connection.unchecked_transaction().map_err(failed)?;
    // One process owns all shards, so hardly a row is read in vain.
    let sql = "select start_by, seq, shard from lapses order by start_by, seq";
    let mut statement = snapshot.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut lapsed = Lapsed::default();
    while let Some(row) = rows.next().map_err(failed)? {
        if !shards.contains(ShardId(row.get(2).map_err(failed)?)) {
            continue;
        }
        let at = timestamp(row.get(0).map_err(failed)?)?;
        if at >= now || lapsed.runs.len() >= limit {
            lapsed.next_at = Some(at);
            break;
        }
        let sequence = Sequence::from_i64(row.get(1).map_err(failed)?);
        lapsed.runs.extend(find(&snapshot, "open_runs", sequence)?.map(|entry| entry.run));
    }
    Ok(lapsed)
}

pub(crate) fn ledger(
    connection: &Connection,
    job: JobId,
    page: &PageRequest<Timestamp>,
) -> Result<Page<LedgerEntry, Timestamp>, Error> {
    let mut statement = connection
        .prepare_cached(
            "select from_slot, to_slot, slots, fate, tenant, decided_at from ledger \
             where job = ?1 and from_slot < ?2 order by from_slot desc limit ?3",
        )
        .map_err(failed)?;
    let below = page.after.map_or(i64::MAX, millis);
    let mut rows = statement.query(params![job.as_bytes(), below, page.limit as i64 + 1]).map_err(failed)?;
    let mut items = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        if items.len() == page.limit {
            return Ok(Page { next: items.last().map(|entry: &LedgerEntry| entry.from), items });
        }
        let fate: i64 = row.get(3).map_err(failed)?;
        items.push(LedgerEntry {
            job,
            tenant: TenantId(row.get(4).map_err(failed)?),
            from: timestamp(row.get(0).map_err(failed)?)?,
            to: timestamp(row.get(1).map_err(failed)?)?,
            slots: row.get::<_, i64>(2).map_err(failed)? as u64,
            fate: fate_of(fate).ok_or_else(|| damaged(format!("fate {fate}")))?,
            decided_at: timestamp(row.get(5).map_err(failed)?)?,
        });
    }
    Ok(Page { items, next: None })
}
