//! Documents.

use punctual_domain::{Document, TenantId, document};
use punctual_store::Error;
use rusqlite::{Connection, Row, params};

use crate::error::failed;
use crate::row::{damaged, timestamp};

/// What [`read_document`] reads.
pub(crate) const COLUMNS: &str = "kind, tenant, name, version, body, updated_at";

pub(crate) fn read_document(row: &Row<'_>) -> Result<Document, Error> {
    let (kind, name): (String, String) = (row.get(0).map_err(failed)?, row.get(2).map_err(failed)?);
    let kind = document::Kind::of(&kind)
        .ok_or_else(|| damaged(format!("the document `{name}` is of the unknown kind `{kind}`")))?;
    Ok(Document {
        kind,
        tenant: TenantId(row.get(1).map_err(failed)?),
        version: row.get::<_, i64>(3).map_err(failed)? as u64,
        body: row.get::<_, String>(4).map_err(failed)?.into(),
        updated_at: timestamp(row.get(5).map_err(failed)?)?,
        name,
    })
}

pub(crate) fn document(
    connection: &Connection,
    kind: document::Kind,
    tenant: TenantId,
    name: &str,
) -> Result<Option<Document>, Error> {
    let sql = format!("select {COLUMNS} from documents where kind = ?1 and tenant = ?2 and name = ?3");
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let mut rows = statement.query(params![kind.as_str(), tenant.0, name]).map_err(failed)?;
    rows.next().map_err(failed)?.map(read_document).transpose()
}

/// Of one tenant or of all, after a place.
pub(crate) fn documents(
    connection: &Connection,
    kind: document::Kind,
    tenant: Option<TenantId>,
    after: Option<(TenantId, String)>,
    limit: usize,
) -> Result<Vec<Document>, Error> {
    let sql = format!(
        "select {COLUMNS} from documents where kind = ?1 and (tenant, name) > (?2, ?3) and tenant <= ?4 \
         order by tenant, name limit ?5"
    );
    // No name is before the empty one, which no document has.
    let first = (tenant.map_or(0, |tenant| tenant.0), String::new());
    let (from, name) = after.map_or(first.clone(), |(tenant, name)| first.max((tenant.0, name)));
    let last = tenant.map_or(u32::MAX, |tenant| tenant.0);
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let values = params![kind.as_str(), from, name, last, limit as i64];
    let mut rows = statement.query(values).map_err(failed)?;
    let mut documents = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        documents.push(read_document(row)?);
    }
    Ok(documents)
}
