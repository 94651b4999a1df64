//! `punctual nodes`, `punctual shards` and `punctual databases`: who is there, who fires what, and where it lives.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use punctual_api::node::{Database, Node, Shard, ranges};

use super::remote::{self, Remote};
use super::watch::{self, Watch};
use super::{moment, output};
use crate::failure::{EXIT_CODES, Failure};

/// List the live nodes of the cluster
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Nodes {
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    remote: Remote,
}

/// Show which node fires which shards and where they live, or move some to another database
#[derive(Args)]
#[command(after_help = EXIT_CODES, args_conflicts_with_subcommands = true)]
pub(crate) struct Shards {
    #[command(subcommand)]
    command: Option<ShardCommand>,
    /// One line for each shard instead of one for each owner
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Subcommand)]
enum ShardCommand {
    /// Move shards to another database while they are in use; `operation get` shows how far it is
    Move {
        /// Which: numbers and ranges, as `0-127 200`
        #[arg(required = true)]
        shards: Vec<String>,
        /// The number of the database, as `punctual databases` shows it
        #[arg(long, value_name = "NUMBER")]
        to: u8,
    },
}

/// List the databases of the installation, and which shards live in each
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Databases {
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    remote: Remote,
}

/// Lists the databases.
pub(crate) fn databases(arguments: &Databases) -> Result<(), Failure> {
    remote::run(watch::again(arguments.watch.every(), || async {
        let remote = &arguments.remote;
        remote.show(&remote.client()?.databases().await?, |page, _| database_table(&page.items))
    }))
}

fn database_table(databases: &[Database]) -> String {
    let mut table = output::table(&["DATABASE", "ADDRESS", "SHARDS", "WHICH"]);
    for one in databases {
        let (number, count) = (one.database.to_string(), one.shard_count.to_string());
        table.add_row(vec![number, one.address.clone(), count, one.shards.clone()]);
    }
    output::lines(&table)
}

/// Lists the nodes.
pub(crate) fn nodes(arguments: &Nodes) -> Result<(), Failure> {
    remote::run(watch::again(arguments.watch.every(), || async {
        let remote = &arguments.remote;
        remote.show(&remote.client()?.nodes().await?, |page, now| node_table(&page.items, now))
    }))
}

/// Shows the shards.
pub(crate) fn shards(arguments: &Shards) -> Result<(), Failure> {
    remote::run(async {
        let remote = &arguments.remote;
        if let Some(ShardCommand::Move { shards, to }) = &arguments.command {
            let started = remote.client()?.move_shards(&shards.join(" "), *to).await?;
            return remote.show(&started, |operation, _| {
                format!(
                    "operation {} moves them; see `punctual operation get {}`\n",
                    operation.id, operation.id
                )
            });
        }
        let client = remote.client()?;
        watch::again(arguments.watch.every(), || async {
            remote.show(&client.shards().await?, |page, now| match arguments.all {
                true => shard_table(&page.items, now),
                false => owner_table(&page.items),
            })
        })
        .await
    })
}

fn node_table(nodes: &[Node], now: Timestamp) -> String {
    let mut table = output::table(&[
        "NODE",
        "ADDRESS",
        "ROLES",
        "LABELS",
        "VERSION",
        "STARTED",
        "SHARDS",
        "SLOTS/MIN",
        "CAPACITY",
        "CLOCK",
    ]);
    for node in nodes {
        table.add_row(vec![
            node.name.clone(),
            node.address.clone().unwrap_or_default(),
            node.roles.join(","),
            output::labels(&node.labels),
            node.version.clone(),
            moment::full(node.started_at, now),
            node.shards.to_string(),
            node.slots_per_minute.to_string(),
            format!("{}%", node.capacity_percent),
            format!("{:+} ms", node.clock_ahead_ms),
        ]);
    }
    output::lines(&table)
}

fn owner(shard: &Shard) -> String {
    match (&shard.owner_name, &shard.owner) {
        (Some(name), _) => name.clone(),
        (None, Some(id)) => format!("{id} (gone)"),
        (None, None) => "nobody".into(),
    }
}

/// The shards of each owner, as ranges.
fn owner_table(shards: &[Shard]) -> String {
    let mut owners: std::collections::BTreeMap<String, Vec<&Shard>> = std::collections::BTreeMap::new();
    for shard in shards {
        owners.entry(owner(shard)).or_default().push(shard);
    }
    let mut table = output::table(&["OWNER", "SHARDS", "SLOTS/MIN", "WHICH"]);
    for (owner, shards) in owners {
        let slots: u64 = shards.iter().map(|shard| u64::from(shard.slots_per_minute)).sum();
        let numbers: Vec<u16> = shards.iter().map(|shard| shard.shard).collect();
        table.add_row(vec![owner, numbers.len().to_string(), slots.to_string(), ranges(&numbers)]);
    }
    output::lines(&table)
}

fn shard_table(shards: &[Shard], now: Timestamp) -> String {
    let mut table = output::table(&["SHARD", "OWNER", "EPOCH", "EXPIRES", "SLOTS/MIN", "DATABASE"]);
    for shard in shards {
        table.add_row(vec![
            shard.shard.to_string(),
            owner(shard),
            shard.epoch.to_string(),
            moment::full(shard.expires_at, now),
            shard.slots_per_minute.to_string(),
            shard.database.map(|database| database.to_string()).unwrap_or_default(),
        ]);
    }
    output::lines(&table)
}
