//! Reading pieces, each kind in the order of its primary key.

use std::sync::Arc;

use punctual_domain::id::{JobId, OperationId, Sequence, TenantId, Version};
use punctual_domain::{LedgerEntry, Tenant};
use punctual_store::record::{decode_job, decode_rule, decode_run};
use punctual_store::transfer::{EndedJob, EndedRun, Kind, Piece, Place};
use punctual_store::{Error, RunDetail, Subject};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::audit;
use crate::client::Client;
use crate::documents;
use crate::due;
use crate::error::{Failed, damaged};
use crate::operations;
use crate::papers;
use crate::partition::LATE;
use crate::row::{JOB, fate, job_id, job_uuid, read_job, timestamp};

/// The first pieces after a place.
pub(super) async fn pieces(
    client: &Client<'static>,
    kind: Kind,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, Piece)>, Failed> {
    let after = Place::new(after);
    let read = Read { client, limit: limit as i64 };
    match kind {
        Kind::Tenants => {
            let sql = "select id, name, created_at from tenants where id > $1 order by id limit $2";
            read.each(sql, &[&after.first::<i32>()?.unwrap_or(i32::MIN), &read.limit], tenant).await
        }
        Kind::Jobs => {
            let sql = format!("select {JOB} from jobs where id > $1 order by id limit $2");
            let id = after.first::<JobId>()?.map_or(Uuid::nil(), job_uuid);
            read.each(&sql, &[&id, &read.limit], |row| {
                let stored = read_job(row)?;
                Ok((stored.job.id.to_string(), Piece::Job(stored)))
            })
            .await
        }
        Kind::JobVersions => {
            let sql = "select id, version, tenant, record from job_versions where (id, version) > ($1, $2)
                order by id, version limit $3";
            let (id, version) =
                after.two::<JobId, i32>()?.map_or((Uuid::nil(), 0), |(id, version)| (job_uuid(id), version));
            read.each(sql, &[&id, &version, &read.limit], job_version).await
        }
        Kind::Due => read_due(&read, after).await,
        Kind::OpenRuns => {
            let sql = "select seq, record, array(select p.record from open_papers p where p.seq = o.seq order by p.attempt)
                from open_runs o where seq > $1 order by seq limit $2";
            read.each(sql, &[&after.first::<i64>()?.unwrap_or(i64::MIN), &read.limit], |row| {
                let detail = detail(row)?;
                Ok((detail.run.sequence.as_i64().to_string(), Piece::OpenRun(detail)))
            })
            .await
        }
        Kind::History => history(&read, after.two::<i16, i64>()?).await,
        Kind::Ledger => {
            let sql = "select job, from_slot, to_slot, slots, fate, tenant, decided_at, cap from ledger
                where (job, from_slot) > ($1, $2) order by job, from_slot limit $3";
            let (job, from) =
                after.two::<JobId, i64>()?.map_or((Uuid::nil(), 0), |(id, from)| (job_uuid(id), from));
            read.each(sql, &[&job, &from, &read.limit], ledger).await
        }
        Kind::Operations => {
            let sql = "select id, tenant, version, record from operations where id > $1 order by id limit $2";
            let id = after.first::<OperationId>()?.map_or(Uuid::nil(), |id| Uuid::from_bytes(*id.as_bytes()));
            read.each(sql, &[&id, &read.limit], |row| {
                let operation = operations::read(row)?;
                Ok((operation.id.to_string(), Piece::Operation(operation)))
            })
            .await
        }
        Kind::Requests => {
            let sql = "select tenant, key, fingerprint, expires_at, result from requests
                where (tenant, key) > ($1, $2) order by tenant, key limit $3";
            let (tenant, key) = after.two::<i32, String>()?.unwrap_or((i32::MIN, String::new()));
            read.each(sql, &[&tenant, &key, &read.limit], request).await
        }
        Kind::EndedJobs => ended_jobs(&read, after).await,
        Kind::Rules => {
            let sql = "select name, record from rules where name > $1 order by name limit $2";
            let name = after.first::<String>()?.unwrap_or_default();
            read.each(sql, &[&name, &read.limit], |row| {
                let name: String = row.get(0);
                let rule = decode_rule(&name, row.get::<_, &str>(1).as_bytes())?;
                Ok((name, Piece::Rule(rule)))
            })
            .await
        }
        Kind::Documents => {
            let sql = "select kind, tenant, name, version, body, updated_at from documents
                where (kind, tenant, name) > ($1, $2, $3) order by kind, tenant, name limit $4";
            let (kind, tenant, name) = after.three::<String, i32, String>()?.unwrap_or_default();
            read.each(sql, &[&kind, &tenant, &name, &read.limit], |row| {
                let document = documents::read(row)?;
                let place = Place::text([&document.kind.as_str(), &document.tenant.0, &document.name]);
                Ok((place, Piece::Document(document)))
            })
            .await
        }
        Kind::Audit => {
            let sql = format!(
                "select {} from audit where (at, number) > ($1, $2) order by at, number limit $3",
                audit::COLUMNS
            );
            let [at, number] = after.numbers::<2>()?.unwrap_or([i64::MIN; 2]);
            read.each(&sql, &[&at, &number, &read.limit], |row| {
                let entry = audit::read(row)?;
                let place = Place::text([&entry.id.at, &entry.id.number]);
                Ok((place, Piece::Audit(Box::new(entry))))
            })
            .await
        }
    }
}

struct Read<'c> {
    client: &'c Client<'static>,
    limit: i64,
}

impl Read<'_> {
    async fn each(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
        read: impl Fn(&Row) -> Result<(String, Piece), Error>,
    ) -> Result<Vec<(String, Piece)>, Failed> {
        let statement = self.client.prepare_cached(sql).await?;
        let rows = self.client.query(&statement, values).await?;
        rows.iter().map(|row| read(row).map_err(Failed::from)).collect()
    }
}

fn tenant(row: &Row) -> Result<(String, Piece), Error> {
    let (id, name): (i32, &str) = (row.get(0), row.get(1));
    let name = name.parse().map_err(|_| damaged(format!("`{name}` is not a tenant's name")))?;
    let tenant = Tenant { id: TenantId(id as u32), name, created_at: timestamp(row.get(2))? };
    Ok((id.to_string(), Piece::Tenant(tenant)))
}

fn job_version(row: &Row) -> Result<(String, Piece), Error> {
    let (id, version, tenant): (Uuid, i32, i32) = (row.get(0), row.get(1), row.get(2));
    let id = job_id(id);
    let record: &str = row.get(3);
    let job = decode_job(id, TenantId(tenant as u32), Version(version as u32), record.as_bytes())?;
    Ok((Place::text([&id, &version]), Piece::JobVersion(Arc::new(job))))
}

async fn read_due(read: &Read<'_>, after: Place<'_>) -> Result<Vec<(String, Piece)>, Failed> {
    let sql = "select shard, at, lane, tenant, job, version, slot from due
        where (shard, at, lane, tenant, job, version) > ($1, $2, $3, $4, $5, $6)
        order by shard, at, lane, tenant, job, version limit $7";
    let [shard, at, lane, tenant] = after.numbers::<4>()?.unwrap_or([-1, 0, 0, 0]);
    let (shard, lane, tenant) = (shard as i16, lane as i16, tenant as i32);
    let (job, version) =
        after.tail::<JobId, i32>(4)?.map_or((Uuid::nil(), 0), |(id, version)| (job_uuid(id), version));
    read.each(sql, &[&shard, &at, &lane, &tenant, &job, &version, &read.limit], |row| {
        let entry = due::read(row)?;
        let (shard, at, lane, tenant): (i16, i64, i16, i32) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        let place = Place::text([&shard, &at, &lane, &tenant, &entry.key.job, &entry.version]);
        Ok((place, Piece::Due(entry)))
    })
    .await
}

fn detail(row: &Row) -> Result<RunDetail, Error> {
    let (run, attempts) = decode_run(Sequence::from_i64(row.get(0)), row.get::<_, &[u8]>(1))?;
    Ok(RunDetail::of(run, attempts, papers::read_all(row.get(2))?))
}

/// Runs that ended, a class after the other.
async fn history(read: &Read<'_>, after: Option<(i16, i64)>) -> Result<Vec<(String, Piece)>, Failed> {
    let (begin, after) = after.unwrap_or((0, i64::MIN));
    let mut pieces = Vec::new();
    for class in begin..=LATE {
        let after = if class == begin { after } else { i64::MIN };
        let rest = read.limit - pieces.len() as i64;
        let sql = "select seq, record, array[papers], exists (select from dead_letters d where d.seq = h.seq) from history h
            where class = $1 and seq > $2 order by seq limit $3";
        let found = read
            .each(sql, &[&class, &after, &rest], |row| {
                let (detail, is_dead_letter) = (detail(row)?, row.get(3));
                let place = Place::text([&class, &detail.run.sequence.as_i64()]);
                Ok((place, Piece::EndedRun(EndedRun { detail, is_dead_letter })))
            })
            .await?;
        pieces.extend(found);
        if pieces.len() as i64 >= read.limit {
            break;
        }
    }
    Ok(pieces)
}

fn ledger(row: &Row) -> Result<(String, Piece), Error> {
    let from: i64 = row.get(1);
    let entry = LedgerEntry {
        job: job_id(row.get(0)),
        tenant: TenantId(row.get::<_, i32>(5) as u32),
        from: timestamp(from)?,
        to: timestamp(row.get(2))?,
        slots: row.get::<_, i64>(3) as u64,
        fate: fate(row.get(4), row.get(7))?,
        decided_at: timestamp(row.get(6))?,
    };
    Ok((Place::text([&entry.job, &from]), Piece::Ledger(entry)))
}

fn request(row: &Row) -> Result<(String, Piece), Error> {
    let (tenant, key): (i32, &str) = (row.get(0), row.get(1));
    let fingerprint = row.get::<_, &[u8]>(2).try_into();
    let subject = Subject {
        tenant: TenantId(tenant as u32),
        key: key.into(),
        fingerprint: fingerprint.map_err(|_| damaged("a fingerprint of another size"))?,
        expires_at: timestamp(row.get(3))?,
        result: row.get(4),
    };
    Ok((Place::text([&tenant, &key]), Piece::Request(subject)))
}

/// What older nodes noted one by one, then the lists of newer ones. What was noted twice is one piece.
async fn ended_jobs(read: &Read<'_>, after: Place<'_>) -> Result<Vec<(String, Piece)>, Failed> {
    let ended = |row: &Row| {
        let (forget_at, version) = (timestamp(row.get(0))?, Version(row.get::<_, i32>(2) as u32));
        Ok::<_, Error>(EndedJob { forget_at, job: job_id(row.get(1)), version })
    };
    let [is_list, at] = after.numbers::<2>()?.unwrap_or([0, i64::MIN]);
    let mut pieces = Vec::new();
    if is_list == 0 {
        let sql = "select forget_at, job, version from ended_jobs
            where (forget_at, job, version) > ($1, $2, $3) order by forget_at, job, version limit $4";
        let (job, version) =
            after.tail::<JobId, i32>(2)?.map_or((Uuid::nil(), 0), |(id, version)| (job_uuid(id), version));
        pieces = read
            .each(sql, &[&at, &job, &version, &read.limit], |row| {
                let (at, one): (i64, EndedJob) = (row.get(0), ended(row)?);
                Ok((Place::text([&0, &at, &one.job, &one.version]), Piece::EndedJob(one)))
            })
            .await?;
    }
    let rest = read.limit - pieces.len() as i64;
    if rest > 0 {
        let sql = "select l.forget_at, x.job, x.version, l.id, x.n
            from ended_lists l cross join lateral unnest(l.jobs, l.versions) with ordinality x (job, version, n)
            where (l.forget_at, l.id) >= ($1, $2) and (l.forget_at, l.id, x.n) > ($1, $2, $3)
                and not exists (select from ended_jobs e
                    where e.forget_at = l.forget_at and e.job = x.job and e.version = x.version)
                and not exists (select from ended_lists p
                    where p.forget_at = l.forget_at and p.id < l.id and x.job = any(p.jobs))
            order by l.forget_at, l.id, x.n limit $4";
        let [_, at, list, item] = match is_list {
            0 => [0, i64::MIN, 0, 0],
            _ => after.numbers::<4>()?.unwrap_or([0, i64::MIN, 0, 0]),
        };
        let values: [&(dyn ToSql + Sync); 4] = [&at, &list, &item, &rest];
        let found = read.each(sql, &values, |row| {
            let (at, list, item): (i64, i64, i64) = (row.get(0), row.get(3), row.get(4));
            Ok((Place::text([&1, &at, &list, &item]), Piece::EndedJob(ended(row)?)))
        });
        pieces.extend(found.await?);
    }
    Ok(pieces)
}
