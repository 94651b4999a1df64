//! The secret that signs callbacks: made at the first start, kept in the data directory or in the database that all
//! nodes share.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use punctual_store_postgres::Postgres;
use punctual_worker::targets::http::Secret;

/// The file's name.
const FILE: &str = "signing-secret";

/// Reads the secret, or makes one.
pub(super) fn load(data: &Path) -> Result<Secret> {
    let path = data.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => Secret::parse(text.trim()).with_context(|| format!("read {}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => make(&path),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

/// The secret of a cluster: the first node to start makes it.
pub(super) async fn shared(store: &Postgres) -> Result<Secret> {
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

fn make(path: &Path) -> Result<Secret> {
    let secret = random()?;
    // Complete or not there: a half-written secret would sign nothing that anybody can verify.
    let temporary = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        writeln!(file, "{}", secret.reveal())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().with_context(|| format!("write {}", path.display()))?;
    Ok(secret)
}
