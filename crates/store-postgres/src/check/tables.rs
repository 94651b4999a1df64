//! Shards, tenants, keys, versions, partitions, the ledger, operations and dead letters: each row by itself and against
//! what it names.

use std::collections::BTreeSet;

use deadpool_postgres::Transaction;
use punctual_domain::tenant::TenantName;
use punctual_store::check::Checked;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::jobs::decode;
use super::walk::Rows;
use crate::error::Failed;
use crate::operations;
use crate::partition::Partition;
use crate::row::{fate, job_id, job_uuid, millis, timestamp};

/// What a statement finds is wrong: the place, and a statement whose rows say what.
const WRONG: [(&str, &str); 16] = [
    ("settings", "select 'a copy into this database is not finished' from settings where name = 'copy'"),
    (
        "job_keys",
        "select 'key `' || k.key || '` leads to job ' || k.job || case
             when j.id is null then ', which is not there'
             when j.state = 3 then ', which is deleted'
             else ', which has another key or tenant' end
         from job_keys k left join jobs j on j.id = k.job
         where j.id is null or j.state = 3 or j.tenant <> k.tenant or (j.record::json ->> 'key') is distinct from k.key",
    ),
    (
        "job_versions",
        "select 'job ' || v.id || ' has no version after ' || v.version
         from job_versions v left join jobs j on j.id = v.id where j.id is null or j.version <= v.version",
    ),
    (
        "open_runs",
        "select 'a run of job ' || o.job || ', which is not there'
         from open_runs o where not exists (select from jobs j where j.id = o.job)",
    ),
    (
        "open_runs",
        "select 'run ' || o.seq || ' has another tenant than job ' || o.job
         from open_runs o join jobs j on j.id = o.job where j.tenant <> o.tenant",
    ),
    (
        "open_runs",
        "select distinct 'runs of job ' || o.job || ' wait for an earlier run, and there is none that would let them go on'
         from open_runs o where o.line = 3 and not exists (
             select from open_runs a where a.job = o.job and a.line < 3 and a.is_followed)",
    ),
    (
        "history",
        "select 'a run of job ' || h.job || ', which is not there'
         from history h where not exists (select from jobs j where j.id = h.job)",
    ),
    (
        "history",
        "select 'run ' || h.seq || ' has another tenant than job ' || h.job
         from history h join jobs j on j.id = h.job where j.tenant <> h.tenant",
    ),
    (
        "history",
        "select 'run ' || seq || ' is also in open_runs' from history h where exists (
             select from open_runs o where o.seq = h.seq)",
    ),
    (
        "history",
        "select 'run ' || seq || ' is there ' || count(*) || ' times' from history group by seq having count(*) > 1",
    ),
    (
        "dead_letters",
        "select 'run ' || d.seq || ' is not there'
         from dead_letters d where not exists (select from history h where h.seq = d.seq)",
    ),
    (
        "dead_letters",
        "select 'run ' || d.seq || ' has not failed and is a dead letter'
         from dead_letters d join history h on h.seq = d.seq where h.state not in (11, 12)",
    ),
    (
        "dead_letters",
        "select 'run ' || d.seq || ' is listed under another job or tenant'
         from dead_letters d join history h on h.seq = d.seq where h.job <> d.job or h.tenant <> d.tenant",
    ),
    (
        "ledger",
        "select 'the entry of job ' || l.job || ' from ' || l.from_slot || ' has no job, or one of another tenant'
         from ledger l left join jobs j on j.id = l.job where j.id is null or j.tenant <> l.tenant",
    ),
    (
        "requests",
        "select 'request `' || key || '` has a fingerprint of ' || octet_length(fingerprint) || ' bytes'
         from requests where octet_length(fingerprint) <> 16",
    ),
    (
        "shards",
        "select count(*) || ' shards are numbered ' || min(shard) || ' to ' || max(shard)
         from shards having (min(shard) <> 0 or max(shard) <> count(*) - 1) and not exists (select from databases)",
    ),
];

pub(super) async fn check(checked: &mut Checked, transaction: &Transaction<'_>) -> Result<(), Failed> {
    let number = async |sql: &str| -> Result<u64, Failed> {
        Ok(transaction.query_one(sql, &[]).await?.get::<_, i64>(0).unsigned_abs())
    };
    checked.shards =
        number("select convert_from(value, 'UTF8')::bigint from settings where name = 'shards'").await?;
    checked.dead_letters = number("select count(*) from dead_letters").await?;
    if checked.shards == 0 {
        checked.find("shards", "there are 0");
    }
    for (place, sql) in WRONG {
        let mut rows = Rows::of(transaction, sql).await?;
        while let Some(row) = rows.next().await? {
            checked.find(place, row.get::<_, String>(0));
        }
    }
    tenants(checked, transaction).await?;
    versions(checked, transaction).await?;
    partitions(checked, transaction).await?;
    ledger(checked, transaction).await?;
    check_operations(checked, transaction).await
}

async fn tenants(checked: &mut Checked, transaction: &Transaction<'_>) -> Result<(), Failed> {
    let mut rows = Rows::of(transaction, "select id, name from tenants").await?;
    while let Some(row) = rows.next().await? {
        checked.tenants += 1;
        let (id, name): (i32, &str) = (row.get(0), row.get(1));
        if name.parse::<TenantName>().is_err() {
            checked.find("tenants", format!("tenant {id} has the name `{name}`"));
        }
    }
    Ok(())
}

async fn versions(checked: &mut Checked, transaction: &Transaction<'_>) -> Result<(), Failed> {
    let mut rows = Rows::of(transaction, "select id, version, tenant, record from job_versions").await?;
    while let Some(row) = rows.next().await? {
        decode(&row, "job_versions", checked);
    }
    Ok(())
}

/// Every partition that is noted has its table, and every table its note.
async fn partitions(checked: &mut Checked, transaction: &Transaction<'_>) -> Result<(), Failed> {
    let mut named = BTreeSet::new();
    for row in transaction.query("select class, from_seq, to_seq from partitions", &[]).await? {
        checked.partitions += 1;
        let (class, from, to): (i16, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let born_at = punctual_domain::Sequence::from_i64(from).born_at();
        let partition = Partition::at(class, millis(born_at));
        if partition.sequences()? != (from, to) {
            checked
                .find("partitions", format!("partition {} is noted from {from} to {to}", partition.name()));
        }
        named.insert(partition.name());
    }
    let sql = "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent in ('history_0'::regclass, 'history_1'::regclass, 'history_2'::regclass, 'history_3'::regclass)
        and c.relkind = 'r'";
    let rows = transaction.query(sql, &[]).await?;
    let tables: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
    for table in tables.difference(&named) {
        checked.find("partitions", format!("the table {table} belongs to no partition"));
    }
    for table in named.difference(&tables) {
        checked.find("partitions", format!("the table {table} is not there"));
    }
    Ok(())
}

async fn ledger(checked: &mut Checked, transaction: &Transaction<'_>) -> Result<(), Failed> {
    let sql = "select job, from_slot, to_slot, slots, fate, decided_at, cap from ledger";
    let mut rows = Rows::of(transaction, sql).await?;
    while let Some(row) = rows.next().await? {
        checked.ledger += 1;
        let (job, from, to): (Uuid, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let place = format!("the entry of job {} from {from}", job_id(job));
        let is_time = [from, to, row.get(5)].into_iter().all(|at| timestamp(at).is_ok());
        if !is_time || from > to || row.get::<_, i64>(3) < 1 {
            checked.find("ledger", format!("{place} is no range of slots"));
        }
        if fate(row.get(4), row.get(6)).is_err() {
            checked.find("ledger", format!("{place} has no fate"));
        }
    }
    Ok(())
}

async fn check_operations(checked: &mut Checked, transaction: &Transaction<'_>) -> Result<(), Failed> {
    let sql = "select o.id, o.tenant, o.version, o.record, o.resume_at, o.finished_at, t.id is null, o.shard
        from operations o left join tenants t on t.id = o.tenant";
    let mut rows = Rows::of(transaction, sql).await?;
    while let Some(row) = rows.next().await? {
        checked.operations += 1;
        let operation = match operations::read(&row) {
            Ok(operation) => operation,
            Err(error) => {
                checked.find("operations", error.to_string());
                continue;
            }
        };
        let id = operation.id;
        if row.get(6) {
            let what = format!("operation {id} has tenant {}, which is not there", operation.tenant.0);
            checked.find("operations", what);
        }
        if u64::from(id.shard().0) >= checked.shards || row.get::<_, i16>(7) != id.shard().0 as i16 {
            let what = format!("operation {id} is in shard {}, which is not there", row.get::<_, i16>(7));
            checked.find("operations", what);
        }
        let resume_at = operation.is_running().then(|| millis(operation.resume_at));
        let finished_at = operation.finished_at.map(millis);
        if (row.get(4), row.get(5)) != (resume_at, finished_at)
            || operation.is_running() == finished_at.is_some()
        {
            checked.find("operations", format!("operation {id} is not where its state says"));
        }
        if let Some(job) = operation.kind.job().filter(|_| operation.is_running()) {
            let find = "select from jobs where id = $1 and tenant = $2";
            let of = [&job_uuid(job) as &(dyn ToSql + Sync), &(operation.tenant.0 as i32)];
            if transaction.query_opt(find, &of).await?.is_none() {
                let what = format!("operation {id} is for job {job}, which is not there");
                checked.find("operations", what);
            }
        }
    }
    Ok(())
}
