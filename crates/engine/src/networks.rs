//! Which hosts the targets of a tenant may name, for tenants that are held to some.
//!
//! Asked before every call to a target, changed when an administrator of the installation asks. Promise: a node follows a change within
//! [`REMEMBERED`]; a list can only narrow what the installation allows; while the store is out of reach the lists that were read hold.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::{SignedDuration, Timestamp};
use punctual_domain::document::Kind;
use punctual_domain::{Document, TenantId};
use punctual_store::{DocumentChange, Expected};

use crate::engine::Engine;
use crate::error::Error;

/// The name of the document.
const NAME: &str = "network";

/// How long a node believes what it has read: one read, mostly of nothing, for all calls of that time.
pub const REMEMBERED: SignedDuration = SignedDuration::from_secs(2);

/// Documents that are read at a time.
const PAGE: usize = 1_000;

/// What was read, and when.
type Known = (Timestamp, Arc<HashMap<TenantId, Hosts>>);

/// The only hosts that may be called, as they were written.
pub type Hosts = Arc<[String]>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    known: RwLock<Option<Known>>,
    /// Held by whoever reads: others go by what is known meanwhile.
    reading: tokio::sync::Mutex<()>,
}

impl Networks {
    fn known(&self) -> Option<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What need not be read again yet.
    fn fresh(&self, now: Timestamp) -> Option<Arc<HashMap<TenantId, Hosts>>> {
        let (read_at, hosts) = self.known()?;
        let age = now.duration_since(read_at);
        (!age.is_negative() && age < REMEMBERED).then_some(hosts)
    }

    fn set(&self, known: Option<Known>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

impl Engine {
    /// The only hosts that targets of a tenant may name; nothing if it is held to none.
    pub async fn only_hosts(&self, tenant: TenantId) -> Result<Option<Hosts>, Error> {
        let now = self.clock.now();
        if let Some(hosts) = self.networks.fresh(now) {
            return Ok(hosts.get(&tenant).cloned());
        }
        let known = self.networks.known();
        let _reading = match (self.networks.reading.try_lock(), &known) {
            (Ok(reading), _) => reading,
            // Whoever comes while another reads need not wait for it.
            (Err(_), Some((_, hosts))) => return Ok(hosts.get(&tenant).cloned()),
            (Err(_), None) => self.networks.reading.lock().await,
        };
        if let Some(hosts) = self.networks.fresh(now) {
            return Ok(hosts.get(&tenant).cloned());
        }
        match (self.read_networks().await, known) {
            (Ok(hosts), _) => {
                let hosts = Arc::new(hosts);
                self.networks.set(Some((now, Arc::clone(&hosts))));
                Ok(hosts.get(&tenant).cloned())
            }
            (Err(error), Some((_, hosts))) if error.is_passing() => Ok(hosts.get(&tenant).cloned()),
            (Err(error), _) => Err(error),
        }
    }

    async fn read_networks(&self) -> Result<HashMap<TenantId, Hosts>, Error> {
        let (mut all, mut after) = (HashMap::new(), None);
        loop {
            let page = self.store.documents(Kind::Network, None, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(all) };
            after = Some((last.tenant, last.name.clone()));
            for document in &page {
                all.insert(document.tenant, decode(document)?);
            }
        }
    }

    /// The list of a tenant, as it is.
    pub async fn network(&self, tenant: TenantId) -> Result<Option<(Hosts, u64)>, Error> {
        match self.store.document(Kind::Network, tenant, NAME).await? {
            Some(document) => Ok(Some((decode(&document)?, document.version))),
            None => Ok(None),
        }
    }

    /// Holds a tenant to some hosts, or to none any more.
    pub async fn put_network(&self, tenant: TenantId, hosts: Option<Vec<String>>) -> Result<(), Error> {
        let body = hosts.as_ref().map(serde_json::to_string).transpose();
        let body = body.map_err(|error| punctual_store::Error::Damaged { what: error.to_string() })?;
        let (name, body) = (NAME.into(), body.map(Into::into));
        let change = DocumentChange { kind: Kind::Network, tenant, name, expect: Expected::Any, body };
        let answer = self.heard(self.store.put_documents(vec![change], self.clock.now())).await;
        // Also if it failed: it may have been written all the same.
        self.networks.set(None);
        match answer?.into_iter().next() {
            Some(Err(refused)) => Err(punctual_store::Error::Damaged { what: refused.to_string() }.into()),
            Some(Ok(_)) | None => Ok(()),
        }
    }
}

fn decode(document: &Document) -> Result<Hosts, Error> {
    let hosts: Vec<String> = serde_json::from_str(&document.body).map_err(|error| {
        let what = format!("the hosts of tenant {}: cannot be read: {error}", document.tenant.0);
        punctual_store::Error::Damaged { what }
    })?;
    Ok(hosts.into())
}
