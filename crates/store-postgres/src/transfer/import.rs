//! Writing a page of pieces, as the verbs would have left them.

use std::collections::HashMap;

use jiff::Timestamp;
use punctual_store::transfer::Piece;
use tokio_postgres::types::ToSql;

use super::columns::Columns;
use super::{NOTE, overtaken};
use crate::audit::WRITE as AUDIT;
use crate::client::Client;
use crate::documents::WRITE as DOCUMENTS;
use crate::due::{INSERT_DUE, due_params};
use crate::error::Failed;
use crate::open_runs::{WRITE_OPEN, open_params};
use crate::partition::create;

/// The default tenant is there already.
const TENANTS: &str = "
insert into tenants select * from unnest($1::int[], $2::text[], $3::bigint[])
on conflict (id) do update set name = excluded.name, created_at = excluded.created_at";

const JOBS: &str = "
insert into jobs (id, tenant, version, state, fired, completed_at, record)
select * from unnest($1::uuid[], $2::int[], $3::int[], $4::smallint[], $5::bigint[], $6::bigint[], $7::text[])
on conflict do nothing";

const KEYS: &str = "
insert into job_keys select * from unnest($1::int[], $2::text[], $3::uuid[]) on conflict do nothing";

const VERSIONS: &str = "
insert into job_versions (id, version, tenant, record)
select * from unnest($1::uuid[], $2::int[], $3::int[], $4::text[]) on conflict do nothing";

const HISTORY: &str = "
insert into history (class, state, tenant, seq, job, keep_until, record, papers)
select * from unnest($1::smallint[], $2::smallint[], $3::int[], $4::bigint[], $5::uuid[], $6::bigint[], $7::bytea[], $8::bytea[])
on conflict do nothing";

const LETTERS: &str = "
insert into dead_letters select * from unnest($1::bigint[], $2::int[], $3::uuid[]) on conflict do nothing";

const LEDGER: &str = "
insert into ledger (job, from_slot, to_slot, slots, fate, tenant, decided_at, cap)
select * from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::smallint[], $6::int[], $7::bigint[],
    $8::smallint[])
on conflict do nothing";

const OPERATIONS: &str = "
insert into operations (id, shard, tenant, version, record, resume_at, finished_at)
select * from unnest($1::uuid[], $2::smallint[], $3::int[], $4::int[], $5::text[], $6::bigint[], $7::bigint[])
on conflict do nothing";

const REQUESTS: &str = "
insert into requests (tenant, key, fingerprint, expires_at, result)
select * from unnest($1::int[], $2::text[], $3::bytea[], $4::bigint[], $5::text[]) on conflict do nothing";

const ENDED_JOBS: &str = "
insert into ended_jobs select * from unnest($1::bigint[], $2::uuid[], $3::int[]) on conflict do nothing";

const RULES: &str = "
insert into rules select * from unnest($1::text[], $2::text[]) on conflict (name) do update set record = excluded.record";

/// Writes a page and its note in one transaction, if the note is still the one that is known.
pub(super) async fn page(
    client: &mut Client<'static>,
    pieces: Vec<Piece>,
    known: Option<&[u8]>,
    note: &[u8],
    begun_at: Timestamp,
) -> Result<(), Failed> {
    let mut columns = Columns::default();
    for piece in pieces {
        columns.push(piece, begun_at)?;
    }
    // Made twice, a partition is the same.
    for partition in &columns.partitions {
        create(client, partition).await?;
    }
    let transaction = client.transaction().await?;
    let update = "update settings set value = $3 where name = $1 and value = $2";
    if transaction.execute(update, &[&NOTE, &known, &note]).await? != 1 {
        return Err(overtaken());
    }
    write(&transaction, &columns).await?;
    Ok(transaction.commit().await?)
}

async fn write(transaction: &Client<'_>, columns: &Columns) -> Result<(), Failed> {
    let Columns { tenants, jobs, keys, versions, due, open, ended, letters, ledger, operations, .. } =
        columns;
    let Columns { requests, ended_jobs, rules, documents, .. } = columns;
    insert(transaction, TENANTS, tenants.0.len(), &[&tenants.0, &tenants.1, &tenants.2]).await?;
    let values: [&(dyn ToSql + Sync); 7] =
        [&jobs.id, &jobs.tenant, &jobs.version, &jobs.state, &jobs.fired, &jobs.completed_at, &jobs.record];
    insert(transaction, JOBS, jobs.id.len(), &values).await?;
    insert(transaction, KEYS, keys.0.len(), &[&keys.0, &keys.1, &keys.2]).await?;
    let values: [&(dyn ToSql + Sync); 4] = [&versions.0, &versions.1, &versions.2, &versions.3];
    insert(transaction, VERSIONS, versions.0.len(), &values).await?;
    insert(transaction, INSERT_DUE, due.at.len(), &due_params!(due)).await?;
    insert(transaction, WRITE_OPEN, open.seq.len(), &open_params!(open)).await?;
    columns.said.write(transaction).await?;
    let papers = ended.papers(HashMap::new());
    let mut values: Vec<&(dyn ToSql + Sync)> = ended.values().into();
    values.push(&papers);
    insert(transaction, HISTORY, ended.seq.len(), &values).await?;
    insert(transaction, LETTERS, letters.0.len(), &[&letters.0, &letters.1, &letters.2]).await?;
    let values: [&(dyn ToSql + Sync); 8] = [
        &ledger.job,
        &ledger.from,
        &ledger.to,
        &ledger.slots,
        &ledger.fate,
        &ledger.tenant,
        &ledger.decided_at,
        &ledger.cap,
    ];
    insert(transaction, LEDGER, ledger.job.len(), &values).await?;
    let values: [&(dyn ToSql + Sync); 7] = [
        &operations.id,
        &operations.shard,
        &operations.tenant,
        &operations.version,
        &operations.record,
        &operations.resume_at,
        &operations.finished_at,
    ];
    insert(transaction, OPERATIONS, operations.id.len(), &values).await?;
    let values: [&(dyn ToSql + Sync); 5] =
        [&requests.tenant, &requests.key, &requests.fingerprint, &requests.expires_at, &requests.result];
    insert(transaction, REQUESTS, requests.tenant.len(), &values).await?;
    let values: [&(dyn ToSql + Sync); 3] = [&ended_jobs.0, &ended_jobs.1, &ended_jobs.2];
    insert(transaction, ENDED_JOBS, ended_jobs.0.len(), &values).await?;
    insert(transaction, RULES, rules.0.len(), &[&rules.0, &rules.1]).await?;
    let values: [&(dyn ToSql + Sync); 6] = [
        &documents.kind,
        &documents.tenant,
        &documents.name,
        &documents.version,
        &documents.body,
        &documents.updated_at,
    ];
    insert(transaction, DOCUMENTS, documents.kind.len(), &values).await?;
    insert(transaction, AUDIT, columns.audit.at.len(), &columns.audit.values()).await
}

async fn insert(
    transaction: &Client<'_>,
    sql: &str,
    rows: usize,
    values: &[&(dyn ToSql + Sync)],
) -> Result<(), Failed> {
    if rows == 0 {
        return Ok(());
    }
    let statement = transaction.prepare_cached(sql).await?;
    transaction.execute(&statement, values).await?;
    Ok(())
}
