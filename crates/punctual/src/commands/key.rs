//! `punctual key`: who may ask the server for what.
//!
//! Asks a server, like other commands, but for `create --data` and `create --store`: these write the key where the server keeps it, for
//! whoever has the machine and no key yet.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use punctual::wire::{Parts, Storage};
use punctual_api::key::{ALL_TENANTS, Key, KeyRotation, KeySpec, NewKey};
use punctual_api::read::Unread;
use punctual_api::{Duration, Time};
use punctual_domain::audit::Who;
use punctual_domain::key::{Right, Seal};
use punctual_engine::audit::{Act, Show, Thing};
use punctual_engine::{Engine, keys};
use punctual_schedule::Tzdb;

use super::output::Format;
use super::remote::{self, Paging, Remote};
use super::{moment, output, secret};
use crate::failure::{EXIT_CODES, Failure};

/// Create and revoke keys: who may ask the server for what
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Subcommand)]
enum Command {
    /// Create a key and show it, this once
    ///
    /// From the first key on the server asks everybody for one. It is for all tenants, or for the one that --tenant names.
    #[command(after_help = "Examples:
  punctual key create ops --role admin --data punctual-data --save ops.key
  punctual key create ops --role admin --store postgres://user@host/database --save ops.key
  punctual key create shop-workers --role worker --tenant shop --expires 720h --key-file ops.key

With --data no server may run on the directory, and with --store any number may: they follow within a second.")]
    Create {
        /// What people call it
        name: String,
        /// `admin`, `operator`, `viewer` or `worker`
        #[arg(long, value_name = "ROLE")]
        role: String,
        /// When it ends: a length such as `720h`, or a time [default: never]
        #[arg(long, value_name = "WHEN")]
        expires: Option<String>,
        /// Write the key into a new file that nobody else may read, and do not show it
        #[arg(long, value_name = "FILE")]
        save: Option<PathBuf>,
        /// Write it into this data directory instead of asking a server
        #[arg(long, value_name = "DIR", conflicts_with = "store")]
        data: Option<PathBuf>,
        /// Write it into this PostgreSQL database instead of asking a server; several with blanks between, as for `serve`
        #[arg(long, value_name = "ADDRESS", value_delimiter = ' ')]
        store: Vec<String>,
    },
    /// List keys, of all tenants or of the one that --tenant names
    List(Paging),
    /// Show a key, but not what proves it
    Get {
        /// Its id: the part between `pk_` and the next `_`
        id: String,
    },
    /// Take a key back, within a second on every node
    Revoke {
        /// Its id
        id: String,
    },
    /// Give a key a new secret and show it, this once
    Rotate {
        /// Its id
        id: String,
        /// How long the secret before stays good, as `1h` [default: it ends at once]
        #[arg(long, value_name = "LENGTH")]
        overlap: Option<Duration>,
        /// Write the key into a new file that nobody else may read, and do not show it
        #[arg(long, value_name = "FILE")]
        save: Option<PathBuf>,
    },
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    remote::run(execute(arguments))
}

async fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let remote = &arguments.remote;
    match &arguments.command {
        Command::Create { name, role, expires, save, data, store } => {
            let (expires_at, expires_after) = ends(expires.as_deref());
            let spec = KeySpec {
                name: Some(name.clone()),
                role: Some(role.clone()),
                tenant: None,
                expires_at,
                expires_after,
            };
            let file = save.as_deref().map(new_file).transpose()?;
            let storage = match (data, store.is_empty()) {
                (Some(directory), _) => Some(Storage::Embedded(directory.clone())),
                (None, false) => {
                    Some(Storage::Postgres(store.iter().map(punctual_store_postgres::Options::new).collect()))
                }
                (None, true) => None,
            };
            match storage {
                Some(storage) => {
                    let created = create_in(storage, &spec, remote.tenant()?.as_deref()).await?;
                    let text = serde_json::to_string(&created).context("write the key")?;
                    give(remote, created, &text, file)
                }
                None => {
                    let created = remote.client()?.create_key(&spec).await?;
                    let text = created.text().to_owned();
                    give(remote, created.value, &text, file)
                }
            }
        }
        Command::List(paging) => remote.show_list(remote.client()?.keys(None), paging, table).await,
        Command::Get { id } => remote.show(&remote.client()?.key(id).await?, page),
        Command::Revoke { id } => Ok(remote.client()?.revoke_key(id).await?),
        Command::Rotate { id, overlap, save } => {
            let file = save.as_deref().map(new_file).transpose()?;
            let rotated = remote.client()?.rotate_key(id, &KeyRotation { overlap: *overlap }).await?;
            let text = rotated.text().to_owned();
            give(remote, rotated.value, &text, file)
        }
    }
}

/// A length, or a time; what is neither is refused as a time.
fn ends(text: Option<&str>) -> (Option<Time>, Option<Duration>) {
    match text.map(|text| (text, text.parse::<Duration>())) {
        None => (None, None),
        Some((_, Ok(length))) => (None, Some(length)),
        Some((text, Err(_))) => (Some(Time::Text(text.into())), None),
    }
}

/// Makes a key where a server keeps it.
async fn create_in(storage: Storage, spec: &KeySpec, tenant: Option<&str>) -> Result<NewKey, Failure> {
    let parts = Parts::open(&storage, Arc::new(Tzdb::bundled())).await.map_err(|error| match error {
        punctual::Error::Database(error) => Failure::from(error),
        error => Failure::Other(
            anyhow::Error::from(error)
                .context("a server that runs on it makes keys itself: leave --data out and ask it"),
        ),
    })?;
    let engine = &parts.engine;
    let secret = match (&parts.postgres, &storage) {
        (Some(store), _) => secret::shared(store, secret::KEYS).await?,
        (None, Storage::Embedded(directory)) => secret::load(directory, secret::KEYS)?,
        (None, _) => return Err(Failure::Other(anyhow!("a store in memory keeps no keys"))),
    };
    engine.set_seal(Seal::of_secret(&secret.reveal()));
    let asked = spec.to_domain(engine.now()).map_err(unread)?;
    let failed = |error: punctual_engine::Error| Failure::Other(error.into());
    let id = match tenant.filter(|name| *name != ALL_TENANTS) {
        Some(name) => {
            let tenants = engine.tenants().await.map_err(failed)?;
            let found = tenants.iter().find(|tenant| tenant.name.as_str() == name);
            Some(found.ok_or_else(|| Failure::NotFound(format!("tenant `{name}` not found")))?.id)
        }
        None => None,
    };
    engine.read_keys().await.map_err(failed)?;
    let right = Right { role: asked.role, tenant: id, expires_at: asked.expires_at };
    let new = keys::NewKey { name: asked.name, right, created_by: "command line".into() };
    let acting = acting(engine, "command line");
    let (key, shown) = acting.create_key(new, &Right::ALL).await.map_err(failed)?;
    let tenant = tenant.filter(|_| id.is_some());
    Ok(NewKey { about: Key::new(&key, tenant, None, engine.now()), key: shown.reveal() })
}

/// The engine, acting for whoever has the store and needs no key.
pub(crate) fn acting(engine: &Engine, who: &str) -> Engine {
    let who = Who { key: None, name: who.into() };
    engine.acting(Act { who, from: None, request_id: None, show: Arc::new(ShowKeys(engine.now())) })
}

/// Shows keys to whoever reads the audit.
struct ShowKeys(Timestamp);

impl Show for ShowKeys {
    fn show(&self, thing: Thing<'_>) -> Option<Box<str>> {
        match thing {
            Thing::Key(key) => serde_json::to_string(&Key::new(key, None, None, self.0)).ok().map(Into::into),
            _ => None,
        }
    }
}

fn unread(unread: Unread) -> Failure {
    Failure::Input(match unread {
        Unread::Malformed(reason) => reason,
        Unread::Wrong(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    })
}

/// A file that is not there yet, made before the key is: one that cannot be kept is not asked for.
fn new_file(path: &Path) -> Result<(std::fs::File, &Path), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.map(|file| (file, path))
        .map_err(|error| Failure::Input(format!("--save {}: {error}", path.display())))
}

/// Shows a key, or writes it into its file.
fn give(
    remote: &Remote,
    created: NewKey,
    text: &str,
    file: Option<(std::fs::File, &Path)>,
) -> Result<(), Failure> {
    let NewKey { about, key } = created;
    let saved = match file {
        Some((mut file, path)) => {
            writeln!(file, "{key}")
                .and_then(|()| file.sync_all())
                .with_context(|| format!("write {}", path.display()))?;
            Some(path)
        }
        None => None,
    };
    match (remote.output, saved) {
        (Format::Json | Format::Yaml, None) => output::print(&output::machine(text, remote.output)?),
        (Format::Json | Format::Yaml, Some(_)) => {
            let about = serde_json::to_string(&about).context("write the key")?;
            output::print(&output::machine(&about, remote.output)?)
        }
        (Format::Table | Format::Wide, Some(path)) => output::print(&format!(
            "{}\nIt is in {}; use it with --key-file or PUNCTUAL_KEY_FILE.\n",
            page(&about, Timestamp::now()),
            path.display()
        )),
        (Format::Table | Format::Wide, None) => output::print(&format!(
            "{}\n{key}\n\nThis is the only time it is shown. Use it with PUNCTUAL_KEY, or from a file with --key-file.\n",
            page(&about, Timestamp::now())
        )),
    }
}

fn page(key: &Key, now: Timestamp) -> String {
    let mut facts = output::facts();
    let mut fact = |name: &str, value: String| {
        facts.add_row(vec![name.to_string(), value]);
    };
    fact("key", key.id.clone());
    fact("name", output::safe(&key.name));
    fact("role", key.role.clone());
    fact("tenant", whose(key));
    fact("state", key.state.clone());
    fact("created", format!("{} by {}", moment::full(key.created_at, now), output::safe(&key.created_by)));
    for (name, at) in [
        ("rotated", key.rotated_at),
        ("old secret until", key.old_until),
        ("expires", key.expires_at),
        ("revoked", key.revoked_at),
        ("last used", key.last_used_at),
    ] {
        if let Some(at) = at {
            fact(name, moment::full(at, now));
        }
    }
    output::lines(&facts)
}

fn table(keys: &[&Key], now: Timestamp) -> String {
    let mut table = output::table(&["KEY", "NAME", "ROLE", "TENANT", "STATE", "EXPIRES", "LAST USED"]);
    for key in keys {
        let relative =
            |at: Option<Timestamp>| at.map(|at| moment::relative(at, now)).unwrap_or_else(|| "-".into());
        table.add_row(vec![
            key.id.clone(),
            output::safe(&key.name),
            key.role.clone(),
            whose(key),
            key.state.clone(),
            relative(key.expires_at),
            relative(key.last_used_at),
        ]);
    }
    output::lines(&table)
}

fn whose(key: &Key) -> String {
    key.tenant.clone().unwrap_or_else(|| "all".into())
}
