//! Documents.

use jiff::Timestamp;
use punctual_domain::{Document, TenantId, document};

use super::state::State;
use crate::error::Refused;
use crate::verbs::DocumentChange;

impl State {
    pub(super) fn put_document(
        &mut self,
        mut change: DocumentChange,
        now: Timestamp,
    ) -> Result<Option<Document>, Refused> {
        let audit = change.audit.take();
        let key = (change.kind, change.tenant, change.name.clone());
        let document = change.apply(self.documents.get(&key).map(|document| document.version), now)?;
        match &document {
            Some(document) => self.documents.insert(key, document.clone()),
            None => self.documents.remove(&key),
        };
        self.append(audit);
        Ok(document)
    }

    pub(super) fn list_documents(
        &self,
        kind: document::Kind,
        tenant: Option<TenantId>,
        after: Option<(TenantId, String)>,
        limit: usize,
    ) -> Vec<Document> {
        let is_after = |document: &&Document| match &after {
            Some((tenant, name)) => (document.tenant, &document.name) > (*tenant, name),
            None => true,
        };
        let all = self.documents.values().filter(|document| document.kind == kind);
        let own = all.filter(|document| tenant.is_none_or(|tenant| document.tenant == tenant));
        own.filter(is_after).take(limit).cloned().collect()
    }
}
