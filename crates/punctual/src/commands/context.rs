//! `punctual context`: servers under names, so that nobody writes addresses and keys again and again.
//!
//! A context is one whole: a server, and what is told to that server. Promise: the key of a context goes to its own server and to no other,
//! so whoever names another server has no context. Kept in `$XDG_CONFIG_HOME/punctual/config.toml`, for its owner alone to read.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use punctual_client::{Key, Server};
use serde::{Deserialize, Serialize};

use super::output;
use crate::failure::{EXIT_CODES, Failure};

/// Keep servers under names: which one, which tenant, which key
#[derive(Args)]
#[command(after_help = format!("Examples:
  punctual context add prod https://punctual.example.com --key-file ~/.secrets/prod.key --tenant billing
  punctual context use prod
  punctual job list --context staging

What counts: --context NAME; or else --server or PUNCTUAL_SERVER, and then no context; or else PUNCTUAL_CONTEXT, or the
one in use; or else http://127.0.0.1:7171.

{EXIT_CODES}"))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Keep a server under a name, or change it; the first one is in use from then on
    Add {
        /// Its name
        name: String,
        /// Where the server is
        url: String,
        /// The file with the key for it
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// The tenant [default: `default`]
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// A file of root certificates (PEM) to trust besides the public ones
        #[arg(long, value_name = "FILE")]
        ca_file: Option<PathBuf>,
    },
    /// Ask this one from now on
    Use {
        /// Its name
        name: String,
    },
    /// List all of them; a star marks the one in use
    List,
    /// Show one, or the one in use
    Show {
        /// Its name
        name: Option<String>,
    },
    /// Forget one; its key file stays
    Delete {
        /// Its name
        name: String,
    },
}

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The one in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    contexts: BTreeMap<String, Context>,
}

/// A server, and what is told to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Context {
    server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
}

/// Whom to ask, and as whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) server: String,
    pub(crate) tenant: Option<String>,
    pub(crate) ca_file: Option<PathBuf>,
    key: Option<KeyFrom>,
}

/// Where a key is. It is never an argument, which others on the machine could read.
#[derive(Clone, PartialEq, Eq)]
enum KeyFrom {
    /// Said by a flag, the environment or the context, each of which is named if the file is of no use.
    File { said_by: &'static str, path: PathBuf },
    /// The environment has the key itself.
    Environment(String),
}

impl fmt::Debug for KeyFrom {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyFrom::File { said_by, path } => write!(f, "{said_by} {}", path.display()),
            KeyFrom::Environment(_) => f.write_str("PUNCTUAL_KEY"),
        }
    }
}

/// What was said on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) server: Option<String>,
    pub(crate) context: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) ca_file: Option<PathBuf>,
}

const DEFAULT_SERVER: &str = "http://127.0.0.1:7171";

/// Decides whom to ask. The file is read only if a context may be meant.
pub(crate) fn settings(
    flags: &Flags,
    environment: &dyn Fn(&str) -> Option<String>,
    load: impl FnOnce() -> Result<Config, Failure>,
) -> Result<Settings, Failure> {
    // Somebody who names a context means it whole: what is left over in the environment is for another server.
    let of_environment = |name: &str| if flags.context.is_some() { None } else { environment(name) };
    let server = flags.server.clone().or_else(|| of_environment("PUNCTUAL_SERVER"));
    let context = match &server {
        Some(_) => None,
        None => {
            let config = load()?;
            let named = flags.context.clone().or_else(|| environment("PUNCTUAL_CONTEXT"));
            match named.as_ref().or(config.current.as_ref()) {
                Some(name) => Some(config.find(name)?.clone()),
                None => None,
            }
        }
    };
    let of_context = context.as_ref();
    Ok(Settings {
        tenant: (flags.tenant.clone())
            .or_else(|| of_environment("PUNCTUAL_TENANT"))
            .or_else(|| of_context?.tenant.clone()),
        ca_file: (flags.ca_file.clone())
            .or_else(|| of_environment("PUNCTUAL_CA_FILE").map(PathBuf::from))
            .or_else(|| of_context?.ca_file.clone()),
        key: (flags.key_file.clone().map(|path| KeyFrom::File { said_by: "--key-file", path }))
            .or_else(|| of_environment("PUNCTUAL_KEY").map(KeyFrom::Environment))
            .or_else(|| {
                let path = of_environment("PUNCTUAL_KEY_FILE")?.into();
                Some(KeyFrom::File { said_by: "PUNCTUAL_KEY_FILE", path })
            })
            .or_else(|| of_context?.key()),
        server: server.or(context.map(|context| context.server)).unwrap_or_else(|| DEFAULT_SERVER.into()),
    })
}

impl Settings {
    /// The key to show, if there is one.
    pub(crate) fn key(&self) -> Result<Option<Key>, Failure> {
        let (place, text) = match &self.key {
            None => return Ok(None),
            Some(KeyFrom::Environment(text)) => ("PUNCTUAL_KEY".into(), Ok(text.clone())),
            Some(KeyFrom::File { said_by, path }) => {
                (format!("{said_by} {}", path.display()), fs::read_to_string(path))
            }
        };
        let wrong = |reason: String| Failure::Input(format!("{place}: {reason}"));
        let text = text.map_err(|error| wrong(error.to_string()))?;
        text.parse().map(Some).map_err(|error: punctual_client::Error| wrong(error.to_string()))
    }
}

impl Context {
    fn key(&self) -> Option<KeyFrom> {
        let path = self.key_file.clone()?;
        Some(KeyFrom::File { said_by: "the key file of the context,", path })
    }
}

/// Where contexts are kept.
pub(crate) fn path() -> PathBuf {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = of("XDG_CONFIG_HOME").or_else(|| Some(of("HOME")?.join(".config")));
    home.unwrap_or_else(|| PathBuf::from(".config")).join("punctual").join("config.toml")
}

impl Config {
    /// Reads the file; nothing is kept if there is none.
    pub(crate) fn load(path: &Path) -> Result<Config, Failure> {
        let wrong = |reason: String| Failure::Input(format!("{}: {reason}", path.display()));
        match fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text).map_err(|error| wrong(error.to_string())),
            Err(error) if is_missing(&error) => Ok(Config::default()),
            Err(error) => Err(wrong(error.to_string())),
        }
    }

    /// Writes the file, whole or not at all, for its owner alone.
    fn save(&self, path: &Path) -> Result<(), Failure> {
        let unwritable = || format!("write {}", path.display());
        let folder = path.parent().unwrap_or(Path::new("."));
        let text = toml::to_string(self).with_context(unwritable)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(unwritable)?;
        let mut partial = tempfile::NamedTempFile::new_in(folder).with_context(unwritable)?;
        partial.as_file().set_permissions(fs::Permissions::from_mode(0o600)).with_context(unwritable)?;
        partial.write_all(text.as_bytes()).with_context(unwritable)?;
        partial.as_file().sync_all().with_context(unwritable)?;
        partial.persist(path).with_context(unwritable)?;
        Ok(())
    }

    fn find(&self, name: &str) -> Result<&Context, Failure> {
        self.contexts.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let hint = match (punctual_api::read::nearest(name, &known), known.is_empty()) {
                (Some(near), _) => format!("did you mean `{near}`?"),
                (None, true) => "add it with `punctual context add NAME URL`".into(),
                (None, false) => format!("there are {}", known.join(", ")),
            };
            Failure::NotFound(format!("no context `{name}`; {hint}"))
        })
    }
}

/// Not there, or in a folder that is none.
fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = path();
    let mut config = Config::load(&path)?;
    match &arguments.command {
        Command::Add { name, url, key_file, tenant, ca_file } => {
            if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return Err(Failure::Input("the name of a context is one word".into()));
            }
            let server: Server = url.parse()?;
            let context = Context {
                server: server.to_string(),
                tenant: tenant.clone(),
                key_file: key_file.as_deref().map(whole).transpose()?,
                ca_file: ca_file.as_deref().map(whole).transpose()?,
            };
            // A key that is not there is told now, not when it is needed.
            Settings { key: context.key(), ..Settings::default() }.key()?;
            config.contexts.insert(name.clone(), context);
            let is_first = config.current.is_none();
            config.current.get_or_insert_with(|| name.clone());
            config.save(&path)?;
            let used = if is_first { ", which is in use" } else { "" };
            output::print(&format!("context {name} is {server}{used}\n"))
        }
        Command::Use { name } => {
            let server = config.find(name)?.server.clone();
            config.current = Some(name.clone());
            config.save(&path)?;
            output::print(&format!("context {name} is in use: {server}\n"))
        }
        Command::List => {
            let mut table = output::table(&["", "CONTEXT", "SERVER", "TENANT", "KEY FILE"]);
            for (name, context) in &config.contexts {
                let star = if config.current.as_ref() == Some(name) { "*" } else { "" };
                let file = context.key_file.as_ref().map(|path| path.display().to_string());
                let tenant = context.tenant.clone().unwrap_or_else(|| "default".into());
                let row =
                    [star.into(), name.clone(), context.server.clone(), tenant, file.unwrap_or_default()];
                table.add_row(row.map(|text| output::safe(&text)));
            }
            output::print(&output::lines(&table))
        }
        Command::Show { name } => {
            let way_out = "none is in use; choose one with `punctual context use NAME`";
            let Some(name) = name.clone().or(config.current.clone()) else {
                return Err(Failure::NotFound(way_out.into()));
            };
            let context = config.find(&name)?;
            let mut facts = output::Facts::new();
            let mut fact = |name: &str, value: Option<String>| facts.add(name, value);
            let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
            fact("context", Some(name.clone()));
            fact("server", Some(context.server.clone()));
            fact("tenant", Some(context.tenant.clone().unwrap_or_else(|| "default".into())));
            fact("key file", shown(&context.key_file));
            fact("ca file", shown(&context.ca_file));
            fact("in use", Some(if config.current.as_ref() == Some(&name) { "yes" } else { "no" }.into()));
            output::print(&facts.lines())
        }
        Command::Delete { name } => {
            config.find(name)?;
            config.contexts.remove(name);
            if config.current.as_ref() == Some(name) {
                config.current = None;
            }
            config.save(&path)?;
            output::print(&format!("deleted context {name}\n"))
        }
    }
}

/// A path that means the same from every folder.
fn whole(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::Input(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let text = r#"
            current = "prod"
            [contexts.prod]
            server = "https://prod"
            tenant = "billing"
            key_file = "/key"
            [contexts.staging]
            server = "https://staging"
        "#;
        toml::from_str(text).expect("a config")
    }

    /// The server, tenant and whether there is a key, from flags and an environment of `name=value`.
    fn chosen(
        flags: &[(&str, &str)],
        environment: &[(&str, &str)],
        config: Config,
    ) -> Result<String, Failure> {
        let find = |pairs: &[(&str, &str)], name: &str| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        };
        let said = Flags {
            server: find(flags, "server"),
            context: find(flags, "context"),
            tenant: find(flags, "tenant"),
            key_file: find(flags, "key_file").map(PathBuf::from),
            ca_file: None,
        };
        let settings = settings(&said, &|name| find(environment, name), || Ok(config))?;
        let key = match &settings.key {
            None => String::new(),
            Some(KeyFrom::Environment(key)) => format!(" {key}"),
            Some(KeyFrom::File { path, .. }) => format!(" {}", path.display()),
        };
        Ok(format!("{} {}{key}", settings.server, settings.tenant.as_deref().unwrap_or("-")))
    }

    #[test]
    fn what_is_nearer_counts_and_a_key_goes_to_its_own_server_only() {
        let (context, server, tenant) = ("PUNCTUAL_CONTEXT", "PUNCTUAL_SERVER", "PUNCTUAL_TENANT");
        for (flags, environment, expected) in [
            (&[][..], &[][..], "https://prod billing /key"),
            (&[("tenant", "t")], &[], "https://prod t /key"),
            (&[("context", "staging")], &[], "https://staging -"),
            (&[], &[(context, "staging")], "https://staging -"),
            (&[], &[(context, "staging"), (tenant, "t")], "https://staging t"),
            (&[("context", "prod")], &[(context, "staging")], "https://prod billing /key"),
            (&[("context", "staging")], &[(server, "http://s"), (tenant, "t")], "https://staging -"),
            (&[], &[(server, "http://s")], "http://s -"),
            (&[], &[(server, "http://s"), (context, "prod"), (tenant, "t")], "http://s t"),
            (&[("server", "http://f")], &[(server, "http://s")], "http://f -"),
            (&[("key_file", "/mine")], &[("PUNCTUAL_KEY", "k")], "https://prod billing /mine"),
            (&[], &[("PUNCTUAL_KEY", "k"), ("PUNCTUAL_KEY_FILE", "/other")], "https://prod billing k"),
            (&[], &[(server, "http://s"), ("PUNCTUAL_KEY_FILE", "/other")], "http://s - /other"),
            (&[("context", "staging")], &[("PUNCTUAL_KEY", "k")], "https://staging -"),
        ] {
            let said = chosen(flags, environment, config()).expect("settings");
            assert_eq!(said, expected, "{flags:?} {environment:?}");
        }
        assert_eq!(chosen(&[], &[], Config::default()).expect("settings"), "http://127.0.0.1:7171 -");
    }

    #[test]
    fn a_key_is_not_printed_by_accident() {
        let environment = |name: &str| (name == "PUNCTUAL_KEY").then(|| "pk_1_5ec2e7".to_string());
        let settings = settings(&Flags::default(), &environment, || Ok(Config::default())).expect("settings");
        let printed = format!("{settings:?}");
        assert!(printed.contains("PUNCTUAL_KEY") && !printed.contains("5ec2e7"), "{printed}");
    }

    #[test]
    fn a_context_that_is_not_there_names_the_nearest() {
        for (name, words) in [("prd", "did you mean `prod`?"), ("elsewhere", "there are prod, staging")] {
            let Err(Failure::NotFound(message)) = chosen(&[("context", name)], &[], config()) else {
                panic!("{name} is not there")
            };
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn the_file_is_for_its_owner_alone_and_reads_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("punctual/config.toml");
        assert_eq!(Config::load(&path).expect("nothing yet"), Config::default());
        config().save(&path).expect("written");
        assert_eq!(Config::load(&path).expect("read"), config());
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(&path, "contexts = 7").expect("written");
        let Err(Failure::Input(message)) = Config::load(&path) else { panic!("refused") };
        assert!(message.contains("config.toml"), "{message}");
    }
}
