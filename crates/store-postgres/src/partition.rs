//! Where history lives: one table per class of retention and period, dropped whole.
//!
//! A run ends in the partition of its birth, unless that period is over when it ends. Promise: what is in a partition
//! ended before the partition did, so that all of it may go when the class's days have passed since; the rest goes row
//! by row.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use punctual_domain::Papers;
use punctual_domain::id::Sequence;
use punctual_domain::policy::retention::Retention;
use punctual_domain::run::{Run, RunState};
use punctual_store::Error;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::client::Client;
use crate::depth::Moves;
use crate::error::{Failed, failed};
use crate::papers;
use crate::postgres::{Postgres, transact};
use crate::row::{Entry, job_uuid, millis, timestamp};
use crate::work::Work;

/// The class of runs that outlive their partition.
pub(crate) const LATE: i16 = 4;

/// Any number, the same for all nodes: "Partitio".
const LOCK: i64 = 0x5061_7274_6974_696f;

const HOUR: i64 = 3_600_000;

/// A partition: the runs of a class that were born in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Partition {
    pub(crate) class: i16,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl Partition {
    /// The one of a class at a time. There are few enough of each class that a search can look into all of them.
    pub(crate) fn at(class: i16, at: i64) -> Self {
        let period = match class {
            0 => 2 * HOUR,
            1 => 12 * HOUR,
            2 => 24 * HOUR,
            _ => 7 * 24 * HOUR,
        };
        let from = at.div_euclid(period) * period;
        Partition { class, from, to: from + period }
    }

    pub(crate) fn name(&self) -> String {
        format!("history_{}_{}", self.class, self.from)
    }

    /// The sequences of runs that are born in it: from the first up to, without, the second.
    pub(crate) fn sequences(&self) -> Result<(i64, i64), Error> {
        let first = |at| Ok::<_, Error>(Sequence::first_at(timestamp(at)?, 0).as_i64());
        Ok((first(self.from)?, first(self.to)?))
    }
}

pub(crate) fn class(retention: Retention) -> i16 {
    Retention::ALL.iter().position(|one| *one == retention).unwrap_or(0) as i16
}

/// The days that a class is kept, in milliseconds.
pub(crate) fn days(class: i16) -> i64 {
    let retention = usize::try_from(class).ok().and_then(|class| Retention::ALL.get(class));
    24 * HOUR * i64::from(retention.copied().unwrap_or_default().days())
}

/// Partitions that are known to exist.
#[derive(Debug, Default)]
pub(crate) struct Partitions(Mutex<HashSet<Partition>>);

impl Partitions {
    fn known(&self) -> MutexGuard<'_, HashSet<Partition>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of them is gone.
    pub(crate) fn forget(&self) {
        self.known().clear();
    }
}

/// Ended runs as columns.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) class: Vec<i16>,
    pub(crate) state: Vec<i16>,
    pub(crate) tenant: Vec<i32>,
    pub(crate) seq: Vec<i64>,
    pub(crate) job: Vec<Uuid>,
    pub(crate) keep_until: Vec<i64>,
    pub(crate) record: Vec<Vec<u8>>,
    /// What they have said, and how they ended.
    said: Vec<(RunState, Papers)>,
    /// Those that had limits.
    pub(crate) limited: Vec<(Entry, Timestamp)>,
    /// Where they go.
    pub(crate) partitions: HashSet<Partition>,
    /// What that means for those who wait.
    pub(crate) moves: Moves,
}

impl Ended {
    pub(crate) fn push(&mut self, entry: &Entry, now: Timestamp) {
        let run = &entry.run;
        let partition = Partition::at(class(run.class()), millis(run.sequence.born_at()));
        let is_late = millis(now) >= partition.to;
        if !is_late {
            self.partitions.insert(partition);
        }
        let kept_for = SignedDuration::from_millis(days(partition.class));
        self.class.push(if is_late { LATE } else { partition.class });
        self.state.push(state_code(run));
        self.moves.push(run, entry.stands, None);
        self.tenant.push(run.tenant.0 as i32);
        self.seq.push(run.sequence.as_i64());
        self.job.push(job_uuid(run.job));
        self.keep_until.push(millis(now.checked_add(kept_for).unwrap_or(now)));
        self.record.push(entry.record());
        self.said.push((run.state, entry.said.clone()));
        if entry.had.is_some() {
            self.limited.push((entry.clone(), now));
        }
    }
}

impl<'a> Ended {
    pub(crate) fn of(entries: impl IntoIterator<Item = &'a Entry>, now: Timestamp) -> Self {
        let mut ended = Ended::default();
        entries.into_iter().for_each(|entry| ended.push(entry, now));
        ended
    }

    /// What they have said, as a column, after what they had said before.
    pub(crate) fn papers(&self, mut before: HashMap<i64, Papers>) -> Vec<Option<Vec<u8>>> {
        let column = |(sequence, (state, said)): (&i64, &(RunState, Papers))| {
            let mut papers = before.remove(sequence).unwrap_or_default();
            papers.join(said.clone());
            papers::column(*state, papers)
        };
        self.seq.iter().zip(&self.said).map(column).collect()
    }

    /// The parameters $1 to $7.
    pub(crate) fn values(&self) -> [&(dyn ToSql + Sync); 7] {
        [&self.class, &self.state, &self.tenant, &self.seq, &self.job, &self.keep_until, &self.record]
    }
}

/// Failed and timed out: what the index of failures has.
pub(crate) const FAILED: [i16; 2] = [11, 12];

pub(crate) fn state_code(run: &Run) -> i16 {
    match run.state.as_str() {
        "failed" => FAILED[0],
        "timed_out" => FAILED[1],
        "cancelled" => 13,
        "missed" => 14,
        _ => 10,
    }
}

impl Postgres {
    /// Makes the partitions of this period. Whoever ends runs in a transaction has them made before it begins: inside it takes a
    /// second connection, and when all who have one want another, nobody goes on.
    pub(crate) async fn ensure_current(&self, now: Timestamp) -> Result<(), Failed> {
        self.ensure((0..LATE).map(|class| Partition::at(class, millis(now)))).await
    }

    /// Makes those of this period and the next.
    pub(crate) async fn look_ahead(&self, now: Timestamp) -> Result<(), Failed> {
        self.ensure_current(now).await?;
        self.ensure((0..LATE).map(|class| Partition::at(class, Partition::at(class, millis(now)).to))).await
    }

    /// Makes the partitions that are not there yet.
    pub(crate) async fn ensure(&self, wanted: impl IntoIterator<Item = Partition>) -> Result<(), Failed> {
        let missing: Vec<Partition> = {
            let known = self.partitions.known();
            wanted.into_iter().filter(|partition| !known.contains(partition)).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        transact!(self, |client| {
            for partition in &missing {
                create(&mut client, partition).await?;
            }
            Ok(())
        })?;
        self.partitions.known().extend(missing);
        Ok(())
    }
}

/// Makes a partition, unless it is there.
pub(crate) async fn create(client: &mut Client<'_>, partition: &Partition) -> Result<(), Failed> {
    let (from, to) = partition.sequences()?;
    let (name, class) = (partition.name(), partition.class);
    let transaction = client.transaction().await.map_err(failed)?;
    transaction.execute("select pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(failed)?;
    let note = "insert into partitions values ($1, $2, $3) on conflict do nothing";
    if transaction.execute(note, &[&class, &from, &to]).await.map_err(failed)? == 1 {
        // Attached when it is complete: others write to its neighbours meanwhile.
        transaction
            .batch_execute(&format!(
                "create table {name} (like history_{class} including defaults); \
                 alter table history_{class} attach partition {name} for values from ({from}) to ({to})"
            ))
            .await
            .map_err(failed)?;
    }
    // Made twice, it is the same.
    transaction.commit().await.map_err(failed)
}

/// Takes open runs that have ended out. Tells which of them have said something.
pub(crate) const DELETE_OPEN: &str = "
with gone as (delete from open_runs where seq = any($1) returning seq, has_papers)
select seq from gone where has_papers";

/// Writes ended runs $1 to $7 to history, with what they have said, $8; those that failed for good to the dead letters.
const END: &str = "
with ended as (
    insert into history (class, state, tenant, seq, job, keep_until, record, papers)
    select * from unnest($1::smallint[], $2::smallint[], $3::int[], $4::bigint[], $5::uuid[], $6::bigint[], $7::bytea[], $8::bytea[])
    returning state, seq, tenant, job
)
insert into dead_letters select seq, tenant, job from ended where state in (11, 12) on conflict do nothing";

/// Ends runs whose rows the transaction holds.
pub(crate) async fn end(transaction: &Work<'_>, ended: &Ended) -> Result<(), Failed> {
    if ended.seq.is_empty() {
        return Ok(());
    }
    let delete = transaction.prepare_cached(DELETE_OPEN).await?;
    let rows = transaction.query(&delete, &[&ended.seq]).await?;
    let talkative: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    let papers = ended.papers(papers::take(transaction, &talkative).await?);
    let insert = transaction.prepare_cached(END).await?;
    let mut values: Vec<&(dyn ToSql + Sync)> = ended.values().into();
    values.push(&papers);
    transaction.execute(&insert, &values).await?;
    transaction.moved(&ended.moves);
    transaction.note(&ended.limited);
    Ok(())
}
