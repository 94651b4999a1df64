//! Where the parts meet: store, engine, node and worker in one process.
//!
//! Used by `serve`, by the library and by the bench alike. Promise: there is one way to put a node together, so that
//! what is tested and measured is what runs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_api::read::CheckTarget;
use punctual_domain::id::WorkerId;
use punctual_domain::link;
use punctual_domain::policy::backlog::Caps;
use punctual_domain::run::Run;
use punctual_domain::secret::{Unusable, Values};
use punctual_domain::token::Key;
use punctual_domain::work::{Finished, Heartbeat, Held, Leased};
use punctual_domain::{Labels, Note, TenantId};
use punctual_engine::links::Followed;
use punctual_engine::{Clock, Engine, Node, Seat, SystemClock, SystemEntropy};
use punctual_schedule::Tzdb;
use punctual_server::Editor;
use punctual_store::{Memory, Store};
use punctual_store_embedded::Embedded;
use punctual_store_postgres::Several;
use punctual_worker::targets::function::{Answer, Call, Failed, Functions};
use punctual_worker::targets::http::{self, Client, Secret};
use punctual_worker::transport::Unreachable;
use punctual_worker::{Networks, Reports, Secrets, Session, Stopped, Targets, Transport, Worker};

use crate::Error;

/// Where jobs and runs are kept.
#[derive(Clone, Debug)]
pub enum Storage {
    /// In a data directory.
    Embedded(PathBuf),
    /// In PostgreSQL, shared with other nodes: one database or several, and replicas of them.
    Postgres(Vec<punctual_store_postgres::Options>),
    /// In memory, gone with the process: for tests and comparisons.
    Memory,
}

/// How a node is put together.
pub struct Options {
    /// Where jobs and runs are kept.
    pub storage: Storage,
    /// The time zone database.
    pub tzdb: Arc<Tzdb>,
    /// Handlers of `function` targets.
    pub functions: Functions,
    /// What callbacks may reach, and how.
    pub http: http::Options,
    /// Signs callbacks; the newest first.
    pub secrets: Vec<Secret>,
    /// Signs the tokens under which receivers report later: the same on all nodes, and after every restart. Without it jobs whose
    /// receivers do so cannot call them.
    pub token_key: Option<Key>,
    /// The address of the server as receivers know it, if it is known.
    pub public_url: Option<Arc<str>>,
    /// Attempts at a time.
    pub concurrency: usize,
    /// Queues that the worker serves; all, if none is named.
    pub queues: Vec<Arc<str>>,
    /// Slots in a second beyond which a job that is registered gets a hint.
    pub hot_second: usize,
    /// Failures of a target host, one after the other, that open its breaker; 0 for no breakers of targets.
    pub breaker_failures: u32,
    /// How many runs may wait.
    pub caps: Caps,
    /// Whether a target may be called at all, asked when jobs are edited.
    pub check_target: Option<Arc<CheckTarget>>,
    /// What the node is and does.
    pub node: punctual_engine::Options,
}

impl Options {
    /// The defaults over a store.
    pub fn new(storage: Storage, tzdb: Arc<Tzdb>) -> Self {
        Options {
            storage,
            tzdb,
            functions: Functions::default(),
            http: http::Options::default(),
            secrets: Vec::new(),
            token_key: None,
            public_url: None,
            concurrency: punctual_worker::Options::default().concurrency,
            queues: Vec::new(),
            hot_second: punctual_engine::crowd::HOT_SECOND,
            breaker_failures: punctual_domain::policy::breaker::FAILURES,
            caps: Caps::default(),
            check_target: None,
            node: punctual_engine::Options::default(),
        }
    }
}

/// A store and an engine over it; nothing runs yet.
pub struct Parts {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The store, if it is a data directory.
    pub embedded: Option<Arc<Embedded>>,
    /// The store, if it is in PostgreSQL.
    pub postgres: Option<Arc<Several>>,
    /// The engine.
    pub engine: Arc<Engine>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Parts {
    /// Opens the store.
    pub async fn open(storage: &Storage, tzdb: Arc<Tzdb>) -> Result<Parts, Error> {
        let (mut embedded, mut postgres) = (None, None);
        let store: Arc<dyn Store> = match storage {
            Storage::Memory => Arc::new(Memory::new(punctual_store_embedded::SHARDS)),
            Storage::Postgres(options) => {
                Arc::clone(postgres.insert(Arc::new(Several::open(options).await?))) as Arc<dyn Store>
            }
            Storage::Embedded(directory) => {
                let options = punctual_store_embedded::Options { directory: directory.clone(), shards: None };
                Arc::clone(embedded.insert(Arc::new(Embedded::open(&options)?))) as Arc<dyn Store>
            }
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let engine = Engine::new(store.clone(), clock.clone(), Arc::new(SystemEntropy), tzdb);
        Ok(Parts { store, embedded, postgres, engine: Arc::new(engine), clock })
    }
}

/// A running node with its worker.
pub struct Running {
    /// What it runs on.
    pub parts: Parts,
    node: Node,
    worker: Worker,
    /// Whether it executes jobs, besides what the system has for itself.
    is_worker: bool,
}

impl Running {
    /// Opens the store and starts everything.
    pub async fn start(options: Options) -> Result<Running, Error> {
        let parts = Parts::open(&options.storage, Arc::clone(&options.tzdb)).await?;
        Running::start_on(parts, options).await
    }

    /// Starts everything on an open store.
    pub async fn start_on(parts: Parts, options: Options) -> Result<Running, Error> {
        let client = Client::new(options.http)?;
        let editor = Editor { tzdb: options.tzdb, check_target: options.check_target };
        parts.engine.edit_by(Arc::new(editor));
        let mut functions = options.functions;
        functions.insert(link::MESSAGE, follow(Arc::clone(&parts.engine)));
        let clock = Arc::clone(&parts.clock);
        let targets = Targets {
            http: client,
            secrets: options.secrets.into(),
            vault: Some(Arc::new(OfTenants(Arc::clone(&parts.engine)))),
            networks: Some(Arc::new(OfTenants(Arc::clone(&parts.engine)))),
            functions,
            reports: options.token_key.clone().map(|key| Reports { key, address: options.public_url }),
            // The one that goes by the store's where the machine's is wrong.
            now: Arc::new(move || clock.now()),
        };
        if let Some(key) = options.token_key {
            parts.engine.set_token_key(key);
        }
        parts.engine.set_hot_second(options.hot_second);
        parts.engine.set_breaker_failures(options.breaker_failures);
        parts.engine.set_caps(options.caps);
        let id = parts.engine.new_worker_id();
        let (is_worker, mut queues) = (options.node.roles.worker, options.queues);
        // What the system has for itself is done by every node, whatever else it executes.
        if !is_worker {
            queues = vec![link::QUEUE.into()];
        } else if !queues.is_empty() {
            queues.push(link::QUEUE.into());
        }
        let transport = Arc::new(Local {
            engine: Arc::clone(&parts.engine),
            queues,
            labels: options.node.labels.clone(),
        });
        let worker_options = punctual_worker::Options {
            concurrency: if is_worker { options.concurrency } else { OWN_CONCURRENCY },
            heartbeat_every: options.node.lease / 3,
        };
        let worker = Worker::start(transport, targets, worker_options);
        let node = Node::start(Arc::clone(&parts.engine), id, options.node).await?;
        Ok(Running { parts, node, worker, is_worker })
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.parts.engine
    }

    /// The identity of this node.
    pub fn id(&self) -> WorkerId {
        self.node.id()
    }

    /// All figures of this process, as Prometheus reads them.
    pub fn metrics(&self) -> Arc<dyn Fn() -> String + Send + Sync> {
        let (engine, load) = (Arc::clone(&self.parts.engine), self.is_worker.then(|| self.worker.load()));
        Arc::new(move || {
            let (held, concurrency) = load.as_ref().map_or((0, 0), |load| load());
            engine.metrics().set_worker(held, concurrency);
            engine.metrics().text()
        })
    }

    /// How many attempts are being executed.
    pub fn held(&self) -> usize {
        self.worker.held()
    }

    /// Whether runs wait that may be claimed now.
    pub async fn has_waiting(&self) -> Result<bool, Error> {
        let next = self.parts.store.next_available_at(&punctual_store::Shards::All).await;
        let next = next.map_err(punctual_engine::Error::from)?;
        Ok(next.is_some_and(|at| at <= self.parts.clock.now()))
    }

    /// Stops firing, lets what is running end within `grace`, gives the rest back, and closes.
    pub async fn stop(mut self, grace: Duration) -> Result<Stopped, Error> {
        self.node.quiesce().await;
        let stopped = self.worker.stop(grace).await;
        self.node.stop().await?;
        Ok(stopped)
    }
}

/// Attempts at a time of a node that executes no jobs: links are a read and a write each.
const OWN_CONCURRENCY: usize = 16;

/// Delivers links, as a handler of functions.
fn follow(engine: Arc<Engine>) -> impl Fn(Call) -> Following + Send + Sync + 'static {
    move |call| {
        let engine = Arc::clone(&engine);
        Box::pin(async move {
            match engine.follow(call.job_id).await {
                Ok(Followed::Run(run)) => Ok(Some(format!("{{\"run_id\":\"{run}\"}}"))),
                Ok(Followed::Skipped) => Ok(Some("{\"skipped\":\"overlap\"}".into())),
                Err(error) if error.is_mendable() => Err(Failed::new(error.to_string())),
                Err(error) => Err(Failed::for_good(error.to_string())),
            }
        })
    }
}

type Following = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The worker's way to what tenants have for their calls: secrets, and hosts that they are held to.
struct OfTenants(Arc<Engine>);

#[async_trait]
impl Networks for OfTenants {
    async fn only_hosts(&self, tenant: TenantId) -> Result<Option<Arc<[String]>>, String> {
        self.0.only_hosts(tenant).await.map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Secrets for OfTenants {
    async fn open(&self, tenant: TenantId, names: &BTreeSet<String>) -> Result<Values, Unusable> {
        self.0.open_secrets(tenant, names).await
    }
}

/// The worker's way to the engine of its own process.
struct Local {
    engine: Arc<Engine>,
    queues: Vec<Arc<str>>,
    labels: Labels,
}

#[async_trait]
impl Transport for Local {
    async fn open(&self) -> Result<Arc<dyn Session>, Unreachable> {
        let seat = self.engine.seat(self.engine.new_worker_id(), self.queues.clone(), self.labels.clone());
        Ok(Arc::new(LocalSession { engine: Arc::clone(&self.engine), seat }))
    }
}

struct LocalSession {
    engine: Arc<Engine>,
    seat: Seat,
}

#[async_trait]
impl Session for LocalSession {
    fn worker(&self) -> WorkerId {
        self.seat.worker()
    }

    fn grant(&self, attempts: usize) {
        self.seat.grant(attempts);
    }

    async fn next(&self) -> Vec<Leased> {
        self.seat.next().await
    }

    fn close(&self) {
        self.seat.close();
    }

    async fn heartbeat(&self, held: Vec<Held>) -> Result<Heartbeat, Unreachable> {
        self.engine.heartbeat(self.seat.worker(), held).await.map_err(|error| Unreachable(error.to_string()))
    }

    async fn note(&self, notes: Vec<Note>) -> Result<(), Unreachable> {
        // What is refused is about attempts that are not held any more, of which the next heartbeat tells.
        self.engine.note(notes).await.map(drop).map_err(|error| Unreachable(error.to_string()))
    }

    async fn complete(&self, finished: Vec<Finished>) -> Result<Vec<Result<Run, String>>, Unreachable> {
        let answers = self.engine.complete(finished).await.map_err(|error| Unreachable(error.to_string()))?;
        Ok(answers.into_iter().map(|answer| answer.map_err(|refused| refused.to_string())).collect())
    }
}
