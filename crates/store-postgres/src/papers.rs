//! What attempts say, apart from runs: rows of their own while the run is open, a column of history when it has ended.
//!
//! Promise: a run that says nothing has no row, and is ended without a look. One that has said something is marked, under the lock
//! of its row; whoever ends it holds that row before it looks, and so misses nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use punctual_domain::id::{RunId, Sequence};
use punctual_domain::run::RunState;
use punctual_domain::{Note, Papers, lifecycle};
use punctual_store::record::{decode_papers, decode_run, encode_papers};
use punctual_store::{Error, Refused};

use crate::client::Client;
use crate::error::Failed;
use crate::postgres::{Postgres, transact};
use crate::row::{Entry, shard};
use crate::work::Work;

/// Who holds attempts is not changed while what they say is written.
const LOCK: &str = "select seq, record from open_runs where seq = any($1) order by seq for update";

pub(crate) const READ: &str = "
select seq, attempt, record from open_papers where seq = any($1) and attempt = any($2)";

pub(crate) const TAKE: &str = "delete from open_papers where seq = any($1) returning seq, record";

pub(crate) const WRITE: &str = "
insert into open_papers (seq, attempt, shard, record)
select * from unnest($1::bigint[], $2::int[], $3::smallint[], $4::bytea[])
on conflict (seq, attempt) do update set record = excluded.record";

pub(crate) const MARK: &str = "update open_runs set has_papers = true where seq = any($1) and not has_papers";

pub(crate) const CHECKPOINTS: &str =
    "select seq, record from open_papers where seq = any($1) and attempt = 0";

/// Of runs that nodes of older schemas have ended.
const LEFT: &str = "
select distinct p.seq from open_papers p where not exists (select from open_runs o where o.seq = p.seq) limit $1";

const ENDED: &str = "
select class, record, papers from history where class in (0, 1, 2, 3, 4) and seq = $1 for update";

const GIVE: &str = "update history set papers = $3 where class = $1 and seq = $2";

/// What open runs have said and is not written yet, by run and attempt.
#[derive(Debug, Default)]
pub(crate) struct Unwritten(BTreeMap<(i64, i32), (i16, Papers)>);

impl Unwritten {
    /// Adds what a run has said.
    pub(crate) fn push(&mut self, sequence: Sequence, shard: i16, papers: Papers) {
        for (attempt, part) in papers.apart() {
            let (_, known) =
                self.0.entry((sequence.as_i64(), attempt as i32)).or_insert((shard, Papers::default()));
            known.join(part);
        }
    }

    /// The same of a run that is written.
    pub(crate) fn push_of(&mut self, entry: &Entry) {
        if !entry.said.is_empty() {
            self.push(entry.run.sequence, shard(entry.run.job), entry.said.clone());
        }
    }

    /// Adds it to what was said before, of runs whose rows the transaction holds.
    pub(crate) async fn add(mut self, transaction: &Client<'_>) -> Result<(), Failed> {
        if self.0.is_empty() {
            return Ok(());
        }
        let sequences: BTreeSet<i64> = self.0.keys().map(|(sequence, _)| *sequence).collect();
        // Of checkpoints the last counts.
        let attempts: BTreeSet<i32> =
            self.0.keys().map(|(_, attempt)| *attempt).filter(|one| *one > 0).collect();
        let (sequences, attempts) = (Vec::from_iter(sequences), Vec::from_iter(attempts));
        let read = transaction.prepare_cached(READ).await?;
        for row in transaction.query(&read, &[&sequences, &attempts]).await? {
            if let Some((_, said)) = self.0.get_mut(&(row.get(0), row.get(1))) {
                let mut known = decode_papers(row.get::<_, &[u8]>(2))?;
                known.join(std::mem::take(said));
                *said = known;
            }
        }
        self.write(transaction).await
    }

    /// Writes it in the place of whatever is there, and marks the runs.
    pub(crate) async fn write(&self, transaction: &Client<'_>) -> Result<(), Failed> {
        if self.0.is_empty() {
            return Ok(());
        }
        let (mut seq, mut attempt, mut shard, mut record) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for ((sequence, number), (of, papers)) in &self.0 {
            seq.push(*sequence);
            attempt.push(*number);
            shard.push(*of);
            record.push(encode_papers(papers));
        }
        let mark = transaction.prepare_cached(MARK).await?;
        transaction.execute(&mark, &[&seq]).await?;
        let write = transaction.prepare_cached(WRITE).await?;
        transaction.execute(&write, &[&seq, &attempt, &shard, &record]).await?;
        Ok(())
    }
}

/// What is written in the column of history; nothing for a run that said nothing.
pub(crate) fn column(state: RunState, papers: Papers) -> Option<Vec<u8>> {
    let papers = papers.ended(state);
    (!papers.is_empty()).then(|| encode_papers(&papers))
}

/// Reads such a column.
pub(crate) fn read(column: Option<&[u8]>) -> Result<Papers, Error> {
    column.map_or(Ok(Papers::default()), decode_papers)
}

/// Several, of one run.
pub(crate) fn read_all(records: Vec<Option<&[u8]>>) -> Result<Papers, Error> {
    let mut papers = Papers::default();
    for record in records.into_iter().flatten() {
        papers.join(decode_papers(record)?);
    }
    Ok(papers)
}

/// Takes what runs have said that end, by their sequences.
pub(crate) async fn take(
    transaction: &Client<'_>,
    sequences: &[i64],
) -> Result<HashMap<i64, Papers>, Failed> {
    let mut taken: HashMap<i64, Papers> = HashMap::new();
    if sequences.is_empty() {
        return Ok(taken);
    }
    let take = transaction.prepare_cached(TAKE).await?;
    for row in transaction.query(&take, &[&sequences]).await? {
        taken.entry(row.get(0)).or_default().join(decode_papers(row.get::<_, &[u8]>(1))?);
    }
    Ok(taken)
}

impl Postgres {
    pub(crate) async fn note(&self, notes: &[Note]) -> Result<Vec<Result<(), Refused>>, Failed> {
        if notes.is_empty() {
            return Ok(Vec::new());
        }
        let sequences: Vec<i64> = notes.iter().map(|note| note.held.sequence.as_i64()).collect();
        transact!(self, |client| {
            let transaction = Work::begin(&mut client).await?;
            let lock = transaction.prepare_cached(LOCK).await?;
            let mut runs = HashMap::new();
            for row in transaction.query(&lock, &[&sequences]).await? {
                let sequence = Sequence::from_i64(row.get(0));
                runs.insert(sequence, decode_run(sequence, row.get::<_, &[u8]>(1))?.0);
            }
            let mut said = Unwritten::default();
            let mut answers = Vec::with_capacity(notes.len());
            for note in notes {
                let (worker, held) = (note.worker, note.held);
                let run = runs.get(&held.sequence).filter(|run| run.is_held(worker, held.attempt));
                answers.push(match run {
                    Some(run) => {
                        said.push(held.sequence, shard(run.job), note.clone().into());
                        Ok(())
                    }
                    None => Err(lifecycle::Refused::StaleLease { attempt: held.attempt }.into()),
                });
            }
            said.add(&transaction).await?;
            transaction.commit(self).await?;
            Ok(answers)
        })
    }

    pub(crate) async fn checkpoints(&self, runs: &[RunId]) -> Result<Vec<Option<Box<str>>>, Failed> {
        let sequences: Vec<i64> = runs.iter().map(|run| run.sequence().as_i64()).collect();
        let client = self.connection().await?;
        let find = client.prepare_cached(CHECKPOINTS).await?;
        let mut found = HashMap::new();
        for row in client.query(&find, &[&sequences]).await? {
            found.insert(row.get::<_, i64>(0), decode_papers(row.get::<_, &[u8]>(1))?.checkpoint);
        }
        Ok(sequences.iter().map(|sequence| found.get(sequence).cloned().flatten()).collect())
    }

    /// Brings what is left of runs that nodes of older schemas have ended to where these are. Returns how many.
    pub(crate) async fn settle_papers(&self, limit: i64) -> Result<u64, Failed> {
        transact!(self, |client| {
            let find = client.prepare_cached(LEFT).await?;
            let left: Vec<i64> = client.query(&find, &[&limit]).await?.iter().map(|row| row.get(0)).collect();
            if left.is_empty() {
                return Ok(0);
            }
            let transaction = Work::begin(&mut client).await?;
            for (sequence, mut papers) in take(&transaction, &left).await? {
                let find = transaction.prepare_cached(ENDED).await?;
                // One that is gone has nothing to keep.
                let Some(row) = transaction.query_opt(&find, &[&sequence]).await? else { continue };
                let (run, _) = decode_run(Sequence::from_i64(sequence), row.get::<_, &[u8]>(1))?;
                papers.join(read(row.get(2))?);
                let give = transaction.prepare_cached(GIVE).await?;
                let class: i16 = row.get(0);
                transaction.execute(&give, &[&class, &sequence, &column(run.state, papers)]).await?;
            }
            transaction.commit(self).await?;
            Ok(left.len() as u64)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use punctual_domain::Outcome;
    use punctual_domain::lifecycle::Verdict;
    use punctual_store::Store;
    use punctual_store::conformance::World;
    use punctual_store::conformance::papers::speak;

    use super::*;
    use crate::connect::Options;

    /// Where papers stay of a run that a node of an older schema ends: it knows nothing of them.
    const LEAVE: &str = "
        insert into open_papers select seq, 1, punctual_shard(job), papers from history;
        update history set papers = null";

    #[tokio::test]
    async fn what_older_nodes_left_goes_to_its_run() {
        let store = Arc::new(Postgres::open(&Options::of_a_case()).await.unwrap());
        let mut world = World::new(store.clone()).await;
        let worker = world.worker();
        let ended = world.running("ended", worker).await;
        speak(&world, worker, &ended).await;
        world.conclude(worker, &ended, Outcome::Failed, Verdict::Fail).await.unwrap();
        let whole = world.detail(ended.id()).await;
        assert!(whole.papers.checkpoint.is_some() && whole.log(1).is_some());
        let open = world.running("open", worker).await;
        speak(&world, worker, &open).await;
        let said = world.detail(open.id()).await;
        store.connection().await.unwrap().batch_execute(LEAVE).await.unwrap();
        assert!(world.detail(ended.id()).await.papers.is_empty());
        assert_eq!(store.settle_papers(10).await.unwrap(), 1);
        assert_eq!(world.detail(ended.id()).await, whole);
        assert_eq!(store.settle_papers(10).await.unwrap(), 0);
        assert_eq!(world.detail(open.id()).await, said, "what is open is left alone");
        assert!(Store::retain(&*store, world.now, 10).await.is_ok());
    }
}
