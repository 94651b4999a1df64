//! Runs that wait: those of a job by its id, and how many there are of each tenant.
//!
//! All of it is on disk, so that memory does not grow with what waits; what is kept of it in memory is what others wait
//! for, or what holds permits. Promise: a run is in the table exactly while it waits, and is counted exactly then, in the
//! transaction that changes it.

use std::collections::HashMap;

use jiff::Timestamp;
use punctual_domain::Lane;
use punctual_domain::id::{JobId, Sequence, TenantId};
use punctual_domain::run::{Run, RunState};
use punctual_store::{Backlog, Error, Waiting};
use rusqlite::{Connection, params};

use crate::error::failed;
use crate::row::{self, COLUMNS, damaged, lane_of, millis};

/// What the writer must know about a run that waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain = 0,
    Limited = 1,
    Behind = 2,
}

/// The kind of a run that waits, as a column.
pub(crate) fn kind(run: &Run) -> i64 {
    let kind = match run {
        _ if run.is_behind() => Kind::Behind,
        _ if !run.limits.is_empty() => Kind::Limited,
        _ => Kind::Plain,
    };
    kind as i64
}

/// What a write changed in the counts of a tenant's lane.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    runs: i64,
    ready: i64,
}

/// What changed in the counts since they were last written, and since they were last told.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    unwritten: HashMap<(TenantId, Lane), Change>,
    untold: HashMap<TenantId, i64>,
}

impl Changes {
    /// So many more of a run's kind wait, or less.
    fn wait(&mut self, run: &Run, runs: i64) {
        self.unwritten.entry((run.tenant, run.lane)).or_default().runs += runs;
    }

    /// So many more of them wait for a worker alone, or less.
    pub(crate) fn get_ready(&mut self, run: &Run, runs: i64) {
        self.unwritten.entry((run.tenant, run.lane)).or_default().ready += runs;
    }

    /// Brings a count of what waits up to date. To be done when all of it is committed.
    pub(crate) fn tell(&mut self, backlog: &mut Backlog) {
        self.untold.drain().for_each(|(tenant, runs)| backlog.add(tenant, runs));
    }

    /// Writes the counts.
    pub(crate) fn write(&mut self, connection: &Connection) -> Result<(), Error> {
        for ((tenant, lane), Change { runs, ready }) in self.unwritten.drain() {
            if (runs, ready) == (0, 0) {
                continue;
            }
            add(connection, tenant, lane, (runs, ready))?;
            if runs != 0 {
                *self.untold.entry(tenant).or_default() += runs;
            }
        }
        Ok(())
    }
}

fn add(connection: &Connection, tenant: TenantId, lane: Lane, by: (i64, i64)) -> Result<(), Error> {
    let sql = "insert into backlog values (?1, ?2, ?3, ?4) \
               on conflict do update set runs = runs + excluded.runs, ready = ready + excluded.ready";
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.execute(params![tenant.0, lane.rank(), by.0, by.1]))
        .map_err(failed)?;
    Ok(())
}

/// What is written of the counts: of tenants, and of lanes.
pub(crate) fn counts(connection: &Connection) -> Result<(Backlog, Waiting), Error> {
    let (mut backlog, mut waiting) = (Backlog::default(), Waiting::default());
    let mut statement =
        connection.prepare("select tenant, lane, runs, ready from backlog").map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let lane: i64 = row.get(1).map_err(failed)?;
        let lane = lane_of(lane).ok_or_else(|| damaged(format!("{lane} is not a lane")))?;
        backlog.add(TenantId(row.get(0).map_err(failed)?), row.get(2).map_err(failed)?);
        waiting.add(lane, u64::try_from(row.get::<_, i64>(3).map_err(failed)?).unwrap_or_default());
    }
    Ok((backlog, waiting))
}

/// Notes that a run waits, unless it is noted. Says whether it was not.
fn note(connection: &Connection, run: &Run) -> Result<bool, Error> {
    let values = params![run.job.as_bytes(), run.sequence.as_i64(), kind(run)];
    let execute = |sql: &str| {
        connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values)).map_err(failed)
    };
    let is_new = execute("insert or ignore into waits values (?1, ?2, ?3)")? == 1;
    if !is_new {
        execute("update waits set kind = ?3 where job = ?1 and seq = ?2 and kind <> ?3")?;
    }
    Ok(is_new)
}

/// A run waits: from now on, or as before.
pub(crate) fn begin(connection: &Connection, changes: &mut Changes, run: &Run) -> Result<(), Error> {
    if note(connection, run)? {
        changes.wait(run, 1);
    }
    Ok(())
}

/// A run waits no more, and is not among those that do.
pub(crate) fn end(connection: &Connection, changes: &mut Changes, run: &Run) -> Result<(), Error> {
    let sequence = run.sequence.as_i64();
    let left = connection
        .prepare_cached("delete from waits where job = ?1 and seq = ?2")
        .and_then(|mut statement| statement.execute(params![run.job.as_bytes(), sequence]))
        .map_err(failed)?;
    changes.wait(run, -(left as i64));
    connection
        .prepare_cached("delete from waiting_runs where seq = ?1")
        .and_then(|mut statement| statement.execute([sequence]))
        .map_err(failed)?;
    Ok(())
}

/// Whether runs of a job wait.
pub(crate) fn are_there(connection: &Connection, job: JobId) -> Result<bool, Error> {
    exists(connection, "select 1 from waits where job = ?1", job)
}

/// Whether runs of a job wait for something else than an earlier one.
pub(crate) fn are_ahead(connection: &Connection, job: JobId) -> Result<bool, Error> {
    exists(connection, "select 1 from waits where job = ?1 and kind < 2", job)
}

fn exists(connection: &Connection, sql: &str, job: JobId) -> Result<bool, Error> {
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.exists([job.as_bytes()]))
        .map_err(failed)
}

/// The runs of a job that wait, in the order of their births.
pub(crate) fn of_job(connection: &Connection, job: JobId) -> Result<Vec<Sequence>, Error> {
    let mut statement =
        connection.prepare_cached("select seq from waits where job = ?1 order by seq").map_err(failed)?;
    let rows =
        statement.query_map([job.as_bytes()], |row| row.get(0).map(Sequence::from_i64)).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

/// The runs that wait and must be known in memory.
pub(crate) fn each_of_a_kind(connection: &Connection, mut see: impl FnMut(&Run)) -> Result<(), Error> {
    let sql = "select r.seq, r.record from waits w cross join waiting_runs r on r.seq = w.seq \
               where w.kind > 0 order by w.seq";
    let mut statement = connection.prepare(sql).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        see(&row::read(row)?.run);
    }
    Ok(())
}

/// A run as it comes from another store: it is noted and counted if it waits.
pub(crate) fn bring(connection: &Connection, run: &Run, now: Timestamp) -> Result<(), Error> {
    if !matches!(run.state, RunState::Pending(_)) || !note(connection, run)? {
        return Ok(());
    }
    let is_elsewhere = run.is_behind() || run.is_limited() || !run.has_passed();
    let is_ready = !is_elsewhere && run.available_at <= now;
    add(connection, run.tenant, run.lane, (1, i64::from(is_ready)))
}

/// Notes and counts everything that waits, when an older format is brought up to date. A run that cannot be read is left to
/// whoever checks the store.
pub(crate) fn fill(connection: &Connection) -> rusqlite::Result<()> {
    let mut ready = connection.prepare(
        "select 1 from ready where lane in (?1, ?1 + 8) and tenant = ?2 and urgency = ?3 and available_at = ?4 and seq = ?5",
    )?;
    let mut statement = connection.prepare(&format!("select {COLUMNS} from waiting_runs"))?;
    let mut rows = statement.query([])?;
    let mut counted: HashMap<(u32, u8), (i64, i64)> = HashMap::new();
    let mut insert = connection.prepare("insert or ignore into waits values (?1, ?2, ?3)")?;
    while let Some(row) = rows.next()? {
        let Ok(entry) = row::read(row) else { continue };
        let run = &entry.run;
        insert.execute(params![run.job.as_bytes(), run.sequence.as_i64(), kind(run)])?;
        let place = params![
            run.lane.rank(),
            run.tenant.0,
            -i64::from(run.priority),
            millis(run.available_at),
            run.sequence.as_i64()
        ];
        let count = counted.entry((run.tenant.0, run.lane.rank())).or_default();
        *count = (count.0 + 1, count.1 + i64::from(ready.exists(place)?));
    }
    let mut write = connection.prepare("insert into backlog values (?1, ?2, ?3, ?4)")?;
    for ((tenant, lane), (runs, ready)) in counted {
        write.execute(params![tenant, lane, runs, ready])?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_executor::block_on;
    use punctual_domain::policy::overlap::Overlap;
    use punctual_store::conformance::World;

    use super::*;
    use crate::births::{Recent, SEGMENT_BIRTHS};
    use crate::open_runs::Memory;
    use crate::schema;
    use crate::{Embedded, Options};

    /// Fifty runs that wait, one that runs, and one that waits for it. Returns the last job.
    fn populated(directory: &std::path::Path) -> JobId {
        let options = Options { directory: directory.into(), shards: Some(16) };
        let store = Arc::new(Embedded::open(&options).unwrap());
        block_on(async {
            let mut world = World::new(store).await;
            for _ in 0..50 {
                world.fired("waits").await;
            }
            let worker = world.worker();
            let mut job = world.job("in order");
            job.spec.policies.overlap = Overlap::QueueOne;
            world.try_put(world.put(job.clone(), Some(world.now))).await.unwrap();
            let mut firing = world.firing(&job, world.now);
            firing.births[0].claimed_by = Some(worker);
            assert!(world.try_firing(firing).await.unwrap()[0].lease().is_some());
            world.advance(Duration::from_secs(60));
            assert!(world.try_fire(&job, world.now).await.unwrap()[0].is_behind());
            job.id
        })
    }

    fn open(directory: &std::path::Path) -> Connection {
        schema::open_writer(&directory.join("punctual.db"), None, 16).unwrap()
    }

    #[test]
    fn what_waits_is_not_in_memory_but_for_what_is_behind() {
        let directory = tempfile::tempdir().unwrap();
        let ordered = populated(directory.path());
        let connection = open(directory.path());
        let recent = Arc::new(Recent::new(SEGMENT_BIRTHS));
        let memory = Memory::load(&connection, &recent).unwrap();
        assert_eq!((memory.running.len(), memory.running_of.len(), memory.behind.len()), (1, 1, 1));
        assert!(memory.behind.contains_key(&ordered));
        assert_eq!(memory.backlog.map(|backlog| backlog.all()), Some(51));
        assert_eq!(memory.waiting.of(Lane::Standard), 50);
        assert_eq!(of_job(&connection, ordered).unwrap().len(), 1);
        assert!(are_there(&connection, ordered).unwrap() && !are_ahead(&connection, ordered).unwrap());
    }

    #[test]
    fn an_older_format_is_noted_and_counted_as_if_it_had_always_been() {
        let directory = tempfile::tempdir().unwrap();
        populated(directory.path());
        let connection = open(directory.path());
        let told = || -> Vec<String> {
            let sql = "select 'wait ' || hex(job) || seq || kind from waits \
                       union all select 'count ' || tenant || ' ' || lane || ' ' || runs || ' ' || ready from backlog \
                       union all select 'runs ' || seq from running_runs \
                       union all select 'waits ' || seq from waiting_runs order by 1";
            let mut statement = connection.prepare(sql).unwrap();
            statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        };
        let before = told();
        assert_eq!(before.len(), 51 + 1 + 1 + 51);
        connection
            .execute_batch(
                "insert into running_runs select seq, record from waiting_runs; drop view open_runs; \
                 drop table waiting_runs; drop table waits; drop table backlog; \
                 alter table running_runs rename to open_runs",
            )
            .unwrap();
        connection.execute_batch(schema::BACKLOG).unwrap();
        fill(&connection).unwrap();
        assert_eq!(told(), before);
    }
}
