//! Finds runs, newest first: chooses where to look by the filter, and merges what the places give.
//!
//! Promise: a page looks at a bounded number of rows, whatever the filter; what an index serves is found by it.

use std::collections::BinaryHeap;

use punctual_domain::Run;
use punctual_domain::id::{JobId, RunId, Sequence};
use punctual_store::record::{RunHead, decode_run};
use punctual_store::{EXAMINED_MAX, Error, Page, PageRequest, RunFilter};
use rusqlite::{Connection, OptionalExtension, params};

use super::jobs::is_dead_letter;
use super::runs::find;
use crate::births::{self, Found, Recent, Segment, Whose};
use crate::error::failed;
use crate::partition::{KEPT, Partitions};
use crate::row;

/// Rows read from a place at a time.
const CHUNK: usize = 256;

/// A run that is looked up by its sequence counts as so many that are read in a row.
const LOOKUP: usize = 10;

pub(crate) fn runs(
    connection: &Connection,
    recent: &Recent,
    filter: &RunFilter,
    page: &PageRequest<Sequence>,
) -> Result<Page<Run, Sequence>, Error> {
    let whose = match (filter.job, filter.tenant) {
        (Some(job), _) => Some(Whose::Job(job)),
        (None, tenant) => tenant.map(Whose::Tenant),
    };
    // Memory first: what leaves it is on disk before.
    let recent = whose.map_or(Vec::new(), |whose| recent.find(whose));
    let snapshot = connection.unchecked_transaction().map_err(failed)?;
    let partitions = Partitions::load(&snapshot)?;
    let floor = match filter.job.zip(filter.last) {
        Some((job, last)) => {
            let all = RunFilter { job: Some(job), ..RunFilter::default() };
            let mut search = Search::new(&snapshot, &all, partitions.clone(), i64::MAX);
            search.choose(whose, recent.clone())?;
            search.ended(last.get())?
        }
        None => None,
    };
    let mut search = Search::new(&snapshot, filter, partitions, below(filter, page));
    search.floor = floor;
    search.choose(whose, recent)?;
    search.page(page.limit)
}

fn below(filter: &RunFilter, page: &PageRequest<Sequence>) -> i64 {
    let born = filter.born_before.map_or(i64::MAX, |before| Sequence::first_at(before, 0).as_i64());
    page.after.map_or(born, |after| after.as_i64().min(born))
}

struct Search<'a> {
    connection: &'a Connection,
    filter: &'a RunFilter,
    partitions: Partitions,
    from: i64,
    below: i64,
    /// What has ended before this is not wanted.
    floor: Option<Sequence>,
    /// Where to look, the place that may have the newest run first.
    places: BinaryHeap<Place>,
    /// What has been found and is not passed yet, the newest first.
    found: BinaryHeap<Candidate>,
    /// What was found last.
    last: Option<i64>,
    examined: usize,
}

/// What a search gives next.
enum Next {
    /// The next run that fits.
    Run(Box<Run>),
    /// As much has been looked at as one search may; the rest is below this.
    Stopped(i64),
    /// There are no more.
    End,
}

/// Somewhere runs may be, at or below `upper`.
struct Place {
    upper: i64,
    kind: Kind,
}

enum Kind {
    /// The rows of a table, from the end down to `lower`.
    Rows { table: String, lower: i64 },
    /// A segment on disk.
    Segment(Segment, Whose),
    /// Sequences, ascending, and their partition.
    Marks(Vec<i64>, i64),
    /// A table of sequences.
    Sequences(&'static str),
    /// Runs outside the partition of their birth: of a job, or all.
    Strays(Option<JobId>),
}

struct Candidate {
    sequence: i64,
    at: At,
}

enum At {
    Read(Box<Run>),
    Partition(i64),
    Unknown,
}

impl<'a> Search<'a> {
    fn new(connection: &'a Connection, filter: &'a RunFilter, partitions: Partitions, below: i64) -> Self {
        Search {
            connection,
            filter,
            partitions,
            from: filter.born_from.map_or(i64::MIN, |from| Sequence::first_at(from, 0).as_i64()),
            below,
            floor: None,
            places: BinaryHeap::new(),
            found: BinaryHeap::new(),
            last: None,
            examined: 0,
        }
    }

    fn choose(&mut self, whose: Option<Whose>, recent: Vec<(i64, i64, i64, Found)>) -> Result<(), Error> {
        let is_failure = matches!(self.filter.state, Some("failed" | "timed_out"));
        match whose {
            _ if self.filter.is_of_open() => self.add_rows("open_runs".into(), i64::MIN, i64::MAX),
            _ if self.filter.is_dead == Some(true) => self.add(i64::MAX, Kind::Sequences("dead_letters")),
            Some(whose @ Whose::Job(_)) => self.add_indexed(whose, recent)?,
            _ if is_failure => self.add(i64::MAX, Kind::Sequences("failures")),
            Some(whose @ Whose::Tenant(_)) => self.add_indexed(whose, recent)?,
            None => {
                self.add_rows("open_runs".into(), i64::MIN, i64::MAX);
                self.add_rows(format!("history_{KEPT}"), i64::MIN, i64::MAX);
                let tables: Vec<(String, i64)> = self
                    .partitions
                    .iter()
                    .map(|p| (p.table(), p.to.map_or(i64::MAX, Sequence::as_i64)))
                    .collect();
                for (table, to) in tables {
                    self.add_rows(table, i64::MIN, to);
                }
            }
        }
        Ok(())
    }

    fn add_indexed(&mut self, whose: Whose, recent: Vec<(i64, i64, i64, Found)>) -> Result<(), Error> {
        let mut is_everywhere = false;
        for segment in births::segments(self.connection, self.from, self.below)? {
            match segment.is_common(whose) {
                true => {
                    is_everywhere = true;
                    self.add_rows(format!("history_{}", segment.partition), segment.first, segment.last);
                }
                false => self.add(segment.last, Kind::Segment(segment, whose)),
            }
        }
        for (partition, first, last, found) in recent {
            if !self.partitions.iter().any(|p| p.id == partition) {
                continue;
            }
            match found {
                Found::Marks(marks) => self.add(last, Kind::Marks(marks, partition)),
                Found::Everywhere => {
                    is_everywhere = true;
                    self.add_rows(format!("history_{partition}"), first, i64::MAX);
                }
            }
        }
        if is_everywhere {
            self.add_rows("open_runs".into(), i64::MIN, i64::MAX);
        }
        self.add(
            i64::MAX,
            Kind::Strays(match whose {
                Whose::Job(job) => Some(job),
                Whose::Tenant(_) => None,
            }),
        );
        Ok(())
    }

    fn add_rows(&mut self, table: String, lower: i64, upper: i64) {
        let lower = lower.max(self.from);
        self.add(upper, Kind::Rows { table, lower });
    }

    /// Adds a place, if anything in it can be in range.
    fn add(&mut self, upper: i64, kind: Kind) {
        let upper = upper.min(self.below.saturating_sub(1));
        if upper >= self.from {
            self.places.push(Place { upper, kind });
        }
    }

    fn page(&mut self, limit: usize) -> Result<Page<Run, Sequence>, Error> {
        let mut items: Vec<Run> = Vec::new();
        loop {
            match self.next()? {
                Next::Run(_) if items.len() == limit => {
                    return Ok(Page { next: items.last().map(|run| run.sequence), items });
                }
                Next::Run(run) => items.push(*run),
                Next::Stopped(below) => return Ok(Page { items, next: Some(Sequence::from_i64(below)) }),
                Next::End => return Ok(Page { items, next: None }),
            }
        }
    }

    /// The run that is number `count` of those that have ended, if it can be found.
    fn ended(&mut self, count: u32) -> Result<Option<Sequence>, Error> {
        let mut left = count;
        loop {
            match self.next()? {
                Next::Run(run) if !run.state.is_ended() => {}
                Next::Run(run) if left <= 1 => return Ok(Some(run.sequence)),
                Next::Run(_) => left -= 1,
                Next::Stopped(_) | Next::End => return Ok(None),
            }
        }
    }

    fn next(&mut self) -> Result<Next, Error> {
        loop {
            // What was found is the newest only when no place can have a newer one.
            while let Some(place) = self.places.peek()
                && self.found.peek().is_none_or(|found| place.upper >= found.sequence)
            {
                if self.examined >= EXAMINED_MAX {
                    return Ok(Next::Stopped(place.upper.saturating_add(1)));
                }
                if let Some(place) = self.places.pop() {
                    self.look(place)?;
                }
            }
            let Some(candidate) = self.found.pop() else { return Ok(Next::End) };
            if self.last == Some(candidate.sequence) {
                continue;
            }
            if self.examined >= EXAMINED_MAX {
                return Ok(Next::Stopped(candidate.sequence + 1));
            }
            // Of a stray, the partition of its birth knows as well; it is found in one place only.
            let Some(run) = self.resolve(candidate)? else { continue };
            self.last = Some(run.sequence.as_i64());
            return Ok(Next::Run(Box::new(run)));
        }
    }

    /// Takes the newest of a place, and leaves the rest of it for later.
    fn look(&mut self, Place { upper, kind }: Place) -> Result<(), Error> {
        match kind {
            Kind::Rows { table, lower } => {
                let limit = CHUNK.min(EXAMINED_MAX - self.examined);
                let lowest = self.read_rows(&table, lower, upper, limit)?;
                if let Some(lowest) = lowest.filter(|lowest| *lowest > lower) {
                    self.add(lowest - 1, Kind::Rows { table, lower });
                }
            }
            Kind::Segment(segment, whose) => {
                self.examined += LOOKUP;
                let marks = segment.find(self.connection, whose)?;
                self.add(upper, Kind::Marks(marks, segment.partition));
            }
            Kind::Marks(mut marks, partition) => {
                marks.truncate(marks.partition_point(|sequence| *sequence <= upper));
                let rest = marks.len().saturating_sub(CHUNK);
                for sequence in marks.drain(rest..).filter(|sequence| *sequence >= self.from) {
                    self.found.push(Candidate { sequence, at: At::Partition(partition) });
                }
                if let Some(upper) = marks.last().copied() {
                    self.add(upper, Kind::Marks(marks, partition));
                }
            }
            Kind::Sequences(table) => {
                let sql = format!(
                    "select seq, null from {table} where seq <= ?1 and seq >= ?2 order by seq desc limit ?3"
                );
                let lowest = self.read_sequences(&sql, upper, None)?;
                lowest.into_iter().for_each(|lowest| self.add(lowest - 1, Kind::Sequences(table)));
            }
            Kind::Strays(job) => {
                let by_job = if job.is_some() { "job = ?4 and" } else { "?4 is null and" };
                let sql = format!(
                    "select seq, partition from strays where {by_job} seq <= ?1 and seq >= ?2 order by seq desc limit ?3"
                );
                let lowest = self.read_sequences(&sql, upper, Some(job))?;
                lowest.into_iter().for_each(|lowest| self.add(lowest - 1, Kind::Strays(job)));
            }
        }
        Ok(())
    }

    /// Reads rows downwards and keeps those that fit. Returns the lowest, if there may be more.
    fn read_rows(&mut self, table: &str, lower: i64, upper: i64, limit: usize) -> Result<Option<i64>, Error> {
        let sql = format!(
            "select {} from {table} where seq <= ?1 and seq >= ?2 order by seq desc limit ?3",
            row::COLUMNS
        );
        let mut statement = self.connection.prepare_cached(&sql).map_err(failed)?;
        let mut rows = statement.query([upper, lower, limit as i64]).map_err(failed)?;
        let (mut lowest, mut count) = (None, 0);
        while let Some(row) = rows.next().map_err(failed)? {
            let sequence: i64 = row.get(0).map_err(failed)?;
            (lowest, count) = (Some(sequence), count + 1);
            let record = row::record(row)?;
            if !may_match(self.filter, record)? {
                continue;
            }
            let (run, _) = decode_run(Sequence::from_i64(sequence), record)?;
            if self.matches(&run)? {
                self.found.push(Candidate { sequence, at: At::Read(Box::new(run)) });
            }
        }
        self.examined += count;
        Ok(lowest.filter(|_| count == limit))
    }

    fn read_sequences(
        &mut self,
        sql: &str,
        upper: i64,
        job: Option<Option<JobId>>,
    ) -> Result<Option<i64>, Error> {
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        let job = job.map(|job| job.map(|job| *job.as_bytes()));
        let mut rows = match job {
            None => statement.query(params![upper, self.from, CHUNK as i64]),
            Some(job) => statement.query(params![upper, self.from, CHUNK as i64, job]),
        }
        .map_err(failed)?;
        let (mut lowest, mut count) = (None, 0);
        while let Some(row) = rows.next().map_err(failed)? {
            let sequence: i64 = row.get(0).map_err(failed)?;
            let partition: Option<i64> = row.get(1).map_err(failed)?;
            (lowest, count) = (Some(sequence), count + 1);
            self.found.push(Candidate { sequence, at: partition.map_or(At::Unknown, At::Partition) });
        }
        Ok(lowest.filter(|_| count == CHUNK))
    }

    /// The run itself, if it fits.
    fn resolve(&mut self, candidate: Candidate) -> Result<Option<Run>, Error> {
        let sequence = Sequence::from_i64(candidate.sequence);
        let entry = match candidate.at {
            At::Read(run) => return Ok(Some(*run)),
            At::Partition(partition) => match find(self.connection, "open_runs", sequence)? {
                Some(entry) => Some(entry),
                None => find(self.connection, &format!("history_{partition}"), sequence)?,
            },
            At::Unknown => ended(self.connection, &self.partitions, sequence)?.map(|(entry, _)| entry),
        };
        self.examined += LOOKUP;
        let run = entry.map(|entry| entry.run);
        match run {
            Some(run) if self.matches(&run)? => Ok(Some(run)),
            _ => Ok(None),
        }
    }

    fn matches(&self, run: &Run) -> Result<bool, Error> {
        let is_shown = !run.state.is_ended() || self.floor.is_none_or(|floor| run.sequence >= floor);
        Ok(is_shown && matches(self.connection, self.filter, run)?)
    }
}

/// An ended run and the table it is in: that of its birth, unless it strayed.
pub(super) fn ended(
    connection: &Connection,
    partitions: &Partitions,
    sequence: Sequence,
) -> Result<Option<(row::Entry, String)>, Error> {
    for partition in partitions.iter().filter(|partition| partition.contains(sequence)) {
        if let Some(entry) = find(connection, &partition.table(), sequence)? {
            return Ok(Some((entry, partition.table())));
        }
    }
    let stray: Option<i64> = connection
        .prepare_cached("select partition from strays where seq = ?1")
        .and_then(|mut statement| statement.query_row([sequence.as_i64()], |row| row.get(0)).optional())
        .map_err(failed)?;
    let Some(partition) = stray else { return Ok(None) };
    let table = format!("history_{partition}");
    Ok(find(connection, &table, sequence)?.map(|entry| (entry, table)))
}

/// An ended run and the table it is in.
pub(crate) fn ended_run(
    connection: &Connection,
    partitions: &Partitions,
    id: RunId,
) -> Result<Option<(row::Entry, String)>, Error> {
    Ok(ended(connection, partitions, id.sequence())?.filter(|(entry, _)| entry.run.id() == id))
}

/// What the head of a record tells: most rows that do not fit need not be decoded.
fn may_match(filter: &RunFilter, record: &[u8]) -> Result<bool, Error> {
    let head = RunHead::of(record)?;
    Ok(filter.job.is_none_or(|job| head.job == job)
        && filter.tenant.is_none_or(|tenant| head.tenant == tenant)
        && filter.state.is_none_or(|state| head.is_in(state)))
}

fn matches(connection: &Connection, filter: &RunFilter, run: &Run) -> Result<bool, Error> {
    let fits = filter.matches(run);
    match filter.is_dead {
        Some(dead) if fits => Ok(is_dead_letter(connection, run.sequence)? == dead),
        _ => Ok(fits),
    }
}

macro_rules! order_by {
    ($kind:ident, $field:ident) => {
        impl Ord for $kind {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.$field.cmp(&other.$field)
            }
        }

        impl PartialOrd for $kind {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl PartialEq for $kind {
            fn eq(&self, other: &Self) -> bool {
                self.$field == other.$field
            }
        }

        impl Eq for $kind {}
    };
}

order_by!(Place, upper);
order_by!(Candidate, sequence);
