//! The audit: who changed what, and the versions of a job.

use punctual_api::audit::{AuditEntry, JobVersion};

use crate::client::Client;
use crate::list::List;
use crate::server::escaped;

/// Which entries; what is not given does not narrow.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Of this tenant; `*` is all of them.
    pub tenant: Option<String>,
    /// Made at or after.
    pub from: Option<String>,
    /// Made before.
    pub to: Option<String>,
    /// By the key of this id or name.
    pub who: Option<String>,
    /// What was done.
    pub action: Option<String>,
    /// What was changed.
    pub kind: Option<String>,
    /// Which.
    pub subject: Option<String>,
}

impl Client {
    /// Entries of the audit, newest first.
    pub fn audit(&self, filter: &AuditFilter) -> List<AuditEntry> {
        let parameters = [
            ("tenant", filter.tenant.as_deref()),
            ("from", filter.from.as_deref()),
            ("to", filter.to.as_deref()),
            ("who", filter.who.as_deref()),
            ("action", filter.action.as_deref()),
            ("kind", filter.kind.as_deref()),
            ("subject", filter.subject.as_deref()),
        ];
        List::new(self, "/v1/audit", &parameters)
    }

    /// The versions of a job by its id, newest first.
    pub fn job_versions(&self, id: &str) -> List<JobVersion> {
        List::new(self, format!("/v1/jobs/{}/versions", escaped(id)), &[])
    }
}
