//! Runs, open and ended, and the ledger.

use jiff::Timestamp;
use punctual_domain::id::{JobId, RunId, Sequence, TenantId};
use punctual_domain::{LedgerEntry, Run};
use punctual_store::{EXAMINED_MAX, Error, Page, PageRequest, RunDetail, RunFilter};
use rusqlite::{Connection, params};

use super::{fate_of, jobs::is_dead_letter};
use crate::error::failed;
use crate::partition::{KEPT, Partition, Partitions};
use crate::row::{self, COLUMNS, Entry, damaged, millis, timestamp};

/// Rows read from a table at a time.
const CHUNK: usize = 256;

pub(crate) fn run(connection: &Connection, id: RunId) -> Result<Option<RunDetail>, Error> {
    let open = find(connection, "open_runs", id)?;
    let entry = match open {
        Some(entry) => Some(entry),
        None => {
            let partitions = Partitions::load(connection)?;
            ended_run(connection, partitions.iter().copied(), id)?.map(|(entry, _)| entry)
        }
    };
    Ok(entry.map(|Entry { run, attempts }| RunDetail { run, attempts }))
}

/// An ended run and the table it is in. A late end may be outside its partition's range.
pub(crate) fn ended_run(
    connection: &Connection,
    partitions: impl Iterator<Item = Partition> + Clone,
    id: RunId,
) -> Result<Option<(Entry, String)>, Error> {
    let likely = partitions.clone().filter(|p| p.contains(id.sequence())).map(|p| p.id);
    let late = partitions.filter(|p| !p.contains(id.sequence())).map(|p| p.id);
    for partition in likely.chain([KEPT]).chain(late) {
        let table = format!("history_{partition}");
        if let Some(entry) = find(connection, &table, id)? {
            return Ok(Some((entry, table)));
        }
    }
    Ok(None)
}

fn find(connection: &Connection, table: &str, id: RunId) -> Result<Option<Entry>, Error> {
    let sql = format!("select {COLUMNS} from {table} where seq = ?1");
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let mut rows = statement.query([id.sequence().as_i64()]).map_err(failed)?;
    let entry = rows.next().map_err(failed)?.map(row::read).transpose()?;
    Ok(entry.filter(|entry| entry.run.id() == id))
}

pub(crate) fn runs(
    connection: &Connection,
    filter: &RunFilter,
    page: &PageRequest<Sequence>,
) -> Result<Page<Run, Sequence>, Error> {
    let partitions = Partitions::load(connection)?;
    let tables: Vec<String> = std::iter::once("open_runs".to_string())
        .chain(std::iter::once(KEPT).chain(partitions.iter().map(|p| p.id)).map(|id| format!("history_{id}")))
        .collect();
    let mut below = page.after;
    if let Some(before) = filter.born_before {
        let bound = Sequence::first_at(before, 0);
        below = Some(below.map_or(bound, |cursor| cursor.min(bound)));
    }
    let from = filter.born_from.map_or(i64::MIN, |from| Sequence::first_at(from, 0).as_i64());
    let mut items: Vec<Run> = Vec::new();
    let mut examined = 0;
    loop {
        // The newest rows of every table below the cursor; what is newest of all comes first.
        let mut newest: Vec<Run> = Vec::new();
        for table in &tables {
            newest.extend(chunk(connection, table, below, from)?);
        }
        newest.sort_unstable_by_key(|run| std::cmp::Reverse(run.sequence));
        newest.truncate(CHUNK);
        if newest.is_empty() {
            return Ok(Page { items, next: None });
        }
        for run in newest {
            let is_wanted = matches(connection, filter, &run)?;
            // There is more: it starts after the last row that was looked at.
            if examined == EXAMINED_MAX || (is_wanted && items.len() == page.limit) {
                return Ok(Page { items, next: below });
            }
            below = Some(run.sequence);
            examined += 1;
            items.extend(is_wanted.then_some(run));
        }
    }
}

fn chunk(
    connection: &Connection,
    table: &str,
    below: Option<Sequence>,
    from: i64,
) -> Result<Vec<Run>, Error> {
    let sql =
        format!("select {COLUMNS} from {table} where seq < ?1 and seq >= ?2 order by seq desc limit ?3");
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let below = below.map_or(i64::MAX, Sequence::as_i64);
    let mut rows = statement.query(params![below, from, CHUNK as i64]).map_err(failed)?;
    let mut runs = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        runs.push(row::read(row)?.run);
    }
    Ok(runs)
}

fn matches(connection: &Connection, filter: &RunFilter, run: &Run) -> Result<bool, Error> {
    let fits = filter.matches(run);
    match filter.is_dead {
        Some(dead) if fits => Ok(is_dead_letter(connection, run.sequence)? == dead),
        _ => Ok(fits),
    }
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
