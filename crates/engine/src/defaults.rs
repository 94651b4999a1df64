//! What holds for jobs of a tenant that do not say.
//!
//! Read when a job is registered or replaced, changed when an administrator asks. Promise: what a job got of it is its own from then
//! on; a later change changes no job. A node follows a change that was made at another within [`REMEMBERED`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use punctual_domain::document::Kind;
use punctual_domain::{Document, TenantId};
use punctual_store::{DocumentChange, Expected, Refused};

use crate::engine::Engine;
use crate::error::Error;

/// The name of the document.
const NAME: &str = "job";

/// How long a node believes what it has read: without it, every job that is registered would cost a question more.
const REMEMBERED: SignedDuration = SignedDuration::from_secs(1);

/// Tenants whose defaults are remembered; above that all are forgotten.
const TENANTS_MAX: usize = 10_000;

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Defaults(Mutex<HashMap<TenantId, Known>>);

/// When it was read, and what it said.
type Known = (Timestamp, Option<Arc<str>>);

impl Defaults {
    /// What is believed now; nothing if it must be read.
    fn get(&self, tenant: TenantId, now: Timestamp) -> Option<Option<Arc<str>>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (read_at, body) = known.get(&tenant)?;
        let age = now.duration_since(*read_at);
        (!age.is_negative() && age < REMEMBERED).then(|| body.clone())
    }

    fn note(&self, tenant: TenantId, now: Timestamp, body: Option<Arc<str>>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= TENANTS_MAX {
            known.clear();
        }
        known.insert(tenant, (now, body));
    }

    fn forget(&self, tenant: TenantId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&tenant);
    }
}

impl Engine {
    /// What holds for jobs of a tenant that do not say, as it was a moment ago: a part of a job's body.
    pub async fn job_defaults(&self, tenant: TenantId) -> Result<Option<Arc<str>>, Error> {
        let now = self.clock.now();
        if let Some(known) = self.defaults.get(tenant, now) {
            return Ok(known);
        }
        let body = self.defaults(tenant).await?.map(|document| Arc::from(document.body));
        self.defaults.note(tenant, now, body.clone());
        Ok(body)
    }

    /// The defaults of a tenant as they are.
    pub async fn defaults(&self, tenant: TenantId) -> Result<Option<Document>, Error> {
        Ok(self.store.document(Kind::Defaults, tenant, NAME).await?)
    }

    /// Sets the defaults of a tenant, or takes them away; only if they are at this version, if one is given.
    pub async fn put_defaults(
        &self,
        tenant: TenantId,
        body: Option<Box<str>>,
        expected: Option<u64>,
    ) -> Result<Option<Document>, Error> {
        let expect = expected.map_or(Expected::Any, Expected::Version);
        let now = self.clock.now();
        let audit = match self.act {
            Some(_) => {
                let old = self.defaults(tenant).await?;
                self.audited_defaults(tenant, old.as_ref(), body.as_deref(), now)
            }
            None => None,
        };
        let change = DocumentChange { kind: Kind::Defaults, tenant, name: NAME.into(), expect, body, audit };
        let answer = self.heard(self.store.put_documents(vec![change], now)).await;
        // Also if it failed: it may have been written all the same.
        self.defaults.forget(tenant);
        match answer?.into_iter().next() {
            Some(Ok(document)) => Ok(document),
            Some(Err(Refused::DocumentChanged)) => Err(Error::DefaultsChanged),
            Some(Err(refused)) => Err(punctual_store::Error::Damaged { what: refused.to_string() }.into()),
            None => Ok(None),
        }
    }
}
