//! Several nodes on one PostgreSQL, in one process: they come and go, some shards are crowded, a node is slow.
//!
//! Each node has connections, an engine and a worker of its own, as if it were a process. Promise: the same audit as every
//! other scenario, and beside it how evenly the shards were spread and how lateness went over time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use punctual::wire::{Parts, Running, Storage};
use punctual_domain::{Node, Ownership, Placement, ShardId, TenantId, WorkerId};
use punctual_store::Store;
use tokio::task::JoinHandle;

use super::account::{Account, Audit, Owed};
use super::load::register;
use super::machine::{Usage, rss_bytes};
use super::scenario::{Bench, GRACE, Measured, after_registering, millis, settle, sleep_until};
use super::{Common, slow_line};

/// Connections of all nodes: many of them share what one server gives.
const CONNECTIONS: usize = 100;

/// Of ten jobs so many are in the crowded shards, if there are any.
const CROWDED_OF_TEN: u64 = 9;

/// What happens to the nodes.
#[derive(Args)]
#[group(skip)]
pub(super) struct Cluster {
    /// Nodes.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Jobs to register.
    #[arg(long, default_value_t = 10_000)]
    jobs: u64,
    /// Slots a second.
    #[arg(long, default_value_t = 1_000)]
    rate: u64,
    /// For how long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// In the first third of the time the nodes come, one after the other; in the last they go, until one is left.
    #[arg(long)]
    come_and_go: bool,
    /// Nine of ten slots are in so many shards.
    #[arg(long, default_value_t = 0)]
    crowded_shards: u16,
    /// The last node's line to the database is slower by so many milliseconds, each way.
    #[arg(long, default_value_t = 0)]
    slow_ms: u64,
}

impl Cluster {
    pub(super) async fn run(&self, common: &Common) -> Result<Account> {
        ensure!(
            self.nodes > 0 && self.rate > 0 && self.jobs >= self.rate,
            "as many jobs as slots a second are needed"
        );
        let bench = Bench::new(common).await?;
        ensure!(
            matches!(bench.storage, Storage::Postgres(_)),
            "only PostgreSQL is shared by nodes: --store postgres://..."
        );
        let period_ms = self.jobs * 1_000 / self.rate;
        let phase = |n: u64| n * period_ms / self.jobs;
        let first = self.open(&bench, 0).await?;
        let shards = first.store.shard_count();
        // A node opens its store in some forty round trips, and a busy machine takes its time.
        let starting = 2_000 + 500 * self.nodes as u64 + 80 * self.slow_ms;
        let begin = after_registering(self.jobs)? + SignedDuration::from_secs((starting / 1_000) as i64);
        let (ids, registering) = register(&first.engine, TenantId::DEFAULT, self.jobs, |n| {
            let from = begin + millis(phase(n));
            let mut spec = bench.spec(n, &format!("@every {period_ms}ms anchor {from}"))?;
            spec.schedule.bounds.start = Some(begin);
            if self.crowded_shards > 0 && n % 10 < CROWDED_OF_TEN {
                spec.key = Some(key_in(ShardId((n % u64::from(self.crowded_shards)) as u16), n, shards)?);
            }
            Ok(spec)
        })
        .await?;
        let store = Arc::clone(&first.store);
        let end = begin + SignedDuration::from_secs(self.seconds as i64);
        let watch = Watch::start(Arc::clone(&store));
        let mut nodes = vec![self.start(&bench, first, 0).await?];
        let third = SignedDuration::from_secs(self.seconds as i64) / 3;
        let step = |n: usize| third * n as i32 / self.nodes as i32;
        for number in 1..self.nodes {
            if self.come_and_go {
                sleep_until(begin + step(number)).await;
            }
            let parts = self.open(&bench, number).await?;
            nodes.push(self.start(&bench, parts, number).await?);
        }
        ensure!(
            self.come_and_go || Timestamp::now() < begin,
            "starting took too long; take fewer nodes or jobs"
        );
        sleep_until(begin).await;
        let before = Usage::now();
        if self.come_and_go {
            for gone in 1..self.nodes {
                sleep_until(end - third + step(gone)).await;
                if let Some(node) = nodes.pop() {
                    node.stop(GRACE).await?;
                }
            }
        }
        sleep_until(end).await;
        let rss = rss_bytes();
        for node in &nodes {
            settle(node, end).await?;
        }
        let used = Usage::now().since(before);
        let off_fair = watch.stop().await?;
        for node in nodes {
            node.stop(GRACE).await?;
        }
        let mut owed = Owed::new();
        for (number, id) in ids {
            let from = begin + millis(phase(number));
            owed.insert(
                id,
                (0..).map(|k| from + millis(k * period_ms)).take_while(|slot| *slot < end).collect(),
            );
        }
        let audit = Audit::read(&*store, &owed).await?;
        let took = Duration::from_secs(self.seconds);
        let measured = Measured { registered: self.jobs, registering, took, used, rss };
        Ok(Account {
            scenario: self.name(),
            shards_off_fair_percent: off_fair.filter(|_| self.crowded_shards == 0 && self.slow_ms == 0),
            lateness_p99_over_time_ms: Some(audit.lateness_over_time(begin)),
            ..measured.account(bench, &audit).await?
        })
    }

    fn name(&self) -> String {
        let mut name = format!("cluster, {} nodes, {} slots/s", self.nodes, self.rate);
        if self.come_and_go {
            name.push_str(", coming and going");
        }
        if self.crowded_shards > 0 {
            name.push_str(&format!(", nine of ten slots in {} shards", self.crowded_shards));
        }
        if self.slow_ms > 0 {
            name.push_str(&format!(", one line slower by {} ms", self.slow_ms));
        }
        name
    }

    /// The store of a node, over a slow line for the last one.
    async fn open(&self, bench: &Bench, number: usize) -> Result<Parts> {
        let Storage::Postgres(databases) = &bench.storage else { bail!("not PostgreSQL") };
        let mut databases = databases.clone();
        for database in &mut databases {
            database.connections = database.connections.min(CONNECTIONS / self.nodes).max(3);
            if self.slow_ms > 0 && number + 1 == self.nodes && number > 0 {
                database.address = slowed(&database.address, Duration::from_millis(self.slow_ms)).await?;
            }
        }
        Ok(Parts::open(&Storage::Postgres(databases), Bench::tzdb()?).await?)
    }

    async fn start(&self, bench: &Bench, parts: Parts, number: usize) -> Result<Running> {
        let mut options = bench.options()?;
        options.node.name = format!("node-{number}");
        Ok(Running::start_on(parts, options).await?)
    }
}

/// The address of the same database over a slow line.
async fn slowed(address: &str, delay: Duration) -> Result<String> {
    let parts = address.split_once('@').and_then(|(user, rest)| Some((user, rest.split_once('/')?)));
    let (user, (server, database)) =
        parts.context("a slow line needs an address such as postgres://user@host:port/database")?;
    let near = slow_line::open(server.to_owned(), delay).await?;
    Ok(format!("{user}@{near}/{database}"))
}

/// A key whose job is in this shard.
fn key_in(shard: ShardId, number: u64, shards: u16) -> Result<String> {
    // One in as many as there are shards fits; a few thousand tries miss it with odds of one in millions.
    let mut keys = (0..100 * u64::from(shards)).map(|salt| format!("bench-{number}-{salt}"));
    keys.find(|key| ShardId::of(TenantId::DEFAULT, key, shards) == shard).context("no key is in that shard")
}

/// Looks every second how the shards are spread.
struct Watch {
    looking: JoinHandle<Result<Option<f64>>>,
    stop: tokio::sync::oneshot::Sender<()>,
}

/// The spread counts when nobody has come or gone for so many looks: a lease, and two passes of placement.
const QUIET: usize = 7;

impl Watch {
    fn start(store: Arc<dyn Store>) -> Watch {
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        let looking = tokio::spawn(async move {
            let (mut worst, mut nodes, mut quiet) = (None::<f64>, 0, 0);
            loop {
                tokio::select! {
                    _ = &mut stopped => return Ok(worst),
                    () = tokio::time::sleep(Duration::from_secs(1)) => {}
                }
                let placement = store.placement(Timestamp::now()).await?;
                quiet = if placement.nodes.len() == nodes { quiet + 1 } else { 0 };
                nodes = placement.nodes.len();
                if quiet >= QUIET {
                    worst = worst.into_iter().chain(off_fair(&placement)).reduce(f64::max);
                }
            }
        });
        Watch { looking, stop }
    }

    async fn stop(self) -> Result<Option<f64>> {
        // It may have ended by itself, with an error that is told next.
        let _ = self.stop.send(());
        self.looking.await.context("the spread was not watched")?
    }
}

/// By how much what a node has is off its fair share at most, in percent: shards by what is due in them, nodes by what
/// they can do.
fn off_fair(placement: &Placement) -> Option<f64> {
    let weight = |owner: Option<WorkerId>| -> u64 {
        let of = placement.shards.iter().filter(|shard| owner.is_none() || shard.owner == owner);
        of.map(Ownership::weight).sum()
    };
    let capacity: u32 = placement.nodes.iter().map(|(node, _)| node.capacity).sum();
    let off = |node: &Node| {
        let fair = weight(None) as f64 * f64::from(node.capacity) / f64::from(capacity.max(1));
        (weight(Some(node.id)) as f64 - fair).abs() / fair * 100.0
    };
    placement.nodes.iter().filter(|(node, _)| node.capacity > 0).map(|(node, _)| off(node)).reduce(f64::max)
}
