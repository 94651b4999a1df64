//! `punctual bench`: drives the real engine and store, and checks every slot.
//!
//! Promise: missed and duplicate slots are computed from the schedules against the store's history, never from the
//! engine's own counters; any of them makes the command fail.

mod account;
mod black_hole;
mod cluster;
mod idle;
mod lanes;
mod load;
mod machine;
mod network;
mod noisy;
mod pending;
mod pull;
mod receiver;
mod scenario;
mod slow_line;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use self::account::Account;
use self::network::Transport;
use super::output::{self, Format};
use crate::config::Wakeups;
use crate::failure::Failure;

/// Measure how many slots this machine fires on time, and check that none is missed or fired twice.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Subcommand)]
enum Scenario {
    /// Slots at a steady rate.
    Steady {
        /// Jobs to register.
        #[arg(long, default_value_t = 100_000)]
        jobs: u64,
        /// Slots a second.
        #[arg(long, default_value_t = 1_000)]
        rate: u64,
        /// For how long.
        #[arg(long, default_value_t = 30)]
        seconds: u64,
        /// Due times on whole seconds instead of spread over milliseconds.
        #[arg(long)]
        aligned: bool,
        #[command(flatten)]
        common: Common,
    },
    /// All jobs due in one second.
    Burst {
        /// Jobs to register.
        #[arg(long, default_value_t = 100_000)]
        jobs: u64,
        #[command(flatten)]
        common: Common,
    },
    /// One tenant has very many slots at one time, another has one a second: how late are those?
    Noisy {
        /// Slots of the first, all due at once.
        #[arg(long, default_value_t = 100_000)]
        jobs: u64,
        /// For how long the second has one a second.
        #[arg(long, default_value_t = 30)]
        seconds: u64,
        /// The runs of the first are there and wait when the node starts.
        #[arg(long)]
        waiting: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Runs wait in all lanes: which share does each get, and how long is none of it started?
    Lanes {
        /// Runs in each lane.
        #[arg(long, default_value_t = 20_000)]
        runs: u64,
        #[command(flatten)]
        common: Common,
    },
    /// Very many jobs call a target that never answers: how late are others, before and beside it?
    BlackHole {
        /// Jobs that call it.
        #[arg(long, default_value_t = 10_000)]
        jobs: u64,
        /// They are due over so many seconds; 0: all at one time.
        #[arg(long, default_value_t = 10)]
        over: u64,
        /// Slots a second of the others, which call a target that answers.
        #[arg(long, default_value_t = 100)]
        rate: u64,
        /// For how long the others are alone, and then for how long beside it.
        #[arg(long, default_value_t = 30)]
        seconds: u64,
        #[command(flatten)]
        common: Common,
    },
    /// Jobs that were all due before the engine starts, from its start to the last recorded completion.
    Drain {
        /// Runs.
        #[arg(long, default_value_t = 100_000)]
        runs: u64,
        /// Runs have so many keys in turn, and a limit for each; none, unless said otherwise.
        #[arg(long, default_value_t = 0)]
        keys: u64,
        /// With --keys: runs of a key that go on at once.
        #[arg(long, default_value = "1")]
        per_key: std::num::NonZeroU32,
        #[command(flatten)]
        common: Common,
    },
    /// Runs that were all due before the engine starts, executed by workers that pull, through a real listener.
    Pull {
        /// Runs.
        #[arg(long, default_value_t = 100_000)]
        runs: u64,
        /// How workers pull.
        #[arg(long, value_enum, default_value_t = Transport::Grpc)]
        transport: Transport,
        /// Workers, which have the attempts at a time together.
        #[arg(long, default_value_t = 2)]
        workers: usize,
        #[command(flatten)]
        common: Common,
    },
    /// An idle server and a worker that pulls: from the request for a run to the start of its handler.
    Idle {
        /// `now` jobs, and triggers.
        #[arg(long, default_value_t = 200)]
        samples: usize,
        /// How the worker pulls.
        #[arg(long, value_enum, default_value_t = Transport::Grpc)]
        transport: Transport,
        #[command(flatten)]
        common: Common,
    },
    /// Runs of a queue that nobody serves: memory while they become more, time to open the store again and to list them.
    Pending {
        /// Runs.
        #[arg(long, default_value_t = 100_000)]
        runs: u64,
        #[command(flatten)]
        common: Common,
    },
    /// Many jobs of the far future: size on disk, memory, time from restart to the first fire.
    Catalogue {
        /// Jobs to register.
        #[arg(long, default_value_t = 1_000_000)]
        jobs: u64,
        /// Slots that are overdue at the restart, besides.
        #[arg(long, default_value_t = 0)]
        overdue: u64,
        #[command(flatten)]
        common: Common,
    },
    /// Several nodes on one PostgreSQL: they come and go, some shards are crowded, a node is slow.
    Cluster {
        #[command(flatten)]
        cluster: cluster::Cluster,
        #[command(flatten)]
        common: Common,
    },
    /// Receives callbacks and counts them; started by the other scenarios.
    #[command(hide = true)]
    Receiver,
    /// Fills a data directory; started by `catalogue`, so that its memory is not counted.
    #[command(hide = true)]
    Fill {
        #[arg(long)]
        jobs: u64,
        #[arg(long)]
        overdue: u64,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Args, Clone)]
pub(crate) struct Common {
    /// What the jobs do.
    #[arg(long, value_enum, default_value_t = Target::Discard)]
    target: Target,
    /// Where jobs and runs are kept.
    #[arg(long, default_value = "embedded", value_name = "embedded|memory|postgres://...")]
    store: Store,
    /// On PostgreSQL: with a session for each connection, or as through PgBouncer in transaction mode.
    #[arg(long, value_enum, default_value_t = Wakeups::Listen)]
    wakeups: Wakeups,
    /// A directory for the data; a temporary one, removed afterwards, if not given.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Attempts at a time.
    #[arg(long, default_value_t = 4_096)]
    concurrency: usize,
    /// How long a run takes, with the target `sleep`.
    #[arg(long, default_value_t = 20)]
    sleep_ms: u64,
    /// A table for people or one JSON object.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Target {
    Discard,
    Http,
    /// A function of this process that takes its time.
    Sleep,
}

#[derive(Clone, PartialEq, Eq)]
enum Store {
    Embedded,
    Memory,
    /// The address of an empty database.
    Postgres(String),
}

impl std::str::FromStr for Store {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "embedded" => Ok(Store::Embedded),
            "memory" => Ok(Store::Memory),
            address if address.starts_with("postgres") => Ok(Store::Postgres(address.into())),
            _ => Err("`embedded`, `memory` or postgres://user@host/database".into()),
        }
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Other(error.into()))?;
    runtime.block_on(async {
        let (common, account) = match &arguments.scenario {
            Scenario::Steady { jobs, rate, seconds, aligned, common } => {
                let seconds = Duration::from_secs(*seconds);
                (common, scenario::steady(*jobs, *rate, seconds, *aligned, common).await?)
            }
            Scenario::Burst { jobs, common } => (common, scenario::burst(*jobs, common).await?),
            Scenario::Noisy { jobs, seconds, waiting, common } => {
                (common, noisy::noisy(*jobs, *seconds, *waiting, common).await?)
            }
            Scenario::BlackHole { jobs, over, rate, seconds, common } => {
                let (jobs, over, rate, seconds) = (*jobs, *over, *rate, *seconds);
                (common, black_hole::BlackHole { jobs, over, rate, seconds }.run(common).await?)
            }
            Scenario::Lanes { runs, common } => (common, lanes::lanes(*runs, common).await?),
            Scenario::Drain { runs, keys, per_key, common } => {
                (common, scenario::drain(*runs, *keys, *per_key, common).await?)
            }
            Scenario::Catalogue { jobs, overdue, common } => {
                (common, scenario::catalogue(*jobs, *overdue, common).await?)
            }
            Scenario::Pull { runs, transport, workers, common } => {
                (common, pull::pull(*runs, *workers, *transport, common).await?)
            }
            Scenario::Idle { samples, transport, common } => {
                let idle = idle::idle(*samples, *transport, common).await?;
                return tell(&idle, idle::Idle::table, common.output);
            }
            Scenario::Pending { runs, common } => {
                let pending = pending::pending(*runs, common).await?;
                return tell(&pending, pending::Pending::table, common.output);
            }
            Scenario::Cluster { cluster, common } => (common, cluster.run(common).await?),
            Scenario::Receiver => return Ok(receiver::serve().await?),
            Scenario::Fill { jobs, overdue, common } => {
                return Ok(scenario::fill(*jobs, *overdue, common).await?);
            }
        };
        report(&account, common.output)
    })
}

fn tell<T: serde::Serialize>(
    measured: &T,
    table: impl Fn(&T) -> String,
    format: Format,
) -> Result<(), Failure> {
    match format {
        Format::Json | Format::Yaml => {
            let text = serde_json::to_string(measured).map_err(|error| Failure::Other(error.into()))?;
            output::print(&output::machine(&text, format)?)?;
        }
        Format::Table | Format::Wide => println!("{}", table(measured)),
    }
    Ok(())
}

fn report(account: &Account, format: Format) -> Result<(), Failure> {
    match format {
        Format::Json | Format::Yaml => {
            let text = serde_json::to_string(account).map_err(|error| Failure::Other(error.into()))?;
            output::print(&output::machine(&text, format)?)?;
        }
        Format::Table | Format::Wide => println!("{}", account.table()),
    }
    if account.missed > 0 || account.duplicates > 0 {
        let (missed, duplicates) = (account.missed, account.duplicates);
        return Err(Failure::Other(anyhow::anyhow!("{missed} slots missed, {duplicates} fired twice")));
    }
    Ok(())
}
