//! Fire: the one-run-per-slot guard.
//!
//! Whoever deletes a due entry decides what becomes of its slot; the runs, the ledger and the next entry are written
//! in the same transaction. The rows of the shards are shared first, and only then is anything read: a change of a job
//! holds its shard's row alone, so what is read afterwards stays true until the commit.

use std::collections::HashMap;
use std::time::Instant;

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::id::JobId;
use punctual_domain::policy::overlap::Overlap;
use punctual_store::{Admission, Firing, Parent, Refused, is_full, is_ruled};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::change::{insert_ledger, ledger_columns};
use crate::client::Client;
use crate::depth::Moves;
use crate::due::DueColumns;
use crate::ended::forget_at;
use crate::error::Failed;
use crate::open_runs::OpenColumns;
use crate::operations::write_operation;
use crate::overlap::{Decided, look, take_jobs};
use crate::postgres::{Postgres, transact};
use crate::row::{COMING, Entry, job_id, job_uuid, millis, shards};
use crate::work::Work;

/// Fires may share a shard; whoever changes its jobs or takes it over may not. Not in the way of its owner, who renews it.
pub(crate) const SHARE_SHARDS: &str =
    "select shard, owner from shards where shard = any($1) order by shard for key share";

/// $1 to $7 are the entries as they were read, $8 their epochs, $9 when to forget their jobs, $10 their shards, each once;
/// $12 to $19 what follows each, after its place; $20 to $32 the runs that are born, after the places of their entries. Due
/// entries and jobs are found by their primary keys, one by one. Tells what was not fired, and whether its shard was owned.
pub(crate) const FIRE: &str = "
with owned as materialized (
    select a.* from unnest($1::smallint[], $2::bigint[], $3::smallint[], $4::int[], $5::uuid[], $6::int[], $7::bigint[],
        $8::bigint[], $9::bigint[])
        with ordinality a (shard, at, lane, tenant, job, version, slot, epoch, forget_at, n)
    where ((a.shard, a.epoch) in (
        select s.shard, s.epoch from shards s where s.shard = any($10::smallint[]) and s.owner is not null)) is true
), gone as (
    delete from due d using owned a
    where d.shard = any(array[a.shard]) and d.at = a.at and d.lane = a.lane and d.tenant = a.tenant and d.job = a.job
        and d.version = a.version and d.slot = a.slot
    returning a.n, a.job, a.version, a.forget_at
), fired as materialized (
    select gone.* from gone join jobs j on j.id = any(array[gone.job]) and j.version = gone.version and j.state = 0
), over as (
    insert into ended_lists (forget_at, count, jobs, versions)
    select forget_at, count(*), array_agg(job), array_agg(version) from fired
    where forget_at is not null group by forget_at
), next as (
    insert into due (shard, at, lane, tenant, job, version, slot)
    select x.shard, x.at, x.lane, x.tenant, x.job, x.version, x.slot
    from unnest($12::bigint[], $13::smallint[], $14::bigint[], $15::smallint[], $16::int[], $17::uuid[], $18::int[],
        $19::bigint[]) x (n, shard, at, lane, tenant, job, version, slot)
    where (x.n in (select n from fired)) is true
    on conflict (shard, at, lane, tenant, job, version) do update set slot = excluded.slot
), born as (
    insert into open_runs (seq, shard, line, lane, urgency, available_at, claimed_at, revision, tenant, job, worker,
        queue, record, start_by)
    select x.seq, x.shard, x.line, x.lane, x.urgency, x.available_at,
        case when x.worker is null then null else (select punctual_now($11)) end, 0, x.tenant, x.job, x.worker, x.queue, x.record,
        x.start_by
    from unnest($20::bigint[], $21::bigint[], $22::smallint[], $23::smallint[], $24::smallint[], $25::int[],
        $26::bigint[], $27::int[], $28::uuid[], $29::uuid[], $30::text[], $31::bytea[], $32::bigint[])
        x (n, seq, shard, line, lane, urgency, available_at, tenant, job, worker, queue, record, start_by)
    where (x.n in (select n from fired)) is true
)
select n, n in (select n from owned) from generate_series(1::bigint, cardinality($1::smallint[])) n
where n not in (select n from fired)";

/// What has been counted now.
pub(crate) const PROGRESS: &str = "
update jobs j set fired = x.fired, completed_at = x.completed_at
from unnest($1::uuid[], $2::bigint[], $3::bigint[]) x (id, fired, completed_at) where j.id = any(array[x.id])";

/// A batch of firings as columns.
#[derive(Default)]
pub(crate) struct Columns {
    due: DueColumns,
    epoch: Vec<i64>,
    forget_at: Vec<Option<i64>>,
    next_of: Vec<i64>,
    next: DueColumns,
    birth_of: Vec<i64>,
    born: OpenColumns,
}

/// Firings that go the same way, and their places.
#[derive(Default)]
struct Kind {
    places: Vec<usize>,
    firings: Vec<Firing>,
}

impl Kind {
    fn push(&mut self, place: usize, firing: Firing) {
        self.places.push(place);
        self.firings.push(firing);
    }
}

impl Postgres {
    pub(crate) async fn fire(
        &self,
        firings: Vec<Firing>,
        now: Timestamp,
    ) -> Result<Vec<Result<Vec<Run>, Refused>>, Failed> {
        if !firings.iter().any(is_decided) {
            return self.fire_free(firings, now).await;
        }
        let mut answers: Vec<Option<Result<Vec<Run>, Refused>>> = firings.iter().map(|_| None).collect();
        let (mut free, mut straight, mut ruled) = (Kind::default(), Kind::default(), Kind::default());
        for (place, firing) in firings.into_iter().enumerate() {
            match is_decided(&firing) {
                false => free.push(place, firing),
                true if !is_ruled(&firing.births) && self.is_straight(&firing, now) => {
                    straight.push(place, firing);
                }
                true => ruled.push(place, firing),
            }
        }
        for (place, answer) in free.places.into_iter().zip(self.fire_free(free.firings, now).await?) {
            answers[place] = Some(answer);
        }
        let gone = self.fire_straight(&straight.firings, now).await?;
        for ((place, firing), answer) in straight.places.into_iter().zip(straight.firings).zip(gone) {
            match answer {
                Some(answer) => answers[place] = Some(answer),
                None => ruled.push(place, firing),
            }
        }
        if !ruled.places.is_empty() {
            for (place, answer) in ruled.places.into_iter().zip(self.fire_ruled(&ruled.firings, now).await?) {
                answers[place] = Some(answer);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Firings whose runs do not care about others.
    async fn fire_free(
        &self,
        firings: Vec<Firing>,
        now: Timestamp,
    ) -> Result<Vec<Result<Vec<Run>, Refused>>, Failed> {
        if firings.is_empty() {
            return Ok(Vec::new());
        }
        let births = firings.iter().map(|firing| firing.births.len()).sum();
        let mut sequences = self.sequences.take(self, births, now).await?.into_iter();
        let mut columns = Columns::default();
        let mut answers = Vec::with_capacity(firings.len());
        let mut extras = Vec::new();
        for (index, mut firing) in firings.into_iter().enumerate() {
            columns.push(index, &firing, now);
            let (of, births) = (firing.parent(), std::mem::take(&mut firing.births));
            let born = births.into_iter().zip(&mut sequences);
            let entries: Vec<Entry> =
                born.map(|(birth, sequence)| Entry::born(birth.into_run(of, sequence, now))).collect();
            entries.iter().for_each(|entry| columns.push_birth(index, entry, now));
            if !firing.ledger.is_empty() || firing.progress.is_some() || firing.operation.is_some() {
                extras.push((index, firing));
            }
            answers.push(entries);
        }
        let shards = shards(columns.due.job.iter().map(|job| job_id(*job)));
        let refused = transact!(self, |client| {
            match extras.is_empty() {
                true => self.fire_at_once(&client, &shards, &columns, now).await,
                false => self.fire_with_extras(&mut client, &shards, &columns, &extras, now).await,
            }
        })?;
        Ok(self.fired(answers, &refusals(&refused), now))
    }

    /// Firings whose runs are decided against what is open of their jobs, or have limits.
    async fn fire_ruled(
        &self,
        firings: &[Firing],
        now: Timestamp,
    ) -> Result<Vec<Result<Vec<Run>, Refused>>, Failed> {
        let births = firings.iter().map(|firing| firing.births.len()).sum();
        let sequences = self.sequences.take(self, births, now).await?;
        let shards = shards(firings.iter().map(|firing| firing.due.key.job));
        self.ensure_current(now).await?;
        let policies: Vec<(JobId, Overlap)> = firings
            .iter()
            .filter(|firing| is_ruled(&firing.births))
            .filter_map(|firing| Some((firing.due.key.job, firing.births.first()?.overlap)))
            .collect();
        let (answers, refused) = transact!(self, |client| {
            let transaction = Work::begin(&mut client).await?;
            let share = transaction.prepare_cached(SHARE_SHARDS).await?;
            transaction.query(&share, &[&shards]).await?;
            let open = match policies.is_empty() {
                true => HashMap::new(),
                false => {
                    take_jobs(&transaction, policies.iter().map(|(job, _)| *job)).await?;
                    look(&transaction, policies.iter().copied()).await?
                }
            };
            let mut sequences = sequences.iter().copied();
            let mut columns = Columns::default();
            let (mut answers, mut decided) = (Vec::new(), Vec::new());
            for (index, firing) in firings.iter().enumerate() {
                let mut firing = firing.clone();
                let of = firing.parent();
                let births = std::mem::take(&mut firing.births);
                let open = open.get(&of.job).copied().unwrap_or_default();
                // Of those that would have passed all their gates some have gone straight; the others wait.
                let admission = Admission::decide(births, open, |_| false);
                if admission.born.is_empty() && !admission.skipped.is_empty() {
                    firing = firing.without_run();
                }
                columns.push(index, &firing, now);
                let (entries, rest) = Decided::of(admission, of, &mut sequences, now);
                let starting = entries.iter().filter(|entry| !entry.run.is_behind());
                starting.for_each(|entry| columns.push_birth(index, entry, now));
                answers.push(entries);
                decided.push((firing, rest));
            }
            let fire = transaction.prepare_cached(FIRE).await?;
            let refused = transaction.query(&fire, &columns.values(&self.callers(now), &&*shards)).await?;
            let refused = refusals(&refused);
            let fired = decided.iter().enumerate().filter(|(index, _)| !refused.contains_key(index));
            let fired: Vec<&(Firing, Decided)> = fired.map(|(_, one)| one).collect();
            let rest: Vec<(Parent, &Decided)> =
                fired.iter().map(|(firing, rest)| (firing.parent(), rest)).collect();
            self.follow(&transaction, &rest, now).await?;
            write_extras(&transaction, fired.iter().map(|(firing, _)| firing)).await?;
            let born = answers.iter().enumerate().filter(|(index, _)| !refused.contains_key(index));
            let limited = born.flat_map(|(_, entries)| entries).filter(|entry| !entry.run.limits.is_empty());
            let limited: Vec<(Entry, Timestamp)> = limited.map(|entry| (entry.clone(), now)).collect();
            transaction.note(&limited);
            let settled = transaction.commit(self).await?;
            for entry in answers.iter_mut().flatten() {
                if let Some(settled) = settled.get(&entry.run.sequence) {
                    *entry = settled.clone();
                }
            }
            Ok((answers, refused))
        })?;
        Ok(self.fired(answers, &refused, now))
    }

    /// Counts and remembers what was fired.
    pub(crate) fn fired(
        &self,
        answers: Vec<Vec<Entry>>,
        refused: &HashMap<usize, Refused>,
        now: Timestamp,
    ) -> Vec<Result<Vec<Run>, Refused>> {
        let mut fired: Vec<Result<Vec<Entry>, Refused>> = answers.into_iter().map(Ok).collect();
        for (place, refused) in refused {
            fired[*place] = Err(refused.clone());
        }
        let mut moves = Moves::default();
        for entry in fired.iter().flatten().flatten() {
            match entry.stands {
                // It was written, and counted, after those that start.
                None if entry.run.is_behind() => {}
                None => moves.push(&entry.run, None, Some(entry.line(now))),
                // It was settled at its gates, and has been counted since; but not that it came there.
                Some(_) => moves.wait(&entry.run, None, Some(COMING)),
            }
        }
        self.moved(&moves);
        let is_held = |entry: &&Entry| entry.run.lease().is_some();
        self.leases.keep(fired.iter().flatten().flatten().filter(is_held).cloned());
        let runs = |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.run).collect();
        fired.into_iter().map(|answer| answer.map(runs)).collect()
    }

    /// In one round trip. Returns what was refused.
    async fn fire_at_once(
        &self,
        client: &Client<'_>,
        shards: &[i16],
        columns: &Columns,
        now: Timestamp,
    ) -> Result<Vec<Row>, Failed> {
        let share = client.prepare_cached(SHARE_SHARDS).await?;
        let fire = client.prepare_cached(FIRE).await?;
        let callers = self.callers(now);
        let shared: [&(dyn ToSql + Sync); 1] = [&shards];
        let values = columns.values(&callers, &shards);
        let begun_at = Instant::now();
        // Sent one after the other without waiting; after a failure the commit is a rollback.
        let (begun, shared, refused, committed) = tokio::join!(
            client.begin(),
            client.query_begun(&share, &shared),
            client.query_begun(&fire, &values),
            client.end(),
        );
        // If the connection broke off, the commit was under way whichever answer was the last.
        begun.map_err(Failed::at_commit)?;
        shared.map_err(Failed::at_commit)?;
        let refused = refused.map_err(Failed::at_commit)?;
        committed.map_err(Failed::at_commit)?;
        self.calls.committed(begun_at.elapsed());
        Ok(refused)
    }

    async fn fire_with_extras(
        &self,
        client: &mut Client<'static>,
        shards: &[i16],
        columns: &Columns,
        extras: &[(usize, Firing)],
        now: Timestamp,
    ) -> Result<Vec<Row>, Failed> {
        let transaction = Work::begin(client).await?;
        let share = transaction.prepare_cached(SHARE_SHARDS).await?;
        transaction.query(&share, &[&shards]).await?;
        let fire = transaction.prepare_cached(FIRE).await?;
        let refused = transaction.query(&fire, &columns.values(&self.callers(now), &shards)).await?;
        let names = refusals(&refused);
        let fired = extras.iter().filter(|(index, _)| !names.contains_key(index));
        write_extras(&transaction, fired.map(|(_, firing)| firing)).await?;
        transaction.commit(self).await?;
        Ok(refused)
    }
}

/// Whether a firing takes a transaction in which it is decided what becomes of it.
fn is_decided(firing: &Firing) -> bool {
    let births = &firing.births;
    is_ruled(births) || is_full(births) || births.iter().any(|birth| !birth.limits.is_empty())
}

/// What was refused, by its place, and why.
pub(crate) fn refusals(rows: &[Row]) -> HashMap<usize, Refused> {
    let refused = |row: &Row| if row.get(1) { Refused::NotDue } else { Refused::StaleEpoch };
    rows.iter().map(|row| (row.get::<_, i64>(0) as usize - 1, refused(row))).collect()
}

/// Writes what few firings have besides.
async fn write_extras<'f>(
    transaction: &Work<'_>,
    fired: impl Iterator<Item = &'f Firing>,
) -> Result<(), Failed> {
    let fired: Vec<&Firing> = fired.collect();
    insert_ledger(transaction, &ledger_columns(fired.iter().flat_map(|firing| &firing.ledger))).await?;
    let (mut jobs, mut counts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for firing in fired {
        if let Some(operation) = &firing.operation {
            write_operation(transaction, operation).await?;
        }
        if let Some(progress) = firing.progress {
            jobs.push(job_uuid(firing.due.key.job));
            counts.push(progress.fired as i64);
            ends.push(progress.last_completion.map(millis));
        }
    }
    if !jobs.is_empty() {
        let progress = transaction.prepare_cached(PROGRESS).await?;
        transaction.execute(&progress, &[&jobs, &counts, &ends]).await?;
    }
    Ok(())
}

impl Columns {
    /// An entry, and what follows it.
    pub(crate) fn push(&mut self, index: usize, firing: &Firing, now: Timestamp) {
        self.due.push(&firing.due);
        self.epoch.push(firing.epoch.0 as i64);
        self.forget_at.push(firing.over.map(|retention| forget_at(retention, now)));
        if let Some(next) = &firing.next {
            self.next_of.push(index as i64 + 1);
            self.next.push(next);
        }
    }

    /// A run that is born of an entry.
    pub(crate) fn push_birth(&mut self, index: usize, entry: &Entry, now: Timestamp) {
        self.birth_of.push(index as i64 + 1);
        self.born.push(entry, now);
    }

    pub(crate) fn values<'a>(
        &'a self,
        callers: &'a Option<i64>,
        shards: &'a &'a [i16],
    ) -> Vec<&'a (dyn ToSql + Sync)> {
        let Columns { due, epoch, forget_at, next_of, next, birth_of, born } = self;
        let mut values: Vec<&(dyn ToSql + Sync)> = Vec::with_capacity(32);
        values.extend(crate::due::due_params!(due));
        values.push(epoch);
        values.push(forget_at);
        values.push(shards);
        values.push(callers);
        values.push(next_of);
        values.extend(crate::due::due_params!(next));
        values.push(birth_of);
        let born: [&(dyn ToSql + Sync); 12] = [
            &born.seq,
            &born.shard,
            &born.line,
            &born.lane,
            &born.urgency,
            &born.available_at,
            &born.tenant,
            &born.job,
            &born.worker,
            &born.queue,
            &born.record,
            &born.start_by,
        ];
        values.extend(born);
        values
    }
}
