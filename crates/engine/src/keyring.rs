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
use punctual_domain::key::{Hash, Key, KeyId, Refused, Right, Seal, Shown};
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
    /// The last change. None: there never was a key, and none is needed.
    pub(crate) changes: Option<Change>,
    pub(crate) keys: HashMap<KeyId, Entry>,
}

/// A change of keys, told from every other: which it was, and what it alone was marked with. After a failover that lost commits a number
/// comes again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) number: u64,
    pub(crate) mark: Box<str>,
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

impl Known {
    /// Until when a key that was good is so, if it still is; without one, whether none is needed still.
    fn judge(&self, pass: Option<Pass>, now: Timestamp) -> Result<Option<Timestamp>, Denied> {
        match pass {
            None if self.changes.is_some() => Err(Denied::Needed),
            None => Ok(None),
            Some(pass) => {
                let entry = self.keys.get(&pass.id).ok_or(Refused::Unknown)?;
                entry.key.judge(&pass.hash, now)?;
                Ok(entry.key.good_until(&pass.hash))
            }
        }
    }
}

/// What a good key gives to whoever shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// What they may do, and until when what they showed is good: a replaced secret ends before its key.
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
            right: Right { expires_at: entry.key.good_until(&hash), ..entry.key.right },
            tenant: entry.tenant.clone(),
            pass: Pass { id: shown.id, hash },
        })
    }

    /// Whether a key that was good still is or, without one, whether none is needed still. Asked again after whatever let others change
    /// keys meanwhile, such as a body that came late.
    pub fn still_good(&self, pass: Option<Pass>) -> Result<(), Denied> {
        let now = self.clock.now();
        if pass.is_some() {
            self.check_read(now)?;
        }
        self.keyring.known().judge(pass, now).map(|_| ())
    }

    /// Waits until a key that was good is not any more, or, without one, until one is needed.
    pub async fn denied(&self, pass: Option<Pass>) -> Denied {
        let mut changed = self.keyring.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let until = match self.keyring.known().judge(pass, self.clock.now()) {
                Ok(until) => until,
                Err(denied) => return denied,
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
