//! Where the master keys of secrets come from: a file, or what a command prints.
//!
//! Read when the server starts, so that a wrong setting is told at once, and again whenever the engine needs a key that it does not know.
//! Promise: neither a key nor anything else that was read is repeated in a message.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use async_trait::async_trait;
use punctual_domain::envelope::MasterKeys;
use punctual_engine::Engine;
use punctual_engine::secrets::KeySource;
use tokio::io::AsyncReadExt as _;

use crate::config::Config;

/// A KMS answers within a second; one that hangs must not hang a call.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// Sixteen keys with comments fit.
const BYTES_MAX: u64 = 64 * 1024;

#[derive(Debug)]
enum Source {
    File(PathBuf),
    /// For the shell.
    Command(String),
}

/// Gives the engine its master keys, if the settings name any, and says which secrets it cannot open.
pub(super) async fn prepare(engine: &Engine, config: &Config) -> Result<()> {
    let source = match (&config.secrets_key_file, &config.secrets_key_command) {
        (Some(path), _) => Some(Source::File(path.clone())),
        (None, Some(command)) => Some(Source::Command(command.clone())),
        (None, None) => None,
    };
    if let Some(source) = source {
        let text = source.read().await.map_err(|reason| anyhow!(reason))?;
        text.parse::<MasterKeys>().with_context(|| source.name())?;
        engine.set_key_source(Arc::new(source));
    }
    let unreadable = engine.unreadable_secrets().await?;
    if unreadable > 0 {
        tracing::warn!(
            unreadable,
            "secrets cannot be opened by this node: their master key is not in --secrets-key-file or --secrets-key-command"
        );
    }
    Ok(())
}

impl Source {
    fn name(&self) -> String {
        match self {
            Source::File(path) => format!("secrets-key-file: {}", path.display()),
            Source::Command(_) => "secrets-key-command".into(),
        }
    }

    async fn output(command: &str) -> std::io::Result<Result<Vec<u8>, String>> {
        let mut child = tokio::process::Command::new("/bin/sh")
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // What it says of itself belongs to whoever reads the log; it is not ours to keep.
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()?;
        let mut bytes = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(BYTES_MAX).read_to_end(&mut bytes).await?;
        }
        let status = child.wait().await?;
        Ok(if status.success() { Ok(bytes) } else { Err(format!("it ended with {status}")) })
    }
}

#[async_trait]
impl KeySource for Source {
    async fn read(&self) -> Result<String, String> {
        let wrong = |reason: String| format!("{}: {reason}", self.name());
        let bytes = match self {
            Source::File(path) => tokio::fs::read(path).await.map_err(|error| wrong(error.to_string()))?,
            Source::Command(command) => {
                let output = tokio::time::timeout(COMMAND_TIMEOUT, Source::output(command)).await;
                let output = output.map_err(|_| wrong(format!("no answer within {COMMAND_TIMEOUT:?}")))?;
                output.map_err(|error| wrong(error.to_string()))?.map_err(wrong)?
            }
        };
        String::from_utf8(bytes).map_err(|_| wrong("it is not text".into()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_that_fails_is_told_without_what_it_printed() {
        let source = Source::Command("echo hunter2; exit 3".into());
        let reason = source.read().await.unwrap_err();
        assert!(reason.contains("exit status: 3") && !reason.contains("hunter2"), "{reason}");
        let source = Source::Command("printf abc".into());
        assert_eq!(source.read().await.unwrap(), "abc");
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_is_named() {
        let reason = Source::File("/nowhere/keys".into()).read().await.unwrap_err();
        assert!(reason.contains("/nowhere/keys"), "{reason}");
    }
}
