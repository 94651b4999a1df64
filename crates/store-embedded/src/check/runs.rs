//! Open runs and history: each run by itself, then all of them in the order of births, then by what they are.

use punctual_domain::attempt::Attempt;
use punctual_domain::id::{JobId, RunId, Sequence, ShardId};
use punctual_domain::invariants;
use punctual_domain::run::{Run, RunState};
use punctual_store::Error;
use rusqlite::{Connection, Row, Rows, params};

use super::Checked;
use super::listed::Listed;
use super::papers::wrong_of;
use crate::error::failed;
use crate::origin::Origin;
use crate::papers;
use crate::partition::{KEPT, Partition, Partitions};
use crate::row::{self, COLUMNS, Entry, millis, place};

pub(super) fn check(checked: &mut Checked, connection: &Connection) {
    checked.attempt("history", |checked| walk(checked, connection));
    checked.attempt("history", |checked| twins(checked, connection));
    checked.attempt("open_runs", |checked| left_behind(checked, connection));
}

/// Walks all tables of runs at once, always on with the oldest: a sequence that comes twice comes twice in a row. The
/// tables that list runs are walked along.
fn walk(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    // Who a run is, in few bytes, in a temporary file.
    connection
        .execute_batch(
            "create temp table seen (key blob not null, seq integer not null, shard integer not null); \
             create temp table open_of (job blob not null, is_behind integer not null)",
        )
        .map_err(failed)?;
    let partitions = Partitions::load(connection)?;
    let origin = Origin::load(connection)?;
    let mut tables = vec![("open_runs".to_string(), Place::Open), (format!("history_{KEPT}"), Place::Kept)];
    tables.extend(partitions.iter().map(|partition| (partition.table(), Place::Partition(*partition))));
    let mut statements = Vec::new();
    for (table, place) in &tables {
        // Older formats have no papers, and open runs have them elsewhere.
        let papers = if checked.format < 7 || *place == Place::Open { "null" } else { "papers" };
        match connection.prepare(&format!("select {COLUMNS}, {papers} from {table} order by seq")) {
            Ok(statement) => statements.push((table.as_str(), *place, statement)),
            Err(error) => checked.find(table, error.to_string()),
        }
    }
    let mut sides = Vec::new();
    for (table, place, statement) in &mut statements {
        sides.push(Side { table, place: *place, rows: statement.query([]).map_err(failed)?, next: None });
    }
    for side in &mut sides {
        side.advance(checked);
    }
    let prepare = |sql: &str| connection.prepare(sql).map_err(failed);
    let mut letters = prepare("select seq from dead_letters order by seq")?;
    let mut failures = prepare("select seq from failures order by seq")?;
    let mut strays = prepare("select seq, job, partition from strays order by seq")?;
    let sequence = |row: &Row<'_>| Ok((row.get(0)?, ()));
    let mut lists = Lists {
        letters: Listed::new(checked, "dead_letters", letters.query([]).map_err(failed)?, sequence),
        failures: Listed::new(checked, "failures", failures.query([]).map_err(failed)?, sequence),
        strays: Listed::new(checked, "strays", strays.query([]).map_err(failed)?, |row| {
            Ok((row.get(0)?, Stray { job: JobId::from_bytes(row.get(1)?), partition: row.get(2)? }))
        }),
    };
    let mut insert = prepare("insert into seen values (?1, ?2, ?3)")?;
    // Older formats do not tell tenants apart.
    let tenant = if checked.format < 3 { "?5 = ?5" } else { "tenant = ?5" };
    let mut lines = prepare(&format!(
        "select (select count(*) from ready \
                 where lane = ?1 and urgency = ?2 and available_at = ?3 and seq = ?4 and {tenant}) \
              + (select count(*) from delayed where available_at = ?3 and seq = ?4)",
    ))?;
    let mut note_open = prepare("insert into open_of values (?1, ?2)")?;
    let mut before: Option<(Sequence, &str)> = None;
    connection.execute_batch("begin").map_err(failed)?;
    loop {
        let oldest = sides
            .iter_mut()
            .filter(|side| side.next.is_some())
            .min_by_key(|side| side.next.as_ref().map(|(sequence, _)| *sequence));
        let Some(side) = oldest else { break };
        let Some((sequence, entry)) = side.next.take() else { break };
        let table = side.table;
        if let Some((_, other)) = before.filter(|(before, _)| *before == sequence) {
            checked.find(table, format!("run {} is also in {other}", sequence.as_i64()));
        }
        before = Some((sequence, table));
        let told = lists.at(checked, sequence);
        side.advance(checked);
        let Some(entry) = entry else { continue };
        let run = &entry.run;
        each(checked, table, &entry, origin);
        match side.place {
            Place::Open => {
                let key = params![
                    place(run),
                    -i64::from(run.priority),
                    millis(run.available_at),
                    sequence.as_i64(),
                    run.tenant.0
                ];
                open(checked, run, lines.query_row(key, |row| row.get(0)).map_err(failed)?);
                note_open.execute(params![run.job.as_bytes(), run.is_behind()]).map_err(failed)?;
            }
            Place::Kept | Place::Partition(_) => ended(checked, table, side.place, run),
        }
        listed(checked, side.place, &partitions, run, &told);
        insert
            .execute(params![run.idempotency_key().as_bytes(), sequence.as_i64(), run.job.shard().0])
            .map_err(failed)?;
    }
    lists.finish(checked);
    connection.execute_batch("commit").map_err(failed)
}

/// Where a run is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Open,
    /// Among the dead letters whose own partition is gone.
    Kept,
    Partition(Partition),
}

/// A table of runs, in the order of births.
struct Side<'a> {
    table: &'a str,
    place: Place,
    rows: Rows<'a>,
    /// A run that cannot be read is there all the same.
    next: Option<(Sequence, Option<Entry>)>,
}

impl Side<'_> {
    /// On to the next row.
    fn advance(&mut self, checked: &mut Checked) {
        let row = match self.rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return,
            // Nothing after this can be read.
            Err(error) => return checked.find(self.table, error.to_string()),
        };
        let sequence: i64 = row.get(0).unwrap_or_default();
        let entry = row::read(row).map_err(|error| {
            checked.find(self.table, format!("run {sequence}: {error}"));
        });
        let entry = entry.ok();
        match (papers::read(row, 2), &entry) {
            (Err(error), _) => checked.find(self.table, format!("what run {sequence} has said: {error}")),
            (Ok(papers), Some(entry)) => {
                for wrong in wrong_of(&papers, &entry.run) {
                    checked.find(self.table, format!("run {} has {wrong}", entry.run.id()));
                }
                if papers.checkpoint.is_some() && !entry.run.state.is_dead() {
                    let what = format!("run {} has a checkpoint and no attempt to come", entry.run.id());
                    checked.find(self.table, what);
                }
            }
            (Ok(_), None) => {}
        }
        self.next = Some((Sequence::from_i64(sequence), entry));
    }
}

/// The tables that list runs.
struct Lists<'a> {
    letters: Listed<'a, ()>,
    failures: Listed<'a, ()>,
    strays: Listed<'a, Stray>,
}

/// What they say about one run.
struct Told {
    is_letter: bool,
    is_failure: bool,
    stray: Option<Stray>,
}

#[derive(Clone, Copy)]
struct Stray {
    job: JobId,
    partition: i64,
}

impl Lists<'_> {
    fn at(&mut self, checked: &mut Checked, sequence: Sequence) -> Told {
        let sequence = sequence.as_i64();
        Told {
            is_letter: self.letters.at(checked, sequence).is_some(),
            is_failure: self.failures.at(checked, sequence).is_some(),
            stray: self.strays.at(checked, sequence).copied(),
        }
    }

    fn finish(&mut self, checked: &mut Checked) {
        self.letters.finish(checked);
        self.failures.finish(checked);
        self.strays.finish(checked);
        checked.dead_letters = self.letters.count;
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
    checked.open_runs += 1;
    match run.state {
        RunState::Running(_) => {
            checked.running += 1;
            if places != 0 {
                checked.find("open_runs", format!("run {id} is running and waits in a line"));
            }
        }
        RunState::Pending(_) if run.is_behind() => {
            if places != 0 {
                checked.find("open_runs", format!("run {id} waits for an earlier run and in a line"));
            }
        }
        // Whether it stands in the line of its limit is asked of that line.
        RunState::Pending(_) if run.is_limited() => {
            if places != 0 {
                checked.find("open_runs", format!("run {id} waits for a limit and in another line"));
            }
        }
        RunState::Pending(_) if places != 1 => {
            checked.find("open_runs", format!("run {id} waits in {places} lines, and not in one"));
        }
        RunState::Pending(_) => {}
        RunState::Succeeded
        | RunState::Failed
        | RunState::TimedOut
        | RunState::Cancelled
        | RunState::Missed => {
            checked.find("open_runs", format!("run {id} has {} and is open", run.state.as_str()));
        }
    }
}

fn ended(checked: &mut Checked, table: &str, place: Place, run: &Run) {
    let id = run.id();
    checked.history += 1;
    if !run.state.is_ended() {
        checked.find(table, format!("run {id} is {} and in history", run.state.as_str()));
    }
    let Place::Partition(partition) = place else { return };
    let class = run.retention.of(run.state);
    if class != partition.retention {
        checked.find(table, format!("run {id} is kept {} days, not as this partition", class.days()));
    }
    // What ends late goes to a later partition of its class, never to an earlier one.
    if partition.to.is_some_and(|to| run.sequence >= to) {
        checked.find(table, format!("run {id} was not born in this partition's time"));
    }
}

/// What the lists say about a run, and what they must say.
fn listed(checked: &mut Checked, place: Place, partitions: &Partitions, run: &Run, told: &Told) {
    let (id, state) = (run.id(), run.state.as_str());
    let is_dead = place != Place::Open && run.state.is_dead();
    if told.is_letter && !is_dead {
        checked.find("dead_letters", format!("run {id} is {state} and is a dead letter"));
    }
    if told.is_failure != is_dead {
        let lists = if is_dead { "is not listed" } else { "is listed" };
        checked.find("failures", format!("run {id} is {state} and {lists}"));
    }
    if let Some(stray) = told.stray {
        if stray.job != run.job {
            checked.find("strays", format!("run {id} is listed under job {}", stray.job));
        }
        let is_there = match place {
            // It may have been ended before, in any partition.
            Place::Open => true,
            Place::Kept => stray.partition == KEPT,
            Place::Partition(partition) => stray.partition == partition.id,
        };
        if !is_there {
            checked.find("strays", format!("run {id} is not in partition {}", stray.partition));
        }
        return;
    }
    let is_home = |one: &Partition| one.retention == run.retention.at_birth() && one.contains(run.sequence);
    let is_at_home = match place {
        Place::Open => partitions.iter().any(is_home),
        Place::Kept => false,
        // That it is of another class was found before.
        Place::Partition(partition) if run.class() != partition.retention => true,
        Place::Partition(partition) => is_home(&partition),
    };
    if !is_at_home {
        checked.find("strays", format!("run {id} is not where it was born and not listed"));
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

/// A run that waits for an earlier one has one ahead of it.
fn left_behind(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    let sql = "select job from open_of group by job having min(is_behind) = 1 order by job";
    super::tables::each(connection, sql, |row| {
        let job = JobId::from_bytes(row.get(0).map_err(failed)?);
        checked.find("open_runs", format!("runs of job {job} wait for an earlier run, and there is none"));
        Ok(())
    })
}

fn id(sequence: i64, shard: u16) -> RunId {
    RunId::new(Sequence::from_i64(sequence), ShardId(shard))
}
