//! Register: new jobs, in bulk; and runs outside the schedule.

use std::collections::HashMap;

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::id::{JobId, RunId, Sequence, ShardId, Version};
use punctual_domain::policy::overlap::Overlap;
use punctual_store::audit::of_run;
use punctual_store::{Birth, Error, Expect, OpenRuns, Parent, Put, Refused, Subject, Trigger};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::audit::append;
use crate::change::{Change, insert_ledger, ledger_columns};
use crate::due::{DueColumns, INSERT_DUE, due_params};
use crate::ended::end_jobs;
use crate::error::Failed;
use crate::fire::SHARE_SHARDS;
use crate::limit::settle;
use crate::open_runs::{OpenColumns, WRITE_OPEN, open_params};
use crate::overlap::{admit, take_jobs};
use crate::postgres::{Postgres, transact};
use crate::requests::remember;
use crate::row::{DELETED, Entry, is_held, job_id, job_record, job_state, job_uuid, shards};
use crate::work::Work;

const INSERT_JOBS: &str = "
insert into jobs (id, tenant, version, state, fired, completed_at, record)
select id, tenant, version, state, 0, null, record
from unnest($1::uuid[], $2::int[], $3::int[], $4::smallint[], $5::text[]) x (id, tenant, version, state, record)";

pub(crate) const HOLDERS: &str = "
select x.n, k.job from unnest($1::int[], $2::text[]) with ordinality x (tenant, key, n)
join job_keys k on k.tenant = any(array[x.tenant]) and k.key = x.key";

impl Postgres {
    pub(crate) async fn put_jobs(
        &self,
        puts: Vec<Put>,
        now: Timestamp,
    ) -> Result<Vec<Result<Option<Run>, Refused>>, Failed> {
        let births = puts.iter().filter(|put| put.birth.is_some()).count();
        let mut sequences = self.sequences.take(self, births, now).await?.into_iter();
        let (mut new, mut changes, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let mut answers: Vec<Option<Result<Option<Run>, Refused>>> = Vec::with_capacity(puts.len());
        for (place, put) in puts.into_iter().enumerate() {
            answers.push(None);
            let sequence = put.birth.as_ref().and_then(|_| sequences.next());
            match is_new(&put) {
                true => new.push((place, Change::of(put, sequence, now)?)),
                false => {
                    changes.push(Change::of(put, sequence, now)?);
                    places.push(place);
                }
            }
        }
        if !new.is_empty() {
            let shards = shards(new.iter().map(|(_, change)| change.put.job.id));
            let told = transact!(self, |client| {
                let transaction = Work::begin(&mut client).await?;
                let share = transaction.prepare_cached(SHARE_SHARDS).await?;
                let held = transaction.query(&share, &[&shards]).await?;
                let changes: Vec<&Change> = new.iter().map(|(_, change)| change).collect();
                let answers = create(&transaction, &changes, &held, now).await?;
                let made = new.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
                let due = made.filter_map(|((_, change), _)| change.put.due.as_ref());
                self.wakeups.tell(&transaction, &held, due, now).await?;
                let settled = transaction.commit(self).await?;
                let born = new.iter().map(|(_, change)| change.born.as_ref());
                let born = born.map(|born| born.map(|entry| settle(&settled, entry.run.clone())));
                Ok(answers
                    .into_iter()
                    .zip(born)
                    .map(|(answer, born)| answer.map(|()| born))
                    .collect::<Vec<_>>())
            })?;
            for ((place, _), answer) in new.iter().zip(told) {
                answers[*place] = Some(answer);
            }
        }
        if !changes.is_empty() {
            for (place, answer) in places.into_iter().zip(self.change(&changes, now).await?) {
                answers[place] = Some(answer.map(|()| None));
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    pub(crate) async fn trigger(
        &self,
        triggers: Vec<Trigger>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Failed> {
        let sequences = self.sequences.take(self, triggers.len(), now).await?;
        let shards = shards(triggers.iter().map(|trigger| trigger.job));
        self.ensure_current(now).await?;
        transact!(self, |client| {
            let transaction = Work::begin(&mut client).await?;
            let share = transaction.prepare_cached(SHARE_SHARDS).await?;
            let held = transaction.query(&share, &[&shards]).await?;
            // All at once, in their order: each is decided after the one before.
            // Of a job in parts all parts are of one version: nobody changes it meanwhile.
            let is_ruled =
                |birth: &Birth| birth.overlap != Overlap::Allow || birth.parts.is_some_and(|parts| parts > 1);
            let ruled = triggers.iter().filter(|trigger| is_ruled(&trigger.birth));
            let ruled: Vec<JobId> = ruled.map(|trigger| trigger.job).collect();
            if !ruled.is_empty() {
                take_jobs(&transaction, ruled).await?;
            }
            let mut answers: Vec<Result<Run, Refused>> = Vec::with_capacity(triggers.len());
            // The last one that was refused: whatever goes with it is refused, too.
            let mut refused: Option<(&Trigger, Refused)> = None;
            for (trigger, sequence) in triggers.iter().zip(&sequences) {
                if let Some((first, why)) = &refused
                    && trigger.goes_with(first)
                {
                    answers.push(Err(why.clone()));
                    continue;
                }
                if !is_held(&held, trigger.job.shard()) {
                    answers.push(Err(Refused::Elsewhere));
                    continue;
                }
                let answer = self.trigger_one(&transaction, trigger, *sequence, now).await?;
                refused = answer.as_ref().err().map(|why| (trigger, why.clone()));
                answers.push(answer);
            }
            let settled = transaction.commit(self).await?;
            let settled = |run: Run| settle(&settled, run);
            Ok(answers.into_iter().map(|answer| answer.map(settled)).collect())
        })
    }
}

/// Nothing but new: it may go with others.
fn is_new(put: &Put) -> bool {
    put.expect == Expect::Absent
        && put.carry.is_none()
        && put.unfired.is_empty()
        && put.open_runs == OpenRuns::Keep
        && put.ledger.is_empty()
}

/// Writes new jobs in a transaction that shares their shards; tells which were refused.
pub(crate) async fn create(
    transaction: &Work<'_>,
    new: &[&Change],
    held: &[Row],
    now: Timestamp,
) -> Result<Vec<Result<(), Refused>>, Failed> {
    let is_here = |change: &Change| is_held(held, change.put.job.id.shard());
    let mut answers: Vec<Result<(), Refused>> =
        new.iter().map(|change| is_here(change).then_some(()).ok_or(Refused::Elsewhere)).collect();
    refuse_known(transaction, new, &mut answers).await?;
    refuse_keys(transaction, new, &mut answers).await?;
    let asking = |place: &usize| answers[*place].is_ok() && new[*place].put.request.is_some();
    let asking: Vec<usize> = (0..new.len()).filter(asking).collect();
    let asked = |place: &usize| &new[*place].put;
    let requests: Vec<(&Subject, ShardId)> = asking
        .iter()
        .map(asked)
        .filter_map(|put| Some((put.request.as_ref()?, put.job.id.shard())))
        .collect();
    for (place, is_new) in asking.iter().zip(remember(transaction, &requests, now).await?) {
        if !is_new {
            answers[*place] = Err(Refused::Repeated);
        }
    }
    let made = new.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
    let kept: Vec<&Change> = made.map(|(change, _)| *change).collect();
    write(transaction, &kept, now).await?;
    Ok(answers)
}

/// Refuses what is there already, or twice in the list.
async fn refuse_known(
    transaction: &Work<'_>,
    new: &[&Change],
    answers: &mut [Result<(), Refused>],
) -> Result<(), Failed> {
    let ids: Vec<Uuid> = new.iter().map(|change| job_uuid(change.put.job.id)).collect();
    let statement = transaction.prepare_cached("select id, version from jobs where id = any($1)").await?;
    let rows = transaction.query(&statement, &[&ids]).await?;
    let mut known: HashMap<JobId, Version> =
        rows.iter().map(|row| (job_id(row.get(0)), Version(row.get::<_, i32>(1) as u32))).collect();
    for (change, answer) in new.iter().zip(answers) {
        let job = &change.put.job;
        if let Some(current) = known.insert(job.id, job.version) {
            *answer = Err(Refused::WrongVersion { current });
        }
    }
    Ok(())
}

/// Refuses keys that others have, or that are twice in the list.
async fn refuse_keys(
    transaction: &Work<'_>,
    new: &[&Change],
    answers: &mut [Result<(), Refused>],
) -> Result<(), Failed> {
    let keyed: Vec<usize> =
        (0..new.len()).filter(|place| answers[*place].is_ok() && new[*place].key().is_some()).collect();
    if keyed.is_empty() {
        return Ok(());
    }
    let tenants: Vec<i32> = keyed.iter().map(|place| new[*place].put.job.tenant.0 as i32).collect();
    let keys: Vec<&str> = keyed.iter().filter_map(|place| new[*place].key()).collect();
    let statement = transaction.prepare_cached(HOLDERS).await?;
    for row in transaction.query(&statement, &[&tenants, &keys]).await? {
        let place = keyed[row.get::<_, i64>(0) as usize - 1];
        answers[place] = Err(Refused::KeyTaken { by: job_id(row.get(1)) });
    }
    let mut holders = HashMap::new();
    for place in keyed.into_iter().filter(|place| answers[*place].is_ok()).collect::<Vec<_>>() {
        let job = &new[place].put.job;
        if let Some(by) = holders.insert((job.tenant, job.spec.key.clone()), job.id) {
            holders.insert((job.tenant, job.spec.key.clone()), by);
            answers[place] = Err(Refused::KeyTaken { by });
        }
    }
    Ok(())
}

/// Writes jobs that were found to be new, with all that belongs to them.
async fn write(transaction: &Work<'_>, new: &[&Change], now: Timestamp) -> Result<(), Failed> {
    if new.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = new.iter().map(|change| job_uuid(change.put.job.id)).collect();
    let tenants: Vec<i32> = new.iter().map(|change| change.put.job.tenant.0 as i32).collect();
    let versions: Vec<i32> = new.iter().map(|change| change.put.job.version.0 as i32).collect();
    let states: Vec<i16> = new.iter().map(|change| job_state(&change.put.job.state)).collect();
    let records: Vec<&str> = new.iter().map(|change| change.record.as_str()).collect();
    let insert = transaction.prepare_cached(INSERT_JOBS).await?;
    let values: [&(dyn ToSql + Sync); 5] = [&ids, &tenants, &versions, &states, &records];
    transaction.execute(&insert, &values).await?;

    let keyed = new.iter().filter(|change| change.key().is_some());
    let (mut key_tenants, mut keys, mut key_jobs) = (Vec::new(), Vec::new(), Vec::new());
    for change in keyed {
        key_tenants.push(change.put.job.tenant.0 as i32);
        keys.push(change.key().unwrap_or_default());
        key_jobs.push(job_uuid(change.put.job.id));
    }
    if !keys.is_empty() {
        let sql = "insert into job_keys select * from unnest($1::int[], $2::text[], $3::uuid[])";
        let insert = transaction.prepare_cached(sql).await?;
        transaction.execute(&insert, &[&key_tenants, &keys, &key_jobs]).await?;
    }
    let due: DueColumns = new.iter().filter_map(|change| change.put.due.as_ref()).collect();
    if !due.at.is_empty() {
        let insert = transaction.prepare_cached(INSERT_DUE).await?;
        transaction.execute(&insert, &due_params!(due)).await?;
    }
    let is_over = |change: &&&Change| change.put.is_over(change.put.due, false);
    let over = new.iter().filter(is_over).map(|change| &change.put.job);
    end_jobs(
        transaction,
        over.map(|job| (job.id, job.version, job.spec.policies.retention.keep.at_birth())),
        now,
    )
    .await?;
    let mut born = OpenColumns::default();
    new.iter().filter_map(|change| change.born.as_ref()).for_each(|entry| born.push(entry, now));
    write_open(transaction, &born).await?;
    let entries: Vec<_> = new.iter().filter_map(|change| change.put.audit.as_deref()).collect();
    append(transaction, &entries).await?;
    insert_ledger(transaction, &ledger_columns(new.iter().flat_map(|change| &change.put.ledger))).await
}

pub(crate) async fn write_open(transaction: &Work<'_>, open: &OpenColumns) -> Result<(), Failed> {
    transaction.note(&open.limited);
    write_rows(transaction, open).await
}

/// The same for runs whose limits are settled.
pub(crate) async fn write_rows(transaction: &Work<'_>, open: &OpenColumns) -> Result<(), Failed> {
    if open.seq.is_empty() {
        return Ok(());
    }
    let statement = transaction.prepare_cached(WRITE_OPEN).await?;
    transaction.execute(&statement, &open_params!(open)).await?;
    transaction.moved(&open.moves);
    Ok(())
}

impl Postgres {
    async fn trigger_one(
        &self,
        transaction: &Work<'_>,
        trigger: &Trigger,
        sequence: Sequence,
        now: Timestamp,
    ) -> Result<Result<Run, Refused>, Failed> {
        let find =
            transaction.prepare_cached("select version, state, tenant from jobs where id = $1").await?;
        let tenant = match transaction.query_opt(&find, &[&job_uuid(trigger.job)]).await? {
            None => return Ok(Err(Refused::NoJob)),
            Some(row) if row.get::<_, i16>(1) == DELETED => return Ok(Err(Refused::NoJob)),
            Some(row) if row.get::<_, i32>(0) != trigger.version.0 as i32 => {
                return Ok(Err(Refused::WrongVersion { current: Version(row.get::<_, i32>(0) as u32) }));
            }
            Some(row) => punctual_domain::TenantId(row.get::<_, i32>(2) as u32),
        };
        let admission = match admit(transaction, trigger.job, vec![trigger.birth.clone()]).await?.wholly() {
            Ok(admission) => admission,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Some(request) = &trigger.request {
            let result = match request.result.is_empty() {
                true => RunId::new(sequence, trigger.job.shard()).to_string(),
                false => request.result.clone(),
            };
            let request = Subject { result, ..request.clone() };
            if remember(transaction, &[(&request, trigger.job.shard())], now).await? != [true] {
                return Ok(Err(Refused::Repeated));
            }
        }
        let of = Parent { job: trigger.job, tenant, version: trigger.version };
        let runs = self.give_births(transaction, of, admission, &[sequence], now).await?;
        if let (Some(entry), Some(run)) = (&trigger.audit, runs.first()) {
            append(transaction, &[&*of_run(entry.clone(), run)]).await?;
        }
        Ok(runs.into_iter().next().ok_or(Refused::NoRun))
    }
}

impl Change {
    /// A put, ready to be written: its record, and the run that is born with it.
    pub(crate) fn of(mut put: Put, sequence: Option<Sequence>, now: Timestamp) -> Result<Self, Error> {
        let record = job_record(&put.job)?;
        let born = put.birth.take().zip(sequence).map(|(birth, sequence)| {
            let wish = birth.claimed_by;
            Entry { wish, ..Entry::born(birth.into_run((&*put.job).into(), sequence, now)) }
        });
        Ok(Change { put, record, born })
    }

    /// The key that the job takes.
    pub(crate) fn key(&self) -> Option<&str> {
        let job = &self.put.job;
        job.spec.key.as_deref().filter(|_| job_state(&job.state) != DELETED)
    }
}
