//! The scenarios.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use punctual::wire::{Options, Parts, Running, Storage};
use punctual_domain::TenantId;
use punctual_domain::job::{Http, Method, Spec, Target as JobTarget};
use punctual_domain::policy::backlog::Caps;
use punctual_domain::policy::limit::{Across, Concurrency};
use punctual_schedule::{Schedule, Tzdb};
use punctual_store::{DueQuery, Shards};
use punctual_worker::targets::http::Policy;

use super::account::{Account, Audit, Owed};
use super::load::register;
use super::machine::{Usage, fsync, fsync_once, rss_bytes, size_of};
use super::receiver::Receiver;
use super::{Common, Store, Target};

/// How long what is running may take to end after a scenario.
pub(super) const GRACE: Duration = Duration::from_secs(30);

/// As much waits as is asked for.
const NO_CAPS: Caps = Caps { tenant: u64::MAX, all: u64::MAX };

/// The function that takes its time.
const SLEEP: &str = "sleep";

/// Where a scenario keeps its data and sends its callbacks.
pub(super) struct Bench {
    directory: PathBuf,
    /// Removes the directory at the end.
    _temporary: Option<tempfile::TempDir>,
    pub(super) storage: Storage,
    concurrency: usize,
    sleep: Duration,
    receiver: Option<Receiver>,
    target: JobTarget,
}

impl Bench {
    pub(super) async fn new(common: &Common) -> Result<Bench> {
        let temporary = match common.data {
            None => Some(tempfile::tempdir().context("a temporary directory")?),
            Some(_) => None,
        };
        let directory = match (&common.data, &temporary) {
            (Some(directory), _) => directory.clone(),
            (None, Some(temporary)) => temporary.path().to_path_buf(),
            (None, None) => bail!("no directory"),
        };
        std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        let storage = match &common.store {
            Store::Embedded => Storage::Embedded(directory.join("data")),
            Store::Memory => Storage::Memory,
            Store::Postgres(address) => Storage::Postgres(vec![punctual_store_postgres::Options {
                hints: common.wakeups.into(),
                ..punctual_store_postgres::Options::new(address.as_str())
            }]),
        };
        let receiver = match common.target {
            Target::Discard | Target::Sleep => None,
            Target::Http => Some(Receiver::start().await?),
        };
        let target = match &receiver {
            None if common.target == Target::Sleep => JobTarget::Function { name: SLEEP.into() },
            None => JobTarget::Discard,
            Some(receiver) => JobTarget::Http(Http {
                url: receiver.url.clone(),
                method: Method::Post,
                headers: Vec::new(),
                tls: None,
            }),
        };
        let (concurrency, sleep) = (common.concurrency, Duration::from_millis(common.sleep_ms));
        Ok(Bench { directory, _temporary: temporary, storage, concurrency, sleep, receiver, target })
    }

    pub(super) fn tzdb() -> Result<Arc<Tzdb>> {
        Ok(Arc::new(Tzdb::open(None)?))
    }

    pub(super) async fn open(&self) -> Result<Parts> {
        let parts = Parts::open(&self.storage, Self::tzdb()?).await?;
        parts.engine.set_caps(NO_CAPS);
        Ok(parts)
    }

    pub(super) async fn start(&self, parts: Parts) -> Result<Running> {
        Ok(Running::start_on(parts, self.options()?).await?)
    }

    /// How a node is put together.
    pub(super) fn options(&self) -> Result<Options> {
        let mut options = Options::new(self.storage.clone(), Self::tzdb()?);
        options.concurrency = self.concurrency;
        options.caps = NO_CAPS;
        let sleep = self.sleep;
        options.functions.insert(SLEEP, move |_| async move {
            tokio::time::sleep(sleep).await;
            Ok(None)
        });
        options.http.policy = Policy { allow_loopback: true, ..Policy::default() };
        Ok(options)
    }

    pub(super) fn spec(&self, number: u64, schedule: &str) -> Result<Spec> {
        Ok(Spec {
            payload: Some(format!("{{\"n\":{number}}}").into()),
            ..Spec::new(format!("bench-{number}"), Schedule::parse(schedule)?, self.target.clone())
        })
    }

    fn fsync_ms(&self) -> Result<Option<f64>> {
        match self.storage {
            Storage::Embedded(_) => Ok(Some(fsync(&self.directory)?.as_secs_f64() * 1e3)),
            Storage::Memory | Storage::Postgres(_) => Ok(None),
        }
    }

    /// How long one takes now, where the disk is ours.
    pub(super) fn fsync_once(&self) -> Result<Option<Duration>> {
        match self.storage {
            Storage::Embedded(_) => Ok(Some(fsync_once(&self.directory)?)),
            Storage::Memory | Storage::Postgres(_) => Ok(None),
        }
    }

    async fn delivered(self) -> Result<Option<u64>> {
        match self.receiver {
            Some(receiver) => Ok(Some(receiver.stop().await?)),
            None => Ok(None),
        }
    }
}

fn per_second(count: u64, took: Duration) -> Option<f64> {
    Some(count as f64 / took.as_secs_f64())
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

pub(super) async fn sleep_until(at: Timestamp) {
    let left = at.duration_since(Timestamp::now());
    if left > SignedDuration::ZERO {
        tokio::time::sleep(left.unsigned_abs()).await;
    }
}

/// A time that leaves room for registering so many jobs, on a whole second.
pub(super) fn after_registering(jobs: u64) -> Result<Timestamp> {
    let seconds = Timestamp::now().as_second() + 4 + (jobs / 40_000) as i64;
    Ok(Timestamp::from_second(seconds)?)
}

pub(super) fn millis(count: u64) -> SignedDuration {
    SignedDuration::from_millis(count as i64)
}

/// What a scenario that fires measured.
pub(super) struct Measured {
    pub(super) registered: u64,
    pub(super) registering: Duration,
    pub(super) took: Duration,
    pub(super) used: Usage,
    pub(super) rss: u64,
}

impl Measured {
    pub(super) async fn account(self, bench: Bench, audit: &Audit) -> Result<Account> {
        let runs = audit.fired.max(1) as f64;
        let account = Account {
            registered: self.registered,
            register_per_s: per_second(self.registered, self.registering),
            fired_per_s: per_second(audit.fired, self.took),
            completed_per_s: per_second(audit.completed, self.took),
            cpu_s: self.used.cpu.as_secs_f64(),
            cpu_us_per_run: Some(self.used.cpu.as_secs_f64() * 1e6 / runs),
            rss_mb: megabytes(self.rss),
            bytes_written_per_run: Some(self.used.written as f64 / runs),
            fsync_ms: bench.fsync_ms()?,
            ..Account::default()
        };
        Ok(Account { delivered: bench.delivered().await?, ..account.audited(audit) })
    }
}

/// Slots at a steady rate.
pub(super) async fn steady(
    jobs: u64,
    rate: u64,
    seconds: Duration,
    aligned: bool,
    common: &Common,
) -> Result<Account> {
    ensure!(jobs > 0 && rate > 0 && jobs >= rate, "at least one job per slot of a second is needed");
    let bench = Bench::new(common).await?;
    let parts = bench.open().await?;
    let period_ms = jobs * 1_000 / rate;
    let phase = |n: u64| match aligned {
        true => n * period_ms / jobs / 1_000 * 1_000,
        false => n * period_ms / jobs,
    };
    let begin = after_registering(jobs)?;
    let (ids, registering) = register(&parts.engine, TenantId::DEFAULT, jobs, |n| {
        let first = begin + millis(phase(n));
        bench.spec(n, &format!("@every {period_ms}ms anchor {first}")).map(|mut spec| {
            spec.schedule.bounds.start = Some(begin);
            spec
        })
    })
    .await?;
    let running = bench.start(parts).await?;
    ensure!(Timestamp::now() < begin, "registering took too long; take fewer jobs");
    sleep_until(begin).await;
    let before = Usage::now();
    let rss_before = rss_bytes();
    let end = begin + SignedDuration::try_from(seconds)?;
    sleep_until(end).await;
    let rss = rss_bytes();
    settle(&running, end).await?;
    let used = Usage::now().since(before);
    let store = Arc::clone(&running.parts.store);
    running.stop(GRACE).await?;
    let mut owed = Owed::new();
    for (number, id) in ids {
        let first = begin + millis(phase(number));
        let slots = (0..).map(|k| first + millis(k * period_ms)).take_while(|slot| *slot < end);
        owed.insert(id, slots.collect());
    }
    let audit = Audit::read(&*store, &owed).await?;
    let measured = Measured { registered: jobs, registering, took: seconds, used, rss };
    Ok(Account {
        scenario: format!("steady, {rate} slots/s{}", if aligned { ", aligned" } else { "" }),
        rss_before_mb: Some(megabytes(rss_before)),
        lateness_p99_over_time_ms: Some(audit.lateness_over_time(begin)),
        ..measured.account(bench, &audit).await?
    })
}

/// All jobs due in one second.
pub(super) async fn burst(jobs: u64, common: &Common) -> Result<Account> {
    let bench = Bench::new(common).await?;
    let parts = bench.open().await?;
    let begin = after_registering(jobs)?;
    let slot = |n: u64| begin + millis(n * 1_000 / jobs);
    let (ids, registering) =
        register(&parts.engine, TenantId::DEFAULT, jobs, |n| bench.spec(n, &format!("@at {}", slot(n))))
            .await?;
    let running = bench.start(parts).await?;
    ensure!(Timestamp::now() < begin, "registering took too long; take fewer jobs");
    sleep_until(begin).await;
    let before = Usage::now();
    let end = begin + SignedDuration::from_secs(1);
    sleep_until(end).await;
    settle(&running, end).await?;
    let took = Timestamp::now().duration_since(begin).unsigned_abs();
    let rss = rss_bytes();
    let used = Usage::now().since(before);
    let store = Arc::clone(&running.parts.store);
    running.stop(GRACE).await?;
    let owed: Owed = ids.into_iter().map(|(number, id)| (id, vec![slot(number)])).collect();
    let audit = Audit::read(&*store, &owed).await?;
    let measured = Measured { registered: jobs, registering, took, used, rss };
    Ok(Account {
        scenario: "burst, all due in one second".into(),
        took_s: Some(took.as_secs_f64()),
        ..measured.account(bench, &audit).await?
    })
}

/// Jobs that are all due before the engine starts.
pub(super) async fn drain(runs: u64, keys: u64, per_key: NonZeroU32, common: &Common) -> Result<Account> {
    let bench = Bench::new(common).await?;
    let parts = bench.open().await?;
    let due = after_registering(runs)?;
    let limited = match keys {
        0 => None,
        _ => Some(Concurrency {
            max: per_key,
            key: Some("{payload.key}".parse()?),
            across: Across::Tenant,
            holds_retries: true,
        }),
    };
    let (ids, registering) = register(&parts.engine, TenantId::DEFAULT, runs, |n| {
        let mut spec = bench.spec(n, &format!("@at {due}"))?;
        if limited.is_some() {
            spec.payload = Some(format!("{{\"n\":{n},\"key\":{}}}", n % keys).into());
            spec.policies.concurrency.clone_from(&limited);
        }
        Ok(spec)
    })
    .await?;
    let disk_before = disk(&bench.storage)?;
    sleep_until(due + SignedDuration::from_secs(2)).await;
    let before = Usage::now();
    let begun = Instant::now();
    let running = bench.start(parts).await?;
    settle(&running, Timestamp::now()).await?;
    let took = begun.elapsed();
    let rss = rss_bytes();
    let used = Usage::now().since(before);
    let store = Arc::clone(&running.parts.store);
    running.stop(GRACE).await?;
    let owed: Owed = ids.into_iter().map(|(_, id)| (id, vec![due])).collect();
    let audit = Audit::read(&*store, &owed).await?;
    let grown = disk(&bench.storage)?.zip(disk_before).map(|(after, before)| after.saturating_sub(before));
    let measured = Measured { registered: runs, registering, took, used, rss };
    Ok(Account {
        scenario: match keys {
            0 => "drain, all due before the start".into(),
            _ => format!("drain, all due before the start, {per_key} at once of {keys} keys"),
        },
        took_s: Some(took.as_secs_f64()),
        disk_bytes_per_run: grown.map(|bytes| bytes as f64 / runs as f64),
        // Its slots were due before the engine started: how late they are says nothing.
        lateness_ms: None,
        ..measured.account(bench, &audit).await?
    })
}

/// Jobs that are on time while others are overdue.
const ON_TIME: u64 = 1_000;

/// How long slots are watched after the restart.
const WATCHED: SignedDuration = SignedDuration::from_secs(20);

/// Fills a data directory with far jobs, some that will be overdue, and some that fire every second.
pub(super) async fn fill(jobs: u64, overdue: u64, common: &Common) -> Result<()> {
    let bench = Bench::new(common).await?;
    let parts = bench.open().await?;
    let far = Timestamp::now().as_second() + 400 * 86_400;
    let (_, took) = register(&parts.engine, TenantId::DEFAULT, jobs + ON_TIME, |n| {
        let schedule = match n < jobs {
            true => format!("@at {}", Timestamp::from_second(far + (n % 86_400) as i64)?),
            false => format!("@every 1s phase {}ms", 1 + n % 999),
        };
        bench.spec(n, &schedule)
    })
    .await?;
    let soon = after_registering(overdue)?;
    let (_, more) =
        register(&parts.engine, TenantId::DEFAULT, overdue, |n| bench.spec(n, &format!("@at {soon}")))
            .await?;
    let took = took + more;
    println!("{}", took.as_secs_f64());
    sleep_until(soon + SignedDuration::from_secs(2)).await;
    Ok(())
}

/// Many jobs of the far future, then a restart.
pub(super) async fn catalogue(jobs: u64, overdue: u64, common: &Common) -> Result<Account> {
    let address = match &common.store {
        Store::Memory => bail!("a catalogue needs a store that survives a restart"),
        Store::Embedded => "embedded",
        Store::Postgres(address) => address.as_str(),
    };
    let bench = Bench::new(common).await?;
    let program = std::env::current_exe().context("find this program")?;
    let child = tokio::process::Command::new(program)
        .args(["bench", "fill", "--data"])
        .arg(&bench.directory)
        .args(["--jobs", &jobs.to_string(), "--overdue", &overdue.to_string(), "--store", address])
        .stdout(Stdio::piped())
        .output()
        .await
        .context("start the filling process")?;
    ensure!(child.status.success(), "filling failed: {}", String::from_utf8_lossy(&child.stderr));
    let registering = Duration::from_secs_f64(String::from_utf8_lossy(&child.stdout).trim().parse()?);
    let bytes = disk(&bench.storage)?;
    let due_page = time_due_page(&bench).await?;
    let before = Usage::now();
    let restarted_at = Timestamp::now();
    let parts = bench.open().await?;
    let running = bench.start(parts).await?;
    // The slots after the restart are the ones that can be on time.
    let (from, to) = (restarted_at + SignedDuration::from_secs(1), restarted_at + WATCHED);
    sleep_until(to).await;
    let rss = rss_bytes();
    settle(&running, to).await?;
    let used = Usage::now().since(before);
    let store = Arc::clone(&running.parts.store);
    running.stop(GRACE).await?;
    let (owed, first) = owed_on_time(&*store, from, to).await?;
    let audit = Audit::read(&*store, &owed).await?;
    let first_fire = first.map(|at| at.duration_since(restarted_at).as_millis() as f64);
    let total = jobs + overdue + ON_TIME;
    let account = Account {
        scenario: format!("catalogue, restart with {overdue} overdue slots"),
        registered: total,
        register_per_s: per_second(total, registering),
        cpu_s: used.cpu.as_secs_f64(),
        rss_mb: megabytes(rss),
        disk_bytes_per_job: bytes.map(|bytes| bytes as f64 / total as f64),
        due_page_ms: Some(due_page.as_secs_f64() * 1e3),
        restart_to_first_fire_ms: first_fire,
        fsync_ms: bench.fsync_ms()?,
        ..Account::default()
    };
    Ok(account.audited(&audit))
}

/// Entries of a page.
const PAGE: usize = 10_000;

/// How long the first page of due slots takes, on a store that was just opened.
async fn time_due_page(bench: &Bench) -> Result<Duration> {
    let parts = bench.open().await?;
    let query = DueQuery { shards: Shards::All, after: None, until: Timestamp::MAX, limit: PAGE };
    let begun = Instant::now();
    let page = parts.store.due(query).await?;
    let took = begun.elapsed();
    ensure!(!page.entries.is_empty(), "nothing is due");
    Ok(took)
}

/// The slots of the jobs that fire every second, and when the first run of all started.
async fn owed_on_time(
    store: &dyn punctual_store::Store,
    from: Timestamp,
    to: Timestamp,
) -> Result<(Owed, Option<Timestamp>)> {
    use punctual_store::{PageRequest, RunFilter};
    let (mut owed, mut after, mut first) = (Owed::new(), None, None::<Timestamp>);
    // The jobs that fire every second are the only ones with runs besides those that were overdue.
    loop {
        let page = PageRequest { after, limit: 5_000 };
        let page = store.runs(&RunFilter::default(), page).await?;
        for run in &page.items {
            first = first.into_iter().chain(run.started_at).min();
            owed.entry(run.job).or_insert_with(Vec::new);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let ids: Vec<_> = owed.keys().copied().collect();
    let tzdb = Tzdb::open(None)?;
    for ids in ids.chunks(1_000) {
        for stored in store.jobs(ids).await?.into_iter().flatten() {
            let timetable =
                stored.job.spec.schedule.timetable(&tzdb, &punctual_schedule::Binding::default())?;
            let slots = timetable.upcoming(from).take_while(|slot| *slot < to).collect();
            owed.insert(stored.job.id, slots);
        }
    }
    owed.retain(|_, slots| !slots.is_empty());
    Ok((owed, first))
}

fn disk(storage: &Storage) -> Result<Option<u64>> {
    match storage {
        Storage::Embedded(directory) => Ok(Some(size_of(Path::new(directory))?)),
        Storage::Memory | Storage::Postgres(_) => Ok(None),
    }
}

/// Waits until everything due by then has been fired and has ended.
pub(super) async fn settle(running: &Running, by: Timestamp) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        // The store is asked only when nothing is held: asking all the time would be part of what is measured.
        if running.held() == 0 {
            let query = DueQuery { shards: Shards::All, after: None, until: by, limit: 1 };
            let waiting = running.parts.store.due(query).await?.entries.len();
            if waiting == 0 && running.held() == 0 && !running.has_waiting().await? {
                return Ok(());
            }
        }
        ensure!(Instant::now() < deadline, "the engine did not come to an end within five minutes");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
