//! Claim, heartbeat, expire: who holds what.
//!
//! A worker's sign of life is a row with everything it holds. Promise: a worker that was taken for dead stays dead; an
//! attempt whose worker is dead or does not list it is released, and not before a lease has passed since it was claimed; all
//! of it goes by the database's clock.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::id::{Sequence, WorkerId};
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::{Ask, Attempt, Labels, Receiver, Run, Turns};
use punctual_store::record::decode_run;
use punctual_store::{Claim, Heartbeat, Held, Shards};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::client::Client;
use crate::connect::Time;
use crate::depth::Moves;
use crate::error::{Failed, failed};
use crate::postgres::{Postgres, transact};
use crate::row::{DELAYED, Entry, READY, RUNNING, lane, millis, numbers, timestamp, worker_uuid};
use crate::turns::{self, Seen, Taken};
use crate::work::Work;

/// Runs whose time has come get their turn, in portions.
pub(crate) const PROMOTE: &str = "
update open_runs o set line = case when left(o.queue, 1) = chr(1) then -1 else 1 end
from (
    select seq from open_runs where line = 0 and available_at <= $1 order by available_at, seq limit 10000
    for update skip locked
) due
where o.seq = any(array[due.seq]) returning o.lane";

pub(crate) const LEASE: &str = "
update open_runs o set line = 2, worker = $1, claimed_at = punctual_now($2), revision = x.revision, record = x.record
from unnest($3::bigint[], $4::int[], $5::bytea[]) x (seq, revision, record) where o.seq = any(array[x.seq])";

/// The first that may be claimed; otherwise the first whose time comes.
pub(crate) const NEXT: &str = "
select coalesce(
    (select available_at from open_runs where line = 1 and ($1::smallint[] is null or shard = any($1))
     order by lane + 0, tenant, urgency, available_at, seq limit 1),
    (select available_at from open_runs
     where line * line = 1 and line + 0 = -1 and ($1::smallint[] is null or shard = any($1))
     order by line + 0, queue, lane + 0, tenant, urgency, available_at, seq limit 1),
    (select available_at from open_runs where line = 0 and ($1::smallint[] is null or shard = any($1))
     order by available_at, seq limit 1))";

/// A sign of life; nothing comes back if the worker is dead.
const BEAT: &str = "
insert into workers values ($1, punctual_now($2), false, $3, $4)
on conflict (id) do update set seen_at = excluded.seen_at, held_seq = excluded.held_seq,
    held_attempt = excluded.held_attempt
where not workers.is_dead
returning id";

/// The same of a receiver: until when its lease lasts is where a worker has its last sign of life.
const HEAR: &str = "
insert into workers values ($1, least(punctual_now($2) + $5, $6), false, $3, $4)
on conflict (id) do update set seen_at = excluded.seen_at
where not workers.is_dead
returning id";

/// What is there of the runs that a worker says it holds.
const HOLDS: &str = "select seq, revision, record, line from open_runs where seq = any($1) and worker = $2";

/// Silent workers are dead first.
const BURY: &str = "
update workers set is_dead = true where not is_dead and seen_at < punctual_now($1) - $2 and id < $3";

/// Runs that may be lost: they were claimed more than a lease ago. Before that they are their worker's, who may be at work
/// though it is taken for dead.
const UNHEARD: &str = "
select o.seq, o.record, o.worker, w.is_dead
from open_runs o left join workers w on w.id = o.worker
where o.line = 2 and o.claimed_at < punctual_now($1) - $2 and o.worker < $4
order by o.claimed_at, o.seq limit $3";

/// Runs whose receivers may be overdue: those that need not be heard of, below $3, by their end; the others, below $2, by what was last
/// heard of them, or because nothing is known of that. All of them are above $1.
const OVERDUE: &str = "
select o.seq, o.record, o.worker, w.is_dead
from open_runs o left join workers w on w.id = o.worker
where o.line = 2 and o.worker >= $1 and o.worker < $3
    and (o.worker >= $2 or w.seen_at is null or w.seen_at < $4)
order by o.claimed_at, o.seq limit $5";

/// One that was heard of since is not silent.
const BURY_RECEIVERS: &str = "
update workers set is_dead = true where id = any($1) and seen_at < punctual_now($2) returning id";

/// Who holds what requires the label $1: the line that a run was taken from stays with it.
pub(crate) const SUSPECTED: &str = "
select worker from open_runs where line = 2 and position($1 in split_part(queue, chr(1), 2)) > 0 order by claimed_at, seq";

/// More are looked at in the next pass.
const UNHEARD_MAX: i64 = 50_000;

impl Postgres {
    pub(crate) async fn claim(&self, claim: &Claim, now: Timestamp) -> Result<Vec<Run>, Failed> {
        let leased = transact!(self, |client| {
            let transaction = Work::begin(&mut client).await?;
            promote(&transaction, now).await?;
            let taken = self.take_turns(&transaction, claim, now).await?;
            let leased = self.lease(&transaction, claim.worker, taken, now).await?;
            transaction.commit(self).await?;
            Ok(leased)
        })?;
        Ok(self.remember_leases(leased))
    }

    /// Who waits for a claim, when those whose time has come have their turn.
    pub(crate) async fn who_waits(
        &self,
        claim: &Claim,
        turns: &Turns,
        now: Timestamp,
    ) -> Result<Seen, Failed> {
        transact!(self, |client| {
            let transaction = Work::begin(&mut client).await?;
            promote(&transaction, now).await?;
            let seen = turns::look(&transaction, claim, turns).await?;
            transaction.commit(self).await?;
            Ok(seen)
        })
    }

    /// Leases what is asked for.
    pub(crate) async fn claim_asked(
        &self,
        claim: &Claim,
        seen: &Seen,
        asks: &[Ask],
        now: Timestamp,
    ) -> Result<Vec<Run>, Failed> {
        let leased = transact!(self, |client| {
            let transaction = Work::begin(&mut client).await?;
            let taken = turns::take(&transaction, claim, seen, asks, self.callers(now)).await?;
            let taken = taken.into_values().flatten().collect();
            let leased = self.lease(&transaction, claim.worker, taken, now).await?;
            transaction.commit(self).await?;
            Ok(leased)
        })?;
        Ok(self.remember_leases(leased))
    }

    /// Leases runs that are held, except those that are too late.
    async fn lease(
        &self,
        transaction: &Work<'_>,
        worker: WorkerId,
        taken: Vec<Taken>,
        now: Timestamp,
    ) -> Result<Leased, Failed> {
        let mut moves = Moves::default();
        let (mut sequences, mut revisions, mut records) = (Vec::new(), Vec::new(), Vec::new());
        let mut leased = Leased { claimed: Vec::with_capacity(taken.len()), late: Vec::new() };
        for Taken { mut entry, at } in taken {
            if entry.run.is_too_late(now) {
                leased.late.push(entry.run);
                continue;
            }
            // However long the claim was on its way.
            let at = timestamp(at)?;
            if lifecycle::apply(&mut entry.run, Event::Claimed { worker, at }).is_err() {
                continue;
            }
            let number = entry.run.attempt;
            entry.attempts.push(Attempt { number, worker, claimed_at: at, report: None });
            entry.revision += 1;
            moves.push(&entry.run, entry.stands, Some(RUNNING));
            entry.stands = Some(RUNNING);
            sequences.push(entry.run.sequence.as_i64());
            revisions.push(entry.revision);
            records.push(entry.record());
            leased.claimed.push(entry);
        }
        if !sequences.is_empty() {
            let lease = transaction.prepare_cached(LEASE).await?;
            let (worker, callers) = (worker_uuid(worker), self.callers(now));
            let values: [&(dyn ToSql + Sync); 5] = [&worker, &callers, &sequences, &revisions, &records];
            transaction.execute(&lease, &values).await?;
        }
        transaction.moved(&moves);
        Ok(leased)
    }

    /// What was leased is known when it ends.
    fn remember_leases(&self, leased: Leased) -> Vec<Run> {
        let Leased { claimed, late } = leased;
        let runs = claimed.iter().map(|entry| entry.run.clone()).chain(late).collect();
        self.leases.keep(claimed);
        runs
    }

    pub(crate) async fn next_available_at(&self, shards: &Shards) -> Result<Option<Timestamp>, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(NEXT).await.map_err(failed)?;
        let row = client.query_one(&statement, &[&numbers(shards)]).await.map_err(failed)?;
        Ok(row.get::<_, Option<i64>>(0).map(timestamp).transpose()?)
    }

    pub(crate) async fn heartbeat(
        &self,
        worker: WorkerId,
        held: Vec<Held>,
        now: Timestamp,
    ) -> Result<Heartbeat, Failed> {
        let client = self.connection().await?;
        let beat = client.prepare_cached(BEAT).await.map_err(failed)?;
        let holds = client.prepare_cached(HOLDS).await.map_err(failed)?;
        let id = worker_uuid(worker);
        let sequences: Vec<i64> = held.iter().map(|held| held.sequence.as_i64()).collect();
        let attempts: Vec<i32> = held.iter().map(|held| held.attempt as i32).collect();
        let values: [&(dyn ToSql + Sync); 4] = [&id, &self.callers(now), &sequences, &attempts];
        let lives = match worker.receiver() {
            None => client.query_opt(&beat, &values).await.map_err(failed)?.is_some(),
            Some(terms) => self.hear(&client, worker, terms, &held, now).await?,
        };
        if !lives {
            return Ok(Heartbeat { is_refused: true, not_held: held, cancelled: Vec::new() });
        }
        let mut open = HashMap::with_capacity(held.len());
        if !held.is_empty() {
            for row in client.query(&holds, &[&sequences, &id]).await.map_err(failed)? {
                let entry = Entry::read(&row)?;
                open.insert(entry.run.sequence, entry.run);
            }
        }
        let mut reply = Heartbeat::default();
        for attempt in held {
            match open.get(&attempt.sequence).filter(|run| run.attempt == attempt.attempt) {
                None => reply.not_held.push(attempt),
                Some(run) if run.is_cancel_requested => reply.cancelled.push(attempt),
                Some(_) => {}
            }
        }
        Ok(reply)
    }

    /// A sign of life of a receiver; says whether it lives. One that need not be heard of has no row.
    async fn hear(
        &self,
        client: &Client<'_>,
        receiver: WorkerId,
        terms: Receiver,
        held: &[Held],
        now: Timestamp,
    ) -> Result<bool, Failed> {
        let Some(heartbeat) = terms.heartbeat else { return Ok(true) };
        let hear = client.prepare_cached(HEAR).await.map_err(failed)?;
        let sequences: Vec<i64> = held.iter().map(|held| held.sequence.as_i64()).collect();
        let attempts: Vec<i32> = held.iter().map(|held| held.attempt as i32).collect();
        let (id, length) = (worker_uuid(receiver), heartbeat.as_millis() as i64);
        let values: [&(dyn ToSql + Sync); 6] =
            [&id, &self.callers(now), &sequences, &attempts, &length, &millis(terms.ends_at)];
        Ok(client.query_opt(&hear, &values).await.map_err(failed)?.is_some())
    }

    /// Runs whose receivers have not reported in time. They are marked dead first, as silent workers are.
    async fn overdue(&self, client: &Client<'_>, now: Timestamp, limit: usize) -> Result<Vec<Run>, Failed> {
        let callers = self.callers(now);
        let clock = client.prepare_cached("select punctual_now($1::bigint)").await.map_err(failed)?;
        let at: i64 = client.query_one(&clock, &[&callers]).await.map_err(failed)?.get(0);
        let first = |ends_at: Option<Timestamp>| worker_uuid(WorkerId::first_of_receivers(ends_at));
        let bounds = (first(None), first(Some(Timestamp::UNIX_EPOCH)), first(Some(timestamp(at)?)));
        let overdue = client.prepare_cached(OVERDUE).await.map_err(failed)?;
        let values: [&(dyn ToSql + Sync); 5] = [&bounds.0, &bounds.1, &bounds.2, &at, &UNHEARD_MAX];
        let rows = client.query(&overdue, &values).await.map_err(failed)?;
        let mut silent = Vec::new();
        for row in &rows {
            let worker = WorkerId::from_bytes(row.get::<_, Uuid>(2).into_bytes());
            let Some(terms) = worker.receiver().filter(|terms| terms.heartbeat.is_some()) else { continue };
            let is_over = millis(terms.ends_at) < at;
            match row.get::<_, Option<bool>>(3) {
                // Nothing is known of it: it came with a copy, or its node was killed. It is heard of from now on.
                None if !is_over => {
                    let sequence = Sequence::from_i64(row.get(0));
                    let attempt = decode_run(sequence, row.get::<_, &[u8]>(1))?.0.attempt;
                    self.hear(client, worker, terms, &[Held { sequence, attempt }], now).await?;
                }
                // It could not be heard of while the database was out of reach.
                Some(false) if self.could_hear(terms) || is_over => silent.push(worker_uuid(worker)),
                _ => {}
            }
        }
        let bury = client.prepare_cached(BURY_RECEIVERS).await.map_err(failed)?;
        let buried: HashSet<Uuid> = match silent.is_empty() {
            true => HashSet::new(),
            false => {
                let rows = client.query(&bury, &[&silent, &callers]).await.map_err(failed)?;
                rows.iter().map(|row| row.get(0)).collect()
            }
        };
        let mut lost = Vec::new();
        for row in &rows {
            let id: Uuid = row.get(2);
            let ends_at = WorkerId::from_bytes(id.into_bytes()).receiver().map(|terms| millis(terms.ends_at));
            let is_dead = row.get::<_, Option<bool>>(3) == Some(true) || buried.contains(&id);
            if lost.len() < limit && (is_dead || ends_at.is_some_and(|ends_at| ends_at < at)) {
                lost.push(decode_run(Sequence::from_i64(row.get(0)), row.get::<_, &[u8]>(1))?.0);
            }
        }
        Ok(lost)
    }

    /// Whether a receiver could have been heard of for as long as it may be silent.
    fn could_hear(&self, terms: Receiver) -> bool {
        self.time != Time::Database
            || terms.heartbeat.is_some_and(|heartbeat| self.calls.reached_for() >= heartbeat)
    }

    pub(crate) async fn asked_to_stop(&self, worker: WorkerId, held: &[Held]) -> Result<Vec<Held>, Failed> {
        let client = self.connection().await?;
        let holds = client.prepare_cached(HOLDS).await.map_err(failed)?;
        let sequences: Vec<i64> = held.iter().map(|held| held.sequence.as_i64()).collect();
        let mut open = HashMap::new();
        for row in client.query(&holds, &[&sequences, &worker_uuid(worker)]).await.map_err(failed)? {
            let run = Entry::read(&row)?.run;
            open.insert(run.sequence, run);
        }
        Ok(punctual_store::asked_to_stop(worker, held, |sequence| open.get(&sequence)))
    }

    pub(crate) async fn suspected(&self) -> Result<Vec<WorkerId>, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(SUSPECTED).await.map_err(failed)?;
        let label = Labels::NONE.alone();
        let rows = client.query(&statement, &[&label.as_str()]).await.map_err(failed)?;
        Ok(rows.iter().map(|row| WorkerId::from_bytes(row.get::<_, Uuid>(0).into_bytes())).collect())
    }

    pub(crate) async fn expired(
        &self,
        lease: Duration,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<Run>, Failed> {
        let client = self.connection().await?;
        // While the database was out of reach nobody could give a sign of life; a node that has just come does not know
        // whether it was.
        if self.time == Time::Database && self.calls.reached_for() < lease {
            return Ok(Vec::new());
        }
        let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX / 4);
        let bury = client.prepare_cached(BURY).await.map_err(failed)?;
        let unheard = client.prepare_cached(UNHEARD).await.map_err(failed)?;
        let (callers, receivers) = (self.callers(now), worker_uuid(WorkerId::first_of_receivers(None)));
        client.execute(&bury, &[&callers, &lease, &receivers]).await.map_err(failed)?;
        let values: [&(dyn ToSql + Sync); 4] = [&callers, &lease, &UNHEARD_MAX, &receivers];
        let rows = client.query(&unheard, &values).await.map_err(failed)?;
        let workers: HashSet<Uuid> = rows.iter().filter_map(|row| row.get(2)).collect();
        let workers: Vec<Uuid> = workers.into_iter().collect();
        let listed = listed(&client, &workers).await?;
        let mut lost = self.overdue(&client, now, limit).await?;
        for row in &rows {
            if lost.len() >= limit {
                break;
            }
            let sequence = Sequence::from_i64(row.get(0));
            let (run, _) = decode_run(sequence, row.get::<_, &[u8]>(1))?;
            let is_dead = row.get::<_, Option<bool>>(3) == Some(true);
            let held = (row.get::<_, Uuid>(2), Held { sequence, attempt: run.attempt });
            if is_dead || !listed.contains(&held) {
                lost.push(run);
            }
        }
        Ok(lost)
    }
}

/// What a claim came to.
struct Leased {
    claimed: Vec<Entry>,
    /// Met in their turn, and too late to start.
    late: Vec<Run>,
}

/// Runs whose time has come get their turn.
async fn promote(transaction: &Work<'_>, now: Timestamp) -> Result<(), Failed> {
    let promote = transaction.prepare_cached(PROMOTE).await?;
    let mut moves = Moves::default();
    for row in transaction.query(&promote, &[&millis(now)]).await? {
        moves.change_line(lane(row.get(0))?, Some(DELAYED), Some(READY));
    }
    transaction.moved(&moves);
    Ok(())
}

/// What living workers have listed.
async fn listed(client: &Client<'_>, workers: &[Uuid]) -> Result<HashSet<(Uuid, Held)>, Failed> {
    let sql = "select id, held_seq, held_attempt from workers where id = any($1) and not is_dead";
    let statement = client.prepare_cached(sql).await.map_err(failed)?;
    let mut listed = HashSet::new();
    for row in client.query(&statement, &[&workers]).await.map_err(failed)? {
        let (worker, sequences, attempts): (Uuid, Vec<i64>, Vec<i32>) = (row.get(0), row.get(1), row.get(2));
        listed.extend(sequences.into_iter().zip(attempts).map(|(sequence, attempt)| {
            (worker, Held { sequence: Sequence::from_i64(sequence), attempt: attempt as u32 })
        }));
    }
    Ok(listed)
}
