//! Secrets of tenants: set, listed, deleted, and sealed anew with another master key.
//!
//! Runs when an administrator asks. Promise: a value comes in and is sealed, and no function of this module gives one back; a change is a
//! compare-and-set; a rotation that breaks off is done again, and finds what is left to do.

use jiff::Timestamp;
use punctual_domain::document::Kind;
use punctual_domain::envelope::{Fresh, MasterKeyId, MasterKeys, Place, seal_value};
use punctual_domain::job::{Spec, Target};
use punctual_domain::secret::{self, Secret, Value};
use punctual_domain::{Document, TenantId};
use punctual_store::record::{decode_secret, encode_secret};
use punctual_store::{DocumentChange, Expected, Page, PageRequest, Refused};

use crate::engine::Engine;
use crate::error::Error;

pub use crate::vault::KeySource;

/// Secrets of a tenant.
pub const SECRETS_MAX: usize = 500;

/// Documents that are read and written at a time.
const PAGE: usize = 100;

/// A change that meets another one is tried again this often.
const TRIES: usize = 5;

/// So many secrets that could not be read are named.
const NAMED: usize = 20;

/// What may be told of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Counts its changes, rotations too.
    pub version: u64,
    /// When there was first one of its name.
    pub created_at: Timestamp,
    /// When its value was last set.
    pub set_at: Timestamp,
    /// By whom.
    pub set_by: String,
    /// Which master key sealed it.
    pub master: MasterKeyId,
}

/// What a rotation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotated {
    /// The master key that all of them have now, but those that could not be read.
    pub master: MasterKeyId,
    /// Sealed anew.
    pub resealed: usize,
    /// Were sealed with it already.
    pub already: usize,
    /// Could not be read.
    pub unreadable: usize,
    /// Some of these, by name, and why.
    pub examples: Vec<(String, String)>,
}

/// A value that somebody sets.
#[derive(Clone, Debug)]
pub struct NewSecret {
    /// Its name.
    pub name: String,
    /// What it says.
    pub value: Value,
    /// Who asks.
    pub set_by: String,
    /// Only if it is at this version.
    pub expected: Option<u64>,
}

impl Engine {
    /// Sets a secret; says whether there was none of its name.
    pub async fn put_secret(&self, tenant: TenantId, new: NewSecret) -> Result<(Listed, bool), Error> {
        secret::check_name(&new.name)?;
        let keys = self.master_keys(None).await?;
        for _ in 0..TRIES {
            let (old, now) = (self.store.document(Kind::Secret, tenant, &new.name).await?, self.clock.now());
            check_version(&new.name, old.as_ref(), new.expected)?;
            if old.is_none() {
                self.check_room(tenant).await?;
            }
            let place = Place { tenant, name: &new.name };
            let fresh = Fresh::new(self.random()?, self.random()?);
            let sealed = seal_value(keys.newest(), place, &new.value, &fresh)
                .map_err(|error| Error::SecretsKeyUnread(error.to_string()))?;
            let created_at = old.as_ref().and_then(|old| decode_secret(old).ok()).map(|old| old.created_at);
            let secret = Secret {
                sealed,
                created_at: created_at.unwrap_or(now),
                set_at: now,
                set_by: new.set_by.clone(),
            };
            let expect = old.as_ref().map_or(Expected::Absent, |old| Expected::Version(old.version));
            let put = self.change_secret(tenant, &new.name, expect, Some(&secret)).await?;
            if let Some(document) = put {
                tracing::info!(secret = new.name, tenant = tenant.0, by = new.set_by, "secret set");
                let document = document.ok_or_else(busy)?;
                return Ok((listed(&document)?, old.is_none()));
            }
        }
        Err(busy())
    }

    /// Secrets of a tenant by name, without their values.
    pub async fn secrets(
        &self,
        tenant: TenantId,
        page: PageRequest<String>,
    ) -> Result<Page<Listed, String>, Error> {
        let after = page.after.map(|name| (tenant, name));
        let found = self.store.documents(Kind::Secret, Some(tenant), after, page.limit + 1).await?;
        let items = found.iter().take(page.limit).map(listed).collect::<Result<Vec<_>, _>>()?;
        let next = items.last().filter(|_| found.len() > page.limit).map(|last| last.name.clone());
        Ok(Page { items, next })
    }

    /// A secret of a tenant, without its value.
    pub async fn secret(&self, tenant: TenantId, name: &str) -> Result<Listed, Error> {
        let found = self.store.document(Kind::Secret, tenant, name).await?;
        listed(&found.ok_or_else(|| not_found(name))?)
    }

    /// Deletes a secret. Jobs that name it fail from then on.
    pub async fn delete_secret(
        &self,
        tenant: TenantId,
        name: &str,
        expected: Option<u64>,
    ) -> Result<(), Error> {
        for _ in 0..TRIES {
            let old = self.store.document(Kind::Secret, tenant, name).await?;
            let old = old.ok_or_else(|| not_found(name))?;
            check_version(name, Some(&old), expected)?;
            if self.change_secret(tenant, name, Expected::Version(old.version), None).await?.is_some() {
                tracing::info!(secret = name, tenant = tenant.0, "secret deleted");
                return Ok(());
            }
        }
        Err(busy())
    }

    /// Seals every secret of all tenants with the newest master key. Values are not opened.
    pub async fn rotate_secrets_key(&self) -> Result<Rotated, Error> {
        let keys = self.master_keys(None).await?;
        let mut rotated = Rotated {
            master: keys.newest().id(),
            resealed: 0,
            already: 0,
            unreadable: 0,
            examples: Vec::new(),
        };
        for _ in 0..TRIES {
            let resealed = rotated.resealed;
            rotated = Rotated { already: 0, unreadable: 0, examples: Vec::new(), ..rotated };
            if self.reseal_all(&keys, &mut rotated).await? {
                // Those of an earlier round were found sealed in this one.
                rotated.already -= resealed.min(rotated.already);
                tracing::info!(
                    master = %rotated.master,
                    resealed = rotated.resealed,
                    unreadable = rotated.unreadable,
                    "master key of secrets rotated"
                );
                return Ok(rotated);
            }
        }
        Err(busy())
    }

    /// One round over all secrets; whether nobody changed any meanwhile.
    async fn reseal_all(&self, keys: &MasterKeys, rotated: &mut Rotated) -> Result<bool, Error> {
        let (mut after, mut is_done) = (None, true);
        loop {
            let page = self.store.documents(Kind::Secret, None, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(is_done) };
            after = Some((last.tenant, last.name.clone()));
            let mut changes = Vec::new();
            for document in &page {
                match self.resealed(keys, document) {
                    Ok(None) => rotated.already += 1,
                    Ok(Some(body)) => changes.push(DocumentChange {
                        kind: Kind::Secret,
                        tenant: document.tenant,
                        name: document.name.clone(),
                        expect: Expected::Version(document.version),
                        body: Some(body),
                    }),
                    Err(reason) => {
                        rotated.unreadable += 1;
                        if rotated.examples.len() < NAMED {
                            rotated.examples.push((document.name.clone(), reason));
                        }
                    }
                }
            }
            let places: Vec<_> = changes.iter().map(|one| (one.tenant, one.name.clone())).collect();
            let answers = self.heard(self.store.put_documents(changes, self.clock.now())).await?;
            for ((tenant, name), answer) in places.iter().zip(answers) {
                self.vault.forget(*tenant, name);
                match answer {
                    Ok(_) => rotated.resealed += 1,
                    Err(Refused::DocumentChanged) => is_done = false,
                    Err(refused) => return Err(damaged(&refused)),
                }
            }
        }
    }

    /// The body with the newest key; nothing if it has that already.
    fn resealed(&self, keys: &MasterKeys, document: &Document) -> Result<Option<Box<str>>, String> {
        let secret = decode_secret(document).map_err(|error| error.to_string())?;
        if secret.sealed.master == keys.newest().id() {
            return Ok(None);
        }
        let random = self.random().map_err(|error| error.to_string())?;
        let nonce = std::array::from_fn(|n| random[n]);
        let place = Place { tenant: document.tenant, name: &document.name };
        let sealed = keys.reseal(place, &secret.sealed, nonce).map_err(|error| error.to_string())?;
        encode_secret(&Secret { sealed, ..secret }).map(Some).map_err(|error| error.to_string())
    }

    /// How many secrets this node cannot open for want of a master key: asked once, when it starts.
    pub async fn unreadable_secrets(&self) -> Result<usize, Error> {
        let keys = match self.vault.has_source() {
            true => Some(self.master_keys(None).await?),
            false => None,
        };
        let (mut after, mut count) = (None, 0);
        loop {
            let page = self.store.documents(Kind::Secret, None, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(count) };
            after = Some((last.tenant, last.name.clone()));
            for document in &page {
                let master = decode_secret(document)?.sealed.master;
                count += usize::from(keys.as_ref().is_none_or(|keys| keys.get(master).is_none()));
            }
        }
    }

    /// What somebody should know whose job names secrets.
    pub async fn secret_warnings(&self, tenant: TenantId, spec: &Spec) -> Result<Vec<String>, Error> {
        let mut warnings = Vec::new();
        let payload = secret::names(spec.payload.as_deref().unwrap_or_default());
        let is_http = matches!(spec.target, Target::Http(_));
        if !is_http && let Some(name) = payload.first() {
            warnings.push(format!(
                "its payload names the secret `{name}`, and secrets are filled in for `http` targets alone: \
                 a `{}` target gets the payload as it is written",
                spec.target.as_str()
            ));
        }
        let mut names = spec.target.secrets();
        names.extend(spec.dead_letter_target.iter().flat_map(Target::secrets));
        names.extend(payload.into_iter().filter(|_| is_http));
        for name in names.iter().take(secret::CALL_MAX) {
            if self.sealed_secret(tenant, name).await?.is_none() {
                warnings.push(format!(
                    "it names the secret `{name}`, which is not there: its runs fail with `secret_not_found` until it is set"
                ));
            }
        }
        Ok(warnings)
    }

    async fn check_room(&self, tenant: TenantId) -> Result<(), Error> {
        let (mut after, mut count) = (None, 0);
        while count < SECRETS_MAX {
            let page = self.store.documents(Kind::Secret, Some(tenant), after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some((last.tenant, last.name.clone()));
            count += page.len();
        }
        Err(Error::TooManySecrets)
    }

    /// Writes a secret, or takes it away; nothing if it was not as expected.
    async fn change_secret(
        &self,
        tenant: TenantId,
        name: &str,
        expect: Expected,
        secret: Option<&Secret>,
    ) -> Result<Option<Option<Document>>, Error> {
        let body = secret.map(encode_secret).transpose()?;
        let change = DocumentChange { kind: Kind::Secret, tenant, name: name.into(), expect, body };
        let answer = self.heard(self.store.put_documents(vec![change], self.clock.now())).await;
        // Also if it failed: it may have been written all the same.
        self.vault.forget(tenant, name);
        match answer?.into_iter().next() {
            Some(Ok(document)) => Ok(Some(document)),
            Some(Err(Refused::DocumentChanged)) => Ok(None),
            Some(Err(refused)) => Err(damaged(&refused)),
            None => Ok(Some(None)),
        }
    }
}

fn listed(document: &Document) -> Result<Listed, Error> {
    let secret = decode_secret(document)?;
    Ok(Listed {
        name: document.name.clone(),
        version: document.version,
        created_at: secret.created_at,
        set_at: secret.set_at,
        set_by: secret.set_by,
        master: secret.sealed.master,
    })
}

fn check_version(name: &str, found: Option<&Document>, expected: Option<u64>) -> Result<(), Error> {
    match (found.map(|found| found.version), expected) {
        (_, None) => Ok(()),
        (Some(current), Some(expected)) if current == expected => Ok(()),
        (Some(current), Some(expected)) => Err(Error::SecretChanged { expected, current }),
        (None, Some(_)) => Err(not_found(name)),
    }
}

/// Others were quicker, again and again.
fn busy() -> Error {
    Error::Store(punctual_store::Error::Unavailable {
        reason: "the secret is being changed by others; try again".into(),
    })
}

/// A name in a path may be anything; only some of it is told back.
fn not_found(name: &str) -> Error {
    Error::SecretNotFound(name.chars().take(secret::NAME_MAX).collect())
}

fn damaged(refused: &Refused) -> Error {
    punctual_store::Error::Damaged { what: refused.to_string() }.into()
}
