//! The audit: entries that changes carry, in their transactions, and those that are written ahead.

use jiff::Timestamp;
use punctual_domain::TenantId;
use punctual_domain::audit::{Entry, EntryId, Filter, KEPT, Who};
use punctual_store::{EXAMINED_MAX, Error, Page, PageRequest};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::client::Client;
use crate::error::{Failed, failed};
use crate::postgres::{Postgres, transact};
use crate::row::{millis, timestamp};

/// What [`read`] reads.
pub(crate) const COLUMNS: &str =
    "at, number, tenant, kind, subject, action, who_key, who_name, peer, request_id, before, after";

/// Appends entries. Locks nothing that others want; one that is there already is the same.
pub(crate) const WRITE: &str = "
insert into audit (at, number, tenant, kind, subject, action, who_key, who_name, peer, request_id, before, after)
select * from unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
    $9::text[], $10::text[], $11::text[], $12::text[])
on conflict do nothing";

/// The oldest go first: found by the primary key, and then where they are, whatever the planner believes.
pub(crate) const FORGET: &str = "
delete from audit where ctid = any(array(select ctid from audit where at < $1 order by at, number limit $2))";

/// Entries by column.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    pub(crate) at: Vec<i64>,
    number: Vec<i64>,
    tenant: Vec<i32>,
    kind: Vec<Box<str>>,
    subject: Vec<Box<str>>,
    action: Vec<Box<str>>,
    who_key: Vec<Option<Box<str>>>,
    who_name: Vec<Box<str>>,
    peer: Vec<Option<Box<str>>>,
    request_id: Vec<Option<Box<str>>>,
    before: Vec<Option<Box<str>>>,
    after: Vec<Option<Box<str>>>,
}

impl Columns {
    pub(crate) fn push(&mut self, entry: Entry) {
        self.at.push(entry.id.at);
        self.number.push(entry.id.number);
        self.tenant.push(entry.tenant.0 as i32);
        self.kind.push(entry.kind);
        self.subject.push(entry.subject);
        self.action.push(entry.action);
        self.who_key.push(entry.who.key);
        self.who_name.push(entry.who.name);
        self.peer.push(entry.from);
        self.request_id.push(entry.request_id);
        self.before.push(entry.before);
        self.after.push(entry.after);
    }

    /// What [`WRITE`] takes.
    pub(crate) fn values(&self) -> [&(dyn ToSql + Sync); 12] {
        [
            &self.at,
            &self.number,
            &self.tenant,
            &self.kind,
            &self.subject,
            &self.action,
            &self.who_key,
            &self.who_name,
            &self.peer,
            &self.request_id,
            &self.before,
            &self.after,
        ]
    }
}

/// Appends the entries that changes carry, in their transaction; nothing, if none does.
pub(crate) async fn append(transaction: &Client<'_>, entries: &[&Entry]) -> Result<(), Failed> {
    let mut columns = Columns::default();
    entries.iter().for_each(|entry| columns.push(Entry::clone(entry)));
    if columns.at.is_empty() {
        return Ok(());
    }
    let write = transaction.prepare_cached(WRITE).await?;
    transaction.execute(&write, &columns.values()).await?;
    Ok(())
}

/// Reads an entry from a row of [`COLUMNS`].
pub(crate) fn read(row: &Row) -> Result<Entry, Error> {
    let maybe = |column: usize| row.get::<_, Option<String>>(column).map(String::into_boxed_str);
    let must = |column: usize| row.get::<_, String>(column).into_boxed_str();
    let id = EntryId { at: row.get(0), number: row.get(1) };
    timestamp(id.at)?; // One that is no time cannot be shown.
    Ok(Entry {
        id,
        tenant: TenantId(row.get::<_, i32>(2) as u32),
        kind: must(3),
        subject: must(4),
        action: must(5),
        who: Who { key: maybe(6), name: must(7) },
        from: maybe(8),
        request_id: maybe(9),
        before: maybe(10),
        after: maybe(11),
    })
}

/// Rows that are read at a time: some have two sides of 64 KiB.
const CHUNK: usize = 500;

impl Postgres {
    pub(crate) async fn append_audit(&self, entries: &[Entry]) -> Result<(), Failed> {
        let entries: Vec<&Entry> = entries.iter().collect();
        transact!(self, |client| append(&client, &entries).await)
    }

    /// What one thing was is found by its index; everything else by time, so many rows for a page.
    pub(crate) async fn audit(
        &self,
        filter: &Filter,
        page: &PageRequest<EntryId>,
    ) -> Result<Page<Entry, EntryId>, Failed> {
        let client = self.connection().await?;
        let (first, mut below) = (filter.first(), filter.below(page.after));
        let of_one = match (&filter.kind, &filter.subject) {
            (Some(_), Some(_)) => "kind = $5 and subject = $6",
            _ => "$5::text is null and $6::text is null",
        };
        let (kind, subject) = filter.kind.as_deref().zip(filter.subject.as_deref()).unzip();
        let sql = format!(
            "select {COLUMNS} from audit where {of_one} and (at, number) < ($1, $2) and (at, number) >= ($3, $4)
            order by at desc, number desc limit $7"
        );
        let statement = client.prepare_cached(&sql).await.map_err(failed)?;
        let mut found = Page { items: Vec::new(), next: None };
        let mut examined = 0;
        loop {
            let values: [&(dyn ToSql + Sync); 7] =
                [&below.at, &below.number, &first.at, &first.number, &kind, &subject, &(CHUNK as i64)];
            let rows = client.query(&statement, &values).await.map_err(failed)?;
            for row in &rows {
                let entry = read(row)?;
                let is_wanted = filter.takes(&entry);
                // There is more: it starts after the last row that was looked at.
                if examined == EXAMINED_MAX || (is_wanted && found.items.len() == page.limit) {
                    return Ok(found);
                }
                examined += 1;
                below = entry.id;
                found.next = Some(entry.id);
                if is_wanted {
                    found.items.push(entry);
                }
            }
            if rows.len() < CHUNK {
                found.next = None;
                return Ok(found);
            }
        }
    }

    /// Forgets the oldest that are old enough. Returns how many.
    pub(crate) async fn forget_audit(&self, now: Timestamp, limit: i64) -> Result<u64, Failed> {
        let client = self.connection().await?;
        Ok(client.execute(FORGET, &[&millis(now - KEPT), &limit]).await.map_err(failed)?)
    }
}
