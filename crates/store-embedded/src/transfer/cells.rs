//! Where imported history goes: partitions on a fixed grid of time.
//!
//! History arrives in whatever order its store has, so a partition cannot begin where the one before was closed, as it
//! does while the store is in use. Instead time is cut into cells of one period per class, and a cell becomes one
//! partition or, if it has too many runs, several. The number of a partition is made of its class, its cell and its part: so partitions of a
//! class are in the order of time whenever they are made.

use std::collections::HashMap;

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::id::Sequence;
use punctual_domain::policy::retention::Retention;
use punctual_store::Error;
use rusqlite::{Connection, params};

use crate::error::failed;
use crate::partition::{KEPT, Partitions, ROWS_MAX, create_table, index, kept, period};
use crate::row::damaged;

/// Parts of a cell at most: a billion runs.
const PARTS: i64 = 1 << 10;

/// Where a run goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The partition, or [`KEPT`].
    pub(super) partition: i64,
    /// It is not the partition of its birth.
    pub(super) is_stray: bool,
}

/// A period of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Cell {
    retention: Retention,
    number: i64,
}

impl Cell {
    fn at(retention: Retention, at: Timestamp) -> Self {
        Cell { retention, number: at.as_millisecond().div_euclid(millis(retention)) }
    }

    fn begin(self) -> Timestamp {
        Timestamp::from_millisecond(self.number * millis(self.retention)).unwrap_or(Timestamp::MIN)
    }

    fn end(self) -> Timestamp {
        self.begin() + period(self.retention)
    }

    /// Whether all of it would have been dropped.
    fn is_over(self, now: Timestamp) -> bool {
        now.duration_since(self.end()) > kept(self.retention)
    }

    /// The number of its first partition.
    fn first_id(self) -> i64 {
        (self.number * 4 + index(self.retention) as i64) * PARTS
    }
}

fn millis(retention: Retention) -> i64 {
    period(retention).as_millis() as i64
}

/// The newest partition of a cell.
#[derive(Clone, Copy, Debug)]
struct Part {
    id: i64,
    rows: u64,
    newest: i64,
}

/// The partitions that were made so far.
#[derive(Debug, Default)]
pub(super) struct Cells(HashMap<Cell, Vec<(Sequence, Part)>>);

impl Cells {
    pub(super) fn load(connection: &Connection) -> Result<Self, Error> {
        let mut cells = Cells::default();
        for partition in Partitions::load(connection)?.iter() {
            let sql = format!("select count(*), coalesce(max(seq), 0) from {}", partition.table());
            let (rows, newest): (i64, i64) =
                connection.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
            let cell = Cell::at(partition.retention, partition.from.born_at());
            let part = Part { id: partition.id, rows: rows.unsigned_abs(), newest };
            cells.0.entry(cell).or_default().push((partition.from, part));
        }
        Ok(cells)
    }

    /// Where an ended run goes: where it was born, unless it ended in another class, or so late that it would be forgotten
    /// too soon there.
    pub(super) fn ended(
        &mut self,
        connection: &Connection,
        run: &Run,
        ended_at: Timestamp,
        now: Timestamp,
    ) -> Result<Place, Error> {
        let (born, class) = (run.retention.at_birth(), run.class());
        let home = Cell::at(born, run.sequence.born_at());
        let is_stray = class != born || ended_at.duration_since(home.end()) > period(born);
        let cell = if is_stray { Cell::at(class, ended_at) } else { home };
        // Partitions of that time are gone: it is there as a dead letter, or about to be forgotten.
        if cell.is_over(now) {
            return Ok(Place { partition: KEPT, is_stray: true });
        }
        let partition = self.part(connection, cell, run.sequence, is_stray)?;
        Ok(Place { partition, is_stray })
    }

    /// Where an open run was born.
    pub(super) fn born(
        &mut self,
        connection: &Connection,
        run: &Run,
        now: Timestamp,
    ) -> Result<Place, Error> {
        let home = Cell::at(run.retention.at_birth(), run.sequence.born_at());
        if home.is_over(now) {
            return Ok(Place { partition: KEPT, is_stray: true });
        }
        let partition = self.find(connection, home, run.sequence)?.id;
        Ok(Place { partition, is_stray: false })
    }

    /// The partition of a cell that an ended run is written to.
    fn part(
        &mut self,
        connection: &Connection,
        cell: Cell,
        sequence: Sequence,
        is_stray: bool,
    ) -> Result<i64, Error> {
        let part = *self.find(connection, cell, sequence)?;
        let parts = self.0.entry(cell).or_default();
        let is_newest = parts.last().is_some_and(|(_, last)| last.id == part.id);
        let is_after = sequence.as_i64() > part.newest && !is_stray;
        if is_newest && is_after && part.rows >= ROWS_MAX && part.id + 1 < cell.first_id() + PARTS {
            let sql = "update partitions set to_seq = ?2 where id = ?1";
            connection.execute(sql, params![part.id, sequence.as_i64()]).map_err(failed)?;
            self.make(connection, cell, part.id + 1, sequence)?;
        }
        let part = self.find(connection, cell, sequence)?;
        part.rows += 1;
        part.newest = if is_stray { part.newest } else { part.newest.max(sequence.as_i64()) };
        Ok(part.id)
    }

    /// The partition of a cell that has a sequence; what strays to the cell goes to its first or last.
    fn find(&mut self, connection: &Connection, cell: Cell, sequence: Sequence) -> Result<&mut Part, Error> {
        if self.0.get(&cell).is_none_or(Vec::is_empty) {
            self.make(connection, cell, cell.first_id(), Sequence::first_at(cell.begin(), 0))?;
        }
        let parts = self.0.entry(cell).or_default();
        let at = parts.partition_point(|(from, _)| *from <= sequence).max(1) - 1;
        parts.get_mut(at).map(|(_, part)| part).ok_or_else(|| damaged("a period without a partition"))
    }

    fn make(&mut self, connection: &Connection, cell: Cell, id: i64, from: Sequence) -> Result<(), Error> {
        let to = Sequence::first_at(cell.end(), 0);
        create_table(connection, id).map_err(failed)?;
        let sql = "insert into partitions values (?1, ?2, ?3, ?4)";
        let values = params![id, cell.retention.days(), from.as_i64(), to.as_i64()];
        connection.execute(sql, values).map_err(failed)?;
        self.0.entry(cell).or_default().push((from, Part { id, rows: 0, newest: 0 }));
        Ok(())
    }
}

/// The last partition of each class takes births, if its time is not over.
pub(super) fn open_last(connection: &Connection, now: Timestamp) -> Result<(), Error> {
    for retention in Retention::ALL {
        let of_class = Partitions::load(connection)?;
        let last = of_class.iter().rfind(|partition| partition.retention == retention);
        if let Some(last) = last.filter(|last| last.to.is_some_and(|to| to.born_at() > now)) {
            let sql = "update partitions set to_seq = null where id = ?1";
            connection.execute(sql, [last.id]).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn numbers_of_partitions_follow_time() {
        let at = |hours: i64| Timestamp::from_second(1_800_000_000 + hours * 3600).expect("in range");
        for retention in Retention::ALL {
            let cells: Vec<Cell> = (0..2_000).map(|hours| Cell::at(retention, at(hours))).collect();
            assert!(cells.is_sorted_by_key(|cell| cell.first_id()));
            assert!(cells.iter().zip(0..).all(|(cell, n)| cell.begin() <= at(n) && at(n) < cell.end()));
        }
        let ids = Retention::ALL.map(|retention| Cell::at(retention, at(0)).first_id());
        assert!(ids.iter().all(|id| ids.iter().filter(|other| (**other - *id).abs() < PARTS).count() == 1));
        let week = Cell::at(Retention::Week, at(0));
        assert!(!week.is_over(week.end() + SignedDuration::from_hours(7 * 24)));
        assert!(week.is_over(week.end() + SignedDuration::from_hours(7 * 24 + 1)));
    }
}
