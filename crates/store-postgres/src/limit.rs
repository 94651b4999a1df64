//! Limits: runs that pass gates, wait in line and go on.
//!
//! Whatever a transaction does to runs that have limits is noted in its journal when it is written. At the end of it, before the
//! commit, the gates of all of them are locked, in one order and once, and it is decided as everywhere by
//! [`punctual_store::Gates`]: what was held comes back, who comes passes or stands in line, and who is first in line goes on.
//! Runs are held before gates; those who go on because of others are held only if nobody else holds them, so that nobody waits for a
//! run with a gate in hand. Who holds one looks at the line itself when he has done. Runs without limits have no part in this: no
//! lock, no read, no statement.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::id::{Sequence, WorkerId};
use punctual_domain::policy::limit::{Allowed, Key, Limited, Rule};
use punctual_domain::run::RunState;
use punctual_store::record::{decode_rule, decode_run, encode_rule};
use punctual_store::{Advanced, Error, GO_ON_MAX, Gates, Passage, RuleChange, Shards, claim_born};
use tokio_postgres::types::ToSql;

use crate::claim::LEASE;
use crate::client::Client;
use crate::depth::Moves;
use crate::error::{Failed, damaged, failed};
use crate::open_runs::OpenColumns;
use crate::postgres::{Postgres, transact};
use crate::put_jobs::write_rows;
use crate::row::{
    COMING as UNPASSED, Entry, LIMITED, RUNNING, millis, numbers, timestamp, urgency, worker_uuid,
};
use crate::work::Work;

const ENSURE: &str = "
insert into gates (key, breadth, shard, rule)
select * from unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::text[]) on conflict do nothing";

pub(crate) const LOCK: &str = "
select key, rule, held, waiting, full_at, next_at from gates where key = any($1) order by breadth, key for update";

/// The first in the lines of gates $1, $2 of each, to learn which other gates they come to. Runs of shards that do not live here
/// are what a move has brought so far, or left behind.
pub(crate) const PEEK: &str = "
select h.seq, h.record from unnest($1::bigint[], $2::bigint[]) x (key, count), lateral (
    select seq, record from open_runs o
    where o.line = -2 and o.waits_on = x.key and o.shard = any(array(select shard from shards))
    order by o.lane, o.urgency, o.behind, o.seq limit x.count) h";

/// The same when the gates are held. One that somebody else holds has no record.
pub(crate) const HEADS: &str = "
with heads as materialized (
    select x.key, h.seq, h.n from unnest($1::bigint[], $2::bigint[]) x (key, count), lateral (
        select seq, row_number() over (order by o.lane, o.urgency, o.behind, o.seq) as n from open_runs o
        where o.line = -2 and o.waits_on = x.key and o.shard = any(array(select shard from shards))
        order by o.lane, o.urgency, o.behind, o.seq limit x.count) h
)
select h.seq, r.revision, r.record, r.line, h.key from heads h left join lateral (
    select o.revision, o.record, o.line from open_runs o where o.seq = h.seq for update skip locked) r on true
order by h.key, h.n";

pub(crate) const WRITE: &str = "
update gates g set held = x.held, waiting = x.waiting, full_at = x.full_at, next_at = x.next_at, rule = x.rule
from unnest($1::bigint[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[])
    x (key, held, waiting, full_at, next_at, rule) where g.key = any(array[x.key])";

/// Gates whose time has come.
pub(crate) const RIPE: &str = "
select key from gates where next_at <= $1 and ($2::smallint[] is null or shard = any($2)) order by next_at limit $3";

/// Runs whose time has come, and that have not come to their gates.
pub(crate) const COMING: &str = "
select seq, revision, record, line from open_runs
where line = -3 and available_at <= $1 and ($2::smallint[] is null or shard = any($2))
    and shard = any(array(select shard from shards))
order by available_at, seq limit $3 for update skip locked";

/// When the first gate is to be looked at, or the first run comes.
const NEXT: &str = "
select least(
    (select min(next_at) from gates where next_at is not null and ($1::smallint[] is null or shard = any($1))),
    (select available_at from open_runs where line = -3 and ($1::smallint[] is null or shard = any($1))
        and shard = any(array(select shard from shards))
     order by available_at, seq limit 1))";

/// So many gates are looked at in one transaction: each has a line, and all of them are locked until it ends.
const RIPE_MAX: i64 = 200;

/// Gates that say nothing.
const FORGET: &str = "
delete from gates where key in (
    select key from gates where held = 0 and waiting = 0 and next_at is null and full_at <= $1 limit $2 for update skip locked)";

/// What limited runs held before a transaction and hold after it.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// As they were read, whether they stood in a line, and as they were written.
    changed: Vec<(Run, bool, Run)>,
    /// Those that have a gate to pass.
    coming: BTreeMap<Sequence, Entry>,
    /// Gates to look at, and how many of their lines.
    touched: BTreeMap<Key, i64>,
    at: Option<Timestamp>,
}

/// Runs as they were when the transaction ended, if limits changed them.
pub(crate) type Settled = HashMap<Sequence, Entry>;

/// The run as it was in the end.
pub(crate) fn settle(settled: &Settled, run: Run) -> Run {
    settled.get(&run.sequence).map_or(run, |entry| entry.run.clone())
}

impl Journal {
    /// A limited run is written, open or ended.
    pub(crate) fn note(&mut self, entry: &Entry, now: Timestamp) {
        self.at = Some(now);
        if let Some(had) = &entry.had {
            self.changed.push((Run::clone(had), entry.stands == Some(LIMITED), entry.run.clone()));
        }
        let run = &entry.run;
        let comes = matches!(run.state, RunState::Pending(_))
            && !run.is_behind()
            && !run.has_passed()
            && run.available_at <= now;
        match comes {
            true => drop(self.coming.insert(run.sequence, entry.clone())),
            false => drop(self.coming.remove(&run.sequence)),
        }
    }

    fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.coming.is_empty() && self.touched.is_empty()
    }
}

/// A limited run's place in its line.
type Place = (i16, i32, i64, i64);

fn place(run: &Run) -> Place {
    (run.lane.rank().into(), urgency(run), millis(run.scheduled_for), run.sequence.as_i64())
}

pub(crate) fn column(key: Key) -> i64 {
    key.0 as i64
}

/// The gates of a transaction, which are held.
struct Settling<'t, 'c> {
    transaction: &'t Work<'c>,
    gates: Gates,
    held: BTreeMap<Key, u8>,
    written: Settled,
    /// Who came to which line in this transaction.
    standing: HashMap<Key, Vec<Sequence>>,
    now: Timestamp,
}

impl Postgres {
    /// Before a commit: what the transaction did to limited runs is settled at their gates.
    pub(crate) async fn settle_limits(
        &self,
        transaction: &Work<'_>,
        journal: Journal,
        limit: usize,
    ) -> Result<Settled, Failed> {
        let Some(now) = journal.at.filter(|_| !journal.is_empty()) else { return Ok(Settled::new()) };
        let (mut wanted, mut freed) = (BTreeMap::new(), BTreeMap::new());
        let mut want = |limited: &Limited| {
            wanted.entry(limited.key).or_insert_with(|| limited.clone());
        };
        for (before, stood, after) in &journal.changed {
            before.permits().for_each(&mut want);
            for limited in before.permits().filter(|one| !after.permits().any(|kept| kept.key == one.key)) {
                *freed.entry(limited.key).or_insert(1_i64) += 1;
            }
            if let Some(limited) = before.next_limit().filter(|_| *stood) {
                want(limited);
                *freed.entry(limited.key).or_insert(1) += 1;
            }
        }
        for entry in journal.coming.values() {
            entry.run.limits.all().iter().for_each(&mut want);
        }
        freed.extend(&journal.touched);
        for limited in peek(transaction, &freed).await? {
            want(&limited);
        }
        let gates = self.hold(transaction, wanted.values(), &journal.touched).await?;
        let held = wanted.iter().map(|(key, limited)| (*key, limited.breadth)).collect();
        let (written, standing) = (Settled::new(), HashMap::new());
        let mut settling = Settling { transaction, gates, held, written, standing, now };
        for (before, stood, after) in &journal.changed {
            if *stood {
                settling.gates.leave(before);
            }
            settling.gates.give_back(before, after);
        }
        settling.gates.touch(journal.touched.into_keys());
        let mut coming: Vec<Entry> = journal.coming.into_values().collect();
        coming.sort_by_key(|entry| place(&entry.run));
        for entry in coming {
            settling.arrive(entry);
        }
        settling.go_on(&freed, limit).await?;
        settling.write(self).await
    }

    /// Locks gates, in their order. Those that are not there yet are made, in the same order.
    async fn hold(
        &self,
        transaction: &Work<'_>,
        wanted: impl Iterator<Item = &Limited>,
        touched: &BTreeMap<Key, i64>,
    ) -> Result<Gates, Failed> {
        let wanted: BTreeMap<Key, &Limited> = wanted.map(|limited| (limited.key, limited)).collect();
        let keys: Vec<i64> = wanted.keys().chain(touched.keys()).map(|key| column(*key)).collect();
        let lock = transaction.prepare_cached(LOCK).await?;
        let mut rows = transaction.query(&lock, &[&keys]).await?;
        for _ in 0..3 {
            let known: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
            let missing = wanted.values().filter(|limited| !known.contains(&column(limited.key)));
            let missing: Vec<&Limited> = missing.copied().collect();
            if missing.is_empty() {
                break;
            }
            self.ensure_gates(transaction, &missing).await?;
            rows = transaction.query(&lock, &[&keys]).await?;
        }
        let mut gates = Gates::default();
        let mut names: BTreeSet<String> = BTreeSet::new();
        for row in &rows {
            let rule: Option<String> = row.get(1);
            names.extend(rule.clone());
            gates.recall_gate(Passage {
                key: Key(row.get::<_, i64>(0) as u64),
                rule: rule.map(Arc::from),
                held: row.get::<_, i32>(2).unsigned_abs(),
                waiting: row.get::<_, i64>(3).unsigned_abs(),
                full_at: row.get(4),
                next_at: row.get::<_, Option<i64>>(5).map(timestamp).transpose()?,
            });
        }
        names.extend(wanted.values().filter_map(|limited| match &limited.allowed {
            Allowed::Rule(name) => Some(name.to_string()),
            Allowed::Own(_) => None,
        }));
        if !names.is_empty() {
            let names: Vec<String> = names.into_iter().collect();
            let find =
                transaction.prepare_cached("select name, record from rules where name = any($1)").await?;
            for row in transaction.query(&find, &[&names]).await? {
                gates.recall_rule(decode_rule(row.get(0), row.get::<_, &str>(1).as_bytes())?);
            }
        }
        Ok(gates)
    }

    async fn ensure_gates(&self, transaction: &Work<'_>, missing: &[&Limited]) -> Result<(), Failed> {
        let mut missing = missing.to_vec();
        missing.sort_by_key(|limited| (limited.breadth, limited.key));
        let keys: Vec<i64> = missing.iter().map(|limited| column(limited.key)).collect();
        let breadths: Vec<i16> = missing.iter().map(|limited| limited.breadth.into()).collect();
        let shards: Vec<i16> =
            missing.iter().map(|limited| limited.key.shard(self.shard_count).0 as i16).collect();
        let rules: Vec<Option<&str>> = missing
            .iter()
            .map(|limited| match &limited.allowed {
                Allowed::Rule(name) => Some(&**name),
                Allowed::Own(_) => None,
            })
            .collect();
        let ensure = transaction.prepare_cached(ENSURE).await?;
        let values: [&(dyn ToSql + Sync); 4] = [&keys, &breadths, &shards, &rules];
        transaction.execute(&ensure, &values).await?;
        Ok(())
    }

    pub(crate) async fn put_rules(&self, changes: &[RuleChange], now: Timestamp) -> Result<(), Failed> {
        transact!(self, |client| {
            let transaction = Work::begin(&mut client).await?;
            // In one order, or two nodes that set the same rules would wait for each other.
            let mut changes: Vec<&RuleChange> = changes.iter().collect();
            changes.sort_by(|one, other| one.name.cmp(&other.name));
            for RuleChange { name, rule } in changes {
                let name: &str = name;
                match rule {
                    Some(rule) => {
                        let record = String::from_utf8(encode_rule(rule)?)
                            .map_err(|_| damaged("a limit whose record is not text"))?;
                        let sql = "insert into rules values ($1, $2) on conflict (name) do update set record = excluded.record";
                        let write = transaction.prepare_cached(sql).await?;
                        transaction.execute(&write, &[&name, &record]).await?;
                    }
                    None => {
                        let delete = transaction.prepare_cached("delete from rules where name = $1").await?;
                        transaction.execute(&delete, &[&name]).await?;
                    }
                }
                let sql = "
                    update gates set next_at = $2 where key in (
                        select key from gates where rule = $1 and waiting > 0 order by breadth, key for update)";
                let wake = transaction.prepare_cached(sql).await?;
                transaction.execute(&wake, &[&name, &millis(now)]).await?;
            }
            transaction.commit(self).await?;
            Ok(())
        })
    }

    pub(crate) async fn rules(&self) -> Result<Vec<Rule>, Failed> {
        let client = self.connection().await?;
        let find =
            client.prepare_cached("select name, record from rules order by name").await.map_err(failed)?;
        let rows = client.query(&find, &[]).await.map_err(failed)?;
        let read = |row: &tokio_postgres::Row| -> Result<Rule, Error> {
            decode_rule(row.get(0), row.get::<_, &str>(1).as_bytes())
        };
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    pub(crate) async fn advance(
        &self,
        shards: &Shards,
        now: Timestamp,
        limit: usize,
    ) -> Result<Advanced, Failed> {
        let (at, numbers, most) = (millis(now), numbers(shards), limit as i64);
        let runs = transact!(self, |client| {
            // Most of the time there is nothing: that costs no transaction.
            let find = client.prepare_cached(RIPE).await?;
            let ripe = client.query(&find, &[&at, &numbers, &RIPE_MAX]).await?;
            let transaction = Work::begin(&mut client).await?;
            let find = transaction.prepare_cached(COMING).await?;
            let rows = transaction.query(&find, &[&at, &numbers, &most]).await?;
            if rows.is_empty() && ripe.is_empty() {
                return Ok(0);
            }
            let mut journal = Journal { at: Some(now), ..Journal::default() };
            for row in &rows {
                let mut entry = Entry::read(row)?;
                entry.revision += 1;
                journal.note(&entry, now);
            }
            let limit = limit.min(GO_ON_MAX);
            let ripe = ripe.iter().map(|row| (Key(row.get::<_, i64>(0) as u64), limit as i64 + 1));
            journal.touched = ripe.collect();
            let settled = self.settle_limits(&transaction, journal, limit).await?;
            transaction.commit(self).await?;
            Ok(settled.values().filter(|entry| entry.run.has_passed()).count() as u64)
        })?;
        let client = self.connection().await?;
        let next = client.prepare_cached(NEXT).await.map_err(failed)?;
        let next_at: Option<i64> = client.query_one(&next, &[&numbers]).await.map_err(failed)?.get(0);
        Ok(Advanced { runs, next_at: next_at.map(timestamp).transpose()? })
    }

    /// So many permits came back to gates that have a line: who is first there goes on.
    pub(crate) async fn go_on_at(&self, freed: &BTreeMap<Key, i64>, now: Timestamp) -> Result<(), Failed> {
        transact!(self, |client| {
            let transaction = Work::begin(&mut client).await?;
            let touched = freed.iter().map(|(key, count)| (*key, count + 1)).collect();
            let journal = Journal { at: Some(now), touched, ..Journal::default() };
            self.settle_limits(&transaction, journal, GO_ON_MAX).await?;
            transaction.commit(self).await?;
            Ok(())
        })
    }

    pub(crate) async fn forget_gates(&self, now: Timestamp, limit: i64) -> Result<(), Failed> {
        let client = self.connection().await?;
        let nanoseconds = millis(now).saturating_mul(1_000_000);
        client.execute(FORGET, &[&nanoseconds, &limit]).await.map_err(failed)?;
        Ok(())
    }
}

/// So many open runs are read at a time.
const COUNT_PAGE: i64 = 10_000;

/// Adds what runs hold and wait for.
const ADD: &str = "
insert into gates (key, breadth, shard, rule, held, waiting, next_at)
select * from unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::text[], $5::int[], $6::bigint[], $7::bigint[])
on conflict (key) do update set held = gates.held + excluded.held, waiting = gates.waiting + excluded.waiting,
    next_at = least(gates.next_at, excluded.next_at)";

/// Takes it away again, from gates that are held; whoever is left in line may go on.
const SUBTRACT: &str = "
update gates g set held = greatest(g.held - x.held, 0), waiting = greatest(g.waiting - x.waiting, 0), next_at = 0
from unnest($1::bigint[], $2::int[], $3::bigint[]) x (key, held, waiting) where g.key = x.key";

/// What open runs hold and wait for at their gates, by key, in the order in which gates are held.
#[derive(Default)]
struct Tally {
    keys: Vec<i64>,
    breadths: Vec<i16>,
    shards: Vec<i16>,
    rules: Vec<Option<String>>,
    held: Vec<i32>,
    waiting: Vec<i64>,
    next_at: Vec<Option<i64>>,
}

impl Tally {
    /// Of all runs, or of those in some shards. Their lines are looked at as soon as anybody looks.
    async fn read(client: &Client<'_>, of: Option<&[i16]>, shard_count: u16) -> Result<Self, Failed> {
        let mut gates = Gates::default();
        let mut breadths: HashMap<Key, u8> = HashMap::new();
        let mut after = i64::MIN;
        loop {
            let page = "
                select seq, record from open_runs where seq > $1 and ($3::smallint[] is null or shard = any($3))
                order by seq limit $2";
            let rows = client.query(page, &[&after, &COUNT_PAGE, &of]).await.map_err(failed)?;
            let Some(last) = rows.last() else { break };
            after = last.get(0);
            for row in &rows {
                let (run, _) = decode_run(Sequence::from_i64(row.get(0)), row.get::<_, &[u8]>(1))?;
                breadths.extend(run.limits.all().iter().map(|limited| (limited.key, limited.breadth)));
                gates.recall(&run, Timestamp::UNIX_EPOCH);
            }
        }
        let breadth = |passage: &Passage| breadths.get(&passage.key).copied().unwrap_or_default();
        let mut passages: Vec<Passage> = gates.passages().collect();
        passages.sort_by_key(|passage| (breadth(passage), passage.key));
        let mut tally = Tally::default();
        for passage in passages {
            tally.keys.push(column(passage.key));
            tally.breadths.push(breadth(&passage).into());
            tally.shards.push(passage.key.shard(shard_count).0 as i16);
            tally.held.push(passage.held as i32);
            tally.waiting.push(passage.waiting as i64);
            tally.next_at.push(passage.next_at.map(millis));
            tally.rules.push(passage.rule.map(|rule| rule.to_string()));
        }
        Ok(tally)
    }

    async fn add(&self, client: &Client<'_>) -> Result<(), Failed> {
        let values: [&(dyn ToSql + Sync); 7] =
            [&self.keys, &self.breadths, &self.shards, &self.rules, &self.held, &self.waiting, &self.next_at];
        client.execute(ADD, &values).await.map_err(failed)?;
        Ok(())
    }
}

/// Makes the gates that the open runs of a database tell of, while nobody uses it. Their lines are looked at as soon as somebody
/// does.
pub(crate) async fn count_gates(client: &Client<'_>, shard_count: u16) -> Result<(), Failed> {
    let tally = Tally::read(client, None, shard_count).await?;
    client.batch_execute("delete from gates").await.map_err(failed)?;
    tally.add(client).await
}

/// Runs of shards have come from another database: from now on they are counted here.
pub(crate) async fn bring_gates(client: &Client<'_>, shards: &[i16], shard_count: u16) -> Result<(), Failed> {
    Tally::read(client, Some(shards), shard_count).await?.add(client).await
}

/// Runs of shards, which are held, leave for another database: from now on they are not counted here.
pub(crate) async fn take_gates(client: &Client<'_>, shards: &[i16], shard_count: u16) -> Result<(), Failed> {
    let any = client.query_opt("select from gates limit 1", &[]).await.map_err(failed)?;
    if any.is_none() {
        return Ok(());
    }
    let tally = Tally::read(client, Some(shards), shard_count).await?;
    client.query(LOCK, &[&tally.keys]).await.map_err(failed)?;
    let values: [&(dyn ToSql + Sync); 3] = [&tally.keys, &tally.held, &tally.waiting];
    client.execute(SUBTRACT, &values).await.map_err(failed)?;
    Ok(())
}

/// Limits of those that are first in the lines of these gates.
async fn peek(transaction: &Work<'_>, freed: &BTreeMap<Key, i64>) -> Result<Vec<Limited>, Failed> {
    if freed.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<i64> = freed.keys().map(|key| column(*key)).collect();
    let counts: Vec<i64> = freed.values().copied().collect();
    let find = transaction.prepare_cached(PEEK).await?;
    let mut found = Vec::new();
    for row in transaction.query(&find, &[&keys, &counts]).await? {
        let (run, _) = decode_run(Sequence::from_i64(row.get(0)), row.get::<_, &[u8]>(1))?;
        found.extend(run.limits.all().iter().cloned());
    }
    Ok(found)
}

/// One that is first in a line: as it is, or held by somebody else.
enum Head {
    Ours(Box<Entry>),
    Others,
}

impl Settling<'_, '_> {
    /// A run comes to its gates.
    fn arrive(&mut self, mut entry: Entry) {
        self.gates.arrive(&mut entry.run, self.now);
        self.keep(entry);
    }

    /// Notes a run as it is now; one that has passed everything and was born for a worker is leased to it.
    fn keep(&mut self, mut entry: Entry) {
        if let Some(worker) = entry.wish.filter(|_| entry.run.has_passed()) {
            entry.attempts.extend(claim_born(&mut entry.run, worker, self.now));
        }
        if let Some(limited) = entry.run.next_limit().filter(|_| entry.run.is_limited()) {
            self.standing.entry(limited.key).or_default().push(entry.run.sequence);
        }
        self.written.insert(entry.run.sequence, entry);
    }

    /// Who is first in line goes on, narrow gates first, so that who has passed one is in the line of the next when that is
    /// looked at.
    async fn go_on(&mut self, freed: &BTreeMap<Key, i64>, limit: usize) -> Result<(), Failed> {
        let mut touched: BTreeSet<(u8, Key)> = BTreeSet::new();
        let mut lines: BTreeMap<Key, BTreeMap<Place, Head>> = BTreeMap::new();
        let (mut gone, mut is_read) = (0, false);
        loop {
            while let Some(key) = self.gates.touched() {
                touched.insert((self.held.get(&key).copied().unwrap_or_default(), key));
            }
            if !is_read && !touched.is_empty() {
                is_read = true;
                lines = self.heads(touched.iter().map(|(_, key)| *key), freed).await?;
            }
            let Some((_, key)) = touched.pop_first() else { return Ok(()) };
            let mut line = lines.remove(&key).unwrap_or_default();
            // Whoever came to this line in this transaction stands among the others.
            let came = self.standing.remove(&key).unwrap_or_default();
            let came = came.iter().filter_map(|sequence| self.written.get(sequence));
            for entry in came.filter(|entry| stands_at(&entry.run, key)) {
                line.insert(place(&entry.run), Head::Ours(Box::new(entry.clone())));
            }
            loop {
                let Some((_, head)) = line.pop_first() else {
                    // There may be more than were looked at.
                    if self.gates.counts(key).1 > 0 {
                        self.gates.look_at(key, self.now);
                    }
                    break;
                };
                let Head::Ours(mut entry) = head else {
                    // He looks at the line himself when he has done; but he may only have looked at the run.
                    self.gates.look_at(key, self.now);
                    break;
                };
                let is_held = entry.run.limits.all().iter().all(|one| self.held.contains_key(&one.key));
                if !is_held || gone >= limit {
                    self.gates.look_at(key, self.now);
                    break;
                }
                if !self.gates.go_on(&mut entry.run, self.now) {
                    break;
                }
                gone += 1;
                entry.revision += i32::from(!self.written.contains_key(&entry.run.sequence));
                self.keep(*entry);
            }
        }
    }

    async fn heads(
        &self,
        keys: impl Iterator<Item = Key>,
        freed: &BTreeMap<Key, i64>,
    ) -> Result<BTreeMap<Key, BTreeMap<Place, Head>>, Failed> {
        let keys: Vec<Key> = keys.collect();
        let counts: Vec<i64> = keys.iter().map(|key| freed.get(key).copied().unwrap_or(2)).collect();
        let columns: Vec<i64> = keys.iter().map(|key| column(*key)).collect();
        let find = self.transaction.prepare_cached(HEADS).await?;
        let mut lines: BTreeMap<Key, BTreeMap<Place, Head>> = BTreeMap::new();
        let mut closed = BTreeSet::new();
        for row in self.transaction.query(&find, &[&columns, &counts]).await? {
            let key = Key(row.get::<_, i64>(4) as u64);
            // One that was written in this transaction stands where that says.
            if closed.contains(&key) || self.written.contains_key(&Sequence::from_i64(row.get(0))) {
                continue;
            }
            let line = lines.entry(key).or_default();
            match row.get::<_, Option<i32>>(1) {
                Some(_) => {
                    let entry = Entry::read(&row)?;
                    line.insert(place(&entry.run), Head::Ours(Box::new(entry)));
                }
                None => {
                    // Behind all that were read before it; nobody overtakes it.
                    closed.insert(key);
                    let last = line.last_key_value().map_or((i16::MIN, 0, 0, 0), |(place, _)| *place);
                    line.insert((last.0, last.1, last.2, last.3.saturating_add(1)), Head::Others);
                }
            }
        }
        Ok(lines)
    }

    async fn write(self, store: &Postgres) -> Result<Settled, Failed> {
        let Settling { transaction, gates, written, now, .. } = self;
        let mut open = OpenColumns::default();
        let mut leased: BTreeMap<WorkerId, Vec<&Entry>> = BTreeMap::new();
        let mut moves = Moves::default();
        for entry in written.values() {
            // One that was born or put back in this transaction was counted when it came to its gates.
            let stands = entry.stands.filter(|line| *line != RUNNING).or(Some(UNPASSED));
            match entry.run.lease() {
                Some(lease) => {
                    moves.wait(&entry.run, stands, Some(RUNNING));
                    leased.entry(lease.worker).or_default().push(entry);
                }
                None => open.push(&Entry { stands, ..entry.clone() }, now),
            }
        }
        transaction.moved(&moves);
        write_rows(transaction, &open).await?;
        for (worker, entries) in leased {
            let sequences: Vec<i64> = entries.iter().map(|entry| entry.run.sequence.as_i64()).collect();
            let revisions: Vec<i32> = entries.iter().map(|entry| entry.revision).collect();
            let records: Vec<Vec<u8>> = entries.iter().map(|entry| entry.record()).collect();
            let lease = transaction.prepare_cached(LEASE).await?;
            let (worker, callers) = (worker_uuid(worker), store.callers(now));
            let values: [&(dyn ToSql + Sync); 5] = [&worker, &callers, &sequences, &revisions, &records];
            transaction.execute(&lease, &values).await?;
        }
        let (mut keys, mut held, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        let (mut full_at, mut next_at, mut rules) = (Vec::new(), Vec::new(), Vec::new());
        store.lines.note(gates.passages().map(|passage| (passage.key, passage.waiting)));
        for passage in gates.passages() {
            keys.push(column(passage.key));
            held.push(i32::try_from(passage.held).unwrap_or(i32::MAX));
            waiting.push(i64::try_from(passage.waiting).unwrap_or(i64::MAX));
            full_at.push(passage.full_at);
            next_at.push(passage.next_at.map(millis));
            rules.push(passage.rule.map(|rule| rule.to_string()));
        }
        let update = transaction.prepare_cached(WRITE).await?;
        let values: [&(dyn ToSql + Sync); 6] = [&keys, &held, &waiting, &full_at, &next_at, &rules];
        transaction.execute(&update, &values).await?;
        let mut settled = written;
        for entry in settled.values_mut() {
            entry.stands = Some(if entry.run.lease().is_some() { RUNNING } else { entry.line(now) });
        }
        Ok(settled)
    }
}

fn stands_at(run: &Run, key: Key) -> bool {
    run.is_limited() && run.next_limit().is_some_and(|limited| limited.key == key)
}
