//! Jobs, due entries, requests, tenants.

use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::id::{JobId, ShardId, TenantId, Version};
use punctual_domain::policy::limit::Rule;
use punctual_domain::{Sequence, Tenant};
use punctual_schedule::Progress;
use punctual_store::record::{PlannedReader, decode_job, decode_rule};
use punctual_store::{
    Due, DueKey, DuePage, DueQuery, EXAMINED_MAX, Error, JobFilter, Page, PageRequest, Planned, Shards,
    Stored, Subject,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::failed;
use crate::row::{damaged, lane_of, millis, timestamp};

const ACTIVE: i64 = 0;
const DELETED: i64 = 3;

/// Reads a job from a row of its id, tenant, version, record and what firing has counted.
pub(crate) fn read_job(row: &Row<'_>) -> Result<Stored, Error> {
    let id = JobId::from_bytes(row.get(0).map_err(failed)?);
    let tenant = TenantId(row.get(1).map_err(failed)?);
    let version = Version(row.get(2).map_err(failed)?);
    let record = row.get_ref(3).map_err(failed)?;
    let record = record.as_bytes().map_err(|_| damaged(format!("job {id} has no record")))?;
    let completed_at: Option<i64> = row.get(5).map_err(failed)?;
    Ok(Stored {
        job: Arc::new(decode_job(id, tenant, version, record)?),
        progress: Progress {
            fired: row.get::<_, i64>(4).map_err(failed)? as u64,
            last_completion: completed_at.map(timestamp).transpose()?,
        },
    })
}

fn one<T>(
    connection: &Connection,
    sql: &str,
    values: &[&dyn rusqlite::ToSql],
    read: impl Fn(&Row<'_>) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query(values).map_err(failed)?;
    rows.next().map_err(failed)?.map(read).transpose()
}

pub(crate) fn jobs(connection: &Connection, ids: &[JobId]) -> Result<Vec<Option<Stored>>, Error> {
    let sql =
        "select id, tenant, version, record, fired, completed_at from jobs where id = ?1 and state <> ?2";
    ids.iter().map(|id| one(connection, sql, params![id.as_bytes(), DELETED], read_job)).collect()
}

pub(crate) fn kept_jobs(connection: &Connection, ids: &[JobId]) -> Result<Vec<Option<Stored>>, Error> {
    let sql = "select id, tenant, version, record, fired, completed_at from jobs where id = ?1";
    ids.iter().map(|id| one(connection, sql, params![id.as_bytes()], read_job)).collect()
}

pub(crate) fn job_versions(
    connection: &Connection,
    versions: &[(JobId, Version)],
) -> Result<Vec<Option<Stored>>, Error> {
    let sql = "select id, tenant, version, record, fired, completed_at from jobs where id = ?1 and version = ?2 \
               union all \
               select id, tenant, version, record, 0, null from job_versions where id = ?1 and version = ?2 limit 1";
    versions
        .iter()
        .map(|(id, version)| one(connection, sql, params![id.as_bytes(), version.0], read_job))
        .collect()
}

pub(crate) fn job_by_key(
    connection: &Connection,
    tenant: TenantId,
    key: &str,
) -> Result<Option<JobId>, Error> {
    let sql = "select job from job_keys where tenant = ?1 and key = ?2";
    one(connection, sql, params![tenant.0, key], |row| Ok(JobId::from_bytes(row.get(0).map_err(failed)?)))
}

pub(crate) fn list_jobs(
    connection: &Connection,
    filter: &JobFilter,
    page: &PageRequest<JobId>,
) -> Result<Page<Stored, JobId>, Error> {
    let mut statement = connection
        .prepare_cached(
            "select id, tenant, version, record, fired, completed_at, state from jobs where id > ?1 order by id",
        )
        .map_err(failed)?;
    let after = page.after.map_or(Vec::new(), |id| id.as_bytes().to_vec()); // Nothing is before every id.
    let mut rows = statement.query([after]).map_err(failed)?;
    let mut items: Vec<Stored> = Vec::new();
    let mut examined = 0;
    let mut next = None;
    while let Some(row) = rows.next().map_err(failed)? {
        let item = if may_match(filter, row)? { Some(read_job(row)?) } else { None };
        let item = item.filter(|stored| filter.matches(&stored.job));
        // There is more: it starts after the last row that was looked at.
        if examined == EXAMINED_MAX || (item.is_some() && items.len() == page.limit) {
            return Ok(Page { items, next });
        }
        items.extend(item);
        next = Some(JobId::from_bytes(row.get(0).map_err(failed)?));
        examined += 1;
    }
    Ok(Page { items, next: None })
}

pub(crate) fn planned(
    connection: &Connection,
    page: &PageRequest<JobId>,
) -> Result<Page<Planned, JobId>, Error> {
    let mut statement = connection
        .prepare_cached("select id, tenant, state, fired, record from jobs where id > ?1 order by id")
        .map_err(failed)?;
    let after = page.after.map_or(Vec::new(), |id| id.as_bytes().to_vec());
    let mut rows = statement.query([after]).map_err(failed)?;
    let mut reader = PlannedReader::default();
    let mut found = Page { items: Vec::new(), next: None };
    let mut examined = 0;
    while let Some(row) = rows.next().map_err(failed)? {
        let is_active = row.get::<_, i64>(2).map_err(failed)? == ACTIVE;
        // There is more: it starts after the last row that was looked at.
        if examined == EXAMINED_MAX || (is_active && found.items.len() == page.limit) {
            return Ok(found);
        }
        let id = JobId::from_bytes(row.get(0).map_err(failed)?);
        if is_active {
            let tenant = TenantId(row.get(1).map_err(failed)?);
            let fired = row.get::<_, i64>(3).map_err(failed)? as u64;
            let record = row.get_ref(4).map_err(failed)?;
            let record = record.as_bytes().map_err(|_| damaged(format!("job {id} has no record")))?;
            found.items.push(reader.read(id, tenant, fired, record)?);
        }
        found.next = Some(id);
        examined += 1;
    }
    Ok(Page { next: None, ..found })
}

/// What the columns tell: most rows that do not match need not be decoded.
fn may_match(filter: &JobFilter, row: &Row<'_>) -> Result<bool, Error> {
    let tenant: u32 = row.get(1).map_err(failed)?;
    let state: i64 = row.get(6).map_err(failed)?;
    Ok(state != DELETED && filter.tenant.is_none_or(|wanted| wanted.0 == tenant))
}

pub(crate) fn request(
    connection: &Connection,
    tenant: TenantId,
    key: &str,
    now: Timestamp,
) -> Result<Option<Subject>, Error> {
    let sql = "select fingerprint, expires_at, result from requests where tenant = ?1 and key = ?2 and expires_at > ?3";
    one(connection, sql, params![tenant.0, key, millis(now)], |row| {
        Ok(Subject {
            tenant,
            key: key.to_string(),
            fingerprint: row.get(0).map_err(failed)?,
            expires_at: timestamp(row.get(1).map_err(failed)?)?,
            result: row.get(2).map_err(failed)?,
        })
    })
}

pub(crate) fn due(connection: &Connection, query: &DueQuery) -> Result<DuePage, Error> {
    // A row value comparison uses the primary key; no cursor is before every key.
    let (at, lane, tenant, job) = match query.after {
        Some(key) => {
            (millis(key.at), i64::from(key.lane.rank()), i64::from(key.tenant.0), key.job.as_bytes().to_vec())
        }
        None => (i64::MIN, 0, 0, Vec::new()),
    };
    let mut statement = connection
        .prepare_cached(
            "select at, lane, tenant, job, version, slot from due where (at, lane, tenant, job) > (?1, ?2, ?3, ?4) \
             order by at, lane, tenant, job, version",
        )
        .map_err(failed)?;
    let mut rows = statement.query(params![at, lane, tenant, job]).map_err(failed)?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let due = read_due(row)?;
        if !query.shards.contains(due.key.job.shard()) {
            continue;
        }
        // A page does not end between two versions of one entry: the cursor does not tell them apart.
        let is_full =
            entries.len() >= query.limit && entries.last().is_none_or(|last: &Due| last.key != due.key);
        if due.key.at > query.until || is_full {
            return Ok(DuePage { entries, next_at: Some(due.key.at) });
        }
        entries.push(due);
    }
    Ok(DuePage { entries, next_at: None })
}

fn read_due(row: &Row<'_>) -> Result<Due, Error> {
    let lane = lane_of(row.get(1).map_err(failed)?).ok_or_else(|| damaged("a due entry without a lane"))?;
    Ok(Due {
        key: DueKey {
            at: timestamp(row.get(0).map_err(failed)?)?,
            lane,
            tenant: TenantId(row.get(2).map_err(failed)?),
            job: JobId::from_bytes(row.get(3).map_err(failed)?),
        },
        version: Version(row.get(4).map_err(failed)?),
        slot: timestamp(row.get(5).map_err(failed)?)?,
    })
}

pub(crate) fn count_due(
    connection: &Connection,
    from: Timestamp,
    to: Timestamp,
    limit: usize,
) -> Result<usize, Error> {
    let sql = "select count(*) from (select 1 from due where at >= ?1 and at < ?2 limit ?3)";
    let values = params![millis(from), millis(to), limit as i64];
    let count = one(connection, sql, values, |row| row.get::<_, i64>(0).map_err(failed))?;
    Ok(count.unwrap_or(0) as usize)
}

pub(crate) fn is_due(connection: &Connection, entries: &[Due]) -> Result<Vec<bool>, Error> {
    let sql =
        "select slot from due where at = ?1 and lane = ?2 and tenant = ?3 and job = ?4 and version = ?5";
    let is_there = |due: &Due| {
        let key = &due.key;
        let values =
            params![millis(key.at), key.lane.rank(), key.tenant.0, key.job.as_bytes(), due.version.0];
        let slot: Option<i64> = one(connection, sql, values, |row| row.get(0).map_err(failed))?;
        Ok(slot == Some(millis(due.slot)))
    };
    entries.iter().map(is_there).collect()
}

pub(crate) fn next_available_at(
    connection: &Connection,
    shards: &Shards,
) -> Result<Option<Timestamp>, Error> {
    for sql in [
        "select available_at, shard from ready order by lane, tenant, urgency, available_at, seq",
        "select available_at, shard from delayed order by available_at, seq",
    ] {
        let mut statement = connection.prepare_cached(sql).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            if shards.contains(ShardId(row.get(1).map_err(failed)?)) {
                return timestamp(row.get(0).map_err(failed)?).map(Some);
            }
        }
    }
    Ok(None)
}

pub(crate) fn rules(connection: &Connection) -> Result<Vec<Rule>, Error> {
    let mut statement =
        connection.prepare_cached("select name, record from rules order by name").map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut rules = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let (name, record): (String, Vec<u8>) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
        rules.push(decode_rule(&name, &record)?);
    }
    Ok(rules)
}

pub(crate) fn tenants(connection: &Connection) -> Result<Vec<Tenant>, Error> {
    let mut statement =
        connection.prepare_cached("select id, name, created_at from tenants order by id").map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut tenants = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let name: String = row.get(1).map_err(failed)?;
        tenants.push(Tenant {
            id: TenantId(row.get(0).map_err(failed)?),
            name: name.parse().map_err(|_| damaged(format!("tenant `{name}`")))?,
            created_at: timestamp(row.get(2).map_err(failed)?)?,
        });
    }
    Ok(tenants)
}

/// Whether a run is a dead letter.
pub(super) fn is_dead_letter(connection: &Connection, sequence: Sequence) -> Result<bool, Error> {
    connection
        .prepare_cached("select 1 from dead_letters where seq = ?1")
        .and_then(|mut statement| statement.query_row([sequence.as_i64()], |_| Ok(())).optional())
        .map(|found| found.is_some())
        .map_err(failed)
}
