//! Changes of jobs that touch nothing but the job, its due entry and the ledger, which most edits and pauses are: a statement
//! for each table, however many jobs. While they are written nothing fires in their shards, so they must be quick.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use punctual_domain::LedgerEntry;
use punctual_domain::id::{JobId, Version};
use punctual_store::{CarryTo, Due, DueWhen, Expect, OpenRuns, Refused, ledger_entry};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::change::{Change, insert_ledger, ledger_columns};
use crate::due::{DELETE_DUE, DueColumns, FIND_DUE, INSERT_DUE, due_params};
use crate::ended::end_jobs;
use crate::error::Failed;
use crate::row::{job_id, job_state, job_uuid};
use crate::work::Work;

/// The versions that open runs were fired with, of jobs $1.
pub(crate) const KEEP_VERSIONS: &str = "
insert into job_versions select j.id, j.version, j.tenant, j.record from unnest($1::uuid[]) x (id)
join jobs j on j.id = any(array[x.id])
where exists (select from open_runs o where o.job = x.id) on conflict do nothing";

pub(crate) const WRITE_JOBS: &str = "
update jobs j set version = x.version, state = x.state, record = x.record
from unnest($1::uuid[], $2::int[], $3::smallint[], $4::text[]) x (id, version, state, record)
where j.id = any(array[x.id])";

/// Those of jobs $1 that have open runs.
pub(crate) const BUSY: &str = "
select x.id from unnest($1::uuid[]) x (id) where exists (select from open_runs o where o.job = x.id)";

/// A job's row, held.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) version: Version,
    pub(crate) key: Option<String>,
    pub(crate) is_deleted: bool,
}

/// Whether a change touches nothing but the job itself, its due entry and the ledger.
pub(crate) fn is_simple(change: &Change, held: Option<&Held>) -> bool {
    let put = &change.put;
    let keeps_key = held.is_some_and(|held| !held.is_deleted && held.key.as_deref() == change.key());
    matches!(put.expect, Expect::Version(_))
        && keeps_key
        && put.open_runs == OpenRuns::Keep
        && !put.lets_overlap
        && put.request.is_none()
        && change.born.is_none()
}

/// Makes simple changes of different jobs. Tells for each the entry that is due now.
pub(crate) async fn change_many(
    transaction: &Work<'_>,
    changes: &[&Change],
    held: &HashMap<JobId, Held>,
    now: Timestamp,
) -> Result<Vec<Result<Option<Due>, Refused>>, Failed> {
    let there = find_entries(transaction, changes).await?;
    let (mut answers, mut kept) = (Vec::with_capacity(changes.len()), Vec::new());
    for change in changes {
        let answer = refusal(change, held, &there).map_or(Ok(None), Err);
        if answer.is_ok() {
            kept.push(*change);
        }
        answers.push(answer);
    }
    if kept.is_empty() {
        return Ok(answers);
    }
    let busy = busy(transaction, &kept).await?;
    write_jobs(transaction, &kept).await?;
    let (mut ledger, mut gone, mut due, mut over) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut taken = HashMap::new();
    for change in &kept {
        let (put, job) = (&change.put, &change.put.job);
        ledger.extend(put.ledger.iter().cloned());
        gone.extend(put.unfired.iter().copied());
        let carried = carry(change, &there, &mut ledger, &mut gone, now);
        let has_open_runs = put.due_when == DueWhen::Idle && busy.contains(&job.id);
        let entry = carried.or(put.due.filter(|_| put.is_wanted(has_open_runs)));
        if put.is_over(entry, has_open_runs) {
            over.push((job.id, job.version, job.spec.policies.retention));
        }
        due.extend(entry);
        taken.insert(job.id, entry);
    }
    insert_ledger(transaction, &ledger_columns(&ledger)).await?;
    if !gone.is_empty() {
        let columns: DueColumns = gone.iter().collect();
        let delete = transaction.prepare_cached(DELETE_DUE).await?;
        transaction.execute(&delete, &due_params!(columns)).await?;
    }
    end_jobs(transaction, over, now).await?;
    if !due.is_empty() {
        let columns: DueColumns = due.iter().collect();
        let insert = transaction.prepare_cached(INSERT_DUE).await?;
        transaction.execute(&insert, &due_params!(columns)).await?;
    }
    for (change, answer) in changes.iter().zip(&mut answers) {
        if let Ok(entry) = answer {
            *entry = taken.get(&change.put.job.id).copied().flatten();
        }
    }
    Ok(answers)
}

/// Which of the entries that the changes ask about are there.
async fn find_entries(transaction: &Work<'_>, changes: &[&Change]) -> Result<HashSet<EntryKey>, Failed> {
    let asked = |change: &&Change| {
        let candidates = change.put.carry.iter().flat_map(|carry| carry.candidates.iter().copied());
        change.put.unfired.iter().copied().chain(candidates).collect::<Vec<_>>()
    };
    let entries: Vec<Due> = changes.iter().flat_map(asked).collect();
    if entries.is_empty() {
        return Ok(HashSet::new());
    }
    let columns: DueColumns = entries.iter().collect();
    let statement = transaction.prepare_cached(FIND_DUE).await?;
    let rows = transaction.query(&statement, &due_params!(columns)).await?;
    Ok(rows.iter().map(|row| key(&entries[row.get::<_, i64>(0) as usize - 1])).collect())
}

/// An entry, exactly.
type EntryKey = (punctual_store::DueKey, Version, Timestamp);

fn key(due: &Due) -> EntryKey {
    (due.key, due.version, due.slot)
}

fn refusal(change: &Change, held: &HashMap<JobId, Held>, there: &HashSet<EntryKey>) -> Option<Refused> {
    let put = &change.put;
    let Some(held) = held.get(&put.job.id) else { return Some(Refused::NoJob) };
    if put.expect != Expect::Version(held.version) {
        return Some(Refused::WrongVersion { current: held.version });
    }
    let is_fired = !put.unfired.is_empty() && !put.unfired.iter().any(|due| there.contains(&key(due)));
    is_fired.then_some(Refused::NotDue)
}

/// What becomes of the old version's entry, if it is there; returns what is due instead.
fn carry(
    change: &Change,
    there: &HashSet<EntryKey>,
    ledger: &mut Vec<LedgerEntry>,
    gone: &mut Vec<Due>,
    now: Timestamp,
) -> Option<Due> {
    let carry = change.put.carry.as_ref()?;
    let at = carry.candidates.iter().position(|due| there.contains(&key(due)))?;
    let unfired = &carry.candidates[at..];
    gone.push(unfired[0]);
    match carry.to {
        CarryTo::Due => return Some(unfired[0].of(&change.put.job)),
        CarryTo::Ledger(fate) => ledger.push(ledger_entry(&change.put.job, unfired, fate, now)),
        CarryTo::Nothing => {}
    }
    None
}

/// Those of the jobs whose next slot waits for an open run.
async fn busy(transaction: &Work<'_>, changes: &[&Change]) -> Result<HashSet<JobId>, Failed> {
    let idle = changes.iter().filter(|change| change.put.due_when == DueWhen::Idle);
    let ids: Vec<Uuid> = idle.map(|change| job_uuid(change.put.job.id)).collect();
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let statement = transaction.prepare_cached(BUSY).await?;
    let rows = transaction.query(&statement, &[&ids]).await?;
    Ok(rows.iter().map(|row| job_id(row.get(0))).collect())
}

async fn write_jobs(transaction: &Work<'_>, changes: &[&Change]) -> Result<(), Failed> {
    let ids: Vec<Uuid> = changes.iter().map(|change| job_uuid(change.put.job.id)).collect();
    let keep = transaction.prepare_cached(KEEP_VERSIONS).await?;
    transaction.execute(&keep, &[&ids]).await?;
    let versions: Vec<i32> = changes.iter().map(|change| change.put.job.version.0 as i32).collect();
    let states: Vec<i16> = changes.iter().map(|change| job_state(&change.put.job.state)).collect();
    let records: Vec<&str> = changes.iter().map(|change| change.record.as_str()).collect();
    let write = transaction.prepare_cached(WRITE_JOBS).await?;
    let values: [&(dyn ToSql + Sync); 4] = [&ids, &versions, &states, &records];
    transaction.execute(&write, &values).await?;
    Ok(())
}
