//! The settings of a server: flags, then environment variables, then a file, then defaults.
//!
//! Promise: every setting has one name in all four places; an unknown one in the file is an error that names it; what
//! is in force can be printed.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use punctual_domain::policy::backlog::{self, Caps};
use punctual_domain::{Labels, Roles};
use punctual_store_postgres::Hints;
use punctual_worker::targets::http::Policy;
use punctual_worker::targets::mail::Mail;
use serde::Deserialize;

use crate::failure::Failure;

/// What a server can be told. Each flag is also an environment variable, and a line `name = value` of the file.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Settings {
    /// Where to listen [default: 127.0.0.1:7171].
    #[arg(long, env = "PUNCTUAL_LISTEN", value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The data directory; created if it is not there [default: punctual-data].
    #[arg(long, env = "PUNCTUAL_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// A PostgreSQL database, shared by all nodes of a cluster, instead of the data directory:
    /// postgres://user@host/database; with standbys postgres://user@host1,host2/database. Given more than once, or
    /// several with blanks between, for shards that live in several databases.
    #[arg(long, env = "PUNCTUAL_STORE", value_name = "ADDRESS", value_delimiter = ' ')]
    #[serde(deserialize_with = "one_or_several")]
    store: Option<Vec<String>>,
    /// A standby of the database, from which lists of jobs, runs and operations are read while it is at most 5 seconds
    /// behind. Given more than once, or several with blanks between, for several databases.
    #[arg(long, env = "PUNCTUAL_REPLICA", value_name = "ADDRESS", value_delimiter = ' ')]
    #[serde(deserialize_with = "one_or_several")]
    replica: Option<Vec<String>>,
    /// Start only if the schema of the database is up to date, instead of bringing it there: `punctual migrate up` does.
    #[arg(long, env = "PUNCTUAL_NO_MIGRATE", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    no_migrate: Option<bool>,
    /// A time zone database to use instead of the system's: a directory, or `bundled`.
    #[arg(long, env = "PUNCTUAL_TZDATA", value_name = "DIR")]
    tzdata: Option<PathBuf>,
    /// How the log is written: `pretty` for people, `json` for programs [default: pretty on a terminal].
    #[arg(long, env = "PUNCTUAL_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// What is logged, as `info` or `punctual_engine=debug` [default: info].
    #[arg(long, env = "PUNCTUAL_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// Attempts at a time [default: 4096].
    #[arg(long, env = "PUNCTUAL_CONCURRENCY", value_name = "N")]
    concurrency: Option<usize>,
    /// Seconds without a sign of life after which a worker's attempts go to others [default: 15].
    #[arg(long, env = "PUNCTUAL_LEASE", value_name = "SECONDS")]
    lease: Option<u64>,
    /// Seconds without a sign of life after which a node's shards go to others [default: 5].
    #[arg(long, env = "PUNCTUAL_SHARD_LEASE", value_name = "SECONDS")]
    shard_lease: Option<u64>,
    /// What this node is called among others [default: the name of the machine and the port].
    #[arg(long, env = "PUNCTUAL_NAME", value_name = "NAME")]
    name: Option<String>,
    /// What this node does: `api` answers requests, `scheduler` fires slots, `worker` executes runs [default: all].
    #[arg(long, env = "PUNCTUAL_ROLES", value_name = "ROLE", value_delimiter = ',')]
    roles: Option<Vec<Role>>,
    /// Queues that this node's worker serves [default: all].
    #[arg(long, env = "PUNCTUAL_QUEUES", value_name = "QUEUE", value_delimiter = ',')]
    queues: Option<Vec<String>>,
    /// What this node's worker has, for jobs that require it: name=value, several with commas between [default: nothing].
    #[arg(long, env = "PUNCTUAL_LABELS", value_name = "LABELS", value_delimiter = ',')]
    labels: Option<Vec<String>>,
    /// How nodes hear of each other: `listen` on a connection of its own, or `poll` the database four times a second,
    /// which needs no session and so works through PgBouncer in transaction mode [default: listen].
    #[arg(long, env = "PUNCTUAL_WAKEUPS", value_name = "HOW")]
    wakeups: Option<Wakeups>,
    /// The address under which receivers reach this server, such as https://jobs.example.com: it is told to those that report later
    /// [default: they are told paths].
    #[arg(long, env = "PUNCTUAL_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
    /// Slots in a second beyond which a job that is registered or changed gets a hint to spread; 0 for none
    /// [default: 10000].
    #[arg(long, env = "PUNCTUAL_HOT_SECOND", value_name = "SLOTS")]
    hot_second: Option<usize>,
    /// Failures of a target host, one after the other, after which it is left alone until it is well; 0 for never, and then targets
    /// that do not answer are not held back either [default: 10].
    #[arg(long, env = "PUNCTUAL_BREAKER_FAILURES", value_name = "N")]
    breaker_failures: Option<u32>,
    /// Runs of one tenant that may wait: beyond that requests for a run are refused, and slots are throttled. The same on all
    /// nodes [default: 2000000].
    #[arg(long, env = "PUNCTUAL_TENANT_PENDING_MAX", value_name = "RUNS")]
    tenant_pending_max: Option<u64>,
    /// Runs that may wait in all, likewise [default: 10000000].
    #[arg(long, env = "PUNCTUAL_PENDING_MAX", value_name = "RUNS")]
    pending_max: Option<u64>,
    /// Requests of one key in a second that each node answers; more get 429 and are told when to come back; 0 for no limit
    /// [default: 0].
    #[arg(long, env = "PUNCTUAL_REQUESTS_PER_SECOND", value_name = "N")]
    requests_per_second: Option<u32>,
    /// Seconds that running attempts get to end when the server is stopped [default: 30].
    #[arg(long, env = "PUNCTUAL_GRACE", value_name = "SECONDS")]
    grace: Option<u64>,
    /// Whether callbacks may go to this machine [default: true while listening on loopback].
    #[arg(long, env = "PUNCTUAL_ALLOW_LOOPBACK", value_name = "BOOL")]
    allow_loopback: Option<bool>,
    /// Private networks that callbacks may go to, as 10.1.0.0/16.
    #[arg(long, env = "PUNCTUAL_ALLOW_CIDRS", value_name = "CIDR", value_delimiter = ',')]
    allow_cidrs: Option<Vec<String>>,
    /// The SMTP server that alerts by mail are sent through: smtps://user:password@host, or smtp:// for STARTTLS.
    #[arg(long, env = "PUNCTUAL_SMTP_URL", value_name = "URL", hide_env_values = true)]
    smtp_url: Option<String>,
    /// Who alerts by mail are from.
    #[arg(long, env = "PUNCTUAL_SMTP_FROM", value_name = "ADDRESS")]
    smtp_from: Option<String>,
    /// A file with a key that is to be there, as an admin of all tenants: it is created if it is not.
    #[arg(long, env = "PUNCTUAL_ADMIN_KEY_FILE", value_name = "FILE")]
    admin_key_file: Option<PathBuf>,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Answers requests.
    Api,
    /// Fires slots.
    Scheduler,
    /// Executes runs.
    Worker,
}

/// How nodes hear of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wakeups {
    /// On a connection of its own.
    Listen,
    /// By asking.
    Poll,
}

impl From<Wakeups> for Hints {
    fn from(wakeups: Wakeups) -> Self {
        match wakeups {
            Wakeups::Listen => Hints::Listen,
            Wakeups::Poll => Hints::Off,
        }
    }
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    Pretty,
    /// For programs, one object a line.
    Json,
}

/// The settings in force.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) data: PathBuf,
    pub(crate) store: Vec<String>,
    pub(crate) replica: Vec<String>,
    pub(crate) no_migrate: bool,
    pub(crate) tzdata: Option<PathBuf>,
    pub(crate) log_format: LogFormat,
    pub(crate) log: String,
    pub(crate) concurrency: usize,
    pub(crate) lease: u64,
    pub(crate) shard_lease: u64,
    pub(crate) name: Option<String>,
    pub(crate) roles: Roles,
    pub(crate) queues: Vec<String>,
    pub(crate) labels: Labels,
    pub(crate) wakeups: Wakeups,
    pub(crate) public_url: Option<String>,
    pub(crate) hot_second: usize,
    pub(crate) breaker_failures: u32,
    pub(crate) tenant_pending_max: u64,
    pub(crate) pending_max: u64,
    pub(crate) requests_per_second: u32,
    pub(crate) grace: u64,
    pub(crate) allow_loopback: bool,
    pub(crate) allow_cidrs: Vec<String>,
    pub(crate) smtp_url: Option<String>,
    pub(crate) smtp_from: Option<String>,
    pub(crate) admin_key_file: Option<PathBuf>,
}

/// In the file, one address may stand without brackets.
fn one_or_several<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Addresses {
        One(String),
        Several(Vec<String>),
    }
    Ok(Some(match Addresses::deserialize(value)? {
        Addresses::One(address) => vec![address],
        Addresses::Several(addresses) => addresses,
    }))
}

/// Attempts at a time that no server has memory for.
const CONCURRENCY_MAX: usize = 1_000_000;

impl Config {
    /// What is in force, given the flags and environment, and perhaps a file.
    pub(crate) fn load(flags: Settings, file: Option<&Path>) -> Result<Config, Failure> {
        let file = match file {
            Some(path) => read(path)?,
            None => Settings::default(),
        };
        let listen = flags.listen.or(file.listen).unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 7171)));
        let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let config = Config {
            listen,
            data: flags.data.or(file.data).unwrap_or_else(|| "punctual-data".into()),
            store: flags.store.or(file.store).unwrap_or_default(),
            replica: flags.replica.or(file.replica).unwrap_or_default(),
            no_migrate: flags.no_migrate.or(file.no_migrate).unwrap_or(false),
            tzdata: flags.tzdata.or(file.tzdata),
            log_format: flags.log_format.or(file.log_format).unwrap_or(match is_terminal {
                true => LogFormat::Pretty,
                false => LogFormat::Json,
            }),
            log: flags.log.or(file.log).unwrap_or_else(|| "info".into()),
            concurrency: flags.concurrency.or(file.concurrency).unwrap_or(4_096),
            lease: flags.lease.or(file.lease).unwrap_or(15),
            shard_lease: flags.shard_lease.or(file.shard_lease).unwrap_or(5),
            name: flags.name.or(file.name),
            roles: flags.roles.or(file.roles).map_or(Roles::ALL, |roles| Roles {
                api: roles.contains(&Role::Api),
                scheduler: roles.contains(&Role::Scheduler),
                worker: roles.contains(&Role::Worker),
            }),
            queues: flags.queues.or(file.queues).unwrap_or_default(),
            labels: flags
                .labels
                .or(file.labels)
                .unwrap_or_default()
                .join(",")
                .parse()
                .map_err(|wrong| Failure::Input(format!("labels: {wrong}")))?,
            wakeups: flags.wakeups.or(file.wakeups).unwrap_or(Wakeups::Listen),
            public_url: flags.public_url.or(file.public_url).map(|url| url.trim_end_matches('/').to_owned()),
            hot_second: flags.hot_second.or(file.hot_second).unwrap_or(punctual_engine::crowd::HOT_SECOND),
            breaker_failures: flags
                .breaker_failures
                .or(file.breaker_failures)
                .unwrap_or(punctual_domain::policy::breaker::FAILURES),
            tenant_pending_max: flags
                .tenant_pending_max
                .or(file.tenant_pending_max)
                .unwrap_or(backlog::TENANT_MAX),
            pending_max: flags.pending_max.or(file.pending_max).unwrap_or(backlog::ALL_MAX),
            requests_per_second: flags.requests_per_second.or(file.requests_per_second).unwrap_or(0),
            grace: flags.grace.or(file.grace).unwrap_or(30),
            allow_loopback: flags
                .allow_loopback
                .or(file.allow_loopback)
                .unwrap_or_else(|| listen.ip().is_loopback()),
            allow_cidrs: flags.allow_cidrs.or(file.allow_cidrs).unwrap_or_default(),
            smtp_url: flags.smtp_url.or(file.smtp_url),
            smtp_from: flags.smtp_from.or(file.smtp_from),
            admin_key_file: flags.admin_key_file.or(file.admin_key_file),
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), Failure> {
        let wrong = |text: String| Err(Failure::Input(text));
        let is_address = |address: &String| {
            ["postgres://", "postgresql://"].iter().any(|scheme| address.starts_with(scheme))
        };
        if !self.store.iter().all(is_address) {
            return wrong("store: not an address such as postgres://user@host/database".into());
        }
        if !self.replica.iter().all(is_address) {
            return wrong("replica: not an address such as postgres://user@host/database".into());
        }
        if self.store.is_empty() && !self.replica.is_empty() {
            return wrong("replica: of what? Give the database itself with --store".into());
        }
        if !(1..=CONCURRENCY_MAX).contains(&self.concurrency) {
            return wrong(format!(
                "concurrency: {} is not between 1 and {CONCURRENCY_MAX}",
                self.concurrency
            ));
        }
        if !(3..=3_600).contains(&self.lease) {
            return wrong(format!("lease: {} is not between 3 and 3600 seconds", self.lease));
        }
        if !(2..=600).contains(&self.shard_lease) {
            return wrong(format!("shard-lease: {} is not between 2 and 600 seconds", self.shard_lease));
        }
        if self.roles.names().is_empty() {
            return wrong("roles: none is given; leave the setting out for all".into());
        }
        for (name, value) in
            [("tenant-pending-max", self.tenant_pending_max), ("pending-max", self.pending_max)]
        {
            if value == 0 {
                return wrong(format!("{name}: 0 lets no run wait; leave the setting out for the default"));
            }
        }
        if self.requests_per_second > punctual_server::PER_SECOND_MAX {
            return wrong(format!(
                "requests-per-second: {} is more than {}; 0 is no limit",
                self.requests_per_second,
                punctual_server::PER_SECOND_MAX
            ));
        }
        if self.grace > 86_400 {
            return wrong(format!("grace: {} is more than a day", self.grace));
        }
        self.mail()?;
        self.policy().map(|_| ())
    }

    /// How alerts are sent by mail, if they can be.
    pub(crate) fn mail(&self) -> Result<Option<Mail>, Failure> {
        match (&self.smtp_url, &self.smtp_from) {
            (None, None) => Ok(None),
            (Some(url), Some(from)) => {
                Mail::new(url, from).map(Some).map_err(|error| Failure::Input(error.to_string()))
            }
            (Some(_), None) => Err(Failure::Input("smtp-from: who is the mail from? Give an address".into())),
            (None, Some(_)) => Err(Failure::Input("smtp-url: through which server is mail sent?".into())),
        }
    }

    /// What callbacks may reach.
    pub(crate) fn policy(&self) -> Result<Policy, Failure> {
        let mut policy = Policy { allow_loopback: self.allow_loopback, ..Policy::default() };
        for cidr in &self.allow_cidrs {
            let parsed = cidr.parse().map_err(|error| Failure::Input(format!("allow-cidrs: {error}")))?;
            policy.allow_cidrs.push(parsed);
        }
        Ok(policy)
    }

    /// How many runs may wait.
    pub(crate) fn caps(&self) -> Caps {
        Caps { tenant: self.tenant_pending_max, all: self.pending_max }
    }

    /// The settings, as a file that sets them.
    pub(crate) fn print(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name} = {value}");
        };
        line("listen", format!("{:?}", self.listen.to_string()));
        line("data", format!("{:?}", self.data.display().to_string()));
        if !self.store.is_empty() {
            line("store", format!("{:?}", self.store));
            line("replica", format!("{:?}", self.replica));
            line("no-migrate", self.no_migrate.to_string());
        }
        if let Some(directory) = &self.tzdata {
            line("tzdata", format!("{:?}", directory.display().to_string()));
        }
        let format = match self.log_format {
            LogFormat::Pretty => "pretty",
            LogFormat::Json => "json",
        };
        line("log-format", format!("{format:?}"));
        line("log", format!("{:?}", self.log));
        line("concurrency", self.concurrency.to_string());
        line("lease", self.lease.to_string());
        line("shard-lease", self.shard_lease.to_string());
        if let Some(name) = &self.name {
            line("name", format!("{name:?}"));
        }
        line("roles", format!("{:?}", self.roles.names()));
        line("queues", format!("{:?}", self.queues));
        line("labels", format!("{:?}", self.labels.each().collect::<Vec<_>>()));
        let wakeups = match self.wakeups {
            Wakeups::Listen => "listen",
            Wakeups::Poll => "poll",
        };
        line("wakeups", format!("{wakeups:?}"));
        if let Some(url) = &self.public_url {
            line("public-url", format!("{url:?}"));
        }
        line("hot-second", self.hot_second.to_string());
        line("breaker-failures", self.breaker_failures.to_string());
        line("tenant-pending-max", self.tenant_pending_max.to_string());
        line("pending-max", self.pending_max.to_string());
        line("requests-per-second", self.requests_per_second.to_string());
        line("grace", self.grace.to_string());
        line("allow-loopback", self.allow_loopback.to_string());
        line("allow-cidrs", format!("{:?}", self.allow_cidrs));
        if let Some(file) = &self.admin_key_file {
            line("admin-key-file", format!("{:?}", file.display().to_string()));
        }
        for (name, value) in [("smtp-url", &self.smtp_url), ("smtp-from", &self.smtp_from)] {
            if let Some(value) = value {
                line(name, format!("{value:?}"));
            }
        }
        text
    }
}

fn read(path: &Path) -> Result<Settings, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Input(format!("config file {}: {error}", path.display())))?;
    toml::from_str(&text).map_err(|error| Failure::Input(format!("config file {}: {error}", path.display())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<Config, Failure> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Config::load(Settings::default(), Some(file.path()))
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), "concurrency = 7\nlease = 9\n").unwrap();
        let flags = Settings { lease: Some(11), ..Settings::default() };
        let config = Config::load(flags, Some(path.path())).unwrap();
        assert_eq!((config.concurrency, config.lease, config.grace), (7, 11, 30));
    }

    #[test]
    fn what_is_printed_is_a_file_that_says_the_same() {
        let config =
            file("store = \"postgres://a\"\nreplica = \"postgres://b\"\ndata = \"/a b/\\\"c\\\"\"\nname = \"x\"\nroles = [\"worker\"]\nqueues = [\"q\"]\nlabels = [\"zone=eu\", \"gpu=true\"]\nwakeups = \"poll\"\nallow-cidrs = [\"10.0.0.0/8\"]\nlog = \"debug\"\nsmtp-url = \"smtps://a:b@mail\"\nsmtp-from = \"P <p@example.com>\"\nadmin-key-file = \"/run/key\"").unwrap();
        let again = file(&config.print()).unwrap();
        assert_eq!(format!("{config:?}"), format!("{again:?}"));
    }

    #[test]
    fn wrong_settings_are_named() {
        for (text, part) in [
            ("lisen = \"127.0.0.1:1\"", "lisen"),
            ("listen = \"nowhere\"", "listen"),
            ("concurrency = 0", "concurrency: 0"),
            ("pending-max = 0", "pending-max: 0"),
            ("tenant-pending-max = 0", "tenant-pending-max: 0"),
            ("lease = 1", "lease: 1"),
            ("shard-lease = 1", "shard-lease: 1"),
            ("store = \"mysql://db\"", "store: not an address"),
            ("replica = \"postgres://db\"", "replica: of what"),
            ("store = \"postgres://db\"\nreplica = [\"db2\"]", "replica: not an address"),
            ("roles = []", "roles: none"),
            ("labels = [\"zone\"]", "labels: `zone`"),
            ("roles = [\"boss\"]", "boss"),
            ("allow-cidrs = [\"10.0.0.0/99\"]", "allow-cidrs"),
            ("smtp-url = \"smtp://localhost\"", "smtp-from"),
            ("smtp-from = \"p@example.com\"", "smtp-url"),
            ("smtp-url = \"http://localhost\"\nsmtp-from = \"p@example.com\"", "smtp-url"),
        ] {
            match file(text) {
                Err(Failure::Input(message)) => assert!(message.contains(part), "{message}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
