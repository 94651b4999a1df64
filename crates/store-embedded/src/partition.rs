//! Where history lives: one table per retention class and period, dropped whole.
//!
//! A run ends in the partition of its birth, by its sequence; one that ends much later goes to the newest of its class,
//! and one that ends in another class than it was born into goes to that class; both are listed as strays. Promise: partitions of a class follow each other without gaps, so every sequence has exactly
//! one; a closed one takes late ends for one period, and no births. So a run is there for its class after it ended, give
//! or take a period.

use jiff::{SignedDuration, Timestamp};
use punctual_domain::Run;
use punctual_domain::id::{JobId, Sequence};
use punctual_domain::policy::retention::Retention;
use punctual_store::Error;
use punctual_store::record::RunHead;
use rusqlite::{Connection, params};

use crate::births::Recent;
use crate::error::failed;
use crate::row::{self, COLUMNS, damaged};

/// The table that keeps dead letters whose own partition is gone.
pub(crate) const KEPT: i64 = 0;

/// A larger one would stall the writer for too long when it is dropped.
pub(crate) const ROWS_MAX: u64 = 1_000_000;

/// A partition of history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) id: i64,
    pub(crate) retention: Retention,
    pub(crate) from: Sequence,
    /// Open while it takes births.
    pub(crate) to: Option<Sequence>,
}

/// Where a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) partition: i64,
    /// It is not the partition of its birth: no index of births leads there.
    pub(crate) is_stray: bool,
}

/// All partitions, in the order they were made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partitions {
    all: Vec<Partition>,
    /// Births since the open partition of each class was made, roughly.
    births: [u64; 4],
    /// Whatever is born from now on is not below any place where a partition begins or ends.
    floor: Option<Sequence>,
}

impl Partitions {
    pub(crate) fn load(connection: &Connection) -> Result<Self, Error> {
        let mut statement = connection
            .prepare("select id, retention, from_seq, to_seq from partitions order by id")
            .map_err(failed)?;
        let rows = statement
            .query_map([], |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, u32>(1)?,
                    row.get::<_, i64>(2)?,
                    row.get::<_, Option<i64>>(3)?,
                ))
            })
            .map_err(failed)?;
        let mut all = Vec::new();
        for row in rows {
            let (id, days, from, to) = row.map_err(failed)?;
            let retention = Retention::of_days(days.into())
                .ok_or_else(|| damaged(format!("a partition of {days} days")))?;
            all.push(Partition {
                id,
                retention,
                from: Sequence::from_i64(from),
                to: to.map(Sequence::from_i64),
            });
        }
        let floor = all.iter().flat_map(|p| [Some(p.from), p.to]).max().flatten();
        Ok(Partitions { all, births: [0; 4], floor })
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Partition> {
        self.all.iter()
    }

    /// No birth is below this.
    pub(crate) fn floor(&self) -> Option<Sequence> {
        self.floor
    }

    /// Where a run ends; a place is made if there is none yet. `next` is a sequence that is not born yet, of now.
    pub(crate) fn of(
        &mut self,
        connection: &Connection,
        recent: &Recent,
        run: &Run,
        next: Sequence,
    ) -> Result<Ending, Error> {
        let now = next.born_at();
        let class = run.class();
        let is_fresh = |p: &&Partition| p.retention == class && p.is_fresh(now);
        let found = self.all.iter().rev().filter(is_fresh).find(|p| p.contains(run.sequence));
        if let Some(partition) = found {
            let is_stray = class != run.retention.at_birth();
            return Ok(Ending { partition: partition.id, is_stray });
        }
        // Its own is gone, or goes long before the run has been there for its time.
        let partition = match self.all.iter().rev().find(is_fresh) {
            Some(newest) => newest.id,
            None => {
                self.close(connection, recent, class, next)?;
                self.open(connection, class, next)?
            }
        };
        Ok(Ending { partition, is_stray: true })
    }

    /// Notes a birth: the first one after a partition was closed opens the next, the last one that fits closes it.
    pub(crate) fn born(&mut self, connection: &Connection, recent: &Recent, run: &Run) -> Result<(), Error> {
        let class = run.retention.at_birth();
        let open = self.all.iter().rev().find(|p| p.retention == class && p.to.is_none());
        let id = match open {
            Some(partition) => partition.id,
            None => self.open(connection, class, run.sequence)?,
        };
        recent.note(id, run.job, run.tenant, run.sequence);
        let births = &mut self.births[index(class)];
        *births += 1;
        match *births >= ROWS_MAX {
            true => self.close(connection, recent, class, run.sequence.next()),
            false => Ok(()),
        }
    }

    /// Closes the open partition of a class at a sequence that is not born yet.
    fn close(
        &mut self,
        connection: &Connection,
        recent: &Recent,
        retention: Retention,
        next: Sequence,
    ) -> Result<(), Error> {
        let open = self.all.iter_mut().find(|p| p.retention == retention && p.to.is_none());
        let Some(partition) = open else { return Ok(()) };
        partition.to = Some(next);
        self.floor = self.floor.max(Some(next));
        recent.close(partition.id);
        connection
            .execute("update partitions set to_seq = ?2 where id = ?1", params![partition.id, next.as_i64()])
            .map_err(failed)?;
        Ok(())
    }

    /// How many births the open partitions have had, roughly, when the store is opened.
    pub(crate) fn count(&mut self, recent: &Recent) {
        for partition in self.all.iter().filter(|p| p.to.is_none()) {
            self.births[index(partition.retention)] = recent.count(partition.id);
        }
    }

    fn open(&mut self, connection: &Connection, retention: Retention, from: Sequence) -> Result<i64, Error> {
        let id = self.all.iter().map(|p| p.id).max().unwrap_or(KEPT) + 1;
        create_table(connection, id).map_err(failed)?;
        connection
            .execute(
                "insert into partitions values (?1, ?2, ?3, null)",
                params![id, retention.days(), from.as_i64()],
            )
            .map_err(failed)?;
        self.all.push(Partition { id, retention, from, to: None });
        self.floor = self.floor.max(Some(from));
        self.births[index(retention)] = 0;
        Ok(id)
    }

    /// What is older than this sequence has no history left in this class.
    pub(crate) fn forgotten_before(&self, retention: Retention, now: Timestamp) -> Sequence {
        let oldest = self.all.iter().filter(|p| p.retention == retention).map(|p| p.from).min();
        let old = Sequence::first_at(now - kept(retention), 0);
        oldest.map_or(old, |from| from.min(old))
    }

    /// Closes what is old and drops what is older than its class; at most `limit`. Returns how many.
    pub(crate) fn retain(
        &mut self,
        connection: &Connection,
        recent: &Recent,
        next: Sequence,
        now: Timestamp,
        limit: usize,
    ) -> Result<u64, Error> {
        for retention in Retention::ALL {
            let is_over = |p: &&Partition| p.retention == retention && p.to.is_none() && p.ends_at() < now;
            if let Some(partition) = self.all.iter().find(is_over) {
                // Not at the last birth: in an idle store that may be long before the last end.
                let end = Sequence::first_at(partition.ends_at(), partition.from.database());
                self.close(connection, recent, retention, end.max(next))?;
            }
        }
        let mut dropped = 0;
        while dropped < limit as u64 {
            let is_old = |p: &Partition| p.to.is_some_and(|to| age(to, now) > kept(p.retention));
            let Some(at) = self.all.iter().position(is_old) else { break };
            let partition = self.all.remove(at);
            drop_partition(connection, &partition)?;
            recent.forget(partition.id);
            dropped += 1;
        }
        Ok(dropped)
    }
}

impl Partition {
    /// Its table.
    pub(crate) fn table(&self) -> String {
        format!("history_{}", self.id)
    }

    /// When it takes no more births, or since when.
    fn ends_at(&self) -> Timestamp {
        match self.to {
            Some(to) => to.born_at(),
            None => self.from.born_at() + period(self.retention),
        }
    }

    /// Whether a run that ends now may end in it: it is there for about its time after that.
    fn is_fresh(&self, now: Timestamp) -> bool {
        now.duration_since(self.ends_at()) <= period(self.retention)
    }

    pub(crate) fn contains(&self, sequence: Sequence) -> bool {
        self.from <= sequence && self.to.is_none_or(|to| sequence < to)
    }
}

/// Drops a partition. Its dead letters are kept, and what is still open of it is noted, since its index goes too; so
/// is what strayed to it and is open once more.
fn drop_partition(connection: &Connection, partition: &Partition) -> Result<(), Error> {
    let id = partition.id;
    let (from, to) = (partition.from.as_i64(), partition.to.map_or(i64::MAX, Sequence::as_i64));
    for (sql, is_shared) in [
        (format!("select {COLUMNS} from history_{id} where seq in (select seq from dead_letters)"), false),
        (format!("select {COLUMNS} from open_runs where seq >= {from} and seq < {to}"), true),
    ] {
        let mut statement = connection.prepare(&sql).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let head = RunHead::of(row::record(row)?)?;
            let sequence: i64 = row.get(0).map_err(failed)?;
            if !is_shared || head.retention.at_birth() == partition.retention {
                stray(connection, sequence, head.job, KEPT)?;
            }
        }
    }
    connection
        .execute_batch(&format!(
            "insert or replace into history_{KEPT} select {COLUMNS}, papers from history_{id} \
             where seq in (select seq from dead_letters); \
             delete from failures where seq in (select seq from failures join history_{id} using (seq)) \
             and seq not in (select seq from dead_letters); \
             drop table history_{id}; delete from partitions where id = {id}; \
             delete from segments where partition = {id}; delete from marks where partition = {id}; \
             update strays set partition = {KEPT} where partition = {id} \
             and (+seq in (select seq from running_runs) or +seq in (select seq from waiting_runs)); \
             delete from strays where partition = {id};"
        ))
        .map_err(failed)
}

/// Forgets where a run was that has ended in the partition of its birth after all.
pub(crate) fn unstray(connection: &Connection, sequence: i64) -> Result<(), Error> {
    connection
        .prepare_cached("delete from strays where seq = ?1")
        .and_then(|mut statement| statement.execute([sequence]))
        .map_err(failed)?;
    Ok(())
}

/// Notes where a run is that is not in the partition of its birth.
pub(crate) fn stray(connection: &Connection, sequence: i64, job: JobId, partition: i64) -> Result<(), Error> {
    connection
        .prepare_cached("insert or replace into strays values (?1, ?2, ?3)")
        .and_then(|mut statement| statement.execute(params![sequence, job.as_bytes(), partition]))
        .map_err(failed)?;
    Ok(())
}

/// Forgets what was kept only as a dead letter and is one no more. Returns how many.
pub(crate) fn forget_kept(connection: &Connection, limit: usize) -> Result<u64, Error> {
    let settled = format!(
        "select seq from history_{KEPT} where seq not in (select seq from dead_letters) limit {limit}"
    );
    let mut statement = connection.prepare(&settled).map_err(failed)?;
    let settled: Vec<i64> =
        statement.query_map([], |row| row.get(0)).and_then(Iterator::collect).map_err(failed)?;
    for sequence in &settled {
        for table in ["history_0", "strays", "failures"] {
            connection
                .prepare_cached(&format!("delete from {table} where seq = ?1"))
                .and_then(|mut statement| statement.execute([sequence]))
                .map_err(failed)?;
        }
    }
    Ok(settled.len() as u64)
}

/// Makes the table of a partition.
pub(crate) fn create_table(connection: &Connection, id: i64) -> rusqlite::Result<()> {
    // What is long stands at the end: who reads the rest does not read it.
    connection.execute_batch(&format!(
        "create table history_{id} (seq integer primary key, record blob not null, papers blob)"
    ))
}

pub(crate) fn index(retention: Retention) -> usize {
    Retention::ALL.iter().position(|class| *class == retention).unwrap_or(0)
}

fn age(sequence: Sequence, now: Timestamp) -> SignedDuration {
    now.duration_since(sequence.born_at())
}

pub(crate) fn kept(retention: Retention) -> SignedDuration {
    SignedDuration::from_hours(24 * i64::from(retention.days()))
}

/// How long a partition takes births at most, so that history is dropped soon after its time.
pub(crate) fn period(retention: Retention) -> SignedDuration {
    SignedDuration::from_hours(match retention {
        Retention::Day => 1,
        Retention::Week => 6,
        Retention::Month => 24,
        Retention::Year => 24 * 7,
    })
}
