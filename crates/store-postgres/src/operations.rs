//! Operations: steps that are done once, and saved with what they do.
//!
//! The version is the compare-and-set: whoever writes the next one does the step.

use jiff::Timestamp;
use punctual_domain::id::{OperationId, Sequence, TenantId, Version};
use punctual_domain::{Operation, Run};
use punctual_store::record::{decode_operation, encode_operation};
use punctual_store::{
    Admission, EXAMINED_MAX, Effect, Error, OperationFilter, Page, PageRequest, Parent, Put, Refused,
    Runnable, Shards, Step, Stepped,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::audit::append;
use crate::change::{Change, TAKE_SHARDS, insert_ledger, ledger_columns};
use crate::error::{Failed, damaged, failed};
use crate::fire::SHARE_SHARDS;
use crate::limit::settle;
use crate::overlap::admit;
use crate::people::{acknowledge, redrive};
use crate::postgres::{Postgres, transact};
use crate::put_jobs::create;
use crate::requests::remember;
use crate::row::{DELETED, is_held, job_uuid, millis, numbers, shard, timestamp};
use crate::work::Work;

/// The columns of [`read`].
const COLUMNS: &str = "id, tenant, version, record";

const WRITE: &str = "
insert into operations values ($1, $2, $3, $4, $5, $6, $7)
on conflict (id) do update set version = excluded.version, record = excluded.record, resume_at = excluded.resume_at,
    finished_at = excluded.finished_at";

/// Those that may go on, and the first that may not yet.
const RUNNABLE: &str = "
select id, tenant, version, record, resume_at from operations
where resume_at is not null and ($1::smallint[] is null or shard = any($1)) order by resume_at, id limit $2";

/// Reads an operation from a row of [`COLUMNS`].
pub(crate) fn read(row: &Row) -> Result<Operation, Error> {
    let (id, record): (Uuid, &str) = (row.get(0), row.get(3));
    let (tenant, version): (i32, i32) = (row.get(1), row.get(2));
    let id = OperationId::from_bytes(*id.as_bytes());
    decode_operation(id, TenantId(tenant as u32), Version(version as u32), record.as_bytes())
}

fn uuid(id: OperationId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

impl Postgres {
    pub(crate) async fn step(
        &self,
        steps: Vec<Step>,
        now: Timestamp,
    ) -> Result<Vec<Result<Stepped, Refused>>, Failed> {
        let mut answers = Vec::with_capacity(steps.len());
        for step in steps {
            let births = match &step.effect {
                Effect::Births { births, .. } => births.len(),
                Effect::Message(_) => 1,
                Effect::Nothing
                | Effect::Redrive(_)
                | Effect::Acknowledge(_)
                | Effect::Change(_)
                | Effect::Cancel(_) => 0,
            };
            let sequences = self.sequences.take(self, births, now).await?;
            self.ensure_current(now).await?;
            answers.push(transact!(self, |client| {
                let transaction = Work::begin(&mut client).await?;
                let mut answer = self.take_step(&transaction, &step, &sequences, now).await?;
                if let Ok(stepped) = &mut answer {
                    let settled = transaction.commit(self).await?;
                    let runs = std::mem::take(&mut stepped.runs);
                    stepped.runs = runs.into_iter().map(|run| settle(&settled, run)).collect();
                }
                Ok(answer)
            })?);
        }
        Ok(answers)
    }

    async fn take_step(
        &self,
        transaction: &Work<'_>,
        step: &Step,
        sequences: &[Sequence],
        now: Timestamp,
    ) -> Result<Result<Stepped, Refused>, Failed> {
        let mut operation = step.operation.clone();
        let mut shards = vec![operation.id.shard().0 as i16];
        let mut hold = SHARE_SHARDS;
        match &step.effect {
            Effect::Nothing | Effect::Redrive(_) | Effect::Acknowledge(_) => {}
            Effect::Births { job, .. } => shards.push(shard(*job)),
            Effect::Message(put) => shards.push(shard(put.job.id)),
            Effect::Cancel(cancellations) => {
                shards.extend(cancellations.iter().map(|one| one.run.shard().0 as i16));
            }
            Effect::Change(puts) => {
                shards.extend(puts.iter().map(|put| shard(put.job.id)));
                hold = TAKE_SHARDS;
            }
        }
        let hold = transaction.prepare_cached(hold).await?;
        let held = transaction.query(&hold, &[&shards]).await?;
        if !is_held(&held, operation.id.shard()) {
            return Ok(Err(Refused::Elsewhere));
        }
        if let Some(epoch) = step.epoch {
            let sql = "select from shards where shard = $1 and epoch = $2 and owner is not null";
            let statement = transaction.prepare_cached(sql).await?;
            if transaction.query_opt(&statement, &[&shards[0], &(epoch.0 as i64)]).await?.is_none() {
                return Ok(Err(Refused::StaleEpoch));
            }
        }
        if !is_next(transaction, &operation).await? {
            return Ok(Err(Refused::StaleStep));
        }
        if let Effect::Births { job, version, .. } = &step.effect {
            let find = transaction.prepare_cached("select version, state from jobs where id = $1").await?;
            match transaction.query_opt(&find, &[&job_uuid(*job)]).await? {
                Some(row) if row.get::<_, i16>(1) != DELETED => {
                    let current = Version(row.get::<_, i32>(0) as u32);
                    if current != *version {
                        return Ok(Err(Refused::WrongVersion { current }));
                    }
                }
                _ => return Ok(Err(Refused::NoJob)),
            }
        }
        let admission = match &step.effect {
            Effect::Births { job, births, .. } => admit(transaction, *job, births.clone()).await?.patiently(),
            Effect::Nothing
            | Effect::Redrive(_)
            | Effect::Acknowledge(_)
            | Effect::Change(_)
            | Effect::Message(_)
            | Effect::Cancel(_) => Ok(Admission::default()),
        };
        let admission = match admission {
            Ok(admission) => admission,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Some(request) = &step.request
            && remember(transaction, &[(request, operation.id.shard())], now).await? != [true]
        {
            return Ok(Err(Refused::Repeated));
        }
        let given = Given { step, held: &held, admission, sequences };
        let runs = self.take_effect(transaction, given, &mut operation, now).await?;
        insert_ledger(transaction, &ledger_columns(&step.ledger)).await?;
        append(transaction, step.audit.as_deref().as_slice()).await?;
        write_operation(transaction, &operation).await?;
        Ok(Ok(Stepped { operation, runs }))
    }

    pub(crate) async fn runnable(
        &self,
        shards: &Shards,
        now: Timestamp,
        limit: usize,
    ) -> Result<Runnable, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(RUNNABLE).await.map_err(failed)?;
        let rows =
            client.query(&statement, &[&numbers(shards), &(limit as i64 + 1)]).await.map_err(failed)?;
        let mut runnable = Runnable { operations: Vec::new(), next_at: None };
        for row in &rows {
            let resume_at: i64 = row.get(4);
            if resume_at > millis(now) || runnable.operations.len() == limit {
                runnable.next_at = Some(timestamp(resume_at)?);
                break;
            }
            runnable.operations.push(read(row)?);
        }
        Ok(runnable)
    }

    pub(crate) async fn operation(&self, id: OperationId) -> Result<Option<Operation>, Failed> {
        let client = self.connection().await?;
        let sql = format!("select {COLUMNS} from operations where id = $1");
        let statement = client.prepare_cached(&sql).await.map_err(failed)?;
        let row = client.query_opt(&statement, &[&uuid(id)]).await.map_err(failed)?;
        Ok(row.as_ref().map(read).transpose()?)
    }

    pub(crate) async fn operations(
        &self,
        filter: &OperationFilter,
        page: &PageRequest<OperationId>,
    ) -> Result<Page<Operation, OperationId>, Failed> {
        let client = self.connection().await?;
        let of_tenant = if filter.tenant.is_some() { "tenant = $1" } else { "$1::int is null" };
        let sql = format!(
            "select {COLUMNS} from operations where {of_tenant} and id < $2 order by id desc limit $3"
        );
        let statement = client.prepare_cached(&sql).await.map_err(failed)?;
        let below = page.after.map_or(Uuid::max(), uuid);
        let tenant = filter.tenant.map(|tenant| tenant.0 as i32);
        let limit = EXAMINED_MAX as i64 + 1;
        let values: [&(dyn ToSql + Sync); 3] = [&tenant, &below, &limit];
        let mut found = Page { items: Vec::new(), next: None };
        for (examined, row) in client.query(&statement, &values).await.map_err(failed)?.iter().enumerate() {
            let operation = read(row)?;
            let is_wanted = filter.matches(&operation);
            // There is more: it starts after the last row that was looked at.
            if examined == EXAMINED_MAX || (is_wanted && found.items.len() == page.limit) {
                return Ok(found);
            }
            found.next = Some(operation.id);
            if is_wanted {
                found.items.push(operation);
            }
        }
        found.next = None;
        Ok(found)
    }
}

/// A step, and what was found out about it.
struct Given<'a> {
    step: &'a Step,
    /// The shards that the transaction holds.
    held: &'a [Row],
    admission: Admission,
    sequences: &'a [Sequence],
}

impl Postgres {
    /// Does what a step is about, and counts it in its operation. Returns the runs.
    async fn take_effect(
        &self,
        transaction: &Work<'_>,
        given: Given<'_>,
        operation: &mut Operation,
        now: Timestamp,
    ) -> Result<Vec<Run>, Failed> {
        let Given { step, held, admission, sequences } = given;
        let mut runs = Vec::new();
        match &step.effect {
            Effect::Nothing => {}
            Effect::Redrive(ids) => {
                for id in ids {
                    match redrive(transaction, *id, now).await? {
                        Ok(run) => runs.push(run),
                        Err(_) => operation.failed += 1,
                    }
                }
                operation.done += runs.len() as u64;
            }
            Effect::Acknowledge(ids) => {
                for id in ids {
                    match acknowledge(transaction, *id).await? {
                        0 => operation.failed += 1,
                        _ => operation.done += 1,
                    }
                }
            }
            Effect::Births { job, version, .. } => {
                let of = Parent { job: *job, tenant: step.operation.tenant, version: *version };
                operation.failed += admission.skipped.len() as u64;
                runs = self.give_births(transaction, of, admission, sequences, now).await?;
                operation.done += runs.len() as u64;
            }
            Effect::Change(puts) => {
                let change = |put: &Put| Change::of(put.clone(), None, now);
                let changes = puts.iter().map(change).collect::<Result<Vec<_>, _>>()?;
                let answers = self.change_in(transaction, &changes, held, now).await?;
                let jobs = puts.iter().map(|put| put.job.id);
                Effect::count_changes(operation, jobs.zip(&answers));
            }
            Effect::Message(put) => {
                let told = Change::of(Put::clone(put), sequences.first().copied(), now)?;
                create(transaction, &[&told], held, now).await?; // Refused if it is there already.
            }
            Effect::Cancel(cancellations) => {
                let answers = self.cancel_in(transaction, cancellations, now).await?;
                let ids = cancellations.iter().map(|one| one.run);
                runs = Effect::count_cancelled(operation, ids.zip(answers));
            }
        }
        Ok(runs)
    }
}

/// Whether an operation is the one after what is stored, which is held until the transaction ends.
async fn is_next(transaction: &Work<'_>, operation: &Operation) -> Result<bool, Failed> {
    let sql = "select version, finished_at is null from operations where id = $1 for update";
    let statement = transaction.prepare_cached(sql).await?;
    Ok(match transaction.query_opt(&statement, &[&uuid(operation.id)]).await? {
        Some(row) => row.get(1) && Version(row.get::<_, i32>(0) as u32).next() == operation.version,
        None => operation.version == Version::FIRST,
    })
}

pub(crate) async fn write_operation(transaction: &Work<'_>, operation: &Operation) -> Result<(), Failed> {
    let record = String::from_utf8(encode_operation(operation)?)
        .map_err(|_| damaged("an operation whose record is not text"))?;
    let statement = transaction.prepare_cached(WRITE).await?;
    let (id, shard) = (uuid(operation.id), operation.id.shard().0 as i16);
    let (tenant, version) = (operation.tenant.0 as i32, operation.version.0 as i32);
    let resume_at = operation.is_running().then(|| millis(operation.resume_at));
    let finished_at = operation.finished_at.map(millis);
    let values: [&(dyn ToSql + Sync); 7] =
        [&id, &shard, &tenant, &version, &record, &resume_at, &finished_at];
    transaction.execute(&statement, &values).await?;
    Ok(())
}
