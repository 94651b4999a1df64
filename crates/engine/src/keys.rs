//! Keys of the API: made, listed, revoked, rotated, and kept up to date on every node.
//!
//! Changed when an administrator asks; the duty asks the store a few times a second whether others changed any, where others may, and writes
//! down when keys were used. Promise: a secret leaves this module once, in the answer to whoever asked for it, and is never stored; a change
//! is a compare-and-set, so a key that was revoked stays so; of ten thousand keys one document is read to see that nothing has changed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::document::Kind;
use punctual_domain::id::TenantId;
use punctual_domain::key::{Key, KeyId, Right, Secret, Shown, State};
use punctual_domain::{Document, TenantName};
use punctual_store::record::{decode_key, decode_key_use, encode_key, encode_key_use};
use punctual_store::{DocumentChange, Expected, Page, PageRequest, Refused};

use crate::audit::{Done, Thing};
use crate::engine::Engine;
use crate::error::Error;
use crate::keyring::{Entry, Known, Used, place};
use crate::pass::{Duty, Next, chain};

pub use crate::keyring::{Admitted, BELIEVED, Denied, Pass};

/// Keys of an installation: each is in the memory of every node.
pub const KEYS_MAX: usize = 10_000;

/// Documents that are read at a time.
const PAGE: usize = 1_000;

/// A change that meets another one is tried again this often.
const TRIES: usize = 5;

/// How often the store is asked whether others changed keys: twice in the second after which a change counts everywhere.
const LOOK_EVERY: SignedDuration = SignedDuration::from_millis(400);

/// How often the duty looks where nobody else changes keys: for what was used.
const LOOK_ALONE_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// When a key was used is written at most so often.
const USE_EVERY: SignedDuration = SignedDuration::from_secs(60);

/// A key that has been over for so long is forgotten.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_hours(30 * 24);

/// How often such keys are looked for.
const FORGET_EVERY: SignedDuration = SignedDuration::from_hours(1);

/// The document that counts changes.
const CHANGES: &str = "changes";

/// Who made a key that `serve` was given in a file. One that was revoked is never forgotten, or the next start would make it again.
pub const OF_FILE: &str = "admin-key-file";

/// A key that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// What people call it.
    pub name: String,
    /// What it may do.
    pub right: Right,
    /// Who asks for it.
    pub created_by: String,
}

/// A key with when it was last used, to the minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The key.
    pub key: Key,
    /// When somebody last showed it.
    pub last_used_at: Option<Timestamp>,
}

/// Whose keys somebody may see and change: those of one tenant, or all.
pub type Scope = Option<TenantId>;

/// Where a list of keys goes on.
pub type Place = (TenantId, String);

// What administrators ask for.
impl Engine {
    /// Makes a key. What is to be shown is in the answer, and nowhere else ever again.
    pub async fn create_key(&self, new: NewKey, by: &Right) -> Result<(Key, Shown), Error> {
        by.may_give(&new.right)?;
        for _ in 0..TRIES {
            let shown = Shown::new(KeyId::new(self.entropy.bits()), self.secret()?);
            if let Some(key) = self.add_key(&new, &shown).await? {
                tracing::info!(key = %key.id, role = key.right.role.as_str(), by = key.created_by, "key created");
                return Ok((key, shown));
            }
        }
        Err(busy())
    }

    /// Makes sure that a key that somebody brings is there and good.
    pub async fn ensure_key(&self, shown: &Shown, new: NewKey) -> Result<Key, Error> {
        for _ in 0..TRIES {
            self.read_keys().await?;
            let known = self.keyring.known();
            let Some(entry) = known.keys.get(&shown.id) else {
                match self.add_key(&new, shown).await? {
                    Some(key) => return Ok(key),
                    None => continue, // Another node was quicker.
                }
            };
            entry.key.judge(&self.seal()?.hash(shown), self.clock.now())?;
            let (is, wanted) = (entry.key.right, new.right);
            return match is.role.covers(wanted.role) && is.tenant.is_none_or(|one| Some(one) == wanted.tenant)
            {
                true => Ok(entry.key.clone()),
                false => Err(Error::KeyTooWeak { id: shown.id, role: is.role.as_str() }),
            };
        }
        Err(busy())
    }

    /// Keys of a scope, in the order of their tenants and ids.
    pub async fn keys(&self, scope: Scope, page: PageRequest<Place>) -> Result<Page<Listed, Place>, Error> {
        let found = self.store.documents(Kind::Key, scope, page.after.clone(), page.limit + 1).await?;
        // Only keys that there are have been used, so the uses of a page are not more.
        let used = self.store.documents(Kind::KeyUse, scope, page.after, page.limit + 1).await?;
        let used: HashMap<(TenantId, &str), &Document> =
            used.iter().map(|one| ((one.tenant, one.name.as_str()), one)).collect();
        let mut items = Vec::with_capacity(found.len());
        for document in found.iter().take(page.limit) {
            let last = used.get(&(document.tenant, document.name.as_str()));
            items.push(self.listed(document, last.copied())?);
        }
        let next = found.get(page.limit.saturating_sub(1)).filter(|_| found.len() > page.limit);
        Ok(Page { items, next: next.map(|last| (last.tenant, last.name.clone())) })
    }

    /// A key of a scope.
    pub async fn key(&self, scope: Scope, id: &str) -> Result<Listed, Error> {
        let document = self.find_key(scope, id).await?;
        let used = self.store.document(Kind::KeyUse, document.tenant, &document.name).await?;
        self.listed(&document, used.as_ref())
    }

    /// Takes a key back: at once here, within a second everywhere. One that was taken back stays as it is.
    pub async fn revoke_key(&self, scope: Scope, id: &str) -> Result<Key, Error> {
        let revoked = self
            .change_key(scope, id, |key, now| {
                key.revoked_at = key.revoked_at.or(Some(now));
                Ok(())
            })
            .await?;
        tracing::info!(key = %revoked.id, "key revoked");
        Ok(revoked)
    }

    /// Gives a key a new secret. The one before is good for the overlap.
    pub async fn rotate_key(
        &self,
        scope: Scope,
        id: &str,
        overlap: SignedDuration,
    ) -> Result<(Key, Shown), Error> {
        let found = self.find_key(scope, id).await?;
        let id: KeyId = found.name.parse().map_err(|_| Error::KeyNotFound(found.name.clone()))?;
        let shown = Shown::new(id, self.secret()?);
        let hash = self.seal()?.hash(&shown);
        let key = self
            .change_key(scope, &found.name, |key, now| match key.state(now) {
                State::Active => {
                    key.rotate(hash, overlap, now);
                    Ok(())
                }
                state @ (State::Expired | State::Revoked) => Err(Error::KeyOver { state: state.as_str() }),
            })
            .await?;
        tracing::info!(key = %key.id, overlap_s = overlap.as_secs(), "key rotated");
        Ok((key, shown))
    }

    fn secret(&self) -> Result<[u8; 32], Error> {
        self.entropy.secret().map_err(|error| Error::NoEntropy(error.to_string()))
    }

    fn seal(&self) -> Result<&punctual_domain::key::Seal, Error> {
        self.keyring.seal().ok_or_else(|| Error::NoEntropy("this node was given no seal".into()))
    }

    /// A key that was not there before; nothing if there is one of its id.
    async fn add_key(&self, new: &NewKey, shown: &Shown) -> Result<Option<Key>, Error> {
        if self.keyring.known().keys.len() >= KEYS_MAX {
            return Err(Error::TooManyKeys);
        }
        let now = self.clock.now();
        let key = Key {
            id: shown.id,
            name: new.name.clone(),
            right: new.right,
            secrets: vec![Secret { hash: self.seal()?.hash(shown), since: now, until: None }],
            created_at: now,
            created_by: new.created_by.clone(),
            revoked_at: None,
        };
        Ok(self.put_key(None, &key, Expected::Absent, now).await?.then_some(key))
    }

    async fn change_key(
        &self,
        scope: Scope,
        id: &str,
        change: impl Fn(&mut Key, Timestamp) -> Result<(), Error>,
    ) -> Result<Key, Error> {
        for _ in 0..TRIES {
            let (document, now) = (self.find_key(scope, id).await?, self.clock.now());
            let old = decode_key(&document)?;
            let mut key = old.clone();
            change(&mut key, now)?;
            let expect = Expected::Version(document.version);
            if key == old || self.put_key(Some(&old), &key, expect, now).await? {
                return Ok(key);
            }
        }
        Err(busy())
    }

    /// Writes a key, and that keys have changed; says whether it was as expected.
    async fn put_key(
        &self,
        old: Option<&Key>,
        key: &Key,
        expect: Expected,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let body = encode_key(key)?;
        let action = match old {
            None => "create",
            Some(old) if old.revoked_at != key.revoked_at => "revoke",
            Some(_) => "rotate",
        };
        let done = Done {
            tenant: place(key),
            kind: "key",
            subject: &key.id.to_string(),
            action: Some(action),
            before: old.map(Thing::Key),
            after: Some(Thing::Key(key)),
        };
        let change = DocumentChange {
            kind: Kind::Key,
            tenant: place(key),
            name: key.id.to_string(),
            expect,
            body: Some(body),
            audit: self.audited(&done, now),
        };
        self.put_keys(vec![change], now).await
    }

    /// Whether all were as expected.
    async fn put_keys(&self, mut changes: Vec<DocumentChange>, now: Timestamp) -> Result<bool, Error> {
        // In the same commit. One too many costs a reading, one too few would hide a change.
        changes.push(DocumentChange {
            kind: Kind::Keyring,
            tenant: TenantId::NOBODY,
            name: CHANGES.into(),
            expect: Expected::Any,
            body: Some("{}".into()),
            audit: None,
        });
        let mut unread = Unread { engine: self, is_read: false };
        let answers = self.heard(self.store.put_documents(changes, now)).await?;
        self.read_keys().await?;
        unread.is_read = true;
        let mut is_done = true;
        for answer in answers {
            match answer {
                Ok(_) => {}
                Err(Refused::DocumentChanged) => is_done = false,
                Err(refused) => {
                    return Err(punctual_store::Error::Damaged { what: refused.to_string() }.into());
                }
            }
        }
        Ok(is_done)
    }

    /// The document of a key. Others' are not there, whether they exist or not.
    async fn find_key(&self, scope: Scope, text: &str) -> Result<Document, Error> {
        let unknown = || Error::KeyNotFound(text.chars().take(64).collect());
        let id: KeyId = text.parse().map_err(|_| unknown())?;
        let place = match (scope, self.place_of_key(id)) {
            (Some(tenant), _) => Some(tenant),
            (None, Some(place)) => Some(place),
            (None, None) => {
                self.read_keys().await?;
                self.place_of_key(id)
            }
        };
        let Some(place) = place else { return Err(unknown()) };
        self.store.document(Kind::Key, place, text).await?.ok_or_else(unknown)
    }

    /// What this node saw counts as well: it is written a minute later at most.
    fn listed(&self, document: &Document, used: Option<&Document>) -> Result<Listed, Error> {
        let key = decode_key(document)?;
        let written = used.map(decode_key_use).transpose()?;
        let known = self.keyring.known();
        let seen = known.keys.get(&key.id).map_or(0, |entry| entry.used.last.load(Ordering::Relaxed));
        let seen = Timestamp::from_millisecond(seen).ok().filter(|_| seen > 0);
        Ok(Listed { key, last_used_at: written.max(seen) })
    }
}

// What the node asks for.
impl Engine {
    /// Reads the keys anew.
    pub async fn read_keys(&self) -> Result<(), Error> {
        let _reading = self.keyring.reading.lock().await;
        let now = self.clock.now();
        let changes = self.changes_of_keys().await?;
        self.read_all_keys(changes, now).await
    }

    /// Reads the keys anew if others changed them.
    async fn refresh_keys(&self) -> Result<(), Error> {
        let _reading = self.keyring.reading.lock().await;
        let now = self.clock.now();
        let changes = self.changes_of_keys().await?;
        if changes == self.keyring.known().changes {
            self.keyring.confirm(now);
            return Ok(());
        }
        self.read_all_keys(changes, now).await
    }

    async fn changes_of_keys(&self) -> Result<Option<u64>, Error> {
        let counted = self.store.document(Kind::Keyring, TenantId::NOBODY, CHANGES).await?;
        Ok(counted.map(|document| document.version))
    }

    /// The count was read before the keys: what is changed in between is read again.
    async fn read_all_keys(&self, changes: Option<u64>, now: Timestamp) -> Result<(), Error> {
        let mut keys = Vec::new();
        let mut after: Option<Place> = None;
        // Without a count there never was a key.
        while changes.is_some() {
            let page = self.store.documents(Kind::Key, None, after, PAGE).await?;
            after = page.last().map(|last| (last.tenant, last.name.clone()));
            let is_last = page.len() < PAGE;
            for document in page {
                match decode_key(&document) {
                    Ok(key) => keys.push(key),
                    // It opens nothing; the others do.
                    Err(error) => tracing::error!(error = %chain(&error), "a key cannot be read"),
                }
            }
            if is_last {
                break;
            }
        }
        let names = match keys.iter().any(|key| key.right.tenant.is_some()) {
            true => self.store.tenants().await?,
            false => Vec::new(),
        };
        let names: HashMap<TenantId, TenantName> =
            names.into_iter().map(|tenant| (tenant.id, tenant.name)).collect();
        let old = self.keyring.known();
        let entry = |key: Key| {
            let tenant = key.right.tenant.map(|tenant| names.get(&tenant).cloned());
            let used = old.keys.get(&key.id).map_or_else(Arc::<Used>::default, |old| Arc::clone(&old.used));
            match tenant {
                Some(None) => None, // A key of a tenant that is gone opens nothing.
                Some(tenant) => Some((key.id, Entry { key, tenant, used })),
                None => Some((key.id, Entry { key, tenant: None, used })),
            }
        };
        let keys = keys.into_iter().filter_map(entry).collect();
        self.keyring.set(Known { changes, keys }, now);
        Ok(())
    }

    /// Writes down which keys were used; how many.
    pub async fn write_key_uses(&self) -> Result<usize, Error> {
        let (now, known) = (self.clock.now(), self.keyring.known());
        let mut changes = Vec::new();
        let mut written = Vec::new();
        for entry in known.keys.values() {
            let used = entry.used.last.load(Ordering::Relaxed);
            let before = entry.used.written.load(Ordering::Relaxed);
            let is_due = now.as_millisecond().saturating_sub(before) >= USE_EVERY.as_millis() as i64;
            let Some(at) = Timestamp::from_millisecond(used).ok().filter(|_| used > before && is_due) else {
                continue;
            };
            changes.push(DocumentChange {
                kind: Kind::KeyUse,
                tenant: place(&entry.key),
                name: entry.key.id.to_string(),
                expect: Expected::Any,
                body: Some(encode_key_use(at)?),
                audit: None,
            });
            written.push(Arc::clone(&entry.used));
            if changes.len() >= PAGE {
                break;
            }
        }
        if changes.is_empty() {
            return Ok(0);
        }
        let count = changes.len();
        self.heard(self.store.put_documents(changes, now)).await?;
        // The minute counts from the writing.
        written.iter().for_each(|used| used.written.store(now.as_millisecond(), Ordering::Relaxed));
        Ok(count)
    }

    /// Forgets keys that have been over for long; how many.
    pub async fn forget_keys(&self) -> Result<usize, Error> {
        let (now, known) = (self.clock.now(), self.keyring.known());
        let is_old = |key: &Key| key.over_at(now).is_some_and(|at| now.duration_since(at) > FORGOTTEN_AFTER);
        let old = known.keys.values().map(|entry| &entry.key);
        let old: Vec<&Key> = old.filter(|key| key.created_by != OF_FILE && is_old(key)).take(PAGE).collect();
        if old.is_empty() {
            return Ok(0);
        }
        let gone = |kind| {
            old.iter().map(move |key| DocumentChange {
                kind,
                tenant: place(key),
                name: key.id.to_string(),
                expect: Expected::Any,
                body: None,
                audit: None,
            })
        };
        let count = old.len();
        self.put_keys(gone(Kind::Key).chain(gone(Kind::KeyUse)).collect(), now).await?;
        Ok(count)
    }
}

/// Others were quicker, again and again.
fn busy() -> Error {
    Error::Store(punctual_store::Error::Unavailable {
        reason: "the key is being changed by others; try again".into(),
    })
}

/// Keys that are being changed: if whoever does it goes away in the middle, or fails, the duty reads them.
struct Unread<'a> {
    engine: &'a Engine,
    is_read: bool,
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        if !self.is_read {
            // At once, and again when a write that nobody waits for is surely done.
            self.engine.keyring.unread.store(2, Ordering::SeqCst);
            self.engine.keyring.wakes.notify_one();
        }
    }
}

/// The duty.
pub(crate) struct Keeping {
    engine: Arc<Engine>,
    forget_at: Option<Timestamp>,
    /// The store could not be asked.
    is_cut_off: bool,
}

impl Keeping {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Keeping { engine, forget_at: None, is_cut_off: false }
    }

    async fn refresh(&mut self) {
        let keyring = &self.engine.keyring;
        let unread = keyring.unread.load(Ordering::SeqCst);
        if !self.engine.store.is_shared() && unread == 0 {
            return;
        }
        match self.engine.refresh_keys().await {
            Ok(()) => {
                keyring.unread.store(unread.saturating_sub(1), Ordering::SeqCst);
                if std::mem::take(&mut self.is_cut_off) {
                    tracing::info!("keys can be read again");
                }
            }
            // Asked again as soon as ever: a revocation must not wait for a pause that has grown.
            Err(error) => {
                if !std::mem::replace(&mut self.is_cut_off, true) {
                    let minutes = BELIEVED.as_mins();
                    tracing::warn!(error = %chain(&error), minutes, "keys cannot be read; those that are known stay good for so long");
                }
            }
        }
    }
}

#[async_trait]
impl Duty for Keeping {
    const NAME: &'static str = "keys";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        self.refresh().await;
        if !self.is_cut_off {
            let written = self.engine.write_key_uses().await;
            if let Err(error) = written {
                tracing::debug!(error = %chain(&error), "when keys were used is written later");
            }
            if self.forget_at.is_none_or(|at| at <= now) {
                self.forget_at = Some(now + FORGET_EVERY);
                if let Err(error) = self.engine.forget_keys().await {
                    tracing::debug!(error = %chain(&error), "old keys are forgotten later");
                }
            }
        }
        let is_asked = self.engine.store.is_shared() || self.engine.keyring.unread.load(Ordering::SeqCst) > 0;
        Ok(Next::At(now + if is_asked { LOOK_EVERY } else { LOOK_ALONE_EVERY }))
    }
}
