//! Shards, tenants, keys, lines, partitions, the ledger and operations: each row by itself and against what it names.

use std::collections::BTreeMap;

use punctual_domain::id::{JobId, ShardId};
use punctual_domain::tenant::TenantName;
use punctual_store::Error;
use punctual_store::record::fate_of;
use rusqlite::{Connection, Row, params};

use super::Checked;
use crate::error::failed;
use crate::open_runs::{load_locals, load_shards};
use crate::origin::Origin;
use crate::partition::{KEPT, Partition, Partitions};
use crate::read;
use crate::row::{millis, timestamp};
use crate::write::load_workers;

pub(super) fn check(checked: &mut Checked, connection: &Connection) {
    checked.attempt("shards", |checked| shards(checked, connection));
    checked.attempt("local_workers", |_| load_locals(connection).map(|_| ()));
    checked.attempt("tenants", |checked| tenants(checked, connection));
    checked.attempt("job_keys", |checked| keys(checked, connection));
    checked.attempt("job_versions", |checked| versions(checked, connection));
    checked.attempt("ready", |checked| lines(checked, connection));
    checked.attempt("limited", |checked| limited(checked, connection));
    checked.attempt("waits", |checked| waits(checked, connection));
    checked.attempt("backlog", |checked| backlog(checked, connection));
    checked.attempt("rules", |checked| rules(checked, connection));
    checked.attempt("documents", |checked| documents(checked, connection));
    checked.attempt("audit", |checked| audit(checked, connection));
    checked.attempt("lapses", |checked| lapses(checked, connection));
    checked.attempt("partitions", |checked| partitions(checked, connection));
    checked.attempt("ledger", |checked| ledger(checked, connection));
    checked.attempt("operations", |checked| operations(checked, connection));
    checked.attempt("meta", |_| Origin::load(connection).map(|_| ()));
    checked.attempt("meta", |_| load_workers(connection).map(|_| ()));
}

/// Calls `see` with every row.
pub(super) fn each(
    connection: &Connection,
    sql: &str,
    mut see: impl FnMut(&Row<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut statement = connection.prepare(sql).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        see(row)?;
    }
    Ok(())
}

fn shards(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    checked.shards = load_shards(connection)?.len() as u64;
    if checked.shards == 0 || checked.shards > u64::from(ShardId::COUNT_MAX) {
        checked.find("shards", format!("there are {}", checked.shards));
    }
    let sql = "select max(shard), min(shard) from shards";
    let (last, first): (i64, i64) =
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
    if (first, last) != (0, checked.shards as i64 - 1) {
        checked.find("shards", format!("{} shards are numbered {first} to {last}", checked.shards));
    }
    Ok(())
}

fn tenants(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    each(connection, "select id, name from tenants", |row| {
        checked.tenants += 1;
        let (id, name): (i64, String) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
        if name.parse::<TenantName>().is_err() {
            checked.find("tenants", format!("tenant {id} has the name `{name}`"));
        }
        Ok(())
    })
}

/// Jobs are held against their keys where jobs are walked; here keys that lead nowhere.
fn keys(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    let sql = "select k.key, k.job, j.id is null, j.state, j.tenant = k.tenant and (j.record ->> 'key') is k.key \
               from job_keys k left join jobs j on j.id = k.job";
    each(connection, sql, |row| {
        let key: String = row.get(0).map_err(failed)?;
        let job = JobId::from_bytes(row.get(1).map_err(failed)?);
        if row.get::<_, bool>(2).map_err(failed)? {
            checked.find("job_keys", format!("key `{key}` leads to job {job}, which is not there"));
        } else if row.get::<_, i64>(3).map_err(failed)? == 3 {
            checked.find("job_keys", format!("key `{key}` leads to job {job}, which is deleted"));
        } else if row.get::<_, Option<bool>>(4).map_err(failed)? != Some(true) {
            checked
                .find("job_keys", format!("key `{key}` leads to job {job}, which has another key or tenant"));
        }
        Ok(())
    })
}

fn versions(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    let sql = "select v.id, v.version, v.tenant, v.record, j.version from job_versions v left join jobs j on j.id = v.id";
    each(connection, sql, |row| {
        let (id, version, _) = super::jobs::decode(row, "job_versions", checked)?;
        let current: Option<i64> = row.get(4).map_err(failed)?;
        if current.is_none_or(|current| current <= i64::from(version.0)) {
            checked.find("job_versions", format!("job {id} has no version after {version}"));
        }
        Ok(())
    })
}

/// What waits in a line is an open run that waits, under the key it has, for those who may claim it.
fn lines(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    // Older formats do not tell tenants apart.
    let tenant = if checked.format < 3 { "true" } else { "h.tenant = l.tenant" };
    for (line, queue, tenant) in [("ready", "h.queue = l.queue", tenant), ("delayed", "true", "true")] {
        // A run that cannot be read has no head.
        let sql = format!(
            "select l.seq, r.seq is null, h.is_running, h.available_at = l.available_at, h.shard = l.shard, \
             {queue}, {tenant} \
             from {line} l left join open_runs r on r.seq = l.seq left join temp.heads h on h.seq = l.seq"
        );
        each(connection, &sql, |row| {
            let run: i64 = row.get(0).map_err(failed)?;
            let is = |column: usize| row.get::<_, Option<bool>>(column).map_err(failed);
            if is(1)? == Some(true) {
                checked.find(line, format!("run {run} waits and is not open"));
            }
            if is(2)? == Some(true) {
                checked.find(line, format!("run {run} waits and is running"));
            }
            let wrongs =
                ["for another time", "in another shard", "in another queue", "among another tenant's"];
            for (column, what) in (3..).zip(wrongs) {
                if is(column)? == Some(false) {
                    checked.find(line, format!("run {run} waits {what} than its own"));
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// What stands in the line of a limit is an open run that waits for it, and the other way round.
fn limited(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    // Before this format there were none.
    if checked.format < 3 {
        return Ok(());
    }
    let sql = "select l.seq, h.seq is not null and h.waits_on is l.key and h.scheduled_for = l.scheduled_for \
               from limited l left join temp.heads h on h.seq = l.seq";
    each(connection, sql, |row| {
        if !row.get::<_, bool>(1).map_err(failed)? {
            let run: i64 = row.get(0).map_err(failed)?;
            checked
                .find("limited", format!("run {run} stands in line for a limit that it does not wait for"));
        }
        Ok(())
    })?;
    let sql = "select h.seq from temp.heads h where h.waits_on is not null and not exists \
               (select 1 from limited l where l.key = h.waits_on and l.seq = h.seq)";
    each(connection, sql, |row| {
        let run: i64 = row.get(0).map_err(failed)?;
        checked.find("limited", format!("run {run} waits for a limit and does not stand in its line"));
        Ok(())
    })
}

/// Whether the format has runs that wait apart from those that run.
fn knows_waits(connection: &Connection) -> Result<bool, Error> {
    let sql = "select count(*) from sqlite_schema where type = 'table' and name = 'waits'";
    connection.query_row(sql, [], |row| row.get(0)).map_err(failed)
}

/// A run is among those that run or among those that wait, as its state says; one that waits is noted by its job.
fn waits(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    if !knows_waits(connection)? {
        return Ok(());
    }
    for (table, sql, what) in [
        (
            "running_runs",
            "select h.seq from temp.heads h join running_runs r on r.seq = h.seq where not h.is_running",
            "waits and is among those that run",
        ),
        (
            "waiting_runs",
            "select h.seq from temp.heads h join waiting_runs r on r.seq = h.seq where h.is_running",
            "runs and is among those that wait",
        ),
        (
            // A run that cannot be read has no head.
            "waits",
            "select w.seq from waits w left join waiting_runs r on r.seq = w.seq \
             left join temp.heads h on h.seq = w.seq \
             where r.seq is null or h.job is not null and (h.job, h.kind) <> (w.job, w.kind)",
            "is noted and does not wait like that",
        ),
        (
            "waits",
            "select h.seq from temp.heads h where not h.is_running \
             and not exists (select 1 from waits w where w.job = h.job and w.seq = h.seq)",
            "waits and is not noted",
        ),
    ] {
        each(connection, sql, |row| {
            let run: i64 = row.get(0).map_err(failed)?;
            checked.find(table, format!("run {run} {what}"));
            Ok(())
        })?;
    }
    Ok(())
}

/// As many are counted as wait, by tenant and lane.
fn backlog(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    if !knows_waits(connection)? {
        return Ok(());
    }
    let sql = "select tenant, lane, sum(runs), sum(ready) from (\
                   select tenant, lane, runs, ready from backlog \
                   union all select tenant, lane, -count(*), 0 from temp.heads where not is_running group by 1, 2 \
                   union all select tenant, lane % 8, 0, -count(*) from ready group by 1, 2) \
               group by 1, 2 having sum(runs) <> 0 or sum(ready) <> 0";
    each(connection, sql, |row| {
        let (tenant, lane): (i64, i64) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
        let (runs, ready): (i64, i64) = (row.get(2).map_err(failed)?, row.get(3).map_err(failed)?);
        let what = format!(
            "of tenant {tenant} in lane {lane} {runs} too many runs are counted that wait, and {ready} for a worker"
        );
        checked.find("backlog", what);
        Ok(())
    })
}

fn rules(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    match checked.format < 3 {
        true => Ok(()),
        false => read::rules(connection).map(|_| ()),
    }
}

fn documents(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    if checked.format < 5 {
        return Ok(());
    }
    each(connection, &format!("select {} from documents", read::DOCUMENT), |row| {
        if let Err(error) = read::read_document(row) {
            checked.find("documents", error.to_string());
        }
        Ok(())
    })
}

fn audit(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    if checked.format < 8 {
        return Ok(());
    }
    each(connection, &format!("select {} from audit", read::AUDIT), |row| {
        if let Err(error) = read::read_audit(row) {
            checked.find("audit", error.to_string());
        }
        Ok(())
    })
}

/// What is listed with a time to start until is an open run that waits and has it, and the other way round.
fn lapses(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    // The first format had no limits, and so no list of them.
    if checked.format < 2 {
        return Ok(());
    }
    let sql = "select l.seq, h.seq is not null and h.lapses_after is l.start_by and h.shard = l.shard \
               from lapses l left join temp.heads h on h.seq = l.seq";
    each(connection, sql, |row| {
        if !row.get::<_, bool>(1).map_err(failed)? {
            let run: i64 = row.get(0).map_err(failed)?;
            checked.find("lapses", format!("run {run} is listed and does not wait until then"));
        }
        Ok(())
    })?;
    let sql = "select h.seq from temp.heads h where h.lapses_after is not null and not exists \
               (select 1 from lapses l where l.start_by = h.lapses_after and l.seq = h.seq)";
    each(connection, sql, |row| {
        let run: i64 = row.get(0).map_err(failed)?;
        checked.find("lapses", format!("run {run} may start until a time and is not listed"));
        Ok(())
    })
}

fn partitions(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    let partitions = Partitions::load(connection)?;
    let mut newest: BTreeMap<u16, Partition> = BTreeMap::new();
    for partition in partitions.iter() {
        checked.partitions += 1;
        if partition.to.is_some_and(|to| to < partition.from) {
            checked.find("partitions", format!("partition {} ends before it begins", partition.id));
        }
        if let Some(before) = newest.insert(partition.retention.days(), *partition)
            && before.to.is_none_or(|to| to > partition.from)
        {
            let what = format!("partitions {} and {} of one class overlap", before.id, partition.id);
            checked.find("partitions", what);
        }
    }
    // Every table has its row, and every row its table.
    let sql = "select name from sqlite_schema where type = 'table' and name like 'history\\_%' escape '\\'";
    let mut tables = Vec::new();
    each(connection, sql, |row| {
        tables.push(row.get::<_, String>(0).map_err(failed)?);
        Ok(())
    })?;
    let named: Vec<String> = std::iter::once(KEPT)
        .chain(partitions.iter().map(|partition| partition.id))
        .map(|id| format!("history_{id}"))
        .collect();
    for table in tables.iter().filter(|table| !named.contains(table)) {
        checked.find("partitions", format!("the table {table} belongs to no partition"));
    }
    for table in named.iter().filter(|table| !tables.contains(table)) {
        checked.find("partitions", format!("the table {table} is not there"));
    }
    Ok(())
}

fn ledger(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    let sql = "select l.job, l.from_slot, l.to_slot, l.slots, l.fate, l.decided_at, j.tenant is l.tenant from ledger l \
               left join jobs j on j.id = l.job";
    each(connection, sql, |row| {
        checked.ledger += 1;
        let job = JobId::from_bytes(row.get(0).map_err(failed)?);
        let (from, to) = (row.get::<_, i64>(1).map_err(failed)?, row.get::<_, i64>(2).map_err(failed)?);
        let place = format!("the entry of job {job} from {from}");
        let is_time = [from, to, row.get(5).map_err(failed)?].into_iter().all(|at| timestamp(at).is_ok());
        if !is_time || from > to || row.get::<_, i64>(3).map_err(failed)? < 1 {
            checked.find("ledger", format!("{place} is no range of slots"));
        }
        if fate_of(row.get(4).map_err(failed)?).is_none() {
            checked.find("ledger", format!("{place} has no fate"));
        }
        if !row.get::<_, bool>(6).map_err(failed)? {
            checked.find("ledger", format!("{place} has no job, or one of another tenant"));
        }
        Ok(())
    })
}

fn operations(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    let sql = "select o.id, o.tenant, o.version, o.record, o.resume_at, o.finished_at, t.id is null \
               from operations o left join tenants t on t.id = o.tenant";
    let mut jobs = connection.prepare("select 1 from jobs where id = ?1 and tenant = ?2").map_err(failed)?;
    each(connection, sql, |row| {
        checked.operations += 1;
        let operation = match read::decode(row) {
            Ok(operation) => operation,
            Err(error) => {
                checked.find("operations", error.to_string());
                return Ok(());
            }
        };
        let id = operation.id;
        if row.get::<_, bool>(6).map_err(failed)? {
            checked.find(
                "operations",
                format!("operation {id} has tenant {}, which is not there", operation.tenant.0),
            );
        }
        if u64::from(id.shard().0) >= checked.shards {
            let what = format!("operation {id} is in shard {}, which is not there", id.shard().0);
            checked.find("operations", what);
        }
        let resume_at = operation.is_running().then(|| millis(operation.resume_at));
        let finished_at = operation.finished_at.map(millis);
        if (row.get(4).map_err(failed)?, row.get(5).map_err(failed)?) != (resume_at, finished_at)
            || operation.is_running() == finished_at.is_some()
        {
            checked.find("operations", format!("operation {id} is not where its state says"));
        }
        if let Some(job) = operation.kind.job()
            && operation.is_running()
            && !jobs.exists(params![job.as_bytes(), operation.tenant.0]).map_err(failed)?
        {
            let what = format!("operation {id} is for job {job}, which is not there");
            checked.find("operations", what);
        }
        Ok(())
    })
}
