//! What this node can open: the master keys that it was given, and the secrets that it read a moment ago, still sealed.
//!
//! Asked when a secret is set or a call needs one. The keys are read where the operator keeps them when they are first needed, whenever
//! something is sealed, and when something is met that none of them opens: so a new key needs no restart. Promise: no value stays in
//! memory longer than the call it is for; a store that is out of reach is not noticed for [`BELIEVED`](crate::keys::BELIEVED).

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::document::Kind;
use punctual_domain::envelope::{MasterKeyId, MasterKeys, Place};
use punctual_domain::secret::{Unusable, Values};
use punctual_domain::{Document, TenantId};
use punctual_store::record::decode_secret;

use crate::engine::Engine;
use crate::error::Error;
use crate::keyring::BELIEVED;

/// How long a node believes what it has read of a secret: a job of every second reads it once.
const REMEMBERED: SignedDuration = SignedDuration::from_secs(1);

/// Secrets that are remembered; above that all are forgotten. A sealed one has at most 90 KB.
const SECRETS_REMEMBERED: usize = 1_000;

/// A key that is not there is looked for at most so often.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(5);

/// Where master keys come from.
#[async_trait]
pub trait KeySource: Debug + Send + Sync + 'static {
    /// The keys, as text: one a line, the newest first. What is told of a failure has no key in it.
    async fn read(&self) -> Result<String, String>;
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Vault {
    source: OnceLock<Arc<dyn KeySource>>,
    keys: tokio::sync::Mutex<Option<Read>>,
    sealed: Mutex<HashMap<(TenantId, String), (Timestamp, Arc<Document>)>>,
}

/// Keys as they were read.
#[derive(Debug)]
struct Read {
    keys: Arc<MasterKeys>,
    /// A key that was not among them, and when that was seen.
    missed: Option<(MasterKeyId, Timestamp)>,
}

impl Vault {
    pub(crate) fn has_source(&self) -> bool {
        self.source.get().is_some()
    }

    fn known(&self, tenant: TenantId, name: &str) -> Option<(Timestamp, Arc<Document>)> {
        let sealed = self.sealed.lock().unwrap_or_else(PoisonError::into_inner);
        sealed.get(&(tenant, name.to_owned())).cloned()
    }

    fn note(&self, tenant: TenantId, name: &str, now: Timestamp, document: Arc<Document>) {
        let mut sealed = self.sealed.lock().unwrap_or_else(PoisonError::into_inner);
        if sealed.len() >= SECRETS_REMEMBERED {
            sealed.clear();
        }
        sealed.insert((tenant, name.to_owned()), (now, document));
    }

    pub(crate) fn forget(&self, tenant: TenantId, name: &str) {
        self.sealed.lock().unwrap_or_else(PoisonError::into_inner).remove(&(tenant, name.to_owned()));
    }
}

impl Engine {
    /// Says where master keys come from. Set once, before secrets are.
    pub fn set_key_source(&self, source: Arc<dyn KeySource>) {
        // The first one stays: what it sealed must be opened.
        let _ = self.vault.source.set(source);
    }

    /// The master keys: as they are now, or as they were read if this one was among them.
    pub(crate) async fn master_keys(&self, wanted: Option<MasterKeyId>) -> Result<Arc<MasterKeys>, Error> {
        let source = self.vault.source.get().ok_or(Error::NoSecretsKey)?;
        let now = self.clock.now();
        let mut read = self.vault.keys.lock().await;
        if let (Some(id), Some(known)) = (wanted, read.as_ref()) {
            let is_missed =
                known.missed.is_some_and(|(missed, at)| missed == id && now.duration_since(at) < LOOK_EVERY);
            if is_missed || known.keys.get(id).is_some() {
                return Ok(Arc::clone(&known.keys));
            }
        }
        let found = source.read().await;
        let found = found.and_then(|text| text.parse::<MasterKeys>().map_err(|wrong| wrong.to_string()));
        let keys = match (found, wanted, read.as_ref()) {
            (Ok(keys), _, _) => Arc::new(keys),
            // What was read before still opens what it did.
            (Err(reason), Some(_), Some(known)) => {
                tracing::warn!(reason, "the master keys cannot be read again");
                Arc::clone(&known.keys)
            }
            (Err(reason), _, _) => return Err(Error::SecretsKeyUnread(reason)),
        };
        let missed = wanted.filter(|id| keys.get(*id).is_none()).map(|id| (id, now));
        *read = Some(Read { keys: Arc::clone(&keys), missed });
        Ok(keys)
    }

    /// Opens secrets for one call.
    pub async fn open_secrets(&self, tenant: TenantId, names: &BTreeSet<String>) -> Result<Values, Unusable> {
        let mut values = Vec::with_capacity(names.len());
        for name in names {
            let unreadable = |reason: String| Unusable::Unreadable { name: name.clone(), reason };
            let document =
                self.sealed_secret(tenant, name).await.map_err(|error| unreadable(error.to_string()))?;
            let Some(document) = document else { return Err(Unusable::NotFound(name.clone())) };
            let secret = decode_secret(&document).map_err(|error| unreadable(error.to_string()))?;
            let keys = self.master_keys(Some(secret.sealed.master)).await;
            let keys = keys.map_err(|error| unreadable(error.to_string()))?;
            let value = keys.open(Place { tenant, name }, &secret.sealed);
            values.push((name.clone(), value.map_err(|error| unreadable(error.to_string()))?));
        }
        Ok(values.into_iter().collect())
    }

    /// A secret as it was a moment ago, or during an outage as it was before. One that was not there is always looked for.
    pub(crate) async fn sealed_secret(
        &self,
        tenant: TenantId,
        name: &str,
    ) -> Result<Option<Arc<Document>>, Error> {
        let now = self.clock.now();
        let known = self.vault.known(tenant, name);
        let younger_than = |age: SignedDuration| {
            let is_so = |(read_at, _): &&(Timestamp, Arc<Document>)| {
                let passed = now.duration_since(*read_at);
                !passed.is_negative() && passed < age
            };
            known.as_ref().filter(is_so).map(|(_, document)| Arc::clone(document))
        };
        if let Some(document) = younger_than(REMEMBERED) {
            return Ok(Some(document));
        }
        match self.store.document(Kind::Secret, tenant, name).await {
            Ok(Some(document)) => {
                let document = Arc::new(document);
                self.vault.note(tenant, name, now, Arc::clone(&document));
                Ok(Some(document))
            }
            Ok(None) => {
                self.vault.forget(tenant, name);
                Ok(None)
            }
            Err(error @ punctual_store::Error::Unavailable { .. }) => match younger_than(BELIEVED) {
                Some(document) => Ok(Some(document)),
                None => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }
}
