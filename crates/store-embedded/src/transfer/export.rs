//! Reading pieces, each kind in the order of its table.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, OperationId, Sequence, TenantId, Version};
use punctual_domain::policy::retention::Retention;
use punctual_domain::{LedgerEntry, Tenant};
use punctual_store::record::{decode_job, decode_rule, fate_of};
use punctual_store::transfer::{EndedJob, EndedRun, Kind, Piece, Place};
use punctual_store::{Due, DueKey, Error, RunDetail, Subject};
use rusqlite::{Connection, Row, ToSql, params};

use crate::error::failed;
use crate::papers;
use crate::partition::{KEPT, Partitions, kept};
use crate::read;
use crate::row::{self, damaged, lane_of, timestamp};
use crate::write::{LISTED, listed};

/// How many pieces of a kind there are.
pub(super) fn count(connection: &Connection, kind: Kind) -> Result<u64, Error> {
    let number = |sql: &str| -> Result<u64, Error> {
        let found = connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        found.map(i64::unsigned_abs).map_err(failed)
    };
    match kind {
        Kind::History => {
            let mut sum = 0;
            for id in tables(connection)? {
                sum += number(&format!("select count(*) from history_{id}"))?;
            }
            Ok(sum)
        }
        Kind::EndedJobs => {
            number(&format!("select coalesce(sum(length(jobs)), 0) / {LISTED} from ended_jobs"))
        }
        kind => number(&format!("select count(*) from {kind}")),
    }
}

/// The tables of history.
fn tables(connection: &Connection) -> Result<Vec<i64>, Error> {
    Ok(std::iter::once(KEPT).chain(Partitions::load(connection)?.iter().map(|one| one.id)).collect())
}

/// The first pieces after a place.
pub(super) fn pieces(
    connection: &Connection,
    kind: Kind,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, Piece)>, Error> {
    let after = Place::new(after);
    let read = Read { connection, limit };
    match kind {
        Kind::Tenants => {
            let sql = "select id, name, created_at from tenants where id > ?1 order by id";
            read.each(sql, params![after.first::<i64>()?.unwrap_or(i64::MIN)], tenant)
        }
        Kind::Jobs => {
            let sql =
                "select id, tenant, version, record, fired, completed_at from jobs where id > ?1 order by id";
            read.each(
                sql,
                params![after.first::<JobId>()?.map_or(Vec::new(), |id| id.as_bytes().to_vec())],
                |row| {
                    let stored = read::read_job(row)?;
                    Ok((stored.job.id.to_string(), Piece::Job(stored)))
                },
            )
        }
        Kind::JobVersions => {
            let sql = "select id, version, tenant, record from job_versions where (id, version) > (?1, ?2) order by id, version";
            let (id, version) = after
                .two::<JobId, u32>()?
                .map_or((Vec::new(), 0), |(id, version)| (id.as_bytes().to_vec(), version));
            read.each(sql, params![id, version], job_version)
        }
        Kind::Due => {
            let sql = "select at, lane, tenant, job, version, slot from due \
                       where (at, lane, tenant, job, version) > (?1, ?2, ?3, ?4, ?5) order by at, lane, tenant, job, version";
            let numbers = after.numbers::<3>()?.unwrap_or([i64::MIN; 3]);
            let (job, version) = after
                .tail::<JobId, u32>(3)?
                .map_or((Vec::new(), 0), |(id, version)| (id.as_bytes().to_vec(), version));
            read.each(sql, params![numbers[0], numbers[1], numbers[2], job, version], due)
        }
        Kind::OpenRuns => {
            let sql = format!("select {} from open_runs where seq > ?1 order by seq", row::COLUMNS);
            read.each(&sql, params![after.first::<i64>()?.unwrap_or(i64::MIN)], |row| {
                let entry = row::read(row)?;
                let papers = papers::of_open(connection, entry.run.sequence)?;
                let detail = RunDetail::of(entry.run, entry.attempts, papers);
                Ok((detail.run.sequence.as_i64().to_string(), Piece::OpenRun(detail)))
            })
        }
        Kind::History => history(&read, after.two::<i64, i64>()?),
        Kind::Ledger => {
            let sql = "select job, from_slot, to_slot, slots, fate, tenant, decided_at from ledger \
                       where (job, from_slot) > (?1, ?2) order by job, from_slot";
            let (job, from) = after
                .two::<JobId, i64>()?
                .map_or((Vec::new(), i64::MIN), |(id, from)| (id.as_bytes().to_vec(), from));
            read.each(sql, params![job, from], ledger)
        }
        Kind::Operations => {
            let sql = "select id, tenant, version, record from operations where id > ?1 order by id";
            let id = after.first::<OperationId>()?.map_or(Vec::new(), |id| id.as_bytes().to_vec());
            read.each(sql, params![id], |row| {
                let operation = read::decode(row)?;
                Ok((operation.id.to_string(), Piece::Operation(operation)))
            })
        }
        Kind::Requests => {
            let sql = "select tenant, key, fingerprint, expires_at, result from requests \
                       where (tenant, key) > (?1, ?2) order by tenant, key";
            let (tenant, key) = after.two::<i64, String>()?.unwrap_or((i64::MIN, String::new()));
            read.each(sql, params![tenant, key], request)
        }
        Kind::EndedJobs => ended_jobs(&read, after.numbers::<3>()?),
        Kind::Rules => {
            let sql = "select name, record from rules where name > ?1 order by name";
            read.each(sql, params![after.first::<String>()?.unwrap_or_default()], |row| {
                let (name, record): (String, Vec<u8>) =
                    (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
                let rule = decode_rule(&name, &record)?;
                Ok((name, Piece::Rule(rule)))
            })
        }
        Kind::Documents => {
            let sql = format!(
                "select {} from documents where (kind, tenant, name) > (?1, ?2, ?3) order by kind, tenant, name",
                read::DOCUMENT
            );
            let (kind, tenant, name) = after.three::<String, u32, String>()?.unwrap_or_default();
            read.each(&sql, params![kind, tenant, name], |row| {
                let document = read::read_document(row)?;
                let place = Place::text([&document.kind.as_str(), &document.tenant.0, &document.name]);
                Ok((place, Piece::Document(document)))
            })
        }
        Kind::Audit => {
            let sql = format!(
                "select {} from audit where (at, number) > (?1, ?2) order by at, number",
                read::AUDIT
            );
            let [at, number] = after.numbers::<2>()?.unwrap_or([i64::MIN; 2]);
            read.each(&sql, params![at, number], |row| {
                let entry = read::read_audit(row)?;
                let place = Place::text([&entry.id.at, &entry.id.number]);
                Ok((place, Piece::Audit(Box::new(entry))))
            })
        }
    }
}

struct Read<'c> {
    connection: &'c Connection,
    limit: usize,
}

impl Read<'_> {
    fn each(
        &self,
        sql: &str,
        values: &[&dyn ToSql],
        read: impl Fn(&Row<'_>) -> Result<(String, Piece), Error>,
    ) -> Result<Vec<(String, Piece)>, Error> {
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        let mut rows = statement.query(values).map_err(failed)?;
        let mut pieces = Vec::new();
        while pieces.len() < self.limit
            && let Some(row) = rows.next().map_err(failed)?
        {
            pieces.push(read(row)?);
        }
        Ok(pieces)
    }
}

fn tenant(row: &Row<'_>) -> Result<(String, Piece), Error> {
    let (id, name): (u32, String) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
    let name = name.parse().map_err(|_| damaged(format!("`{name}` is not a tenant's name")))?;
    let created_at = timestamp(row.get(2).map_err(failed)?)?;
    Ok((id.to_string(), Piece::Tenant(Tenant { id: TenantId(id), name, created_at })))
}

fn job_version(row: &Row<'_>) -> Result<(String, Piece), Error> {
    let id = JobId::from_bytes(row.get(0).map_err(failed)?);
    let (version, tenant) = (Version(row.get(1).map_err(failed)?), TenantId(row.get(2).map_err(failed)?));
    let record = row.get_ref(3).map_err(failed)?;
    let record = record.as_bytes().map_err(|_| damaged(format!("job {id} has no record")))?;
    let job = decode_job(id, tenant, version, record)?;
    Ok((Place::text([&id, &version]), Piece::JobVersion(Arc::new(job))))
}

fn due(row: &Row<'_>) -> Result<(String, Piece), Error> {
    let (at, lane, tenant): (i64, i64, u32) =
        (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?, row.get(2).map_err(failed)?);
    let job = JobId::from_bytes(row.get(3).map_err(failed)?);
    let version = Version(row.get(4).map_err(failed)?);
    let key = DueKey {
        at: timestamp(at)?,
        lane: lane_of(lane).ok_or_else(|| damaged(format!("{lane} is not a lane")))?,
        tenant: TenantId(tenant),
        job,
    };
    let due = Due { key, version, slot: timestamp(row.get(5).map_err(failed)?)? };
    Ok((Place::text([&at, &lane, &tenant, &job, &version]), Piece::Due(due)))
}

/// Runs that ended, a table after the other.
fn history(read: &Read<'_>, after: Option<(i64, i64)>) -> Result<Vec<(String, Piece)>, Error> {
    let (begin, after) = after.unwrap_or((KEPT, i64::MIN));
    let mut pieces = Vec::new();
    for id in tables(read.connection)?.into_iter().filter(|id| *id >= begin) {
        let after = if id == begin { after } else { i64::MIN };
        let sql = format!(
            "select {}, papers, exists (select 1 from dead_letters d where d.seq = h.seq) from history_{id} h \
             where seq > ?1 order by seq",
            row::COLUMNS
        );
        let rest = Read { limit: read.limit - pieces.len(), ..*read };
        pieces.extend(rest.each(&sql, params![after], |row| {
            let (entry, is_dead_letter) = (row::read(row)?, row.get(3).map_err(failed)?);
            let detail = RunDetail::of(entry.run, entry.attempts, papers::read(row, 2)?);
            let place = Place::text([&id, &detail.run.sequence.as_i64()]);
            Ok((place, Piece::EndedRun(EndedRun { detail, is_dead_letter })))
        })?);
        if pieces.len() >= read.limit {
            break;
        }
    }
    Ok(pieces)
}

fn ledger(row: &Row<'_>) -> Result<(String, Piece), Error> {
    let job = JobId::from_bytes(row.get(0).map_err(failed)?);
    let (from, fate): (i64, i64) = (row.get(1).map_err(failed)?, row.get(4).map_err(failed)?);
    let entry = LedgerEntry {
        job,
        tenant: TenantId(row.get(5).map_err(failed)?),
        from: timestamp(from)?,
        to: timestamp(row.get(2).map_err(failed)?)?,
        slots: row.get::<_, i64>(3).map_err(failed)?.unsigned_abs(),
        fate: fate_of(fate).ok_or_else(|| damaged(format!("{fate} is not a fate")))?,
        decided_at: timestamp(row.get(6).map_err(failed)?)?,
    };
    Ok((Place::text([&job, &from]), Piece::Ledger(entry)))
}

fn request(row: &Row<'_>) -> Result<(String, Piece), Error> {
    let (tenant, key): (u32, String) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
    let subject = Subject {
        tenant: TenantId(tenant),
        key: key.clone(),
        fingerprint: row.get(2).map_err(failed)?,
        expires_at: timestamp(row.get(3).map_err(failed)?)?,
        result: row.get(4).map_err(failed)?,
    };
    Ok((Place::text([&tenant, &key]), Piece::Request(subject)))
}

/// Jobs to be forgotten. Lists of one class and one millisecond are one: what is looked at when is all that counts.
fn ended_jobs(read: &Read<'_>, after: Option<[i64; 3]>) -> Result<Vec<(String, Piece)>, Error> {
    let [days, at, number] = after.unwrap_or([i64::MIN, 0, -1]);
    let from = Timestamp::from_millisecond(at).map_err(|_| damaged("a place out of range"))?;
    let sql = "select retention, seq, jobs from ended_jobs where (retention, seq) >= (?1, ?2) order by retention, seq";
    let mut statement = read.connection.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query(params![days, Sequence::first_at(from, 0).as_i64()]).map_err(failed)?;
    let mut pieces = Vec::new();
    let mut group = None;
    let mut seen = HashSet::new();
    let mut next = 0;
    while pieces.len() < read.limit
        && let Some(row) = rows.next().map_err(failed)?
    {
        let class: i64 = row.get(0).map_err(failed)?;
        let retention = Retention::of_days(class.unsigned_abs())
            .ok_or_else(|| damaged(format!("a list of {class} days, which is no class")))?;
        let ended_at = Sequence::from_i64(row.get(1).map_err(failed)?).born_at();
        let this = (class, ended_at.as_millisecond());
        if group.replace(this) != Some(this) {
            seen.clear();
            next = 0;
        }
        let forget_at = forget_at(retention, ended_at);
        let list: Vec<u8> = row.get(2).map_err(failed)?;
        for (job, version) in list.chunks_exact(LISTED).filter_map(listed) {
            if !seen.insert((job, version)) {
                continue;
            }
            let is_new = this != (days, at) || next > number;
            if is_new && pieces.len() < read.limit {
                let place = Place::text([&class, &this.1, &next]);
                pieces.push((place, Piece::EndedJob(EndedJob { forget_at, job, version })));
            }
            next += 1;
        }
    }
    Ok(pieces)
}

/// When a job that was over at a time is looked at.
fn forget_at(retention: Retention, ended_at: Timestamp) -> Timestamp {
    ended_at.checked_add(kept(retention)).unwrap_or(Timestamp::MAX)
}

/// The reverse: when a job must have been over to be looked at then.
pub(super) fn ended_at(retention: Retention, forget_at: Timestamp) -> Timestamp {
    let kept: SignedDuration = kept(retention);
    forget_at.checked_sub(kept).unwrap_or(Timestamp::UNIX_EPOCH).max(Timestamp::UNIX_EPOCH)
}
