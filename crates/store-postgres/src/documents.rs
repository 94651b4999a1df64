//! Documents: small, few and changed seldom; those that change together are read, decided and written together.

use std::collections::BTreeMap;

use jiff::Timestamp;
use punctual_domain::{Document, TenantId, document};
use punctual_store::{DocumentChange, Error, Refused};
use tokio_postgres::Row;

use crate::audit::append;
use crate::client::Client;
use crate::error::{Failed, damaged, failed};
use crate::postgres::{Postgres, transact};
use crate::row::{millis, timestamp};

/// Who changes documents waits for others who do; who reads them does not.
const HOLD: &str = "lock table documents in exclusive mode";

const FIND: &str = "
select kind, tenant, name, version, body, updated_at from documents where kind = $1 and tenant = $2 and name = $3";

const VERSIONS: &str = "
select documents.kind, documents.tenant, documents.name, documents.version
from unnest($1::text[], $2::int[], $3::text[]) as wanted (kind, tenant, name)
join documents using (kind, tenant, name)";

const LIST: &str = "
select kind, tenant, name, version, body, updated_at from documents
where kind = $1 and (tenant, name) > ($2, $3) and tenant <= $4 order by tenant, name limit $5";

pub(crate) const WRITE: &str = "
insert into documents (kind, tenant, name, version, body, updated_at)
select * from unnest($1::text[], $2::int[], $3::text[], $4::bigint[], $5::text[], $6::bigint[])
on conflict (kind, tenant, name) do update
set version = excluded.version, body = excluded.body, updated_at = excluded.updated_at";

const DELETE: &str = "
delete from documents using unnest($1::text[], $2::int[], $3::text[]) as gone (kind, tenant, name)
where documents.kind = gone.kind and documents.tenant = gone.tenant and documents.name = gone.name";

/// Documents by column.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    pub(crate) kind: Vec<&'static str>,
    pub(crate) tenant: Vec<i32>,
    pub(crate) name: Vec<String>,
    pub(crate) version: Vec<i64>,
    pub(crate) body: Vec<String>,
    pub(crate) updated_at: Vec<i64>,
}

impl Columns {
    pub(crate) fn push(&mut self, document: &Document) {
        self.kind.push(document.kind.as_str());
        self.tenant.push(document.tenant.0 as i32);
        self.name.push(document.name.clone());
        self.version.push(document.version as i64);
        self.body.push(document.body.to_string());
        self.updated_at.push(millis(document.updated_at));
    }
}

/// Reads a document from a row of all its columns.
pub(crate) fn read(row: &Row) -> Result<Document, Error> {
    let (kind, name): (&str, String) = (row.get(0), row.get(2));
    let kind = document::Kind::of(kind)
        .ok_or_else(|| damaged(format!("the document `{name}` is of the unknown kind `{kind}`")))?;
    Ok(Document {
        kind,
        tenant: TenantId(row.get::<_, i32>(1) as u32),
        name,
        version: row.get::<_, i64>(3) as u64,
        body: row.get::<_, String>(4).into(),
        updated_at: timestamp(row.get(5))?,
    })
}

/// Where a document is.
type Place = (document::Kind, TenantId, String);

/// A document that is not there any more, or as it is.
pub(crate) type Left = (document::Kind, TenantId, String, Option<Document>);

impl Postgres {
    pub(crate) async fn put_documents(
        &self,
        changes: &[DocumentChange],
        now: Timestamp,
    ) -> Result<Vec<Result<Option<Document>, Refused>>, Failed> {
        transact!(self, |client| {
            let transaction = client.transaction().await?;
            transaction.batch_execute(HOLD).await?;
            let mut versions = versions(&transaction, changes).await?;
            let mut answers = Vec::with_capacity(changes.len());
            let mut left: BTreeMap<Place, Option<Document>> = BTreeMap::new();
            for change in changes {
                let place = (change.kind, change.tenant, change.name.clone());
                let answer = change.clone().apply(versions.get(&place).copied(), now);
                if let Ok(document) = &answer {
                    match document {
                        Some(document) => drop(versions.insert(place.clone(), document.version)),
                        None => drop(versions.remove(&place)),
                    }
                    left.insert(place, document.clone());
                }
                answers.push(answer);
            }
            leave(&transaction, &left).await?;
            let done = changes.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
            let entries: Vec<_> = done.filter_map(|(change, _)| change.audit.as_deref()).collect();
            append(&transaction, &entries).await?;
            transaction.commit().await.map_err(Failed::at_commit)?;
            Ok(answers)
        })
    }

    /// Takes over what another database decided.
    pub(crate) async fn leave_documents(&self, all: &[Left]) -> Result<(), Failed> {
        transact!(self, |client| {
            let transaction = client.transaction().await?;
            transaction.batch_execute(HOLD).await?;
            // Of one that was changed several times the last counts.
            let places = all
                .iter()
                .map(|(kind, tenant, name, document)| ((*kind, *tenant, name.clone()), document.clone()));
            leave(&transaction, &places.collect()).await?;
            transaction.commit().await.map_err(Failed::at_commit)?;
            Ok(())
        })
    }

    pub(crate) async fn document(
        &self,
        kind: document::Kind,
        tenant: TenantId,
        name: &str,
    ) -> Result<Option<Document>, Failed> {
        let client = self.connection().await?;
        find(&client, kind, tenant, name).await
    }

    pub(crate) async fn documents(
        &self,
        kind: document::Kind,
        tenant: Option<TenantId>,
        after: Option<&(TenantId, String)>,
        limit: usize,
    ) -> Result<Vec<Document>, Failed> {
        let client = self.connection().await?;
        // No name is before the empty one, which no document has.
        let first = (tenant.map_or(0, |tenant| tenant.0 as i32), "");
        let (from, name) = after.map_or(first, |(tenant, name)| first.max((tenant.0 as i32, name.as_str())));
        let last = tenant.map_or(i32::MAX, |tenant| tenant.0 as i32);
        let list = client.prepare_cached(LIST).await.map_err(failed)?;
        let rows = client.query(&list, &[&kind.as_str(), &from, &name, &last, &(limit as i64)]).await;
        let rows = rows.map_err(failed)?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }
}

async fn find(
    client: &Client<'_>,
    kind: document::Kind,
    tenant: TenantId,
    name: &str,
) -> Result<Option<Document>, Failed> {
    let find = client.prepare_cached(FIND).await?;
    let rows = client.query(&find, &[&kind.as_str(), &(tenant.0 as i32), &name]).await?;
    Ok(rows.first().map(read).transpose()?)
}

/// The versions of those documents that are there.
async fn versions(
    transaction: &Client<'_>,
    changes: &[DocumentChange],
) -> Result<BTreeMap<Place, u64>, Failed> {
    let kinds: Vec<&str> = changes.iter().map(|change| change.kind.as_str()).collect();
    let tenants: Vec<i32> = changes.iter().map(|change| change.tenant.0 as i32).collect();
    let names: Vec<&str> = changes.iter().map(|change| change.name.as_str()).collect();
    let versions = transaction.prepare_cached(VERSIONS).await?;
    let rows = transaction.query(&versions, &[&kinds, &tenants, &names]).await?;
    let version = |row: &Row| {
        let word: &str = row.get(0);
        let kind = document::Kind::of(word)
            .ok_or_else(|| damaged(format!("a document is of the unknown kind `{word}`")))?;
        Ok(((kind, TenantId(row.get::<_, i32>(1) as u32), row.get(2)), row.get::<_, i64>(3) as u64))
    };
    Ok(rows.iter().map(version).collect::<Result<_, Error>>()?)
}

/// Leaves documents as they are, or takes them away, in two statements.
async fn leave(transaction: &Client<'_>, left: &BTreeMap<Place, Option<Document>>) -> Result<(), Failed> {
    let mut columns = Columns::default();
    left.values().flatten().for_each(|document| columns.push(document));
    if !columns.name.is_empty() {
        let Columns { kind, tenant, name, version, body, updated_at } = &columns;
        let write = transaction.prepare_cached(WRITE).await?;
        transaction.execute(&write, &[kind, tenant, name, version, body, updated_at]).await?;
    }
    let gone: Vec<&Place> =
        left.iter().filter(|(_, document)| document.is_none()).map(|(place, _)| place).collect();
    if !gone.is_empty() {
        let kinds: Vec<&str> = gone.iter().map(|(kind, ..)| kind.as_str()).collect();
        let tenants: Vec<i32> = gone.iter().map(|(_, tenant, _)| tenant.0 as i32).collect();
        let names: Vec<&str> = gone.iter().map(|(.., name)| name.as_str()).collect();
        let delete = transaction.prepare_cached(DELETE).await?;
        transaction.execute(&delete, &[&kinds, &tenants, &names]).await?;
    }
    Ok(())
}
