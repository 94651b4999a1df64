//! What this node knows of keys, and whether one that somebody shows is good.
//!
//! Asked at every request, in memory: a look into a table, a hash, a comparison. What is known is read when the node starts, after every
//! change of its own and, where others may change keys too, again and again (see [`crate::keys`]). Promise: the request path reads no
//! store; a change counts at once where it was made, and within a second on every other node that reaches the store; a node that does not
//! believes what it knows for [`BELIEVED`], and then nobody.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use jiff::{SignedDuration, Timestamp};
use punctual_domain::TenantName;
use punctual_domain::id::TenantId;
use punctual_domain::key::{Hash, Key, KeyId, Malformed, Refused, Right, Seal, Shown};
use tokio::sync::{Notify, watch};

use crate::engine::Engine;

/// How long keys stay good that cannot be read again: a failover and a look at what is wrong fit in, and a node that reaches no store
/// changes nothing meanwhile.
pub const BELIEVED: SignedDuration = SignedDuration::from_secs(15 * 60);

/// Nothing was read yet.
const NEVER: i64 = i64::MIN;

/// What this node knows of keys.
#[derive(Debug)]
pub(crate) struct Keyring {
    seal: OnceLock<Seal>,
    known: RwLock<Arc<Known>>,
    /// When the store last said that this is how things are, in milliseconds.
    read_at: AtomicI64,
    /// Told whenever what is known has changed.
    changed: watch::Sender<()>,
    /// Held while keys are read, so that who read them last is who says what they are.
    pub(crate) reading: tokio::sync::Mutex<()>,
    /// Whoever changed them went away before they were read: how often the duty is to read them.
    pub(crate) unread: AtomicU8,
    pub(crate) wakes: Arc<Notify>,
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// How many changes there were. None: there never was a key, and none is needed.
    pub(crate) changes: Option<u64>,
    pub(crate) keys: HashMap<KeyId, Entry>,
}

/// A key, and what its tenant is called.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) tenant: Option<TenantName>,
    pub(crate) used: Arc<Used>,
}

/// When a key was used, in milliseconds; 0 for never.
#[derive(Debug, Default)]
pub(crate) struct Used {
    pub(crate) last: AtomicI64,
    /// The last one that the store knows of.
    pub(crate) written: AtomicI64,
}

impl Default for Keyring {
    fn default() -> Self {
        Keyring {
            seal: OnceLock::new(),
            known: RwLock::default(),
            read_at: AtomicI64::new(NEVER),
            changed: watch::Sender::new(()),
            reading: tokio::sync::Mutex::default(),
            unread: AtomicU8::new(0),
            wakes: Arc::default(),
        }
    }
}

impl Keyring {
    pub(crate) fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set(&self, known: Known, at: Timestamp) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
        self.confirm(at);
        self.changed.send_replace(());
    }

    /// What is known is how things were at this time.
    pub(crate) fn confirm(&self, at: Timestamp) {
        self.read_at.store(at.as_millisecond(), Ordering::Release);
    }

    pub(crate) fn seal(&self) -> Option<&Seal> {
        self.seal.get()
    }
}

/// What a good key gives to whoever shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// What they may do.
    pub right: Right,
    /// What their tenant is called, if it is one.
    pub tenant: Option<TenantName>,
    /// Says again later whether it is still so.
    pub pass: Pass,
}

/// A key that was good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Which.
    pub id: KeyId,
    hash: Hash,
}

/// Why nobody is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// What was shown is no key.
    #[error(transparent)]
    Malformed(#[from] punctual_domain::key::Malformed),
    /// It is not good.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Keys are in force now, and none was shown.
    #[error("keys are in force now")]
    Needed,
    /// Nobody can tell.
    #[error("the keys could not be read for too long")]
    Unread,
}

impl Engine {
    /// Brings what secrets of keys are hashed with. Set once, before keys are made or shown.
    pub fn set_seal(&self, seal: Seal) {
        // A second one would make every key unknown.
        let _ = self.keyring.seal.set(seal);
    }

    /// Whether whoever calls needs a key: from the first one on, for good, also when that is revoked or has expired.
    pub fn are_keys_needed(&self) -> Result<bool, Denied> {
        match self.keyring.read_at.load(Ordering::Acquire) {
            NEVER => Err(Denied::Unread),
            _ => Ok(self.keyring.known().changes.is_some()),
        }
    }

    /// What a key gives that somebody shows now.
    pub fn admit_key(&self, text: &str) -> Result<Admitted, Denied> {
        let shown: Shown = text.parse()?;
        let seal = self.keyring.seal().ok_or(Denied::Unread)?;
        let (known, now) = (self.keyring.known(), self.clock.now());
        self.check_read(now)?;
        let entry = known.keys.get(&shown.id).ok_or(Refused::Unknown)?;
        let hash = seal.hash(&shown);
        entry.key.judge(&hash, now)?;
        entry.used.note(now);
        Ok(Admitted {
            right: entry.key.right,
            tenant: entry.tenant.clone(),
            pass: Pass { id: shown.id, hash },
        })
    }

    /// What whoever showed a key may show instead of it until `until`, and no longer than the key is good.
    pub fn session(&self, pass: &Pass, until: Timestamp) -> Result<String, Denied> {
        let seal = self.keyring.seal().ok_or(Denied::Unread)?;
        let signature = seal.session(pass.id, &pass.hash, until);
        Ok(format!("{}.{}.{signature}", pass.id, until.as_second()))
    }

    /// What a session gives now: what its key gives, as long as that is good.
    pub fn admit_session(&self, text: &str) -> Result<Admitted, Denied> {
        let (id, until, signature) = parts_of_session(text).ok_or(Malformed)?;
        let seal = self.keyring.seal().ok_or(Denied::Unread)?;
        let (known, now) = (self.keyring.known(), self.clock.now());
        self.check_read(now)?;
        let entry = known.keys.get(&id).ok_or(Refused::Unknown)?;
        let is_of = |hash: &Hash| seal.session(id, hash, until) == signature;
        let hash = entry.key.secrets.iter().map(|secret| secret.hash).find(is_of).ok_or(Refused::Unknown)?;
        if until <= now {
            return Err(Refused::Expired(until).into());
        }
        entry.key.judge(&hash, now)?;
        entry.used.note(now);
        Ok(Admitted { right: entry.key.right, tenant: entry.tenant.clone(), pass: Pass { id, hash } })
    }

    /// Waits until a key that was good is not any more, or, without one, until one is needed.
    pub async fn denied(&self, pass: Option<Pass>) -> Denied {
        let mut changed = self.keyring.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let known = self.keyring.known();
            let until = match pass {
                None if known.changes.is_some() => return Denied::Needed,
                None => None,
                Some(pass) => {
                    let Some(entry) = known.keys.get(&pass.id) else { return Refused::Unknown.into() };
                    if let Err(refused) = entry.key.judge(&pass.hash, self.clock.now()) {
                        return refused.into();
                    }
                    entry.key.good_until(&pass.hash)
                }
            };
            let over = async {
                match until {
                    Some(at) => self.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => {}
                // The sender is in the engine.
                _ = changed.changed() => {}
            }
        }
    }

    fn check_read(&self, now: Timestamp) -> Result<(), Denied> {
        let read_at = self.keyring.read_at.load(Ordering::Acquire);
        let age = now.as_millisecond().saturating_sub(read_at);
        // Where nobody else changes keys, what was read once stays true.
        let is_old = self.store.is_shared() && age > BELIEVED.as_millis() as i64;
        match read_at == NEVER || is_old {
            true => Err(Denied::Unread),
            false => Ok(()),
        }
    }

    /// Where a key is kept, as far as this node knows.
    pub(crate) fn place_of_key(&self, id: KeyId) -> Option<TenantId> {
        self.keyring.known().keys.get(&id).map(|entry| place(&entry.key))
    }
}

/// The key, the end and the signature of a session.
fn parts_of_session(text: &str) -> Option<(KeyId, Timestamp, Hash)> {
    let mut parts = text.splitn(3, '.');
    let (id, until, signature) = (parts.next()?, parts.next()?, parts.next()?);
    let until = Timestamp::from_second(until.parse().ok()?).ok()?;
    Some((id.parse().ok()?, until, signature.parse().ok()?))
}

/// Under which tenant a key is kept.
pub(crate) fn place(key: &Key) -> TenantId {
    key.right.tenant.unwrap_or(TenantId::NOBODY)
}

impl Used {
    /// Once a second is enough: cores that share a key do not share a cache line for more.
    fn note(&self, now: Timestamp) {
        let now = now.as_millisecond();
        if now.saturating_sub(self.last.load(Ordering::Relaxed)) >= 1_000 {
            self.last.store(now, Ordering::Relaxed);
        }
    }
}
