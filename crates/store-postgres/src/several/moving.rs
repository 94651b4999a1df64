//! Moves shards to another database while they are in use.
//!
//! Everything of the shards is copied in pages; what changes meanwhile is noted by triggers and brought after it. When
//! little is left, the shards are held for a moment: the rest is brought, they are gone here, and only then they live
//! there. Promise: a shard never lives in two databases, and is nowhere only between two commits, which anybody can
//! finish; what was acknowledged is there afterwards, once; each step may be done twice, and one who was overtaken does
//! nothing more.

use std::collections::{BTreeMap, HashMap};

use punctual_domain::id::{OperationId, ShardId};
use punctual_store::{Error, MoveState, MoveStep, Moved};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::Several;
use super::homes::Homes;
use super::parts::{PARTS, Part};
use crate::error::{Failed, failed};
use crate::limit::{bring_gates, take_gates};
use crate::partition::{LATE, Partition};
use crate::postgres::{Postgres, transact};
use crate::work::Work;

/// Rows that are looked at in one step.
const PAGE: i64 = 1_000;

/// Pages of a step.
const PAGES: usize = 20;

/// Changes that are brought at once.
const CHANGES: i64 = 2_000;

/// When fewer changes than this are left, the shards are held and go.
const FEW: usize = 500;

/// While shards are held nobody fires them: whoever is stopped in the middle of it lets go.
const HOLD: &str = "set local lock_timeout = '2s'; set local idle_in_transaction_session_timeout = '5s'";

const BEGIN: &str = "
insert into moves (operation, is_source, peer, shards, is_over, token) values ($1, $2, $3, $4, false, $5)
on conflict (operation) do update set token = excluded.token, shards = excluded.shards
where moves.token <= excluded.token";

/// Nobody overtakes until the transaction ends.
const GO_ON: &str = "
update moves set token = $2 where operation = $1 and token <= $2 and not is_over returning position";

const SOURCES: &str = "select operation, is_source, peer, shards, is_over from moves order by operation";

/// What was noted, oldest first.
const NOTED: &str = "select id, part, is_gone, record::text from changes order by id limit $1";

const ARRIVE: &str = "
with arrived as (delete from moves where operation = $1 and not is_source and epochs is not null returning shards, epochs)
insert into shards select s, null, e + 1, 0 from arrived, unnest(arrived.shards, arrived.epochs) x (s, e)
on conflict (shard) do nothing returning shard";

/// A move that a database knows of.
struct Known {
    operation: OperationId,
    is_source: bool,
    peer: u8,
    shards: Vec<i16>,
    is_over: bool,
}

fn uuid(id: OperationId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

fn numbers(shards: &[ShardId]) -> Vec<i16> {
    shards.iter().map(|shard| shard.0 as i16).collect()
}

/// Somebody else goes on with it.
fn overtaken() -> Failed {
    Error::Unavailable { reason: "another node goes on with the move".into() }.into()
}

fn as_list(rows: &[String]) -> String {
    format!("[{}]", rows.join(","))
}

impl Several {
    /// The place of a database in the list.
    pub(super) fn numbered(&self, number: u8) -> Option<usize> {
        self.databases.iter().position(|database| database.sequences.database == number)
    }

    /// Takes a move on by a step.
    pub(super) async fn move_on(&self, step: &MoveStep) -> Result<Moved, Error> {
        let missing = || Error::Unavailable { reason: format!("there is no database {}", step.to) };
        let to = self.numbered(step.to).ok_or_else(missing)?;
        let homes = self.find_homes().await?;
        // What is left of it where the shards were goes first.
        for database in self.databases.iter() {
            let known = database.moves().await?;
            if let Some(over) = known.iter().find(|one| one.operation == step.operation && one.is_over) {
                let (rows, _) = database.purge(over).await?;
                return Ok(Moved { rows, state: MoveState::Moving });
            }
            // One at a time.
            if known.iter().any(|one| one.operation != step.operation) {
                return Ok(Moved { rows: 0, state: MoveState::Waiting });
            }
        }
        let leaving = (0..self.databases.len()).filter(|place| *place != to).find_map(|place| {
            let here = homes.shards_of(place);
            let shards: Vec<ShardId> = here.into_iter().filter(|shard| step.shards.contains(shard)).collect();
            (!shards.is_empty()).then_some((place, shards))
        });
        let Some((from, shards)) = leaving else { return Ok(Moved { rows: 0, state: MoveState::Done }) };
        let (source, target) = (&self.databases[from], &self.databases[to]);
        let going = Going { source, target, step, shards: numbers(&shards) };
        let moved = going.on().await?;
        self.find_homes().await?;
        Ok(moved)
    }

    /// Finishes moves whose shards have gone and not arrived. Says whether there were any.
    pub(super) async fn arrive_homeless(&self, homes: &Homes) -> Result<bool, Error> {
        let mut has_arrived = false;
        for target in self.databases.iter() {
            for known in target.moves().await.unwrap_or_default() {
                let Some(source) = self.numbered(known.peer).filter(|_| !known.is_source) else { continue };
                let is_homeless = |shard: &i16| homes.of(ShardId(*shard as u16)).is_none();
                if !known.shards.iter().any(is_homeless) {
                    continue;
                }
                // They are all gone in one commit.
                let living = self.databases[source].living().await?;
                if !living.iter().any(|shard| known.shards.contains(&(shard.0 as i16))) {
                    target.arrive(known.operation).await?;
                    has_arrived = true;
                }
            }
        }
        Ok(has_arrived)
    }

    /// Takes away what moves have left that go on no more.
    pub(super) async fn clean_moves(&self, limit: usize) -> Result<u64, Error> {
        let mut cleaned = 0;
        for database in self.databases.iter() {
            for known in database.moves().await? {
                use punctual_store::Store;
                let operation = self.operation(known.operation).await?;
                if operation.is_some_and(|operation| operation.is_running()) {
                    continue;
                }
                let homes = self.homes();
                let is_homeless = |shard: &i16| homes.of(ShardId(*shard as u16)).is_none();
                if known.shards.iter().any(is_homeless) {
                    continue;
                }
                while cleaned < limit as u64 {
                    let (rows, is_clean) = database.purge(&known).await?;
                    cleaned += rows;
                    if is_clean {
                        break;
                    }
                }
            }
        }
        Ok(cleaned)
    }
}

/// Shards on their way.
struct Going<'a> {
    source: &'a Postgres,
    target: &'a Postgres,
    step: &'a MoveStep,
    shards: Vec<i16>,
}

impl Going<'_> {
    fn token(&self) -> i64 {
        self.step.epoch.0 as i64
    }

    async fn on(&self) -> Result<Moved, Error> {
        self.source.write("move", self.go_on()).await
    }

    async fn go_on(&self) -> Result<Moved, Failed> {
        let (mut part, mut after) = self.begin().await?;
        let mut rows = 0;
        for _ in 0..PAGES {
            let Some(next) = PARTS.get(part) else { break };
            let (count, position) = self.copy(part, next, after.as_deref()).await?;
            rows += count;
            (part, after) = position;
        }
        if part < PARTS.len() {
            return Ok(Moved { rows, state: MoveState::Moving });
        }
        for _ in 0..PAGES {
            let brought = self.follow().await?;
            rows += brought as u64;
            if brought < FEW {
                self.flip().await?;
                return Ok(Moved { rows, state: MoveState::Moving });
            }
        }
        Ok(Moved { rows, state: MoveState::Moving })
    }

    /// Notes the move in both, and watches. Returns how far the copy is.
    async fn begin(&self) -> Result<Position, Failed> {
        let operation = uuid(self.step.operation);
        let peers = [(self.source, true, self.target), (self.target, false, self.source)];
        for (database, is_source, peer) in peers {
            let peer = i16::from(peer.sequences.database);
            let values: [&(dyn ToSql + Sync); 5] =
                [&operation, &is_source, &peer, &self.shards, &self.token()];
            let begun = transact!(database, |client| {
                let statement = client.prepare_cached(BEGIN).await?;
                Ok(client.execute(&statement, &values).await?)
            })?;
            if begun == 0 {
                return Err(overtaken());
            }
        }
        let find = "select position from moves where operation = $1";
        let row = transact!(self.target, |client| {
            let statement = client.prepare_cached(find).await?;
            Ok(client.query_one(&statement, &[&operation]).await?)
        })?;
        let position: Option<String> = row.get(0);
        match position {
            Some(position) => Ok(parse(&position)),
            None => {
                self.watch().await?;
                Ok((0, None))
            }
        }
    }

    /// From here on every change is noted, and what is copied afterwards is at least as new.
    async fn watch(&self) -> Result<(), Failed> {
        let watch: String = PARTS.iter().map(Part::watch).collect();
        transact!(self.source, |client| {
            let transaction = Work::begin(&mut client).await?;
            // It waits for those who write, and they wait for it: not for long.
            transaction.batch_execute("set local lock_timeout = '2s'").await?;
            transaction.batch_execute(&watch).await?;
            transaction.commit(self.source).await.map(drop)
        })
    }

    /// Copies a page. Returns how many rows it has, and where it goes on.
    async fn copy(&self, number: usize, part: &Part, after: Option<&str>) -> Result<(u64, Position), Failed> {
        let sql = part.page(after.is_none());
        let read = transact!(self.source, |client| {
            let statement = client.prepare_cached(&sql).await?;
            let values: [&(dyn ToSql + Sync); 3] = [&self.shards, &after, &PAGE];
            Ok(client.query(&statement, &values).await?)
        })?;
        let rows: Vec<String> = read.iter().filter_map(|row| row.get(1)).collect();
        let next = match read.last().filter(|_| read.len() as i64 == PAGE) {
            Some(last) => (number, Some(last.get::<_, String>(0))),
            None => (number + 1, None),
        };
        self.ensure(part, &rows).await?;
        transact!(self.target, |client| {
            let transaction = Work::begin(&mut client).await?;
            self.guard(&transaction).await?;
            replace(&transaction, part.goes_to(), &rows, &[]).await?;
            let note =
                transaction.prepare_cached("update moves set position = $2 where operation = $1").await?;
            transaction.execute(&note, &[&uuid(self.step.operation), &position(&next)]).await?;
            transaction.commit(self.target).await
        })?;
        Ok((rows.len() as u64, next))
    }

    /// Refuses to go on if another has taken the move on.
    async fn guard(&self, transaction: &Work<'_>) -> Result<(), Failed> {
        let statement = transaction.prepare_cached(GO_ON).await?;
        let values: [&(dyn ToSql + Sync); 2] = [&uuid(self.step.operation), &self.token()];
        transaction.query_opt(&statement, &values).await?.map(|_| ()).ok_or_else(overtaken)
    }

    /// The partitions of history that rows go to.
    async fn ensure(&self, part: &Part, rows: &[String]) -> Result<(), Failed> {
        if part.table != "history" || rows.is_empty() {
            return Ok(());
        }
        let sql =
            "select distinct class, seq >> 20 from jsonb_populate_recordset(null::history, $1::text::jsonb)";
        let found = transact!(self.target, |client| {
            let statement = client.prepare_cached(sql).await?;
            Ok(client.query(&statement, &[&as_list(rows)]).await?)
        })?;
        let partition = |row: &tokio_postgres::Row| (row.get::<_, i16>(0), row.get::<_, i64>(1));
        let wanted = found.iter().map(partition).filter(|(class, _)| *class != LATE);
        self.target.ensure(wanted.map(|(class, at)| Partition::at(class, at))).await
    }

    /// Brings what has changed. Returns how many changes those were.
    async fn follow(&self) -> Result<usize, Failed> {
        let noted = transact!(self.source, |client| {
            let statement = client.prepare_cached(NOTED).await?;
            Ok(client.query(&statement, &[&CHANGES]).await?)
        })?;
        if noted.is_empty() {
            return Ok(0);
        }
        self.bring(&noted, None).await?;
        // Brought twice, they are the same. One that was numbered before the last and committed later is still there.
        let ids: Vec<i64> = noted.iter().map(|row| row.get(0)).collect();
        transact!(self.source, |client| {
            let statement = client.prepare_cached("delete from changes where id = any($1)").await?;
            Ok(client.execute(&statement, &[&ids]).await?)
        })?;
        Ok(noted.len())
    }

    /// Writes changes to the target, with the epochs that the shards have at the end.
    async fn bring(&self, noted: &[tokio_postgres::Row], epochs: Option<&[i64]>) -> Result<(), Failed> {
        let mut parts: BTreeMap<i16, Vec<(bool, String)>> = BTreeMap::new();
        for row in noted {
            parts.entry(row.get(1)).or_default().push((row.get(2), row.get(3)));
        }
        for (number, changes) in &parts {
            let Some(part) = PARTS.get(*number as usize) else { continue };
            let rows: Vec<String> =
                changes.iter().filter(|(is_gone, _)| !is_gone).map(|(_, row)| row.clone()).collect();
            self.ensure(part, &rows).await?;
        }
        transact!(self.target, |client| {
            let transaction = Work::begin(&mut client).await?;
            self.guard(&transaction).await?;
            for (number, changes) in &parts {
                let Some(part) = PARTS.get(*number as usize) else { continue };
                let (kept, gone) = last_of_each(&transaction, part, changes).await?;
                replace(&transaction, part, &kept, &gone).await?;
            }
            if let Some(epochs) = epochs {
                // Who holds them has not been heard of here yet.
                let hold =
                    "update open_runs set claimed_at = punctual_now(null) where line = 2 and shard = any($1)";
                let hold = transaction.prepare_cached(hold).await?;
                transaction.execute(&hold, &[&self.shards]).await?;
                let note = "update moves set shards = $2, epochs = $3 where operation = $1";
                let note = transaction.prepare_cached(note).await?;
                transaction.execute(&note, &[&uuid(self.step.operation), &self.shards, &epochs]).await?;
            }
            transaction.commit(self.target).await.map(drop)
        })
    }

    /// Holds the shards, brings the rest, and lets them go.
    async fn flip(&self) -> Result<(), Failed> {
        transact!(self.source, |client| {
            let transaction = Work::begin(&mut client).await?;
            transaction.batch_execute(HOLD).await?;
            self.guard(&transaction).await?;
            let hold = "select shard, epoch from shards where shard = any($1) order by shard for update";
            let hold = transaction.prepare_cached(hold).await?;
            let held = transaction.query(&hold, &[&self.shards]).await?;
            if held.len() != self.shards.len() {
                return Err(overtaken());
            }
            for part in PARTS.iter().filter(|part| part.is_hot && part.table != "due") {
                let hold = part.hold();
                let hold = transaction.prepare_cached(&hold).await?;
                transaction.execute(&hold, &[&self.shards]).await?;
            }
            let epochs: Vec<i64> = held.iter().map(|row| row.get(1)).collect();
            let noted = transaction.prepare_cached(NOTED).await?;
            let noted = transaction.query(&noted, &[&i64::MAX]).await?;
            self.bring(&noted, Some(&epochs)).await?;
            // From here on they are not here, and what is taken away is no change.
            let over =
                transaction.prepare_cached("update moves set is_over = true where operation = $1").await?;
            transaction.execute(&over, &[&uuid(self.step.operation)]).await?;
            take_gates(&transaction, &self.shards, self.source.shard_count).await?;
            let leave = transaction.prepare_cached("delete from shards where shard = any($1)").await?;
            transaction.execute(&leave, &[&self.shards]).await?;
            for part in PARTS.iter().filter(|part| part.is_hot) {
                let clear = part.clear();
                let clear = transaction.prepare_cached(&clear).await?;
                transaction.execute(&clear, &[&self.shards]).await?;
            }
            transaction.batch_execute("delete from changes").await?;
            transaction.commit(self.source).await
        })?;
        self.target.arrive(self.step.operation).await?;
        tracing::info!(
            shards = self.shards.len(),
            from = self.source.sequences.database,
            to = self.target.sequences.database,
            "shards moved"
        );
        Ok(())
    }
}

/// How far a copy is, as it is kept.
fn position((number, after): &Position) -> String {
    after.as_ref().map_or_else(|| number.to_string(), |after| format!("{number} {after}"))
}

fn parse(position: &str) -> Position {
    let (number, after) = match position.split_once(' ') {
        Some((number, after)) => (number, Some(after.to_owned())),
        None => (position, None),
    };
    (number.parse().unwrap_or(0), after)
}

/// Of the changes of each row the last: rows as they are, and rows that are gone.
async fn last_of_each(
    transaction: &Work<'_>,
    part: &Part,
    changes: &[(bool, String)],
) -> Result<(Vec<String>, Vec<String>), Failed> {
    let rows: Vec<&str> = changes.iter().map(|(_, row)| row.as_str()).collect();
    let sql = format!(
        "select {} from unnest($1::text[]) with ordinality x (row, n) order by n",
        part.name_of("row::jsonb")
    );
    let statement = transaction.prepare_cached(&sql).await?;
    let mut last: HashMap<String, (bool, &String)> = HashMap::new();
    for (name, (is_gone, row)) in transaction.query(&statement, &[&rows]).await?.iter().zip(changes) {
        last.insert(name.get(0), (*is_gone, row));
    }
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for (is_gone, row) in last.into_values() {
        if is_gone { &mut gone } else { &mut kept }.push(row.clone());
    }
    Ok((kept, gone))
}

/// Puts rows in the place of those with the same keys, and takes others away.
async fn replace(
    transaction: &Work<'_>,
    part: &Part,
    rows: &[String],
    gone: &[String],
) -> Result<(), Failed> {
    let all: Vec<String> = rows.iter().chain(gone).cloned().collect();
    if all.is_empty() {
        return Ok(());
    }
    let delete = part.delete();
    let delete = transaction.prepare_cached(&delete).await?;
    transaction.execute(&delete, &[&as_list(&all)]).await?;
    if !rows.is_empty() {
        let insert = part.insert();
        let insert = transaction.prepare_cached(&insert).await?;
        transaction.execute(&insert, &[&as_list(rows)]).await?;
    }
    Ok(())
}

impl Postgres {
    async fn moves(&self) -> Result<Vec<Known>, Error> {
        self.read("moves", || async {
            let client = self.connection().await?;
            let statement = client.prepare_cached(SOURCES).await.map_err(failed)?;
            let rows = client.query(&statement, &[]).await.map_err(failed)?;
            let known = rows.iter().map(|row| Known {
                operation: OperationId::from_bytes(*row.get::<_, Uuid>(0).as_bytes()),
                is_source: row.get(1),
                peer: row.get::<_, i16>(2) as u8,
                shards: row.get(3),
                is_over: row.get(4),
            });
            Ok::<_, Failed>(known.collect())
        })
        .await
    }

    /// Shards that are complete here, and nowhere else, live here.
    async fn arrive(&self, operation: OperationId) -> Result<(), Error> {
        self.read("arrive", || async {
            transact!(self, |client| {
                let transaction = Work::begin(&mut client).await?;
                let statement = transaction.prepare_cached(ARRIVE).await?;
                let arrived = transaction.query(&statement, &[&uuid(operation)]).await?;
                let arrived: Vec<i16> = arrived.iter().map(|row| row.get(0)).collect();
                if !arrived.is_empty() {
                    bring_gates(&transaction, &arrived, self.shard_count).await?;
                }
                transaction.commit(self).await
            })?;
            let client = self.connection().await?;
            self.wakeups.hint_placement(&client).await
        })
        .await
    }

    /// Takes away rows of shards that do not live here: what a move left behind, or brought in vain. Returns how many, and
    /// whether that was all; then the move is forgotten here.
    async fn purge(&self, known: &Known) -> Result<(u64, bool), Error> {
        self.read("purge", || self.purge_some(known)).await
    }

    async fn purge_some(&self, known: &Known) -> Result<(u64, bool), Failed> {
        let operation = uuid(known.operation);
        // Whoever still goes on with it does not any more.
        let over = "update moves set is_over = true, position = case when is_over then position end where operation = $1 \
            returning position";
        let row = transact!(self, |client| {
            let statement = client.prepare_cached(over).await?;
            Ok(client.query_opt(&statement, &[&operation]).await?)
        })?;
        let Some(row) = row else { return Ok((0, true)) };
        let (mut part, mut after) =
            row.get::<_, Option<String>>(0).map_or((0, None), |position| parse(&position));
        if known.is_source && part == 0 && after.is_none() {
            self.unwatch().await?;
        }
        let mut rows = 0;
        for _ in 0..PAGES {
            let Some(one) = PARTS.get(part) else { break };
            let page = transact!(self, |client| {
                let transaction = Work::begin(&mut client).await?;
                let page = purge_page(&transaction, known, one, part, after.as_deref()).await?;
                transaction.commit(self).await?;
                Ok(page)
            })?;
            // It was not left after all: everything stays.
            let Some((count, next)) = page else {
                part = PARTS.len();
                break;
            };
            rows += count;
            (part, after) = next;
        }
        if part < PARTS.len() {
            return Ok((rows, false));
        }
        transact!(self, |client| {
            let forget = client.prepare_cached("delete from moves where operation = $1").await?;
            Ok(client.execute(&forget, &[&operation]).await?)
        })?;
        Ok((rows, true))
    }

    /// Notes changes no more.
    async fn unwatch(&self) -> Result<(), Failed> {
        let unwatch: String = PARTS.iter().map(Part::unwatch).collect();
        transact!(self, |client| {
            let transaction = Work::begin(&mut client).await?;
            transaction.batch_execute("set local lock_timeout = '2s'").await?;
            transaction.batch_execute(&unwatch).await?;
            transaction.batch_execute("delete from changes").await?;
            transaction.commit(self).await.map(drop)
        })
    }
}

type Position = (usize, Option<String>);

/// Takes a page of rows away. Returns how many, and where it goes on; nothing if a shard lives here.
async fn purge_page(
    transaction: &Work<'_>,
    known: &Known,
    part: &Part,
    number: usize,
    after: Option<&str>,
) -> Result<Option<(u64, Position)>, Failed> {
    let living = transaction.prepare_cached("select from shards where shard = any($1) limit 1").await?;
    if transaction.query_opt(&living, &[&known.shards]).await?.is_some() {
        return Ok(None);
    }
    let page = part.page(after.is_none());
    let page = transaction.prepare_cached(&page).await?;
    let values: [&(dyn ToSql + Sync); 3] = [&known.shards, &after, &PAGE];
    let read = transaction.query(&page, &values).await?;
    let rows: Vec<String> = read.iter().filter_map(|row| row.get(1)).collect();
    // What is left in lists is found to be of no job when its time comes.
    if !part.is_list() {
        replace(transaction, part, &[], &rows).await?;
    }
    let next = match read.last().filter(|_| read.len() as i64 == PAGE) {
        Some(last) => (number, Some(last.get::<_, String>(0))),
        None => (number + 1, None),
    };
    let note = transaction.prepare_cached("update moves set position = $2 where operation = $1").await?;
    transaction.execute(&note, &[&uuid(known.operation), &position(&next)]).await?;
    Ok(Some((rows.len() as u64, next)))
}
