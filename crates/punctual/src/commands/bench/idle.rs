//! How long an idle server takes from a request to the start of its handler, beside what the disk takes by itself.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use punctual::wire::Running;
use punctual_api::job::Trigger;
use punctual_client::Client;
use serde::Serialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::Common;
use super::network::{Served, Transport};
use super::scenario::{Bench, GRACE};

const QUEUE: &str = "idle";

/// Between two requests: what the one before left to do is done, and the server is idle again.
const PAUSE: Duration = Duration::from_millis(20);

/// Requests that are not counted: connections are opened, statements prepared.
const WARM_UP: usize = 20;

/// What was measured, in milliseconds.
#[derive(Debug, Serialize)]
pub(super) struct Idle {
    transport: &'static str,
    samples: usize,
    /// What making 4 KB durable takes on the same disk, between the samples; none where it is another's.
    #[serde(skip_serializing_if = "Option::is_none")]
    fsync_ms: Option<Times>,
    /// From the request that registers a `now` job to the start of its handler.
    now_ms: Times,
    /// From the request that triggers a job to the start of its handler.
    trigger_ms: Times,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Times {
    p50: f64,
    p99: f64,
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Option<Times> {
        times.sort_unstable();
        let last = times.len().checked_sub(1)?;
        let at = |percent: usize| (times[last * percent / 100].as_secs_f64() * 1e6).round() / 1e3;
        Some(Times { p50: at(50), p99: at(99) })
    }
}

impl Idle {
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<28}{value}");
        };
        let shown = |times: Times| format!("p50 {:.2} ms, p99 {:.2} ms", times.p50, times.p99);
        line("transport", self.transport.into());
        line("samples of each", self.samples.to_string());
        if let Some(times) = self.fsync_ms {
            line("fsync", shown(times));
        }
        line("now job to its handler", shown(self.now_ms));
        line("trigger to its handler", shown(self.trigger_ms));
        text.trim_end().to_string()
    }
}

/// Measures so many of each, one after the other.
pub(super) async fn idle(samples: usize, transport: Transport, common: &Common) -> Result<Idle> {
    ensure!(samples > 0, "at least one sample is needed");
    let bench = Bench::new(common).await?;
    let parts = bench.open().await?;
    let mut options = bench.options()?;
    options.node.roles.worker = false;
    let running = Running::start_on(parts, options).await?;
    let served = Served::start(&running).await?;
    let client = served.client()?;
    let (started, mut starts) = mpsc::unbounded_channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = transport.worker(served.client()?, QUEUE).handler("nothing", move |_| {
        // Who does not listen any more has ended.
        let _ = started.send(Instant::now());
        std::future::ready(Ok(None))
    });
    let working = tokio::spawn(worker.run_until(async {
        // Whoever stops it drops it at the latest.
        let _ = stopped.await;
    }));
    let job = client.create_job(&spec(json!({"every": "PT24H"})), None).await?.value.status.id;
    let (mut now, mut trigger, mut disk) = (Vec::new(), Vec::new(), Vec::new());
    for sample in 0..WARM_UP + samples {
        let one = measure(&mut starts, register(&client)).await?;
        let other = measure(&mut starts, run(&client, &job)).await?;
        if sample >= WARM_UP {
            now.push(one);
            trigger.push(other);
            disk.extend(bench.fsync_once()?);
        }
    }
    // The worker goes before the server does.
    let _ = stop.send(());
    working.await.context("the worker broke off")??;
    served.stop().await;
    running.stop(GRACE).await?;
    let nothing = "nothing was measured";
    Ok(Idle {
        transport: transport.as_str(),
        samples,
        fsync_ms: Times::of(disk),
        now_ms: Times::of(now).context(nothing)?,
        trigger_ms: Times::of(trigger).context(nothing)?,
    })
}

fn spec(schedule: serde_json::Value) -> serde_json::Value {
    json!({"name": "idle", "schedule": schedule, "queue": QUEUE, "target": {"worker": {"handler": "nothing"}}})
}

async fn register(client: &Client) -> Result<()> {
    client.create_job(&spec(json!({"now": true})), None).await?;
    Ok(())
}

async fn run(client: &Client, job: &str) -> Result<()> {
    client.trigger_job(job, &Trigger::default(), None).await?;
    Ok(())
}

/// From before the request to the start of the handler, which may come before its answer.
async fn measure(
    starts: &mut mpsc::UnboundedReceiver<Instant>,
    request: impl Future<Output = Result<()>>,
) -> Result<Duration> {
    tokio::time::sleep(PAUSE).await;
    let begun = Instant::now();
    request.await?;
    let started = starts.recv().await.context("the worker has ended")?;
    Ok(started.duration_since(begun))
}
