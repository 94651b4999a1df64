//! Where history lives: one table per retention class and period, dropped whole.
//!
//! A run ends in the partition of its birth, by its sequence. Promise: partitions of a class follow
//! each other without gaps, so every sequence has exactly one; a closed one takes late ends and no
//! births.

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::Sequence;
use punctual_domain::policy::retention::Retention;
use punctual_store::Error;
use rusqlite::{Connection, params};

use crate::error::failed;
use crate::row::{COLUMNS, damaged};

/// The table that keeps dead letters whose own partition is gone.
pub(crate) const KEPT: i64 = 0;

/// A larger one would stall the writer for too long when it is dropped.
const ROWS_MAX: u64 = 1_000_000;

/// A partition of history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) id: i64,
    pub(crate) retention: Retention,
    pub(crate) from: Sequence,
    /// Open while it takes births.
    pub(crate) to: Option<Sequence>,
}

/// All partitions, in the order they were made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partitions {
    all: Vec<Partition>,
    /// Births since the open partition of each class was made, roughly.
    births: [u64; 4],
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
        Ok(Partitions { all, births: [0; 4] })
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Partition> {
        self.all.iter()
    }

    /// The table a run of this class and birth ends in; made if there is none yet.
    pub(crate) fn of(
        &mut self,
        connection: &Connection,
        retention: Retention,
        born: Sequence,
    ) -> Result<i64, Error> {
        let found = self.all.iter().rev().find(|p| p.retention == retention && p.contains(born));
        if let Some(partition) = found {
            return Ok(partition.id);
        }
        // The first of its class, or one that was dropped already: late ends go to the oldest left.
        match self.all.iter().find(|p| p.retention == retention) {
            Some(oldest) => Ok(oldest.id),
            None => self.open(connection, retention, born),
        }
    }

    /// Notes a birth: the first one after a partition was closed opens the next.
    pub(crate) fn born(
        &mut self,
        connection: &Connection,
        retention: Retention,
        sequence: Sequence,
    ) -> Result<(), Error> {
        if !self.all.iter().any(|p| p.retention == retention && p.to.is_none()) {
            self.open(connection, retention, sequence)?;
        }
        let class = index(retention);
        self.births[class] += 1;
        match self.births[class] >= ROWS_MAX {
            true => self.close(connection, retention, sequence.next()),
            false => Ok(()),
        }
    }

    /// Closes the open partition of a class at a sequence that is not born yet.
    fn close(&mut self, connection: &Connection, retention: Retention, next: Sequence) -> Result<(), Error> {
        let open = self.all.iter_mut().find(|p| p.retention == retention && p.to.is_none());
        let Some(partition) = open else { return Ok(()) };
        partition.to = Some(next);
        connection
            .execute("update partitions set to_seq = ?2 where id = ?1", params![partition.id, next.as_i64()])
            .map_err(failed)?;
        Ok(())
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
        self.births[index(retention)] = 0;
        Ok(id)
    }

    /// Closes what is old and drops what is older than its class; at most `limit`. Returns how many.
    pub(crate) fn retain(
        &mut self,
        connection: &Connection,
        next: Sequence,
        now: Timestamp,
        limit: usize,
    ) -> Result<u64, Error> {
        for retention in Retention::ALL {
            let is_over = |p: &Partition| {
                p.retention == retention && p.to.is_none() && age(p.from, now) > period(retention)
            };
            if self.all.iter().any(is_over) {
                self.close(connection, retention, next)?;
            }
        }
        let mut dropped = 0;
        while dropped < limit as u64 {
            let is_old = |p: &Partition| p.to.is_some_and(|to| age(to, now) > kept(p.retention));
            let Some(at) = self.all.iter().position(is_old) else { break };
            let id = self.all.remove(at).id;
            connection
                .execute_batch(&format!(
                    "insert or replace into history_{KEPT} select {COLUMNS} from history_{id} \
                     where seq in (select seq from dead_letters); \
                     drop table history_{id}; delete from partitions where id = {id};"
                ))
                .map_err(failed)?;
            dropped += 1;
        }
        Ok(dropped)
    }
}

impl Partition {
    pub(crate) fn contains(&self, sequence: Sequence) -> bool {
        self.from <= sequence && self.to.is_none_or(|to| sequence < to)
    }
}

/// Makes the table of a partition.
pub(crate) fn create_table(connection: &Connection, id: i64) -> rusqlite::Result<()> {
    connection
        .execute_batch(&format!("create table history_{id} (seq integer primary key, record blob not null)"))
}

fn index(retention: Retention) -> usize {
    Retention::ALL.iter().position(|class| *class == retention).unwrap_or(0)
}

fn age(sequence: Sequence, now: Timestamp) -> SignedDuration {
    now.duration_since(sequence.born_at())
}

fn kept(retention: Retention) -> SignedDuration {
    SignedDuration::from_hours(24 * i64::from(retention.days()))
}

/// How long a partition takes births at most, so that history is dropped soon after its time.
fn period(retention: Retention) -> SignedDuration {
    SignedDuration::from_hours(match retention {
        Retention::Day => 1,
        Retention::Week => 6,
        Retention::Month => 24,
        Retention::Year => 24 * 7,
    })
}
