//! Overlap: births that are decided against what is open, and runs that wait for others.
//!
//! Whoever gives birth to a run that must not overlap takes its job's row first, so that births are decided one after the
//! other, and holds the runs that are ahead until it has decided. A run that others wait for is marked. Ends of runs go by
//! the mark: without it a run ends in one statement, as ever; with it the job's row is taken as well, and the next goes on
//! in the same transaction. Jobs whose runs may overlap have no part in this: no lock, no read, no mark.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use punctual_domain::id::{JobId, RunId, Sequence, TenantId};
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::policy::overlap::{Open, Overlap};
use punctual_domain::{LedgerEntry, Run};
use punctual_store::{Admission, Birth, Parent, Skipped};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::change::{insert_ledger, ledger_columns};
use crate::error::Failed;
use crate::open_runs::OpenColumns;
use crate::partition::{Ended, end};
use crate::postgres::{Postgres, transact};
use crate::put_jobs::write_open;
use crate::row::{Entry, fate, job_id, job_uuid, millis, timestamp};
use crate::work::Work;

const LOCK_JOBS: &str = "select from jobs where id = any($1) order by id for update";

/// Runs that are ahead and not marked end in one statement: they are held, so that they do not while it is decided.
pub(crate) const HOLD_AHEAD: &str = "
select from open_runs where job = any($1) and line < 3 and not is_followed order by seq for update";

/// What is open of jobs $1. More than $2 that wait are not counted.
pub(crate) const LOOK: &str = "
select j.id,
    exists (select from open_runs o where o.job = j.id and o.line = 2),
    exists (select from open_runs o where o.job = j.id and o.line < 2),
    (select count(*) from (select from open_runs o where o.job = j.id and o.line = 3 limit $2::bigint) b)
from unnest($1::uuid[]) j (id)";

/// Others wait for all that is ahead in these jobs.
pub(crate) const MARK: &str = "
update open_runs set is_followed = true where job = any($1) and line < 3 and not is_followed";

/// Jobs of which somebody is ahead.
pub(crate) const AHEAD: &str = "
select j.id from unnest($1::uuid[]) j (id), lateral (
    select from open_runs o where o.job = j.id and o.line < 3 limit 1) a";

/// The first two that wait in each of these jobs.
pub(crate) const FIRST_BEHIND: &str = "
select b.seq, b.revision, b.record, b.line from unnest($1::uuid[]) j (id), lateral (
    select seq, revision, record, line from open_runs o where o.job = j.id and o.line = 3
    order by o.behind, o.seq limit 2 for update) b";

const ALL_BEHIND: &str =
    "select seq, revision, record, line from open_runs where job = $1 and line = 3 order by seq for update";

/// Everything that is open of jobs $1, except runs $2 that were just born.
const ALL_OPEN: &str = "
select seq, revision, record, line from open_runs where job = any($1) and seq <> all($2) order by seq for update";

/// The last entry that begins at or before each of these slots.
pub(crate) const ACCOUNTED: &str = "
select l.job, l.from_slot, l.to_slot, l.slots, l.fate, l.tenant, l.decided_at, l.cap
from unnest($1::uuid[], $2::bigint[]) x (job, slot), lateral (
    select * from ledger where ledger.job = x.job and from_slot <= x.slot order by from_slot desc limit 1) l";

/// Jobs of which some wait and nobody is ahead. A node of an older version does not let the next go on.
pub(crate) const LEFT_BEHIND: &str = "
select distinct o.job from open_runs o where o.line = 3
    and (select a.seq from open_runs a where a.job = o.job and a.line < 3 limit 1) is null limit $1";

fn uuids<'a>(jobs: impl IntoIterator<Item = &'a JobId>) -> Vec<Uuid> {
    jobs.into_iter().map(|job| job_uuid(*job)).collect()
}

/// Takes the rows of jobs, in their order.
pub(crate) async fn take_jobs(
    transaction: &Work<'_>,
    jobs: impl IntoIterator<Item = JobId>,
) -> Result<(), Failed> {
    let jobs: BTreeSet<JobId> = jobs.into_iter().collect();
    let lock = transaction.prepare_cached(LOCK_JOBS).await?;
    transaction.query(&lock, &[&uuids(&jobs)]).await?;
    Ok(())
}

/// What is open of jobs whose rows are held, for births under these policies. It stays so until the transaction ends.
pub(crate) async fn look(
    transaction: &Work<'_>,
    policies: impl IntoIterator<Item = (JobId, Overlap)>,
) -> Result<HashMap<JobId, Open>, Failed> {
    let policies: BTreeMap<JobId, Overlap> = policies.into_iter().collect();
    let ids = uuids(policies.keys());
    let most = policies.values().filter_map(|policy| policy.queue_max()).max().unwrap_or(1);
    let hold = transaction.prepare_cached(HOLD_AHEAD).await?;
    transaction.query(&hold, &[&ids]).await?;
    // In a statement of its own: what ended while that one waited is gone.
    let look = transaction.prepare_cached(LOOK).await?;
    let rows = transaction.query(&look, &[&ids, &i64::from(most)]).await?;
    let open = rows.iter().map(|row| {
        let behind = u32::try_from(row.get::<_, i64>(3)).unwrap_or(u32::MAX);
        (job_id(row.get(0)), Open { is_running: row.get(1), is_pending: row.get(2), behind })
    });
    Ok(open.collect())
}

/// Marks all that is ahead in jobs whose rows are held.
pub(crate) async fn mark(transaction: &Work<'_>, jobs: &[Uuid]) -> Result<(), Failed> {
    if jobs.is_empty() {
        return Ok(());
    }
    let statement = transaction.prepare_cached(MARK).await?;
    transaction.execute(&statement, &[&jobs]).await?;
    Ok(())
}

/// Decides births of one job whose shard is held. Nothing is done yet.
pub(crate) async fn admit(
    transaction: &Work<'_>,
    job: JobId,
    births: Vec<Birth>,
) -> Result<Admission, Failed> {
    let Some(birth) = births.first().filter(|birth| birth.overlap != Overlap::Allow) else {
        return Ok(Admission::free(births));
    };
    take_jobs(transaction, [job]).await?;
    let open = look(transaction, [(job, birth.overlap)]).await?;
    // Only slots may not wait, and they are not asked for.
    Ok(Admission::decide(births, open.get(&job).copied().unwrap_or_default(), |_| true))
}

/// What was decided about births of a job and is to be done now, besides writing runs that start.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    /// What is open gives way.
    pub(crate) replaces: bool,
    /// Runs that wait for an earlier one.
    pub(crate) behind: Vec<Entry>,
    /// Runs that start, which are written by others.
    pub(crate) started: Vec<Sequence>,
    pub(crate) skipped: Vec<Skipped>,
}

impl Decided {
    /// The runs of an admission, in their order, and the rest of it.
    pub(crate) fn of(
        admission: Admission,
        of: Parent,
        sequences: &mut impl Iterator<Item = Sequence>,
        now: Timestamp,
    ) -> (Vec<Entry>, Decided) {
        let Admission { born, skipped, replaces } = admission;
        let mut decided = Decided { replaces, skipped, ..Decided::default() };
        let mut entries = Vec::with_capacity(born.len());
        for (admitted, sequence) in born.into_iter().zip(sequences) {
            let (is_behind, worker) = (admitted.is_behind, admitted.birth.claimed_by);
            let mut entry = Entry::born(admitted.into_run(of, sequence, now));
            entry.wish = worker.filter(|_| !is_behind && entry.run.lease().is_none());
            match is_behind {
                true => decided.behind.push(entry.clone()),
                false => decided.started.push(sequence),
            }
            entries.push(entry);
        }
        (entries, decided)
    }
}

impl Postgres {
    /// Gives birth to runs of one job, as was decided.
    pub(crate) async fn give_births(
        &self,
        transaction: &Work<'_>,
        of: Parent,
        admission: Admission,
        sequences: &[Sequence],
        now: Timestamp,
    ) -> Result<Vec<Run>, Failed> {
        let (entries, decided) = Decided::of(admission, of, &mut sequences.iter().copied(), now);
        let mut open = OpenColumns::default();
        entries.iter().filter(|entry| !entry.run.is_behind()).for_each(|entry| open.push(entry, now));
        write_open(transaction, &open).await?;
        self.follow(transaction, &[(of, &decided)], now).await?;
        Ok(entries.into_iter().map(|entry| entry.run).collect())
    }

    /// Does what was decided, when the runs that start are written.
    pub(crate) async fn follow(
        &self,
        transaction: &Work<'_>,
        decided: &[(Parent, &Decided)],
        now: Timestamp,
    ) -> Result<(), Failed> {
        self.give_way(transaction, decided, now).await?;
        account(transaction, decided, now).await?;
        let mut open = OpenColumns::default();
        let mut jobs = Vec::new();
        for (of, decided) in decided.iter().filter(|(_, decided)| !decided.behind.is_empty()) {
            decided.behind.iter().for_each(|entry| open.push(entry, now));
            jobs.push(job_uuid(of.job));
        }
        write_open(transaction, &open).await?;
        mark(transaction, &jobs).await
    }

    /// Cancels what is pending and asks what runs to stop.
    async fn give_way(
        &self,
        transaction: &Work<'_>,
        decided: &[(Parent, &Decided)],
        now: Timestamp,
    ) -> Result<(), Failed> {
        let (mut jobs, mut born) = (Vec::new(), Vec::new());
        for (of, decided) in decided.iter().filter(|(_, decided)| decided.replaces) {
            jobs.push(job_uuid(of.job));
            born.extend(decided.started.iter().map(|sequence| sequence.as_i64()));
        }
        if jobs.is_empty() {
            return Ok(());
        }
        let (mut ended, mut open) = (Ended::default(), OpenColumns::default());
        let find = transaction.prepare_cached(ALL_OPEN).await?;
        for row in transaction.query(&find, &[&jobs, &born]).await? {
            let mut entry = Entry::read(&row)?;
            // An open run can be cancelled.
            let _ = lifecycle::apply(&mut entry.run, Event::Cancelled { at: now });
            entry.revision += 1;
            match entry.run.state.is_ended() {
                true => ended.push(&entry, now),
                false => open.push(&entry, now),
            }
        }
        self.ensure(ended.partitions.iter().copied()).await?;
        end(transaction, &ended).await?;
        write_open(transaction, &open).await
    }

    /// Lets those go on that nodes of older versions left behind. Returns how many.
    pub(crate) async fn release_left_behind(&self, now: Timestamp, limit: i64) -> Result<u64, Failed> {
        transact!(self, |client| {
            let find = client.prepare_cached(LEFT_BEHIND).await?;
            let rows = client.query(&find, &[&limit]).await?;
            let jobs: Vec<JobId> = rows.iter().map(|row| job_id(row.get(0))).collect();
            if jobs.is_empty() {
                return Ok(0);
            }
            let transaction = Work::begin(&mut client).await?;
            take_jobs(&transaction, jobs.iter().copied()).await?;
            let released = release(&transaction, &jobs, now).await?;
            transaction.commit(self).await?;
            Ok(released.len() as u64)
        })
    }
}

/// Accounts for slots that get no run. The slots of one job are ordered, and each is looked at after the one before.
async fn account(
    transaction: &Work<'_>,
    decided: &[(Parent, &Decided)],
    now: Timestamp,
) -> Result<(), Failed> {
    let most = decided.iter().map(|(_, decided)| decided.skipped.len()).max().unwrap_or(0);
    for place in 0..most {
        let of_place = |(of, decided): &(Parent, &Decided)| Some((*of, decided.skipped.get(place)?.clone()));
        let slots: Vec<(Parent, Skipped)> = decided.iter().filter_map(of_place).collect();
        let jobs: Vec<Uuid> = slots.iter().map(|(of, _)| job_uuid(of.job)).collect();
        let times: Vec<i64> = slots.iter().map(|(_, one)| millis(one.birth.scheduled_for)).collect();
        let find = transaction.prepare_cached(ACCOUNTED).await?;
        let values: [&(dyn ToSql + Sync); 2] = [&jobs, &times];
        let mut known = HashMap::new();
        for row in transaction.query(&find, &values).await? {
            let entry = LedgerEntry {
                job: job_id(row.get(0)),
                tenant: TenantId(row.get::<_, i32>(5) as u32),
                from: timestamp(row.get(1))?,
                to: timestamp(row.get(2))?,
                slots: row.get::<_, i64>(3).unsigned_abs(),
                fate: fate(row.get(4), row.get(7))?,
                decided_at: timestamp(row.get(6))?,
            };
            known.insert(entry.job, entry);
        }
        let entries: Vec<LedgerEntry> =
            slots.iter().filter_map(|(of, one)| one.accounted(*of, known.get(&of.job), now)).collect();
        insert_ledger(transaction, &ledger_columns(&entries)).await?;
    }
    Ok(())
}

/// After runs of these jobs have ended, whose rows are held: where nobody is ahead any more, the one with the oldest slot
/// goes on.
pub(crate) async fn release(
    transaction: &Work<'_>,
    jobs: &[JobId],
    now: Timestamp,
) -> Result<HashMap<JobId, RunId>, Failed> {
    let ids = uuids(jobs);
    let find = transaction.prepare_cached(AHEAD).await?;
    let ahead = transaction.query(&find, &[&ids]).await?;
    let ahead: Vec<Uuid> = ahead.iter().map(|row| row.get(0)).collect();
    // Those that are ahead now may have been born beside, by somebody who allowed it.
    mark(transaction, &ahead).await?;
    let free: Vec<Uuid> = ids.into_iter().filter(|job| !ahead.contains(job)).collect();
    let find = transaction.prepare_cached(FIRST_BEHIND).await?;
    let (mut first, mut followed) = (BTreeMap::new(), Vec::new());
    for row in transaction.query(&find, &[&free]).await? {
        let entry = Entry::read(&row)?;
        let job = entry.run.job;
        match first.contains_key(&job) {
            false => drop(first.insert(job, entry)),
            true => followed.push(job_uuid(job)),
        }
    }
    let released = let_go(transaction, first.into_values(), now).await?;
    mark(transaction, &followed).await?;
    Ok(released.into_iter().map(|run| (run.job, run.id())).collect())
}

/// All that wait of a job whose row is held go on.
pub(crate) async fn release_all(transaction: &Work<'_>, job: JobId, now: Timestamp) -> Result<(), Failed> {
    let find = transaction.prepare_cached(ALL_BEHIND).await?;
    let rows = transaction.query(&find, &[&job_uuid(job)]).await?;
    let entries: Vec<Entry> = rows.iter().map(Entry::read).collect::<Result<_, _>>()?;
    let_go(transaction, entries, now).await?;
    Ok(())
}

async fn let_go(
    transaction: &Work<'_>,
    entries: impl IntoIterator<Item = Entry>,
    now: Timestamp,
) -> Result<Vec<Run>, Failed> {
    let (mut open, mut runs) = (OpenColumns::default(), Vec::new());
    for mut entry in entries {
        if lifecycle::apply(&mut entry.run, Event::Released { at: now }).is_ok() {
            entry.revision += 1;
            open.push(&entry, now);
            runs.push(entry.run);
        }
    }
    write_open(transaction, &open).await?;
    Ok(runs)
}
