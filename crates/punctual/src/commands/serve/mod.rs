//! `punctual serve`: a node with its API, in one process.

mod admission;
mod demo;
mod ready;
mod waiting;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use punctual::wire::{Options, Running, Storage};
use punctual_domain::Target;
use punctual_domain::token::Key;
use punctual_schedule::Tzdb;
use punctual_server::{Keys, Limits, State};
use punctual_store_postgres::Role;
use punctual_worker::targets::http;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use self::admission::NoKey;
use self::ready::Ready;
use self::waiting::{Unstarted, Waiting};
use super::{output, secret, tzdata};
use crate::config::{Config, LogFormat, Settings};
use crate::failure::Failure;

/// Run a server: jobs, callbacks and the API, kept in a data directory.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// A file with settings, one `name = value` a line.
    #[arg(long, env = "PUNCTUAL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the settings in force, and end.
    #[arg(long)]
    print_config: bool,
    /// Register sample jobs that call a receiver inside this process, some of which fail on purpose.
    #[arg(long)]
    demo: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let config = Config::load(arguments.settings.clone(), arguments.config.as_deref())?;
    if arguments.print_config {
        return output::print(&config.print());
    }
    start_log(&config)?;
    let tzdb = Arc::new(tzdata::open(config.tzdata.as_deref())?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Other(error.into()))?;
    runtime.block_on(serve(config, tzdb, arguments.demo)).map_err(|error| match error.downcast::<NoKey>() {
        Ok(no_key) => Failure::Input(no_key.to_string()),
        Err(error) => Failure::Other(error),
    })
}

fn start_log(config: &Config) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&config.log)
        .map_err(|error| Failure::Input(format!("log: `{}`: {error}", config.log)))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Pretty => log.init(),
        LogFormat::Json => {
            log.json().flatten_event(true).with_current_span(true).with_span_list(false).init()
        }
    }
    Ok(())
}

async fn serve(config: Config, tzdb: Arc<Tzdb>, is_demo: bool) -> Result<()> {
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("listen on {}; is another server running there?", config.listen))?;
    let address = listener.local_addr().context("the address of the server")?;
    let policy = config.policy().map_err(|_| anyhow::anyhow!("the settings were checked before"))?;
    let mut signals = Signals::listen()?;
    let (waiting, listener) = Waiting::start(listener)?;
    let (running, place) = tokio::select! {
        started = waiting.until(async || start(&config, &tzdb, &policy, address).await) => started?,
        () = signals.told("stopping before it has started") => return Ok(()),
    };
    let node = running.id();
    let ready = Arc::new(Ready::new(&running));
    let state = State {
        engine: (**running.engine()).clone(),
        health: Arc::clone(&ready) as Arc<dyn punctual_server::Health>,
        access: Arc::new(Keys((**running.engine()).clone())),
        version: punctual_api::health::Version {
            version: env!("CARGO_PKG_VERSION").into(),
            commit: option_env!("PUNCTUAL_COMMIT").map(Into::into),
            tzdata: tzdb.version().map(Into::into),
        },
        metrics: running.metrics(),
        check_target: Some(check_target(policy)),
        has_mail: config.smtp_url.is_some(),
        limits: Limits { requests_per_second: config.requests_per_second, ..Limits::default() },
    };
    let demo = match is_demo {
        true => Some(demo::start(running.engine()).await?),
        false => None,
    };
    waiting.end().await;
    greet(address, &place, demo.is_some(), running.engine().are_keys_needed() == Ok(true));
    tracing::info!(%node, %address, data = %place, "serving");
    let (stop, stopping) = watch::channel(false);
    let router = match config.roles.api {
        true => punctual_server::router(state),
        false => punctual_server::probes(state),
    };
    let serving = tokio::spawn(
        axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>())
            .with_graceful_shutdown(told(stopping))
            .into_future(),
    );
    signals.told("stopping; a second signal stops at once").await;
    ready.drain();
    let grace = Duration::from_secs(config.grace);
    let stopping = async {
        let stopped = running.stop(grace).await?;
        tracing::info!(released = stopped.released, left = stopped.left, "stopped");
        stop.send_replace(true);
        // Requests that hang must not keep the process.
        let _ = tokio::time::timeout(Duration::from_secs(5), serving).await;
        anyhow::Ok(())
    };
    tokio::select! {
        stopped = stopping => stopped,
        () = signals.told("stopping at once") => Ok(()),
    }
}

/// Opens the store and starts the node. Also says where the data is.
async fn start(
    config: &Config,
    tzdb: &Arc<Tzdb>,
    policy: &http::Policy,
    address: SocketAddr,
) -> Result<(Running, String), Unstarted> {
    let databases = config.store.iter().map(punctual_store_postgres::Options::new);
    let replicas = config.replica.iter().map(punctual_store_postgres::Options::replica);
    let heard = |options| punctual_store_postgres::Options { hints: config.wakeups.into(), ..options };
    let storage = match config.store.is_empty() {
        true => Storage::Embedded(config.data.clone()),
        false => Storage::Postgres(databases.chain(replicas).map(heard).collect()),
    };
    let mut options = Options::new(storage, Arc::clone(tzdb));
    options.http = http::Options { policy: policy.clone(), ..http::Options::default() };
    options.check_target = Some(check_target(policy.clone()));
    // The settings were checked before.
    if let Ok(Some(mail)) = config.mail() {
        options.functions.insert(punctual_domain::alert::MAIL, mail.handler());
    }
    options.concurrency = config.concurrency;
    options.public_url = config.public_url.as_deref().map(Into::into);
    options.hot_second = config.hot_second;
    options.breaker_failures = config.breaker_failures;
    options.caps = config.caps();
    options.queues = config.queues.iter().map(|queue| queue.as_str().into()).collect();
    options.node = punctual_engine::Options {
        lease: Duration::from_secs(config.lease),
        shard_lease: Duration::from_secs(config.shard_lease),
        name: config.name.clone().unwrap_or_else(|| machine(address)),
        address: Some(address.to_string()),
        roles: config.roles,
        labels: config.labels.clone(),
    };
    if let Storage::Postgres(databases) = &options.storage
        && config.no_migrate
    {
        for database in databases.iter().filter(|one| one.role == Role::Database) {
            punctual_store_postgres::Schema::read(database)
                .await
                .and_then(|schema| schema.check())
                .map_err(punctual::Error::from)?;
        }
    }
    let parts = punctual::wire::Parts::open(&options.storage, Arc::clone(tzdb)).await?;
    let place = parts
        .postgres
        .as_ref()
        .map_or(config.data.display().to_string(), |store| store.addresses().join(" "));
    let store = Arc::clone(&parts.store);
    let started = async {
        let [signing, tokens, keys] = match &parts.postgres {
            Some(store) => [
                secret::shared(store, secret::SIGNING).await?,
                secret::shared(store, secret::TOKENS).await?,
                secret::shared(store, secret::KEYS).await?,
            ],
            None => [
                secret::load(&config.data, secret::SIGNING)?,
                secret::load(&config.data, secret::TOKENS)?,
                secret::load(&config.data, secret::KEYS)?,
            ],
        };
        options.secrets = vec![signing];
        options.token_key = Some(Key::of_secret(&tokens.reveal()));
        admission::prepare(&parts.engine, config, address, &keys).await?;
        anyhow::Ok(Running::start_on(parts, options).await?)
    };
    match started.await {
        Ok(running) => Ok((running, place)),
        // It was there a moment ago.
        Err(error) if !config.store.is_empty() && !store.health().writable => {
            Err(Unstarted::Away(format!("{error:#}")))
        }
        Err(error) => Err(Unstarted::Failed(error)),
    }
}

/// The name of the machine, and the port.
fn machine(address: SocketAddr) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = if name.trim().is_empty() { "node" } else { name.trim() };
    format!("{name}:{}", address.port())
}

/// Whether a URL may be called at all, asked when a job is registered.
fn check_target(policy: http::Policy) -> Arc<punctual_api::read::CheckTarget> {
    Arc::new(move |target| match target {
        Target::Http(http) => {
            let url = http::Target::parse(&http.url).map_err(|error| error.to_string())?;
            let headers = http.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            http::Headers::parse(headers).map_err(|error| error.to_string())?;
            policy.check(&url).map_err(|refusal| refusal.to_string())
        }
        Target::Function { .. } => {
            Err("functions are handlers of a program that uses the library; this server has none".into())
        }
        Target::Worker { .. } | Target::Discard => Ok(()),
    })
}

async fn told(mut stopping: watch::Receiver<bool>) {
    // The sender lives until the server has ended.
    let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
}

/// SIGTERM and SIGINT. One that comes while nobody waits for it is told when somebody does.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("listen for SIGINT")?,
        })
    }

    /// Waits for the next one.
    async fn told(&mut self, message: &str) {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "{message}");
    }
}

/// Says where things are, and the first three things to try.
fn greet(address: SocketAddr, data: &str, is_demo: bool, has_keys: bool) {
    let shown = if has_keys { "-H \"Authorization: Bearer $PUNCTUAL_KEY\" " } else { "" };
    let create = format!(
        "curl {shown}-d '{{\"name\":\"hello\",\"schedule\":{{\"every\":\"PT5S\"}},\"target\":{{\"http\":{{\"url\":\
         \"http://127.0.0.1:9000/hook\"}}}}}}' http://{address}/v1/jobs"
    );
    eprintln!("Punctual {} is listening on http://{address}", env!("CARGO_PKG_VERSION"));
    eprintln!("Data is in {data}");
    if is_demo {
        eprintln!("Sample jobs are running; some of them fail on purpose.");
    }
    if has_keys {
        eprintln!("Whoever calls needs a key.");
    }
    eprintln!();
    eprintln!("Try:");
    eprintln!("  {create}");
    eprintln!("  punctual run list --server http://{address}");
    eprintln!("  punctual explain '30 2 * * *' --tz America/New_York");
    eprintln!();
}
