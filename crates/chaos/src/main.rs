//! `cargo xtask chaos`: breaks a real cluster on purpose, and accounts for every slot.
//!
//! Real nodes run on a real PostgreSQL under load, faults come one after the other, and in the end an oracle says which
//! slots each job owed. Runs, ledger and what the receiver saw must agree with it. The rules are in docs/reference/reliability.md.

mod account;
mod api;
mod cluster;
mod deliveries;
mod fault;
mod load;
mod node;
mod owed;
mod plan;
mod postgres;
mod proxy;
mod read;
mod receiver;
mod schedule;
mod timeline;
mod verdict;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use fastrand::Rng;

use self::account::Urls;
use self::cluster::Cluster;
use self::fault::World;
use self::load::{Done, Setting};
use self::owed::Wrong;
use self::plan::{Fault, Plan, Wanted};
use self::postgres::Postgres;
use self::read::{Reader, Run};
use self::receiver::{Receiver, Record, now};
use self::schedule::Millis;
use self::verdict::{Evidence, Verdict};

/// Breaks a cluster on purpose, and accounts for every slot.
#[derive(Parser)]
struct Arguments {
    /// The binary under test.
    #[arg(long)]
    program: PathBuf,
    /// Where logs and the picture go.
    #[arg(long)]
    out: PathBuf,
    /// How long; without it, every fault once.
    #[arg(long)]
    minutes: Option<u64>,
    /// Which plan; without it, a new one.
    #[arg(long)]
    seed: Option<u64>,
    /// How many nodes.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Slots per second, instead of 1,000 in the short plan and 5,000 in a long one.
    #[arg(long)]
    rate: Option<usize>,
    /// Only these faults, by name.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
}

/// Clients that change jobs, and how often each does.
const CHANGERS: usize = 4;
const CHANGE_EVERY: Duration = Duration::from_millis(60);

/// Of the jobs that are there from the start, one in this many is changed.
const ONE_CHANGED_IN: usize = 5;

/// How often jobs are created, to see whether they are accepted.
const CREATE_EVERY: Duration = Duration::from_millis(100);

/// How long runs may take to end after all is well.
const SETTLE: Millis = 60_000;

/// Above this many slots per second, only one job in a few calls back: two cores are for the nodes.
const CALLBACKS_PER_SECOND: usize = 1_500;

fn main() -> ExitCode {
    match start(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &Arguments) -> Result<bool> {
    let mut faults = Vec::new();
    for name in &arguments.faults {
        let Some(fault) = Fault::ALL.into_iter().find(|fault| fault.name() == name) else {
            bail!("`{name}` is no fault; there are {}", Fault::ALL.map(Fault::name).join(", "));
        };
        faults.push(fault);
    }
    let wanted = Wanted {
        seed: arguments.seed.unwrap_or_else(|| Rng::new().u64(..1_000_000)),
        nodes: arguments.nodes.max(1),
        minutes: arguments.minutes,
        rate: arguments.rate,
        faults,
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start a runtime")?;
    runtime.block_on(run(arguments, &Plan::new(&wanted)))
}

async fn run(arguments: &Arguments, plan: &Plan) -> Result<bool> {
    println!(
        "chaos: seed {}, {} nodes, {} repeating jobs, about {} slots/s, {} faults in {} s",
        plan.seed,
        plan.nodes,
        plan.jobs,
        plan.rate,
        plan.steps.len(),
        plan.length.as_secs()
    );
    let _ = std::fs::remove_dir_all(&arguments.out);
    std::fs::create_dir_all(&arguments.out).with_context(|| format!("create {}", arguments.out.display()))?;
    let folder =
        tempfile::Builder::new().prefix("punctual-chaos-").tempdir().context("a temporary folder")?;
    let postgres = Postgres::start(folder.path()).await?;
    let record = Record::default();
    let (good, faulty) =
        (Receiver::start(Arc::clone(&record)).await?, Receiver::start(Arc::clone(&record)).await?);
    let cluster = Cluster::start(plan.nodes, &arguments.program, &arguments.out, postgres.ports()).await?;
    let front = cluster.front.clone();
    let mut world = World { cluster, postgres, target: faulty.clone() };
    let reader = Reader { front: front.clone() };

    // Jobs need to know when the load ends, before it begins.
    let mut setting = Setting {
        front: front.clone(),
        urls: Urls { good: good.url, faulty: faulty.url },
        seed: plan.seed,
        end: now() + plan.length.as_millis() as Millis + populating(plan),
        one_calls_in: u8::try_from(plan.rate / CALLBACKS_PER_SECOND).unwrap_or(u8::MAX).max(1),
    };
    let changed = plan.jobs / ONE_CHANGED_IN;
    let populating_from = now();
    let mut accounts = load::populate(&setting, plan.jobs, changed).await?;
    let began_at = now();
    println!(
        "  {} jobs registered in {:.1} s",
        accounts.len(),
        (began_at - populating_from) as f64 / 1_000.0
    );
    let rest = accounts.split_off(changed);
    setting.seed ^= 1;
    let setting = Arc::new(setting);

    let is_over = Arc::new(AtomicBool::new(false));
    let witness = tokio::spawn(witness(reader.clone(), Arc::clone(&is_over)));
    let mut clients = Vec::new();
    clients.push(tokio::spawn(load::create(Arc::clone(&setting), 0, CREATE_EVERY)));
    for client in 0..CHANGERS {
        let from = accounts.len() * (CHANGERS - 1 - client) / CHANGERS;
        let jobs = accounts.split_off(from.min(accounts.len()));
        clients.push(tokio::spawn(load::change(Arc::clone(&setting), client as u64 + 1, jobs, CHANGE_EVERY)));
    }
    let windows = world.suffer(plan).await?;
    if now() < setting.end {
        world.cluster.wait(Duration::from_millis((setting.end - now()).unsigned_abs())).await?;
    }
    let horizon = setting.end.min(now());
    is_over.store(true, Ordering::Release);
    let mut done = Done { accounts: rest, ..Done::default() };
    for client in clients {
        let more = client.await.context("a client broke off")?;
        done.accounts.extend(more.accounts);
        done.wrongs.extend(more.wrongs);
        done.accepted.extend(more.accepted);
        done.operations += more.operations;
        done.unknown += more.unknown;
    }
    let witnessed = witness.await.context("the witness broke off")?;
    println!(
        "  {} operations, {} of unknown outcome at first; {} runs witnessed",
        done.operations,
        done.unknown,
        witnessed.len()
    );
    let mut wrongs: Vec<Wrong> = done.wrongs.into_iter().map(|text| Wrong { rule: 'j', text }).collect();
    let falls = std::mem::take(&mut world.cluster.falls);
    wrongs.extend(falls.into_iter().map(|text| Wrong { rule: 'n', text }));
    let mut evidence = Evidence {
        plan,
        accounts: &mut done.accounts,
        windows: &windows,
        accepted: &done.accepted,
        wrongs,
        witnessed: &witnessed,
        began_at,
        horizon,
    };
    let verdict = settle(&mut evidence, &reader, &record, &mut world).await?;
    let text = verdict.print(&evidence);
    print!("{text}");
    let picture = arguments.out.join(format!("chaos-{}.svg", plan.seed));
    std::fs::write(&picture, timeline::draw(&verdict, &evidence))
        .with_context(|| format!("write {}", picture.display()))?;
    let listing: String =
        verdict.wrongs.iter().map(|wrong| format!("{} {}\n", wrong.rule, wrong.text)).collect();
    std::fs::write(arguments.out.join("wrongs.txt"), listing).context("write what is wrong")?;
    std::fs::write(arguments.out.join("dossiers.txt"), verdict.dossiers.concat())
        .context("write dossiers")?;
    std::fs::write(arguments.out.join("late.txt"), verdict.late.concat()).context("write what was late")?;
    println!("\n  timeline: {}", picture.display());
    println!(
        "chaos: seed {}, {} jobs, {} slots owed, {} runs, {} skipped, {} missed, {} passed over by edits, \
         {} failed, {} attempts lost, {} faults, verdict {}",
        plan.seed,
        verdict.jobs,
        verdict.slots.len(),
        verdict.runs,
        verdict.skipped,
        verdict.missed,
        verdict.passed_over,
        verdict.failed,
        verdict.lost_attempts,
        windows.len(),
        if verdict.is_good() { "good" } else { "BAD" }
    );
    Ok(verdict.is_good())
}

/// How long it may take to register the jobs of a plan.
fn populating(plan: &Plan) -> Millis {
    4_000 + plan.jobs as Millis / 4
}

/// Reads and judges until nothing is open, for as long as that may take.
async fn settle(
    evidence: &mut Evidence<'_>,
    reader: &Reader,
    record: &Record,
    world: &mut World,
) -> Result<Verdict> {
    loop {
        world.cluster.wait(Duration::from_secs(3)).await?;
        let (horizon, reading_from) = (evidence.horizon, now());
        let is_last = reading_from > horizon + SETTLE;
        // Reading everything takes long; whether something is open is mostly seen in what was born last.
        let newest = reader.runs(horizon - SETTLE, reading_from).await?;
        if !is_last && newest.iter().any(|run| run.slot <= horizon && run.state.is_open()) {
            continue;
        }
        let mut deliveries = record.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let verdict = verdict::judge(evidence, reader, &mut deliveries, reading_from).await?;
        println!(
            "  read {} runs in {:.1} s, {:.0} s after the end of the load",
            verdict.runs,
            (now() - reading_from) as f64 / 1_000.0,
            (reading_from - horizon) as f64 / 1_000.0
        );
        if !verdict.may_settle || is_last {
            return Ok(verdict);
        }
    }
}

/// Looks at runs while things go wrong: what has ended must stay as it is.
async fn witness(reader: Reader, is_over: Arc<AtomicBool>) -> HashMap<u128, Run> {
    let mut random = Rng::with_seed(3);
    let mut seen = HashMap::new();
    while !is_over.load(Ordering::Acquire) {
        for run in reader.newest(&mut random).await.unwrap_or_default() {
            if !run.state.is_open() {
                seen.insert(run.id, run);
            }
        }
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    seen
}
