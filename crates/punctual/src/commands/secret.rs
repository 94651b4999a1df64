//! `punctual secret`: what targets name as `{{ secret.NAME }}` and nobody sees.
//!
//! A value comes from standard input or a file, never from an argument: arguments are in the history of shells and in the list of
//! processes.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use jiff::Timestamp;
use punctual_api::secret::{Secret, SecretSpec, SecretText, SecretsRotated};
use punctual_client::Client;
use punctual_domain::secret::VALUE_MAX;

use super::asking::Ask;
use super::remote::{Paging, Remote};
use super::{moment, output};
use crate::failure::Failure;

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Set a secret to what standard input or a file says
    ///
    /// A line break at the very end is not part of the value. Targets use it as {{ secret.NAME }} in headers, in the path and query of a
    /// URL and in the payload.
    #[command(after_help = "Examples:
  printf %s \"$TOKEN\" | punctual secret set shop-token
  punctual secret set client-key --file client.key")]
    Set {
        /// Its name: 1 to 64 letters, digits and any of . _ -
        name: String,
        /// A file with the value, or - for standard input
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        file: PathBuf,
        /// Only if it still has this version
        #[arg(long, value_name = "N")]
        version: Option<u32>,
    },
    /// List secrets by name, never what they say
    List {
        #[command(flatten)]
        paging: Paging,
    },
    /// Delete a secret; jobs that name it fail from then on
    Delete {
        /// Its name
        name: String,
        /// Only if it still has this version
        #[arg(long, value_name = "N")]
        version: Option<u32>,
    },
    /// Seal all secrets with the newest master key
    ///
    /// Put the new key on the first line of the file of --secrets-key-file, the old one below it, on every node. When this says that none
    /// could not be read, the old line may go.
    RotateKey,
}

impl Ask for Command {
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure> {
        match self {
            Command::Set { name, file, version } => {
                let spec = SecretSpec { value: Some(SecretText(value(file)?)) };
                remote.show(&client.put_secret(name, &spec, *version).await?, page)
            }
            Command::List { paging } => remote.show_list(client.secrets(), paging, table).await,
            Command::Delete { name, version } => Ok(client.delete_secret(name, *version).await?),
            Command::RotateKey => {
                let rotated = client.rotate_secrets_key().await?;
                remote.show(&rotated, told)?;
                match rotated.value.unreadable {
                    0 => Ok(()),
                    count => Err(Failure::Other(anyhow::anyhow!(
                        "{count} secrets could not be read and are sealed as they were; keep the old keys"
                    ))),
                }
            }
        }
    }
}

/// The value, without a line break at its end.
fn value(file: &Path) -> Result<String, Failure> {
    let wrong = |reason: String| Failure::Input(format!("--file {}: {reason}", file.display()));
    let mut bytes = Vec::new();
    // One more than may be, to see that it is too long.
    let most = VALUE_MAX as u64 + 2;
    let read = match file.to_str() {
        Some("-") => {
            if std::io::stdin().is_terminal() {
                eprintln!("Type the value, then Ctrl-D on a line of its own:");
            }
            std::io::stdin().lock().take(most).read_to_end(&mut bytes)
        }
        _ => std::fs::File::open(file).and_then(|file| file.take(most).read_to_end(&mut bytes)),
    };
    read.map_err(|error| wrong(error.to_string()))?;
    let mut text = String::from_utf8(bytes).map_err(|_| wrong("a secret is text in UTF-8".into()))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

fn page(secret: &Secret, now: Timestamp) -> String {
    let mut facts = output::facts();
    facts.add_row(vec!["secret".to_string(), secret.name.clone()]);
    facts.add_row(vec!["version".to_string(), secret.version.to_string()]);
    let set = format!("{} by {}", moment::full(secret.set_at, now), output::safe(&secret.set_by));
    facts.add_row(vec!["set".to_string(), set]);
    facts.add_row(vec!["master key".to_string(), secret.master_key.clone()]);
    output::lines(&facts)
}

fn table(secrets: &[&Secret], now: Timestamp) -> String {
    let mut table = output::table(&["SECRET", "SET", "BY", "MASTER KEY", "VERSION"]);
    for secret in secrets {
        table.add_row(vec![
            output::safe(&secret.name),
            moment::relative(secret.set_at, now),
            output::safe(&secret.set_by),
            secret.master_key.clone(),
            secret.version.to_string(),
        ]);
    }
    output::lines(&table)
}

fn told(rotated: &SecretsRotated, _: Timestamp) -> String {
    let mut text = format!(
        "Master key {}: {} sealed anew, {} were already, {} could not be read.\n",
        rotated.master_key, rotated.resealed, rotated.already, rotated.unreadable
    );
    for one in &rotated.examples {
        text.push_str(&format!("  {}: {}\n", output::safe(&one.name), output::safe(&one.reason)));
    }
    text
}
