//! Runs as rows, the same for open runs and for history; and what other rows are made of.

use jiff::Timestamp;
use punctual_domain::Papers;
use punctual_domain::attempt::Attempt;
use punctual_domain::id::Sequence;
use punctual_domain::job::Lane;
use punctual_domain::run::Run;
use punctual_store::Error;
use punctual_store::record::{decode_run, encode_run};
use rusqlite::{Row, Statement, params};

use crate::error::failed;
use crate::papers;

/// The columns, in order.
pub(crate) const COLUMNS: &str = "seq, record";

/// A run and its attempts so far.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) run: Run,
    pub(crate) attempts: Vec<Attempt>,
}

/// Writes a run by a statement that takes a row of [`COLUMNS`].
pub(crate) fn write(statement: &mut Statement<'_>, entry: &Entry) -> Result<(), Error> {
    let record = encode_run(&entry.run, &entry.attempts);
    statement.execute(params![entry.run.sequence.as_i64(), record]).map_err(failed)?;
    Ok(())
}

/// The same for one that has ended, with what it has said in a column more.
pub(crate) fn write_ended(
    statement: &mut Statement<'_>,
    entry: &Entry,
    papers: &Papers,
) -> Result<(), Error> {
    let record = encode_run(&entry.run, &entry.attempts);
    statement
        .execute(params![entry.run.sequence.as_i64(), record, papers::column(papers)])
        .map_err(failed)?;
    Ok(())
}

/// Reads a run from a row of [`COLUMNS`].
pub(crate) fn read(row: &Row<'_>) -> Result<Entry, Error> {
    let sequence = Sequence::from_i64(row.get(0).map_err(failed)?);
    let (run, attempts) = decode_run(sequence, record(row)?)?;
    Ok(Entry { run, attempts })
}

/// The record in a row of [`COLUMNS`].
pub(crate) fn record<'a>(row: &'a Row<'_>) -> Result<&'a [u8], Error> {
    let value = row.get_ref(1).map_err(failed)?;
    value.as_bytes().map_err(|_| damaged("a run without a record"))
}

/// Runs that require something of their worker stand in lanes of their own, from this one on.
pub(crate) const REQUIRING: i64 = 8;

/// The lane that a run stands in while it waits for a worker.
pub(crate) fn place(run: &Run) -> i64 {
    let lane = i64::from(run.lane.rank());
    if run.requires.is_empty() { lane } else { REQUIRING + lane }
}

pub(crate) fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

pub(crate) fn timestamp(millis: i64) -> Result<Timestamp, Error> {
    Timestamp::from_millisecond(millis).map_err(|_| damaged(format!("{millis} is not a time")))
}

pub(crate) fn damaged(what: impl Into<String>) -> Error {
    Error::Damaged { what: what.into() }
}

pub(crate) fn lane_of(rank: i64) -> Option<Lane> {
    Lane::ALL.into_iter().find(|lane| i64::from(lane.rank()) == rank)
}
