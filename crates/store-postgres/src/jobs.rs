//! Jobs and tenants, read.

use std::collections::HashMap;

use jiff::Timestamp;
use punctual_domain::id::{JobId, TenantId, Version};
use punctual_domain::{Tenant, TenantName};
use punctual_store::record::PlannedReader;
use punctual_store::{EXAMINED_MAX, Error, JobFilter, Page, PageRequest, Planned, Stored};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::error::{Failed, damaged, failed};
use crate::postgres::Postgres;
use crate::row::{DELETED, JOB, job_id, job_uuid, millis, read_job, timestamp};

/// Rows that are read at a time when they must be looked at.
const CHUNK: usize = 5_000;

/// The same where they are read whole: batches may have a megabyte each.
const WHOLE: usize = 500;

pub(crate) const JOB_VERSIONS: &str = "
select j.id, j.tenant, j.version, j.record, j.fired, j.completed_at
from unnest($1::uuid[], $2::int[]) x (id, version)
join jobs j on j.id = any(array[x.id]) and j.version = x.version
union all
select v.id, v.tenant, v.version, v.record, 0, null
from unnest($1::uuid[], $2::int[]) x (id, version)
join job_versions v on v.id = any(array[x.id]) and v.version = x.version";

/// Jobs after $1 by their ids, with the records of active ones.
pub(crate) const PLANNED: &str = "
select id, tenant, fired, case when state = 0 then record end from jobs where id > $1 order by id limit $2";

impl Postgres {
    /// Jobs by id; deleted ones only if they are asked for.
    pub(crate) async fn jobs(&self, ids: &[JobId], has_deleted: bool) -> Result<Vec<Option<Stored>>, Failed> {
        let client = self.connection().await?;
        let sql = format!("select {JOB} from jobs where id = any($1) and (state <> $2 or $3)");
        let statement = client.prepare_cached(&sql).await.map_err(failed)?;
        let wanted: Vec<Uuid> = ids.iter().map(|id| job_uuid(*id)).collect();
        let mut found = HashMap::with_capacity(ids.len());
        for row in client.query(&statement, &[&wanted, &DELETED, &has_deleted]).await.map_err(failed)? {
            let stored = read_job(&row)?;
            found.insert(stored.job.id, stored);
        }
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    pub(crate) async fn job_versions(
        &self,
        versions: &[(JobId, Version)],
    ) -> Result<Vec<Option<Stored>>, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(JOB_VERSIONS).await.map_err(failed)?;
        let ids: Vec<Uuid> = versions.iter().map(|(id, _)| job_uuid(*id)).collect();
        let numbers: Vec<i32> = versions.iter().map(|(_, version)| version.0 as i32).collect();
        let mut found = HashMap::with_capacity(versions.len());
        for row in client.query(&statement, &[&ids, &numbers]).await.map_err(failed)? {
            let stored = read_job(&row)?;
            found.entry((stored.job.id, stored.job.version)).or_insert(stored);
        }
        Ok(versions.iter().map(|version| found.get(version).cloned()).collect())
    }

    pub(crate) async fn have_open_runs(&self, jobs: &[JobId]) -> Result<Vec<bool>, Failed> {
        let client = self.connection().await?;
        let sql = "
            select exists (select from open_runs o where o.job = x.job)
            from unnest($1::uuid[]) with ordinality x (job, n) order by x.n";
        let statement = client.prepare_cached(sql).await.map_err(failed)?;
        let ids: Vec<Uuid> = jobs.iter().map(|job| job_uuid(*job)).collect();
        let rows = client.query(&statement, &[&ids]).await.map_err(failed)?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    pub(crate) async fn job_by_key(&self, tenant: TenantId, key: &str) -> Result<Option<JobId>, Failed> {
        let client = self.connection().await?;
        let sql = "select job from job_keys where tenant = $1 and key = $2";
        let statement = client.prepare_cached(sql).await.map_err(failed)?;
        let row = client.query_opt(&statement, &[&(tenant.0 as i32), &key]).await.map_err(failed)?;
        Ok(row.map(|row| job_id(row.get(0))))
    }

    pub(crate) async fn list_jobs(
        &self,
        filter: &JobFilter,
        page: &PageRequest<JobId>,
    ) -> Result<Page<Stored, JobId>, Failed> {
        let client = self.connection().await?;
        let chunk = if filter.is_plain() { page.limit + 1 } else { WHOLE };
        let by_tenant = format!("select {JOB} from jobs where tenant = $3 and id > $1 order by id limit $2");
        let all = format!("select {JOB} from jobs where id > $1 order by id limit $2");
        let sql = if filter.tenant.is_some() { &by_tenant } else { &all };
        let statement = client.prepare_cached(sql).await.map_err(failed)?;
        let mut after = page.after.map_or(Uuid::nil(), job_uuid);
        let mut found = Page { items: Vec::new(), next: None };
        let mut examined = 0;
        loop {
            let limit = chunk as i64;
            let rows: Vec<Row> = match filter.tenant {
                Some(tenant) => client.query(&statement, &[&after, &limit, &(tenant.0 as i32)]).await,
                None => client.query(&statement, &[&after, &limit]).await,
            }
            .map_err(failed)?;
            for row in &rows {
                let stored = read_job(row)?;
                let is_match = filter.matches(&stored.job);
                // There is more: it starts after the last row that was looked at.
                if examined == EXAMINED_MAX || (is_match && found.items.len() == page.limit) {
                    return Ok(found);
                }
                examined += 1;
                found.next = Some(stored.job.id);
                after = job_uuid(stored.job.id);
                if is_match {
                    found.items.push(stored);
                }
            }
            if rows.len() < chunk {
                found.next = None;
                return Ok(found);
            }
        }
    }

    pub(crate) async fn planned(&self, page: &PageRequest<JobId>) -> Result<Page<Planned, JobId>, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(PLANNED).await.map_err(failed)?;
        let after = page.after.map_or(Uuid::nil(), job_uuid);
        let (limit, examined) = (page.limit.min(CHUNK), EXAMINED_MAX.min(CHUNK) as i64);
        let rows = client.query(&statement, &[&after, &examined]).await.map_err(failed)?;
        let mut reader = PlannedReader::default();
        let mut found = Page { items: Vec::new(), next: None };
        for row in &rows {
            let (id, fired) = (job_id(row.get(0)), row.get::<_, i64>(2) as u64);
            let record: Option<&str> = row.get(3);
            if record.is_some() && found.items.len() == limit {
                return Ok(found);
            }
            if let Some(record) = record {
                let tenant = TenantId(row.get::<_, i32>(1) as u32);
                found.items.push(reader.read(id, tenant, fired, record.as_bytes())?);
            }
            found.next = Some(id);
        }
        if rows.len() < CHUNK {
            found.next = None;
        }
        Ok(found)
    }

    pub(crate) async fn put_tenant(&self, name: &TenantName, now: Timestamp) -> Result<Tenant, Failed> {
        let client = self.connection().await?;
        // Numbers without gaps are not needed, but they must be small and unique: two at once are tried one by one.
        let insert = "
            insert into tenants select max(id) + 1, $1, $2 from tenants on conflict do nothing";
        let find = "select id, created_at from tenants where name = $1";
        let insert = client.prepare_cached(insert).await.map_err(failed)?;
        let find = client.prepare_cached(find).await.map_err(failed)?;
        for _ in 0..20 {
            if let Some(row) = client.query_opt(&find, &[&name.as_str()]).await.map_err(failed)? {
                let id = TenantId(row.get::<_, i32>(0) as u32);
                return Ok(Tenant { id, name: name.clone(), created_at: timestamp(row.get(1))? });
            }
            client.execute(&insert, &[&name.as_str(), &millis(now)]).await.map_err(failed)?;
        }
        let reason = "others create tenants at the same time; try again".into();
        Err(Error::Unavailable { reason }.into())
    }

    /// A tenant that another database of the installation knows.
    pub(crate) async fn copy_tenant(&self, tenant: &Tenant) -> Result<(), Error> {
        let sql = "insert into tenants values ($1, $2, $3) on conflict do nothing";
        self.read("copy_tenant", || async {
            let client = self.connection().await?;
            let statement = client.prepare_cached(sql).await.map_err(failed)?;
            let values: [&(dyn ToSql + Sync); 3] =
                [&(tenant.id.0 as i32), &tenant.name.as_str(), &millis(tenant.created_at)];
            client.execute(&statement, &values).await.map_err(failed)?;
            Ok::<_, Failed>(())
        })
        .await
    }

    pub(crate) async fn tenants(&self) -> Result<Vec<Tenant>, Failed> {
        let client = self.connection().await?;
        let sql = "select id, name, created_at from tenants order by id";
        let rows = client.query(sql, &[]).await.map_err(failed)?;
        let read = |row: &Row| {
            let name: &str = row.get(1);
            let name = name.parse().map_err(|_| damaged(format!("`{name}` is not a tenant's name")))?;
            Ok(Tenant { id: TenantId(row.get::<_, i32>(0) as u32), name, created_at: timestamp(row.get(2))? })
        };
        rows.iter().map(read).collect()
    }
}
