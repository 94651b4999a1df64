//! Straight through: runs that pass gates where nobody waits.
//!
//! Most runs with limits find their gates open, and most that end leave nobody in a line. Then a gate is a number that is counted up
//! with the birth and down with the end, in the statements that are made anyway. Promise: what goes straight through takes nobody's
//! turn and counts as everywhere; whatever else there is to decide is left to [`crate::limit`].

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::id::Sequence;
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::policy::limit::{Allowance, Allowed, Key, Limited};
use punctual_store::{Birth, Firing, Refused, claim_born};
use tokio_postgres::types::ToSql;

use crate::client::Client;
use crate::error::Failed;
use crate::fire::{Columns, FIRE, SHARE_SHARDS, refusals};
use crate::limit::column;
use crate::postgres::{Postgres, transact};
use crate::row::{Entry, shards};

/// So many pass each of these gates, if nobody waits there and all of them have room. In the order in which gates are locked.
pub(crate) const PASS: &str = "
update gates g set held = g.held + x.count
from unnest($1::bigint[], $2::int[], $3::int[]) x (key, count, max)
where g.key = any(array[x.key]) and g.waiting = 0 and g.held + x.count <= x.max
returning g.key";

/// Makes gates through which so many have passed. What is there already is left as it is.
const MAKE: &str = "
insert into gates (key, breadth, shard, held)
select * from unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::int[]) on conflict do nothing returning key";

/// Gives permits back to gates that are held by this transaction.
pub(crate) const TAKE_BACK: &str = "
update gates g set held = g.held - x.count from unnest($1::bigint[], $2::int[]) x (key, count)
where g.key = any(array[x.key])";

/// Gates that have a line, as far as this node has seen: it takes a transaction that holds them to decide who goes on. Promise: none
/// but speed.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashSet<Key>>);

/// Above this it is forgotten which were seen.
const LINES_MAX: usize = 100_000;

impl Lines {
    fn seen(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A gate was seen, with so many in its line.
    pub(crate) fn note(&self, gates: impl IntoIterator<Item = (Key, u64)>) {
        let mut seen = self.seen();
        if seen.len() > LINES_MAX {
            seen.clear();
        }
        for (key, waiting) in gates {
            match waiting {
                0 => seen.remove(&key),
                _ => seen.insert(key),
            };
        }
    }

    /// Whether somebody waits at one of the gates at which a run holds a permit.
    pub(crate) fn are_held_up_by(&self, run: &Run) -> bool {
        let mut permits = run.permits().peekable();
        permits.peek().is_some() && {
            let seen = self.seen();
            permits.any(|limited| seen.contains(&limited.key))
        }
    }
}

/// Permits of gates: how many of each, and how many there may be. By breadth and key as a column: in that order gates are locked.
#[derive(Default)]
struct Permits(BTreeMap<(u8, i64), (i32, i32)>);

impl Permits {
    /// One for each of these births, which are [`straight`].
    fn of<'b>(births: impl Iterator<Item = &'b Birth>) -> Self {
        let mut permits = Permits::default();
        for limited in births.flat_map(|birth| birth.limits.all()) {
            let max = own_max(limited).unwrap_or(0);
            let (count, least) = permits.0.entry((limited.breadth, column(limited.key))).or_insert((0, max));
            *count += 1;
            *least = max.min(*least);
        }
        permits
    }

    fn keys(&self) -> Vec<i64> {
        self.0.keys().map(|(_, key)| *key).collect()
    }

    fn counts(&self) -> Vec<i32> {
        self.0.values().map(|(count, _)| *count).collect()
    }

    /// Takes those of gates that are not there yet, and adds them to those that were open.
    async fn take_of_new(
        &self,
        store: &Postgres,
        client: &Client<'_>,
        open: &mut HashSet<i64>,
    ) -> Result<(), Failed> {
        let rest = self.0.iter().filter(|((_, key), (count, max))| !open.contains(key) && count <= max);
        let rest: Vec<_> = rest.collect();
        if rest.is_empty() {
            return Ok(());
        }
        let keys: Vec<i64> = rest.iter().map(|((_, key), _)| *key).collect();
        let breadths: Vec<i16> = rest.iter().map(|((breadth, _), _)| (*breadth).into()).collect();
        let shards: Vec<i16> =
            keys.iter().map(|key| Key(*key as u64).shard(store.shard_count).0 as i16).collect();
        let counts: Vec<i32> = rest.iter().map(|(_, (count, _))| *count).collect();
        let make = client.prepare_cached(MAKE).await?;
        let values: [&(dyn ToSql + Sync); 4] = [&keys, &breadths, &shards, &counts];
        open.extend(client.query(&make, &values).await?.iter().map(|row| row.get::<_, i64>(0)));
        Ok(())
    }
}

/// The most that a job allows at once, if that is all it says.
fn own_max(limited: &Limited) -> Option<i32> {
    match limited.allowed {
        Allowed::Own(Allowance { max: Some(max), rate: None }) => i32::try_from(max.get()).ok(),
        Allowed::Own(_) | Allowed::Rule(_) => None,
    }
}

impl Postgres {
    /// Whether all that is to be decided about a firing is whether its gates are open.
    pub(crate) fn is_straight(&self, firing: &Firing, now: Timestamp) -> bool {
        let is_plain = firing.ledger.is_empty() && firing.progress.is_none() && firing.operation.is_none();
        is_plain && !firing.births.is_empty() && firing.births.iter().all(|birth| straight(birth, now)) && {
            let seen = self.lines.seen();
            let mut limits = firing.births.iter().flat_map(|birth| birth.limits.all());
            !limits.any(|limited| seen.contains(&limited.key))
        }
    }

    /// Fires what is straight. Those without an answer found a gate closed.
    pub(crate) async fn fire_straight(
        &self,
        firings: &[Firing],
        now: Timestamp,
    ) -> Result<Vec<Option<Result<Vec<Run>, Refused>>>, Failed> {
        if firings.is_empty() {
            return Ok(Vec::new());
        }
        let births = firings.iter().map(|firing| firing.births.len()).sum();
        let sequences = self.sequences.take(self, births, now).await?;
        let shards = shards(firings.iter().map(|firing| firing.due.key.job));
        let wanted = Permits::of(firings.iter().flat_map(|firing| &firing.births));
        let (keys, counts) = (wanted.keys(), wanted.counts());
        let most: Vec<i32> = wanted.0.values().map(|(_, max)| *max).collect();
        let (places, answers, refused) = transact!(self, |client| {
            let transaction = client.transaction().await?;
            let share = transaction.prepare_cached(SHARE_SHARDS).await?;
            let pass = transaction.prepare_cached(PASS).await?;
            let (shared, wants): ([&(dyn ToSql + Sync); 1], [&(dyn ToSql + Sync); 3]) =
                ([&shards], [&keys, &counts, &most]);
            let (shared, passed) =
                tokio::join!(transaction.query(&share, &shared), transaction.query(&pass, &wants));
            shared?;
            let mut open: HashSet<i64> = passed?.iter().map(|row| row.get(0)).collect();
            wanted.take_of_new(self, &transaction, &mut open).await?;
            let mut sequences = sequences.iter().copied();
            let (mut columns, mut places, mut answers) = (Columns::default(), Vec::new(), Vec::new());
            for (place, firing) in firings.iter().enumerate() {
                let mut limits = firing.births.iter().flat_map(|birth| birth.limits.all());
                if !limits.all(|limited| open.contains(&column(limited.key))) {
                    continue;
                }
                columns.push(places.len(), firing, now);
                let born = firing.births.iter().zip(&mut sequences);
                let entries: Vec<Entry> =
                    born.map(|(birth, sequence)| pass_all(birth, firing, sequence, now)).collect();
                entries.iter().for_each(|entry| columns.push_birth(places.len(), entry, now));
                places.push(place);
                answers.push(entries);
            }
            let mut refused = Default::default();
            if !places.is_empty() {
                let fire = transaction.prepare_cached(FIRE).await?;
                let numbers: &[i16] = &shards;
                let rows = transaction.query(&fire, &columns.values(&self.callers(now), &numbers)).await?;
                refused = refusals(&rows);
            }
            let gone: HashSet<usize> = places
                .iter()
                .enumerate()
                .filter(|(index, _)| !refused.contains_key(index))
                .map(|(_, place)| *place)
                .collect();
            let rest = firings.iter().enumerate().filter(|(place, _)| !gone.contains(place));
            let mut unused = Permits::of(rest.flat_map(|(_, firing)| &firing.births));
            unused.0.retain(|(_, key), _| open.contains(key));
            if !unused.0.is_empty() {
                let take_back = transaction.prepare_cached(TAKE_BACK).await?;
                transaction.execute(&take_back, &[&unused.keys(), &unused.counts()]).await?;
            }
            let begun = Instant::now();
            transaction.commit().await.map_err(Failed::at_commit)?;
            self.calls.committed(begun.elapsed());
            Ok((places, answers, refused))
        })?;
        let mut fired: Vec<Option<Result<Vec<Run>, Refused>>> = firings.iter().map(|_| None).collect();
        for (place, answer) in places.into_iter().zip(self.fired(answers, &refused, now)) {
            fired[place] = Some(answer);
        }
        Ok(fired)
    }
}

/// Whether all that a birth has to pass is what its job allows at once, and its time has come; if it may not wait, for a worker.
fn straight(birth: &Birth, now: Timestamp) -> bool {
    let has_max = |limited: &Limited| own_max(limited).is_some();
    let may_pass = birth.full.is_none() || birth.claimed_by.is_some();
    may_pass
        && birth.available_at <= now
        && !birth.limits.is_empty()
        && birth.limits.all().iter().all(has_max)
}

/// A run that has passed all its gates when it is born.
fn pass_all(birth: &Birth, firing: &Firing, sequence: Sequence, now: Timestamp) -> Entry {
    let worker = birth.claimed_by;
    let mut entry = Entry::born(birth.clone().into_run(firing.parent(), sequence, now));
    let gates = entry.run.limits.len() as u8;
    // It is pending, and its time has come.
    let _ = lifecycle::apply(&mut entry.run, Event::Passed { gates, at: now });
    entry.attempts.extend(worker.and_then(|worker| claim_born(&mut entry.run, worker, now)));
    entry
}
