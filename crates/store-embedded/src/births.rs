//! Where the runs of a job are: an index that is written in bulk, because an index by job that is written run by run
//! makes a run five times as expensive (see decision 5).
//!
//! Every birth is noted in memory, by partition. After [`SEGMENT_BIRTHS`] of them a background thread sorts them and
//! hands them to the writer as one segment: marks (tag, sequence) in buckets by tag. Promise: what is in no segment yet
//! is in memory, and is found anew when the store is opened; so together they know every run that a partition has. They
//! may know some that never came to be, and two jobs may share a tag: a mark is a hint, the run itself decides.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use punctual_domain::id::{JobId, Sequence, TenantId};
use punctual_store::Error;
use punctual_store::record::RunHead;
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::failed;
use crate::partition::{Partition, Partitions};
use crate::row;

/// Few enough to be read anew in a tenth of a second when the store is opened; many enough that a hundred million
/// runs are in less than a thousand segments, each of which costs a read when a job is not in it.
pub(crate) const SEGMENT_BIRTHS: usize = 131_072;

/// A bucket is what one lookup reads: about 32 marks, few enough to lie in one page with others.
const BUCKET_BITS: u32 = 12;

/// A tenant with more than one birth in so many is found by reading the runs themselves.
const COMMON: usize = 16;

/// Buckets written in one go, so that other writes need not wait long.
const BUCKETS_AT_ONCE: usize = 1_024;

/// Births of one partition that follow each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Births {
    pub(crate) partition: i64,
    number: i64,
    tags: Vec<u32>,
    tenants: Vec<u32>,
    sequences: Vec<i64>,
}

/// What a list of runs is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Job(JobId),
    Tenant(TenantId),
}

/// Where such runs may be, in one stretch of births.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// These.
    Marks(Vec<i64>),
    /// So many that the runs themselves are read.
    Everywhere,
}

/// A stretch of births on disk.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) partition: i64,
    pub(crate) number: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) common: Vec<u8>,
}

impl Births {
    fn of(partition: i64, number: i64) -> Self {
        Births { partition, number, ..Births::default() }
    }

    fn push(&mut self, job: JobId, tenant: TenantId, sequence: Sequence) {
        self.tags.push(tag(Whose::Job(job)));
        self.tenants.push(tenant.0);
        self.sequences.push(sequence.as_i64());
    }

    fn len(&self) -> usize {
        self.sequences.len()
    }

    pub(crate) fn first(&self) -> Option<i64> {
        self.sequences.first().copied()
    }

    pub(crate) fn last(&self) -> Option<i64> {
        self.sequences.last().copied()
    }

    fn find(&self, whose: Whose) -> Found {
        let (column, wanted) = match whose {
            Whose::Job(_) => (&self.tags, tag(whose)),
            Whose::Tenant(tenant) => (&self.tenants, tenant.0),
        };
        let found = column.iter().zip(&self.sequences).filter(|(one, _)| **one == wanted);
        let marks: Vec<i64> = found.map(|(_, sequence)| *sequence).collect();
        match (whose, marks.len() > self.len() / COMMON) {
            (Whose::Tenant(_), true) => Found::Everywhere,
            _ => Found::Marks(marks),
        }
    }

    /// As they are written: the tenants that are everywhere, and the buckets.
    fn sorted(&self) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut by_tenant: BTreeMap<u32, usize> = BTreeMap::new();
        for tenant in &self.tenants {
            *by_tenant.entry(*tenant).or_default() += 1;
        }
        by_tenant.retain(|_, count| *count > self.tenants.len() / COMMON);
        let rare = self.tenants.iter().zip(&self.sequences).filter(|(one, _)| !by_tenant.contains_key(one));
        let rare = rare.map(|(tenant, at)| (tag(Whose::Tenant(TenantId(*tenant))), *at));
        let mut marks: Vec<(u32, i64)> =
            self.tags.iter().copied().zip(self.sequences.iter().copied()).chain(rare).collect();
        marks.sort_unstable();
        let mut buckets = vec![Vec::new(); 1 << BUCKET_BITS];
        for (tag, sequence) in marks {
            let bucket: &mut Vec<u8> = &mut buckets[bucket_of(tag)];
            bucket.extend_from_slice(&tag.to_le_bytes());
            bucket.extend_from_slice(&sequence.to_le_bytes());
        }
        (by_tenant.into_keys().flat_map(u32::to_le_bytes).collect(), buckets)
    }
}

/// The births that are in no segment yet, shared by the writer, the readers and the thread that sorts them.
#[derive(Debug)]
pub(crate) struct Recent {
    /// How many births make a segment.
    size: usize,
    lists: Mutex<Lists>,
    /// Who sorts them.
    sorter: OnceLock<Thread>,
}

#[derive(Debug, Default)]
struct Lists {
    /// One per partition that takes births.
    growing: Vec<Births>,
    /// Complete, and not in a segment yet.
    complete: Vec<Arc<Births>>,
}

impl Recent {
    pub(crate) fn new(size: usize) -> Self {
        Recent { size, lists: Mutex::default(), sorter: OnceLock::new() }
    }

    /// The calling thread is the one that sorts: it is woken when there is something to do.
    pub(crate) fn sorted_here(&self) {
        self.sorter.get_or_init(std::thread::current);
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        // Whoever panicked left at most a birth out, which is found anew when the store is opened.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a birth.
    pub(crate) fn note(&self, partition: i64, job: JobId, tenant: TenantId, sequence: Sequence) {
        let mut lists = self.lists();
        let lists = &mut *lists;
        let at = match lists.growing.iter().position(|births| births.partition == partition) {
            Some(at) => at,
            None => {
                lists.growing.push(Births::of(partition, 0));
                lists.growing.len() - 1
            }
        };
        let births = &mut lists.growing[at];
        births.push(job, tenant, sequence);
        if births.len() < self.size {
            return;
        }
        let next = Births::of(partition, births.number + 1);
        lists.complete.push(Arc::new(std::mem::replace(births, next)));
        if let Some(sorter) = self.sorter.get() {
            sorter.unpark();
        }
    }

    /// How many births a partition has had, roughly.
    pub(crate) fn count(&self, partition: i64) -> u64 {
        let lists = self.lists();
        let births = lists.growing.iter().find(|births| births.partition == partition);
        births.map_or(0, |births| births.number as u64 * self.size as u64 + births.len() as u64)
    }

    /// A partition takes no more births.
    pub(crate) fn close(&self, partition: i64) {
        let mut lists = self.lists();
        if let Some(at) = lists.growing.iter().position(|births| births.partition == partition) {
            let births = lists.growing.swap_remove(at);
            if births.last().is_some() {
                lists.complete.push(Arc::new(births));
            }
        }
    }

    /// A partition is gone.
    pub(crate) fn forget(&self, partition: i64) {
        let mut lists = self.lists();
        lists.growing.retain(|births| births.partition != partition);
        lists.complete.retain(|births| births.partition != partition);
    }

    /// Where runs may be, with partition, first and last of each list. To be asked before a snapshot of the
    /// database is taken: then what has left memory is in the snapshot.
    pub(crate) fn find(&self, whose: Whose) -> Vec<(i64, i64, i64, Found)> {
        let lists = self.lists();
        let all = lists.growing.iter().chain(lists.complete.iter().map(|births| &**births));
        all.filter_map(|births| Some((births.partition, births.first()?, births.last()?, births.find(whose))))
            .collect()
    }

    /// What is to be sorted next.
    pub(crate) fn complete(&self) -> Option<Arc<Births>> {
        self.lists().complete.first().cloned()
    }

    fn written(&self, births: &Arc<Births>) {
        self.lists().complete.retain(|one| !Arc::ptr_eq(one, births));
    }

    /// Finds what is in no segment yet.
    pub(crate) fn load(&self, connection: &Connection, partitions: &Partitions) -> Result<(), Error> {
        let mut fresh = Lists::default();
        for partition in partitions.iter() {
            let (complete, births) = unwritten(connection, partition, self.size)?;
            fresh.complete.extend(complete);
            match partition.to {
                None => fresh.growing.push(births),
                Some(_) if births.last().is_some() => fresh.complete.push(Arc::new(births)),
                Some(_) => {}
            }
        }
        *self.lists() = fresh;
        Ok(())
    }
}

/// The births of a partition that are in no segment yet: complete lists, and the rest.
pub(crate) fn unwritten(
    connection: &Connection,
    partition: &Partition,
    size: usize,
) -> Result<(Vec<Arc<Births>>, Births), Error> {
    let mut complete = Vec::new();
    let mut births = Births::of(partition.id, 0);
    let mut after = partition.from.as_i64() - 1;
    if let Some((number, last)) = newest_segment(connection, partition.id)? {
        (births.number, after) = (number + 1, last);
    }
    for (sequence, head) in unsorted(connection, partition, after)? {
        births.push(head.job, head.tenant, sequence);
        if births.len() >= size {
            let next = Births::of(partition.id, births.number + 1);
            complete.push(Arc::new(std::mem::replace(&mut births, next)));
        }
    }
    Ok((complete, births))
}

fn newest_segment(connection: &Connection, partition: i64) -> Result<Option<(i64, i64)>, Error> {
    connection
        .query_row(
            "select number, last from segments where partition = ?1 order by number desc limit 1",
            [partition],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()
        .map_err(failed)
}

/// The runs of a partition after a sequence, ended and open, in order.
fn unsorted(
    connection: &Connection,
    partition: &Partition,
    after: i64,
) -> Result<Vec<(Sequence, RunHead)>, Error> {
    let mut found = Vec::new();
    let upper = partition.to.map_or(i64::MAX, Sequence::as_i64);
    for table in [format!("history_{}", partition.id), "open_runs".to_string()] {
        let sql = format!("select {} from {table} where seq > ?1 and seq < ?2", row::COLUMNS);
        let mut statement = connection.prepare(&sql).map_err(failed)?;
        let mut rows = statement.query([after, upper]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let head = RunHead::of(row::record(row)?)?;
            // What ended in another class than it was born into is a stray, and found as one.
            if head.retention.at_birth() == partition.retention {
                found.push((Sequence::from_i64(row.get(0).map_err(failed)?), head));
            }
        }
    }
    found.sort_unstable_by_key(|(sequence, _)| *sequence);
    Ok(found)
}

/// A part of a segment, to be written in one go.
pub(crate) type Piece = Box<dyn FnOnce(&Connection) -> Result<(), Error> + Send>;

/// Sorts one list and writes it, piece by piece; the last piece makes it count.
pub(crate) fn write(
    recent: &Recent,
    births: &Arc<Births>,
    mut submit: impl FnMut(Piece) -> Result<(), Error>,
) -> Result<(), Error> {
    let (partition, number) = (births.partition, births.number);
    let (Some(first), Some(last)) = (births.first(), births.last()) else { return Ok(()) };
    let (common, buckets) = births.sorted();
    let mut left: Vec<(usize, Vec<u8>)> =
        buckets.into_iter().enumerate().filter(|(_, marks)| !marks.is_empty()).collect();
    // What an earlier try left.
    submit(Box::new(move |connection| {
        run(connection, "delete from marks where partition = ?1 and number = ?2", params![partition, number])
    }))?;
    while !left.is_empty() {
        let rest = left.split_off(left.len().min(BUCKETS_AT_ONCE));
        let piece = std::mem::replace(&mut left, rest);
        submit(Box::new(move |connection| {
            for (bucket, marks) in piece {
                run(
                    connection,
                    "insert into marks values (?1, ?2, ?3, ?4)",
                    params![partition, number, bucket as i64, marks],
                )?;
            }
            Ok(())
        }))?;
    }
    submit(Box::new(move |connection| {
        // The partition may have been dropped meanwhile.
        run(
            connection,
            "delete from marks where partition = ?1 and not exists (select 1 from partitions where id = ?1)",
            [partition],
        )?;
        run(
            connection,
            "insert or replace into segments select ?1, ?2, ?3, ?4, ?5 from partitions where id = ?1",
            params![partition, number, first, last, common],
        )
    }))?;
    recent.written(births);
    Ok(())
}

fn run(connection: &Connection, sql: &str, values: impl rusqlite::Params) -> Result<(), Error> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values)).map_err(failed)?;
    Ok(())
}

/// The segments that have births in a range, of all partitions.
pub(crate) fn segments(connection: &Connection, from: i64, below: i64) -> Result<Vec<Segment>, Error> {
    let mut statement = connection
        .prepare_cached(
            "select partition, number, first, last, common from segments where first < ?2 and last >= ?1",
        )
        .map_err(failed)?;
    let rows = statement
        .query_map([from, below], |row| {
            Ok(Segment {
                partition: row.get(0)?,
                number: row.get(1)?,
                first: row.get(2)?,
                last: row.get(3)?,
                common: row.get(4)?,
            })
        })
        .map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

impl Segment {
    /// Whether a tenant is everywhere in it.
    pub(crate) fn is_common(&self, whose: Whose) -> bool {
        match whose {
            Whose::Job(_) => false,
            Whose::Tenant(tenant) => self.common.chunks_exact(4).any(|one| *one == tenant.0.to_le_bytes()),
        }
    }

    /// Where runs may be.
    pub(crate) fn find(&self, connection: &Connection, whose: Whose) -> Result<Vec<i64>, Error> {
        let tag = tag(whose);
        let marks: Option<Vec<u8>> = connection
            .prepare_cached("select marks from marks where partition = ?1 and number = ?2 and bucket = ?3")
            .and_then(|mut statement| {
                let values = params![self.partition, self.number, bucket_of(tag) as i64];
                statement.query_row(values, |row| row.get(0)).optional()
            })
            .map_err(failed)?;
        let marks = marks.unwrap_or_default();
        let (marks, _) = marks.as_chunks::<12>();
        let from = marks.partition_point(|mark| read_mark(mark).0 < tag);
        let found = marks[from..].iter().map(read_mark).take_while(|(one, _)| *one == tag);
        Ok(found.map(|(_, sequence)| sequence).collect())
    }
}

/// The tag and the sequence.
pub(crate) fn read_mark([a, b, c, d, sequence @ ..]: &[u8; 12]) -> (u32, i64) {
    (u32::from_le_bytes([*a, *b, *c, *d]), i64::from_le_bytes(*sequence))
}

pub(crate) fn bucket_of(tag: u32) -> usize {
    (tag >> (u32::BITS - BUCKET_BITS)) as usize
}

/// Spreads jobs and tenants over 32 bits. It is on disk: it never changes.
pub(crate) fn tag(whose: Whose) -> u32 {
    let bits = match whose {
        Whose::Job(job) => {
            let (high, low) = job.as_bytes().split_at(8);
            let half = |bytes: &[u8]| bytes.iter().fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
            half(high) ^ half(low).rotate_left(29)
        }
        Whose::Tenant(tenant) => !u64::from(tenant.0),
    };
    // The finisher of SplitMix64.
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ bits >> 31) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_on_disk_and_never_change() {
        let job = JobId::from_bytes([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        assert_eq!((tag(Whose::Job(job)), tag(Whose::Tenant(TenantId(1)))), (3_320_915_837, 3_659_982_127));
    }
}
