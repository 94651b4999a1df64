//! The secrets of an installation: made at the first start, kept in the data directory or in the database that all
//! nodes share. One signs callbacks, and receivers know it; one signs the tokens under which they report, and one hashes keys of the
//! API: these nobody knows.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use punctual_store_postgres::Several;
use punctual_worker::targets::http::Secret;

/// The file's name, and that of the setting, of the one that signs callbacks.
pub(super) const SIGNING: &str = "signing-secret";

/// Of the one that signs tokens.
pub(super) const TOKENS: &str = "token-secret";

/// Of the one that hashes keys.
pub(super) const KEYS: &str = "key-secret";

/// All of them.
pub(super) const ALL: [&str; 3] = [SIGNING, TOKENS, KEYS];

/// Reads a secret, or makes one.
pub(super) fn load(data: &Path, name: &str) -> Result<Secret> {
    match read(data, name)? {
        Some(text) => Secret::parse(&text).with_context(|| format!("read {}", data.join(name).display())),
        None => {
            let secret = random()?;
            write(data, name, &secret.reveal())?;
            Ok(secret)
        }
    }
}

/// The text of a secret, if there is one.
pub(super) fn read(data: &Path, name: &str) -> Result<Option<String>> {
    let path = data.join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().into())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

/// A secret of a cluster: the first node to start makes it.
pub(super) async fn shared(store: &Several, name: &str) -> Result<Secret> {
    let text = store
        .setting(name, random()?.reveal().as_bytes())
        .await
        .with_context(|| format!("read the {name}"))?;
    let text = String::from_utf8(text).with_context(|| format!("read the {name}"))?;
    Ok(Secret::parse(&text)?)
}

fn random() -> Result<Secret> {
    let mut bytes = [0; 32];
    fs::File::open("/dev/urandom")
        .and_then(|mut random| std::io::Read::read_exact(&mut random, &mut bytes))
        .context("read random bytes")?;
    Ok(Secret::from_random(&bytes)?)
}

/// Writes a secret.
pub(super) fn write(data: &Path, name: &str, text: &str) -> Result<()> {
    let path = data.join(name);
    // Complete or not there: a half-written secret would sign nothing that anybody can verify.
    let temporary = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        fs::rename(&temporary, &path)
    };
    write().with_context(|| format!("write {}", path.display()))
}
