//! The index of births against the runs themselves, a segment at a time.
//!
//! A segment is small enough to be sorted in memory, from the order of tags to that of births; its runs are read
//! once more alongside. Marks of no segment are what a try that did not end has left, and count for nothing.

use punctual_store::Error;
use punctual_store::record::RunHead;
use rusqlite::{Connection, params};

use super::Checked;
use crate::births::{self, SEGMENT_BIRTHS, Segment, Whose, bucket_of, tag};
use crate::error::failed;
use crate::partition::{Partition, Partitions};
use crate::row::record;

/// A run has two at most: for its job and for its tenant.
const MARKS_MAX: usize = 2 * SEGMENT_BIRTHS;

/// A sequence, and a tag it is found by.
type Mark = (i64, u32);

pub(super) fn check(checked: &mut Checked, connection: &Connection) {
    checked.attempt("segments", |checked| segments(checked, connection));
}

fn segments(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    let partitions = Partitions::load(connection)?;
    let mut segments = births::segments(connection, i64::MIN, i64::MAX)?;
    segments.sort_unstable_by_key(|segment| (segment.partition, segment.number));
    for of_partition in segments.chunk_by(|one, other| one.partition == other.partition) {
        let id = of_partition[0].partition;
        let Some(partition) = partitions.iter().find(|partition| partition.id == id) else {
            checked.find("segments", format!("partition {id} is not there"));
            continue;
        };
        let mut after = None;
        for (number, segment) in (0_i64..).zip(of_partition) {
            if segment.number != number {
                checked.find("segments", format!("{} is not number {number}", name(segment)));
            }
            if after.is_some_and(|after| segment.first <= after) {
                checked.find("segments", format!("{} begins before the one before ends", name(segment)));
            }
            let from = after.map_or(partition.from.as_i64(), |after: i64| after.saturating_add(1));
            checked.attempt("segments", |checked| one(checked, connection, partition, segment, from));
            after = Some(segment.last);
        }
    }
    Ok(())
}

fn name(segment: &Segment) -> String {
    format!("segment {} of partition {}", segment.number, segment.partition)
}

/// One segment, which has all births of its partition from `from` on to its last.
fn one(
    checked: &mut Checked,
    connection: &Connection,
    partition: &Partition,
    segment: &Segment,
    from: i64,
) -> Result<(), Error> {
    let name = name(segment);
    let common: Vec<u32> = segment.common.as_chunks().0.iter().map(|one| u32::from_le_bytes(*one)).collect();
    if !segment.common.len().is_multiple_of(4) || !common.is_sorted() {
        checked.find("segments", format!("{name} has a list of tenants that is none"));
    }
    let Some(marks) = marks(checked, connection, segment)? else { return Ok(()) };
    let ends = marks.first().zip(marks.last()).map(|(first, last)| (first.0, last.0));
    if ends != Some((segment.first, segment.last)) {
        checked.find("segments", format!("{name} does not begin and end with its marks"));
    }
    let sql = format!(
        "select seq, record, 0 from {} where seq between ?1 and ?2 \
         union all select seq, record, 1 from open_runs where seq between ?1 and ?2 order by seq",
        partition.table()
    );
    let mut strays = connection.prepare("select 1 from strays where seq = ?1").map_err(failed)?;
    let mut statement = connection.prepare(&sql).map_err(failed)?;
    let mut rows = statement.query([from, segment.last]).map_err(failed)?;
    let mut left = marks.as_slice();
    while let Some(row) = rows.next().map_err(failed)? {
        let sequence: i64 = row.get(0).map_err(failed)?;
        let head = record(row).and_then(RunHead::of);
        let is_shared: bool = row.get(2).map_err(failed)?;
        if is_shared && head.as_ref().is_ok_and(|head| head.retention.at_birth() != partition.retention) {
            continue;
        }
        let (passed, rest) = left.split_at(left.partition_point(|(birth, _)| *birth < sequence));
        let (own, rest) = rest.split_at(rest.partition_point(|(birth, _)| *birth == sequence));
        left = rest;
        // Only the last births of a segment may have been undone with their transaction.
        for (birth, _) in passed {
            // What ended late is elsewhere, and listed.
            if !strays.exists([birth]).map_err(failed)? {
                checked.find("marks", format!("run {birth} in {name} is not there"));
                break;
            }
        }
        // A run that cannot be read is found where runs are walked.
        let Ok(head) = head else { continue };
        let by_tenant = tag(Whose::Tenant(head.tenant));
        let expected = [
            (tag(Whose::Job(head.job)), true, "job"),
            (by_tenant, !common.contains(&head.tenant.0), "tenant"),
        ];
        for (tag, _, whose) in expected.iter().filter(|(_, is_marked, _)| *is_marked) {
            let is_there = own.iter().any(|(_, one)| one == tag);
            if !is_there && !strays.exists([sequence]).map_err(failed)? {
                checked.find("marks", format!("run {sequence} is not in {name} by its {whose}"));
            }
        }
        if own.iter().any(|(_, one)| expected.iter().all(|(tag, _, _)| tag != one)) {
            checked.find("marks", format!("run {sequence} is in {name} by another's tag"));
        }
    }
    Ok(())
}

/// The marks of a segment in the order of births; none if there are more than can be.
fn marks(
    checked: &mut Checked,
    connection: &Connection,
    segment: &Segment,
) -> Result<Option<Vec<Mark>>, Error> {
    let name = name(segment);
    let mut statement = connection
        .prepare("select bucket, marks from marks where partition = ?1 and number = ?2")
        .map_err(failed)?;
    let mut rows = statement.query(params![segment.partition, segment.number]).map_err(failed)?;
    let mut all: Vec<Mark> = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let bucket: i64 = row.get(0).map_err(failed)?;
        let bytes = row.get_ref(1).map_err(failed)?.as_bytes().unwrap_or_default();
        let (marks, rest) = bytes.as_chunks::<12>();
        if marks.is_empty() || !rest.is_empty() {
            checked.find("marks", format!("bucket {bucket} of {name} has {} bytes", bytes.len()));
        }
        let marks = marks.iter().map(births::read_mark);
        if !marks.clone().is_sorted() {
            checked.find("marks", format!("bucket {bucket} of {name} is not in order"));
        }
        if marks.clone().any(|(tag, _)| bucket_of(tag) as i64 != bucket) {
            checked.find("marks", format!("bucket {bucket} of {name} has marks of another"));
        }
        if all.len() + marks.len() > MARKS_MAX {
            checked.find("marks", format!("{name} has more than {MARKS_MAX}"));
            return Ok(None);
        }
        all.extend(marks.map(|(tag, birth)| (birth, tag)));
    }
    all.sort_unstable();
    Ok(Some(all))
}
