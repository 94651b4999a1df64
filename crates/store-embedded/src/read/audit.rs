//! The audit, newest first.

use punctual_domain::TenantId;
use punctual_domain::audit::{Entry, EntryId, Filter, Who};
use punctual_store::{EXAMINED_MAX, Error, Page, PageRequest};
use rusqlite::{Connection, Row, ToSql, params};

use crate::error::failed;
use crate::row::timestamp;

/// What [`read_audit`] reads.
pub(crate) const COLUMNS: &str =
    "at, number, tenant, kind, subject, action, who_key, who_name, peer, request_id, before, after";

pub(crate) fn read_audit(row: &Row<'_>) -> Result<Entry, Error> {
    let text = |column: usize| row.get::<_, Option<String>>(column).map_err(failed);
    let maybe = |column: usize| text(column).map(|text| text.map(String::into_boxed_str));
    let must = |column: usize| text(column).map(|text| text.unwrap_or_default().into_boxed_str());
    let id = EntryId { at: row.get(0).map_err(failed)?, number: row.get(1).map_err(failed)? };
    timestamp(id.at)?; // One that is no time cannot be shown.
    Ok(Entry {
        id,
        tenant: TenantId(row.get(2).map_err(failed)?),
        kind: must(3)?,
        subject: must(4)?,
        action: must(5)?,
        who: Who { key: maybe(6)?, name: must(7)? },
        from: maybe(8)?,
        request_id: maybe(9)?,
        before: maybe(10)?,
        after: maybe(11)?,
    })
}

/// What one thing was is found by its index; everything else by time, so many rows for a page.
pub(crate) fn audit(
    connection: &Connection,
    filter: &Filter,
    page: &PageRequest<EntryId>,
) -> Result<Page<Entry, EntryId>, Error> {
    let (below, first) = (filter.below(page.after), filter.first());
    let (kind, subject) = (filter.kind.as_deref(), filter.subject.as_deref());
    let mut values: Vec<&dyn ToSql> = params![below.at, below.number, first.at, first.number].to_vec();
    let mut of_one = "";
    if let (Some(kind), Some(subject)) = (&kind, &subject) {
        of_one = "kind = ?5 and subject = ?6 and";
        values.extend([kind as &dyn ToSql, subject]);
    }
    let sql = format!(
        "select {COLUMNS} from audit where {of_one} (at, number) < (?1, ?2) and (at, number) >= (?3, ?4) \
         order by at desc, number desc limit {}",
        EXAMINED_MAX + 1
    );
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let mut rows = statement.query(&*values).map_err(failed)?;
    let mut found = Page { items: Vec::new(), next: None };
    let mut examined = 0;
    while let Some(row) = rows.next().map_err(failed)? {
        let entry = read_audit(row)?;
        let is_wanted = filter.takes(&entry);
        // There is more: it starts after the last row that was looked at.
        if examined == EXAMINED_MAX || (is_wanted && found.items.len() == page.limit) {
            return Ok(found);
        }
        examined += 1;
        found.next = Some(entry.id);
        if is_wanted {
            found.items.push(entry);
        }
    }
    found.next = None;
    Ok(found)
}
