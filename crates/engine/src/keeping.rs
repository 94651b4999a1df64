//! The duties of keys: one keeps what this node knows current, one writes down what it saw.
//!
//! The first asks for the count of changes a few times a second where others may change keys, and now and then where nobody else does. The
//! second runs every few seconds. Promise: nothing but the reading of keys holds up a revocation.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use crate::engine::Engine;
use crate::error::Error;
use crate::keyring::BELIEVED;
use crate::pass::{Duty, Next, chain};

/// How often the store is asked whether others changed keys: twice in the second after which a change counts everywhere.
const LOOK_EVERY: SignedDuration = SignedDuration::from_millis(400);

/// How often it is asked where nobody else changes keys, in case that a change was not heard of.
const LOOK_ALONE_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// How often it is looked which keys were used.
const NOTE_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// How often keys are looked for that have been over for long.
const FORGET_EVERY: SignedDuration = SignedDuration::from_hours(1);

/// The duty that keeps what this node knows current. It does nothing else: a write that hangs would hold up a revocation.
pub(crate) struct Keeping {
    engine: Arc<Engine>,
    /// The store could not be asked.
    is_cut_off: bool,
}

impl Keeping {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Keeping { engine, is_cut_off: false }
    }
}

#[async_trait]
impl Duty for Keeping {
    const NAME: &'static str = "keys";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        let keyring = &self.engine.keyring;
        // Taken before keys are read: who goes away meanwhile is not forgotten.
        let unread = keyring.unread.swap(0, Ordering::SeqCst);
        match self.engine.refresh_keys().await {
            Ok(()) => {
                keyring.unread.fetch_max(unread.saturating_sub(1), Ordering::SeqCst);
                if std::mem::take(&mut self.is_cut_off) {
                    tracing::info!("keys can be read again");
                }
            }
            // Asked again as soon as ever: a revocation must not wait for a pause that has grown.
            Err(error) => {
                keyring.unread.fetch_max(unread, Ordering::SeqCst);
                if !std::mem::replace(&mut self.is_cut_off, true) {
                    let minutes = BELIEVED.as_mins();
                    tracing::warn!(error = %chain(&error), minutes, "keys cannot be read; those that are known stay good for so long");
                }
            }
        }
        let is_asked = self.engine.store.is_shared() || keyring.unread.load(Ordering::SeqCst) > 0;
        Ok(Next::At(now + if is_asked { LOOK_EVERY } else { LOOK_ALONE_EVERY }))
    }
}

/// The duty that writes down which keys were used, and forgets those that have been over for long. Nobody waits for it.
pub(crate) struct Noting {
    engine: Arc<Engine>,
    forget_at: Option<Timestamp>,
}

impl Noting {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Noting { engine, forget_at: None }
    }
}

#[async_trait]
impl Duty for Noting {
    const NAME: &'static str = "key_uses";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        if let Err(error) = self.engine.write_key_uses().await {
            tracing::debug!(error = %chain(&error), "when keys were used is written later");
        }
        if self.forget_at.is_none_or(|at| at <= now) {
            self.forget_at = Some(now + FORGET_EVERY);
            if let Err(error) = self.engine.forget_keys().await {
                tracing::debug!(error = %chain(&error), "old keys are forgotten later");
            }
        }
        Ok(Next::At(now + NOTE_EVERY))
    }
}
