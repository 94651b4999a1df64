//! The secret that signs callbacks: made at the first start, kept in the data directory or in the database that all
//! nodes share.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use punctual_store_postgres::Several;
use punctual_worker::targets::http::Secret;

/// The file's name, and that of the setting.
pub(super) const FILE: &str = "signing-secret";

/// Reads the secret, or makes one.
pub(super) fn load(data: &Path) -> Result<Secret> {
    match read(data)? {
        Some(text) => Secret::parse(&text).with_context(|| format!("read {}", data.join(FILE).display())),
        None => {
            let secret = random()?;
            write(data, &secret.reveal())?;
            Ok(secret)
        }
    }
}

/// The text of the secret, if there is one.
pub(super) fn read(data: &Path) -> Result<Option<String>> {
    let path = data.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().into())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

/// The secret of a cluster: the first node to start makes it.
pub(super) async fn shared(store: &Several) -> Result<Secret> {
    let text = store.setting(FILE, random()?.reveal().as_bytes()).await.context("read the signing secret")?;
    let text = String::from_utf8(text).context("read the signing secret")?;
    Ok(Secret::parse(&text)?)
}

fn random() -> Result<Secret> {
    let mut bytes = [0; 32];
    fs::File::open("/dev/urandom")
        .and_then(|mut random| std::io::Read::read_exact(&mut random, &mut bytes))
        .context("read random bytes")?;
    Ok(Secret::from_random(&bytes)?)
}

/// Writes the secret.
pub(super) fn write(data: &Path, text: &str) -> Result<()> {
    let path = data.join(FILE);
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
