//! What attempts said, and whose it is.

use deadpool_postgres::Transaction;
use punctual_domain::id::Sequence;
use punctual_domain::{Papers, Run};
use punctual_store::check::Checked;
use punctual_store::record::{decode_papers, decode_run};

use super::walk::Rows;
use crate::error::Failed;
use crate::papers::read;

/// What open runs have said: each row is of an attempt of one, and says what its place says.
pub(super) async fn check(checked: &mut Checked, transaction: &Transaction<'_>) -> Result<(), Failed> {
    let sql = "select p.seq, p.attempt, p.record, o.record, o.has_papers and o.shard = p.shard
        from open_papers p left join open_runs o on o.seq = p.seq";
    let mut rows = Rows::of(transaction, sql).await?;
    while let Some(row) = rows.next().await? {
        let (sequence, attempt): (i64, i32) = (row.get(0), row.get(1));
        let place = format!("what attempt {attempt} of run {sequence} has said");
        let Some(record) = row.get::<_, Option<&[u8]>>(3) else {
            checked.find("open_papers", format!("{place} is of a run that is not open"));
            continue;
        };
        if row.get::<_, Option<bool>>(4) != Some(true) {
            checked.find("open_papers", format!("{place} is not marked at its run, or in another shard"));
        }
        let papers = match decode_papers(row.get::<_, &[u8]>(2)) {
            Ok(papers) => papers,
            Err(error) => {
                checked.find("open_papers", format!("{place}: {error}"));
                continue;
            }
        };
        let is_there = papers.checkpoint.is_some() == (attempt == 0);
        if !is_there || papers.said.iter().any(|said| said.attempt != attempt.unsigned_abs()) {
            checked.find("open_papers", format!("{place} is of another attempt"));
        }
        // One that cannot be read was found before.
        if let Ok((run, _)) = decode_run(Sequence::from_i64(sequence), record) {
            numbers(checked, "open_papers", &run, &papers);
        }
    }
    Ok(())
}

/// What an ended run has said.
pub(super) fn ended(checked: &mut Checked, run: &Run, column: Option<&[u8]>) {
    let id = run.id();
    match read(column) {
        Err(error) => checked.find("history", format!("what run {id} has said: {error}")),
        Ok(papers) => {
            numbers(checked, "history", run, &papers);
            if papers.checkpoint.is_some() && !run.state.is_dead() {
                checked.find("history", format!("run {id} has a checkpoint and no attempt to come"));
            }
        }
    }
}

fn numbers(checked: &mut Checked, table: &str, run: &Run, papers: &Papers) {
    let numbers = papers.said.iter().map(|said| said.attempt);
    for attempt in numbers.filter(|attempt| !(1..=run.attempt).contains(attempt)) {
        let what = format!("run {} has words of attempt {attempt}, which it has not had", run.id());
        checked.find(table, what);
    }
}
