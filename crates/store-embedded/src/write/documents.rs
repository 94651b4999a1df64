//! Documents.

use jiff::Timestamp;
use punctual_domain::Document;
use punctual_store::{DocumentChange, Error};
use rusqlite::params;

use super::{Answer, refuse};
use crate::read;
use crate::row::millis;
use crate::writer::Batch;

/// As [`read::DOCUMENT`] lists its columns.
pub(crate) const WRITE_DOCUMENT: &str = "insert or replace into documents values (?1, ?2, ?3, ?4, ?5, ?6)";

impl Batch<'_> {
    pub(crate) fn put_document(
        &mut self,
        mut change: DocumentChange,
        now: Timestamp,
    ) -> Answer<Option<Document>> {
        self.check()?;
        let audit = change.audit.take();
        let found = read::document(self.connection, change.kind, change.tenant, &change.name)?;
        let (kind, tenant, name) = (change.kind, change.tenant, change.name.clone());
        let document = match change.apply(found.map(|document| document.version), now) {
            Ok(document) => document,
            Err(refused) => refuse!(refused),
        };
        self.append_audit(audit.as_deref())?;
        match &document {
            Some(document) => self.write_document(document)?,
            None => self.line(
                "delete from documents where kind = ?1 and tenant = ?2 and name = ?3",
                params![kind.as_str(), tenant.0, name],
            )?,
        }
        Ok(Ok(document))
    }

    fn write_document(&mut self, document: &Document) -> Result<(), Error> {
        self.line(
            WRITE_DOCUMENT,
            params![
                document.kind.as_str(),
                document.tenant.0,
                document.name,
                document.version as i64,
                document.body,
                millis(document.updated_at)
            ],
        )
    }
}
