//! What attempts said, and whose it is.

use punctual_domain::{Papers, Run};
use punctual_store::Error;
use punctual_store::record::{decode_papers, decode_run};
use rusqlite::Connection;

use super::Checked;
use super::tables::each;
use crate::error::failed;

/// What open runs have said: each row is of an attempt of one, and says what its place says. That of ended runs is looked at with them.
pub(super) fn check(checked: &mut Checked, connection: &Connection) {
    if checked.format >= 7 {
        checked.attempt("open_papers", |checked| open(checked, connection));
    }
}

fn open(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    let sql = "select p.seq, p.attempt, p.record, r.record from open_papers p left join open_runs r on r.seq = p.seq";
    each(connection, sql, |row| {
        let (sequence, attempt): (i64, u32) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
        let record: Option<Vec<u8>> = row.get(3).map_err(failed)?;
        let place = format!("what attempt {attempt} of run {sequence} has said");
        let Some(record) = record else {
            checked.find("open_papers", format!("{place} is of a run that is not open"));
            return Ok(());
        };
        let papers = match decode_papers(&row.get::<_, Vec<u8>>(2).map_err(failed)?) {
            Ok(papers) => papers,
            Err(error) => {
                checked.find("open_papers", format!("{place}: {error}"));
                return Ok(());
            }
        };
        let is_there = papers.checkpoint.is_some() == (attempt == 0);
        if !is_there || papers.said.iter().any(|said| said.attempt != attempt) {
            checked.find("open_papers", format!("{place} is of another attempt"));
        }
        // One that cannot be read was found before.
        if let Ok((run, _)) = decode_run(punctual_domain::Sequence::from_i64(sequence), &record) {
            for wrong in wrong_of(&papers, &run) {
                checked.find("open_papers", format!("run {} has {wrong}", run.id()));
            }
        }
        Ok(())
    })
}

/// What it has that it cannot have.
pub(super) fn wrong_of(papers: &Papers, run: &Run) -> Vec<String> {
    let numbers = papers.said.iter().map(|said| said.attempt);
    let unknown = numbers.filter(|attempt| !(1..=run.attempt).contains(attempt));
    unknown.map(|attempt| format!("words of attempt {attempt}, which it has not had")).collect()
}
