//! A black hole: very many jobs call a target that accepts and never answers, and others one that does.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use punctual_domain::TenantId;
use punctual_domain::job::{Http, Method, Target as JobTarget};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::account::{Account, Audit, Owed, Percentiles};
use super::load::register;
use super::machine::{Usage, rss_bytes};
use super::scenario::{Bench, Measured, after_registering, millis, sleep_until};
use super::{Common, Target};

/// What is being executed when the time is over is given back: most of it would never end.
const GRACE: Duration = Duration::from_secs(1);

/// The last slots of the others have ended by then.
const LAST: SignedDuration = SignedDuration::from_secs(5);

/// What is asked for.
#[derive(Clone, Copy)]
pub(super) struct BlackHole {
    /// Jobs that call the target that never answers.
    pub(super) jobs: u64,
    /// They are due over so many seconds; 0: all at one time.
    pub(super) over: u64,
    /// Slots a second of the others.
    pub(super) rate: u64,
    /// For how long the others are alone, and then for how long beside it.
    pub(super) seconds: u64,
}

/// Accepts connections and holds them; nobody is answered.
struct Hole {
    url: String,
    accepting: AbortHandle,
}

impl Hole {
    async fn open() -> Result<Hole> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen on loopback")?;
        let url = format!("http://{}/hole", listener.local_addr()?);
        let accepting = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
            }
        });
        Ok(Hole { url, accepting: accepting.abort_handle() })
    }
}

impl Drop for Hole {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl BlackHole {
    /// How late the slots of the others are, alone and beside it.
    pub(super) async fn run(self, common: &Common) -> Result<Account> {
        let BlackHole { jobs, over, rate, seconds } = self;
        ensure!(rate > 0 && rate <= 1_000 && seconds > 0, "1 to 1000 slots a second, for at least a second");
        let bench = Bench::new(&Common { target: Target::Http, ..common.clone() }).await?;
        let hole = Hole::open().await?;
        let parts = bench.open().await?;
        let begin = after_registering(jobs + rate)?;
        let middle = begin + SignedDuration::from_secs(seconds as i64);
        let end = middle + SignedDuration::from_secs(seconds as i64);
        let first = |n: u64| begin + millis(n * 1_000 / rate);
        let (others, registering) = register(&parts.engine, TenantId::DEFAULT, rate, |n| {
            let mut spec = bench.spec(n, &format!("@every 1s anchor {}", first(n)))?;
            spec.schedule.bounds.start = Some(begin);
            Ok(spec)
        })
        .await?;
        let target = JobTarget::Http(Http {
            url: hole.url.clone(),
            method: Method::Post,
            headers: Vec::new(),
            tls: None,
        });
        let (_, more) = register(&parts.engine, TenantId::DEFAULT, jobs, |n| {
            let due = middle + millis(n * over * 1_000 / jobs.max(1));
            let mut spec = bench.spec(n, &format!("@at {due}"))?;
            spec.target = target.clone();
            Ok(spec)
        })
        .await?;
        let running = bench.start(parts).await?;
        ensure!(Timestamp::now() < begin, "registering took too long; take fewer jobs");
        sleep_until(begin).await;
        let before = Usage::now();
        sleep_until(end + LAST).await;
        let (rss, used) = (rss_bytes(), Usage::now().since(before));
        let store = Arc::clone(&running.parts.store);
        running.stop(GRACE).await?;
        let slots = |number: u64| {
            (0..).map(|n| first(number) + millis(n * 1_000)).take_while(|slot| *slot < end).collect()
        };
        let owed: Owed = others.into_iter().map(|(number, id)| (id, slots(number))).collect();
        let audit = Audit::read(&*store, &owed).await?;
        let late = |is_beside: bool| {
            let slots = audit.slots.iter().filter(|(slot, _)| (*slot >= middle) == is_beside);
            Percentiles::of(slots.map(|(_, late)| *late).collect())
        };
        let (alone, beside) = (late(false), late(true));
        let took = Duration::from_secs(2 * seconds);
        let measured = Measured { registered: jobs + rate, registering: registering + more, took, used, rss };
        Ok(Account {
            scenario: format!(
                "black hole, {jobs} jobs in {over} s to a target that never answers, {rate} slots/s of others"
            ),
            others_alone_ms: alone,
            others_beside_ms: beside,
            ..measured.account(bench, &audit).await?
        })
    }
}
