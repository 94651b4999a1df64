//! Complete, cancel and lapse: one outcome, under the current lease.
//!
//! Most runs end where they were leased and as they were leased: their rows are exchanged for history in one
//! statement, on the condition that their revision is the one that was seen. All others are read and locked first.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use punctual_domain::id::{JobId, RunId, Sequence, Version};
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::link::On;
use punctual_domain::papers::Said;
use punctual_domain::policy::limit::Key;
use punctual_domain::policy::retention::Retention;
use punctual_domain::{Papers, Run};
use punctual_store::{
    Answering, Cancellation, Concluded, Conclusion, Due, Lapse, Message, Put, Refused, Successor,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::change::Change;
use crate::due::{DueColumns, INSERT_DUE, due_params};
use crate::ended::end_jobs;
use crate::error::Failed;
use crate::fire::SHARE_SHARDS;
use crate::limit::{column, settle};
use crate::open_runs::OpenColumns;
use crate::overlap::release;
use crate::papers::Unwritten;
use crate::partition::{Ended, FAILED, end};
use crate::postgres::{Postgres, transact};
use crate::put_jobs::{create, write_open};
use crate::row::{Entry, job_uuid, millis};
use crate::wakeups::Wakeups;
use crate::work::Work;

/// Exchanges open runs for history, $1 to $7, if they have the revisions $8; $9 to $11 are those of them that are dead
/// letters then; $12 is what they have said. Open runs are found by their primary key.
macro_rules! exchange {
    ($rest:literal) => {
        concat!(
            "
with gone as (
    delete from open_runs o
    where o.seq = any($4::bigint[])
        and ((o.seq, o.revision) in (select x.seq, x.revision from unnest($4::bigint[], $8::int[]) x (seq, revision))) is true
        and not o.is_followed and not o.has_papers
    returning o.seq
), ended as (
    insert into history (class, state, tenant, seq, job, keep_until, record, papers)
    select x.* from unnest($1::smallint[], $2::smallint[], $3::int[], $4::bigint[], $5::uuid[], $6::bigint[],
        $7::bytea[], $12::bytea[]) x (class, state, tenant, seq, job, keep_until, record, papers)
    where (x.seq in (select seq from gone)) is true
), dead as (
    insert into dead_letters select x.* from unnest($9::bigint[], $10::int[], $11::uuid[]) x (seq, tenant, job)
    where (x.seq in (select seq from gone)) is true on conflict do nothing
)",
            $rest
        )
    };
}

/// Tells which had other revisions, have others behind them or have said something before.
pub(crate) const EXCHANGE: &str =
    exchange!(" select x.seq from unnest($4::bigint[]) x (seq) where x.seq not in (select seq from gone)");

/// The same for runs $13 that hold permits of gates $14, whose breadth is $15: these come back, in the order in which gates are
/// locked. A gate that has a line is to be looked at, at $16. Tells as well which gates those are, and how many came back.
pub(crate) const EXCHANGE_WITH_PERMITS: &str = exchange!(
    ", freed as (
    update gates g set held = greatest(g.held - x.count, 0),
        next_at = case when g.waiting > 0 then least(g.next_at, $16) else g.next_at end
    from (
        select y.key, count(*)::int as count from unnest($13::bigint[], $14::bigint[], $15::smallint[]) y (seq, key, breadth)
        where (y.seq in (select seq from gone)) is true group by y.breadth, y.key order by y.breadth, y.key
    ) x
    where g.key = any(array[x.key])
    returning g.key, g.waiting, x.count
)
select x.seq, null::int from unnest($4::bigint[]) x (seq) where x.seq not in (select seq from gone)
union all select key, count from freed where waiting > 0"
);

const LOCK_OPEN: &str = "select seq, revision, record, line, is_followed from open_runs where seq = any($1) order by seq for update";

const LOCK_JOBS: &str = "select id, version from jobs where id = any($1) order by id for update";

impl Postgres {
    pub(crate) async fn complete(
        &self,
        conclusions: Vec<Conclusion>,
        now: Timestamp,
    ) -> Result<Vec<Result<Concluded, Refused>>, Failed> {
        let leased = self.leases.take(conclusions.iter().map(|conclusion| conclusion.held.sequence));
        let mut answers: Vec<Option<Result<Concluded, Refused>>> = conclusions.iter().map(|_| None).collect();
        let (mut ended, mut revisions, mut places) = (Ended::default(), Vec::new(), HashMap::new());
        let mut permits = Held::default();
        for (place, (conclusion, entry)) in conclusions.iter().zip(leased).enumerate() {
            // Where somebody waits for what it holds, it is decided under the gates who gets it.
            let is_plain = |entry: &Entry| {
                conclusion.successor.is_none()
                    && conclusion.messages.is_empty()
                    && !self.lines.are_held_up_by(&entry.run)
            };
            let Some(mut entry) = entry.filter(is_plain) else { continue };
            let revision = entry.revision;
            let held = permits.len();
            permits.hold(&entry.run);
            if conclude(&mut entry, conclusion, now).is_ok() && entry.run.state.is_ended() {
                ended.push(&entry, now);
                revisions.push(revision);
                places.insert(entry.run.sequence.as_i64(), (place, entry.run));
            } else {
                permits.truncate(held);
            }
        }
        if !revisions.is_empty() {
            let (left, freed) = self.exchange(&ended, &revisions, &permits, now).await?;
            for sequence in left {
                places.remove(&sequence);
            }
            for (place, run) in places.into_values() {
                answers[place] = Some(Ok(run.into()));
            }
            if !freed.is_empty() {
                // These runs have ended. If nobody can go on now, the gates' owners see to it.
                if let Err(error) = self.go_on_at(&freed, now).await {
                    tracing::debug!(?error, "lines go on later");
                }
            }
        }
        let rest: Vec<usize> = (0..answers.len()).filter(|place| answers[*place].is_none()).collect();
        if !rest.is_empty() {
            let others: Vec<&Conclusion> = rest.iter().map(|place| &conclusions[*place]).collect();
            for (place, answer) in rest.into_iter().zip(self.complete_locked(&others, now).await?) {
                answers[place] = Some(answer);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Tells which were not as they were seen, and to which gates with a line how many permits came back.
    async fn exchange(
        &self,
        ended: &Ended,
        revisions: &[i32],
        permits: &Held,
        now: Timestamp,
    ) -> Result<(Vec<i64>, BTreeMap<Key, i64>), Failed> {
        self.ensure(ended.partitions.iter().copied()).await?;
        let (revisions, at) = (revisions.to_vec(), millis(now));
        let dead: Vec<usize> =
            (0..ended.seq.len()).filter(|place| FAILED.contains(&ended.state[*place])).collect();
        let sequences: Vec<i64> = dead.iter().map(|place| ended.seq[*place]).collect();
        let tenants: Vec<i32> = dead.iter().map(|place| ended.tenant[*place]).collect();
        let jobs: Vec<Uuid> = dead.iter().map(|place| ended.job[*place]).collect();
        let papers = ended.papers(HashMap::new());
        let rows = transact!(self, |client| {
            let mut values: Vec<&(dyn ToSql + Sync)> = ended.values().into();
            let more: [&(dyn ToSql + Sync); 5] = [&revisions, &sequences, &tenants, &jobs, &papers];
            values.extend(more);
            let more: [&(dyn ToSql + Sync); 4] = [&permits.seq, &permits.key, &permits.breadth, &at];
            if permits.len() > 0 {
                values.extend(more);
            }
            let text = if permits.len() > 0 { EXCHANGE_WITH_PERMITS } else { EXCHANGE };
            let statement = client.prepare_cached(text).await?;
            Ok(client.query(&statement, &values).await?)
        })?;
        let (mut left, mut freed) = (Vec::new(), BTreeMap::new());
        for row in &rows {
            match row.try_get::<_, Option<i32>>(1).ok().flatten() {
                Some(count) => drop(freed.insert(Key(row.get::<_, i64>(0) as u64), i64::from(count))),
                None => left.push(row.get(0)),
            }
        }
        self.lines.note(freed.keys().map(|key| (*key, 1)));
        Ok((left, freed))
    }

    async fn complete_locked(
        &self,
        conclusions: &[&Conclusion],
        now: Timestamp,
    ) -> Result<Vec<Result<Concluded, Refused>>, Failed> {
        let wanted: Vec<Wanted> = conclusions.iter().map(|one| (one.held.sequence, one.successor)).collect();
        let messages = self.messages(conclusions.iter().map(|one| &one.messages), now).await?;
        let complete = |rows: &mut Rows| -> Vec<Result<Run, Refused>> {
            conclusions.iter().map(|conclusion| rows.complete(conclusion, now)).collect()
        };
        let (answers, mut released) = self.with_rows(&wanted, &messages, now, complete).await?;
        let mut concluded = |run: Run| {
            let released = run.state.is_ended().then(|| released.remove(&run.job)).flatten();
            Concluded { run, released }
        };
        Ok(answers.into_iter().map(|answer| answer.map(&mut concluded)).collect())
    }

    /// Messages, ready to be written.
    pub(crate) async fn messages<'m>(
        &self,
        messages: impl Iterator<Item = &'m Vec<Message>> + Clone,
        now: Timestamp,
    ) -> Result<Vec<Vec<Told>>, Failed> {
        let count = messages.clone().flatten().count();
        let mut sequences = self.sequences.take(self, count, now).await?.into_iter();
        let mut ready = |message: &Message| -> Result<Told, Failed> {
            Ok(Told { on: message.on, job: Change::of(Put::clone(&message.put), sequences.next(), now)? })
        };
        messages.map(|of_run| of_run.iter().map(&mut ready).collect()).collect()
    }

    /// Does something to open runs that are held, and writes what became of them, with the messages that tell of those that ended
    /// by it. Tells who goes on because of it.
    pub(crate) async fn with_rows(
        &self,
        wanted: &[Wanted],
        messages: &[Vec<Told>],
        now: Timestamp,
        work: impl Fn(&mut Rows) -> Vec<Result<Run, Refused>>,
    ) -> Result<(Vec<Result<Run, Refused>>, HashMap<JobId, RunId>), Failed> {
        self.ensure_current(now).await?;
        transact!(self, |client| {
            // Whether others wait for a run is known when it is held; then its job has to be held before it.
            let mut holds = Holds::Counting;
            loop {
                let transaction = Work::begin(&mut client).await?;
                let mut rows = Rows::lock(&transaction, wanted, messages, holds).await?;
                let answers = work(&mut rows);
                if holds == Holds::Counting && !rows.freed.is_empty() {
                    holds = Holds::All;
                    continue;
                }
                self.ensure(rows.ended(now).partitions).await?;
                let ended =
                    messages.iter().zip(&answers).filter_map(|(told, run)| Some((told, run.as_ref().ok()?)));
                let due = ended.flat_map(|(told, run)| told.iter().filter(|one| one.on.is_met(run.state)));
                let told: Vec<&Change> = due.map(|told| &told.job).collect();
                if !told.is_empty() {
                    create(&transaction, &told, &rows.shards, now).await?; // Refused if it is there already.
                }
                let released = rows.write(&transaction, &self.wakeups, now).await?;
                let settled = transaction.commit(self).await?;
                let settled = |run: Run| settle(&settled, run);
                return Ok((answers.into_iter().map(|answer| answer.map(settled)).collect(), released));
            }
        })
    }

    pub(crate) async fn cancel(
        &self,
        cancellations: &[Cancellation],
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Failed> {
        let wanted: Vec<Wanted> =
            cancellations.iter().map(|one| (one.run.sequence(), one.successor)).collect();
        let cancel = |rows: &mut Rows| -> Vec<Result<Run, Refused>> {
            cancellations.iter().map(|one| rows.cancel(one, now)).collect()
        };
        let (answers, _) = self.with_rows(&wanted, &[], now, cancel).await?;
        let mut told = Vec::with_capacity(answers.len());
        for (answer, cancellation) in answers.into_iter().zip(cancellations) {
            told.push(match answer {
                Err(Refused::NoRun) => Err(self.why_not(cancellation.run, "cancelled").await?),
                answer => answer,
            });
        }
        Ok(told)
    }

    /// Cancels runs in a transaction that holds their shards.
    pub(crate) async fn cancel_in(
        &self,
        transaction: &Work<'_>,
        cancellations: &[Cancellation],
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Failed> {
        let wanted: Vec<Wanted> =
            cancellations.iter().map(|one| (one.run.sequence(), one.successor)).collect();
        let mut rows = Rows::lock(transaction, &wanted, &[], Holds::All).await?;
        let answers = cancellations.iter().map(|one| rows.cancel(one, now)).collect();
        self.ensure(rows.ended(now).partitions).await?;
        rows.write(transaction, &self.wakeups, now).await?;
        Ok(answers)
    }

    /// Why a run that is not open cannot take an event.
    pub(crate) async fn why_not(&self, id: RunId, event: &'static str) -> Result<Refused, Failed> {
        Ok(match self.run(id).await? {
            Some(detail) => lifecycle::Refused::WrongState { state: detail.run.state.as_str(), event }.into(),
            None => Refused::NoRun,
        })
    }
}

/// A message that is ready to be written, and of which end it tells.
pub(crate) struct Told {
    on: On,
    job: Change,
}

/// Permits that runs hold, as columns.
#[derive(Debug, Default)]
struct Held {
    seq: Vec<i64>,
    key: Vec<i64>,
    breadth: Vec<i16>,
}

impl Held {
    fn hold(&mut self, run: &Run) {
        for limited in run.permits() {
            self.seq.push(run.sequence.as_i64());
            self.key.push(column(limited.key));
            self.breadth.push(limited.breadth.into());
        }
    }

    fn len(&self) -> usize {
        self.seq.len()
    }

    fn truncate(&mut self, len: usize) {
        self.seq.truncate(len);
        self.key.truncate(len);
        self.breadth.truncate(len);
    }
}

/// Applies the end of an attempt to a run.
fn conclude(entry: &mut Entry, conclusion: &Conclusion, now: Timestamp) -> Result<(), Refused> {
    conclusion.apply(&mut entry.run, now)?;
    if let Some(attempt) = entry.attempts.last_mut() {
        attempt.report.clone_from(&conclusion.report);
        attempt.goes_on_with(&entry.run);
        let said = Said::take(attempt.number, attempt.report.as_mut());
        entry.said = Papers { checkpoint: None, said: said.into_iter().collect() };
    }
    entry.revision += 1;
    Ok(())
}

/// A run, and what its end brings if its job counts from completion.
pub(crate) type Wanted = (Sequence, Option<Successor>);

/// Which jobs are held with their runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// Those that count from completion.
    Counting,
    /// All: others wait for one of the runs.
    All,
}

/// Open runs and jobs that a transaction holds, and what becomes of them.
pub(crate) struct Rows {
    open: HashMap<Sequence, Entry>,
    jobs: HashMap<JobId, i32>,
    changed: Vec<Sequence>,
    ended: Vec<Entry>,
    completed: Vec<Uuid>,
    over: Vec<(JobId, Version, Retention)>,
    due: Vec<Due>,
    /// Runs that others wait for.
    followed: HashSet<Sequence>,
    /// Jobs of which such a run has ended.
    freed: BTreeSet<JobId>,
    /// The shards of jobs that count from completion and of messages, with their owners.
    shards: Vec<Row>,
}

impl Rows {
    /// Shards first, then jobs, then runs, as everywhere.
    async fn lock(
        transaction: &Work<'_>,
        wanted: &[Wanted],
        messages: &[Vec<Told>],
        holds: Holds,
    ) -> Result<Self, Failed> {
        let all: Vec<i64> = wanted.iter().map(|(sequence, _)| sequence.as_i64()).collect();
        let counted: Vec<i64> = wanted
            .iter()
            .filter(|(_, successor)| successor.is_some() || holds == Holds::All)
            .map(|(sequence, _)| sequence.as_i64())
            .collect();
        let (mut jobs, mut shards) = (HashMap::new(), Vec::new());
        let told: Vec<JobId> = messages.iter().flatten().map(|message| message.job.put.job.id).collect();
        let mut ids: Vec<Uuid> = Vec::new();
        if !counted.is_empty() {
            let find =
                transaction.prepare_cached("select distinct job from open_runs where seq = any($1)").await?;
            ids = transaction.query(&find, &[&counted]).await?.iter().map(|row| row.get(0)).collect();
        }
        if !counted.is_empty() || !told.is_empty() {
            let share = transaction.prepare_cached(SHARE_SHARDS).await?;
            let all = ids.iter().map(|id| crate::row::job_id(*id)).chain(told);
            let numbers = crate::row::shards(all);
            shards = transaction.query(&share, &[&numbers]).await?;
        }
        if !ids.is_empty() {
            let lock = transaction.prepare_cached(LOCK_JOBS).await?;
            for row in transaction.query(&lock, &[&ids]).await? {
                jobs.insert(crate::row::job_id(row.get(0)), row.get(1));
            }
        }
        let lock = transaction.prepare_cached(LOCK_OPEN).await?;
        let (mut open, mut followed) = (HashMap::new(), HashSet::new());
        for row in transaction.query(&lock, &[&all]).await? {
            let entry = Entry::read(&row)?;
            if row.get(4) {
                followed.insert(entry.run.sequence);
            }
            open.insert(entry.run.sequence, entry);
        }
        Ok(Rows {
            open,
            jobs,
            changed: Vec::new(),
            ended: Vec::new(),
            completed: Vec::new(),
            over: Vec::new(),
            due: Vec::new(),
            followed,
            freed: BTreeSet::new(),
            shards,
        })
    }

    fn complete(&mut self, conclusion: &Conclusion, now: Timestamp) -> Result<Run, Refused> {
        let sequence = conclusion.held.sequence;
        let stale = lifecycle::Refused::StaleLease { attempt: conclusion.held.attempt };
        let mut entry = self.open.get(&sequence).cloned().ok_or(stale)?;
        self.check(entry.run.job, conclusion.successor)?;
        conclude(&mut entry, conclusion, now)?;
        Ok(self.keep(entry, conclusion.successor))
    }

    fn cancel(&mut self, cancellation: &Cancellation, now: Timestamp) -> Result<Run, Refused> {
        self.end_waiting(cancellation.run, Event::Cancelled { at: now }, cancellation.successor)
    }

    pub(crate) fn answer(&mut self, answering: &Answering, now: Timestamp) -> Result<Run, Refused> {
        let event = Event::Answered { answer: answering.answer, at: now };
        self.end_waiting(answering.run, event, answering.successor)
    }

    pub(crate) fn lapse(&mut self, lapse: &Lapse, now: Timestamp) -> Result<Run, Refused> {
        self.end_waiting(lapse.run, Event::Lapsed { at: now }, lapse.successor)
    }

    /// Something happens to an open run that ends it if it waits, or lets it go on.
    fn end_waiting(&mut self, id: RunId, event: Event, successor: Option<Successor>) -> Result<Run, Refused> {
        let entry = self.open.get(&id.sequence()).cloned().filter(|entry| entry.run.id() == id);
        let mut entry = entry.ok_or(Refused::NoRun)?;
        lifecycle::apply(&mut entry.run, event)?;
        entry.revision += 1;
        if entry.run.state.is_ended() {
            self.check(entry.run.job, successor)?;
        }
        Ok(self.keep(entry, successor))
    }

    /// Whether what the end of a run brings was decided for the job as it is.
    fn check(&self, job: JobId, successor: Option<Successor>) -> Result<(), Refused> {
        let Some(successor) = successor else { return Ok(()) };
        match self.jobs.get(&job) {
            Some(version) if *version == successor.version.0 as i32 => Ok(()),
            Some(version) => Err(Refused::WrongVersion { current: Version(*version as u32) }),
            None => Err(Refused::NoJob),
        }
    }

    fn keep(&mut self, entry: Entry, successor: Option<Successor>) -> Run {
        let run = entry.run.clone();
        match run.state.is_ended() {
            true => {
                self.open.remove(&run.sequence);
                self.ended.push(entry);
                if self.followed.contains(&run.sequence) {
                    self.freed.insert(run.job);
                }
                if let Some(successor) = successor {
                    self.completed.push(job_uuid(run.job));
                    self.over.extend(successor.over.map(|retention| (run.job, successor.version, retention)));
                    self.due.extend(successor.due);
                }
            }
            false => {
                self.changed.push(run.sequence);
                self.open.insert(run.sequence, entry);
            }
        }
        run
    }

    fn ended(&self, now: Timestamp) -> Ended {
        Ended::of(&self.ended, now)
    }

    async fn write(
        mut self,
        transaction: &Work<'_>,
        wakeups: &Wakeups,
        now: Timestamp,
    ) -> Result<HashMap<JobId, RunId>, Failed> {
        self.changed.sort_unstable();
        self.changed.dedup();
        end(transaction, &self.ended(now)).await?;
        let (mut open, mut said) = (OpenColumns::default(), Unwritten::default());
        for entry in self.changed.iter().filter_map(|sequence| self.open.get(sequence)) {
            open.push(entry, now);
            said.push_of(entry);
        }
        write_open(transaction, &open).await?;
        said.add(transaction).await?;
        if !self.completed.is_empty() {
            let statement =
                transaction.prepare_cached("update jobs set completed_at = $2 where id = any($1)").await?;
            transaction.execute(&statement, &[&self.completed, &millis(now)]).await?;
        }
        end_jobs(transaction, self.over, now).await?;
        if !self.due.is_empty() {
            let statement = transaction.prepare_cached(INSERT_DUE).await?;
            // Runs of one job that end together bring the same slot, and a statement writes a row once.
            self.due.sort_unstable_by_key(|due| (due.key, due.version));
            self.due.dedup_by_key(|due| (due.key, due.version));
            let columns: DueColumns = self.due.iter().collect();
            transaction.execute(&statement, &due_params!(columns)).await?;
            wakeups.tell(transaction, &self.shards, self.due.iter(), now).await?;
        }
        match self.freed.is_empty() {
            true => Ok(HashMap::new()),
            false => release(transaction, &self.freed.into_iter().collect::<Vec<_>>(), now).await,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use punctual_domain::Outcome;
    use punctual_domain::lifecycle::Verdict;
    use punctual_domain::policy::limit::{Allowance, Allowed, Limited, Limits};
    use punctual_store::conformance::World;
    use punctual_store::{Held as Attempt, Shards, Store};

    use super::*;
    use crate::connect::Options;

    /// A node may die when a run has ended, before who waits for its permit has gone on.
    #[tokio::test]
    async fn who_waits_for_a_permit_goes_on_without_the_node_that_gave_it_back() {
        let store = Arc::new(Postgres::open(&Options::of_a_case()).await.unwrap());
        let mut world = World::new(store.clone()).await;
        let worker = world.worker();
        let allowance = Allowance { max: NonZeroU32::new(1), rate: None };
        let limited =
            Limited { key: Key(5), breadth: 0, holds_retries: true, allowed: Allowed::Own(allowance) };
        let mut runs = Vec::new();
        for name in ["first", "second"] {
            let job = world.register(name, world.now).await;
            let mut firing = world.firing(&job, world.now);
            firing.births[0].limits = Limits::new(vec![limited.clone()]);
            firing.births[0].claimed_by = Some(worker);
            runs.push(world.try_firing(firing).await.unwrap().remove(0));
        }
        assert!(runs[0].lease().is_some() && runs[1].is_limited());
        let mut entry = store.leases.take([runs[0].sequence]).remove(0).unwrap();
        let (mut permits, mut ended) = (Held::default(), Ended::default());
        permits.hold(&entry.run);
        let conclusion = Conclusion {
            worker,
            held: Attempt { sequence: runs[0].sequence, attempt: 1 },
            report: Some(world.report(Outcome::Succeeded)),
            verdict: Verdict::Succeed,
            successor: None,
            messages: Vec::new(),
            limits: None,
        };
        conclude(&mut entry, &conclusion, world.now).unwrap();
        ended.push(&entry, world.now);
        let (left, freed) = store.exchange(&ended, &[0], &permits, world.now).await.unwrap();
        assert_eq!((left, freed), (vec![], BTreeMap::from([(Key(5), 1)])));
        assert!(world.detail(runs[1].id()).await.run.is_limited(), "nobody has looked");
        assert_eq!(Store::advance(&*store, &Shards::All, world.now, 10).await.unwrap().runs, 1);
        assert_eq!(world.claim(worker, 10).await.len(), 1);
    }
}
