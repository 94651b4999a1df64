//! What attempts say, apart from runs: rows of their own while the run is open, a column of history when it has ended.
//!
//! Promise: a run that says nothing has no row and costs no read. Where a run ends, what it has said goes along in the same row; so
//! history without its run, or a run without its history, cannot be.

use punctual_domain::Papers;
use punctual_domain::id::{RunId, Sequence};
use punctual_store::Error;
use punctual_store::record::{decode_papers, encode_papers};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::failed;
use crate::row::damaged;

/// Gives the tables of history that there are the column.
pub(crate) fn fill(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "select name from sqlite_schema s where type = 'table' and name like 'history\\_%' escape '\\' \
               and not exists (select 1 from pragma_table_info(s.name) c where c.name = 'papers')";
    let tables: Vec<String> =
        connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for table in tables {
        connection.execute_batch(&format!("alter table {table} add column papers blob"))?;
    }
    Ok(())
}

/// What is written in the column of history; nothing for a run that said nothing.
pub(crate) fn column(papers: &Papers) -> Option<Vec<u8>> {
    (!papers.is_empty()).then(|| encode_papers(papers))
}

/// Reads such a column, or that of an open run.
pub(crate) fn read(row: &Row<'_>, place: usize) -> Result<Papers, Error> {
    let value = row.get_ref(place).map_err(failed)?;
    match value.as_bytes_or_null().map_err(|_| damaged("papers that are not bytes"))? {
        Some(bytes) => decode_papers(bytes),
        None => Ok(Papers::default()),
    }
}

/// What an ended run has said, in the table that has it.
pub(crate) fn of_ended(connection: &Connection, table: &str, sequence: Sequence) -> Result<Papers, Error> {
    let sql = format!("select papers from {table} where seq = ?1");
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let mut rows = statement.query([sequence.as_i64()]).map_err(failed)?;
    rows.next().map_err(failed)?.map_or(Ok(Papers::default()), |row| read(row, 0))
}

/// What an open run has said.
pub(crate) fn of_open(connection: &Connection, sequence: Sequence) -> Result<Papers, Error> {
    let sql = "select record from open_papers where seq = ?1 order by attempt";
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query([sequence.as_i64()]).map_err(failed)?;
    let mut papers = Papers::default();
    while let Some(row) = rows.next().map_err(failed)? {
        papers.join(read(row, 0)?);
    }
    Ok(papers)
}

/// The same, taken away: the run has ended.
pub(crate) fn take(connection: &Connection, sequence: Sequence) -> Result<Papers, Error> {
    let papers = of_open(connection, sequence)?;
    if !papers.is_empty() {
        connection
            .prepare_cached("delete from open_papers where seq = ?1")
            .and_then(|mut statement| statement.execute([sequence.as_i64()]))
            .map_err(failed)?;
    }
    Ok(papers)
}

/// Adds to what an open run has said.
pub(crate) fn add(connection: &Connection, sequence: Sequence, papers: Papers) -> Result<(), Error> {
    for (attempt, part) in papers.apart() {
        let mut known = one(connection, sequence, attempt)?.unwrap_or_default();
        known.join(part);
        write(connection, sequence, attempt, &known)?;
    }
    Ok(())
}

/// Writes what an attempt of an open run has said.
pub(crate) fn write(
    connection: &Connection,
    sequence: Sequence,
    attempt: u32,
    papers: &Papers,
) -> Result<(), Error> {
    connection
        .prepare_cached("insert or replace into open_papers values (?1, ?2, ?3)")
        .and_then(|mut statement| {
            statement.execute(params![sequence.as_i64(), attempt, encode_papers(papers)])
        })
        .map_err(failed)?;
    Ok(())
}

/// The checkpoints of open runs.
pub(crate) fn checkpoints(connection: &Connection, runs: &[RunId]) -> Result<Vec<Option<Box<str>>>, Error> {
    let checkpoint =
        |run: &RunId| Ok(one(connection, run.sequence(), 0)?.and_then(|papers| papers.checkpoint));
    runs.iter().map(checkpoint).collect()
}

fn one(connection: &Connection, sequence: Sequence, attempt: u32) -> Result<Option<Papers>, Error> {
    let found: Option<Vec<u8>> = connection
        .prepare_cached("select record from open_papers where seq = ?1 and attempt = ?2")
        .and_then(|mut statement| {
            statement.query_row(params![sequence.as_i64(), attempt], |row| row.get(0)).optional()
        })
        .map_err(failed)?;
    found.map(|bytes| decode_papers(&bytes)).transpose()
}
