//! How documents are changed: a compare-and-set on each one's version, the same in every store.

use jiff::Timestamp;
use punctual_domain::id::TenantId;
use punctual_domain::{Document, audit, document};

use crate::error::Refused;

/// Writes a document, or takes it away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentChange {
    /// What it is.
    pub kind: document::Kind,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name.
    pub name: String,
    /// What must be there now.
    pub expect: Expected,
    /// What it shall say; nothing takes it away.
    pub body: Option<Box<str>>,
    /// Who asked for it, for the audit: appended in the same commit.
    pub audit: Option<Box<audit::Entry>>,
}

/// What must be there for a document to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Whatever there is.
    Any,
    /// Nothing.
    Absent,
    /// The document at this version.
    Version(u64),
}

impl Expected {
    /// Whether a document that is at this version, or not there, is what is expected.
    pub fn holds(self, version: Option<u64>) -> bool {
        match self {
            Expected::Any => true,
            Expected::Absent => version.is_none(),
            Expected::Version(expected) => version == Some(expected),
        }
    }
}

impl DocumentChange {
    /// The document as this change leaves it, given the version that is there now.
    pub fn apply(self, version: Option<u64>, now: Timestamp) -> Result<Option<Document>, Refused> {
        if !self.expect.holds(version) {
            return Err(Refused::DocumentChanged);
        }
        let DocumentChange { kind, tenant, name, body, .. } = self;
        let version = version.unwrap_or_default() + 1;
        Ok(body.map(|body| Document { kind, tenant, name, version, body, updated_at: now }))
    }
}
