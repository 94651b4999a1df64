//! Who is let in from the start: what hashes keys, the key of the operator's file, and whether others may call at all.
//!
//! Runs once, when the store is open and before anybody is served. Promise: an address that others can reach is not served without keys.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use punctual_domain::key::{Right, Seal, Shown};
use punctual_engine::Engine;
use punctual_engine::keys::{NewKey, OF_FILE};
use punctual_worker::targets::http::Secret;

use crate::config::Config;

/// Others could call, and nobody could tell who they are.
#[derive(Debug, thiserror::Error)]
#[error(
    "listen: `{0}` can be reached by others, and there is no key yet; create one with `punctual key create NAME --role admin` \
     and --data or --store, or give one with --admin-key-file; or listen on 127.0.0.1"
)]
pub(super) struct NoKey(SocketAddr);

/// Brings keys into force as the settings say.
pub(super) async fn prepare(
    engine: &Engine,
    config: &Config,
    address: SocketAddr,
    secret: &Secret,
) -> Result<()> {
    engine.set_seal(Seal::of_secret(&secret.reveal()));
    match &config.admin_key_file {
        Some(path) => ensure(engine, path).await?,
        None => engine.read_keys().await?,
    }
    let has_keys = engine.are_keys_needed().map_err(anyhow::Error::from)?;
    match has_keys || address.ip().is_loopback() {
        true => Ok(()),
        false => Err(NoKey(address).into()),
    }
}

async fn ensure(engine: &Engine, path: &Path) -> Result<()> {
    let place = || format!("admin-key-file: {}", path.display());
    let text = std::fs::read_to_string(path).with_context(place)?;
    let shown: Shown = text.trim().parse().with_context(|| {
        format!(
            "{}: this is no key; `printf 'pk_%s_%s\\n' $(openssl rand -hex 8) $(openssl rand -hex 32)` makes one",
            place()
        )
    })?;
    let new = NewKey { name: "admin-key-file".into(), right: Right::ALL, created_by: OF_FILE.into() };
    let acting = crate::commands::key::acting(engine, OF_FILE);
    let key = acting.ensure_key(&shown, new).await.map_err(|error| match error {
        punctual_engine::Error::KeyRefused(punctual_domain::key::Refused::Unknown) => {
            anyhow!(
                "{}: key {} is there with another secret; put a key with an id of its own into the file",
                place(),
                shown.id
            )
        }
        error @ (punctual_engine::Error::KeyRefused(_) | punctual_engine::Error::KeyTooWeak { .. }) => {
            anyhow!("{}: {error}; put a new key into the file, or leave the setting out", place())
        }
        error => anyhow::Error::from(error).context(place()),
    })?;
    tracing::info!(key = %key.id, "the admin key of the file is there");
    Ok(())
}
