//! Open runs and history: each run by itself, then all of them in the order of births, then by what they are.

use punctual_domain::attempt::Attempt;
use punctual_domain::id::{RunId, Sequence, ShardId};
use punctual_domain::invariants;
use punctual_domain::run::{Run, RunState};
use punctual_store::Error;
use rusqlite::{Connection, Rows, params};

use super::Checked;
use crate::error::failed;
use crate::origin::Origin;
use crate::partition::{KEPT, Partition, Partitions};
use crate::row::{self, COLUMNS, Entry};

pub(super) fn check(checked: &mut Checked, connection: &Connection) {
    checked.attempt("history", |checked| walk(checked, connection));
    checked.attempt("history", |checked| twins(checked, connection));
}

/// Walks all tables of runs at once, always on with the oldest: a sequence that comes twice comes twice in a row.
fn walk(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    // Who a run is, in few bytes, in a temporary file.
    connection
        .execute_batch(
            "create temp table seen (key blob not null, seq integer not null, shard integer not null)",
        )
        .map_err(failed)?;
    let partitions = Partitions::load(connection)?;
    let origin = Origin::load(connection)?;
    let mut tables = vec![("open_runs".to_string(), None)];
    tables.push((format!("history_{KEPT}"), None));
    tables.extend(partitions.iter().map(|partition| (format!("history_{}", partition.id), Some(*partition))));
    let mut statements = Vec::new();
    for (table, partition) in &tables {
        match connection.prepare(&format!("select {COLUMNS} from {table} order by seq")) {
            Ok(statement) => statements.push((table.as_str(), *partition, statement)),
            Err(error) => checked.find(table, error.to_string()),
        }
    }
    let mut sides = Vec::new();
    for (table, partition, statement) in &mut statements {
        sides.push(Side {
            table,
            partition: *partition,
            rows: statement.query([]).map_err(failed)?,
            next: None,
        });
    }
    for side in &mut sides {
        side.advance(checked);
    }
    let mut insert = connection.prepare("insert into seen values (?1, ?2, ?3)").map_err(failed)?;
    let mut lines = connection
        .prepare(
            "select (select count(*) from ready where lane = ?1 and urgency = ?2 and available_at = ?3 and seq = ?4) \
                  + (select count(*) from delayed where available_at = ?3 and seq = ?4)",
        )
        .map_err(failed)?;
    let mut dead = connection.prepare("select 1 from dead_letters where seq = ?1").map_err(failed)?;
    let mut before: Option<(Sequence, String)> = None;
    connection.execute_batch("begin").map_err(failed)?;
    loop {
        let oldest = sides
            .iter_mut()
            .filter(|side| side.next.is_some())
            .min_by_key(|side| side.next.as_ref().map(|entry| entry.run.sequence));
        let Some(side) = oldest else { break };
        let Some(entry) = side.next.take() else { break };
        let (run, table) = (&entry.run, side.table);
        let id = run.id();
        if before.as_ref().is_some_and(|(sequence, _)| *sequence == run.sequence) {
            let other = before.as_ref().map_or("", |(_, table)| table);
            checked.find(table, format!("run {id} is also in {other}"));
        }
        before = Some((run.sequence, table.to_string()));
        each(checked, table, &entry, origin);
        let sequence = run.sequence.as_i64();
        if table == "open_runs" {
            checked.open_runs += 1;
            let places: i64 = lines
                .query_row(
                    params![
                        run.lane.rank(),
                        -i64::from(run.priority),
                        run.available_at.as_millisecond(),
                        sequence
                    ],
                    |row| row.get(0),
                )
                .map_err(failed)?;
            open(checked, run, places);
        } else {
            checked.history += 1;
            let is_letter = dead.exists([sequence]).map_err(failed)?;
            ended(checked, table, side.partition, &partitions, run, is_letter);
        }
        insert
            .execute(params![run.idempotency_key().as_bytes(), sequence, run.job.shard().0])
            .map_err(failed)?;
        side.advance(checked);
    }
    connection.execute_batch("commit").map_err(failed)
}

/// A table of runs, in the order of births.
struct Side<'a> {
    table: &'a str,
    partition: Option<Partition>,
    rows: Rows<'a>,
    next: Option<Entry>,
}

impl Side<'_> {
    /// On to the next row that can be read.
    fn advance(&mut self, checked: &mut Checked) {
        loop {
            match self.rows.next() {
                Ok(None) => return,
                Ok(Some(row)) => match row::read(row) {
                    Ok(entry) => {
                        self.next = Some(entry);
                        return;
                    }
                    Err(error) => {
                        let sequence: i64 = row.get(0).unwrap_or_default();
                        checked.find(self.table, format!("run {sequence}: {error}"));
                    }
                },
                // Nothing after this can be read.
                Err(error) => {
                    checked.find(self.table, error.to_string());
                    return;
                }
            }
        }
    }
}

/// What holds for every run, wherever it is.
fn each(checked: &mut Checked, table: &str, entry: &Entry, origin: Origin) {
    let (run, id) = (&entry.run, entry.run.id());
    if let Err(broken) = invariants::check(run) {
        checked.find(table, format!("run {id}: not true that {}", broken.0));
    }
    let numbers = entry.attempts.iter().map(|attempt: &Attempt| attempt.number);
    if !numbers.eq(1..=run.attempt) {
        checked.find(
            table,
            format!("run {id} has {} attempts, and not 1 to {}", entry.attempts.len(), run.attempt),
        );
    }
    // Above the floor, sequences are made under the database's own number only.
    let sequence = run.sequence;
    if sequence.as_i64() <= 0 || (sequence > origin.floor && sequence.database() != origin.database) {
        checked.find(table, format!("run {id} has a sequence that this database does not give out"));
    }
}

fn open(checked: &mut Checked, run: &Run, places: i64) {
    let id = run.id();
    match run.state {
        RunState::Running(_) => {
            checked.running += 1;
            if places != 0 {
                checked.find("open_runs", format!("run {id} is running and waits in a line"));
            }
        }
        RunState::Pending(_) if places != 1 => {
            checked.find("open_runs", format!("run {id} waits in {places} lines, and not in one"));
        }
        RunState::Pending(_) => {}
        RunState::Succeeded | RunState::Failed | RunState::TimedOut | RunState::Cancelled => {
            checked.find("open_runs", format!("run {id} has {} and is open", run.state.as_str()));
        }
    }
}

fn ended(
    checked: &mut Checked,
    table: &str,
    partition: Option<Partition>,
    partitions: &Partitions,
    run: &Run,
    is_letter: bool,
) {
    let id = run.id();
    if !run.state.is_ended() {
        checked.find(table, format!("run {id} is {} and in history", run.state.as_str()));
    }
    if is_letter && !run.state.is_dead() {
        checked.find("dead_letters", format!("run {id} has {} and is a dead letter", run.state.as_str()));
    }
    let Some(partition) = partition else { return };
    if run.retention != partition.retention {
        checked.find(table, format!("run {id} is kept {} days, not as this partition", run.retention.days()));
    }
    // What ends after its own partition is gone goes to the oldest of its class.
    let is_oldest = partitions.iter().find(|one| one.retention == partition.retention) == Some(&partition);
    if !partition.contains(run.sequence) && !is_oldest {
        checked.find(table, format!("run {id} was not born in this partition's time"));
    }
}

/// No two runs for the same (job, cause, slot, part): sorted, they stand side by side.
fn twins(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    let mut before: Option<([u8; 16], i64, u16)> = None;
    super::tables::each(connection, "select key, seq, shard from seen order by key, seq", |row| {
        let this: ([u8; 16], i64, u16) =
            (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?, row.get(2).map_err(failed)?);
        // The same sequence in two tables was found before.
        if let Some((key, sequence, shard)) = before
            && key == this.0
            && sequence != this.1
        {
            let (one, other) = (id(sequence, shard), id(this.1, this.2));
            checked.find("history", format!("runs {one} and {other} are for the same slot of the same job"));
        }
        before = Some(this);
        Ok(())
    })
}

fn id(sequence: i64, shard: u16) -> RunId {
    RunId::new(Sequence::from_i64(sequence), ShardId(shard))
}
