//! Changes of jobs that are there: edit, pause, resume, delete.
//!
//! The rows of their shards are taken first, which no fire shares meanwhile; so each change is read, decided and written
//! as if it were alone. Promise: a slot that was due is fired before, or carried over, or accounted for.

use std::collections::HashMap;

use jiff::Timestamp;
use punctual_domain::LedgerEntry;
use punctual_domain::id::{JobId, Version};
use punctual_domain::lifecycle::{self, Event};
use punctual_store::{Carry, CarryTo, Due, DueWhen, Expect, OpenRuns, Put, Refused, ledger_entry};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::audit::append;
use crate::due::{DELETE_DUE, DueColumns, FIND_DUE, INSERT_DUE, due_params};
use crate::ended::end_jobs;
use crate::error::Failed;
use crate::open_runs::OpenColumns;
use crate::overlap::release_all;
use crate::partition::{Ended, end};
use crate::postgres::{Postgres, transact};
use crate::put_jobs::write_open;
use crate::requests::remember;
use crate::row::{Entry, fate_columns, is_held, job_id, job_state, job_uuid, millis, shards};
use crate::work::Work;

/// A put, ready to be written.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) put: Put,
    pub(crate) record: String,
    pub(crate) born: Option<Entry>,
}

/// Nothing fires in them until the transaction ends.
pub(crate) const TAKE_SHARDS: &str =
    "select shard, owner from shards where shard = any($1) order by shard for update";

const LOCK_JOBS: &str = "
select id, version, record::json ->> 'key' from jobs where id = any($1) order by id for update";

/// The version that open runs were fired with.
const KEEP_VERSION: &str = "
insert into job_versions select id, version, tenant, record from jobs
where id = $1 and exists (select from open_runs where job = $1) on conflict do nothing";

const WRITE_JOB: &str = "
insert into jobs (id, tenant, version, state, fired, completed_at, record) values ($1, $2, $3, $4, 0, null, $5)
on conflict (id) do update set tenant = excluded.tenant, version = excluded.version, state = excluded.state,
    record = excluded.record";

const WAITING: &str = "
select seq, revision, record, line from open_runs where job = $1 and line <> 2 order by seq for update";

impl Postgres {
    pub(crate) async fn change(
        &self,
        changes: &[Change],
        now: Timestamp,
    ) -> Result<Vec<Result<(), Refused>>, Failed> {
        let shards = shards(changes.iter().map(|change| change.put.job.id));
        self.ensure_current(now).await?;
        transact!(self, |client| {
            let transaction = Work::begin(&mut client).await?;
            let take = transaction.prepare_cached(TAKE_SHARDS).await?;
            let held = transaction.query(&take, &[&shards]).await?;
            let answers = self.change_in(&transaction, changes, &held, now).await?;
            transaction.commit(self).await?;
            Ok(answers)
        })
    }

    /// Changes jobs in a transaction that has taken their shards; `held` are those that live here.
    pub(crate) async fn change_in(
        &self,
        transaction: &Work<'_>,
        changes: &[Change],
        held: &[Row],
        now: Timestamp,
    ) -> Result<Vec<Result<(), Refused>>, Failed> {
        let ids: Vec<Uuid> = changes.iter().map(|change| job_uuid(change.put.job.id)).collect();
        let lock = transaction.prepare_cached(LOCK_JOBS).await?;
        let rows = transaction.query(&lock, &[&ids]).await?;
        let mut jobs: HashMap<JobId, (Version, Option<String>)> = rows
            .iter()
            .map(|row| (job_id(row.get(0)), (Version(row.get::<_, i32>(1) as u32), row.get(2))))
            .collect();
        let (mut answers, mut due) = (Vec::with_capacity(changes.len()), Vec::new());
        for change in changes {
            let answer = match is_held(held, change.put.job.id.shard()) {
                true => self.change_one(transaction, change, &jobs, now).await?,
                false => Err(Refused::Elsewhere),
            };
            if let Ok(taken) = &answer {
                let job = &change.put.job;
                jobs.insert(job.id, (job.version, change.key().map(String::from)));
                due.extend(taken);
            }
            answers.push(answer.map(|_| ()));
        }
        self.wakeups.tell(transaction, held, due.iter(), now).await?;
        Ok(answers)
    }

    /// Returns the entry that is due now.
    async fn change_one(
        &self,
        transaction: &Work<'_>,
        change: &Change,
        jobs: &HashMap<JobId, (Version, Option<String>)>,
        now: Timestamp,
    ) -> Result<Result<Option<Due>, Refused>, Failed> {
        let put = &change.put;
        let job = &put.job;
        let old = jobs.get(&job.id);
        match (put.expect, old) {
            (Expect::Absent, None) => {}
            (Expect::Absent, Some((current, _))) => {
                return refuse(Refused::WrongVersion { current: *current });
            }
            (Expect::Version(_), None) => return refuse(Refused::NoJob),
            (Expect::Version(version), Some((current, _))) if version != *current => {
                return refuse(Refused::WrongVersion { current: *current });
            }
            (Expect::Version(_), Some(_)) => {}
        }
        if !put.unfired.is_empty() && find(transaction, &put.unfired).await?.is_none() {
            return refuse(Refused::NotDue);
        }
        if let Some(key) = change.key() {
            let sql = "select job from job_keys where tenant = $1 and key = $2 and job <> $3";
            let statement = transaction.prepare_cached(sql).await?;
            let values: [&(dyn ToSql + Sync); 3] = [&(job.tenant.0 as i32), &key, &job_uuid(job.id)];
            if let Some(row) = transaction.query_opt(&statement, &values).await? {
                return refuse(Refused::KeyTaken { by: job_id(row.get(0)) });
            }
        }
        if let Some(request) = &put.request
            && remember(transaction, &[(request, job.id.shard())], now).await? != [true]
        {
            return refuse(Refused::Repeated);
        }
        write_job(transaction, change, old.and_then(|(_, key)| key.as_deref())).await?;
        self.change_open_runs(transaction, change, now).await?;
        if put.lets_overlap {
            release_all(transaction, job.id, now).await?;
        }
        insert_ledger(transaction, &ledger_columns(&put.ledger)).await?;
        append(transaction, put.audit.as_deref().as_slice()).await?;
        let carried = match &put.carry {
            Some(carry) => self.carry(transaction, change, carry, now).await?,
            None => None,
        };
        let columns: DueColumns = put.unfired.iter().collect();
        let delete = transaction.prepare_cached(DELETE_DUE).await?;
        transaction.execute(&delete, &due_params!(columns)).await?;
        let has_open_runs = put.due_when == DueWhen::Idle && !is_idle(transaction, job.id).await?;
        let taken = carried.or(put.due.filter(|_| put.is_wanted(has_open_runs)));
        if put.is_over(taken, has_open_runs) {
            end_jobs(transaction, [(job.id, job.version, job.spec.policies.retention.keep.at_birth())], now)
                .await?;
        }
        if let Some(due) = &taken {
            let columns: DueColumns = [due].into_iter().collect();
            let statement = transaction.prepare_cached(INSERT_DUE).await?;
            transaction.execute(&statement, &due_params!(columns)).await?;
        }
        if let Some(born) = &change.born {
            let mut open = OpenColumns::default();
            open.push(born, now);
            write_open(transaction, &open).await?;
        }
        Ok(Ok(taken))
    }

    /// Takes the old version's entry away, if it is still there, and returns what is due instead.
    async fn carry(
        &self,
        transaction: &Work<'_>,
        change: &Change,
        carry: &Carry,
        now: Timestamp,
    ) -> Result<Option<Due>, Failed> {
        let Some(at) = find(transaction, &carry.candidates).await? else { return Ok(None) };
        let unfired = &carry.candidates[at..];
        let columns: DueColumns = unfired[..1].iter().collect();
        let statement = transaction.prepare_cached(DELETE_DUE).await?;
        transaction.execute(&statement, &due_params!(columns)).await?;
        match carry.to {
            CarryTo::Due => Ok(Some(unfired[0].of(&change.put.job))),
            CarryTo::Ledger(fate) => {
                let entry = ledger_entry(&change.put.job, unfired, fate, now);
                insert_ledger(transaction, &ledger_columns([&entry])).await?;
                Ok(None)
            }
            CarryTo::Nothing => Ok(None),
        }
    }

    async fn change_open_runs(
        &self,
        transaction: &Work<'_>,
        change: &Change,
        now: Timestamp,
    ) -> Result<(), Failed> {
        let (job, what) = (&change.put.job, change.put.open_runs);
        if what == OpenRuns::Keep {
            return Ok(());
        }
        let statement = transaction.prepare_cached(WAITING).await?;
        let (mut ended, mut open) = (Ended::default(), OpenColumns::default());
        for row in transaction.query(&statement, &[&job_uuid(job.id)]).await? {
            let mut entry = Entry::read(&row)?;
            entry.revision += 1;
            match what {
                OpenRuns::Keep => {}
                OpenRuns::Update => {
                    let lane = entry.run.lane;
                    entry.run.update(job, &change.put.limits);
                    // Whoever counts by lane sees it go from one to the other.
                    open.moves.change_line(lane, entry.stands, None);
                    open.moves.change_line(entry.run.lane, None, entry.stands);
                    open.push(&entry, now);
                }
                OpenRuns::CancelPending => {
                    if lifecycle::apply(&mut entry.run, Event::Cancelled { at: now }).is_ok() {
                        ended.push(&entry, now);
                    }
                }
            }
        }
        self.ensure(ended.partitions.iter().copied()).await?;
        end(transaction, &ended).await?;
        write_open(transaction, &open).await
    }
}

fn refuse<T>(refused: Refused) -> Result<Result<T, Refused>, Failed> {
    Ok(Err(refused))
}

/// The place of the first of these entries that is there.
async fn find(transaction: &Work<'_>, entries: &[Due]) -> Result<Option<usize>, Failed> {
    let columns: DueColumns = entries.iter().collect();
    let statement = transaction.prepare_cached(FIND_DUE).await?;
    let rows = transaction.query(&statement, &due_params!(columns)).await?;
    Ok(rows.iter().map(|row| row.get::<_, i64>(0) as usize - 1).min())
}

async fn is_idle(transaction: &Work<'_>, job: JobId) -> Result<bool, Failed> {
    let sql = "select not exists (select from open_runs where job = $1)";
    let statement = transaction.prepare_cached(sql).await?;
    Ok(transaction.query_one(&statement, &[&job_uuid(job)]).await?.get(0))
}

async fn write_job(transaction: &Work<'_>, change: &Change, old_key: Option<&str>) -> Result<(), Failed> {
    let job = &change.put.job;
    let (id, tenant) = (job_uuid(job.id), job.tenant.0 as i32);
    let keep = transaction.prepare_cached(KEEP_VERSION).await?;
    transaction.execute(&keep, &[&id]).await?;
    let write = transaction.prepare_cached(WRITE_JOB).await?;
    let version = job.version.0 as i32;
    let values: [&(dyn ToSql + Sync); 5] = [&id, &tenant, &version, &job_state(&job.state), &change.record];
    transaction.execute(&write, &values).await?;
    if old_key == change.key() {
        return Ok(());
    }
    if let Some(key) = old_key {
        let sql = "delete from job_keys where tenant = $1 and key = $2 and job = $3";
        let statement = transaction.prepare_cached(sql).await?;
        transaction.execute(&statement, &[&tenant, &key, &id]).await?;
    }
    if let Some(key) = change.key() {
        let statement = transaction.prepare_cached("insert into job_keys values ($1, $2, $3)").await?;
        transaction.execute(&statement, &[&tenant, &key, &id]).await?;
    }
    Ok(())
}

/// Ledger entries as columns.
#[derive(Debug, Default)]
pub(crate) struct LedgerColumns {
    job: Vec<Uuid>,
    from: Vec<i64>,
    to: Vec<i64>,
    slots: Vec<i64>,
    fate: Vec<i16>,
    tenant: Vec<i32>,
    decided_at: Vec<i64>,
    cap: Vec<Option<i16>>,
}

pub(crate) fn ledger_columns<'a>(entries: impl IntoIterator<Item = &'a LedgerEntry>) -> LedgerColumns {
    let mut columns = LedgerColumns::default();
    for entry in entries {
        columns.job.push(job_uuid(entry.job));
        columns.from.push(millis(entry.from));
        columns.to.push(millis(entry.to));
        columns.slots.push(entry.slots as i64);
        let (fate, cap) = fate_columns(entry.fate);
        columns.fate.push(fate);
        columns.cap.push(cap);
        columns.tenant.push(entry.tenant.0 as i32);
        columns.decided_at.push(millis(entry.decided_at));
    }
    columns
}

const INSERT_LEDGER: &str = "
insert into ledger (job, from_slot, to_slot, slots, fate, tenant, decided_at, cap)
select * from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::smallint[], $6::int[], $7::bigint[],
    $8::smallint[])
on conflict (job, from_slot) do update set to_slot = excluded.to_slot, slots = excluded.slots, fate = excluded.fate,
    decided_at = excluded.decided_at, cap = excluded.cap";

pub(crate) async fn insert_ledger(transaction: &Work<'_>, entries: &LedgerColumns) -> Result<(), Failed> {
    if entries.job.is_empty() {
        return Ok(());
    }
    let LedgerColumns { job, from, to, slots, fate, tenant, decided_at, cap } = entries;
    let statement = transaction.prepare_cached(INSERT_LEDGER).await?;
    let values: [&(dyn ToSql + Sync); 8] = [job, from, to, slots, fate, tenant, decided_at, cap];
    transaction.execute(&statement, &values).await?;
    Ok(())
}
